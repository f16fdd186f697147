//! `execve(2)`: another program in place of this one. There is one process, so a program that has
//! threads, which it would end, is refused; a shell's `exec`, `env`, and programs that start another
//! one in their place work.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as c;
use tare_program::script::{self, Interpreter};
use tare_program::{Start, names};

use super::arguments::Arguments;
use super::descriptors::open as opened;
use super::files::{AT_FDCWD, absolute, path};
use super::system::end;
use super::threads::refuse_fork;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::MOST;
use crate::files::regular::node_of;
use crate::files::tree::{Last, Node};
use crate::process::Shown;
use crate::program::{self, Found, NotFound};
use crate::space::FIRST_STACK_BYTES;
use crate::thread::SignalStack;
use crate::{ring, robust, shared};

/// Most bytes of arguments and environment, with their pointers, as on Linux a quarter of the stack.
const MOST_BYTES: usize = FIRST_STACK_BYTES as usize / 4;
/// Most bytes of one, with its NUL (`MAX_ARG_STRLEN`).
const MOST_TEXT: usize = 128 * 1024;
const POINTER: u64 = 8;

pub(super) fn execve(
    context: &mut Context<'_>,
    name: u64,
    arguments: u64,
    environment: u64,
) -> Result {
    let called = context.process.text(name)?;
    if called.is_empty() {
        return Err(Errno::ENOENT);
    }
    let path = absolute(context, AT_FDCWD as u64, called.clone())?;
    let file = Executed {
        path,
        called,
        node: None,
    };
    exec(context, file, arguments, environment)
}

pub(super) fn execveat(context: &mut Context<'_>, a: Arguments) -> Result {
    let [directory, name, arguments, environment, flags, _] = a;
    let flags = flags as u32;
    if flags & !(c::AT_EMPTY_PATH | c::AT_SYMLINK_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    let is_descriptor = flags & c::AT_EMPTY_PATH != 0 && context.process.array::<1>(name)? == [0];
    let (path, node) = if is_descriptor {
        let open = opened(context, directory)?;
        // Where nothing leads to it any more too, as to a file of `memfd_create(2)`.
        let node = node_of(&*open.file).cloned().ok_or(Errno::EACCES)?;
        (open.file.name(), Some(node))
    } else {
        (path(context, directory, name)?, None)
    };
    if flags & c::AT_SYMLINK_NOFOLLOW != 0 && !is_descriptor {
        let node = context.process.tree.find(&path, Last::Keep)?;
        if node.mode_kind() == c::S_IFLNK {
            return Err(Errno::ELOOP);
        }
    }
    let file = Executed {
        called: path.clone(),
        path,
        node,
    };
    exec(context, file, arguments, environment)
}

/// A file to be executed.
struct Executed {
    path: String,
    /// The name in a script's arguments.
    called: String,
    /// The file itself, where a descriptor named it.
    node: Option<Arc<Node>>,
}

/// Runs the program that a file is, or the script that it has.
fn exec(
    context: &mut Context<'_>,
    Executed { path, called, node }: Executed,
    arguments: u64,
    environment: u64,
) -> Result {
    let process = context.process;
    let mut room = MOST_BYTES;
    let mut start = Start {
        arguments: texts(context, arguments, &mut room)?,
        environment: texts(context, environment, &mut room)?,
        hostname: process.hostname.clone(),
        path,
        ..Start::default()
    };
    if start.arguments.is_empty() {
        start.arguments.push(String::new());
    }
    let (found, is_named) = find(context, &mut start, &called, node)?;
    if !is_named {
        // Where links lead: programs look for their files beside `/proc/self/exe`.
        start.path = process.tree.walk(&start.path, Last::Follow)?.path;
    }
    if process.threads.lock().len() > 1 {
        return refuse_fork(context, "execve with several threads");
    }
    replace(context, &found, &start, program::thread_name(&called))
}

/// The program at the start's path, or the interpreter of the script there, whose arguments come
/// before; and whether it is the file that a descriptor named, `named`.
fn find(
    context: &Context<'_>,
    start: &mut Start,
    called: &str,
    mut named: Option<Arc<Node>>,
) -> Result<(Found, bool)> {
    let tree = &context.process.tree;
    let mut called = String::from(called);
    for _ in 0..=script::MOST_SCRIPTS {
        let is_named = named.is_some();
        let node = match named.take() {
            Some(node) => node,
            None => tree.find(&start.path, Last::Follow)?,
        };
        let status = node.status()?;
        if node.mode_kind() != c::S_IFREG || status.mode & 0o111 == 0 {
            return Err(Errno::EACCES);
        }
        let first = program::first_bytes(&node, script::FIRST_LINE as u64)?;
        let interpreter = script::interpreter(&first).map_err(|_| Errno::ENOEXEC)?;
        let Some(Interpreter { path, argument }) = interpreter else {
            let found = program::find_in(tree, &node).map_err(|error| match error {
                NotFound::Program => Errno::EACCES,
                NotFound::Loader(_) => Errno::ENOENT,
                NotFound::Elf(_) => Errno::ENOEXEC,
                NotFound::Read(errno) => errno,
            })?;
            return Ok((found, is_named));
        };
        let script = core::mem::replace(&mut called, text(path));
        start.path = absolute(context, AT_FDCWD as u64, called.clone())?;
        let words = [Some(text(path)), argument.map(text), Some(script)];
        // In place of the name that the script was called by.
        start.arguments.splice(..1, words.into_iter().flatten());
    }
    Err(Errno::ELOOP)
}

fn text(bytes: &[u8]) -> String {
    names::text(bytes.to_vec())
}

/// Texts of a list of pointers that ends with a null pointer; none of a null list.
fn texts(context: &Context<'_>, list: u64, room: &mut usize) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    if list == 0 {
        return Ok(texts);
    }
    loop {
        let at = list.wrapping_add(texts.len() as u64 * POINTER);
        let pointer = context.process.u64(at)?;
        if pointer == 0 {
            return Ok(texts);
        }
        let bytes = context.process.before_nul(pointer, MOST_TEXT)?;
        let bytes = bytes.filter(|bytes| bytes.len() < MOST_TEXT);
        let bytes = bytes.ok_or(Errno::E2BIG)?;
        let taken = bytes.len() + 1 + POINTER as usize;
        *room = room.checked_sub(taken).ok_or(Errno::E2BIG)?;
        texts.push(names::text(bytes));
    }
}

/// Puts the program in place of the one that runs. From here on there is none to go back to.
fn replace(context: &mut Context<'_>, found: &Found, start: &Start, name: [u8; 16]) -> Result {
    const ALL: Range<u64> = shared::ALL;
    let (process, thread) = (context.process, context.thread);
    // What cannot be written back is lost, as where a program ends.
    let _ = process.write_back(&ALL);
    // A list that cannot be read has no more to release.
    let _ = robust::release(process, thread);
    process.space.lock().clear();
    process.forget_unmapped();
    let mut closed = vec![];
    process.files.lock().each(0..=MOST, |place| {
        closed.extend(place.take_if(|descriptor| descriptor.close_on_exec));
    });
    drop(closed);
    process.actions.lock().forget_handlers();
    for timer in process.timers.numbers() {
        // It is there: no other thread could have taken it away.
        let _ = ring::remove_timer(process, timer);
    }
    thread.robust_list.store(0, Ordering::Relaxed);
    thread.clear_at_end.store(0, Ordering::Relaxed);
    *thread.signal_stack.lock() = SignalStack::default();
    *thread.name.lock() = name;
    thread.credentials.lock().program_changed();
    *process.shown.lock() = Shown::of(start);
    match program::map(process, found, start) {
        Ok(registers) => {
            context.replaced = Some(registers);
            Ok(0)
        }
        Err(Errno(errno)) => {
            let path = &start.path;
            tare_libos::println!("tare: cannot load {path} in place of the program: error {errno}");
            end(process, 128 + c::SIGKILL as u8)
        }
    }
}
