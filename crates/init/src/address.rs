//! The static address on the kernel's command line,
//! `ip=CLIENT:SERVER:GATEWAY:MASK:HOST:DEVICE:METHOD:RESOLVER`: a kernel with IP_PNP
//! takes it itself, for all others the first process does.
//!
//! Reference: Linux `Documentation/admin-guide/nfs/nfsroot.rst`.

use std::net::Ipv4Addr;

/// An interface's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The guest's.
    pub client: Ipv4Addr,
    /// Bits of its network.
    pub prefix: u8,
    /// The way to everywhere else.
    pub gateway: Option<Ipv4Addr>,
    /// The guest's host name.
    pub hostname: Option<String>,
    /// The interface; the first one that is not loopback without it.
    pub device: Option<String>,
    /// Who knows names.
    pub resolver: Option<Ipv4Addr>,
}

impl Address {
    /// The word for a kernel's command line.
    pub fn word(&self) -> String {
        let mask = u32::MAX
            .checked_shl(32 - u32::from(self.prefix))
            .unwrap_or(0);
        format!(
            "ip={}::{}:{}:{}:{}:off{}",
            self.client,
            self.gateway.map(|it| it.to_string()).unwrap_or_default(),
            Ipv4Addr::from(mask),
            self.hostname.as_deref().unwrap_or_default(),
            self.device.as_deref().unwrap_or_default(),
            self.resolver.map(|it| format!(":{it}")).unwrap_or_default(),
        )
    }

    /// The last address on a command line, if one can be read.
    pub fn on(cmdline: &str) -> Option<Self> {
        tare_abi::cmdline::value(cmdline, tare_abi::cmdline::IP).and_then(Self::parse)
    }

    fn parse(value: &str) -> Option<Self> {
        let parts: Vec<&str> = value.split(':').collect();
        let part = |number: usize| parts.get(number).copied().filter(|part| !part.is_empty());
        let mask: u32 = part(3)?.parse::<Ipv4Addr>().ok()?.into();
        let prefix = mask.leading_ones();
        (mask.count_ones() == prefix).then_some(())?;
        Some(Self {
            client: part(0)?.parse().ok()?,
            prefix: u8::try_from(prefix).ok()?,
            gateway: part(2).and_then(|gateway| gateway.parse().ok()),
            hostname: part(4).map(str::to_owned),
            device: part(5).map(str::to_owned),
            resolver: part(7).and_then(|resolver| resolver.parse().ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Address {
        Address {
            client: Ipv4Addr::new(10, 0, 2, 15),
            prefix: 24,
            gateway: Some(Ipv4Addr::new(10, 0, 2, 2)),
            hostname: Some("web".to_owned()),
            device: Some("eth0".to_owned()),
            resolver: Some(Ipv4Addr::new(10, 0, 2, 2)),
        }
    }

    #[test]
    fn the_word_is_the_kernels() {
        let word = "ip=10.0.2.15::10.0.2.2:255.255.255.0:web:eth0:off:10.0.2.2";
        assert_eq!(example().word(), word);
        assert_eq!(Address::on(&format!("quiet {word} x")), Some(example()));
    }

    #[test]
    fn an_address_needs_no_more_than_itself_and_its_mask() {
        let address = Address::on("ip=10.0.0.1:::255.0.0.0").map(|it| (it.prefix, it.gateway));
        assert_eq!(address, Some((8, None)));
    }

    #[test]
    fn other_words_are_no_address() {
        for line in [
            "",
            "ip=dhcp",
            "ip=10.0.0.1",
            "ip=10.0.0.1:::255.0.255.0",
            "ip=x:::255.0.0.0",
        ] {
            assert_eq!(Address::on(line), None, "{line}");
        }
    }
}
