//! Secrets in command lines: what `--json` prints may be kept and passed on.

/// Names of properties whose values are secrets.
const NAMES: [&str; 5] = ["password", "passwd", "secret", "token", "psk"];
const MASKED: &str = "***";

/// The arguments of a process with their secrets masked: values of properties that are
/// named for one, and `data=` of QEMU's secret objects.
pub(super) fn masked(command: &[String]) -> Vec<String> {
    command.iter().map(|argument| mask(argument)).collect()
}

fn mask(argument: &str) -> String {
    if argument.trim_start().starts_with('{') {
        return mask_json(argument);
    }
    let is_object = argument.split(',').next().is_some_and(|kind| {
        let kind = kind.strip_prefix("qom-type=").unwrap_or(kind);
        kind.starts_with("secret")
    });
    let parts = argument
        .split(',')
        .map(|part| mask_property(part, is_object));
    parts.collect::<Vec<_>>().join(",")
}

/// Other parts of one argument may be on their own lines, as in `--env`.
fn mask_property(part: &str, is_object: bool) -> String {
    let Some((name, _)) = part.split_once('=') else {
        return part.to_owned();
    };
    if is_secret(name) || (is_object && name == "data") {
        format!("{name}={MASKED}")
    } else {
        part.to_owned()
    }
}

/// A reference to a secret object (`password-secret=sec0`) is not a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    !name.ends_with("-secret") && NAMES.iter().any(|secret| name.contains(secret))
}

fn mask_json(argument: &str) -> String {
    let Ok(serde_json::Value::Object(mut object)) = serde_json::from_str(argument) else {
        return MASKED.to_owned();
    };
    let kind = object.get("qom-type").and_then(|kind| kind.as_str());
    let is_object = kind.is_some_and(|kind| kind.starts_with("secret"));
    for (name, value) in &mut object {
        if value.is_object() || value.is_array() || is_secret(name) || (is_object && name == "data")
        {
            *value = MASKED.into();
        }
    }
    serde_json::Value::Object(object).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secrets_are_masked_and_references_to_them_are_not() {
        let cases = [
            ("secret,id=s0,data=hunter2", "secret,id=s0,data=***"),
            (
                "qom-type=secret,id=s0,data=hunter2",
                "qom-type=secret,id=s0,data=***",
            ),
            (
                r#"{"qom-type":"secret","id":"k","data":"x"}"#,
                r#"{"data":"***","id":"k","qom-type":"secret"}"#,
            ),
            ("password=hunter2", "password=***"),
            ("DB_PASSWORD=hunter2", "DB_PASSWORD=***"),
            (
                "file=a.img,password-secret=s0",
                "file=a.img,password-secret=s0",
            ),
            ("q35,accel=kvm", "q35,accel=kvm"),
            ("{cut", "***"),
        ];
        for (argument, expected) in cases {
            assert_eq!(mask(argument), expected);
        }
    }
}
