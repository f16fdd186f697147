//! System calls by a jump. Where KVM emulates ring 0, SYSCALL leaves the machine, which takes
//! 1 to 50 µs by processor; the library OS is in the program's own ring and address space, and a
//! jump to it takes nothing. So a SYSCALL of a file's code that is used often is rewritten in
//! memory, never in the file:
//!
//! | code | becomes |
//! |---|---|
//! | `mov eax, N`; `syscall` | `jmp stub`; `syscall` |
//! | `syscall`; three bytes of instructions or more that mean the same elsewhere, such as `cmp rax, N` | `jmp stub`; bytes that nothing executes |
//! | `syscall`; `ret`; padding | the same |
//!
//! In the first form all instructions begin where they did, so that a jump to any of them still
//! works. In the others some are gone: a thread that is to go on there goes on in the
//! stub, and code with a jump that could lead there is left as it is. gVisor's systrap does the
//! same with the first form.
//!
//! A stub loads the number, puts the address of its second half into RCX, and jumps to the library
//! OS; the second half has what was moved, and jumps back behind the site.

use alloc::vec::Vec;
use core::ops::Range;

use crate::memory::{self, PAGE, Rights};
use crate::space::{Area, Backing, Space};

/// Calls of a site until it is rewritten.
const CALLS_BEFORE_REWRITE: u32 = 32;
/// Sites that are counted; programs have some tens.
const MOST_COUNTED: usize = 256;
const MOST_PAGES: usize = 16;
/// Bytes of a stub. The first of a page holds the address of the library OS's entry.
const STUB: u64 = 32;
const STUBS: u64 = PAGE / STUB;

const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Most bytes of instructions that move, and how many make room for a jump.
const MOST_MOVED: usize = 9;
const LEAST_MOVED: usize = 3;
const RETURN: u8 = 0xc3;
/// No instruction has it where code has 64 bits.
const NO_INSTRUCTION: u8 = 0x06;
const MOV_EAX: u8 = 0xb8;
const JUMP: u8 = 0xe9;
/// Bytes of `jmp` with 32 bits, and of `mov eax` with them.
const LONG: u64 = 5;
/// Bytes before and behind SYSCALL that tell its form.
const BEFORE: usize = 6;
const AROUND: usize = BEFORE + SYSCALL.len() + MOST_MOVED;

const CODE: Rights = Rights {
    read: true,
    write: false,
    execute: true,
};
const OPEN: Rights = Rights {
    read: true,
    write: true,
    execute: true,
};

/// What can be rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The number is loaded just before.
    Number(u32),
    /// The instructions behind can move.
    Moved(Moved),
}

/// Instructions that mean the same elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moved {
    bytes: [u8; MOST_MOVED],
    count: usize,
}

impl Moved {
    /// The first ones of `bytes`, as many as make room.
    fn of(bytes: &[u8; MOST_MOVED]) -> Option<Self> {
        let mut count = 0;
        while count < LEAST_MOVED {
            let rest = &bytes[count..];
            if let [RETURN, behind @ ..] = rest {
                count += 1;
                let has_room = are_padding(behind, LEAST_MOVED - count);
                return has_room.then_some(Self {
                    bytes: *bytes,
                    count,
                });
            }
            let length = movable(rest)?;
            // All of it is known.
            rest.get(..length)
                .filter(|code| !code.contains(&NO_INSTRUCTION))?;
            count += length;
        }
        (count <= MOST_MOVED).then_some(Self {
            bytes: *bytes,
            count,
        })
    }

    fn code(&self) -> &[u8] {
        &self.bytes[..self.count]
    }
}

/// Whether `count` bytes, where nothing falls through to, begin what compilers put between
/// functions.
fn are_padding(bytes: &[u8], count: usize) -> bool {
    const SEVERAL: [&[u8]; 5] = [
        &[0x66, 0x90],
        &[0x0f, 0x1f],
        &[0x66, 0x0f, 0x1f],
        &[0x66, 0x2e, 0x0f, 0x1f],
        &[0x66, 0x66, 0x2e],
    ];
    match bytes {
        _ if count == 0 => true,
        [0x90 | 0xcc, rest @ ..] => are_padding(rest, count - 1),
        _ => SEVERAL.iter().any(|nop| bytes.starts_with(nop)),
    }
}

/// Bytes of the instruction that `bytes` begin with, if it is one of those that are known to
/// mean the same at any address (Intel SDM vol. 2, appendix A).
fn movable(bytes: &[u8]) -> Option<usize> {
    let (prefix, bytes) = match bytes {
        [0x40..=0x4f, rest @ ..] => (1, rest),
        _ => (0, bytes),
    };
    let length = match *bytes {
        // push, pop, nop.
        [0x50..=0x5f | 0x90, ..] => 1,
        // cmp rAX.
        [0x3d, ..] => 5,
        // Arithmetic on registers: with 8 bits, with 32 bits, not and neg.
        [0x83, 0xc0..=0xff, ..] => 3,
        [0x81, 0xc0..=0xff, ..] => 6,
        [0xf7, 0xd0..=0xdf, ..] => 2,
        // xor, cmp, movsxd, test, mov.
        [
            0x31 | 0x39 | 0x3b | 0x63 | 0x85 | 0x89 | 0x8b,
            operand,
            ref rest @ ..,
        ] => 1 + operand_bytes(operand, rest.first().copied())?,
        _ => return None,
    };
    Some(prefix + length)
}

/// Bytes of a ModRM operand that is not relative to RIP.
fn operand_bytes(operand: u8, scaled: Option<u8>) -> Option<usize> {
    let (mode, base) = (operand >> 6, operand & 7);
    let sib = usize::from(mode != 3 && base == 4);
    let base = if sib == 1 { scaled? & 7 } else { base };
    match mode {
        3 => Some(1),
        2 => Some(5 + sib),
        1 => Some(2 + sib),
        // RIP, or an address of 32 bits.
        _ if base == 5 => None,
        _ => Some(1 + sib),
    }
}

impl Form {
    /// The form of a site by the bytes around it, and the number that it was called with.
    fn of(around: &[u8; AROUND], number: u64) -> Option<Self> {
        let (before, rest) = around.split_at(BEFORE);
        let behind = rest.strip_prefix(&SYSCALL)?.first_chunk()?;
        let loaded = u32::from_le_bytes([before[2], before[3], before[4], before[5]]);
        // With a prefix it is another register.
        let is_plain = before[1] == MOV_EAX && before[0] & 0xf0 != 0x40 && before[0] != 0x66;
        if is_plain && u64::from(loaded) == number {
            Some(Self::Number(loaded))
        } else {
            Moved::of(behind).map(Self::Moved)
        }
    }

    /// The rewritten bytes: where they begin, by the address behind SYSCALL.
    fn start(self, behind: u64) -> u64 {
        match self {
            Self::Number(_) => behind - 2 - LONG,
            Self::Moved(_) => behind - 2,
        }
    }

    /// Where the program goes on.
    fn end(self, behind: u64) -> u64 {
        match self {
            Self::Number(_) => behind,
            Self::Moved(moved) => behind + moved.count as u64,
        }
    }
}

/// A rewritten site.
#[derive(Clone, Copy, Debug)]
struct Rewritten {
    /// The address behind SYSCALL.
    behind: u64,
    is_moved: bool,
    stub: u64,
    /// The stub's second half.
    back: u64,
}

impl Rewritten {
    /// Where its jump is.
    fn start(&self) -> u64 {
        let syscall = self.behind - SYSCALL.len() as u64;
        syscall - if self.is_moved { 0 } else { LONG }
    }

    /// What was in place of its jump, by its stub; none if the jump is gone, as after
    /// `MADV_DONTNEED`.
    fn code_before(&self) -> Option<[u8; LONG as usize]> {
        let mut now = [0; LONG as usize];
        let is_jump = memory::read(self.start(), &mut now) && now[0] == JUMP;
        is_jump.then_some(())?;
        let mut code = now;
        let (at, to) = if self.is_moved {
            code[..SYSCALL.len()].copy_from_slice(&SYSCALL);
            (self.back, &mut code[SYSCALL.len()..])
        } else {
            (self.stub, &mut code[..])
        };
        memory::read(at, to).then_some(code)
    }
}

/// What became of the SYSCALLs of a program. Lists, not maps: they are short, and only calls that
/// leave the machine look into them.
#[derive(Debug)]
pub(crate) struct Sites {
    /// Where stubs jump to; none where SYSCALL is quick.
    target: Option<u64>,
    cpus: usize,
    /// Calls by the address behind SYSCALL.
    counted: Vec<(u64, u32)>,
    rewritten: Vec<Rewritten>,
    /// Pages of stubs, and how many each holds.
    pages: Vec<(u64, u64)>,
}

impl Sites {
    pub(crate) const fn new() -> Self {
        Self {
            target: None,
            cpus: 1,
            counted: Vec::new(),
            rewritten: Vec::new(),
            pages: Vec::new(),
        }
    }

    /// Rewrites from now on, with jumps to `target`, for this many CPUs.
    pub(crate) fn start(&mut self, target: u64, cpus: usize) {
        self.target = Some(target);
        self.cpus = cpus;
    }

    /// What was at these addresses is no more. Stubs stay, for threads that are on their way back.
    pub(crate) fn forget(&mut self, range: &Range<u64>) {
        self.counted.retain(|(behind, _)| !range.contains(behind));
        self.rewritten.retain(|site| !range.contains(&site.behind));
    }

    /// Where a thread that was to go on at `rip` goes on.
    pub(crate) fn resume(&self, rip: u64) -> u64 {
        let mut sites = self.rewritten.iter();
        let site = sites.find(|site| site.is_moved && site.behind == rip);
        site.map_or(rip, |site| site.back)
    }

    /// Where the call begins again that goes on at `rip`.
    pub(crate) fn again(&self, rip: u64) -> u64 {
        let mut sites = self.rewritten.iter();
        let site = sites.find(|site| site.back == rip);
        site.map_or(rip - SYSCALL.len() as u64, |site| site.stub)
    }

    /// Counts a call; whether the site is to be rewritten.
    fn is_busy(&mut self, behind: u64) -> bool {
        if self.target.is_none() {
            return false;
        }
        if let Some((_, count)) = self.counted.iter_mut().find(|(at, _)| *at == behind) {
            *count = count.saturating_add(1);
            return *count == CALLS_BEFORE_REWRITE;
        }
        if self.counted.len() < MOST_COUNTED {
            self.counted.push((behind, 1));
        }
        false
    }
}

impl Space {
    /// Notes a system call by SYSCALL, with `behind` the address behind it; whether it will be a
    /// jump from now on.
    pub(crate) fn note_call(&mut self, behind: u64, number: u64) -> bool {
        self.sites.is_busy(behind) && self.rewrite(behind, number).is_some()
    }

    /// Makes the code of `range` what it was before calls became jumps: it moves, and a jump leads
    /// elsewhere from another address.
    pub(crate) fn restore_code(&mut self, range: &Range<u64>) {
        let is_there = |site: &mut Rewritten| range.contains(&site.behind);
        for site in self.sites.rewritten.extract_if(.., is_there) {
            let start = site.start();
            open(start, || {
                site.code_before()
                    .is_some_and(|code| memory::write(start, &code))
            });
        }
        self.sites.forget(range);
    }

    fn rewrite(&mut self, behind: u64, number: u64) -> Option<()> {
        let target = self.sites.target?;
        let from = behind.checked_sub((BEFORE + SYSCALL.len()) as u64)?;
        // As far as the page goes.
        let mut around = [NO_INSTRUCTION; AROUND];
        let known = (PAGE - from % PAGE).min(AROUND as u64);
        let (start, area) = self.code_around(from..from + known)?;
        memory::read(from, &mut around[..known as usize]).then_some(())?;
        let form = Form::of(&around, number)?;
        let is_moved = matches!(form, Form::Moved(_));
        if is_moved && area.may_jump_into(start, &(behind..behind + LEAST_MOVED as u64)) {
            return None;
        }
        let start = form.start(behind);
        let stub = self.stub(start, target)?;
        let bytes = encode(form, stub, form.end(behind));
        let back = stub + bytes.back;
        let jump = jump(start, stub)?;
        open(stub, || memory::write(stub, &bytes.code)).then_some(())?;
        memory::own(start, CODE).then_some(())?;
        open(start, || place(start, jump, self.sites.cpus)).then_some(())?;
        self.sites.rewritten.push(Rewritten {
            behind,
            is_moved,
            stub,
            back,
        });
        Some(())
    }

    /// The area of all of `range`, where it is a file's code that nothing writes.
    fn code_around(&self, range: Range<u64>) -> Option<(u64, &Area)> {
        let (start, area) = self.area_of(range.start)?;
        let is_code = area.rights == CODE && matches!(area.backing, Backing::File { .. });
        // Rewritten bytes lie in one page.
        let same_page = range.start / PAGE == (range.end - 1) / PAGE;
        let has_call = range.end - range.start >= (BEFORE + SYSCALL.len()) as u64;
        (is_code && same_page && has_call && range.end <= area.end).then_some((start, area))
    }

    /// The address of a new stub that a jump from `site` reaches.
    fn stub(&mut self, site: u64, target: u64) -> Option<u64> {
        let reaches = |page: u64| page.abs_diff(site) < (1 << 31) - PAGE;
        let mut pages = self.sites.pages.iter_mut();
        if let Some((page, used)) = pages.find(|it| reaches(it.0) && it.1 < STUBS) {
            *used += 1;
            return Some(*page + (*used - 1) * STUB);
        }
        if self.sites.pages.len() >= MOST_PAGES {
            return None;
        }
        let page = self.find_behind(site, PAGE).filter(|page| reaches(*page))?;
        let area = Area {
            end: 0,
            rights: CODE,
            backing: Backing::Anonymous,
            name: "[calls]",
        };
        self.map(page..page + PAGE, area).ok()?;
        memory::populate(page..page + PAGE, CODE, &target.to_le_bytes()).ok()?;
        self.sites.pages.push((page, 2));
        Some(page + STUB)
    }
}

/// Lets `act` write to the page of `address`, which is code.
fn open(address: u64, act: impl FnOnce() -> bool) -> bool {
    let page = address & !(PAGE - 1);
    memory::set_rights(page..page + PAGE, OPEN);
    let done = act();
    memory::set_rights(page..page + PAGE, CODE);
    done
}

/// Writes a jump over code. Other CPUs may execute it: they see all of it or nothing, so that it
/// must lie in one aligned word.
fn place(at: u64, jump: [u8; LONG as usize], cpus: usize) -> bool {
    if cpus == 1 {
        return memory::write(at, &jump);
    }
    let (word, offset) = (at & !7, (at % 8) as usize);
    let mut bytes = [0; 8];
    let Some(part) = bytes.get_mut(offset..offset + jump.len()) else {
        return false;
    };
    part.fill(0);
    if !memory::read(word, &mut bytes) {
        return false;
    }
    bytes[offset..offset + jump.len()].copy_from_slice(&jump);
    memory::store_u64(word, u64::from_le_bytes(bytes))
}

/// A jump from `at` to `to`.
fn jump(at: u64, to: u64) -> Option<[u8; LONG as usize]> {
    let distance = to.wrapping_sub(at.wrapping_add(LONG)) as i64;
    let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
    Some([JUMP, a, b, c, d])
}

struct Encoded {
    code: [u8; STUB as usize],
    /// Offset of the second half.
    back: u64,
}

/// A stub at `at`, which goes on at `end`.
fn encode(form: Form, at: u64, end: u64) -> Encoded {
    let mut code = Vec::with_capacity(STUB as usize);
    if let Form::Number(number) = form {
        code.push(MOV_EAX);
        code.extend(number.to_le_bytes());
    }
    // lea rcx, [rip + 6]: behind the next jump, which has 6 bytes.
    code.extend([0x48, 0x8d, 0x0d, 6, 0, 0, 0]);
    // jmp [rip + ...]: the page's first word.
    let next = at + code.len() as u64 + 6;
    let word = (at & !(PAGE - 1)).wrapping_sub(next) as u32;
    code.extend([0xff, 0x25]);
    code.extend(word.to_le_bytes());
    let back = code.len() as u64;
    if let Form::Moved(moved) = form {
        code.extend(moved.code());
    }
    // The page was chosen so that it reaches.
    let home = jump(at + code.len() as u64, end).unwrap_or([0xcc; LONG as usize]);
    code.extend(home);
    let mut stub = [0xcc; STUB as usize];
    stub[..code.len()].copy_from_slice(&code);
    Encoded { code: stub, back }
}

impl Area {
    /// Whether some bytes of its file, wherever instructions begin, could be a jump into
    /// `forbidden`. It begins at `start`.
    fn may_jump_into(&self, start: u64, forbidden: &Range<u64>) -> bool {
        let Backing::File { bytes, offset, end } = &self.backing else {
            return true;
        };
        let until = offset.saturating_add(self.end - start).min(*end);
        let looked = bytes.with(*offset, until, |code| may_jump_into(code, start, forbidden));
        // What cannot be looked at is left alone.
        looked.unwrap_or(true)
    }
}

/// Whether bytes of `code`, which is at `start`, could be a jump into `forbidden`.
fn may_jump_into(code: &[u8], start: u64, forbidden: &Range<u64>) -> bool {
    let leads = |next: u64, distance: i64| forbidden.contains(&next.wrapping_add(distance as u64));
    let near = |(at, pair): (u64, &[u8])| {
        let is_jump = matches!(pair[0], 0x70..=0x7f | 0xe0..=0xe3 | 0xeb);
        is_jump && leads(at + 2, i64::from(pair[1] as i8))
    };
    let far = |(at, word): (u64, &[u8])| {
        // call, jmp, a jump on a condition, xbegin, or lea of an address to jump to.
        let may_be = match (word[0], word[1]) {
            (_, 0xe8 | 0xe9) | (0x0f, 0x80..=0x8f) | (0xc7, 0xf8) => true,
            (0x8d, operand) => operand & 0xc7 == 0x05,
            _ => false,
        };
        let distance = i32::from_le_bytes([word[2], word[3], word[4], word[5]]);
        may_be && leads(at + 6, distance.into())
    };
    // Near ones reach 128 bytes.
    let begin = (forbidden.start.saturating_sub(start + 130)) as usize;
    let end = code
        .len()
        .min((forbidden.end.saturating_sub(start) + 130) as usize);
    let around = code.get(begin.min(end)..end).unwrap_or_default();
    (start + begin as u64..).zip(around.windows(2)).any(near)
        || (start..).zip(code.windows(6)).any(far)
}

#[cfg(test)]
#[path = "sites_tests.rs"]
mod tests;
