//! The phases of a turn: load or none, and what is sampled meanwhile.

use std::path::Path;
use std::time::{Duration, Instant};

use tare_control::stats::Stats;
use tare_lab::kit::RunError;
use tare_load::requests::{Connections, Request, Schedule};
use tare_machines::observe::CpuReading;
use tare_machines::observe::counters::{
    activity_between, instructions_between, risen_between, seconds_between,
};

use super::arms::Arm;
use super::plan::ms;
use super::sample::{Line, Phase};
use super::session::{Server, Session, Turn};
use crate::full_speed::carried;

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
    pub(crate) fn calibrate(&mut self, server: &mut Server) -> Result<f64, RunError> {
        let mut generator = self.generator(server, Connections::KeepAlive(CONCURRENCY));
        let load = (CONCURRENCY, ms(self.plan.calibrate_ms));
        let machine = server.machine.as_mut();
        let carried = carried(machine, &mut generator, load, self.bench.interrupt)?;
        self.keep(server, Phase::Calibrate, &carried.requests)?;
        let rate = carried.rate();
        let figure = server.turn.arm.figure("carried_rps");
        self.value(server.turn.boot(), &figure, rate)?;
        Ok(rate)
    }

    /// A burst of open-loop load.
    pub(crate) fn burst(&mut self, server: &mut Server, rate: f64) -> Result<(), RunError> {
        let time = ms(self.plan.burst_ms);
        self.loaded(
            server,
            Phase::Burst,
            Schedule::steady(rate, time),
            time,
            ms(self.plan.window_ms),
        )
    }

    /// One request a second.
    pub(crate) fn steady(&mut self, server: &mut Server) -> Result<(), RunError> {
        let time = ms(self.plan.steady_ms);
        let second = Duration::from_secs(1);
        self.loaded(
            server,
            Phase::Steady,
            Schedule::steady(1.0, time),
            time,
            second,
        )
    }

    /// No requests: CPU time from outside, statistics only at the edges of
    /// the windows and outside of them.
    pub(crate) fn rest(&mut self, server: &mut Server) -> Result<(), RunError> {
        let begin = Instant::now();
        let before = server.machine.cpu()?;
        self.window(
            server,
            Phase::Settle,
            begin,
            &before,
            begin + ms(self.plan.settle_ms),
        )?;
        let time = ms(self.plan.break_ms);
        let mut resting = [Resting::new(server, Phase::Break, time)];
        self.settle(&mut resting)?;
        self.idle(&mut resting, begin)
    }

    /// Waits until machines rest, and reads the statistics from which their windows count.
    pub(crate) fn settle(&mut self, machines: &mut [Resting<'_>]) -> Result<(), RunError> {
        for one in &mut *machines {
            self.settled(one.server, one.phase)?;
        }
        for one in &mut *machines {
            one.stats = self.stats(one.server, one.phase)?;
            one.began = Some(Instant::now());
        }
        Ok(())
    }

    /// Idle windows of machines that have settled, until each has rested for its time; `begin`
    /// is the zero of the windows' times.
    pub(crate) fn idle(
        &mut self,
        machines: &mut [Resting<'_>],
        begin: Instant,
    ) -> Result<(), RunError> {
        let length = ms(self.plan.idle_window_ms);
        loop {
            let due = machines.iter_mut().filter(|one| one.is_due());
            let mut due: Vec<_> = due.collect();
            if due.is_empty() {
                return Ok(());
            }
            self.idle_window(&mut due, begin, |session| {
                let until = Instant::now() + length;
                Ok(session.bench.interrupt.sleep_until(until)?)
            })?;
        }
    }

    /// One window of each machine, as long as `meanwhile` takes. Reading a machine wakes no
    /// other: CPU times come from `/proc`, and statistics are requested between windows.
    pub(crate) fn idle_window(
        &mut self,
        machines: &mut [&mut Resting<'_>],
        begin: Instant,
        meanwhile: impl FnOnce(&mut Self) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        self.bench.interrupt.sleep(GUARD)?;
        let mut before = Vec::new();
        for one in &mut *machines {
            before.push(self.before(one)?);
        }
        meanwhile(self)?;
        for (one, before) in machines.iter_mut().zip(&before) {
            one.last = Some(self.spent(one.server, one.phase, begin, before)?);
        }
        for one in machines {
            self.exits(one)?;
        }
        Ok(())
    }

    /// CPU time at the begin of a window. What it rose by since the last window is the
    /// observer's where nothing else runs.
    fn before(&mut self, one: &mut Resting<'_>) -> Result<CpuReading, RunError> {
        let before = one.server.machine.cpu()?;
        if let Some(last) = one.last.take()
            && one.server.turn.arm == Arm::Tare
            && one.stats.is_some()
        {
            let us = before.since(&last).monitor_ns as f64 / 1e3;
            self.value(one.server.turn.boot(), "stats_request_us", us)?;
        }
        Ok(before)
    }

    /// Exits since the last reading.
    fn exits(&mut self, one: &mut Resting<'_>) -> Result<(), RunError> {
        let now = self.stats(one.server, one.phase)?;
        if let (Some(from), Some(to)) = (&one.stats, &now) {
            let exits = activity_between(from, to);
            let place = one.server.place(one.phase);
            if exits > 0.0 {
                let counters = risen_between(from, to);
                self.data
                    .keep(self.bench.recorder, Line::Woken { place, counters })?;
            }
            let line = Line::Events {
                place: Some(place),
                figure: idle_figure(one.server.turn, "idle_exits_per_s"),
                events: exits,
                seconds: seconds_between(from, to),
            };
            self.data.keep(self.bench.recorder, line)?;
        }
        one.stats = now;
        Ok(())
    }

    /// Waits until what came before has ended: until the machine has done nothing for a
    /// while, at most [`SETTLE_LIMIT`]. A machine that never rests is measured all the same.
    fn settled(&mut self, server: &mut Server, phase: Phase) -> Result<(), RunError> {
        if server.turn.arm == Arm::Spin || self.plan.quiet_ms == 0 {
            return Ok(());
        }
        let begin = Instant::now();
        while begin.elapsed() < SETTLE_LIMIT {
            let from = self.stats(server, phase)?;
            self.bench.interrupt.sleep(ms(self.plan.quiet_ms))?;
            let to = self.stats(server, phase)?;
            match (from, to) {
                (Some(from), Some(to)) if activity_between(&from, &to) > 0.0 => {}
                _ => break,
            }
        }
        let figure = idle_figure(server.turn, "settled_ms");
        let ms = begin.elapsed().as_secs_f64() * 1e3;
        self.value(server.turn.boot(), &figure, ms)
    }

    /// Counts instructions of requests on one connection, and of connections with one request
    /// each, on a machine in ring 0: only there KVM's emulator executes, and counts, every
    /// instruction.
    pub(crate) fn counted(&mut self, root: &Path, turn: Turn) -> Result<(), RunError> {
        let server = &mut self.start(root, Turn { ring: "0", ..turn })?;
        self.serve(server)?;
        self.data.image = server.machine.image();
        for _ in 0..self.plan.batches {
            let kept = Connections::KeepAlive(1);
            self.count_batch(server, Phase::CountRequests, kept, "insns_per_request")?;
            let each = Connections::PerRequest(1);
            self.count_batch(
                server,
                Phase::CountConnections,
                each,
                "insns_per_connection",
            )?;
        }
        if let Some(stats) = self.stats(server, Phase::CountConnections)? {
            let kib = stats.memory.monitor_resident_bytes as f64 / 1024.0;
            self.value(turn.boot(), "monitor_rss_kib", kib)?;
        }
        Ok(())
    }

    fn count_batch(
        &mut self,
        server: &mut Server,
        phase: Phase,
        mode: Connections,
        figure: &'static str,
    ) -> Result<(), RunError> {
        let mut generator = self.generator(server, mode);
        // The first request opens the connection, the second runs on a warm one.
        let warm = generator.run(Schedule::one_by_one(2), self.bench.interrupt)?;
        self.keep(server, phase, &warm)?;
        self.bench.interrupt.sleep(QUIET)?;
        let from = self.stats(server, phase)?;
        let requests =
            generator.run(Schedule::one_by_one(self.plan.batch), self.bench.interrupt)?;
        self.bench.interrupt.sleep(QUIET)?;
        let to = self.stats(server, phase)?;
        self.keep(server, phase, &requests)?;
        let complete = requests.iter().all(|r| r.failure.is_none());
        if let (Some(from), Some(to), true) = (from, to, complete) {
            let n = requests.len() as f64;
            let turn = server.turn;
            if let Some(count) = instructions_between(&from, &to) {
                self.value(turn.boot(), figure, count / n)?;
            }
            let exits = figure.replace("insns", "exits");
            self.value(turn.boot(), &exits, activity_between(&from, &to) / n)?;
            let interrupts = risen_between(&from, &to).remove("irq_injections");
            let interrupts = interrupts.unwrap_or(0) as f64;
            let name = figure.replace("insns", "interrupts");
            self.value(turn.boot(), &name, interrupts / n)?;
        }
        Ok(())
    }

    /// Load in its own thread while this one samples CPU time.
    fn loaded(
        &mut self,
        server: &mut Server,
        phase: Phase,
        schedule: Schedule,
        time: Duration,
        window: Duration,
    ) -> Result<(), RunError> {
        let mut generator = self.generator(server, Connections::KeepAlive(self.plan.connections));
        let branch = self.bench.interrupt.branch();
        self.stats(server, phase)?;
        let requests = std::thread::scope(|scope| {
            let load = scope.spawn(|| generator.run(schedule, &branch));
            let sampled = self.sample(server, phase, time, window);
            if sampled.is_err() {
                branch.abandon();
            }
            let requests = load
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            sampled?;
            Ok::<_, RunError>(requests?)
        })?;
        self.stats(server, phase)?;
        self.keep(server, phase, &requests)
    }

    /// Windows of CPU time for `time`.
    fn sample(
        &mut self,
        server: &mut Server,
        phase: Phase,
        time: Duration,
        window: Duration,
    ) -> Result<(), RunError> {
        let begin = Instant::now();
        let mut before = server.machine.cpu()?;
        let mut until = begin + window;
        while until <= begin + time {
            before = self.window(server, phase, begin, &before, until)?;
            until += window;
        }
        Ok(())
    }

    fn keep(
        &mut self,
        server: &Server,
        phase: Phase,
        requests: &[Request],
    ) -> Result<(), RunError> {
        let place = server.place(phase);
        for request in requests {
            let request = *request;
            self.data
                .keep(self.bench.recorder, Line::Request { place, request })?;
        }
        Ok(())
    }
}

/// A machine without requests, while its idle windows are measured.
pub(crate) struct Resting<'a> {
    server: &'a mut Server,
    phase: Phase,
    time: Duration,
    /// When its first window could begin, once it has settled.
    began: Option<Instant>,
    /// Statistics at the end of the last window.
    stats: Option<Stats>,
    /// CPU time there, before they were requested.
    last: Option<CpuReading>,
}

impl<'a> Resting<'a> {
    /// A machine whose windows are of `phase`, for `time`.
    pub(crate) fn new(server: &'a mut Server, phase: Phase, time: Duration) -> Self {
        Self {
            server,
            phase,
            time,
            began: None,
            stats: None,
            last: None,
        }
    }

    /// Whether it has not rested for its time yet.
    fn is_due(&self) -> bool {
        self.began.is_some_and(|began| began.elapsed() < self.time)
    }
}

/// The figure `base` of an idle machine, told apart by its vCPUs.
fn idle_figure(turn: Turn, base: &str) -> String {
    let figure = turn.arm.figure(base);
    match turn.cpus {
        1 => figure,
        cpus => format!("{figure}.{cpus}cpu"),
    }
}
