#!/bin/bash
# The command of a virtual machine: takes requests from the console, one a line
# ("vm|container CPUSET REQUEST", the request with its bytes escaped), and runs each as a step.
stty -echo -onlcr 2> /dev/null
# What goes wrong is part of the answer.
exec 2>&1
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
hostname tare
mount -t tmpfs tmpfs /tmp
# The first process keeps what a root has in /run, and the root is read-only.
mountpoint -q /run || mount -t tmpfs tmpfs /run
mkdir -p /dev/shm && mountpoint -q /dev/shm || mount -t tmpfs tmpfs /dev/shm
mount -t ext4 -o noatime /dev/vdb /scratch || { echo "@tare broken no scratch disk"; exit 1; }
mkdir -p /run/bundle/rootfs && mount --bind / /run/bundle/rootfs
ended() { # Whatever a step left behind.
    [ -e /sys/fs/cgroup/step/cgroup.kill ] && echo 1 > /sys/fs/cgroup/step/cgroup.kill
}
mkdir -p /sys/fs/cgroup/step
echo "@tare ready"
while read -r -a words; do
    [ "${#words[@]}" -ge 3 ] || continue
    printf "%b" "${words[2]}" > /scratch/request
    case ${words[0]} in
    vm) (
        [ -e /sys/fs/cgroup/step/cgroup.procs ] && echo "$BASHPID" > /sys/fs/cgroup/step/cgroup.procs
        exec setsid bash /tare/step @/scratch/request < /dev/null
    ) ;;
    container)
        sed "s/@CPUS@/${words[1]}/" /tare/bundle/config.json > /run/bundle/config.json
        crun --root /run/crun run --bundle /run/bundle step < /dev/null
        crun --root /run/crun delete -f step 2> /dev/null
        ;;
    esac
    ended
    sync
    echo "@tare over"
done
