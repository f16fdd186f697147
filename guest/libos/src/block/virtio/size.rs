//! [`Size`]: how long a queue is.

/// A size of queue that there is code for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// 256, the longest.
    Whole,
    /// 128, what QEMU's vhost-user-blk and Cloud Hypervisor offer.
    Half,
    /// 32.
    Short,
    /// 4: one request.
    Single,
}

impl Size {
    /// The longest that a device takes whose queue has at most `most` descriptors: a
    /// driver may choose less (virtio 1.2, 4.1.5.1.3 and 4.2.3.2). `None`: no request fits.
    pub(super) fn within(most: u32) -> Option<Self> {
        match most {
            0..4 => None,
            4..32 => Some(Self::Single),
            32..128 => Some(Self::Short),
            128..256 => Some(Self::Half),
            256.. => Some(Self::Whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_as_long_as_the_device_takes_it() {
        let sizes = [
            (0, None),
            (2, None),
            (4, Some(Size::Single)),
            (16, Some(Size::Single)),
            (32, Some(Size::Short)),
            (64, Some(Size::Short)),
            (128, Some(Size::Half)),
            (256, Some(Size::Whole)),
            (1024, Some(Size::Whole)),
            (u32::MAX, Some(Size::Whole)),
        ];
        for (most, size) in sizes {
            assert_eq!(Size::within(most), size, "{most}");
        }
    }
}
