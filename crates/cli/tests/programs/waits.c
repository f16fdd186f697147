/* Waits for a line of input and prints its last argument. */
#include <stdio.h>

int main(int argc, char **argv)
{
    int byte;
    do
        byte = getchar();
    while (byte != '\n' && byte != EOF);
    if (byte == EOF) return 1;
    puts(argv[argc - 1]);
    return 7;
}
