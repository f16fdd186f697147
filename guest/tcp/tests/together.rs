//! What goes together over a link that cuts segments.

mod script;

use script::{Script, modern};

/// Full segments go together as far as the link and the congestion window take them; the rest goes
/// by itself, and so does what is sent again.
#[test]
fn a_link_that_cuts_gets_full_segments_together() {
    let mut script = Script::open_cutting(5000, modern());
    script.send(12_500);
    // The window is ten segments of 1,012 bytes.
    let cuts = |script: &mut Script| -> Vec<(usize, u16)> {
        let next = || {
            let out = script.tcp.poll(script.now)?;
            Some((out.payload_len(), out.cut))
        };
        std::iter::from_fn(next).collect()
    };
    assert_eq!(
        cuts(&mut script),
        [(4048, 1012), (4048, 1012), (2024, 1012)]
    );
    script.wait(1);
    // The third segment is missing.
    script.sack(1 + 2024, &[(1 + 3036, 1 + 10_120)]);
    // What it left room for, together as well.
    assert_eq!(cuts(&mut script), [(1012, 0), (2024, 1012), (356, 0)]);
    assert_eq!(script.tcp.statistics().segments_retransmitted, 1);
}
