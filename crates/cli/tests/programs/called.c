/* Prints the name of its thread, its first argument and its file. */
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **words)
{
    char name[17] = "", file[256] = "";
    if (prctl(PR_GET_NAME, name) || readlink("/proc/self/exe", file, sizeof file - 1) < 0) {
        perror("name");
        return 1;
    }
    printf("%s %s %s\n", name, count > 0 ? words[0] : "", file);
    return 0;
}
