/* Linked dynamically: what its loader did, and where the auxiliary vector says it is. */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>

extern int _start(void);
static __thread int own = 42;

static void *in_thread(void *unused) { return (void *)(long)own; }

/* Whether the headers that the vector names are this program's: one is its loader's path. */
static int has_interpreter(void)
{
    const ElfW(Phdr) *headers = (void *)getauxval(AT_PHDR);
    for (unsigned long i = 0; i < getauxval(AT_PHNUM); i++)
        if (headers[i].p_type == PT_INTERP)
            return 1;
    return 0;
}

int main(int count, char **words)
{
    void *result;
    pthread_t thread;
    const unsigned char *loader = (void *)getauxval(AT_BASE);
    own = 1;
    printf("program %s, square root %f\n", words[0], sqrt(count > 1 ? atof(words[1]) : 1));
    printf("headers %d\n", has_interpreter());
    printf("entry %d\n", getauxval(AT_ENTRY) == (unsigned long)_start);
    printf("loader %d\n", loader && loader[0] == 0x7f && loader[1] == 'E');
    FILE *file = fopen("/proc/self/exe", "r");
    printf("own file %d\n", file && fgetc(file) == 0x7f);
    pthread_create(&thread, 0, in_thread, 0);
    pthread_join(thread, &result);
    printf("thread %ld\n", (long)result);
    return 7;
}
