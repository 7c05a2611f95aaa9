# Small programs that try to get out, for tests/system: one program, a way out by name.
VECTOR_SRC := $(wildcard tests/progs/vector*.c)
PROGS := $(B)/progs/vector $(B)/progs/flood $(B)/progs/storm $(B)/progs/look $(B)/progs/cgprog
$(B)/progs/vector: $(VECTOR_SRC) tests/progs/vector.h
	$(say) PROG $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -D_GNU_SOURCE -Itests/progs $(ALL_LDFLAGS) $(filter %.c,$^) -o $@

$(B)/progs/flood: tests/progs/flood.c
	$(say) PROG $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -D_GNU_SOURCE $(ALL_LDFLAGS) $^ -o $@

# Runs inside a sandbox, from whatever it is copied to.
$(B)/progs/storm: tests/progs/storm.c
	$(say) PROG $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(filter-out -fPIE,$(ALL_CFLAGS)) -D_GNU_SOURCE -static -s -pthread $^ -o $@

# What Weir sees of a cgroup before it attaches anything, and somebody else's program on one.
$(B)/progs/look: tests/progs/look.c $(filter-out $(B)/obj/userspace/cli/main.o,$(WEIR_OBJ))
	$(say) PROG $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(ALL_LDFLAGS) $^ $(LIBS) -o $@

$(B)/progs/cgprog: tests/progs/cgprog.c
	$(say) PROG $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -D_GNU_SOURCE $(ALL_LDFLAGS) $^ -lbpf -o $@

.PHONY: progs
progs: $(PROGS)
