/* Answers each byte that comes by 200 bytes in two parts, without Nagle's rule. How, its argument
   says: as two writes, in a cork, or the first as one that more follows. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "writes";
    int l = socket(AF_INET, SOCK_STREAM, 0), one = 1, zero = 0;
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(80) };
    if (bind(l, (void *)&a, sizeof a) || listen(l, 8)) { perror("listen"); return 1; }
    char part[100], asked;
    memset(part, '.', sizeof part);
    for (;;) {
        int s = accept(l, 0, 0);
        setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        while (read(s, &asked, 1) == 1) {
            if (!strcmp(how, "cork")) setsockopt(s, IPPROTO_TCP, TCP_CORK, &one, sizeof one);
            send(s, part, sizeof part, strcmp(how, "more") ? 0 : MSG_MORE);
            /* A call other than write. */
            if (strcmp(how, "writes")) getppid();
            write(s, part, sizeof part);
            if (!strcmp(how, "cork")) setsockopt(s, IPPROTO_TCP, TCP_CORK, &zero, sizeof zero);
        }
        close(s);
    }
}
