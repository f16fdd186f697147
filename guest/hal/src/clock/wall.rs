//! The wall clock: read once from the hypervisor or the CMOS clock (Motorola
//! MC146818), then carried on by the monotonic clock.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, Ordering};

use super::{now_ns, pvclock, tsc};
use crate::cmos;
use crate::once::OnceCell;

const STATUS_A: u8 = 0x0a;
const STATUS_B: u8 = 0x0b;
const UPDATING: u8 = 0x80;
const BINARY: u8 = 4;
const HOURS_24: u8 = 2;

/// Wall clock when the monotonic clock was 0.
static EPOCH_NS: OnceCell<u64> = OnceCell::new();
static IS_KVMS: AtomicBool = AtomicBool::new(false);

/// Nanoseconds since 1970 (UTC).
pub fn wall_ns() -> u64 {
    epoch_ns() + now_ns()
}

/// What both clocks are computed from: nanoseconds since the image began are the ticks since `base`
/// times `factor`, of which 32 bits lie after the point; the wall clock is that and `epoch_ns`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) base: u64,
    pub(crate) factor: u64,
    pub(crate) epoch_ns: u64,
}

/// That of this machine, which does not change.
pub(crate) fn rate() -> Rate {
    let (base, factor) = tsc::base_and_factor();
    Rate {
        base,
        factor,
        epoch_ns: epoch_ns(),
    }
}

/// The wall clock when the monotonic clock was 0.
fn epoch_ns() -> u64 {
    *EPOCH_NS.get_or_init(|| {
        let kvms = pvclock::wall_ns();
        IS_KVMS.store(kvms.is_some(), Ordering::Relaxed);
        let wall = kvms.unwrap_or_else(cmos_ns);
        wall.saturating_sub(now_ns())
    })
}

/// Whether the wall clock has been read, from KVM.
pub(crate) fn wall_clock_is_kvms() -> bool {
    IS_KVMS.load(Ordering::Relaxed)
}

fn cmos_ns() -> u64 {
    // A chip that does not exist reads as always updating.
    for _ in 0..10_000 {
        if cmos::read(STATUS_A) & UPDATING == 0 {
            break;
        }
    }
    let mode = cmos::read(STATUS_B);
    let number = |register| {
        let value = cmos::read(register);
        u64::from(if mode & BINARY != 0 {
            value
        } else {
            (value >> 4) * 10 + (value & 15)
        })
    };
    let hour = match cmos::read(4) & 0x80 {
        0 => number(4),
        _ if mode & HOURS_24 != 0 => number(4),
        _ => (number(4).wrapping_sub(80) % 12) + 12,
    };
    let days = days_from_civil(2000 + number(9), number(8), number(7));
    (((days * 24 + hour) * 60 + number(2)) * 60 + number(0)) * 1_000_000_000
}

/// Days from 1970-01-01 to a date of the Gregorian calendar after it.
fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let of_year = (153 * month + 2) / 5 + day.max(1) - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
}
