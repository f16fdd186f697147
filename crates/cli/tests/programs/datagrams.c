/* Returns each datagram for port 53 to its sender. */
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

int main(void)
{
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(53) };
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind(s, (void *)&here, sizeof here)) {
        perror("bind");
        return 1;
    }
    for (;;) {
        char bytes[65536];
        struct sockaddr_in from;
        socklen_t size = sizeof from;
        ssize_t got = recvfrom(s, bytes, sizeof bytes, 0, (void *)&from, &size);
        if (got >= 0)
            sendto(s, bytes, got, 0, (void *)&from, size);
    }
}
