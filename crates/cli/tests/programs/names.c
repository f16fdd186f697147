/* Asks the resolver of /etc/resolv.conf for a name and prints what it answers. With an ADDRESS it is
 * that resolver: it answers each question by itself, as an answer. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char question[] = "\1\2\1\0\0\1\0\0\0\0\0\0\4test\7example\0\0\1\0\1";

int main(int count, char **words)
{
    struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons(53) };
    int s = socket(AF_INET, SOCK_DGRAM, 0), got;
    char text[512], address[64] = "";
    if (count > 1) {
        socklen_t length = sizeof there;
        inet_pton(AF_INET, words[1], &there.sin_addr);
        if (bind(s, (void *)&there, sizeof there)) {
            perror("bind");
            return 1;
        }
        puts("listening");
        fflush(stdout);
        while ((got = recvfrom(s, text, sizeof text, 0, (void *)&there, &length)) > 0) {
            text[2] |= 0x80;
            sendto(s, text, got, 0, (void *)&there, length);
        }
        return 1;
    }
    FILE *file = fopen("/etc/resolv.conf", "r");
    while (file && fgets(text, sizeof text, file))
        sscanf(text, "nameserver %63s", address);
    if (inet_pton(AF_INET, address, &there.sin_addr) != 1) {
        printf("no resolver: '%s'\n", address);
        return 1;
    }
    /* The first question may come before what answers. */
    for (int tries = 0; tries < 20; tries++) {
        struct pollfd waits = { s, POLLIN };
        sendto(s, question, sizeof question - 1, 0, (void *)&there, sizeof there);
        if (poll(&waits, 1, 1000) > 0 && (got = recv(s, text, sizeof text, 0)) > 0) {
            printf("%s answered with %d bytes, %s\n", address, got,
                   text[2] & 0x80 ? "an answer" : "no answer");
            return 0;
        }
    }
    printf("%s did not answer\n", address);
    return 1;
}
