/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * What every BPF program of Tare needs of the kernel: types, helpers by number
 * (include/uapi/linux/bpf.h), map declarations, and those fields of the kernel's
 * structs that are read. Fields are found by name in the running kernel's BTF
 * when a program is loaded (CO-RE), so no kernel header is needed.
 */
#ifndef TARE_BPF_H
#define TARE_BPF_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))

/* Map declarations in BTF (libbpf's convention). */
#define MAP_UINT(name, value) int(*name)[value]
#define MAP_TYPE(name, value) typeof(value) *name
#define HASH_MAP(name, entries, key_type, value_type) \
	struct { \
		MAP_UINT(type, BPF_MAP_TYPE_HASH); \
		MAP_UINT(max_entries, entries); \
		MAP_TYPE(key, key_type); \
		MAP_TYPE(value, value_type); \
	} name SEC(".maps")
#define ARRAY_MAP(name, entries, value_type) \
	struct { \
		MAP_UINT(type, BPF_MAP_TYPE_ARRAY); \
		MAP_UINT(max_entries, entries); \
		MAP_TYPE(key, u32); \
		MAP_TYPE(value, value_type); \
	} name SEC(".maps")
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_PERCPU_HASH 5
#define BPF_MAP_TYPE_LRU_HASH 9
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_ANY 0
#define BPF_NOEXIST 1

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value,
				   u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*bpf_get_current_comm)(void *buffer, u32 size) = (void *)16;
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static u64 (*bpf_jiffies64)(void) = (void *)118;

struct task_struct {
	int pid;
	int tgid;
	int wake_cpu;
} __attribute__((preserve_access_index));

/* Reads one field of a kernel struct; `to` is a variable. */
#define READ_FIELD(to, pointer, field) \
	bpf_probe_read_kernel(&(to), sizeof(to), \
			      __builtin_preserve_access_index(&(pointer)->field))

/* The arguments of a raw trace point. */
struct raw {
	u64 arg[12];
};

/* How much was not counted for want of room, by what it was. */
ARRAY_MAP(lost, 8, u64);

INLINE void lose(u32 what)
{
	u64 *count = bpf_map_lookup_elem(&lost, &what);

	if (count)
		__sync_fetch_and_add(count, 1);
}

/*
 * The bucket of a time: eight for each doubling. The same rule, with its
 * tests, is in crates/account/src/histogram.rs.
 */
INLINE u32 bucket(u64 ns)
{
	u32 octave = 0;
	u64 rest = ns;

	if (ns < 8)
		return ns;
	if (rest >> 32) { octave += 32; rest >>= 32; }
	if (rest >> 16) { octave += 16; rest >>= 16; }
	if (rest >> 8) { octave += 8; rest >>= 8; }
	if (rest >> 4) { octave += 4; rest >>= 4; }
	if (rest >> 2) { octave += 2; rest >>= 2; }
	if (rest >> 1) octave += 1;
	return ((octave - 2) << 3) + ((ns >> (octave - 3)) & 7);
}

#endif
