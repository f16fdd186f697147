/* What the programs share that have several sockets on a port. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* SO_REUSEADDR, SO_REUSEPORT. */
enum { NONE, ADDRESS, PORT, BOTH };

/* A socket; one of IPv6 is for both families. */
static int made_of(int kind, int family, int shares)
{
    int one = 1, zero = 0, s = socket(family, kind, 0);
    if (shares & ADDRESS)
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (shares & PORT)
        setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    if (family == AF_INET6)
        setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    return s;
}

static int at(int s, int family, const char *address, int port)
{
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    if (family == AF_INET6) {
        inet_pton(AF_INET6, address, &six.sin6_addr);
        return bind(s, (void *)&six, sizeof six);
    }
    inet_pton(AF_INET, address, &four.sin_addr);
    return bind(s, (void *)&four, sizeof four);
}

/* A port of the loopback. */
static struct sockaddr_in here(int port)
{
    return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port),
                                 .sin_addr = { htonl(INADDR_LOOPBACK) } };
}
