/* Memory that is used from beginning to end, then changed in parts: unmapped, protected,
   given back, mapped anew and moved. Each page says what was written to it last, and faults as it should.
   With an argument it prints what /proc/meminfo has in huge pages before and after. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 6144, ROUNDS = 1500, MOST = 1100, THREADS = 3 };
enum { NOTHING, NONE, READ, WRITE };

static char *area;
static unsigned char wrote[PAGES], rights[PAGES];
static unsigned long state = 88172645463325252ul;
static sigjmp_buf back;

static unsigned long draw(unsigned long below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static void faulted(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

/* Whether a byte of a page can be read or written. */
static int can(volatile char *at, int writes)
{
    if (sigsetjmp(back, 1)) return 0;
    char seen = *at;
    if (writes) *at = seen;
    return 1;
}

static void fail(const char *what, long page)
{
    printf("page %ld: %s\n", page, what);
    exit(1);
}

static void check(long page)
{
    char *at = area + page * PAGE;
    if (can(at + draw(PAGE), 0) != (rights[page] >= READ)) fail("reading", page);
    if (can(at + draw(PAGE), 1) != (rights[page] == WRITE)) fail("writing", page);
    if (rights[page] < READ) return;
    if ((unsigned char)at[0] != wrote[page] || (unsigned char)at[PAGE - 1] != wrote[page]) fail("contents", page);
    if (at[PAGE / 2]) fail("not zero", page);
}

static void write_page(long page)
{
    if (rights[page] != WRITE) return;
    wrote[page] = 1 + draw(255);
    area[page * PAGE] = area[page * PAGE + PAGE - 1] = wrote[page];
}

static void set(long from, long count, int to, int erase)
{
    memset(rights + from, to, count);
    if (erase) memset(wrote + from, 0, count);
}

static void map(long from, long count)
{
    char *at = area + from * PAGE;
    if (mmap(at, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at)
        fail("mmap", from);
    set(from, count, WRITE, 1);
}

static int is_mapped(long from, long count)
{
    return !memchr(rights + from, NOTHING, count);
}

static void change(long from, long count)
{
    char *at = area + from * PAGE;
    switch (draw(6)) {
    case 0:
        munmap(at, count * PAGE);
        set(from, count, NOTHING, 1);
        break;
    case 1:
        if (is_mapped(from, count)) {
            int to = NONE + draw(3), flags = to == NONE ? 0 : to == READ ? PROT_READ : PROT_READ | PROT_WRITE;
            if (mprotect(at, count * PAGE, flags)) fail("mprotect", from);
            set(from, count, to, 0);
        }
        break;
    case 2:
        if (is_mapped(from, count)) {
            if (madvise(at, count * PAGE, MADV_DONTNEED)) fail("madvise", from);
            memset(wrote + from, 0, count);
        }
        break;
    case 3:
        map(from, count);
        break;
    default:
        /* From the begin to the end, as a program fills its memory. */
        for (long page = from; page < from + count; page++) write_page(page);
    }
}

/* Memory with large pages moves when it grows and something is behind it. */
static void grow(void)
{
    enum { BYTES = 7 << 20, MORE = 3 << 20 };
    char *old = mmap(0, BYTES + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(old + BYTES, PAGE, PROT_NONE);
    for (long at = 0; at < BYTES; at += PAGE) old[at] = 1 + at / PAGE % 251;
    char *new = mremap(old, BYTES, BYTES + MORE, MREMAP_MAYMOVE);
    if (new == MAP_FAILED || new == old) fail("mremap", 0);
    for (long at = 0; at < BYTES + MORE; at += PAGE)
        if ((unsigned char)new[at] != (at < BYTES ? 1 + at / PAGE % 251 : 0)) fail("moved", at / PAGE);
    if (can(old, 0)) fail("moved away", 0);
    munmap(new, BYTES + MORE);
    munmap(old + BYTES, PAGE);
}

/* What threads do beside, each in a place that no hole of the area is: fill memory and give it back,
   so that CPUs forget translations. */
static void *beside(void *place)
{
    enum { BYTES = 7 << 20 };
    char *own = place, value = 'a';
    for (int round = 0; round < 12; round++, value++) {
        if (mmap(own, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != own)
            return "mmap";
        for (long at = 0; at < BYTES; at += PAGE) {
            if (own[at]) return "not zero";
            own[at] = value;
        }
        mprotect(own + BYTES / 2 + PAGE, 9 * PAGE, PROT_READ);
        for (long at = 0; at < BYTES; at += PAGE)
            if (own[at] != value) return "changed";
        mmap(own, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    return 0;
}

static void print_huge(const char *when)
{
    char line[128];
    unsigned long kib = 0;
    FILE *info = fopen("/proc/meminfo", "r");
    while (info && fgets(line, sizeof line, info)) sscanf(line, "AnonHugePages: %lu", &kib);
    printf("huge %s: %lu\n", when, kib);
}

int main(int argc, char **argv)
{
    (void)argv;
    struct sigaction action = { .sa_handler = faulted, .sa_flags = SA_NODEFER };
    sigaction(SIGSEGV, &action, 0);
    area = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    set(0, PAGES, WRITE, 1);
    for (long page = 0; page < PAGES; page++) write_page(page);
    if (argc > 1) print_huge("at first");
    grow();
    pthread_t threads[THREADS];
    char *places = mmap(0, THREADS * (8l << 20), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int thread = 0; thread < THREADS; thread++)
        pthread_create(&threads[thread], 0, beside, places + thread * (8l << 20));
    for (int round = 0; round < ROUNDS; round++) {
        long count = 1 + draw(draw(3) ? 40 : MOST), from = draw(PAGES - count);
        /* Whole large pages too. */
        if (!draw(5)) {
            long large = 2 << 20;
            from = ((((long)area + from * PAGE + large - 1) & -large) - (long)area) / PAGE;
            count = 512;
            if (from + count > PAGES) continue;
        }
        change(from, count);
        for (int checks = 0; checks < 8; checks++) check(draw(PAGES));
    }
    for (long page = 0; page < PAGES; page++) check(page);
    for (int thread = 0; thread < THREADS; thread++) {
        void *wrong;
        pthread_join(threads[thread], &wrong);
        if (wrong) fail(wrong, thread);
    }
    munmap(area, PAGES * PAGE);
    munmap(places, THREADS * (8l << 20));
    if (argc > 1) print_huge("at last");
    puts("every page is right");
    return 0;
}
