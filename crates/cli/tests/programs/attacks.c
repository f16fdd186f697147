/* Tries what only a kernel may do, and prints how each attempt ended. Linked as static-pie: nothing
   is then at low addresses on Linux, and the library OS in a machine. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>
static sigjmp_buf back;
static volatile int code;
static void caught(int signal, siginfo_t *info, void *unused) {
    code = info->si_code;
    siglongjmp(back, signal);
}
static const char *name(int signal) {
    static const char *names[] = {[SIGSEGV] = "SIGSEGV", [SIGBUS] = "SIGBUS", [SIGILL] = "SIGILL",
                                  [SIGTRAP] = "SIGTRAP", [SIGFPE] = "SIGFPE"};
    return signal ? names[signal] : "nothing";
}
#define TRY(what, ...) do { \
        code = 0; \
        int signal = sigsetjmp(back, 1); \
        if (!signal) { __VA_ARGS__; } \
        printf("%s: %s, code %d\n", what, name(signal), code); \
    } while (0)
#define INSTRUCTION(text, ...) TRY(text, __asm__ volatile(text : : "a"(0), "c"(0xc0000080), "d"(0x608), ##__VA_ARGS__ : "memory"))

/* The library OS's code, constants, data and stacks, its page tables where ring 3 reads them,
   page 0, the page where CPUs start, APICs, and what no one has. */
static const uint64_t places[] = {
    0, 0x1000, 0x8000, 0x9f000, 0x100000, 0x200000, 0x201000, 0x280000, 0x2ff000, 0x300000, 0x3ff000,
    0xfec00000, 0xfee00000, 0x100000000, 0x700000003000, 0x70000003a000, 0x700000100000, 0x710000300000,
    0x7ffffffff000, 0x800000000000, 0xffff800000000000, 0xffffffffff600000 - 4096, -4096ULL,
};
#define PLACES (sizeof places / sizeof *places)

static int reached(uint64_t from, uint64_t bytes, int how) {
    volatile int count = 0;
    for (volatile uint64_t at = from; at < from + bytes; at += 4096) {
        if (sigsetjmp(back, 1)) continue;
        if (how == 0) (void)*(volatile char *)at;
        else if (how == 1) *(volatile char *)at = 0;
        else ((void (*)(void))at)();
        count++;
    }
    return count;
}

static uint64_t *words;
static void wild(int signal, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    registers[REG_RIP] = words[0];
    registers[REG_EFL] = words[1];
}
static long call(long number) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number) : "rcx", "r11", "memory");
    return result;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    stack_t own = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&own, NULL);
    struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};
    for (int i = 0; i < 5; i++) sigaction(signals[i], &action, NULL);

    for (unsigned i = 0; i < PLACES; i++) {
        char what[64];
        snprintf(what, sizeof what, "read %lx", places[i]);
        TRY(what, (void)*(volatile char *)places[i]);
        snprintf(what, sizeof what, "write %lx", places[i]);
        TRY(what, *(volatile char *)places[i] = 1);
        snprintf(what, sizeof what, "execute %lx", places[i]);
        TRY(what, ((void (*)(void))places[i])());
    }
    /* Each page of the image, and of stacks. */
    for (int how = 0; how < 3; how++)
        printf("pages %d %d\n", reached(0x1000, 0x3ff000, how), reached(0x700000000000, 0x100000, how));

    /* The kernel reads and writes for the program no more than the program may. */
    int ends[2];
    pipe(ends);
    for (unsigned i = 0; i < PLACES; i++) {
        void *at = (void *)places[i];
        struct iovec parts = {at, 8};
        write(ends[1], "12345678", 8);
        long answers[] = {
            syscall(SYS_write, ends[1], at, 8) < 0 ? errno : 0, syscall(SYS_read, ends[0], at, 8) < 0 ? errno : 0,
            syscall(SYS_writev, ends[1], &parts, 1) < 0 ? errno : 0, syscall(SYS_writev, ends[1], at, 1) < 0 ? errno : 0,
            syscall(SYS_open, at, 0) < 0 ? errno : 0, syscall(SYS_uname, at) < 0 ? errno : 0,
            syscall(SYS_futex, at, 1, 1, NULL, NULL, 0) < 0 ? errno : 0,
        };
        printf("calls %lx:", places[i]);
        for (unsigned j = 0; j < sizeof answers / sizeof *answers; j++) printf(" %ld", answers[j]);
        printf("\n");
    }

    INSTRUCTION("in $0x80, %%al");
    INSTRUCTION("out %%al, $0x80");
    INSTRUCTION("out %%eax, %%dx");
    INSTRUCTION("cli");
    INSTRUCTION("sti");
    INSTRUCTION("hlt");
    INSTRUCTION("rdmsr");
    INSTRUCTION("wrmsr");
    INSTRUCTION("mov %%cr0, %%rax");
    INSTRUCTION("mov %%rax, %%cr3");
    INSTRUCTION("mov %%cr2, %%rax");
    INSTRUCTION("mov %%rax, %%dr7");
    INSTRUCTION("lidt (%%rsp)");
    INSTRUCTION("lgdt (%%rsp)");
    INSTRUCTION("ltr %%ax");
    INSTRUCTION("lldt %%ax");
    INSTRUCTION("invlpg (%%rsp)");
    INSTRUCTION("clts");
    INSTRUCTION("wbinvd");
    INSTRUCTION("swapgs");
    INSTRUCTION("sysretq");
    INSTRUCTION("xsetbv");
    INSTRUCTION("int $2");
    INSTRUCTION("int3");
    INSTRUCTION("int $4");
    INSTRUCTION("int $8");
    INSTRUCTION("int $14");
    INSTRUCTION("int $32");
    INSTRUCTION("int $33");
    INSTRUCTION("int $95");
    INSTRUCTION("int $96");
    INSTRUCTION("int $255");
    INSTRUCTION("ud2");
    INSTRUCTION("xor %%ebx, %%ebx; xor %%edx, %%edx; div %%ebx", "b"(0));
    /* Other segments: of ring 0, and none. */
    INSTRUCTION("pushq $0x10; pushq %%rsp; pushfq; pushq $0x8; pushq $0; iretq");
    INSTRUCTION("pushq $0x8; pushq $0; lretq");
    INSTRUCTION("mov $0x10, %%eax; mov %%eax, %%ss");
    /* Single steps, also into a system call and behind a load of SS. */
    INSTRUCTION("pushfq; orq $0x100, (%%rsp); popfq; nop; nop");
    INSTRUCTION("mov %%ss, %%eax; mov %%eax, %%ss; int3");

    /* Stacks that are none, or the library OS's. */
    static const uint64_t stacks[] = {0, 0x800000000000, 0x900000000000, -8ULL, 0x70000003a000, 0x2b0000};
    for (unsigned i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        long pid;
        __asm__ volatile("mov %%rsp, %%rbx; mov %2, %%rsp; syscall; mov %%rbx, %%rsp"
            : "=a"(pid) : "a"(SYS_getpid), "r"(stacks[i]) : "rbx", "rcx", "r11", "memory");
        printf("a call on it: %d\n", pid == getpid());
        for (volatile int turn = 0; turn < 30000000; turn++);
        /* SIGBUS where the address is not canonical, but not on each Linux. */
        int signal = sigsetjmp(back, 1);
        if (!signal) __asm__ volatile("mov %0, %%rsp; push %%rax" : : "r"(stacks[i]) : "memory");
        printf("push on it: %d\n", signal == SIGSEGV || signal == SIGBUS);
        TRY("breakpoint on it", __asm__ volatile("mov %0, %%rsp; int3" : : "r"(stacks[i]) : "memory"));
    }

    /* Where a handler returns to, and with what flags. */
    action.sa_sigaction = wild;
    sigaction(SIGUSR1, &action, NULL);
    static const uint64_t ends_at[] = {0, 0x201000, 0x7ffffffff000, 0x800000000000, -4096ULL};
    for (unsigned i = 0; i < sizeof ends_at / sizeof *ends_at; i++) {
        uint64_t wanted[] = {ends_at[i], 0x3ecd7 | 1ULL << 21};
        words = wanted;
        TRY("return to it", raise(SIGUSR1));
    }

    /* GS is the program's, whatever is in it. */
    TRY("gs", __asm__ volatile("mov $0x1234567800, %%rax; .byte 0xf3, 0x48, 0x0f, 0xae, 0xd8" : : : "rax"));
    printf("calls go on: %d\n", call(SYS_getpid) == getpid());
    for (volatile int turn = 0; turn < 30000000; turn++);
    TRY("a load by it", (void)*(volatile char __seg_gs *)0);
    printf("the end\n");
    return 0;
}
