//! What a connection to an appliance's own program must keep to, whatever a client sends.
//! Shared by the fuzz target and the replay of the corpus.

use tare_libos::serve::script::Script;
use tare_web::connection::converse;
use tare_web::{Request, Response, limits};

/// The first byte is how the others are cut: answers are the same however they come.
pub(crate) fn judge(bytes: &[u8]) {
    let Some((piece, bytes)) = bytes.split_first() else {
        return;
    };
    let whole = answers(bytes, usize::MAX);
    assert_eq!(answers(bytes, usize::from(*piece).max(1)), whole);
    assert!(
        whole.is_empty() || whole.starts_with("HTTP/1.1 "),
        "{whole}"
    );
}

/// Whatever is answered, without what depends on the moment.
fn answers(bytes: &[u8], piece: usize) -> String {
    let mut client = Script::sending([bytes]).in_pieces(piece);
    converse(&mut client, &answer);
    let text = String::from_utf8(client.sent).expect("heads and our own bodies");
    let lines = text.replace("HTTP/1.1 100 Continue\r\n\r\n", "");
    let lines = lines.split_inclusive('\n');
    lines.filter(|line| !line.starts_with("Date: ")).collect()
}

/// Repeats a request in numbers, and its path in a field, where it must not end a line.
fn answer(request: &Request) -> Response {
    assert!(request.body().len() <= limits::MAX_BODY);
    assert!(request.path().starts_with('/') || request.path() == "*");
    assert!(!request.path().contains('?'));
    let sum: u64 = request.body().iter().map(|byte| u64::from(*byte)).sum();
    let query = request.query().map_or(0, str::len);
    let text = format!("{} {query} {sum}\n", request.method().len());
    Response::text(text).with_header("Location", request.path())
}
