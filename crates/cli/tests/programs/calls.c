/* Many small uses of system calls, a line each with result and errno: what Linux prints
   is what a program on the library OS must print. No line holds an address, a time or a
   number that may differ between two runs. Needs no privilege. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include "lines.h"

static char big[300000];

static int made(const char *name, const char *text)
{
    int file = open(name, O_CREAT | O_TRUNC | O_RDWR, 0644);
    if (write(file, text, strlen(text)) < 0)
        perror(name);
    lseek(file, 0, SEEK_SET);
    return file;
}

static void files(void)
{
    char b[64] = {0};
    struct stat st;
    int f = made("a", "hello world");
    T(read(f, b, 5));
    T(memcmp(b, "hello", 5));
    T(lseek(f, 0, SEEK_CUR));
    T(lseek(f, -3, SEEK_END));
    T(lseek(f, -30, SEEK_END));
    T(lseek(f, 0, 99));
    T(lseek(f, 100, SEEK_SET));
    T(read(f, b, 5));
    T(write(f, "x", 1));
    T(fstat(f, &st));
    T(st.st_size);
    T(S_ISREG(st.st_mode));
    T(st.st_mode & 0777);
    T(st.st_nlink);
    T(pread(f, b, 5, 6));
    T(pread(f, b, 5, -1));
    T(pwrite(f, "zz", 2, 3));
    T(pread(f, b, 1, 1000));
    T(ftruncate(f, 4));
    T(ftruncate(f, -1));
    T(lseek(f, 0, SEEK_END));
    T(read(f, BAD, 1));
    T(pread(f, BAD, 1, 0));
    T(write(f, BAD, 1));
    T(read(f, b, 0));
    T(read(99, b, 1));
    T(write(-1, b, 1));
    T(close(f));
    T(close(f));
    T(open("missing", O_RDONLY));
    T(open("a/b", O_RDONLY));
    T(open("a", O_RDONLY | O_DIRECTORY));
    T(open("a", O_CREAT | O_EXCL | O_RDWR, 0600));
    T(open("", O_RDONLY));
    T(open(BAD, O_RDONLY));
    T(open(".", O_WRONLY));
    T(open("missing/x", O_CREAT | O_RDWR, 0600));
    T(stat("a", &st));
    T(stat("a", BAD));
    T(stat("missing", &st));
    T(lstat("a", &st));
    T(access("a", R_OK));
    T(access("missing", F_OK));
    T(unlink("missing"));
    T(unlink("."));
    T(truncate("a", 2));
    T(truncate("missing", 2));
    T(truncate(".", 2));
    T(stat("a", &st));
    T(st.st_size);
    f = open("a", O_RDONLY);
    T(write(f, "x", 1));
    T(pwrite(f, "x", 1, 0));
    T(ftruncate(f, 1));
    T(read(f, b, 9));
    T(fcntl(f, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK));
    T(close(f));
    f = open("a", O_WRONLY);
    T(read(f, b, 1));
    T(pread(f, b, 1, 0));
    T(write(f, "abcdef", 6));
    T(fcntl(f, F_SETFL, O_APPEND));
    T(fcntl(f, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK));
    T(lseek(f, 0, SEEK_SET));
    T(write(f, "gh", 2));
    T(lseek(f, 0, SEEK_CUR));
    T(fcntl(f, F_SETFL, 0));
    T(lseek(f, 0, SEEK_SET));
    T(write(f, "GH", 2));
    T(lseek(f, 0, SEEK_CUR));
    T(close(f));
    f = open("a", O_RDWR);
    T(read(f, b, 20));
    T(memcmp(b, "GHcdefgh", 8));
    int left = -1;
    T(lseek(f, 3, SEEK_SET));
    T(ioctl(f, FIONREAD, &left));
    T(left);
    T(ioctl(f, FIONREAD, BAD));
    T(ioctl(f, 0x5401, b));
    T(fsync(f));
    T(fdatasync(f));
    T(fsync(-1));
    T(fallocate(f, 0, 0, 100));
    T(fallocate(f, 0, 0, 0));
    T(fstat(f, &st));
    T(st.st_size);
    T(lseek(f, 0, SEEK_SET));
    T(posix_fadvise(f, 0, 0, 0));
    T(fchmod(f, 0600));
    T(fstat(f, &st));
    T(st.st_mode & 0777);
    T(chmod("a", 0640));
    T(chmod("missing", 0640));
    T(fstat(f, &st));
    T(st.st_mode & 0777);
    T(unlink("a"));
    T(fstat(f, &st));
    T(st.st_nlink);
    T(read(f, b, 2));
    T(close(f));
    mode_t old = umask(077);
    (void)old;
    T(umask(027));
    f = open("masked", O_CREAT | O_RDWR, 0666);
    T(fstat(f, &st));
    T(st.st_mode & 0777);
    T(umask(022));
    T(close(f));
    T(unlink("masked"));
}

static void devices(void)
{
    char b[16];
    int f = open("/dev/full", O_RDWR);
    T(write(f, "x", 1));
    T(read(f, b, 4));
    T(b[0]);
    T(close(f));
    f = open("/dev/null", O_RDWR);
    T(read(f, b, 4));
    T(write(f, b, 4));
    T(write(f, b, 0));
    T(lseek(f, 0, SEEK_SET));
    T(close(f));
    f = open("/dev/zero", O_RDONLY);
    T(read(f, b, 16));
    T(write(f, b, 1));
    T(close(f));
    f = open("/dev/urandom", O_RDONLY);
    T(read(f, b, 16));
    T(read(f, BAD, 16));
    T(close(f));
    T(getrandom(b, 16, 0));
    T(syscall(SYS_getrandom, BAD, 16, 0));
    T(syscall(SYS_getrandom, b, 16, 0xff00));
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char **)a, *(char **)b);
}

static void directories(void)
{
    char b[256];
    struct stat st;
    T(mkdir("d", 0755));
    T(mkdir("d", 0755));
    T(mkdir("missing/d", 0755));
    T(mkdir("d/e/", 0700));
    T(stat("d/e", &st));
    T(S_ISDIR(st.st_mode));
    T(st.st_mode & 0777);
    T(rmdir("d"));
    close(made("d/file", "x"));
    T(rmdir("d/file"));
    T(unlink("d/e"));
    T(symlink("file", "d/link"));
    T(symlink("loop", "d/loop"));
    T(symlink("x", "d/link"));
    T(readlink("d/link", b, 256));
    T(readlink("d/link", b, 2));
    T(readlink("d/file", b, 2));
    T(readlink("d/missing", b, 2));
    T(open("d/loop", O_RDONLY));
    T(open("d/link", O_RDONLY | O_NOFOLLOW));
    T(stat("d/link", &st));
    T(S_ISREG(st.st_mode));
    T(lstat("d/link", &st));
    T(S_ISLNK(st.st_mode));
    T(st.st_size);
    T(link("d/file", "d/hard"));
    T(link("d/missing", "d/hard2"));
    T(stat("d/hard", &st));
    T(st.st_nlink);
    T(rename("d/file", "d/renamed"));
    T(rename("d/missing", "d/x"));
    T(rename("d/renamed", "d/e"));
    T(rename("d/e", "d/renamed"));
    T(rename("d", "d/e/d"));
    T(syscall(SYS_renameat2, AT_FDCWD, "d/renamed", AT_FDCWD, "d/link", RENAME_NOREPLACE));
    T(rename("d/renamed", "d/link"));
    int d = open("d", O_RDONLY | O_DIRECTORY);
    T(read(d, b, 1));
    T(write(d, b, 1));
    T(openat(d, "missing", O_RDONLY));
    int f = openat(d, "hard", O_RDONLY);
    T(fstatat(f, "x", &st, 0));
    T(fstatat(f, "", &st, AT_EMPTY_PATH));
    T(fstatat(d, "hard", &st, 0));
    T(close(f));
    T(mkdirat(d, "under", 0755));
    T(unlinkat(d, "under", 0));
    T(unlinkat(d, "under", AT_REMOVEDIR));
    T(fchdir(d));
    T(access("hard", F_OK));
    T(fchdir(-1));
    T(chdir(".."));
    T(chdir("missing"));
    T(chdir("d/hard"));
    T(close(d));
    DIR *list = opendir("d");
    char *names[32];
    int n = 0;
    struct dirent *e;
    while (list && (e = readdir(list)))
        names[n++] = strdup(e->d_name);
    qsort(names, n, sizeof *names, compare);
    for (int i = 0; i < n; i++)
        printf("entry %s\n", names[i]);
    if (list)
        closedir(list);
    T(unlink("d/hard"));
    T(unlink("d/link"));
    T(unlink("d/loop"));
    T(rmdir("d/e"));
    T(rmdir("d"));
    T(getcwd(b, 1));
    T(syscall(SYS_getcwd, BAD, 200));
    memset(big, 'n', 5000);
    T(open(big, O_RDONLY));
    big[300] = 0;
    T(open(big, O_RDONLY));
    memset(big, 0, sizeof big);
    struct statfs fs;
    T(statfs(".", &fs));
    T(statfs("missing", &fs));
    T(fstatfs(-1, &fs));
    struct timespec times[2] = {{100, 5}, {200, 7}};
    close(made("t", "x"));
    T(utimensat(AT_FDCWD, "t", times, 0));
    T(stat("t", &st));
    T(st.st_mtim.tv_sec);
    T(st.st_mtim.tv_nsec);
    T(utimensat(AT_FDCWD, "missing", times, 0));
    T(unlink("t"));
}

static int resolved(int directory, const char *path, long flags, long resolve)
{
    struct { long flags, mode, resolve; } how = {flags, 0, resolve};
    return syscall(SYS_openat2, directory, path, &how, sizeof how);
}

/* Opens by rules, and says what was found by its text. */
static void found(int directory, const char *path, long resolve)
{
    char text[9] = "";
    int f = resolved(directory, path, O_RDONLY, resolve);
    if (f < 0) {
        printf("%s by %lx: %s\n", path, resolve, strerror(errno));
        return;
    }
    if (read(f, text, 8) < 0)
        strcpy(text, errno == EISDIR ? "dir" : "bad");
    printf("%s by %lx: %s\n", path, resolve, text);
    close(f);
}

static void rules_of_paths(void)
{
    enum { NO_MAGIC = 2, NO_LINKS = 4, BENEATH = 8, IN_ROOT = 16 };
    const char *paths[] = {".", "..", "/", "inner/file", "inner/../top", "../r/top", "../../outside", "/top",
        "in", "link", "rooted", "loop", "inner/", "top/", "missing", "missing/x", "up/top", "inner/up2/link"};
    mkdir("r", 0755);
    mkdir("r/inner", 0755);
    close(made("outside", "outside"));
    close(made("r/top", "top"));
    close(made("r/inner/file", "file"));
    T(symlink("inner/file", "r/in"));
    T(symlink("../outside", "r/link"));
    T(symlink("/top", "r/rooted"));
    T(symlink("loop", "r/loop"));
    T(symlink("../r", "r/up"));
    T(symlink("../..", "r/inner/up2"));
    int r = open("r", O_RDONLY | O_DIRECTORY);
    for (unsigned at = 0; at < sizeof paths / sizeof *paths; at++) {
        found(r, paths[at], BENEATH);
        found(r, paths[at], IN_ROOT);
        found(r, paths[at], BENEATH | NO_LINKS);
        if (paths[at][0] != '/')
            found(r, paths[at], NO_LINKS);
    }
    char name[32];
    int f = open("outside", O_RDONLY);
    sprintf(name, "/proc/self/fd/%d", f);
    T(resolved(r, name, O_RDONLY, NO_MAGIC));
    T(resolved(r, name, O_RDONLY, NO_LINKS));
    T(resolved(r, name, O_RDONLY, BENEATH));
    int again = resolved(r, name, O_RDONLY, 0);
    T(again >= 0);
    close(again);
    close(f);
    T(resolved(f, "top", O_RDONLY, BENEATH));
    T(resolved(r, "", O_RDONLY, BENEATH));
    T(resolved(-1, "/top", O_RDONLY, BENEATH));
    T(resolved(-1, "/top", O_RDONLY, IN_ROOT));
    T(resolved(-1, "top", O_RDONLY, BENEATH));
    T(resolved(r, BAD, O_RDONLY, BENEATH));
    T(resolved(r, "top", 1L << 40, 0));
    T(resolved(r, "top", O_RDONLY, 0x40));
    T(resolved(r, "top", O_RDONLY, 1L << 40));
    T(resolved(r, "top", O_RDONLY, BENEATH | IN_ROOT));
    T(resolved(r, "top", O_PATH | O_TRUNC, 0));
    T(resolved(r, "top", O_RDWR | O_TRUNC, 0x20));
    struct { long flags, mode, resolve, more; } how = {O_RDONLY, 0, BENEATH, 0};
    T(syscall(SYS_openat2, r, "top", &how, 8));
    T(syscall(SYS_openat2, r, "top", &how, 5000));
    T(syscall(SYS_openat2, r, "top", BAD, 24));
    f = syscall(SYS_openat2, r, "top", &how, sizeof how);
    T(f >= 0);
    close(f);
    how.more = 1;
    T(syscall(SYS_openat2, r, "top", &how, sizeof how));
    how.mode = 0600;
    T(syscall(SYS_openat2, r, "top", &how, 24));
    how.flags = O_CREAT | O_EXCL | O_WRONLY;
    f = syscall(SYS_openat2, r, "new", &how, 24);
    T(f >= 0);
    close(f);
    T(syscall(SYS_openat2, r, "new", &how, 24));
    T(syscall(SYS_openat2, r, "../beside", &how, 24));
    how.mode = 010600;
    T(syscall(SYS_openat2, r, "other", &how, 24));
    struct stat st;
    T(fstatat(r, "new", &st, 0));
    T(st.st_mode & 0777);
    close(r);
    const char *made_here[] = {"r/inner/file", "r/inner/up2", "r/top", "r/in", "r/link", "r/rooted",
        "r/loop", "r/up", "r/new", "outside"};
    for (unsigned at = 0; at < sizeof made_here / sizeof *made_here; at++)
        unlink(made_here[at]);
    T(rmdir("r/inner"));
    T(rmdir("r"));
}

static void descriptors(void)
{
    int f = made("a", "text");
    int base = f;
    T(dup(f) - base);
    T(dup2(f, base + 5) - base);
    T(dup2(f, f) - base);
    T(dup2(99, 5));
    T(dup2(f, -1));
    T(dup3(f, f, 0));
    T(dup3(f, base + 6, O_CLOEXEC) - base);
    T(fcntl(base + 6, F_GETFD));
    T(fcntl(base + 5, F_GETFD));
    T(fcntl(base + 5, F_SETFD, FD_CLOEXEC));
    T(fcntl(base + 5, F_GETFD));
    T(fcntl(f, F_DUPFD, base + 10) - base);
    T(fcntl(f, F_DUPFD_CLOEXEC, base + 10) - base);
    T(fcntl(f, F_DUPFD, -1));
    T(fcntl(99, F_GETFL));
    T(fcntl(f, 9999));
    T(lseek(f, 2, SEEK_SET));
    T(lseek(base + 5, 0, SEEK_CUR));
    T(open("a", O_RDONLY) - base);
    T(syscall(SYS_close_range, base, base + 20, 0));
    T(fcntl(base + 5, F_GETFD));
    T(syscall(SYS_close_range, 5, 4, 0));
    T(open("a", O_RDONLY) - base);
    T(flock(base, LOCK_EX | LOCK_NB));
    int g = open("a", O_RDONLY);
    T(flock(g, LOCK_SH | LOCK_NB));
    T(flock(base, LOCK_UN));
    T(flock(g, LOCK_SH | LOCK_NB));
    T(flock(base, LOCK_SH | LOCK_NB));
    T(flock(base, LOCK_EX | LOCK_NB));
    T(flock(g, 77));
    T(flock(99, LOCK_UN));
    close(g);
    T(flock(base, LOCK_EX | LOCK_NB));
    struct flock lock = {.l_type = F_WRLCK};
    close(base);
    f = open("a", O_RDWR);
    T(fcntl(f, F_SETLK, &lock));
    T(fcntl(f, F_GETLK, &lock));
    T(lock.l_type == F_UNLCK);
    T(fcntl(f, F_SETLK, BAD));
    T(close(f));
    T(unlink("a"));
}

static void vectors(void)
{
    char one[4] = "", two[8] = "";
    int f = made("v", "");
    struct iovec parts[3] = {{"ab", 2}, {"", 0}, {"cdef", 4}};
    T(writev(f, parts, 3));
    T(writev(f, parts, 0));
    T(writev(f, parts, -1));
    T(writev(f, parts, 2000));
    T(writev(f, BAD, 1));
    T(lseek(f, 0, SEEK_SET));
    struct iovec to[2] = {{one, 3}, {two, 8}};
    T(readv(f, to, 2));
    T(memcmp(one, "abc", 3) | memcmp(two, "def", 3));
    T(preadv(f, to, 2, 1));
    T(pwritev(f, parts, 3, 4));
    T(lseek(f, 0, SEEK_END));
    T(preadv(f, to, 2, -1));
    struct iovec whole[2] = {{big, 200000}, {big, 100000}};
    T(writev(f, whole, 2));
    T(lseek(f, 0, SEEK_END));
    int g = made("w", "");
    off_t at = 2;
    T(sendfile(g, f, &at, 100));
    T(at);
    T(lseek(f, 1, SEEK_SET));
    T(sendfile(g, f, 0, 1000000));
    T(lseek(f, 0, SEEK_CUR) - lseek(f, 0, SEEK_END));
    T(lseek(g, 0, SEEK_END));
    T(sendfile(g, 99, 0, 1));
    at = 0;
    T(copy_file_range(f, &at, g, 0, 100, 0));
    T(close(f));
    T(close(g));
    T(unlink("v"));
    T(unlink("w"));
}

static void *drain(void *argument)
{
    long end = (long)argument, all = 0, n;
    static char b[70000];
    while ((n = read(end, b, sizeof b)) > 0)
        all += n;
    return (void *)all;
}

static void pipes(void)
{
    int p[2];
    char b[16];
    struct stat st;
    void *result;
    pthread_t thread;
    T(pipe(BAD));
    int free_before = dup(0);
    close(free_before);
    T(pipe2(p, O_NONBLOCK));
    T(p[0] == free_before);
    T(read(p[0], b, 1));
    T(write(p[0], b, 1));
    T(read(p[1], b, 1));
    T(lseek(p[0], 0, SEEK_SET));
    T(pread(p[0], b, 1, 0));
    T(write(p[1], big, sizeof big));
    T(write(p[1], "x", 1));
    int n = 0;
    T(ioctl(p[0], FIONREAD, &n));
    T(n);
    T(read(p[0], big, 5000));
    T(write(p[1], big, 4096));
    T(write(p[1], big, 4096));
    T(fstat(p[0], &st));
    T(S_ISFIFO(st.st_mode));
    T(fcntl(p[0], F_SETFL, 0));
    T(fcntl(p[1], F_SETFL, 0));
    pthread_create(&thread, 0, drain, (void *)(long)p[0]);
    struct iovec parts[2] = {{big, 200000}, {big, 100000}};
    T(writev(p[1], parts, 2));
    T(write(p[1], big, sizeof big));
    T(close(p[1]));
    pthread_join(thread, &result);
    T((long)result);
    T(close(p[0]));
    pipe(p);
    close(p[0]);
    signal(SIGPIPE, SIG_IGN);
    T(write(p[1], "x", 1));
    close(p[1]);
    T(pipe2(p, 0xff));
    struct pollfd bad = {99, POLLIN};
    T(poll(&bad, 1, 0));
    T(bad.revents);
    pipe(p);
    struct pollfd both[2] = {{p[0], POLLIN}, {p[1], POLLOUT}};
    T(poll(both, 2, 0));
    T(both[0].revents * 100 + both[1].revents);
    write(p[1], "x", 1);
    T(poll(both, 2, -1));
    T(both[0].revents * 100 + both[1].revents);
    close(p[1]);
    T(poll(both, 1, -1));
    T(both[0].revents);
    read(p[0], b, 1);
    T(poll(both, 1, -1));
    T(both[0].revents);
    close(p[0]);
    T(poll(BAD, 1, 0));
    T(poll(0, 0, 1));
}

static void events(void)
{
    uint64_t v = 3;
    int e = eventfd(2, EFD_NONBLOCK);
    T(write(e, &v, 8));
    T(write(e, &v, 4));
    T(read(e, &v, 4));
    T(read(e, &v, 8));
    T(v);
    T(read(e, &v, 8));
    v = UINT64_MAX;
    T(write(e, &v, 8));
    v = UINT64_MAX - 1;
    T(write(e, &v, 8));
    T(write(e, &v, 8));
    struct pollfd p = {e, POLLIN | POLLOUT};
    T(poll(&p, 1, 0));
    T(p.revents);
    T(close(e));
    e = eventfd(2, EFD_NONBLOCK | EFD_SEMAPHORE);
    T(read(e, &v, 8));
    T(v);
    T(eventfd(0, 0x7777));
    close(e);

    int q = epoll_create1(0);
    int pipes[2];
    pipe2(pipes, O_NONBLOCK);
    struct epoll_event ev = {EPOLLIN, {.u64 = 77}}, out[4];
    T(epoll_create(0));
    T(epoll_create1(0x77));
    T(epoll_ctl(q, EPOLL_CTL_ADD, pipes[0], &ev));
    T(epoll_ctl(q, EPOLL_CTL_ADD, pipes[0], &ev));
    T(epoll_ctl(q, EPOLL_CTL_MOD, pipes[1], &ev));
    T(epoll_ctl(q, EPOLL_CTL_DEL, pipes[1], 0));
    T(epoll_ctl(q, EPOLL_CTL_ADD, q, &ev));
    T(epoll_ctl(q, EPOLL_CTL_ADD, 99, &ev));
    T(epoll_ctl(99, EPOLL_CTL_ADD, pipes[1], &ev));
    T(epoll_ctl(pipes[0], EPOLL_CTL_ADD, pipes[1], &ev));
    T(epoll_ctl(q, 77, pipes[0], &ev));
    T(epoll_ctl(q, EPOLL_CTL_ADD, pipes[1], BAD));
    int file = made("regular", "x");
    T(epoll_ctl(q, EPOLL_CTL_ADD, file, &ev));
    close(file);
    unlink("regular");
    T(epoll_wait(q, out, 4, 0));
    T(epoll_wait(q, out, 0, 0));
    T(epoll_wait(99, out, 4, 0));
    write(pipes[1], "xyz", 3);
    T(epoll_wait(q, BAD, 4, 0));
    T(epoll_wait(q, out, 4, -1));
    T(out[0].events * 1000 + out[0].data.u64);
    T(epoll_wait(q, out, 4, 0));
    ev.events = EPOLLIN | EPOLLET;
    T(epoll_ctl(q, EPOLL_CTL_MOD, pipes[0], &ev));
    T(epoll_wait(q, out, 4, 0));
    T(epoll_wait(q, out, 4, 0));
    write(pipes[1], "xyz", 3);
    T(epoll_wait(q, out, 4, 0));
    ev.events = EPOLLIN | EPOLLONESHOT;
    T(epoll_ctl(q, EPOLL_CTL_MOD, pipes[0], &ev));
    T(epoll_wait(q, out, 4, 0));
    T(epoll_wait(q, out, 4, 0));
    T(epoll_pwait(q, out, 4, 1, 0));
    close(pipes[1]);
    ev.events = EPOLLIN;
    T(epoll_ctl(q, EPOLL_CTL_MOD, pipes[0], &ev));
    T(epoll_wait(q, out, 4, 0));
    T(out[0].events);
    T(epoll_ctl(q, EPOLL_CTL_DEL, pipes[0], 0));
    T(epoll_wait(q, out, 4, 0));
    close(pipes[0]);
    T(read(q, out, 1));
    T(write(q, out, 1));
    T(close(q));

    struct itimerspec set = {.it_value = {0, 1000000}}, got;
    T(timerfd_create(77, 0));
    T(timerfd_create(CLOCK_MONOTONIC, 0x77));
    int clocks[2] = {CLOCK_MONOTONIC, CLOCK_REALTIME};
    for (int i = 0; i < 2; i++) {
        int t = timerfd_create(clocks[i], 0);
        T(timerfd_settime(t, 0, &set, 0));
        T(read(t, &v, 8));
        T(v);
        T(timerfd_gettime(t, &got));
        T(got.it_value.tv_nsec);
        struct itimerspec at = {0};
        clock_gettime(clocks[i], &at.it_value);
        at.it_value.tv_sec += 100;
        T(timerfd_settime(t, TFD_TIMER_ABSTIME, &at, 0));
        T(timerfd_gettime(t, &got));
        T(got.it_value.tv_sec >= 90 && got.it_value.tv_sec <= 100);
        T(fcntl(t, F_SETFL, O_NONBLOCK));
        T(read(t, &v, 8));
        at.it_value.tv_sec = 0;
        at.it_value.tv_nsec = 1;
        T(timerfd_settime(t, TFD_TIMER_ABSTIME, &at, &got));
        T(got.it_value.tv_sec >= 90 && got.it_value.tv_sec <= 100);
        T(read(t, &v, 8));
        T(v);
        T(read(t, &v, 4));
        at.it_value.tv_nsec = 1000000000;
        T(timerfd_settime(t, 0, &at, 0));
        T(timerfd_settime(t, 0, BAD, 0));
        T(write(t, &v, 8));
        T(close(t));
    }
    T(timerfd_settime(0, 0, &set, 0));
    fd_set r;
    struct timeval zero = {0, 0};
    int p2[2];
    pipe(p2);
    FD_ZERO(&r);
    FD_SET(p2[0], &r);
    T(select(p2[1] + 1, &r, 0, 0, &zero));
    write(p2[1], "x", 1);
    FD_SET(p2[0], &r);
    T(select(p2[1] + 1, &r, 0, 0, 0));
    T(FD_ISSET(p2[0], &r) != 0);
    FD_ZERO(&r);
    FD_SET(p2[1] + 1, &r);
    T(select(p2[1] + 2, &r, 0, 0, &zero));
    close(p2[0]);
    close(p2[1]);
}

static void memory(void)
{
    char *m = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int f = made("m", "file bytes"), p[2];
    pipe(p);
    T(m == MAP_FAILED);
    m[4096] = 5;
    T(mprotect(m, 4096, PROT_NONE));
    T(mprotect(m + 1, 4096, PROT_NONE));
    T(mprotect(BAD, 4096, PROT_READ));
    T(write(p[1], m, 1));
    T(mprotect(m, 4096, PROT_READ));
    T(write(p[1], m, 1));
    T(read(p[0], m, 1));
    T(read(p[0], m + 4096, 1));
    T(mprotect(m, 65536, PROT_READ | PROT_WRITE));
    m[0] = 42;
    m[8192] = 43;
    T(mprotect(m, 65536, PROT_NONE));
    char *moved = mremap(m, 65536, 1 << 20, MREMAP_MAYMOVE);
    T(moved == MAP_FAILED);
    T(mprotect(moved, 1 << 20, PROT_READ | PROT_WRITE));
    T(moved[0] + moved[8192]);
    T(mremap(moved, 1 << 20, 4096, 0) == moved);
    T(write(p[1], moved + 4096, 1));
    T(madvise(moved, 4096, MADV_DONTNEED));
    T(moved[0]);
    T(madvise(moved + 1, 4096, MADV_DONTNEED));
    T(madvise(BAD - 16, 4096, MADV_DONTNEED));
    T(munmap(moved + 1, 4096));
    T(munmap(moved, 0));
    T(munmap(moved, 4096));
    T(munmap(moved, 4096));
    T((long)mmap(0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    T((long)mmap(0, 4096, PROT_READ, MAP_PRIVATE, 99, 0));
    T((long)mmap(0, 4096, PROT_READ, MAP_PRIVATE, f, 1));
    T((long)mmap(0, 4096, PROT_READ, MAP_PRIVATE, p[0], 0));
    T((long)mmap(0, 4096, PROT_READ, MAP_ANONYMOUS, -1, 0));
    T((long)mmap(0, 8192, PROT_READ, MAP_PRIVATE, f, 0x7ffffffffffff000));
    char *file = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, f, 0);
    T(memcmp(file, "file bytes", 10));
    T(file[11]);
    file[0] = 'F';
    char b[4];
    T(pread(f, b, 1, 0));
    T(b[0]);
    T(write(p[1], file + 4096, 1));
    close(f);
    f = open("m", O_RDONLY);
    T((long)mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0));
    close(f);
    f = open("m", O_WRONLY);
    T((long)mmap(0, 4096, PROT_READ, MAP_PRIVATE, f, 0));
    close(f);
    T((long)mmap(m, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == (long)m);
    T((long)mmap(m, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    T((long)mmap(m + 1, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    munmap(m, 4096);
    /* A reservation as Go and V8 make it costs no time. */
    char *huge = mmap(0, 1L << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    T(huge == MAP_FAILED);
    T(mprotect(huge + (1L << 39), 4096, PROT_READ | PROT_WRITE));
    huge[1L << 39] = 1;
    T(mprotect(huge, 1L << 40, PROT_READ));
    T(huge[1L << 39]);
    T(munmap(huge, 1L << 40));
    T((long)brk(BAD));
    char *top = sbrk(0);
    T(sbrk(10000) == top);
    top[9999] = 1;
    T(sbrk(-10000) == top + 10000);
    T(mlock(top - 4096, 4096));
    T(msync(top - 4096 - ((long)top & 4095), 4096, MS_SYNC));
    close(p[0]);
    close(p[1]);
    unlink("m");
}

static volatile sig_atomic_t caught, nested;
static void note(int s) { caught = caught * 100 + s; }
static void note_info(int s, siginfo_t *i, void *c)
{
    caught = caught * 100 + s;
    nested = i->si_code;
}

/* Interrupts the thread until it says that its wait is over: a signal before the wait would be
   lost. */
static volatile sig_atomic_t is_over;
static void *late(void *to)
{
    do {
        usleep(50000);
        pthread_kill(*(pthread_t *)to, SIGUSR1);
    } while (!is_over);
    return 0;
}

static void interrupt(pthread_t *thread, pthread_t *self)
{
    is_over = 0;
    pthread_create(thread, 0, late, self);
}

static void end_of(pthread_t thread)
{
    is_over = 1;
    pthread_join(thread, 0);
}

static void signals(void)
{
    struct sigaction action = {.sa_handler = note}, old;
    sigset_t set, none, pending;
    sigemptyset(&none);
    T(sigaction(SIGUSR1, &action, &old));
    T(old.sa_handler == SIG_DFL);
    T(sigaction(SIGUSR2, &action, 0));
    T(sigaction(SIGKILL, &action, 0));
    T(sigaction(77, &action, 0));
    T(syscall(SYS_rt_sigaction, SIGUSR1, BAD, 0, 8));
    T(syscall(SYS_rt_sigaction, SIGUSR1, 0, 0, 4));
    T(raise(SIGUSR1));
    T(caught);
    caught = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    T(sigprocmask(SIG_BLOCK, &set, 0));
    T(sigprocmask(99, &set, 0));
    T(kill(getpid(), SIGUSR2));
    T(raise(SIGUSR1));
    T(caught);
    T(sigpending(&pending));
    T(sigismember(&pending, SIGUSR1) * 2 + sigismember(&pending, SIGUSR2));
    T(sigsuspend(&none));
    T(caught == 1012 || caught == 1210);
    T(sigprocmask(SIG_BLOCK, 0, &set));
    T(sigismember(&set, SIGUSR1) * 2 + sigismember(&set, SIGUSR2));
    caught = 0;
    T(raise(SIGUSR1));
    struct timespec zero = {0, 0}, little = {0, 1000000};
    T(ppoll(0, 0, &zero, &none));
    T(caught);
    raise(SIGUSR1);
    T(pselect(0, 0, 0, 0, 0, &none));
    T(caught);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    T(sigtimedwait(&set, 0, &little));
    raise(SIGUSR1);
    siginfo_t info;
    T(sigtimedwait(&set, &info, &little));
    T(info.si_signo);
    T(caught);
    caught = 0;
    sigprocmask(SIG_SETMASK, &none, 0);
    T(kill(getpid(), 0));
    T(kill(1 << 22, 0));
    T(kill(getpid(), 99));
    T(syscall(SYS_tgkill, getpid(), gettid(), 0));
    T(syscall(SYS_tgkill, getpid(), 1 << 22, 0));
    T(syscall(SYS_tgkill, getpid(), gettid(), 99));
    action.sa_flags = SA_RESETHAND;
    T(sigaction(SIGUSR1, &action, 0));
    T(raise(SIGUSR1));
    T(sigaction(SIGUSR1, 0, &old));
    T(old.sa_handler == SIG_DFL);
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = note_info;
    caught = 0;
    sigaction(SIGUSR1, &action, 0);
    T(raise(SIGUSR1));
    T(nested == SI_TKILL);
    kill(getpid(), SIGUSR1);
    T(nested == SI_USER);
    T(caught);
    /* A signal ends a wait. */
    pthread_t self = pthread_self(), thread;
    int p[2];
    char b;
    pipe(p);
    interrupt(&thread, &self);
    T(read(p[0], &b, 1));
    end_of(thread);
    interrupt(&thread, &self);
    T(poll(0, 0, -1));
    end_of(thread);
    interrupt(&thread, &self);
    struct timespec hour = {3600, 0}, rest = {0, 0};
    T(nanosleep(&hour, &rest));
    T(rest.tv_sec > 3500);
    end_of(thread);
    interrupt(&thread, &self);
    T(pause());
    end_of(thread);
    stack_t stack = {.ss_sp = big, .ss_size = 100}, was;
    T(sigaltstack(&stack, 0));
    stack.ss_size = 65536;
    T(sigaltstack(&stack, &was));
    T(was.ss_flags == SS_DISABLE);
    T(sigaltstack(0, &was));
    T(was.ss_size);
    stack.ss_flags = SS_DISABLE;
    T(sigaltstack(&stack, 0));
    close(p[0]);
    close(p[1]);
    signal(SIGUSR1, SIG_IGN);
    T(raise(SIGUSR1));
    signal(SIGALRM, note);
    caught = 0;
    struct itimerval soon = {.it_value = {0, 20000}}, timer;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_BLOCK, &set, 0);
    T(setitimer(ITIMER_REAL, &soon, 0));
    T(sigsuspend(&none));
    T(caught);
    sigprocmask(SIG_UNBLOCK, &set, 0);
    T(getitimer(ITIMER_REAL, &timer));
    T(timer.it_value.tv_sec + timer.it_value.tv_usec);
    T(alarm(100));
    T(alarm(0) >= 99);
}

int _mm_getcsr_(void);
static void *add_one(void *at)
{
    ++*(int *)at;
    return (void *)(long)_mm_getcsr_();
}

int _mm_getcsr_(void)
{
    unsigned csr;
    __asm__ volatile("stmxcsr %0" : "=m"(csr));
    return csr & ~0x3f;
}

static void threads(void)
{
    pthread_t thread;
    int value = 1;
    void *csr;
    unsigned flush = 0x9f80;
    __asm__ volatile("ldmxcsr %0" : : "m"(flush));
    pthread_create(&thread, 0, add_one, &value);
    pthread_join(thread, &csr);
    T(value);
    T((long)csr);
    flush = 0x1f80;
    __asm__ volatile("ldmxcsr %0" : : "m"(flush));
    int word = 5;
    struct timespec little = {0, 1000000};
    T(syscall(SYS_futex, &word, 0, 4, &little, 0, 0));
    T(syscall(SYS_futex, &word, 0, 5, &little, 0, 0));
    T(syscall(SYS_futex, (char *)&word + 1, 0, 5, &little, 0, 0));
    T(syscall(SYS_futex, BAD, 0, 5, &little, 0, 0));
    T(syscall(SYS_futex, &word, 1, 5, 0, 0, 0));
    T(syscall(SYS_futex, &word, 9, 5, &little, 0, 0));
    T(syscall(SYS_futex, &word, 4, 1, 1, &word, 4));
    T(syscall(SYS_futex, &word, 77, 1, 1, &word, 4));
    T(getpid() == gettid());
    T(syscall(SYS_set_robust_list, 0, 1));
    T(sched_yield());
    T(getuid() == geteuid());
    T(prctl(PR_SET_NAME, "renamed"));
    char name[16];
    T(prctl(PR_GET_NAME, name));
    T(strcmp(name, "renamed"));
    T(prctl(9999, 0));
    struct rlimit limit;
    T(getrlimit(RLIMIT_STACK, &limit));
    T(getrlimit(99, &limit));
    T(prlimit(0, RLIMIT_NOFILE, 0, &limit));
    struct rusage usage;
    T(getrusage(RUSAGE_SELF, &usage));
    T(getrusage(99, &usage));
    struct utsname un;
    T(uname(&un));
    T(strcmp(un.sysname, "Linux") | strcmp(un.machine, "x86_64"));
    T(syscall(SYS_uname, BAD));
    struct sysinfo si;
    T(sysinfo(&si));
    T(si.mem_unit > 0 && si.totalram > 0);
    T(syscall(9999));
    T(waitpid(-1, 0, 0));
    unsigned long cpus[16];
    T(syscall(SYS_sched_getaffinity, 0, 4, cpus));
}

static void times(void)
{
    struct timespec a, b, bad = {0, 1000000000}, little = {0, 1000};
    T(clock_gettime(CLOCK_MONOTONIC, &a));
    T(nanosleep(&little, 0));
    T(clock_gettime(CLOCK_MONOTONIC, &b));
    T(b.tv_sec > a.tv_sec || b.tv_nsec - a.tv_nsec >= 1000);
    T(nanosleep(&bad, 0));
    T(syscall(SYS_nanosleep, BAD, 0));
    T(syscall(SYS_clock_gettime, 99, &a));
    T(syscall(SYS_clock_gettime, CLOCK_REALTIME, BAD));
    T(clock_gettime(CLOCK_REALTIME, &a));
    T(time(0) - a.tv_sec <= 1);
    T(clock_getres(CLOCK_MONOTONIC, &a));
    T(a.tv_nsec);
    T(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &little, 0));
    struct timeval now;
    T(gettimeofday(&now, 0));
    T(now.tv_sec > 1700000000);
}

static void pairs(void)
{
    int s[2], n = 0;
    char b[64];
    struct stat st;
    T(socketpair(AF_UNIX, SOCK_STREAM, 0, BAD));
    T(socketpair(AF_INET, SOCK_STREAM, 0, s));
    T(socketpair(AF_UNIX, 99, 0, s));
    T(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
    T(fstat(s[0], &st));
    T(S_ISSOCK(st.st_mode));
    T(recv(s[0], b, 1, 0));
    T(send(s[0], "hello", 5, 0));
    T(ioctl(s[1], FIONREAD, &n));
    T(n);
    T(recv(s[1], b, 3, MSG_PEEK));
    T(recv(s[1], b, 64, 0));
    T(send(s[0], BAD, 1, 0));
    T(send(s[0], "x", 1, 0));
    T(recv(s[1], BAD, 1, 0));
    struct iovec parts[2] = {{"ab", 2}, {"cd", 2}};
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
    T(sendmsg(s[1], &m, 0));
    struct iovec to = {b, 64};
    struct msghdr r = {.msg_iov = &to, .msg_iovlen = 1};
    T(recvmsg(s[0], &r, 0));
    T(recvmsg(s[0], &r, 0));
    T(shutdown(s[0], SHUT_WR));
    T(send(s[0], "x", 1, MSG_NOSIGNAL));
    while (recv(s[1], b, 1, 0) > 0)
        ;
    T(recv(s[1], b, 1, 0));
    T(send(s[1], "y", 1, 0));
    T(recv(s[0], b, 9, 0));
    T(shutdown(s[0], 77));
    struct pollfd p = {s[1], POLLIN | POLLOUT | POLLRDHUP};
    T(poll(&p, 1, 0));
    T(p.revents);
    T(close(s[0]));
    T(poll(&p, 1, 0));
    T(p.revents);
    T(send(s[1], "x", 1, MSG_NOSIGNAL));
    T(close(s[1]));
    T(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
    T(send(s[0], "one", 3, 0));
    T(send(s[0], "three", 5, 0));
    T(recv(s[1], b, 2, 0));
    T(recv(s[1], b, 64, 0));
    T(recv(s[1], b, 64, MSG_DONTWAIT));
    close(s[0]);
    close(s[1]);
    T(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s));
    T(send(s[0], "one", 3, 0));
    T(send(s[0], "three", 5, 0));
    T(recv(s[1], b, 64, 0));
    close(s[0]);
    T(recv(s[1], b, 64, 0));
    T(recv(s[1], b, 64, 0));
    close(s[1]);
}

static void *accepts(void *listener)
{
    static char b[100000];
    long s = accept((long)listener, 0, 0), all = 0, n;
    while ((n = recv(s, b, sizeof b, 0)) > 0)
        all += n;
    send(s, "end", 3, 0);
    close(s);
    return (void *)all;
}

/* The same for a family's stream sockets. */
/* The events of a queue, as bits and data, within a second. */
static void report(int q, int most)
{
    struct epoll_event found[4];
    int count = epoll_wait(q, found, most, 1000);
    printf("report %d:", count);
    for (int i = 0; i < count; i++)
        printf(" %x %d", found[i].events, (int)found[i].data.u64);
    printf("\n");
}

/* An event queue with both ends of a connection, and one with that queue. */
static void queued(int one, int other)
{
    char b[64];
    int q = epoll_create1(0), outer = epoll_create1(0);
    struct epoll_event ev = {EPOLLIN | EPOLLRDHUP, {.u64 = 1}};
    T(epoll_ctl(q, EPOLL_CTL_ADD, one, &ev));
    ev.data.u64 = 3;
    T(epoll_ctl(outer, EPOLL_CTL_ADD, q, &ev));
    T(epoll_wait(q, (void *)b, 4, 0));
    T(epoll_wait(outer, (void *)b, 4, 0));
    T(write(other, "abc", 3));
    report(outer, 4);
    report(q, 4);
    T(read(one, b, 2));
    report(q, 4);
    report(outer, 4);
    T(read(one, b, 2));
    T(epoll_wait(q, (void *)b, 4, 0));
    T(epoll_wait(outer, (void *)b, 4, 0));
    ev = (struct epoll_event){EPOLLOUT | EPOLLET, {.u64 = 2}};
    T(epoll_ctl(q, EPOLL_CTL_ADD, other, &ev));
    report(q, 4);
    T(epoll_wait(q, (void *)b, 4, 0));
    ev.events = EPOLLIN | EPOLLET;
    T(epoll_ctl(q, EPOLL_CTL_MOD, other, &ev));
    T(epoll_wait(q, (void *)b, 4, 0));
    T(write(one, "d", 1));
    report(q, 4);
    T(epoll_wait(q, (void *)b, 4, 0));
    T(write(one, "e", 1));
    report(q, 4);
    T(read(other, b, 9));
    T(epoll_wait(q, (void *)b, 4, 0));
    ev.events = EPOLLIN | EPOLLONESHOT;
    T(epoll_ctl(q, EPOLL_CTL_MOD, other, &ev));
    T(write(one, "f", 1));
    report(q, 4);
    T(epoll_wait(q, (void *)b, 4, 0));
    T(epoll_ctl(q, EPOLL_CTL_MOD, other, &ev));
    report(q, 4);
    T(read(other, b, 9));
    T(epoll_ctl(q, EPOLL_CTL_DEL, other, 0));
    T(write(one, "g", 1));
    T(write(other, "h", 1));
    report(q, 1);
    T(shutdown(other, SHUT_WR));
    usleep(50000);
    report(q, 4);
    T(read(one, b, 9));
    T(read(one, b, 9));
    report(q, 4);
    T(epoll_ctl(q, EPOLL_CTL_DEL, one, 0));
    T(epoll_wait(q, (void *)b, 4, 0));
    close(outer);
    close(q);
}

/* The same for a connection to this address. */
static void queued_at(struct sockaddr *at, socklen_t bytes)
{
    int l = socket(at->sa_family, SOCK_STREAM, 0), one = 1;
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, 4);
    T(bind(l, at, bytes));
    T(listen(l, 8));
    int q = epoll_create1(0);
    struct epoll_event ev = {EPOLLIN, {.u64 = 5}};
    T(epoll_ctl(q, EPOLL_CTL_ADD, l, &ev));
    int c = socket(at->sa_family, SOCK_STREAM, 0);
    T(connect(c, at, bytes));
    report(q, 4);
    int a = accept(l, 0, 0);
    T(epoll_wait(q, (void *)&ev, 1, 0));
    queued(c, a);
    close(a);
    close(c);
    close(q);
    close(l);
}

static void streams(struct sockaddr *at, socklen_t bytes)
{
    char b[64];
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    pthread_t thread;
    void *all;
    int one = 1, got = 0;
    int l = socket(at->sa_family, SOCK_STREAM, 0);
    T(listen(99, 1));
    T(accept(l, 0, 0));
    T(getpeername(l, (void *)&from, &length));
    T(bind(l, at, 1));
    T(bind(l, BAD, bytes));
    T(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, 4));
    T(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, 1));
    T(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, BAD, 4));
    T(bind(l, at, bytes));
    T(bind(l, at, bytes));
    T(listen(l, 8));
    int l2 = socket(at->sa_family, SOCK_STREAM, 0);
    T(bind(l2, at, bytes));
    close(l2);
    fcntl(l, F_SETFL, O_NONBLOCK);
    T(accept(l, 0, 0));
    fcntl(l, F_SETFL, 0);
    length = sizeof from;
    T(getsockname(l, (void *)&from, &length));
    T(length);
    T(from.ss_family);
    length = 4;
    T(getsockopt(l, SOL_SOCKET, SO_ACCEPTCONN, &got, &length));
    T(got);
    T(getsockopt(l, SOL_SOCKET, SO_TYPE, &got, &length));
    T(got);
    T(getsockopt(l, SOL_SOCKET, SO_DOMAIN, &got, &length));
    T(got);
    T(getsockopt(l, SOL_SOCKET, SO_ERROR, &got, &length));
    T(got);
    pthread_create(&thread, 0, accepts, (void *)(long)l);
    int c = socket(at->sa_family, SOCK_STREAM, 0);
    T(send(c, "x", 1, MSG_NOSIGNAL));
    T(recv(c, b, 1, 0));
    T(connect(c, at, bytes));
    T(connect(c, at, bytes));
    T(send(c, big, sizeof big, 0));
    T(write(c, big, sizeof big));
    T(shutdown(c, SHUT_WR));
    pthread_join(thread, &all);
    T((long)all);
    T(recv(c, b, 64, MSG_WAITALL));
    T(recv(c, b, 64, 0));
    T(send(c, "x", 1, MSG_NOSIGNAL));
    close(c);
    close(l);
}

static void sockets(void)
{
    char b[64];
    T(socket(99, SOCK_STREAM, 0));
    T(socket(AF_INET, 99, 0));
    T(listen(0, 1));
    T(getsockname(0, BAD, BAD));
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(own_port(0))};
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    streams((void *)&in, sizeof in);
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(own_port(1))};
    in6.sin6_addr = in6addr_loopback;
    streams((void *)&in6, sizeof in6);
    struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "socket"};
    streams((void *)&un, sizeof un);
    T(unlink("socket"));
    in.sin_port = htons(own_port(2));
    queued_at((void *)&in, sizeof in);
    queued_at((void *)&un, sizeof un);
    T(unlink("socket"));
    int c = socket(AF_UNIX, SOCK_STREAM, 0);
    T(connect(c, (void *)&un, sizeof un));
    close(c);
    c = socket(AF_INET, SOCK_STREAM, 0);
    in.sin_port = htons(1);
    T(connect(c, (void *)&in, sizeof in));
    close(c);
    in.sin_port = htons(own_port(3));
    int u = socket(AF_INET, SOCK_DGRAM, 0), v = socket(AF_INET, SOCK_DGRAM, 0);
    T(bind(u, (void *)&in, sizeof in));
    T(send(v, "x", 1, 0));
    T(sendto(v, "hello", 5, 0, (void *)&in, sizeof in));
    struct sockaddr_in from = {0};
    socklen_t length = sizeof from;
    T(recvfrom(u, b, 3, 0, (void *)&from, &length));
    T(from.sin_addr.s_addr == in.sin_addr.s_addr);
    T(length);
    T(recv(u, b, 9, MSG_DONTWAIT));
    T(connect(v, (void *)&in, sizeof in));
    T(send(v, "abc", 3, 0));
    T(recv(u, b, 9, 0));
    T(send(v, big, 70000, MSG_DONTWAIT));
    T(connect(u, (void *)&from, sizeof from));
    T(send(u, "back", 4, 0));
    T(recv(v, b, 9, 0));
    close(u);
    close(v);
    /* A port without a socket: asking for data keeps the error. */
    v = socket(AF_INET, SOCK_DGRAM, 0);
    in.sin_port = htons(own_port(4));
    T(connect(v, (void *)&in, sizeof in));
    T(send(v, "x", 1, 0));
    struct pollfd failed = {v, POLLIN, 0};
    T(poll(&failed, 1, 1000));
    int there = -1;
    T(ioctl(v, FIONREAD, &there));
    T(there);
    T(recv(v, b, 9, 0));
    T(recv(v, b, 9, MSG_DONTWAIT));
    close(v);
}

static const struct group groups[] = {
    {"files", files},       {"devices", devices}, {"directories", directories},
    {"descriptors", descriptors}, {"vectors", vectors}, {"pipes", pipes},
    {"events", events},     {"memory", memory},   {"signals", signals},
    {"threads", threads},   {"times", times},     {"pairs", pairs},
    {"sockets", sockets},   {"rules", rules_of_paths},
};

int main(int count, char **words)
{
    return run_groups("calls", groups, sizeof groups / sizeof *groups, count, words);
}
