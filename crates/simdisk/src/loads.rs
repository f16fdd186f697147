//! The loads that are simulated by name.

use crate::load::{
    Disk, Load, MS, Pace, Requests, Service, Stream, US, committer, hash, paced, readers,
};

/// A fast stream beside slow requests on one queue.
pub fn mixed() -> Vec<Load> {
    let mut loads = Vec::new();
    for (fast_us, slow_ms) in [(80, 10), (300, 5), (50, 1), (150, 40)] {
        let fast = Service::Uniform(fast_us * US * 9 / 10, fast_us * US * 11 / 10);
        for slow in 2..=7 {
            let streams = vec![
                readers(1, fast),
                readers(slow, Service::Constant(slow_ms * MS)),
            ];
            let name = format!("1 at {fast_us} us beside {slow} at {slow_ms} ms");
            loads.push(Load::new(name, Disk::Parallel, streams));
        }
        let writer = Stream {
            requests: Requests::Writes,
            ..readers(1, fast)
        };
        let streams = vec![writer, readers(7, Service::Exponential(slow_ms * MS))];
        let name = format!("writer at {fast_us} us beside 7 at {slow_ms} ms");
        loads.push(Load::new(name, Disk::Parallel, streams));
    }
    loads
}

fn steady() -> Vec<Load> {
    let mut loads = Vec::new();
    for depth in [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 128] {
        let us = (depth as u64 * 250).max(1_000);
        let services = [
            ("constant", Service::Constant(us * US)),
            ("uniform", Service::Uniform(us * US / 2, us * US * 3 / 2)),
            ("exponential", Service::Exponential(us * US)),
            ("bimodal", Service::Bimodal(us * US, us * US * 10, 30)),
            ("rarely slow", Service::Bimodal(us * US, us * US * 10, 9)),
        ];
        for (name, service) in services {
            let name = format!("{name} {us} us, depth {depth}");
            loads.push(Load::new(
                name,
                Disk::Parallel,
                vec![readers(depth, service)],
            ));
        }
    }
    for (depth, us) in [(6, 1_000), (16, 200), (32, 300), (64, 600), (64, 1_000)] {
        let name = format!("constant {us} us, depth {depth}, busy guest");
        let streams = vec![readers(depth, Service::Constant(us * US))];
        loads.push(Load::new(name, Disk::Parallel, streams).with_costs(3 * US, US, 2 * US));
    }
    loads
}

/// A disk with a limit: requests wait for each other.
fn saturated() -> Vec<Load> {
    let mut loads = Vec::new();
    for depth in [4, 6, 8, 12, 16, 32, 64, 128] {
        for (servers, us) in [(1, 50), (4, 100)] {
            let services = [
                ("constant", Service::Constant(us * US)),
                ("uniform", Service::Uniform(us * US / 2, us * US * 3 / 2)),
                ("exponential", Service::Exponential(us * US)),
            ];
            for (name, service) in services {
                let name = format!("{servers} server(s), {name} {us} us, depth {depth}");
                let streams = vec![readers(depth, service)];
                loads.push(Load::new(name, Disk::Servers(servers), streams));
            }
        }
    }
    loads
}

/// Loads that change, pause or come by themselves.
fn uneven() -> Vec<Load> {
    let exponential = Service::Exponential(MS);
    let constant = Service::Constant(MS);
    let second = |stream: Stream| Stream { queue: 1, ..stream };
    let load = |name: &str, streams| Load::new(name, Disk::Parallel, streams);
    vec![
        load(
            "6 users, think 0.5 ms",
            vec![paced(6, constant, Pace::Think(MS / 2))],
        ),
        load(
            "40 users, think 0.5 ms",
            vec![paced(40, exponential, Pace::Think(MS / 2))],
        ),
        load(
            "40 users, think 5 ms",
            vec![paced(40, constant, Pace::Think(5 * MS))],
        ),
        load(
            "bursts of 64, then 20 ms",
            vec![paced(64, exponential, Pace::Burst(20 * MS))],
        ),
        load(
            "bursts of 8, then 2 ms",
            vec![paced(8, exponential, Pace::Burst(2 * MS))],
        ),
        load(
            "bursts of 16, no pause",
            vec![paced(16, exponential, Pace::Burst(0))],
        ),
        load(
            "bursts of 5, then 1 ms",
            vec![paced(5, constant, Pace::Burst(MS))],
        ),
        load(
            "depth 1 and 32, 100 ms each",
            vec![
                readers(1, exponential),
                paced(31, exponential, Pace::HalfOf(200 * MS)),
            ],
        ),
        load(
            "depth 1 and 32, 10 ms each",
            vec![
                readers(1, constant),
                paced(31, constant, Pace::HalfOf(20 * MS)),
            ],
        ),
        load(
            "48 and 1 on two queues",
            vec![
                readers(48, exponential),
                second(readers(1, Service::Constant(200 * US))),
            ],
        ),
        load(
            "48 and 4 on two queues",
            vec![
                readers(48, exponential),
                second(readers(4, Service::Constant(300 * US))),
            ],
        ),
        load(
            "20,000 arrivals/s",
            vec![paced(1, exponential, Pace::Arrivals(50 * US))],
        ),
        load(
            "32,000 arrivals/s, constant",
            vec![paced(4, constant, Pace::Arrivals(125 * US))],
        ),
        Load::new(
            "arrivals at 80 % of a server",
            Disk::Servers(1),
            vec![paced(
                4,
                Service::Exponential(40 * US),
                Pace::Arrivals(200 * US),
            )],
        ),
    ]
}

/// Readers beside one thread that writes and flushes: its completions interrupt at once.
fn committing() -> Vec<Load> {
    let mut loads = Vec::new();
    for depth in [4, 8, 16, 32, 64] {
        let us = (depth as u64 * 100).max(1_000);
        let services = [
            ("constant", Service::Constant(us * US)),
            ("uniform", Service::Uniform(us * US / 2, us * US * 3 / 2)),
        ];
        for (name, service) in services {
            let name = format!("{depth} readers, {name} {us} us, beside one that commits");
            let streams = vec![readers(depth, service), committer(service)];
            loads.push(Load::new(name, Disk::Parallel, streams));
        }
        let name = format!("{depth} readers, constant {us} us, beside a quicker one that commits");
        let quicker = committer(Service::Constant(us * US / 4));
        let streams = vec![readers(depth, Service::Constant(us * US)), quicker];
        loads.push(Load::new(name, Disk::Parallel, streams));
    }
    // A guest in ring 3 below an emulator, as `tare weigh vic` has it: busy for two thirds.
    for (depth, with) in [(16, 1), (32, 0), (32, 1), (64, 0), (64, 1)] {
        let service = Service::Constant(5_300 * US);
        let mut streams = vec![readers(depth, service)];
        streams.extend((0..with).map(|_| committer(service)));
        let name = format!("{depth} readers and {with} that commit, 5,300 us, slow guest");
        let load = Load::new(name, Disk::Parallel, streams);
        loads.push(load.with_costs(12 * US, 43 * US, 5 * US));
    }
    loads
}

/// Everything that is not mixed.
pub fn known() -> Vec<Load> {
    [steady(), saturated(), uneven(), committing()].concat()
}

/// Loads whose requests all take the same time, and the most interrupts for each
/// completion: a guest whose CPU is busy for a part of the time, and one that is not.
pub fn equal() -> Vec<(Load, f64)> {
    let mut loads = Vec::new();
    for (depth, us, most) in [(16, 400, 0.51), (32, 800, 0.26), (64, 1_600, 0.135)] {
        let streams = vec![readers(depth, Service::Constant(us * US))];
        let load = |name: &str| {
            let name = format!("constant {us} us, depth {depth}, {name}");
            Load::new(name, Disk::Parallel, streams.clone())
        };
        loads.push((load("idle guest"), most));
        loads.push((load("busy guest").with_costs(3 * US, US, 2 * US), most));
    }
    loads
}

/// The load that stands for a number: one to three streams of any kind.
pub fn arbitrary(number: u64) -> Load {
    let mut state = number << 8;
    let mut below = |bound: u64| {
        state += 1;
        hash(state) % bound
    };
    let disk = match below(4) {
        0 => Disk::Servers(1 + below(8) as usize),
        _ => Disk::Parallel,
    };
    let streams = (0..=below(3))
        .map(|_| {
            let us = (40 << below(8)) * US;
            let service = match below(4) {
                0 => Service::Constant(us),
                1 => Service::Uniform(us / 2, us * 2),
                2 => Service::Exponential(us),
                _ => Service::Bimodal(us, us * 20, 1 + below(100)),
            };
            let pace = match below(8) {
                0 => Pace::Think(us * below(20)),
                1 => Pace::Burst(us * below(20)),
                2 => Pace::HalfOf((2 << below(8)) * MS),
                _ => Pace::Closed,
            };
            let most = 1 << below(7);
            Stream {
                threads: 1 + below(most) as usize,
                service,
                pace,
                requests: match below(4) {
                    0 => Requests::Writes,
                    _ => Requests::Reads,
                },
                queue: below(4) as usize / 3,
            }
        })
        .collect();
    let mut load = Load::new(format!("arbitrary load {number}"), disk, streams);
    let costs = below(3);
    // Drawn apart, so that the other loads stay what they were before there were commits.
    let also = hash(number ^ 0xc0_3317);
    if also.is_multiple_of(4) {
        let us = (40 << (also >> 8 & 7)) * US;
        load.streams.push(Stream {
            threads: 1 + (also >> 16) as usize % 4,
            queue: (also >> 24) as usize % 2,
            ..committer(Service::Exponential(us))
        });
    }
    match costs {
        0 => load.with_costs(below(5) * US, below(3) * US, below(20) * US),
        _ => load,
    }
}
