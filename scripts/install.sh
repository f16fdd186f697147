#!/usr/bin/env bash
# Copies what `make build` left in target/release (scripts/target-dir.sh) to PREFIX (default
# /usr/local), below DESTDIR.
# Usage: scripts/install.sh [uninstall]
#
# The programs stay together in lib/tare, since tare finds its monitor, guest images, the
# first process of Linux guests and the library OS's sources beside itself; bin/tare is a link.
set -euo pipefail

# Of every user, whatever the caller's umask.
umask 022
prefix=${PREFIX:-/usr/local}
# The unit has it in a command.
if [[ ! $prefix =~ ^/[A-Za-z0-9/._+-]*$ ]]; then
    echo "install: invalid PREFIX '$prefix': use an absolute path of letters, digits and the characters / . _ + -" >&2
    exit 2
fi
root=${DESTDIR:-}$prefix
cd "$(dirname "$0")/.."
built=$(scripts/target-dir.sh)/release
programs=(tare tare-monitor tare-rr tare-calls tare-appliance)
# What `tare new` writes a crate for: Cargo.toml, whose settings the crates inherit, the
# versions of other crates, and every crate that an appliance depends on.
sources=(Cargo.toml Cargo.lock guest/fragments guest/hal guest/io guest/libos guest/net guest/tcp guest/web crates/abi crates/policy)

# What an installation has outside of lib/tare.
others=(bin/tare share/bash-completion/completions/tare lib/systemd/system/tare-blk@.service
    lib/systemd/system/tare-blk@.socket share/man/man1/tare.1)

if [ "${1:-}" = uninstall ]; then
    rm -rf "$root/lib/tare"
    for file in "${others[@]}"; do
        rm -f "$root/$file"
    done
    rm -f "$root"/share/man/man1/tare-*.1
    echo "removed tare from $root"
    exit
fi
for needed in tare tare-monitor images/http; do
    if [ ! -f "$built/$needed" ]; then
        echo "install: $built/$needed is missing: run \`make build\` first" >&2
        exit 1
    fi
done

# Everything is written beside the installation before any of it is replaced: what fails half
# way, as on a full disk, leaves the one before.
install -d "$root/lib"
new=$(mktemp -d "$root/lib/.tare-new-XXXXXX")
trap 'rm -rf "$new"' EXIT
install -d "$new"/{bin,lib/tare/{images,linux,src},lib/systemd/system} \
    "$new"/share/{man/man1,bash-completion/completions}
for program in "${programs[@]}"; do
    [ ! -f "$built/$program" ] || install -m 755 "$built/$program" "$new/lib/tare/"
done
install -m 644 "$built"/images/* "$new/lib/tare/images/"
if [ -f "$built/linux/tare-init" ]; then
    install -m 755 "$built"/linux/* "$new/lib/tare/linux/"
else
    echo "install: without Linux guests and the other appliances: \`make build\` adds them"
fi
cp -R --parents "${sources[@]}" "$new/lib/tare/src/"
chmod -R u=rwX,go=rX "$new/lib/tare/src"
sed "s|@PREFIX@|$prefix|" dist/tare-blk@.service >"$new/lib/systemd/system/tare-blk@.service"
install -m 644 dist/tare-blk@.socket "$new/lib/systemd/system/"
ln -s ../lib/tare/tare "$new/bin/tare"
"$built/tare" man --out "$new/share/man/man1" >/dev/null
"$built/tare" completions bash >"$new/share/bash-completion/completions/tare"

for file in "$new"/share/man/man1/*; do
    [ ! -f "$file" ] || others+=("share/man/man1/${file##*/}")
done
for file in "${others[@]}"; do
    install -d "$(dirname "$root/$file")"
done
# From here on nothing needs space.
if [ -d "$root/lib/tare" ]; then
    mv "$root/lib/tare" "$new/before"
fi
mv "$new/lib/tare" "$root/lib/tare"
rm -f "$root"/share/man/man1/tare-*.1
for file in "${others[@]}"; do
    [ ! -e "$new/$file" ] && [ ! -L "$new/$file" ] || mv -fT "$new/$file" "$root/$file"
done
echo "installed $root/bin/tare; remove it with \`make uninstall\` and the same PREFIX"
