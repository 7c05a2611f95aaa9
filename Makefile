# Weir: build, test, install. `make help` lists the targets.
# One non-recursive file. V=1 shows commands; SAN=1 builds with ASan and UBSan into build/san.

MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.SECONDARY:

PREFIX ?= /usr/local
DESTDIR ?=
CC = gcc
CLANG ?= clang
BPFTOOL ?= $(firstword $(wildcard /usr/sbin/bpftool /sbin/bpftool /usr/lib/linux-tools/*/bpftool) bpftool)
ifeq ($(SAN),1)
B := build/san
SANFLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
else
B := build
SANFLAGS :=
endif
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Rewritten only when it changes, so that a commit recompiles one file.
HASH := \#
$(shell mkdir -p $(B)/gen; echo '$(HASH)define WEIR_VERSION "$(VERSION)"' | cmp -s - $(B)/gen/version.h || echo '$(HASH)define WEIR_VERSION "$(VERSION)"' > $(B)/gen/version.h)

ifeq ($(V),1)
Q :=
say = @:
else
Q := @
say = @printf '  %-7s %s\n'
endif

# What a mistake looks like to the compiler; all of it is an error here.
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -Wvla -Wundef -Wpointer-arith -Werror
# Hardening, as distributions build network-facing daemons.
HARDEN := -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fPIE -fcf-protection
HARDEN_LD := -pie -Wl,-z,relro,-z,now,-z,noexecstack
CPPFLAGS := -Ibpf -Iuserspace -Irunner -I$(B)/gen -D_GNU_SOURCE
CFLAGS ?= -O2 -g
ALL_CFLAGS := -std=gnu17 $(CFLAGS) $(WARN) $(if $(SANFLAGS),$(SANFLAGS),$(HARDEN))
ALL_LDFLAGS := $(if $(SANFLAGS),$(SANFLAGS),$(HARDEN_LD)) $(LDFLAGS)
LIBS := -lbpf -lelf -lseccomp -ljansson -lmicrohttpd -lgnutls -larchive -lslirp -lsqlite3

CORE_SRC := $(wildcard userspace/core/*.c)
WEIR_SRC := $(wildcard userspace/*/*.c) $(filter-out runner/init.c runner/init_%.c,$(wildcard runner/*.c))
WEIR_OBJ := $(WEIR_SRC:%.c=$(B)/obj/%.o)
# All of it but main(), for programs that test a part.
LIBWEIR := $(B)/libweir.a
# The same program with switches that make a set-up step fail or be left out: for tests, never installed. Only the files that
# know of these switches are compiled twice.
HOOKS_SRC := $(shell grep -l WEIR_TEST_HOOKS $(WEIR_SRC)) runner/blobs.c
HOOKS_OBJ := $(filter-out $(HOOKS_SRC:%.c=$(B)/obj/%.o),$(WEIR_OBJ)) $(HOOKS_SRC:%.c=$(B)/obj-hooks/%.o)

.PHONY: all
all: $(B)/weir ## build build/weir

-include Makefile.local

# ---- kernel programs ----
BPF_OBJECTS := guard held meter
$(BPF_OBJECTS:%=$(B)/gen/%.bpf.o): $(B)/gen/%.bpf.o: bpf/%.bpf.c $(wildcard bpf/*.h) vmlinux/vmlinux.h
	$(say) BPF $@
	@mkdir -p $(@D)
	$(Q)$(CLANG) -g -O2 -target bpf -D__TARGET_ARCH_x86 -mcpu=v3 -Wall -Wextra -Wno-unused-parameter -Werror -Ivmlinux -Ibpf -c $< -o $@
	$(Q)llvm-strip -g $@ 2>/dev/null || true

$(BPF_OBJECTS:%=$(B)/gen/%.skel.h): $(B)/gen/%.skel.h: $(B)/gen/%.bpf.o
	$(say) SKEL $@
	$(Q)$(BPFTOOL) gen skeleton $< name $*_bpf > $@

# ---- pid 1 of a sandbox: a static program, embedded whole ----
define init_rules
$(B)/gen/$(1)/weir-init: runner/init.c $(wildcard runner/init_*.c) runner/localnet.c userspace/ipc/decode.c userspace/core/envname.c $(wildcard runner/*.h bpf/*.h userspace/ipc/*.h userspace/core/*.h)
	$$(say) INIT $$@
	@mkdir -p $$(@D)
	$$(Q)$$(CC) -std=gnu17 -Os -g0 $$(WARN) -fstack-protector-strong -static -s $$(CPPFLAGS) $(2) $$(filter %.c,$$^) -o $$@
endef
$(eval $(call init_rules,plain,))
$(eval $(call init_rules,hooks,-DWEIR_TEST_HOOKS))

$(B)/obj/runner/blobs.o: CPPFLAGS += -DINIT_BLOB='"$(B)/gen/plain/weir-init"'
$(B)/obj-hooks/runner/blobs.o: CPPFLAGS += -DINIT_BLOB='"$(B)/gen/hooks/weir-init"'
EMBEDDED := $(wildcard runner/*.py) $(wildcard policies/*.json)
$(B)/obj/runner/blobs.o: $(B)/gen/plain/weir-init $(EMBEDDED)
$(B)/obj-hooks/runner/blobs.o: $(B)/gen/hooks/weir-init $(EMBEDDED)
$(B)/obj/userspace/kernel/guard.o $(B)/obj-hooks/userspace/kernel/guard.o: $(B)/gen/guard.skel.h
$(B)/obj/userspace/attach/inspect_sockets.o $(B)/obj-hooks/userspace/attach/inspect_sockets.o: $(B)/gen/held.skel.h
$(B)/obj/userspace/kernel/meter.o $(B)/obj-hooks/userspace/kernel/meter.o: $(B)/gen/meter.skel.h

$(B)/obj/%.o: %.c
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -MMD -MP -c $< -o $@

$(B)/obj-hooks/%.o: %.c
	$(say) CC "$< (test hooks)"
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -DWEIR_TEST_HOOKS -MMD -MP -c $< -o $@

$(B)/weir: $(WEIR_OBJ)
	$(say) LINK $@
	$(Q)$(CC) $(ALL_LDFLAGS) $^ $(LIBS) -o $@

$(LIBWEIR): $(filter-out $(B)/obj/userspace/cli/main.o,$(WEIR_OBJ))
	$(say) AR $@
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/weir-hooks: $(HOOKS_OBJ)
	$(say) LINK $@
	$(Q)$(CC) $(ALL_LDFLAGS) $^ $(LIBS) -o $@

# ---- unit tests: one cmocka program per file; core and pure modules only, no root ----
UNIT := $(patsubst tests/unit/%.c,$(B)/unit/%,$(wildcard tests/unit/test_*.c))
$(B)/unit/%: tests/unit/%.c $(LIBWEIR)
	$(say) TEST $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(ALL_LDFLAGS) $^ -lcmocka $(LIBS) -o $@

# ---- tests against the kernel's programs, and of the api process behind fake peers ----
BPF_TESTS := $(patsubst tests/bpf/%.c,$(B)/bpf/%,$(wildcard tests/bpf/test_*.c))
API_TESTS := $(patsubst tests/api/%.c,$(B)/api/%,$(wildcard tests/api/test_*.c))
-include tests/bpf/rules.mk tests/api/rules.mk
-include tests/progs/rules.mk tests/agents/rules.mk tests/containers/rules.mk tests/report/rules.mk

-include $(WEIR_OBJ:.o=.d) $(HOOKS_SRC:%.c=$(B)/obj-hooks/%.d)

.PHONY: run
run: ## from a clone to 42 and a denied DNS leak: installs, builds, serves, shows
	@deploy/quickstart

.PHONY: test
test: ## every test that runs on this machine (root; under ten minutes)
	@deploy/install-packages build run test
	@$(MAKE) --no-print-directory -j2 $(B)/weir $(B)/weir-hooks units progs
	@WEIR_SOAK=$${WEIR_SOAK:-500} python3 tests/run.py unit bpf api system

.PHONY: test-audit
test-audit: $(B)/weir ## what runs used and did, and whether the record can be trusted (root; under three minutes)
	@deploy/install-packages build run test
	@$(MAKE) --no-print-directory -j2 $(B)/weir-hooks progs
	@python3 tests/run.py --at-once 2 audit

.PHONY: test-crash
test-crash: $(B)/weir ## every process of Weir killed in turn, at the start, in the middle of a run, at the end (root)
	@$(MAKE) --no-print-directory -j2 $(B)/weir-hooks progs
	@python3 tests/run.py crash

.PHONY: test-san
test-san: ## the unit and API tests again, built with ASan and UBSan
	@deploy/install-packages build test
	@$(MAKE) --no-print-directory -j2 SAN=1 units
	@python3 tests/run.py san:unit san:api

.PHONY: hooks
hooks: $(B)/weir-hooks
.PHONY: units
units: $(UNIT) $(API_TESTS) $(if $(SANFLAGS),,$(BPF_TESTS))

.PHONY: check
check: units ## unit and api tests, no root needed
	@python3 tests/run.py unit api

.PHONY: test-packages
test-packages: ## images, and numpy, pandas and matplotlib of the distribution in one (root; downloads them the first time)
	@deploy/install-packages build run test packages
	@$(MAKE) --no-print-directory -j2 $(B)/weir $(B)/weir-hooks
	@python3 tests/run.py packages

.PHONY: test-agents
test-agents: ## images, agents, tool calls, their way out, MCP and the SDK (root; under five minutes)
	@deploy/install-packages build run test agents
	@$(MAKE) --no-print-directory -j2 $(B)/weir $(B)/weir-hooks $(AGENT_PROGS)
	@python3 tests/run.py agents

.PHONY: test-attach
test-attach: ## policies on cgroups that somebody else made: attach, detach, status, the service (root; under five minutes)
	@deploy/install-packages build run test containers
	@$(MAKE) --no-print-directory -j2 $(B)/weir $(B)/weir-hooks progs $(B)/bpf/test_attached $(B)/bpf/test_canary
	@python3 tests/run.py -k test_attached bpf
	@python3 tests/run.py -k test_canary bpf
	@python3 tests/run.py --at-once 2 attach

.PHONY: test-containers
test-containers: ## containers, pods, hooks and manifests (root; under four minutes)
	@deploy/install-packages build run test containers
	@$(MAKE) --no-print-directory -j2 $(B)/weir $(B)/weir-hooks $(CONTAINER_PROGS)
	@/usr/bin/python3 tests/run.py containers

KERNEL ?= 6.1
.PHONY: test-containers-long
test-containers-long: ## the manifests' containers, started by podman with the privileges that they give (root)
	@deploy/install-packages build run test agents containers
	@$(MAKE) --no-print-directory -j2 $(B)/weir $(B)/weir-hooks $(CONTAINER_PROGS)
	@/usr/bin/python3 tests/run.py containers_long

.PHONY: test-vm
test-vm: ## the core on a stock kernel under emulation: KERNEL=6.1 (default), 6.12, 7.2
	@deploy/install-packages build run test containers vm
	@$(MAKE) --no-print-directory -j2 $(B)/weir $(B)/weir-hooks $(B)/bpf/test_rules $(B)/bpf/test_judge $(CONTAINER_PROGS)
	@tests/vm/fetch $(KERNEL)
	@tests/vm/run --kernel $(KERNEL) --timeout 900 -- env WEIR_SLOW=12 MUST_WORK=$(MUST_WORK) /usr/bin/python3 tests/run.py guest

.PHONY: test-vm-long
test-vm-long: ## more on that kernel: guards of attachments, the canary, units under a real systemd (minutes)
	@deploy/install-packages build run test containers vm
	@$(MAKE) --no-print-directory -j2 $(B)/weir $(B)/weir-hooks $(B)/bpf/test_attached $(B)/bpf/test_canary $(B)/bpf/test_meter
	@tests/vm/fetch $(KERNEL)
	@tests/vm/run --kernel $(KERNEL) --timeout 1500 -- env WEIR_SLOW=12 MUST_WORK=$(MUST_WORK) /usr/bin/python3 tests/run.py guest_long

.PHONY: test-million
test-million: $(B)/weir $(B)/bpf/test_judge ## a million random pairs twice: the kernel against user space (root), user space against the oracle
	@WEIR_PAIRS=$${WEIR_PAIRS:-1000000} $(B)/bpf/test_judge
	@WEIR_PAIRS=$${WEIR_PAIRS:-1000000} python3 tests/run.py system -k RandomPairs.test_same_answers_new_seed

.PHONY: test-soak
test-soak: $(B)/weir ## 50,000 runs of every ending, 16 at a time (WEIR_SOAK=N for another number; root)
	@WEIR_SOAK=$${WEIR_SOAK:-50000} python3 tests/run.py system -k test_soak

# ---- fuzzers: libFuzzer on every parser of something that others write ----
FUZZERS := $(patsubst tests/fuzz/%.c,build/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_OBJ := $(patsubst %.c,build/fuzz/obj/%.o,$(filter-out userspace/cli/main.c,$(WEIR_SRC)))
FUZZ_FLAGS := -std=gnu17 -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined $(CPPFLAGS)
FUZZ_SECONDS ?= 60
build/fuzz/obj/userspace/kernel/guard.o: $(B)/gen/guard.skel.h
build/fuzz/obj/userspace/attach/inspect_sockets.o: $(B)/gen/held.skel.h
build/fuzz/obj/userspace/kernel/meter.o: $(B)/gen/meter.skel.h
build/fuzz/obj/runner/blobs.o: CPPFLAGS += -DINIT_BLOB='"$(B)/gen/plain/weir-init"'
build/fuzz/obj/runner/blobs.o: $(B)/gen/plain/weir-init $(EMBEDDED)
build/fuzz/obj/%.o: %.c
	$(say) FUZZCC $<
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(FUZZ_FLAGS) $(CPPFLAGS) -MMD -MP -c $< -o $@
build/fuzz/libweir.a: $(FUZZ_OBJ)
	$(say) AR $@
	$(Q)rm -f $@ && ar rcs $@ $^
$(FUZZERS): build/fuzz/%: tests/fuzz/%.c build/fuzz/libweir.a
	$(say) FUZZLD $@
	$(Q)$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer $< build/fuzz/libweir.a $(LIBS) -o $@
-include $(FUZZ_OBJ:.o=.d)

.PHONY: fuzz
fuzz: ## run every fuzzer for FUZZ_SECONDS (60) from its corpus
	@deploy/install-packages build fuzz
	@$(MAKE) --no-print-directory -j2 fuzzers
	@tests/fuzz/run $(FUZZ_SECONDS) $(FUZZERS)
.PHONY: fuzzers
fuzzers: $(FUZZERS)

C_FILES = $(wildcard $(shell git ls-files -co --exclude-standard '*.c' '*.h' ':!vmlinux'))
.PHONY: format
format: ## reformat the C files
	clang-format -i $(C_FILES)

.PHONY: lint
lint: $(BPF_OBJECTS:%=$(B)/gen/%.skel.h) ## clang-format, cppcheck, clang-tidy, shellcheck, and the rule that core and report are pure
	@deploy/install-packages lint
	$(say) FORMAT
	$(Q)clang-format --dry-run -Werror $(C_FILES)
	$(say) PURE "userspace/core and userspace/report include no kernel, network or process interface"
	$(Q)! grep -nE '#include [<"](bpf/|linux/bpf|sys/socket|sys/mount|sched|microhttpd|seccomp|kernel/|supervisor/|api/|auditor/)' userspace/core/*.[ch] $(wildcard userspace/report/*.[ch])
	$(say) SHELL
	$(Q)shellcheck deploy/install-packages deploy/quickstart deploy/container/weir .ci/run tests/fuzz/run tests/vm/fetch tests/vm/run
	$(say) CPPCHECK
	$(Q)cppcheck -q -j2 --std=c11 --error-exitcode=1 --enable=warning,performance,portability --inline-suppr \
		--suppressions-list=tests/cppcheck.supp -DINIT_BLOB='""' '-DLIBBPF_OPTS(t,n,...)=struct t n={__VA_ARGS__}' \
		-Ibpf -Iuserspace -Irunner -I$(B)/gen userspace runner
	$(say) TIDY
	$(Q)printf '%s\n' $(WEIR_SRC) $(wildcard runner/init*.c) | xargs -P2 -n6 sh -c 'clang-tidy --quiet "$$@" -- -std=gnu17 -Ibpf -Iuserspace \
		-Irunner -I$(B)/gen -D_GNU_SOURCE -DINIT_BLOB="\"/dev/null\"" 2>/dev/null' tidy

$(B)/bench/hostload: tests/bench/hostload.c
	$(say) BENCH $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -D_GNU_SOURCE $(ALL_LDFLAGS) $< -o $@

.PHONY: bench
bench: $(B)/weir $(B)/bench/bench_judge $(B)/bench/hostload ## figures of this machine, with floors and peers beside them (root)
	-@deploy/install-packages bench # peers: without them their rows say so
	@python3 tests/bench/bench.py

.PHONY: install
install: $(B)/weir ## install below PREFIX (default /usr/local), honouring DESTDIR
	install -D -m 755 $(B)/weir $(DESTDIR)$(PREFIX)/bin/weir
	for m in docs/man/*.[15]; do install -D -m 644 $$m $(DESTDIR)$(PREFIX)/share/man/man$${m##*.}/$$(basename $$m); done
	install -D -m 644 docs/completion/weir.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/weir
	for p in policies/*.json; do install -D -m 644 $$p $(DESTDIR)$(PREFIX)/share/weir/policies/$$(basename $$p); done
	for u in deploy/systemd/*.service; do install -D -m 644 $$u $(DESTDIR)$(PREFIX)/lib/systemd/system/$$(basename $$u); done
	install -D -m 644 deploy/systemd/10-weir-policy.conf $(DESTDIR)$(PREFIX)/share/weir/systemd/10-weir-policy.conf
	for h in weir.json weir-stop.json; do install -D -m 644 deploy/oci/$$h $(DESTDIR)$(PREFIX)/share/weir/oci/$$h; done
	sed -i 's#/usr/local/bin/weir#$(PREFIX)/bin/weir#g' $(DESTDIR)$(PREFIX)/lib/systemd/system/weir*.service \
		$(DESTDIR)$(PREFIX)/share/weir/systemd/10-weir-policy.conf $(DESTDIR)$(PREFIX)/share/weir/oci/*.json

.PHONY: clean
clean: ## remove build/
	rm -rf build

.PHONY: help
help: ## this list
	@awk -F':.*## ' '/^[a-z][a-z-]*:.*## /{printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
