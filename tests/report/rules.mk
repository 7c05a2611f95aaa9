# A record as a page: what the suite in tests/report looks at.
$(B)/report/render: tests/report/render.c $(LIBWEIR)
	$(say) PROG $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(ALL_LDFLAGS) $^ $(LIBS) -o $@

.PHONY: test-report
test-report: ## the audit report in a real browser: accessible, self-contained, safe with hostile names (under a minute)
	@deploy/install-packages build run test report
	@$(MAKE) --no-print-directory -j2 $(B)/weir $(B)/report/render
	@python3 tests/run.py report
