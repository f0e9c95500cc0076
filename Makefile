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
# In `make test` it is for less long: it starts from seeds, and what they lead to is found at once.
FUZZ_SECONDS ?= $(if $(filter test test-parts,$(MAKECMDGOALS)),5,10)
# Of each way in which RocksDB is killed, and how often for each the power is cut.
CRASH_SECONDS ?= 60
CRASH_CUTS ?= 10
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

.PHONY: help demo test test-parts test-long soak test-vm bench bench-vm lint fuzz \
	setup-demo setup-test setup-bench setup-lint setup-fuzz \
	wiredtiger wiredtiger-quick wiredtiger-if speedtest preload-db-test-long ycsb setup-ycsb \
	advise-check fio fio-if fio-test rocksdb rocksdb-test rocksdb-test-long rocksdb-crash-test preload preload-test preload-test-long \
	fmt floors circles tidy licences clippy doc cargo-test capi-test bench-run bench-smoke vm-smoke fuzz-run build install uninstall \
	install-test
# Two builds at once would only wait for each other, and their output would mix.
.NOTPARALLEL:

help:
	@echo 'make demo    evaluate the built-in virtual SSD: a table, and unvme-report.html'
	@echo 'make test    everything: lint, tests, a short benchmark run, a short run in a Linux guest, a short fuzz run'
	@echo 'make test-long what the tests take samples of, whole: every fault of a small store, every short history of files; about 25 minutes'
	@echo 'make soak    a server under three attacks and two hosts that it serves meanwhile, for SOAK_SECONDS=$(SOAK_SECONDS)'
	@echo 'make test-vm a Linux guest checks both ends: our driver on its drives, its driver on our virtual SSD; downloads a kernel and QEMU once'
	@echo 'make bench   benchmarks, each beside its target; SMOKE=1 for a short run'
	@echo 'make advise-check  what unvme advise names, beside independent sweeps; DEVICE=... for one of yours'
	@echo 'make bench-vm the benchmarks that need a Linux guest: ratios under emulation; SMOKE=1 for a short run'
	@echo 'make rocksdb the file system for the RocksDB that is installed: target/rocksdb/librocksdb_unvme.so'
	@echo 'make fio     the engine for the fio that is installed: target/fio/fio-unvme.so; FIO=, FIO_SRC=: another one'
	@echo 'make rocksdb-test-long  more of the tests that RocksDB has for itself, on our file system'
	@echo 'make rocksdb-crash-test RocksDB killed, and without power: CRASH_SECONDS=$(CRASH_SECONDS) CRASH_CUTS=$(CRASH_CUTS); SMOKE=1'
	@echo 'make preload-test-long  programs, and whole suites that others have written, unmodified on our file system'
	@echo 'make fs-test-long  programs that try file systems, on a mounted one, for longer than in make test'
	@echo 'make preload-db-test-long  databases on our file system by the preload library, for longer than in make test'
	@echo 'make ycsb    YCSB on WiredTiger, on ext4 and on our file system: a table, and ycsb-report.html; YCSB_ARGS='
	@echo 'make lint    the checks that run nothing: format, floors, tidy, licences, clippy, docs'
	@echo 'make fuzz    each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS)'
	@echo 'make build   what is installed, for `sudo make install` without Rust'
	@echo 'make install unvme, kv_perf and the other tools, libunvme with its headers: PREFIX=$(PREFIX) DESTDIR=$(DESTDIR); and uninstall'
	@echo 'Each of them first installs what is missing, or says how to.'

demo: setup-demo
	$(call section,build)
	$(CARGO) build $(LOCKED) --release -p unvme-cli
	$(call section,evaluate)
	$(TARGET_DIR)/release/unvme $(DEMO_ARGS)

lint: setup-lint fmt floors circles tidy licences clippy doc

# One that fails does not keep the others from running: the end of the output has all failures.
test: setup-test fmt floors circles tidy licences clippy
	@scripts/repeat-failures.sh $(TARGET_DIR)/test.log $(MAKE) --keep-going --no-print-directory test-parts
	$(call section,all passed)

test-parts: cargo-test capi-test fio-test fs-test preload-test rocksdb-test doc bench-smoke install-test vm-smoke fuzz-run

# Every page of a small key-value store lost and stale, every bit of its metadata flipped; 1000 power cuts.
# Sequences of changes to files, with syncs of all kinds, cut at every point; everything at once for minutes.
test-long: setup-test
	$(call section,every fault)
	UNVME_TEST_EXHAUSTIVE=1 $(CARGO) test $(LOCKED) --release -p unvme-ssd --lib kv::tests -- --nocapture
	$(call section,every short sequence of changes to files)
	UNVME_TEST_EXHAUSTIVE=1 $(CARGO) test $(LOCKED) --release -p unvme-fs --test crash_sequences -- --nocapture
	UNVME_TEST_EXHAUSTIVE=1 $(CARGO) test $(LOCKED) --release -p unvme-fs --test stress -- --nocapture

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

bench: setup-bench fio-if rocksdb wiredtiger bench-run

# Not part of `make bench`: see test-vm. Written to bench-vm.json beside bench.json. Databases are measured
# where WiredTiger can be had.
bench-vm: setup-bench wiredtiger-if
	$(call section,build)
	$(CARGO) build $(LOCKED) --release -p unvme-cli -p unvme-preload
	$(CARGO) build $(LOCKED) --release -p unvme --example instructions
	$(call section,benchmarks in a Linux guest)
	WIREDTIGER=$(WIREDTIGER) tests/guest/bench-vm.sh $(if $(filter-out 0 no,$(SMOKE)),-s) $(TARGET_DIR)/release/unvme \
		$(TARGET_DIR)/release/examples/instructions $(TARGET_DIR)/bench-vm.json

fuzz: setup-fuzz fuzz-run

setup-demo setup-test setup-bench setup-ycsb setup-lint setup-fuzz:
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

# Two parts at a time: many tests wait for most of their time. Each part says what it says when it has ended.
# The parts name kinds and first letters, not packages: those would be built with other features.
CARGO_TEST_PARTS = --test~[!a-g]* --lib~--bins~--example~tour~--example~threads~--example~tokio_reads~--test~[a-g]* --doc
cargo-test:
	$(call section,tests)
	$(CARGO) test $(LOCKED) --workspace --no-run
	printf '%s\n' '$(subst $() ,' ',$(CARGO_TEST_PARTS))' | xargs -P 2 -I PART sh -c 'set -f; log=$$(mktemp); \
		trap "cat $$log; rm -f $$log" EXIT; trap "exit 1" INT TERM; \
		$(CARGO) test $(LOCKED) --workspace --no-fail-fast $$(echo "PART" | tr "~" " ") >"$$log" 2>&1 || { \
		echo "make: failed: PART" >>"$$log"; exit 1; }'

# The C library as C programs see it.
capi-test:
	$(call section,C library)
	LOCKED='$(LOCKED)' tests/capi.sh

FIO ?= fio
# An unpacked source of that fio, where its package cannot be had.
FIO_SRC ?=
FIO_DIR = $(abspath $(TARGET_DIR))/fio

# The C library is inside the engine: it can be copied to wherever that fio is.
fio: setup-demo
	$(call section,engine for fio)
	$(MAKE) --no-print-directory -C crates/capi all LOCKED='$(LOCKED)'
	FIO='$(FIO)' FIO_SRC='$(FIO_SRC)' scripts/fio.sh $(FIO_DIR) $(abspath $(TARGET_DIR))/capi/release/libunvme.a

ROCKSDB_DIR = $(abspath $(TARGET_DIR))/rocksdb
# Tests of RocksDB's own that take their files to where TEST_ENV_URI says.
ROCKSDB_TESTS = $(TARGET_DIR)/rocksdb-tests
ROCKSDB_FAST = env_basic_test
ROCKSDB_LONG = db_basic_test prefetch_test db_wal_test db_flush_test corruption_test fault_injection_test obsolete_files_test

# Each has devices and folders of its own, and waits for a good part of its time.
ROCKSDB_PARTS = kv script fdp faults

# RocksDB's file system for unvme, with the C library inside: it can be copied to wherever that RocksDB is.
rocksdb: setup-bench
	$(call section,file system for RocksDB)
	$(MAKE) --no-print-directory -C crates/capi all LOCKED='$(LOCKED)'
	scripts/rocksdb.sh $(ROCKSDB_DIR) $(abspath $(TARGET_DIR))/capi/release/libunvme.a

# The programs of RocksDB's that are installed, on it.
rocksdb-test: rocksdb
	$(call section,RocksDB)
	$(CARGO) build $(LOCKED) --release -p unvme-cli
	scripts/rocksdb-tests.sh $(ROCKSDB_TESTS) $(ROCKSDB_FAST)
	tests/rocksdb.sh $(TARGET_DIR)/release/unvme $(ROCKSDB_DIR) $(ROCKSDB_TESTS) $(ROCKSDB_FAST)
	printf '%s\n' $(ROCKSDB_PARTS) | \
		xargs -P 2 -I PART sh tests/rocksdb_PART.sh $(TARGET_DIR)/release/unvme $(ROCKSDB_DIR)

# More of RocksDB's own tests.
rocksdb-test-long: setup-test rocksdb
	$(call section,RocksDB)
	$(CARGO) build $(LOCKED) --release -p unvme-cli
	scripts/rocksdb-tests.sh $(ROCKSDB_TESTS) $(ROCKSDB_FAST) $(ROCKSDB_LONG)
	tests/rocksdb.sh $(TARGET_DIR)/release/unvme $(ROCKSDB_DIR) $(ROCKSDB_TESTS) $(ROCKSDB_FAST) $(ROCKSDB_LONG)
	tests/rocksdb_example.sh $(TARGET_DIR)/release/unvme $(ROCKSDB_DIR) $(TARGET_DIR)/rocksdb-example

# Not in `make test`: db_stress takes a minute to compile, and all of it a quarter of an hour to run.
rocksdb-crash-test: setup-test rocksdb
	$(call section,RocksDB killed and without power)
	$(CARGO) build $(LOCKED) --release -p unvme-cli
	scripts/rocksdb-tests.sh $(ROCKSDB_TESTS) db_stress
	tests/rocksdb_crash.sh $(TARGET_DIR)/release/unvme $(ROCKSDB_DIR) $(ROCKSDB_TESTS) \
		$(if $(filter-out 0 no,$(SMOKE)),,$(CRASH_SECONDS) $(CRASH_CUTS))

FS_TOOLS = $(TARGET_DIR)/fs-tools

# The file system, mounted, under what others have written to try file systems.
fs-test: fs-tools
	$(call section,file system)
	$(CARGO) build $(LOCKED) --release -p unvme-cli
	tests/fs.sh $(TARGET_DIR)/release/unvme $(FS_TOOLS)

fs-test-long: setup-test fs-tools
	$(call section,file system)
	$(CARGO) build $(LOCKED) --release -p unvme-cli
	tests/fs.sh -l $(TARGET_DIR)/release/unvme $(FS_TOOLS)

fs-tools:
	$(call section,programs that try file systems)
	scripts/fs-tools.sh $(FS_TOOLS)

# What is loaded before a program's other libraries, and the command that does it.
preload:
	$(call section,preload library)
	$(CARGO) build $(LOCKED) --release -p unvme-cli -p unvme-preload

# Each has devices and folders of its own, and waits for a good part of its time.
PRELOAD_PARTS = preload preload_programs preload_sharing preload_faults

# Programs that know nothing of it, with their files on it, and tests that others have written for files.
PRELOAD_DATABASES = sqlite redis postgres mariadb rocksdb others
PRELOAD_SUITES = python fio fsx pjdfstest dbench
# A part that has not ended by then never will, on whatever machine.
PRELOAD_SECONDS = 1200

preload-test: fs-tools speedtest wiredtiger-quick preload
	$(call section,programs and databases that are not changed)
	{ \
		for part in $(PRELOAD_PARTS); do \
			echo $$part env UNVME_PRELOAD_SHORT=1 tests/$$part.sh $(TARGET_DIR)/release/unvme; done; \
		for part in $(PRELOAD_DATABASES) $$([ ! -f $(WIREDTIGER_QUICK)/version ] || echo wiredtiger); do \
			echo $$part env WIREDTIGER=$(WIREDTIGER_QUICK) tests/preload_db.sh $(TARGET_DIR)/release/unvme \
				$(TARGET_DIR)/release $$part; done; \
		for part in $(PRELOAD_SUITES); do \
			echo $$part tests/preload_suites.sh $(TARGET_DIR)/release/unvme $(FS_TOOLS) $$part; done; \
	} | scripts/parts.sh $(TARGET_DIR)/preload-test $(PRELOAD_SECONDS)

preload-test-long: setup-test fs-tools preload
	for part in $(PRELOAD_PARTS); do tests/$$part.sh $(TARGET_DIR)/release/unvme || exit 1; done
	tests/preload_suites.sh -l $(TARGET_DIR)/release/unvme $(FS_TOOLS)

# MongoDB's storage engine, and SQLite's own benchmark: what databases are measured with.
WIREDTIGER = $(TARGET_DIR)/wiredtiger
wiredtiger: speedtest
	$(call section,WiredTiger)
	scripts/wiredtiger.sh $(WIREDTIGER)

# The same for tests: it takes less long to compile. SKIPPED where its source is out of reach.
WIREDTIGER_QUICK ?= $(TARGET_DIR)/wiredtiger-quick
wiredtiger-quick:
	$(call section,WiredTiger)
	scripts/wiredtiger.sh $(WIREDTIGER_QUICK) -O1 || { [ $$? -eq 3 ] && echo 'WiredTiger: SKIPPED'; }

wiredtiger-if:
	@$(MAKE) --no-print-directory wiredtiger || echo 'WiredTiger: not built; what needs it is skipped'

speedtest:
	$(call section,speedtest1)
	scripts/speedtest.sh $(TARGET_DIR)/speedtest

# Databases by the preload library, beside the same ones on ext4.
preload-db-test-long: setup-test wiredtiger fs-tools preload
	$(call section,databases)
	tests/preload_db.sh -l $(TARGET_DIR)/release/unvme $(TARGET_DIR)/release

# make ycsb YCSB_ARGS='--generator ycsb --workloads abcdef'
YCSB_ARGS ?=
ycsb: setup-ycsb wiredtiger
	$(call section,YCSB)
	$(CARGO) build $(LOCKED) --release -p unvme-cli -p unvme-preload
	share/unvme/ycsb/run.sh --unvme $(TARGET_DIR)/release/unvme --wiredtiger $(WIREDTIGER) \
		--report ycsb-report.html $(YCSB_ARGS)

# Where there is a fio, and its headers can be had; what needs it says so if not.
fio-if:
	@$(MAKE) --no-print-directory fio || echo 'fio: no engine; what needs it is skipped'

# fio itself, with the engine, on every transport.
fio-test: fio
	$(call section,fio)
	$(CARGO) build $(LOCKED) --release -p unvme-cli
	tests/fio.sh $(FIO_DIR)/fio-unvme.so $(TARGET_DIR)/release/unvme

# What `unvme advise` names, beside independent sweeps. It measures, so it is not in `make test`.
advise-check:
	$(call section,placement)
	$(CARGO) build $(LOCKED) --release -p unvme-cli
	tests/advise.sh $(TARGET_DIR)/release/unvme $(DEVICE)

# One program under all the names of the guide, and the sample configurations.
TOOLS = kv_perf kv_nvme sdk_perf sdk_perf_async sdk_iterate sdk_iterate_async blobfs_perf kv_db_bench
# mount(8) and umount(8) find them in /sbin: SBINDIR=/sbin.
SBINDIR ?= $(PREFIX)/sbin
MOUNT_HELPERS = mount.unvme mount.fuse.unvme umount.unvme umount.fuse.unvme
# What of the command is installed: without debugging information, its pages, its completions.
STAGE = $(TARGET_DIR)/install
# Nothing is built by root for somebody who has built it (`make build`, then `sudo make install`), nor where
# there is no Cargo to build it.
BUILT = $(and $(wildcard $(STAGE)/done),$(or $(SUDO_USER),$(if $(shell command -v $(CARGO)),,yes)))
DATA = $(DESTDIR)$(PREFIX)/share
ENGINE_DIR = $(DESTDIR)$(PREFIX)/lib/fio
# `unvme rocksdb` and `unvme run` look for them there.
PRELOAD = libunvme_preload.so
PLUGIN_DIR = $(DESTDIR)$(PREFIX)/lib/unvme
ROCKSDB_LIBRARIES = librocksdb_unvme.so librocksdb_unvme_flags.so libkv_rocksdb.so libkv_rocksdb_flags.so
# Folder, name behind it, what `unvme completions` calls the shell.
COMPLETIONS = bash-completion/completions/unvme:bash zsh/site-functions/_unvme:zsh fish/vendor_completions.d/unvme.fish:fish
# Scripts among them stay what they are; results of theirs are not installed.
SAMPLES := $(shell find share/unvme -type f -not -path '*/results/*' -not -path '*/rocksdb-fdp/*')

build: setup-demo
	$(call section,build)
	$(CARGO) build $(LOCKED) --release -p unvme-cli -p unvme-preload
	$(MAKE) --no-print-directory -C crates/capi all LOCKED='$(LOCKED)'
	rm -rf $(STAGE) && mkdir -p $(STAGE)/completions
	strip -o $(STAGE)/unvme $(TARGET_DIR)/release/unvme
	strip -o $(STAGE)/$(PRELOAD) $(TARGET_DIR)/release/$(PRELOAD)
	$(STAGE)/unvme man $(STAGE)/man1
	for shell in bash zsh fish; do $(STAGE)/unvme completions $$shell > $(STAGE)/completions/$$shell || exit 1; done
	if command -v '$(FIO)' >/dev/null; then $(MAKE) --no-print-directory fio-if; fi
	touch $(STAGE)/done

install: $(if $(BUILT),,build)
	$(call section,install)
	$(MAKE) --no-print-directory -C crates/capi install-files PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)'
	install -d -m 755 $(DESTDIR)$(PREFIX)/bin $(DATA)/man/man1
	install -m 755 $(STAGE)/unvme $(DESTDIR)$(PREFIX)/bin/
	for tool in $(TOOLS); do ln -sf unvme $(DESTDIR)$(PREFIX)/bin/$$tool || exit 1; done
	install -d -m 755 $(DESTDIR)$(SBINDIR)
	for helper in $(MOUNT_HELPERS); do ln -sf $(PREFIX)/bin/unvme $(DESTDIR)$(SBINDIR)/$$helper || exit 1; done
	install -m 644 $(STAGE)/man1/* $(DATA)/man/man1/
	for file in $(SAMPLES); do \
		if [ -x $$file ]; then mode=755; else mode=644; fi; \
		install -D -m $$mode $$file $(DESTDIR)$(PREFIX)/$$file || exit 1; done
	find $(DATA)/unvme -type d -exec chmod 755 {} +
	if [ -f $(FIO_DIR)/fio-unvme.so ]; then \
		install -d -m 755 $(ENGINE_DIR) && strip --strip-debug -o $(ENGINE_DIR)/fio-unvme.so $(FIO_DIR)/fio-unvme.so && \
		chmod 755 $(ENGINE_DIR)/fio-unvme.so && ln -sf fio-unvme.so $(ENGINE_DIR)/unvme && \
		ln -sf ../../../lib/fio/fio-unvme.so $(DATA)/unvme/fio_plugin/unvme2_fio_plugin || exit 1; fi
	install -d -m 755 $(PLUGIN_DIR)
	install -m 755 $(STAGE)/$(PRELOAD) $(PLUGIN_DIR)/
	for library in $(ROCKSDB_LIBRARIES); do \
		[ ! -f $(ROCKSDB_DIR)/$$library ] || { install -d -m 755 $(PLUGIN_DIR) && \
		strip --strip-debug -o $(PLUGIN_DIR)/$$library $(ROCKSDB_DIR)/$$library && \
		chmod 755 $(PLUGIN_DIR)/$$library; } || exit 1; done
	for entry in $(COMPLETIONS); do \
		install -d -m 755 $$(dirname $(DATA)/$${entry%:*}) && \
		install -m 644 $(STAGE)/completions/$${entry#*:} $(DATA)/$${entry%:*} || exit 1; done

# Folders that are left empty go too, as long as they are no more than a completion's or a page's.
uninstall:
	$(MAKE) --no-print-directory -C crates/capi uninstall PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)'
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,unvme $(TOOLS))
	rm -f $(addprefix $(DESTDIR)$(SBINDIR)/,$(MOUNT_HELPERS))
	rm -rf $(DATA)/unvme
	rm -f $(addprefix $(ENGINE_DIR)/,fio-unvme.so unvme)
	rm -f $(addprefix $(PLUGIN_DIR)/,$(PRELOAD) $(ROCKSDB_LIBRARIES))
	for folder in $(ENGINE_DIR) $(PLUGIN_DIR); do \
		[ ! -d $$folder ] || rmdir --ignore-fail-on-non-empty $$folder || exit 1; done
	rm -f $(DATA)/man/man1/unvme.1 $(DATA)/man/man1/unvme-*.1
	for entry in $(COMPLETIONS); do rm -f $(DATA)/$${entry%:*}; done
	for folder in man/man1 man bash-completion/completions bash-completion zsh/site-functions zsh \
		fish/vendor_completions.d fish; do \
		[ ! -d $(DATA)/$$folder ] || rmdir --ignore-fail-on-non-empty $(DATA)/$$folder || exit 1; done

# Installs what `make build` has built as root would, and takes it back.
install-test: build
	$(call section,install and uninstall)
	tests/install.sh

# One of the rows calls the C library, as C programs do.
bench-run:
	$(call section,benchmarks)
	$(CARGO) build $(LOCKED) --release -p unvme-capi -p unvme-preload
	$(CARGO) bench $(LOCKED) -p unvme-cli --bench bench $(BENCH_ARGS)

# In `make test` the benchmarks are always short.
bench-smoke: SMOKE = 1
bench-smoke: bench-run

fuzz-run:
	$(call section,fuzz targets)
	scripts/fuzz-smoke.sh $(FUZZ_SECONDS)
