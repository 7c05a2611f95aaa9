# The api process behind a fake supervisor and auditor, with libcurl as its client, and the run protocol alone: no root, loopback
# only; about 60 s, half of them the wait limit of 30 s itself.
API_TEST_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard userspace/api/*.c userspace/collector/*.c userspace/ipc/*.c) \
	userspace/kernel/confine.c \
	$(addprefix userspace/core/,err.c log.c utf8.c jtext.c jcheck.c token.c tokens.c escape.c base64.c filepath.c envname.c media_type.c))
# The run protocol alone has a rig of its own, which also moves the clock.
$(patsubst tests/api/%.c,$(B)/api/%,$(wildcard tests/api/test_runclient_*.c)): tests/api/runclient_rig.c tests/api/runclient_rig.h
$(B)/api/%: tests/api/%.c tests/api/rig.c tests/api/client.c tests/api/rig.h tests/api/client.h $(API_TEST_OBJ)
	$(say) TEST $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -Itests/api $(ALL_LDFLAGS) $(filter %.c %.o,$^) -lcmocka -lcurl -lseccomp -ljansson \
		-lmicrohttpd -lgnutls -o $@
