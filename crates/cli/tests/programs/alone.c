/* Calls about processes by their numbers, made by a process that is alone in its PID namespace, as
   a program on the library OS is. A line each with result and errno: what Linux prints is what a
   program on the library OS must print. Ends with 77 where no such namespace can be made. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "lines.h"

static int came;

static void count(int number)
{
    (void)number;
    came++;
}

/* The numbers of processes and threads that there are not, and of those that there are. */
static const int strangers[] = {2000, -2000, -1, INT_MIN};

static void kills(void)
{
    struct sigaction act = {.sa_handler = count};
    sigaction(SIGUSR1, &act, 0);
    for (unsigned i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        T(kill(strangers[i], SIGUSR1));
        T(kill(strangers[i], 0));
        T(kill(strangers[i], 99));
    }
    T(came);
    T(kill(1, SIGUSR1));
    T(kill(0, SIGUSR1));
    T(kill(-1, SIGTERM));
    T(came);
    T(kill(1, 99));
    T(kill(1, -1));
}

static int number;
static pthread_barrier_t steps;

static void *thread(void *nothing)
{
    number = syscall(SYS_gettid);
    pthread_barrier_wait(&steps);
    pthread_barrier_wait(&steps);
    return nothing;
}

static void by_thread(void)
{
    pthread_t one;
    pthread_barrier_init(&steps, 0, 2);
    pthread_create(&one, 0, thread, 0);
    pthread_barrier_wait(&steps);
    int before = came;
    T(kill(number, SIGUSR1));
    T(kill(number, 0));
    T(kill(-number, 0));
    T(getpgid(number));
    T(getsid(number));
    T(syscall(SYS_tgkill, 1, number, 0));
    T(syscall(SYS_tgkill, number, number, 0));
    pthread_barrier_wait(&steps);
    pthread_join(one, 0);
    T(came - before);
}

/* Groups, sessions, and threads of other processes. */
static void numbers(void)
{
    for (unsigned i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        T(getpgid(strangers[i]));
        T(getsid(strangers[i]));
        T(syscall(SYS_tgkill, 1, strangers[i], 0));
        T(syscall(SYS_tgkill, strangers[i], 1, 0));
        T(syscall(SYS_tkill, strangers[i], 0));
    }
    T(getpgid(0));
    T(getpgid(1));
    T(getsid(0));
    T(getsid(1));
    T(syscall(SYS_tgkill, 1, 1, 0));
    T(syscall(SYS_tgkill, 1, 1, 65));
    T(syscall(SYS_tgkill, 1, 0, 0));
    T(syscall(SYS_tgkill, 0, 1, 0));
    T(syscall(SYS_tkill, 1, 0));
    T(syscall(SYS_tkill, 0, 0));
    T(syscall(SYS_tkill, 1, 65));
}

static const struct group groups[] = {{"kills", kills}, {"by thread", by_thread}, {"numbers", numbers}};

int main(int count, char **words)
{
    if (getpid() != 1) {
        if (unshare(CLONE_NEWPID) && unshare(CLONE_NEWUSER | CLONE_NEWPID))
            return 77;
        int status, child = fork();
        if (child) {
            waitpid(child, &status, 0);
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        }
        setsid();
    }
    return run_groups("alone", groups, sizeof groups / sizeof *groups, count, words);
}
