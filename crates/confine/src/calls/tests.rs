//! Injects calls into the filter of each role: the program that the kernel would
//! run is run here, over every case of a table.

use seccompiler::sock_filter;

use super::*;

mod build;
mod program;
mod reader;
mod set_up;

const ALLOW: u32 = 0x7fff_0000; // SECCOMP_RET_ALLOW
const LACKING: u32 = 0x0005_0000 + libc::ENOSYS as u32; // SECCOMP_RET_ERRNO
const ROLES: [Role; 5] = [
    Role::Vcpu,
    Role::Io,
    Role::IoAllAddresses,
    Role::Main,
    Role::Frontend,
];

/// Runs a filter as the kernel does (`net/core/filter.c`), as far as seccompiler
/// generates it; the action.
fn verdict(program: &[sock_filter], call: c_long, arguments: &[u64]) -> u32 {
    let mut data = [0u8; 64];
    data[..4].copy_from_slice(&(call as u32).to_le_bytes());
    data[4..8].copy_from_slice(&0xc000_003e_u32.to_le_bytes()); // AUDIT_ARCH_X86_64
    for (at, argument) in data[16..].chunks_mut(8).zip(arguments) {
        at.copy_from_slice(&argument.to_le_bytes());
    }
    let mut accumulator = 0;
    let mut at = 0;
    loop {
        let step = &program[at];
        at += 1;
        let jump = |taken: bool| usize::from(if taken { step.jt } else { step.jf });
        match step.code {
            0x20 => {
                let from = step.k as usize;
                let word = data[from..from + 4].try_into().expect("four bytes");
                accumulator = u32::from_le_bytes(word);
            }
            0x54 => accumulator &= step.k,
            0x05 => at += step.k as usize,
            0x15 => at += jump(accumulator == step.k),
            0x25 => at += jump(accumulator > step.k),
            0x35 => at += jump(accumulator >= step.k),
            0x06 => return step.k,
            other => panic!("the test does not know the instruction {other:#x}"),
        }
    }
}

/// Whether a filter allows a call, which it else answers with `refused` and nothing else.
fn is_allowed(program: &[sock_filter], call: c_long, arguments: &[u64], refused: u32) -> bool {
    let verdict = verdict(program, call, arguments);
    assert!(
        verdict == ALLOW || verdict == refused,
        "{call}: {verdict:#x}"
    );
    verdict == ALLOW
}

fn allows(role: Role, call: c_long, arguments: &[u64]) -> bool {
    let program = program(role).expect("a filter");
    verdict(&program, call, arguments) == ALLOW
}

fn own_pid() -> u64 {
    std::process::id().into()
}

#[test]
fn no_role_may_open_connect_execute_or_gain() {
    let forbidden = [
        libc::SYS_open,
        libc::SYS_openat,
        libc::SYS_openat2,
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_fork,
        libc::SYS_vfork,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_chroot,
        libc::SYS_pivot_root,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_kill,
        libc::SYS_tkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_prctl,
        libc::SYS_capset,
        libc::SYS_setuid,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_register,
        libc::SYS_rename,
        libc::SYS_link,
        libc::SYS_symlink,
        libc::SYS_chmod,
        libc::SYS_mkdir,
    ];
    for role in ROLES {
        for call in forbidden {
            assert!(!allows(role, call, &[]), "{role:?} {call}");
        }
    }
}

#[test]
fn only_the_main_thread_signals_and_only_this_process() {
    let kick = FIRST_KICK_SIGNAL;
    assert!(allows(Role::Main, libc::SYS_tgkill, &[own_pid(), 1, kick]));
    for (process, signal) in [(own_pid() + 1, kick), (1, kick), (own_pid(), 9)] {
        let arguments = [process, process, signal];
        assert!(!allows(Role::Main, libc::SYS_tgkill, &arguments));
    }
    for role in ROLES.into_iter().filter(|role| *role != Role::Main) {
        assert!(!allows(role, libc::SYS_tgkill, &[own_pid(), 1, kick]));
    }
}

#[test]
fn a_vcpu_thread_runs_its_vcpu_and_makes_none() {
    let forbidden = [
        0xae01,      // KVM_CREATE_VM
        0xae41,      // KVM_CREATE_VCPU
        0x4020_ae46, // KVM_SET_USER_MEMORY_REGION
        0xae60,      // KVM_CREATE_IRQCHIP
        0x4020_ae76, // KVM_IRQFD
        0x4040_ae79, // KVM_IOEVENTFD
        0x4008_ae89, // KVM_SET_MSRS
        0x4068_aea3, // KVM_ENABLE_CAP
        0xc00c_aee0, // KVM_CREATE_DEVICE
        0x5412,      // TIOCSTI
    ];
    for role in ROLES {
        for number in VCPU_IOCTLS {
            let allowed = allows(role, libc::SYS_ioctl, &[0, *number]);
            assert_eq!(allowed, role == Role::Vcpu, "{role:?} {number:#x}");
        }
        for number in forbidden {
            let allowed = allows(role, libc::SYS_ioctl, &[0, number]);
            let halts = role == Role::Main && number == KVM_ENABLE_CAP;
            assert_eq!(allowed, halts, "{role:?} {number:#x}");
        }
    }
}

#[test]
fn only_the_main_thread_asks_for_the_length_of_a_device() {
    for role in ROLES {
        let allowed = allows(role, libc::SYS_ioctl, &[0, BLKGETSIZE64]);
        assert_eq!(allowed, role == Role::Main, "{role:?}");
    }
}

#[test]
fn memory_becomes_executable_in_no_thread() {
    for role in ROLES {
        for call in [libc::SYS_mmap, libc::SYS_mprotect] {
            assert!(allows(role, call, &[0, 4096, 3]), "{role:?}");
            assert!(!allows(role, call, &[0, 4096, 4]), "{role:?}");
            assert!(!allows(role, call, &[0, 4096, 7]), "{role:?}");
        }
    }
}

#[test]
fn locks_and_advice_are_what_a_library_uses() {
    for role in ROLES {
        for operation in [0, 1, 9, 10, 128, 129, 137, 9 | 256] {
            assert!(
                allows(role, libc::SYS_futex, &[0, operation]),
                "{operation}"
            );
        }
        // Priority inheritance and requeueing to it, waiting on descriptors.
        for operation in [2, 6, 7, 8, 11, 12, 13, 134] {
            assert!(
                !allows(role, libc::SYS_futex, &[0, operation]),
                "{operation}"
            );
        }
        for advice in [4, 8, 14] {
            assert!(allows(role, libc::SYS_madvise, &[0, 0, advice]));
        }
        // MADV_REMOVE, MADV_DOFORK, MADV_MERGEABLE, MADV_NOHUGEPAGE, MADV_HWPOISON.
        for advice in [9, 11, 12, 15, 100] {
            assert!(!allows(role, libc::SYS_madvise, &[0, 0, advice]));
        }
    }
}

#[test]
fn a_front_end_may_change_a_rings_eventfd_and_nothing_else_of_it() {
    for operation in 0..32 {
        let may = allows(Role::Frontend, libc::SYS_io_uring_register, &[3, operation]);
        assert_eq!(may, [4, 5].contains(&operation), "{operation}");
        for role in ROLES.into_iter().filter(|it| *it != Role::Frontend) {
            assert!(!allows(role, libc::SYS_io_uring_register, &[3, operation]));
        }
    }
}

/// The figures of `docs/security.md`.
#[test]
fn each_role_has_this_many_calls() {
    let calls = ROLES.map(|role| (0..512).filter(|call| reachable(role, *call)).count());
    assert_eq!(calls, [34, 45, 47, 45, 51]);
}

/// Whether some arguments make the call possible.
fn reachable(role: Role, call: c_long) -> bool {
    let program = program(role).expect("a filter");
    let numbers = [0, 1, 3, 4, TCSETS, own_pid()];
    numbers.iter().any(|first| {
        numbers.iter().any(|second| {
            [
                0,
                4,
                u64::from(libc::SO_LINGER.unsigned_abs()),
                FIRST_KICK_SIGNAL,
            ]
            .iter()
            .any(|third| verdict(&program, call, &[*first, *second, *third]) == 0x7fff_0000)
        })
    })
}
