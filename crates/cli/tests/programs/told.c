/* Prints the number of each signal that it gets; ends with 7 by the one that its argument names. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words)
{
    int last = count > 1 ? atoi(words[1]) : 0;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    for (;;) {
        int signal = 0;
        sigwait(&all, &signal);
        printf("told %d.\n", signal);
        if (signal == last)
            return 7;
    }
}
