//! The program from the initramfs, from its start to its end: its threads' loops.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as c;
use tare_hal::signals as host_signals;
use tare_hal::user::{Context as Program, Exit};
use tare_libos::time::Instant;
use tare_libos::{env, fs, heap, net, ports, thread as libos_thread};
use tare_program::elf::ElfError;
use tare_program::{FILE, Start, StartError};

use crate::calls::{self, system::end};
use crate::context::Context;
use crate::delivery::{Cause, Does};
use crate::errno::{Errno, Result as CallResult};
use crate::files::stored::{self, Mount};
use crate::files::stream::Stream;
use crate::files::tree::Tree;
use crate::files::{Descriptor, Device, Open, Table};
use crate::kernel_files;
use crate::looks;
use crate::pending::{Info, SI_KERNEL};
use crate::process::{MOST_THREADS, PID, Process};
use crate::program::{self, NotFound};
use crate::robust;
use crate::shared;
use crate::signals::{Action, Mask};
use crate::space::{Access, Denied};
use crate::thread::{NewThread, Thread};
use crate::volume::Volume;

/// Stack of a thread in the library OS, bytes: it is touched as it is used, and a file system
/// uses much.
const STACK_BYTES: usize = 64 * 1024;
/// The disk that a program's files are on.
const DISK: &str = "disk0";
/// Bits of a page fault's error code: a write, an instruction fetch.
const FAULT_WRITE: u32 = 1 << 1;
const FAULT_EXECUTE: u32 = 1 << 4;
const PAGE_FAULT: u8 = 14;
/// Codes of `siginfo` (kernel `include/uapi/asm-generic/siginfo.h`).
const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;
const TRAP_TRACE: i32 = 2;

/// Why a program cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// No initramfs, or none that names a program.
    #[error("the initramfs has no {FILE}: start this image by `tare run ./program`")]
    NoStart,
    /// It does not say what to start.
    #[error("cannot read {FILE}: {0}")]
    Start(#[from] StartError),
    /// The program is missing.
    #[error("the initramfs has no {0}")]
    NoProgram(String),
    /// It is not a program for this machine.
    #[error("cannot run {path}: {source}")]
    Elf {
        /// The program.
        path: String,
        /// Why.
        source: ElfError,
    },
    /// The loader that it names is missing.
    #[error("cannot run {path}: it is linked dynamically, and its files have no loader {loader}")]
    NoLoader {
        /// The program.
        path: String,
        /// Its loader.
        loader: String,
    },
    /// A disk with files for an image that has no file systems.
    #[error("this image has no file systems for disks: the image linux-disk has")]
    NoVolumes,
    /// The disk cannot be mounted.
    #[error("{0}")]
    Mount(String),
    /// Something else is where it is to be mounted.
    #[error(
        "cannot mount a disk at {path}: the program's files have something else there (error {errno}); choose \
         another with --disk FILE,at=DIR"
    )]
    MountPoint {
        /// The place.
        path: String,
        /// Linux's error number.
        errno: u32,
    },
    /// It cannot be loaded.
    #[error("cannot load {path}: error {errno}")]
    Load {
        /// The program.
        path: String,
        /// Linux's error number.
        errno: u32,
    },
}

/// Mounts the disk with this name, or says why not.
pub type MountDisk = fn(&str) -> Result<Arc<dyn Volume>, String>;

/// Runs the program that the initramfs names; gives its exit status.
pub fn run() -> Result<u8, RunError> {
    start(None)
}

/// As [`run`], with a file system on the disk that the program's start names.
pub fn run_with(mount: MountDisk) -> Result<u8, RunError> {
    let ended = start(Some(mount));
    if let Some(mounted) = stored::mounted() {
        mounted.end();
    }
    ended
}

fn start(mount: Option<MountDisk>) -> Result<u8, RunError> {
    let start = fs::read(FILE).map_err(|_| RunError::NoStart)?;
    let start = Start::parse(&start)?;
    let path = start.path.clone();
    let tree = Tree::new(env::initramfs().unwrap_or_default());
    if let Some(at) = &start.mount {
        put_volume(&tree, mount, at)?;
    }
    let found = program::find(&tree, &path).map_err(|error| match error {
        NotFound::Program => RunError::NoProgram(path.clone()),
        NotFound::Loader(loader) => RunError::NoLoader {
            path: path.clone(),
            loader,
        },
        NotFound::Elf(source) => RunError::Elf {
            path: path.clone(),
            source,
        },
        NotFound::Read(Errno(errno)) => RunError::Load {
            path: path.clone(),
            errno,
        },
    })?;
    provide(&tree, &start);
    let process = Arc::new(Process::new(tree, standard_files(), &start));
    if let Some(mounted) = stored::mounted() {
        let process = process.clone();
        mounted.before_end(move || {
            if let Err(errno) = process.write_back(&shared::ALL) {
                log::warn!("cannot write mappings back: error {errno:?}");
            }
        });
    }
    // The path is that of the file which links lead to; what it was called is as the user wrote it.
    let called = start.arguments.first().unwrap_or(&start.path);
    let registers = program::map(&process, &found, &start)
        .map_err(|Errno(errno)| RunError::Load { path, errno })?;
    let thread = Thread::first(PID, program::thread_name(called));
    process.threads.lock().insert(PID, thread.clone());
    let waiter = libos_thread::current();
    // Before the program runs, since the host ends the machine as long as they are not read.
    let port = ports::signals(&waiter);
    let first = libos_thread::Builder::new()
        .name("program")
        .stack_size(STACK_BYTES)
        .spawn({
            let process = process.clone();
            move || run_thread(&process, &thread, Program::new(registers))
        });
    if first.is_err() {
        return Err(RunError::Load {
            path: process.path(),
            errno: Errno::ENOMEM.0,
        });
    }
    // The last thread of the program ends the machine.
    // It stays as long as the machine.
    host_signals::on_new(Box::leak(Box::new(move || waiter.unpark())));
    let next = || host_signals::next().or_else(|| port?.next());
    loop {
        while let Some(signal) = next() {
            if process.send(None, signal, Info::default()).is_err() {
                log::warn!("signal {signal} is lost: too many wait");
            }
        }
        libos_thread::park();
    }
}

/// Puts the volume of the first disk into the tree.
fn put_volume(tree: &Tree, mount: Option<MountDisk>, at: &str) -> Result<(), RunError> {
    let volume = mount.ok_or(RunError::NoVolumes)?(DISK).map_err(RunError::Mount)?;
    stored::set_mounted(volume.clone());
    let top = Mount::new(volume).root();
    let put = top.and_then(|top| tree.mount(at, top));
    put.map_err(|Errno(errno)| RunError::MountPoint {
        path: at.into(),
        errno,
    })
}

/// Files that programs read of every system.
fn provide(tree: &Tree, start: &Start) {
    tree.provide(
        "etc/hosts",
        &format!("127.0.0.1 localhost {}\n", start.hostname),
    );
    tree.provide(
        "etc/resolv.conf",
        &format!("nameserver {}\n", name_server()),
    );
    tree.provide("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    tree.provide("etc/group", "root:x:0:\n");
    kernel_files::provide(tree, start);
}

/// Where names are asked for: the gateway, behind which passt answers.
fn name_server() -> String {
    let given = env::var(tare_abi::cmdline::IP).and_then(|word| word.split_once(','));
    let gateway = given.map_or("127.0.0.1", |(_, gateway)| gateway);
    net::address().map_or("127.0.0.1", |_| gateway).into()
}

/// Ports where the machine has them, else the serial console.
fn standard_files() -> Table {
    let open: [Arc<Open>; 3] = match ports::open() {
        Some(ports) => core::array::from_fn(|number| {
            let stream = Stream::new(ports[number], number);
            let access = stream.access();
            Open::new(Arc::new(stream), access)
        }),
        None => {
            let console = Open::new(Arc::new(Device::Console), c::O_RDWR);
            core::array::from_fn(|_| console.clone())
        }
    };
    let mut table = Table::new();
    for (number, open) in open.into_iter().enumerate() {
        let descriptor = Descriptor {
            open,
            close_on_exec: false,
        };
        table.put(number, descriptor).ok();
    }
    table
}

/// Starts a thread that continues where `context`'s does; gives its number.
fn start_thread(context: &mut Context<'_>, new: &NewThread) -> CallResult {
    let process = context.process;
    if process.threads.lock().len() >= MOST_THREADS || !heap::has_room(STACK_BYTES) {
        return Err(Errno::EAGAIN);
    }
    let number = process.last_number.fetch_add(1, Ordering::Relaxed) + 1;
    let mut registers = *context.registers;
    registers.rax = 0;
    if new.stack != 0 {
        registers.rsp = new.stack;
    }
    registers.fs_base = new.tls.unwrap_or(registers.fs_base);
    for at in [new.parent_number, new.child_number].into_iter().flatten() {
        process.put_u32(at, number)?;
    }
    let thread = context.thread.start(number);
    thread
        .clear_at_end
        .store(new.clear_at_end, Ordering::Relaxed);
    process.threads.lock().insert(number, thread.clone());
    let vectors = core::mem::take(&mut context.vectors);
    let core = number as usize % libos_thread::cores();
    let started = libos_thread::Builder::new()
        .core(core)
        .stack_size(STACK_BYTES)
        .spawn({
            let process = process.clone();
            move || {
                let mut program = Program::new(registers);
                program.vectors().set_bytes(&vectors).ok();
                run_thread(&process, &thread, program);
            }
        });
    if started.is_err() {
        process.threads.lock().remove(&number);
        return Err(Errno::EAGAIN);
    }
    Ok(number.into())
}

/// The loop of a thread, until it ends.
fn run_thread(process: &Arc<Process>, thread: &Arc<Thread>, mut program: Program) {
    thread.begin();
    let mut buffer = Vec::new();
    let mut last = Exit::Interrupt;
    loop {
        calls::system::stop_at_end();
        let looks_again = looks::look(process, thread);
        while let Some(taken) = process.take_signal(thread) {
            match taken.does {
                Does::End => end_by_signal(process, taken.signal),
                Does::Handler(action) => {
                    let signal = (taken.signal, action);
                    handle_signal(process, thread, &mut program, signal, taken.cause());
                }
            }
        }
        let written = written_due();
        let limit = || {
            if looks_again {
                Some(looks::limit(thread, written))
            } else {
                written
            }
        };
        libos_thread::before_program(limit, |others| thread.wait(others));
        let may_run = || {
            libos_thread::may_run_program()
                && !process.has_signal(thread)
                && !looks::must_look(thread)
        };
        if last != Exit::Jump {
            let space = process.space.lock();
            program.registers.rip = space.sites.resume(program.registers.rip);
        }
        last = program.enter(may_run);
        libos_thread::after_program();
        match last {
            Exit::SystemCall | Exit::Jump => {
                let number = program.registers.rax;
                if last == Exit::SystemCall {
                    note_call(process, program.registers.rip, number);
                }
                if net::has_written() && !calls::continues_output(number) {
                    net::send_written();
                }
                match number as u32 {
                    c::__NR_exit => {
                        if end_thread(process, thread, program.registers.rdi) {
                            return;
                        }
                    }
                    c::__NR_rt_sigreturn => {
                        return_from_signal(process, thread, &mut program);
                        // It goes on wherever the signal came.
                        last = Exit::Interrupt;
                    }
                    _ => serve(process, thread, &mut program, &mut buffer),
                }
            }
            Exit::Fault {
                vector,
                error,
                address,
            } => fault(process, thread, &mut program, (vector, error, address)),
            Exit::Interrupt => {}
        }
    }
}

/// Notes where a SYSCALL was.
fn note_call(process: &Process, behind: u64, number: u64) {
    if process.space.lock().note_call(behind, number) {
        log::debug!("call {number} at {behind:#x} is a jump from now on");
    }
}

/// By when what the program has written is to be sent, if something waits. That is at the first
/// call with which it does something else than to write; a program that computes for longer is
/// interrupted.
fn written_due() -> Option<Instant> {
    let due = net::written_due()?;
    if due > Instant::now() {
        return Some(due);
    }
    net::send_written();
    None
}

fn serve(
    process: &Arc<Process>,
    thread: &Arc<Thread>,
    program: &mut Program,
    buffer: &mut Vec<u8>,
) {
    let number = program.registers.rax;
    let starts_thread = matches!(number as u32, c::__NR_clone | c::__NR_clone3);
    let vectors = if starts_thread {
        Vec::from(program.vectors().bytes())
    } else {
        Vec::new()
    };
    let mut context = Context {
        vectors,
        process,
        thread,
        registers: &mut program.registers,
        buffer: core::mem::take(buffer),
        has_limit: Cell::new(false),
        goes_on: Cell::new(false),
        start_thread,
        replaced: None,
    };
    let result = calls::serve(&mut context);
    *buffer = core::mem::take(&mut context.buffer);
    if let Some(registers) = context.replaced {
        *program = Program::new(registers);
        return;
    }
    let restarts = calls::restarts(number) && !context.has_limit.get();
    let goes_on = context.goes_on.get();
    program.registers.rax = match result {
        Ok(value) => value,
        Err(errno) => errno.to_rax(),
    };
    if result == Err(Errno::EAGAIN) && net::has_written() {
        // What it looks for may be the answer to what waits to be sent.
        net::send_written();
    }
    if result != Err(Errno::EINTR) {
        return;
    }
    let Some(taken) = process.take_signal(thread) else {
        // Another thread has let it be ignored meanwhile.
        thread.restore_mask();
        again(process, program, number);
        return;
    };
    match taken.does {
        Does::End => end_by_signal(process, taken.signal),
        Does::Handler(action) => {
            if goes_on || action.flags & u64::from(c::SA_RESTART) != 0 && restarts {
                again(process, program, number);
            }
            let signal = (taken.signal, action);
            handle_signal(process, thread, program, signal, taken.cause());
        }
    }
}

/// Lets the program make its last call again.
fn again(process: &Process, program: &mut Program, number: u64) {
    let registers = &mut program.registers;
    registers.rax = number;
    registers.rip = process.space.lock().sites.again(registers.rip);
}

/// Ends a thread; says whether others go on. The last one ends the machine.
fn end_thread(process: &Process, thread: &Thread, status: u64) -> bool {
    // A list that cannot be read has no more to release.
    let _ = robust::release(process, thread);
    let clear = thread.clear_at_end.load(Ordering::Relaxed);
    if clear != 0 && process.put_u32(clear, 0).is_ok() {
        process.futexes.wake(clear, 1, u32::MAX);
    }
    thread.cpu_time.pause(Instant::now().as_nanos());
    let ns = thread.cpu_time.ns(0);
    let mut threads = process.threads.lock();
    threads.remove(&thread.number);
    process.ended_ns.fetch_add(ns, Ordering::Relaxed);
    if threads.is_empty() {
        end(process, status as u8);
    }
    true
}

fn fault(
    process: &Arc<Process>,
    thread: &Arc<Thread>,
    program: &mut Program,
    (vector, error, address): (u8, u32, u64),
) {
    let (signal, code) = if vector == PAGE_FAULT {
        let access = if error & FAULT_EXECUTE != 0 {
            Access::Execute
        } else if error & FAULT_WRITE != 0 {
            Access::Write
        } else {
            Access::Read
        };
        let brought = process.space.lock().fault(address, access);
        match brought {
            Ok(()) => return,
            Err(Denied::NotMapped) => (c::SIGSEGV, SEGV_MAPERR),
            Err(Denied::Rights) => (c::SIGSEGV, SEGV_ACCERR),
            Err(Denied::BeyondFile) => (c::SIGBUS, 2),
            Err(Denied::NoMemory) => {
                tare_libos::println!("tare: the program needs more memory: see --memory");
                end(process, 128 + c::SIGKILL as u8);
            }
        }
    } else {
        match vector {
            0 => (c::SIGFPE, 1),
            16 | 19 => (c::SIGFPE, 7),
            1 => (c::SIGTRAP, TRAP_TRACE),
            3 => (c::SIGTRAP, SI_KERNEL),
            11 | 12 => (c::SIGBUS, SI_KERNEL),
            6 => (c::SIGILL, 2),
            17 => (c::SIGBUS, 1),
            _ => (c::SIGSEGV, SI_KERNEL),
        }
    };
    let address = if vector == PAGE_FAULT { address } else { 0 };
    let cause = Cause {
        info: Info {
            code,
            origin: address,
            ..Info::default()
        },
        address,
        error: error.into(),
        vector: vector.into(),
    };
    let action = process.actions.lock().get(signal);
    let is_blocked = thread.mask().0 & Mask::of(signal).0 != 0;
    if action.handler <= 1 || is_blocked {
        log::warn!(
            "exception {vector} at {address:#x}, RIP {:#x}, RSP {:#x}",
            program.registers.rip,
            program.registers.rsp
        );
        let words = (0..24).map_while(|word| process.u64(program.registers.rsp + word * 8).ok());
        log::debug!(
            "{:x?}, stack {:x?}",
            program.registers,
            words.collect::<Vec<_>>()
        );
        end_by_signal(process, signal);
    }
    handle_signal(process, thread, program, (signal, action), cause);
}

fn handle_signal(
    process: &Process,
    thread: &Thread,
    program: &mut Program,
    (signal, action): (u32, Action),
    cause: Cause,
) {
    let vectors = Vec::from(program.vectors().bytes());
    let registers = &mut program.registers;
    let called = process.call_handler(thread, registers, &vectors, (signal, action), cause);
    if called.is_err() {
        end_by_signal(process, c::SIGSEGV);
    }
}

fn return_from_signal(process: &Process, thread: &Thread, program: &mut Program) {
    let bytes = program.vectors().bytes().len();
    match process.return_from_handler(thread, &mut program.registers, bytes) {
        Ok(vectors) => {
            if let Some(vectors) = vectors {
                program.vectors().set_bytes(&vectors).ok();
            }
        }
        Err(_) => end_by_signal(process, c::SIGSEGV),
    }
}

/// Ends the process as a shell reports it: 128 and the signal's number.
fn end_by_signal(process: &Process, signal: u32) -> ! {
    tare_libos::println!("tare: {} was ended by signal {signal}", process.path());
    end(process, 128 + signal as u8)
}
