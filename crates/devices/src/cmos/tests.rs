//! What a guest reads from the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use tare_abi::ports::{CMOS_DATA, CMOS_INDEX};

use super::Cmos;
use super::calendar::DateTime;

/// 2026-11-21 13:07:09 UTC, a Saturday.
const MOMENT: u64 = 1_795_266_429;

fn register(cmos: &mut Cmos, index: u8) -> u8 {
    let mut data = [0];
    cmos.write(CMOS_INDEX, &[index]);
    cmos.read(CMOS_DATA, &mut data);
    data[0]
}

fn date(cmos: &mut Cmos) -> [u8; 8] {
    [0x00, 0x02, 0x04, 0x06, 0x07, 0x08, 0x09, 0x32].map(|index| register(cmos, index))
}

#[test]
fn time_is_in_decimal_digits_unless_binary_is_asked_for() {
    let mut cmos = Cmos::with_clock(|| MOMENT);
    assert_eq!(
        date(&mut cmos),
        [0x09, 0x07, 0x13, 7, 0x21, 0x11, 0x26, 0x20]
    );
    register(&mut cmos, 0x0b);
    cmos.write(CMOS_DATA, &[0x06]);
    assert_eq!(date(&mut cmos), [9, 7, 13, 7, 21, 11, 26, 20]);
}

#[test]
fn twelve_hours_have_a_half_of_the_day() {
    for (seconds, hour) in [(0, 0x12), (3_600, 0x01), (43_200, 0x92), (82_800, 0x91)] {
        let mut cmos = Cmos::with_clock(move || seconds);
        register(&mut cmos, 0x0b);
        cmos.write(CMOS_DATA, &[0]);
        register(&mut cmos, 0);
        assert_eq!(register(&mut cmos, 0x04), hour, "{seconds}");
    }
}

#[test]
fn a_date_read_across_midnight_is_not_torn() {
    let clock = Arc::new(AtomicU64::new(86_399));
    let shown = Arc::clone(&clock);
    let mut cmos = Cmos::with_clock(move || shown.load(Ordering::Relaxed));
    assert_eq!(register(&mut cmos, 0x00), 0x59);
    clock.store(86_400, Ordering::Relaxed);
    assert_eq!(register(&mut cmos, 0x04), 0x23);
    assert_eq!(register(&mut cmos, 0x00), 0x00);
    assert_eq!(register(&mut cmos, 0x04), 0x00);
}

#[test]
fn no_update_is_in_progress_and_the_battery_is_good() {
    let mut cmos = Cmos::new();
    assert_eq!(register(&mut cmos, 0x0a) & 0x80, 0);
    assert_eq!(register(&mut cmos, 0x0d), 0x80);
}

#[test]
fn known_days_come_out() {
    for (seconds, year, month, day, weekday) in [
        (0, 1970, 1, 1, 5),
        (951_782_400, 2000, 2, 29, 3),
        (1_709_164_800, 2024, 2, 29, 5),
        (4_107_542_400, 2100, 3, 1, 2),
    ] {
        let date = DateTime::from_unix(seconds);
        assert_eq!((date.year, date.month, date.day), (year, month, day));
        assert_eq!(date.weekday, weekday, "{seconds}");
    }
}

proptest! {
    #[test]
    fn any_access_is_harmless(accesses: Vec<(bool, u16, Vec<u8>)>) {
        let mut cmos = Cmos::with_clock(|| u64::from(u32::MAX));
        for (write, port, mut data) in accesses {
            let port = CMOS_INDEX + port % 3;
            if write { cmos.write(port, &data) } else { cmos.read(port, &mut data) }
        }
    }
}
