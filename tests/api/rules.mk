# The api process behind a fake supervisor and auditor, with libcurl as its client, and the run protocol alone: no root, loopback
# only; about 60 s, half of them the wait limit of 30 s itself.
# The run protocol alone has a rig of its own, which also moves the clock.
$(patsubst tests/api/%.c,$(B)/api/%,$(wildcard tests/api/test_runclient_*.c)): tests/api/runclient_rig.c tests/api/runclient_rig.h
$(B)/api/%: tests/api/%.c tests/api/rig.c tests/api/client.c tests/api/rig.h tests/api/client.h $(LIBWEIR)
	$(say) TEST $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -Itests/api $(ALL_LDFLAGS) $(filter %.c %.a,$^) -lcmocka -lcurl $(LIBS) -o $@
