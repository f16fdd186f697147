/* Answers eight clients in one turn: when each has sent a byte, 100 bytes to each. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#define CLIENTS 8
int main(void) {
    int l = socket(AF_INET, SOCK_STREAM, 0), one = 1, client[CLIENTS];
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(80) };
    if (bind(l, (void *)&a, sizeof a) || listen(l, 8)) { perror("listen"); return 1; }
    char answer[100], asked;
    memset(answer, '.', sizeof answer);
    puts("ready");
    fflush(stdout);
    for (;;) {
        for (int i = 0; i < CLIENTS; i++) {
            client[i] = accept(l, 0, 0);
            setsockopt(client[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        }
        for (int alive = 1; alive;) {
            for (int i = 0; i < CLIENTS; i++) {
                struct pollfd ready = { client[i], POLLIN, 0 };
                poll(&ready, 1, -1);
            }
            for (int i = 0; i < CLIENTS; i++) {
                if (read(client[i], &asked, 1) == 1) write(client[i], answer, sizeof answer);
                else alive = 0;
            }
        }
        for (int i = 0; i < CLIENTS; i++) close(client[i]);
    }
}
