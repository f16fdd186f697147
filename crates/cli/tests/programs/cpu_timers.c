/* Timers of CPU time; with a word it only waits. Signals are counted against the program's own CPU clocks: a busy host may take
   the CPU for a while, in which several periods pass with one signal. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS 5000000
#define BURN_NS 400000000
#define SAY(what) printf("%s: %d\n", #what, (what))

static volatile int caught, elsewhere;

static long long ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void burn(clockid_t clock, long long until)
{
    while (ns(clock) < until)
        for (volatile int i = 0; i < 10000; i++);
}

static void note(int signal, siginfo_t *info, void *context)
{
    __sync_fetch_and_add(&caught, 1);
    if (info->si_code == SI_TIMER && info->si_value.sival_int != gettid())
        __sync_fetch_and_add(&elsewhere, 1);
}

static void on(int signal)
{
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(signal, &action, 0);
    caught = elsewhere = 0;
}

/* Whether the signals are those of a period, in this time: hardly too many, and not hardly any. Linux,
   which counts the time of `setitimer` by its ticks, gives some more. */
static int fits(int signals, long long used)
{
    long long most = 2 * used / PERIOD_NS + 1, least = used / PERIOD_NS / 10;
    if (signals > most || signals < least)
        printf("%d signals in %lld us\n", signals, used / 1000);
    return signals <= most && signals >= least;
}

static void interval(int which, int signal)
{
    struct itimerval every = {{0, PERIOD_NS / 1000}, {0, PERIOD_NS / 1000}}, was, off = {0};
    on(signal);
    SAY(getitimer(which, &was));
    SAY(was.it_value.tv_sec + was.it_value.tv_usec == 0);
    long long begin = ns(CLOCK_PROCESS_CPUTIME_ID);
    SAY(setitimer(which, &every, 0));
    burn(CLOCK_PROCESS_CPUTIME_ID, begin + BURN_NS);
    int signals = caught;
    SAY(fits(signals, ns(CLOCK_PROCESS_CPUTIME_ID) - begin));
    /* One that waits uses no CPU time. */
    begin = ns(CLOCK_PROCESS_CPUTIME_ID), caught = 0;
    struct timespec rest = {0, 200000000};
    while (nanosleep(&rest, &rest) && errno == EINTR);
    signals = caught;
    SAY(signals <= (ns(CLOCK_PROCESS_CPUTIME_ID) - begin) / PERIOD_NS + 1);
    SAY(setitimer(which, &off, &was));
    SAY(was.it_interval.tv_usec);
    SAY(was.it_value.tv_sec == 0 && was.it_value.tv_usec > 0);
    caught = 0;
    burn(CLOCK_PROCESS_CPUTIME_ID, ns(CLOCK_PROCESS_CPUTIME_ID) + 4 * PERIOD_NS);
    SAY(caught);
    /* Once only. */
    every.it_interval.tv_usec = 0;
    SAY(setitimer(which, &every, 0));
    burn(CLOCK_PROCESS_CPUTIME_ID, ns(CLOCK_PROCESS_CPUTIME_ID) + BURN_NS / 4);
    SAY(caught);
    SAY(getitimer(which, &was));
    SAY(was.it_value.tv_sec + was.it_value.tv_usec == 0);
}

static int create(clockid_t clock, int how, int signal, timer_t *made)
{
    struct sigevent event = {.sigev_notify = how, .sigev_signo = signal};
    event.sigev_value.sival_int = gettid();
    event._sigev_un._tid = gettid();
    return timer_create(clock, &event, made) ? errno : 0;
}

static int set(timer_t timer, int flags, long long first, long long period)
{
    struct itimerspec to = {{period / 1000000000, period % 1000000000}, {first / 1000000000, first % 1000000000}};
    return timer_settime(timer, flags, &to, 0) ? errno : 0;
}

/* A thread with a timer by its clock, as a profiler's; gives how many signals came to it. */
static void *profiled(void *at)
{
    timer_t timer;
    int made = create(CLOCK_THREAD_CPUTIME_ID, SIGEV_SIGNAL | SIGEV_THREAD_ID, SIGPROF, &timer);
    long long begin = ns(CLOCK_THREAD_CPUTIME_ID);
    int was_set = set(timer, 0, PERIOD_NS, PERIOD_NS);
    burn(CLOCK_THREAD_CPUTIME_ID, begin + BURN_NS);
    struct itimerspec now;
    timer_gettime(timer, &now);
    timer_delete(timer);
    *(long long *)at = ns(CLOCK_THREAD_CPUTIME_ID) - begin;
    long rest = now.it_value.tv_nsec, period = now.it_interval.tv_nsec;
    return (void *)(long)(made == 0 && was_set == 0 && rest > 0 && rest <= PERIOD_NS && period == PERIOD_NS);
}

static void threads(void)
{
    pthread_t both[2];
    long long used[2];
    void *sound[2];
    on(SIGPROF);
    for (int i = 0; i < 2; i++)
        pthread_create(&both[i], 0, profiled, &used[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(both[i], &sound[i]);
    SAY(sound[0] && sound[1]);
    SAY(elsewhere);
    SAY(fits(caught, used[0] + used[1]));
}

static volatile int goes_on = 1;

static void *busy(void *at)
{
    while (goes_on)
        for (volatile int i = 0; i < 10000; i++);
    return 0;
}

/* A thread that waits has a timer by the clock of one that runs; the signal is blocked. */
static void of_another(void)
{
    pthread_t thread;
    clockid_t clock;
    timer_t timer, by_process;
    sigset_t set_of;
    siginfo_t info;
    struct timespec long_enough = {60, 0};
    sigemptyset(&set_of);
    sigaddset(&set_of, SIGUSR1);
    sigaddset(&set_of, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set_of, 0);
    pthread_create(&thread, 0, busy, 0);
    SAY(pthread_getcpuclockid(thread, &clock));
    SAY(create(clock, SIGEV_SIGNAL, SIGUSR1, &timer));
    SAY(set(timer, 0, PERIOD_NS, PERIOD_NS));
    SAY(sigtimedwait(&set_of, &info, &long_enough));
    SAY(info.si_code == SI_TIMER && info.si_value.sival_int == gettid());
    /* What passes while the signal waits are overruns. */
    long long begin = ns(clock);
    while (ns(clock) < begin + 20 * PERIOD_NS)
        usleep(1000);
    SAY(sigtimedwait(&set_of, &info, &long_enough));
    SAY(info.si_overrun >= 15 && timer_getoverrun(timer) == info.si_overrun);
    SAY(set(timer, 0, 0, 0));
    /* One may wait that came before. */
    struct timespec no_time = {0};
    sigtimedwait(&set_of, &info, &no_time);
    SAY(create(CLOCK_PROCESS_CPUTIME_ID, SIGEV_SIGNAL, SIGUSR2, &by_process));
    SAY(set(by_process, TIMER_ABSTIME, ns(CLOCK_PROCESS_CPUTIME_ID) + 4 * PERIOD_NS, 0));
    SAY(sigtimedwait(&set_of, &info, &long_enough));
    /* Past already. */
    SAY(set(by_process, TIMER_ABSTIME, 1, 0));
    SAY(sigtimedwait(&set_of, &info, &long_enough));
    goes_on = 0;
    pthread_join(thread, 0);
    /* Linux wakes the joiner before it lets the thread's number go (`exit_mm`, then `release_task`). */
    for (int i = 0; i < 10000 && set(timer, 0, PERIOD_NS, PERIOD_NS) != ESRCH; i++)
        usleep(1000);
    SAY(set(timer, 0, PERIOD_NS, PERIOD_NS));
    SAY(create(clock, SIGEV_SIGNAL, SIGUSR1, &by_process));
    SAY(timer_delete(timer));
}

static void errors(void)
{
    struct itimerval bad = {.it_value = {0, 1000000}}, negative = {.it_interval = {-1, 0}}, was;
    timer_t timer;
    SAY(setitimer(3, &bad, 0) ? errno : 0);
    SAY(setitimer(ITIMER_PROF, &bad, 0) ? errno : 0);
    SAY(setitimer(ITIMER_VIRTUAL, &negative, 0) ? errno : 0);
    SAY(setitimer(3, (void *)16, 0) ? errno : 0);
    SAY(getitimer(3, &was) ? errno : 0);
    SAY(getitimer(ITIMER_PROF, (void *)16) ? errno : 0);
    SAY((int)syscall(SYS_setitimer, ITIMER_PROF, 0, &was));
    SAY(create(CLOCK_MONOTONIC_RAW, SIGEV_NONE, 0, &timer));
    SAY(create((~99999U << 3) | 6, SIGEV_NONE, 0, &timer));
    SAY(create((~99999U << 3) | 2, SIGEV_NONE, 0, &timer));
    SAY(create((~0U << 3) | 6, SIGEV_NONE, 0, &timer));
    SAY(create((~0U << 3) | 7, SIGEV_NONE, 0, &timer));
    SAY(create(CLOCK_THREAD_CPUTIME_ID, SIGEV_SIGNAL, 65, &timer));
    SAY(create(CLOCK_PROCESS_CPUTIME_ID, 99, 10, &timer));
}

/* Waits with timers of each kind. */
static void idle(void)
{
    struct itimerval every = {{0, 1000}, {0, 1000}};
    timer_t timer;
    on(SIGPROF);
    on(SIGVTALRM);
    setitimer(ITIMER_PROF, &every, 0);
    setitimer(ITIMER_VIRTUAL, &every, 0);
    create(CLOCK_THREAD_CPUTIME_ID, SIGEV_SIGNAL, SIGPROF, &timer);
    set(timer, 0, 1000000, 1000000);
    puts("waits");
    fflush(stdout);
    for (;;)
        pause();
}

int main(int count, char **words)
{
    if (count > 1)
        idle();
    interval(ITIMER_PROF, SIGPROF);
    interval(ITIMER_VIRTUAL, SIGVTALRM);
    threads();
    of_another();
    errors();
    return 0;
}
