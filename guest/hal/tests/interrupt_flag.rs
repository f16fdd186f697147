//! The software interrupt flag, both gates and the entry of programs as a model,
//! in every interleaving of one CPU's instructions with interrupts.
//!
//! Each state below is an instruction of `cpu`, `trap/irq.rs`, `ring/gate.rs` or
//! `user/entry.rs` that reads or writes what the others use; the others are left out.
//! Code that runs with hardware interrupts off and touches only this CPU's area is one
//! step. Other CPUs only raise interrupts. The search visits each state once.

use std::collections::HashSet;

/// Interrupts that are raised in a run, of two vectors.
const RAISES: u8 = 4;

/// What the next instruction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    // cpu::halt_if
    Disable,
    Look,
    HaltGate,
    // ring::gate: tare_halt_gate, in ring 0
    GateLook,
    Sti,
    Hlt,
    Halted,
    GateReturn,
    /// ring::gate: tare_service_gate, in ring 0 until it returns.
    Service,
    // cpu::enable_interrupts, then `Then`
    Enable,
    LookAtPending,
    // irq::handle_pending and irq::finish, on behalf of the top of the stack
    TurnOff,
    AnyPending,
    Swap,
    Handle,
    EndMerged,
    FlagOn,
    LookAgain,
    // ring::gate: tare_upcall, which saves where the interrupted code continues
    Upcall,
    Return,
    // user::entry: tare_user_enter and tare_syscall_entry
    Enter,
    EnterFlagOn,
    EnterLook,
    NotEntered,
    Program,
    /// In ring 0 with interrupts on, or in ring 3 where KVM leaves it there.
    Syscall,
}

/// Faults put into the code, which the model must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The halt gate does not look at what is pending.
    HaltWithoutLook,
    /// The stub leaves the flag on.
    FlagStaysOn,
    /// `finish` does not look again after it has set the flag.
    NoSecondLook,
    /// A program is entered without a look at what is pending.
    EnterWithoutLook,
    /// A delivery of a vector that is noted already is not ended.
    MergesWithoutEnd,
    /// The upcall lets interrupts in before it has saved where to return.
    OpenTooEarly,
    /// The service gate lets interrupts in.
    ServiceOpens,
}

/// The machine that runs it.
#[derive(Clone, Copy, Debug)]
struct CpuModel {
    /// KVM ends interrupts when it delivers them.
    ends_early: bool,
    /// SYSCALL enters ring 0.
    enters_ring_0: bool,
    /// The image runs a program instead of halting.
    has_program: bool,
    fault: Fault,
}

/// Where an upcall or call returns, and the vectors it has still to handle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Frame {
    resume: At,
    vectors: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    at: At,
    on: bool,
    pending: u8,
    /// Deliveries of vectors that were pending already.
    merged: u8,
    /// Saved address of the interrupted code, and what it should be.
    resume: At,
    frames: Vec<Frame>,
    /// The interrupted addresses, as they were.
    interrupted: Vec<At>,
    vector: u8,
    /// Raised and not delivered; delivered and not ended.
    raised: u8,
    in_service: u8,
    raises_left: u8,
    /// What handlers reported to the thread.
    work: u8,
    /// Delivered and not handled.
    owed: u8,
}

impl State {
    fn new(machine: CpuModel) -> Self {
        Self {
            at: if machine.has_program {
                At::Enter
            } else {
                At::Disable
            },
            on: true,
            pending: 0,
            merged: 0,
            resume: At::Disable,
            frames: Vec::new(),
            interrupted: Vec::new(),
            vector: 0,
            raised: 0,
            in_service: 0,
            raises_left: RAISES,
            work: 0,
            owed: 0,
        }
    }

    /// Whether hardware interrupts are on before this instruction.
    fn is_open(&self, machine: CpuModel) -> bool {
        match self.at {
            At::GateLook | At::Sti | At::Hlt => false,
            At::Service => machine.fault == Fault::ServiceOpens,
            At::Upcall => machine.fault == Fault::OpenTooEarly || !self.on,
            _ => true,
        }
    }

    fn is_ring_0(&self, machine: CpuModel) -> bool {
        matches!(self.at, At::Halted | At::GateReturn | At::Service)
            || self.at == At::Syscall && machine.enters_ring_0
    }

    /// States after an event of the machine: an interrupt is raised or delivered.
    fn events(&self, machine: CpuModel) -> Vec<Self> {
        let mut next = Vec::new();
        for bit in [1, 2] {
            if self.raises_left > 0 && self.raised & bit == 0 {
                let mut state = self.clone();
                state.raised |= bit;
                state.raises_left -= 1;
                next.push(state);
            }
            // One in service holds back all of the same and lower priority.
            let is_blocked = self.in_service >= bit;
            if self.raised & bit != 0 && !is_blocked && self.is_open(machine) {
                next.push(self.deliver(machine, bit));
            }
        }
        next
    }

    /// The stub of a vector in ring 0.
    fn deliver(&self, machine: CpuModel, bit: u8) -> Self {
        let mut state = self.clone();
        state.raised &= !bit;
        state.owed |= bit;
        if !machine.ends_early {
            state.in_service |= bit;
        }
        let at = if self.at == At::Halted {
            At::GateReturn
        } else {
            self.at
        };
        let was_on = self.on;
        state.on = was_on && machine.fault == Fault::FlagStaysOn;
        if !was_on || self.is_ring_0(machine) {
            state.on = false;
            state.merged += u8::from(state.pending & bit != 0);
            state.pending |= bit;
            state.at = at;
            return state;
        }
        state.resume = at;
        state.interrupted.push(at);
        state.vector = bit;
        state.at = At::Upcall;
        if machine.fault == Fault::OpenTooEarly {
            state.on = true;
        }
        state
    }

    /// The state after the next instruction.
    fn step(&self, machine: CpuModel) -> Vec<Self> {
        let mut state = self.clone();
        state.at = match self.at {
            At::Disable => {
                state.on = false;
                At::Look
            }
            At::Look if self.work != 0 => {
                state.work = 0;
                At::Enable
            }
            At::Look => At::HaltGate,
            At::HaltGate => {
                state.on = false;
                At::GateLook
            }
            At::GateLook if self.pending != 0 && machine.fault != Fault::HaltWithoutLook => {
                At::GateReturn
            }
            At::GateLook => At::Sti,
            At::Sti => At::Hlt,
            At::Hlt | At::Halted => At::Halted,
            At::GateReturn => At::Enable,
            At::Enable => {
                state.on = true;
                At::LookAtPending
            }
            At::LookAtPending if self.pending != 0 => {
                state.call(At::Service);
                At::TurnOff
            }
            At::LookAtPending => At::Service,
            At::Service => self.first(machine),
            At::TurnOff => {
                state.on = false;
                At::AnyPending
            }
            At::AnyPending if self.pending == 0 => At::EndMerged,
            At::AnyPending => At::Swap,
            At::Swap => {
                let pending = std::mem::take(&mut state.pending);
                state.top().vectors |= pending;
                At::Handle
            }
            At::Handle => {
                state.handle();
                match state.top().vectors {
                    0 => At::EndMerged,
                    _ => At::Handle,
                }
            }
            At::EndMerged => {
                for _ in 0..std::mem::take(&mut state.merged) {
                    if machine.fault != Fault::MergesWithoutEnd {
                        state.end();
                    }
                }
                At::FlagOn
            }
            At::FlagOn => {
                state.on = true;
                At::LookAgain
            }
            At::LookAgain if self.pending != 0 && machine.fault != Fault::NoSecondLook => {
                At::TurnOff
            }
            At::LookAgain => At::Return,
            At::Upcall => {
                let resume = self.resume;
                state.call(resume);
                state.top().vectors = self.vector;
                state.handle();
                At::AnyPending
            }
            At::Return => {
                let resume = state.frames.pop().map_or(At::Disable, |frame| frame.resume);
                return state.returned(machine, resume);
            }
            At::Enter => {
                state.on = false;
                At::EnterFlagOn
            }
            At::EnterFlagOn => {
                state.on = true;
                if machine.fault == Fault::EnterWithoutLook {
                    At::Program
                } else {
                    At::EnterLook
                }
            }
            At::EnterLook if self.pending != 0 => {
                state.on = false;
                At::NotEntered
            }
            At::EnterLook => At::Program,
            At::NotEntered => {
                state.on = true;
                state.call(At::Enter);
                At::TurnOff
            }
            At::Program => At::Syscall,
            At::Syscall => {
                state.on = false;
                At::Enable
            }
        };
        vec![state]
    }

    /// A thread's loop begins again, behind a service.
    fn first(&self, machine: CpuModel) -> At {
        if machine.has_program {
            At::Enter
        } else {
            At::Disable
        }
    }

    /// An upcall or call is over. One that interrupted a program, or the last instructions
    /// of its entry, goes back to the library OS.
    fn returned(mut self, machine: CpuModel, resume: At) -> Vec<Self> {
        let is_program = matches!(resume, At::Program | At::EnterLook)
            || resume == At::Syscall && !machine.enters_ring_0;
        self.at = if is_program { At::Enter } else { resume };
        vec![self]
    }

    fn call(&mut self, resume: At) {
        self.frames.push(Frame { resume, vectors: 0 });
    }

    fn top(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("a handler has a frame")
    }

    /// Runs the handler of one vector and ends the interrupt.
    fn handle(&mut self) {
        let vectors = &mut self.top().vectors;
        let bit = *vectors & vectors.wrapping_neg();
        *vectors &= !bit;
        self.work |= bit;
        self.owed &= !bit;
        self.end();
    }

    /// An end is of the highest vector in service, whichever was handled.
    fn end(&mut self) {
        if let Some(highest) = self.in_service.checked_ilog2() {
            self.in_service &= !(1 << highest);
        }
    }

    /// What is wrong with this state.
    fn flaw(&self, machine: CpuModel) -> Option<&'static str> {
        let is_quiet = self.raised == 0;
        match self.at {
            At::Halted | At::Disable | At::Enter
                if self.pending == 0 && self.frames.is_empty() && self.in_service != 0 =>
            {
                Some("an interrupt is never ended")
            }
            At::Halted if is_quiet && self.pending != 0 => Some("halts with a pending interrupt"),
            At::Halted if is_quiet && self.work != 0 => Some("halts with work to do"),
            At::Program if is_quiet && self.pending != 0 => {
                Some("a program runs with a pending interrupt")
            }
            At::Disable | At::Enter if !self.on && self.frames.is_empty() => {
                Some("a thread runs with interrupts off that it has let in")
            }
            At::Disable | At::Enter if self.on && self.pending != 0 => {
                Some("a thread runs with a pending interrupt that may be handled")
            }
            At::Look | At::HaltGate | At::GateLook | At::Handle if self.on => {
                Some("handlers may run where they must not")
            }
            At::Upcall if self.interrupted.last() != Some(&self.resume) => {
                Some("the address to return to is overwritten")
            }
            At::Upcall if machine.fault == Fault::OpenTooEarly && self.on => {
                Some("an upcall may be interrupted before it has saved its return")
            }
            _ => None,
        }
    }
}

/// The first flaw that any interleaving leads to, and how many states there are.
fn explore(machine: CpuModel) -> (Option<&'static str>, usize) {
    let first = State::new(machine);
    let mut seen = HashSet::from([first.clone()]);
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        if let Some(flaw) = state.flaw(machine) {
            return (Some(flaw), seen.len());
        }
        let mut state = state;
        // Only the upcall needs what it interrupted.
        if state.at != At::Upcall {
            state.interrupted.clear();
        }
        let next = state.step(machine).into_iter();
        for state in next.chain(state.events(machine)) {
            if seen.insert(state.clone()) {
                open.push(state);
            }
        }
    }
    (None, seen.len())
}

fn machines(fault: Fault) -> impl Iterator<Item = CpuModel> {
    let all = [false, true];
    all.into_iter().flat_map(move |ends_early| {
        all.into_iter().flat_map(move |enters_ring_0| {
            all.into_iter().map(move |has_program| CpuModel {
                ends_early,
                enters_ring_0,
                has_program,
                fault,
            })
        })
    })
}

#[test]
fn no_interleaving_loses_an_interrupt() {
    for machine in machines(Fault::None) {
        let (flaw, states) = explore(machine);
        assert_eq!(flaw, None, "{machine:?}");
        assert!(states > 1000, "{states} states are too few: {machine:?}");
    }
}

#[test]
fn the_model_finds_faults_that_are_put_in() {
    for fault in [
        Fault::HaltWithoutLook,
        Fault::FlagStaysOn,
        Fault::NoSecondLook,
        Fault::EnterWithoutLook,
        Fault::MergesWithoutEnd,
        Fault::OpenTooEarly,
        Fault::ServiceOpens,
    ] {
        let found = machines(fault).any(|machine| explore(machine).0.is_some());
        assert!(found, "{fault:?} is not found");
    }
}
