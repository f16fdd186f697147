//! What a connection keeps to, whatever segments arrive in whatever order: no panic,
//! no more memory than the pool has, no deadline that has passed, and an end to what
//! is sent at one time. Shared by the fuzz target and `tare_tcp`'s tests.

#[path = "../../guest/tcp/tests/script/mod.rs"]
pub(crate) mod script;

use script::Script;
use tare_tcp::options::{Options, Timestamps};
use tare_tcp::{Pool, Seq};

/// A segment, what the application does before it, and the time since the last.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The header's flags.
    pub flags: u8,
    /// Its numbers, from those expected.
    pub seq: i32,
    pub ack: i32,
    pub window: u16,
    /// Bytes of data.
    pub len: usize,
    /// A SACK block, from its acknowledgement, and its length.
    pub block: Option<(i32, u16)>,
    /// Timestamps.
    pub stamp: Option<(u32, u32)>,
    pub wait_ms: u64,
    /// What the application does.
    pub action: u8,
}

/// Bytes of a step.
const STEP: usize = 20;
/// Steps of one input.
const STEPS_MAX: usize = 400;

/// Bytes as segments: the first byte is what the handshake agrees on, then 20 bytes a
/// step.
pub(crate) fn judge(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let options = Options {
        sack_permitted: first & 1 != 0,
        timestamps: (first & 2 != 0).then_some(Timestamps { value: 0, echo: 0 }),
        ..script::modern()
    };
    let (steps, _) = rest.as_chunks::<STEP>();
    let steps: Vec<Step> = steps.iter().take(STEPS_MAX).map(step).collect();
    run(&steps, options);
}

/// Numbers with their own scale, so that near ones are as easy to reach as far ones.
fn step(bytes: &[u8; STEP]) -> Step {
    let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let scaled = |at: usize, scale: u8| {
        let near = i32::from(half(at) as i16);
        match scale & 3 {
            0 => near >> 8,
            1 => near,
            2 => near << 4,
            _ => near << 16,
        }
    };
    let scales = bytes[1] >> 4;
    Step {
        flags: bytes[0] & 0x3f,
        action: bytes[1] & 0x0f,
        seq: scaled(2, scales),
        ack: scaled(4, scales >> 2),
        window: half(6),
        len: usize::from(half(8)) % 1500,
        block: (bytes[0] & 0x40 != 0).then(|| (scaled(10, bytes[19]), half(12))),
        stamp: (bytes[0] & 0x80 != 0).then(|| (u32::from(half(14)), u32::from(half(16)))),
        wait_ms: u64::from(bytes[18]).pow(2),
    }
}

/// Numbers near what is expected, so that most segments get past the first checks.
pub(crate) fn run(steps: &[Step], options: Options) {
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
            7 => script.tcp.set_corked(step.len % 2 == 0),
            8 => drop(script.tcp.send_with_more(&[1; 7])),
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
