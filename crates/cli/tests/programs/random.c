/* Random sequences of system calls: `random KIND SEED SEQUENCES CALLS` prints each call with its
   result, errno and a sum of the bytes that it gave. The same words give the same calls, so that
   two kernels can be compared. Nothing waits; what kernels are free to choose is left out. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <setjmp.h>
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
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define SLOTS 12
#define PAGES 16
#define PAGE 4096

/* What a call is about, and what a slot holds. */
enum { FILES = 1, STREAMS = 2, SOCKETS = 4, EVENTS = 8, MEMORY = 16, SIGNALS = 32, ALL = 63 };
enum holds { NOTHING, REGULAR, DIRECTORY, PIPE, COUNTER, TIMER, QUEUE, STREAM, MESSAGES };

static uint64_t state;
static struct slot {
    int file;
    enum holds holds;
} slots[SLOTS];
static char *area;
static char bytes[70000];
static uint32_t sum;
/* Whether the call got a pointer that may be bad: which of several errors is then not compared. */
static int is_bad;
static int handled, messages;
static sigjmp_buf after_fault;

static unsigned below(unsigned n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

/* A slot that holds one of two things, as a rule. */
static struct slot *with(enum holds one, enum holds other)
{
    struct slot *slot = 0;
    for (int tries = 0; tries < 6; tries++) {
        slot = &slots[below(SLOTS)];
        if (slot->holds == one || slot->holds == other)
            break;
    }
    return slot;
}

static int any(void) { return slots[below(SLOTS)].file; }

static long keep(long file, enum holds holds)
{
    if (file < 0)
        return file;
    struct slot *slot = &slots[below(SLOTS)];
    if (slot->holds != NOTHING)
        close(slot->file);
    *slot = (struct slot){file, holds};
    return 0;
}

static long keep_both(long made, int pair[2], enum holds holds)
{
    if (made == 0) {
        keep(pair[0], holds);
        keep(pair[1], holds);
    }
    return made;
}

/* Adds what a call gave to the sum. */
static long given(const void *from, long count)
{
    for (long i = 0; i < count && !is_bad; i++)
        sum = (sum ^ ((const uint8_t *)from)[i]) * 16777619;
    return count;
}

static const char *name(void)
{
    static const char *names[] = {"a", "b", "d", "d/a", "d/b", "l", "s", "missing/x", "", "d/.."};
    return names[below(sizeof names / sizeof *names)];
}

/* A pointer that may be bad: none, in the area (which may be protected), or sound. */
static char *pointer(void)
{
    unsigned which = below(12);
    is_bad |= which < 3;
    switch (which) {
    case 0:
        return (char *)(uintptr_t)(below(3) * 8);
    case 1:
        return (char *)(uintptr_t)-4096;
    case 2:
        return area + below(PAGES) * PAGE;
    default:
        return bytes;
    }
}

/* The same, with bytes to write, which differ from call to call. */
static const char *text(void)
{
    static uint32_t serial;
    char *at = pointer();
    if (at == bytes) {
        serial = serial * 31 + 7;
        for (unsigned i = 0; i < 200; i++)
            bytes[i] = serial + i * 5;
    }
    return at;
}

static unsigned length(void)
{
    static const unsigned lengths[] = {0, 1, 7, 8, 100, 4096, 4097, 65536};
    return lengths[below(8)];
}

/* Bytes to write: counters take 8, and what sockets hold is counted differently by each kernel. */
static unsigned fitting(const struct slot *slot)
{
    switch (slot->holds) {
    case COUNTER:
        return 8;
    case STREAM:
        return below(300);
    default:
        return length();
    }
}

static struct sockaddr_un un(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    strcpy(un.sun_path, below(2) ? "s" : "t");
    return un;
}

static struct iovec *parts(int is_written)
{
    static struct iovec parts[3];
    for (int i = 0; i < 3; i++)
        parts[i] = (struct iovec){is_written ? (char *)text() : pointer(), below(2) ? below(50) : below(5000)};
    return parts;
}

static long given_parts(const struct iovec *parts, long count)
{
    long rest = count;
    for (int i = 0; i < 3 && rest > 0; i++) {
        long part = rest < (long)parts[i].iov_len ? rest : (long)parts[i].iov_len;
        /* Parts lie on each other: the last that was read is what is there. */
        if (part == rest)
            given(parts[i].iov_base, part);
        rest -= part;
    }
    return count;
}

/* Files. */

static long open_file(void)
{
    int flags = O_NONBLOCK | (below(4) ? O_RDWR | O_CREAT : below(2) ? O_RDONLY : O_WRONLY);
    flags |= below(6) ? 0 : O_APPEND;
    flags |= below(6) ? 0 : O_TRUNC;
    flags |= below(9) ? 0 : O_EXCL;
    return keep(open(name(), flags, 0600), REGULAR);
}

static long open_directory(void)
{
    static const char *names[] = {".", "d", "d/..", "a", "l"};
    return keep(open(names[below(5)], O_DIRECTORY | O_RDONLY), DIRECTORY);
}

static long close_one(void)
{
    struct slot *slot = &slots[below(SLOTS)];
    long r = close(slot->file);
    *slot = (struct slot){-1, NOTHING};
    return r;
}

static long read_one(void)
{
    char *to = pointer();
    struct slot *slot = with(REGULAR, PIPE);
    /* Linux loses the count or message. */
    if (is_bad && (slot->holds == COUNTER || slot->holds == TIMER || slot->holds == MESSAGES))
        return 0;
    return given(to, read(slot->file, to, length()));
}

static long write_one(void)
{
    struct slot *slot = with(REGULAR, PIPE);
    const char *from = text();
    /* On ext4 a write from a bad pointer behind the end of a file makes it longer. */
    if (slot->holds == MESSAGES || (is_bad && slot->holds == REGULAR))
        return 0;
    return write(slot->file, from, fitting(slot));
}

static long pread_one(void)
{
    char *to = pointer();
    return given(to, pread(with(REGULAR, REGULAR)->file, to, length(), (long)below(9000) - 10));
}

static long pwrite_one(void)
{
    long far = below(20) ? 0 : 1L << 31;
    struct slot *slot = with(REGULAR, REGULAR);
    const char *from = text();
    return is_bad && slot->holds == REGULAR ? 0 : pwrite(slot->file, from, length(), far + (long)below(9000) - 10);
}

static long readv_one(void)
{
    struct iovec *to = parts(0);
    struct slot *slot = with(REGULAR, PIPE);
    /* What a pipe gives to parts before a bad one depends on where its pages end. */
    if (is_bad && slot->holds != REGULAR && slot->holds != STREAM)
        return 0;
    return given_parts(to, readv(slot->file, to, below(4)));
}

static long writev_one(void)
{
    struct slot *slot = with(REGULAR, PIPE);
    /* How much of a vector with a bad part is written differs. */
    struct iovec *from = parts(1);
    if (is_bad || slot->holds >= COUNTER)
        return 0;
    return writev(slot->file, from, below(4));
}

static long preadv_one(void)
{
    struct iovec *to = parts(0);
    return given_parts(to, preadv(with(REGULAR, REGULAR)->file, to, below(4), below(9000)));
}


static long seek(void)
{
    /* Positions in directories are the file system's. */
    struct slot *slot = with(REGULAR, PIPE);
    struct stat status;
    int is_directory = fstat(slot->file, &status) == 0 && S_ISDIR(status.st_mode);
    return is_directory ? 0 : lseek(slot->file, (long)below(9000) - 100, below(3));
}

static long cut_open(void) { return ftruncate(with(REGULAR, REGULAR)->file, (long)below(9000) - 10); }
static long cut(void) { return truncate(name(), (long)below(9000) - 10); }
static long sync_one(void) { return fdatasync(any()); }
static long make_directory(void) { return mkdir(name(), 0700); }
static long remove_one(void) { return below(3) ? unlink(name()) : rmdir(name()); }
static long link_one(void) { return link(name(), name()); }
static long symlink_one(void) { return symlink(below(2) ? "a" : "d", name()); }
static long may_access(void) { return access(name(), below(4) & ~X_OK); }

static long status_of(long r, const struct stat *st)
{
    if (r < 0)
        return r;
    given(&st->st_mode, sizeof st->st_mode);
    return S_ISREG(st->st_mode) ? st->st_size * 10 + st->st_nlink : 0;
}

static long status(void)
{
    struct stat st;
    switch (below(3)) {
    case 0:
        return status_of(fstat(with(REGULAR, DIRECTORY)->file, &st), &st);
    case 1:
        return status_of(stat(name(), &st), &st);
    default:
        return status_of(lstat(name(), &st), &st);
    }
}

static long rename_one(void)
{
    is_bad = 1;
    return below(4) ? rename(name(), name()) : renameat2(AT_FDCWD, name(), AT_FDCWD, name(), RENAME_NOREPLACE);
}

static long readlink_one(void)
{
    char *to = pointer();
    return given(to, readlink(name(), to, below(10)));
}

static long change_mode(void)
{
    int mode = 0700 | below(0100);
    struct slot *slot = with(REGULAR, REGULAR);
    return below(2) ? chmod(name(), mode) : slot->holds == REGULAR ? fchmod(slot->file, mode) : 0;
}

static long change_times(void)
{
    struct timespec times[2] = {{below(1000), 0}, {below(1000), below(2) ? 1 : UTIME_OMIT}};
    struct stat st;
    const char *of = name();
    long r = utimensat(AT_FDCWD, of, times, 0);
    return r < 0 || times[1].tv_nsec == UTIME_OMIT || stat(of, &st) ? r : st.st_mtim.tv_sec;
}

/* Names in any order. */
static long list(void)
{
    DIR *directory = opendir(below(2) ? "." : "d");
    long all = 0;
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        for (char *at = entry->d_name; *at; at++)
            all += *at * (at - entry->d_name + 1) + entry->d_type;
    return directory ? closedir(directory), all : -1;
}

static long lock_one(void)
{
    static const int how[] = {LOCK_SH, LOCK_EX, LOCK_UN};
    struct slot *slot = with(REGULAR, REGULAR);
    return slot->holds == REGULAR ? flock(slot->file, how[below(3)] | LOCK_NB) : 0;
}

static long lock_part(void)
{
    struct flock part = {below(3), SEEK_SET, below(100), below(100)};
    struct slot *slot = with(REGULAR, REGULAR);
    return slot->holds == REGULAR ? fcntl(slot->file, below(3) ? F_SETLK : F_GETLK, &part) : 0;
}

/* Descriptors, pipes, counters, timers. */

static long duplicate(void)
{
    struct slot *slot = &slots[below(SLOTS)];
    return keep(dup(slot->file), slot->holds);
}

static long duplicate_to(void)
{
    struct slot *from = &slots[below(SLOTS)], *to = &slots[below(SLOTS)];
    if (to->holds == NOTHING)
        return 0;
    long r = dup2(from->file, to->file);
    if (r >= 0)
        to->holds = from->holds;
    return r < 0 ? r : 0;
}

static long flags(void)
{
    int file = any();
    switch (below(4)) {
    case 0:
        return fcntl(file, F_SETFL, O_NONBLOCK | (below(2) ? O_APPEND : 0));
    case 1:
        return fcntl(file, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK);
    case 2:
        return fcntl(file, F_SETFD, below(2));
    default:
        return fcntl(file, F_GETFD);
    }
}

static long pipe_pair(void)
{
    int pair[2];
    return keep_both(pipe2(pair, O_NONBLOCK), pair, PIPE);
}

static long counter(void)
{
    return keep(eventfd(below(3), EFD_NONBLOCK | (below(2) ? EFD_SEMAPHORE : 0)), COUNTER);
}

static long count_up(void)
{
    static const uint64_t values[] = {0, 1, 5, -2, -1};
    struct slot *slot = with(COUNTER, COUNTER);
    return slot->holds == COUNTER ? write(slot->file, &values[below(5)], 8) : 0;
}

static long take_count(void)
{
    uint64_t value;
    struct slot *slot = with(COUNTER, TIMER);
    return slot->holds == COUNTER || slot->holds == TIMER ? given(&value, read(slot->file, &value, below(4) ? 8 : 7)) : 0;
}

static long timer(void)
{
    return keep(timerfd_create(below(3) ? CLOCK_MONOTONIC : CLOCK_REALTIME, TFD_NONBLOCK), TIMER);
}

/* Long ago, in an hour, or not at all. */
static long set_timer(void)
{
    int which = below(3);
    struct itimerspec new = {{0, 0}, {which == 2 ? 3600 : 0, which == 1}}, old;
    long r = timerfd_settime(with(TIMER, TIMER)->file, which == 1 ? TFD_TIMER_ABSTIME : 0, &new, &old);
    return r < 0 ? r : old.it_value.tv_sec > 3000;
}

static long readable(void)
{
    int count = 0;
    struct slot *slot = with(PIPE, REGULAR);
    return slot->holds != PIPE && slot->holds != REGULAR ? 0 : ioctl(slot->file, FIONREAD, &count) < 0 ? -1 : count;
}

/* Sockets. */

static int kind_of_socket(enum holds *holds)
{
    static const int kinds[] = {SOCK_STREAM, SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    int kind = kinds[below(4)];
    *holds = kind == SOCK_STREAM ? STREAM : MESSAGES;
    return kind | SOCK_NONBLOCK;
}

static long socket_pair(void)
{
    int pair[2];
    enum holds holds;
    int kind = kind_of_socket(&holds);
    return keep_both(socketpair(AF_UNIX, kind, 0, pair), pair, holds);
}

static long socket_one(void)
{
    enum holds holds;
    int kind = kind_of_socket(&holds);
    return keep(socket(AF_UNIX, kind, 0), holds);
}

static long bind_one(void)
{
    struct sockaddr_un at = un();
    return bind(with(STREAM, MESSAGES)->file, (void *)&at, sizeof at);
}

static long connect_one(void)
{
    struct sockaddr_un at = un();
    return connect(with(STREAM, MESSAGES)->file, (void *)&at, sizeof at);
}

static long listen_one(void) { return listen(with(STREAM, MESSAGES)->file, 2); }

static long accept_one(void)
{
    struct slot *slot = with(STREAM, STREAM);
    return keep(accept4(slot->file, 0, 0, SOCK_NONBLOCK), slot->holds);
}

static const int receive_flags[] = {0, MSG_PEEK, MSG_TRUNC, MSG_DONTWAIT, MSG_PEEK | MSG_TRUNC};

/* Kernels hold different numbers of messages: those that wait are taken before they are many. */
static void take_messages(void)
{
    if (++messages < 6)
        return;
    messages = 0;
    for (int i = 0; i < SLOTS; i++)
        for (int most = 20; slots[i].holds == MESSAGES && most > 0; most--)
            if (recv(slots[i].file, bytes, sizeof bytes, MSG_DONTWAIT) < 0)
                break;
}

static long send_one(void)
{
    struct slot *slot = with(STREAM, MESSAGES);
    if (slot->holds == MESSAGES)
        take_messages();
    /* Whether a message without bytes counts as unread depends on the kernel. */
    return send(slot->file, text(), 1 + below(200), MSG_NOSIGNAL);
}

static long send_parts(void)
{
    struct slot *slot = with(STREAM, MESSAGES);
    struct iovec *from = parts(1);
    for (int i = 0; i < 3; i++)
        from[i].iov_len = 1 + from[i].iov_len % 60;
    if (slot->holds == MESSAGES)
        take_messages();
    struct msghdr message = {.msg_iov = from, .msg_iovlen = 1 + below(3)};
    return is_bad ? 0 : sendmsg(slot->file, &message, MSG_NOSIGNAL);
}

static long send_to(void)
{
    struct sockaddr_un to = un();
    struct slot *slot = with(MESSAGES, MESSAGES);
    if (slot->holds != MESSAGES)
        return 0;
    take_messages();
    return sendto(slot->file, text(), 1 + below(100), MSG_NOSIGNAL, (void *)&to, sizeof to);
}

static long receive(void)
{
    char *to = pointer();
    unsigned most = below(2) ? length() : below(100);
    struct slot *slot = with(STREAM, MESSAGES);
    /* Linux loses the message. */
    if (is_bad && slot->holds == MESSAGES)
        return 0;
    long r = recv(slot->file, to, most, receive_flags[below(5)]);
    given(to, r < (long)most ? r : (long)most);
    return r;
}

static long receive_parts(void)
{
    struct sockaddr_un from;
    struct iovec *to = parts(0);
    struct msghdr message = {.msg_iov = to, .msg_iovlen = below(4), .msg_name = &from, .msg_namelen = sizeof from};
    if (is_bad)
        return 0;
    long r = recvmsg(with(STREAM, MESSAGES)->file, &message, receive_flags[below(2)]);
    if (r >= 0)
        given(&message.msg_flags, sizeof message.msg_flags);
    return given_parts(to, r);
}

static long shut(void) { return shutdown(with(STREAM, MESSAGES)->file, below(4)); }

static long address_of(void)
{
    struct sockaddr_un at = {0};
    socklen_t bytes = sizeof at;
    int file = with(STREAM, MESSAGES)->file;
    long r = below(2) ? getsockname(file, (void *)&at, &bytes) : getpeername(file, (void *)&at, &bytes);
    return r < 0 ? r : given(&at, bytes);
}

static long option_of(void)
{
    static const int options[] = {SO_TYPE, SO_ERROR, SO_DOMAIN, SO_ACCEPTCONN};
    int value = 0;
    socklen_t bytes = sizeof value;
    long r = getsockopt(with(STREAM, MESSAGES)->file, SOL_SOCKET, options[below(4)], &value, &bytes);
    return r < 0 ? r : value;
}

/* Events. Edges are left out: a kernel may report too many. */

static long queue(void) { return keep(epoll_create1(0), QUEUE); }

static long change_queue(void)
{
    static const unsigned events[] = {0, EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT | EPOLLRDHUP};
    struct epoll_event event = {events[below(4)] | (below(3) ? 0 : EPOLLONESHOT), {.u64 = below(1000)}};
    return epoll_ctl(with(QUEUE, QUEUE)->file, 1 + below(3), any(), &event);
}

/* In any order. */
static long take_events(void)
{
    struct epoll_event got[64];
    struct slot *slot = with(QUEUE, QUEUE);
    long r = epoll_wait(slot->file, got, below(9) || slot->holds != QUEUE ? 64 : 0, 0), all = 0;
    for (long i = 0; i < r; i++)
        all += got[i].events * 7919 + got[i].data.u64;
    given(&all, r < 0 ? 0 : sizeof all);
    return r;
}

static long poll_some(void)
{
    struct pollfd polled[4];
    for (int i = 0; i < 4; i++)
        polled[i] = (struct pollfd){any(), below(2) ? POLLIN | POLLOUT | POLLRDHUP : 0};
    long r = poll(polled, below(5), 0);
    for (int i = 0; i < 4 && r >= 0; i++)
        given(&polled[i].revents, sizeof polled[i].revents);
    return r;
}

static long select_some(void)
{
    fd_set reads, writes;
    struct timeval none = {0, 0};
    long all = 0;
    FD_ZERO(&reads);
    FD_ZERO(&writes);
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].holds != NOTHING && below(2))
            FD_SET(slots[i].file, below(2) ? &reads : &writes);
    long r = select(200, &reads, &writes, 0, &none);
    for (int i = 0; i < SLOTS && r > 0; i++)
        if (slots[i].holds != NOTHING)
            all = all * 4 + FD_ISSET(slots[i].file, &reads) * 2 + FD_ISSET(slots[i].file, &writes);
    given(&r, sizeof r);
    return r < 0 ? r : all;
}

/* Memory. */

static void *place(void) { return area + below(PAGES) * PAGE; }
static long protect(void) { return mprotect(place(), below(4) * PAGE, below(4)); }
static long forget(void) { return madvise(place(), below(4) * PAGE, MADV_DONTNEED); }
static long unmap(void) { return below(4) ? 0 : munmap(place(), below(3) * PAGE); }

static long map(void)
{
    void *at = place();
    void *r = mmap(at, (1 + below(3)) * PAGE, below(4), MAP_PRIVATE | MAP_ANONYMOUS | (below(4) ? MAP_FIXED : MAP_FIXED_NOREPLACE), -1, 0);
    return r == MAP_FAILED ? -1 : r == at;
}

static long resize(void)
{
    void *at = place();
    void *r = mremap(at, PAGE, below(3) * PAGE, 0);
    return r == MAP_FAILED ? -1 : r == at;
}

/* A page, to a place that may be itself and may be mapped. */
static long move_page(void)
{
    char *from = place(), *to = place() + below(8) / 7;
    size_t size = below(4) * PAGE;
    int flags = (below(8) ? MREMAP_MAYMOVE : 0) | MREMAP_FIXED | (below(4) ? 0 : MREMAP_DONTUNMAP);
    void *r = mremap(from, PAGE, size, flags, to);
    return r == MAP_FAILED ? -1 : r == to;
}

static long load(void)
{
    volatile char *at = (char *)place() + below(PAGE);
    int signal = sigsetjmp(after_fault, 1);
    return signal ? -1000 - signal : *at;
}

static long store(void)
{
    volatile char *at = (char *)place() + below(PAGE);
    char value = below(100);
    int signal = sigsetjmp(after_fault, 1);
    return signal ? -1000 - signal : (*at = value);
}

/* The pages of a file, one of which may lie behind its end. */
static long map_file(void)
{
    char *at = mmap(0, 3 * PAGE, PROT_READ, below(2) ? MAP_PRIVATE : MAP_SHARED, with(REGULAR, REGULAR)->file, below(2) * PAGE);
    volatile long all = 0;
    if (at == MAP_FAILED)
        return -1;
    int signal = sigsetjmp(after_fault, 1);
    for (volatile int i = 0; !signal && i < 3 * PAGE; i++)
        all = all + at[i] * (i % 251);
    munmap(at, 3 * PAGE);
    return all * 100 + signal;
}

/* Signals that do not queue. */

static const int signals[] = {SIGUSR1, SIGUSR2, SIGALRM};

static sigset_t some_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < 3; i++)
        if (below(2))
            sigaddset(&set, signals[i]);
    return set;
}

static long members(const sigset_t *set)
{
    return sigismember(set, SIGUSR1) + sigismember(set, SIGUSR2) * 2 + sigismember(set, SIGALRM) * 4;
}

static long mask(void)
{
    sigset_t set = some_signals(), old;
    long r = sigprocmask(below(4), &set, &old);
    return r < 0 ? r : members(&old) * 1000 + handled;
}

static long send_signal(void)
{
    long r = below(2) ? raise(signals[below(3)]) : kill(getpid(), signals[below(3)]);
    return r < 0 ? r : handled;
}

static long pending(void)
{
    sigset_t set;
    return sigpending(&set) < 0 ? -1 : members(&set);
}

static long take_signal(void)
{
    sigset_t set = some_signals();
    struct timespec none = {0, 0};
    return sigtimedwait(&set, 0, &none);
}

static void count_signal(int signal) { handled++; }
static void fault(int signal) { siglongjmp(after_fault, signal); }

static const struct call {
    const char *name;
    long (*make)(void);
    unsigned kinds;
} calls[] = {
    {"open", open_file, FILES | MEMORY | EVENTS}, {"open directory", open_directory, FILES},
    {"close", close_one, ALL & ~SIGNALS}, {"read", read_one, FILES | STREAMS | SOCKETS},
    {"write", write_one, FILES | STREAMS | EVENTS | MEMORY}, {"pread", pread_one, FILES | MEMORY},
    {"pwrite", pwrite_one, FILES | MEMORY}, {"readv", readv_one, FILES | STREAMS},
    {"writev", writev_one, FILES | STREAMS}, {"preadv", preadv_one, FILES}, {"lseek", seek, FILES | STREAMS},
    {"ftruncate", cut_open, FILES | MEMORY}, {"truncate", cut, FILES}, {"fdatasync", sync_one, FILES | STREAMS},
    {"mkdir", make_directory, FILES}, {"remove", remove_one, FILES | SOCKETS}, {"link", link_one, FILES},
    {"symlink", symlink_one, FILES}, {"access", may_access, FILES}, {"stat", status, FILES},
    {"rename", rename_one, FILES}, {"readlink", readlink_one, FILES}, {"chmod", change_mode, FILES},
    {"utimensat", change_times, FILES}, {"list", list, FILES}, {"flock", lock_one, FILES}, {"fcntl lock", lock_part, FILES}, {"dup", duplicate, STREAMS | FILES | EVENTS | SOCKETS},
    {"dup2", duplicate_to, STREAMS | FILES | EVENTS | SOCKETS}, {"fcntl", flags, STREAMS | FILES | SOCKETS},
    {"pipe2", pipe_pair, STREAMS | EVENTS}, {"eventfd", counter, STREAMS | EVENTS},
    {"write count", count_up, STREAMS | EVENTS}, {"read count", take_count, STREAMS | EVENTS},
    {"timerfd_create", timer, STREAMS | EVENTS}, {"timerfd_settime", set_timer, STREAMS | EVENTS},
    {"FIONREAD", readable, STREAMS}, {"socketpair", socket_pair, SOCKETS | EVENTS}, {"socket", socket_one, SOCKETS},
    {"bind", bind_one, SOCKETS}, {"connect", connect_one, SOCKETS}, {"listen", listen_one, SOCKETS},
    {"accept4", accept_one, SOCKETS}, {"send", send_one, SOCKETS | EVENTS}, {"sendmsg", send_parts, SOCKETS},
    {"sendto", send_to, SOCKETS}, {"recv", receive, SOCKETS | EVENTS}, {"recvmsg", receive_parts, SOCKETS},
    {"shutdown", shut, SOCKETS | EVENTS}, {"socket's name", address_of, SOCKETS}, {"getsockopt", option_of, SOCKETS},
    {"epoll_create1", queue, EVENTS}, {"epoll_ctl", change_queue, EVENTS}, {"epoll_ctl", change_queue, EVENTS},
    {"epoll_wait", take_events, EVENTS}, {"poll", poll_some, EVENTS | STREAMS | SOCKETS},
    {"select", select_some, EVENTS | STREAMS}, {"mprotect", protect, MEMORY}, {"madvise", forget, MEMORY},
    {"mmap", map, MEMORY}, {"munmap", unmap, MEMORY}, {"mremap", resize, MEMORY}, {"load", load, MEMORY},
    {"mremap to", move_page, MEMORY}, {"mremap to", move_page, MEMORY},
    {"load", load, MEMORY}, {"store", store, MEMORY}, {"store", store, MEMORY}, {"map file", map_file, MEMORY | FILES},
    {"sigprocmask", mask, SIGNALS}, {"raise", send_signal, SIGNALS}, {"sigpending", pending, SIGNALS},
    {"sigtimedwait", take_signal, SIGNALS},
};

static int remove_found(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    return remove(path);
}

static void one_sequence(unsigned kinds, const char *above, uint64_t seed, long count)
{
    const struct call *chosen[sizeof calls / sizeof *calls];
    char place[4096];
    unsigned most = 0;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (calls[i].kinds & kinds)
            chosen[most++] = &calls[i];
    snprintf(place, sizeof place, "%s/random-XXXXXX", above);
    if (!mkdtemp(place) || chdir(place)) {
        perror(place);
        exit(1);
    }
    for (int i = 0; i < SLOTS; i++)
        slots[i] = (struct slot){-1, NOTHING};
    /* Behind it nothing can be read, as far as the longest call goes. */
    area = mmap(0, (2 * PAGES + 4) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(area, (PAGES + 4) * PAGE, PROT_READ | PROT_WRITE);
    memset(bytes, 0, sizeof bytes);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, 0);
    handled = messages = 0;
    state = seed;
    for (long i = 0; i < count; i++) {
        const struct call *call = chosen[below(most)];
        sum = 2166136261;
        errno = is_bad = 0;
        long r = call->make();
        const char *error = r != -1 ? "" : is_bad ? "error" : strerrorname_np(errno);
        printf("%lu.%ld %s = %ld %s %08x\n", (unsigned long)seed, i, call->name, r, error ? error : "", sum);
    }
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].holds != NOTHING)
            close(slots[i].file);
    munmap(area, (2 * PAGES + 4) * PAGE);
    chdir("/");
    nftw(place, remove_found, 8, FTW_DEPTH | FTW_PHYS);
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        unsigned kinds;
    } kinds[] = {{"files", FILES}, {"streams", STREAMS}, {"sockets", SOCKETS}, {"events", EVENTS},
                 {"memory", MEMORY}, {"signals", SIGNALS}, {"all", ALL}};
    const char *above = getenv("TMPDIR");
    if (count < 5)
        return 2;
    setvbuf(stdout, 0, _IOFBF, 1 << 20);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGSEGV, fault);
    signal(SIGBUS, fault);
    for (int i = 0; i < 3; i++)
        signal(signals[i], count_signal);
    umask(022);
    uint64_t seed = strtoull(words[2], 0, 0), end = seed + strtoull(words[3], 0, 0);
    for (; seed < end; seed++)
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (!strcmp(words[1], kinds[i].name))
                one_sequence(kinds[i].kinds, above ? above : "/tmp", seed, strtol(words[4], 0, 0));
    fflush(stdout);
    return 0;
}
