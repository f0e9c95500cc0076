# The few words a newcomer types. `make help` lists them.

CARGO ?= cargo
# A build from a clone uses the committed versions. While changing dependencies: make test LOCKED=
LOCKED ?= --locked
# What `make demo` evaluates, and how: with one thread, and with two where there are two cores.
comma := ,
DEMO_THREADS = $(if $(filter 1,$(shell nproc)),1,1$(comma)2)
DEMO_ARGS = perf -r mem:block:1G --matrix threads=$(DEMO_THREADS) depth=1..256 -o 4096 -w randread -t 1 --latency --report unvme-report.html
# Seconds each fuzz target runs.
SOAK_SECONDS ?= 1200
FUZZ_SECONDS ?= 10
# make bench SMOKE=1: each benchmark as short as it can be, to see that all of them run.
SMOKE ?=

# Where `make install` puts the command, the C library and the samples.
PREFIX ?= /usr/local
DESTDIR ?=

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
BENCH_ARGS = $(if $(filter-out 0 no,$(SMOKE)),-- --smoke)
# rustup installs here; a shell that was open before does not know it yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

section = @printf '\n==> %s\n' '$(1)'

.PHONY: help demo test test-long soak test-vm bench bench-vm lint fuzz \
	setup-demo setup-test setup-bench setup-lint setup-fuzz \
	fmt floors circles tidy licences clippy doc cargo-test capi-test bench-run bench-smoke vm-smoke fuzz-run install uninstall \
	install-tools uninstall-tools
# Two builds at once would only wait for each other, and their output would mix.
.NOTPARALLEL:

help:
	@echo 'make demo    evaluate the built-in virtual SSD: a table, and unvme-report.html'
	@echo 'make test    everything: lint, tests, a short benchmark run, a short run in a Linux guest, a short fuzz run'
	@echo 'make test-long what the tests take samples of, whole: every fault of a small key-value store; about 20 minutes'
	@echo 'make soak    a server under three attacks and two hosts that it serves meanwhile, for SOAK_SECONDS=$(SOAK_SECONDS)'
	@echo 'make test-vm a Linux guest checks both ends: our driver on its drives, its driver on our virtual SSD; downloads a kernel and QEMU once'
	@echo 'make bench   benchmarks, each beside its target; SMOKE=1 for a short run'
	@echo 'make bench-vm the benchmarks that need a Linux guest: ratios under emulation; SMOKE=1 for a short run'
	@echo 'make lint    the checks that run nothing: format, floors, tidy, licences, clippy, docs'
	@echo 'make fuzz    each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS)'
	@echo 'make install unvme, kv_perf and the other tools, libunvme with its headers: PREFIX=$(PREFIX) DESTDIR=$(DESTDIR); and uninstall'
	@echo 'Each of them first installs what is missing, or says how to.'

demo: setup-demo
	$(call section,build)
	$(CARGO) build $(LOCKED) --release -p unvme-cli
	$(call section,evaluate)
	$(TARGET_DIR)/release/unvme $(DEMO_ARGS)

lint: setup-lint fmt floors circles tidy licences clippy doc

test: setup-test fmt floors circles tidy licences clippy cargo-test capi-test doc bench-smoke vm-smoke fuzz-run
	$(call section,all passed)

# Every page of a small key-value store lost and stale, every bit of its metadata flipped; 1000 power cuts.
test-long: setup-test
	$(call section,every fault)
	UNVME_TEST_EXHAUSTIVE=1 $(CARGO) test $(LOCKED) --release -p unvme-ssd --lib kv::tests -- --nocapture

# In `make test`: for some seconds, and without a look at the times.
soak: setup-test
	$(call section,attacks)
	UNVME_SOAK_SECONDS=$(SOAK_SECONDS) $(CARGO) test $(LOCKED) --release -p unvme --test tcp_attacked -- --nocapture

# Downloads about 170 MB once, and takes half an hour where there is no KVM.
test-vm: setup-demo
	$(call section,build)
	$(CARGO) build $(LOCKED) --release -p unvme-cli
	$(call section,checks in a Linux guest)
	tests/guest/test-vm.sh $(TARGET_DIR)/release/unvme

# In `make test`: two guests. SKIPPED, and said why, where no guest can be had.
vm-smoke:
	$(call section,short checks in a Linux guest)
	$(CARGO) build $(LOCKED) --release -p unvme-cli
	tests/guest/test-vm.sh -s $(TARGET_DIR)/release/unvme

bench: setup-bench bench-run

# Not part of `make bench`: see test-vm. Written to bench-vm.json beside bench.json.
bench-vm: setup-bench
	$(call section,build)
	$(CARGO) build $(LOCKED) --release -p unvme-cli
	$(CARGO) build $(LOCKED) --release -p unvme --example instructions
	$(call section,benchmarks in a Linux guest)
	tests/guest/bench-vm.sh $(if $(filter-out 0 no,$(SMOKE)),-s) $(TARGET_DIR)/release/unvme \
		$(TARGET_DIR)/release/examples/instructions $(TARGET_DIR)/bench-vm.json

fuzz: setup-fuzz fuzz-run

setup-demo setup-test setup-bench setup-lint setup-fuzz:
	@scripts/setup.sh $(@:setup-%=%)

fmt:
	$(call section,format)
	$(CARGO) fmt --all --check
	rustfmt --check --edition 2024 --config-path . fuzz/fuzz_targets/*.rs

floors circles tidy licences:
	$(call section,$@)
	$(CARGO) xtask $@

clippy:
	$(call section,clippy)
	$(CARGO) clippy $(LOCKED) --workspace --all-targets -- -D warnings
	$(CARGO) clippy $(LOCKED) -p unvme --lib --no-default-features -- -D warnings

# The C library is described by its headers; its crate has the SDK's name, whose pages it would overwrite.
doc:
	$(call section,documentation)
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc $(LOCKED) --workspace --exclude unvme-capi --no-deps --lib

cargo-test:
	$(call section,tests)
	$(CARGO) test $(LOCKED) --workspace

# The C library as C programs see it.
capi-test:
	$(call section,C library)
	LOCKED='$(LOCKED)' tests/capi.sh

install uninstall: setup-demo
	$(MAKE) --no-print-directory -C crates/capi $@ PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' LOCKED='$(LOCKED)'

# One program under all the names of the guide, and the sample configurations.
TOOLS = kv_perf kv_nvme sdk_perf sdk_perf_async sdk_iterate sdk_iterate_async

install: install-tools
uninstall: uninstall-tools

install-tools: setup-demo
	$(call section,tools)
	$(CARGO) build $(LOCKED) --release -p unvme-cli
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share
	install -m 755 $(TARGET_DIR)/release/unvme $(DESTDIR)$(PREFIX)/bin/
	for tool in $(TOOLS); do ln -sf unvme $(DESTDIR)$(PREFIX)/bin/$$tool || exit 1; done
	cp -R share/unvme $(DESTDIR)$(PREFIX)/share/

uninstall-tools:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,unvme $(TOOLS))
	rm -rf $(DESTDIR)$(PREFIX)/share/unvme

# One of the rows calls the C library, as C programs do.
bench-run:
	$(call section,benchmarks)
	$(CARGO) build $(LOCKED) --release -p unvme-capi
	$(CARGO) bench $(LOCKED) -p unvme-cli --bench bench $(BENCH_ARGS)

# In `make test` the benchmarks are always short.
bench-smoke: SMOKE = 1
bench-smoke: bench-run

fuzz-run:
	$(call section,fuzz targets)
	scripts/fuzz-smoke.sh $(FUZZ_SECONDS)
