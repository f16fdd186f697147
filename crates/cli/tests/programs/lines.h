/* What the programs that compare system calls share: a line for each call. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define T(call)                                                       \
    do {                                                              \
        errno = 0;                                                    \
        long r_ = (long)(call);                                       \
        printf("%s:%d %s = %ld %s\n", __func__, __LINE__, #call, r_,  \
               r_ == -1 ? strerrorname_np(errno) : "");               \
    } while (0)
#define BAD ((void *)16)
