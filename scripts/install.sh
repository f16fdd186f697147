#!/usr/bin/env bash
# Copies what `make build` left in target/release (scripts/target-dir.sh) to PREFIX (default /usr/local), below DESTDIR.
# Usage: scripts/install.sh [uninstall]
#
# The programs stay together in lib/tare, since tare finds its monitor, guest images, the
# first process of Linux guests and the library OS's sources beside itself; bin/tare is a link.
set -euo pipefail

prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}$prefix
cd "$(dirname "$0")/.."
built=$(scripts/target-dir.sh)/release
programs=(tare tare-monitor tare-rr tare-calls tare-appliance)
# What `tare new` writes a crate for: Cargo.toml, whose settings the crates inherit, the
# versions of other crates, and every crate that an appliance depends on.
sources=(Cargo.toml Cargo.lock guest/hal guest/io guest/libos guest/net guest/tcp guest/web crates/abi crates/policy)

uninstall() {
    rm -rf "$root/lib/tare"
    rm -f "$root/bin/tare" "$root/share/bash-completion/completions/tare"
    rm -f "$root/lib/systemd/system/tare-blk@.service" "$root/lib/systemd/system/tare-blk@.socket"
    rm -f "$root"/share/man/man1/tare.1 "$root"/share/man/man1/tare-*.1
}

if [ "${1:-}" = uninstall ]; then
    uninstall
    echo "removed tare from $root"
    exit
fi
for needed in tare tare-monitor images/http; do
    if [ ! -f "$built/$needed" ]; then
        echo "install: $built/$needed is missing: run \`make build\` first" >&2
        exit 1
    fi
done

uninstall
install -d "$root/bin" "$root/lib/tare/images" "$root/lib/tare/linux" \
    "$root/share/man/man1" "$root/share/bash-completion/completions" "$root/lib/systemd/system"
for program in "${programs[@]}"; do
    [ ! -f "$built/$program" ] || install -m 755 "$built/$program" "$root/lib/tare/"
done
install -m 644 "$built"/images/* "$root/lib/tare/images/"
if [ -f "$built/linux/tare-init" ]; then
    install -m 755 "$built"/linux/* "$root/lib/tare/linux/"
else
    echo "install: without Linux guests and the other appliances: \`make build\` adds them"
fi
install -d "$root/lib/tare/src"
cp -R --parents "${sources[@]}" "$root/lib/tare/src/"
chmod -R u=rwX,go=rX "$root/lib/tare/src"
sed "s|@PREFIX@|$prefix|" dist/tare-blk@.service >"$root/lib/systemd/system/tare-blk@.service"
install -m 644 dist/tare-blk@.socket "$root/lib/systemd/system/"
ln -s ../lib/tare/tare "$root/bin/tare"
"$built/tare" man --out "$root/share/man/man1" >/dev/null
"$built/tare" completions bash >"$root/share/bash-completion/completions/tare"
echo "installed $root/bin/tare; remove it with \`make uninstall\` and the same PREFIX"
