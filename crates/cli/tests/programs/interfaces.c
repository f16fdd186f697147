/* What a program asks of network interfaces: netlink, ioctl, getifaddrs, /proc. A line each. Of the
   interfaces only the loopback is the same on every host: "all" lists the others too. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "lines.h"

static char bytes[65536];

static long sent(int s, int type, int flags, const void *body, int length)
{
    struct nlmsghdr *header = (void *)bytes;
    memset(bytes, 0, sizeof *header);
    header->nlmsg_len = NLMSG_LENGTH(length);
    header->nlmsg_type = type;
    header->nlmsg_flags = flags;
    header->nlmsg_seq = 5;
    memcpy(NLMSG_DATA(header), body, length);
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    return sendto(s, bytes, header->nlmsg_len, 0, (void *)&kernel, sizeof kernel);
}

/* Reads answers up to the end of a list; gives the number of those of a type about `index`. */
static int counted(int s, int type, int index)
{
    int count = 0;
    for (;;) {
        long got = recv(s, bytes, sizeof bytes, 0);
        if (got <= 0)
            return -1;
        struct nlmsghdr *header = (void *)bytes;
        for (; NLMSG_OK(header, got); header = NLMSG_NEXT(header, got)) {
            if (header->nlmsg_seq != 5 || !(header->nlmsg_flags & NLM_F_MULTI))
                return -2;
            if (header->nlmsg_type == NLMSG_DONE)
                return count;
            struct ifaddrmsg *address = NLMSG_DATA(header);
            struct ifinfomsg *link = NLMSG_DATA(header);
            int of = type == RTM_NEWADDR ? (int)address->ifa_index : link->ifi_index;
            count += header->nlmsg_type == type && of == index;
        }
    }
}

static int refused(int s)
{
    long got = recv(s, bytes, sizeof bytes, 0);
    struct nlmsghdr *header = (void *)bytes;
    if (got < (long)NLMSG_LENGTH(sizeof(struct nlmsgerr)) || header->nlmsg_type != NLMSG_ERROR)
        return 1;
    return ((struct nlmsgerr *)NLMSG_DATA(header))->error;
}

static void netlink(void)
{
    T(socket(AF_NETLINK, SOCK_STREAM, NETLINK_ROUTE));
    T(socket(AF_NETLINK, SOCK_RAW, 99));
    int pair[2];
    T(socketpair(AF_NETLINK, SOCK_RAW, 0, pair));
    int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    struct sockaddr_nl name = {.nl_family = AF_NETLINK};
    T(bind(s, (void *)&name, 4));
    T(bind(s, (void *)&name, sizeof name));
    socklen_t length = sizeof name;
    T(getsockname(s, (void *)&name, &length));
    printf("port is the process's %d, %u bytes\n", name.nl_pid == (unsigned)getpid(), length);
    int other = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE);
    T(bind(other, (void *)&name, sizeof name));
    name.nl_pid = 0;
    T(bind(other, (void *)&name, sizeof name));
    T(getsockname(other, (void *)&name, &length));
    printf("another port %d\n", name.nl_pid != 0 && name.nl_pid != (unsigned)getpid());
    close(other);
    int value = 0;
    length = sizeof value;
    T(getsockopt(s, SOL_SOCKET, SO_TYPE, &value, &length));
    printf("type %d\n", value);
    T(getsockopt(s, SOL_SOCKET, SO_DOMAIN, &value, &length));
    printf("domain %d\n", value);
    T(listen(s, 1));
    T(accept(s, 0, 0));
    T(shutdown(s, SHUT_RDWR));
    T(recv(s, bytes, sizeof bytes, MSG_DONTWAIT));

    struct ifinfomsg link = {.ifi_index = 1};
    struct rtgenmsg v4 = {.rtgen_family = AF_INET}, v6 = {.rtgen_family = AF_INET6};
    T(sent(s, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, &v4, sizeof v4));
    printf("loopbacks %d\n", counted(s, RTM_NEWLINK, 1));
    T(sent(s, RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, &v4, sizeof v4));
    printf("of IPv4 %d\n", counted(s, RTM_NEWADDR, 1));
    T(sent(s, RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, &v6, sizeof v6));
    T(counted(s, RTM_NEWADDR, 1) < 0);
    T(sent(s, RTM_GETROUTE, NLM_F_REQUEST | NLM_F_DUMP, &v4, sizeof v4));
    T(counted(s, RTM_NEWROUTE, -1));
    T(sent(s, RTM_GETNEIGH, NLM_F_REQUEST | NLM_F_DUMP, &v4, sizeof v4));
    T(counted(s, RTM_NEWNEIGH, -1));

    /* One interface, and one that is not there. */
    T(sent(s, RTM_GETLINK, NLM_F_REQUEST, &link, sizeof link));
    struct pollfd readable = {.fd = s, .events = POLLIN};
    T(poll(&readable, 1, 1000));
    long whole = recv(s, bytes, 8, MSG_PEEK | MSG_TRUNC);
    struct sockaddr_nl from = {.nl_pid = 77};
    length = sizeof from;
    long got = recvfrom(s, bytes, sizeof bytes, 0, (void *)&from, &length);
    struct nlmsghdr *header = (void *)bytes;
    struct ifinfomsg *answer = NLMSG_DATA(header);
    printf("the same length %d, type %d, index %d, kind %d, loopback %d, from %u, %u bytes\n",
           whole == got, header->nlmsg_type, answer->ifi_index, answer->ifi_type,
           !!(answer->ifi_flags & IFF_LOOPBACK), from.nl_pid, length);
    link.ifi_index = 12345;
    T(sent(s, RTM_GETLINK, NLM_F_REQUEST, &link, sizeof link));
    printf("error %d\n", refused(s));
    T(sent(s, NLMSG_NOOP, NLM_F_REQUEST | NLM_F_ACK, &link, sizeof link));
    printf("error %d\n", refused(s));
    /* Neither a request nor whole. */
    T(sent(s, RTM_GETLINK, 0, &link, sizeof link));
    T(send(s, bytes, 9, 0));
    T(recv(s, bytes, sizeof bytes, MSG_DONTWAIT));
    close(s);
}

static void *answered(int of, unsigned long request, struct ifreq *it, const char *name)
{
    int s = socket(of, SOCK_DGRAM, 0);
    if (name)
        strcpy(it->ifr_name, name);
    errno = 0;
    long result = ioctl(s, request, it);
    printf("%#lx of %s %ld, error %d\n", request, it->ifr_name, result, errno);
    close(s);
    return &it->ifr_ifru;
}

static void requests(void)
{
    struct ifreq it;
    memset(&it, 0, sizeof it);
    struct sockaddr_in *in = (void *)&it.ifr_ifru;
    answered(AF_INET, SIOCGIFFLAGS, &it, "lo");
    printf("up %d, loopback %d\n", !!(it.ifr_flags & IFF_UP), !!(it.ifr_flags & IFF_LOOPBACK));
    answered(AF_INET, SIOCGIFADDR, &it, "lo");
    printf("%d %s\n", in->sin_family, inet_ntoa(in->sin_addr));
    answered(AF_INET, SIOCGIFNETMASK, &it, "lo");
    printf("%d %s\n", in->sin_family, inet_ntoa(in->sin_addr));
    answered(AF_INET, SIOCGIFHWADDR, &it, "lo");
    printf("%d\n", it.ifr_hwaddr.sa_family);
    answered(AF_INET6, SIOCGIFINDEX, &it, "lo");
    printf("%d\n", it.ifr_ifindex);
    answered(AF_UNIX, SIOCGIFINDEX, &it, "lo");
    it.ifr_ifindex = 1;
    answered(AF_INET, SIOCGIFNAME, &it, 0);
    it.ifr_ifindex = 999;
    answered(AF_INET, SIOCGIFNAME, &it, 0);
    answered(AF_INET, SIOCGIFMTU, &it, "lo");
    answered(AF_INET, SIOCGIFMETRIC, &it, "lo");
    answered(AF_INET, SIOCGIFADDR, &it, "none0");
    answered(AF_INET, SIOCGIFFLAGS, &it, "");
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    T(ioctl(s, SIOCGIFFLAGS, (void *)16));
    T(ioctl(0, SIOCGIFFLAGS, &it));
    struct ifreq room[64];
    struct ifconf list = {.ifc_len = sizeof room, .ifc_req = room};
    T(ioctl(s, SIOCGIFCONF, &list));
    int all = list.ifc_len, loopbacks = 0;
    for (int i = 0; i < all / (int)sizeof room[0]; i++)
        loopbacks += !strcmp(room[i].ifr_name, "lo");
    list.ifc_req = 0;
    list.ifc_len = 0;
    T(ioctl(s, SIOCGIFCONF, &list));
    printf("loopbacks %d, whole %d, the same %d\n", loopbacks, all % (int)sizeof room[0] == 0,
           list.ifc_len == all);
    list.ifc_req = room;
    list.ifc_len = sizeof room[0] - 1;
    T(ioctl(s, SIOCGIFCONF, &list));
    printf("%d\n", list.ifc_len);
    close(s);
    printf("%u %u\n", if_nametoindex("lo"), if_nametoindex("none0"));
    char name[IF_NAMESIZE];
    printf("%s\n", if_indextoname(1, name) ? name : "none");
}

static void names(int all)
{
    struct ifaddrs *list, *it;
    if (getifaddrs(&list)) {
        puts("no interfaces");
        return;
    }
    for (it = list; it; it = it->ifa_next) {
        char address[INET6_ADDRSTRLEN] = "none";
        if (!it->ifa_addr || (strcmp(it->ifa_name, "lo") && !all))
            continue;
        int family = it->ifa_addr->sa_family;
        if (family == AF_INET)
            inet_ntop(family, &((struct sockaddr_in *)it->ifa_addr)->sin_addr, address, 99);
        if (family == AF_INET6 && all)
            inet_ntop(family, &((struct sockaddr_in6 *)it->ifa_addr)->sin6_addr, address, 99);
        if (family == AF_PACKET)
            sprintf(address, "kind %d", ((struct sockaddr_ll *)it->ifa_addr)->sll_hatype);
        if (family != AF_INET6 || all)
            printf("%s %d %s\n", it->ifa_name, family, address);
    }
    freeifaddrs(list);
}

int main(int count, char **arguments)
{
    if (count > 1 && !strcmp(arguments[1], "all")) {
        names(1);
        return 0;
    }
    netlink();
    requests();
    names(0);
    return 0;
}
