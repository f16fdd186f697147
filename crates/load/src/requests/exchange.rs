//! What is sent, and what must come back for it.

use std::sync::Arc;

use super::request::Target;

/// A request with its answer.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// What is sent.
    pub wire: Arc<[u8]>,
    /// What must come back.
    pub answer: Expected,
}

/// An answer that is known.
#[derive(Clone, Debug)]
pub enum Expected {
    /// HTTP's 200 with this body.
    Http(Arc<[u8]>),
    /// These bytes.
    Exactly(Arc<[u8]>),
}

impl Exchange {
    /// GET of a file over HTTP.
    pub fn get(target: &Target) -> Self {
        let wire = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: tare-weigh\r\n\r\n",
            target.path, target.address
        );
        Self {
            wire: wire.into_bytes().into(),
            answer: Expected::Http(Arc::clone(&target.body)),
        }
    }

    /// Of these bytes.
    pub fn exactly(wire: String, answer: String) -> Self {
        Self {
            wire: wire.into_bytes().into(),
            answer: Expected::Exactly(answer.into_bytes().into()),
        }
    }

    /// The same `count` times, sent at once. Of HTTP there is no other than once.
    pub fn pipelined(&self, count: usize) -> Self {
        match &self.answer {
            Expected::Http(_) => self.clone(),
            Expected::Exactly(answer) => Self {
                wire: self.wire.repeat(count).into(),
                answer: Expected::Exactly(answer.repeat(count).into()),
            },
        }
    }
}
