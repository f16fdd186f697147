//! Lines on the serial console. Every byte costs an exit: an appliance prints
//! one line when it starts and is silent until something is wrong.

use core::fmt;

/// Prints to the console; the macros [`print!`](crate::print) and
/// [`println!`](crate::println) call it. One call's text is not mixed with
/// that of another core.
pub fn write(text: fmt::Arguments<'_>) {
    #[cfg(target_os = "none")]
    crate::hal::serial::write_fmt(text);
    #[cfg(not(target_os = "none"))]
    std::print!("{text}");
}

/// Prints to the serial console.
#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::console::write(::core::format_args!($($text)*)) };
}

/// Prints a line to the serial console.
#[macro_export]
macro_rules! println {
    () => { $crate::print!("\n") };
    ($format:literal $($rest:tt)*) => {
        $crate::print!("{}\n", ::core::format_args!($format $($rest)*))
    };
}
