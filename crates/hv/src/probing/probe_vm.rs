//! The temporary machine: one vCPU in 64-bit ring 0 with identity-mapped memory, an interrupt table
//! whose handlers halt at known addresses, and a watchdog that ends a hung run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use kvm_bindings::{CpuId, kvm_cpuid_entry2, kvm_regs, kvm_sregs};
use vm_memory::{Bytes, GuestAddress};

use super::ProbeError;
use super::guest_setup::{
    CODE, DATA, DATA_BYTES, HANDLER_STRIDE, HANDLERS, HLT, IDT, MEMORY_BYTES, STACK_TOP, VECTORS,
    mode, set_up_memory,
};
use crate::disable_exits::DisableExits;
use crate::kvm::Kvm;
use crate::memory::guest_memory;
use crate::probe::feature::{FSGSBASE, XSAVE};
use crate::probe::instructions::{End, INSTRUCTIONS, Instruction};
use crate::probe::{Capabilities, InstructionResult, KvmKind, ProbeOutcome};
use crate::stats::{StatsError, StatsFd};
use crate::vcpu::{Exit, Vcpu, set_mode};
use crate::vm::Vm;

const CR4_OSFXSR: u64 = 1 << 9;
const CR4_OSXMMEXCPT: u64 = 1 << 10;
const CR4_FSGSBASE: u64 = 1 << 16;
const CR4_OSXSAVE: u64 = 1 << 18;

/// A run of ordinary code: `mov ecx, 200; 1: dec ecx; jnz 1b; hlt`.
const LOOP: [u8; 10] = [0xb9, 200, 0, 0, 0, 0xff, 0xc9, 0x75, 0xfc, HLT];
pub(super) const LOOP_INSTRUCTIONS: u64 = 1 + 2 * 200 + 1;
/// A bound between the slowest hardware and the fastest emulator: on hardware the loop takes one
/// exit (some microseconds), emulated 200 to 1000 ns an instruction.
const EMULATED_NS_PER_INSTRUCTION: u128 = 100;
const TIMED_RUNS: usize = 3;

const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a vCPU is left halted.
const HALT: Duration = Duration::from_millis(20);

/// The temporary machine.
pub(super) struct ProbeVm {
    vm: Vm,
    vcpu: Vcpu,
    stats: Option<StatsFd>,
    /// Runs that began.
    began: Arc<AtomicU64>,
    /// The watchdog ended the run that is under way.
    overdue: Arc<AtomicBool>,
}

/// The result of the loop of ordinary code.
pub(super) struct Ordinary {
    /// Instructions emulated, where KVM counts them.
    pub(super) emulated: Option<u64>,
    /// The fastest run.
    pub(super) time: Duration,
}

impl Ordinary {
    pub(super) fn kind(&self) -> KvmKind {
        let slow = self.time.as_nanos() / u128::from(LOOP_INSTRUCTIONS);
        let emulated = match self.emulated {
            Some(count) => count >= LOOP_INSTRUCTIONS / 2,
            None => slow >= EMULATED_NS_PER_INSTRUCTION,
        };
        if emulated {
            KvmKind::Emulated
        } else {
            KvmKind::Hardware
        }
    }
}

impl ProbeVm {
    pub(super) fn open(
        kvm: &Kvm,
        supported: &[kvm_cpuid_entry2],
    ) -> Result<(Self, Capabilities), ProbeError> {
        Self::set_up(
            Vm::without_irqchip(kvm, &guest_memory(MEMORY_BYTES)?)?,
            kvm,
            supported,
        )
    }

    /// A machine whose HLT should not exit.
    pub(super) fn without_halt_exits(
        kvm: &Kvm,
        supported: &[kvm_cpuid_entry2],
    ) -> Result<Self, ProbeError> {
        let vm = Vm::without_irqchip(kvm, &guest_memory(MEMORY_BYTES)?)?;
        vm.disable_exits(DisableExits::HLT)?;
        Ok(Self::set_up(vm, kvm, supported)?.0)
    }

    fn set_up(
        vm: Vm,
        kvm: &Kvm,
        supported: &[kvm_cpuid_entry2],
    ) -> Result<(Self, Capabilities), ProbeError> {
        let vcpu = Vcpu::bare(&vm, 0)?;
        let capabilities = Capabilities::read(kvm, vm.fd(), vcpu.fd().get_tsc_khz().ok());
        let stats = match vcpu.stats() {
            Ok(stats) => Some(stats),
            Err(StatsError::Unavailable(_)) => None,
            Err(error) => return Err(ProbeError::Stats(error)),
        };
        let probe_vm = Self {
            vm,
            vcpu,
            stats,
            began: Arc::default(),
            overdue: Arc::default(),
        };
        set_up_memory(probe_vm.vm.memory())?;
        probe_vm.set_processor(supported)?;
        Ok((probe_vm, capabilities))
    }

    /// Runs `work` under a watchdog, which ends a run that takes longer than [`TIMEOUT`].
    pub(super) fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let (done, waiting) = mpsc::channel::<()>();
        let kick_handle = self.vcpu.kick_handle();
        let (began, overdue) = (Arc::clone(&self.began), Arc::clone(&self.overdue));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut seen = began.load(Ordering::Acquire);
                while waiting.recv_timeout(TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
                    let last = began.load(Ordering::Acquire);
                    if last == seen {
                        overdue.store(true, Ordering::Release);
                        kick_handle.kick();
                    }
                    seen = last;
                }
            });
            let result = work(self);
            drop(done);
            result
        })
    }

    /// The loop of ordinary code, counted and timed.
    pub(super) fn ordinary_code(&mut self) -> Result<Ordinary, ProbeError> {
        let mut time = Duration::MAX;
        let before = self.emulated()?;
        for _ in 0..TIMED_RUNS {
            let begin = Instant::now();
            match self.execute(&LOOP, End::Next)? {
                ProbeOutcome::Works => time = time.min(begin.elapsed()),
                outcome => return Err(ProbeError::Unusable { outcome }),
            }
        }
        let emulated = self.emulated()?.zip(before);
        Ok(Ordinary {
            emulated: emulated.map(|(after, before)| (after - before) / TIMED_RUNS as u64),
            time,
        })
    }

    /// Halts; true if KVM did not take part.
    pub(super) fn halts_natively(&mut self) -> Result<bool, ProbeError> {
        let memory = self.vm.memory();
        memory.write_slice(&[HLT], GuestAddress(CODE))?;
        self.set_registers()?;
        let kick_handle = self.vcpu.kick_handle();
        let (done, waiting) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while waiting.recv_timeout(HALT) == Err(mpsc::RecvTimeoutError::Timeout) {
                    kick_handle.kick();
                }
            });
            let exit = self
                .vcpu
                .run()
                .map(|exit| matches!(exit, Exit::Interrupted));
            drop(done);
            Ok(exit?)
        })
    }

    fn emulated(&self) -> Result<Option<u64>, ProbeError> {
        match &self.stats {
            Some(stats) => stats.scalar("insn_emulation").map_err(ProbeError::Stats),
            None => Ok(None),
        }
    }

    /// CPUID as the guest sees it, for the leaves with features. Some KVMs ignore the table that
    /// was set.
    pub(super) fn visible_cpuid(&mut self) -> Result<Vec<kvm_cpuid_entry2>, ProbeError> {
        let mut places: Vec<_> = INSTRUCTIONS
            .iter()
            .filter_map(|instruction| instruction.feature)
            .map(|feature| feature.place())
            .collect();
        places.sort_unstable();
        places.dedup();
        places
            .into_iter()
            .map(|(leaf, index)| self.cpuid(leaf, index))
            .collect()
    }

    fn cpuid(&mut self, leaf: u32, index: u32) -> Result<kvm_cpuid_entry2, ProbeError> {
        let [a, b, c, d] = leaf.to_le_bytes();
        let [i, j, k, l] = index.to_le_bytes();
        // mov eax, leaf; mov ecx, index; cpuid
        let code = [0xb8, a, b, c, d, 0xb9, i, j, k, l, 0x0f, 0xa2];
        match self.execute(&code, End::Next)? {
            ProbeOutcome::Works => {}
            outcome => return Err(ProbeError::Unusable { outcome }),
        }
        let regs = self.registers()?;
        Ok(kvm_cpuid_entry2 {
            function: leaf,
            index,
            eax: regs.rax as u32,
            ebx: regs.rbx as u32,
            ecx: regs.rcx as u32,
            edx: regs.rdx as u32,
            ..Default::default()
        })
    }

    /// Each instruction that CPUID offers to the guest.
    pub(super) fn try_instructions(
        &mut self,
        visible: &[kvm_cpuid_entry2],
    ) -> Result<Vec<InstructionResult>, ProbeError> {
        let offered = |instruction: &Instruction| match instruction.feature {
            Some(feature) => feature.is_in(visible),
            None => true,
        };
        INSTRUCTIONS
            .iter()
            .map(|instruction| {
                let outcome = if offered(instruction) {
                    self.execute(instruction.code, instruction.ends_in)?
                } else {
                    ProbeOutcome::NotOffered
                };
                Ok(InstructionResult {
                    instruction,
                    outcome,
                })
            })
            .collect()
    }

    /// Runs code; once more if it hung: a process that was stopped in between looks the same.
    fn execute(&mut self, code: &[u8], expected: End) -> Result<ProbeOutcome, ProbeError> {
        match self.execute_once(code, expected)? {
            ProbeOutcome::Hung => self.execute_once(code, expected),
            outcome => Ok(outcome),
        }
    }

    fn execute_once(&mut self, code: &[u8], expected: End) -> Result<ProbeOutcome, ProbeError> {
        let memory = self.vm.memory();
        memory.write_slice(&[0; DATA_BYTES], GuestAddress(DATA))?;
        memory.write_slice(code, GuestAddress(CODE))?;
        let end = CODE + code.len() as u64;
        memory.write_slice(&[HLT], GuestAddress(end))?;
        self.set_registers()?;
        self.began.fetch_add(1, Ordering::Release);
        self.run_to_halt(end, expected)
    }

    fn run_to_halt(&mut self, end: u64, expected: End) -> Result<ProbeOutcome, ProbeError> {
        loop {
            match self.vcpu.run()? {
                Exit::Hlt => break,
                Exit::Interrupted if self.overdue.swap(false, Ordering::AcqRel) => {
                    return Ok(ProbeOutcome::Hung);
                }
                Exit::Interrupted => {}
                Exit::InternalError(_) => return Ok(ProbeOutcome::NotEmulated),
                _ => return Ok(ProbeOutcome::Lost),
            }
        }
        let rip = self.registers()?.rip;
        Ok(match halted_at(rip, end) {
            Some(reached) if reached == expected => ProbeOutcome::Works,
            Some(End::Vector(vector)) => ProbeOutcome::Fault(vector),
            _ => ProbeOutcome::Lost,
        })
    }

    fn registers(&self) -> Result<kvm_regs, ProbeError> {
        self.vcpu
            .fd()
            .get_regs()
            .map_err(step("read the registers"))
    }

    fn set_registers(&self) -> Result<(), ProbeError> {
        let regs = kvm_regs {
            rip: CODE,
            rsp: STACK_TOP,
            rax: 3,
            rdi: DATA,
            rflags: 2,
            ..Default::default()
        };
        self.vcpu
            .fd()
            .set_regs(&regs)
            .map_err(step("set the registers"))
    }

    fn set_processor(&self, supported: &[kvm_cpuid_entry2]) -> Result<(), ProbeError> {
        let fd = self.vcpu.fd();
        let cpuid = CpuId::from_entries(supported)
            .map_err(|_| ProbeError::Cpuid(kvm_ioctls::Error::new(libc::E2BIG)))?;
        fd.set_cpuid2(&cpuid).map_err(step("set the CPUID"))?;
        let mut sregs: kvm_sregs = fd.get_sregs().map_err(step("read the system registers"))?;
        set_mode(&mut sregs, mode());
        sregs.idt.base = IDT;
        sregs.idt.limit = (16 * VECTORS - 1) as u16;
        sregs.cr4 |= CR4_OSFXSR | CR4_OSXMMEXCPT;
        for (feature, bit) in [(FSGSBASE, CR4_FSGSBASE), (XSAVE, CR4_OSXSAVE)] {
            if feature.is_in(supported) {
                sregs.cr4 |= bit;
            }
        }
        fd.set_sregs(&sregs)
            .map_err(step("set the system registers"))
    }
}

/// Where execution halted, from the address after its HLT.
fn halted_at(rip: u64, end: u64) -> Option<End> {
    // The loop has its own HLT just before `end`.
    if rip == end || rip == end + 1 {
        return Some(End::Next);
    }
    let handler = rip.checked_sub(HANDLERS + 1)?;
    let vector = handler / HANDLER_STRIDE;
    (handler % HANDLER_STRIDE == 0 && vector < VECTORS).then_some(End::Vector(vector as u8))
}

fn step(step: &'static str) -> impl FnOnce(kvm_ioctls::Error) -> ProbeError {
    move |source| ProbeError::Step { step, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_halt_tells_where_the_code_went() {
        assert_eq!(halted_at(CODE + 4, CODE + 3), Some(End::Next));
        assert_eq!(halted_at(HANDLERS + 6 * 16 + 1, CODE), Some(End::Vector(6)));
        assert_eq!(halted_at(HANDLERS + 6 * 16 + 2, CODE), None);
        assert_eq!(halted_at(0, CODE), None);
        assert_eq!(halted_at(HANDLERS + 32 * 16 + 1, CODE), None);
    }

    #[test]
    fn the_count_decides_before_the_clock() {
        let ordinary = |emulated, micros| Ordinary {
            emulated,
            time: Duration::from_micros(micros),
        };
        assert_eq!(ordinary(Some(402), 1).kind(), KvmKind::Emulated);
        assert_eq!(ordinary(Some(1), 900).kind(), KvmKind::Hardware);
        assert_eq!(ordinary(None, 300).kind(), KvmKind::Emulated);
        assert_eq!(ordinary(None, 10).kind(), KvmKind::Hardware);
    }

    #[test]
    fn a_pause_between_two_runs_ends_neither() {
        let Some(kvm) = tare_vmtest::or_skip(Kvm::open()) else {
            return;
        };
        let supported = super::super::supported_cpuid(&kvm).unwrap();
        let (mut vm, _) = ProbeVm::open(&kvm, &supported).unwrap();
        vm.guarded(|vm| {
            vm.ordinary_code().unwrap();
            std::thread::sleep(TIMEOUT + TIMEOUT / 4);
            vm.ordinary_code().unwrap();
        });
    }
}
