//! `--limit-net` and `--limit-io`: operations and bytes a second.

use std::str::FromStr;

use tare_policy::limit::{DiskLimits, NetLimits};

/// `--limit-net`: frames and bytes a second, in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetRate(pub NetLimits);

/// `--limit-io`: requests and bytes a second, of reads and of writes, on each block device
/// that holds one of the machine's disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoRate(pub DiskLimits);

/// An invalid limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use {pieces}=N, bytes_per_s=N or both with a comma; N is at least 1")]
pub struct BadRate {
    pieces: &'static str,
}

impl FromStr for NetRate {
    type Err = BadRate;

    fn from_str(text: &str) -> Result<Self, BadRate> {
        let [frames_per_s, bytes_per_s] = rates(text, "frames_per_s")?;
        Ok(Self(NetLimits {
            frames_per_s,
            bytes_per_s,
        }))
    }
}

impl FromStr for IoRate {
    type Err = BadRate;

    fn from_str(text: &str) -> Result<Self, BadRate> {
        let [iops, bytes_per_s] = rates(text, "iops")?;
        Ok(Self(DiskLimits { iops, bytes_per_s }))
    }
}

fn rates(text: &str, pieces: &'static str) -> Result<[u64; 2], BadRate> {
    let mut rates = [0; 2];
    for word in text.split(',') {
        let (key, value) = word.split_once('=').ok_or(BadRate { pieces })?;
        let rate = match key {
            _ if key == pieces => &mut rates[0],
            "bytes_per_s" => &mut rates[1],
            _ => return Err(BadRate { pieces }),
        };
        let value = value.parse().ok().filter(|value| *value > 0);
        *rate = value.ok_or(BadRate { pieces })?;
    }
    Ok(rates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_pieces_bytes_or_both() {
        let net = "bytes_per_s=5,frames_per_s=7".parse();
        let expected = NetLimits {
            frames_per_s: 7,
            bytes_per_s: 5,
        };
        assert_eq!(net, Ok(NetRate(expected)));
        let io = "iops=9".parse();
        let expected = DiskLimits {
            iops: 9,
            bytes_per_s: 0,
        };
        assert_eq!(io, Ok(IoRate(expected)));
        for bad in ["", "1", "iops=0", "iops=-1", "iops=1,", "frames_per_s=1"] {
            assert!(bad.parse::<IoRate>().is_err(), "{bad}");
        }
        let error = "iops=1".parse::<NetRate>().unwrap_err().to_string();
        assert!(error.starts_with("use frames_per_s=N, bytes_per_s=N"));
    }
}
