#!/usr/bin/env bash
# The same appliance under Tare and under other monitors, on one tap in a separate network
# namespace: memory beyond the guest's, threads, CPU when nothing happens. A monitor that is
# not on PATH is left out. Needs root. Prints one line of JSON for each.
# Usage: scripts/peers.sh [TARE [IMAGE]]
set -euo pipefail

readonly MIB=64 SECONDS_IDLE=10 ROUNDS=${ROUNDS:-3}
tare=$(realpath "${1:-target/release/tare}")
image=$(realpath "${2:-$(dirname "$tare")/images/http}")

# The rest runs in namespaces that end with it.
if [ -z "${TARE_PEERS_INSIDE:-}" ]; then
    exec env TARE_PEERS_INSIDE=1 unshare --net --mount --pid --fork --kill-child --mount-proc \
        "$0" "$tare" "$image"
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
ip link set lo up
ip tuntap add tap0 mode tap vnet_hdr
ip addr add 10.0.2.2/24 dev tap0
ip link set tap0 up
export TARE_RUN_ROOT=$scratch/run
words='ip=10.0.2.15/24,10.0.2.2'
mac=02:00:00:00:00:01

firecracker_config() {
    cat >"$scratch/firecracker.json" <<JSON
{"boot-source": {"kernel_image_path": "$image", "boot_args": "$words"}, "drives": [],
 "machine-config": {"vcpu_count": 1, "mem_size_mib": $MIB},
 "network-interfaces": [{"iface_id": "net", "host_dev_name": "tap0", "guest_mac": "$mac"}]}
JSON
}

qemu_microvm() {
    qemu-system-x86_64 -no-user-config -nodefaults -display none \
        -machine microvm,rtc=on,acpi=off,accel=kvm \
        -cpu host,-arch-capabilities,-cx16 -m $MIB -kernel "$image" -append "$words" \
        -global virtio-mmio.force-legacy=off -serial stdio -no-reboot \
        -netdev tap,id=net,ifname=tap0,script=no,downscript=no -device "virtio-net-device,netdev=net,mac=$mac"
}

start() { # NAME
    case $1 in
    tare) "$tare" run "$image" --memory ${MIB}M --net tap=tap0 --cmdline "$words" --engine tare ;;
    firecracker) firecracker --no-api --config-file "$scratch/firecracker.json" ;;
    cloud-hypervisor) cloud-hypervisor --kernel "$image" --cmdline "$words" --cpus boot=1 \
        --memory size=${MIB}M --net "tap=tap0,mac=$mac" --serial tty --console off ;;
    qemu-microvm) qemu_microvm ;;
    esac
}

program() { # NAME
    case $1 in
    tare) echo "$tare" ;;
    qemu-*) echo qemu-system-x86_64 ;;
    *) echo "$1" ;;
    esac
}

# KiB that are resident outside of the guest's memory, the mappings that are as large.
beyond_guest() { # PID
    awk -v guest=$((MIB * 1024)) '
        /^Size:/ { size = $2 }
        /^Rss:/ && size < guest / 2 { sum += $2 }
        END { print sum }' "/proc/$1/smaps"
}

# Nanoseconds that all threads were on a CPU.
on_cpu() { # PID
    cat "/proc/$1/task/"*/schedstat | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

weigh() { # NAME
    start "$1" >"$scratch/console" 2>&1 </dev/null &
    local job=$! pid
    if ! timeout 60 sh -c 'until curl -s -o /dev/null -m 2 http://10.0.2.15/; do sleep 0.05; done'; then
        echo "{\"monitor\": \"$1\", \"failed\": $(tr -d '\0' <"$scratch/console" | tail -n 1 | sed 's/[\\"]//g; s/.*/"&"/')}"
        pkill -P $job || true
        wait $job || true
        return
    fi
    # The function runs in a shell of ours, unless the program took its place.
    pid=$(pgrep -P $job || echo $job)
    sleep 1
    local before after
    before=$(on_cpu "$pid")
    sleep $SECONDS_IDLE
    after=$(on_cpu "$pid")
    echo "{\"monitor\": \"$1\", \"beyond_guest_kib\": $(beyond_guest "$pid")," \
        "\"threads\": $(ls "/proc/$pid/task" | wc -l)," \
        "\"idle_cpu_pct\": $(awk -v ns=$((after - before)) -v s=$SECONDS_IDLE 'BEGIN { printf "%.4f", ns / s / 1e7 }')}"
    kill "$pid"
    wait $job || true
}

firecracker_config
for round in $(seq "$ROUNDS"); do
    for name in tare firecracker cloud-hypervisor qemu-microvm; do
        if command -v "$(program "$name")" >/dev/null; then
            weigh "$name"
        fi
    done
done
