//! `--net`: which network the machine gets.

use std::str::FromStr;

/// Longest name of an interface (`IFNAMSIZ` less the final NUL).
const NAME_MAX: usize = 15;

/// The network, as asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NetChoice {
    /// User-mode networking through passt.
    User,
    /// No interface.
    None,
    /// A tap interface that exists.
    Tap(String),
}

/// A network that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NetChoiceError {
    /// Not one of the three.
    #[error("a network is user, none or tap=NAME")]
    Form,
    /// A name that no interface can have.
    #[error("an interface's name has 1 to 15 characters and neither / nor blanks")]
    Name,
}

impl FromStr for NetChoice {
    type Err = NetChoiceError;

    fn from_str(text: &str) -> Result<Self, NetChoiceError> {
        match text.split_once('=') {
            None if text == "user" => Ok(Self::User),
            None if text == "none" => Ok(Self::None),
            Some(("tap", name)) if valid(name) => Ok(Self::Tap(name.to_owned())),
            Some(("tap", _)) => Err(NetChoiceError::Name),
            _ => Err(NetChoiceError::Form),
        }
    }
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
        assert_eq!("user".parse(), Ok(NetChoice::User));
        assert_eq!("none".parse(), Ok(NetChoice::None));
        assert_eq!("tap=t0".parse(), Ok(NetChoice::Tap("t0".to_owned())));
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
