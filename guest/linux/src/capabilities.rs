//! Capabilities of a thread (`capabilities(7)`, kernel `security/commoncap.c`): kept, and given up
//! by the rules of Linux. They decide which credentials a thread may take and which priority.

use crate::errno::{Errno, Result};

/// Numbers of capabilities (kernel `include/uapi/linux/capability.h`).
pub(crate) const SETGID: u32 = 6;
pub(crate) const SETUID: u32 = 7;
const SETPCAP: u32 = 8;
pub(crate) const SYS_NICE: u32 = 23;
pub(crate) const SYS_RESOURCE: u32 = 24;
/// The last one, `CAP_CHECKPOINT_RESTORE`.
pub(crate) const LAST: u32 = 40;
const ALL: u64 = (1 << (LAST + 1)) - 1;

/// The sets that `capget` and `capset` are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sets {
    pub(crate) effective: u64,
    pub(crate) permitted: u64,
    pub(crate) inheritable: u64,
}

/// All sets of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    own: Sets,
    bounding: u64,
    ambient: u64,
    /// `PR_SET_KEEPCAPS`.
    pub(crate) keep: bool,
}

impl Capabilities {
    /// Those of a program that user 0 starts.
    pub(crate) const fn of_root() -> Self {
        Self {
            own: Sets {
                effective: ALL,
                permitted: ALL,
                inheritable: 0,
            },
            bounding: ALL,
            ambient: 0,
            keep: false,
        }
    }

    pub(crate) const fn sets(&self) -> Sets {
        self.own
    }

    /// Whether this one has an effect now.
    pub(crate) const fn has(&self, number: u32) -> bool {
        self.own.effective & 1 << number != 0
    }

    /// `capset(2)`: EPERM for what the thread cannot give itself.
    pub(crate) fn set(&mut self, new: Sets) -> Result<()> {
        let was = self.own;
        let new = Sets {
            effective: new.effective & ALL,
            permitted: new.permitted & ALL,
            inheritable: new.inheritable & ALL,
        };
        let may_inherit = if self.has(SETPCAP) {
            was.inheritable | self.bounding
        } else {
            was.inheritable | was.permitted & self.bounding
        };
        let is_within = new.inheritable & !may_inherit == 0
            && new.permitted & !was.permitted == 0
            && new.effective & !new.permitted == 0;
        if !is_within {
            return Err(Errno::EPERM);
        }
        self.own = new;
        self.ambient &= new.permitted & new.inheritable;
        Ok(())
    }

    /// What a change of user numbers takes or gives (`cap_emulate_setxuid`): whether one of the
    /// three was and is 0, and whether the effective one was and is.
    pub(crate) fn user_changed(&mut self, any: [bool; 2], effective: [bool; 2]) {
        if any == [true, false] {
            if !self.keep {
                (self.own.permitted, self.own.effective) = (0, 0);
            }
            self.ambient = 0;
        }
        match effective {
            [true, false] => self.own.effective = 0,
            [false, true] => self.own.effective = self.own.permitted,
            _ => {}
        }
    }

    /// Another program begins (`cap_bprm_creds_from_file` of kernel security/commoncap.c), of a file
    /// without capabilities. Whether the effective or the real user is 0, and the effective one.
    pub(crate) fn program_changed(&mut self, any: bool, effective: bool) {
        let inheritable = self.own.inheritable;
        let of_root = if any { inheritable | self.bounding } else { 0 };
        self.own.permitted = of_root | self.ambient;
        self.own.effective = if effective {
            self.own.permitted
        } else {
            self.ambient
        };
        self.keep = false;
    }

    /// `PR_CAPBSET_READ`: EINVAL for an unknown one.
    pub(crate) fn is_bounded(&self, number: u64) -> Result<bool> {
        Ok(self.bounding & bit(number)? != 0)
    }

    /// `PR_CAPBSET_DROP`: EPERM without `CAP_SETPCAP`, EINVAL for an unknown one.
    pub(crate) fn bound(&mut self, number: u64) -> Result<()> {
        if !self.has(SETPCAP) {
            return Err(Errno::EPERM);
        }
        self.bounding &= !bit(number)?;
        Ok(())
    }

    /// `PR_CAP_AMBIENT_IS_SET`.
    pub(crate) fn is_ambient(&self, number: u64) -> Result<bool> {
        Ok(self.ambient & bit(number)? != 0)
    }

    /// `PR_CAP_AMBIENT_RAISE`: EPERM for what is not both permitted and inheritable.
    pub(crate) fn raise_ambient(&mut self, number: u64) -> Result<()> {
        let bit = bit(number)?;
        if self.own.permitted & self.own.inheritable & bit == 0 {
            return Err(Errno::EPERM);
        }
        self.ambient |= bit;
        Ok(())
    }

    /// `PR_CAP_AMBIENT_LOWER`.
    pub(crate) fn lower_ambient(&mut self, number: u64) -> Result<()> {
        self.ambient &= !bit(number)?;
        Ok(())
    }

    /// `PR_CAP_AMBIENT_CLEAR_ALL`.
    pub(crate) fn clear_ambient(&mut self) {
        self.ambient = 0;
    }
}

fn bit(number: u64) -> Result<u64> {
    if number > LAST.into() {
        return Err(Errno::EINVAL);
    }
    Ok(1 << number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(effective: u64, permitted: u64, inheritable: u64) -> Sets {
        Sets {
            effective,
            permitted,
            inheritable,
        }
    }

    #[test]
    fn what_is_given_up_does_not_come_back() {
        let mut own = Capabilities::of_root();
        let kept = 1 << SETUID | 1 << SETPCAP;
        assert_eq!(own.set(sets(kept, kept, 0)), Ok(()));
        assert!(own.has(SETUID) && !own.has(SETGID));
        let more = kept | 1 << SETGID;
        for refused in [sets(kept, more, 0), sets(more, kept, 0)] {
            assert_eq!(own.set(refused), Err(Errno::EPERM), "{refused:?}");
            assert_eq!(own.sets(), sets(kept, kept, 0));
        }
        // What is not effective may be so again.
        assert_eq!(own.set(sets(0, kept, 0)), Ok(()));
        assert_eq!(own.bound(0), Err(Errno::EPERM));
        assert_eq!(own.set(sets(kept, kept, 0)), Ok(()));
        assert_eq!(own.bound(0), Ok(()));
        assert_eq!(own.is_bounded(0), Ok(false));
        assert_eq!(own.is_bounded(u64::from(LAST) + 1), Err(Errno::EINVAL));
        // Bounded, and no longer for children.
        assert_eq!(own.set(sets(kept, kept, 1)), Err(Errno::EPERM));
        assert_eq!(own.set(sets(kept, kept, 2)), Ok(()));
    }

    #[test]
    fn ambient_ones_are_permitted_and_inheritable() {
        let mut own = Capabilities::of_root();
        assert_eq!(own.raise_ambient(3), Err(Errno::EPERM));
        own.set(sets(ALL, ALL, 1 << 3)).unwrap();
        assert_eq!(own.raise_ambient(3), Ok(()));
        assert_eq!(own.is_ambient(3), Ok(true));
        own.set(sets(ALL, ALL, 0)).unwrap();
        assert_eq!(own.is_ambient(3), Ok(false));
    }

    #[test]
    fn another_user_keeps_what_was_asked_for() {
        let (left, gone) = ([true, false], [true, false]);
        let mut own = Capabilities::of_root();
        own.user_changed(left, gone);
        assert_eq!(own.sets(), sets(0, 0, 0));
        let mut own = Capabilities::of_root();
        own.keep = true;
        own.user_changed(left, gone);
        assert_eq!(own.sets(), sets(0, ALL, 0));
        // `seteuid` and back.
        let mut own = Capabilities::of_root();
        own.user_changed([true, true], gone);
        assert_eq!(own.sets(), sets(0, ALL, 0));
        own.user_changed([true, true], [false, true]);
        assert_eq!(own.sets(), sets(ALL, ALL, 0));
    }

    #[test]
    fn another_program_keeps_capabilities_by_linuxs_rules() {
        let mut of_root = Capabilities::of_root();
        of_root.bound(SYS_NICE.into()).unwrap();
        of_root.keep = true;
        of_root.program_changed(true, true);
        let bounded = ALL & !(1 << SYS_NICE);
        assert_eq!(of_root.sets().permitted, bounded);
        assert_eq!(of_root.sets().effective, bounded);
        assert!(!of_root.keep);
        // Of another user only what is ambient stays.
        let mut other = Capabilities::of_root();
        let inheritable = Sets {
            inheritable: 1 << SETUID | 1 << SETGID,
            ..other.sets()
        };
        other.set(inheritable).unwrap();
        other.raise_ambient(SETUID.into()).unwrap();
        other.program_changed(false, false);
        assert_eq!(other.sets().permitted, 1 << SETUID);
        assert_eq!(other.sets().effective, 1 << SETUID);
    }
}
