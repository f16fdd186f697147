//! Whatever segments arrive, in whatever order: no panic, no more memory than the
//! pool has, and an end to what is sent at one time.

mod script;

use proptest::prelude::*;
use script::{Script, modern};
use tare_tcp::options::{Options, Timestamps};
use tare_tcp::{Pool, Seq};

#[derive(Clone, Debug)]
struct Step {
    flags: u8,
    seq: i32,
    ack: i32,
    window: u16,
    len: usize,
    block: Option<(i32, u16)>,
    stamp: Option<(u32, u32)>,
    wait_ms: u64,
    action: u8,
}

fn near() -> impl Strategy<Value = i32> {
    prop_oneof![6 => -3i32..3, 3 => -3000i32..3000, 2 => -70_000i32..70_000, 1 => any::<i32>()]
}

fn step() -> impl Strategy<Value = Step> {
    let bits = prop_oneof![6 => Just(0x10u8), 1 => Just(0x11u8), 2 => 0u8..0x40];
    let window = prop_oneof![3 => Just(65_535u16), 1 => any::<u16>(), 1 => Just(0u16)];
    (
        (bits, near(), near(), window),
        prop_oneof![2 => Just(0usize), 1 => 0usize..1500],
        prop::option::of((near(), any::<u16>())),
        prop::option::weighted(0.3, any::<(u32, u32)>()),
        prop_oneof![4 => 0u64..30, 1 => 0u64..70_000],
        0u8..16,
    )
        .prop_map(
            |((flags, seq, ack, window), len, block, stamp, wait_ms, action)| Step {
                flags,
                seq,
                ack,
                window,
                len,
                block,
                stamp,
                wait_ms,
                action,
            },
        )
}

/// Numbers near what is expected, so that most segments get past the first checks.
fn run(steps: Vec<Step>, options: Options) {
    let pool = Pool::new(64 << 10);
    let mut script = Script::open_in(options, pool.clone());
    let (mut expects, mut sent_to) = (1u32, 1u32);
    for step in steps {
        script.wait(step.wait_ms);
        match step.action {
            0 => drop(script.tcp.send(&[1; 3000])),
            1 => drop(script.tcp.send(&[1; 7])),
            2 => drop(script.tcp.recv(&mut [0; 900], script.now)),
            3 if step.len > 1400 => script.tcp.close(),
            4 if step.len > 1450 => script.tcp.abort(),
            5 => script.tcp.set_nodelay(true),
            6 => {
                let seq = script.segment(0, 0, sent_to, b"").ack - 1500;
                script.tcp.on_packet_too_big(seq, step.window, script.now);
            }
            _ => {}
        }
        let payload = vec![7; step.len];
        let seq = expects.wrapping_add_signed(step.seq);
        let ack = sent_to.wrapping_add_signed(step.ack);
        let mut segment = script.segment(step.flags, seq, ack, &payload);
        segment.window = step.window;
        if let Some((start, len)) = step.block {
            let start = Seq(segment.ack.0.wrapping_add_signed(start));
            segment.options.sack.push(start, start + u32::from(len));
        }
        if let Some((value, echo)) = step.stamp {
            segment.options.timestamps = Some(Timestamps { value, echo });
        }
        script.tcp.on_segment(script.now, &segment);
        for turn in 0.. {
            let Some(sent) = script.sent() else { break };
            assert!(turn < 2000, "it sends forever: {sent:?}");
            expects = sent.ack;
            if (sent.seq.wrapping_sub(sent_to) as i32) > -1 {
                sent_to = sent.seq.wrapping_add(sent.len as u32);
            }
        }
        let due = script.tcp.next_deadline();
        assert!(
            due.is_none_or(|due| due > script.now),
            "a deadline that has passed"
        );
        assert!(pool.used() <= pool.limit());
    }
    drop(script);
    assert_eq!(pool.used(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_segments_make_a_connection_panic(
        steps in prop::collection::vec(step(), 1..80),
        sack: bool,
        stamps: bool,
    ) {
        let mut options = Options { sack_permitted: sack, ..modern() };
        options.timestamps = stamps.then_some(Timestamps { value: 0, echo: 0 });
        run(steps, options);
    }
}
