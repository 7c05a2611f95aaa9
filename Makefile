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
CPPFLAGS := -Ibpf -Iuserspace -Irunner -I$(B)/gen -D_GNU_SOURCE -DWEIR_VERSION='"$(VERSION)"'
CFLAGS ?= -O2 -g
ALL_CFLAGS := -std=gnu17 $(CFLAGS) $(WARN) $(if $(SANFLAGS),$(SANFLAGS),$(HARDEN))
ALL_LDFLAGS := $(if $(SANFLAGS),$(SANFLAGS),$(HARDEN_LD)) $(LDFLAGS)
LIBS := -lbpf -lelf -lseccomp -ljansson -lmicrohttpd -lgnutls

CORE_SRC := $(wildcard userspace/core/*.c)
WEIR_SRC := $(wildcard userspace/*/*.c) $(filter-out runner/init.c runner/init_%.c,$(wildcard runner/*.c))
WEIR_OBJ := $(WEIR_SRC:%.c=$(B)/obj/%.o)
# The same program with switches that make a set-up step fail or be left out: for tests, never installed.
HOOKS_OBJ := $(WEIR_SRC:%.c=$(B)/obj-hooks/%.o)

.PHONY: all
all: $(B)/weir ## build build/weir

-include Makefile.local

# ---- kernel programs ----
$(B)/gen/guard.bpf.o: bpf/guard.bpf.c $(wildcard bpf/*.h) vmlinux/vmlinux.h
	$(say) BPF $@
	@mkdir -p $(@D)
	$(Q)$(CLANG) -g -O2 -target bpf -D__TARGET_ARCH_x86 -mcpu=v3 -Wall -Wextra -Wno-unused-parameter -Werror -Ivmlinux -Ibpf -c $< -o $@
	$(Q)llvm-strip -g $@ 2>/dev/null || true

$(B)/gen/guard.skel.h: $(B)/gen/guard.bpf.o
	$(say) SKEL $@
	$(Q)$(BPFTOOL) gen skeleton $< name guard_bpf > $@

# ---- pid 1 of a sandbox: a static program, embedded whole ----
define init_rules
$(B)/gen/$(1)/weir-init: runner/init.c $(wildcard runner/init_*.c) $(wildcard runner/*.h bpf/*.h userspace/ipc/*.h userspace/core/*.h)
	$$(say) INIT $$@
	@mkdir -p $$(@D)
	$$(Q)$$(CC) -std=gnu17 -Os -g0 $$(WARN) -fstack-protector-strong -static -s $$(CPPFLAGS) $(2) $$(filter %.c,$$^) -o $$@
endef
$(eval $(call init_rules,plain,))
$(eval $(call init_rules,hooks,-DWEIR_TEST_HOOKS))

$(B)/obj/runner/blobs.o: CPPFLAGS += -DINIT_BLOB='"$(B)/gen/plain/weir-init"'
$(B)/obj-hooks/runner/blobs.o: CPPFLAGS += -DINIT_BLOB='"$(B)/gen/hooks/weir-init"'
$(B)/obj/runner/blobs.o: $(B)/gen/plain/weir-init runner/harness.py policies/snippet.json
$(B)/obj-hooks/runner/blobs.o: $(B)/gen/hooks/weir-init runner/harness.py policies/snippet.json
$(B)/obj/userspace/kernel/guard.o $(B)/obj-hooks/userspace/kernel/guard.o: $(B)/gen/guard.skel.h

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

$(B)/weir-hooks: $(HOOKS_OBJ)
	$(say) LINK $@
	$(Q)$(CC) $(ALL_LDFLAGS) $^ $(LIBS) -o $@

# ---- unit tests: one cmocka program per file; core and pure modules only, no root ----
UNIT := $(patsubst tests/unit/%.c,$(B)/unit/%,$(wildcard tests/unit/test_*.c))
$(B)/unit/%: tests/unit/%.c $(filter-out $(B)/obj/userspace/cli/main.o,$(WEIR_OBJ))
	$(say) TEST $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(ALL_LDFLAGS) $^ -lcmocka $(LIBS) -o $@

-include $(WEIR_OBJ:.o=.d) $(HOOKS_OBJ:.o=.d)

.PHONY: clean
clean: ## remove build/
	rm -rf build

.PHONY: help
help: ## this list
	@awk -F':.*## ' '/^[a-z][a-z-]*:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
