/* Threads, signals, memory, files and time of one process; a line for each. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum;
static volatile sig_atomic_t hits;
static volatile double scratch;
static sigjmp_buf back;

static void *work(void *number)
{
    for (int i = 0; i < 10000; i++) {
        pthread_mutex_lock(&lock);
        sum += (long)number;
        pthread_mutex_unlock(&lock);
    }
    return number;
}

static void count(int signal)
{
    hits++;
    scratch = hits * 1.5;
}

static void faulted(int signal, siginfo_t *info, void *context)
{
    siglongjmp(back, info->si_addr == (void *)16 ? 1 : 2);
}

int main(void)
{
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, work, (void *)(i + 1));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    printf("sum %ld\n", sum);

    struct sigaction counts = {.sa_handler = count};
    sigaction(SIGUSR1, &counts, 0);
    double kept = 2.25;
    for (int i = 0; i < 10; i++) {
        raise(SIGUSR1);
        kept += 0.5;
    }
    printf("signals %d, kept %.2f\n", (int)hits, kept);

    struct sigaction faults = {.sa_sigaction = faulted, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &faults, 0);
    int how = sigsetjmp(back, 1);
    if (how == 0)
        *(volatile int *)16 = 1;
    printf("fault %d\n", how);
    /* The image's code is at 2 MiB: it cannot be written. */
    if (sigsetjmp(back, 1) == 0) {
        *(volatile char *)0x200000 = 0;
        return 1;
    }

    char *page = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(page, "kept");
    mprotect(page, 4096, PROT_NONE);
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    page = mremap(page, 1 << 20, 4 << 20, MREMAP_MAYMOVE);
    printf("memory %s\n", page);
    munmap(page, 4 << 20);

    char text[20] = {0};
    int file = open("/tmp/file", O_RDWR | O_CREAT, 0600);
    write(file, "some bytes", 10);
    lseek(file, 5, SEEK_SET);
    read(file, text, 19);
    printf("file %s\n", text);

    volatile long nowhere = 8;
    int written = write(1, (void *)nowhere, 4);
    printf("pointer %d %d\n", written, errno == EFAULT);

    struct timespec start, end, pause = {0, 20000000};
    clock_gettime(CLOCK_MONOTONIC, &start);
    nanosleep(&pause, 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    long slept = (end.tv_sec - start.tv_sec) * 1000000000 + end.tv_nsec - start.tv_nsec;
    printf("slept %d\n", slept >= 20000000);
    printf("variable %s\n", getenv("KEY"));
    fflush(stdout);
    kill(getpid(), SIGTERM);
    pause.tv_sec = 5;
    nanosleep(&pause, 0);
    return 9;
}
