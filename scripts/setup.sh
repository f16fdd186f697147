#!/usr/bin/env bash
# Installs what a goal needs on Debian 12 and does nothing where it is there.
# Usage: scripts/setup.sh compile|build|run|test|ci|weigh
set -euo pipefail

goal=${1:?usage: scripts/setup.sh compile|build|run|test|ci|weigh}
root=$(cd "$(dirname "$0")/.." && pwd)
# The oldest Rust that Cargo.toml accepts.
rust_min=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")
updated=no
# Another apt, such as the daily one of a new machine, ends first.
wait_s=120
wait_for_apt=(-o "DPkg::Lock::Timeout=$wait_s")
# Packages that cannot be looked up, on another distribution than Debian.
assumed=()
# A directory of source_of.
temporary=

at_end() {
    [ ${#assumed[@]} -eq 0 ] || echo "setup: assuming these are installed: ${assumed[*]}" >&2
    [ -z "$temporary" ] || rm -rf "$temporary"
}
trap at_end EXIT

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "setup: need root for: $* (become root, or install sudo)" >&2
        exit 1
    fi
}

# Lists of packages. apt waits for the lock of dpkg, but not for that of the lists.
update() {
    local said tries=0
    until said=$(as_root env LC_ALL=C apt-get update -qq 2>&1); do
        if [[ $said != *"Could not get lock"* && $said != *"Unable to lock"* ]] || [ "$tries" -ge "$wait_s" ]; then
            printf '%s\n' "$said" >&2
            return 1
        fi
        [ "$tries" -gt 0 ] || echo "setup: waiting for another apt (up to $wait_s s)"
        tries=$((tries + 1))
        sleep 1
    done
    [ -z "$said" ] || printf '%s\n' "$said" >&2
    updated=yes
}

# Installs those of the named packages that are missing.
packages() {
    local missing=() name
    if ! command -v dpkg-query >/dev/null; then
        for name in "$@"; do
            [[ " ${assumed[*]} " == *" $name "* ]] || assumed+=("$name")
        done
        return
    fi
    for name in "$@"; do
        dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
    done
    [ ${#missing[@]} -eq 0 ] && return
    if ! command -v apt-get >/dev/null; then
        echo "setup: please install: ${missing[*]}" >&2
        exit 1
    fi
    echo "setup: installing ${missing[*]}"
    [ "$updated" = yes ] || update
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${wait_for_apt[@]}" "${missing[@]}" >/dev/null
}

# Lists of packages, so that apt can download those named without installing them.
downloadable() {
    command -v apt-get >/dev/null || return 0
    if [ "$updated" = no ] && ! apt-cache show "$@" >/dev/null 2>&1; then
        update
    fi
}

# The crates of a package outside the workspace, so that what builds it needs no registry.
crates_of() { # DIRECTORY
    cargo fetch --quiet --locked --manifest-path "$root/$1/Cargo.toml" ||
        echo "setup: going on without the crates of $1" >&2
}

# The upstream source of PACKAGE below target/sources, for tests that run a package's own suite, which SKIP
# without it. apt gets it from where it gets Debian's packages, and checks it.
source_of() { # PACKAGE
    local to="$root/target/sources" place entry apt
    compgen -G "$to/$1*" >/dev/null && return
    command -v apt-get >/dev/null || return 0
    echo "setup: fetching the source of $1"
    place=$(mktemp -d)
    temporary=$place
    # apt's own user reads it.
    chmod 755 "$place"
    mkdir "$place/from" "$place/cache" "$place/lists" "$place/source"
    # The configured places of packages, as places of sources.
    while read -r entry; do
        sed -e 's/^Types:.*/Types: deb-src/' -e 's/^deb[[:space:]]/deb-src /' "$entry" >"$place/from/${entry##*/}"
    done < <(apt-get indextargets --format '$(SOURCESENTRY)' 'Created-By: Packages' 'Origin: Debian' | sed 's/:[0-9]*$//' | sort -u)
    apt=(apt-get -qq -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$place/from"
        -o "Dir::State::Lists=$place/lists" -o "Dir::Cache=$place/cache")
    # Places that are not Debian's may have no sources.
    "${apt[@]}" update >/dev/null 2>&1 || true
    if (cd "$place/source" && "${apt[@]}" source --download-only "$1" >/dev/null 2>&1) &&
        mkdir -p "$to" && tar -xf "$place/source/$1"_*.orig.tar.* -C "$place/source" --no-same-owner; then
        mv "$place/source/$1"*/ "$to/"
    else
        echo "setup: going on without the source of $1" >&2
    fi
    rm -rf "$place"
}

newer_or_same() { # VERSION MINIMUM
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# The version of the cargo on PATH, or nothing.
cargo_version() { cargo --version 2>/dev/null | cut -d' ' -f2 || true; }

is_new_enough() { [ -n "$1" ] && newer_or_same "$1" "$rust_min"; }

# A cargo that is new enough: the one on PATH, else Debian's.
rust() {
    local have
    have=$(cargo_version)
    if ! is_new_enough "$have"; then
        packages cargo-web rustc-web
        hash -r
        have=$(cargo_version)
        if [ -z "$have" ]; then
            echo "setup: no cargo on PATH: install Rust $rust_min or newer, as with rustup" >&2
            exit 1
        elif ! is_new_enough "$have"; then
            echo "setup: $(command -v cargo) has version $have, and $rust_min is needed: run \`rustup update\`, or put the directory of a newer cargo first in PATH" >&2
            exit 1
        fi
    fi
    # The guest's target: rustup's, else Debian's sources of the core library,
    # from which `cargo xtask guests` builds it.
    if [ ! -d "$(rustc --print sysroot)/lib/rustlib/x86_64-unknown-none" ]; then
        if command -v rustup >/dev/null && rustup target add x86_64-unknown-none; then
            return
        fi
        packages rustc-web rust-web-src lld
    fi
}

# cargo-deny, which `cargo xtask ci` does without if it cannot be installed. Its debug build
# takes a third of the time, and its checks take seconds.
advisories() {
    cargo deny --version >/dev/null 2>&1 && return
    echo "setup: installing cargo-deny"
    cargo install --quiet --locked --debug cargo-deny ||
        echo "setup: going on without cargo-deny" >&2
}

# Whether the build directory has space for a first `make test`. It writes 17 GiB, without cargo's
# incremental compilation 6.4; and the tests write while they run.
space_for_tests() {
    local into at need=20 least=3 used=0 free
    into=$("$root/scripts/target-dir.sh")
    [ "${CARGO_INCREMENTAL:-1}" != 0 ] || need=8
    [ ! -d "$into" ] || used=$(($(du -sk "$into" | cut -f 1) >> 20))
    need=$((need - used > least ? need - used : least))
    # It is made by cargo, which marks it as one that need not be backed up.
    at=$into
    while [ ! -d "$at" ]; do at=$(dirname "$at"); done
    free=$(($(df --output=avail -k "$at" | tail -n 1) >> 20))
    [ "$free" -ge "$need" ] && return
    echo "setup: \`make test\` writes up to $need GiB into $into, and $free are free: free some, or set CARGO_TARGET_DIR to a directory on another disk" >&2
    exit 1
}

kvm_usable() { [ -r /dev/kvm ] && [ -w /dev/kvm ]; }

# What compiles guest images. Clang compiles the BPF programs of tare.
packages ca-certificates gcc libc6-dev
rust
case $goal in
compile) ;;
build) packages clang ;;
ci)
    packages clang
    advisories
    ;;
run)
    # unshare and ldd are those of weighings: memcached's container, a Linux guest's files.
    wanted=(clang passt util-linux libc-bin)
    kvm_usable || wanted+=(qemu-system-x86)
    packages "${wanted[@]}"
    ;;
test)
    space_for_tests
    packages clang passt qemu-system-x86 e2fsprogs fio libsqlite3-dev postgresql kmod acpica-tools cpio curl iproute2 memcached libmemcached-tools python3-pymemcache perl busybox runc podman util-linux libc-bin bsdutils binutils
    # What configures and builds a Linux kernel.
    packages make flex bison bc libelf-dev zstd patch xz-utils
    # Its suite runs against `kv`, and against Debian's memcached in machines.
    source_of memcached
    # Its suite, in Tcl, runs against Debian's redis-server in machines.
    packages tcl
    source_of redis
    downloadable redis-server nginx
    # Its speedtest1 runs in machines.
    source_of sqlite3
    # Its tests of system calls run in machines.
    source_of posixtestsuite
    # Programs in Go, and Go's own tests; any version.
    command -v go >/dev/null || packages golang-go
    # Their tests build them without a registry.
    for package in examples/rest examples/tls lab/appliances/axum; do
        crates_of "$package"
    done
    ;;
weigh)
    # What experiments beyond that of `run` use: kernels, databases, platforms.
    packages clang passt qemu-system-x86 e2fsprogs postgresql kmod memcached mmdebstrap runc \
        util-linux libc-bin make flex bison bc libelf-dev zstd patch xz-utils
    # The cut thin-lto; any version from 15 on.
    packages clang-19 lld-19 llvm-19 perl python3
    # `tare weigh apps` unpacks them; gVisor (runsc) is not in Debian.
    downloadable redis-server nginx memcached
    # Their servers are compiled; any version.
    command -v go >/dev/null || packages golang-go
    crates_of lab/appliances/axum
    ;;
*)
    echo "setup: unknown goal '$goal' (compile, build, run, test, ci or weigh)" >&2
    exit 2
    ;;
esac
