//! What opens a connection of each protocol, how a request is sent, and what ends it.

use super::catalog::Protocol;
use super::postgres;

impl Protocol {
    /// What every connection begins with; its answer has always the same length.
    pub fn greeting(self) -> Vec<u8> {
        match self {
            Self::Http | Self::Redis | Self::Memcached => Vec::new(),
            Self::Postgres => postgres::startup(),
        }
    }

    /// A request's bytes.
    pub(crate) fn wire(self, request: &str) -> Vec<u8> {
        match self {
            Self::Http | Self::Redis | Self::Memcached => request.as_bytes().to_vec(),
            Self::Postgres => postgres::query(request),
        }
    }

    /// The bytes of a request that is a connection's only one, after which the application
    /// closes. The text-based protocols have their end in the request.
    pub(crate) fn only(self, request: &str) -> Vec<u8> {
        match self {
            Self::Http | Self::Redis | Self::Memcached => self.wire(request),
            Self::Postgres => postgres::dialog(&[request]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_sent_as_it_is() {
        for protocol in [Protocol::Http, Protocol::Redis, Protocol::Memcached] {
            assert_eq!(protocol.greeting(), b"");
            assert_eq!(protocol.only("GET a\r\n"), b"GET a\r\n");
        }
    }

    #[test]
    fn a_query_stands_between_startup_and_end() {
        let protocol = Protocol::Postgres;
        let all = protocol.only("SELECT 1");
        let begin = protocol.greeting();
        let query = protocol.wire("SELECT 1");
        assert_eq!(all, [&begin[..], &query[..], b"X\0\0\0\x04"].concat());
    }
}
