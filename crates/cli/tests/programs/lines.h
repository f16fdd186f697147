/* What the programs that compare system calls share: a line for each call. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define T(call)                                                       \
    do {                                                              \
        errno = 0;                                                    \
        long r_ = (long)(call);                                       \
        printf("%s:%d %s = %ld %s\n", __func__, __LINE__, #call, r_,  \
               r_ == -1 ? strerrorname_np(errno) : "");               \
    } while (0)
#define BAD ((void *)16)

/* A port that is the process's own, to be printed nowhere: by its number, so that two runs at once
   do not meet, and below those that Linux takes for sockets without one. */
static inline unsigned short own_port(int index)
{
    return 10000 + getpid() % 2500 * 8 + index;
}

/* What a program does, in parts that can be run alone. */
struct group {
    const char *name;
    void (*run)(void);
};

/* Runs the groups, or the one that the first word names, in their own directory.
   LINES in the environment: each line is printed at once, for a program that hangs. */
static inline int run_groups(const char *program, const struct group *groups, int most,
                             int count, char **words)
{
    char place[PATH_MAX];
    const char *above = getenv("TMPDIR");
    snprintf(place, sizeof place, "%s/%s-XXXXXX", above ? above : "/tmp", program);
    setvbuf(stdout, 0, getenv("LINES") ? _IOLBF : _IOFBF, 1 << 20);
    if (!mkdtemp(place) || chdir(place)) {
        perror(place);
        return 1;
    }
    umask(022);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < most; i++)
        if (count < 2 || !strcmp(words[1], groups[i].name)) {
            groups[i].run();
            fflush(stdout);
        }
    chdir("/");
    printf("left %d\n", rmdir(place));
    return 0;
}
