//! Makes a vCPU's thread leave `KVM_RUN`, without a race against its entry: the flag
//! `immediate_exit` in the shared page covers the time before `KVM_RUN`, a signal to the thread the
//! time inside. Reference: `Documentation/virt/kvm/api.rst`, `immediate_exit`.

#![allow(unsafe_code)]

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

use kvm_bindings::kvm_run;

/// The part of a vCPU that its kick handles may use.
#[derive(Debug)]
struct Target {
    immediate_exit: NonNull<u8>,
    thread: Option<libc::pid_t>,
}

// SAFETY: the pointer is only used under the mutex around the target, as an
// atomic byte, and only until the vCPU takes the target away (`KickTarget::drop`).
unsafe impl Send for Target {}

impl Target {
    fn immediate_exit(&self) -> &AtomicU8 {
        // SAFETY: the byte is in the vCPU's shared page, which stays mapped as
        // long as the target exists; the kernel reads it, we only use it atomically.
        unsafe { AtomicU8::from_ptr(self.immediate_exit.as_ptr()) }
    }
}

/// The vCPU's side. Dropping it makes kicks do nothing.
#[derive(Debug)]
pub(super) struct KickTarget {
    shared: Arc<Mutex<Option<Target>>>,
    thread: Option<libc::pid_t>,
}

impl KickTarget {
    /// `run` is the vCPU's shared page; it must outlive the result.
    pub(super) fn new(run: &mut kvm_run) -> Self {
        let target = Target {
            immediate_exit: NonNull::from(&mut run.immediate_exit),
            thread: None,
        };
        Self {
            shared: Arc::new(Mutex::new(Some(target))),
            thread: None,
        }
    }

    pub(super) fn kick_handle(&self) -> KickHandle {
        KickHandle {
            target: Arc::clone(&self.shared),
        }
    }

    /// Remembers the calling thread as the one to signal. Cheap when nothing
    /// changed; to be called before each `KVM_RUN`.
    pub(super) fn enter(&mut self) {
        let thread = thread_id();
        if self.thread == Some(thread) {
            return;
        }
        if let Some(target) = lock(&self.shared).as_mut() {
            target.thread = Some(thread);
        }
        self.thread = Some(thread);
    }

    /// Takes note of an interrupted run: the next one runs again.
    pub(super) fn acknowledge(&self) {
        if let Some(target) = lock(&self.shared).as_ref() {
            target.immediate_exit().store(0, Ordering::Release);
        }
    }
}

impl Drop for KickTarget {
    fn drop(&mut self) {
        lock(&self.shared).take();
    }
}

/// Makes a vCPU's [`run`](super::Vcpu::run) return [`Exit::Interrupted`](super::Exit::Interrupted),
/// from any thread, now or the next time that it is called.
#[derive(Clone, Debug)]
pub struct KickHandle {
    target: Arc<Mutex<Option<Target>>>,
}

impl KickHandle {
    /// Kicks. To stop a vCPU, set your flag first: one kick ends one run. Does nothing when the
    /// vCPU is gone.
    pub fn kick(&self) {
        let guard = lock(&self.target);
        let Some(target) = guard.as_ref() else {
            return;
        };
        target.immediate_exit().store(1, Ordering::Release);
        if let Some(thread) = target.thread {
            // SAFETY: sends a signal whose handler does nothing to a thread of this process.
            unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, signal()) };
        }
    }

    /// The signal that kicks, for those who set signal masks or seccomp rules (`tgkill`).
    pub fn signal() -> i32 {
        signal()
    }
}

/// Installs the handler that does nothing, once for the process: without it
/// the signal would kill.
pub(super) fn install_handler() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an all-zero `sigaction` is valid: an empty mask, no flags.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = ignore as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: 1. `action` is whole. 2. The handler touches nothing.
        unsafe { libc::sigaction(signal(), &raw const action, ptr::null_mut()) };
    });
}

extern "C" fn ignore(_signal: libc::c_int) {}

fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 1
}

fn thread_id() -> libc::pid_t {
    thread_local!(static ID: libc::pid_t = {
        // SAFETY: takes nothing, touches nothing, cannot fail.
        unsafe { libc::gettid() }
    });
    ID.with(|id| *id)
}

fn lock(target: &Mutex<Option<Target>>) -> std::sync::MutexGuard<'_, Option<Target>> {
    target.lock().unwrap_or_else(PoisonError::into_inner)
}
