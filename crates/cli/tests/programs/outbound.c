/* A server on port 80. With ADDRESS PORT, the answer to /out is what a connection to there brings. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int fetch(const char *address, int port, char *to, int most)
{
    struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons(port) };
    int s = socket(AF_INET, SOCK_STREAM, 0), all = 0, got;
    inet_pton(AF_INET, address, &there.sin_addr);
    if (connect(s, (void *)&there, sizeof there)) {
        close(s);
        return snprintf(to, most, "no connection\n");
    }
    while (all < most && (got = read(s, to + all, most - all)) > 0)
        all += got;
    close(s);
    return all;
}

int main(int count, char **words)
{
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(80) };
    int l = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(l, (void *)&here, sizeof here) || listen(l, 128)) {
        perror("listen");
        return 1;
    }
    for (;;) {
        char text[1000], asked[1000] = "";
        int s = accept(l, 0, 0), length = sprintf(text, "hello\n"), all = 0, got;
        /* A request may come in parts. */
        while (!strstr(asked, "\r\n\r\n")
               && (got = read(s, asked + all, sizeof asked - 1 - all)) > 0)
            all += got;
        if (count == 3 && !strncmp(asked, "GET /out", 8))
            length = fetch(words[1], atoi(words[2]), text, sizeof text);
        dprintf(s, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", length);
        write(s, text, length);
        close(s);
    }
}
