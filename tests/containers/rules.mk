# What runs inside the containers of tests/containers: all they need to have of a root directory.
$(B)/containers/probe: tests/containers/probe.c
	$(say) PROG $@
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu17 $(CFLAGS) $(WARN) -D_GNU_SOURCE -static -s $^ -o $@
CONTAINER_PROGS := $(B)/containers/probe
