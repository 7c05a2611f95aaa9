# The api process behind a fake supervisor and auditor, with libcurl as its client: no root, loopback only; about 60 s, half
# of them the wait limit of 30 s itself.
API_TEST_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard userspace/api/*.c) userspace/ipc/ipc.c \
	$(addprefix userspace/core/,err.c log.c utf8.c jtext.c token.c))
$(B)/api/%: tests/api/%.c tests/api/rig.c tests/api/client.c tests/api/rig.h tests/api/client.h $(API_TEST_OBJ)
	$(say) TEST $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -Itests/api $(ALL_LDFLAGS) $(filter %.c %.o,$^) -lcmocka -lcurl -lseccomp -ljansson \
		-lmicrohttpd -lgnutls -lpthread -o $@

# `make fuzz-request`: the request body, with a second parser to disagree with. FUZZ_SECONDS=60
FUZZ_SECONDS ?= 60
$(B)/fuzz/fuzz_request: tests/fuzz/fuzz_request.c $(addprefix userspace/,api/request.c api/error.c core/jtext.c core/utf8.c core/err.c)
	$(say) FUZZ $@
	@mkdir -p $(@D)
	$(Q)$(CLANG) -std=gnu17 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined $(CPPFLAGS) $^ -ljansson -o $@

.PHONY: fuzz-request
fuzz-request: $(B)/fuzz/fuzz_request
	@mkdir -p $(B)/fuzz/corpus-request
	$< -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -timeout=5 -artifact_prefix=$(B)/fuzz/ $(B)/fuzz/corpus-request \
		$(wildcard tests/fuzz/corpus/request)
