/* Opens a file and a link of the root whose names are not UTF-8. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    char text[64];
    int file = open("/caf\xe9/\xff", O_RDONLY);
    long count = read(file, text, sizeof text);
    printf("%.*s", (int)count, text);
    count = readlink("/\xfe", text, sizeof text);
    return file < 0 || count != 5 || text[3] != (char)0xe9 || text[4] != '/';
}
