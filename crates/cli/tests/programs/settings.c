/* Prints its arguments, its working directory, $WHO and a file of that directory; ends with 42. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words)
{
    char directory[256] = "", line[256] = "";
    const char *who = getenv("WHO");
    FILE *file = fopen("page", "r");
    if (!getcwd(directory, sizeof directory) || !file || !fgets(line, sizeof line, file)) {
        perror("page");
        return 1;
    }
    for (int i = 0; i < count; i++) {
        printf("%s ", words[i]);
    }
    printf("in %s for %s: %s\n", directory, who ? who : "-", line);
    return 42;
}
