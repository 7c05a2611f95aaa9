# Kernel programs on the running kernel: root, cgroup2 and namespaces; about 10 s.
$(B)/bpf/test_guard: tests/bpf/test_guard.c $(B)/obj/userspace/kernel/guard.o $(B)/obj/userspace/core/err.o
	$(say) TEST $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(ALL_LDFLAGS) $^ -lcmocka -lbpf -lelf -o $@
