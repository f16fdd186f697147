//! KVM as a mechanism: machines, vCPUs, statistics, and the probe of what this KVM is.
