//! Where a virtio-mmio device is, from ACPI or from the command line's
//! `virtio_mmio.device=SIZE@BASE:IRQ[:ID]` (kernel `drivers/virtio/virtio_mmio.c`).

/// Smallest region: the registers and the configuration space's begin.
const MIN_SIZE: u64 = 0x200;

/// A virtio-mmio device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmioWord {
    /// Physical address of the registers.
    pub base: u64,
    /// Bytes of registers.
    pub size: u64,
    /// Interrupt line at the IOAPIC.
    pub line: u32,
}

impl MmioWord {
    /// Parses the word's value; `None` if it is malformed.
    pub fn parse(value: &str) -> Option<Self> {
        let (size, rest) = value.split_once('@')?;
        let mut fields = rest.split(':');
        let base = number(fields.next()?)?;
        let line = u32::try_from(number(fields.next()?)?).ok()?;
        Self::new(base, size_of(size)?, line)
    }

    /// A device from numbers; `None` if they are out of range.
    pub fn new(base: u64, size: u64, line: u32) -> Option<Self> {
        let end = base.checked_add(size)?;
        let sensible = base >= 1 << 20 && base.is_multiple_of(4) && size >= MIN_SIZE;
        (sensible && end <= 1 << 47 && line < 256).then_some(Self { base, size, line })
    }
}

fn size_of(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 1 << 10),
        b'M' | b'm' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    number(digits)?.checked_mul(unit)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_qemu_and_firecracker_are_understood() {
        let word = |base, size, line| Some(MmioWord { base, size, line });
        assert_eq!(
            MmioWord::parse("512@0xfeb00e00:12"),
            word(0xfeb0_0e00, 512, 12)
        );
        assert_eq!(
            MmioWord::parse("4K@0xd0000000:5"),
            word(0xd000_0000, 4096, 5)
        );
        assert_eq!(
            MmioWord::parse("0x200@0xd0000000:5:1"),
            word(0xd000_0000, 512, 5)
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for value in [
            "",
            "@",
            "@:",
            "512",
            "512@",
            "512@0xfeb00e00",
            "512@0xfeb00e00:",
            "x@0xfeb00e00:1",
            "512@0:1",
            "16@0xfeb00e00:1",
            "512@0xfeb00e01:1",
            "512@0xfeb00e00:256",
            "é@1:1",
            "512@0xffffffffffffffff:1",
            "99999999999999999M@0xfeb00e00:1",
            "K@0xfeb00e00:1",
        ] {
            assert_eq!(MmioWord::parse(value), None, "{value}");
        }
    }
}
