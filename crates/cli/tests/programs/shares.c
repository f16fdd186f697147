/* UDP sockets that share a port: who may, and who gets what comes. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include "lines.h"
#include "sharing.h"

static int made(int family, int shares)
{
    return made_of(SOCK_DGRAM, family, shares);
}

static int to(int s, int port)
{
    struct sockaddr_in peer = here(port);
    return connect(s, (void *)&peer, sizeof peer);
}

/* Sends from `from` to a port; which of some sockets has it. -1: none, -2: more than one. */
static int taker(int from, int port, const int *sockets, int count)
{
    struct sockaddr_in peer = here(port);
    char byte;
    int found = -1;
    sendto(from, "x", 1, 0, (void *)&peer, sizeof peer);
    for (int i = 0; i < count; i++)
        if (recv(sockets[i], &byte, 1, MSG_DONTWAIT) == 1)
            found = found == -1 ? i : -2;
    return found;
}

/* Two sockets for each pair of what they say, of the same and of other addresses. */
static void pairs(void)
{
    static const char *fours[] = { "0.0.0.0", "127.0.0.1" };
    for (int first = NONE; first <= BOTH; first++)
        for (int second = NONE; second <= BOTH; second++)
            for (int a = 0; a < 2; a++)
                for (int b = 0; b < 2; b++) {
                    int one = made(AF_INET, first), two = made(AF_INET, second);
                    printf("%d %d %s %s\n", first, second, fours[a], fours[b]);
                    T(at(one, AF_INET, fours[a], own_port(0)));
                    T(at(two, AF_INET, fours[b], own_port(0)));
                    close(one);
                    close(two);
                }
    for (int shares = NONE; shares <= BOTH; shares++) {
        int four = made(AF_INET, shares), six = made(AF_INET6, shares);
        T(at(six, AF_INET6, "::", own_port(0)));
        T(at(four, AF_INET, "0.0.0.0", own_port(0)));
        close(four);
        close(six);
    }
}

/* Of sockets that share an address the one that was bound last, but a connected one before others, and one
   at an address before one at all. */
static void last(void)
{
    int from = made(AF_INET, NONE), sockets[5];
    at(from, AF_INET, "127.0.0.1", own_port(1));
    for (int i = 0; i < 5; i++)
        sockets[i] = made(i == 4 ? AF_INET6 : AF_INET, ADDRESS);
    for (int i = 0; i < 2; i++) {
        T(at(sockets[i], AF_INET, "0.0.0.0", own_port(0)));
        T(taker(from, own_port(0), sockets, 5));
    }
    T(at(sockets[4], AF_INET6, "::", own_port(0)));
    T(taker(from, own_port(0), sockets, 5));
    T(at(sockets[2], AF_INET, "127.0.0.1", own_port(0)));
    T(taker(from, own_port(0), sockets, 5));
    T(at(sockets[3], AF_INET, "127.0.0.1", own_port(0)));
    T(taker(from, own_port(0), sockets, 5));
    T(to(sockets[2], own_port(1)));
    T(taker(from, own_port(0), sockets, 5));
    T(to(sockets[2], own_port(2)));
    T(taker(from, own_port(0), sockets, 5));
    for (int i = 3; i >= 0; i--) {
        close(sockets[i]);
        sockets[i] = -1;
        T(taker(from, own_port(0), sockets, 5));
    }
    close(sockets[4]);
    close(from);
}

/* A server that connects its socket to a client, and binds another one for the next (iperf3, DTLS). */
static void server(void)
{
    int clients[3], sockets[4];
    for (int i = 0; i < 3; i++) {
        clients[i] = made(AF_INET, NONE);
        at(clients[i], AF_INET, "127.0.0.1", own_port(1 + i));
    }
    for (int i = 0; i < 4; i++) {
        sockets[i] = made(AF_INET, ADDRESS);
        T(at(sockets[i], AF_INET, "0.0.0.0", own_port(0)));
        if (i == 3)
            break;
        T(taker(clients[i], own_port(0), sockets, i + 1));
        T(to(sockets[i], own_port(1 + i)));
    }
    for (int i = 0; i < 3; i++)
        T(taker(clients[i], own_port(0), sockets, 4));
    for (int i = 0; i < 4; i++)
        close(sockets[i]);
    for (int i = 0; i < 3; i++)
        close(clients[i]);
}

/* Peers are divided: each has one socket for all of its datagrams, and no socket is without peers. */
static void divided(void)
{
    enum { PEERS = 64, SOCKETS = 4 };
    int sockets[SOCKETS], moved = 0, lost = 0, had[SOCKETS] = { 0 };
    for (int i = 0; i < SOCKETS; i++) {
        sockets[i] = made(AF_INET, PORT);
        T(at(sockets[i], AF_INET, "0.0.0.0", own_port(0)));
    }
    for (int i = 0; i < PEERS; i++) {
        int from = made(AF_INET, NONE);
        int first = taker(from, own_port(0), sockets, SOCKETS);
        for (int again = 0; again < 3; again++)
            moved += taker(from, own_port(0), sockets, SOCKETS) != first;
        if (first < 0)
            lost++;
        else
            had[first]++;
        close(from);
    }
    printf("moved %d lost %d\n", moved, lost);
    for (int i = 0; i < SOCKETS; i++) {
        printf("%d has peers: %d\n", i, had[i] > 0);
        close(sockets[i]);
    }
}

/* Waiting for datagrams binds no socket. */
static void unbound(void)
{
    struct sockaddr_in own = { 0 };
    socklen_t size = sizeof own;
    struct pollfd polled = { .events = POLLIN | POLLOUT };
    char byte;
    int s = polled.fd = made(AF_INET, NONE);
    T(recv(s, &byte, 1, MSG_DONTWAIT));
    T(poll(&polled, 1, 0));
    T(polled.revents);
    T(getsockname(s, (void *)&own, &size));
    T(own.sin_port);
    T(at(s, AF_INET, "127.0.0.1", own_port(0)));
    T(at(s, AF_INET, "127.0.0.1", own_port(1)));
    T(poll(&polled, 1, 0));
    T(polled.revents);
    close(s);
}

static void *late(void *given)
{
    int s = *(int *)given, from = made(AF_INET, NONE);
    while (at(s, AF_INET, "127.0.0.1", own_port(0)))
        ;
    to(from, own_port(0));
    send(from, "x", 1, 0);
    close(from);
    return 0;
}

/* Who waits at a socket without a port has what comes to the port that it gets later. */
static void early(void)
{
    pthread_t other;
    char byte;
    int s = made(AF_INET, NONE);
    pthread_create(&other, 0, late, &s);
    T(recv(s, &byte, 1, 0));
    pthread_join(other, 0);
    close(s);
}

static const struct group GROUPS[] = {
    { "pairs", pairs }, { "last", last }, { "server", server }, { "divided", divided },
    { "unbound", unbound }, { "early", early },
};

int main(int count, char **words)
{
    setvbuf(stdout, 0, _IOLBF, 0);
    return run_groups("shares", GROUPS, sizeof GROUPS / sizeof *GROUPS, count, words);
}
