/* Limits of the address space. Sizes differ between kernels, so limits are set above what is there. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#define MIB (1UL << 20)
static unsigned long mapped(void) {
    char text[64] = {0};
    FILE *file = fopen("/proc/self/statm", "r");
    fgets(text, sizeof text, file);
    fclose(file);
    return strtoul(text, NULL, 10) * 4096;
}
static int limit(int which, unsigned long bytes) {
    struct rlimit now;
    getrlimit(which, &now);
    now.rlim_cur = bytes;
    return setrlimit(which, &now);
}
static void *map(void *at, unsigned long bytes, int rights, int flags) {
    void *got = mmap(at, bytes, rights, flags | MAP_ANONYMOUS, -1, 0);
    return got == MAP_FAILED ? NULL : got;
}
static void say(const char *what, void *got) { printf("%s: %s\n", what, got ? "there" : errno == ENOMEM ? "no memory" : "another error"); }
static void *grown(void *at, unsigned long from, unsigned long to) {
    void *got = mremap(at, from, to, MREMAP_MAYMOVE);
    return got == MAP_FAILED ? NULL : got;
}
static const char *grows(long bytes) {
    char *now = (char *)syscall(SYS_brk, 0);
    char *then = (char *)syscall(SYS_brk, now + bytes);
    return then == now + bytes ? "yes" : then == now ? "no" : "elsewhere";
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    int rw = PROT_READ | PROT_WRITE;
    void *before = map(NULL, 4 * MIB, PROT_NONE, MAP_PRIVATE);
    void *written = map(NULL, 4 * MIB, PROT_READ, MAP_PRIVATE);
    printf("all %d\n", limit(RLIMIT_AS, mapped() + 16 * MIB));
    say("too much", map(NULL, 32 * MIB, rw, MAP_PRIVATE));
    say("too much without access", map(NULL, 32 * MIB, PROT_NONE, MAP_PRIVATE | MAP_NORESERVE));
    say("too much shared", map(NULL, 32 * MIB, rw, MAP_SHARED));
    void *some = map(NULL, 8 * MIB, rw, MAP_PRIVATE);
    say("half", some);
    say("more than the rest", map(NULL, 12 * MIB, rw, MAP_PRIVATE));
    say("in place", map(some, 8 * MIB, rw, MAP_PRIVATE | MAP_FIXED));
    say("in place of half of it", map((char *)some + 4 * MIB, 16 * MIB, rw, MAP_PRIVATE | MAP_FIXED_NOREPLACE));
    say("grown too far", grown(some, 8 * MIB, 24 * MIB));
    some = grown(some, 8 * MIB, 12 * MIB);
    say("grown", some);
    printf("break too far %s, less %s\n", grows(16 * MIB), grows(MIB));
    munmap(some, 12 * MIB);
    say("after it went", map(NULL, 12 * MIB, rw, MAP_PRIVATE));
    say("by malloc", malloc(64 * MIB));
    printf("all again %d\n", limit(RLIMIT_AS, RLIM_INFINITY));
    say("much", map(NULL, 32 * MIB, rw, MAP_PRIVATE));

    printf("data %d\n", limit(RLIMIT_DATA, 4096));
    say("private", map(NULL, MIB, rw, MAP_PRIVATE));
    say("private to read", map(NULL, MIB, PROT_READ, MAP_PRIVATE));
    say("shared", map(NULL, MIB, rw, MAP_SHARED));
    printf("break %s, back %s\n", grows(MIB), grows(-4096));
    printf("to be written %d %d\n", mprotect(written, MIB, rw) ? errno : 0, mprotect(before, 4096, rw) ? errno : 0);
    printf("to be read %d\n", mprotect(before, 4096, PROT_READ) ? errno : 0);
    say("by malloc", malloc(MIB));
    printf("data again %d\n", limit(RLIMIT_DATA, RLIM_INFINITY));
    say("private", map(NULL, MIB, rw, MAP_PRIVATE));
    say("by malloc", malloc(MIB));
    return 0;
}
