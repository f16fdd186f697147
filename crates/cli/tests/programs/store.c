/* Keeps files on a disk, as its first word says. Each part prints lines that the tests compare. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

static char block[4096];
static const char *place = "/data";

static void die(const char *what)
{
    printf("%s: %s\n", what, strerrorname_np(errno));
    exit(1);
}

static char *at(const char *name)
{
    static __thread char path[400];
    snprintf(path, sizeof path, "%s/%s", place, name);
    return path;
}

static int put(void)
{
    int file = open(at("hello"), O_CREAT | O_TRUNC | O_WRONLY, 0640);
    if (file < 0)
        die("open");
    if (write(file, "hello, disk\n", 12) != 12)
        die("write");
    close(file);
    puts("put");
    return 0;
}

static int get(void)
{
    char text[100] = "";
    struct stat status;
    int file = open(at("hello"), O_RDONLY);
    if (file < 0 || read(file, text, sizeof text) < 0 || fstat(file, &status))
        die("get");
    printf("mode %o, %ld bytes: %s", status.st_mode, (long)status.st_size, text);
    errno = 0;
    int written = open(at("hello"), O_WRONLY);
    printf("write %s\n", written < 0 ? strerrorname_np(errno) : "allowed");
    return 0;
}

/* Appends records, each synced and then named; ends at its SIGTERM or a kill. A record is its number,
   many times over. */
static int records(void)
{
    int file = open(at("records"), O_CREAT | O_RDWR, 0600);
    unsigned number = lseek(file, 0, SEEK_END) / sizeof block;
    for (unsigned i = 0; i < number; i++) {
        unsigned first, last;
        pread(file, &first, 4, (long)i * 4096);
        pread(file, &last, 4, (long)i * 4096 + 4092);
        if (first != i || last != i) {
            printf("record %u is damaged: %u %u\n", i, first, last);
            return 1;
        }
    }
    printf("found %u\n", number);
    fflush(stdout);
    for (;; number++) {
        for (int i = 0; i < 1024; i++)
            ((unsigned *)block)[i] = number;
        if (pwrite(file, block, sizeof block, (long)number * 4096) != sizeof block || fdatasync(file))
            die("record");
        /* Beside it, what a journal of names is for. */
        int other = open(at("beside.new"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
        write(other, block, 100 + number % 2000);
        close(other);
        rename(at("beside.new"), at("beside"));
        printf("synced %u\n", number + 1);
        fflush(stdout);
    }
}

/* Fills the disk, frees it, and fills it again. */
static int fill(void)
{
    for (int round = 0; round < 2; round++) {
        int file = open(at("big"), O_CREAT | O_WRONLY, 0600);
        long bytes = 0, count;
        while ((count = write(file, block, sizeof block)) > 0)
            bytes += count;
        printf("full %s %d\n", strerrorname_np(errno), bytes > 1000000);
        close(file);
        unlink(at("big"));
    }
    return 0;
}

/* What a call writes shows in shared mappings, and the other way. */
static int coherent(void)
{
    int file = open(at("coherent"), O_CREAT | O_TRUNC | O_RDWR, 0600);
    char text[30] = "";
    write(file, "first", 6);
    /* As databases do: larger than the file, and only read. */
    char *read_only = mmap(0, 1 << 20, PROT_READ, MAP_SHARED, file, 0);
    char *writable = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    printf("%s %s\n", read_only, writable);
    pwrite(file, "second", 7, 0);
    printf("%s %s\n", read_only, writable);
    pwrite(file, "behind the end", 15, 20000);
    printf("%s %s\n", read_only + 20000, writable + 20000);
    lseek(file, 5000, SEEK_SET);
    write(file, "at the position", 16);
    printf("%s\n", read_only + 5000);
    strcpy(writable + 6000, "by the mapping");
    pread(file, text, 15, 6000);
    printf("%s\n", text);
    pwrite(file, "over", 4, 6000);
    printf("%s\n", writable + 6000);
    ftruncate(file, 6004);
    ftruncate(file, 12000);
    printf("%s, then %d\n", writable + 6000, writable[6005]);
    struct stat status;
    fstat(file, &status);
    printf("%ld bytes\n", (long)status.st_size);
    return 0;
}

/* A mapping that grows, one whose pages are given back, and calls that change a file's length or
   content by other ways than writing. */
static int grown(void)
{
    int file = open(at("grown"), O_CREAT | O_TRUNC | O_RDWR, 0600);
    char text[8192], byte;
    memset(text, 'x', sizeof text);
    write(file, text, sizeof text);
    char *map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    map[10] = 'a';
    map = mremap(map, 4096, 8192, MREMAP_MAYMOVE);
    printf("%c%c ", map[10], map[5000]);
    map[5001] = 'b';
    msync(map, 8192, MS_SYNC);
    pread(file, text, sizeof text, 0);
    printf("%c%c%c%c\n", text[10], text[5000], text[5001], text[6000]);

    map[20] = 'c';
    printf("%d ", madvise(map, 8192, MADV_DONTNEED));
    pread(file, &byte, 1, 20);
    printf("%c%c\n", map[20], byte);
    char *shared = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared[5000] = 'd';
    printf("%d ", madvise(shared, 8192, MADV_DONTNEED));
    int refused = madvise(shared, 8192, 7);
    printf("%c %d %s\n", shared[5000], refused, strerrorname_np(errno));

    int empty = open(at("empty"), O_CREAT | O_TRUNC | O_RDWR, 0600);
    char *write_only = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, empty, 0);
    char *read_only = mmap(0, 16384, PROT_READ, MAP_SHARED, empty, 0);
    printf("%d ", posix_fallocate(empty, 0, 8192));
    write_only[5000] = 'e';
    printf("%d ", truncate(at("empty"), 16384));
    write_only[12000] = 'f';
    pread(empty, text, sizeof text, 8192);
    printf("%c%c %d\n", read_only[5000], text[12000 - 8192], read_only[16000]);

    write_only[0] = 'g';
    lseek(empty, 100, SEEK_SET);
    printf("%zd ", sendfile(empty, file, &(off_t){5000}, 10));
    write_only[1] = 'h';
    pread(empty, text, sizeof text, 0);
    printf("%c%c%c%c%c\n", text[0], text[1], text[100], text[101], read_only[101]);
    close(open(at("empty"), O_WRONLY | O_TRUNC));
    ftruncate(empty, 200);
    printf("%d %d\n", write_only[0], read_only[100]);
    return 0;
}

/* Two mappings of a file, and one that comes later. After a call on the file each shows what was
   changed in the others, also within a page. */
static int two(void)
{
    int file = open(at("two"), O_CREAT | O_TRUNC | O_RDWR, 0600);
    char text[20] = "";
    ftruncate(file, 10000);
    char *one = mmap(0, 10000, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *other = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 4096);
    strcpy(one + 5000, "by one");
    strcpy(other + 2000, "by the other");
    pread(file, text, 7, 5000);
    printf("%s, ", text);
    pread(file, text, 13, 6096);
    printf("%s\n", text);
    printf("%s, %s\n", other + 904, one + 6096);
    strcpy(one + 9000, "at the end");
    munmap(one, 10000);
    char *later = mmap(0, 10000, PROT_READ, MAP_SHARED, file, 0);
    printf("%s, %s\n", later + 9000, later + 5000);
    char *private = mmap(0, 10000, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    strcpy(private + 9000, "never");
    pread(file, text, 11, 9000);
    printf("%s\n", text);
    munmap(other, 4096);
    lseek(file, 6096, SEEK_SET);
    read(file, text, 13);
    printf("%s\n", text);
    return 0;
}

/* A shared mapping reaches the file. */
static int map(void)
{
    int file = open(at("mapped"), O_CREAT | O_TRUNC | O_RDWR, 0600);
    ftruncate(file, 10000);
    char *shared = mmap(0, 10000, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED)
        die("mmap");
    strcpy(shared + 5000, "by msync");
    printf("msync %d\n", msync(shared, 10000, MS_SYNC));
    char text[20] = "";
    pread(file, text, 19, 5000);
    puts(text);
    strcpy(shared + 9000, "by munmap");
    printf("munmap %d\n", munmap(shared, 10000));
    pread(file, text, 19, 9000);
    puts(text);
    char *private = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 4096);
    printf("private %s\n", private + 5000 - 4096);
    strcpy(private, "never in the file");
    pread(file, text, 1, 4096);
    printf("file %d\n", text[0]);
    char *left = mmap(0, 10000, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    strcpy(left, "by the end");
    return 0;
}

static void *write_own(void *own)
{
    char name[40];
    snprintf(name, sizeof name, "thread-%ld", (long)own);
    for (int i = 0; i < 50; i++) {
        int file = open(at("shared"), O_CREAT | O_APPEND | O_WRONLY, 0600);
        write(file, "0123456789", 10);
        if (i % 10 == 0)
            fsync(file);
        close(file);
    }
    return 0;
}

/* Threads that write at the same time, and an unlinked file that is still open. */
static int threads(void)
{
    pthread_t all[4];
    unlink(at("shared"));
    for (long i = 0; i < 4; i++)
        pthread_create(&all[i], 0, write_own, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(all[i], 0);
    struct stat status;
    stat(at("shared"), &status);
    printf("shared %ld\n", (long)status.st_size);
    int file = open(at("gone"), O_CREAT | O_RDWR, 0600);
    unlink(at("gone"));
    write(file, "still here", 10);
    char text[11] = "";
    pread(file, text, 10, 0);
    fstat(file, &status);
    printf("%s, links %ld\n", text, (long)status.st_nlink);
    struct statfs space;
    statfs(place, &space);
    printf("kind %lx, blocks %d\n", (long)space.f_type, space.f_blocks > space.f_bfree);
    printf("across %s\n", rename(at("shared"), "/tmp/shared") ? strerrorname_np(errno) : "");
    printf("mount %s\n", rmdir(place) ? strerrorname_np(errno) : "");
    return 0;
}

/* Nanoseconds of a write of 4 KiB with fdatasync, and of reading a file by 128 KiB. */
static long now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

static int speed(void)
{
    int file = open(at("speed"), O_CREAT | O_RDWR, 0600);
    long start = now_us();
    for (int i = 0; i < 100; i++) {
        pwrite(file, block, sizeof block, (long)i * 4096);
        fdatasync(file);
    }
    printf("append and sync: %ld us\n", (now_us() - start) / 100);
    start = now_us();
    for (int i = 0; i < 100; i++) {
        pwrite(file, block, sizeof block, (long)i * 4096);
        fdatasync(file);
    }
    printf("overwrite and sync: %ld us\n", (now_us() - start) / 100);
    static char big[128 << 10];
    int large = open(at("large"), O_CREAT | O_RDWR | O_TRUNC, 0600);
    start = now_us();
    for (int i = 0; i < 512; i++)
        write(large, big, sizeof big);
    fsync(large);
    long us = now_us() - start;
    printf("write 64 MiB: %ld MiB/s\n", 64 * 1000000L / us);
    for (int round = 0; round < 2; round++) {
        start = now_us();
        lseek(large, 0, SEEK_SET);
        while (read(large, big, sizeof big) > 0)
            ;
        us = now_us() - start;
        printf("read 64 MiB: %ld MiB/s\n", 64 * 1000000L / us);
    }
    return 0;
}

/* Writes and waits without a sync. */
static int wait(void)
{
    put();
    fflush(stdout);
    pause();
    return 0;
}

/* Becomes a copy of this program on the disk, which then removes it: what runs is not the disk's. */
static int become(void)
{
    ssize_t bytes;
    char *words[] = {"copy", "became", 0};
    int from = open("/proc/self/exe", O_RDONLY), to = open(at("copy"), O_CREAT | O_WRONLY, 0755);
    while ((bytes = read(from, block, sizeof block)) > 0)
        if (write(to, block, bytes) != bytes)
            die("copy");
    close(to);
    int script = open(at("script"), O_CREAT | O_WRONLY, 0755);
    dprintf(script, "#!%s became\n", at("copy"));
    close(script);
    execv(at("script"), words);
    die("exec");
    return 1;
}

static int became(void)
{
    char path[100] = "";
    readlink("/proc/self/exe", path, sizeof path - 1);
    printf("became %s\n", path);
    if (unlink(path))
        die("unlink");
    return 0;
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } parts[] = {{"put", put},   {"get", get}, {"records", records}, {"fill", fill},
                 {"map", map},   {"coherent", coherent}, {"two", two}, {"grown", grown}, {"threads", threads}, {"speed", speed},
                 {"wait", wait}, {"become", become}, {"became", became}};
    setlinebuf(stdout);
    if (count > 2 && strcmp(words[1], "became"))
        place = words[2];
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
        if (count > 1 && !strcmp(words[1], parts[i].name))
            return parts[i].run();
    return 2;
}
