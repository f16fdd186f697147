//! What can be set of a machine's network.

use tare_policy::limit::NetLimits;

use super::group::group;

group! {
    /// A network's limits, for each direction.
    NetSettings, NetChange {
        /// frames a second, each way; 0: no limit
        "frames_per_s" frames_per_s: u64,
        /// bytes of frames a second, each way; 0: no limit
        "bytes_per_s" bytes_per_s: u64,
    }
}

impl From<NetLimits> for NetSettings {
    fn from(limits: NetLimits) -> Self {
        Self {
            frames_per_s: limits.frames_per_s,
            bytes_per_s: limits.bytes_per_s,
        }
    }
}

impl From<&NetSettings> for NetLimits {
    fn from(settings: &NetSettings) -> Self {
        Self {
            frames_per_s: settings.frames_per_s,
            bytes_per_s: settings.bytes_per_s,
        }
    }
}
