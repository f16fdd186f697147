//! Small segments: Nagle's rule, corks, and what goes in spite of them.

mod script;

use script::{ACK, FIN, Script, modern};

#[test]
fn rfc9293_nagle_holds_small_segments_back() {
    let mut script = Script::open(modern());
    script.send(10);
    script.expect(ACK, 1, 1, 10);
    script.send(20);
    script.nothing();
    script.inject(ACK, 1, 11, b"");
    script.expect(ACK, 11, 1, 20);
    script.tcp.set_nodelay(true);
    script.send(30);
    script.expect(ACK, 31, 1, 30);
}

#[test]
fn minshall_the_rest_of_an_answer_does_not_wait_for_its_full_segments() {
    let mut script = Script::open(modern());
    script.send(1500);
    assert_eq!(script.data(), [(1, 1012), (1013, 488)]);
    script.send(1500);
    assert_eq!(script.data(), [(1501, 1012)], "one small segment at a time");
    script.inject(ACK, 1, 1501, b"");
    assert_eq!(script.data(), [(2513, 488)]);
}

#[test]
fn rfc8985_a_probe_takes_what_nagle_holds() {
    let mut script = Script::open(modern());
    script.send(1022);
    assert_eq!(script.data(), [(1, 1012), (1013, 10)]);
    script.send(20);
    script.nothing();
    assert_eq!(script.wait_for_deadline(), 20);
    assert_eq!(script.data(), [(1023, 20)]);
}

#[test]
fn linux_a_cork_holds_what_fills_no_segment_for_200_ms() {
    let mut script = Script::open(modern());
    script.tcp.set_corked(true);
    script.send(10);
    script.nothing();
    script.wait(150);
    script.send(10);
    script.nothing();
    assert_eq!(script.wait_for_deadline(), 50, "from the first byte on");
    assert_eq!(script.data(), [(1, 20)]);
    script.inject(ACK, 1, 21, b"");
    script.send(1500);
    assert_eq!(script.data(), [(21, 1012)]);
    script.inject(ACK, 1, 1033, b"");
    script.nothing();
    script.tcp.set_corked(false);
    assert_eq!(script.data(), [(1033, 488)]);
}

#[test]
fn linux_nodelay_pushes_out_of_a_cork_what_is_queued_and_no_more() {
    let mut script = Script::open(modern());
    script.tcp.set_corked(true);
    script.send(10);
    script.nothing();
    script.tcp.set_nodelay(true);
    assert_eq!(script.data(), [(1, 10)]);
    script.send(20);
    script.nothing();
    // Nothing is queued: the next bytes wait all the same.
    script.tcp.set_corked(false);
    assert_eq!(script.data(), [(11, 20)]);
    script.tcp.set_corked(true);
    script.tcp.set_nodelay(true);
    script.send(30);
    script.nothing();
    script.tcp.close();
    script.expect(ACK | FIN, 31, 1, 30);
}

#[test]
fn linux_what_more_follows_waits_for_it() {
    let mut script = Script::open(modern());
    assert_eq!(script.tcp.send_with_more(&[1; 200]), Ok(200));
    script.nothing();
    script.send(1024);
    assert_eq!(script.data(), [(1, 1012), (1013, 212)]);
    script.inject(ACK, 1, 1225, b"");
    assert_eq!(script.tcp.send_with_more(&[1; 200]), Ok(200));
    script.nothing();
    assert_eq!(script.wait_for_deadline(), 200);
    assert_eq!(script.data(), [(1225, 200)]);
}
