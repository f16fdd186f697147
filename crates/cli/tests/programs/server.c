#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <netinet/in.h>
int main(void) {
    int l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(80) };
    if (bind(l, (void *)&a, sizeof a) || listen(l, 128)) { perror("listen"); return 1; }
    int e = epoll_create1(0);
    struct epoll_event ev = { .events = EPOLLIN, .data.fd = l }, got[64];
    epoll_ctl(e, EPOLL_CTL_ADD, l, &ev);
    printf("serving\n"); fflush(stdout);
    const char *answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n";
    for (;;) {
        int n = epoll_wait(e, got, 64, -1);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) { perror("epoll_wait"); return 2; }
        for (int i = 0; i < n; i++) {
            if (got[i].data.fd == l) {
                int s;
                while ((s = accept4(l, 0, 0, SOCK_NONBLOCK)) >= 0) {
                    ev.events = EPOLLIN | EPOLLET; ev.data.fd = s;
                    epoll_ctl(e, EPOLL_CTL_ADD, s, &ev);
                }
                continue;
            }
            char buf[4096]; int s = got[i].data.fd; ssize_t r;
            while ((r = read(s, buf, sizeof buf)) > 0)
                if (write(s, answer, strlen(answer)) > 0) { r = 0; break; }
            if (r == 0 || (r < 0 && errno != EAGAIN)) close(s);
        }
    }
}
