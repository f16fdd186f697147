//! Tests of rewritten calls, on the host's pages.

use super::{Area, Backing, CALLS_BEFORE_REWRITE, CODE, JUMP, OPEN, PAGE, SYSCALL, Space, memory};
use crate::files::Bytes;
use crate::space::Left;

const AT: u64 = 0x6000_1000_0000;
const TARGET: u64 = 0x12_3450;
/// cmp rax, -4096.
const COMPARISON: [u8; 6] = [0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff];
/// mov r8d, 0x28.
const MOV_R8: [u8; 6] = [0x41, 0xb8, 0x28, 0, 0, 0];

/// A space with this code at `AT + 0x100`, sites that are rewritten, and its pages there.
fn space(code: &[u8], cpus: usize) -> Space {
    memory::release(AT..AT + 8 * PAGE);
    let mut file = vec![0x90; 2 * PAGE as usize];
    file[0x100..0x100 + code.len()].copy_from_slice(code);
    let mut space = Space::new();
    space.sites.start(TARGET, cpus);
    let area = Area {
        end: 0,
        rights: CODE,
        backing: Backing::File {
            bytes: Bytes::new(&file),
            offset: 0,
            end: u64::MAX,
        },
        name: "program",
    };
    space.map(AT..AT + 2 * PAGE, area).unwrap();
    space.fault(AT, crate::space::Access::Execute).unwrap();
    space
}

fn at(code: &[u8]) -> u64 {
    let found = code.windows(2).position(|two| two == SYSCALL).unwrap();
    AT + 0x100 + found as u64 + 2
}

fn bytes<const N: usize>(at: u64) -> [u8; N] {
    let mut bytes = [0; N];
    assert!(memory::read(at, &mut bytes));
    bytes
}

/// Calls as often as it takes; whether the site was rewritten then, and not before.
fn call(space: &mut Space, behind: u64, number: u64) -> bool {
    for _ in 1..CALLS_BEFORE_REWRITE {
        assert!(!space.note_call(behind, number));
    }
    space.note_call(behind, number)
}

/// Runs the code from `rip` on as a processor would: RAX, RCX, and where the library OS is
/// entered or a byte is met that no stub has.
fn execute(mut rip: u64, mut rax: u64) -> (u64, u64, u64) {
    let mut rcx = 0;
    loop {
        match bytes::<7>(rip) {
            [0xb8, a, b, c, d, ..] => {
                rax = u32::from_le_bytes([a, b, c, d]).into();
                rip += 5;
            }
            [0xe9, a, b, c, d, ..] => {
                let distance = i32::from_le_bytes([a, b, c, d]);
                rip = (rip + 5).wrapping_add(i64::from(distance) as u64);
            }
            [0x48, 0x8d, 0x0d, a, b, c, d] => {
                rip += 7;
                rcx = rip + u64::from(u32::from_le_bytes([a, b, c, d]));
            }
            [0xff, 0x25, a, b, c, d, _] => {
                let distance = i32::from_le_bytes([a, b, c, d]);
                let word = (rip + 6).wrapping_add(i64::from(distance) as u64);
                return (rax, rcx, u64::from_le_bytes(bytes(word)));
            }
            _ => return (rax, rcx, rip),
        }
    }
}

#[test]
fn a_number_and_a_call_become_a_jump_that_loads_it() {
    let code = [0xb8, 232, 0, 0, 0, 0x0f, 0x05, 0xc3];
    let mut space = space(&code, 1);
    let behind = at(&code);
    assert!(call(&mut space, behind, 232));
    let (number, back, target) = execute(behind - 7, 99);
    assert_eq!((number, target), (232, TARGET));
    assert_eq!(execute(back, 5), (5, 0, behind), "goes on behind the call");
    assert_eq!(bytes(behind - 2), SYSCALL, "a jump to the call still works");
    assert_eq!(space.sites.resume(behind), behind);
    let again = space.sites.again(back);
    assert_eq!(execute(again, 0).0, 232, "a call that is made again");
    assert_eq!(space.sites.again(behind), behind - 2);
}

#[test]
fn a_call_with_a_comparison_becomes_a_jump_that_compares() {
    let mut code = vec![0x31, 0xc0, 0x0f, 0x05];
    code.extend(COMPARISON);
    code.extend([0x77, 0x40, 0xc3]);
    let mut space = space(&code, 1);
    let behind = at(&code);
    assert!(call(&mut space, behind, 0));
    let (number, back, target) = execute(behind - 2, 7);
    assert_eq!((number, target), (7, TARGET), "the number stays");
    assert_eq!(bytes(back), COMPARISON);
    assert_eq!(execute(back + 6, 0).2, behind + 6);
    // A thread that waited in the call meanwhile.
    assert_eq!(space.sites.resume(behind), back);
    assert_eq!(execute(space.sites.again(back), 3).0, 3);
}

/// What follows a call in code that compilers make, and how much of it moves.
const MOVED: [(&[u8], usize); 12] = [
    // mov [rsp + 0x30], eax; ret: Go's futex.
    (&[0x89, 0x44, 0x24, 0x30, 0xc3], 4),
    // mov rdi, rax; call: musl.
    (&[0x48, 0x89, 0xc7, 0xe8, 1, 2, 3, 4], 3),
    // mov edx, eax; test edx, edx; js.
    (&[0x89, 0xc2, 0x85, 0xd2, 0x78, 0x20], 4),
    // cmp eax, -4096.
    (&[0x3d, 0x00, 0xf0, 0xff, 0xff, 0x77, 0x10], 5),
    // cmp rax, -38.
    (&[0x48, 0x83, 0xf8, 0xda, 0x74, 0x10], 4),
    // pop rbx; pop rbp; pop r12.
    (&[0x5b, 0x5d, 0x41, 0x5c, 0xc3], 4),
    // mov [rsp + 0x130], rax.
    (&[0x48, 0x89, 0x84, 0x24, 0x30, 1, 0, 0], 8),
    // neg eax; mov [rbx + 8], eax.
    (&[0xf7, 0xd8, 0x89, 0x43, 0x08], 5),
    // ret, and what is between functions.
    (&[0xc3, 0x66, 0x90], 1),
    (&[0xc3, 0xcc, 0xcc], 1),
    (&[0xc3, 0x90, 0x0f, 0x1f, 0x40, 0x00], 1),
    (&[0x5b, 0xc3, 0x66, 0x66, 0x2e, 0x0f], 2),
];

#[test]
fn what_follows_a_call_moves_if_it_means_the_same_elsewhere() {
    for (following, count) in MOVED {
        let code = [&[0x89, 0xf8, 0x0f, 0x05], following].concat();
        let mut space = space(&code, 1);
        let behind = at(&code);
        assert!(call(&mut space, behind, 9), "{following:x?}");
        let (number, back, target) = execute(behind - 2, 9);
        assert_eq!((number, target), (9, TARGET));
        assert_eq!(space.sites.resume(behind), back);
        let moved: [u8; 9] = bytes(back);
        assert_eq!(moved[..count], following[..count], "{following:x?}");
        if !following[..count].ends_with(&[0xc3]) {
            let end = execute(back + count as u64, 0).2;
            assert_eq!(end, behind + count as u64, "{following:x?}");
        }
    }
}

#[test]
fn what_follows_a_call_stays_if_it_depends_on_its_place_or_is_too_short() {
    for following in [
        // mov [rip + ...], eax; the same with an address alone.
        &[0x89, 0x05, 1, 2, 3, 4][..],
        &[0x89, 0x04, 0x25, 1, 2, 3, 4],
        // test eax, eax; js.
        &[0x85, 0xc0, 0x78, 0x20],
        // call.
        &[0xe8, 1, 2, 3, 4],
        // Another function behind ret: mov edi, edi; movzx.
        &[0xc3, 0x89, 0xff],
        &[0xc3, 0x0f, 0xb6],
        &[0xc3, 0x90, 0x55],
        // test eax, 1: an immediate.
        &[0xf7, 0xc0, 1, 0, 0, 0],
        // A prefix that is not known.
        &[0xf3, 0x90, 0x90],
    ] {
        let code = [&[0x89, 0xf8, 0x0f, 0x05], following].concat();
        let mut space = space(&code, 1);
        assert!(!call(&mut space, at(&code), 9), "{following:x?}");
        assert_eq!(bytes(at(&code) - 2), SYSCALL);
    }
}

#[test]
fn what_only_looks_like_a_number_is_left_alone() {
    for before in [
        MOV_R8,
        [0x66, 0xb8, 0x28, 0, 0, 0],
        [0x90, 0xb8, 0x29, 0, 0, 0],
    ] {
        let code = [&before[..], &SYSCALL, &[0xe8]].concat();
        let mut space = space(&code, 1);
        assert!(!call(&mut space, at(&code), 0x28), "{before:x?}");
        assert_eq!(bytes(AT + 0x100), before);
    }
}

#[test]
fn a_comparison_that_a_jump_may_lead_to_stays() {
    let mut code = vec![0x31, 0xc0, 0x0f, 0x05];
    code.extend(COMPARISON);
    // jmp to the comparison, near and far.
    let near = [&code[..], &[0xeb, 0xf8]].concat();
    let far = [&code[..], &[0xe9, 0xf5, 0xff, 0xff, 0xff]].concat();
    let on_condition = [&code[..], &[0x0f, 0x84, 0xf4, 0xff, 0xff, 0xff]].concat();
    // lea rax, [rip - 13], for a jump by it.
    let by_address = [&code[..], &[0x48, 0x8d, 0x05, 0xf3, 0xff, 0xff, 0xff]].concat();
    for code in [near, far, on_condition, by_address] {
        let mut space = space(&code, 1);
        assert!(!call(&mut space, at(&code), 0), "{code:x?}");
    }
    // What no jump begins with is none.
    let number = [&code[..], &[0x66, 0xf6, 0xff, 0xff, 0xff]].concat();
    assert!(call(&mut space(&number, 1), at(&number), 0));
}

#[test]
fn a_call_at_the_end_of_a_page_becomes_a_jump_if_all_of_it_is_there() {
    let page = PAGE as usize - 0x100;
    for (following, from_end, is_rewritten) in [
        (&[0x48, 0x89, 0xc7][..], 3, true),
        (&[0x48, 0x89, 0xc7], 2, false),
        (&COMPARISON, 6, true),
        (&COMPARISON, 5, false),
        (&[0xc3, 0xcc, 0xcc], 3, true),
        (&[0xc3, 0xcc, 0xcc], 2, false),
    ] {
        let mut code = vec![0x90; page - from_end - 2];
        code.extend(SYSCALL);
        code.extend(following);
        let mut space = space(&code, 1);
        let behind = at(&code);
        assert_eq!(behind, AT + PAGE - from_end as u64);
        let is_now = call(&mut space, behind, 9);
        assert_eq!(is_now, is_rewritten, "{following:x?} {from_end}");
    }
    // With its number before it, nothing behind it is needed.
    let mut code = vec![0x90; page - 7];
    code.extend([0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0xc3]);
    assert!(call(&mut space(&code, 1), at(&code), 1));
}

#[test]
fn code_that_is_not_a_files_or_can_be_written_stays() {
    let code = [0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0xc3];
    let mut space = space(&code, 1);
    space.protect(AT..AT + 2 * PAGE, OPEN).unwrap();
    assert!(!call(&mut space, at(&code), 1));
}

#[test]
fn several_cpus_see_a_jump_whole_or_not_at_all() {
    // In one aligned word, and across two.
    for (padding, is_rewritten) in [(3, true), (4, false)] {
        let mut code = vec![0x90; padding];
        code.extend([0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0xc3]);
        let mut space = space(&code, 2);
        assert_eq!(call(&mut space, at(&code), 1), is_rewritten);
        assert_eq!(bytes::<1>(at(&code) - 7)[0] == JUMP, is_rewritten);
    }
}

#[test]
fn stubs_share_pages_until_one_is_full() {
    let one = [0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0xc3];
    let code = one.repeat(200);
    let mut space = space(&code, 1);
    let mut backs = alloc::collections::BTreeSet::new();
    for site in 0..200 {
        let behind = AT + 0x100 + site * 8 + 7;
        assert!(call(&mut space, behind, 1), "{site}");
        let (number, back, target) = execute(behind - 7, 0);
        assert_eq!((number, target), (1, TARGET));
        assert_eq!(execute(back, 0).2, behind);
        assert!(backs.insert(back));
    }
    assert_eq!(space.sites.pages.len(), 2);
}

#[test]
fn what_is_unmapped_is_forgotten() {
    let mut code = vec![0x31, 0xc0, 0x0f, 0x05];
    code.extend(COMPARISON);
    let mut space = space(&code, 1);
    let behind = at(&code);
    assert!(call(&mut space, behind, 0));
    space.unmap(AT..AT + 2 * PAGE);
    assert_eq!(
        space.sites.resume(behind),
        behind,
        "other code may come there"
    );
    assert!(!space.note_call(behind, 0));
}

#[test]
fn code_that_moves_has_its_calls_again() {
    let loaded = vec![0xb8, 232, 0, 0, 0, 0x0f, 0x05, 0xc3];
    let mut compared = vec![0x31, 0xc0, 0x0f, 0x05];
    compared.extend(COMPARISON);
    for (code, number) in [(loaded, 232), (compared, 0)] {
        let mut space = space(&code, 1);
        let behind = at(&code);
        assert!(call(&mut space, behind, number));
        let to = AT + (1 << 20);
        memory::release(to..to + PAGE);
        let moved = space.move_to(AT..AT + PAGE, to, PAGE, Left::Nothing);
        assert_eq!(moved, Ok(()));
        let mut now = vec![0; code.len()];
        assert!(memory::read(to + 0x100, &mut now));
        assert_eq!(now, code);
        assert_eq!(space.sites.resume(behind), behind, "it is forgotten");
    }
}
