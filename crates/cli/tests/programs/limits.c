/* Runs into a limit that the first argument names, and says what it got. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void say(const char *what) { printf("%s %s\n", what, strerrorname_np(errno)), fflush(stdout); }

static void *sleeps(void *nothing)
{
    pause();
    return nothing;
}

/* More than there is is refused; what is promised and not there ends the program. */
static int memory(void)
{
    const size_t most = (size_t)1 << 40;
    if (mmap(0, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
        say("mapping");
    void *old = sbrk(0);
    if (sbrk(most) == (void *)-1 && sbrk(0) == old)
        say("break");
    if (!malloc(most))
        say("malloc");
    for (;;) {
        char *block = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED)
            return 3;
        memset(block, 1, 1 << 20);
    }
}

static int disk(void)
{
    static char block[1 << 20];
    int file = open("/tmp/full", O_RDWR | O_CREAT, 0600);
    long whole = 0, count;
    /* As on Linux, what fits of the last one is written first. */
    while ((count = write(file, block, sizeof block)) > 0)
        whole += count == sizeof block;
    say("write");
    printf("some %d\n", whole > 8);
    ftruncate(file, 0);
    printf("again %d\n", pwrite(file, block, sizeof block, 0) == sizeof block);
    return 0;
}

/* A byte far out takes a page, and space that a program asks for is there or refused. */
static int sparse(void)
{
    const off_t far = 1L << 30;
    struct stat status;
    char read[] = "999";
    int file = open("/tmp/sparse", O_RDWR | O_CREAT, 0600);
    printf("write %zd\n", pwrite(file, "x", 1, far));
    fstat(file, &status);
    printf("bytes %ld, held %ld\n", (long)status.st_size, (long)status.st_blocks * 512);
    printf("read %zd", pread(file, read, 3, far - 2));
    printf(", %d %d %c\n", read[0], read[1], read[2]);
    char *area = mmap(0, 4096, PROT_READ, MAP_PRIVATE, file, far);
    printf("mapped %c\n", area[0]);
    printf("data %ld, hole %ld\n", (long)lseek(file, 0, SEEK_DATA), (long)lseek(file, far, SEEK_HOLE));
    printf("longer %d\n", ftruncate(file, 1L << 40));
    printf("no data %ld ", (long)lseek(file, far + 4096, SEEK_DATA)), say("");
    printf("allocated %d\n", fallocate(file, 0, 0, 8192));
    fstat(file, &status);
    printf("bytes %ld, held %ld\n", (long)status.st_size, (long)status.st_blocks * 512);
    if (fallocate(file, 0, 0, far))
        say("allocate");
    if (pwrite(file, "xy", 2, LONG_MAX - 1) < 0)
        say("overflow");
    return 0;
}

static int threads(void)
{
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    long count = 0;
    pthread_t thread;
    while ((errno = pthread_create(&thread, &small, sleeps, 0)) == 0)
        count++;
    say("thread");
    printf("some %d\n", count > 30);
    pthread_cancel(thread);
    return 0;
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "memory"))
        return memory();
    if (!strcmp(what, "disk"))
        return disk();
    if (!strcmp(what, "sparse"))
        return sparse();
    if (!strcmp(what, "threads"))
        return threads();
    if (!strcmp(what, "fork")) {
        if (fork() < 0)
            say("fork");
        execl("/bin/true", "true", (char *)0);
        say("exec");
        return 0;
    }
    if (!strcmp(what, "raise"))
        raise(atoi(words[2]));
    if (!strcmp(what, "null"))
        *(volatile int *)0 = 1;
    if (!strcmp(what, "divide"))
        __asm__ volatile("xor %%ecx, %%ecx\n\tidiv %%ecx" ::: "rax", "rcx", "rdx");
    if (!strcmp(what, "illegal"))
        __asm__ volatile("ud2");
    if (!strcmp(what, "words"))
        printf("%d words, the last has %zu bytes\n", count, strlen(words[count - 1]));
    return 4;
}
