//! The exit code of each cause, the same for `tare` and `tare-monitor`. Every
//! variant is named, so that the compiler asks for the code of a new one.

use tare_control::exit::ExitCode;

use crate::LoadError;

impl From<&LoadError> for ExitCode {
    fn from(error: &LoadError) -> Self {
        match error {
            LoadError::Image(_) | LoadError::Initramfs(_) => Self::ImageUnreadable,
            LoadError::NotElf
            | LoadError::NotAKernel
            | LoadError::No64BitEntry
            | LoadError::WrongMachine { .. }
            | LoadError::Headers { .. } => Self::ImageNotElf,
            LoadError::Truncated { .. } => Self::ImageTruncated,
            LoadError::NoPvhNote | LoadError::Notes => Self::ImageNoPvh,
            LoadError::OutsideMemory {
                need_mib: Some(_), ..
            }
            | LoadError::InitramfsTooLarge { .. }
            | LoadError::KernelTooLarge { .. } => Self::ImageTooLarge,
            LoadError::NoSegments
            | LoadError::SegmentSize { .. }
            | LoadError::KernelAlignment { .. }
            | LoadError::OutsideMemory { need_mib: None, .. }
            | LoadError::BootArea { .. }
            | LoadError::Overlap { .. }
            | LoadError::EntryOutside { .. } => Self::ImageLayout,
            LoadError::CmdlineTooLong { .. } | LoadError::CmdlineNotPrintable { .. } => {
                Self::Cmdline
            }
            LoadError::MemoryTooSmall { .. } => Self::Memory,
            LoadError::Acpi { .. } => Self::Cpus,
            // Its place was checked before.
            LoadError::Memory(_) => Self::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use vm_memory::GuestMemoryError;

    use super::*;
    use crate::error::Part;

    fn outside(need_mib: Option<u64>) -> LoadError {
        LoadError::OutsideMemory {
            segment: 0,
            start: 0,
            end: 0,
            have_mib: 0,
            need_mib,
        }
    }

    /// Every variant with the documented code (`docs/exit-codes.md`).
    #[test]
    fn each_cause_of_a_failed_load_has_its_documented_code() {
        let eof = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let causes = [
            (LoadError::Image(eof()), 10),
            (LoadError::Initramfs(eof()), 10),
            (LoadError::NotElf, 11),
            (LoadError::NotAKernel, 11),
            (LoadError::No64BitEntry, 11),
            (LoadError::WrongMachine { found: "arm" }, 11),
            (LoadError::Headers { what: "size" }, 11),
            (
                LoadError::Truncated {
                    part: Part::Header,
                    end: 1,
                    file_bytes: 0,
                },
                12,
            ),
            (LoadError::NoPvhNote, 13),
            (LoadError::Notes, 13),
            (outside(Some(1)), 14),
            (
                LoadError::InitramfsTooLarge {
                    bytes: 2,
                    room: 1,
                    need_mib: 3,
                },
                14,
            ),
            (
                LoadError::KernelTooLarge {
                    need_mib: 2,
                    have_mib: 1,
                },
                14,
            ),
            (LoadError::NoSegments, 15),
            (
                LoadError::SegmentSize {
                    segment: 0,
                    file_bytes: 2,
                    memory_bytes: 1,
                },
                15,
            ),
            (LoadError::KernelAlignment { alignment: 3 }, 15),
            (outside(None), 15),
            (
                LoadError::BootArea {
                    segment: 0,
                    start: 0,
                },
                15,
            ),
            (
                LoadError::Overlap {
                    first: 0,
                    second: 1,
                },
                15,
            ),
            (LoadError::EntryOutside { entry: 0 }, 15),
            (LoadError::MemoryTooSmall { have_bytes: 0 }, 21),
            (
                LoadError::CmdlineTooLong {
                    bytes: 9999,
                    most: 4095,
                },
                22,
            ),
            (
                LoadError::CmdlineNotPrintable {
                    byte: 7,
                    position: 0,
                },
                22,
            ),
            (LoadError::Acpi { bytes: 2, room: 1 }, 20),
            (
                LoadError::Memory(GuestMemoryError::InvalidBackendAddress),
                75,
            ),
        ];
        for (error, code) in causes {
            assert_eq!(ExitCode::from(&error) as u8, code, "{error}");
        }
    }
}
