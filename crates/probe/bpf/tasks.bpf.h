/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * One record for each task that works for an observed machine, in one reading of a
 * descriptor (an iterator over all tasks, Linux 5.8): what stat, schedstat, status and
 * sched below /proc/PID/task/TID say, without four files for each thread.
 * src/kvm/tasks.rs has the same record.
 *
 * User space names the processes and whom they work for (`owners`).
 */
#ifndef TARE_TASKS_BPF_H
#define TARE_TASKS_BPF_H

static long (*bpf_seq_write)(void *seq, const void *data, u32 len) = (void *)127;

struct kernfs_node {
	u64 id;
} __attribute__((preserve_access_index));

struct cgroup {
	struct kernfs_node *kn;
} __attribute__((preserve_access_index));

struct cgroup_subsys_state {
	struct cgroup *cgroup;
} __attribute__((preserve_access_index));

struct task_group {
	struct cgroup_subsys_state css;
} __attribute__((preserve_access_index));

struct sched_entity {
	u64 sum_exec_runtime;
	u64 nr_migrations;
} __attribute__((preserve_access_index));

struct sched_info {
	u64 run_delay;
	u64 last_queued;	/* 0 while it runs or sleeps */
} __attribute__((preserve_access_index));

struct task_io_accounting {
	u64 read_bytes;
	u64 write_bytes;
} __attribute__((preserve_access_index));

/* The same struct as in tare.bpf.h, with the fields that are read here. */
struct task_struct___whole {
	int wake_cpu;
	struct sched_entity se;
	struct sched_info sched_info;
	struct task_group *sched_task_group;
	struct task_io_accounting ioac;
	int pid;
	int tgid;
	u64 utime;
	u64 stime;
	u64 gtime;
	u64 nvcsw;
	u64 nivcsw;
	u64 min_flt;
	u64 maj_flt;
	u64 start_boottime;
	char comm[16];
} __attribute__((preserve_access_index));

/* The iterator's argument (kernel/bpf/task_iter.c). */
struct bpf_iter_meta {
	void *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct___whole *task;
};

struct task_record {
	u32 tid;
	u32 tgid;
	u32 owner;
	u32 cpu;
	u64 started_ns;
	u64 run_ns;
	u64 wait_ns;
	u64 queued_ns;
	u64 user_ns;
	u64 system_ns;
	u64 guest_ns;
	u64 voluntary;
	u64 involuntary;
	u64 migrations;
	u64 minor_faults;
	u64 major_faults;
	u64 read_bytes;
	u64 written_bytes;
	u64 group;		/* of the cpu controller; 0: none */
	u64 comm[2];
	u64 slice;		/* from struct thread: the time that was counted */
	u64 in_ns;
	u64 ran_ns;
	u64 runs;
	u64 weight;
	u64 ran_before;
	u64 runs_before;
	u64 whole_runs;
	u64 weighted_runs;
	u64 whole_ran;
	u64 ran_groups[8];
};

/* Processes that are read, each with the process of the machine that it works for. */
HASH_MAP(owners, 8192, u32, u32);

INLINE u64 group_of(struct task_struct___whole *task)
{
	struct task_group *group = task->sched_task_group;
	struct cgroup *cgroup = group ? group->css.cgroup : 0;
	struct kernfs_node *node = cgroup ? cgroup->kn : 0;

	return node ? node->id : 0;
}

INLINE void read_task(struct task_struct___whole *task, u32 owner, struct task_record *to)
{
	to->tid = task->pid;
	to->tgid = task->tgid;
	to->owner = owner;
	/* Set with the task's CPU, which lies elsewhere on x86 before Linux 5.16. */
	to->cpu = task->wake_cpu;
	to->started_ns = task->start_boottime;
	to->run_ns = task->se.sum_exec_runtime;
	to->wait_ns = task->sched_info.run_delay;
	to->queued_ns = task->sched_info.last_queued;
	to->user_ns = task->utime;
	to->system_ns = task->stime;
	to->guest_ns = task->gtime;
	to->voluntary = task->nvcsw;
	to->involuntary = task->nivcsw;
	to->migrations = task->se.nr_migrations;
	to->minor_faults = task->min_flt;
	to->major_faults = task->maj_flt;
	to->read_bytes = task->ioac.read_bytes;
	to->written_bytes = task->ioac.write_bytes;
	to->group = group_of(task);
	bpf_probe_read_kernel(to->comm, sizeof(to->comm), task->comm);
}

#endif
