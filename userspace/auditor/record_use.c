/* SPDX-License-Identifier: Apache-2.0 */
/* Records of what was counted of a run, or of a window: programs, refused calls, moments, and the second source of each sum. */
#include "auditor/record_parts.h"

#include <stdio.h>
#include <string.h>

static int set_u64(json_t *into, const char *name, uint64_t value)
{
	return json_object_set_new(into, name, event_u64(value));
}

/* What is not known, and what a kernel has said, are never the same number. */
static int set_known(json_t *into, const char *name, bool known, uint64_t value)
{
	return json_object_set_new(into, name, known ? event_u64(value) : json_null());
}

static uint64_t less(uint64_t whole, uint64_t part)
{
	return whole > part ? whole - part : 0;
}

static json_t *traffic(uint64_t packets, uint64_t bytes)
{
	return json_pack("{s:o, s:o}", "packets", event_u64(packets), "bytes", event_u64(bytes));
}

/* The packet hook's own, whether or not there was a meter. */
static json_t *packets_json(const struct tell_meter *m, uint64_t net_bytes)
{
	return json_pack(
	    "{s:o, s:o, s:o}", "allowed", traffic(less(m->packets, m->watched_packets), less(net_bytes, m->watched_bytes)),
	    "denied", traffic(m->denied_packets, m->denied_bytes), "would_deny", traffic(m->watched_packets, m->watched_bytes));
}

static json_t *meter_json(const struct tell_meter *m)
{
	json_t *meter = m->there ? json_object() : NULL;
	int bad = meter ? 0 : -1;

	if (!m->there)
		return json_null();
	bad |= set_u64(meter, "cpu_us", m->cpu_us);
	bad |= set_known(meter, "peak_rss", m->peak_rss != 0, m->peak_rss);
	bad |= set_u64(meter, "written_bytes", m->written_bytes);
	bad |= set_u64(meter, "processes", m->processes);
	bad |= set_u64(meter, "threads", m->threads);
	bad |= set_u64(meter, "execs", m->execs);
	bad |= set_u64(meter, "execs_unlisted", m->execs_unlisted);
	bad |= set_u64(meter, "oom_victims", m->oom_victims);
	bad |= set_u64(meter, "incomplete", m->incomplete);
	if (bad) {
		json_decref(meter);
		return NULL;
	}
	return meter;
}

int record_use(json_t *into, const struct tell_meter *m, uint64_t net_bytes)
{
	int bad = json_object_set_new(into, "meter", meter_json(m));

	bad |= json_object_set_new(into, "packets", packets_json(m, net_bytes));
	bad |= set_u64(into, "oom_kills", m->oom_kills);
	bad |= set_known(into, "rusage_cpu_us", m->rusage_cpu_us != 0, m->rusage_cpu_us);
	bad |= set_known(into, "syscalls_refused", m->syscalls_refused != UINT64_MAX, m->syscalls_refused);
	bad |= set_known(into, "syscalls_interrupted", m->syscalls_interrupted != UINT64_MAX, m->syscalls_interrupted);
	bad |= set_u64(into, "events_lost", m->events_lost);
	bad |= set_u64(into, "details_dropped", m->details_dropped);
	return bad;
}

int record_exec(json_t *into, const struct weir_meter_event *ev)
{
	int bad = 0;

	if (ev->type == WEIR_METER_EXEC) {
		bad |= record_set_safe(into, "path", ev->path, ev->path_len);
		bad |= json_object_set_new(into, "path_cut", json_boolean(ev->path_cut));
	}
	bad |= json_object_set_new(into, "pid", ev->pid ? json_integer(ev->pid) : json_null());
	bad |= json_object_set_new(into, "host_pid", ev->host_pid ? json_integer(ev->host_pid) : json_null());
	bad |= json_object_set_new(into, "uid", json_integer(ev->uid));
	bad |= record_set_safe(into, "command", ev->comm, sizeof ev->comm);
	bad |= set_u64(into, "cgroup", ev->cgroup);
	bad |= set_u64(into, "event_seq", ev->seq);
	return bad;
}

/* "EPERM"; a number that the C library has no name for as "errno 4095". */
static json_t *errno_json(uint32_t error)
{
	const char *name = strerrorname_np((int)error);
	char text[32];

	snprintf(text, sizeof text, "errno %u", error);
	return json_string(name ? name : text);
}

int record_syscall(json_t *into, const struct note *note)
{
	struct event_clock now = {note->wall_ns, note->boot_ns};
	uint64_t first = note->syscall.first_ns, last = note->syscall.last_ns;
	int bad = note->syscall.name[0] ? record_set_safe(into, "name", note->syscall.name, sizeof note->syscall.name)
					: json_object_set_new(into, "name", json_null());

	bad |= json_object_set_new(into, "number", json_integer(note->syscall.number));
	bad |= json_object_set_new(into, "errno", errno_json(note->syscall.error));
	bad |= set_u64(into, "count", note->syscall.count);
	bad |= set_u64(into, "interrupted", note->syscall.interrupted);
	bad |= json_object_set_new(into, "first", record_wall(first ? event_wall_ns(now, first) : 0));
	bad |= json_object_set_new(into, "last", record_wall(last ? event_wall_ns(now, last) : 0));
	return bad;
}

static json_t *sample_json(const struct note_sample *s)
{
	return json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "at_ms", (json_int_t)s->at_ms, "cpu_ms", (json_int_t)s->cpu_ms,
			 "memory_bytes", (json_int_t)s->memory_kib * 1024, "processes",
			 s->processes ? json_integer(s->processes) : json_null(), "attempts", event_u64(s->attempts), "denied",
			 event_u64(s->denied), "refused", event_u64(s->refused));
}

int record_samples(json_t *into, const struct note *note)
{
	json_t *list = json_array();
	int bad = list ? 0 : -1;

	for (uint32_t i = 0; !bad && i < note->samples.count; i++)
		bad = json_array_append_new(list, sample_json(&note->samples.of[i]));
	return json_object_set_new(into, "samples", list) | bad;
}
