/* Random sequences of system calls: `random SEED COUNT` prints each call with its result
   and errno. The same seed gives the same calls, so that two runs can be compared. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/uio.h>
#include <unistd.h>

#define SLOTS 12
#define PAGES 16

static uint64_t state;
static int slots[SLOTS], is_counter[SLOTS];
static char *area;
static char bytes[70000];
/* Whether the call got a pointer that may be bad: which of several errors is then not
   compared. */
static int is_bad;

static unsigned below(unsigned n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

static int any(void) { return slots[below(SLOTS)]; }

static void keep(int file)
{
    if (file < 0)
        return;
    unsigned n = below(SLOTS);
    if (slots[n] >= 0)
        close(slots[n]);
    slots[n] = file;
    is_counter[n] = 0;
}

static const char *name(void)
{
    static const char *names[] = {"a", "b", "d", "d/a", "d/b", "l", "s", "missing/x", "", "d/.."};
    return names[below(sizeof names / sizeof *names)];
}

/* A pointer that may be bad: none, in the area (which may be protected), or sound. */
static void *pointer(void)
{
    unsigned which = below(8);
    is_bad = which < 3;
    switch (which) {
    case 0:
        return (void *)(uintptr_t)(below(3) * 8);
    case 1:
        return (void *)(uintptr_t)-4096;
    case 2:
        return area + below(PAGES) * 4096;
    default:
        return bytes;
    }
}

static unsigned length(void)
{
    static const unsigned lengths[] = {0, 1, 7, 8, 100, 4096, 4097, 65536};
    return lengths[below(8)];
}

static long one(unsigned call)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "s"};
    struct epoll_event event = {below(2) ? EPOLLIN : EPOLLIN | EPOLLOUT | EPOLLET, {.u32 = 1}};
    struct epoll_event got[8];
    struct pollfd polled[2];
    struct stat st;
    int pair[2], n;
    long r;
    switch (call) {
    case 0:
        n = O_NONBLOCK | (below(4) ? O_RDWR | O_CREAT : below(2) ? O_RDONLY : O_WRONLY);
        n |= below(6) ? 0 : O_APPEND;
        n |= below(6) ? 0 : O_TRUNC;
        n |= below(9) ? 0 : O_EXCL;
        r = open(name(), n, 0600);
        keep(r);
        return r < 0 ? r : 0;
    case 1:
        n = below(SLOTS);
        r = close(slots[n]);
        slots[n] = -1;
        return r;
    case 2:
        return read(any(), pointer(), length());
    case 3:
        n = below(SLOTS);
        /* Kernels differ in what they make of more than 8 bytes. */
        return write(slots[n], pointer(), is_counter[n] ? 8 : length());
    case 4:
        return pread(any(), pointer(), length(), (long)below(9000) - 10);
    case 5:
        return pwrite(any(), pointer(), length(), (long)below(9000) - 10);
    case 6:
        return lseek(any(), (long)below(9000) - 100, below(3));
    case 7:
        r = pipe2(pair, O_NONBLOCK);
        break;
    case 8:
        r = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair);
        break;
    case 9:
        n = below(SLOTS);
        r = is_counter[n] ? -1 : dup(slots[n]);
        keep(r);
        return r < 0 ? r : 0;
    case 10:
        r = eventfd(below(3), EFD_NONBLOCK | (below(2) ? EFD_SEMAPHORE : 0));
        keep(r);
        for (n = 0; n < SLOTS; n++)
            if (slots[n] == r)
                is_counter[n] = 1;
        return r < 0 ? r : 0;
    case 11:
        r = epoll_create1(0);
        keep(r);
        return r < 0 ? r : 0;
    case 12:
        return epoll_ctl(any(), 1 + below(3), any(), &event);
    case 13:
        return epoll_wait(any(), got, 8, 0);
    case 14:
        for (int i = 0; i < 2; i++)
            polled[i] = (struct pollfd){any(), POLLIN | POLLOUT | POLLRDHUP};
        r = poll(polled, 2, 0);
        return r < 0 ? r : r * 100000 + polled[0].revents * 200 + polled[1].revents;
    case 15:
        return ftruncate(any(), (long)below(9000) - 10);
    case 16:
        r = fstat(any(), &st);
        return r < 0 ? r : S_ISREG(st.st_mode) ? st.st_size * 10 + st.st_nlink : 0;
    case 17:
        r = lstat(name(), &st);
        return r < 0 ? r : S_ISREG(st.st_mode) ? st.st_size * 10 + st.st_nlink : S_ISDIR(st.st_mode);
    case 18:
        return mkdir(name(), 0700);
    case 19:
        return below(3) ? unlink(name()) : rmdir(name());
    case 20:
        is_bad = 1;
        return rename(name(), name());
    case 21:
        return link(name(), name());
    case 22:
        return symlink("a", name());
    case 23:
        return mprotect(area + below(PAGES) * 4096, below(4) * 4096, below(4));
    case 24:
        return madvise(area + below(PAGES) * 4096, below(4) * 4096, MADV_DONTNEED);
    case 25:
        n = below(PAGES);
        r = (long)mmap(area + n * 4096, 4096, below(4), MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        return r == -1 ? r : r == (long)(area + n * 4096);
    case 26:
        r = sendfile(any(), any(), 0, length() + 1);
        return r < 0 ? 0 : r;
    case 27:
        r = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        keep(r);
        return r < 0 ? r : 0;
    case 28:
        return below(3) ? connect(any(), (void *)&un, sizeof un) : bind(any(), (void *)&un, sizeof un);
    case 29:
        return listen(any(), 2);
    case 30:
        r = accept4(any(), 0, 0, SOCK_NONBLOCK);
        keep(r);
        return r < 0 ? r : 0;
    case 31:
        return fdatasync(any());
    case 32:
        return fcntl(any(), F_SETFL, O_NONBLOCK | (below(2) ? O_APPEND : 0));
    default:
        return send(any(), pointer(), below(2000), MSG_NOSIGNAL);
    }
    if (r == 0) {
        keep(pair[0]);
        keep(pair[1]);
    }
    return r;
}

int main(int count, char **words)
{
    char place[4096];
    const char *above = getenv("TMPDIR");
    snprintf(place, sizeof place, "%s/random-XXXXXX", above ? above : "/tmp");
    if (count < 3 || !mkdtemp(place) || chdir(place))
        return 1;
    setvbuf(stdout, 0, _IOFBF, 1 << 20);
    signal(SIGPIPE, SIG_IGN);
    umask(022);
    for (int i = 0; i < SLOTS; i++)
        slots[i] = -1;
    /* Behind it nothing can be read, as far as the longest call goes. */
    area = mmap(0, (2 * PAGES + 4) * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(area, (PAGES + 4) * 4096, PROT_READ | PROT_WRITE);
    state = strtoull(words[1], 0, 0);
    for (long i = 0, end = strtol(words[2], 0, 0); i < end; i++) {
        unsigned call = below(34);
        errno = is_bad = 0;
        long r = one(call);
        printf("%ld call %u = %ld %s\n", i, call, r,
               r != -1 ? "" : is_bad ? "error" : strerrorname_np(errno));
    }
    fflush(stdout);
    return 0;
}
