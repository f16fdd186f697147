// Time limits and timers that run out, of which each is waited for, and some calls that do not wait.
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static void check(int right, const char *what) {
    if (!right) {
        printf("wrong: %s\n", what);
        exit(1);
    }
}

int main(void) {
    check(prctl(PR_SET_NAME, "ticker") == 0, "prctl");
    // None of these waits.
    for (int i = 0; i < 100; i++) {
        check(poll(NULL, 0, 0) == 0, "poll");
    }
    struct timespec brief = {0, 10 * 1000 * 1000};
    for (int i = 0; i < 5; i++) {
        check(nanosleep(&brief, NULL) == 0, "nanosleep");
    }
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    for (int i = 0; i < 3; i++) {
        struct itimerspec once = {{0, 0}, brief};
        check(timerfd_settime(timer, 0, &once, NULL) == 0, "timerfd_settime");
        uint64_t count = 0;
        check(read(timer, &count, sizeof count) == sizeof count && count == 1, "read");
    }
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm_only, NULL);
    for (int i = 0; i < 4; i++) {
        struct itimerval once = {{0, 0}, {0, 10 * 1000}};
        check(setitimer(ITIMER_REAL, &once, NULL) == 0, "setitimer");
        check(sigwaitinfo(&alarm_only, NULL) == SIGALRM, "sigwaitinfo");
    }
    puts("counted");
    fflush(stdout);
    int queue = epoll_create1(0);
    struct epoll_event event;
    // Until the machine is stopped, ten minutes at most.
    for (int i = 0; i < 60 * 1000; i++) {
        check(epoll_wait(queue, &event, 1, 10) == 0, "epoll_wait");
    }
    return 0;
}
