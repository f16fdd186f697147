use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::{Error, ErrorKind, IoSlice, Read, Result, Write};

/// Takes at most two bytes a call and has room for `room` in all.
struct Narrow {
    taken: Vec<u8>,
    room: usize,
}

impl Write for Narrow {
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        let n = buf.len().min(2).min(self.room - self.taken.len());
        self.taken.extend_from_slice(&buf[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn write_all_goes_on_after_partial_writes() {
    let mut sink = Narrow {
        taken: vec![],
        room: 9,
    };
    sink.write_all(b"seven b").unwrap();
    assert_eq!(sink.taken, b"seven b");
    let error = sink.write_all(b"more than fits").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WriteZero);
}

#[test]
fn formatting_reports_the_sinks_error() {
    let mut sink = Narrow {
        taken: vec![],
        room: 3,
    };
    let error = write!(sink, "{}", 12345).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WriteZero);
    assert_eq!(sink.taken, b"123");
}

#[test]
fn read_exact_and_to_end_know_the_end() {
    let mut source: &[u8] = b"abc";
    let mut buf = [0; 4];
    let error = source.read_exact(&mut buf).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);

    let long = vec![7; 5000];
    let mut all = vec![1];
    assert_eq!(long.as_slice().read_to_end(&mut all).unwrap(), 5000);
    assert_eq!((all.len(), all[0], all[5000]), (5001, 1, 7));
}

#[test]
fn vectored_writes_keep_the_order() {
    let mut out = Vec::new();
    let parts = [
        IoSlice::new(b"head"),
        IoSlice::new(b""),
        IoSlice::new(b"body"),
    ];
    assert_eq!(out.write_vectored(&parts).unwrap(), 8);
    assert_eq!(out, b"headbody");

    let mut sink = Narrow {
        taken: vec![],
        room: 9,
    };
    assert_eq!(sink.write_vectored(&parts[1..]).unwrap(), 2);
    assert_eq!(sink.taken, b"bo");
}

#[test]
fn messages_are_lower_case_and_short() {
    assert_eq!(Error::from(ErrorKind::TimedOut).to_string(), "timed out");
    assert_eq!(
        Error::new(ErrorKind::Other, "the wire is cut").to_string(),
        "the wire is cut"
    );
}
