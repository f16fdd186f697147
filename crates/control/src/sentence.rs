//! Errors as one line of text.

use std::error::Error;

/// An error with its causes, outermost first, in one line. A cause that the
/// line already ends with is not repeated.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{said}")]
    struct Outer {
        said: &'static str,
        source: io::Error,
    }

    #[test]
    fn causes_follow_in_order_and_none_is_said_twice() {
        let outer = |said| Outer {
            said,
            source: io::Error::other("no space left"),
        };
        let text = chain(&outer("cannot write the log"));
        assert_eq!(text, "cannot write the log: no space left");
        assert_eq!(chain(&outer("no space left")), "no space left");
    }
}
