//! Ends that a test can ask for.

use tare_libos::{env, thread};

/// The exit status if an end was chosen; some ends do not return.
pub(crate) fn chosen() -> Option<u8> {
    if env::has_word("panic") {
        let thread = thread::Builder::new().name("doomed").spawn(|| {
            panic!("asked to panic");
        });
        let _: Option<()> = thread.ok().map(thread::JoinHandle::join);
    }
    if env::has_word("overflow") {
        let thread = thread::Builder::new().name("deep").spawn(|| recurse(1));
        return thread.ok().map(|thread| thread.join() as u8);
    }
    if env::has_word("null") {
        return Some(tare_libos::hal::cpu::fault(8));
    }
    env::var("exit").and_then(|status| status.parse().ok())
}

/// Recurses until the stack is used up.
fn recurse(depth: u64) -> u64 {
    let frame = core::hint::black_box([depth; 32]);
    match frame[depth as usize % 32] {
        0 => 0,
        deeper => recurse(core::hint::black_box(deeper + 1)) + frame[0],
    }
}
