//! The kernel's names of constants.
//!
//! Errors are those of the crate `syscalls`, requests of `ioctl` are written by `cargo
//! xtask ioctls`, the rest is from the headers that each table names.

mod file;
mod ioctl;
mod socket;
mod task;

use syscalls::Errno;

/// The name of an error, also of those from 512 on (`include/linux/errno.h`), which a
/// program sees as a call that begins again; its number where it has none.
pub fn errno(number: u64) -> String {
    let error = i32::try_from(number).map(Errno::new).ok();
    let name = error.and_then(|error| error.name());
    name.map_or_else(|| number.to_string(), str::to_owned)
}

/// The name of a socket family.
pub fn family(number: u64) -> String {
    named(socket::FAMILIES, number)
}

/// The name of a kind of socket.
pub fn kind(number: u64) -> String {
    named(socket::KINDS, number)
}

/// The names of a level and of an option of it.
pub fn option(level: u64, option: u64) -> (String, String) {
    let options: &[(u64, &str)] = match level {
        0 => socket::IP,
        1 => socket::SOCKET,
        6 => socket::TCP,
        17 => socket::UDP,
        41 => socket::IPV6,
        _ => &[],
    };
    (named(socket::LEVELS, level), named(options, option))
}

/// The name of an `ioctl`; its number in hexadecimal where it has none.
pub fn ioctl(request: u64) -> String {
    find(ioctl::IOCTL, request).map_or_else(|| format!("{request:#x}"), str::to_owned)
}

/// The name of an operation of `prctl`.
pub fn prctl(operation: u64) -> String {
    named(task::PRCTL, operation)
}

/// The name of an operation of `arch_prctl`.
pub fn arch_prctl(operation: u64) -> String {
    named(task::ARCH_PRCTL, operation)
}

/// The names of flags of `clone`, sorted; bits without one in hexadecimal.
pub fn clone_flags(flags: u64) -> Vec<String> {
    sorted(bits(task::CLONE, flags).collect())
}

/// The names of flags of `open`, sorted, without how it is opened.
pub fn open_flags(flags: u64) -> Vec<String> {
    const O_ACCMODE: u64 = 3;
    sorted(bits(file::OPEN, flags & !O_ACCMODE).collect())
}

/// The names of flags and protection of `mmap`, sorted.
pub fn map_flags(flags: u64, protection: u64) -> Vec<String> {
    const MAP_TYPE: u64 = 0xf;
    let kind = flags & MAP_TYPE;
    let kind = (kind != 0).then(|| named(file::MAP_TYPES, kind));
    let names = bits(file::MAP, flags & !MAP_TYPE);
    sorted(
        names
            .chain(kind)
            .chain(bits(file::PROTECTION, protection))
            .collect(),
    )
}

/// The name of a command of `fcntl`.
pub fn fcntl(command: u64) -> String {
    named(file::FCNTL, command)
}

fn bits(table: &'static [(u64, &'static str)], flags: u64) -> impl Iterator<Item = String> {
    let bits = (0..u64::BITS).map(move |bit| flags & (1 << bit));
    bits.filter(|bit| *bit != 0)
        .map(move |bit| find(table, bit).map_or_else(|| format!("{bit:#x}"), str::to_owned))
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names
}

fn named(table: &[(u64, &'static str)], number: u64) -> String {
    find(table, number).map_or_else(|| number.to_string(), str::to_owned)
}

fn find(table: &[(u64, &'static str)], number: u64) -> Option<&'static str> {
    let at = table.binary_search_by_key(&number, |(known, _)| *known);
    Some(table[at.ok()?].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_sorted_by_number() {
        let tables = [
            ioctl::IOCTL,
            file::OPEN,
            file::MAP,
            file::MAP_TYPES,
            file::PROTECTION,
            file::FCNTL,
            socket::FAMILIES,
            socket::KINDS,
            socket::LEVELS,
            socket::SOCKET,
            socket::TCP,
            socket::IP,
            socket::IPV6,
            socket::UDP,
            task::CLONE,
            task::PRCTL,
            task::ARCH_PRCTL,
        ];
        for table in tables {
            assert!(table.is_sorted_by_key(|(number, _)| *number), "{table:?}");
        }
    }

    #[test]
    fn constants_have_the_kernels_names_or_numbers() {
        assert_eq!(family(16), "AF_NETLINK");
        assert_eq!(family(999), "999");
        assert_eq!(
            option(6, 1),
            ("IPPROTO_TCP".to_owned(), "TCP_NODELAY".to_owned())
        );
        assert_eq!(option(1, 2).1, "SO_REUSEADDR");
        assert_eq!(ioctl(0x5421), "FIONBIO");
        assert_eq!(ioctl(0x1234_5678), "0x12345678");
        assert_eq!(prctl(15), "PR_SET_NAME");
        assert_eq!(arch_prctl(0x1002), "ARCH_SET_FS");
        assert_eq!(
            clone_flags(0x4100 | 1 << 40),
            ["0x10000000000", "CLONE_VFORK", "CLONE_VM"]
        );
        assert_eq!(
            open_flags(0o2_100_102),
            ["O_CLOEXEC", "O_CREAT", "O_LARGEFILE"]
        );
        assert_eq!(
            map_flags(0x11, 0x5),
            ["MAP_FIXED", "MAP_SHARED", "PROT_EXEC", "PROT_READ"]
        );
        assert_eq!(map_flags(0, 0), [""; 0]);
        assert_eq!(fcntl(4), "F_SETFL");
        assert_eq!(prctl(0x5356_4d41), "PR_SET_VMA");
        assert_eq!(errno(2), "ENOENT");
        assert_eq!(errno(512), "ERESTARTSYS");
        assert_eq!(errno(0), "0");
        assert_eq!(errno(4095), "4095");
        assert_eq!(errno(u64::MAX), u64::MAX.to_string());
    }
}
