/* Futexes with an owner (FUTEX_LOCK_PI), by call and by the C library's mutexes, and robust lists. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif
static uint32_t word;
static long futex(void *at, int operation, struct timespec *until) {
    return syscall(SYS_futex, at, operation, 0, until, NULL, 0) < 0 ? -errno : 0;
}
static struct timespec in_ms(int clock, int ms) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms * 1000000L;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}
static void *tries(void *unused) {
    struct timespec past = {1, 0}, wall = in_ms(CLOCK_REALTIME, 20), up = in_ms(CLOCK_MONOTONIC, 20);
    printf("try %ld\n", futex(&word, FUTEX_TRYLOCK_PI, NULL));
    printf("unlock %ld\n", futex(&word, FUTEX_UNLOCK_PI, NULL));
    printf("late %ld\n", futex(&word, FUTEX_LOCK_PI, &past));
    printf("by the wall clock %ld\n", futex(&word, FUTEX_LOCK_PI_PRIVATE, &wall));
    printf("by the other %ld\n", futex(&word, FUTEX_LOCK_PI2, &up));
    printf("wrong clock %ld\n", futex(&word, FUTEX_LOCK_PI | FUTEX_CLOCK_REALTIME, &wall));
    return NULL;
}
static volatile int alarms, has_it, may_end;
static void on_signal(int signal) { __atomic_add_fetch(&alarms, 1, __ATOMIC_SEQ_CST); }
struct end { long got; int is_owner, died; };
static void *waits(void *at) {
    struct end *end = at;
    end->got = futex(&word, FUTEX_LOCK_PI, NULL);
    end->is_owner = (word & FUTEX_TID_MASK) == (uint32_t)syscall(SYS_gettid);
    end->died = (word & FUTEX_OWNER_DIED) != 0;
    __atomic_and_fetch(&word, ~FUTEX_OWNER_DIED, __ATOMIC_SEQ_CST);
    futex(&word, FUTEX_UNLOCK_PI, NULL);
    return NULL;
}
static void *ends_with_it(void *unused) {
    futex(&word, FUTEX_LOCK_PI, NULL);
    has_it = 1;
    while (!may_end) usleep(1000);
    return NULL;
}
static void await_waiter(void) {
    while (!(__atomic_load_n(&word, __ATOMIC_SEQ_CST) & FUTEX_WAITERS)) usleep(1000);
}
static void say(struct end *end) { printf("waiter: %ld, owner %d, died %d\n", end->got, end->is_owner, end->died); }
static pthread_mutex_t mutex;
static void *dies(void *unused) {
    return (void *)(intptr_t)pthread_mutex_lock(&mutex);
}
static int shared;
static void *counts(void *unused) {
    for (int i = 0; i < 20000; i++) {
        pthread_mutex_lock(&mutex);
        shared++;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}
static void make(int robust, int kind) {
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_settype(&how, kind);
    printf("inherit %d\n", pthread_mutexattr_setprotocol(&how, PTHREAD_PRIO_INHERIT));
    if (robust) pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    printf("made %d\n", pthread_mutex_init(&mutex, &how));
}

int main(void) {
    pthread_t one, two;
    long got = futex(&word, FUTEX_LOCK_PI, NULL);
    printf("lock %ld, owner %d\n", got, word == (uint32_t)getpid());
    printf("again %ld\n", futex(&word, FUTEX_LOCK_PI, NULL));
    printf("unaligned %ld, nowhere %ld\n", futex((char *)&word + 1, FUTEX_LOCK_PI, NULL), futex((void *)8, FUTEX_LOCK_PI, NULL));
    pthread_create(&one, NULL, tries, NULL);
    pthread_join(one, NULL);
    uint32_t strange = 0x3ffffff0;
    printf("no thread %ld\n", futex(&strange, FUTEX_LOCK_PI, NULL));
    got = futex(&word, FUTEX_UNLOCK_PI, NULL);
    printf("unlock %ld, %x\n", got, word);
    printf("unlock again %ld\n", futex(&word, FUTEX_UNLOCK_PI, NULL));

    /* A signal's handler runs, whether before or while the thread waits, and the wait goes on. */
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    struct end ends[3] = {{0}};
    pthread_t waiting[3];
    futex(&word, FUTEX_LOCK_PI, NULL);
    for (int i = 0; i < 3; i++) pthread_create(&waiting[i], NULL, waits, &ends[i]);
    await_waiter();
    for (int i = 0; i < 3; i++) pthread_kill(waiting[i], SIGUSR1);
    while (alarms < 3) usleep(1000);
    printf("hand over %ld\n", futex(&word, FUTEX_UNLOCK_PI, NULL));
    for (int i = 0; i < 3; i++) pthread_join(waiting[i], NULL);
    for (int i = 0; i < 3; i++) say(&ends[i]);
    printf("left %x\n", word);

    /* From a thread that ends. */
    pthread_create(&one, NULL, ends_with_it, NULL);
    while (!has_it) usleep(1000);
    pthread_create(&two, NULL, waits, &ends[0]);
    await_waiter();
    may_end = 1;
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    say(&ends[0]);
    printf("left %x\n", word);

    make(0, PTHREAD_MUTEX_NORMAL);
    pthread_t all[4];
    for (int i = 0; i < 4; i++) pthread_create(&all[i], NULL, counts, NULL);
    for (int i = 0; i < 4; i++) pthread_join(all[i], NULL);
    printf("counted %d\n", shared);
    make(0, PTHREAD_MUTEX_ERRORCHECK);
    int checked[] = {pthread_mutex_lock(&mutex), pthread_mutex_lock(&mutex), pthread_mutex_unlock(&mutex), pthread_mutex_unlock(&mutex)};
    printf("checked %d %d %d %d\n", checked[0], checked[1], checked[2], checked[3]);
    make(1, PTHREAD_MUTEX_NORMAL);
    void *ended;
    pthread_create(&one, NULL, dies, NULL);
    pthread_join(one, &ended);
    printf("taken %ld, left behind %d\n", (long)ended, pthread_mutex_lock(&mutex) == EOWNERDEAD);
    int consistent = pthread_mutex_consistent(&mutex);
    printf("consistent %d, unlock %d\n", consistent, pthread_mutex_unlock(&mutex));

    void *head = NULL;
    size_t bytes = 0;
    got = syscall(SYS_get_robust_list, 0, &head, &bytes);
    printf("list %ld, %zu, %d\n", got, bytes, head != NULL);
    got = syscall(SYS_get_robust_list, 0x3ffffff0, &head, &bytes);
    printf("of no thread %ld\n", got < 0 ? (long)errno : got);
    got = syscall(SYS_get_robust_list, 0, (void *)8, &bytes);
    printf("to nowhere %ld\n", got < 0 ? (long)errno : got);
    struct statvfs space;
    printf("files %d\n", statvfs("/", &space) == 0 && space.f_files > 0 && space.f_ffree > 0);
    return 0;
}
