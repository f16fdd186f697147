//! What the front-end's driver believes of the cache mode. A driver that believes
//! in write-through does not flush; one that believes in write-back does. So the
//! device may be more durable than is believed, and never less.
//!
//! A front-end tells the driver's choice once (`SET_CONFIG`), and goes on with a
//! successor of this process without repeating it: the choice is kept in the log
//! of what is in flight. Where neither says anything, writes are durable.

use tare_devices::blk::Cache;

/// Where the belief comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Belief {
    /// This connection has not read or set it: the driver may know it from an earlier
    /// process.
    #[default]
    Unknown,
    /// It has read the configuration.
    Read,
    /// The driver chose, or the log says so.
    Chosen(Cache),
}

impl Belief {
    /// The mode that the configuration shows; `offered` is the command line's.
    pub(super) fn shown(self, offered: Cache) -> Cache {
        match self {
            Self::Chosen(cache) => cache,
            Self::Unknown | Self::Read => offered,
        }
    }

    /// The mode to work in. Without `CONFIG_WCE` drivers take the offered mode
    /// for write-back and flush.
    pub(super) fn in_force(self, offered: Cache, driver: Driver) -> Cache {
        match (self, driver) {
            (Self::Unknown, Driver::MayChoose) => Cache::Writethrough,
            _ => self.shown(offered),
        }
    }

    /// As a byte of the log; zero means that there is no entry.
    pub(super) fn entry(self, offered: Cache) -> u8 {
        match (self, self.shown(offered)) {
            (Self::Unknown, _) => 0,
            (_, Cache::Writethrough) => 1,
            (_, Cache::Writeback) => 2,
        }
    }

    /// From a byte of the log, which is the front-end's to change.
    pub(super) fn of_entry(entry: u8) -> Self {
        match entry {
            0 => Self::Unknown,
            2 => Self::Chosen(Cache::Writeback),
            _ => Self::Chosen(Cache::Writethrough),
        }
    }
}

/// Whether the driver has negotiated `CONFIG_WCE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// It has.
    MayChoose,
    /// It has not.
    MayNot,
}

#[cfg(test)]
mod tests {
    use super::*;
    use Cache::{Writeback, Writethrough};

    #[test]
    fn the_mode_in_force_is_never_less_durable_than_what_is_believed() {
        for offered in [Writeback, Writethrough] {
            let unknown = Belief::Unknown;
            assert_eq!(unknown.in_force(offered, Driver::MayChoose), Writethrough);
            assert_eq!(unknown.in_force(offered, Driver::MayNot), offered);
            assert_eq!(Belief::Read.in_force(offered, Driver::MayChoose), offered);
            for cache in [Writeback, Writethrough] {
                let chosen = Belief::Chosen(cache);
                assert_eq!(chosen.in_force(offered, Driver::MayChoose), cache);
                assert_eq!(Belief::of_entry(chosen.entry(offered)), chosen);
            }
            let read = Belief::of_entry(Belief::Read.entry(offered));
            assert_eq!(read, Belief::Chosen(offered));
            assert_eq!(Belief::of_entry(unknown.entry(offered)), unknown);
        }
        assert_eq!(Belief::of_entry(0xff), Belief::Chosen(Writethrough));
    }
}
