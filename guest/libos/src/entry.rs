//! Where an application begins.

/// Makes `main` the image's entry: a function without arguments that returns
/// anything that is a [`Termination`](crate::entry::Termination). On the host the
/// macro is empty, since there `main` is the program's own.
#[cfg(not(target_os = "none"))]
#[macro_export]
macro_rules! entry {
    ($main:path $(, ring = $ring:literal)?) => {};
    ($main:path, programs_end = $low:expr, console = $driver:path, expiries = $table:path) => {};
}

/// Makes `main` the image's entry: a function without arguments that returns
/// anything that is a [`Termination`](crate::entry::Termination). The image runs in
/// ring 0 or 3 (`tare_hal::ring`). With `ring = 0` it runs in ring 0 only: for images
/// that execute privileged instructions themselves. With `programs_end = ADDRESS` it runs
/// other programs (`tare_hal::user`), and keeps the addresses from 4 MiB to there for those that are
/// linked at them; `console = DRIVER` names the function that gets the machine's virtio console, and
/// `expiries = TABLE` the table that counts their time limits and timers (`tare_abi::expiries`).
#[cfg(target_os = "none")]
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        // A test harness needs std.
        #[cfg(test)]
        ::core::compile_error!("an image has no test harness: run the tests on the host: cargo t");
        $crate::entry!(@ $main, EITHER, 0, None);
    };
    // With options of `tare run` that most images ignore (`tare_abi::options`).
    ($main:path, takes = $option:ident $(+ $more:ident)*) => {
        $crate::entry!($main);

        const _: () = {
            use $crate::hal::ring::options::{Note, Options};

            #[allow(unsafe_code)]
            #[unsafe(link_section = ".note.tare")]
            #[used]
            static NOTE: Note = Note::new(Options::$option$(.and(Options::$more))*);
        };
    };
    ($main:path, ring = 0) => {
        $crate::entry!(@ $main, ZERO, 0, None);
    };
    ($main:path, programs_end = $low:expr, console = $driver:path, expiries = $table:path) => {
        $crate::entry!(@ $main, EITHER, $low, Some($driver));

        const _: () = {
            use $crate::hal::ring::expiries::Note;

            #[allow(unsafe_code)]
            #[unsafe(link_section = ".note.tare")]
            #[used]
            static NOTE: Note = Note::new(&$table);

            // Has the linker check that the image ends below programs (`link.ld` of hal).
            #[allow(unsafe_code)]
            #[unsafe(link_section = ".rodata.programs")]
            #[used]
            static RUNS_PROGRAMS: u8 = 1;
        };
    };
    (@ $main:path, $rings:ident, $low:expr, $console:expr) => {
        const _: () = {
            use $crate::hal::ring::{Note, Rings};

            #[allow(unsafe_code)]
            #[unsafe(no_mangle)]
            static TARE_RINGS: u32 = Rings::$rings.bits();

            #[allow(unsafe_code)]
            #[unsafe(no_mangle)]
            static TARE_LOW_END: u64 = $low;

            #[allow(unsafe_code)]
            #[unsafe(no_mangle)]
            static TARE_CONSOLE: Option<fn($crate::hal::virtio::Transport)> = $console;

            #[allow(unsafe_code)]
            #[unsafe(link_section = ".note.tare")]
            #[used]
            static NOTE: Note = Note::new(Rings::$rings);

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
