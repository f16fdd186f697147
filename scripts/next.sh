#!/usr/bin/env bash
# What to type after `make run`.
set -euo pipefail

cd "$(dirname "$0")/.."
tare=$(scripts/target-dir.sh)/release/tare
tare=${tare#"$PWD/"}
cat <<EOF

Next:
  sudo make install                            put tare into PATH (PREFIX=, default /usr/local)
  $tare run http --root . -p 8080:80   serve this directory on http://localhost:8080
  $tare run ./server -p 8080:80        run your own static program (docs/programs.md)
  make build                                   the other images too, as for a program with --disk
  $tare why                            what uses the CPU of this host's virtual machines
  docs/tutorials/                              five short tutorials
EOF
if ! command -v qemu-system-x86_64 >/dev/null; then
    cat <<EOF
The report lacks the comparison with Apache on Linux, which needs QEMU. To get it:
  scripts/setup.sh weigh && make run
EOF
fi
