//! The socket that front-ends connect to: made where no program listens, removed at
//! the end.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::net::{
    self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with,
};
use rustix::process::umask;

/// Permission bits unless others are asked for.
const OWNER_ONLY: u32 = 0o600;
/// Front-ends that wait to be served.
const BACKLOG: i32 = 128;

/// A socket that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another program listens there.
    #[error("the socket {} is in use by another program", .0.display())]
    InUse(PathBuf),
    /// Something else is there.
    #[error("{} exists and is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("cannot create the socket {}", path.display())]
    Make {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A listening socket with its place in the file system.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    made: Made,
    listener: UnixListener,
}

/// Who made the socket's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// This process, with that device and inode number: it removes the file.
    Here((u64, u64)),
    /// A supervisor.
    Elsewhere,
}

impl Socket {
    /// Listens at `path`. A socket that a killed program left there is replaced.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        Self::bind_for(path, OWNER_ONLY)
    }

    /// As [`bind`](Self::bind), with the permission bits `mode`: who may write the socket
    /// may connect, and so write the disk.
    pub fn bind_for(path: &Path, mode: u32) -> Result<Self, SocketError> {
        let failed = |source| SocketError::Make {
            path: path.to_owned(),
            source,
        };
        match path.symlink_metadata() {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(SocketError::NotASocket(path.to_owned()));
            }
            Ok(_) if UnixStream::connect(path).is_ok() => {
                return Err(SocketError::InUse(path.to_owned()));
            }
            Ok(_) => std::fs::remove_file(path).map_err(failed)?,
            Err(_) => {}
        }
        let listener = listen(path, mode).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => SocketError::InUse(path.to_owned()),
            _ => failed(source),
        })?;
        let inode = inode(path).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            made: Made::Here(inode),
            listener,
        })
    }

    /// One that a supervisor listens on, and keeps.
    pub fn passed(listener: UnixListener) -> Self {
        let address = listener.local_addr().ok();
        let path = address.as_ref().and_then(|it| it.as_pathname());
        Self {
            path: path.unwrap_or(Path::new("")).to_owned(),
            made: Made::Elsewhere,
            listener,
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that its file is removed from.
    pub fn directory(&self) -> Option<&Path> {
        match (self.made, self.path.parent()) {
            (Made::Elsewhere, _) => None,
            (_, Some(parent)) if parent != Path::new("") => Some(parent),
            _ => Some(Path::new(".")),
        }
    }

    pub(crate) fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for Socket {
    /// Unless another program has taken the place.
    fn drop(&mut self) {
        if let Made::Here(made) = self.made
            && inode(&self.path).is_ok_and(|now| now == made)
        {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// As [`UnixListener::bind`], with `mode` and no more from the start, whatever the umask:
/// who can connect can write the disk.
fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file gets these bits less the umask's. Changing them by name afterwards would
    // follow a link that another user put in its place.
    fchmod(&socket, Mode::from_raw_mode(mode))?;
    let address = SocketAddrUnix::new(path)?;
    {
        let _all_bits = Umask::none();
        bind(&socket, &address)?;
    }
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// The process's umask, as it was again when this is dropped. It is every thread's: none
/// makes files in the meantime.
struct Umask(Mode);

impl Umask {
    fn none() -> Self {
        Self(umask(Mode::empty()))
    }
}

impl Drop for Umask {
    fn drop(&mut self) {
        umask(self.0);
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let found = path.symlink_metadata()?;
    Ok((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_in_use_is_refused_and_a_stale_one_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let stale = UnixListener::bind(&path).unwrap();
        assert!(matches!(Socket::bind(&path), Err(SocketError::InUse(_))));
        drop(stale);
        let socket = Socket::bind(&path).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn only_its_user_may_connect() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let socket = Socket::bind(&directory.path().join("s")).unwrap();
        let mode = socket.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_group_may_connect_where_that_was_asked_for() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let socket = Socket::bind_for(&directory.path().join("s"), 0o660).unwrap();
        let mode = socket.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
    }

    #[test]
    fn a_file_that_is_not_a_socket_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        std::fs::write(&path, "x").unwrap();
        assert!(matches!(
            Socket::bind(&path),
            Err(SocketError::NotASocket(_))
        ));
        assert_eq!(std::fs::read(&path).unwrap(), b"x");
        let nowhere = directory.path().join("missing/s");
        assert!(matches!(
            Socket::bind(&nowhere),
            Err(SocketError::Make { .. })
        ));
    }

    #[test]
    fn a_socket_that_was_passed_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let socket = Socket::passed(UnixListener::bind(&path).unwrap());
        assert_eq!((socket.path(), socket.directory()), (&*path, None));
        drop(socket);
        assert!(path.exists());
    }

    #[test]
    fn a_successor_keeps_its_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let old = Socket::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _new = UnixListener::bind(&path).unwrap();
        drop(old);
        assert!(path.exists());
    }
}
