/* Files of the kernel's that change: what a program reads of its memory, threads, time and limits. A
   line each: what Linux prints is what a program on the library OS must print. Needs no privilege. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include "lines.h"

#define MIB (1L << 20)

static char text[16384];

/* Reads a file in parts of `part` bytes. */
static int read_by(const char *path, int part)
{
    int file = open(path, O_RDONLY), length = 0, count;
    while ((count = read(file, text + length, part)) > 0)
        length += count;
    text[length] = 0;
    close(file);
    return length;
}

/* A word of /proc/self/stat by its number in proc(5), from the third on. */
static unsigned long word_of_stat(int number)
{
    read_by("/proc/self/stat", 4096);
    char *at = strrchr(text, ')');
    for (int i = 2; i < number; i++)
        at = strchr(at + 1, ' ');
    return strtoul(at, 0, 10);
}

static long word(int number)
{
    char *at = text;
    for (int i = 1; i < number; i++)
        at = strchr(at, ' ') + 1;
    return strtol(at, 0, 10);
}

/* The line that begins with a name. */
static char *line(const char *name)
{
    static char copy[256];
    char *at = text;
    while (at && strncmp(at, name, strlen(name))) {
        at = strchr(at, '\n');
        at += !!at;
    }
    snprintf(copy, sizeof copy, "%.*s", at ? (int)strcspn(at, "\n") : 4, at ? at : "none");
    return copy;
}

static pthread_barrier_t steps;

static void *stays(void *nothing)
{
    pthread_barrier_wait(&steps);
    pthread_barrier_wait(&steps);
    return nothing;
}

static void process(void)
{
    prctl(PR_SET_NAME, "a (program");
    int length = read_by("/proc/self/stat", 4096);
    T(length == (int)strlen(text) && text[length - 1] == '\n');
    T(strtol(text, 0, 10) == getpid());
    T(strncmp(strchr(text, '('), "(a (program) R", 14));
    int words = 0;
    for (char *at = strrchr(text, ')'); (at = strchr(at + 1, ' ')); words++)
        ;
    T(words);
    T(word_of_stat(20));
    pthread_t thread;
    pthread_barrier_init(&steps, 0, 2);
    pthread_create(&thread, 0, stays, 0);
    pthread_barrier_wait(&steps);
    T(word_of_stat(20));
    read_by("/proc/self/status", 7);
    printf("%s\n", line("Threads:"));
    printf("%s\n", line("Name:"));
    T(strtol(line("Pid:") + 4, 0, 10) == getpid());
    T(strtol(line("Tgid:") + 5, 0, 10) == getpid());
    T(strtol(line("Uid:") + 4, 0, 10) == getuid());
    T(strtol(line("Gid:") + 4, 0, 10) == getgid());
    pthread_barrier_wait(&steps);
    pthread_join(thread, 0);
}

static void memory(void)
{
    unsigned long mapped = word_of_stat(23), held = word_of_stat(24);
    T(mapped > 0 && held > 0);
    char *at = mmap(0, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T(word_of_stat(23) - mapped >= 64 * MIB);
    memset(at, 1, 16 * MIB);
    T(word_of_stat(24) - held >= 15 * MIB / 4096);
    mapped = word_of_stat(23);
    held = word_of_stat(24);
    read_by("/proc/self/statm", 3);
    T(word(1) == (long)(mapped / 4096));
    T(word(2) >= 16 * MIB / 4096);
    read_by("/proc/self/status", 4096);
    T(strtoul(line("VmSize:") + 7, 0, 10) == mapped / 1024);
    T(strtol(line("VmRSS:") + 6, 0, 10) >= 16 * 1024);
    munmap(at, 64 * MIB);
    T(word_of_stat(23) < mapped);
    T(word_of_stat(24) < held - 14 * MIB / 4096);
    read_by("/proc/meminfo", 4096);
    long total = strtol(line("MemTotal:") + 9, 0, 10), free = strtol(line("MemFree:") + 8, 0, 10);
    T(total > 0 && free > 0 && free < total);
}

static void times(void)
{
    struct timespec now;
    unsigned long used = word_of_stat(14);
    clock_t until = clock() + CLOCKS_PER_SEC / 5;
    while (clock() < until)
        ;
    used = word_of_stat(14) + word_of_stat(15) - used;
    T(used >= 10 && used < 1000);
    read_by("/proc/uptime", 4096);
    clock_gettime(CLOCK_BOOTTIME, &now);
    double up = strtod(text, 0);
    T(up > 0 && now.tv_sec - up < 60 && now.tv_sec - up > -60);
    T(strtod(strchr(text, ' '), 0) >= 0);
    T(text[strlen(text) - 1]);
    read_by("/proc/loadavg", 4096);
    double load[3];
    int running, all, last;
    T(sscanf(text, "%lf %lf %lf %d/%d %d\n", load, load + 1, load + 2, &running, &all, &last));
    T(running >= 1 && all >= running);
}

static void limits(void)
{
    struct rlimit limit = {20, 64}, none = {0, 0}, stack = {MIB, RLIM_INFINITY};
    setrlimit(RLIMIT_NOFILE, &limit);
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_NICE, &none);
    setrlimit(RLIMIT_CPU, &(struct rlimit){1000, 100000});
    setrlimit(RLIMIT_STACK, &stack);
    int length = read_by("/proc/self/limits", 11);
    int lines = 0;
    for (int i = 0; i < length; i++)
        lines += text[i] == '\n';
    T(lines);
    printf("%s|\n", line("Limit "));
    printf("%s|\n", line("Max open files"));
    printf("%s|\n", line("Max core file size"));
    printf("%s|\n", line("Max nice priority"));
    printf("%s|\n", line("Max cpu time"));
}

/* An open file says what it said; one that is opened again says what is so now. */
static void opened(void)
{
    int first = open("/proc/self/limits", O_RDONLY);
    struct rlimit limit = {17, 64};
    struct stat st;
    T(setrlimit(RLIMIT_NOFILE, &limit));
    T(lseek(first, 0, SEEK_CUR));
    read_by("/proc/self/limits", 4096);
    printf("%s|\n", line("Max open files"));
    T(stat("/proc/self/limits", &st));
    T(S_ISREG(st.st_mode));
    T(st.st_mode & 0777);
    T(st.st_size);
    T(access("/proc/self/limits", R_OK));
    T(open("/proc/self/limits", O_RDONLY | O_DIRECTORY));
    T(open("/proc/self/limits/x", O_RDONLY));
    T(open("/proc/1/stat", O_RDONLY) >= 0);
    close(first);
}

/* How many lines begin so. */
static int lines_of(const char *begin)
{
    int count = 0;
    for (char *at = text; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : 0)
        count += !strncmp(at, begin, strlen(begin));
    return count;
}

/* What a place of memory is mapped as: the rights, and whether a name is behind them. */
static void mapped(const void *place, const char *name)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char found[512], rights[5];
    unsigned long start, end;
    int lines = 0;
    while (fgets(found, sizeof found, maps))
        if (sscanf(found, "%lx-%lx %4s", &start, &end, rights) == 3 &&
            start <= (unsigned long)place && (unsigned long)place < end) {
            printf("%s %d at column %d\n", rights, !!strstr(found, name),
                   strstr(found, name) == found + 73);
            lines++;
        }
    fclose(maps);
    T(lines);
}

static void machine(void)
{
    int own, cpus = sysconf(_SC_NPROCESSORS_ONLN);
    read_by("/proc/cpuinfo", 4096);
    T(lines_of("processor\t: ") == cpus);
    T(lines_of("model name\t: ") == cpus);
    read_by("/proc/stat", 4096);
    T(lines_of("cpu") == cpus + 1);
    T(lines_of("btime ") == 1);
    mapped(&own, "[stack]");
    mapped((void *)machine, "kernel_files");
    void *page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mapped(page, "");
    mprotect(page, 4096, PROT_NONE);
    mapped(page, "");
    munmap(page, 4096);
    mapped(page, "");
    pthread_attr_t attributes;
    void *stack;
    size_t bytes;
    T(pthread_getattr_np(pthread_self(), &attributes));
    T(pthread_attr_getstack(&attributes, &stack, &bytes));
    T((char *)&own > (char *)stack && (char *)&own < (char *)stack + bytes);
    read_by("/proc/mounts", 4096);
    T(lines_of("proc /proc proc ") > 0);
    char host[256];
    gethostname(host, sizeof host - 1);
    strcat(host, "\n");
    read_by("/proc/sys/kernel/hostname", 4096);
    T(strcmp(text, host));
    read_by("/proc/self/comm", 4096);
    printf("%s", text);
    read_by("/proc/self/cgroup", 4096);
    T(lines_of("0::/") == 1);
}

static const struct group groups[] = {
    {"machine", machine}, {"process", process}, {"memory", memory}, {"times", times}, {"limits", limits}, {"opened", opened},
};

int main(int count, char **words)
{
    return run_groups("kernel_files", groups, sizeof groups / sizeof *groups, count, words);
}
