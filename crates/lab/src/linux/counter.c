/*
 * Counts the instructions that QEMU's translator executes, one counter for
 * addresses of user space and firmware, one for the kernel's half (bit 63 set),
 * into a file that whoever started QEMU reads meanwhile.
 *
 * The declarations are QEMU's plugin interface, version 1
 * (docs/devel/tcg-plugins.rst); Debian has no package with its header.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))
#define PAGE 4096
#define ADD_U64 0

typedef uint64_t plugin_id;
struct qemu_info;
struct block;
struct instruction;

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct block *));
size_t qemu_plugin_tb_n_insns(const struct block *);
struct instruction *qemu_plugin_tb_get_insn(const struct block *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct instruction *);
void qemu_plugin_register_vcpu_insn_exec_inline(struct instruction *, int, void *, uint64_t);

EXPORT int qemu_plugin_version = 1;
static uint64_t *counters;

static void translated(plugin_id id, struct block *block)
{
	size_t count = qemu_plugin_tb_n_insns(block);

	(void)id;
	for (size_t i = 0; i < count; i++) {
		struct instruction *insn = qemu_plugin_tb_get_insn(block, i);
		uint64_t *counter = &counters[qemu_plugin_insn_vaddr(insn) >> 63];

		qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD_U64, counter, 1);
	}
}

EXPORT int qemu_plugin_install(plugin_id id, const struct qemu_info *info, int argc, char **argv)
{
	static const char key[] = "into=";
	void *memory;
	int file = -1;

	(void)info;
	for (int i = 0; i < argc; i++)
		if (!strncmp(argv[i], key, sizeof(key) - 1))
			file = open(argv[i] + sizeof(key) - 1, O_RDWR | O_CLOEXEC);
	if (file < 0)
		return 1;
	memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (memory == MAP_FAILED)
		return 1;
	counters = memory;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
