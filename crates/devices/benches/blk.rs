//! The cost of one read in the device: `cargo bench -p tare-devices --features bench`. The engine
//! does nothing, so the figures include no system call but the clock's. They do include the
//! driver's work on its ring.
#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tare_devices::bench_entry::BlkBench;

fn reads(criterion: &mut Criterion) {
    let bench = BlkBench::new().expect("a file in memory");
    let mut ring = bench.start().expect("the device starts");
    let mut bare = bench.bare().expect("a queue");
    let mut group = criterion.benchmark_group("blk 4 KiB reads");
    for batch in [1, 32] {
        group.throughput(Throughput::Elements(batch.into()));
        group.bench_function(format!("{batch} at once"), |bencher| {
            bencher.iter(|| assert!(black_box(ring.read(batch))));
        });
        // The control arms: the rings without a device, and the driver without either.
        group.bench_function(format!("{batch} at once, rings alone"), |bencher| {
            bencher.iter(|| assert!(black_box(bare.turn(batch))));
        });
        group.bench_function(format!("{batch} at once, driver alone"), |bencher| {
            bencher.iter(|| assert!(black_box(bare.offer(batch))));
        });
    }
    group.finish();
}

criterion_group!(benches, reads);
criterion_main!(benches);
