//! virtio-rng
use std::io;
/// Where random bytes come from. I/O thread.
pub trait Entropy: Send {
    /// Fills `buffer` without blocking.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<()>;
}
/// The host kernel's generator (getrandom(2); allow it in the I/O thread's filter).
#[derive(Clone, Copy, Debug, Default)]
pub struct OsEntropy;
impl Entropy for OsEntropy { fn fill(&mut self, _b: &mut [u8]) -> io::Result<()> { todo!() } }
/// An entropy device with one queue.
pub struct Rng<E> { _source: E }
impl<E: Entropy> Rng<E> { /// Over a source.
    pub fn new(source: E) -> Self { Self { _source: source } } }
impl<E: Entropy> crate::virtio::VirtioDevice for Rng<E> {}
