//! Masks secrets in command lines: the output of `--json` may be stored and passed on.

/// Names of properties whose values are secrets.
const NAMES: [&str; 6] = ["password", "passwd", "passphrase", "secret", "token", "psk"];
/// Ends of such names that refer to a secret: an object of QEMU's, a file.
const REFERENCES: [&str; 2] = ["-secret", "file"];
/// What systemd takes credentials from, in an SMBIOS string: a name and a value follow.
const CREDENTIAL: &str = "io.systemd.credential";
/// What users may put into QEMU's firmware configuration is below this name.
const FIRMWARE: &str = "name=opt/";
const MASKED: &str = "***";

/// The arguments of a process with their secrets masked: values of properties that are named for one,
/// also in the command line of a guest's kernel; the value that follows such an option; `data=` of QEMU's secret objects;
/// credentials for systemd; strings of the firmware configuration; names and keys in addresses.
pub(super) fn masked(command: &[String]) -> Vec<String> {
    let mut is_value = false;
    let mask_next = |argument: &String| {
        let masked = if is_value && !argument.starts_with('-') {
            MASKED.to_owned()
        } else {
            mask(argument)
        };
        is_value = argument.starts_with('-') && !argument.contains('=') && is_secret(argument);
        masked
    };
    command.iter().map(mask_next).collect()
}

fn mask(argument: &str) -> String {
    if argument.trim_start().starts_with('{') {
        return mask_json(argument);
    }
    let is_object = argument.split(',').next().is_some_and(|kind| {
        let kind = kind.strip_prefix("qom-type=").unwrap_or(kind);
        kind.starts_with("secret")
    });
    let is_firmware = argument.starts_with(FIRMWARE);
    let mut text = String::new();
    let mut rest = argument;
    while !rest.is_empty() {
        let (word, separator, after) = next_word(rest);
        text.push_str(&mask_word(word, |name| {
            is_secret(name) || (is_object && name == "data") || (is_firmware && name == "string")
        }));
        text.push_str(separator);
        rest = after;
    }
    text
}

/// The first property, the comma or blank behind it, and the rest. A doubled comma is QEMU's for one in a
/// value; a value in quotes goes on until they end.
fn next_word(text: &str) -> (&str, &str, &str) {
    let mut chars = text.char_indices().peekable();
    let (mut quote, mut before) = (None, ' ');
    while let Some((at, char)) = chars.next() {
        match (quote, char) {
            (Some(open), _) if char == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if before == '=' => quote = Some(char),
            (None, ',') if chars.peek().is_some_and(|(_, next)| *next == ',') => {
                chars.next();
            }
            (None, _) if char == ',' || char.is_whitespace() => {
                let end = at + char.len_utf8();
                return (&text[..at], &text[at..end], &text[end..]);
            }
            _ => {}
        }
        before = char;
    }
    (text, "", "")
}

fn mask_word(word: &str, is_hidden: impl Fn(&str) -> bool) -> String {
    let Some((name, value)) = word.split_once('=') else {
        return mask_address(word);
    };
    if is_hidden(name) {
        return format!("{name}={MASKED}");
    }
    if let Some((credential, _)) = value
        .split_once('=')
        .filter(|_| value.starts_with(CREDENTIAL))
    {
        return format!("{name}={credential}={MASKED}");
    }
    format!("{name}={}", mask_address(value))
}

/// User names and passwords of an address, and the key of a Ceph image (`rbd:POOL/IMAGE:key=KEY`).
fn mask_address(value: &str) -> String {
    if value.starts_with("rbd:") {
        let parts = value.split(':').map(|part| match part.split_once('=') {
            Some((name @ "key", _)) => format!("{name}={MASKED}"),
            _ => part.to_owned(),
        });
        return parts.collect::<Vec<_>>().join(":");
    }
    let Some((scheme, rest)) = value.split_once("://") else {
        return value.to_owned();
    };
    let host_end = rest.find('/').unwrap_or(rest.len());
    match rest[..host_end].rfind('@') {
        Some(at) => format!("{scheme}://{MASKED}{}", &rest[at..]),
        None => value.to_owned(),
    }
}

/// A reference to a secret (`password-secret=sec0`, `--password-file PATH`) is not a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    !REFERENCES.iter().any(|end| name.ends_with(end))
        && NAMES.iter().any(|secret| name.contains(secret))
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
        } else if let Some(text) = value.as_str() {
            *value = mask_address(text).into();
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
            (
                r#"{"driver":"nbd","filename":"nbd://a:b@h/x"}"#,
                r#"{"driver":"nbd","filename":"nbd://***@h/x"}"#,
            ),
        ];
        for (argument, expected) in cases {
            assert_eq!(mask(argument), expected);
        }
    }

    #[test]
    fn secrets_within_an_argument_are_masked_to_their_end() {
        let cases = [
            (
                "console=ttyS0 wifi.psk=hunter2 quiet",
                "console=ttyS0 wifi.psk=*** quiet",
            ),
            (
                "a=b admin_password='hunter 2' quiet",
                "a=b admin_password=*** quiet",
            ),
            ("vnc,password=a,,b,id=v", "vnc,password=***,id=v"),
            (
                "type=11,value=io.systemd.credential:passwd.root=hunter2",
                "type=11,value=io.systemd.credential:passwd.root=***",
            ),
            (
                "name=opt/org.example/key,string=hunter2",
                "name=opt/org.example/key,string=***",
            ),
            (
                "file=https://me:hunter2@host/a.img,if=virtio",
                "file=https://***@host/a.img,if=virtio",
            ),
            ("file=https://host/a@b", "file=https://host/a@b"),
            (
                "file=rbd:pool/a:id=x:key=AQ==:conf=/c",
                "file=rbd:pool/a:id=x:key=***:conf=/c",
            ),
            ("unix:/run/a.sock,server=on", "unix:/run/a.sock,server=on"),
        ];
        for (argument, expected) in cases {
            assert_eq!(mask(argument), expected);
        }
    }

    #[test]
    fn the_value_that_follows_an_option_is_masked() {
        let all = |text: &str| {
            let arguments: Vec<String> = text.split(' ').map(str::to_owned).collect();
            masked(&arguments).join(" ")
        };
        assert_eq!(
            all("vmm --api-token hunter2 -m 64"),
            "vmm --api-token *** -m 64"
        );
        for open in ["vmm --password-file /run/p", "qemu -no-password -m 64"] {
            assert_eq!(all(open), open);
        }
    }
}
