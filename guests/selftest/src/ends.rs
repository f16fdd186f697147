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
    if let Some(status) = trespasses() {
        return Some(status);
    }
    env::var("exit").and_then(|status| status.parse().ok())
}

/// Tries what an image in ring 3 must not be able to do.
#[cfg(target_os = "none")]
fn trespasses() -> Option<u8> {
    use tare_libos::hal::ring::{Trespass, Wild, ask_nonsense, trespass};

    let seed = env::var("seed").and_then(|text| text.parse().ok());
    let what = match env::var("trespass")? {
        "page-table" => Trespass::WritePageTable,
        "further-table" => Trespass::WriteFurtherTable,
        "descriptors" => Trespass::WriteDescriptors,
        "read" => Trespass::ReadDescriptors,
        "jump" => Trespass::Jump,
        "text" => Trespass::WriteText,
        "data" => Trespass::ExecuteData,
        "cli" => Trespass::Privileged,
        "no-stack" => Trespass::NoStack,
        "return" => Trespass::WildReturn,
        "no-area" => Trespass::NoArea,
        "gates" => {
            let requests: u32 = env::var("requests")
                .and_then(|text| text.parse().ok())
                .unwrap_or(20_000);
            let taken = ask_nonsense(seed.unwrap_or(0x7461_7265), requests);
            tare_libos::println!("gates: {requests} requests, {taken} taken");
            return Some(0);
        }
        "wild" => {
            let wild = Wild::draw(seed.unwrap_or_default());
            tare_libos::println!("wild: {:?}", wild.end);
            wild.end();
        }
        _ => return None,
    };
    trespass(what)
}

/// The host has no rings to choose.
#[cfg(not(target_os = "none"))]
fn trespasses() -> Option<u8> {
    None
}

/// Recurses until the stack is used up.
fn recurse(depth: u64) -> u64 {
    let frame = core::hint::black_box([depth; 32]);
    match frame[depth as usize % 32] {
        0 => 0,
        deeper => recurse(core::hint::black_box(deeper + 1)) + frame[0],
    }
}
