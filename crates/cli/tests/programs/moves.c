/* mremap to addresses that the program names, line by line as Linux answers. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <sys/mman.h>

#include "lines.h"

enum { PAGE = 4096, PAGES = 64, ANY = MAP_PRIVATE | MAP_ANONYMOUS, RW = PROT_READ | PROT_WRITE };
enum { MOVE = MREMAP_MAYMOVE, TO = MREMAP_MAYMOVE | MREMAP_FIXED, KEEP = MREMAP_MAYMOVE | MREMAP_DONTUNMAP };

static char *area;
static sigjmp_buf back;

static void faulted(int signal)
{
    siglongjmp(back, signal);
}

/* What a page has: its first byte, -1 where nothing is, -2 where it cannot be written. */
static int seen(char *page)
{
    volatile int value = -1;
    if (sigsetjmp(back, 1)) return value == -1 ? -1 : -2;
    value = *(volatile char *)page;
    *(volatile char *)page = value;
    return value;
}

static char *at(int page) { return area + page * PAGE; }

static void show(const char *what, int from, int count)
{
    printf("%s:", what);
    for (int page = from; page < from + count; page++) printf(" %d", seen(at(page)));
    printf("\n");
}

/* Pages with their numbers, and none around them. */
static void fill(int from, int count)
{
    mmap(at(from), count * PAGE, RW, ANY | MAP_FIXED, -1, 0);
    for (int page = from; page < from + count; page++) *at(page) = page;
}

static void begin(void)
{
    munmap(area, PAGES * PAGE);
    mmap(area, PAGES * PAGE, PROT_NONE, ANY | MAP_FIXED, -1, 0);
    munmap(at(1), (PAGES - 2) * PAGE);
}

/* The page that a call gives. */
static long page_of(void *r)
{
    return r == MAP_FAILED ? -1 : ((char *)r - area) / PAGE;
}

static long move(int from, int count, int to, int new_count, int flags)
{
    return page_of(mremap(at(from), count * PAGE, new_count * PAGE, flags, at(to)));
}

static void moved(void)
{
    begin();
    fill(4, 4);
    T(move(4, 4, 20, 4, TO));
    show("from", 3, 6);
    show("to", 19, 6);
    /* Of an area a part, from its middle, over what is mapped. */
    fill(4, 8);
    fill(30, 8);
    T(move(6, 3, 32, 3, TO));
    show("from", 3, 10);
    show("to", 29, 10);
    /* To where nothing was used yet, and what was not used. */
    T(mmap(at(40), 4 * PAGE, RW, ANY | MAP_FIXED, -1, 0) == at(40));
    T(mmap(at(50), 4 * PAGE, RW, ANY | MAP_FIXED, -1, 0) == at(50));
    *at(41) = 41;
    T(move(40, 4, 50, 4, TO));
    show("to", 49, 6);
    /* Next to itself, both ways. */
    begin();
    fill(10, 4);
    T(move(10, 4, 14, 4, TO));
    show("behind", 9, 10);
    T(move(14, 4, 10, 4, TO));
    show("before", 9, 10);
    /* Rights go too. */
    T(mprotect(at(11), PAGE, PROT_READ));
    T(mprotect(at(12), PAGE, PROT_NONE));
    T(move(11, 1, 21, 1, TO));
    T(move(12, 1, 22, 1, TO));
    show("rights", 20, 4);
    T(mprotect(at(22), PAGE, RW));
    show("rights", 20, 4);
}

static void resized(void)
{
    begin();
    fill(4, 4);
    fill(20, 8);
    T(move(4, 4, 21, 2, TO));
    show("from", 3, 6);
    show("to", 19, 10);
    T(move(21, 2, 40, 6, TO));
    show("from", 20, 4);
    show("to", 39, 8);
    *at(45) = 45;
    T(move(40, 6, 50, 1, TO));
    show("from", 39, 8);
    show("to", 49, 3);
    /* In place: to less, also of several areas and what is not mapped, and to more. */
    fill(4, 4);
    fill(10, 2);
    T(move(4, 4, 0, 4, 0));
    T(move(4, 12, 0, 3, 0));
    show("less", 3, 10);
    T(move(4, 3, 0, 5, 0));
    show("more", 3, 8);
    fill(9, 1);
    T(move(4, 5, 0, 6, 0));
    T(move(4, 3, 0, 4, 0));
    T(move(4, 3, 0, 2, MOVE));
    char *r = mremap(at(4), 2 * PAGE, 4 * PAGE, MOVE);
    T(r != MAP_FAILED && r != at(4));
    T(r[PAGE] * 1000 + r[2 * PAGE]);
    T(munmap(r, 4 * PAGE));
    show("more", 3, 8);
}

static void wrong(void)
{
    begin();
    fill(4, 8);
    T(move(4, 4, 20, 4, MREMAP_FIXED));
    T(move(4, 4, 20, 4, MREMAP_DONTUNMAP));
    T(move(4, 4, 20, 4, MREMAP_FIXED | MREMAP_DONTUNMAP));
    T(move(4, 4, 20, 4, TO | 8));
    T(move(4, 4, 4, 4, 8));
    T(move(4, 4, 4, 4, TO));
    T(move(4, 4, 7, 4, TO));
    T(move(4, 4, 2, 3, TO));
    T(move(4, 4, 5, 1, TO));
    T(move(4, 4, 3, 2, TO));
    T(move(6, 1, 4, 3, TO));
    T(page_of(mremap(at(4), 4 * PAGE, 4 * PAGE, TO, at(20) + 1)));
    T(page_of(mremap(at(4) + 1, 4 * PAGE, 4 * PAGE, TO, at(20))));
    T(page_of(mremap(at(4) + 1, 4 * PAGE, 4 * PAGE, MOVE)));
    T(move(4, 4, 20, 0, TO));
    T(move(4, 4, 20, 0, 0));
    T(page_of(mremap(at(4), PAGE, -1ul, TO, at(20))));
    T(page_of(mremap(at(4), PAGE, -1ul, 0)));
    T(page_of(mremap(at(4), PAGE, 1ul << 60, TO, at(20))));
    T(page_of(mremap(at(4), PAGE, PAGE, TO, (void *)-4096l)));
    T(page_of(mremap(at(4), PAGE, PAGE, TO, (void *)0x7ffffffff000l)));
    T(page_of(mremap(at(4), PAGE, PAGE, TO, (void *)0x800000000000l)));
    /* No page, or not as many. */
    T(move(30, 2, 40, 2, TO));
    T(move(30, 2, 40, 3, TO));
    T(move(30, 2, 40, 2, KEEP));
    T(move(30, 2, 0, 1, 0));
    T(move(30, 2, 0, 3, 0));
    T(move(11, 2, 40, 3, TO));
    T(move(11, 2, 0, 3, 0));
    T(move(11, 2, 0, 3, MOVE));
    T(page_of(mremap((void *)-4096l, PAGE, PAGE, 0)));
    T(page_of(mremap(at(4), -4096ul, PAGE, 0)));
    /* Of no size: private memory is not there twice. */
    T(move(4, 0, 20, 1, TO));
    T(move(4, 0, 20, 1, MOVE));
    T(move(4, 0, 20, 1, 0));
    T(move(4, 0, 20, 0, TO));
    T(move(30, 0, 20, 1, TO));
    T(move(4, 0, 4, 1, TO));
    show("as before", 3, 10);
    /* Sizes are rounded to pages. */
    T(page_of(mremap(at(4), 3 * PAGE + 1, 4 * PAGE - 1, TO, at(20))));
    show("from", 3, 10);
    show("to", 19, 6);
}

static void kept(void)
{
    begin();
    fill(4, 4);
    T(move(4, 4, 20, 4, TO | MREMAP_DONTUNMAP));
    show("zeros", 3, 6);
    show("to", 19, 6);
    *at(5) = 55;
    T(move(4, 4, 21, 4, TO | MREMAP_DONTUNMAP));
    show("zeros", 3, 6);
    show("to", 19, 8);
    T(move(4, 4, 30, 3, TO | MREMAP_DONTUNMAP));
    T(move(4, 4, 30, 5, KEEP));
    T(move(4, 4, 6, 4, KEEP));
    T(page_of(mremap(at(4), PAGE, PAGE, KEEP, at(30) + 1)));
    *at(4) = 44;
    char *r = mremap(at(4), 4 * PAGE, 4 * PAGE, KEEP, 0);
    T(r != MAP_FAILED && (r + 4 * PAGE <= at(4) || r >= at(8)));
    T(r[0]);
    T(at(4)[0]);
    T(munmap(r, 4 * PAGE));
    /* Mapped as before: it grows and is protected. */
    T(move(4, 4, 0, 6, 0));
    T(mprotect(at(4), 6 * PAGE, PROT_READ));
    show("read", 3, 8);
}

static void of_files(void)
{
    char page[PAGE], read[4];
    begin();
    int file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < 8; i++) {
        memset(page, 'a' + i, PAGE);
        T(write(file, page, PAGE));
    }
    T(page_of(mmap(at(4), 4 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, file, PAGE)));
    *at(5) = 'X';
    T(move(5, 2, 20, 3, TO));
    show("private", 19, 5);
    show("private", 3, 6);
    T(move(20, 3, 30, 3, TO | MREMAP_DONTUNMAP));
    show("from", 19, 5);
    show("to", 29, 5);
    T(page_of(mmap(at(10), 4 * PAGE, RW, MAP_SHARED | MAP_FIXED, file, 2 * PAGE)));
    *at(11) = 'Y';
    T(move(10, 4, 40, 6, TO));
    *at(42) = 'Z';
    show("shared", 39, 8);
    T(pread(file, read, 1, 3 * PAGE));
    T(read[0]);
    T(pread(file, read, 1, 4 * PAGE));
    T(read[0]);
    /* What is mapped over, and what is cut off, is in the file. */
    *at(44) = 'V';
    T(move(40, 6, 50, 2, TO));
    T(pread(file, read, 1, 6 * PAGE));
    T(read[0]);
    *at(51) = 'W';
    fill(4, 2);
    T(move(4, 2, 50, 2, TO));
    T(pread(file, read, 1, 3 * PAGE));
    T(read[0]);
    T(pwrite(file, "T", 1, 3 * PAGE));
    show("own", 49, 4);
    /* Anonymous shared memory. */
    T(page_of(mmap(at(4), 2 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0)));
    *at(5) = 5;
    T(move(4, 2, 20, 2, TO));
    show("shared", 19, 4);
    show("from", 3, 4);
    close(file);
    T(unlink("file"));
}

/* Large ones, used from beginning to end, at distances that are none of a large page. */
static void large(void)
{
    enum { LARGE = 2 << 20, BYTES = 10 << 20 };
    char *from = mmap(0, 4 * BYTES, PROT_NONE, ANY, -1, 0), *to = from + 2 * BYTES;
    T(mprotect(from, BYTES, RW));
    for (int distance = 0; distance < 3; distance++) {
        char *target = to + distance * 5 * PAGE + LARGE;
        mmap(from, BYTES, RW, ANY | MAP_FIXED, -1, 0);
        mmap(target, BYTES, RW, ANY | MAP_FIXED, -1, 0);
        for (long i = 0; i < BYTES; i += PAGE) from[i] = i / PAGE % 101, target[i] = 111;
        T(mremap(from + PAGE, BYTES - 2 * PAGE, BYTES - 3 * PAGE, TO, target + 2 * PAGE) == target + 2 * PAGE);
        long right = 0;
        for (long i = 0; i < BYTES; i += PAGE) {
            int own = i >= 2 * PAGE && i < BYTES - PAGE;
            right += target[i] == (own ? (i - PAGE) / PAGE % 101 : 111);
        }
        T(right);
        T(from[0]);
        T(seen(from + PAGE));
        T(seen(from + BYTES - 2 * PAGE));
        T(from[BYTES - PAGE]);
    }
    T(munmap(from, 4 * BYTES));
}

static const struct group groups[] = {
    {"moved", moved}, {"resized", resized}, {"wrong", wrong}, {"kept", kept}, {"of_files", of_files}, {"large", large},
};

int main(int count, char **words)
{
    struct sigaction action = { .sa_handler = faulted, .sa_flags = SA_NODEFER };
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGBUS, &action, 0);
    area = mmap(0, PAGES * PAGE, PROT_NONE, ANY, -1, 0);
    return run_groups("moves", groups, sizeof groups / sizeof *groups, count, words);
}
