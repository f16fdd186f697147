//! Users and groups (`credentials(7)`, kernel `kernel/sys.c`, `kernel/groups.c`): kept and read
//! back. Nothing here depends on them, because all files of a machine are its one program's.
//!
//! As in Linux each thread has its own, and C libraries set those of all. Who has `CAP_SETUID` or
//! `CAP_SETGID` may become anyone; others change only between the numbers that they have.

use alloc::vec::Vec;

use crate::capabilities::{self, Capabilities};
use crate::errno::{Errno, Result};

/// What leaves a number as it is.
const KEEP: u32 = u32::MAX;
/// Most supplementary groups (`NGROUPS_MAX`).
pub(crate) const MOST_GROUPS: usize = 65_536;

/// The numbers of a user or of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) real: u32,
    pub(crate) effective: u32,
    pub(crate) saved: u32,
}

impl Ids {
    fn has(self, id: u32) -> bool {
        [self.real, self.effective, self.saved].contains(&id)
    }

    /// `setuid(2)`: EINVAL for no number, EPERM for one that takes a capability.
    fn set(&mut self, id: u32, may: bool) -> Result<()> {
        if id == KEEP {
            return Err(Errno::EINVAL);
        }
        if may {
            *self = Self {
                real: id,
                effective: id,
                saved: id,
            };
        } else if id == self.real || id == self.saved {
            self.effective = id;
        } else {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// `setreuid(2)`: EPERM as for `set`.
    fn set_both(&mut self, real: u32, effective: u32, may: bool) -> Result<()> {
        let was = *self;
        let may_be_real = may || [KEEP, was.real, was.effective].contains(&real);
        let may_be_effective = may || effective == KEEP || was.has(effective);
        if !may_be_real || !may_be_effective {
            return Err(Errno::EPERM);
        }
        self.real = given(real, was.real);
        self.effective = given(effective, was.effective);
        if real != KEEP || effective != KEEP && effective != was.real {
            self.saved = self.effective;
        }
        Ok(())
    }

    /// `setresuid(2)`: EPERM as for `set`.
    fn set_all(&mut self, ids: [u32; 3], may: bool) -> Result<()> {
        let was = *self;
        if !may && ids.iter().any(|&id| id != KEEP && !was.has(id)) {
            return Err(Errno::EPERM);
        }
        *self = Self {
            real: given(ids[0], was.real),
            effective: given(ids[1], was.effective),
            saved: given(ids[2], was.saved),
        };
        Ok(())
    }
}

fn given(id: u32, was: u32) -> u32 {
    if id == KEEP { was } else { id }
}

/// Whose numbers a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    User,
    Group,
}

/// How a call sets numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    One(u32),
    Both(u32, u32),
    All([u32; 3]),
}

/// The numbers of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    user: Ids,
    group: Ids,
    groups: Vec<u32>,
    pub(crate) capabilities: Capabilities,
}

impl Credentials {
    pub(crate) const fn new() -> Self {
        const ROOT: Ids = Ids {
            real: 0,
            effective: 0,
            saved: 0,
        };
        Self {
            user: ROOT,
            group: ROOT,
            groups: Vec::new(),
            capabilities: Capabilities::of_root(),
        }
    }

    pub(crate) const fn ids(&self, whose: Whose) -> Ids {
        match whose {
            Whose::User => self.user,
            Whose::Group => self.group,
        }
    }

    /// Supplementary groups.
    /// Another program begins, of a file that gives it no other user.
    pub(crate) fn program_changed(&mut self) {
        for ids in [&mut self.user, &mut self.group] {
            ids.saved = ids.effective;
        }
        let Ids {
            real, effective, ..
        } = self.user;
        let capabilities = &mut self.capabilities;
        capabilities.program_changed(real == 0 || effective == 0, effective == 0);
    }

    pub(crate) fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// Whether it may set groups (`setgroups(2)`).
    pub(crate) const fn may_set_groups(&self) -> bool {
        self.capabilities.has(capabilities::SETGID)
    }

    pub(crate) fn change(&mut self, whose: Whose, change: Change) -> Result<()> {
        let was = self.user;
        let (ids, capability) = match whose {
            Whose::User => (&mut self.user, capabilities::SETUID),
            Whose::Group => (&mut self.group, capabilities::SETGID),
        };
        let may = self.capabilities.has(capability);
        match change {
            Change::One(id) => ids.set(id, may)?,
            Change::Both(real, effective) => ids.set_both(real, effective, may)?,
            Change::All(all) => ids.set_all(all, may)?,
        }
        let is = self.user;
        self.capabilities.user_changed(
            [was.has(0), is.has(0)],
            [was.effective == 0, is.effective == 0],
        );
        Ok(())
    }

    /// `setgroups(2)`: sorted, as Linux keeps them.
    pub(crate) fn set_groups(&mut self, mut groups: Vec<u32>) {
        groups.sort_unstable();
        self.groups = groups;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(real: u32, effective: u32, saved: u32) -> Ids {
        Ids {
            real,
            effective,
            saved,
        }
    }

    #[test]
    fn root_becomes_anyone_and_does_not_come_back() {
        let mut own = Credentials::new();
        assert_eq!(own.change(Whose::Group, Change::One(50)), Ok(()));
        assert_eq!(own.change(Whose::User, Change::One(1000)), Ok(()));
        assert_eq!(own.ids(Whose::User), ids(1000, 1000, 1000));
        assert_eq!(own.ids(Whose::Group), ids(50, 50, 50));
        let refused = [Change::One(0), Change::Both(KEEP, 0), Change::All([0; 3])];
        for change in refused {
            for whose in [Whose::User, Whose::Group] {
                assert_eq!(own.change(whose, change), Err(Errno::EPERM), "{change:?}");
            }
        }
        assert_eq!(
            own.change(Whose::User, Change::One(KEEP)),
            Err(Errno::EINVAL)
        );
        // What changes nothing is allowed.
        for change in [Change::One(1000), Change::All([KEEP, 1000, KEEP])] {
            assert_eq!(own.change(Whose::User, change), Ok(()));
        }
    }

    #[test]
    fn a_saved_number_comes_back() {
        let mut own = Credentials::new();
        let set = |own: &mut Credentials, change| own.change(Whose::User, change);
        // `seteuid`
        assert_eq!(set(&mut own, Change::All([KEEP, 7, KEEP])), Ok(()));
        assert_eq!(own.ids(Whose::User), ids(0, 7, 0));
        assert!(!own.capabilities.has(capabilities::SETUID));
        assert_eq!(set(&mut own, Change::One(8)), Err(Errno::EPERM));
        assert_eq!(set(&mut own, Change::Both(KEEP, 0)), Ok(()));
        assert_eq!(own.ids(Whose::User), ids(0, 0, 0));
        assert!(own.capabilities.has(capabilities::SETUID));
        assert_eq!(set(&mut own, Change::Both(KEEP, 7)), Ok(()));
        assert_eq!(own.ids(Whose::User), ids(0, 7, 7), "it is not the real one");
        assert_eq!(set(&mut own, Change::Both(7, 0)), Ok(()));
        assert_eq!(own.ids(Whose::User), ids(7, 0, 0), "they change places");
    }
}
