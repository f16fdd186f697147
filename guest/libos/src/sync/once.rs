//! Values that are made at first use.

use core::ops::Deref;

use tare_hal::once::OnceCell;

use crate::thread;

/// A cell that is written once. A thread that finds another one making the
/// value lets other threads run until it is there.
///
/// ```
/// use tare_libos::sync::OnceLock;
/// static NAME: OnceLock<String> = OnceLock::new();
/// assert_eq!(NAME.get_or_init(|| "tare".into()), "tare");
/// ```
#[derive(Default)]
pub struct OnceLock<T> {
    cell: OnceCell<T>,
}

impl<T> OnceLock<T> {
    /// An empty cell.
    pub const fn new() -> Self {
        Self {
            cell: OnceCell::new(),
        }
    }

    /// The value, if it is set.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.cell.get()
    }

    /// Sets the value; gives it back if the cell is taken.
    pub fn set(&self, value: T) -> Result<(), T> {
        self.cell.set(value)
    }

    /// The value, made by `make` if there is none.
    #[inline]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        self.cell.get_or_init_with(make, thread::yield_now)
    }
}

/// A value that is made when it is first looked at.
///
/// ```
/// use tare_libos::sync::LazyLock;
/// static SQUARES: LazyLock<Vec<u32>> = LazyLock::new(|| (0..9).map(|n| n * n).collect());
/// assert_eq!(SQUARES[3], 9);
/// ```
pub struct LazyLock<T, F = fn() -> T> {
    cell: OnceLock<T>,
    make: F,
}

impl<T, F: Fn() -> T> LazyLock<T, F> {
    /// A value that `make` will make.
    pub const fn new(make: F) -> Self {
        Self {
            cell: OnceLock::new(),
            make,
        }
    }
}

impl<T, F: Fn() -> T> Deref for LazyLock<T, F> {
    type Target = T;
    fn deref(&self) -> &T {
        self.cell.get_or_init(&self.make)
    }
}
