//! What the decision rules cost on the paths that they sit on.

#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use tare_policy::poller::Pollers;
use tare_policy::spin::{Spin, Wait};

fn spin(criterion: &mut Criterion) {
    for (name, wait_ns) in [("short", 6_000), ("long", 10_000_000)] {
        let mut spin = Spin::default();
        criterion.bench_function(&format!("spin/record/{name}"), |bencher| {
            bencher.iter(|| {
                spin.record(black_box(Wait::Halted(wait_ns)));
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

criterion_group!(benches, spin, pollers);
criterion_main!(benches);
