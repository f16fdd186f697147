/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Where the time of chosen threads goes: stretches on a CPU, and stretches off
 * one by the system call that waits (what cpudist and offcputime tell).
 *
 * User space puts threads into `threads`, each with the group it counts for;
 * what they fork belongs to the same group. A key of `counts` is group, class,
 * what was waited in, bucket; src/sched/ has the same classes and codes.
 */
#include "tare.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum class {
	CLASS_ON = 1,		/* stretches on a CPU */
	CLASS_OFF = 2,		/* what: where it waited */
	CLASS_READY = 3,	/* waits for a CPU */
	CLASS_VOLUNTARY = 4,
	CLASS_INVOLUNTARY = 5,
	CLASS_MIGRATION = 6,
	CLASS_THREAD = 7,	/* threads begun */
};

/* What a thread waits in: a system call's number, or one of these. */
#define WHAT_KVM_RUN 0x10000u
#define WHAT_FAULT 0x10001u
#define WHAT_KERNEL 0x10002u
#define WHAT_IO 0x20000u	/* added: the wait is for a disk */

#define NR_IOCTL 16
#define KVM_RUN 0xae80
#define PF_KTHREAD 0x00200000
#define NO_CPU 0xffffffffu

/* Fields found by name in the running kernel. */
struct task_struct___wait {
	unsigned int flags;
	unsigned int in_iowait : 1;
} __attribute__((preserve_access_index));

struct pt_regs {
	unsigned long r11;
	unsigned long cx;
	unsigned long si;
	unsigned long orig_ax;
	unsigned long ip;
} __attribute__((preserve_access_index));

static void *(*bpf_get_current_task_btf)(void) = (void *)158;
static void *(*bpf_task_pt_regs)(void *task) = (void *)175;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;

struct key {
	u32 group;
	u32 class;
	u32 what;
	u32 bucket;
};

struct value {
	u64 count;
	u64 ns;
};

struct thread {
	u32 group;
	u32 what;
	u64 out_ns;		/* since when it is off a CPU; 0 on one */
	u64 ready_ns;		/* since when it could run but does not */
	u64 in_ns;		/* since when it is on a CPU; 0 off one */
	u64 cpu;		/* where it ran last */
};

HASH_MAP(threads, 16384, u64, struct thread);

HASH_MAP(counts, 32768, struct key, struct value);

NOINLINE int count(const struct key *key, u64 ns)
{
	struct value *value = bpf_map_lookup_elem(&counts, key);
	struct value fresh = {};

	if (!value) {
		bpf_map_update_elem(&counts, key, &fresh, BPF_NOEXIST);
		value = bpf_map_lookup_elem(&counts, key);
	}
	if (!value) {
		lose(0);
		return 0;
	}
	__sync_fetch_and_add(&value->count, 1);
	__sync_fetch_and_add(&value->ns, ns);
	return 0;
}

INLINE void stretch(u32 group, u32 class, u32 what, u64 from, u64 to)
{
	struct key key = { .group = group, .class = class, .what = what };

	if (!from || to < from)
		return;
	key.bucket = bucket(to - from);
	count(&key, to - from);
}

INLINE void event(u32 group, u32 class)
{
	struct key key = { .group = group, .class = class };

	count(&key, 0);
}

/* One bit of a bit field, wherever this kernel has it. */
INLINE u32 waits_for_disk(const void *task)
{
	const struct task_struct___wait *fields = task;
	u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(u32),
			      task + __builtin_preserve_field_info(fields->in_iowait, 0));
	word <<= __builtin_preserve_field_info(fields->in_iowait, 4);
	word >>= __builtin_preserve_field_info(fields->in_iowait, 5);
	return word & 1;
}

/* What the current thread, which leaves its CPU, waits in. */
NOINLINE u32 waits_in(const void *prev)
{
	const struct task_struct___wait *task = prev;
	const struct pt_regs *regs;
	unsigned long number = 0, ip = 0, cx = 1, si = 0;
	u32 flags = 0, io;

	READ_FIELD(flags, task, flags);
	if (flags & PF_KTHREAD)
		return WHAT_KERNEL;
	io = waits_for_disk(prev) ? WHAT_IO : 0;
	regs = bpf_task_pt_regs(bpf_get_current_task_btf());
	READ_FIELD(ip, regs, ip);
	READ_FIELD(cx, regs, cx);
	/* SYSCALL puts the return address into RCX; a fault does not. */
	if (ip != cx)
		return WHAT_FAULT | io;
	READ_FIELD(number, regs, orig_ax);
	READ_FIELD(si, regs, si);
	if (number == NR_IOCTL && si == KVM_RUN)
		return WHAT_KVM_RUN | io;
	return (number & 0xffff) | io;
}

INLINE void leaves(struct thread *thread, const void *prev, u32 could_run)
{
	u64 now = bpf_ktime_get_ns();

	stretch(thread->group, CLASS_ON, 0, thread->in_ns, now);
	thread->in_ns = 0;
	thread->out_ns = now;
	thread->ready_ns = could_run ? now : 0;
	event(thread->group, could_run ? CLASS_INVOLUNTARY : CLASS_VOLUNTARY);
	if (!could_run)
		thread->what = waits_in(prev);
}

INLINE void enters(struct thread *thread)
{
	u64 now = bpf_ktime_get_ns();
	u64 cpu = bpf_get_smp_processor_id();
	u64 ready = thread->ready_ns;

	if (ready) {
		stretch(thread->group, CLASS_READY, 0, ready, now);
		if (ready > thread->out_ns)
			stretch(thread->group, CLASS_OFF, thread->what, thread->out_ns, ready);
	} else {
		stretch(thread->group, CLASS_OFF, thread->what, thread->out_ns, now);
	}
	if (thread->cpu != cpu && (u32)thread->cpu != NO_CPU)
		event(thread->group, CLASS_MIGRATION);
	thread->cpu = cpu;
	thread->out_ns = 0;
	thread->ready_ns = 0;
	thread->in_ns = now;
}

/* What is known of a task, if it is observed, and its key. */
INLINE struct thread *thread_of(const struct task_struct *task, u64 *key)
{
	u32 tid = 0;

	READ_FIELD(tid, task, pid);
	*key = tid;
	return bpf_map_lookup_elem(&threads, key);
}

/* preempt, prev, next, prev_state (the last since Linux 5.18). */
SEC("raw_tp/sched_switch")
int on_sched_switch(struct raw *ctx)
{
	const struct task_struct *prev = (void *)ctx->arg[1];
	const struct task_struct *next = (void *)ctx->arg[2];
	struct thread *thread;
	u64 key;

	thread = thread_of(prev, &key);
	if (thread)
		leaves(thread, prev, (ctx->arg[0] & 1) || !ctx->arg[3]);
	thread = thread_of(next, &key);
	if (thread)
		enters(thread);
	return 0;
}

SEC("raw_tp/sched_waking")
int on_sched_waking(struct raw *ctx)
{
	const struct task_struct *task = (void *)ctx->arg[0];
	u64 key;
	struct thread *thread = thread_of(task, &key);

	if (thread && thread->out_ns && !thread->ready_ns)
		thread->ready_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("raw_tp/sched_process_fork")
int on_sched_process_fork(struct raw *ctx)
{
	const struct task_struct *parent = (void *)ctx->arg[0];
	const struct task_struct *child = (void *)ctx->arg[1];
	struct thread fresh = { .cpu = NO_CPU };
	u64 key;
	struct thread *thread = thread_of(parent, &key);
	u32 tid = 0;

	if (!thread)
		return 0;
	fresh.group = thread->group;
	fresh.out_ns = fresh.ready_ns = bpf_ktime_get_ns();
	READ_FIELD(tid, child, pid);
	key = tid;
	event(fresh.group, CLASS_THREAD);
	if (bpf_map_update_elem(&threads, &key, &fresh, BPF_ANY))
		lose(0);
	return 0;
}

SEC("raw_tp/sched_process_exit")
int on_sched_process_exit(struct raw *ctx)
{
	const struct task_struct *task = (void *)ctx->arg[0];
	u64 key;
	struct thread *thread = thread_of(task, &key);

	if (!thread)
		return 0;
	stretch(thread->group, CLASS_ON, 0, thread->in_ns, bpf_ktime_get_ns());
	bpf_map_delete_elem(&threads, &key);
	return 0;
}
