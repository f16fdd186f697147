/* Serves one connection in silence: each second it is probed. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(80)};
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(listener, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(listener, IPPROTO_TCP, TCP_KEEPIDLE, &on, sizeof on);
    setsockopt(listener, IPPROTO_TCP, TCP_KEEPINTVL, &on, sizeof on);
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 1))
        return 2;
    char byte;
    int connection = accept(listener, 0, 0);
    /* The client's only byte. */
    if (read(connection, &byte, 1) != 1)
        return 3;
    setvbuf(stdout, 0, _IONBF, 0);
    puts("silent");
    return read(connection, &byte, 1) ? 4 : 0;
}
