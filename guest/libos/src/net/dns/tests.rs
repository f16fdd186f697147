use super::*;
use crate::net::TcpListener;
use crate::thread;

/// A server that sends a byte now and then blocks a caller no longer than the whole timeout:
/// with a timeout for each byte this takes hours.
#[test]
fn an_answer_in_drops_ends_with_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:9053").unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        while stream.write_all(&[0x20]).is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let name = Name::parse("slow.example").unwrap();
    let question = wire::question(7, &name, RecordType::A);
    let timeout = Duration::from_millis(300);
    let address = "127.0.0.1:9053".parse().unwrap();
    let answer = ask_by_tcp(address, &question, RecordType::A, timeout);
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::TimedOut);
    server.join();
}
