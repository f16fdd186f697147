//! The rule, written down from the table and the ADR with lists and floats.

use tare_policy::coalesce::{Decision, Mode, Parameters, RequestKind};

/// One queue, as the rule sees it.
pub(crate) struct Model {
    pub parameters: Parameters,
    /// Requests that the backend has.
    pub in_flight: Vec<RequestKind>,
    /// When each held completion came, and until when it may be held.
    pub held: Vec<(u64, u64)>,
    pub pair: (u32, u32),
    /// Of the last row: the numerator and denominator of 1/R, and cycles so far.
    inverse: (u32, u32),
    cycles: u32,
    counter: u32,
    epoch_start_ns: Option<u64>,
    completions: u64,
    peaks: Vec<u64>,
    /// What the driver had in flight at each completion since it began to answer
    /// a delivery.
    seen: Vec<u64>,
    told: bool,
    /// Completions delivered and not answered by a submission; of those held, answered.
    unanswered: usize,
    answered: usize,
    /// The driver flushed in the last epoch, in this one.
    pub flushes: [bool; 2],
}

impl Model {
    pub(crate) fn new(parameters: Parameters) -> Self {
        Self {
            pair: Self::first(&parameters),
            parameters,
            inverse: (0, 1),
            cycles: 0,
            in_flight: Vec::new(),
            held: Vec::new(),
            counter: 1,
            epoch_start_ns: None,
            completions: 0,
            peaks: Vec::new(),
            seen: Vec::new(),
            told: false,
            unanswered: 0,
            answered: 0,
            flushes: [false; 2],
        }
    }

    fn first(parameters: &Parameters) -> (u32, u32) {
        match parameters.mode {
            Mode::Fixed(ratio) => (ratio.count_up(), ratio.skip_up()),
            Mode::Auto | Mode::Off => (1, 1),
        }
    }

    pub(crate) fn submitted(&mut self, kind: RequestKind) {
        self.in_flight.push(kind);
        match self.unanswered {
            0 => self.answered = self.held.len().min(self.answered + 1),
            _ => self.unanswered -= 1,
        }
        if std::mem::take(&mut self.told) {
            self.peaks.push(peak(&self.seen));
            self.seen.clear();
        }
        self.flushes[1] |= matches!(kind, RequestKind::Flush | RequestKind::WriteThrough);
    }

    /// `trial` is what the comparison with an epoch without holds says: whether this
    /// epoch ends, the longest cycle (1: no holds), and for how long completions are held.
    pub(crate) fn completed(
        &mut self,
        now_ns: u64,
        index: usize,
        trial: (bool, u32, u64),
    ) -> (RequestKind, Decision) {
        let (ends, longest_cycle, limit_ns) = trial;
        if ends {
            self.epoch(now_ns, longest_cycle);
        }
        let driver_sees = self.in_flight.len() + self.held.len();
        self.seen.push((driver_sees - self.answered) as u64);
        self.completions += 1;
        let deliver = self.delivers(now_ns, self.in_flight[index], driver_sees, limit_ns);
        let kind = self.in_flight.swap_remove(index);
        if deliver {
            self.unanswered += 1;
            self.tell();
            return (kind, Decision::Deliver);
        }
        self.held.push((now_ns, now_ns + limit_ns));
        (kind, Decision::Hold)
    }

    fn delivers(
        &mut self,
        now_ns: u64,
        kind: RequestKind,
        driver_sees: usize,
        limit_ns: u64,
    ) -> bool {
        let auto = self.parameters.mode == Mode::Auto;
        let row = self.parameters.cif_threshold as usize;
        if auto && self.in_flight.len() < row {
            self.counter = 1;
            return true;
        }
        let urgent = auto && self.urgent(kind);
        let due = self.deadline().is_some_and(|deadline| now_ns >= deadline);
        let would_hold = self.held.len() + 1;
        let stale = auto && would_hold > 1 && would_hold > driver_sees / (2 * row);
        if self.pattern() {
            return true;
        }
        let quick = limit_ns < 2_000;
        let delivers = urgent || due || stale || quick;
        if delivers {
            self.counter = 1;
        }
        delivers
    }

    /// The pseudo-code of vIC 2011.
    fn pattern(&mut self) -> bool {
        let (count_up, skip_up) = self.pair;
        let skip_up = skip_up + self.lengthening();
        if self.counter < count_up {
            self.counter += 1;
            true
        } else if self.counter >= skip_up {
            self.counter = 1;
            self.cycles += 1;
            true
        } else {
            self.counter += 1;
            false
        }
    }

    /// By how much this cycle is longer, so that all together are in proportion.
    fn lengthening(&self) -> u32 {
        let (numerator, denominator) = self.inverse;
        let whole = |cycles: u32| cycles * (numerator % denominator) / denominator;
        whole(self.cycles) - whole(self.cycles.saturating_sub(1))
    }

    fn urgent(&self, kind: RequestKind) -> bool {
        let few = |class: fn(&RequestKind) -> bool, below: u32| {
            let in_flight = self.in_flight.iter().filter(|k| class(k));
            in_flight.count() < below as usize
        };
        match kind {
            RequestKind::Flush | RequestKind::WriteThrough | RequestKind::Control => true,
            RequestKind::Read => few(
                |k| *k == RequestKind::Read,
                self.parameters.read_urgent_below,
            ),
            RequestKind::Write => {
                let writes: fn(&RequestKind) -> bool =
                    |k| matches!(k, RequestKind::Write | RequestKind::WriteThrough);
                self.flushes != [false; 2] && few(writes, self.parameters.write_urgent_below)
            }
        }
    }

    fn epoch(&mut self, now_ns: u64, longest_cycle: u32) {
        let start_ns = self.epoch_start_ns.unwrap_or(0);
        if self.parameters.mode == Mode::Auto {
            let seconds = (now_ns - start_ns).max(1) as f64 / 1e9;
            let iops = self.completions as f64 / seconds;
            let mean = match self.peaks.len() {
                0 => peak(&self.seen) as f64,
                count => self.peaks.iter().sum::<u64>() as f64 / count as f64,
            };
            let ((count, skip), inverse) = self.table(mean.ceil() as u32, iops);
            // A trial holds less than the table: one of two, of four and so on.
            let (pair, inverse) = match longest_cycle {
                1 => ((1, 1), (0, 1)),
                cycle if count == 1 && skip > cycle && cycle.is_power_of_two() => {
                    ((1, cycle), (0, 1))
                }
                _ => ((count, skip), inverse),
            };
            if (pair, inverse) != (self.pair, self.inverse) {
                (self.pair, self.inverse) = (pair, inverse);
                (self.counter, self.cycles) = (1, 0);
            }
        }
        self.begin_epoch(now_ns);
        self.unanswered = 0;
        self.flushes = [self.flushes[1], false];
    }

    fn begin_epoch(&mut self, now_ns: u64) {
        self.epoch_start_ns = Some(now_ns);
        self.completions = 0;
        self.peaks.clear();
    }

    fn table(&self, cif: u32, iops: f64) -> ((u32, u32), (u32, u32)) {
        let row = self.parameters.cif_threshold;
        // Whole completions, as the rule counts them.
        let iops = iops.floor();
        let in_longest_hold = (iops * self.parameters.longest_hold_ns as f64 / 1e9) as u32;
        let (count, skip) = match cif / row {
            _ if iops < f64::from(self.parameters.iops_threshold) => (1, 1),
            0 => (1, 1),
            1 => (4, 5),
            2 => (3, 4),
            3 => (2, 3),
            _ => (1, cif / (row * 2)),
        };
        let last_row = cif / row >= 4 && iops >= f64::from(self.parameters.iops_threshold);
        let inverse = if last_row {
            (cif % (row * 2), row * 2)
        } else {
            (0, 1)
        };
        let longest = skip + u32::from(inverse.0 > 0);
        if longest - count <= in_longest_hold {
            ((count, skip), inverse)
        } else {
            ((1, 1 + in_longest_hold), (0, 1))
        }
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.held.iter().map(|(_, until_ns)| *until_ns).min()
    }

    pub(crate) fn expired(&mut self, now_ns: u64) -> bool {
        let due = self.deadline().is_some_and(|deadline| now_ns >= deadline);
        if due {
            self.tell();
            self.counter = 1;
        }
        due
    }

    pub(crate) fn caught_up(&mut self) {
        self.tell();
    }

    fn tell(&mut self) {
        self.unanswered += self.held.len() - self.answered;
        self.answered = 0;
        self.held.clear();
        self.told = true;
    }

    pub(crate) fn reset(&mut self, now_ns: u64) {
        self.seen.clear();
        self.configure(now_ns, self.parameters);
        (self.told, self.flushes) = (false, [false; 2]);
        self.unanswered = 0;
        self.in_flight.clear();
    }

    pub(crate) fn configure(&mut self, now_ns: u64, parameters: Parameters) -> bool {
        let told = !self.held.is_empty();
        self.tell();
        self.parameters = parameters;
        (self.pair, self.inverse) = (Self::first(&parameters), (0, 1));
        (self.counter, self.cycles) = (1, 0);
        self.begin_epoch(now_ns);
        told
    }
}

fn peak(seen: &[u64]) -> u64 {
    seen.iter().copied().max().unwrap_or(0)
}
