//! Checks an image before a machine is made for it. Its first bytes, always. The loader in the
//! monitor reads the rest; QEMU's own loader reports too little, so before QEMU starts, our loader
//! tries the image in separate memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use tare_abi::layout::MIB;
use tare_abi::options::Options;
use tare_boot::{LoadError, LoadOptions, Protocol};
use tare_control::config::GuestKind;
use tare_control::exit::ExitCode;
use tare_hv::MemoryError;

use crate::engine::Engine;
use crate::failure::Explain;
use crate::image::Image;

/// An image that no engine will boot.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageCheckError {
    /// It cannot be read.
    #[error("cannot read the image {}", path.display())]
    Read {
        /// The image.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It cannot be loaded.
    #[error("cannot load {}", path.display())]
    Load {
        /// The image.
        path: PathBuf,
        /// Why.
        source: LoadError,
    },
    /// The image does not run in the ring that `--ring` names.
    #[error("{} runs in ring {} only, not in ring {ring}", path.display(), 3 - ring)]
    Ring {
        /// The image.
        path: PathBuf,
        /// The ring, 0 or 3.
        ring: u8,
    },
    /// A site's file for an image that takes none.
    #[error("{} ignores --site, which is for the images http and http-disk", path.display())]
    Site {
        /// The image.
        path: PathBuf,
    },
    /// Another root for an image that takes none.
    #[error("{} ignores --reload, which is for the image http", path.display())]
    Reload {
        /// The image.
        path: PathBuf,
    },
    /// No memory to try the image in.
    #[error("cannot allocate memory to check the image")]
    Memory(#[from] MemoryError),
}

impl Explain for ImageCheckError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Read { .. } => ExitCode::ImageUnreadable,
            Self::Ring { .. } | Self::Site { .. } | Self::Reload { .. } => ExitCode::Usage,
            Self::Memory(_) => ExitCode::Memory,
            Self::Load { source, .. } => source.into(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Ring { .. } => Some("leave --ring out".to_owned()),
            Self::Site { .. } => Some("leave --site out".to_owned()),
            Self::Reload { .. } => Some(
                "leave it out, or serve the files as a directory: tare run http --root DIR --reload"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

/// Checks that an image of the library OS runs in `ring`, 0 or 3.
pub(crate) fn check_ring(image: &Image, ring: u8) -> Result<(), ImageCheckError> {
    let path = image.path.clone();
    match tare_boot::rings(&mut file_of(image)?) {
        Ok(Some(rings)) if !rings.contain(ring) => Err(ImageCheckError::Ring { path, ring }),
        Ok(_) => Ok(()),
        Err(source) => Err(ImageCheckError::Load { path, source }),
    }
}

/// Checks that an image of the library OS takes a site's table.
pub(crate) fn check_site(image: &Image) -> Result<(), ImageCheckError> {
    check_option(image, Options::SITE, |path| ImageCheckError::Site { path })
}

/// Checks that an image of the library OS takes another root while it runs.
pub(crate) fn check_reload(image: &Image) -> Result<(), ImageCheckError> {
    check_option(image, Options::RELOAD, |path| ImageCheckError::Reload {
        path,
    })
}

fn check_option(
    image: &Image,
    option: Options,
    ignored: impl FnOnce(PathBuf) -> ImageCheckError,
) -> Result<(), ImageCheckError> {
    let path = image.path.clone();
    match tare_boot::options(&mut file_of(image)?) {
        Ok(options) if !options.contain(option) => Err(ignored(path)),
        Ok(_) => Ok(()),
        Err(source) => Err(ImageCheckError::Load { path, source }),
    }
}

fn file_of(image: &Image) -> Result<File, ImageCheckError> {
    let file = image.file.try_clone();
    file.map_err(|source| ImageCheckError::Read {
        path: image.path.clone(),
        source,
    })
}

/// Checks the image as closely as `engine` needs it.
pub(crate) fn check(
    image: &Image,
    guest: GuestKind,
    memory_mib: u32,
    engine: &Engine,
) -> Result<(), ImageCheckError> {
    let read = |source| ImageCheckError::Read {
        path: image.path.clone(),
        source,
    };
    let load = |source| ImageCheckError::Load {
        path: image.path.clone(),
        source,
    };
    let mut magic = [0; 4];
    let length = image.file.read_at(&mut magic, 0).map_err(read)?;
    let is_elf = magic.get(..length) == Some(b"\x7fELF");
    if guest != GuestKind::Linux && !is_elf {
        return Err(load(LoadError::NotElf));
    }
    if guest == GuestKind::Linux || matches!(engine, Engine::Qemu { .. }) {
        let memory = tare_hv::guest_memory(u64::from(memory_mib) * MIB)?;
        let options = LoadOptions {
            cmdline: "",
            initramfs: None,
            cpus: 1,
            protocol: match guest {
                // QEMU boots an ELF file by its note only.
                GuestKind::Linux if !is_elf || matches!(engine, Engine::Tare(_)) => Protocol::Linux,
                _ => Protocol::Pvh,
            },
        };
        let mut file = image.file.try_clone().map_err(read)?;
        tare_boot::load(&memory, &mut file, options).map_err(load)?;
    }
    Ok(())
}
