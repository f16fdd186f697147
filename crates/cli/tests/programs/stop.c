/* Ends by SIGTERM as its argument says: with a status, or not at all. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t asked;

static void note(int signal)
{
    asked++;
}

int main(int count, char **words)
{
    sigset_t term, before;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    /* Blocked but in the wait, so that none comes between the question and it. */
    sigprocmask(SIG_BLOCK, &term, &before);
    signal(SIGTERM, count > 1 && !strcmp(words[1], "ignore") ? SIG_IGN : note);
    puts("ready");
    fflush(stdout);
    while (!asked)
        sigsuspend(&before);
    printf("asked %d\n", (int)asked);
    return 5;
}
