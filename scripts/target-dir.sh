#!/usr/bin/env bash
# Prints the directory into which cargo builds: target, or what CARGO_TARGET_DIR,
# CARGO_BUILD_TARGET_DIR or build.target-dir of a configuration says.
set -euo pipefail

cd "$(dirname "$0")/.."
said=$("${CARGO:-cargo}" metadata --no-deps --offline --format-version 1 2>/dev/null || true)
directory=$(sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p' <<<"$said")
# Without cargo, as in `sudo make install` beside rustup's of a user.
echo "${directory:-$(realpath -m "${CARGO_TARGET_DIR:-${CARGO_BUILD_TARGET_DIR:-target}}")}"
