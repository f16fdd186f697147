/* Calls that some programs ask for: identities, signals as files, files without a name, positions with
   flags, hints, scheduling and how connections end. A line for each. */
#define _GNU_SOURCE
#include "lines.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

static void three(int call)
{
    unsigned a = 7, b = 7, c = 7;
    T(syscall(call, &a, &b, &c));
    T(a * 1000000 + b * 1000 + c);
}

/* Raw calls change one thread. */
static void *as_others(void *unused)
{
    unsigned g[4];
    T(syscall(SYS_setgroups, 3, (unsigned[]){10, 20, 30}));
    T(syscall(SYS_getgroups, 0, 0));
    T(syscall(SYS_getgroups, 2, g));
    T(syscall(SYS_getgroups, -1, g));
    T(syscall(SYS_getgroups, 4, BAD));
    T(syscall(SYS_getgroups, 4, g));
    T(g[0] * 10000 + g[1] * 100 + g[2]);
    T(syscall(SYS_setgroups, 70000, g));
    T(syscall(SYS_setgroups, 1, BAD));
    T(syscall(SYS_setgroups, -1, g));
    T(syscall(SYS_setresgid, 50, 51, 52));
    three(SYS_getresgid);
    T(syscall(SYS_setregid, -1, 53));
    three(SYS_getresgid);
    T(syscall(SYS_setgid, -1));
    T(syscall(SYS_setgid, 54));
    three(SYS_getresgid);
    T(syscall(SYS_setfsgid, -1));
    T(syscall(SYS_setresuid, -1, 7, -1));
    three(SYS_getresuid);
    T(syscall(SYS_setuid, 8));
    T(syscall(SYS_setgid, 8));
    T(syscall(SYS_setgid, 54));
    T(syscall(SYS_setgroups, 0, 0));
    T(syscall(SYS_setfsuid, -1));
    T(syscall(SYS_setreuid, -1, 0));
    three(SYS_getresuid);
    T(syscall(SYS_setreuid, -1, 9));
    three(SYS_getresuid);
    T(syscall(SYS_setreuid, 9, 0));
    three(SYS_getresuid);
    T(syscall(SYS_setresuid, 1, 2, 3));
    T(syscall(SYS_setresuid, 3, 1, 2));
    T(syscall(SYS_setresuid, 4, -1, -1));
    T(syscall(SYS_setreuid, 2, -1));
    T(syscall(SYS_setreuid, 1, -1));
    T(syscall(SYS_setuid, 2));
    three(SYS_getresuid);
    T(syscall(SYS_getuid));
    T(syscall(SYS_geteuid));
    T(syscall(SYS_getgid));
    T(syscall(SYS_getegid));
    return 0;
}

/* As user 0 with the capabilities to become others. */
static void identities(void)
{
    pthread_t thread;
    pthread_create(&thread, 0, as_others, 0);
    pthread_join(thread, 0);
    three(SYS_getresuid);
    T(setuid(0));
    T(setgid(getgid()));
    T(seteuid(geteuid()));
}

static void own_identities(void)
{
    unsigned header[2] = {1, 0}, data[6], word;
    T(syscall(SYS_getresuid, BAD, &word, &word));
    T(syscall(SYS_getresgid, &word, BAD, &word));
    T(syscall(SYS_setuid, -1));
    T(setuid(getuid()));
    T(setreuid(-1, -1));
    T(setresgid(-1, -1, -1));
    T(setregid(getgid(), getegid()));
    T(syscall(SYS_setfsuid, -1) == geteuid());
    T(syscall(SYS_capget, BAD, data));
    T(syscall(SYS_capget, header, data));
    T(header[0] == 0x20080522);
    header[0] = 1;
    T(syscall(SYS_capget, header, 0));
    T(syscall(SYS_capget, header, data));
    T(syscall(SYS_capget, header, BAD));
    header[1] = -1;
    T(syscall(SYS_capget, header, data));
    header[1] = 99999;
    T(syscall(SYS_capget, header, data));
    T(syscall(SYS_capset, header, data));
    header[1] = 0;
    T(syscall(SYS_capset, header, BAD));
    T(syscall(SYS_capset, header, data));
    header[0] = 2;
    T(syscall(SYS_capset, header, data));
}

static volatile int handled;

static void handle(int signal)
{
    handled++;
}

/* A record's signal, code, sender's user and value. */
static void fields(const struct signalfd_siginfo *one)
{
    printf("%u %d %u %u %d\n", one->ssi_signo, one->ssi_code, one->ssi_uid, one->ssi_overrun, one->ssi_int);
}

static void *send_later(void *main)
{
    usleep(20000);
    pthread_kill(*(pthread_t *)main, SIGUSR1);
    return 0;
}

static void signal_files(void)
{
    struct signalfd_siginfo got[4];
    sigset_t set, other;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN);
    sigaddset(&set, SIGKILL);
    sigemptyset(&other);
    sigaddset(&other, SIGUSR2);
    T(signalfd(-1, &set, 1));
    T(syscall(SYS_signalfd4, -1, &set, 4, 0));
    T(syscall(SYS_signalfd4, -1, BAD, 8, 0));
    T(signalfd(99, &set, 0));
    T(signalfd(1, &set, 0));
    sigprocmask(SIG_BLOCK, &set, 0);
    sigprocmask(SIG_BLOCK, &other, 0);
    int f = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    T(f >= 0);
    T(fcntl(f, F_GETFD));
    T(fcntl(f, F_GETFL));
    T(read(f, got, sizeof got));
    T(read(f, got, 127));
    T(write(f, got, 128));
    T(pread(f, got, 128, 0));
    T(lseek(f, 0, SEEK_SET));
    T(raise(SIGUSR1));
    T(raise(SIGUSR2));
    T(kill(getpid(), SIGUSR1));
    T(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 5}));
    T(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 6}));
    struct pollfd one = {f, POLLIN | POLLOUT, 0};
    T(poll(&one, 1, 0));
    T(one.revents);
    T(read(f, got, 200));
    fields(got);
    T(got[0].ssi_pid == getpid());
    T(read(f, got, sizeof got));
    for (int i = 0; i < 3; i++)
        fields(got + i);
    T(read(f, got, sizeof got));
    T(poll(&one, 1, 0));
    /* Another set on the same file: what waits is there at once. */
    T(signalfd(f, &other, 0) == f);
    T(poll(&one, 1, 0));
    T(read(f, BAD, 128));
    T(raise(SIGUSR2));
    T(read(f, got, 128));
    fields(got);
    /* In an event queue, by level and by edge. */
    signalfd(f, &set, 0);
    int e = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.u32 = 1}};
    T(epoll_ctl(e, EPOLL_CTL_ADD, f, &event));
    T(epoll_wait(e, &event, 1, 0));
    T(raise(SIGUSR1));
    T(epoll_wait(e, &event, 1, 0));
    T(epoll_wait(e, &event, 1, 0));
    T(read(f, got, 128));
    T(epoll_wait(e, &event, 1, 0));
    event.events = EPOLLIN | EPOLLET;
    T(epoll_ctl(e, EPOLL_CTL_MOD, f, &event));
    T(raise(SIGUSR1));
    T(epoll_wait(e, &event, 1, 1000));
    T(epoll_wait(e, &event, 1, 0));
    /* Waiting for one, by the queue and by a read. */
    pthread_t self = pthread_self(), thread;
    T(read(f, got, 128));
    pthread_create(&thread, 0, send_later, &self);
    T(epoll_wait(e, &event, 1, 10000));
    pthread_join(thread, 0);
    T(read(f, got, 128));
    T(fcntl(f, F_SETFL, 0));
    pthread_create(&thread, 0, send_later, &self);
    T(read(f, got, 128));
    pthread_join(thread, 0);
    fields(got);
    /* A timer's signal. */
    timer_t timer;
    struct sigevent rings = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    struct itimerspec soon = {{0, 0}, {0, 1000000}};
    rings.sigev_value.sival_int = 9;
    T(timer_create(CLOCK_MONOTONIC, &rings, &timer));
    T(timer_settime(timer, 0, &soon, 0));
    T(read(f, got, 128));
    fields(got);
    T(timer_delete(timer));
    /* One with a handler comes to that. */
    signal(SIGUSR1, handle);
    T(raise(SIGUSR1));
    sigprocmask(SIG_UNBLOCK, &set, 0);
    T(handled);
    T(poll(&one, 1, 0));
    signal(SIGUSR1, SIG_DFL);
    signal(SIGUSR2, SIG_IGN);
    sigprocmask(SIG_UNBLOCK, &other, 0);
    close(e);
    close(f);
}

static void unnamed_files(void)
{
    char text[300], back[100];
    struct stat status;
    memset(text, 'x', sizeof text);
    text[249] = 0;
    T(memfd_create("a", 0x20));
    T(memfd_create(BAD, 0));
    int f = memfd_create(text, 0);
    T(f >= 0);
    close(f);
    text[249] = 'x', text[250] = 0;
    T(memfd_create(text, 0));
    f = memfd_create("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    T(fcntl(f, F_GETFD));
    T(fcntl(f, F_GETFL));
    T(fstat(f, &status));
    T(status.st_mode);
    T(status.st_nlink);
    T(status.st_size);
    snprintf(text, sizeof text, "/proc/self/fd/%d", f);
    T(readlink(text, back, sizeof back));
    T(!memcmp(back, "/memfd:sealed (deleted)", 23));
    T(ftruncate(f, 5000));
    T(write(f, "hello", 5));
    T(pread(f, back, 10, 4990));
    T(fcntl(f, F_GET_SEALS));
    T(fcntl(f, F_ADD_SEALS, 0x1000));
    T(fcntl(f, F_ADD_SEALS, F_SEAL_GROW));
    T(ftruncate(f, 5001));
    T(pwrite(f, back, 10, 4990));
    T(pwrite(f, back, 10, 4991));
    T(pwrite(f, text, 10, 4090));
    T(pwrite(f, back, 1, 5000));
    T(fallocate(f, 0, 0, 5000));
    T(fallocate(f, 0, 0, 5001));
    T(lseek(f, 0, SEEK_END));
    T(write(f, "x", 1));
    T(ftruncate(f, 4999));
    T(fcntl(f, F_ADD_SEALS, F_SEAL_SHRINK));
    T(ftruncate(f, 4998));
    char *map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    T(map != MAP_FAILED);
    T(map[0]);
    T(fcntl(f, F_ADD_SEALS, F_SEAL_WRITE));
    T(munmap(map, 4096));
    T(fcntl(f, F_ADD_SEALS, F_SEAL_WRITE));
    T(write(f, "x", 1));
    T(pwrite(f, "x", 1, 0));
    T((long)mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0));
    map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, f, 0);
    T(map != MAP_FAILED);
    T(munmap(map, 4096));
    map = mmap(0, 4096, PROT_READ, MAP_SHARED, f, 0);
    T(map != MAP_FAILED);
    T(munmap(map, 4096));
    T(fcntl(f, F_ADD_SEALS, F_SEAL_SEAL));
    T(fcntl(f, F_ADD_SEALS, 0));
    T(fcntl(f, F_GET_SEALS));
    close(f);
    f = memfd_create("", 0);
    T(fcntl(f, F_GET_SEALS));
    T(fcntl(f, F_ADD_SEALS, F_SEAL_WRITE));
    T(write(f, "abc", 3));
    T(fchmod(f, 0600));
    T(fstat(f, &status));
    T(status.st_mode);
    close(f);
    T(fcntl(0, F_GET_SEALS));
    f = syscall(SYS_creat, "made", 0640);
    T(f >= 0);
    T(fcntl(f, F_GET_SEALS));
    T(write(f, "abc", 3));
    T(read(f, back, 3));
    T(fstat(f, &status));
    T(status.st_mode);
    close(f);
    f = creat("made", 0600);
    T(fstat(f, &status));
    T(status.st_size);
    T(status.st_mode);
    close(f);
    T(unlink("made"));
    T(syscall(SYS_creat, "missing/x", 0600));
}

static void positions(void)
{
    char a[5] = "hello", b[7] = " world\n", back[64];
    struct iovec both[2] = {{a, 5}, {b, 7}}, to = {back, 64}, bad = {BAD, 4};
    int f = open("f", O_RDWR | O_CREAT, 0600), p[2], n = open("f", O_WRONLY);
    T(pwritev2(f, both, 2, -1, 0));
    T(lseek(f, 0, SEEK_CUR));
    T(pwritev2(f, both, 1, 20, RWF_DSYNC));
    T(lseek(f, 0, SEEK_CUR));
    T(pwritev2(f, both, 2, 3, RWF_APPEND | RWF_SYNC));
    T(lseek(f, 0, SEEK_CUR));
    T(lseek(f, 0, SEEK_END));
    T(lseek(f, 2, SEEK_SET));
    T(pwritev2(f, both, 1, -1, RWF_APPEND));
    T(lseek(f, 0, SEEK_CUR));
    T(preadv2(f, &to, 1, 0, 0));
    T(memcmp(back, "hello world\n\0\0\0\0\0\0\0\0hellohello world\nhello", 42));
    T(lseek(f, 3, SEEK_SET));
    T(preadv2(f, &to, 1, -1, RWF_NOWAIT | RWF_HIPRI));
    T(lseek(f, 0, SEEK_CUR));
    T(preadv2(f, &to, 1, -1, 0));
    T(preadv2(f, &to, 1, -2, 0));
    T(pwritev2(f, &to, 1, -2, 0));
    T(preadv2(f, &to, 1, 0, 0x8000));
    T(pwritev2(f, both, 2, 0, 0x8000));
    T(preadv2(f, &bad, 1, 0, 0));
    T(pwritev2(f, &bad, 1, 0, RWF_APPEND));
    T(preadv2(f, BAD, 1, 0, 0));
    T(preadv2(f, &to, 2000, 0, 0));
    T(preadv2(n, &to, 1, 0, 0));
    T(preadv2(99, &to, 1, 0, 0));
    T(preadv2(f, &to, 0, 0, 0));
    T(pipe(p));
    T(preadv2(p[0], &to, 1, 0, 0));
    T(pwritev2(p[1], both, 1, 0, 0));
    T(preadv2(p[0], &to, 1, -1, RWF_NOWAIT));
    T(pwritev2(p[1], both, 2, -1, RWF_NOWAIT));
    T(preadv2(p[0], &to, 1, -1, RWF_NOWAIT));
    close(p[1]);
    T(preadv2(p[0], &to, 1, -1, RWF_NOWAIT));
    close(p[0]);
    close(n);
    close(f);
    T(unlink("f"));
}

static void hints(void)
{
    int f = open("f", O_RDWR | O_CREAT, 0600), w = open("f", O_WRONLY), d = open(".", O_RDONLY), p[2];
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    pipe(p);
    for (int advice = 0; advice < 7; advice++)
        T(syscall(SYS_fadvise64, f, 0, 100, advice));
    T(syscall(SYS_fadvise64, f, 0, -1, 0));
    T(syscall(SYS_fadvise64, 99, 0, 0, 9));
    T(syscall(SYS_fadvise64, p[0], 0, 0, 9));
    T(syscall(SYS_fadvise64, d, 0, 0, 3));
    T(readahead(f, 0, 10));
    T(readahead(w, 0, 10));
    T(readahead(99, 0, 10));
    T(readahead(p[0], 0, 10));
    T(readahead(s, 0, 10));
    T(sync_file_range(f, 0, 0, 7));
    T(sync_file_range(f, 0, 0, 8));
    T(sync_file_range(f, -1, 0, 1));
    T(sync_file_range(f, 1, -1, 1));
    T(sync_file_range(f, 0, -1, 1));
    T(sync_file_range(d, 0, 0, 0));
    T(sync_file_range(p[0], 0, 0, 0));
    T(sync_file_range(p[0], 0, 0, 8));
    T(sync_file_range(s, 0, 0, 0));
    T(sync_file_range(99, 0, 0, 8));
    close(f), close(w), close(d), close(s), close(p[0]), close(p[1]);
    T(unlink("f"));
}

static void *nice_of(void *unused)
{
    return (void *)syscall(SYS_getpriority, PRIO_PROCESS, 0);
}

static volatile int spins = 1;

static void *spin(void *unused)
{
    while (spins);
    return 0;
}

static void scheduling(void)
{
    unsigned cpu = 99, node = 99, header[2];
    unsigned long set[16] = {0}, none[16] = {0};
    pthread_t thread;
    void *given;
    T(syscall(SYS_getcpu, &cpu, &node, 0));
    T(cpu < 4096 && node < 64);
    T(syscall(SYS_getcpu, 0, 0, 0));
    T(syscall(SYS_getcpu, BAD, 0, 0));
    T(syscall(SYS_sched_getaffinity, 0, 4, set));
    T(syscall(SYS_sched_getaffinity, 0, 129, set));
    T(syscall(SYS_sched_getaffinity, 99999999, 128, set));
    T(syscall(SYS_sched_getaffinity, 0, 128, BAD));
    T(syscall(SYS_sched_getaffinity, 0, 128, set) > 0);
    T(syscall(SYS_sched_setaffinity, 0, 128, none));
    T(syscall(SYS_sched_setaffinity, 0, 0, set));
    T(syscall(SYS_sched_setaffinity, 0, 128, BAD));
    T(syscall(SYS_sched_setaffinity, 99999999, 128, set));
    T(syscall(SYS_sched_setaffinity, 0, 128, set));
    memcpy(none, set, sizeof set);
    T(syscall(SYS_sched_getaffinity, 0, 128, set) > 0);
    T(memcmp(set, none, 8));
    T(syscall(SYS_setpriority, PRIO_PROCESS, 0, 18));
    T(syscall(SYS_getpriority, PRIO_PROCESS, 0));
    pthread_create(&thread, 0, nice_of, 0);
    pthread_join(thread, &given);
    T((long)given);
    T(syscall(SYS_setpriority, PRIO_PROCESS, gettid(), 100));
    T(syscall(SYS_getpriority, PRIO_PROCESS, gettid()));
    T(syscall(SYS_getpriority, PRIO_PROCESS, 99999999));
    T(syscall(SYS_setpriority, PRIO_PROCESS, 99999999, 1));
    T(syscall(SYS_getpriority, 3, 0));
    T(syscall(SYS_setpriority, -1, 0, 1));
    T(syscall(SYS_getpriority, PRIO_USER, 54321));
    T(syscall(SYS_membarrier, 8, 0, 0));
    T(syscall(SYS_membarrier, 16, 0, 0));
    T(syscall(SYS_membarrier, 8, 0, 0));
    /* While others, on each of two cores, make no call. */
    pthread_t other;
    pthread_create(&thread, 0, spin, 0);
    pthread_create(&other, 0, spin, 0);
    usleep(10000);
    for (int i = 0; i < 20; i++)
        T(syscall(SYS_membarrier, 8, 0, 0));
    spins = 0;
    pthread_join(thread, 0);
    pthread_join(other, 0);
    T(syscall(SYS_membarrier, 4, 0, 0));
    T(syscall(SYS_membarrier, 2, 0, 0));
    T(syscall(SYS_membarrier, 1, 0, 0));
    T((syscall(SYS_membarrier, 0, 0, 0) & 31) == 31);
    T(syscall(SYS_membarrier, 0, 2, 0));
    T(syscall(SYS_membarrier, 3, 0, 0));
    T(syscall(SYS_membarrier, 1 << 20, 0, 0));
}

static void ends_of_children(void)
{
    siginfo_t info;
    T(waitid(P_ALL, 0, &info, WEXITED));
    T(waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT));
    T(waitid(P_ALL, 0, &info, 0));
    T(waitid(P_ALL, 0, &info, WEXITED | 16));
    T(waitid(P_PID, 0, &info, WEXITED));
    T(waitid(P_PID, 99999999, &info, WEXITED));
    T(waitid(P_PGID, -1, &info, WEXITED));
    T(waitid(7, 0, &info, WEXITED));
    T(waitid(P_PIDFD, 99, &info, WEXITED));
    T(waitid(P_PIDFD, -1, &info, WEXITED));
    char page[1];
    T(syscall(SYS_mlock2, page, 1, 2));
    T(syscall(SYS_mlock2, (void *)(1L << 40), 1, 1));
    struct rusage usage;
    T(getrusage(RUSAGE_SELF, &usage));
    T(usage.ru_maxrss > 0);
    T(getrusage(RUSAGE_CHILDREN, &usage));
    T(usage.ru_maxrss);
}

static void kept(void)
{
    int signal = 77;
    T(prctl(PR_GET_DUMPABLE));
    T(prctl(PR_SET_DUMPABLE, 3));
    T(prctl(PR_GET_KEEPCAPS));
    T(prctl(PR_SET_KEEPCAPS, 2));
    T(prctl(PR_SET_KEEPCAPS, 1));
    T(prctl(PR_GET_KEEPCAPS));
    T(prctl(PR_SET_KEEPCAPS, 0));
    T(prctl(PR_SET_PDEATHSIG, 65));
    T(prctl(PR_SET_PDEATHSIG, 12));
    T(prctl(PR_GET_PDEATHSIG, &signal));
    T(signal);
    T(prctl(PR_GET_PDEATHSIG, BAD));
    T(prctl(PR_SET_PDEATHSIG, 0));
    T(prctl(PR_CAPBSET_READ, 63));
    T(prctl(PR_CAPBSET_DROP, 63));
    T(prctl(PR_GET_NO_NEW_PRIVS, 1, 0, 0, 0));
    T(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
    T(prctl(PR_SET_NO_NEW_PRIVS, 1, 1, 0, 0));
    T(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    T(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    T(prctl(987654));
}

static void ignore(int signal) { (void)signal; }

/* Waits for a limited time end by a signal, also where its handler restarts calls. */
static void limited_waits(void)
{
    struct sigaction old, restart = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, 20000}, {0, 20000}}, never = {0};
    struct timespec limit = {.tv_sec = 5};
    struct timeval seconds = {.tv_sec = 5};
    int word = 0, ends[2], udp = socket(AF_INET, SOCK_DGRAM, 0);
    char byte;
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &seconds, sizeof seconds);
    setsockopt(udp, SOL_SOCKET, SO_RCVTIMEO, &seconds, sizeof seconds);
    sigaction(SIGALRM, &restart, &old);
    setitimer(ITIMER_REAL, &every, 0);
    T(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &limit, 0, 0));
    T(recv(ends[0], &byte, 1, 0));
    T(read(ends[0], &byte, 1));
    T(recv(udp, &byte, 1, 0));
    setitimer(ITIMER_REAL, &never, 0);
    sigaction(SIGALRM, &old, 0);
    close(ends[0]);
    close(ends[1]);
    close(udp);
}

/* A timer that is set again has another edge, read or not. */
static void edges(void)
{
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), queue = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    struct itimerspec soon = {.it_value.tv_nsec = 1000};
    epoll_ctl(queue, EPOLL_CTL_ADD, timer, &event);
    for (int i = 0; i < 3; i++) {
        T(timerfd_settime(timer, 0, &soon, 0));
        T(epoll_wait(queue, &event, 1, 10000));
        T(epoll_wait(queue, &event, 1, 0));
    }
    close(queue);
    close(timer);
}

/* A socket's own address towards its peer; who waits on a socket that is shut down. */
static void *receive_one(void *file)
{
    char byte;
    return (void *)recv((long)file, &byte, 1, 0);
}

static void datagrams(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)}, own;
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int is_connected = 0; is_connected < 2; is_connected++) {
        int file = socket(AF_INET, SOCK_DGRAM, 0);
        socklen_t bytes = sizeof own;
        char byte;
        if (is_connected)
            T(connect(file, (void *)&to, sizeof to));
        T(getsockname(file, (void *)&own, &bytes));
        T(ntohl(own.sin_addr.s_addr));
        struct pollfd look = {.fd = file, .events = POLLIN | POLLRDHUP};
        pthread_t waiting;
        void *received;
        pthread_create(&waiting, 0, receive_one, (void *)(long)file);
        usleep(20000);
        T(shutdown(file, SHUT_RD));
        pthread_join(waiting, &received);
        T(received);
        T(recv(file, &byte, 1, 0));
        T(recv(file, &byte, 1, MSG_DONTWAIT));
        T(poll(&look, 1, 0));
        T(look.revents);
        T(shutdown(file, SHUT_WR));
        T(poll(&look, 1, 0));
        T(look.revents);
        T(sendto(file, "x", 1, 0, (void *)&to, sizeof to));
        close(file);
    }
    int file = socket(AF_INET, SOCK_DGRAM, 0);
    socklen_t bytes = sizeof own;
    connect(file, (void *)&to, sizeof to);
    T(connect(file, &none, sizeof none));
    T(getsockname(file, (void *)&own, &bytes));
    T(own.sin_addr.s_addr);
    close(file);
}

/* What SO_LINGER reads back, and how a connection ends by it; an accepted socket has its listener's. */
static void lingers(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof at, four = 4, eight = 8;
    struct linger none = {7, 9}, reset = {7, 0}, wait = {1, 5}, back = {3, 3};
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(listener, (void *)&at, bytes);
    listen(listener, 4);
    getsockname(listener, (void *)&at, &bytes);
    T(setsockopt(listener, SOL_SOCKET, SO_LINGER, &wait, 7));
    T(setsockopt(listener, SOL_SOCKET, SO_LINGER, BAD, 8));
    none.l_onoff = 0;
    T(setsockopt(listener, SOL_SOCKET, SO_LINGER, &none, 8));
    T(getsockopt(listener, SOL_SOCKET, SO_LINGER, &back, &eight));
    T(back.l_onoff * 100 + back.l_linger);
    T(getsockopt(listener, SOL_SOCKET, SO_LINGER, &back, &four));
    T(four);
    T(setsockopt(listener, SOL_SOCKET, SO_KEEPALIVE, &on, 4));
    on = 33;
    T(setsockopt(listener, IPPROTO_TCP, TCP_KEEPIDLE, &on, 4));
    struct linger *all[] = {&none, &reset, &wait};
    for (int i = 0; i < 3; i++)
        for (int is_client = 0; is_client < 2; is_client++) {
            char byte;
            T(setsockopt(listener, SOL_SOCKET, SO_LINGER, is_client ? &none : all[i], 8));
            int client = socket(AF_INET, SOCK_STREAM, 0);
            T(connect(client, (void *)&at, bytes));
            int server = accept(listener, 0, 0);
            T(getsockopt(server, SOL_SOCKET, SO_LINGER, &back, &eight));
            T(back.l_onoff * 100 + back.l_linger);
            on = 0;
            T(getsockopt(server, SOL_SOCKET, SO_KEEPALIVE, &on, &four));
            T(on);
            T(getsockopt(server, IPPROTO_TCP, TCP_KEEPIDLE, &on, &four));
            T(on);
            if (is_client)
                T(setsockopt(client, SOL_SOCKET, SO_LINGER, all[i], 8));
            T(close(is_client ? client : server));
            T(read(is_client ? server : client, &byte, 1));
            close(is_client ? server : client);
        }
    close(listener);
}

/* A socket that connects from the address that it is bound to, also after a refusal. */
static void bindings(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET}, own, far, found;
    socklen_t bytes = sizeof at;
    char byte;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    own = far = at;
    far.sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1 is of documents alone (RFC 5737) */
    int listener = socket(AF_INET, SOCK_STREAM, 0), closed = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (void *)&at, bytes);
    listen(listener, 4);
    getsockname(listener, (void *)&at, &bytes);
    bind(closed, (void *)&own, bytes);
    int client = socket(AF_INET, SOCK_STREAM, 0), other = socket(AF_INET, SOCK_STREAM, 0);
    T(bind(client, (void *)&far, bytes));
    T(bind(client, (void *)&own, bytes));
    T(bind(client, (void *)&own, bytes));
    T(getsockname(client, (void *)&own, &bytes));
    T(bind(other, (void *)&own, bytes));
    T(connect(client, (void *)&at, bytes));
    int server = accept(listener, (void *)&found, &bytes);
    T(found.sin_port == own.sin_port);
    T(getsockname(client, (void *)&found, &bytes));
    T(found.sin_port == own.sin_port);
    T(write(client, "x", 1));
    T(read(server, &byte, 1));
    T(bind(other, (void *)&own, bytes));
    close(server);
    close(client);
    own.sin_port = 0;
    T(bind(other, (void *)&own, bytes));
    getsockname(closed, (void *)&found, &bytes);
    T(connect(other, (void *)&found, bytes));
    T(connect(other, (void *)&at, bytes));
    close(other);
    close(closed);
    close(listener);
    int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    T(bind(datagrams, (void *)&far, bytes));
    own.sin_port = 0;
    T(bind(datagrams, (void *)&own, bytes));
    close(datagrams);
    unsigned of_many[] = {0xe00000fb, 0xffffffff}; /* 224.0.0.251, 255.255.255.255 */
    for (int i = 0; i < 2; i++) {
        datagrams = socket(AF_INET, SOCK_DGRAM, 0);
        own.sin_addr.s_addr = htonl(of_many[i]);
        T(bind(datagrams, (void *)&own, bytes));
        close(datagrams);
    }
}

/* Sockets of IPv6 that leave IPv4 to others. */
static void only_v6(void)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6}, here = {.sin6_family = AF_INET6}, mapped;
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    socklen_t bytes = sizeof any, four = 4;
    int on = 1, back = 7;
    char byte;
    here.sin6_addr = in6addr_loopback;
    int six = socket(AF_INET6, SOCK_DGRAM, 0), four_only = socket(AF_INET, SOCK_DGRAM, 0);
    int both = socket(AF_INET6, SOCK_DGRAM, 0);
    T(setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &on, 4));
    T(getsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &back, &four));
    T(back);
    T(bind(six, (void *)&any, bytes));
    getsockname(six, (void *)&any, &bytes);
    T(setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &on, 4));
    v4.sin_port = here.sin6_port = any.sin6_port;
    T(bind(four_only, (void *)&v4, sizeof v4));
    T(bind(both, (void *)&any, bytes));
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    T(sendto(both, "6", 1, 0, (void *)&here, bytes));
    T(recv(six, &byte, 1, 0));
    T(byte);
    T(recv(four_only, &byte, 1, MSG_DONTWAIT));
    T(sendto(four_only, "4", 1, 0, (void *)&v4, sizeof v4));
    T(recv(four_only, &byte, 1, 0));
    T(byte);
    T(recv(six, &byte, 1, MSG_DONTWAIT));
    mapped = here;
    memset(&mapped.sin6_addr, 0, 16);
    memset(&mapped.sin6_addr.s6_addr[10], 0xff, 2);
    memcpy(&mapped.sin6_addr.s6_addr[12], &v4.sin_addr, 4);
    T(sendto(six, "x", 1, 0, (void *)&mapped, bytes));
    T(connect(six, (void *)&mapped, bytes));
    T(connect(six, (void *)&here, bytes));
    T(sendto(both, "x", 1, 0, (void *)&mapped, bytes));
    T(recv(four_only, &byte, 1, 0));
    T(bind(both, (void *)&any, bytes));
    close(six);
    close(both);
    close(four_only);
    int stream = socket(AF_INET6, SOCK_STREAM, 0);
    T(setsockopt(stream, IPPROTO_IPV6, IPV6_V6ONLY, &on, 4));
    T(connect(stream, (void *)&mapped, bytes));
    close(stream);
}

static const struct group groups[] = {
    {"own identities", own_identities}, {"signal files", signal_files},
    {"unnamed files", unnamed_files},   {"positions", positions},
    {"hints", hints},                   {"scheduling", scheduling},
    {"ends of children", ends_of_children}, {"kept", kept},
    {"edges", edges},                   {"lingers", lingers},
    {"datagrams", datagrams},           {"limited waits", limited_waits},
    {"bindings", bindings},
};

/* Alone, where that can be done. */
static const struct group others[] = {{"identities", identities}, {"only v6", only_v6}};

int main(int count, char **words)
{
    for (int i = 0; count > 1 && i < 2; i++)
        if (!strcmp(words[1], others[i].name))
            return run_groups("offers", others + i, 1, count, words);
    return run_groups("offers", groups, sizeof groups / sizeof *groups, count, words);
}
