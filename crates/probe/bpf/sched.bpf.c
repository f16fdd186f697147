/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Where the time of chosen threads goes: stretches on a CPU, and stretches off
 * one by the system call that waits (what cpudist and offcputime show).
 *
 * User space puts threads into `threads`, each with the group it counts for;
 * what they fork belongs to the same group. src/sched/ has the same classes,
 * codes and keys. Programs are typed (tp_btf), so that fields are read by plain
 * loads, and a switch of a watched thread costs as few look-ups as its stretches:
 * that it was stopped, or moved, is in the class of the stretch.
 */
#include "tare.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum class {
	CLASS_ON_WAITS = 1,	/* stretches on a CPU that end by waiting, */
	CLASS_ON_STOPPED = 2,	/* ... although it could have run on, */
	CLASS_ON_ENDS = 3,	/* ... with the thread */
	CLASS_OFF = 4,		/* what: where it waited */
	CLASS_READY = 5,	/* waits for a CPU, the one where it ran last, */
	CLASS_READY_MOVED = 6,	/* ... or another */
	CLASS_MOVED = 7,	/* it moved, and when it was ready is not known */
	CLASS_THREAD = 8,	/* threads begun */
	CLASS_CHARGE = 9,	/* CPU time was charged to the thread's control groups */
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

/* A bit field of one word, wherever this kernel has it. */
#define BIT_FIELD(pointer, field) ({ \
	const void *word_ = (const void *)(pointer) + \
		__builtin_preserve_field_info((pointer)->field, 0); \
	u64 bits_ = *(const u32 *)word_; \
	bits_ <<= __builtin_preserve_field_info((pointer)->field, 4); \
	bits_ >> __builtin_preserve_field_info((pointer)->field, 5); \
})

struct pt_regs {
	unsigned long r11;
	unsigned long cx;
	unsigned long si;
	unsigned long orig_ax;
	unsigned long ip;
} __attribute__((preserve_access_index));

static void *(*bpf_get_current_task_btf)(void) = (void *)158;
static void *(*bpf_task_pt_regs)(void *task) = (void *)175;

/* Bits of a key: group from 36, class from 32, what from 12, bucket. */
#define KEY_GROUP 36
#define KEY_CLASS 32
#define KEY_WHAT 12

struct value {
	u64 count;
	u64 ns;
};

/* What a thread did since it last found other stretches here. */
struct recent {
	u64 key;
	u64 count;
	u64 ns;
};

/*
 * A thread's latest stretches by kind and by the lowest bits of their bucket. Most
 * stretches of a thread are alike: they are counted here, in what is at hand, and
 * brought to `counts` together.
 */
#define RECENT_ON 0
#define RECENT_OFF 8
#define RECENT_READY 16
#define RECENTS 24

struct thread {
	u32 group;
	u32 what;
	u64 out_ns;		/* since when it is off a CPU; 0 on one */
	u64 ready_ns;		/* since when it could run but does not */
	u64 in_ns;		/* since when it is on a CPU; 0 off one */
	u64 cpu;		/* where it ran last */
	struct recent recent[RECENTS];
};

HASH_MAP(threads, 16384, u64, struct thread);

/* Zeros: a thread is larger than a program's stack. */
ARRAY_MAP(blank, 1, struct thread);

HASH_MAP(counts, 32768, u64, struct value);

NOINLINE int count(u64 key, u64 times, u64 ns)
{
	struct value *value = bpf_map_lookup_elem(&counts, &key);
	struct value fresh = {};

	if (!value) {
		bpf_map_update_elem(&counts, &key, &fresh, BPF_NOEXIST);
		value = bpf_map_lookup_elem(&counts, &key);
	}
	if (!value) {
		lose(0);
		return 0;
	}
	__sync_fetch_and_add(&value->count, times);
	__sync_fetch_and_add(&value->ns, ns);
	return 0;
}

INLINE u64 key_of(u32 group, u64 class, u64 what)
{
	return (u64)group << KEY_GROUP | class << KEY_CLASS | what << KEY_WHAT;
}

INLINE void bring(struct recent *recent)
{
	if (recent->count)
		count(recent->key, recent->count, recent->ns);
}

INLINE void stretch(struct thread *thread, u32 kind, u32 class, u32 what, u64 from, u64 to)
{
	struct recent *recent;
	u64 key, ns = to - from;

	if (!from || to < from)
		return;
	key = key_of(thread->group, class, what) | bucket(ns);
	recent = &thread->recent[kind + (key & 7)];
	if (recent->key != key) {
		bring(recent);
		recent->key = key;
		recent->count = 0;
		recent->ns = 0;
	}
	recent->count++;
	recent->ns += ns;
}

/* What the current thread, which leaves its CPU, waits in. */
INLINE u32 waits_in(const struct task_struct *prev)
{
	const struct task_struct___wait *task = (const void *)prev;
	const struct pt_regs *regs;
	u32 io;

	if (task->flags & PF_KTHREAD)
		return WHAT_KERNEL;
	io = BIT_FIELD(task, in_iowait) ? WHAT_IO : 0;
	regs = bpf_task_pt_regs(bpf_get_current_task_btf());
	/* SYSCALL puts the return address into RCX; a fault does not. */
	if (regs->ip != regs->cx)
		return WHAT_FAULT | io;
	if (regs->orig_ax == NR_IOCTL && regs->si == KVM_RUN)
		return WHAT_KVM_RUN | io;
	return (regs->orig_ax & 0xffff) | io;
}

INLINE void leaves(struct thread *thread, const struct task_struct *prev, u32 could_run, u64 now)
{
	stretch(thread, RECENT_ON, could_run ? CLASS_ON_STOPPED : CLASS_ON_WAITS, 0,
		thread->in_ns, now);
	thread->in_ns = 0;
	thread->out_ns = now;
	thread->ready_ns = could_run ? now : 0;
	if (!could_run)
		thread->what = waits_in(prev);
}

INLINE void enters(struct thread *thread, u64 now)
{
	u64 cpu = bpf_get_smp_processor_id();
	u64 ready = thread->ready_ns, waited = ready ? ready : now;
	u32 moved = thread->cpu != cpu && (u32)thread->cpu != NO_CPU;

	if (ready)
		stretch(thread, RECENT_READY, moved ? CLASS_READY_MOVED : CLASS_READY, 0,
			ready, now);
	else if (moved)
		count(key_of(thread->group, CLASS_MOVED, 0), 1, 0);
	if (waited > thread->out_ns)
		stretch(thread, RECENT_OFF, CLASS_OFF, thread->what, thread->out_ns, waited);
	thread->cpu = cpu;
	thread->out_ns = 0;
	thread->ready_ns = 0;
	thread->in_ns = now;
}

/* What is known of a task, if it is observed. Idle tasks never are. */
INLINE struct thread *thread_of(const struct task_struct *task)
{
	u64 key = (u32)task->pid;

	return key ? bpf_map_lookup_elem(&threads, &key) : 0;
}

/* preempt, prev, next, prev_state (the last since Linux 5.18). */
SEC("tp_btf/sched_switch")
int on_sched_switch(struct raw *ctx)
{
	const struct task_struct *prev = (void *)ctx->arg[1];
	const struct task_struct *next = (void *)ctx->arg[2];
	struct thread *thread = thread_of(prev);
	u64 now = 0;

	if (thread) {
		now = bpf_ktime_get_ns();
		leaves(thread, prev, (ctx->arg[0] & 1) || !ctx->arg[3], now);
	}
	thread = thread_of(next);
	if (thread)
		enters(thread, now ? now : bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_waking")
int on_sched_waking(struct raw *ctx)
{
	struct thread *thread = thread_of((void *)ctx->arg[0]);

	if (thread && thread->out_ns && !thread->ready_ns)
		thread->ready_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_process_fork")
int on_sched_process_fork(struct raw *ctx)
{
	const struct task_struct *parent = (void *)ctx->arg[0];
	const struct task_struct *child = (void *)ctx->arg[1];
	struct thread *thread = thread_of(parent), *fresh;
	u64 key = (u32)child->pid;
	u32 group, zero = 0;

	if (!thread)
		return 0;
	group = thread->group;
	count(key_of(group, CLASS_THREAD, 0), 1, 0);
	fresh = bpf_map_lookup_elem(&blank, &zero);
	if (!fresh || bpf_map_update_elem(&threads, &key, fresh, BPF_ANY)) {
		lose(0);
		return 0;
	}
	fresh = bpf_map_lookup_elem(&threads, &key);
	if (!fresh)
		return 0;
	/* The child has not run yet. */
	fresh->group = group;
	fresh->cpu = NO_CPU;
	fresh->out_ns = fresh->ready_ns = bpf_ktime_get_ns();
	return 0;
}

/*
 * task, runtime. The scheduler passes here each time before it charges a task's control groups
 * (update_se() in kernel/sched/fair.c, before Linux 6.16 update_curr()). Not typed, so that it
 * can be detached: it is attached only while charges are counted.
 */
SEC("raw_tp/sched_stat_runtime")
int on_sched_stat_runtime(struct raw *ctx)
{
	const struct task_struct *task = (void *)ctx->arg[0];
	struct thread *thread;
	u64 key;
	int pid = 0;

	READ_FIELD(pid, task, pid);
	key = (u32)pid;
	thread = key ? bpf_map_lookup_elem(&threads, &key) : 0;
	if (thread)
		count(key_of(thread->group, CLASS_CHARGE, 0), 1, 0);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int on_sched_process_exit(struct raw *ctx)
{
	const struct task_struct *task = (void *)ctx->arg[0];
	struct thread *thread = thread_of(task);
	u64 key = (u32)task->pid;

	if (!thread)
		return 0;
	stretch(thread, RECENT_ON, CLASS_ON_ENDS, 0, thread->in_ns, bpf_ktime_get_ns());
	for (u32 i = 0; i < RECENTS; i++)
		bring(&thread->recent[i]);
	bpf_map_delete_elem(&threads, &key);
	return 0;
}
