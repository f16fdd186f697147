/* Edges of system calls that programs met: what a call leaves behind, links to descriptors,
   errors that wait at a socket. A line each with result and errno: what Linux prints is what a
   program on the library OS must print. Needs no privilege. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <time.h>
#include "lines.h"

static char big[1 << 20];

/* Objects that processes share by name, though there is one process. */
static void named(void)
{
    char name[32];
    sprintf(name, "/edges-%d", getpid());
    sem_t *sem = sem_open(name, O_CREAT | O_EXCL, 0600, 1);
    T(sem != SEM_FAILED);
    T(sem_wait(sem));
    T(sem_trywait(sem));
    T(sem_post(sem));
    T(sem_close(sem));
    T(sem_unlink(name));
    int shared = shm_open(name, O_CREAT | O_RDWR, 0600);
    T(ftruncate(shared, 4096));
    char *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    T(at != MAP_FAILED);
    at[0] = 7;
    T(msync(at, 4096, MS_SYNC));
    T(pread(shared, big, 1, 0));
    T(big[0]);
    T(munmap(at, 4096));
    T(close(shared));
    T(shm_unlink(name));
    struct stat st;
    T(stat("/dev/shm", &st));
    T(st.st_mode & 01777);
}

static void print_bytes(const char *what, const char *bytes, long count)
{
    printf("%s:", what);
    for (long i = 0; i < count; i++)
        printf(" %02x", (unsigned char)bytes[i]);
    printf("\n");
}

static int is_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void list(const char *directory)
{
    struct dirent **entries;
    int count = scandir(directory, &entries, is_file, by_bytes);
    T(count);
    for (int i = 0; i < count; i++)
        print_bytes("name", entries[i]->d_name, strlen(entries[i]->d_name));
}

/* Names may have any bytes but '/' and NUL, whatever they mean in UTF-8. */
static void any_bytes(void)
{
    struct stat st;
    char text[600], path[64];
    T(open("\xc0\xaf", O_RDONLY));
    T(stat("a\xff", &st));
    T(unlink("\xff/b"));
    mkdir("caf\xe9", 0700);
    T(close(creat("caf\xe9/\xff", 0600)));
    T(close(creat("caf\xe9/\xed\xa0\x80", 0600)));
    T(close(creat("caf\xe9/caf\xc3\xa9", 0600)));
    T(close(creat("caf\xe9/\xf4\x8f\xbf\xa9", 0600)));
    T(close(creat("caf\xe9/\xf4\x8f\xbf", 0600)));
    T(stat("caf\xe9/\xe9", &st));
    T(stat("caf\xe9/\xff", &st));
    list("caf\xe9");
    T(rename("caf\xe9/\xff", "caf\xe9/\xfe"));
    T(link("caf\xe9/\xfe", "caf\xe9/\xfd"));
    T(symlink("\xfe", "caf\xe9/to"));
    T(lstat("caf\xe9/to", &st));
    T(st.st_size);
    T(stat("caf\xe9/to", &st));
    T(st.st_nlink);
    long count = readlink("caf\xe9/to", text, sizeof text);
    print_bytes("target", text, count);
    T(chdir("caf\xe9"));
    char *cwd = getcwd(text, sizeof text);
    T(strlen(cwd) - (strrchr(cwd, '/') - cwd));
    print_bytes("directory", strrchr(cwd, '/'), strlen(strrchr(cwd, '/')));
    int f = open("\xfe", O_RDONLY);
    sprintf(path, "/proc/self/fd/%d", f);
    count = readlink(path, text, sizeof text);
    print_bytes("file", text + count - 6, 6);
    close(f);
    struct sockaddr_un at = {AF_UNIX, "\xfc"};
    int s = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0);
    T(bind(s, (void *)&at, sizeof at));
    T(listen(s, 1));
    T(connect(c, (void *)&at, sizeof at));
    socklen_t length = sizeof at;
    T(getpeername(c, (void *)&at, &length));
    print_bytes("peer", at.sun_path, 2);
    close(s);
    close(c);
    list(".");
    memset(text, 0xff, 256);
    text[255] = 0;
    T(close(creat(text, 0600)));
    T(unlink(text));
    text[255] = (char)0xff;
    text[256] = 0;
    T(creat(text, 0600));
    T(chdir(".."));
    T(unlink("caf\xe9/\xfe"));
    T(unlink("caf\xe9/\xfe"));
    T(rmdir("caf\xe9"));
    static const char *rest[] = {"caf\xc3\xa9", "to", "\xed\xa0\x80", "\xf4\x8f\xbf",
                                 "\xf4\x8f\xbf\xa9", "\xfc", "\xfd"};
    for (int i = 0; i < 7; i++) {
        snprintf(path, sizeof path, "caf\xe9/%s", rest[i]);
        T(unlink(path));
    }
    T(rmdir("caf\xe9"));
}

static void attributes(void)
{
    close(creat("f", 0600));
    symlink("nowhere", "l");
    T(listxattr("f", 0, 0));
    T(listxattr("l", 0, 0));
    T(llistxattr("l", 0, 0));
    T(listxattr("gone", big, 9));
    T(flistxattr(99, 0, 0));
    T(getxattr("gone", "user.a", 0, 0));
    T(fgetxattr(99, "user.a", 0, 0));
    unlink("f");
    unlink("l");
}

/* Whether the time of `directory` changed since it was put into the past. */
static int changed(const char *directory)
{
    static const struct timespec past[2] = {{1000, 0}, {1000, 0}};
    struct stat st;
    stat(directory, &st);
    int is = st.st_mtime != 1000;
    utimensat(AT_FDCWD, directory, past, 0);
    return is;
}

static void directories(void)
{
    mkdir("d", 0700);
    mkdir("e", 0700);
    T(changed("d") + changed("e") > 0);
    T(changed("d") + changed("e"));
    close(creat("d/f", 0600));
    T(changed("d"));
    close(creat("d/f", 0600));
    T(changed("d"));
    mkdir("d/in", 0700);
    T(changed("d"));
    symlink("f", "d/l");
    T(changed("d"));
    link("d/f", "d/g");
    T(changed("d"));
    rename("d/g", "e/g");
    T(changed("d"));
    T(changed("e"));
    unlink("d/l");
    T(changed("d"));
    rmdir("d/in");
    T(changed("d"));
    unlink("d/f");
    unlink("e/g");
    T(rmdir("e"));
    /* A link whose name has a slash behind it is not the directory that it leads to. */
    symlink("d", "l");
    T(rmdir("l/"));
    T(rename("l/", "m"));
    T(rename("d/", "l/"));
    T(rename("d/", "m/"));
    T(rmdir("m/"));
    T(unlink("l"));
    close(creat("f", 0600));
    T(rename("f", "g/"));
    T(rename("f/", "g"));
    T(rmdir("f/"));
    T(unlink("f/"));
    T(unlink("f"));
}

/* Links to what is open. */
static void descriptors(void)
{
    char name[64], b[8];
    int f = open("f", O_CREAT | O_RDWR, 0600), got;
    T(write(f, "abc", 3));
    sprintf(name, "/proc/self/fd/%d", f);
    T(symlink(name, "l"));
    T((got = open("l", O_RDONLY)) >= 0);
    /* A file for itself: with its own position and its own way. */
    T(read(got, b, 8));
    T(write(got, "x", 1));
    T(lseek(f, 0, SEEK_CUR));
    close(got);
    T(open("l", O_RDONLY | O_NOFOLLOW));
    T(open(name, O_CREAT | O_EXCL | O_RDWR, 0600));
    T((got = open(name, O_WRONLY | O_TRUNC)) >= 0);
    struct stat st;
    fstat(f, &st);
    T(st.st_size);
    close(got);
    close(f);
    T(open("l", O_RDONLY));
    unlink("l");
    unlink("f");
    int p[2];
    pipe(p);
    sprintf(name, "/dev/fd/%d", p[1]);
    symlink(name, "l");
    symlink("l", "m");
    T((got = open("m", O_WRONLY | O_APPEND | O_CREAT, 0644)) >= 0);
    T(write(got, "y", 1));
    T(read(p[0], b, 8));
    close(got);
    close(p[0]);
    close(p[1]);
    unlink("l");
    unlink("m");
}

static void nothing(int number) { (void)number; }

/* How much of the time is left. */
static void rests(void)
{
    int p[2];
    fd_set set;
    struct timeval tv = {50, 0};
    struct timespec ts = {50, 0};
    pipe(p);
    write(p[1], "x", 1);
    FD_ZERO(&set);
    FD_SET(p[0], &set);
    T(select(p[0] + 1, &set, 0, 0, &tv));
    T(tv.tv_sec >= 30 && tv.tv_sec < 50);
    T(tv.tv_usec < 1000000);
    struct pollfd in = {p[0], POLLIN, 0};
    T(syscall(SYS_ppoll, &in, 1, &ts, 0, 8));
    T(ts.tv_sec >= 30 && ts.tv_sec < 50);
    T(ts.tv_nsec < 1000000000);
    ts = (struct timespec){50, 0};
    T(syscall(SYS_pselect6, p[0] + 1, &set, 0, 0, &ts, 0));
    T(ts.tv_sec >= 30 && ts.tv_sec < 50);
    read(p[0], big, 1);
    tv.tv_sec = 0;
    tv.tv_usec = 2000;
    T(select(p[0] + 1, &set, 0, 0, &tv));
    T(tv.tv_sec * 1000000 + tv.tv_usec);
    struct sigaction act = {.sa_handler = nothing};
    sigaction(SIGALRM, &act, 0);
    struct itimerval soon = {{0, 0}, {0, 5000}};
    setitimer(ITIMER_REAL, &soon, 0);
    tv.tv_sec = 50;
    tv.tv_usec = 0;
    FD_SET(p[0], &set);
    T(select(p[0] + 1, &set, 0, 0, &tv));
    T(tv.tv_sec >= 30 && tv.tv_sec < 50);
    close(p[0]);
    close(p[1]);
}

/* Data that is ready is normal data, but of counters. */
static void normal(void)
{
    int p[2], e = eventfd(1, 0), q = epoll_create1(0);
    pipe(p);
    struct pollfd at[3] = {{p[0], POLLRDNORM, 0}, {p[1], POLLWRNORM, 0}, {e, POLLRDNORM | POLLIN, 0}};
    T(poll(at, 3, 0));
    T(at[0].revents);
    T(at[1].revents);
    T(at[2].revents);
    struct epoll_event event = {EPOLLRDNORM | EPOLLET, {.u32 = 1}}, got;
    T(epoll_ctl(q, EPOLL_CTL_ADD, p[0], &event));
    T(epoll_wait(q, &got, 1, 0));
    write(p[1], "x", 1);
    T(poll(at, 1, 0));
    T(at[0].revents);
    T(epoll_wait(q, &got, 1, 1000));
    T(got.events);
    T(epoll_wait(q, &got, 1, 0));
    int s[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, s);
    at[0].fd = s[0];
    event.events = EPOLLRDNORM;
    T(epoll_ctl(q, EPOLL_CTL_ADD, s[0], &event));
    T(poll(at, 1, 0));
    write(s[1], "x", 1);
    T(poll(at, 1, 1000));
    T(at[0].revents);
    T(epoll_wait(q, &got, 1, 1000));
    T(got.events);
    close(p[0]);
    close(p[1]);
    close(s[0]);
    close(s[1]);
    close(e);
    close(q);
}

static void protocols(void)
{
    T(socket(AF_INET, SOCK_STREAM, IPPROTO_TCP) >= 0);
    T(socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP) >= 0);
    T(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
    T(socket(AF_INET6, SOCK_DGRAM, IPPROTO_TCP));
    T(socket(AF_INET, SOCK_STREAM, 300));
    T(socket(AF_INET, SOCK_STREAM, -1));
    T(socket(AF_UNIX, SOCK_STREAM, AF_UNIX) >= 0);
    T(socket(AF_UNIX, SOCK_STREAM, 6));
    int s[2];
    T(socketpair(AF_UNIX, SOCK_STREAM, 6, s));
    T(socketpair(AF_INET, SOCK_STREAM, 17, s));
    T(socketpair(AF_INET, SOCK_STREAM, 0, s));
}

static void options(void)
{
    int u = socket(AF_INET, SOCK_DGRAM, 0), word = 0;
    unsigned char one = 1;
    socklen_t four = 4;
    T(setsockopt(u, IPPROTO_IP, IP_MULTICAST_TTL, &one, 1));
    T(getsockopt(u, IPPROTO_IP, IP_MULTICAST_TTL, &word, &four));
    T(word);
    T(setsockopt(u, IPPROTO_IP, IP_MULTICAST_LOOP, &one, 1));
    T(setsockopt(u, IPPROTO_IP, IP_TOS, BAD, 1));
    T(setsockopt(u, SOL_SOCKET, SO_REUSEADDR, &one, 1));
    T(setsockopt(u, SOL_SOCKET, SO_BINDTODEVICE, "", 0));
    close(u);
}

/* What a connection says that was refused, and a datagram that met a closed port. */
static void refused(void)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(own_port(0))};
    socklen_t bytes = sizeof in, four = 4;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct sockaddr_in peer;
    int got = -1, n = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    T(connect(n, (void *)&in, sizeof in));
    struct pollfd p = {n, POLLOUT, 0};
    T(poll(&p, 1, 10000));
    T(getpeername(n, (void *)&peer, &bytes));
    T(read(n, big, 9));
    T(getpeername(n, (void *)&peer, &bytes));
    close(n);
    int u = socket(AF_INET, SOCK_DGRAM, 0);
    T(connect(u, (void *)&in, sizeof in));
    T(send(u, "x", 1, 0));
    p.fd = u;
    p.events = POLLIN;
    T(poll(&p, 1, 10000));
    T(p.revents);
    T(getsockopt(u, SOL_SOCKET, SO_ERROR, &got, &four));
    T(got);
    T(getsockopt(u, SOL_SOCKET, SO_ERROR, &got, &four));
    T(got);
    T(poll(&p, 1, 0));
    T(send(u, "x", 1, 0));
    T(poll(&p, 1, 10000));
    T(recv(u, big, 9, MSG_DONTWAIT));
    T(recv(u, big, 9, MSG_DONTWAIT));
    close(u);
}

static void *take_some(void *from)
{
    long taken = 0;
    while (taken < 262144) {
        long part = read((long)from, big, 262144 - taken);
        if (part <= 0)
            break;
        taken += part;
    }
    close((long)from);
    return (void *)taken;
}

/* A signal comes only of a write that has written nothing. */
static void broken(void)
{
    static char bytes[1 << 20];
    struct sigaction act = {.sa_handler = SIG_DFL};
    int s[2];
    sigset_t set, pending;
    sigaction(SIGPIPE, &act, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, 0);
    for (int i = 0; i < 2; i++) {
        int flags = i ? MSG_NOSIGNAL : 0;
        pthread_t thread;
        void *taken;
        socketpair(AF_UNIX, SOCK_STREAM, 0, s);
        pthread_create(&thread, 0, take_some, (void *)(long)s[1]);
        T(send(s[0], bytes, sizeof bytes, flags) >= 262144);
        pthread_join(thread, &taken);
        T((long)taken);
        sigpending(&pending);
        T(sigismember(&pending, SIGPIPE));
        T(send(s[0], bytes, 9, flags));
        sigpending(&pending);
        T(sigismember(&pending, SIGPIPE));
        if (sigismember(&pending, SIGPIPE)) {
            struct timespec none = {0, 0};
            T(sigtimedwait(&set, 0, &none));
        }
        close(s[0]);
    }
}

static void advice(void)
{
    char *at = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(at, 1, 16384);
    T(madvise(at, 16384, MADV_FREE));
    at[0] = 2;
    T(at[0]);
    T(munmap(at, 16384));
    T(madvise(at, 16384, MADV_FREE));
    at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    at[0] = 3;
    T(madvise(at, 4096, MADV_FREE));
    T(at[0]);
    munmap(at, 4096);
    /* A block that cannot grow where it is moves with its bytes. */
    at = mmap(0, 3 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 512; i++)
        at[i * 4096] = i % 100;
    char *moved = mremap(at, 2 << 20, 4 << 20, MREMAP_MAYMOVE);
    T(moved != at && moved != MAP_FAILED);
    int same = 0;
    for (int i = 0; i < 512; i++)
        same += moved[i * 4096] == i % 100;
    T(same);
    moved[(4 << 20) - 1] = 5;
    T(moved[(4 << 20) - 1]);
    T(mprotect(moved, 4096, PROT_READ));
    T(munmap(moved, 4 << 20));
    T(munmap(at + (2 << 20), 1 << 20));
}

static const struct group groups[] = {
    {"named", named},         {"attributes", attributes}, {"directories", directories},
    {"descriptors", descriptors}, {"rests", rests},       {"normal", normal},
    {"protocols", protocols}, {"options", options},       {"refused", refused},
    {"broken", broken},       {"advice", advice},         {"any_bytes", any_bytes},
};

int main(int count, char **words)
{
    return run_groups("edges", groups, sizeof groups / sizeof *groups, count, words);
}
