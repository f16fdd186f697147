/* Each call with each of its pointers, in turn, at memory that it cannot use, can only read, or that
   ends with its object or within it. A line each with the error: what Linux prints is what a program
   on the library OS must print. Needs no privilege. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include "lines.h"

#define PAGE 4096
#define MOST 512

/* Descriptors with fixed numbers. */
enum { FILE_ = 40, DIRECTORY, SOCKET, PEER, LISTENER, QUEUE, TIMER, PIPE, PIPE_END, OTHER, COPY, UDP };

enum { NULL_, LOW, KERNEL, FAR, NO_RIGHTS, READ_ONLY, FITS, CUT, KINDS };
static const char *const kinds[KINDS] = {"null", "low", "kernel", "far", "none", "read_only", "fits", "cut"};

/* An object that a pointer leads to: its bytes and what is in it at first. */
struct object {
    unsigned bytes;
    const void *first;
};

struct call {
    const char *name;
    long number;
    long words[6];
    /* Where bytes are not 0, the word is a pointer to this. */
    struct object at[6];
    /* Only kinds below this one, if it is not 0. */
    int most;
};

/* Words of a call: plain ones, objects that it reads, and that it writes. */
#define IN(object) {sizeof(object), &(object)}
#define TEXT(text) {sizeof(text), text}
#define OUT(bytes) {bytes, 0}

static const struct timespec no_time, two_times[2] = {{1, 0}, {2, 0}};
static const struct itimerspec no_timer;
static const struct itimerval no_interval;
static const struct timeval no_micros;
static const sigset_t no_signals;
/* The pipe has bytes. */
static const unsigned long no_files, readable = 1UL << PIPE, usr2 = 1UL << (SIGUSR2 - 1);
static const struct pollfd polled = {PIPE, POLLIN, 0};
static const struct epoll_event event = {EPOLLIN, {.u32 = 0}};
static const struct rlimit core = {0, 0};
static const struct sched_param parameters;
/* `struct sched_attr`, the header of capabilities. */
static const unsigned attributes[12] = {48}, header[2] = {0x20080522, 0};
static const struct sigaction action = {.sa_handler = SIG_DFL};
static const stack_t stack = {.ss_flags = SS_DISABLE};
static const siginfo_t info = {.si_code = -1};
static const struct sigevent sigevent = {.sigev_notify = SIGEV_NONE};
static const unsigned word = 1, group_words[2], lengths = 110;
static const long offset;
/* `struct open_how`. */
static const unsigned long how[3];
static const struct flock lock = {.l_type = F_RDLCK};
static const struct sockaddr_un bound = {AF_UNIX, "n"}, unbound = {AF_UNIX, "l"};
/* The port of `discard`: no one listens. */
static const struct sockaddr_in discard = {AF_INET, 9 << 8, {127 | 1 << 24}, {0}};
static const char data[64] = "data";

static int timer;
#define TIMER_ID (-77777)

static const struct call calls[] = {
    {"open", SYS_open, {0, O_RDONLY}, {TEXT("f")}},
    {"openat", SYS_openat, {AT_FDCWD, 0, O_RDONLY}, {{0}, TEXT("f")}},
    {"openat2", SYS_openat2, {AT_FDCWD, 0, 0, sizeof how}, {{0}, TEXT("f"), IN(how)}},
    {"creat", SYS_creat, {0, 0600}, {TEXT("n")}},
    {"memfd_create", SYS_memfd_create, {0, 0}, {TEXT("name")}},
    {"stat", SYS_stat, {0}, {TEXT("f"), OUT(144)}},
    {"lstat", SYS_lstat, {0}, {TEXT("l"), OUT(144)}},
    {"fstat", SYS_fstat, {FILE_}, {{0}, OUT(144)}},
    {"newfstatat", SYS_newfstatat, {AT_FDCWD}, {{0}, TEXT("f"), OUT(144)}},
    {"statx", SYS_statx, {AT_FDCWD, 0, 0, 0x7ff}, {{0}, TEXT("f"), {0}, {0}, OUT(256)}},
    {"access", SYS_access, {0, R_OK}, {TEXT("f")}},
    {"faccessat", SYS_faccessat, {AT_FDCWD, 0, R_OK}, {{0}, TEXT("f")}},
    {"faccessat2", SYS_faccessat2, {AT_FDCWD, 0, R_OK, 0}, {{0}, TEXT("f")}},
    {"readlink", SYS_readlink, {0, 0, 64}, {TEXT("l"), OUT(64)}},
    {"readlinkat", SYS_readlinkat, {AT_FDCWD, 0, 0, 64}, {{0}, TEXT("l"), OUT(64)}},
    {"getdents64", SYS_getdents64, {DIRECTORY, 0, 512}, {{0}, OUT(512)}},
    {"mkdir", SYS_mkdir, {0, 0700}, {TEXT("n")}},
    {"mkdirat", SYS_mkdirat, {AT_FDCWD, 0, 0700}, {{0}, TEXT("n")}},
    {"rmdir", SYS_rmdir, {0}, {TEXT("d")}},
    {"unlink", SYS_unlink, {0}, {TEXT("f")}},
    {"unlinkat", SYS_unlinkat, {AT_FDCWD, 0, 0}, {{0}, TEXT("f")}},
    {"rename", SYS_rename, {0}, {TEXT("f"), TEXT("n")}},
    {"renameat", SYS_renameat, {AT_FDCWD, 0, AT_FDCWD}, {{0}, TEXT("f"), {0}, TEXT("n")}},
    {"renameat2", SYS_renameat2, {AT_FDCWD, 0, AT_FDCWD}, {{0}, TEXT("f"), {0}, TEXT("n")}},
    {"link", SYS_link, {0}, {TEXT("f"), TEXT("n")}},
    {"linkat", SYS_linkat, {AT_FDCWD, 0, AT_FDCWD}, {{0}, TEXT("f"), {0}, TEXT("n")}},
    {"symlink", SYS_symlink, {0}, {TEXT("f"), TEXT("n")}},
    {"symlinkat", SYS_symlinkat, {0, AT_FDCWD}, {TEXT("f"), {0}, TEXT("n")}},
    {"chmod", SYS_chmod, {0, 0600}, {TEXT("f")}},
    {"fchmodat", SYS_fchmodat, {AT_FDCWD, 0, 0600}, {{0}, TEXT("f")}},
    {"chown", SYS_chown, {0, -1, -1}, {TEXT("f")}},
    {"lchown", SYS_lchown, {0, -1, -1}, {TEXT("f")}},
    {"fchownat", SYS_fchownat, {AT_FDCWD, 0, -1, -1, 0}, {{0}, TEXT("f")}},
    {"utimensat", SYS_utimensat, {AT_FDCWD}, {{0}, TEXT("f"), IN(two_times)}},
    {"truncate", SYS_truncate, {0, 9}, {TEXT("f")}},
    {"chdir", SYS_chdir, {0}, {TEXT(".")}},
    {"getcwd", SYS_getcwd, {0, 512}, {OUT(512)}},
    {"statfs", SYS_statfs, {0}, {TEXT("f"), OUT(120)}},
    {"fstatfs", SYS_fstatfs, {FILE_}, {{0}, OUT(120)}},
    {"listxattr", SYS_listxattr, {0, 0, 0}, {TEXT("gone")}},
    {"getxattr", SYS_getxattr, {0, (long)"user.a"}, {TEXT("gone")}},
    {"setxattr", SYS_setxattr, {0, (long)"user.a"}, {TEXT("gone")}},
    {"removexattr", SYS_removexattr, {0, (long)"user.a"}, {TEXT("gone")}},
    /* File systems differ in what they do with a good one. */
    {"getxattr_name", SYS_getxattr, {(long)"f"}, {{0}, TEXT("user.a")}, READ_ONLY},
    {"setxattr_name", SYS_setxattr, {(long)"f", 0, 0, 4}, {{0}, TEXT("user.a")}, READ_ONLY},
    {"setxattr_value", SYS_setxattr, {(long)"f", (long)"user.a", 0, 4}, {{0}, {0}, IN(word)}, READ_ONLY},
    {"removexattr_name", SYS_removexattr, {(long)"f"}, {{0}, TEXT("user.a")}, READ_ONLY},
    {"fgetxattr_name", SYS_fgetxattr, {FILE_}, {{0}, TEXT("user.a")}, READ_ONLY},

    {"read", SYS_read, {FILE_, 0, 64}, {{0}, OUT(64)}},
    {"write", SYS_write, {FILE_, 0, 64}, {{0}, IN(data)}},
    {"pread64", SYS_pread64, {FILE_, 0, 64, 0}, {{0}, OUT(64)}},
    {"pwrite64", SYS_pwrite64, {FILE_, 0, 64, 0}, {{0}, IN(data)}},
    {"write_pipe", SYS_write, {PIPE_END, 0, 64}, {{0}, IN(data)}},
    {"write_socket", SYS_write, {SOCKET, 0, 64}, {{0}, IN(data)}},
    {"read_socket", SYS_read, {SOCKET, 0, 64}, {{0}, OUT(64)}},
    {"copy_file_range", SYS_copy_file_range, {FILE_, 0, COPY, 0, 4}, {{0}, IN(offset), {0}, IN(offset)}},
    {"sendfile", SYS_sendfile, {PIPE_END, FILE_, 0, 4}, {{0}, {0}, IN(offset)}},
    {"splice", SYS_splice, {FILE_, 0, PIPE_END, 0, 4, 0}, {{0}, IN(offset)}},
    {"fcntl_lock", SYS_fcntl, {FILE_, F_SETLK}, {{0}, {0}, IN(lock)}},
    {"fcntl_getlk", SYS_fcntl, {FILE_, F_GETLK}, {{0}, {0}, IN(lock)}},
    {"ioctl_nbio", SYS_ioctl, {FILE_, FIONBIO}, {{0}, {0}, IN(word)}},
    {"ioctl_nread", SYS_ioctl, {PIPE, FIONREAD}, {{0}, {0}, OUT(4)}},
    {"mincore", SYS_mincore, {0, PAGE}, {{0}, {0}, OUT(1)}},

    {"epoll_ctl", SYS_epoll_ctl, {QUEUE, EPOLL_CTL_MOD, PIPE}, {{0}, {0}, {0}, IN(event)}},
    {"epoll_wait", SYS_epoll_wait, {QUEUE, 0, 1, 0}, {{0}, OUT(12)}},
    {"epoll_pwait", SYS_epoll_pwait, {QUEUE, 0, 1, 0, 0, 8}, {{0}, OUT(12), {0}, {0}, {8, &no_signals}}},
    {"epoll_pwait2", SYS_epoll_pwait2, {QUEUE, 0, 1, 0, 0, 8}, {{0}, OUT(12), {0}, IN(no_time)}},
    {"poll", SYS_poll, {0, 1, 0}, {IN(polled)}},
    {"ppoll", SYS_ppoll, {0, 1, 0, 0, 8}, {IN(polled), {0}, IN(no_time), {8, &no_signals}}},
    {"select", SYS_select, {64}, {{0}, IN(readable), IN(no_files), IN(no_files), IN(no_micros)}},
    {"pselect6", SYS_pselect6, {64}, {{0}, IN(readable), IN(no_files), IN(no_files), IN(no_time)}},
    {"signalfd4", SYS_signalfd4, {-1, 0, 8, 0}, {{0}, {8, &no_signals}}},
    {"timerfd_settime", SYS_timerfd_settime, {TIMER, 0}, {{0}, {0}, IN(no_timer), OUT(32)}},
    {"timerfd_gettime", SYS_timerfd_gettime, {TIMER}, {{0}, OUT(32)}},
    {"pipe", SYS_pipe, {0}, {OUT(8)}},
    {"pipe2", SYS_pipe2, {0, O_CLOEXEC}, {OUT(8)}},
    {"socketpair", SYS_socketpair, {AF_UNIX, SOCK_STREAM, 0}, {{0}, {0}, {0}, OUT(8)}},

    {"bind", SYS_bind, {OTHER, 0, 4}, {{0}, {4, &bound}}},
    {"bind_udp", SYS_bind, {UDP, 0, 16}, {{0}, IN(discard)}},
    {"connect", SYS_connect, {OTHER, 0, 4}, {{0}, {4, &unbound}}},
    {"connect_udp", SYS_connect, {UDP, 0, 16}, {{0}, IN(discard)}},
    {"accept", SYS_accept, {LISTENER}, {{0}, OUT(110), IN(lengths)}},
    {"accept4", SYS_accept4, {LISTENER, 0, 0, SOCK_CLOEXEC}, {{0}, OUT(110), IN(lengths)}},
    {"getsockname", SYS_getsockname, {LISTENER}, {{0}, OUT(110), IN(lengths)}},
    {"getpeername", SYS_getpeername, {SOCKET}, {{0}, OUT(110), IN(lengths)}},
    {"sendto", SYS_sendto, {SOCKET, 0, 64, MSG_DONTWAIT}, {{0}, IN(data)}},
    {"sendto_name", SYS_sendto, {UDP, 0, 64, MSG_DONTWAIT, 0, 16}, {{0}, IN(data), {0}, {0}, IN(discard)}},
    {"recvfrom", SYS_recvfrom, {SOCKET, 0, 64, MSG_DONTWAIT}, {{0}, OUT(64), {0}, {0}, OUT(110), IN(lengths)}},
    {"setsockopt", SYS_setsockopt, {SOCKET, SOL_SOCKET, SO_KEEPALIVE, 0, 4}, {{0}, {0}, {0}, IN(word)}},
    {"setsockopt_time", SYS_setsockopt, {SOCKET, SOL_SOCKET, SO_SNDTIMEO, 0, 16}, {{0}, {0}, {0}, IN(no_micros)}},
    {"setsockopt_linger", SYS_setsockopt, {UDP, SOL_SOCKET, SO_LINGER, 0, 8}, {{0}, {0}, {0}, IN(group_words)}},
    {"getsockopt", SYS_getsockopt, {SOCKET, SOL_SOCKET, SO_TYPE}, {{0}, {0}, {0}, OUT(110), IN(lengths)}},

    {"clock_gettime", SYS_clock_gettime, {CLOCK_MONOTONIC}, {{0}, OUT(16)}},
    {"clock_getres", SYS_clock_getres, {CLOCK_MONOTONIC}, {{0}, OUT(16)}},
    {"clock_settime", SYS_clock_settime, {CLOCK_MONOTONIC}, {{0}, IN(no_time)}},
    {"gettimeofday", SYS_gettimeofday, {0}, {OUT(16), OUT(8)}},
    {"time", SYS_time, {0}, {OUT(8)}},
    {"nanosleep", SYS_nanosleep, {0}, {IN(no_time), OUT(16)}},
    {"clock_nanosleep", SYS_clock_nanosleep, {CLOCK_MONOTONIC, 0}, {{0}, {0}, IN(no_time), OUT(16)}},
    {"futex_wait", SYS_futex, {0, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0}, {IN(word), {0}, {0}, IN(no_time)}},
    {"futex_wait_bits", SYS_futex, {0, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0, 0, 0, 1}, {IN(word), {0}, {0}, IN(no_time)}},
    /* Memory that cannot change is of no use there. */
    {"futex_wake", SYS_futex, {0, FUTEX_WAKE, 1}, {IN(word)}, READ_ONLY},
    {"futex_wake_private", SYS_futex, {0, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1}, {IN(word)}},
    {"futex_requeue", SYS_futex, {0, FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG, 1, 1, 0, 1}, {IN(word), {0}, {0}, {0}, IN(word)}},

    {"sched_getaffinity", SYS_sched_getaffinity, {0, 128}, {{0}, {0}, OUT(128)}},
    {"getcpu", SYS_getcpu, {0}, {OUT(4), OUT(4)}},
    {"sched_getparam", SYS_sched_getparam, {0}, {{0}, OUT(4)}},
    {"sched_setparam", SYS_sched_setparam, {0}, {{0}, IN(parameters)}},
    {"sched_setscheduler", SYS_sched_setscheduler, {0, SCHED_OTHER}, {{0}, {0}, IN(parameters)}},
    {"sched_getattr", SYS_sched_getattr, {0, 0, 48, 0}, {{0}, OUT(48)}},
    {"sched_setattr", SYS_sched_setattr, {0, 0, 0}, {{0}, {48, &attributes}}},
    {"sched_rr_get_interval", SYS_sched_rr_get_interval, {0}, {{0}, OUT(16)}},

    {"rt_sigaction", SYS_rt_sigaction, {SIGUSR2, 0, 0, 8}, {{0}, {32, &action}, OUT(32)}},
    {"rt_sigprocmask", SYS_rt_sigprocmask, {SIG_BLOCK, 0, 0, 8}, {{0}, {8, &no_signals}, OUT(8)}},
    {"rt_sigpending", SYS_rt_sigpending, {0, 8}, {OUT(8)}},
    {"rt_sigtimedwait", SYS_rt_sigtimedwait, {0, 0, 0, 8}, {IN(usr2), OUT(128), IN(no_time)}},
    {"rt_sigqueueinfo", SYS_rt_sigqueueinfo, {99999999, 0}, {{0}, {0}, {128, &info}}},
    {"rt_tgsigqueueinfo", SYS_rt_tgsigqueueinfo, {99999999, 99999999, 0}, {{0}, {0}, {0}, {128, &info}}},
    {"sigaltstack", SYS_sigaltstack, {0}, {IN(stack), OUT(24)}},
    {"setitimer", SYS_setitimer, {ITIMER_REAL}, {{0}, IN(no_interval), OUT(32)}},
    {"getitimer", SYS_getitimer, {ITIMER_REAL}, {{0}, OUT(32)}},
    {"timer_create", SYS_timer_create, {CLOCK_MONOTONIC}, {{0}, {64, &sigevent}, OUT(4)}},
    {"timer_settime", SYS_timer_settime, {TIMER_ID, 0}, {{0}, {0}, IN(no_timer), OUT(32)}},
    {"timer_gettime", SYS_timer_gettime, {TIMER_ID}, {{0}, OUT(32)}},
    {"times", SYS_times, {0}, {OUT(32)}},

    {"uname", SYS_uname, {0}, {OUT(390)}},
    {"sysinfo", SYS_sysinfo, {0}, {OUT(112)}},
    {"getrusage", SYS_getrusage, {RUSAGE_SELF}, {{0}, OUT(144)}},
    {"getrandom", SYS_getrandom, {0, 64, 0}, {OUT(64)}},
    {"getrlimit", SYS_getrlimit, {RLIMIT_CORE}, {{0}, OUT(16)}},
    {"setrlimit", SYS_setrlimit, {RLIMIT_CORE}, {{0}, IN(core)}},
    {"prlimit64", SYS_prlimit64, {0, RLIMIT_CORE}, {{0}, {0}, IN(core), OUT(16)}},
    {"prctl_set_name", SYS_prctl, {PR_SET_NAME}, {{0}, TEXT("a name")}},
    {"prctl_get_name", SYS_prctl, {PR_GET_NAME}, {{0}, OUT(16)}},
    {"prctl_get_pdeathsig", SYS_prctl, {PR_GET_PDEATHSIG}, {{0}, OUT(4)}},
    {"arch_prctl", SYS_arch_prctl, {0x1003}, {{0}, OUT(8)}},
    {"getresuid", SYS_getresuid, {0}, {OUT(4), OUT(4), OUT(4)}},
    {"getresgid", SYS_getresgid, {0}, {OUT(4), OUT(4), OUT(4)}},
    {"capget", SYS_capget, {0}, {IN(header), OUT(24)}},
    {"wait4", SYS_wait4, {-1, 0, WNOHANG}, {{0}, OUT(4), {0}, OUT(144)}},
    {"waitid", SYS_waitid, {P_ALL, 0, 0, WEXITED}, {{0}, {0}, OUT(128), {0}, OUT(144)}},
    {"clone3", SYS_clone3, {0, 64}, {{64, data}}, READ_ONLY},
};

/* The parts of a message, each at an offset of `struct msghdr` or of its vector. */
static const struct {
    const char *name;
    unsigned at, bytes;
} parts[] = {
    {"message", 0, 56}, {"name", 0, 110}, {"vector", 16, 16}, {"base", 0, 64}, {"control", 32, 64},
};
enum { MESSAGE, NAME, VECTOR, BASE, CONTROL, PARTS };

/* Three pages: one with no rights, one that can be written, and a hole; and one to read only. */
static char *area, *read_only;

/* A pointer of a kind to an object. */
static char *pointer(int kind, struct object object)
{
    char *at;
    switch (kind) {
    case NULL_:
        return 0;
    case LOW:
        return (char *)16;
    case KERNEL:
        return (char *)0xffff800000000000;
    case FAR:
        return (char *)0x7ffffffff000;
    case NO_RIGHTS:
        return area;
    case READ_ONLY:
        mprotect(read_only, PAGE, PROT_READ | PROT_WRITE);
        if (object.first)
            memcpy(read_only, object.first, object.bytes);
        else
            memset(read_only, 0, object.bytes);
        mprotect(read_only, PAGE, PROT_READ);
        return read_only;
    case FITS:
        at = area + 2 * PAGE - object.bytes;
        break;
    default:
        at = area + 2 * PAGE - object.bytes / 2;
    }
    size_t there = area + 2 * PAGE - at;
    if (object.first)
        memcpy(at, object.first, there);
    else
        memset(at, 0, there);
    return at;
}

static void put(const char *name)
{
    int file = open(name, O_CREAT | O_TRUNC | O_RDWR, 0600);
    write(file, data, sizeof data);
    dup2(file, FILE_);
    close(file);
}

/* As it is before each call. */
static void set_up(void)
{
    char taken[4096];
    struct sockaddr_un name = {AF_UNIX, "s"};
    for (int i = 3; i < FILE_; i++)
        close(i);
    unlink("n");
    rmdir("n");
    mkdir("d", 0700);
    symlink("f", "l");
    put("f");
    lseek(FILE_, 0, SEEK_SET);
    lseek(DIRECTORY, 0, SEEK_SET);
    while (recv(SOCKET, taken, sizeof taken, MSG_DONTWAIT) > 0)
        ;
    while (recv(PEER, taken, sizeof taken, MSG_DONTWAIT) > 0)
        ;
    while (read(PIPE, taken, sizeof taken) > 0)
        ;
    send(PEER, data, sizeof data, 0);
    raise(SIGUSR2);
    write(PIPE_END, data, 8);
    int made = socket(AF_UNIX, SOCK_STREAM, 0);
    dup2(made, OTHER);
    close(made);
    made = socket(AF_INET, SOCK_DGRAM, 0);
    dup2(made, UDP);
    close(made);
    made = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    while ((connect(made, (void *)&name, sizeof name)) && errno == EINTR)
        ;
}

static void accept_all(void)
{
    int got;
    while ((got = accept(LISTENER, 0, 0)) >= 0)
        close(got);
}

static void once(void)
{
    int pair[2], made;
    struct sockaddr_un name = {AF_UNIX, "s"};
    read_only = mmap(0, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    area = mmap(0, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(area, PAGE, PROT_NONE);
    munmap(area + 2 * PAGE, PAGE);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    sigprocmask(SIG_BLOCK, &blocked, 0);
    mkdir("d", 0700);
    dup2(made = open("o", O_CREAT | O_RDWR, 0600), COPY);
    close(made);
    unlink("o");
    dup2(made = open(".", O_RDONLY | O_DIRECTORY), DIRECTORY);
    close(made);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    dup2(pair[0], SOCKET);
    dup2(pair[1], PEER);
    made = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    bind(made, (void *)&name, sizeof name);
    listen(made, 8);
    dup2(made, LISTENER);
    dup2(made = epoll_create1(0), QUEUE);
    dup2(made = timerfd_create(CLOCK_MONOTONIC, 0), TIMER);
    pipe2(pair, O_NONBLOCK);
    dup2(pair[0], PIPE);
    dup2(pair[1], PIPE_END);
    epoll_ctl(QUEUE, EPOLL_CTL_ADD, PIPE, &(struct epoll_event){EPOLLIN, {.u32 = 0}});
    syscall(SYS_timer_create, CLOCK_MONOTONIC, &sigevent, &timer);
}

static void tear_down(void)
{
    static const char *const names[] = {"f", "l", "n", "s"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        unlink(names[i]);
    rmdir("d");
    rmdir("n");
    for (int i = 3; i <= UDP; i++)
        close(i);
}

static void say(const char *call, const char *part, int kind, long result)
{
    printf("%s %s %s %s\n", call, part, kinds[kind], result == -1 ? strerrorname_np(errno) : "");
}

static void plain(void)
{
    static char room[6][MOST];
    once();
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        const struct call *call = &calls[i];
        for (int bad = 0; bad < 6; bad++) {
            for (int kind = 0; call->at[bad].bytes && kind < (call->most ? call->most : KINDS); kind++) {
                long words[6];
                /* Below one byte nothing is cut. */
                if (kind == CUT && call->at[bad].bytes < 2)
                    continue;
                set_up();
                for (int at = 0; at < 6; at++) {
                    struct object object = call->at[at];
                    words[at] = call->words[at] == TIMER_ID ? timer : call->words[at];
                    if (at == bad)
                        words[at] = (long)pointer(kind, object);
                    else if (object.bytes) {
                        memset(room[at], 0, MOST);
                        if (object.first)
                            memcpy(room[at], object.first, object.bytes);
                        words[at] = (long)room[at];
                    }
                }
                if (call->number == SYS_mincore)
                    words[0] = (long)read_only;
                errno = 0;
                long result = syscall(call->number, words[0], words[1], words[2], words[3], words[4], words[5]);
                int error = errno;
                char part[2] = {'0' + bad, 0};
                if (call->number == SYS_timer_create && !result)
                    syscall(SYS_timer_delete, *(int *)words[2]);
                accept_all();
                errno = error;
                say(call->name, part, kind, result);
            }
        }
    }
    tear_down();
}

static void messages(void)
{
    static const struct {
        const char *name;
        long number;
    } made[] = {
        {"sendmsg", SYS_sendmsg}, {"recvmsg", SYS_recvmsg}, {"sendmmsg", SYS_sendmmsg},
        {"recvmmsg", SYS_recvmmsg}, {"readv", SYS_readv}, {"writev", SYS_writev},
        {"preadv", SYS_preadv}, {"pwritev", SYS_pwritev}, {"preadv2", SYS_preadv2},
        {"pwritev2", SYS_pwritev2},
    };
    static char room[MOST];
    once();
    for (unsigned i = 0; i < sizeof made / sizeof *made; i++)
        for (int bad = 0; bad < PARTS; bad++)
            for (int kind = 0; kind < KINDS; kind++) {
                long number = made[i].number;
                int is_vector = number != SYS_sendmsg && number != SYS_recvmsg
                                && number != SYS_sendmmsg && number != SYS_recvmmsg;
                int sends = number == SYS_sendmsg || number == SYS_sendmmsg;
                /* Who is sent to, and what goes with it, is for sockets; and is another case. */
                if (bad != VECTOR && bad != BASE && (is_vector || (sends && bad != MESSAGE)))
                    continue;
                set_up();
                struct iovec vector = {room, 64};
                struct mmsghdr message = {.msg_hdr = {.msg_iov = &vector, .msg_iovlen = 1}};
                struct iovec *at = &vector;
                void *whole = &message;
                char name[110];
                if (bad == BASE)
                    vector.iov_base = pointer(kind, (struct object){64, data});
                if (bad == VECTOR)
                    at = (void *)pointer(kind, (struct object){16, &vector});
                message.msg_hdr.msg_iov = at;
                if (!sends) {
                    message.msg_hdr.msg_name = bad == NAME ? pointer(kind, (struct object){110, 0}) : name;
                    message.msg_hdr.msg_namelen = 110;
                }
                if (bad == CONTROL) {
                    message.msg_hdr.msg_control = pointer(kind, (struct object){64, 0});
                    message.msg_hdr.msg_controllen = 64;
                }
                if (bad == MESSAGE)
                    whole = pointer(kind, (struct object){sizeof message, &message});
                errno = 0;
                long result;
                if (number == SYS_sendmsg || number == SYS_recvmsg)
                    result = syscall(number, SOCKET, whole, MSG_DONTWAIT);
                else if (number == SYS_sendmmsg || number == SYS_recvmmsg)
                    result = syscall(number, SOCKET, whole, 1, MSG_DONTWAIT, 0);
                else
                    result = syscall(number, FILE_, at, 1, 0, 0, 0);
                int error = errno;
                accept_all();
                errno = error;
                say(made[i].name, parts[bad].name, kind, result);
            }
    tear_down();
}

static const struct group groups[] = {{"plain", plain}, {"messages", messages}};

int main(int count, char **words)
{
    return run_groups("pointers", groups, sizeof groups / sizeof *groups, count, words);
}
