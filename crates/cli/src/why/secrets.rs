//! Masks secrets in command lines: the output of `--json` may be stored and passed on.

/// What names of properties hold whose values are secrets, without dashes and underscores.
const NAMES: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "rootpw",
    "secret",
    "token",
    "psk",
    "credential",
    "cookie",
    "signature",
    "apikey",
    "accesskey",
    "privatekey",
];
/// Such names as a whole word: `DB_PASS`, and not `bypass`.
const WORDS: [&str; 3] = ["pass", "pwd", "pw"];
/// Ends of such names that refer to a secret: an object of QEMU's, a file.
const REFERENCES: [&str; 2] = ["-secret", "file"];
/// Options with these words turn something off, and have no value.
const SWITCHES: [&str; 3] = ["no-", "disable-", "without-"];
/// What systemd takes credentials from, in an SMBIOS string: a name and a value follow.
const CREDENTIAL: &str = "io.systemd.credential";
/// The same on the command line of a guest's kernel: a name, a colon and a value follow.
const SET_CREDENTIAL: &str = "systemd.set_credential";
/// What users may put into QEMU's firmware configuration is below this name.
const FIRMWARE: &str = "opt/";
/// Options of VMMs that may follow a secret option which has no value. Anything else that begins with
/// a dash may be a secret: base64url has dashes.
const OPTIONS: [&str; 45] = [
    "m",
    "smp",
    "M",
    "machine",
    "cpu",
    "accel",
    "enable-kvm",
    "kernel",
    "initrd",
    "append",
    "bios",
    "boot",
    "drive",
    "blockdev",
    "hda",
    "cdrom",
    "device",
    "netdev",
    "nic",
    "net",
    "object",
    "chardev",
    "serial",
    "monitor",
    "qmp",
    "mon",
    "display",
    "nographic",
    "vnc",
    "spice",
    "name",
    "uuid",
    "smbios",
    "fw_cfg",
    "rtc",
    "daemonize",
    "pidfile",
    "sandbox",
    "id",
    "config-file",
    "api-sock",
    "cpus",
    "memory",
    "disk",
    "cmdline",
];
const MASKED: &str = "***";

/// Most properties and quotes within each other that are read.
const DEEPEST: usize = 16;
/// What an argument is, by the one before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Any,
    /// The value of a secret option.
    Secret,
    /// The value of `-fw_cfg`.
    Firmware,
}

/// The arguments of a process with their secrets masked: values of properties that are named for one,
/// also in the command line of a guest's kernel; the value that follows such an option; `data=` of QEMU's secret objects;
/// credentials for systemd; strings of the firmware configuration; names and keys in addresses.
pub(super) fn masked(command: &[String]) -> Vec<String> {
    let mut kind = Kind::Any;
    let mask_next = |argument: &String| {
        if kind == Kind::Secret && !is_option(argument) {
            kind = Kind::Any;
            return MASKED.to_owned();
        }
        let masked = mask(argument, kind);
        kind = kind_after(argument);
        masked
    };
    command.iter().map(mask_next).collect()
}

fn kind_after(argument: &str) -> Kind {
    let option = argument.trim_start_matches('-');
    let is_switch = || SWITCHES.iter().any(|word| option.starts_with(word));
    if option == argument || option.contains('=') {
        Kind::Any
    } else if option == "fw_cfg" {
        Kind::Firmware
    } else if is_secret(option) && !is_switch() {
        Kind::Secret
    } else {
        Kind::Any
    }
}

fn is_option(argument: &str) -> bool {
    let option = argument.trim_start_matches('-');
    option != argument && OPTIONS.contains(&option)
}

fn mask(argument: &str, kind: Kind) -> String {
    if argument.trim_start().starts_with('{') {
        return mask_json(argument);
    }
    // QEMU's name of an image may be JSON, with commas that are doubled or not.
    if let Some((before, _)) = argument.split_once("json:") {
        return format!("{}json:{MASKED}", mask(before, kind));
    }
    let mut values = argument
        .split(',')
        .filter_map(|word| word.rsplit('=').next());
    let is_object = values.clone().any(|value| value.starts_with("secret"));
    let is_firmware = kind == Kind::Firmware || values.any(|value| value.starts_with(FIRMWARE));
    // dracut's `iscsi:USER:PASSWORD@HOST` is as a URL.
    let argument = mask_users(&mask_users(argument, "://"), "iscsi:");
    mask_words(&argument, &|name: &str| {
        is_secret(name) || (is_object && name == "data") || (is_firmware && name == "string")
    })
}

fn mask_words(text: &str, is_hidden: &impl Fn(&str) -> bool) -> String {
    let (mut masked, mut rest) = (String::new(), text);
    while !rest.is_empty() {
        let (word, separator, after) = next_word(rest);
        masked.push_str(&mask_word(word, is_hidden, DEEPEST));
        masked.push_str(separator);
        rest = after;
    }
    masked
}

/// The first property, the comma or blank behind it, and the rest. A doubled comma is QEMU's for one in a
/// value; a property or a value in quotes goes on until they end.
fn next_word(text: &str) -> (&str, &str, &str) {
    let mut chars = text.char_indices().peekable();
    let (mut quote, mut before) = (None, '=');
    while let Some((at, char)) = chars.next() {
        let end = at + char.len_utf8();
        match (quote, char) {
            (Some(open), _) if char == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if before == '=' && text[end..].contains(char) => {
                quote = Some(char);
            }
            (None, ',') if chars.peek().is_some_and(|(_, next)| *next == ',') => {
                chars.next();
            }
            (None, _) if char == ',' || char.is_whitespace() => {
                return (&text[..at], &text[at..end], &text[end..]);
            }
            _ => {}
        }
        before = char;
    }
    (text, "", "")
}

/// A property's value may be a property: `--env=DB_PASS=...`, `"psk=..."`.
/// What is nested deeper than `depth` is masked whole: any process may have any arguments.
fn mask_word(word: &str, is_hidden: &impl Fn(&str) -> bool, depth: usize) -> String {
    let Some(depth) = depth.checked_sub(1) else {
        return MASKED.to_owned();
    };
    if let Some(inner) = in_quotes(word) {
        let quote = &word[..1];
        return format!("{quote}{}{quote}", mask_word(inner, is_hidden, depth));
    }
    if word.starts_with("rbd:") {
        let parts = word.split(':').map(|part| match part.split_once('=') {
            Some((name @ "key", _)) => format!("{name}={MASKED}"),
            _ => mask_property(part, is_hidden, depth),
        });
        return parts.collect::<Vec<_>>().join(":");
    }
    mask_property(word, is_hidden, depth)
}

fn mask_property(word: &str, is_hidden: &impl Fn(&str) -> bool, depth: usize) -> String {
    let Some((name, value)) = word.split_once('=') else {
        return word.to_owned();
    };
    if is_set_credential(name) {
        let credential = value
            .split_once(':')
            .map_or("", |(credential, _)| credential);
        return format!("{name}={credential}:{MASKED}");
    }
    if is_hidden(name) {
        return format!("{name}={MASKED}");
    }
    format!("{name}={}", mask_word(value, is_hidden, depth))
}

fn in_quotes(word: &str) -> Option<&str> {
    let inside = |quote| word.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\''))
}

/// For systemd a dash is an underscore there, and `rd.` stands before what is for the initrd alone.
fn is_set_credential(name: &str) -> bool {
    let name = name.strip_prefix("rd.").unwrap_or(name);
    name.replace('-', "_").starts_with(SET_CREDENTIAL)
}

/// User names and passwords of addresses, which begin with `start` and end with a slash or a blank.
fn mask_users(text: &str, start: &str) -> String {
    let mut parts = text.split(start);
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for address in parts {
        let is_end = |char: char| char == '/' || char.is_whitespace();
        let host_end = address.find(is_end).unwrap_or(address.len());
        let user_end = address[..host_end].rfind('@');
        masked.push_str(start);
        masked.push_str(user_end.map_or("", |_| MASKED));
        masked.push_str(&address[user_end.unwrap_or(0)..]);
    }
    masked
}

/// A reference to a secret (`password-secret=sec0`, `--password-file PATH`) is not a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let joined = name.replace(['-', '_'], "");
    let mut words = name.split(|char: char| !char.is_ascii_alphanumeric());
    let is_named = NAMES.iter().any(|secret| joined.contains(secret))
        || words.any(|word| WORDS.contains(&word));
    let is_reference = REFERENCES.iter().any(|end| name.ends_with(end));
    name.starts_with(CREDENTIAL) || (is_named && !is_reference)
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
            *value = mask(text, Kind::Any).into();
        }
    }
    serde_json::Value::Object(object).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_of_nothing_but_nesting_is_masked_and_not_followed() {
        for nested in [
            "a=".repeat(60_000),
            "'\"".repeat(30_000) + &"\"'".repeat(30_000),
        ] {
            let masked = mask(&nested, Kind::Any);
            assert!(
                masked.contains(MASKED) && masked.len() < 200,
                "{}",
                masked.len()
            );
        }
        assert_eq!(
            mask("a=b=c=password=hunter2", Kind::Any),
            "a=b=c=password=***"
        );
    }

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
            ("DB_PASS=hunter2", "DB_PASS=***"),
            ("PGPASSFILE=/run/p", "PGPASSFILE=/run/p"),
            ("API_KEY=hunter2", "API_KEY=***"),
            (
                "id=s0,qom-type=secret,data=a",
                "id=s0,qom-type=secret,data=***",
            ),
            (
                "--object=secret,id=s0,data=a",
                "--object=secret,id=s0,data=***",
            ),
            ("--env=DB_PASSWORD=hunter2", "--env=DB_PASSWORD=***"),
            (
                "driver=iscsi,portal=h,user=me,password=hunter2",
                "driver=iscsi,portal=h,user=me,password=***",
            ),
            (
                "driver=https,cookie=a=b,url=x",
                "driver=https,cookie=***,url=x",
            ),
            (
                r#"file=json:{"driver":"ssh",,"password":"x"}"#,
                "file=json:***",
            ),
            (
                "pcie-root-port,bus=b,bypass=on",
                "pcie-root-port,bus=b,bypass=on",
            ),
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
            assert_eq!(mask(argument, Kind::Any), expected);
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
            ("a \"psk=hunter 2\" quiet", "a \"psk=***\" quiet"),
            ("a='b psk=hunter2 quiet", "a='b psk=*** quiet"),
            (
                "init=\"/bin/sh -c psk=x\" quiet",
                "init=\"/bin/sh -c psk=***\" quiet",
            ),
            (
                "a systemd.set_credential=root.password:hunter2 quiet",
                "a systemd.set_credential=root.password:*** quiet",
            ),
            (
                "\"rd.systemd.set-credential=root.motd:hunter 2\" a",
                "\"rd.systemd.set-credential=root.motd:***\" a",
            ),
            (
                "systemd.set_credential_binary=a.b:aHVudGVyMg==",
                "systemd.set_credential_binary=a.b:***",
            ),
            ("inst.rootpw=hunter2", "inst.rootpw=***"),
            (
                "netroot=iscsi:me:hunter2@host::3260::iqn.x",
                "netroot=iscsi:***@host::3260::iqn.x",
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
            ("https://me:a,b@host/a?b=c", "https://***@host/a?b=c"),
            (
                "https://host/a?b=c&token=hunter2",
                "https://host/a?b=c&token=***",
            ),
            (
                "file=iscsi://me%hunter2@host/iqn",
                "file=iscsi://***@host/iqn",
            ),
            ("file=https://host/a@b", "file=https://host/a@b"),
            ("rbd:pool/a:key=AQ==:conf=/c", "rbd:pool/a:key=***:conf=/c"),
            (
                "file=rbd:pool/a:id=x:key=AQ==:conf=/c",
                "file=rbd:pool/a:id=x:key=***:conf=/c",
            ),
            ("unix:/run/a.sock,server=on", "unix:/run/a.sock,server=on"),
        ];
        for (argument, expected) in cases {
            assert_eq!(mask(argument, Kind::Any), expected);
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
        assert_eq!(
            all("vmm --api-token -aBc_d --api-token -m 64"),
            "vmm --api-token *** --api-token -m 64"
        );
        assert_eq!(
            all("qemu -fw_cfg opt/org.example/key,string=hunter2 -m 64"),
            "qemu -fw_cfg opt/org.example/key,string=*** -m 64"
        );
        assert_eq!(
            all("qemu --fw_cfg org.example/key,string=hunter2 -x a,string=b"),
            "qemu --fw_cfg org.example/key,string=*** -x a,string=b"
        );
        for open in [
            "vmm --password-file /run/p",
            "qemu -no-password -m 64",
            "vmm --no-token --log /run/l",
        ] {
            assert_eq!(all(open), open);
        }
    }
}
