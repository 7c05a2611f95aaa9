# Kernel programs on the running kernel: root, cgroup2 and namespaces; about 10 s.
GUARD_OBJ := $(addprefix $(B)/obj/userspace/,kernel/guard.o kernel/guard_maps.o kernel/guardpins.o core/err.o core/event.o core/dnsname.o core/netaddr.o)
$(addprefix $(B)/bpf/,test_guard test_rules test_attached test_events): $(B)/bpf/%: tests/bpf/%.c tests/bpf/scratch.h $(GUARD_OBJ)
	$(say) TEST $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(ALL_LDFLAGS) $(filter-out %.h,$^) -lcmocka -lbpf -lelf -ljansson -o $@

$(B)/bpf/test_meter: tests/bpf/test_meter.c tests/bpf/scratch.h $(B)/obj/userspace/kernel/meter.o $(B)/obj/userspace/kernel/guard.o $(B)/obj/userspace/kernel/guard_maps.o $(B)/obj/userspace/kernel/guardpins.o $(B)/obj/userspace/core/err.o
	$(say) TEST $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(ALL_LDFLAGS) $(filter-out %.h,$^) -lcmocka -lbpf -lelf -o $@

# The try from inside: with all that picks destinations and compiles policies.
$(B)/bpf/test_canary: tests/bpf/test_canary.c tests/bpf/scratch.h $(LIBWEIR)
	$(say) TEST $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(ALL_LDFLAGS) $(filter-out %.h,$^) -lcmocka $(LIBS) -o $@

# The packet hook's judgement behind a program that can be run on demand.
$(B)/gen/test_judge.bpf.o: tests/bpf/judge.bpf.c $(wildcard bpf/*.h) vmlinux/vmlinux.h
	$(say) BPF $@
	@mkdir -p $(@D)
	$(Q)$(CLANG) -g -O2 -target bpf -D__TARGET_ARCH_x86 -mcpu=v3 -Wall -Wextra -Wno-unused-parameter -Werror -Ivmlinux -Ibpf -c $< -o $@
	$(Q)llvm-strip -g $@ 2>/dev/null || true

$(B)/gen/test_judge.skel.h: $(B)/gen/test_judge.bpf.o
	$(say) SKEL $@
	$(Q)$(BPFTOOL) gen skeleton $< name test_judge_bpf > $@

$(B)/bpf/test_judge: tests/bpf/test_judge.c tests/bpf/judge_rig.h $(B)/gen/test_judge.skel.h $(LIBWEIR)
	$(say) TEST $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(ALL_LDFLAGS) $(filter-out %.h,$^) -lcmocka $(LIBS) -o $@

$(B)/bench/bench_judge: tests/bench/bench_judge.c tests/bpf/judge_rig.h $(B)/gen/test_judge.skel.h $(LIBWEIR)
	$(say) BENCH $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(ALL_LDFLAGS) $(filter-out %.h,$^) -lcmocka $(LIBS) -o $@
