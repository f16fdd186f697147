//! The cost of one frame in the device: `cargo bench -p tare-devices --features bench`. The link is
//! memory, so the figures include no system call. They do include the driver's work on its rings.
#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tare_devices::bench_entry::NetBench;

const BATCHES: [u16; 2] = [1, 32];

fn frames(criterion: &mut Criterion) {
    for len in [60, 1514] {
        let bench = NetBench::new(len);
        let mut rings = bench.start().expect("the device starts");
        let mut group = criterion.benchmark_group(format!("net {len} bytes"));
        for batch in BATCHES {
            group.throughput(Throughput::Elements(batch.into()));
            group.bench_function(format!("tx, {batch} at once"), |bencher| {
                bencher.iter(|| assert!(black_box(rings.transmit(batch))));
            });
            group.bench_function(format!("rx, {batch} at once"), |bencher| {
                bencher.iter(|| assert!(black_box(rings.receive(batch))));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, frames);
criterion_main!(benches);
