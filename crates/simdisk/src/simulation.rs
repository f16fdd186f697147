//! A guest, its queues and a disk in simulated time, around coalescers.
//!
//! Service times, pauses and arrivals are functions of the thread and the number of
//! its request, not of the order of events: two runs of a load under different
//! settings do the same work.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tare_policy::coalesce::{Coalescer, Decision, RequestKind, Settings};

use crate::load::{Disk, Load, MS, Pace, exponential, hash};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The disk has done a request.
    Complete(usize),
    /// A thread submits its next request.
    Submit(usize),
}

#[derive(Clone, Copy)]
struct Request {
    thread: usize,
    queue: usize,
    kind: RequestKind,
    submitted_ns: u64,
    service_ns: u64,
}

struct Thread {
    stream: usize,
    /// Requests so far.
    number: u64,
}

struct Queue {
    coalescer: Coalescer,
    /// Completed requests that the guest has not been notified of.
    held: Vec<Request>,
}

/// What one stream got, or all together.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    latencies_ns: Vec<u64>,
    duration_ns: u64,
}

impl Sample {
    fn pool(&mut self, other: Self) {
        self.latencies_ns.extend(other.latencies_ns);
        self.latencies_ns.sort_unstable();
        self.duration_ns += other.duration_ns;
    }

    /// Requests that completed.
    pub fn completions(&self) -> usize {
        self.latencies_ns.len()
    }

    /// The same a second.
    pub fn iops(&self) -> f64 {
        self.latencies_ns.len() as f64 * 1e9 / self.duration_ns as f64
    }

    /// Mean latency.
    pub fn mean_ns(&self) -> f64 {
        let sum: u64 = self.latencies_ns.iter().sum();
        sum as f64 / self.latencies_ns.len().max(1) as f64
    }

    /// Of the sorted latencies.
    pub(crate) fn percentile_ns(&self, percent: usize) -> f64 {
        let index = self.latencies_ns.len() * percent / 100;
        self.latencies_ns.get(index).map_or(0.0, |ns| *ns as f64)
    }
}

/// What a run amounted to.
pub struct RunStats {
    /// All streams together.
    pub all: Sample,
    /// Each of them.
    pub streams: Vec<Sample>,
    /// Interrupts of the guest.
    pub interrupts: u64,
}

impl RunStats {
    /// Both runs as one.
    pub fn pool(mut self, other: Self) -> Self {
        self.all.pool(other.all);
        for (stream, other) in self.streams.iter_mut().zip(other.streams) {
            stream.pool(other);
        }
        self.interrupts += other.interrupts;
        self
    }

    /// Interrupts for each completion.
    pub fn interrupts_per_completion(&self) -> f64 {
        self.interrupts as f64 / self.all.completions().max(1) as f64
    }
}

/// One run of a load.
pub struct Simulation<'a> {
    load: &'a Load,
    seed: u64,
    now_ns: u64,
    end_ns: u64,
    /// Only requests that are submitted from then on are measured.
    measured_from_ns: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    requests: Vec<Request>,
    free: Vec<usize>,
    busy_servers: usize,
    waiting: VecDeque<usize>,
    threads: Vec<Thread>,
    /// Threads of each stream that have not reached its barrier.
    barrier: Vec<usize>,
    queues: Vec<Queue>,
    /// When the guest's CPU has worked off what it was notified of.
    guest_free_ns: u64,
    streams: Vec<Sample>,
    interrupts: u64,
}

impl<'a> Simulation<'a> {
    /// Before its first event.
    pub fn new(load: &'a Load, settings: Settings, seed: u64) -> Self {
        let queues = load.streams.iter().map(|s| s.queue + 1).max().unwrap_or(1);
        let mut simulation = Self {
            load,
            seed,
            now_ns: 1_000 * MS,
            end_ns: u64::MAX,
            measured_from_ns: 0,
            events: BinaryHeap::new(),
            requests: Vec::new(),
            free: Vec::new(),
            busy_servers: 0,
            waiting: VecDeque::new(),
            threads: Vec::new(),
            barrier: load.streams.iter().map(|s| s.threads).collect(),
            queues: (0..queues)
                .map(|_| Queue {
                    coalescer: Coalescer::new(settings),
                    held: Vec::new(),
                })
                .collect(),
            guest_free_ns: 0,
            streams: vec![Sample::default(); load.streams.len()],
            interrupts: 0,
        };
        simulation.start_threads();
        simulation
    }

    /// Threads start within the first millisecond, not all at once.
    fn start_threads(&mut self) {
        for (stream, of_stream) in self.load.streams.iter().enumerate() {
            for _ in 0..of_stream.threads {
                let thread = self.threads.len();
                self.threads.push(Thread { stream, number: 0 });
                let start_ns = match of_stream.pace {
                    Pace::Burst(_) => 0,
                    _ => hash(self.seed ^ thread as u64) % MS,
                };
                self.at(self.now_ns + start_ns, Event::Submit(thread));
            }
        }
    }

    /// Runs for `warm_up_ns`, then measures for `duration_ns`.
    pub fn run(mut self, warm_up_ns: u64, duration_ns: u64) -> RunStats {
        self.measured_from_ns = self.now_ns + warm_up_ns;
        self.end_ns = self.measured_from_ns + duration_ns;
        while self.now_ns < self.end_ns && self.step() {}
        let mut all = Sample::default();
        for sample in &mut self.streams {
            sample.duration_ns = duration_ns;
            sample.latencies_ns.sort_unstable();
            all.latencies_ns.extend_from_slice(&sample.latencies_ns);
        }
        all.duration_ns = duration_ns;
        all.latencies_ns.sort_unstable();
        RunStats {
            all,
            streams: self.streams,
            interrupts: self.interrupts,
        }
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.events.push(Reverse((at_ns, event)));
    }

    fn step(&mut self) -> bool {
        let deadlines = self.queues.iter().filter_map(|q| q.coalescer.deadline());
        let deadline = deadlines.min().unwrap_or(u64::MAX);
        let next = self.events.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        if deadline == u64::MAX && next == u64::MAX {
            return false;
        }
        if deadline < next {
            self.now_ns = self.now_ns.max(deadline);
            return self.expire();
        }
        match self.events.pop() {
            Some(Reverse((at_ns, Event::Submit(thread)))) => {
                self.now_ns = self.now_ns.max(at_ns);
                self.submit(thread);
            }
            Some(Reverse((at_ns, Event::Complete(request)))) => {
                self.now_ns = self.now_ns.max(at_ns);
                self.turn(request);
            }
            None => return false,
        }
        true
    }

    fn expire(&mut self) -> bool {
        for queue in 0..self.queues.len() {
            if self.queues[queue].coalescer.expired(self.now_ns) == Decision::Deliver {
                self.interrupt(queue);
            }
        }
        true
    }

    fn submit(&mut self, thread: usize) {
        let Thread { stream, number } = self.threads[thread];
        let of_stream = self.load.streams[stream];
        self.threads[thread].number += 1;
        let seed = hash(self.seed ^ (thread as u64) << 40 ^ number);
        let request = Request {
            thread,
            queue: of_stream.queue,
            kind: of_stream.requests.kind(number),
            submitted_ns: self.now_ns,
            service_ns: of_stream.service.time_ns(seed),
        };
        if let Pace::Arrivals(mean_ns) = of_stream.pace {
            let pause_ns = exponential(mean_ns, seed ^ 0xa11).max(1);
            self.at(self.now_ns + pause_ns, Event::Submit(thread));
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.requests.push(request);
                self.requests.len() - 1
            }
        };
        self.requests[index] = request;
        self.queues[request.queue].coalescer.submitted(request.kind);
        if request.kind == RequestKind::Flush {
            let all = self.queues.iter_mut();
            all.for_each(|queue| queue.coalescer.flushed_elsewhere());
        }
        match self.load.disk {
            Disk::Servers(servers) if self.busy_servers == servers => self.waiting.push_back(index),
            _ => self.serve(index),
        }
    }

    fn serve(&mut self, index: usize) {
        self.busy_servers += 1;
        let done_ns = self.now_ns + self.requests[index].service_ns;
        self.at(done_ns, Event::Complete(index));
    }

    /// One turn of the device's I/O loop: all that is complete by its end.
    fn turn(&mut self, first: usize) {
        let turn_end_ns = self.now_ns + self.load.costs.turn_ns;
        let mut delivers = vec![false; self.queues.len()];
        let mut next = Some(first);
        let mut done = Vec::new();
        while let Some(index) = next {
            done.push(index);
            self.busy_servers -= 1;
            if let Some(waiting) = self.waiting.pop_front() {
                self.serve(waiting);
            }
            next = match self.events.peek() {
                Some(Reverse((at_ns, Event::Complete(index)))) if *at_ns <= turn_end_ns => {
                    Some(*index)
                }
                _ => None,
            };
            if let Some(Reverse((at_ns, _))) = next.and_then(|_| self.events.pop()) {
                self.now_ns = self.now_ns.max(at_ns);
            }
        }
        self.now_ns = turn_end_ns.max(self.now_ns);
        for index in done {
            let request = self.requests[index];
            self.free.push(index);
            let queue = &mut self.queues[request.queue];
            queue.held.push(request);
            let latency_ns = self.now_ns - request.submitted_ns;
            let coalescer = &mut queue.coalescer;
            let decision = coalescer.completed(self.now_ns, request.kind, latency_ns);
            delivers[request.queue] |= decision == Decision::Deliver;
        }
        for (queue, _) in delivers.into_iter().enumerate().filter(|(_, it)| *it) {
            self.queues[queue].coalescer.caught_up(self.now_ns);
            self.interrupt(queue);
        }
    }

    /// The guest learns of everything that its queue holds.
    fn interrupt(&mut self, queue: usize) {
        let costs = self.load.costs;
        if self.now_ns >= self.measured_from_ns {
            self.interrupts += 1;
        }
        let mut known_ns = self.guest_free_ns.max(self.now_ns) + costs.interrupt_ns;
        for request in std::mem::take(&mut self.queues[queue].held) {
            known_ns += costs.completion_ns;
            self.known(request, known_ns);
        }
        self.guest_free_ns = known_ns;
    }

    fn known(&mut self, request: Request, known_ns: u64) {
        let thread = request.thread;
        let Thread { stream, number } = self.threads[thread];
        if known_ns >= self.measured_from_ns && known_ns < self.end_ns {
            let latency_ns = known_ns - request.submitted_ns;
            self.streams[stream].latencies_ns.push(latency_ns);
        }
        match self.load.streams[stream].pace {
            Pace::Closed => self.at(known_ns, Event::Submit(thread)),
            Pace::Think(mean_ns) => {
                let seed = hash(self.seed ^ 0x7417 ^ (thread as u64) << 40 ^ number);
                let pause_ns = exponential(mean_ns, seed);
                self.at(known_ns + pause_ns, Event::Submit(thread));
            }
            Pace::Burst(pause_ns) => self.arrive(stream, known_ns + pause_ns),
            Pace::HalfOf(period_ns) => {
                let phase_ns = known_ns % period_ns;
                let pause_ns = if phase_ns < period_ns / 2 {
                    0
                } else {
                    period_ns - phase_ns
                };
                self.at(known_ns + pause_ns, Event::Submit(thread));
            }
            Pace::Arrivals(_) => {}
        }
    }

    /// One thread is at the barrier; the last starts the next burst.
    fn arrive(&mut self, stream: usize, next_ns: u64) {
        self.barrier[stream] -= 1;
        if self.barrier[stream] > 0 {
            return;
        }
        self.barrier[stream] = self.load.streams[stream].threads;
        for thread in 0..self.threads.len() {
            if self.threads[thread].stream == stream {
                self.at(next_ns, Event::Submit(thread));
            }
        }
    }
}
