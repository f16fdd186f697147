/* Watches of files (inotify(7)): a line for each call and for each event, which a program on the
   library OS must see as on Linux. Cookies are compared, not printed. Needs no privilege. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include "lines.h"

static char bytes[1 << 20] __attribute__((aligned(8)));

static const struct { unsigned bit; const char *name; } bits[] = {
    {IN_ACCESS, "ACCESS"}, {IN_MODIFY, "MODIFY"}, {IN_ATTRIB, "ATTRIB"},
    {IN_CLOSE_WRITE, "CLOSE_WRITE"}, {IN_CLOSE_NOWRITE, "CLOSE_NOWRITE"}, {IN_OPEN, "OPEN"},
    {IN_MOVED_FROM, "MOVED_FROM"}, {IN_MOVED_TO, "MOVED_TO"}, {IN_CREATE, "CREATE"},
    {IN_DELETE, "DELETE"}, {IN_DELETE_SELF, "DELETE_SELF"}, {IN_MOVE_SELF, "MOVE_SELF"},
    {IN_UNMOUNT, "UNMOUNT"}, {IN_Q_OVERFLOW, "Q_OVERFLOW"}, {IN_IGNORED, "IGNORED"},
    {IN_ISDIR, "ISDIR"},
};

static void print_event(const struct inotify_event *event, unsigned last_cookie)
{
    printf("  %d", event->wd);
    for (unsigned i = 0; i < sizeof bits / sizeof *bits; i++)
        if (event->mask & bits[i].bit)
            printf(" %s", bits[i].name);
    if (event->len) {
        printf(" '");
        for (const char *at = event->name; *at; at++)
            printf(*at < 0 ? "\\x%02x" : "%c", (unsigned char)*at);
        printf("' %u", event->len);
    }
    if (event->cookie)
        printf(event->cookie == last_cookie ? " same cookie" : " cookie");
    printf("\n");
}

/* Prints all events that wait, from one read. */
static void print_events(int in, const char *behind)
{
    printf("%s:\n", behind);
    int waiting = -1;
    ioctl(in, FIONREAD, &waiting);
    long got = read(in, bytes, sizeof bytes);
    if (got < 0)
        printf("  %s\n", strerrorname_np(errno));
    else if (got != waiting)
        printf("  %d bytes waited, and %ld were read\n", waiting, got);
    unsigned cookie = 0;
    for (long at = 0; at < got;) {
        struct inotify_event *event = (void *)(bytes + at);
        print_event(event, cookie);
        cookie = event->cookie;
        at += sizeof *event + event->len;
    }
}

#define E(call) do { T(call); print_events(in, #call); } while (0)

static void write_file(const char *name, const char *text)
{
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    write(file, text, strlen(text));
    close(file);
}

static void instances(void)
{
    int in;
    T((in = inotify_init()) >= 0);
    T(fcntl(in, F_GETFD));
    T(fcntl(in, F_GETFL) & (O_ACCMODE | O_NONBLOCK));
    T(close(in));
    T((in = inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) >= 0);
    T(fcntl(in, F_GETFD));
    T(fcntl(in, F_GETFL) & (O_ACCMODE | O_NONBLOCK));
    T(inotify_init1(1));
    T(inotify_init1(IN_NONBLOCK | 1 << 20));
    char link[64] = {0};
    sprintf(bytes, "/proc/self/fd/%d", in);
    T(readlink(bytes, link, sizeof link - 1));
    printf("%s\n", link);
    struct stat st;
    T(fstat(in, &st));
    T(st.st_mode);
    T(read(in, bytes, sizeof bytes));
    T(read(in, bytes, 0));
    T(read(in, bytes, 1));
    T(write(in, bytes, 1));
    T(lseek(in, 5, SEEK_SET));
    T(pread(in, bytes, 64, 0));
    T(ftruncate(in, 0));
    int waiting = 7;
    T(ioctl(in, FIONREAD, &waiting));
    T(waiting);
    write_file("file", "text");
    T(inotify_add_watch(in, "file", 0));
    T(inotify_add_watch(in, "file", 1 << 12));
    T(inotify_add_watch(in, "file", 1 << 23));
    T(inotify_add_watch(in, "file", IN_ACCESS | IN_MASK_ADD | IN_MASK_CREATE));
    T(inotify_add_watch(0x7fff, "file", IN_ACCESS));
    T(inotify_add_watch(0x7fff, "file", IN_MASK_ADD | IN_MASK_CREATE));
    T(inotify_add_watch(0, "file", IN_ACCESS));
    T(inotify_add_watch(in, "none", IN_ACCESS));
    T(inotify_add_watch(in, "", IN_ACCESS));
    T(inotify_add_watch(in, "file/below", IN_ACCESS));
    T(inotify_add_watch(in, "file/", IN_ACCESS));
    T(inotify_add_watch(in, BAD, IN_ACCESS));
    T(inotify_add_watch(in, "file", IN_ACCESS | IN_ONLYDIR));
    T(inotify_rm_watch(in, 1));
    T(inotify_rm_watch(in, 0));
    T(inotify_rm_watch(in, -1));
    T(inotify_rm_watch(0x7fff, 1));
    T(inotify_rm_watch(0, 1));
    /* Numbers are not used again. */
    T(inotify_add_watch(in, "file", IN_UNMOUNT));
    T(inotify_rm_watch(in, 1));
    T(inotify_add_watch(in, "file", IN_ISDIR));
    T(inotify_add_watch(in, ".", IN_ONLYDIR | IN_ACCESS));
    T(inotify_add_watch(in, "./", IN_ACCESS));
    E(inotify_rm_watch(in, 2));
    T(symlink("file", "to file"));
    T(symlink(".", "to directory"));
    T(inotify_add_watch(in, "to file", IN_ATTRIB));
    T(inotify_add_watch(in, "file", IN_ATTRIB));
    T(inotify_add_watch(in, "to file", IN_DONT_FOLLOW | IN_ATTRIB));
    T(inotify_add_watch(in, "to directory", IN_ONLYDIR | IN_ATTRIB));
    T(inotify_add_watch(in, "to directory", IN_ONLYDIR | IN_DONT_FOLLOW | IN_ATTRIB));
    E(lchown("to file", getuid(), -1));
    E(unlink("to file"));
    T(unlink("to directory"));
    T(unlink("file"));
    T(close(in));
    /* Most instances and watches are numbers. */
    const char *limits[] = {"max_queued_events", "max_user_instances", "max_user_watches"};
    for (int i = 0; i < 3; i++) {
        sprintf(bytes, "/proc/sys/fs/inotify/%s", limits[i]);
        FILE *limit = fopen(bytes, "r");
        long value = 0;
        if (!limit || fscanf(limit, "%ld", &value) != 1)
            printf("no %s\n", limits[i]);
        T(value >= (i == 1 ? 128 : 8192));
        if (limit)
            fclose(limit);
    }
}

/* All that can be done with a file and its directory, seen by a watch of each. */
static void files(void)
{
    int in = inotify_init1(IN_NONBLOCK);
    T(mkdir("watched", 0755));
    T(inotify_add_watch(in, "watched", IN_ALL_EVENTS));
    int file;
    E((file = open("watched/file", O_RDWR | O_CREAT, 0644)) >= 0);
    T(inotify_add_watch(in, "watched/file", IN_ALL_EVENTS));
    E(write(file, "some bytes", 10));
    E(write(file, "", 0));
    E(pwrite(file, "x", 1, 2));
    struct iovec parts[] = {{"one", 3}, {"", 0}, {"two", 3}};
    E(writev(file, parts, 3));
    E(pwritev(file, parts, 3, 0));
    E(pwritev2(file, parts, 3, -1, 0));
    E(lseek(file, 0, SEEK_SET));
    E(read(file, bytes, 4));
    E(read(file, bytes, 0));
    E(pread(file, bytes, 4, 1));
    E(pread(file, bytes, 4, 100));
    struct iovec into[] = {{bytes, 3}, {bytes, 0}, {bytes, 3}};
    E(readv(file, into, 3));
    E(preadv(file, into, 3, 1));
    E(preadv2(file, into, 3, -1, 0));
    E(ftruncate(file, 5));
    E(ftruncate(file, 5));
    E(truncate("watched/file", 100));
    E(fallocate(file, 0, 0, 200));
    E(fchmod(file, 0600));
    E(chmod("watched/file", 0644));
    E(fchown(file, -1, -1));
    E(fchown(file, getuid(), -1));
    E(chown("watched/file", -1, getgid()));
    struct timespec times[] = {{5, 0}, {6, 0}};
    E(futimens(file, times));
    E(utimensat(AT_FDCWD, "watched/file", 0, 0));
    times[0].tv_nsec = UTIME_OMIT;
    E(utimensat(AT_FDCWD, "watched/file", times, 0));
    times[0].tv_nsec = 0, times[1].tv_nsec = UTIME_OMIT;
    E(futimens(file, times));
    times[0].tv_nsec = UTIME_OMIT;
    E(futimens(file, times));
    struct stat st;
    E(stat("watched/file", &st));
    E(fsync(file));
    E(access("watched/file", R_OK));
    int second;
    E((second = dup(file)) >= 0);
    E(close(second));
    E(close(file));
    E((file = open("watched/file", O_RDONLY)) >= 0);
    E(close(file));
    E((file = open("watched/file", O_WRONLY | O_APPEND)) >= 0);
    E(write(file, "end", 3));
    E(close(file));
    E((file = open("watched/file", O_RDONLY | O_CREAT, 0644)) >= 0);
    E(close(file));
    T(open("watched/file", O_RDONLY | O_CREAT | O_EXCL, 0644));
    E(open("watched/none", O_RDONLY));
    /* A new file is not cut. */
    E((file = open("watched/new", O_WRONLY | O_CREAT | O_TRUNC, 0644)) >= 0);
    E(close(file));
    E(unlink("watched/new"));
    E(unlink("watched/file"));
    E(rmdir("watched"));
    T(close(in));
}

/* Before Linux 6.9 IN_OPEN came behind what O_TRUNC cuts: the events are counted. */
static void cut_at_open(void)
{
    int in = inotify_init1(IN_NONBLOCK);
    write_file("cut", "text");
    T(inotify_add_watch(in, "cut", IN_ALL_EVENTS));
    int file;
    T((file = open("cut", O_WRONLY | O_TRUNC)) >= 0);
    T(read(in, bytes, sizeof bytes));
    struct inotify_event *events = (void *)bytes;
    T(events[0].mask | events[1].mask);
    /* Also one that is empty. */
    T(close(open("cut", O_WRONLY | O_TRUNC)));
    T(read(in, bytes, sizeof bytes));
    T(close(file));
    T(unlink("cut"));
    T(close(in));
}

static void copies(void)
{
    int in = inotify_init1(IN_NONBLOCK);
    write_file("from", "some text");
    write_file("to", "");
    int from = open("from", O_RDONLY), to = open("to", O_RDWR);
    T(inotify_add_watch(in, "from", IN_ACCESS | IN_MODIFY));
    E(sendfile(to, from, 0, 4));
    E(sendfile(to, from, 0, 0));
    T(inotify_add_watch(in, "to", IN_ACCESS | IN_MODIFY));
    int ends[2];
    T(pipe(ends));
    E(splice(from, 0, ends[1], 0, 4, 0));
    E(splice(ends[0], 0, to, 0, 4, 0));
    T(inotify_rm_watch(in, 1));
    print_events(in, "removed");
    E(copy_file_range(from, (off64_t[]){0}, to, 0, 4, 0));
    /* A change by a mapping gives none. */
    char *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, to, 0);
    at[0] = 'x';
    E(msync(at, 4096, MS_SYNC));
    T(munmap(at, 4096));
    T(close(from) | close(to) | close(ends[0]) | close(ends[1]));
    T(unlink("from") | unlink("to"));
    T(close(in));
}

static void directories(void)
{
    int in = inotify_init1(IN_NONBLOCK);
    T(mkdir("watched", 0755));
    T(inotify_add_watch(in, "watched", IN_ALL_EVENTS));
    E(mkdir("watched/inner", 0755));
    E(mkdir("watched/inner", 0755));
    T(inotify_add_watch(in, "watched/inner", IN_ALL_EVENTS));
    int directory;
    E((directory = open("watched/inner", O_RDONLY | O_DIRECTORY)) >= 0);
    E(syscall(SYS_getdents64, directory, bytes, 4096) > 0);
    E(syscall(SYS_getdents64, directory, bytes, 4096));
    E(fchmod(directory, 0700));
    E(mkdirat(directory, "innermost", 0755));
    E(unlinkat(directory, "innermost", AT_REMOVEDIR));
    E(close(directory));
    E(chmod("watched", 0700));
    E(symlink("nowhere", "watched/link"));
    E(unlink("watched/link"));
    write_file("outside", "x");
    E(link("outside", "watched/hard"));
    T(inotify_add_watch(in, "outside", IN_ALL_EVENTS));
    E(link("outside", "watched/harder"));
    E(unlink("watched/hard"));
    E(unlink("watched/harder"));
    E(unlink("outside"));
    int socket_ = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {AF_UNIX, "watched/socket"};
    E(bind(socket_, (void *)&name, sizeof name));
    T(close(socket_));
    E(unlink("watched/socket"));
    /* Removed while it is open: it is gone when it is closed. */
    T((directory = open("watched/inner", O_RDONLY | O_DIRECTORY)) >= 0);
    print_events(in, "opened");
    E(rmdir("watched/inner"));
    E(close(directory));
    T(inotify_rm_watch(in, 2));
    E(rmdir("watched"));
    T(close(in));
}

static void moves(void)
{
    int in = inotify_init1(IN_NONBLOCK);
    T(mkdir("one", 0755) | mkdir("two", 0755));
    T(inotify_add_watch(in, "one", IN_ALL_EVENTS));
    T(inotify_add_watch(in, "two", IN_ALL_EVENTS));
    write_file("one/a", "a");
    write_file("outside", "o");
    print_events(in, "made");
    E(rename("one/a", "one/b"));
    E(rename("one/b", "two/c"));
    E(rename("two/c", "out"));
    E(rename("out", "one/a"));
    T(inotify_add_watch(in, "one/a", IN_ALL_EVENTS));
    E(rename("one/a", "two/a"));
    E(rename("two/a", "two/a"));
    /* Over another, which is watched, and over one that is open. */
    write_file("two/b", "b");
    T(inotify_add_watch(in, "two/b", IN_ALL_EVENTS));
    print_events(in, "made");
    E(rename("two/a", "two/b"));
    write_file("two/c", "c");
    T(inotify_add_watch(in, "two/c", IN_ALL_EVENTS));
    int file = open("two/c", O_RDWR);
    print_events(in, "made");
    E(rename("two/b", "two/c"));
    E(write(file, "more", 4));
    E(close(file));
    E(syscall(SYS_renameat2, AT_FDCWD, "outside", AT_FDCWD, "two/c", RENAME_NOREPLACE));
    /* A directory, also over another. */
    T(mkdir("one/inner", 0755) | mkdir("two/empty", 0755));
    T(inotify_add_watch(in, "one/inner", IN_ALL_EVENTS));
    T(inotify_add_watch(in, "two/empty", IN_ALL_EVENTS));
    print_events(in, "made");
    E(rename("one/inner", "two/empty"));
    /* Its watch goes with it. */
    E(mkdir("two/empty/below", 0755));
    E(rename("two/empty/below", "one/above"));
    /* Two names of one file are not renamed. */
    T(link("two/c", "two/d"));
    print_events(in, "linked");
    E(rename("two/c", "two/d"));
    /* An open file has its new name. */
    T((file = open("two/d", O_RDWR)) >= 0);
    T(rename("two/d", "one/e"));
    print_events(in, "moved");
    E(write(file, "x", 1));
    T(rename("one/e", "one/f"));
    print_events(in, "moved");
    E(fchmod(file, 0600));
    char own[32];
    sprintf(own, "/proc/self/fd/%d", file);
    int again;
    E((again = open(own, O_RDONLY)) >= 0);
    E(close(again));
    T(rename("one", "three"));
    print_events(in, "moved");
    E(close(file));
    T(unlink("two/c") | unlink("three/f") | unlink("outside"));
    print_events(in, "removed");
    T(rmdir("three/above") | rmdir("two/empty") | rmdir("two") | rmdir("three"));
    print_events(in, "removed");
    T(close(in));
}

/* Files that are removed while they are open. */
static void removed(void)
{
    int in = inotify_init1(IN_NONBLOCK), excluded = inotify_init1(IN_NONBLOCK);
    T(mkdir("watched", 0755));
    write_file("watched/file", "text");
    T(inotify_add_watch(in, "watched", IN_ALL_EVENTS));
    T(inotify_add_watch(in, "watched/file", IN_ALL_EVENTS));
    T(inotify_add_watch(excluded, "watched", IN_ALL_EVENTS | IN_EXCL_UNLINK));
    T(inotify_add_watch(excluded, "watched/file", IN_ALL_EVENTS | IN_EXCL_UNLINK));
    int file = open("watched/file", O_RDWR), second = open("watched/file", O_RDONLY);
    print_events(in, "opened");
    E(unlink("watched/file"));
    print_events(excluded, "excluded");
    E(write(file, "x", 1));
    E(read(second, bytes, 1));
    E(fallocate(file, 0, 0, 10));
    print_events(excluded, "excluded");
    E(ftruncate(file, 1));
    E(futimens(file, (struct timespec[]){{1, 0}, {0, UTIME_OMIT}}));
    E(fchmod(file, 0600));
    print_events(excluded, "excluded");
    /* Another of the same name is another. */
    int other;
    E((other = open("watched/file", O_WRONLY | O_CREAT, 0644)) >= 0);
    E(close(other));
    print_events(excluded, "excluded");
    E(close(file));
    E(close(second));
    print_events(excluded, "excluded");
    E(unlink("watched/file"));
    T(rmdir("watched"));
    print_events(excluded, "excluded");
    T(close(excluded));
    T(close(in));
    /* The end of an instance takes its watches. */
    T((in = inotify_init1(IN_NONBLOCK)) >= 0);
    write_file("file", "x");
    T(inotify_add_watch(in, "file", IN_ALL_EVENTS));
    T(close(in));
    T(unlink("file"));
    /* A file without a name. */
    T((in = inotify_init1(IN_NONBLOCK)) >= 0);
    int memory = memfd_create("memory", 0);
    sprintf(bytes, "/proc/self/fd/%d", memory);
    /* Since Linux 6.13 it has no other events. */
    T(inotify_add_watch(in, bytes, IN_DELETE_SELF));
    E(close(memory));
    T(close(in));
}

static void masks(void)
{
    int in = inotify_init1(IN_NONBLOCK);
    write_file("file", "text");
    T(inotify_add_watch(in, "file", IN_OPEN));
    T(inotify_add_watch(in, "file", IN_ATTRIB));
    E(close(open("file", O_RDONLY)));
    E(chmod("file", 0600));
    T(inotify_add_watch(in, "file", IN_OPEN | IN_MASK_ADD));
    E(close(open("file", O_RDONLY)));
    E(chmod("file", 0644));
    T(inotify_add_watch(in, "file", IN_OPEN | IN_MASK_CREATE));
    T(inotify_add_watch(in, ".", IN_OPEN | IN_MASK_CREATE));
    E(inotify_rm_watch(in, 2));
    /* Once. */
    T(inotify_add_watch(in, "file", IN_ATTRIB | IN_OPEN | IN_ONESHOT));
    E(truncate("file", 1));
    E(chmod("file", 0600));
    E(chmod("file", 0600));
    T(inotify_rm_watch(in, 1));
    T(inotify_add_watch(in, "file", IN_ATTRIB | IN_ONESHOT));
    T(inotify_add_watch(in, "file", IN_ATTRIB));
    E(chmod("file", 0600));
    T(inotify_add_watch(in, "file", IN_ATTRIB | IN_ONESHOT | IN_MASK_ADD));
    E(chmod("file", 0600));
    T(inotify_add_watch(in, "file", IN_DELETE_SELF | IN_ONESHOT));
    E(unlink("file"));
    /* No event is wanted but the end. */
    write_file("file", "text");
    T(inotify_add_watch(in, "file", IN_ISDIR));
    E(unlink("file"));
    T(close(in));
}

static void queues(void)
{
    int in = inotify_init1(IN_NONBLOCK);
    write_file("a", "text");
    write_file("b", "text");
    T(inotify_add_watch(in, ".", IN_ATTRIB | IN_MOVE));
    /* The same once more is one event, unless another is between. */
    for (int i = 0; i < 3; i++)
        T(chmod("a", 0600));
    T(chmod("b", 0600));
    T(chmod("a", 0600));
    print_events(in, "merged");
    /* Room for some of them. */
    T(chmod("a", 0600));
    T(chmod("b", 0600));
    T(read(in, bytes, 15));
    T(read(in, bytes, 16));
    T(read(in, bytes, 31));
    T(read(in, bytes, 0));
    T(read(in, bytes, 63));
    T(read(in, bytes, 63));
    T(read(in, bytes, 63));
    /* Into the parts of a vector, each a read. */
    T(chmod("a", 0600));
    T(chmod("b", 0600));
    struct iovec parts[] = {{bytes, 32}, {bytes + 32, 32}};
    T(readv(in, parts, 2));
    T(chmod("a", 0600));
    T(syscall(SYS_read, in, BAD, 64));
    while (read(in, bytes, sizeof bytes) > 0)
        ;
    /* Names are filled to whole events. */
    for (int length = 14; length <= 17; length++) {
        char name[32] = {0};
        memset(name, 'n', length);
        T(rename("a", name));
        T(rename(name, "a"));
    }
    char longest[256] = {0};
    memset(longest, 'l', 255);
    T(rename("a", longest));
    print_events(in, "names");
    T(rename(longest, "a"));
    T(rename("a", "\xff\xfe"));
    print_events(in, "moved");
    struct inotify_event *event = (void *)bytes;
    T(((struct inotify_event *)(bytes + 16 + event->len))->name[0]);
    T(rename("\xff\xfe", "a"));
    T(unlink("a") | unlink("b"));
    T(close(in));
}

/* More events than a queue holds. */
static void overflow(void)
{
    int in = inotify_init1(IN_NONBLOCK);
    write_file("a", "text");
    write_file("b", "text");
    T(inotify_add_watch(in, ".", IN_ATTRIB));
    int most = 0;
    FILE *limit = fopen("/proc/sys/fs/inotify/max_queued_events", "r");
    T(limit && fscanf(limit, "%d", &most) == 1 && most > 0);
    if (limit)
        fclose(limit);
    for (int i = 0; i < most + 10; i++)
        chmod(i % 2 ? "a" : "b", 0600);
    int waiting;
    T(ioctl(in, FIONREAD, &waiting));
    T(waiting == 32 * most + 16);
    long all = 0, got, last = 0;
    while ((got = read(in, bytes, 65536)) > 0)
        all += got, last = got;
    T(all == waiting);
    print_event((void *)(bytes + last - 16), 0);
    /* It goes on behind that. */
    T(chmod("a", 0600));
    print_events(in, "on");
    T(unlink("a") | unlink("b"));
    T(close(in));
}

static void waiting(void)
{
    int in = inotify_init1(IN_NONBLOCK);
    write_file("a", "text");
    T(inotify_add_watch(in, "a", IN_ATTRIB | IN_OPEN));
    struct pollfd poll_ = {in, POLLIN | POLLOUT | POLLRDNORM, 0};
    T(poll(&poll_, 1, 0));
    T(chmod("a", 0600));
    T(poll(&poll_, 1, -1));
    T(poll_.revents);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(in, &set);
    struct timeval none = {0, 0};
    T(select(in + 1, &set, 0, 0, &none));
    for (int edge = 0; edge < 2; edge++) {
        struct epoll_event event = {EPOLLIN | (edge ? EPOLLET : 0), {.fd = 1}}, got;
        int epoll = epoll_create1(0);
        T(epoll_ctl(epoll, EPOLL_CTL_ADD, in, &event));
        T(epoll_wait(epoll, &got, 1, 0));
        T(got.events);
        T(epoll_wait(epoll, &got, 1, 0));
        /* Another event is another edge, the same is not. */
        T(close(open("a", O_RDONLY)));
        T(epoll_wait(epoll, &got, 1, 0));
        T(close(open("a", O_RDONLY)));
        T(epoll_wait(epoll, &got, 1, 0));
        T(read(in, bytes, sizeof bytes));
        T(epoll_wait(epoll, &got, 1, 0));
        T(chmod("a", 0600));
        T(epoll_wait(epoll, &got, 1, 0));
        T(close(epoll));
    }
    print_events(in, "left");
    T(unlink("a"));
    T(close(in));
}

static int shared_in;

static void *changer(void *path)
{
    usleep(30000);
    chmod(path, 0600);
    return 0;
}

static void *closer(void *epoll)
{
    struct epoll_event got;
    T(epoll_wait(*(int *)epoll, &got, 1, -1));
    return 0;
}

static void on_alarm(int number)
{
    (void)number;
}

/* Threads that wait for an event of another. */
static void threads(void)
{
    int in = shared_in = inotify_init1(0);
    write_file("a", "text");
    T(inotify_add_watch(in, "a", IN_ATTRIB));
    pthread_t thread;
    pthread_create(&thread, 0, changer, "a");
    T(read(in, bytes, sizeof bytes));
    print_event((void *)bytes, 0);
    pthread_join(thread, 0);
    pthread_create(&thread, 0, changer, "a");
    struct pollfd poll_ = {in, POLLIN, 0};
    T(poll(&poll_, 1, -1));
    T(read(in, bytes, sizeof bytes));
    pthread_join(thread, 0);
    int epoll = epoll_create1(0);
    struct epoll_event event = {EPOLLIN | EPOLLET, {.fd = 1}};
    T(epoll_ctl(epoll, EPOLL_CTL_ADD, in, &event));
    pthread_create(&thread, 0, closer, &epoll);
    usleep(30000);
    chmod("a", 0600);
    pthread_join(thread, 0);
    T(read(in, bytes, 64));
    /* A removed watch wakes too. */
    pthread_create(&thread, 0, closer, &epoll);
    usleep(30000);
    int removed = inotify_rm_watch(in, 1);
    pthread_join(thread, 0);
    T(removed);
    T(read(in, bytes, 64));
    print_event((void *)bytes, 0);
    /* A signal ends a wait. */
    struct sigaction act = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &act, 0);
    struct itimerval soon = {{0, 0}, {0, 20000}};
    setitimer(ITIMER_REAL, &soon, 0);
    T(read(in, bytes, 64));
    T(unlink("a"));
    T(close(epoll) | close(in));
}

/* Two threads make, change and remove files while a third one reads: each event comes. */
static void *busy(void *name)
{
    char path[64];
    for (int i = 0; i < 200; i++) {
        sprintf(path, "busy/%s%d", (char *)name, i);
        write_file(path, "text");
        rename(path, "busy/same");
        sprintf(path, "busy/%s", (char *)name);
        rename("busy/same", path);
        unlink(path);
    }
    return 0;
}

static void storms(void)
{
    int in = inotify_init1(0);
    T(mkdir("busy", 0755));
    T(inotify_add_watch(in, "busy", IN_CREATE | IN_CLOSE_WRITE));
    pthread_t threads[2];
    pthread_create(&threads[0], 0, busy, "x");
    pthread_create(&threads[1], 0, busy, "y");
    int made = 0, closed = 0;
    while (made < 400 || closed < 400) {
        long got = read(in, bytes, 4096);
        for (long at = 0; at < got;) {
            struct inotify_event *event = (void *)(bytes + at);
            made += event->mask == IN_CREATE;
            closed += event->mask == IN_CLOSE_WRITE;
            at += sizeof *event + event->len;
        }
    }
    T(made);
    T(closed);
    pthread_join(threads[0], 0);
    pthread_join(threads[1], 0);
    unlink("busy/same");
    T(rmdir("busy"));
    T(close(in));
}

static int limit_of(const char *name)
{
    int value = 0;
    sprintf(bytes, "/proc/sys/fs/inotify/%s", name);
    FILE *limit = fopen(bytes, "r");
    if (limit) {
        fscanf(limit, "%d", &value);
        fclose(limit);
    }
    return value;
}

static void *rude(void *seed_)
{
    unsigned seed = *(unsigned *)seed_;
    char path[280];
    for (int i = 0; i < 3000; i++) {
        int in = 3 + rand_r(&seed) % 8;
        memset(path, 'p', 250);
        sprintf(path + 250, "%d", rand_r(&seed) % 4);
        switch (rand_r(&seed) % 8) {
        case 0:
            inotify_init1(IN_NONBLOCK);
            break;
        case 1:
            close(in);
            break;
        case 2:
            inotify_add_watch(in, ".", rand_r(&seed) | IN_ALL_EVENTS);
            break;
        case 3:
            inotify_add_watch(in, path, rand_r(&seed));
            break;
        case 4:
            inotify_rm_watch(in, rand_r(&seed) % 9);
            break;
        case 5:
            fcntl(in, F_SETFL, O_NONBLOCK);
            close(open(path, O_RDWR | O_CREAT, 0644));
            break;
        case 6:
            rename(path, "renamed");
            break;
        case 7:
            unlink(path);
            break;
        }
    }
    return 0;
}

/* What is bounded, for a machine that the program has alone. */
static void limits(void)
{
    int in[200], made = 0;
    while (made < 200 && (in[made] = inotify_init1(IN_NONBLOCK)) >= 0)
        made++;
    T(made == limit_of("max_user_instances"));
    T(inotify_init1(0));
    T(close(in[1]));
    T((in[1] = inotify_init1(IN_NONBLOCK)) >= 0);
    int most = limit_of("max_user_watches"), watches = 0, file;
    char name[32];
    for (file = 0; watches < most; file++) {
        sprintf(name, "f%d", file);
        close(open(name, O_WRONLY | O_CREAT, 0644));
        for (int i = 0; i < made && watches < most; i++)
            watches += inotify_add_watch(in[i], name, IN_ATTRIB) > 0;
    }
    T(watches == most);
    T(inotify_add_watch(in[0], ".", IN_ATTRIB));
    T(inotify_rm_watch(in[0], 1));
    T(inotify_add_watch(in[0], ".", IN_ATTRIB) > 0);
    for (int i = 0; i < made; i++)
        close(in[i]);
    while (file-- > 0) {
        sprintf(name, "f%d", file);
        unlink(name);
    }
    T((in[0] = inotify_init1(IN_NONBLOCK)) >= 0);
    T(inotify_add_watch(in[0], ".", IN_ATTRIB));
    T(close(in[0]));
    /* Threads that take each other's instances away. */
    pthread_t threads[4];
    unsigned seeds[4] = {1, 2, 3, 4};
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, rude, &seeds[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    for (int i = 3; i < 3000; i++)
        close(i);
    unlink("renamed");
    char path[280];
    memset(path, 'p', 250);
    for (int i = 0; i < 4; i++) {
        sprintf(path + 250, "%d", i);
        unlink(path);
    }
}

int main(int count, char **words)
{
    static const struct group alone[] = {{"limits", limits}};
    if (count > 1 && !strcmp(words[1], "limits"))
        return run_groups("inotify", alone, 1, count, words);
    static const struct group groups[] = {
        {"instances", instances}, {"files", files}, {"cut_at_open", cut_at_open},
        {"copies", copies}, {"directories", directories}, {"moves", moves},
        {"removed", removed}, {"masks", masks}, {"queues", queues}, {"overflow", overflow},
        {"waiting", waiting}, {"threads", threads}, {"storms", storms},
    };
    return run_groups("inotify", groups, sizeof groups / sizeof *groups, count, words);
}
