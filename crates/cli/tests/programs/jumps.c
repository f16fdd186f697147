/* Makes calls so often that they become jumps, with waits, threads and signals around them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#define CALLS 100
static int waits[2], again[2];
static volatile int alarms;
static void on_alarm(int s) { alarms++; }
static void *waiter(void *unused) {
    /* Waits in the call that becomes a jump meanwhile. */
    char byte = 0;
    long got = read(waits[0], &byte, 1);
    printf("waited for %ld, %c\n", got, byte);
    return NULL;
}
/* Writes when the call that waits has been interrupted, whenever this thread runs. */
static void *late(void *unused) {
    while (alarms < 2) usleep(10000);
    write(again[1], "y", 1);
    return NULL;
}
static long bytes(int fd, int writes) {
    char some[64] = {0};
    long sum = 0;
    for (int i = 0; i < CALLS; i++) sum += writes ? write(fd, some, sizeof some) : read(fd, some, sizeof some);
    return sum;
}
/* Five arguments survive, and so do registers and what is below the stack pointer. */
static long leaf(int fd, long a, long b) {
    volatile long below[8] = {a, b, a + b};
    long sum = 0;
    for (int i = 0; i < CALLS; i++) {
        register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0;
        long result, rbx = a, r12 = b;
        __asm__ volatile("mov $17, %%eax\n\tsyscall" /* pread64 */
            : "=a"(result), "+r"(rbx), "+r"(r12)
            : "D"(fd), "S"(below + 4), "d"(8), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
        sum += result + (rbx == a) + (r12 == b) + (below[2] == a + b);
    }
    return sum;
}
/* Calls whose number is not just before them, with what compilers put behind. */
#define CALL(name, behind) \
    long name(long number, long a, void *b, long c); \
    __asm__(".text\n.balign 16\n" #name ":\n\tmov %rdi, %rax\n\tmov %rsi, %rdi\n\tmov %rdx, %rsi\n\t" \
            "mov %rcx, %rdx\n\tjmp 1f\n.balign 16\n1:\tsyscall\n\t" behind "\n.balign 16\n");
CALL(returns, "ret")
CALL(moves, "mov %rax, %rcx\n\tmov %rcx, %rax\n\tret")
CALL(stores, "mov %eax, -24(%rsp)\n\tmovslq -24(%rsp), %rax\n\tret")
CALL(compares, "cmp $-4096, %eax\n\tja 2f\n\tret\n2:\tmov $-1, %rax\n\tret")
static long other_forms(int fd, int null) {
    char some[64] = {0};
    long sum = 0;
    for (int i = 0; i < CALLS; i++) {
        sum += returns(SYS_read, fd, some, 3) + moves(SYS_read, fd, some, 5);
        sum += stores(SYS_write, null, some, 7) + compares(SYS_read, fd, some, 11);
        sum += returns(SYS_read, 99, some, 3) + compares(SYS_read, 99, some, 3);
    }
    return sum;
}
int main(void) {
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    pthread_t thread;
    if (pipe(waits) || pipe(again)) return 1;
    pthread_create(&thread, NULL, waiter, NULL);
    usleep(50000);
    printf("read %ld\n", bytes(zero, 0));
    printf("written %ld\n", bytes(null, 1));
    long ids = 0, bad = 0, none = 0;
    for (int i = 0; i < CALLS; i++) {
        ids += syscall(SYS_getpid) == getpid();
        bad += read(99, &ids, 8) == -1 && errno == EBADF;
        none += write(null, (void *)8, 8) == 8 || errno == EFAULT;
    }
    printf("ids %ld, bad %ld, none %ld\n", ids, bad, none);
    printf("leaf %ld\n", leaf(zero, 11, 31));
    printf("other forms %ld\n", other_forms(zero, null));
    write(waits[1], "x", 1);
    pthread_join(thread, NULL);
    /* Signals that end a call, or let it begin again. They repeat: the first may come before it. */
    for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
        struct sigaction action = { .sa_handler = on_alarm, .sa_flags = flags };
        sigaction(SIGALRM, &action, NULL);
        alarms = 0;
        struct itimerval soon = { .it_value = { 0, 30000 }, .it_interval = { 0, 30000 } };
        setitimer(ITIMER_REAL, &soon, NULL);
        const struct itimerval never = {0};
        char byte;
        if (flags) {
            pthread_t other;
            pthread_create(&other, NULL, late, NULL);
            long got = read(again[0], &byte, 1);
            printf("began again %ld %c, alarms %d\n", got, byte, alarms > 0);
            pthread_join(other, NULL);
        } else {
            long got = read(again[0], &byte, 1);
            printf("ended %ld %d, alarms %d\n", got, got < 0 ? errno : 0, alarms > 0);
        }
        setitimer(ITIMER_REAL, &never, NULL);
    }
    struct pollfd none_ready = { again[0], POLLIN, 0 };
    long polls = 0;
    for (int i = 0; i < CALLS; i++) polls += poll(&none_ready, 1, 0);
    printf("polls %ld\n", polls);
    return 0;
}
