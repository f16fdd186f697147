/* Messages by the dozen, limits of resources, what is mapped, flags and options: where calls stop,
   what they refuse and what is read back. A line each with result and errno: what Linux prints is
   what a program on the library OS must print. Needs no privilege. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include "lines.h"

#define MESSAGES 64
#define PAGE 4096

static char bytes[MESSAGES][8];
static struct iovec parts[MESSAGES];
static struct mmsghdr messages[MESSAGES];

/* All of them empty, with room for 8 bytes each. */
static void begin_again(void)
{
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < MESSAGES; i++) {
        parts[i] = (struct iovec){bytes[i], sizeof bytes[i]};
        messages[i].msg_hdr.msg_iov = &parts[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
}

struct later {
    int socket, count;
};

/* Sends or receives messages, each some time after the one before. */
static void *send_later(void *what)
{
    struct later *later = what;
    for (int i = 0; i < later->count; i++) {
        usleep(300000);
        send(later->socket, "later", 5, 0);
    }
    return 0;
}

static void *receive_later(void *what)
{
    struct later *later = what;
    char taken[8];
    usleep(20000);
    for (int i = 0; i < later->count; i++)
        recv(later->socket, taken, sizeof taken, 0);
    return 0;
}

static void receives(void)
{
    int s[2];
    pthread_t thread;
    struct timespec soon = {0, 450000000}, long_time = {50, 0};
    socketpair(AF_UNIX, SOCK_DGRAM, 0, s);
    begin_again();
    send(s[1], "now", 3, 0);
    T(recvmmsg(s[0], messages, 3, MSG_WAITFORONE, 0));
    T(messages[0].msg_len);
    struct later three = {s[1], 3};
    pthread_create(&thread, 0, send_later, &three);
    T(recvmmsg(s[0], messages, 3, 0, 0));
    T(messages[2].msg_len);
    pthread_join(thread, 0);
    /* The time is over behind the second. */
    pthread_create(&thread, 0, send_later, &three);
    T(recvmmsg(s[0], messages, 3, 0, &soon));
    T(soon.tv_sec + soon.tv_nsec);
    pthread_join(thread, 0);
    T(recv(s[0], bytes, 8, MSG_DONTWAIT));
    send(s[1], "now", 3, 0);
    T(recvmmsg(s[0], messages, 1, 0, &long_time));
    T(long_time.tv_sec < 50 && long_time.tv_sec > 30);
    T(recvmmsg(s[0], messages, 2, MSG_DONTWAIT, &long_time));
    T(recvmmsg(s[0], messages, 0, 0, 0));
    soon.tv_nsec = 1000000000;
    T(recvmmsg(s[0], messages, 1, 0, &soon));
    T(recvmmsg(99, messages, 1, 0, &soon));
    T(recvmmsg(99, messages, 0, 0, 0));
    int none = open("/dev/null", O_RDWR);
    T(recvmmsg(none, messages, 0, 0, 0));
    close(none);
    T(recvmmsg(s[0], messages, 1, 0, BAD));
    /* One that cannot be written ends it behind those that could. */
    for (int i = 0; i < 3; i++)
        send(s[1], "now", 3, 0);
    messages[1].msg_hdr.msg_iov = BAD;
    T(recvmmsg(s[0], messages, 3, MSG_DONTWAIT, 0));
    close(s[0]);
    close(s[1]);
}

static void sends(void)
{
    int s[2];
    pthread_t thread;
    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s);
    int small = 1;
    setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    begin_again();
    struct later all = {s[1], 10 * MESSAGES};
    pthread_create(&thread, 0, receive_later, &all);
    for (int i = 0; i < 10; i++)
        T(sendmmsg(s[0], messages, MESSAGES, 0));
    T(messages[MESSAGES - 1].msg_len);
    pthread_join(thread, 0);
    T(sendmmsg(s[0], messages, 0, 0));
    T(sendmmsg(99, messages, 0, 0));
    messages[2].msg_hdr.msg_iov = BAD;
    T(sendmmsg(s[0], messages, 4, 0));
    T(recv(s[1], bytes, 8, MSG_DONTWAIT));
    T(recv(s[1], bytes, 8, MSG_DONTWAIT));
    T(recv(s[1], bytes, 8, MSG_DONTWAIT));
    T(sendmmsg(s[0], BAD, 1, 0));
    close(s[0]);
    close(s[1]);
}

static void read_back(int resource)
{
    struct rlimit limit = {1, 1};
    T(getrlimit(resource, &limit));
    T(limit.rlim_cur);
    T(limit.rlim_max);
}

static void limits(void)
{
    struct rlimit limit, other, was;
    T(getrlimit(RLIMIT_NOFILE, &was));
    T(syscall(SYS_getrlimit, RLIMIT_NOFILE, 0));
    T(syscall(SYS_getrlimit, 16, &limit));
    T(syscall(SYS_getrlimit, -1, &limit));
    T(syscall(SYS_setrlimit, 16, &was));
    T(syscall(SYS_setrlimit, RLIMIT_NOFILE, 0));
    T(syscall(SYS_setrlimit, RLIMIT_NOFILE, BAD));
    T(syscall(SYS_setrlimit, 16, BAD));
    for (int i = 0; i < 16; i++) {
        getrlimit(i, &limit);
        T(setrlimit(i, &limit));
        other = (struct rlimit){2, 1};
        T(setrlimit(i, &other));
        T(prlimit(0, i, &other, 0));
    }
    limit = (struct rlimit){20, 64};
    T(prlimit(getpid(), RLIMIT_NOFILE, &limit, &other));
    T(other.rlim_cur == was.rlim_cur && other.rlim_max == was.rlim_max);
    read_back(RLIMIT_NOFILE);
    limit = (struct rlimit){1 << 20, 1 << 21};
    T(setrlimit(RLIMIT_STACK, &limit));
    read_back(RLIMIT_STACK);
    limit = (struct rlimit){0, 0};
    T(setrlimit(RLIMIT_CORE, &limit));
    read_back(RLIMIT_CORE);
    limit = (struct rlimit){RLIM_INFINITY, 5};
    T(setrlimit(RLIMIT_CPU, &limit));
    T(prlimit(99999999, RLIMIT_CPU, 0, &other));
    T(prlimit(99999999, RLIMIT_CPU, BAD, &other));
    T(prlimit(-1, RLIMIT_CPU, 0, &other));
    T(syscall(SYS_prlimit64, 0, 16, 0, &other));
    T(prlimit(0, RLIMIT_STACK, 0, BAD));
    T(prlimit(0, RLIMIT_STACK, 0, 0));
}

/* The limit of descriptors is 20 from the group before on, or from here. */
static void descriptors(void)
{
    struct rlimit limit = {20, 64}, none = {0, 64}, more = {64, 64};
    /* What the program was started with. */
    syscall(SYS_close_range, 3, -1, 0);
    int opened = 0, last = -1, next, pair[2], listens = socket(AF_UNIX, SOCK_STREAM, 0);
    T(setrlimit(RLIMIT_NOFILE, &limit));
    struct pollfd polled[64];
    for (int i = 0; i < 64; i++)
        polled[i].fd = -1;
    T(bind(listens, (struct sockaddr *)"\1\0", 2));
    T(listen(listens, 1));
    struct sockaddr_storage name;
    socklen_t bytes = sizeof name;
    T(getsockname(listens, (void *)&name, &bytes));
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    T(connect(client, (void *)&name, bytes));
    while ((next = open("/dev/null", O_RDONLY)) >= 0) {
        last = next;
        opened++;
    }
    T(last);
    T(opened);
    T(open("/dev/null", O_RDONLY));
    T(dup(0));
    T(dup2(0, 20));
    T(dup2(0, 63));
    T(dup3(0, 20, 0));
    T(dup2(0, 19));
    T(fcntl(0, F_DUPFD, 19));
    T(fcntl(0, F_DUPFD, 20));
    T(fcntl(0, F_DUPFD_CLOEXEC, 64));
    T(fcntl(0, F_DUPFD, -1));
    T(pipe(pair));
    T(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    T(socket(AF_INET, SOCK_STREAM, 0));
    T(epoll_create1(0));
    T(eventfd(0, 0));
    T(accept(listens, 0, 0));
    T(close(last));
    T(pipe(pair));
    T(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    /* It still waits. */
    T(accept(listens, 0, 0));
    T(close(last));
    T(poll(polled, 20, 0));
    T(poll(polled, 21, 0));
    T(setrlimit(RLIMIT_NOFILE, &more));
    T(poll(polled, 21, 0));
    T(dup2(0, 63));
    T(dup2(0, 64));
    T(setrlimit(RLIMIT_NOFILE, &none));
    /* What is above the limit stays open. */
    T(lseek(last - 1, 0, SEEK_CUR));
    T(fcntl(63, F_GETFD));
    T(dup(0));
    T(close(63));
    T(setrlimit(RLIMIT_NOFILE, &more));
    for (int i = 3; i < 64; i++)
        close(i);
}

/* Pages that have been used, and with holes. */
static void in_core(void)
{
    unsigned char there[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    char *at = mmap(0, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(at, 1, 8 * PAGE);
    T(mincore(at, 3 * PAGE, there));
    T(there[0] & there[1] & there[2] & 1);
    T(there[3]);
    T(mincore(at, 3 * PAGE + 1, there));
    T(there[3] & 1);
    T(there[4]);
    T(mincore(at + 1, PAGE, there));
    T(mincore(at, 0, there));
    T(mincore(at, PAGE, BAD));
    T(mincore(at, PAGE, (void *)-1));
    T(mincore(at, 0, BAD));
    T(mincore((void *)-PAGE, PAGE, there));
    T(mincore(at, -1, there));
    munmap(at + 5 * PAGE, PAGE);
    there[4] = there[6] = 9;
    T(mincore(at, 8 * PAGE, there));
    T(there[4] & 1);
    T(there[6]);
    T(mincore(at + 5 * PAGE, PAGE, there));
    T(mincore(at + 6 * PAGE, 2 * PAGE, there));
    T(mprotect(at, PAGE, PROT_NONE));
    T(mincore(at, PAGE, there));
    munmap(at, 8 * PAGE);
    T(mincore(at, PAGE, there));
}

/* Zeros by a device. */
static void zeros(void)
{
    int zero = open("/dev/zero", O_RDWR), read_only = open("/dev/zero", O_RDONLY);
    int write_only = open("/dev/zero", O_WRONLY), full = open("/dev/full", O_RDWR);
    const int rights = PROT_READ | PROT_WRITE;
    char *at = mmap(0, 3 * PAGE, rights, MAP_PRIVATE, zero, PAGE), *other;
    T(at != MAP_FAILED);
    T(at[0] | at[2 * PAGE]);
    at[PAGE] = 5;
    T(at[PAGE]);
    T(madvise(at, 3 * PAGE, MADV_DONTNEED));
    T(at[PAGE]);
    T(munmap(at, 3 * PAGE));
    at = mmap(0, PAGE, rights, MAP_SHARED, zero, 0);
    other = mmap(0, PAGE, rights, MAP_SHARED, zero, 0);
    T(at != MAP_FAILED && other != MAP_FAILED);
    at[0] = 6;
    T(at[0]);
    T(other[0]);
    T(madvise(at, PAGE, MADV_DONTNEED));
    T(at[0]);
    munmap(at, PAGE);
    munmap(other, PAGE);
    at = mmap(0, PAGE, rights, MAP_PRIVATE, read_only, 0);
    T(at != MAP_FAILED);
    munmap(at, PAGE);
    T(mmap(0, PAGE, rights, MAP_SHARED, read_only, 0));
    T(mmap(0, PAGE, rights, MAP_PRIVATE, write_only, 0));
    T(mmap(0, PAGE, rights, MAP_PRIVATE, full, 0));
    T(mmap(0, PAGE, rights, MAP_PRIVATE, zero, 1));
    close(zero);
    close(read_only);
    close(write_only);
    close(full);
}

static void removes(void)
{
    mkdir("d", 0700);
    close(creat("f", 0600));
    T(unlinkat(AT_FDCWD, "f", 1));
    T(unlinkat(AT_FDCWD, "f", AT_SYMLINK_NOFOLLOW));
    T(unlinkat(AT_FDCWD, "d", AT_REMOVEDIR | AT_EMPTY_PATH));
    T(unlinkat(AT_FDCWD, BAD, -1));
    T(unlinkat(99, "f", 1));
    T(unlinkat(AT_FDCWD, "d", AT_REMOVEDIR));
    T(unlinkat(AT_FDCWD, "f", 0));
}

/* Options that are on or off. */
static void switches(void)
{
    static const int options[] = {SO_REUSEADDR, SO_REUSEPORT, SO_KEEPALIVE, SO_BROADCAST,
                                  SO_DONTROUTE, SO_OOBINLINE};
    int tcp = socket(AF_INET, SOCK_STREAM, 0);
    for (unsigned i = 0; i < sizeof options / sizeof *options; i++) {
        int word = 7;
        socklen_t bytes = sizeof word;
        T(getsockopt(tcp, SOL_SOCKET, options[i], &word, &bytes));
        T(word);
        word = 5;
        T(setsockopt(tcp, SOL_SOCKET, options[i], &word, sizeof word));
        T(getsockopt(tcp, SOL_SOCKET, options[i], &word, &bytes));
        T(word);
        word = 0;
        T(setsockopt(tcp, SOL_SOCKET, options[i], &word, sizeof word));
        T(getsockopt(tcp, SOL_SOCKET, options[i], &word, &bytes));
        T(word);
    }
    close(tcp);
}

static const struct group groups[] = {
    {"receives", receives}, {"sends", sends}, {"limits", limits}, {"descriptors", descriptors},
    {"in core", in_core},   {"zeros", zeros},             {"removes", removes},
    {"switches", switches},
};

int main(int count, char **words)
{
    return run_groups("bounds", groups, sizeof groups / sizeof *groups, count, words);
}
