//! Scripts of windows: closed ones, and their scale.

mod script;

use script::{ACK, Script, modern};
use tare_tcp::options::Options;
use tare_tcp::{Config, Loss, State};

/// A peer that closes its window with data on the way, and answers.
#[test]
fn rfc9293_a_closed_window_with_data_on_the_way_keeps_the_connection() {
    let mut script = Script::open(modern());
    script.send(1000);
    script.data();
    let mut closed = script.segment(ACK, 1, 1, b"");
    closed.window = 0;
    for _ in 0..18 {
        script.wait(5000);
        script.tcp.on_segment(script.now, &closed);
        script.data();
    }
    assert_eq!(script.tcp.state(), State::Established);
    while script.tcp.state() == State::Established {
        script.wait_for_deadline();
        script.data();
    }
    assert_eq!(script.tcp.loss(), Some(Loss::TimedOut), "without an answer");
}

#[test]
fn rfc7323_who_scales_by_nothing_says_so() {
    let options = Options {
        window_scale: Some(7),
        ..modern()
    };
    for (offered, answered) in [
        (options, Some(0)),
        (
            Options {
                window_scale: None,
                ..options
            },
            None,
        ),
    ] {
        let small = Config {
            receive_initial: 32_768,
            receive_max: 32_768,
            ..script::config()
        };
        assert_eq!(script::answer_to_syn(small, offered).window_scale, answered);
    }
}
