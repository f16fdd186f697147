//! Commands, good and bad.

use proptest::prelude::*;

use super::*;

fn command(bytes: &[u8]) -> Command<'_> {
    match parse(bytes) {
        Parsed::Command(command, len) if len == bytes.len() => command,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_storage_command_waits_for_its_data() {
    let request = b"set key 7 0 3\r\nabc\r\n";
    for end in 15..request.len() {
        let waits = Parsed::Data {
            total: request.len(),
            verb: Verb::Set,
            key: Key::Plain(b"key"),
        };
        assert_eq!(parse(&request[..end]), waits);
    }
    let entry = Entry {
        verb: Verb::Set,
        key: b"key",
        flags: 7,
        exptime: 0,
        value: b"abc",
    };
    assert_eq!(command(request), Command::Store(entry, Reply::Wanted));
}

#[test]
fn the_last_word_tells_whether_to_answer() {
    assert_eq!(
        command(b"delete a noreply\r\n"),
        Command::Delete(b"a", Reply::Unwanted)
    );
    assert_eq!(
        command(b"delete noreply\r\n"),
        Command::Delete(b"noreply", Reply::Wanted)
    );
    assert_eq!(
        command(b"flush_all noreply\n"),
        Command::FlushAll(0, Reply::Unwanted)
    );
    assert_eq!(command(b"incr a x noreply\n"), Command::Answer(b""));
}

#[test]
fn a_line_ends_at_lf_and_its_text_at_nul() {
    assert_eq!(command(b"delete a\n"), Command::Delete(b"a", Reply::Wanted));
    assert_eq!(
        command(b"delete a\0bc\r\n"),
        Command::Delete(b"a", Reply::Wanted)
    );
    assert_eq!(
        command(b"delete a\r\r\n"),
        Command::Delete(b"a\r", Reply::Wanted)
    );
    assert_eq!(command(b"\r\n"), Command::Answer(b"ERROR\r\n"));
    assert_eq!(parse(b"delete a\0bc"), Parsed::Line);
}

#[test]
fn only_a_get_may_be_long() {
    let get = [b"  get ", &[b'a'; 3000][..]].concat();
    assert_eq!(parse(&get), Parsed::Line);
    assert_eq!(parse(&[b'a'; 2048]), Parsed::Line);
    assert_eq!(parse(&[b'a'; 2049]), Parsed::Hopeless);
    let long = [b"gets ", &[b'a'; MAX_GET_LINE][..]].concat();
    assert_eq!(parse(&long), Parsed::Hopeless);
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_to_something_within_them(
        bytes in prop::collection::vec(
            prop_oneof![4 => prop::sample::select(&b"setgacnri 019\r\n"[..]), 1 => any::<u8>()],
            1..100,
        ),
    ) {
        match parse(&bytes) {
            Parsed::Command(_, len) => prop_assert!(len > 0 && len <= bytes.len()),
            Parsed::Data { total, .. } => prop_assert!(total > bytes.len()),
            Parsed::Line | Parsed::Fields | Parsed::Hopeless => {}
        }
    }
}
