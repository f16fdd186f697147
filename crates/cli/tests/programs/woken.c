/* Waits for threads that sleep, beside one on each of two cores that computes without a call. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>
#define SPINNERS 2
#define WAKERS 6
static volatile int ends;
static sem_t woken;
static void *spin(void *none) {
    while (!ends) { }
    return none;
}
static void *wake(void *none) {
    usleep(20000);
    sem_post(&woken);
    return none;
}
int main(void) {
    pthread_t spinner[SPINNERS], waker;
    sem_init(&woken, 0, 0);
    for (int i = 0; i < SPINNERS; i++) pthread_create(&spinner[i], 0, spin, 0);
    for (int i = 0; i < WAKERS; i++) {
        pthread_create(&waker, 0, wake, 0);
        sem_wait(&woken);
        pthread_join(waker, 0);
    }
    ends = 1;
    for (int i = 0; i < SPINNERS; i++) pthread_join(spinner[i], 0);
    puts("woken");
}
