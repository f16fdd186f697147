//! Damaged file systems: each call ends with an answer or an error.

#[path = "../../../fuzz/judges/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/judges/ext4_volume.rs"]
mod judge;

use std::panic::catch_unwind;

/// Kibibytes of the images in which most metadata are.
const METADATA: u32 = 300;
/// And those before bitmaps and inodes.
const HEAD: u32 = 3;

/// Damage at random: the same in each run. `TARE_SOAK=ROUNDS` for more, `TARE_SEED=N` for other
/// damage.
#[test]
fn damage_at_random_places_has_an_end() {
    let soak = std::env::var("TARE_SOAK").ok();
    let rounds = soak.and_then(|rounds| rounds.parse().ok()).unwrap_or(300);
    let seed = std::env::var("TARE_SEED").ok();
    let mut state = seed.and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
    let mut below = |most: u32| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u32 % most
    };
    let mut panics = Vec::new();
    for round in 0..rounds {
        let mut bytes = vec![round as u8];
        for _ in 0..=below(6) {
            // The superblock and the descriptors of groups are a small part of it.
            let within = [HEAD, METADATA, METADATA][below(3) as usize];
            let at = below(within << 10).to_le_bytes();
            bytes.extend([at[0], at[1], at[2], below(256) as u8, 0]);
        }
        if catch_unwind(|| judge::judge(&bytes)).is_err() {
            panics.push(bytes);
        }
    }
    assert!(
        panics.is_empty(),
        "{} of {rounds}: {panics:x?}",
        panics.len()
    );
}

#[test]
fn replays_the_corpus() {
    corpus::replay("ext4_volume", judge::judge);
}
