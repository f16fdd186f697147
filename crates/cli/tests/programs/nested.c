/* Handlers nest on an alternate stack until it has no room: what lies below it stays, and the
   program ends by SIGSEGV. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define BELOW (64 << 10)

static char area[BELOW + 8192];
static volatile int depth;

static void again(int signal)
{
    if (depth++ < 16)
        raise(signal);
}

int main(void)
{
    memset(area, 'p', BELOW);
    stack_t own = {.ss_sp = area + BELOW, .ss_size = 8192};
    sigaltstack(&own, 0);
    struct sigaction action = {.sa_handler = again, .sa_flags = SA_ONSTACK | SA_NODEFER};
    sigaction(SIGUSR1, &action, 0);
    raise(SIGUSR1);
    for (int i = 0; i < BELOW; i++)
        if (area[i] != 'p') {
            puts("overwritten");
            return 1;
        }
    puts("went on");
    return 0;
}
