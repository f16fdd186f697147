/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Counts the system calls of followed tasks and of all that descend from them.
 *
 * User space puts tasks into `tasks`; fork adds children, exit removes tasks.
 * What is frequent is counted here: calls by number on each CPU (`calls`; trace
 * points run with preemption off, so a plain addition is exact), errors, uses of
 * numbers that select features. What is rare goes through `records`: tasks that
 * end or change their name, programs, the first opening of a file. Single calls
 * go through `single_calls` on request. src/syscalls/{record,calls}.rs have the layouts.
 *
 * Two runs for each call are paid by the application, so they do little: registers
 * are loaded where they lie, and what was like the last time is one addition. Calls
 * of the kernel's functions cost most, so a task is found without any (`slots`).
 */
#include "tare.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_F_NO_PREALLOC 1
#define BPF_RB_NO_WAKEUP 1

static long (*bpf_probe_read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*bpf_probe_read_user_str)(void *to, u32 size, const void *from) = (void *)114;
static long (*bpf_probe_read_kernel_str)(void *to, u32 size, const void *from) = (void *)115;
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;
static long (*bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;
static void *(*bpf_ringbuf_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*bpf_ringbuf_submit)(void *data, u64 flags) = (void *)132;
static void (*bpf_ringbuf_discard)(void *data, u64 flags) = (void *)133;

#define MAX_CALLS 512
#define SLOTS 16384
#define NUMBERS 65536
/* Kernel stacks begin at multiples of 1 << 14. */
#define STACK_SHIFT 14
#define FASTEST 30
#define BUCKETS 30
/* 32-bit calls have other numbers: they are counted as one; so are numbers of no call. */
#define FOREIGN (MAX_CALLS - 1)
#define UNKNOWN (MAX_CALLS - 2)
#define USER_CS 0x33
#define TS_COMPAT 2
#define MAX_ERRNO 4095
#define PATH_BYTES 512
#define PREFIX_BYTES 64
#define AT_FDCWD ((u32)-100)

enum number {
	NR_OPEN = 2, NR_STAT = 4, NR_LSTAT = 6, NR_MMAP = 9, NR_IOCTL = 16, NR_ACCESS = 21,
	NR_SOCKET = 41, NR_CONNECT = 42, NR_BIND = 49, NR_SOCKETPAIR = 53,
	NR_SETSOCKOPT = 54, NR_GETSOCKOPT = 55,
	NR_CLONE = 56, NR_FORK = 57, NR_VFORK = 58, NR_EXECVE = 59, NR_FCNTL = 72,
	NR_TRUNCATE = 76,
	NR_CHDIR = 80, NR_RENAME = 82, NR_MKDIR = 83, NR_RMDIR = 84, NR_CREAT = 85,
	NR_LINK = 86, NR_UNLINK = 87, NR_SYMLINK = 88, NR_READLINK = 89,
	NR_CHMOD = 90, NR_CHOWN = 92, NR_LCHOWN = 94, NR_UTIME = 132, NR_MKNOD = 133,
	NR_STATFS = 137, NR_PRCTL = 157,
	NR_ARCH_PRCTL = 158, NR_CHROOT = 161, NR_MOUNT = 165, NR_SETXATTR = 188,
	NR_LSETXATTR = 189, NR_GETXATTR = 191,
	NR_LGETXATTR = 192, NR_LISTXATTR = 194, NR_LLISTXATTR = 195,
	NR_REMOVEXATTR = 197, NR_LREMOVEXATTR = 198, NR_UTIMES = 235,
	NR_INOTIFY_ADD_WATCH = 254, NR_OPENAT = 257, NR_MKDIRAT = 258, NR_MKNODAT = 259,
	NR_FCHOWNAT = 260, NR_FUTIMESAT = 261, NR_NEWFSTATAT = 262, NR_UNLINKAT = 263,
	NR_RENAMEAT = 264, NR_LINKAT = 265, NR_SYMLINKAT = 266, NR_READLINKAT = 267,
	NR_FCHMODAT = 268, NR_FACCESSAT = 269, NR_UNSHARE = 272, NR_UTIMENSAT = 280,
	NR_NAME_TO_HANDLE_AT = 303, NR_RENAMEAT2 = 316,
	NR_EXECVEAT = 322, NR_STATX = 332, NR_OPEN_TREE = 428, NR_FSOPEN = 430,
	NR_CLONE3 = 435, NR_OPENAT2 = 437, NR_FACCESSAT2 = 439, NR_FCHMODAT2 = 452,
};

/* What was asked of a path that was found: bits of a record's mode. */
enum asked {
	ASKED_ACCESS = 1, ASKED_CHANGE = 2, ASKED_ENTER = 4, ASKED_EXECUTE = 8,
	ASKED_LINK = 16, ASKED_LIST = 32, ASKED_OPEN = 64, ASKED_STAT = 128,
	ASKED_WRITE = 256,
};

/* What becomes of a task's calls and children. */
enum role {
	COUNTS = 0,
	WAITS_FOR_EXEC = 1,	/* counts from its next execve on */
	STARTS_OTHERS = 2,	/* the observer: its children wait for execve */
};

enum lost { LOST_RECORDS, LOST_LOG, LOST_TASKS, LOST_USES, LOST_KINDS };

enum use {
	USE_SOCKET = 1, USE_OPTION, USE_IOCTL, USE_CLONE, USE_PRCTL, USE_ARCH_PRCTL,
	USE_CONGESTION, USE_ULP, USE_OPEN, USE_MMAP, USE_FCNTL,
};

/* What a call asks for by its arguments. */
enum asks {
	ASKS_NOTHING, ASKS_SOCKET, ASKS_OPTION, ASKS_IOCTL, ASKS_CLONE, ASKS_CLONE3,
	ASKS_FORK, ASKS_VFORK, ASKS_UNSHARE, ASKS_PRCTL, ASKS_ARCH_PRCTL, ASKS_OPEN,
	ASKS_OPENAT, ASKS_PATH, ASKS_PATHAT, ASKS_SECOND, ASKS_THIRD, ASKS_TWO,
	ASKS_TWOAT, ASKS_ADDRESS, ASKS_MOUNT, ASKS_FSOPEN, ASKS_MMAP, ASKS_FCNTL,
};

static const u8 asks[MAX_CALLS] = {
	[NR_SOCKET] = ASKS_SOCKET, [NR_SOCKETPAIR] = ASKS_SOCKET,
	[NR_SETSOCKOPT] = ASKS_OPTION, [NR_GETSOCKOPT] = ASKS_OPTION,
	[NR_IOCTL] = ASKS_IOCTL, [NR_CLONE] = ASKS_CLONE, [NR_CLONE3] = ASKS_CLONE3,
	[NR_FORK] = ASKS_FORK, [NR_VFORK] = ASKS_VFORK, [NR_UNSHARE] = ASKS_UNSHARE,
	[NR_PRCTL] = ASKS_PRCTL, [NR_ARCH_PRCTL] = ASKS_ARCH_PRCTL,
	[NR_MMAP] = ASKS_MMAP, [NR_FCNTL] = ASKS_FCNTL,
	[NR_OPEN] = ASKS_OPEN, [NR_CREAT] = ASKS_OPEN,
	[NR_OPENAT] = ASKS_OPENAT, [NR_OPENAT2] = ASKS_OPENAT,
	[NR_STAT] = ASKS_PATH, [NR_LSTAT] = ASKS_PATH, [NR_ACCESS] = ASKS_PATH,
	[NR_READLINK] = ASKS_PATH, [NR_STATFS] = ASKS_PATH, [NR_CHDIR] = ASKS_PATH,
	[NR_NEWFSTATAT] = ASKS_PATHAT, [NR_READLINKAT] = ASKS_PATHAT,
	[NR_FACCESSAT] = ASKS_PATHAT, [NR_FACCESSAT2] = ASKS_PATHAT,
	[NR_STATX] = ASKS_PATHAT, [NR_MOUNT] = ASKS_MOUNT, [NR_FSOPEN] = ASKS_FSOPEN,
	[NR_TRUNCATE] = ASKS_PATH, [NR_MKDIR] = ASKS_PATH, [NR_RMDIR] = ASKS_PATH,
	[NR_UNLINK] = ASKS_PATH, [NR_MKNOD] = ASKS_PATH, [NR_UTIME] = ASKS_PATH,
	[NR_UTIMES] = ASKS_PATH, [NR_SETXATTR] = ASKS_PATH, [NR_LSETXATTR] = ASKS_PATH,
	[NR_REMOVEXATTR] = ASKS_PATH, [NR_LREMOVEXATTR] = ASKS_PATH,
	[NR_CHMOD] = ASKS_PATH, [NR_CHOWN] = ASKS_PATH, [NR_LCHOWN] = ASKS_PATH,
	[NR_CHROOT] = ASKS_PATH, [NR_GETXATTR] = ASKS_PATH, [NR_LGETXATTR] = ASKS_PATH,
	[NR_LISTXATTR] = ASKS_PATH, [NR_LLISTXATTR] = ASKS_PATH,
	[NR_INOTIFY_ADD_WATCH] = ASKS_SECOND, [NR_MKDIRAT] = ASKS_PATHAT,
	[NR_FCHOWNAT] = ASKS_PATHAT, [NR_MKNODAT] = ASKS_PATHAT,
	[NR_UNLINKAT] = ASKS_PATHAT, [NR_FUTIMESAT] = ASKS_PATHAT,
	[NR_FCHMODAT] = ASKS_PATHAT, [NR_FCHMODAT2] = ASKS_PATHAT,
	[NR_UTIMENSAT] = ASKS_PATHAT, [NR_NAME_TO_HANDLE_AT] = ASKS_PATHAT,
	[NR_OPEN_TREE] = ASKS_PATHAT, [NR_SYMLINK] = ASKS_SECOND,
	[NR_SYMLINKAT] = ASKS_THIRD, [NR_LINK] = ASKS_TWO, [NR_RENAME] = ASKS_TWO,
	[NR_LINKAT] = ASKS_TWOAT, [NR_RENAMEAT] = ASKS_TWOAT,
	[NR_RENAMEAT2] = ASKS_TWOAT, [NR_BIND] = ASKS_ADDRESS,
	[NR_CONNECT] = ASKS_ADDRESS,
};

/* What calls with a path ask of it; of an opened file, its flags tell. */
static const u16 asked[MAX_CALLS] = {
	[NR_STAT] = ASKED_STAT, [NR_LSTAT] = ASKED_STAT, [NR_NEWFSTATAT] = ASKED_STAT,
	[NR_STATX] = ASKED_STAT, [NR_STATFS] = ASKED_STAT, [NR_GETXATTR] = ASKED_STAT,
	[NR_LGETXATTR] = ASKED_STAT, [NR_LISTXATTR] = ASKED_STAT,
	[NR_LLISTXATTR] = ASKED_STAT, [NR_INOTIFY_ADD_WATCH] = ASKED_STAT,
	[NR_ACCESS] = ASKED_ACCESS, [NR_FACCESSAT] = ASKED_ACCESS,
	[NR_FACCESSAT2] = ASKED_ACCESS, [NR_READLINK] = ASKED_LINK,
	[NR_READLINKAT] = ASKED_LINK, [NR_CHDIR] = ASKED_ENTER, [NR_CHROOT] = ASKED_ENTER,
	[NR_TRUNCATE] = ASKED_CHANGE, [NR_MKDIR] = ASKED_CHANGE,
	[NR_MKDIRAT] = ASKED_CHANGE, [NR_LINK] = ASKED_CHANGE, [NR_LINKAT] = ASKED_CHANGE,
	[NR_RENAME] = ASKED_CHANGE, [NR_RENAMEAT] = ASKED_CHANGE,
	[NR_RENAMEAT2] = ASKED_CHANGE, [NR_SYMLINK] = ASKED_CHANGE,
	[NR_SYMLINKAT] = ASKED_CHANGE, [NR_UNLINK] = ASKED_CHANGE,
	[NR_UNLINKAT] = ASKED_CHANGE, [NR_RMDIR] = ASKED_CHANGE,
	[NR_MKNOD] = ASKED_CHANGE, [NR_MKNODAT] = ASKED_CHANGE,
	[NR_UTIME] = ASKED_CHANGE, [NR_UTIMES] = ASKED_CHANGE,
	[NR_FUTIMESAT] = ASKED_CHANGE, [NR_SETXATTR] = ASKED_CHANGE,
	[NR_LSETXATTR] = ASKED_CHANGE, [NR_REMOVEXATTR] = ASKED_CHANGE,
	[NR_LREMOVEXATTR] = ASKED_CHANGE, [NR_BIND] = ASKED_CHANGE,
	[NR_CONNECT] = ASKED_WRITE, [NR_NAME_TO_HANDLE_AT] = ASKED_STAT,
	[NR_OPEN_TREE] = ASKED_STAT,
	[NR_CHMOD] = ASKED_CHANGE, [NR_FCHMODAT] = ASKED_CHANGE,
	[NR_FCHMODAT2] = ASKED_CHANGE,
	[NR_CHOWN] = ASKED_CHANGE, [NR_LCHOWN] = ASKED_CHANGE,
	[NR_FCHOWNAT] = ASKED_CHANGE, [NR_UTIMENSAT] = ASKED_CHANGE,
};

enum kind { KIND_TASK = 1, KIND_PROGRAM, KIND_OPEN, KIND_PATH, KIND_MOUNT, KIND_LOOKUP };

enum end { RENAMED, ENDED };

#define AF_UNIX 1
#define IPPROTO_TCP 6
#define TCP_CONGESTION 13
#define TCP_ULP 31
#define O_ACCMODE 3
#define O_PATH 010000000
#define S_IFMT 0170000
#define S_IFDIR 0040000
#define PR_SET_NAME 15
#define CSIGNAL 0xff
#define CLONE_VM 0x100
#define CLONE_VFORK 0x4000

struct task {
	u32 tgid;
	u32 role;
	u64 enter_ns;		/* 0 outside a call */
	u64 calls;
	u32 number;
	u32 program;
	u64 made[MAX_CALLS / 64];	/* calls made under this name */
	char comm[16];
	u64 arg[6];		/* for the log only */
	u64 place;		/* 1 + the slot that has its state since; 0 for none */
};

/* A followed task that calls. */
struct slot {
	u64 stack;		/* name of its kernel stack; 0 if the slot is free */
	u64 tid;
	struct task task;
};

struct use_key {
	u32 kind;
	u32 a;
	u32 b;
	u32 c;
};

struct call {
	u64 count;
	u64 varies;		/* a bit for each argument */
	u64 first[6];
	u64 total_ns;
	u64 longest_ns;
	u64 kept;		/* how many of the fastest there are */
	u64 slowest_kept;	/* place of the longest among them */
	u64 bound_ns;		/* it, once all places are taken */
	u64 error;		/* the last error, and how often it is not in `errors` */
	u64 error_count;
	struct use_key use;	/* the last use, and how often it is not in `uses` */
	u64 use_count;
	u64 fastest_ns[FASTEST];
	u64 histogram[BUCKETS];
};

struct file_key {
	u64 device;
	u64 inode;
};

struct task_record {
	u32 kind;
	u32 end;
	u32 tid;
	u32 tgid;
	u64 calls;
	u64 made[MAX_CALLS / 64];
	u32 program;
	u32 unused;
	char comm[16];
};

struct path_record {
	u32 kind;
	u32 tid;
	u32 tgid;
	u32 what;		/* program: its number; else the directory's descriptor */
	u64 device;
	u64 inode;		/* of a look-up: of the directory that the path begins in */
	u64 mode;		/* i_mode; of a mount: its flags; of a look-up: enum asked */
	char file_system[16];
	char path[PATH_BYTES];
};

struct log_record {
	u64 enter_ns;
	u64 ns;
	u32 tid;
	u32 number;
	s64 result;
	u64 arg[6];
	char comm[16];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 65536);
	MAP_UINT(map_flags, BPF_F_NO_PREALLOC);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct task);
} tasks SEC(".maps");

/*
 * State of followed tasks by their kernel stack, which the address of the registers
 * tells: the kernel finds an element of an array without a function call. A task takes
 * a slot at the first call that counts; if another task has it, it stays in `tasks`.
 */
ARRAY_MAP(slots, SLOTS, struct slot);

/*
 * Whether a task whose number ends in these bits was ever followed; if not, there is
 * nothing to look for in `tasks`. Never reset, since user space writes here too.
 */
ARRAY_MAP(numbers, NUMBERS, u64);

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_UINT(max_entries, MAX_CALLS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct call);
} calls SEC(".maps");

/* Runs that are in no call's count. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} other_runs SEC(".maps");

HASH_MAP(errors, 8192, u64, u64);	/* call << 32 | error */

HASH_MAP(uses, 8192, struct use_key, u64);

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 65536);
	MAP_UINT(map_flags, BPF_F_NO_PREALLOC);
	MAP_TYPE(key, struct file_key);
	MAP_TYPE(value, u64);
} files SEC(".maps");

/* What was asked of paths so far: the key is their text's and their directory's. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 65536);
	MAP_UINT(map_flags, BPF_F_NO_PREALLOC);
	MAP_TYPE(key, struct file_key);
	MAP_TYPE(value, u64);
} lookups SEC(".maps");

/* Room for a path, as words, so that eight bytes are hashed at once. */
struct text {
	u64 words[PATH_BYTES / 8];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct text);
} texts SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_RINGBUF);
	MAP_UINT(max_entries, 4 << 20);
} records SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_RINGBUF);
	MAP_UINT(max_entries, 16 << 20);
} single_calls SEC(".maps");

/* Whether single calls are wanted. */
const volatile u32 logging = 0;

u32 programs = 1;

/* Fields that are read, by name. */
struct file_system_type {
	const char *name;
} __attribute__((preserve_access_index));

struct super_block {
	u32 s_dev;
	struct file_system_type *s_type;
} __attribute__((preserve_access_index));

struct inode {
	u16 i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
} __attribute__((preserve_access_index));

struct file {
	struct inode *f_inode;
	u32 f_flags;
} __attribute__((preserve_access_index));

struct dentry {
	struct inode *d_inode;
} __attribute__((preserve_access_index));

struct path {
	struct dentry *dentry;
} __attribute__((preserve_access_index));

struct fs_struct {
	struct path pwd;
} __attribute__((preserve_access_index));

struct thread_info {
	u32 status;
} __attribute__((preserve_access_index));

struct task_struct___status {
	struct thread_info thread_info;
} __attribute__((preserve_access_index));

struct fdtable {
	u32 max_fds;
	struct file **fd;
} __attribute__((preserve_access_index));

struct files_struct {
	struct fdtable *fdt;
} __attribute__((preserve_access_index));

struct task_struct___files {
	struct files_struct *files;
	struct fs_struct *fs;
} __attribute__((preserve_access_index));

struct linux_binprm {
	struct file *file;
	const char *filename;
	const char *interp;
} __attribute__((preserve_access_index));

/* struct pt_regs of x86-64, which is the same in every kernel; cs has 16 bits. */
struct registers {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip;
	u16 cs;
	u64 flags;
};

/* Where the state of a task in `tasks` is. */
INLINE struct task *state_of(struct task *listed)
{
	struct slot *slot;
	u32 index;

	if (!listed || !listed->place)
		return listed;
	index = listed->place - 1;
	slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot)
		return 0;
	/* Or clang adds before it tests, which verifiers refuse. */
	asm volatile("" : "+r"(slot));
	return &slot->task;
}

/* A task in `tasks`; most tasks of a host are not there. */
INLINE struct task *listed_task(u32 tid)
{
	u32 index = tid & (NUMBERS - 1);
	u64 *followed = bpf_map_lookup_elem(&numbers, &index);

	if (!followed || !*followed)
		return 0;
	return bpf_map_lookup_elem(&tasks, &tid);
}

/* Puts a task into `tasks`. */
INLINE void list_task(u32 tid, const struct task *task)
{
	u32 index = tid & (NUMBERS - 1);
	u64 *followed = bpf_map_lookup_elem(&numbers, &index);

	if (followed)
		*followed = 1;
	if (bpf_map_update_elem(&tasks, &tid, task, BPF_ANY))
		lose(LOST_TASKS);
}

/*
 * A name of the kernel stack that holds these registers, unique while its task lives:
 * they lie at the same place of each stack. Never 0. The difference to any fixed
 * address has the verifier take a pointer as a number, without a function call.
 */
INLINE u64 stack_name(const struct registers *regs)
{
	u64 name;

	asm volatile("%0 = %1\n\t%0 -= %2" : "=&r"(name) : "r"(regs), "r"(&programs));
	return name;
}

INLINE struct slot *slot_of(u64 stack)
{
	u32 index = (stack >> STACK_SHIFT) & (SLOTS - 1);

	return bpf_map_lookup_elem(&slots, &index);
}

/* The state of the current task, which is not in this slot: it moves there if it can. */
INLINE struct task *take(struct slot *slot, u64 stack, u32 tid)
{
	struct task *listed = listed_task(tid);

	if (!listed || listed->place)
		return state_of(listed);
	if (listed->role != COUNTS || __sync_val_compare_and_swap(&slot->stack, 0, stack))
		return listed;
	slot->tid = tid;
	slot->task = *listed;
	listed->place = 1 + ((stack >> STACK_SHIFT) & (SLOTS - 1));
	return &slot->task;
}

/* Counts a run that is about no call of a followed task. */
INLINE int other_run(void)
{
	u32 zero = 0;
	u64 *runs = bpf_map_lookup_elem(&other_runs, &zero);

	if (runs)
		++*runs;
	return 0;
}

/* Reports to user space who made which calls, and forgets which. */
NOINLINE int flush(struct task *task, u32 tid, u32 end)
{
	struct task_record *record;

	if (!task)
		return 0;
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		lose(LOST_RECORDS);
		return 0;
	}
	record->kind = KIND_TASK;
	record->end = end;
	record->tid = tid;
	record->tgid = task->tgid;
	record->calls = task->calls;
	record->program = task->program;
	record->unused = 0;
	for (int i = 0; i < MAX_CALLS / 64; i++) {
		record->made[i] = task->made[i];
		task->made[i] = 0;
	}
	__builtin_memcpy(record->comm, task->comm, sizeof(record->comm));
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Whether the call that runs is one of the 32-bit table. */
INLINE int is_compat(const struct registers *regs)
{
	struct task_struct___status *task;

	/* 32-bit code has its segment, `int $0x80` of 64-bit code the 32-bit table. */
	if (regs->cs != USER_CS)
		return 1;
	/* `syscall` copies the address and the flags there; with FRED it does not. */
	if (regs->cx == regs->ip && regs->r11 == regs->flags)
		return 0;
	task = (void *)bpf_get_current_task_btf();
	return task->thread_info.status & TS_COMPAT;
}

INLINE void count(struct call *call, const struct registers *regs)
{
	u64 varies = call->varies;

	if (call->count++ == 0) {
		call->first[0] = regs->di;
		call->first[1] = regs->si;
		call->first[2] = regs->dx;
		call->first[3] = regs->r10;
		call->first[4] = regs->r8;
		call->first[5] = regs->r9;
		return;
	}
	varies |= call->first[0] != regs->di;
	varies |= (call->first[1] != regs->si) << 1;
	varies |= (call->first[2] != regs->dx) << 2;
	varies |= (call->first[3] != regs->r10) << 3;
	varies |= (call->first[4] != regs->r8) << 4;
	varies |= (call->first[5] != regs->r9) << 5;
	call->varies = varies;
}

SEC("tp_btf/sys_enter")
int on_sys_enter(struct raw *ctx)
{
	struct registers *regs = (void *)ctx->arg[0];
	u64 number = ctx->arg[1], stack = stack_name(regs);
	struct slot *slot = slot_of(stack);
	struct call *call;
	struct task *task;
	u32 index;

	if (!slot)
		return 0;
	if (slot->stack == stack)
		task = &slot->task;
	else
		task = take(slot, stack, bpf_get_current_task_btf()->pid);
	if (!task || task->role == STARTS_OTHERS)
		return other_run();
	if (task->role == WAITS_FOR_EXEC) {
		if (number != NR_EXECVE && number != NR_EXECVEAT)
			return other_run();
		task->role = COUNTS;
	}
	if (is_compat(regs))
		number = FOREIGN;
	else if (number >= UNKNOWN)
		number = UNKNOWN;
	index = number;
	call = bpf_map_lookup_elem(&calls, &index);
	if (!call)
		return 0;
	count(call, regs);
	if (logging) {
		/* execve leaves other registers. */
		task->arg[0] = regs->di;
		task->arg[1] = regs->si;
		task->arg[2] = regs->dx;
		task->arg[3] = regs->r10;
		task->arg[4] = regs->r8;
		task->arg[5] = regs->r9;
	}
	task->number = index;
	task->calls++;
	task->made[(index >> 6) & 7] |= 1ULL << (index & 63);
	task->enter_ns = bpf_ktime_get_ns();
	return 0;
}

INLINE u32 octave(u64 ns)
{
	u32 octave = 0;

	if (ns >> 32) return BUCKETS - 1;
	if (ns >> 16) { octave += 16; ns >>= 16; }
	if (ns >> 8) { octave += 8; ns >>= 8; }
	if (ns >> 4) { octave += 4; ns >>= 4; }
	if (ns >> 2) { octave += 2; ns >>= 2; }
	if (ns >> 1) octave += 1;
	return octave < BUCKETS ? octave : BUCKETS - 1;
}

/*
 * Keeps the time if it is among the fastest of this CPU. Inline, since as a separate
 * function the loop has too many states for verifiers before Linux 6.5.
 */
INLINE void keep(struct call *call, u64 ns)
{
	u64 place = call->kept;
	u64 worst = 0;

	if (place >= FASTEST) {
		if (ns >= call->bound_ns)
			return;
		place = call->slowest_kept;
		if (place >= FASTEST)
			return;
	} else {
		call->kept++;
	}
	call->fastest_ns[place] = ns;
	if (call->kept < FASTEST)
		return;
	place = 0;
	for (int i = 0; i < FASTEST; i++) {
		if (call->fastest_ns[i] > worst) {
			worst = call->fastest_ns[i];
			place = i;
		}
	}
	call->slowest_kept = place;
	call->bound_ns = worst;
}

INLINE void time(struct call *call, u64 ns)
{
	u32 bucket = octave(ns);

	keep(call, ns);
	if (ns > call->longest_ns)
		call->longest_ns = ns;
	call->total_ns += ns;
	if (bucket < BUCKETS)
		call->histogram[bucket]++;
}

/* Adds to a count in a map; without room it is lost as `what`. */
INLINE void add(void *map, const void *key, u64 more, u32 what)
{
	u64 *count = bpf_map_lookup_elem(map, key);
	u64 none = 0;

	if (!count) {
		bpf_map_update_elem(map, key, &none, BPF_NOEXIST);
		count = bpf_map_lookup_elem(map, key);
	}
	if (count)
		__sync_fetch_and_add(count, more);
	else
		lose(what);
}

NOINLINE int fail(struct call *call, u32 number, u64 error)
{
	u64 key = (u64)number << 32;

	if (!call)
		return 0;
	if (call->error == error) {
		call->error_count++;
		return 0;
	}
	key |= call->error;
	if (call->error_count)
		add(&errors, &key, call->error_count, LOST_KINDS);
	call->error = error;
	call->error_count = 1;
	return 0;
}

NOINLINE int use(struct call *call, u32 kind, u32 a, u32 b, u32 c)
{
	struct use_key last;

	if (!call)
		return 0;
	last = call->use;
	if (last.kind == kind && last.a == a && last.b == b && last.c == c) {
		call->use_count++;
		return 0;
	}
	if (call->use_count)
		add(&uses, &last, call->use_count, LOST_USES);
	call->use = (struct use_key){ kind, a, b, c };
	call->use_count = 1;
	return 0;
}

/* Counts a file; 1 if it is seen for the first time. */
INLINE int first_sight(const struct file_key *key)
{
	u64 *count = bpf_map_lookup_elem(&files, key);
	u64 one = 1;

	if (count) {
		__sync_fetch_and_add(count, 1);
		return 0;
	}
	if (bpf_map_update_elem(&files, key, &one, BPF_NOEXIST) == 0)
		return 1;
	/* Another CPU was first, or the map is full. */
	count = bpf_map_lookup_elem(&files, key);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		lose(LOST_KINDS);
	return 0;
}

/* Device and number of an inode. */
INLINE void identify_inode(struct inode *inode, struct file_key *key)
{
	struct super_block *super = 0;
	unsigned long number = 0;
	u32 device = 0;

	READ_FIELD(number, inode, i_ino);
	READ_FIELD(super, inode, i_sb);
	READ_FIELD(device, super, s_dev);
	key->device = device;
	key->inode = number;
}

/* Device and number of a file's inode. */
INLINE void identify(struct file *file, struct file_key *key)
{
	struct inode *inode = 0;

	READ_FIELD(inode, file, f_inode);
	identify_inode(inode, key);
}

/* Type of the file system that a file is on, its device, number and mode. */
INLINE void describe(struct file *file, struct path_record *record)
{
	struct file_system_type *type = 0;
	struct super_block *super = 0;
	struct inode *inode = 0;
	struct file_key key;
	const char *name = 0;
	u16 mode = 0;

	identify(file, &key);
	READ_FIELD(inode, file, f_inode);
	READ_FIELD(mode, inode, i_mode);
	READ_FIELD(super, inode, i_sb);
	READ_FIELD(type, super, s_type);
	READ_FIELD(name, type, name);
	record->device = key.device;
	record->inode = key.inode;
	record->mode = mode;
	bpf_probe_read_kernel_str(record->file_system, sizeof(record->file_system), name);
}

INLINE struct file *opened(u32 descriptor)
{
	struct task_struct___files *task = (void *)bpf_get_current_task_btf();
	struct files_struct *files = 0;
	struct fdtable *table = 0;
	struct file **array = 0, *file = 0;
	u32 size = 0;

	READ_FIELD(files, task, files);
	READ_FIELD(table, files, fdt);
	READ_FIELD(size, table, max_fds);
	READ_FIELD(array, table, fd);
	if (descriptor >= size)
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), array + descriptor);
	return file;
}

/*
 * Process and thread in one number: verifiers follow a function once, not again for each
 * map that the state of a task may be in.
 */
INLINE u64 who_is(const struct task *task, u32 tid)
{
	return (u64)task->tgid << 32 | tid;
}

/* A record about a task, still empty; none, and counted as lost, without room. */
INLINE struct path_record *begin_record(u64 who, u32 kind)
{
	struct path_record *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

	if (!record) {
		lose(LOST_RECORDS);
		return 0;
	}
	record->kind = kind;
	record->tid = who;
	record->tgid = who >> 32;
	record->what = 0;
	record->device = 0;
	record->inode = 0;
	record->mode = 0;
	record->file_system[0] = 0;
	record->path[0] = 0;
	return record;
}

NOINLINE int on_open(u64 who, u32 descriptor, u32 directory, u64 path)
{
	struct path_record *record;
	struct file_key key;
	struct file *file;

	file = opened(descriptor);
	identify(file, &key);
	if (!first_sight(&key))
		return 0;
	record = begin_record(who, KIND_OPEN);
	if (!record)
		return 0;
	record->what = directory;
	describe(file, record);
	bpf_probe_read_user_str(record->path, sizeof(record->path), (void *)path);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

/* The directory that a relative path begins in. */
INLINE void identify_base(u32 directory, struct file_key *key)
{
	struct task_struct___files *task = (void *)bpf_get_current_task_btf();
	struct fs_struct *fs = 0;
	struct dentry *dentry = 0;
	struct inode *inode = 0;

	if (directory != AT_FDCWD) {
		identify(opened(directory), key);
		return;
	}
	READ_FIELD(fs, task, fs);
	READ_FIELD(dentry, fs, pwd.dentry);
	READ_FIELD(inode, dentry, d_inode);
	identify_inode(inode, key);
}

/* Whether a path lies in /proc, /sys or /dev, which are the kernel's. */
INLINE int is_kernel_dir(const char *path)
{
	char end;

	if (path[1] == 'p' && path[2] == 'r' && path[3] == 'o' && path[4] == 'c')
		end = path[5];
	else if ((path[1] == 's' && path[2] == 'y' && path[3] == 's') ||
		 (path[1] == 'd' && path[2] == 'e' && path[3] == 'v'))
		end = path[4];
	else
		return 0;
	return end == 0 || end == '/';
}

/* A hash of a path and of the directory it begins in. */
INLINE u64 hash_path(const struct text *text, u32 bytes)
{
	u64 hash = 0xcbf29ce484222325ULL;

	for (u32 i = 0; i < PATH_BYTES / 8; i++) {
		if (i * 8 >= bytes)
			break;
		hash = (hash ^ text->words[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 32;
	}
	return hash;
}

/* A path was found; user space hears of it once for each thing that was asked. */
NOINLINE int on_lookup(u64 who, u32 directory, u64 path, u64 asked)
{
	struct path_record *record;
	struct file_key base = {}, key;
	struct text *text;
	u64 *known;
	u32 zero = 0, bytes;
	long read;

	text = bpf_map_lookup_elem(&texts, &zero);
	if (!text)
		return 0;
	read = bpf_probe_read_user_str(text->words, PATH_BYTES, (void *)path);
	/* An empty path is about a descriptor. */
	if (read < 2 || read > PATH_BYTES)
		return 0;
	bytes = read;
	if ((u8)text->words[0] != '/') {
		identify_base(directory, &base);
		if (asked == ASKED_ENTER) {
			/* The task is there already. */
			text->words[0] = '.';
			bytes = 2;
		}
	} else if (is_kernel_dir((char *)text->words)) {
		return 0;
	}
	if (bytes & 7)
		text->words[((bytes - 1) >> 3) & 63] &= (1ULL << ((bytes & 7) * 8)) - 1;
	key.device = base.device * 0x9e3779b97f4a7c15ULL ^ base.inode;
	key.inode = hash_path(text, bytes);
	known = bpf_map_lookup_elem(&lookups, &key);
	if (known) {
		if ((*known & asked) == asked)
			return 0;
		*known |= asked;
	} else if (bpf_map_update_elem(&lookups, &key, &asked, BPF_ANY)) {
		lose(LOST_KINDS);
		return 0;
	}
	record = begin_record(who, KIND_LOOKUP);
	if (!record)
		return 0;
	record->what = directory;
	record->device = base.device;
	record->inode = base.inode;
	record->mode = asked;
	bpf_probe_read_kernel_str(record->path, sizeof(record->path), text->words);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

/* What was asked of a file by opening it. */
INLINE u64 asked_of_opened(u32 descriptor)
{
	struct file *file = opened(descriptor);
	struct inode *inode = 0;
	u16 mode = 0;
	u32 flags = 0;

	READ_FIELD(inode, file, f_inode);
	READ_FIELD(mode, inode, i_mode);
	READ_FIELD(flags, file, f_flags);
	if (flags & O_PATH)
		return ASKED_STAT;
	if ((mode & S_IFMT) == S_IFDIR)
		return ASKED_LIST;
	return flags & O_ACCMODE ? ASKED_WRITE : ASKED_OPEN;
}

INLINE int is_kernel_path(const char *path)
{
	if (path[0] != '/')
		return 0;
	if (path[1] == 'p' && path[2] == 'r' && path[3] == 'o' && path[4] == 'c')
		return 1;
	if (path[1] == 's' && path[2] == 'y' && path[3] == 's')
		return 1;
	return path[1] == 'd' && path[2] == 'e' && path[3] == 'v';
}

/* A name below /proc, /sys or /dev that was looked at without being opened. */
NOINLINE int on_path(u64 who, u64 path)
{
	struct path_record *record;
	struct file_key key = { ~0ULL, 0xcbf29ce484222325ULL };
	char begin[PREFIX_BYTES] = {};

	/* Most names are others, and are not read to their end. */
	if (bpf_probe_read_user(begin, 8, (void *)path) == 0 && !is_kernel_path(begin))
		return 0;
	if (bpf_probe_read_user_str(begin, sizeof(begin), (void *)path) < 5 ||
	    !is_kernel_path(begin))
		return 0;
	for (int i = 0; i < PREFIX_BYTES; i++)
		key.inode = (key.inode ^ (u8)begin[i]) * 0x100000001b3ULL;
	if (!first_sight(&key))
		return 0;
	record = begin_record(who, KIND_PATH);
	if (!record)
		return 0;
	record->device = key.device;
	record->inode = key.inode;
	bpf_probe_read_user_str(record->path, sizeof(record->path), (void *)path);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

NOINLINE int on_mount(u64 who, u64 flags, u64 file_system)
{
	struct path_record *record;

	record = begin_record(who, KIND_MOUNT);
	if (!record)
		return 0;
	record->mode = flags;
	bpf_probe_read_user_str(record->file_system, sizeof(record->file_system),
				(void *)file_system);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

/* A module of TCP that a socket asks for by its name, of which 12 bytes count. */
INLINE void use_module(struct call *call, u32 kind, u64 value, u64 bytes)
{
	u32 name[4] = {};

	if (bytes > 12)
		bytes = 12;
	if (bpf_probe_read_user(name, bytes, (void *)value) == 0)
		use(call, kind, name[0], name[1], name[2]);
}

INLINE void use_option(struct call *call, const struct registers *regs, u32 number)
{
	use(call, USE_OPTION, regs->si, regs->dx, 0);
	if (number != NR_SETSOCKOPT || (u32)regs->si != IPPROTO_TCP)
		return;
	if ((u32)regs->dx == TCP_CONGESTION)
		use_module(call, USE_CONGESTION, regs->r10, regs->r8);
	else if ((u32)regs->dx == TCP_ULP)
		use_module(call, USE_ULP, regs->r10, regs->r8);
}

INLINE void use_clone(struct call *call, u64 flags)
{
	use(call, USE_CLONE, 0, (u32)flags, flags >> 32);
}

/* The path of a UNIX socket's address; 0 for any other address. */
INLINE u64 path_of_address(u64 address, u64 bytes)
{
	struct {
		u16 family;
		u8 first;
	} begin = {};

	if (bytes < 3 || bpf_probe_read_user(&begin, 3, (void *)address))
		return 0;
	/* Abstract names begin with 0. */
	return begin.family == AF_UNIX && begin.first ? address + 2 : 0;
}

NOINLINE int rename(struct task *task, u32 tid)
{
	if (!task)
		return 0;
	flush(task, tid, RENAMED);
	bpf_get_current_comm(task->comm, sizeof(task->comm));
	return 0;
}

/*
 * What a call that succeeded asked of the kernel. Its arguments are still in its
 * registers: none of these calls replaces them.
 */
NOINLINE int features(struct call *call, struct registers *regs, u64 who, u32 number,
		      s64 result)
{
	u64 flags = 0, path = 0, second = 0, what;
	u32 dir = AT_FDCWD, second_dir = AT_FDCWD;

	if (!call)
		return 0;
	what = asked[number & (MAX_CALLS - 1)];
	switch (asks[number & (MAX_CALLS - 1)]) {
	case ASKS_SOCKET:
		use(call, USE_SOCKET, regs->di, regs->si & 0xf, regs->dx);
		break;
	case ASKS_OPTION:
		use_option(call, regs, number);
		break;
	case ASKS_IOCTL:
		use(call, USE_IOCTL, regs->si, 0, 0);
		break;
	case ASKS_FORK:
		use_clone(call, 0);
		break;
	case ASKS_VFORK:
		use_clone(call, CLONE_VM | CLONE_VFORK);
		break;
	case ASKS_CLONE:
		use_clone(call, regs->di & ~(u64)CSIGNAL);
		break;
	case ASKS_UNSHARE:
		use_clone(call, regs->di);
		break;
	case ASKS_CLONE3:
		bpf_probe_read_user(&flags, sizeof(flags), (void *)regs->di);
		use_clone(call, flags);
		break;
	case ASKS_PRCTL:
		use(call, USE_PRCTL, regs->di, 0, 0);
		break;
	case ASKS_ARCH_PRCTL:
		use(call, USE_ARCH_PRCTL, regs->di, 0, 0);
		break;
	case ASKS_MMAP:
		use(call, USE_MMAP, regs->r10, regs->dx, 0);
		break;
	case ASKS_FCNTL:
		use(call, USE_FCNTL, regs->si, 0, 0);
		break;
	case ASKS_OPEN:
		path = regs->di;
		/* The second argument of creat is a mode. */
		if (number == NR_OPEN)
			use(call, USE_OPEN, regs->si, 0, 0);
		on_open(who, result, dir, path);
		what = asked_of_opened(result);
		break;
	case ASKS_OPENAT:
		dir = regs->di;
		path = regs->si;
		/* The third argument of openat2 is a structure. */
		if (number == NR_OPENAT)
			use(call, USE_OPEN, regs->dx, 0, 0);
		on_open(who, result, dir, path);
		what = asked_of_opened(result);
		break;
	case ASKS_PATH:
		path = regs->di;
		on_path(who, path);
		break;
	case ASKS_PATHAT:
		dir = regs->di;
		path = regs->si;
		on_path(who, path);
		break;
	case ASKS_SECOND:
		path = regs->si;
		break;
	case ASKS_THIRD:
		dir = regs->si;
		path = regs->dx;
		break;
	case ASKS_TWO:
		path = regs->di;
		second = regs->si;
		break;
	case ASKS_TWOAT:
		dir = regs->di;
		path = regs->si;
		second_dir = regs->dx;
		second = regs->r10;
		break;
	case ASKS_ADDRESS:
		path = path_of_address(regs->si, regs->dx);
		break;
	case ASKS_MOUNT:
		on_mount(who, regs->r10, regs->dx);
		break;
	case ASKS_FSOPEN:
		on_mount(who, 0, regs->di);
		break;
	}
	/* One place for each, since verifiers follow every call of a function. */
	if (path)
		on_lookup(who, dir, path, what);
	if (second)
		on_lookup(who, second_dir, second, what);
	return 0;
}

NOINLINE int write_log(struct task *task, u32 tid, u64 ns, s64 result)
{
	struct log_record record;

	if (!task)
		return 0;
	record.enter_ns = task->enter_ns;
	record.ns = ns;
	record.tid = tid;
	record.number = task->number;
	record.result = result;
	for (int i = 0; i < 6; i++)
		record.arg[i] = task->arg[i];
	__builtin_memcpy(record.comm, task->comm, sizeof(record.comm));
	if (bpf_ringbuf_output(&single_calls, &record, sizeof(record), BPF_RB_NO_WAKEUP))
		lose(LOST_LOG);
	return 0;
}

SEC("tp_btf/sys_exit")
int on_sys_exit(struct raw *ctx)
{
	struct registers *regs = (void *)ctx->arg[0];
	s64 result = ctx->arg[1];
	u64 stack = stack_name(regs), who, ns;
	struct slot *slot = slot_of(stack);
	struct call *call;
	struct task *task;
	u32 tid, number;

	if (!slot)
		return 0;
	if (slot->stack == stack) {
		tid = slot->tid;
		task = &slot->task;
	} else {
		tid = bpf_get_current_task_btf()->pid;
		task = state_of(listed_task(tid));
	}
	if (!task || !task->enter_ns)
		return other_run();
	ns = bpf_ktime_get_ns() - task->enter_ns;
	number = task->number;
	who = who_is(task, tid);
	if (number == NR_PRCTL && result >= 0 && regs->di == PR_SET_NAME)
		rename(task, tid);
	if (logging)
		write_log(task, tid, ns, result);
	task->enter_ns = 0;
	/* From here on without the task, of which verifiers follow two kinds. */
	call = bpf_map_lookup_elem(&calls, &number);
	if (!call)
		return 0;
	if (result < 0 && result >= -MAX_ERRNO)
		fail(call, number, -result);
	else if (asks[number & (MAX_CALLS - 1)])
		features(call, regs, who, number, result);
	/* Last, since verifiers follow what comes after once for each way through it. */
	time(call, ns);
	return 0;
}

SEC("raw_tp/sched_process_fork")
int on_fork(struct raw *ctx)
{
	struct task_struct *parent = (void *)ctx->arg[0];
	struct task_struct *child = (void *)ctx->arg[1];
	struct task fresh = {};
	struct task *task;
	int tid = 0, tgid = 0;

	other_run();
	READ_FIELD(tid, parent, pid);
	task = state_of(listed_task(tid));
	if (!task)
		return 0;
	READ_FIELD(tid, child, pid);
	READ_FIELD(tgid, child, tgid);
	fresh.tgid = tgid;
	fresh.role = task->role == COUNTS ? COUNTS : WAITS_FOR_EXEC;
	fresh.program = task->program;
	__builtin_memcpy(fresh.comm, task->comm, sizeof(fresh.comm));
	list_task(tid, &fresh);
	return 0;
}

/* The program that a script names, which no call opens. */
INLINE void on_interpreter(u64 who, struct linux_binprm *program)
{
	struct path_record *record;
	const char *name = 0, *interpreter = 0;

	READ_FIELD(name, program, filename);
	READ_FIELD(interpreter, program, interp);
	if (name == interpreter)
		return;
	record = begin_record(who, KIND_LOOKUP);
	if (!record)
		return;
	record->what = AT_FDCWD;
	record->mode = ASKED_EXECUTE;
	bpf_probe_read_kernel_str(record->path, sizeof(record->path), interpreter);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

SEC("raw_tp/sched_process_exec")
int on_exec(struct raw *ctx)
{
	struct linux_binprm *program = (void *)ctx->arg[2];
	struct path_record *record;
	struct file *file = 0;
	const char *name = 0;
	struct task *task;
	u32 tid, before = (u32)ctx->arg[1];
	u32 number;

	other_run();
	tid = bpf_get_current_task_btf()->pid;
	if (before != tid) {
		/* A thread other than the first becomes the first, and keeps its slot. */
		struct task *caller = listed_task(before);

		if (caller) {
			struct task moved = *caller;
			u32 index = moved.place - 1;
			struct slot *slot = bpf_map_lookup_elem(&slots, &index);

			if (slot)
				slot->tid = tid;
			list_task(tid, &moved);
			bpf_map_delete_elem(&tasks, &before);
		}
	}
	task = state_of(listed_task(tid));
	if (!task || task->role != COUNTS)
		return 0;
	rename(task, tid);
	record = begin_record(who_is(task, tid), KIND_PROGRAM);
	if (!record)
		return 0;
	number = __sync_fetch_and_add(&programs, 1);
	task->program = number;
	record->what = number;
	READ_FIELD(file, program, file);
	describe(file, record);
	READ_FIELD(name, program, filename);
	bpf_probe_read_kernel_str(record->path, sizeof(record->path), name);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	on_interpreter(who_is(task, tid), program);
	return 0;
}

SEC("raw_tp/sched_process_exit")
int on_exit(struct raw *ctx)
{
	struct task *listed, *task;
	struct slot *slot;
	u32 tid, index;

	other_run();
	tid = bpf_get_current_task_btf()->pid;
	listed = listed_task(tid);
	task = state_of(listed);
	if (!listed || !task)
		return 0;
	if (task->role == COUNTS)
		flush(task, tid, ENDED);
	index = listed->place - 1;
	slot = bpf_map_lookup_elem(&slots, &index);
	bpf_map_delete_elem(&tasks, &tid);
	/* Last: the slot may be another task's at once. */
	if (slot)
		slot->stack = 0;
	return 0;
}
