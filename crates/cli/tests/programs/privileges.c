/* Capabilities, and what they allow; the scheduling that a thread asks for. As user 0 with CAP_SETGID, CAP_SETUID,
   CAP_SETPCAP and CAP_SYS_NICE. Raw calls change one thread; a line for each. */
#define _GNU_SOURCE
#include "lines.h"
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define BIT(number) (1U << (number))
#define KEPT (BIT(CAP_SETGID) | BIT(CAP_SETUID) | BIT(CAP_SETPCAP) | BIT(CAP_SYS_NICE))

static long set(unsigned effective, unsigned permitted, unsigned inheritable)
{
    unsigned header[2] = {_LINUX_CAPABILITY_VERSION_3, 0};
    unsigned sets[6] = {effective, permitted, inheritable};
    return syscall(SYS_capset, header, sets);
}

static void sets(unsigned version, int pid)
{
    unsigned header[2] = {version, pid}, got[6] = {7, 7, 7, 7, 7, 7};
    T(syscall(SYS_capget, header, got));
    printf("%x: %x %x %x, %x %x %x\n", header[0], got[0], got[1], got[2], got[3], got[4], got[5]);
}

static long ambient(long operation, long number, long more)
{
    return prctl(PR_CAP_AMBIENT, operation, number, more, 0);
}

static void *give_up(void *unused)
{
    unsigned header[2] = {_LINUX_CAPABILITY_VERSION_3, 0}, data[6] = {0};
    T(syscall(SYS_capset, BAD, data));
    T(syscall(SYS_capset, header, BAD));
    header[1] = 99999999;
    T(syscall(SYS_capset, header, data));
    header[0] = 1;
    T(syscall(SYS_capset, header, data));
    T(header[0] == _LINUX_CAPABILITY_VERSION_3);
    T(set(KEPT, KEPT, BIT(CAP_SETUID)));
    sets(_LINUX_CAPABILITY_VERSION_3, 0);
    sets(_LINUX_CAPABILITY_VERSION_1, gettid());
    sets(_LINUX_CAPABILITY_VERSION_2, 0);
    sets(_LINUX_CAPABILITY_VERSION_3, -1);
    sets(_LINUX_CAPABILITY_VERSION_3, 99999999);
    T(set(KEPT, KEPT | BIT(CAP_CHOWN), 0));
    T(set(KEPT | BIT(CAP_CHOWN), KEPT, 0));
    /* Ambient and bounding sets. */
    T(ambient(PR_CAP_AMBIENT_RAISE, CAP_SETGID, 0));
    T(ambient(PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0));
    T(ambient(PR_CAP_AMBIENT_RAISE, 41, 0));
    T(ambient(PR_CAP_AMBIENT_RAISE, CAP_SETUID, 0));
    T(ambient(PR_CAP_AMBIENT_IS_SET, CAP_SETUID, 0));
    T(ambient(PR_CAP_AMBIENT_IS_SET, CAP_SETGID, 0));
    T(ambient(PR_CAP_AMBIENT_IS_SET, CAP_SETUID, 1));
    T(ambient(PR_CAP_AMBIENT_IS_SET, 99, 0));
    T(ambient(9, CAP_SETUID, 0));
    T(ambient(PR_CAP_AMBIENT_CLEAR_ALL, 1, 0));
    T(ambient(PR_CAP_AMBIENT_LOWER, CAP_SETUID, 0));
    T(ambient(PR_CAP_AMBIENT_IS_SET, CAP_SETUID, 0));
    T(ambient(PR_CAP_AMBIENT_RAISE, CAP_SETUID, 0));
    T(ambient(PR_CAP_AMBIENT_CLEAR_ALL, 0, 0));
    T(ambient(PR_CAP_AMBIENT_IS_SET, CAP_SETUID, 0));
    T(ambient(PR_CAP_AMBIENT_RAISE, CAP_SETUID, 0));
    T(set(KEPT, KEPT, 0));
    T(ambient(PR_CAP_AMBIENT_IS_SET, CAP_SETUID, 0));
    T(prctl(PR_CAPBSET_READ, CAP_CHOWN));
    T(prctl(PR_CAPBSET_DROP, CAP_CHOWN));
    T(prctl(PR_CAPBSET_READ, CAP_CHOWN));
    T(set(KEPT, KEPT, BIT(CAP_CHOWN)));
    T(set(KEPT, KEPT, BIT(CAP_KILL)));
    /* Each depends on what is effective. */
    T(syscall(SYS_setpriority, PRIO_PROCESS, 0, -1));
    T(set(KEPT & ~BIT(CAP_SYS_NICE), KEPT, 0));
    T(syscall(SYS_setpriority, PRIO_PROCESS, 0, -2));
    T(syscall(SYS_setpriority, PRIO_PROCESS, 0, 3));
    T(set(BIT(CAP_SETUID), KEPT, 0));
    T(syscall(SYS_setgid, 9));
    T(syscall(SYS_setgroups, 0, 0));
    T(prctl(PR_CAPBSET_DROP, CAP_KILL));
    T(prctl(PR_CAPBSET_DROP, 99));
    T(set(BIT(CAP_SETGID), KEPT, 0));
    T(syscall(SYS_setuid, 9));
    T(syscall(SYS_setgid, 9));
    unsigned groups[4] = {4, 2, 9, 2};
    T(syscall(SYS_setgroups, 4, groups));
    T(syscall(SYS_getgroups, 4, groups));
    T(groups[0] * 1000 + groups[1] * 100 + groups[2] * 10 + groups[3]);
    return 0;
}

/* User 0 becomes another, for a while and forever. */
static void *become_another(void *keeps)
{
    T(set(KEPT, KEPT, BIT(CAP_SETUID)));
    T(ambient(PR_CAP_AMBIENT_RAISE, CAP_SETUID, 0));
    T(syscall(SYS_setresuid, -1, 9, -1));
    sets(_LINUX_CAPABILITY_VERSION_3, 0);
    T(syscall(SYS_setresuid, -1, 0, -1));
    sets(_LINUX_CAPABILITY_VERSION_3, 0);
    T(prctl(PR_SET_KEEPCAPS, keeps != 0));
    T(syscall(SYS_setresuid, 9, 9, 9));
    sets(_LINUX_CAPABILITY_VERSION_3, 0);
    T(ambient(PR_CAP_AMBIENT_IS_SET, CAP_SETUID, 0));
    T(prctl(PR_GET_KEEPCAPS));
    T(set(BIT(CAP_SETUID), BIT(CAP_SETUID), 0));
    T(syscall(SYS_setuid, 0));
    sets(_LINUX_CAPABILITY_VERSION_3, 0);
    return 0;
}

static void apart(void *(*run)(void *), void *with)
{
    pthread_t thread;
    pthread_create(&thread, 0, run, with);
    pthread_join(thread, 0);
}

static void capabilities(void)
{
    apart(give_up, 0);
    apart(become_another, 0);
    apart(become_another, "keeps");
}

/* `struct sched_attr`; the last word is behind it. */
struct attributes {
    unsigned size, policy;
    unsigned long flags;
    int nice;
    unsigned priority;
    unsigned long deadline[3];
    unsigned clamps[2];
    unsigned long more;
};

static void ask(unsigned policy, unsigned long flags, int nice, unsigned priority)
{
    struct attributes wanted = {56, policy, flags, nice, priority}, got = {0};
    T(syscall(SYS_sched_setattr, 0, &wanted, 0));
    T(syscall(SYS_sched_getattr, 0, &got, 56, 0));
    printf("%u: policy %u, flags %lu, nice %d, priority %u\n", got.size, got.policy, got.flags, got.nice,
           got.priority);
}

static void *in_turns(void *unused)
{
    struct attributes a = {0};
    T(syscall(SYS_sched_getattr, 0, &a, 47, 0));
    T(syscall(SYS_sched_getattr, 0, &a, 4097, 0));
    T(syscall(SYS_sched_getattr, 0, &a, 56, 1));
    T(syscall(SYS_sched_getattr, -1, &a, 56, 0));
    T(syscall(SYS_sched_getattr, 99999999, &a, 56, 0));
    T(syscall(SYS_sched_getattr, 0, 0, 56, 0));
    T(syscall(SYS_sched_getattr, 0, BAD, 56, 0));
    T(syscall(SYS_sched_getattr, 0, &a, 48, 0));
    T(a.size);
    T(syscall(SYS_sched_getattr, 0, &a, 64, 0));
    T(a.size);
    a = (struct attributes){47};
    T(syscall(SYS_sched_setattr, 0, &a, 0));
    T(a.size);
    a = (struct attributes){5000};
    T(syscall(SYS_sched_setattr, 0, &a, 0));
    a = (struct attributes){64, .more = 1};
    T(syscall(SYS_sched_setattr, 0, &a, 0));
    T(a.size);
    a = (struct attributes){64};
    T(syscall(SYS_sched_setattr, 0, &a, 0));
    a = (struct attributes){0};
    T(syscall(SYS_sched_setattr, 0, &a, 1));
    T(syscall(SYS_sched_setattr, -1, &a, 0));
    T(syscall(SYS_sched_setattr, 99999999, &a, 0));
    T(syscall(SYS_sched_setattr, 0, 0, 0));
    T(syscall(SYS_sched_setattr, 0, BAD, 0));
    T(syscall(SYS_sched_setattr, 0, &a, 0));
    ask(SCHED_BATCH, 0, 5, 0);
    T(syscall(SYS_getpriority, PRIO_PROCESS, 0));
    ask(SCHED_BATCH, 0, 99, 0);
    ask(SCHED_OTHER, 0x08, 7, 0);
    ask(SCHED_OTHER, 0x10, 3, 0);
    ask(SCHED_OTHER, 0x01, 3, 0);
    ask(SCHED_OTHER, 0, -3, 0);
    ask(SCHED_OTHER, 0, 0, 5);
    ask(SCHED_FIFO, 0, 0, 0);
    ask(SCHED_FIFO, 0, 0, 100);
    ask(99, 0, 0, 0);
    ask(-1, 0, 0, 0);
    ask(SCHED_OTHER, 0x80, 0, 0);
    ask(SCHED_RR, 0x01, 9, 1);
    ask(SCHED_OTHER, 0x18, 4, 4);
    ask(SCHED_OTHER, 0, 0, 0);
    T(set(0, KEPT, 0));
    ask(SCHED_FIFO, 0, 0, 1);
    ask(SCHED_OTHER, 0, -1, 0);
    ask(SCHED_OTHER, 0, 1, 0);
    return 0;
}

static void turns(void)
{
    apart(in_turns, 0);
}

/* What code that changes on other cores asks for. */
static void barriers(void)
{
    T(syscall(SYS_membarrier, 32, 0, 0));
    T(syscall(SYS_membarrier, 64, 0, 0));
    T(syscall(SYS_membarrier, 32, 0, 0));
    T(syscall(SYS_membarrier, 32, 1, 0));
    T((syscall(SYS_membarrier, 0, 0, 0) & 96) == 96);
}

static const struct group groups[] = {
    {"capabilities", capabilities}, {"turns", turns}, {"barriers", barriers},
};

int main(int count, char **words)
{
    return run_groups("privileges", groups, sizeof groups / sizeof *groups, count, words);
}
