#!/bin/sh
# Makes a root with the memcached of this host, its loader and libraries: root.sh DIR
set -eu
[ $# -eq 1 ] || { echo "usage: root.sh DIR" >&2; exit 2; }
program=$(command -v memcached) || { echo "memcached is not installed" >&2; exit 1; }
mkdir -p "$1/bin"
cp "$program" "$1/bin/memcached"
# The loader and each library, where they are named.
ldd "$program" | awk '$2 == "=>" && $3 ~ "^/" { print $3 } $1 ~ "^/" { print $1 }' |
while read -r file; do
    mkdir -p "$1$(dirname "$file")"
    cp -L "$file" "$1$file"
done
