/* Rare uses of system calls: waits that others end, messages, directories that change
   while they are read, sockets after a failure. A line each with result and errno: what
   Linux prints is what a program on the library OS must print. Needs no privilege. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>
#include "lines.h"

static char big[300000], back[300000];

/* Runs `act` in a thread, which goes to sleep in it before this returns, as a rule. */
static pthread_t begin(void *(*act)(void *), void *with)
{
    pthread_t thread;
    pthread_create(&thread, 0, act, with);
    usleep(20000);
    return thread;
}

static long end(pthread_t thread)
{
    void *result;
    pthread_join(thread, &result);
    return (long)result;
}

static long failed(long result) { return result < 0 ? -errno : result; }

static void *lock_and_unlock(void *file)
{
    long locked = flock((long)file, LOCK_EX);
    sched_yield();
    return (void *)(locked * 10 + flock((long)file, LOCK_UN));
}

static void locks(void)
{
    int one = open("lock", O_CREAT | O_RDWR, 0600);
    int two = open("lock", O_RDWR), three = open("lock", O_RDWR);
    T(flock(one, LOCK_EX));
    pthread_t a = begin(lock_and_unlock, (void *)(long)two);
    pthread_t b = begin(lock_and_unlock, (void *)(long)three);
    T(flock(one, LOCK_UN));
    T(end(a));
    T(end(b));
    T(flock(one, LOCK_SH));
    T(flock(two, LOCK_SH));
    a = begin(lock_and_unlock, (void *)(long)three);
    T(flock(two, LOCK_EX | LOCK_NB));
    T(flock(one, LOCK_UN));
    T(end(a));
    close(one);
    close(two);
    close(three);
    unlink("lock");
}

static void *send_all(void *to)
{
    long sent = send((long)to, big, sizeof big, 0);
    close((long)to);
    return (void *)sent;
}

static void *accept_one(void *listener)
{
    long accepted = accept((long)listener, 0, 0);
    return (void *)failed(accepted < 0 ? -1 : 0);
}

static void messages(void)
{
    int p[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, p);
    memset(big, 'x', sizeof big);
    pthread_t sender = begin(send_all, (void *)(long)p[1]);
    T(recv(p[0], back, sizeof back, MSG_WAITALL));
    T(end(sender));
    T(memcmp(big, back, sizeof big));
    close(p[0]);
    int kinds[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    for (int i = 0; i < 2; i++) {
        socketpair(AF_UNIX, kinds[i], 0, p);
        struct iovec out[] = {{big, 100000}, {big, 60000}};
        struct iovec in[] = {{back, 5}, {back + 5, 10}, {back + 15, 200000}};
        T(send(p[0], big, 150000, 0));
        T(recv(p[1], back, sizeof back, 0));
        T(write(p[0], big, 150000));
        T(read(p[1], back, sizeof back));
        T(writev(p[0], out, 2));
        T(read(p[1], back, sizeof back));
        T(send(p[0], big, 212960, 0));
        T(recv(p[1], back, sizeof back, MSG_PEEK));
        T(recv(p[1], back, 7, MSG_TRUNC));
        T(send(p[0], big, 212961, 0));
        T(write(p[0], big, 250000));
        T(write(p[0], "abc", 3));
        T(write(p[0], "defghijklmn", 11));
        T(readv(p[1], in, 2));
        T(memcmp(back, "abc", 3));
        T(readv(p[1], in, 3));
        T(memcmp(back, "defghijklmn", 11));
        T(write(p[0], "abc", 3));
        T(write(p[0], "de", 2));
        T(read(p[1], back, 0));
        T(readv(p[1], in, 1));
        T(readv(p[1], in, 1));
        T(fcntl(p[1], F_SETFL, O_NONBLOCK));
        T(readv(p[1], in, 1));
        T(read(p[1], back, 1));
        close(p[0]);
        T(readv(p[1], in, 1) >= -1);
        close(p[1]);
    }
    T(pipe(p));
    T(read(p[0], back, 0));
    T(read(p[1], back, 0));
    close(p[0]);
    close(p[1]);
}

static struct sockaddr_un un(const char *name)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    strcpy(un.sun_path, name);
    return un;
}

static void *connect_to_full(void *unused)
{
    struct sockaddr_un at = un("full");
    int c = socket(AF_UNIX, SOCK_STREAM, 0);
    long r = failed(connect(c, (void *)&at, sizeof at));
    close(c);
    return (void *)r;
}

static void *send_to_full(void *unused)
{
    struct sockaddr_un at = un("full");
    int c = socket(AF_UNIX, SOCK_DGRAM, 0);
    long r;
    do
        r = failed(sendto(c, big, 100, 0, (void *)&at, sizeof at));
    while (r == 100);
    close(c);
    return (void *)r;
}

static void ends(void)
{
    struct sockaddr_un at = un("full");
    int c[2], l = socket(AF_UNIX, SOCK_STREAM, 0);
    bind(l, (void *)&at, sizeof at);
    T(listen(l, 0));
    c[0] = socket(AF_UNIX, SOCK_STREAM, 0);
    T(connect(c[0], (void *)&at, sizeof at));
    pthread_t t = begin(connect_to_full, 0);
    T(close(l));
    T(end(t));
    close(c[0]);
    unlink("full");
    int d = socket(AF_UNIX, SOCK_DGRAM, 0);
    bind(d, (void *)&at, sizeof at);
    t = begin(send_to_full, 0);
    T(close(d));
    T(end(t));
    unlink("full");
}

static void shutdowns(void)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(own_port(0))};
    struct sockaddr_un at = un("shut");
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct { int family; void *address; socklen_t bytes; } all[] = {
        {AF_INET, &in, sizeof in}, {AF_UNIX, &at, sizeof at}};
    for (int i = 0; i < 2; i++) {
        int one = 1, l = socket(all[i].family, SOCK_STREAM, 0);
        setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, 4);
        T(bind(l, all[i].address, all[i].bytes));
        T(listen(l, 4));
        pthread_t t = begin(accept_one, (void *)(long)l);
        T(shutdown(l, SHUT_WR));
        int c = socket(all[i].family, SOCK_STREAM, 0);
        T(connect(c, all[i].address, all[i].bytes));
        T(end(t));
        close(c);
        t = begin(accept_one, (void *)(long)l);
        T(shutdown(l, SHUT_RDWR));
        T(end(t));
        c = socket(all[i].family, SOCK_STREAM, 0);
        T(connect(c, all[i].address, all[i].bytes));
        close(c);
        struct pollfd p = {l, POLLIN, 0};
        T(poll(&p, 1, 0));
        T((p.revents & POLLHUP) != 0);
        T(accept(l, 0, 0));
        if (all[i].family == AF_INET) {
            T(listen(l, 4));
            c = socket(AF_INET, SOCK_STREAM, 0);
            T(connect(c, all[i].address, all[i].bytes));
            T(accept(l, 0, 0) >= 0);
            close(c);
        }
        close(l);
    }
    unlink("shut");
}

static void retries(void)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(own_port(1))};
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int got, one = 1;
    socklen_t four = 4;
    int c = socket(AF_INET, SOCK_STREAM, 0), n = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    T(connect(c, (void *)&in, sizeof in));
    T(connect(c, (void *)&in, sizeof in));
    T(connect(n, (void *)&in, sizeof in));
    struct pollfd p = {n, POLLOUT, 0};
    T(poll(&p, 1, 10000));
    T(p.revents);
    T(getsockopt(n, SOL_SOCKET, SO_ERROR, &got, &four));
    T(got);
    T(poll(&p, 1, 10000));
    T(p.revents);
    T(getsockopt(n, SOL_SOCKET, SO_ERROR, &got, &four));
    T(got);
    T(connect(n, (void *)&in, sizeof in));
    T(connect(n, (void *)&in, sizeof in));
    T(poll(&p, 1, 10000));
    T(connect(n, (void *)&in, sizeof in));
    int l = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, 4);
    T(bind(l, (void *)&in, sizeof in));
    T(listen(l, 4));
    T(connect(c, (void *)&in, sizeof in));
    T(write(c, "x", 1));
    T(connect(n, (void *)&in, sizeof in));
    T(poll(&p, 1, 10000));
    T(p.revents);
    T(getsockopt(n, SOL_SOCKET, SO_ERROR, &got, &four));
    T(got);
    T(connect(n, (void *)&in, sizeof in));
    T(connect(n, (void *)&in, sizeof in));
    T(write(n, "x", 1));
    close(c);
    close(n);
    close(l);
}

static void queues(void)
{
    struct epoll_event event = {EPOLLIN, {.u32 = 1}}, got[4];
    int p[2], q[2], e = epoll_create1(0);
    pipe(p);
    T(epoll_ctl(e, EPOLL_CTL_ADD, p[0], &event));
    pipe(q);
    int kept = dup(p[0]), number = p[0];
    T(dup2(q[0], number) == number);
    T(epoll_ctl(e, EPOLL_CTL_MOD, number, &event));
    T(epoll_ctl(e, EPOLL_CTL_DEL, number, 0));
    event.data.u32 = 2;
    T(epoll_ctl(e, EPOLL_CTL_ADD, number, &event));
    T(epoll_ctl(e, EPOLL_CTL_ADD, number, &event));
    write(p[1], "x", 1);
    T(epoll_wait(e, got, 4, 0));
    T(got[0].data.u32);
    write(q[1], "x", 1);
    T(epoll_wait(e, got, 4, 0));
    T(got[0].data.u32 + got[1].data.u32);
    T(epoll_ctl(e, EPOLL_CTL_DEL, number, 0));
    T(epoll_wait(e, got, 4, 0));
    close(kept);
    T(epoll_wait(e, got, 4, 0));
    for (int i = 0; i < 3; i++) {
        static const unsigned nothing[] = {0, EPOLLET, EPOLLONESHOT};
        pipe(p);
        event.events = nothing[i];
        T(epoll_ctl(e, EPOLL_CTL_ADD, p[0], &event));
        write(p[1], "x", 1);
        T(epoll_wait(e, got, 4, 0));
        close(p[1]);
        T(epoll_wait(e, got, 4, 10000));
        T(got[0].events);
        T(epoll_wait(e, got, 4, 0));
        close(p[0]);
    }
    close(e);
    close(q[0]);
    close(q[1]);
    fd_set set;
    struct timeval none = {0};
    pipe(p);
    fcntl(p[1], F_SETFL, O_NONBLOCK);
    while (write(p[1], big, 4096) > 0)
        ;
    FD_ZERO(&set);
    FD_SET(p[1], &set);
    T(select(p[1] + 1, 0, &set, 0, &none));
    close(p[0]);
    FD_SET(p[1], &set);
    T(select(p[1] + 1, 0, &set, 0, &none));
    FD_SET(p[1], &set);
    T(select(p[1] + 1, &set, 0, 0, &none));
    close(p[1]);
}

static int stop;

/* Opens and closes, so that numbers come and go. */
static void *churn(void *unused)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        int high = fcntl(1, F_DUPFD, 100);
        sched_yield();
        close(high);
    }
    return 0;
}

static void directories(void)
{
    char name[300];
    struct dirent *entry;
    int seen = 0, left = 0, all = 400;
    T(mkdir("many", 0700));
    for (int i = 0; i < all; i++) {
        snprintf(name, sizeof name, "many/%0100d", i);
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    DIR *many = opendir("many");
    while ((entry = readdir(many)))
        if (entry->d_name[0] != '.') {
            seen++;
            unlinkat(dirfd(many), entry->d_name, 0);
        }
    T(seen);
    T(rmdir("many"));
    closedir(many);
    T(mkdir("real", 0700));
    T(mkdir("real/in", 0700));
    T(symlink("real/in", "link"));
    char here[PATH_MAX], there[PATH_MAX];
    T(getcwd(here, sizeof here) != 0);
    T(chdir("link"));
    T(getcwd(there, sizeof there) != 0);
    T(strcmp(there + strlen(here), "/real/in"));
    T(chdir(".."));
    T(getcwd(there, sizeof there) != 0);
    T(strcmp(there + strlen(here), "/real"));
    T(chdir(".."));
    int d = open("link", O_RDONLY | O_DIRECTORY);
    T(openat(d, "../in", O_RDONLY | O_DIRECTORY) >= 0);
    T(openat(d, "../missing", O_RDONLY));
    T(fchdir(d));
    T(chdir("../.."));
    T(getcwd(there, sizeof there) != 0);
    T(strcmp(there, here));
    close(d);
    T(rename("real", "link/x"));
    T(rename("real", "real/in/../y"));
    T(rename("real/in", "real"));
    close(open("real/file", O_CREAT | O_WRONLY, 0600));
    T(rename("real/file", "real"));
    T(rename("real/file", "real/in/file"));
    T(rename("real/in/file", "file"));
    T(rename("file", "file"));
    T(rename("real/..", "x"));
    T(rename("real", "real/.."));
    T(rename("real", "/"));
    T(rename("real/in", "real/other"));
    T(rename("real/other", "other"));
    T(rename("other", "real"));
    T(rmdir("real"));
    T(unlink("file"));
    T(unlink("link"));
    pthread_t thread = begin(churn, 0);
    for (int i = 0; i < 200; i++)
        left += syscall(SYS_close_range, 100, ~0u, 0) != 0;
    dup2(0, 120);
    dup2(0, 130);
    for (int i = 0; i < 200; i++)
        left += syscall(SYS_close_range, 110, 125, 0) != 0;
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    T(end(thread));
    T(left);
    T(fcntl(120, F_GETFD));
    T(fcntl(130, F_GETFD));
    T(syscall(SYS_close_range, 126, 140, 4));
    T(fcntl(130, F_GETFD));
    close(130);
}

/* A write that meets memory which is not there gives what it wrote before. */
static void partly(void)
{
    char *area = mmap(0, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(area + (1 << 20), 4096, PROT_NONE);
    int f = open("partly", O_CREAT | O_RDWR, 0600);
    T(pwrite(f, area, 2 << 20, 10));
    T(lseek(f, 0, SEEK_END));
    T(pwrite(f, area + (1 << 20), 10, 0));
    T(lseek(f, 100, SEEK_SET));
    T(read(f, area + (1 << 20), 5000));
    T(lseek(f, 0, SEEK_CUR));
    T(read(f, area + (1 << 20) - 4096, 5000));
    T(lseek(f, 0, SEEK_CUR));
    T(pread(f, area + (1 << 20) - 4096, 5000, 0));
    int p[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, p);
    T(write(p[0], area + (1 << 20) - 4096, 5000));
    T(recv(p[1], back, 1, MSG_DONTWAIT));
    close(p[0]);
    close(p[1]);
    /* What there is no memory for stays in the pipe. */
    pipe(p);
    T(write(p[1], big, 8192));
    T(read(p[0], area + (1 << 20) - 4096, 8192));
    T(read(p[0], back, 8192));
    close(p[0]);
    close(p[1]);
    T(ftruncate(f, 0));
    T(write(f, area, 0));
    T(lseek(f, 0, SEEK_END));
    /* Parts in the kernel's half, at the end of a file and without a message. */
    struct iovec far[3] = {{back, 1}, {(void *)-4096, 8}, {(void *)-4096, 0}};
    struct msghdr m = {.msg_iov = far, .msg_iovlen = 2};
    T(readv(f, far, 1));
    T(readv(f, far, 2));
    T(readv(f, far + 2, 1));
    T(preadv(f, far, 2, 0));
    T(writev(f, far, 2));
    T(lseek(f, 0, SEEK_END));
    socketpair(AF_UNIX, SOCK_DGRAM, 0, p);
    T(recvmsg(p[1], &m, MSG_DONTWAIT));
    T(sendmsg(p[0], &m, MSG_DONTWAIT));
    T(recv(p[1], back, 8, MSG_DONTWAIT));
    far[1].iov_len = -1;
    T(readv(f, far, 2));
    close(p[0]);
    close(p[1]);
    close(f);
    unlink("partly");
    munmap(area, 4 << 20);
}

/* Whose flags and slashes count. */
static void names(void)
{
    close(open("file", O_CREAT | O_RDWR, 0600));
    symlink("file", "link");
    symlink("file/", "slash");
    symlink("gone", "dangling");
    symlink("new/", "later");
    T(open("slash", O_RDONLY));
    T(open("new/", O_CREAT | O_RDWR, 0600));
    T(open("later", O_CREAT | O_RDWR, 0600));
    T(open("new/", O_RDWR));
    unlink("later");
    T(access("slash", F_OK));
    T(link("file", "new/"));
    T(symlink("file", "new/"));
    T(link("file", "file/"));
    T(mkdir("new/", 0700));
    T(rmdir("new/"));
    T(lchown("dangling", -1, -1));
    T(chown("dangling", -1, -1));
    T(fchownat(AT_FDCWD, "dangling", -1, -1, AT_SYMLINK_NOFOLLOW));
    T(fchownat(AT_FDCWD, "file", -1, -1, 1 << 20));
    int f = open("file", O_RDWR);
    T(fchownat(f, "", -1, -1, AT_EMPTY_PATH));
    T(fchownat(f, "", -1, -1, 0));
    T(syscall(SYS_faccessat2, AT_FDCWD, "dangling", F_OK, AT_SYMLINK_NOFOLLOW));
    T(syscall(SYS_faccessat2, AT_FDCWD, "dangling", F_OK, 0));
    T(syscall(SYS_faccessat2, AT_FDCWD, "file", F_OK, -1));
    T(syscall(SYS_faccessat2, f, "", R_OK, AT_EMPTY_PATH | AT_EACCESS));
    T(syscall(SYS_faccessat2, f, "", 8, AT_EMPTY_PATH));
    char by_number[40];
    struct stat status;
    snprintf(by_number, sizeof by_number, "/proc/self/fd/%d", f);
    T(chmod(by_number, 0640));
    T(fstat(f, &status) * 0 + (status.st_mode & 07777));
    close(f);
    unlink("dangling");
    unlink("slash");
    unlink("link");
    unlink("file");
}

static long moved(int from, loff_t *at, int to, loff_t *to_at, size_t length, unsigned flags)
{
    return splice(from, at, to, to_at, length, flags | SPLICE_F_NONBLOCK);
}

/* A pipe from and to what there is; what is not taken stays in it. */
static void splices(void)
{
    int p[2], q[2], s[2], u[2], f = open("file", O_CREAT | O_RDWR, 0600);
    loff_t at = 3, far = -5;
    pipe2(p, O_NONBLOCK);
    pipe2(q, O_NONBLOCK);
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s);
    socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, u);
    T(write(f, "0123456789", 10));
    loff_t copied_from = 0, copied_to = 5;
    T(copy_file_range(f, &copied_from, f, &copied_to, 6, 0));
    T(copy_file_range(f, &copied_from, f, &copied_to, 5, 0));
    copied_from = 8;
    copied_to = 9;
    T(copy_file_range(f, &copied_from, f, &copied_to, 5, 0));
    T(pwrite(f, "0123456789", 10, 0));
    T(moved(f, 0, p[1], 0, 0, 1 << 10));
    T(moved(f, 0, p[1], 0, 5, 1 << 10));
    T(moved(130, 0, p[1], 0, 5, 0));
    T(moved(f, 0, f, 0, 5, 0));
    T(moved(f, 0, p[0], 0, 5, 0));
    T(moved(p[1], 0, f, 0, 5, 0));
    T(moved(p[0], 0, p[1], 0, 5, 0));
    T(moved(p[0], &at, f, 0, 5, 0));
    T(moved(f, BAD, p[1], 0, 5, 0));
    T(moved(s[0], &at, p[1], 0, 5, 0));
    T(moved(f, &far, p[1], 0, 5, 0));
    T(moved(p[0], 0, f, 0, 5, 0));
    T(moved(f, 0, p[1], 0, 5, 0));
    T(moved(f, &at, p[1], 0, 5, 0));
    T(at);
    T(moved(p[0], 0, q[1], 0, 3, 0));
    T(read(q[0], back, 10));
    T(moved(p[0], 0, s[0], 0, 100, 0));
    T(read(s[1], back, 10));
    T(back[0] * 256 + back[1]);
    T(moved(s[1], 0, p[1], 0, 100, 0));
    T(write(s[0], "socket", 6));
    T(moved(s[1], 0, p[1], 0, 100, 0));
    at = 1;
    T(moved(p[0], 0, f, &at, 100, 0));
    T(at);
    T(pread(f, back, 20, 0));
    T(memcmp(back, "0socket789", 10));
    int append = open("file", O_APPEND | O_RDWR);
    copied_from = copied_to = 0;
    T(copy_file_range(f, &copied_from, append, &copied_to, 1, 0));
    write(p[1], "x", 1);
    T(moved(p[0], 0, append, 0, 1, 0));
    T(moved(p[0], 0, f, 0, 1, 0));
    close(append);
    /* What does not fit into a socket is there again. */
    long sent = 0, count;
    memset(big, 'b', sizeof big);
    while (write(s[0], big, 4096) > 0)
        ;
    T(write(p[1], "kept", 4));
    T(moved(p[0], 0, s[0], 0, 4, 0));
    T(read(p[0], back, 10));
    T(memcmp(back, "kept", 4));
    close(p[0]);
    T(moved(f, &at, p[1], 0, 1, 0));
    close(p[1]);
    close(s[0]);
    while ((count = moved(s[1], 0, q[1], 0, 60000, 0)) > 0 && read(q[0], back, 65536) == count)
        sent += count;
    T(count + (sent > 4096));
    close(q[1]);
    T(moved(q[0], 0, f, 0, 5, 0));
    close(u[0]);
    close(u[1]);
    close(q[0]);
    close(s[1]);
    close(f);
    unlink("file");
}

/* Sockets of AF_UNIX without a name, and with one that the kernel gives. */
static void unnamed(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX}, from;
    int named = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0), other = socket(AF_UNIX, SOCK_DGRAM, 0);
    T(bind(named, (void *)&to, 2));
    T(bind(named, (void *)&to, 2));
    socklen_t bytes = sizeof to;
    T(getsockname(named, (void *)&to, &bytes));
    T(bytes * 1000 + to.sun_path[0]);
    T(strspn(to.sun_path + 1, "0123456789abcdef"));
    T(sendto(other, "x", 1, 0, (void *)&to, bytes));
    bytes = sizeof from;
    T(recvfrom(named, back, 9, 0, (void *)&from, &bytes));
    T(bytes);
    struct sockaddr_un none = {.sun_family = AF_UNIX};
    T(bind(other, (void *)&none, 2));
    T(sendto(other, "y", 1, 0, (void *)&to, 8));
    bytes = sizeof from;
    struct iovec part = {back, 9};
    struct msghdr m = {.msg_name = &from, .msg_namelen = bytes, .msg_iov = &part, .msg_iovlen = 1};
    T(recvmsg(named, &m, 0));
    T(m.msg_namelen);
    close(named);
    close(other);
}

/* Of an end of writing before the connection the peer learns nothing. */
static void ended_before(void)
{
    static const int kinds[] = {SOCK_STREAM, SOCK_SEQPACKET};
    for (int i = 0; i < 2; i++) {
        struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "at"};
        int listener = socket(AF_UNIX, kinds[i] | SOCK_NONBLOCK, 0);
        bind(listener, (void *)&at, sizeof at);
        listen(listener, 1);
        int client = socket(AF_UNIX, kinds[i] | SOCK_NONBLOCK, 0);
        T(shutdown(client, SHUT_WR));
        T(connect(client, (void *)&at, sizeof at));
        int server = accept4(listener, 0, 0, SOCK_NONBLOCK);
        T(recv(server, back, 9, 0));
        T(send(client, "x", 1, 0));
        T(send(server, "y", 1, 0));
        T(recv(client, back, 9, 0));
        struct pollfd both[2] = {{client, POLLIN | POLLOUT | POLLRDHUP, 0}, {server, POLLIN | POLLOUT | POLLRDHUP, 0}};
        T(poll(both, 2, 0));
        T(both[0].revents * 65536 + both[1].revents);
        T(shutdown(client, SHUT_WR));
        T(recv(server, back, 9, 0));
        close(client);
        close(server);
        close(listener);
        unlink("at");
    }
}

/* A peer without an address is this host; options are read back. */
static void here(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t bytes = sizeof any;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (void *)&any, bytes);
    listen(listener, 1);
    getsockname(listener, (void *)&any, &bytes);
    any.sin_addr.s_addr = 0;
    int client = socket(AF_INET, SOCK_STREAM, 0);
    T(connect(client, (void *)&any, bytes));
    T(getpeername(client, (void *)&any, &bytes));
    T(ntohl(any.sin_addr.s_addr));
    int on = 1, read_back = 7;
    socklen_t word = 4;
    T(setsockopt(client, SOL_SOCKET, SO_KEEPALIVE, &on, 4));
    T(getsockopt(client, SOL_SOCKET, SO_KEEPALIVE, &read_back, &word));
    T(read_back);
    static const int probes[] = {TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_USER_TIMEOUT};
    static const int values[] = {0, -1, 1, 99, 127, 128, 32767, 32768};
    for (int i = 0; i < 4; i++) {
        T(getsockopt(client, IPPROTO_TCP, probes[i], &read_back, &word));
        T(read_back);
        for (int j = 0; j < 8; j++)
            T(setsockopt(client, IPPROTO_TCP, probes[i], &values[j], 4));
        T(getsockopt(client, IPPROTO_TCP, probes[i], &read_back, &word));
        T(read_back);
    }
    close(client);
    close(listener);
    struct sockaddr_in to = {.sin_family = AF_INET};
    int one = socket(AF_INET, SOCK_DGRAM, 0), two = socket(AF_INET, SOCK_DGRAM, 0);
    T(bind(one, (void *)&to, bytes));
    getsockname(one, (void *)&to, &bytes);
    to.sin_addr.s_addr = 0;
    T(sendto(two, "z", 1, 0, (void *)&to, bytes));
    T(recv(one, back, 9, 0));
    close(one);
    close(two);
}

static pthread_mutex_t robust;

static void *lock_and_end(void *unused)
{
    return (void *)(long)pthread_mutex_lock(&robust);
}

/* A thread ends while it holds a mutex: the next one gets EOWNERDEAD. */
static void robusts(void)
{
    pthread_mutexattr_t kind;
    struct timespec until;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &kind);
    T(end(begin(lock_and_end, 0)));
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2;
    T(pthread_mutex_timedlock(&robust, &until));
    T(pthread_mutex_consistent(&robust));
    T(pthread_mutex_unlock(&robust));
}

static void nothing(int signal) {}

static void *take_lock(void *file)
{
    return (void *)failed(flock((long)file, LOCK_EX));
}

/* A call that waits for a lock goes on after a handler that asks for it. */
static void restarted(void)
{
    struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, 0);
    int one = open("restart", O_CREAT | O_RDWR, 0600), two = open("restart", O_RDWR);
    flock(one, LOCK_EX);
    pthread_t waits = begin(take_lock, (void *)(long)two);
    pthread_kill(waits, SIGUSR1);
    usleep(20000);
    flock(one, LOCK_UN);
    T(end(waits));
    close(one);
    close(two);
    unlink("restart");
}

/* What is left of timers whose expirations were not read. */
static void timers(void)
{
    struct itimerspec once = {{0, 0}, {0, 1000000}}, often = {{0, 10000000}, {0, 10000000}}, now;
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    timerfd_settime(timer, 0, &once, 0);
    usleep(20000);
    T(timerfd_gettime(timer, &now));
    T(now.it_value.tv_sec);
    T(now.it_value.tv_nsec);
    T(timerfd_settime(timer, 0, &often, &now));
    T(now.it_value.tv_nsec);
    usleep(25000);
    /* Nothing is left at the very moment of an expiration. */
    for (int i = 0; i < 1000 && !(timerfd_gettime(timer, &now) | now.it_value.tv_nsec); i++)
        ;
    T(now.it_value.tv_nsec > 0 && now.it_value.tv_nsec <= 10000000);
    T(now.it_interval.tv_nsec);
    close(timer);
}

/* Flags of a receive that ask for something else than data. */
static void no_data(void)
{
    struct sockaddr_in own = {.sin_family = AF_INET};
    socklen_t bytes = sizeof own;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int datagrams = socket(AF_INET, SOCK_DGRAM, 0), p[2];
    bind(datagrams, (void *)&own, bytes);
    getsockname(datagrams, (void *)&own, &bytes);
    T(recv(datagrams, back, 9, MSG_ERRQUEUE));
    T(sendto(datagrams, "x", 1, 0, (void *)&own, bytes));
    usleep(20000);
    T(recv(datagrams, back, 9, MSG_ERRQUEUE | MSG_DONTWAIT));
    T(recv(datagrams, back, 9, MSG_OOB | MSG_DONTWAIT));
    T(recv(datagrams, back, 9, MSG_DONTWAIT));
    close(datagrams);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, p);
    T(recv(p[0], back, 9, MSG_OOB | MSG_DONTWAIT));
    close(p[0]);
    close(p[1]);
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    own.sin_port = 0;
    bind(listener, (void *)&own, bytes);
    listen(listener, 1);
    getsockname(listener, (void *)&own, &bytes);
    connect(client, (void *)&own, bytes);
    int server = accept(listener, 0, 0);
    T(send(client, "y", 1, 0));
    usleep(20000);
    T(recv(server, back, 9, MSG_ERRQUEUE | MSG_DONTWAIT));
    T(recv(server, back, 9, MSG_OOB | MSG_DONTWAIT));
    T(recv(server, back, 9, MSG_DONTWAIT));
    close(client);
    close(server);
    close(listener);
}

static const struct group groups[] = {
    {"locks", locks},         {"messages", messages}, {"ends", ends},
    {"shutdowns", shutdowns}, {"retries", retries},   {"queues", queues},
    {"directories", directories}, {"partly", partly}, {"names", names},
    {"splices", splices},     {"unnamed", unnamed},   {"here", here},
    {"ended before", ended_before}, {"robusts", robusts}, {"restarted", restarted},
    {"timers", timers}, {"no data", no_data},
};

int main(int count, char **words)
{
    return run_groups("corners", groups, sizeof groups / sizeof *groups, count, words);
}
