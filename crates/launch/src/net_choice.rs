//! `--net`: which network the machine gets.

use std::str::FromStr;

use tare_frames::{Prefix, PrefixError};

/// Longest name of an interface (`IFNAMSIZ` less the final NUL).
const NAME_MAX: usize = 15;

/// The requested network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetChoice {
    /// User-mode networking.
    User(UserNet),
    /// No interface.
    None,
    /// A tap interface that exists.
    Tap(String),
}

/// User-mode networking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserNet {
    /// The guest may not reach addresses of the host and link-local ones, except these.
    pub allow: Vec<Prefix>,
    /// Who serves published ports.
    pub forward: Forward,
    /// Whether the guest may open connections.
    pub outbound: Outbound,
}

/// Who serves published ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forward {
    /// The monitor where it can: Tare's own, for images of the library OS and programs.
    #[default]
    Auto,
    /// passt.
    Passt,
    /// The monitor.
    Direct,
}

/// Whether the guest may open connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outbound {
    /// It may, through passt.
    #[default]
    On,
    /// It may not, and there is no passt.
    Off,
}

/// A network option that cannot be parsed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetChoiceError {
    /// Not one of the three.
    #[error(
        "invalid network: use user[,forward=auto|direct|passt][,outbound=on|off]\
         [,allow=ADDRESS[/BITS]], none or tap=NAME"
    )]
    Form,
    /// A range that must not be allowed.
    #[error(transparent)]
    Range(#[from] PrefixError),
    /// A name that no interface can have.
    #[error("invalid interface name: use 1 to 15 characters without / and blanks")]
    Name,
}

impl FromStr for NetChoice {
    type Err = NetChoiceError;

    fn from_str(text: &str) -> Result<Self, NetChoiceError> {
        if let Some(options) = text.strip_prefix("user,") {
            return user(options);
        }
        match text.split_once('=') {
            None if text == "user" => Ok(Self::User(UserNet::default())),
            None if text == "none" => Ok(Self::None),
            Some(("tap", name)) if valid(name) => Ok(Self::Tap(name.to_owned())),
            Some(("tap", _)) => Err(NetChoiceError::Name),
            _ => Err(NetChoiceError::Form),
        }
    }
}

/// The options behind `user,`.
fn user(options: &str) -> Result<NetChoice, NetChoiceError> {
    let mut user = UserNet::default();
    for option in options.split(',') {
        match option.split_once('=') {
            Some(("allow", range)) => user.allow.push(range.parse()?),
            Some(("forward", "auto")) => user.forward = Forward::Auto,
            Some(("forward", "direct")) => user.forward = Forward::Direct,
            Some(("forward", "passt")) => user.forward = Forward::Passt,
            Some(("outbound", "on")) => user.outbound = Outbound::On,
            Some(("outbound", "off")) => user.outbound = Outbound::Off,
            _ => return Err(NetChoiceError::Form),
        }
    }
    Ok(NetChoice::User(user))
}

/// The kernel's rule (`dev_valid_name` in `net/core/dev.c`).
fn valid(name: &str) -> bool {
    let forbidden = |c: char| c == '/' || c == ':' || c == '\0' || c.is_ascii_whitespace();
    (1..=NAME_MAX).contains(&name.len()) && name != "." && name != ".." && !name.contains(forbidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_networks_have_names() {
        assert_eq!("user".parse(), Ok(NetChoice::User(UserNet::default())));
        assert_eq!("none".parse(), Ok(NetChoice::None));
        assert_eq!("tap=t0".parse(), Ok(NetChoice::Tap("t0".to_owned())));
    }

    #[test]
    fn addresses_can_be_opened_one_by_one() {
        let ranges = ["127.0.0.1", "192.0.2.0/24"].map(|text| text.parse().expect("a range"));
        let choice = "user,allow=127.0.0.1,allow=192.0.2.0/24".parse();
        let user = UserNet {
            allow: ranges.into(),
            ..UserNet::default()
        };
        assert_eq!(choice, Ok(NetChoice::User(user)));
        for text in ["user,", "user,allow", "user,deny=::1"] {
            assert_eq!(
                text.parse::<NetChoice>(),
                Err(NetChoiceError::Form),
                "{text}"
            );
        }
        let parsed = "user,allow=1.2.3".parse::<NetChoice>();
        assert!(matches!(parsed, Err(NetChoiceError::Range(_))));
    }

    #[test]
    fn other_words_are_refused() {
        let parse = |text: &str| text.parse::<NetChoice>();
        assert_eq!(parse("bridge"), Err(NetChoiceError::Form));
        assert_eq!(parse("tap"), Err(NetChoiceError::Form));
        assert_eq!(parse("tap="), Err(NetChoiceError::Name));
        assert_eq!(parse("tap=a/b"), Err(NetChoiceError::Name));
        assert_eq!(parse("tap=sixteencharacter"), Err(NetChoiceError::Name));
    }
}
