#!/bin/bash
# Runs a workload once in /scratch and says on lines that begin with @tare when
# it begins, when it ends, and whether it counts. Arguments: @FILE whose first
# line is the workload and whose others are NAME=VALUE.
mapfile -t request < "${1#@}"
name=${request[0]}
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C
for pair in "${request[@]:1}"; do export "${pair?}"; done
here=/tare/workloads/$name
export DATA=/tare/data/$name-$FORM
rm -rf /scratch/work
mkdir /scratch/work && cd /scratch/work || { echo "@tare verdict bad no place for the run in /scratch"; exit 1; }
# Runs a program as it is; on the appliance alone in a machine, which `tare` of the host starts.
# MACHINE is `tare` and its options; PIN has the CPUs of a pinned machine.
app() {
    if [ -z "${MACHINE-}" ]; then
        "$@"
        return
    fi
    local machine status=0
    read -ra machine <<< "$MACHINE"
    if [ -z "${PIN-}" ]; then
        chroot /tare/host "${machine[@]}" -- "$@"
        return
    fi
    # In the background it would lose its input.
    chroot /tare/host "${machine[@]}" -- "$@" <&0 &
    # It can be pinned once its threads run; the file `pinned` says that it is.
    until [ -e pinned ] || ! kill -0 $! 2> /dev/null; do
        chroot /tare/host "${machine[0]}" pin --cpus "$PIN" appliance > pin.log 2>&1 && touch pinned || sleep 0.02
    done
    wait $! || status=$?
    [ -e pinned ] || { echo "the machine was not pinned: $(tail -n 1 pin.log)" >&2; return 1; }
    return "$status"
}
export -f app
bad() {
    sed 's/^/@tare log /' ../log | tail -n 5
    echo "@tare verdict bad $1"
    rm -rf /scratch/work
    exit 1
}
echo "@tare begin"
# An observer gets ready; in a machine there is no observer and no answer.
read -r -t 10
begin=${EPOCHREALTIME/./}
timeout -k 2 "$TIMEOUT" bash -eu "$here/run" > ../log 2>&1 < /dev/null
status=$?
end=${EPOCHREALTIME/./}
echo "@tare end $((end - begin))"
# 137 is timeout's last word, and that of whatever the kernel kills for its memory.
[ "$status" = 137 ] && [ $((end - begin)) -ge $((TIMEOUT * 1000000)) ] && status=124
case $status in
0) ;;
124) bad "it ran longer than $TIMEOUT s" ;;
137) bad "a program of its run was killed: out of memory perhaps" ;;
*) bad "its run ended with status $status" ;;
esac
timeout -k 2 "$TIMEOUT" bash -eu "$here/check" > ../log 2>&1 < /dev/null || bad "its check failed: $(tail -n 1 ../log)"
if [ "$SOURCE" = wall ]; then value=$(awk "BEGIN { printf \"%.6f\", ($end - $begin) / 1000000 }"); else value=$(head -n 1 metric); fi
rm -rf /scratch/work
echo "@tare verdict ok $value"
