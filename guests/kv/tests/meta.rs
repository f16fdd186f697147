//! Meta commands: what they answer, without memcached beside (`differential.rs`
//! compares the rest).

mod support;

use support::{ask, server, talk};
use tare_guest_kv::host::HostClock;
use tare_guest_kv::server::{Server, Settings};

/// The answers to a script whose lines end in `|`.
fn answers(script: &str) -> String {
    let script = script.replace('|', "\r\n") + "\r\n";
    ask(script).text().replace("\r\n", "|")
}

#[test]
fn flags_are_answered_in_the_order_asked() {
    let script = "set k 5 0 3|abc|mg k s v f t k O123 h|mg k h";
    assert_eq!(
        answers(script),
        "STORED|VA 3 s3 f5 t-1 kk O123 h0|abc|HD h1|"
    );
    assert_eq!(answers("ms k 2 T30 F7|hi|mg k f v t"), "HD|VA 2 f7 t30|hi|");
    assert_eq!(answers("mn|me nothing"), "MN|EN|");
    let debug = answers("set k 0 0 1|a|me k");
    assert!(debug.starts_with("STORED|ME k exp=-1 cas=1 fetch=no cls=1 size="));
}

/// As memcached 1.6.18 answers, whose suite has these.
#[test]
fn a_get_with_u_leaves_no_trace() {
    let script = "ms k 1 T100|a|mg k s t u h|mg k h|mg k u h";
    assert_eq!(answers(script), "HD|HD s1 t100 h0|HD h0|HD h1|");
    // Two that are alike but for their order: the one that was used least recently goes.
    let kept = |look: &str| {
        let settings = Settings {
            memory_bytes: 100_000,
            ..Settings::default()
        };
        let server = Server::new(settings, HostClock);
        let set = |n| format!("ms k{n} 1000 q\r\n{}\r\n", "x".repeat(1000));
        let mut pieces: Vec<_> = (0..80).map(set).collect();
        pieces.push(format!("{look}\r\n"));
        pieces.extend((80..130).map(set));
        pieces.push("mg k0 s q\r\nmg k1 s q\r\nmn\r\n".into());
        let pieces = pieces.into_iter().map(String::into_bytes);
        talk(&server, pieces).text().replace("\r\n", "|")
    };
    assert_eq!(kept("mg k0 u"), "HD|MN|");
    assert_eq!(kept("mg k0"), "HD|HD s1000|MN|");
}

#[test]
fn what_a_refused_set_shows_of_the_unique_number_is_zero() {
    let script = "set k 0 0 1|a|ms k 1 c C9|b|ms none 1 C9 c|b|ms k 1 ME c k|b|ms k 1 c|b";
    assert_eq!(answers(script), "STORED|EX c0|NF c0|NS c0 kk|HD c2|");
}

#[test]
fn an_older_value_that_is_stored_as_stale_keeps_the_time_that_was_left() {
    let script = "set k 0 0 1|a|md k I T30|mg k t v|ms k 1 I T90 C1|b|mg k t v";
    assert_eq!(
        answers(script),
        "STORED|HD|VA 1 t30 X W|a|HD|VA 1 t30 Z X|b|"
    );
}

#[test]
fn a_unique_number_counts_in_all_modes_but_add() {
    let set = |mode: &str, cas: &str| {
        answers(&format!(
            "set k 0 0 1|a|ms k 1 M{mode} C{cas}|b|ms new 1 M{mode} C1|b"
        ))
    };
    for (mode, differs, equals, new) in [
        ("A", "EX", "HD", "NS"),
        ("P", "EX", "HD", "NS"),
        ("R", "EX", "HD", "NF"),
        ("S", "EX", "HD", "NF"),
        ("E", "NS", "NS", "HD"),
    ] {
        assert_eq!(set(mode, "9"), format!("STORED|{differs}|{new}|"), "{mode}");
        assert_eq!(set(mode, "1"), format!("STORED|{equals}|{new}|"), "{mode}");
    }
}

/// What memcached 1.6.18 answers to the same.
#[test]
fn keys_in_base64_are_decoded_and_shown_so() {
    let script = "ms Zm9v 2 b k c|hi|mg foo v k|mg Zm9v v k b O1|md Zm9v k b|mg Zm9v b k|mn";
    assert_eq!(
        answers(script),
        "HD kZm9v b c1|VA 2 kfoo|hi|VA 2 kZm9v b O1|hi|HD kZm9v b|EN kZm9v b|MN|"
    );
    assert_eq!(
        answers("ma bnVt b N0 J5 v k|ma num v"),
        "VA 1 kbnVt b|5|VA 1|6|"
    );
    // memcached shows `num`, which was not stored in base64.
    let debug = answers("set num 0 0 1|1|me bnVt b");
    assert!(debug.starts_with("STORED|ME bnVt exp=-1 "), "{debug}");
    // A key with a line end in it does not split the answer.
    let debug = answers("ms DQpIRA== 1 b|x|me DQpIRA== b|mn");
    assert!(debug.starts_with("HD|ME DQpIRA== exp=-1 "), "{debug}");
    assert_eq!(debug.matches('|').count(), 3, "{debug}");
    let bad = "mg ?? b v|mg Zm9vYg b|mg Zm8 b|ms ?? 2 b|hi|md ?? b|ma ?? b|me ?? b|mg Zm9v b b|mn";
    assert_eq!(
        answers(bad),
        "CLIENT_ERROR error decoding key|CLIENT_ERROR error decoding key|\
         CLIENT_ERROR error decoding key|CLIENT_ERROR error decoding key|\
         CLIENT_ERROR invalid or duplicate flag|CLIENT_ERROR invalid or duplicate flag|\
         CLIENT_ERROR bad command line format|CLIENT_ERROR duplicate flag|MN|"
    );
}

#[test]
fn answers_without_an_item_have_key_and_opaque() {
    let script = "mg none k O1 s|ma none k O2|ma none q k|ms k 1 C5 k O3|a|md none k O4|mg none|\
                  set k 0 0 1|1|ma k C99 k O5";
    assert_eq!(
        answers(script),
        "EN knone O1|NF knone O2|NF knone|NF kk O3|NF knone O4|EN|STORED|EX kk O5|"
    );
}

#[test]
fn the_first_who_asks_for_a_stale_item_wins() {
    let script = "set k 0 0 3|old|md k I T30|mg k v|mg k v|ms k 3|new|mg k v";
    let expected = "STORED|HD|VA 3 X W|old|VA 3 Z X|old|HD|VA 3|new|";
    assert_eq!(answers(script), expected);
    assert_eq!(answers("mg k N30 t|mg k t"), "HD t30 W|HD t30 Z|");
    assert_eq!(
        answers("set k 0 10 1|a|mg k R30|mg k R30"),
        "STORED|HD W|HD Z|"
    );
}

#[test]
fn versions_are_compared_and_older_ones_stored_as_stale() {
    let script = "set k 0 0 1|a|ms k 1 C9|b|ms k 1 C1|c|ms k 1 C1 I|d|mg k v";
    assert_eq!(answers(script), "STORED|EX|HD|HD|VA 1 X W|d|");
    assert_eq!(answers("ms k 1 C1|a|md k C1"), "NF|NF|");
    assert_eq!(
        answers("set k 0 0 1|a|md k C9 k|md k C1"),
        "STORED|EX kk|HD|"
    );
}

#[test]
fn numbers_are_counted_and_made() {
    assert_eq!(
        answers("ma n N30 J13 v t|ma n D7 v|ma n MD D100 v"),
        "VA 2 t30|13|VA 2|20|VA 1|0|"
    );
    assert_eq!(
        answers("ma n|set n 0 0 1|x|ma n"),
        "NF|STORED|CLIENT_ERROR cannot increment or decrement non-numeric value|"
    );
}

#[test]
fn quiet_commands_answer_only_what_is_unusual() {
    let script = "ms k 1 q|a|mg none q|md k q|md k q|ms k 1 MR q|b|mn";
    assert_eq!(answers(script), "NF|NS|MN|");
}

#[test]
fn refused_data_passes_and_the_pipeline_goes_on() {
    let script = "ms k 3 z|abc|mn|ms k 3 k k|abc|mn|ms k 3 MX|abc|mn";
    let expected = "CLIENT_ERROR invalid flag|MN|CLIENT_ERROR duplicate flag|MN|\
                    CLIENT_ERROR invalid mode for ms M token|MN|";
    assert_eq!(answers(script), expected);
    let server = server();
    let large = [
        b"ms k 2000000\r\n".to_vec(),
        vec![b'x'; 2_000_002],
        b"mn\r\n".to_vec(),
    ];
    let answers = talk(&server, large);
    assert_eq!(
        answers.text(),
        "SERVER_ERROR object too large for cache\r\nMN\r\n"
    );
}

/// A value that is refused removes the older one of the key that was meant, and no other.
#[test]
fn a_refused_value_leaves_no_older_one_under_its_decoded_key() {
    let data = || [b"x".repeat(2_000_000), b"\r\n".to_vec()].concat();
    let begin = b"set foo 0 0 1\r\na\r\nset Zm9v 0 0 1\r\nb\r\n".to_vec();
    let end = || b"mg foo v\r\nmg Zm9v v\r\n".to_vec();
    let set = b"ms Zm9v 2000000 b\r\n".to_vec();
    let answers = talk(&server(), [begin.clone(), set, data(), end()]);
    assert_eq!(
        answers.text(),
        "STORED\r\nSTORED\r\nSERVER_ERROR object too large for cache\r\nEN\r\nVA 1\r\nb\r\n"
    );
    // Which key was meant is not known: none is removed.
    let set = b"ms Zm9v 2000000 b b\r\n".to_vec();
    let answers = talk(&server(), [begin, set, data(), end()]);
    assert_eq!(
        answers.text(),
        "STORED\r\nSTORED\r\nCLIENT_ERROR duplicate flag\r\nVA 1\r\na\r\nVA 1\r\nb\r\n"
    );
}

#[test]
fn however_meta_commands_are_cut_the_answers_are_the_same() {
    let script = b"ms k 5 T9 c\r\nhello\r\nmg k v t\r\nma n N0 J5 v\r\nmd k q\r\nmg k v\r\nmn\r\n";
    let whole = ask(script);
    for cut in 1..script.len() {
        let (one, two) = script.split_at(cut);
        let answers = talk(&server(), [one.to_vec(), two.to_vec()]);
        assert_eq!(answers.bytes, whole.bytes, "cut at {cut}");
    }
}
