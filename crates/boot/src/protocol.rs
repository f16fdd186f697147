//! Ways into an image.

/// How an image may be entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// By its PVH note only: images of the library OS.
    #[default]
    Pvh,
    /// As a Linux kernel: by its PVH note if it has one, else by the 64-bit
    /// protocol; as a bzImage.
    Linux,
}
