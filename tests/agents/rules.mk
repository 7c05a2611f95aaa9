# The way out of a tool's sandbox, driven without the rest of the service.
$(B)/agents/carry: tests/agents/carry.c runner/init_net.c $(filter-out $(B)/obj/userspace/cli/main.o,$(WEIR_OBJ))
	$(say) PROG $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(ALL_LDFLAGS) $^ $(LIBS) -o $@
AGENT_PROGS := $(B)/agents/carry
