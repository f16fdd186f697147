//! Where an application begins.

/// Makes `main` the image's entry: a function without arguments that returns
/// anything that is a [`Termination`](crate::entry::Termination). On the host the
/// macro is empty, since there `main` is the program's own.
#[cfg(not(target_os = "none"))]
#[macro_export]
macro_rules! entry {
    ($main:path $(, ring = 0)?) => {};
}

/// Makes `main` the image's entry: a function without arguments that returns
/// anything that is a [`Termination`](crate::entry::Termination). The image runs in
/// ring 0 or 3 (`tare_hal::ring`); with `ring = 0` in ring 0 only, for images that
/// execute privileged instructions themselves.
#[cfg(target_os = "none")]
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        $crate::entry!(@ $main, 3);
    };
    ($main:path, ring = 0) => {
        $crate::entry!(@ $main, 0);
    };
    (@ $main:path, $ring:literal) => {
        const _: () = {
            #[allow(unsafe_code)]
            #[unsafe(no_mangle)]
            static TARE_RING: u8 = $ring;

            #[allow(unsafe_code)]
            #[unsafe(no_mangle)]
            fn tare_main() -> ! {
                $crate::rt::start($main)
            }
        };
    };
}

/// What `main` may return.
pub trait Termination {
    /// The image's exit status; 0 is success.
    fn status(self) -> u8;
}

impl Termination for () {
    fn status(self) -> u8 {
        0
    }
}

impl Termination for u8 {
    fn status(self) -> u8 {
        self
    }
}

/// `Err` is printed and ends the image with status 1.
impl<T: Termination, E: core::fmt::Display> Termination for Result<T, E> {
    fn status(self) -> u8 {
        match self {
            Ok(value) => value.status(),
            Err(error) => {
                crate::println!("error: {error}");
                1
            }
        }
    }
}
