/* Reads clocks as programs do, without system calls where the C library can, and then by three. */
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/time.h>
static long long ns(struct timespec t) { return t.tv_sec * 1000000000LL + t.tv_nsec; }
static long long called(int clock) {
    struct timespec t;
    syscall(SYS_clock_gettime, clock, &t);
    return ns(t);
}
static long long mapped(int clock) {
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return ns(t);
}
int main(void) {
    printf("object %d\n", getauxval(AT_SYSINFO_EHDR) != 0);
    int back = 0;
    for (int clock = 0; clock < 8; clock++) {
        if (clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID) continue;
        long long last = mapped(clock);
        for (int i = 0; i < 200; i++) {
            long long now = mapped(clock);
            back += now < last;
            last = now;
        }
    }
    printf("back %d\n", back);
    long long before = mapped(CLOCK_MONOTONIC), between = called(CLOCK_MONOTONIC);
    printf("monotonic in order %d\n", before <= between && between <= mapped(CLOCK_MONOTONIC));
    before = mapped(CLOCK_REALTIME), between = called(CLOCK_REALTIME);
    printf("wall in order %d\n", before <= between && between <= mapped(CLOCK_REALTIME));
    struct timeval tv = {0};
    struct timezone zone = {1, 1};
    printf("timeofday %d\n", gettimeofday(&tv, &zone));
    time_t now, same = time(&now);
    printf("zone %d %d, time %d\n", zone.tz_minuteswest, zone.tz_dsttime, now == same);
    long long wall = tv.tv_sec * 1000000000LL + tv.tv_usec * 1000LL;
    printf("of today %d\n", wall >= before / 1000 * 1000 && tv.tv_usec < 1000000 && now - tv.tv_sec < 2);
    printf("no clock %ld\n", syscall(SYS_clock_gettime, 77, &tv));
    return 0;
}
