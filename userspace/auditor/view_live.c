/* SPDX-License-Identifier: Apache-2.0 */
/* A run that goes on: its figures so far, in the places that those of its end will have. */
#include <errno.h>

#include "auditor/record_parts.h"
#include "auditor/view_internal.h"
#include "core/event.h"

static json_t *content_of(const uint64_t *output)
{
	return output ? json_pack("{s:{s:{s:o}}}", "content", "stdout", "bytes", event_u64(*output)) : NULL;
}

/* The kernel's counters, in the place of what is listed so far. What is lost of the details, only the end can say. */
static int put_egress(json_t *run, const json_t *end)
{
	static const char *const names[] = {"attempts", "denied", "allowed", "would_deny", "inbound"};
	json_t *egress = json_object_get(run, "egress");
	int bad = json_object_set_new(egress, "exact", json_true());

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		bad |= view_set_copy(egress, names[i], end, names[i]);
	return bad;
}

/* More may have been told of by now than was counted when the figures were gathered. */
static int put_count(json_t *into, const char *list, const json_t *from, const char *name)
{
	const uint64_t listed = json_array_size(json_object_get(into, list));
	const uint64_t told = view_number(into, "count"), now = view_number(from, name);

	if (!into || !json_is_integer(json_object_get(from, name)))
		return 0;
	if (json_object_get(into, "unlisted") &&
	    json_object_set_new(into, "unlisted", event_u64((now > told ? now : told) - listed)) < 0)
		return -1;
	return json_object_set_new(into, "count", event_u64(now > told ? now : told));
}

static int put_use(json_t *run, const json_t *end)
{
	static const char *const metered[] = {"processes", "threads", "oom_victims"};
	const json_t *meter = json_object_get(end, "meter");
	int bad = view_set_copy(run, "oom_kills", end, "oom_kills") | view_set_copy(run, "packets", end, "packets");

	for (size_t i = 0; i < sizeof metered / sizeof metered[0]; i++)
		bad |= view_set_copy(run, metered[i], meter, metered[i]);
	bad |= put_count(json_object_get(run, "execs"), "programs", meter, "execs");
	return bad | put_count(json_object_get(run, "refused_syscalls"), "calls", end, "syscalls_refused");
}

int view_put_live(json_t *run, const struct tell_usage *now, const uint64_t *output)
{
	json_t *end = json_object(), *content = content_of(output);
	int bad = record_end(end, &now->end);

	bad |= json_object_set_new(run, "live", json_true());
	bad |= json_object_set_new(run, "duration_ms", event_u64(now->end.duration_us / 1000));
	bad |= json_object_set_new(
	    run, "usage", view_usage(end, content, now->flow_bytes == UINT64_MAX ? json_null() : event_u64(now->flow_bytes)));
	bad |= put_egress(run, end);
	bad |= put_use(run, end);
	json_decref(end);
	json_decref(content);
	return bad ? -ENOMEM : 0;
}
