//! Run directories: one directory for each running machine, found by name.
//!
//! ```text
//! $XDG_RUNTIME_DIR/tare/NAME/   (root: /run/tare, else a directory of the user's in /tmp)
//!     machine.json   the configuration
//!     lock           locked (flock) as long as the machine lives
//!     control.sock   the control interface, HTTP
//!     console.log    what the guest wrote to its serial port
//! ```
//!
//! A directory whose lock is free belongs to a machine that was killed; whoever
//! finds it removes it.
