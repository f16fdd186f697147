/* Makes a call that the library OS does not serve, a process, and reads a file. */
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words)
{
    inotify_init1(0);
    if (fork() == 0)
        _exit(0);
    wait(0);
    if (count > 1)
        open(words[1], O_RDONLY);
    return 3;
}
