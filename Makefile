# Tare. `make run` and `make test` are all that a new user needs.

CARGO ?= cargo
# `make run` writes into a new directory in out/ unless OUT names one. make passes the
# variables of its command line, such as OUT, PREFIX and DESTDIR, to the shell.

.PHONY: run test build install uninstall bench fuzz soak ci help clean

## run: set up, build, boot the HTTP appliance, weigh it under bursts, write the report
run:
	@scripts/setup.sh compile
	@$(CARGO) run --quiet --locked --package tare-toolchain --bin build-run
	@tare="$$(scripts/target-dir.sh)/release/tare" && "$$tare" doctor && \
		"$$tare" weigh http-bursts $${OUT:+--out "$$OUT"} && scripts/next.sh

## test: set up, build, run every test
test:
	@scripts/setup.sh test
	@$(CARGO) xtask test

## build: target/release/tare, tare-monitor and the guest images
build:
	@scripts/setup.sh build
	@$(MAKE) --no-print-directory binaries

.PHONY: binaries
binaries:
	@$(CARGO) xtask build

## install: copy what is built into PREFIX (default /usr/local), below DESTDIR
install:
	@scripts/install.sh

## uninstall: remove what install copied
uninstall:
	@scripts/install.sh uninstall

## bench: criterion benchmarks of the decision and data paths
bench:
	@scripts/setup.sh build
	@$(CARGO) bench --workspace --exclude xtask

## fuzz: each fuzz target for SECONDS (default 30)
fuzz:
	@scripts/setup.sh build
	@$(CARGO) xtask fuzz --seconds $(or $(SECONDS),30)

## soak: the hostile guest for 20 minutes on 1 and 2 vCPUs, ten million interrupts, kills below a disk, ten million system calls, each fuzz target for 10 (SECONDS, FUZZ)
soak:
	@scripts/setup.sh build
	@$(CARGO) xtask soak --seconds $(or $(SECONDS),1200) --fuzz $(or $(FUZZ),600)

## ci: what CI runs before the tests: format, tidy, licences, advisories, clippy, docs
ci:
	@scripts/setup.sh ci
	@$(CARGO) xtask ci

## clean: remove what was built
clean:
	@$(CARGO) clean

## help: this list
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)
