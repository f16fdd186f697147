/* Whether all paths lead to one file, how many names it has, and how it begins. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **words)
{
    struct stat first;
    if (count < 2 || stat(words[1], &first))
        return 1;
    for (int i = 1; i < count; i++) {
        struct stat status;
        char text[5] = "";
        int file = open(words[i], O_RDONLY);
        if (file < 0 || fstat(file, &status) || read(file, text, 4) < 0)
            return 2;
        close(file);
        printf("%s %d %d %s\n", words[i], status.st_ino == first.st_ino, (int)status.st_nlink, text);
    }
    return 0;
}
