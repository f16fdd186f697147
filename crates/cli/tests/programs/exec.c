/* execve in place of the program itself, stage by stage: what is refused, what the next program gets, and
   what does not reach it. A line each: what Linux prints is what a program on the library OS must
   print. Needs no privilege. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include "lines.h"

extern char **environ;
static char own[PATH_MAX];

static void put_file(const char *name, const char *text, int mode)
{
    int file = open(name, O_CREAT | O_WRONLY | O_TRUNC, mode);
    write(file, text, strlen(text));
    close(file);
}

static void handler(int signal) { (void)signal; }

/* A text, with bytes that are not ASCII as numbers. */
static void put_text(const char *name, const char *text)
{
    printf("%s ", name);
    for (; *text; text++)
        printf((unsigned char)*text < 127 ? "%c" : "<%d>", (unsigned char)*text);
    printf("\n");
}

static void shown(int count, char **words)
{
    for (int i = 0; i < count; i++)
        put_text("word", words[i]);
    char name[17] = "";
    prctl(PR_GET_NAME, name);
    printf("name %s\n", name);
}

/* What is refused leaves everything as it was. */
static void refused(void)
{
    char *words[] = {"x", 0}, *none[] = {0};
    put_file("text", "no program", 0755);
    put_file("plain", "#!/bin/sh\n", 0644);
    put_file("empty", "", 0755);
    put_file("nothing", "#!\n", 0755);
    put_file("missing", "#!/nowhere/sh\n", 0755);
    put_file("itself", "#!itself\n", 0755);
    T(execve("nowhere", words, none));
    T(execve("", words, none));
    T(execve("text", words, none));
    T(execve("plain", words, none));
    T(execve("empty", words, none));
    T(execve("nothing", words, none));
    T(execve("missing", words, none));
    T(execve("itself", words, none));
    T(execve(".", words, none));
    T(execve("text/x", words, none));
    T(execve(BAD, words, none));
    T(execve(own, BAD, none));
    T(execve(own, words, BAD));
    T(syscall(SYS_execveat, AT_FDCWD, own, words, none, 0x8000));
    T(syscall(SYS_execveat, 99, "x", words, none, 0));
    T(symlink(own, "link"));
    T(syscall(SYS_execveat, AT_FDCWD, "link", words, none, AT_SYMLINK_NOFOLLOW));
    /* More than a text, and more than all of them, may have. */
    char *big = malloc(3 << 20);
    memset(big, 'a', 3 << 20);
    big[131072] = 0;
    char *one[] = {"x", big, 0};
    T(execve(own, one, none));
    big[131072] = 'a';
    static char *many[40];
    for (int i = 0; i < 39; i++)
        many[i] = big + (3 << 20) - 100001;
    big[(3 << 20) - 1] = 0;
    T(execve(own, many, none));
    free(big);
    for (const char **name = (const char *[]){"text", "plain", "empty", "nothing", "missing", "itself", 0}; *name; name++)
        unlink(*name);
    T(unlink("link"));
}

static void first(void)
{
    char place[] = "/tmp/exec-XXXXXX";
    setenv("PLACE", mkdtemp(place), 1);
    T(chdir(place));
    refused();
    /* What the next program keeps, and what not. */
    T(dup2(open("/dev/null", O_RDONLY), 40));
    T(dup3(40, 41, O_CLOEXEC));
    umask(027);
    signal(SIGUSR1, handler);
    signal(SIGUSR2, SIG_IGN);
    stack_t stack = {.ss_sp = malloc(SIGSTKSZ), .ss_size = SIGSTKSZ};
    T(sigaltstack(&stack, 0));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    T(sigprocmask(SIG_BLOCK, &set, 0));
    T(raise(SIGHUP));
    timer_t timer;
    T(timer_create(CLOCK_MONOTONIC, 0, &timer));
    struct itimerval alarm = {.it_value.tv_sec = 1000};
    T(setitimer(ITIMER_REAL, &alarm, 0));
    T(prctl(PR_SET_NAME, "another"));
    T(prctl(PR_SET_KEEPCAPS, 1));
    setenv("KEPT", "a=b \xff", 1);
    setenv("OWN", own, 1);
    T(symlink(own, "link"));
    fflush(stdout);
    execl("link", "called so", "second", "", "two words", "\xfe\xff", (char *)0);
}

static void second(int count, char **words)
{
    struct sigaction action;
    stack_t stack;
    sigset_t set;
    shown(count, words);
    put_text("kept", getenv("KEPT"));
    T(fcntl(40, F_GETFD));
    T(fcntl(41, F_GETFD));
    int mask = umask(022);
    printf("mask %o\n", mask);
    T(sigaction(SIGUSR1, 0, &action));
    printf("default %d\n", action.sa_handler == SIG_DFL);
    T(sigaction(SIGUSR2, 0, &action));
    printf("ignored %d\n", action.sa_handler == SIG_IGN);
    T(sigaltstack(0, &stack));
    printf("stack %d\n", stack.ss_flags);
    sigprocmask(SIG_BLOCK, 0, &set);
    T(sigismember(&set, SIGHUP));
    sigpending(&set);
    T(sigismember(&set, SIGHUP));
    T(timer_delete((timer_t)0));
    struct itimerval alarm;
    T(getitimer(ITIMER_REAL, &alarm));
    T(alarm.it_value.tv_sec > 0);
    T(prctl(PR_GET_KEEPCAPS));
    char path[PATH_MAX] = "";
    T(readlink("/proc/self/exe", path, sizeof path) > 0);
    T(strcmp(path, getenv("OWN")));
    T(unlink("link"));
    int file = open("/proc/self/cmdline", O_RDONLY);
    printf("command of %zd bytes\n", read(file, path, sizeof path));
    close(file);
    T(getauxval(AT_UID) == getuid() && getauxval(AT_EUID) == geteuid());
    T(getauxval(AT_SECURE));
    /* By a descriptor of a file that no path leads to. */
    char *next[] = {"third", "third", 0};
    static char buffer[1 << 16];
    ssize_t bytes;
    int copy = syscall(SYS_memfd_create, "copy", MFD_CLOEXEC);
    file = open(own, O_RDONLY);
    while ((bytes = read(file, buffer, sizeof buffer)) > 0)
        write(copy, buffer, bytes);
    close(file);
    fflush(stdout);
    syscall(SYS_execveat, copy, "", next, environ, AT_EMPTY_PATH);
    perror("third");
}

static void third(void)
{
    char path[PATH_MAX] = "";
    T(readlink("/proc/self/exe", path, sizeof path) > 0);
    printf("of %s\n", path);
    /* From here on the file again, which third was a copy of. */
    strcpy(own, getenv("OWN"));
    /* By a script, whose name and argument come first; its interpreter is this program. */
    char line[PATH_MAX + 32];
    snprintf(line, sizeof line, "#! %s  fourth with blanks \nnot read\n", own);
    put_file("script", line, 0755);
    fflush(stdout);
    execl("./script", "not seen", "last", (char *)0);
    perror("script");
}

static void fourth(int count, char **words)
{
    for (int i = 1; i < count; i++)
        printf("word %s\n", words[i]);
    char name[17] = "";
    prctl(PR_GET_NAME, name);
    printf("name %s\n", name);
    T(unlink("script"));
    /* Many times: what one leaves behind would add up. */
    fflush(stdout);
    execl(own, own, "again", "200", (char *)0);
}

static void *sleeps(void *nothing)
{
    sleep(1000);
    return nothing;
}

int main(int count, char **words)
{
    readlink("/proc/self/exe", own, sizeof own - 1);
    /* LINES in the environment: each line is printed at once, for a program that hangs. */
    setvbuf(stdout, 0, getenv("LINES") ? _IOLBF : _IOFBF, 1 << 16);
    const char *stage = count > 1 ? words[1] : "";
    if (!strcmp(stage, "threads")) {
        pthread_t thread;
        pthread_create(&thread, 0, sleeps, 0);
        T(execl(own, own, "end", (char *)0));
        return 3;
    }
    if (!strcmp(stage, "words")) {
        for (int i = 0; i < count; i++)
            printf("word %s\n", words[i]);
    } else if (!strcmp(stage, "second"))
        second(count, words);
    else if (!strcmp(stage, "third"))
        third();
    else if (!strncmp(stage, "fourth", 6))
        fourth(count, words);
    else if (!strcmp(stage, "again")) {
        int left = atoi(words[2]);
        char next[12];
        void *memory = mmap(0, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return 2;
        memset(memory, left, 8 << 20);
        snprintf(next, sizeof next, "%d", left - 1);
        if (left)
            execl(own, own, "again", next, (char *)0);
        chdir("/");
        T(rmdir(getenv("PLACE")));
    } else if (!strcmp(stage, "end"))
        return 4;
    else
        first();
    return 0;
}
