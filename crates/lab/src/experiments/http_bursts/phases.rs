//! The phases of a turn: load or none, and what is sampled meanwhile.

use std::time::{Duration, Instant};

use super::arms::Arm;
use super::plan::ms;
use super::sample::Phase;
use super::session::Session;
use crate::bench::RunError;
use crate::load::{Connections, Request, Schedule};
use crate::observe::CpuReading;
use crate::observe::counters::{
    activity_between, instructions_between, risen_between, seconds_between,
};

/// Requests under way at once while calibrating.
const CONCURRENCY: usize = 4;
/// Longest wait for a machine to come to rest.
const SETTLE_LIMIT: Duration = Duration::from_secs(12);
/// Time for a request's traces (acknowledgements, statistics) to end.
const GUARD: Duration = Duration::from_millis(20);
/// The same before instructions are counted: longer than a delayed
/// acknowledgement takes.
const QUIET: Duration = Duration::from_millis(80);

impl Session<'_, '_> {
    /// Finds what the machine carries, in requests per second.
    pub(crate) fn calibrate(&mut self) -> Result<f64, RunError> {
        let schedule = Schedule::Closed {
            concurrency: CONCURRENCY,
            until: ms(self.plan.calibrate_ms),
            count: usize::MAX,
        };
        let mut generator = self.generator(Connections::KeepAlive(CONCURRENCY));
        let begin = Instant::now();
        let requests = generator.run(schedule, self.bench.interrupt)?;
        let seconds = begin.elapsed().as_secs_f64();
        self.keep(Phase::Calibrate, &requests)?;
        let answered = requests.iter().filter(|r| r.failure.is_none()).count();
        let carried = answered as f64 / seconds;
        self.value(&self.turn.arm.figure("carried_rps"), "1/s", carried)?;
        Ok(carried)
    }

    /// A burst of open-loop load.
    pub(crate) fn burst(&mut self, rate: f64) -> Result<(), RunError> {
        let time = ms(self.plan.burst_ms);
        self.loaded(
            Phase::Burst,
            Schedule::steady(rate, time),
            time,
            ms(self.plan.window_ms),
        )
    }

    /// One request a second.
    pub(crate) fn steady(&mut self) -> Result<(), RunError> {
        let time = ms(self.plan.steady_ms);
        let second = Duration::from_secs(1);
        self.loaded(Phase::Steady, Schedule::steady(1.0, time), time, second)
    }

    /// No requests: CPU time from outside, statistics only at the edges of
    /// the windows and outside of them.
    pub(crate) fn rest(&mut self) -> Result<(), RunError> {
        let begin = Instant::now();
        let before = self.machine.cpu()?;
        self.window(
            Phase::Settle,
            begin,
            &before,
            begin + ms(self.plan.settle_ms),
        )?;
        self.idle(Phase::Break, ms(self.plan.break_ms), begin)
    }

    /// Idle windows for `time`; `begin` is the zero of their times.
    pub(crate) fn idle(
        &mut self,
        phase: Phase,
        time: Duration,
        begin: Instant,
    ) -> Result<(), RunError> {
        self.settled(phase)?;
        let end = Instant::now() + time;
        let mut stats = self.stats(phase)?;
        let mut last: Option<CpuReading> = None;
        while Instant::now() < end {
            self.bench.interrupt.sleep(GUARD)?;
            let before = self.machine.cpu()?;
            // Only where nothing else runs is the difference the observer's.
            if let Some(last) = last.take()
                && self.turn.arm == Arm::Tare
                && stats.is_some()
            {
                let us = before.since(&last).monitor_ns as f64 / 1e3;
                self.value("stats_request_us", "us", us)?;
            }
            let until = before.at + ms(self.plan.idle_window_ms);
            last = Some(self.window(phase, begin, &before, until)?);
            let now = self.stats(phase)?;
            if let (Some(from), Some(to)) = (&stats, &now) {
                let exits = activity_between(from, to);
                if exits > 0.0 {
                    let risen = risen_between(from, to);
                    self.data
                        .woken(self.bench.recorder, self.place(phase), risen)?;
                }
                let figure = self.idle_figure("idle_exits_per_s");
                let seconds = seconds_between(from, to);
                self.data
                    .events(self.bench.recorder, &figure, exits, seconds)?;
            }
            stats = now;
        }
        Ok(())
    }

    /// Waits until what came before has ended: until the machine has done nothing for a
    /// while, at most [`SETTLE_LIMIT`]. A machine that never rests is measured all the same.
    fn settled(&mut self, phase: Phase) -> Result<(), RunError> {
        if self.turn.arm == Arm::Spin || self.plan.quiet_ms == 0 {
            return Ok(());
        }
        let begin = Instant::now();
        while begin.elapsed() < SETTLE_LIMIT {
            let from = self.stats(phase)?;
            self.bench.interrupt.sleep(ms(self.plan.quiet_ms))?;
            let to = self.stats(phase)?;
            match (from, to) {
                (Some(from), Some(to)) if activity_between(&from, &to) > 0.0 => {}
                _ => break,
            }
        }
        let figure = self.idle_figure("settled_ms");
        self.value(&figure, "ms", begin.elapsed().as_secs_f64() * 1e3)
    }

    /// Counts instructions of requests on one connection, and of connections
    /// with one request each.
    pub(crate) fn count(&mut self) -> Result<(), RunError> {
        for _ in 0..self.plan.batches {
            let kept = Connections::KeepAlive(1);
            self.count_batch(Phase::CountRequests, kept, "insns_per_request")?;
            let each = Connections::PerRequest(1);
            self.count_batch(Phase::CountConnections, each, "insns_per_connection")?;
        }
        if let Some(stats) = self.stats(Phase::CountConnections)? {
            let kib = stats.memory.monitor_resident_bytes as f64 / 1024.0;
            self.value("monitor_rss_kib", "KiB", kib)?;
        }
        Ok(())
    }

    fn count_batch(
        &mut self,
        phase: Phase,
        mode: Connections,
        figure: &'static str,
    ) -> Result<(), RunError> {
        let mut generator = self.generator(mode);
        // The first request opens the connection, the second runs on a warm one.
        let warm = generator.run(Schedule::one_by_one(2), self.bench.interrupt)?;
        self.keep(phase, &warm)?;
        self.bench.interrupt.sleep(QUIET)?;
        let from = self.stats(phase)?;
        let requests =
            generator.run(Schedule::one_by_one(self.plan.batch), self.bench.interrupt)?;
        self.bench.interrupt.sleep(QUIET)?;
        let to = self.stats(phase)?;
        self.keep(phase, &requests)?;
        let complete = requests.iter().all(|r| r.failure.is_none());
        if let (Some(from), Some(to), true) = (from, to, complete) {
            let n = requests.len() as f64;
            if let Some(count) = instructions_between(&from, &to) {
                self.value(figure, "insns", count / n)?;
            }
            let exits = figure.replace("insns", "exits");
            self.value(&exits, "exits", activity_between(&from, &to) / n)?;
            let interrupts = risen_between(&from, &to).remove("irq_injections");
            let interrupts = interrupts.unwrap_or(0) as f64;
            let name = figure.replace("insns", "interrupts");
            self.value(&name, "1", interrupts / n)?;
        }
        Ok(())
    }

    /// Load in a thread of its own while this one samples CPU time.
    fn loaded(
        &mut self,
        phase: Phase,
        schedule: Schedule,
        time: Duration,
        window: Duration,
    ) -> Result<(), RunError> {
        let mut generator = self.generator(Connections::KeepAlive(self.plan.connections));
        let branch = self.bench.interrupt.branch();
        self.stats(phase)?;
        let requests = std::thread::scope(|scope| {
            let load = scope.spawn(|| generator.run(schedule, &branch));
            let sampled = self.sample(phase, time, window);
            if sampled.is_err() {
                branch.abandon();
            }
            let requests = load
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            sampled?;
            Ok::<_, RunError>(requests?)
        })?;
        self.stats(phase)?;
        self.keep(phase, &requests)
    }

    /// Windows of CPU time for `time`.
    fn sample(&mut self, phase: Phase, time: Duration, window: Duration) -> Result<(), RunError> {
        let begin = Instant::now();
        let mut before = self.machine.cpu()?;
        let mut until = begin + window;
        while until <= begin + time {
            before = self.window(phase, begin, &before, until)?;
            until += window;
        }
        Ok(())
    }

    fn keep(&mut self, phase: Phase, requests: &[Request]) -> Result<(), RunError> {
        let place = self.place(phase);
        Ok(self.data.requests(self.bench.recorder, place, requests)?)
    }

    /// The figure `base` of an idle machine, told apart by its vCPUs.
    fn idle_figure(&self, base: &str) -> String {
        let figure = self.turn.arm.figure(base);
        match self.turn.cpus {
            1 => figure,
            cpus => format!("{figure}.{cpus}cpu"),
        }
    }
}
