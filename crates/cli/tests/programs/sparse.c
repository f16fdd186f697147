/* Uses a page of each 2 MiB of 3000 MiB, each of which takes a page table, and 900 threads at once,
   whose stacks take one each too. */
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

enum { THREADS = 900 };
static const long LARGE = 2l << 20, BYTES = 3000l << 20;

static pthread_barrier_t all_run;

static void *wait_for_all(void *number)
{
    pthread_barrier_wait(&all_run);
    return number;
}

int main(void)
{
    char *start = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return 1;
    for (long at = 0; at < BYTES; at += LARGE)
        start[at] = at / LARGE;
    for (long at = 0; at < BYTES; at += LARGE)
        if (start[at] != (char)(at / LARGE))
            return 2;

    pthread_t threads[THREADS];
    pthread_barrier_init(&all_run, 0, THREADS);
    for (long number = 0; number < THREADS; number++)
        if (pthread_create(&threads[number], 0, wait_for_all, (void *)number))
            return 3;
    for (long number = 0; number < THREADS; number++) {
        void *result;
        if (pthread_join(threads[number], &result) || result != (void *)number)
            return 4;
    }
    puts("all there");
    return 0;
}
