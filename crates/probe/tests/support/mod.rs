//! Machines to observe: a few bytes of code in this process, and the `storm` image
//! in QEMU.

#![allow(dead_code)]

use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use tare_abi::entry::{EntryMode, EntryState, boot_gdt};
use tare_abi::layout::{BOOT_GDT, MIB};
use tare_account::Account;
use tare_host::child::ends_with_us;
use tare_hv::{Exit, Kvm, Probe, Vm, guest_memory};
use tare_probe::Source;
use tare_vmtest::{eventually, image, or_skip};
use vm_memory::{Bytes, GuestAddress};

const CODE: u64 = 0x10_0000;
const STACK_TOP: u64 = 0x12_0000;
/// The guest writes here when it is about to begin, and when it is done.
pub(crate) const READY: u16 = 0x9000;
pub(crate) const DONE: u16 = 0x9001;
/// QEMU's arguments for the emulated KVM of development machines too.
const QEMU: &[&str] = &[
    "-accel",
    "kvm",
    "-cpu",
    "host,-arch-capabilities,-cx16",
    "-machine",
    "pc",
    "-m",
    "128",
    "-display",
    "none",
    "-nodefaults",
    "-no-reboot",
];

/// Says why there is nothing to test, or fails if that must not be; `None`.
pub(crate) fn skip<T>(why: &str) -> Option<T> {
    tare_vmtest::skip(why);
    None
}

/// The account, unless BPF cannot be used here.
pub(crate) fn counted(account: Account) -> Option<Account> {
    let missing = account
        .unavailable
        .iter()
        .find(|it| it.source == Source::Bpf);
    match missing {
        None => Some(account),
        Some(missing) => skip(&missing.to_string()),
    }
}

/// One test at a time has machines in this process: a process is what is observed.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A machine in this process, on its own thread.
pub(crate) struct Own {
    go: Sender<()>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Own {
    /// Starts `body` between [`READY`] and [`DONE`] in 32-bit mode; returns when the
    /// guest is about to begin.
    pub(crate) fn new(body: &[u8]) -> Option<Self> {
        let kvm = match Kvm::open() {
            Ok(kvm) => kvm,
            Err(error) => return skip(&error.to_string()),
        };
        let code = [&out(READY), body, &out(DONE), &[0xf4]].concat();
        let (go, gone) = channel();
        let (ready, done) = channel();
        let run = move || run(&kvm, &code, &ready, &gone);
        let thread = std::thread::Builder::new()
            .name("vcpu0".to_owned())
            .spawn(run);
        let own = Self {
            go,
            done,
            thread: Some(thread.unwrap()),
        };
        own.done.recv_timeout(Duration::from_secs(30)).unwrap();
        Some(own)
    }

    /// Lets the guest run.
    pub(crate) fn begin(&self) {
        self.go.send(()).unwrap();
    }

    /// Lets the guest run to its end.
    pub(crate) fn run(&self) {
        self.go.send(()).unwrap();
        self.done.recv_timeout(Duration::from_secs(30)).unwrap();
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.go.send(());
        let _ = self.go.send(());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn run(kvm: &Kvm, code: &[u8], ready: &Sender<()>, go: &Receiver<()>) {
    let entry = EntryState {
        mode: EntryMode::Protected32,
        rip: CODE,
        rbx: 0,
        rsi: 0,
        rsp: STACK_TOP,
    };
    let memory = guest_memory(4 * MIB).unwrap();
    let gdt = boot_gdt(entry.mode).map(u64::to_le_bytes).concat();
    memory.write_slice(&gdt, GuestAddress(BOOT_GDT)).unwrap();
    memory.write_slice(code, GuestAddress(CODE)).unwrap();
    let vm = Vm::new(kvm, &memory).unwrap();
    let probe = Probe::run(kvm).unwrap();
    let mut vcpu = vm.vcpu(&probe, 0, 1, 0).unwrap();
    vcpu.enter_at(&entry).unwrap();
    loop {
        match vcpu.run().unwrap() {
            Exit::PioOut { port: READY, .. } => {
                ready.send(()).unwrap();
                go.recv().unwrap();
            }
            Exit::PioOut { port: DONE, .. } => break,
            _ => {}
        }
    }
    ready.send(()).unwrap();
    // The machine lives until the account is made.
    let _ = go.recv();
}

fn out(port: u16) -> Vec<u8> {
    let [low, high] = port.to_le_bytes();
    vec![0x66, 0xba, low, high, 0xee]
}

/// `body` this many times; it must leave ESI alone.
pub(crate) fn times(count: u32, body: &[u8]) -> Vec<u8> {
    let back = -i8::try_from(body.len() + 3).unwrap();
    [
        &[0xbe][..],
        &count.to_le_bytes(),
        body,
        &[0x4e, 0x75, back.to_le_bytes()[0]],
    ]
    .concat()
}

/// A QEMU that runs the `storm` image.
pub(crate) struct Storm {
    child: Child,
    _serial: tempfile::TempDir,
}

impl Storm {
    /// Starts it and waits until the guest says that it has begun.
    pub(crate) fn new(command: &str, arguments: &[&str]) -> Option<Self> {
        or_skip(Kvm::open())?;
        let image = or_skip(image("storm"))?;
        let serial = tempfile::tempdir().unwrap();
        let log = serial.path().join("serial");
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(QEMU)
            .args(arguments)
            .args(["-append", command, "-kernel"])
            .arg(image)
            .arg("-serial")
            .arg(format!("file:{}", log.display()))
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        // Also if the tests are killed.
        let Ok(child) = ends_with_us(&mut qemu, Signal::KILL).spawn() else {
            return skip("qemu-system-x86_64 is not installed");
        };
        let storm = Self {
            child,
            _serial: serial,
        };
        eventually("the guest begins", || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("{\"storm\":"))
        });
        Some(storm)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.kill();
    }
}
