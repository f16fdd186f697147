#define _GNU_SOURCE
/* Makes a call that the library OS does not serve, a process, a socket and a request of kinds
   that it lacks, sets an option that it takes for a hint, and reads files. With each word behind the
   first it makes the missing call again. */
#include <fcntl.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words)
{
    fanotify_init(0, 0);
    if (fork() == 0)
        _exit(0);
    wait(0);
    int on = 1, tcp = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(tcp, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    socket(AF_NETLINK, SOCK_RAW, 9);
    ioctl(tcp, TIOCOUTQ, &on);
    open("/proc/meminfo", O_RDONLY);
    open("/proc/self/smaps", O_RDONLY);
    open("/tmp", O_PATH);
    if (count > 1)
        open(words[1], O_RDONLY);
    for (int i = 2; i < count; i++)
        fanotify_init(0, 0);
    return 3;
}
