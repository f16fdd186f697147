/* Waits for as many seconds as its first argument says, and prints its last. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 2) return 1;
    sleep(atoi(argv[1]));
    puts(argv[argc - 1]);
    return 7;
}
