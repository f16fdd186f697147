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
    signal(SIGTERM, count > 1 && !strcmp(words[1], "ignore") ? SIG_IGN : note);
    puts("ready");
    fflush(stdout);
    while (!asked)
        pause();
    printf("asked %d\n", (int)asked);
    return 5;
}
