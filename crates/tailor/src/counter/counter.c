/*
 * Counts the instructions that QEMU's translator executes, one counter for
 * addresses of user space and firmware, one for the kernel's half (bit 63 set),
 * into a file that QEMU inherits from who started it, and who reads it meanwhile.
 *
 * The translator executes a string instruction with a REP prefix once for each
 * element, and once more to see that none is left. A processor counts it once, so it is
 * counted once here: the executions after the first, which are as many as there are
 * elements, have separate counters. They enter a block that begins with the
 * instruction, directly after the one before, while every other block adds to `others`. An interrupt between two iterations counts the instruction
 * again, as it starts it again. One CPU.
 *
 * The declarations are QEMU's plugin interface, version 1
 * (docs/devel/tcg-plugins.rst); Debian has no package with its header.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))
#define PAGE 4096
#define ADD_U64 0
#define NO_REGISTERS 0
/* Places of the counters: instructions, then iterations; user's, then the kernel's. */
#define ITERATIONS 2

typedef uint64_t plugin_id;
struct qemu_info;
struct block;
struct instruction;

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct block *));
size_t qemu_plugin_tb_n_insns(const struct block *);
struct instruction *qemu_plugin_tb_get_insn(const struct block *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct instruction *);
const void *qemu_plugin_insn_data(const struct instruction *);
size_t qemu_plugin_insn_size(const struct instruction *);
void qemu_plugin_register_vcpu_insn_exec_inline(struct instruction *, int, void *, uint64_t);
void qemu_plugin_register_vcpu_tb_exec_inline(struct block *, int, void *, uint64_t);
void qemu_plugin_register_vcpu_insn_exec_cb(struct instruction *,
					    void (*)(unsigned int, void *), int, void *);

EXPORT int qemu_plugin_version = 1;
static uint64_t *counters;
/* Blocks executed that do not begin with a string instruction with REP. */
static uint64_t others;
/* The last string instruction with REP, and `others` at that time. */
static uint64_t last, others_at_last;

/* Whether it is INS, OUTS, MOVS, CMPS, STOS, LODS or SCAS with a REP prefix. */
static int is_repeated(const struct instruction *insn)
{
	const uint8_t *bytes = qemu_plugin_insn_data(insn);
	size_t size = qemu_plugin_insn_size(insn);
	int rep = 0;

	for (size_t i = 0; i < size; i++) {
		switch (bytes[i]) {
		case 0xf2: case 0xf3:
			rep = 1;
			break;
		case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65:
		case 0x66: case 0x67: case 0xf0: case 0x40 ... 0x4f:
			break;
		case 0x6c ... 0x6f: case 0xa4 ... 0xa7: case 0xaa ... 0xaf:
			return rep;
		default:
			return 0;
		}
	}
	return 0;
}

/* A string instruction with REP in the middle of a block: no iteration goes there. */
static void begins(unsigned int cpu, void *address)
{
	(void)cpu;
	last = (uint64_t)address;
	others_at_last = others;
	counters[last >> 63]++;
}

/* One at the start of a block: the next iteration, unless other code ran between. */
static void begins_or_goes_on(unsigned int cpu, void *address)
{
	if (last == (uint64_t)address && others_at_last == others)
		counters[ITERATIONS + (last >> 63)]++;
	else
		begins(cpu, address);
}

static void translated(plugin_id id, struct block *block)
{
	size_t count = qemu_plugin_tb_n_insns(block);

	(void)id;
	for (size_t i = 0; i < count; i++) {
		struct instruction *insn = qemu_plugin_tb_get_insn(block, i);
		uint64_t address = qemu_plugin_insn_vaddr(insn);
		int repeated = is_repeated(insn);

		if (i == 0 && !repeated)
			qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &others, 1);
		if (repeated)
			qemu_plugin_register_vcpu_insn_exec_cb(
				insn, i ? begins : begins_or_goes_on, NO_REGISTERS,
				(void *)address);
		else
			qemu_plugin_register_vcpu_insn_exec_inline(
				insn, ADD_U64, &counters[address >> 63], 1);
	}
}

EXPORT int qemu_plugin_install(plugin_id id, const struct qemu_info *info, int argc, char **argv)
{
	static const char key[] = "fd=";
	void *memory;
	int file = -1;

	(void)info;
	for (int i = 0; i < argc; i++)
		if (!strncmp(argv[i], key, sizeof(key) - 1))
			file = atoi(argv[i] + sizeof(key) - 1);
	memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (memory == MAP_FAILED)
		return 1;
	counters = memory;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
