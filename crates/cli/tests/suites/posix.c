// Runs the test that the first argument names. tests.h has a line TEST(NAME) for each.
#include <string.h>

#define TEST(name) int test_##name(int, char **);
#include "tests.h"
#undef TEST

static const struct {
    const char *name;
    int (*run)(int, char **);
} tests[] = {
#define TEST(name) {#name, test_##name},
#include "tests.h"
};

int main(int count, char **words) {
    char *own[] = {words[0], 0};
    for (unsigned i = 0; count > 1 && i < sizeof tests / sizeof *tests; i++)
        if (!strcmp(tests[i].name, words[1]))
            return tests[i].run(1, own);
    return 99;
}
