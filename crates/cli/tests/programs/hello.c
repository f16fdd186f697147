#include <stdio.h>

int main(int count, char **words)
{
    printf("hello %s, %d words\n", words[0], count);
    return 7;
}
