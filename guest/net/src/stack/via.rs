//! [`Via`]: one of the two ports.

/// Which port a connection lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    Wire,
    Loopback,
}
