//! A thread that reads untrusted input, in a process that is not confined:
//! container images, archives and packages are unpacked in it.
//!
//! The thread has descriptors that are open, at most one directory below which it opens files,
//! no capabilities (where Landlock keeps it to that directory, CAP_DAC_READ_SEARCH, since the files
//! may be another user's), and no system calls to make, execute, connect or signal anything else.
//! Limit: memory is the process's. This holds a parser that is led astray (a name that
//! becomes a path, a file that is opened), not one that executes foreign code.

use std::os::fd::BorrowedFd;

use rustix::thread::set_no_new_privs;

use super::apart::apart;
use super::{ConfineError, Files, OnViolation, calls, capabilities, install_violation_handler};

/// Runs `read` in a confined thread and gives what it gives. It may open files for reading
/// below `directory`.
pub fn read_confined<T: Send>(
    directory: Option<BorrowedFd<'_>>,
    read: impl FnOnce() -> T + Send,
) -> Result<T, ConfineError> {
    install_violation_handler(OnViolation {
        program: "tare",
        restore: || {},
    })
    .map_err(|errno| ConfineError::Handler(errno.into()))?;
    let files = Files::read_below(directory)?;
    let opens = if directory.is_some() {
        calls::Opens::Below
    } else {
        calls::Opens::Nothing
    };
    apart(|| {
        set_no_new_privs(true).map_err(|errno| ConfineError::NoNewPrivs(errno.into()))?;
        let kept = capabilities::of_a_reader(opens, files.restrict()?);
        capabilities::keep_only(kept).map_err(ConfineError::Capabilities)?;
        calls::restrict_reader(opens)?;
        Ok(read())
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::sync::Arc;
    use std::thread;

    use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
    use rustix::thread::capabilities;

    use super::*;

    #[test]
    fn a_reader_uses_what_is_open_and_opens_nothing() {
        let mut archive = tempfile::tempfile().unwrap();
        archive.write_all(&[7; 1 << 20]).unwrap();
        let mut copy = tempfile::tempfile().unwrap();
        let read = || {
            let mut bytes = Vec::new();
            let mut again = archive.try_clone().unwrap();
            std::io::Seek::rewind(&mut again).unwrap();
            again.read_to_end(&mut bytes).unwrap();
            copy.write_all(&bytes).unwrap();
            // Memory that goes back to the kernel, as the C library does it in a thread.
            let held: Vec<_> = (0..4096).map(|n| vec![0_u8; 2000 + n % 7]).collect();
            drop(held);
            assert!(File::open("/etc/passwd").is_err());
            let shared = Arc::new(bytes);
            let left = capabilities(None).unwrap();
            (
                shared.len(),
                left.effective.is_empty(),
                thread::current().id(),
            )
        };
        let (bytes, is_powerless, reader) = read_confined(None, read).unwrap();
        assert_eq!((bytes, is_powerless), (1 << 20, true));
        // The process has what it had.
        assert_ne!(reader, thread::current().id());
        fs::read("/proc/self/status").unwrap();
    }

    #[test]
    fn a_reader_of_a_directory_opens_nothing_beside_it() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("layout")).unwrap();
        fs::write(place.path().join("layout/index.json"), "{}").unwrap();
        fs::write(place.path().join("secret"), "x").unwrap();
        let layout = File::open(place.path().join("layout")).unwrap();
        let open = |path| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            openat2(&layout, path, flags, Mode::empty(), ResolveFlags::empty()).is_ok()
        };
        let opened = || (open("index.json"), open("../secret"), open("/etc/passwd"));
        let (inside, beside, elsewhere) = read_confined(Some(layout.as_fd()), opened).unwrap();
        assert!(inside);
        if Files::none().unwrap().are_enforced() {
            assert_eq!((beside, elsewhere), (false, false));
        } else {
            tare_vmtest::lacks("this kernel has no Landlock");
        }
    }
}
