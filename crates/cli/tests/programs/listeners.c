/* TCP sockets that share a port: who may bind, who may listen, and who gets which connections. */
#define _GNU_SOURCE
#include <poll.h>
#include "lines.h"
#include "sharing.h"

static int made(int family, int shares)
{
    return made_of(SOCK_STREAM, family, shares);
}

/* A connection to the loopback. */
static int to(int port)
{
    struct sockaddr_in peer = here(port);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (void *)&peer, sizeof peer)) {
        close(s);
        return -1;
    }
    return s;
}

/* How many connections wait in a listener; none afterwards. */
static int waiting(int s)
{
    struct pollfd polled = { .fd = s, .events = POLLIN };
    int count = 0;
    while (poll(&polled, 1, 0) == 1) {
        close(accept(s, 0, 0));
        count++;
    }
    return count;
}

/* Two sockets for each pair of what they say, of the same and of other addresses; the first one listens
   before the second is bound, after that, or not at all. */
static void pairs(void)
{
    static const char *fours[] = { "0.0.0.0", "127.0.0.1" };
    for (int first = NONE; first <= BOTH; first++)
        for (int second = NONE; second <= BOTH; second++)
            for (int a = 0; a < 2; a++)
                for (int b = 0; b < 2; b++)
                    for (int when = 0; when < 3; when++) {
                        int one = made(AF_INET, first), two = made(AF_INET, second);
                        printf("%d %d %s %s %d\n", first, second, fours[a], fours[b], when);
                        T(at(one, AF_INET, fours[a], own_port(0)));
                        if (when == 0)
                            T(listen(one, 4));
                        int bound = at(two, AF_INET, fours[b], own_port(0));
                        T(bound);
                        if (when == 1)
                            T(listen(one, 4));
                        if (!bound)
                            T(listen(two, 4));
                        if (when == 2)
                            T(listen(one, 4));
                        close(two);
                        close(one);
                    }
    for (int shares = NONE; shares <= BOTH; shares++) {
        int four = made(AF_INET, shares), six = made(AF_INET6, shares);
        T(at(six, AF_INET6, "::", own_port(0)));
        T(listen(six, 4));
        T(at(four, AF_INET, "0.0.0.0", own_port(0)));
        close(four);
        close(six);
    }
}

/* A socket that listens no more lets others have its port, and may listen again. */
static void ended(void)
{
    int one = made(AF_INET, ADDRESS), two = made(AF_INET, ADDRESS);
    T(at(one, AF_INET, "127.0.0.1", own_port(0)));
    T(listen(one, 4));
    T(at(two, AF_INET, "127.0.0.1", own_port(0)));
    T(shutdown(one, SHUT_RD));
    T(at(two, AF_INET, "127.0.0.1", own_port(0)));
    T(listen(two, 4));
    T(listen(one, 4));
    close(two);
    T(listen(one, 4));
    close(one);
}

/* Connections are divided: each listener has some. Those of one that is closed are reset, no others. */
static void divided(void)
{
    enum { CLIENTS = 64, LISTENERS = 4 };
    int listeners[LISTENERS], clients[CLIENTS], failed = 0, taken = 0, reset = 0, ends = 0;
    for (int i = 0; i < LISTENERS; i++) {
        listeners[i] = made(AF_INET, PORT);
        T(at(listeners[i], AF_INET, "0.0.0.0", own_port(0)));
        T(listen(listeners[i], CLIENTS));
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < CLIENTS; i++) {
            clients[i] = to(own_port(0));
            failed += clients[i] < 0;
        }
        if (round == 1)
            close(listeners[0]);
        taken = 0;
        for (int i = round; i < LISTENERS; i++) {
            int count = waiting(listeners[i]);
            printf("%d has some: %d\n", i, count > 0);
            taken += count;
        }
        for (int i = 0; i < CLIENTS; i++) {
            char byte;
            ssize_t got = recv(clients[i], &byte, 1, 0);
            ends += got == 0;
            reset += got == -1 && errno == ECONNRESET;
            close(clients[i]);
        }
        printf("failed %d, all taken %d, reset %d, ended %d\n", failed, taken == CLIENTS, reset > 0,
               ends + reset == (round + 1) * CLIENTS);
    }
    /* All that come now have the others. */
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = to(own_port(0));
        failed += clients[i] < 0;
    }
    taken = 0;
    for (int i = 1; i < LISTENERS; i++)
        taken += waiting(listeners[i]);
    printf("failed %d, taken %d\n", failed, taken);
    for (int i = 0; i < CLIENTS; i++)
        close(clients[i]);
    for (int i = 1; i < LISTENERS; i++)
        close(listeners[i]);
}

/* A listener at the address of a connection goes before one at any address, and one of IPv4 before one
   of both families. */
static void nearest(void)
{
    int six = made(AF_INET6, PORT), any = made(AF_INET, PORT), own = made(AF_INET, PORT);
    int client = -1;
    T(at(six, AF_INET6, "::", own_port(0)));
    T(listen(six, 4));
    T((client = to(own_port(0))) >= 0);
    T(waiting(six));
    close(client);
    T(at(any, AF_INET, "0.0.0.0", own_port(0)));
    T(listen(any, 4));
    T((client = to(own_port(0))) >= 0);
    T(waiting(any));
    close(client);
    T(at(own, AF_INET, "127.0.0.1", own_port(0)));
    T(listen(own, 4));
    T((client = to(own_port(0))) >= 0);
    T(waiting(own));
    close(client);
    T(waiting(six) + waiting(any));
    close(own);
    T((client = to(own_port(0))) >= 0);
    T(waiting(any));
    close(client);
    close(any);
    close(six);
}

static const struct group GROUPS[] = {
    { "pairs", pairs }, { "ended", ended }, { "divided", divided }, { "nearest", nearest },
};

int main(int count, char **words)
{
    setvbuf(stdout, 0, _IOLBF, 0);
    return run_groups("listeners", GROUPS, sizeof GROUPS / sizeof *GROUPS, count, words);
}
