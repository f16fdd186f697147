/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Counts what virtual machines make KVM and the scheduler do.
 *
 * One map holds all counts. A key names the VM's process, the thread, a class
 * and two numbers; the value is how often and how long. A key contains the
 * thread that counts, so that no two CPUs add to one value at a time.
 * src/kvm/classes.rs has the same classes.
 *
 * User space names the processes (`vms`) and may name kernel threads that work
 * for them (`threads`). Everything else is left alone, but for interrupts from
 * threads outside any VM, which are counted for process 0.
 *
 * A storm of events would make watching expensive: user space then lets the programs
 * count in a slice of each period only (`gate`), or attaches them for bursts. How
 * long a slice is depends on the load, so what was counted in each has its own
 * weight: the time that it stands for (src/kvm/weighted.rs). What a thread did in one slice
 * says nothing about the next.
 */
#include "tare.bpf.h"
#include "tasks.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum class {
	CLASS_MSR = 1,		/* a: write, b: index */
	CLASS_PORT = 2,		/* a: write, b: port */
	CLASS_MEMORY = 3,	/* a: write, b: page's address */
	CLASS_APIC = 4,		/* a: write, b: register */
	CLASS_CPUID = 5,	/* b: leaf */
	CLASS_HYPERCALL = 6,	/* b: number */
	CLASS_USER = 7,		/* b: reason; -1: signal */
	CLASS_HARDWARE = 8,	/* a: isa, b: reason; ns on a CPU until entry */
	CLASS_VARIOUS = 9,	/* kinds beyond MAX_KINDS */
	CLASS_LINE = 16,	/* a: gsi, or MSI | vector */
	CLASS_LINE_INTERVAL = 17, /* a: the same, b: bucket */
	CLASS_ACCEPT = 18,	/* a: apic id, b: vector */
	CLASS_ACCEPT_INTERVAL = 19, /* a: apic id, b: vector << 32 | bucket */
	CLASS_IPI = 20,		/* a: ICR's mode, shorthand and vector */
	CLASS_PIC = 21,		/* a: pin of the 8259s, b: masked */
	CLASS_HALT = 32,	/* a: valid */
	CLASS_HALT_WAIT = 33,	/* b: bucket */
	CLASS_POLL_SUCCESS = 34,
	CLASS_POLL_WASTED = 35,
	CLASS_ARM_INTERVAL = 36, /* b: bucket */
	CLASS_STEP = 37,	/* a: step, b: bucket */
	CLASS_AWAKE = 38,	/* a: vector that began it, 0: unknown; ns on a CPU */
	CLASS_RUN_DELAY = 48,	/* b: bucket */
	CLASS_PREEMPTED = 49,	/* b: by process */
	CLASS_TAKEN = 50,	/* b: by process; ns that it ran instead */
};

enum step { SEND, KICK, SCHEDULE, RETURN, ENTRY, HANDLER, TOTAL };

#define MSI 0x80000000u
/* Different keys of one VM that its guest may make. */
#define MAX_KINDS 2048
/* A halt that is shorter and never waited did not poll. */
#define SHORTEST_POLL_NS 6000
#define TSC_DEADLINE 0x6e0
#define APIC_INITIAL_COUNT 0x380
#define X2APIC 0x800
#define X2APIC_INITIAL_COUNT 0x838
/* A period of the gate has 2^5 of the kernel's ticks: its clock costs least. */
#define PERIOD_SHIFT 5
#define CLOSED (~0ull)
/* Bursts are numbered from here: no slice of a period has such a number. */
#define FIRST_BURST (1ull << 62)
/* Those of periods are numbered anew from a multiple of this whenever the gate changes. */
#define SETTING_SHIFT 40
/* Ends of slices that are known. */
#define ENDS 64
/* A weight of one, and groups of slices. src/kvm/weighted.rs has the same. */
#define WHOLE (1ull << 10)
#define GROUPS 8
/* A wake-up that takes longer belongs to another interrupt. */
#define LONGEST_SEND_NS 1000000
/* A line that is routed to a message is a line and a message: one interrupt within this time. */
#define SAME_RAISE_NS 50000
/* Lines whose level is known: those of KVM's interrupt controllers, and some more. */
#define LINES 32
/* An interrupt is sent, accepted and wakes its vCPU within this time. */
#define SAME_STEP_NS 50000
#define MAX_CPUS 1024
#define RUN_CPUS 64
#define LINE_WORDS 8

struct key {
	u32 tgid;
	u32 tid;
	u32 class;
	u32 a;
	u64 b;
};

struct value {
	u64 count;
	u64 ns;
	u64 last_ns;		/* of a series: its last event */
	u64 last_slice;
	u64 slice;		/* in which it was last counted */
	u64 weight;		/* of that slice, as the gate had it then */
	u64 count_before;	/* what was counted until that slice */
	u64 ns_before;
	u64 weighted_ns;	/* of slices before that one */
	u64 whole;		/* the same of counts: slices that stand for themselves, */
	u64 groups[GROUPS];	/* and others, by the low bits of their number */
};

/* Set by user space, but for the last slice. src/kvm/slices.rs has the same. */
struct gate {
	u64 open_ticks;		/* of each period; none: all; CLOSED: nothing is counted */
	u64 burst;		/* the slice that is counted while all time is; else what the
				   number of a period is added to */
	u64 slice;		/* the last one that was counted */
	u64 slice_ns;		/* when it began */
	/* The same of the last slice of a period before the gate last changed. */
	u64 old_ticks;
	u64 old_slice;
	u64 old_ns;
	u64 weight;		/* of what is counted now, unless its end says another one */
};

/* A slice that ended by the word of user space: a burst, or what the gate cut short. */
struct end {
	u64 slice;		/* its number, plus one */
	u64 ns;
	u64 weight;
};

struct vm {
	u64 kinds;
	u64 overflowed;
	u32 high[LINES];	/* slice in which a line was raised, plus one; 0: it is low */
};

struct thread {
	u32 tgid;
	u32 wake_stage;
	u64 x2apic;
	u64 off_ns;		/* time off a CPU so far */
	u64 slice;		/* to which the fields below belong */
	u64 out_ns;		/* when it left its CPU; 0 on a CPU */
	u64 ready_ns;		/* since when it could run but does not */
	u64 first_wait_ns;	/* first wait since the last halt ended */
	u64 exit_ns;
	u64 exit_off_ns;
	u32 exit_isa;
	u32 exit_reason;
	u32 detail_class;
	u32 detail_a;
	u64 detail_b;
	u64 armed_ns;
	u64 ipi_ns;		/* as a sender */
	u64 accept_ns;
	u64 wake_ipi_ns;	/* as a target */
	u64 wake_last_ns;
	u64 line_ns;		/* when it last raised a line */
	u32 line_is_new;	/* the line was low before */
	u32 accept_vector;	/* since it last woke a thread */
	u32 waker_vector;	/* what woke it, before its halt ended */
	u32 awake_vector;	/* what began the time awake */
	u64 awake_ns;		/* since when it has been awake; 0 if unknown */
	u64 awake_off_ns;	/* off_ns then */
	u64 wait_off_ns;	/* off_ns when it last began to wait */
	u64 accepted_ns;	/* when accept_vector was */
	u32 cpu;		/* where it waits for the CPU */
	u32 line;		/* the line that it last raised */
	u64 in_ns;		/* since when it has been on a CPU in this slice; 0 if it is not */
	u64 ran_ns;		/* time on a CPU in slices so far, until in_ns */
	u64 runs;		/* of programs in its time in slices so far */
	u64 weight;		/* of this slice, as of a value */
	u64 ran_before;
	u64 runs_before;
	u64 whole_runs;
	u64 weighted_runs;
	u64 whole_ran;
	u64 ran_groups[GROUPS];
};

/* A CPU: who waits for it, and since when its current task runs. */
struct cpu {
	u64 since_ns;
	u64 waiter;		/* thread of an observed VM, or 0 */
};

HASH_MAP(vms, 1024, u32, struct vm);

HASH_MAP(threads, 8192, u32, struct thread);

/* What a thread is before it is known: too large for the stack. */
ARRAY_MAP(unknown_thread, 1, struct thread);

HASH_MAP(counts, 32768, struct key, struct value);

ARRAY_MAP(gate, 1, struct gate);

/*
 * Runs of programs, by the low bits of the CPU's number, each in its own cache line: the
 * kernel counts them only while it measures them.
 */
struct runs {
	u64 of_cpu[RUN_CPUS * LINE_WORDS];
};

ARRAY_MAP(runs, 1, struct runs);

/* By the low bits of the slice's number. */
ARRAY_MAP(ends, ENDS, struct end);

ARRAY_MAP(cpus, MAX_CPUS, struct cpu);

/* Where kvm_exit's record has its fields (tracefs: events/kvm/kvm_exit/format). */
const volatile u32 exit_reason_offset = 8;
const volatile u32 exit_isa_offset = 24;
/* Length of the kernel's tick. */
const volatile u32 tick_ns = 4000000;

/* The slice that is counted now. */
INLINE u64 slice_now(void)
{
	u32 zero = 0;
	u32 cpu = bpf_get_smp_processor_id() & (RUN_CPUS - 1);
	struct runs *all = bpf_map_lookup_elem(&runs, &zero);
	struct gate *it = bpf_map_lookup_elem(&gate, &zero);
	u64 tick, slice;

	if (all)
		all->of_cpu[cpu * LINE_WORDS]++;
	if (!it)
		return 0;
	if (!it->open_ticks)
		return it->burst;
	if (it->open_ticks == CLOSED)
		return CLOSED;
	tick = bpf_jiffies64();
	if ((tick & ((1 << PERIOD_SHIFT) - 1)) >= it->open_ticks)
		return CLOSED;
	slice = it->burst + (tick >> PERIOD_SHIFT);
	if (it->slice != slice) {
		it->slice = slice;
		it->slice_ns = bpf_ktime_get_ns();
	}
	return slice;
}

INLINE u64 slice_of(const struct gate *it)
{
	return it->open_ticks ? it->slice : it->burst;
}

/* What a count of an earlier slice stands for: its end knows better than its beginning did. */
INLINE u64 weight_of(u64 slice, u64 begun)
{
	u32 number = slice % ENDS;
	struct end *end = bpf_map_lookup_elem(&ends, &number);

	if (end && end->slice == slice + 1)
		return end->weight;
	return begun ? begun : WHOLE;
}

/* What was counted in its last slice gets that slice's weight. */
NOINLINE int of_new_slice(struct value *value, u64 slice, u64 weight)
{
	u64 last = weight_of(value->slice, value->weight);
	u64 counted = (value->count - value->count_before) * last;

	value->weighted_ns += (value->ns - value->ns_before) * last;
	if (last > WHOLE)
		value->groups[value->slice & (GROUPS - 1)] += counted;
	else
		value->whole += counted;
	value->count_before = value->count;
	value->ns_before = value->ns;
	value->slice = slice;
	value->weight = weight;
	return 0;
}

INLINE void add(struct value *value, u64 times, u64 ns)
{
	u32 zero = 0;
	struct gate *it = bpf_map_lookup_elem(&gate, &zero);

	if (it && value->slice != slice_of(it))
		of_new_slice(value, slice_of(it), it->weight);
	__sync_fetch_and_add(&value->count, times);
	__sync_fetch_and_add(&value->ns, ns);
}

NOINLINE int insert(const struct key *key, u64 times, u64 ns)
{
	u32 zero = 0;
	struct gate *it = bpf_map_lookup_elem(&gate, &zero);
	struct value fresh = { times, ns };
	struct value *value;

	if (it) {
		fresh.slice = slice_of(it);
		fresh.weight = it->weight;
	}
	if (!bpf_map_update_elem(&counts, key, &fresh, BPF_NOEXIST))
		return 0;
	value = bpf_map_lookup_elem(&counts, key);
	if (value) {
		add(value, times, ns);
		return 0;
	}
	lose(0);
	return 0;
}

/* Counts what the host's side decides: few different keys. */
NOINLINE int count(const struct key *key, u64 ns)
{
	struct value *value = bpf_map_lookup_elem(&counts, key);

	if (value)
		add(value, 1, ns);
	else
		insert(key, 1, ns);
	return 0;
}

/* Counts what the guest chooses: as many different keys as it likes. */
NOINLINE int count_kind(struct key *key, u64 ns)
{
	struct value *value = bpf_map_lookup_elem(&counts, key);
	struct vm *vm;

	if (value) {
		add(value, 1, ns);
		return 0;
	}
	vm = bpf_map_lookup_elem(&vms, &key->tgid);
	if (!vm)
		return 0;
	if (__sync_fetch_and_add(&vm->kinds, 1) >= MAX_KINDS) {
		__sync_fetch_and_add(&vm->overflowed, 1);
		key->class = CLASS_VARIOUS;
		key->a = 0;
		key->b = 0;
		return count(key, ns);
	}
	return insert(key, 1, ns);
}

/* When an earlier slice ended; 0 if that is not known. */
INLINE u64 ended_ns(u64 slice)
{
	u32 zero = 0, number = slice % ENDS;
	struct end *end = bpf_map_lookup_elem(&ends, &number);
	struct gate *it = bpf_map_lookup_elem(&gate, &zero);
	u64 ticks, last, last_ns, ago;

	if (end && end->slice == slice + 1)
		return end->ns;
	/* Those of periods end by the clock. */
	if (!it || slice >= FIRST_BURST)
		return 0;
	ticks = it->old_ticks;
	last = it->old_slice;
	last_ns = it->old_ns;
	if (!ticks || slice > last) {
		ticks = it->open_ticks == CLOSED ? 0 : it->open_ticks;
		last = it->slice;
		last_ns = it->slice_ns;
	}
	if (!ticks || slice > last || slice >> SETTING_SHIFT != last >> SETTING_SHIFT)
		return 0;
	last_ns += ticks * tick_ns;
	ago = ((last - slice) << PERIOD_SHIFT) * tick_ns;
	return ago < last_ns ? last_ns - ago : 0;
}

/* A thread that was on a CPU when its slice ended ran until then. */
NOINLINE int ran_until_closed(struct thread *thread)
{
	u64 end = ended_ns(thread->slice);

	if (end > thread->in_ns)
		thread->ran_ns += end - thread->in_ns;
	thread->in_ns = 0;
	return 0;
}

/* A thread on a CPU that was not seen to enter it has been there since the slice began. */
NOINLINE int runs_since_opened(struct thread *thread)
{
	u32 zero = 0;
	struct gate *it = bpf_map_lookup_elem(&gate, &zero);

	thread->in_ns = it ? it->slice_ns : 0;
	if (!thread->in_ns)
		thread->in_ns = bpf_ktime_get_ns();
	return 0;
}

/* The same as of_new_slice, for the time of a thread on a CPU. */
NOINLINE int ran_in_slice(struct thread *thread)
{
	u32 zero = 0;
	struct gate *it = bpf_map_lookup_elem(&gate, &zero);
	u64 last = weight_of(thread->slice, thread->weight);
	u64 ran = (thread->ran_ns - thread->ran_before) * last;
	u64 runs = (thread->runs - thread->runs_before) * last;

	if (last > WHOLE) {
		thread->ran_groups[thread->slice & (GROUPS - 1)] += ran;
		thread->weighted_runs += runs;
	} else {
		thread->whole_ran += ran;
		thread->whole_runs += runs;
	}
	thread->ran_before = thread->ran_ns;
	thread->runs_before = thread->runs;
	thread->weight = it ? it->weight : WHOLE;
	return 0;
}

/* Forgets what an earlier slice saw. */
INLINE struct thread *of_slice(struct thread *thread, u64 slice)
{
	if (thread->slice == slice)
		return thread;
	if (thread->in_ns)
		ran_until_closed(thread);
	ran_in_slice(thread);
	thread->slice = slice;
	thread->wake_stage = 0;
	thread->out_ns = 0;
	thread->ready_ns = 0;
	thread->first_wait_ns = 0;
	thread->exit_ns = 0;
	thread->detail_class = 0;
	thread->armed_ns = 0;
	thread->ipi_ns = 0;
	thread->accept_ns = 0;
	thread->line_ns = 0;
	thread->accept_vector = 0;
	thread->waker_vector = 0;
	thread->awake_vector = 0;
	thread->awake_ns = 0;
	return thread;
}

/* A thread, if it is of a VM that is observed and has been seen. */
INLINE struct thread *known_thread(const u32 *tid, u64 slice)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, tid);

	return thread ? of_slice(thread, slice) : 0;
}

/* Knows a thread from now on. */
NOINLINE int learn(u32 tid, u32 owner)
{
	u32 zero = 0;
	struct thread *thread = bpf_map_lookup_elem(&unknown_thread, &zero);

	if (!thread || bpf_map_update_elem(&threads, &tid, thread, BPF_NOEXIST))
		return 0;
	thread = bpf_map_lookup_elem(&threads, &tid);
	if (thread)
		thread->tgid = owner;
	return 0;
}

/* The thread that runs now, if it is of a VM that is observed. */
INLINE struct thread *current_in(u64 slice, u32 *tid)
{
	u64 id = bpf_get_current_pid_tgid();
	struct thread *thread;
	u32 tgid = id >> 32;

	*tid = id;
	thread = known_thread(tid, slice);
	if (!thread) {
		if (!bpf_map_lookup_elem(&vms, &tgid))
			return 0;
		learn(*tid, tgid);
		thread = known_thread(tid, slice);
		if (!thread)
			return 0;
	}
	if (!thread->in_ns)
		runs_since_opened(thread);
	thread->runs++;
	return thread;
}

/* The same; none while nothing is counted. */
INLINE struct thread *current_thread(u32 *tid)
{
	u64 slice = slice_now();

	return slice == CLOSED ? 0 : current_in(slice, tid);
}

/* Counts an exit's kind; the first of an exit bears the exit's cost. */
INLINE void kind_of(struct thread *thread, u32 tid, u32 class, u32 a, u64 b)
{
	struct key key = {
		.tgid = thread->tgid, .tid = tid, .class = class, .a = a, .b = b,
	};

	count_kind(&key, 0);
	if (thread->exit_ns && !thread->detail_class) {
		thread->detail_class = key.class;
		thread->detail_a = key.a;
		thread->detail_b = key.b;
	}
}

INLINE void kind(u32 class, u32 a, u64 b)
{
	u32 tid;
	struct thread *thread = current_thread(&tid);

	if (thread)
		kind_of(thread, tid, class, a, b);
}

INLINE void histogram(u32 tgid, u32 tid, u32 class, u32 a, u64 high, u64 ns)
{
	struct key key = {
		.tgid = tgid, .tid = tid, .class = class, .a = a,
		.b = high << 32 | bucket(ns),
	};

	count(&key, ns);
}

/* Counts an event and the time since the last one by the same thread. */
NOINLINE int count_series(const struct key *key, u32 interval_class, u64 slice)
{
	struct value *value = bpf_map_lookup_elem(&counts, key);
	u64 now = bpf_ktime_get_ns();
	u64 last;

	if (!value) {
		insert(key, 1, 0);
		value = bpf_map_lookup_elem(&counts, key);
		if (value) {
			value->last_ns = now;
			value->last_slice = slice;
		}
		return 0;
	}
	add(value, 1, 0);
	last = value->last_ns;
	value->last_ns = now;
	if (value->last_slice != slice)
		value->last_slice = slice;
	else if (last && now > last)
		histogram(key->tgid, key->tid, interval_class, key->a, key->b, now - last);
	return 0;
}

INLINE void timer_armed(struct thread *thread, u32 tid)
{
	u64 now = bpf_ktime_get_ns();

	if (thread->armed_ns)
		histogram(thread->tgid, tid, CLASS_ARM_INTERVAL, 0, 0, now - thread->armed_ns);
	thread->armed_ns = now;
}

SEC("raw_tp/kvm_msr")
int on_kvm_msr(struct raw *ctx)
{
	u32 tid, index = ctx->arg[1], write = ctx->arg[0] & 1;
	struct thread *thread = current_thread(&tid);

	if (!thread)
		return 0;
	kind_of(thread, tid, CLASS_MSR, write, index);
	if ((index & ~0xffu) == X2APIC)
		thread->x2apic = 1;
	if (write && (index == TSC_DEADLINE || index == X2APIC_INITIAL_COUNT))
		timer_armed(thread, tid);
	return 0;
}

SEC("raw_tp/kvm_pio")
int on_kvm_pio(struct raw *ctx)
{
	kind(CLASS_PORT, ctx->arg[0] & 1, (u16)ctx->arg[1]);
	return 0;
}

/* A read that user space has to answer fires twice: first as unsatisfied (0). */
SEC("raw_tp/kvm_mmio")
int on_kvm_mmio(struct raw *ctx)
{
	if ((u32)ctx->arg[0])
		kind(CLASS_MEMORY, (u32)ctx->arg[0] == 2, ctx->arg[2] & ~0xfffull);
	return 0;
}

SEC("raw_tp/kvm_fast_mmio")
int on_kvm_fast_mmio(struct raw *ctx)
{
	kind(CLASS_MEMORY, 1, ctx->arg[0] & ~0xfffull);
	return 0;
}

/* In x2APIC mode kvm_msr fires for the same access, and this comes twice for some. */
SEC("raw_tp/kvm_apic")
int on_kvm_apic(struct raw *ctx)
{
	u32 tid, reg = ctx->arg[1], write = ctx->arg[0] & 1;
	struct thread *thread = current_thread(&tid);

	if (!thread || thread->x2apic)
		return 0;
	kind_of(thread, tid, CLASS_APIC, write, reg);
	if (write && reg == APIC_INITIAL_COUNT)
		timer_armed(thread, tid);
	return 0;
}

SEC("raw_tp/kvm_cpuid")
int on_kvm_cpuid(struct raw *ctx)
{
	kind(CLASS_CPUID, 0, (u32)ctx->arg[0]);
	return 0;
}

SEC("raw_tp/kvm_hypercall")
int on_kvm_hypercall(struct raw *ctx)
{
	kind(CLASS_HYPERCALL, 0, ctx->arg[0]);
	return 0;
}

SEC("raw_tp/kvm_userspace_exit")
int on_kvm_userspace_exit(struct raw *ctx)
{
	kind(CLASS_USER, 0, (s32)ctx->arg[1] < 0 ? (u32)-1 : (u32)ctx->arg[0]);
	return 0;
}

SEC("tracepoint/kvm/kvm_exit")
int on_kvm_exit(void *record)
{
	u32 tid;
	struct thread *thread = current_thread(&tid);

	if (!thread)
		return 0;
	bpf_probe_read_kernel(&thread->exit_reason, 4, record + exit_reason_offset);
	bpf_probe_read_kernel(&thread->exit_isa, 4, record + exit_isa_offset);
	thread->exit_ns = bpf_ktime_get_ns();
	thread->exit_off_ns = thread->off_ns;
	thread->detail_class = 0;
	return 0;
}

INLINE void step(struct thread *thread, u32 tid, u32 which, u64 now)
{
	if (now > thread->wake_last_ns)
		histogram(thread->tgid, tid, CLASS_STEP, which, 0,
			  now - thread->wake_last_ns);
	thread->wake_last_ns = now;
}

/* Ends a wake-up at the last step that was seen. */
INLINE void wake_ends(struct thread *thread, u32 tid)
{
	if (thread->wake_stage > RETURN)
		histogram(thread->tgid, tid, CLASS_STEP, TOTAL, 0,
			  thread->wake_last_ns - thread->wake_ipi_ns);
	thread->wake_stage = 0;
}

SEC("raw_tp/kvm_entry")
int on_kvm_entry(struct raw *ctx)
{
	struct key key = {};
	struct thread *thread = current_thread(&key.tid);
	struct value *detail;
	u64 now, ns;

	if (!thread)
		return 0;
	now = bpf_ktime_get_ns();
	if (thread->wake_stage == ENTRY) {
		step(thread, key.tid, ENTRY, now);
		thread->wake_stage = HANDLER;
	}
	if (!thread->exit_ns)
		return 0;
	ns = now - thread->exit_ns - (thread->off_ns - thread->exit_off_ns);
	key.tgid = thread->tgid;
	key.class = CLASS_HARDWARE;
	key.a = thread->exit_isa;
	key.b = thread->exit_reason;
	count(&key, ns);
	thread->exit_ns = 0;
	if (!thread->detail_class)
		return 0;
	key.class = thread->detail_class;
	key.a = thread->detail_a;
	key.b = thread->detail_b;
	detail = bpf_map_lookup_elem(&counts, &key);
	if (detail)
		__sync_fetch_and_add(&detail->ns, ns);
	return 0;
}

/* An interrupt entered an interrupt controller, on whichever thread. */
INLINE void line(u32 which, u64 slice, struct thread *thread, u32 tid)
{
	struct key key = { .tid = tid, .class = CLASS_LINE, .a = which };

	if (thread)
		key.tgid = thread->tgid;
	count_series(&key, CLASS_LINE_INTERVAL, slice);
}

/*
 * A line is raised when it was low: QEMU raises one below 16 at each of two interrupt
 * controllers, and again while the guest has not yet answered. Any thread may lower it.
 */
SEC("raw_tp/kvm_set_irq")
int on_kvm_set_irq(struct raw *ctx)
{
	u32 tid, gsi = (u32)ctx->arg[0] & ~MSI, mark;
	u64 slice = slice_now();
	struct thread *thread;
	struct vm *vm = 0;

	if (slice == CLOSED)
		return 0;
	mark = slice + 1;
	thread = current_in(slice, &tid);
	if (thread && gsi < LINES)
		vm = bpf_map_lookup_elem(&vms, &thread->tgid);
	if (!(s32)ctx->arg[1]) {
		if (vm)
			vm->high[gsi & (LINES - 1)] = 0;
		if (thread)
			thread->line_is_new = 0;
		return 0;
	}
	if (!thread) {
		line(gsi, slice, thread, tid);
		return 0;
	}
	thread->line_is_new = !vm || vm->high[gsi & (LINES - 1)] != mark;
	if (vm)
		vm->high[gsi & (LINES - 1)] = mark;
	if (!thread->line_is_new)
		return 0;
	thread->line = gsi;
	thread->line_ns = bpf_ktime_get_ns();
	line(gsi, slice, thread, tid);
	return 0;
}

/* Follows kvm_set_irq where the line goes to the 8259s; a pin that is pending merges. */
SEC("raw_tp/kvm_pic_set_irq")
int on_kvm_pic_set_irq(struct raw *ctx)
{
	u32 chip = (u8)ctx->arg[0], pin = (u8)ctx->arg[1], mask = (u8)ctx->arg[3];
	struct key key = { .class = CLASS_PIC, .a = (chip & 1) << 3 | (pin & 7) };
	struct thread *thread = current_thread(&key.tid);

	if (!thread || !thread->line_is_new)
		return 0;
	thread->line_is_new = 0;
	key.tgid = thread->tgid;
	key.b = mask >> (pin & 7) & 1;
	count(&key, 0);
	return 0;
}

SEC("raw_tp/kvm_msi_set_irq")
int on_kvm_msi_set_irq(struct raw *ctx)
{
	u64 slice = slice_now();
	struct thread *thread;
	struct vm *vm;
	u32 tid;

	if (slice == CLOSED)
		return 0;
	thread = current_in(slice, &tid);
	if (thread && bpf_ktime_get_ns() - thread->line_ns < SAME_RAISE_NS) {
		/* The line that was counted is routed to this message, and has no level. */
		thread->line_ns = 0;
		vm = bpf_map_lookup_elem(&vms, &thread->tgid);
		if (vm)
			vm->high[thread->line & (LINES - 1)] = 0;
		return 0;
	}
	line(MSI | (u8)ctx->arg[1], slice, thread, tid);
	return 0;
}

SEC("raw_tp/kvm_apic_ipi")
int on_kvm_apic_ipi(struct raw *ctx)
{
	struct key key = { .class = CLASS_IPI, .a = (u32)ctx->arg[0] & 0xc07ff };
	struct thread *thread = current_thread(&key.tid);

	if (!thread)
		return 0;
	key.tgid = thread->tgid;
	count(&key, 0);
	thread->ipi_ns = bpf_ktime_get_ns();
	thread->accept_ns = 0;
	return 0;
}

SEC("raw_tp/kvm_apic_accept_irq")
int on_kvm_apic_accept_irq(struct raw *ctx)
{
	struct key key = { .class = CLASS_ACCEPT, .a = (u32)ctx->arg[0], .b = (u8)ctx->arg[3] };
	u64 slice = slice_now(), now;
	struct thread *thread;

	if (slice == CLOSED)
		return 0;
	thread = current_in(slice, &key.tid);
	if (thread) {
		key.tgid = thread->tgid;
		now = bpf_ktime_get_ns();
		thread->accept_vector = key.b;
		thread->accepted_ns = now;
		if (now - thread->ipi_ns > SAME_STEP_NS && thread->awake_ns &&
		    !thread->awake_vector)
			thread->awake_vector = key.b;
		if (thread->ipi_ns)
			thread->accept_ns = now;
	}
	count_series(&key, CLASS_ACCEPT_INTERVAL, slice);
	return 0;
}

INLINE void end_of_interrupt(u32 vector)
{
	u32 tid;
	struct thread *thread = current_thread(&tid);

	if (!thread)
		return;
	if (thread->awake_ns && !thread->awake_vector)
		thread->awake_vector = vector;
	if (thread->wake_stage < ENTRY)
		return;
	step(thread, tid, HANDLER, bpf_ktime_get_ns());
	wake_ends(thread, tid);
}

/* apic, vector (-1: none was in service). */
SEC("raw_tp/kvm_eoi")
int on_kvm_eoi(struct raw *ctx)
{
	end_of_interrupt((s32)ctx->arg[1] < 0 ? 0 : (u8)ctx->arg[1]);
	return 0;
}

SEC("raw_tp/kvm_pv_eoi")
int on_kvm_pv_eoi(struct raw *ctx)
{
	end_of_interrupt((u8)ctx->arg[1]);
	return 0;
}

/*
 * The time on a CPU since the last halt ended belongs to the interrupt that ended
 * it. A thread that began to wait in this halt had run until then.
 */
INLINE void was_awake(struct thread *thread, u32 tid, u64 began)
{
	struct key key = {
		.tgid = thread->tgid, .tid = tid, .class = CLASS_AWAKE,
		.a = thread->awake_vector,
	};
	u64 off = thread->first_wait_ns ? thread->wait_off_ns : thread->off_ns;
	u64 length, away;

	if (!thread->awake_ns || began <= thread->awake_ns)
		return;
	length = began - thread->awake_ns;
	away = off - thread->awake_off_ns;
	count(&key, length > away ? length - away : 0);
}

/*
 * A halt ended after arg[0] ns; arg[1]: it waited, arg[2]: the guest has work.
 * It began arg[0] ago, and what lies between that and its first wait is polling.
 */
SEC("raw_tp/kvm_vcpu_wakeup")
int on_kvm_vcpu_wakeup(struct raw *ctx)
{
	struct key key = { .class = CLASS_HALT, .a = ctx->arg[2] & 1 };
	struct thread *thread = current_thread(&key.tid);
	u64 ns = ctx->arg[0], now, began;

	if (!thread)
		return 0;
	now = bpf_ktime_get_ns();
	began = now - ns;
	was_awake(thread, key.tid, began);
	thread->awake_ns = now;
	thread->awake_off_ns = thread->off_ns;
	thread->awake_vector = thread->waker_vector;
	thread->waker_vector = 0;
	key.tgid = thread->tgid;
	count(&key, ns);
	histogram(key.tgid, key.tid, CLASS_HALT_WAIT, 0, 0, ns);
	key.a = 0;
	if (!(ctx->arg[1] & 1)) {
		key.class = CLASS_POLL_SUCCESS;
		if (ns >= SHORTEST_POLL_NS)
			count(&key, ns);
	} else if (thread->first_wait_ns > began + SHORTEST_POLL_NS) {
		key.class = CLASS_POLL_WASTED;
		count(&key, thread->first_wait_ns - began);
	}
	thread->first_wait_ns = 0;
	if (thread->wake_stage == RETURN) {
		step(thread, key.tid, RETURN, now);
		thread->wake_stage = ENTRY;
	}
	return 0;
}

/* The CPU that the scheduler last chose for a task. */
INLINE u32 where(const struct task_struct *task)
{
	int cpu = 0;

	READ_FIELD(cpu, task, wake_cpu);
	return cpu;
}

INLINE void waits_for(struct thread *thread, u32 tid, u32 number)
{
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &number);

	thread->cpu = number;
	if (cpu)
		cpu->waiter = tid;
}

SEC("raw_tp/sched_waking")
int on_sched_waking(struct raw *ctx)
{
	const struct task_struct *task = (void *)ctx->arg[0];
	struct thread *target, *sender;
	u64 now, slice = slice_now();
	u32 tid = 0, sender_tid;

	if (slice == CLOSED)
		return 0;
	READ_FIELD(tid, task, pid);
	target = known_thread(&tid, slice);
	if (!target || !target->out_ns)
		return 0;
	now = bpf_ktime_get_ns();
	target->ready_ns = now;
	waits_for(target, tid, where(task));
	sender = current_in(slice, &sender_tid);
	if (!sender || sender->tgid != target->tgid)
		return 0;
	if (!target->waker_vector && now - sender->accepted_ns < SAME_STEP_NS)
		target->waker_vector = sender->accept_vector;
	sender->accept_vector = 0;
	if (!sender->accept_ns)
		return 0;
	if (now - sender->ipi_ns > LONGEST_SEND_NS)
		return 0;
	wake_ends(target, tid);
	target->wake_ipi_ns = sender->ipi_ns;
	target->wake_last_ns = sender->ipi_ns;
	step(target, tid, SEND, sender->accept_ns);
	step(target, tid, KICK, now);
	target->wake_stage = SCHEDULE;
	sender->ipi_ns = 0;
	sender->accept_ns = 0;
	return 0;
}

INLINE void leaves(struct thread *thread, u32 tid, const struct task_struct *next,
		   u32 number, u32 could_run)
{
	struct key key = { .tgid = thread->tgid, .tid = tid, .class = CLASS_PREEMPTED };
	u32 next_tgid = 0;
	u64 now;

	if (!thread->in_ns)
		runs_since_opened(thread);
	now = bpf_ktime_get_ns();
	if (now > thread->in_ns)
		thread->ran_ns += now - thread->in_ns;
	thread->in_ns = 0;
	thread->out_ns = now;
	thread->ready_ns = 0;
	if (!could_run) {
		if (!thread->first_wait_ns)
			thread->first_wait_ns = now;
		thread->wait_off_ns = thread->off_ns;
		return;
	}
	thread->ready_ns = now;
	waits_for(thread, tid, number);
	READ_FIELD(next_tgid, next, tgid);
	key.b = next_tgid;
	count(&key, 0);
}

/*
 * The task that leaves this CPU ran while a thread of a VM waited for it. Without one that
 * waits the clock need not be read: who waits next is ready from then on.
 */
INLINE void charge(struct cpu *cpu, u32 number, const struct task_struct *prev, u64 slice)
{
	struct key key = { .class = CLASS_TAKEN };
	u32 waiter = cpu->waiter, tgid = 0;
	u64 now, since = cpu->since_ns;
	struct thread *thread;

	if (!waiter)
		return;
	thread = known_thread(&waiter, slice);
	if (!thread || !thread->ready_ns || thread->cpu != number) {
		cpu->waiter = 0;
		return;
	}
	now = bpf_ktime_get_ns();
	cpu->since_ns = now;
	if (since < thread->ready_ns)
		since = thread->ready_ns;
	if (now <= since)
		return;
	READ_FIELD(tgid, prev, tgid);
	key.tgid = thread->tgid;
	key.tid = waiter;
	key.b = tgid;
	count(&key, now - since);
}

INLINE void enters(struct thread *thread, u32 tid)
{
	u64 now = bpf_ktime_get_ns();

	thread->in_ns = now;
	if (thread->out_ns)
		thread->off_ns += now - thread->out_ns;
	thread->out_ns = 0;
	if (thread->ready_ns)
		histogram(thread->tgid, tid, CLASS_RUN_DELAY, 0, 0, now - thread->ready_ns);
	thread->ready_ns = 0;
	if (thread->wake_stage == SCHEDULE) {
		step(thread, tid, SCHEDULE, now);
		thread->wake_stage = RETURN;
	}
}

/* preempt, prev, next, prev_state (the last since Linux 5.18). */
SEC("raw_tp/sched_switch")
int on_sched_switch(struct raw *ctx)
{
	const struct task_struct *prev = (void *)ctx->arg[1];
	const struct task_struct *next = (void *)ctx->arg[2];
	/* The task that leaves is still the current one. */
	u32 prev_tid = bpf_get_current_pid_tgid(), next_tid = 0;
	u32 number = bpf_get_smp_processor_id();
	u64 slice = slice_now();
	struct thread *thread;
	struct cpu *cpu;

	if (slice == CLOSED)
		return 0;
	READ_FIELD(next_tid, next, pid);
	cpu = bpf_map_lookup_elem(&cpus, &number);
	if (cpu)
		charge(cpu, number, prev, slice);
	thread = known_thread(&prev_tid, slice);
	if (thread)
		leaves(thread, prev_tid, next, number, (ctx->arg[0] & 1) || !ctx->arg[3]);
	thread = known_thread(&next_tid, slice);
	if (thread)
		enters(thread, next_tid);
	return 0;
}

INLINE void counted_time(const struct thread *thread, struct task_record *to)
{
	to->slice = thread->slice;
	to->in_ns = thread->in_ns;
	to->ran_ns = thread->ran_ns;
	to->runs = thread->runs;
	to->weight = thread->weight;
	to->ran_before = thread->ran_before;
	to->runs_before = thread->runs_before;
	to->whole_runs = thread->whole_runs;
	to->weighted_runs = thread->weighted_runs;
	to->whole_ran = thread->whole_ran;
	__builtin_memcpy(to->ran_groups, thread->ran_groups, sizeof(to->ran_groups));
}

/* Once for each task of the host, whenever user space reads the iterator. */
SEC("iter/task")
int on_task(struct bpf_iter__task *ctx)
{
	struct task_struct___whole *task = ctx->task;
	struct task_record record = {};
	struct thread *thread;
	u32 *owner, tgid, tid;

	if (!task)
		return 0;
	tgid = task->tgid;
	owner = bpf_map_lookup_elem(&owners, &tgid);
	if (!owner)
		return 0;
	read_task(task, *owner, &record);
	tid = record.tid;
	thread = bpf_map_lookup_elem(&threads, &tid);
	if (!thread)
		learn(tid, *owner);
	else
		counted_time(thread, &record);
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
