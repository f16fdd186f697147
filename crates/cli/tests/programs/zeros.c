/* New memory is zero, also where other memory was: mappings of many sizes that come and go, of more
   pages in all than the machine has, and the break. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLOTS = 48, PAGE = 4096, ROUNDS = 6000 };

static unsigned long state = 88172645463325252ul;

static unsigned long draw(unsigned long below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static int is_zero(const char *bytes, long count)
{
    return !bytes[0] && !memcmp(bytes, bytes + 1, count - 1);
}

int main(void)
{
    static char *at[SLOTS];
    static long pages[SLOTS];
    long checked = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int slot = draw(SLOTS);
        if (at[slot]) {
            munmap(at[slot], pages[slot] * PAGE);
            at[slot] = 0;
            continue;
        }
        pages[slot] = 1 + draw(draw(4) ? 24 : 300);
        at[slot] = mmap(0, pages[slot] * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at[slot] == MAP_FAILED)
            return 1;
        /* Some pages are used, in any order, and dirtied; the others are not touched. */
        for (long use = draw(pages[slot] + 1); use > 0; use--) {
            char *page = at[slot] + draw(pages[slot]) * PAGE;
            if (page[0] == 'x')
                continue;
            if (!is_zero(page, PAGE)) {
                printf("page %ld of %ld in round %d is not zero\n", (page - at[slot]) / PAGE, pages[slot], round);
                return 2;
            }
            memset(page, 'x', PAGE);
            checked++;
        }
        if (!draw(8)) {
            long bytes = (1 + draw(40)) * PAGE;
            char *end = sbrk(bytes);
            if (end == (void *)-1 || !is_zero(end, bytes))
                return 3;
            memset(end, 'y', bytes);
            sbrk(-bytes);
        }
    }
    printf("%s\n", checked > 30000 ? "all zero" : "too few");
    return 0;
}
