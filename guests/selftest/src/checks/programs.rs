//! Programs beside the library OS: system calls, faults, interrupts, memory, vector
//! registers. In ring 3 only.

#[cfg(target_os = "none")]
pub(super) use machine::check;

/// The host has no rings.
#[cfg(not(target_os = "none"))]
pub(super) fn check() -> Result<alloc::string::String, alloc::string::String> {
    Ok("not on the host".into())
}

#[cfg(target_os = "none")]
mod machine {
    use alloc::format;
    use alloc::string::String;
    use core::ops::Range;

    use tare_libos::hal::ring::{self, Ring};
    use tare_libos::hal::user::{self, Access, Context, Exit, MapError, Registers, WINDOW};
    use tare_libos::hal::{clock, timer};
    use tare_libos::thread;
    use tare_libos::time::Duration;

    use super::super::ensure::ensure;

    const PAGE: u64 = 4096;
    const READ_WRITE: Access = Access {
        read: true,
        write: true,
        execute: false,
    };
    const READ: Access = Access {
        write: false,
        ..READ_WRITE
    };
    const EXECUTE: Access = Access {
        execute: true,
        ..READ
    };

    /// Programs at multiples of 64 bytes.
    const PROGRAMS: [&[u8]; 7] = [
        // mov eax, 0x1234; syscall; add rax, rbx; syscall
        &[
            0xb8, 0x34, 0x12, 0, 0, 0x0f, 0x05, 0x48, 0x01, 0xd8, 0x0f, 0x05,
        ],
        // Writes 0x5a5a5a5a and 0x3c3c3c3c below its stack, sets CF, loops until the byte
        // at RDI is not 0 (ud2 if CF is lost), loads both into RAX and RBX; syscall
        &[
            0x48, 0xc7, 0x44, 0x24, 0xf8, 0x5a, 0x5a, 0x5a, 0x5a, 0x48, 0xc7, 0x44, 0x24, 0x80,
            0x3c, 0x3c, 0x3c, 0x3c, 0xf9, 0x73, 0x05, 0x80, 0x3f, 0x01, 0xeb, 0x02, 0x0f, 0x0b,
            0x72, 0xf5, 0x48, 0x8b, 0x44, 0x24, 0xf8, 0x48, 0x8b, 0x5c, 0x24, 0x80, 0x0f, 0x05,
        ],
        // mov rax, [rdi]; mov [rsi], rax; syscall
        &[0x48, 0x8b, 0x07, 0x48, 0x89, 0x06, 0x0f, 0x05],
        // movq xmm0, rdi; movq xmm15, rsi; syscall; movq rax, xmm0; movq rbx, xmm15; syscall
        &[
            0x66, 0x48, 0x0f, 0x6e, 0xc7, 0x66, 0x4c, 0x0f, 0x6e, 0xfe, 0x0f, 0x05, 0x66, 0x48,
            0x0f, 0x7e, 0xc0, 0x66, 0x4c, 0x0f, 0x7e, 0xfb, 0x0f, 0x05,
        ],
        // mov rax, fs:[0]; syscall; jmp rdi
        &[
            0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x0f, 0x05, 0xff, 0xe7,
        ],
        // vmovq xmm1, rdi; vinsertf128 ymm1, ymm1, xmm1, 1; syscall;
        // vextractf128 xmm1, ymm1, 1; vmovq rax, xmm1; syscall
        &[
            0xc4, 0xe1, 0xf9, 0x6e, 0xcf, 0xc4, 0xe3, 0x75, 0x18, 0xc9, 0x01, 0x0f, 0x05, 0xc4,
            0xe3, 0x7d, 0x19, 0xc9, 0x01, 0xc4, 0xe1, 0xf9, 0x7e, 0xc8, 0x0f, 0x05,
        ],
        // 1: mov [rdi], rax; jmp 1b
        &[0x48, 0x89, 0x07, 0xeb, 0xfb],
    ];
    const CALL: u64 = 0;
    const SPIN: u64 = 64;
    const TOUCH: u64 = 128;
    const VECTORS: u64 = 192;
    const SEGMENT: u64 = 256;
    const AVX: u64 = 320;
    const STORE: u64 = 384;

    /// Memory of one check: a page of code, one for data, one for the stack.
    struct ProgramMemory {
        code: u64,
        data: u64,
        stack: u64,
    }

    impl ProgramMemory {
        fn new(start: u64) -> Result<Self, String> {
            let place = Self {
                code: start,
                data: start + 2 * PAGE,
                stack: start + 5 * PAGE,
            };
            let failed = |error| format!("map: {error:?}");
            user::map(page(place.code), READ_WRITE).map_err(failed)?;
            for (index, program) in PROGRAMS.iter().enumerate() {
                let written = user::write(place.code + index as u64 * 64, program);
                ensure(written, || format!("program {index} is not written"))?;
            }
            user::protect(page(place.code), EXECUTE).map_err(failed)?;
            user::map(page(place.data), READ_WRITE).map_err(failed)?;
            user::map(page(place.stack - PAGE), READ_WRITE).map_err(failed)?;
            Ok(place)
        }

        fn context(&self, program: u64) -> Context {
            Context::new(Registers {
                rip: self.code + program,
                rsp: self.stack,
                rdi: self.data,
                rsi: self.data,
                ..Registers::default()
            })
        }

        fn remove(self) -> Result<(), String> {
            user::unmap(self.code..self.stack).map_err(|error| format!("unmap: {error:?}"))
        }
    }

    fn page(at: u64) -> Range<u64> {
        at..at + PAGE
    }

    pub(in super::super) fn check() -> Result<String, String> {
        if ring::current() == Ring::Zero {
            return Ok("not in ring 0".into());
        }
        let mut interrupts = 0;
        for core in [0, thread::cores() - 1] {
            interrupts += thread::spawn_on(core, on_this_core).join()?;
        }
        shoots_down()?;
        Ok(format!("interrupts {interrupts}"))
    }

    fn on_this_core() -> Result<u32, String> {
        let place = ProgramMemory::new(WINDOW.start)?;
        calls(&place)?;
        let interrupts = is_interrupted(&place)?;
        faults(&place)?;
        memory(&place)?;
        lent(&place)?;
        vectors(&place)?;
        segment(&place)?;
        place.remove()?;
        Ok(interrupts)
    }

    /// Runs for a millisecond at most.
    fn enter(context: &mut Context) -> Exit {
        context.enter(|| {
            timer::arm(clock::now_ns() + 1_000_000);
            true
        })
    }

    /// Runs until something else than an interrupt.
    fn run(context: &mut Context) -> Exit {
        loop {
            match enter(context) {
                Exit::Interrupt => thread::yield_now(),
                exit => return exit,
            }
        }
    }

    fn expect_call(context: &mut Context) -> Result<(), String> {
        let exit = run(context);
        ensure(exit == Exit::SystemCall, || {
            format!("{exit:x?} at {:#x}", context.registers.rip)
        })
    }

    fn calls(place: &ProgramMemory) -> Result<(), String> {
        let mut context = place.context(CALL);
        context.registers.r15 = 15;
        expect_call(&mut context)?;
        let saved = context.registers;
        ensure(
            saved.rax == 0x1234 && saved.rip == place.code + CALL + 7,
            || format!("{saved:x?}"),
        )?;
        for round in 0..1000 {
            context.registers.rax = round;
            context.registers.rbx = 7;
            context.registers.rip = saved.rip;
            expect_call(&mut context)?;
            let now = context.registers;
            ensure(
                now.rax == round + 7 && now.r15 == 15 && now.rsp == saved.rsp,
                || format!("round {round}: {now:x?}"),
            )?;
        }
        Ok(())
    }

    /// A program that never calls is interrupted, with flags and red zone intact.
    fn is_interrupted(place: &ProgramMemory) -> Result<u32, String> {
        let mut context = place.context(SPIN);
        // A deadline that passes before the program runs ends its run all the same.
        let late = context.enter(|| {
            let deadline = clock::now_ns() + 1000;
            timer::arm(deadline);
            while clock::now_ns() < deadline + 1_000_000 {}
            true
        });
        ensure(late == Exit::Interrupt, || format!("late: {late:x?}"))?;
        let mut interrupts = 0;
        while interrupts < 5 {
            match enter(&mut context) {
                Exit::Interrupt => interrupts += 1,
                exit => return Err(format!("{exit:x?} at {:#x}", context.registers.rip)),
            }
        }
        ensure(user::write(place.data, &[1]), || {
            "data is not written".into()
        })?;
        expect_call(&mut context)?;
        let now = context.registers;
        ensure(now.rax == 0x5a5a_5a5a && now.rbx == 0x3c3c_3c3c, || {
            format!("red zone: {now:x?}")
        })?;
        Ok(interrupts)
    }

    fn expect_fault(context: &mut Context, vector: u8, error: u32, at: u64) -> Result<(), String> {
        let exit = run(context);
        let Exit::Fault {
            vector: got,
            error: code,
            address,
        } = exit
        else {
            return Err(format!("{exit:?} instead of fault {vector}"));
        };
        let is_page_fault = vector == 14;
        let fits = got == vector && (!is_page_fault || code == error && address == at);
        ensure(fits, || {
            format!(
                "{exit:x?} at {:#x}, not {vector} {error:#x} {at:#x}",
                context.registers.rip
            )
        })
    }

    fn faults(place: &ProgramMemory) -> Result<(), String> {
        let hole = place.data + PAGE;
        let mut context = place.context(TOUCH);
        context.registers.rdi = hole;
        expect_fault(&mut context, 14, 4, hole)?;
        ensure(context.registers.rip == place.code + TOUCH, || "RIP".into())?;
        user::map(page(hole), READ).map_err(|error| format!("{error:?}"))?;
        context.registers.rsi = hole;
        expect_fault(&mut context, 14, 7, hole)?;
        user::protect(page(hole), READ_WRITE).map_err(|error| format!("{error:?}"))?;
        expect_call(&mut context)?;
        user::unmap(page(hole)).map_err(|error| format!("{error:?}"))?;
        context.registers.rip = place.code + TOUCH;
        expect_fault(&mut context, 14, 4, hole)?;
        context.registers.rip = place.data;
        expect_fault(&mut context, 14, 0x15, place.data)?;
        context.registers.rip = 1 << 63;
        expect_fault(&mut context, 13, 0, 0)?;
        // Of the spinning program, the invalid instruction.
        context.registers.rip = place.code + SPIN + 26;
        expect_fault(&mut context, 6, 0, 0)
    }

    fn memory(place: &ProgramMemory) -> Result<(), String> {
        let hole = place.data + PAGE;
        let taken = user::map(place.code..place.data, READ_WRITE);
        ensure(taken == Err(MapError::Taken), || format!("{taken:?}"))?;
        let outside = user::map(page(1 << 30), READ_WRITE);
        ensure(outside == Err(MapError::Outside), || format!("{outside:?}"))?;
        let mut bytes = [0; 16];
        let kept = [
            !user::write(place.code, &bytes),
            !user::write(hole - 8, &bytes),
            !user::read(hole - 8, &mut bytes),
            user::load_u32(hole).is_none(),
            user::load_u32(place.data) == Some(1),
            user::is_mapped(place.code..place.code + 3, EXECUTE),
            !user::is_mapped(place.code..place.code + 3, READ_WRITE),
        ];
        ensure(!kept.contains(&false), || format!("{kept:?}"))?;
        // Without any access the contents stay.
        let failed = |error| format!("{error:?}");
        user::protect(page(place.data), Access::default()).map_err(failed)?;
        ensure(!user::read(place.data, &mut bytes), || "readable".into())?;
        user::protect(page(place.data), READ_WRITE).map_err(failed)?;
        ensure(user::load_u32(place.data) == Some(1), || "lost".into())?;
        // More than a table, with a hole.
        let range = WINDOW.start + (1 << 21) - 3 * PAGE..WINDOW.start + (2 << 21) + 5 * PAGE;
        user::map(range.clone(), READ_WRITE).map_err(failed)?;
        ensure(user::is_mapped(range.clone(), READ_WRITE), || {
            "a hole".into()
        })?;
        ensure(user::load_u32(range.end - 4) == Some(0), || {
            "not clear".into()
        })?;
        user::unmap(range.start + PAGE..range.start + 2 * PAGE).map_err(failed)?;
        user::protect(range.clone(), READ).map_err(failed)?;
        ensure(!user::write(range.end - 4, &[1]), || "writable".into())?;
        user::unmap(range).map_err(failed)
    }

    /// A page of the library OS that a program may read stays unchanged.
    fn lent(place: &ProgramMemory) -> Result<(), String> {
        #[repr(align(4096))]
        struct Page([u8; PAGE as usize]);
        static LENT: Page = Page([7; PAGE as usize]);
        let failed = |error| format!("{error:?}");
        let at = page(place.data + PAGE);
        let writable = user::lend(at.start, &LENT.0, READ_WRITE);
        ensure(writable == Err(MapError::Outside), || {
            format!("{writable:?}")
        })?;
        user::lend(at.start, &LENT.0, READ).map_err(failed)?;
        user::protect(at.clone(), READ_WRITE).map_err(failed)?;
        ensure(!user::write(at.start, &[1]), || "writable".into())?;
        ensure(user::load_u32(at.start) == Some(0x0707_0707), || {
            "not readable".into()
        })?;
        user::unmap(at).map_err(failed)
    }

    /// Two threads of programs keep their vector registers.
    fn vectors(place: &ProgramMemory) -> Result<(), String> {
        for program in [VECTORS, AVX] {
            let mut contexts = [1, 2].map(|number| {
                let mut context = place.context(program);
                context.registers.rdi = number;
                context.registers.rsi = number + 10;
                context
            });
            for context in &mut contexts {
                let exit = run(context);
                if program == AVX && matches!(exit, Exit::Fault { vector: 6, .. }) {
                    // This processor has none.
                    return Ok(());
                }
                ensure(exit == Exit::SystemCall, || format!("vectors: {exit:x?}"))?;
            }
            let saved = contexts[1].vectors().bytes()[160..168].to_vec();
            let expected = if program == AVX { 0 } else { 2 };
            ensure(saved[0] == expected, || {
                format!("{program}: saved {saved:?}")
            })?;
            for (context, number) in contexts.iter_mut().zip([1, 2]) {
                expect_call(context)?;
                ensure(context.registers.rax == number, || {
                    format!("{program}: {number}: {:x?}", context.registers)
                })?;
            }
        }
        Ok(())
    }

    fn segment(place: &ProgramMemory) -> Result<(), String> {
        let mut contexts = [0x100, 0x200].map(|offset| {
            let mut context = place.context(SEGMENT);
            context.registers.fs_base = place.data + offset;
            context
        });
        for context in &mut contexts {
            let base = context.registers.fs_base;
            let written = user::write(base, &base.to_le_bytes());
            ensure(written, || "data is not written".into())?;
            expect_call(context)?;
            ensure(context.registers.rax == base, || {
                format!("{:x?}", context.registers)
            })?;
        }
        Ok(())
    }

    /// A program on one core loses a page that another core unmaps.
    fn shoots_down() -> Result<(), String> {
        let place = ProgramMemory::new(WINDOW.start + (1 << 30))?;
        let (code, data, stack) = (place.code, place.data, place.stack);
        let writer = thread::spawn_on(thread::cores() - 1, move || {
            let place = ProgramMemory { code, data, stack };
            let mut context = place.context(STORE);
            context.registers.rax = 5;
            expect_fault(&mut context, 14, 6, data)
        });
        while user::load_u32(data) != Some(5) {
            thread::sleep(Duration::from_micros(100));
        }
        user::unmap(page(data)).map_err(|error| format!("{error:?}"))?;
        if thread::cores() == 1 {
            // The writer notices when it runs again.
            thread::yield_now();
        }
        writer.join()?;
        place.remove()
    }
}
