/*
 * Uses nearly all of the machine's memory: each page keeps what was written to it, and new ones are
 * zero. Then executes the program that it is given.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define PART (1UL << 20)
#define PAGE 4096UL
#define MOST 1024

static unsigned char *parts[MOST];

static unsigned char *map(void)
{
	void *part = mmap(0, PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return part == MAP_FAILED ? 0 : part;
}

static void fill(int number, int round)
{
	for (size_t at = 0; at < PART; at += PAGE) {
		uint64_t *word = (uint64_t *)(parts[number] + at);

		for (int i = 0; i < 512; i++)
			if (word[i]) {
				printf("part %d is not zero at %zu\n", number, at);
				exit(1);
			}
		word[0] = (uint64_t)number << 32 | at;
		word[511] = round;
	}
}

static void check(int number, int round)
{
	for (size_t at = 0; at < PART; at += PAGE) {
		uint64_t *word = (uint64_t *)(parts[number] + at);

		if (word[0] != ((uint64_t)number << 32 | at) || word[511] != (uint64_t)round) {
			printf("part %d has other bytes at %zu\n", number, at);
			exit(1);
		}
	}
}

int main(int argc, char **argv)
{
	struct sysinfo info;
	int count;

	setvbuf(stdout, 0, _IONBF, 0);
	sysinfo(&info);
	/* What is left is for the library OS, and for page tables. */
	count = info.freeram / PART * 7 / 8;
	printf("%lu of %lu MiB are free\n", info.freeram / PART, info.totalram / PART);
	for (int i = 0; i < count; i++) {
		parts[i] = map();
		if (!parts[i])
			return 2;
		fill(i, 0);
	}
	for (int i = 0; i < count; i++)
		check(i, 0);
	/* Every other part comes back and is zero again. */
	for (int round = 1; round < 3; round++) {
		for (int i = round % 2; i < count; i += 2)
			munmap(parts[i], PART);
		for (int i = round % 2; i < count; i += 2) {
			parts[i] = map();
			if (!parts[i])
				return 3;
			fill(i, round);
		}
		for (int i = round % 2; i < count; i += 2) {
			mprotect(parts[i], PART, PROT_READ);
			check(i, round);
		}
		for (int i = 1 - round % 2; i < count; i += 2)
			check(i, round - 1);
	}
	puts("all as written");
	if (argc > 1)
		execv(argv[1], (char *[]){ argv[1], 0 });
	return argc > 1;
}
