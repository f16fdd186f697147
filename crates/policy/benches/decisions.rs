//! What the decision rules cost on the paths that they sit on.

#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use tare_policy::coalesce::{Coalescer, Decision, Mode, RequestKind, Settings};
use tare_policy::poller::Pollers;
use tare_policy::spin::{Spin, Wait};

fn spin(criterion: &mut Criterion) {
    for (name, wait_ns) in [("short", 6_000), ("long", 10_000_000)] {
        let (mut spin, mut now_ns) = (Spin::default(), 0);
        criterion.bench_function(&format!("spin/record/{name}"), |bencher| {
            bencher.iter(|| {
                now_ns += wait_ns;
                spin.record(black_box(Wait::Halted(wait_ns)), now_ns);
                spin.length_ns()
            });
        });
    }
}

fn pollers(criterion: &mut Criterion) {
    let mut core = Pollers::new();
    let mut thread = core.join();
    let mut now_ns = 0;
    criterion.bench_function("poller/idle_turn", |bencher| {
        bencher.iter(|| {
            now_ns += 1_000;
            core.idle_turn(&mut thread, black_box(now_ns));
            core.may_halt(0)
        });
    });
}

/// A queue with `cif` reads in flight that completes one every 100 ns; two
/// epochs have passed.
fn settled(mode: Mode, cif: u32) -> (Coalescer, u64) {
    let mut coalescer = Coalescer::new(Settings::with_mode(mode));
    (0..cif).for_each(|_| coalescer.submitted(RequestKind::Read));
    let mut now_ns = 1_000_000_000;
    let until_ns = now_ns + 2 * coalescer.settings().parameters().epoch_ns;
    while now_ns <= until_ns {
        now_ns += 100;
        let _ = one(&mut coalescer, now_ns, RequestKind::Read);
    }
    (coalescer, now_ns)
}

/// A completion and the submission that takes its place.
#[inline(always)]
fn one(coalescer: &mut Coalescer, now_ns: u64, kind: RequestKind) -> Decision {
    let decision = coalescer.completed(now_ns, kind, 1_000_000);
    coalescer.submitted(kind);
    decision
}

/// The cost of `submitted` and `completed`: everything delivered, hardly
/// anything held (CIF 4), half, and all but a 32nd.
fn coalesce(criterion: &mut Criterion) {
    let arms = [
        ("off", Mode::Off, 32, RequestKind::Read),
        ("delivered/shallow", Mode::Auto, 1, RequestKind::Read),
        ("delivered/urgent", Mode::Auto, 256, RequestKind::Flush),
        ("mixed/cif_4", Mode::Auto, 4, RequestKind::Read),
        ("mixed/cif_16", Mode::Auto, 16, RequestKind::Read),
        ("mixed/cif_64", Mode::Auto, 64, RequestKind::Read),
        ("held/cif_256", Mode::Auto, 256, RequestKind::Read),
    ];
    for (name, mode, cif, kind) in arms {
        let (mut coalescer, mut now_ns) = settled(mode, cif);
        coalescer.submitted(kind);
        criterion.bench_function(&format!("decision_ns/{name}"), |bencher| {
            bencher.iter(|| {
                now_ns += 100;
                one(&mut coalescer, black_box(now_ns), black_box(kind))
            });
        });
    }
}

criterion_group!(benches, spin, pollers, coalesce);
criterion_main!(benches);
