/* SPDX-License-Identifier: Apache-2.0 */
/* Init's steps, one function a row of the plan: 0, or -1 with errno. They run once, as root, in this order. */
#ifndef WEIR_RUNNER_INIT_STEPS_H
#define WEIR_RUNNER_INIT_STEPS_H

#include <poll.h>
#include <stdbool.h>

#include "plan.h"

/* What a failing step wants to add to its errno; "" otherwise. */
extern char init_detail[96];

int init_scheduling(const struct init_plan *p);
int init_join_v1(const struct init_plan *p);
int init_cgroup_ns(const struct init_plan *p);
int init_hostname(const struct init_plan *p);
int init_network(const struct init_plan *p);
/* Of a tool with a way out, instead of init_network(): loopback up and nothing else; then the device, up, with addresses and
 * routes. */
int init_tap(const struct init_plan *p, int *ret_fd);
/* Sends the probes and stores what the kernel said to each; see struct init_report. */
void init_probe(int32_t ret_errno[PLAN_PROBES]);

int init_mount_private(const struct init_plan *p);
int init_mount_root(const struct init_plan *p);
int init_mount_etc(const struct init_plan *p);
int init_mount_dev(const struct init_plan *p);
int init_mount_shm(const struct init_plan *p);
int init_mount_tmp(const struct init_plan *p);
int init_mount_work(const struct init_plan *p);
int init_mount_proc(const struct init_plan *p);
int init_pivot(const struct init_plan *p);

/* The payload's environment; static. */
char **init_environment(const struct init_plan *p);

int init_empty_bounding_set(const struct init_plan *p);
int init_take_identity(const struct init_plan *p);
int init_empty_capabilities(const struct init_plan *p);

/* ---- init_refused.c ---- */
/* Both filters, while the descriptors are where the plan has them. */
int init_read_filters(const struct init_plan *p);
int init_load_own_filter(void);
/* In the payload. *ret_listener: a descriptor, or -EBUSY: none is to be had here, and nothing will be counted. */
int init_load_payload_filter(int *ret_listener);
/* What the payload got, as a descriptor of init's. Before INIT_FD_REFUSED is closed. */
int init_take_listener(int fd);
/* Hears one call and answers it; the listener is ready. */
int init_answer(int listener);
/*
 * From what poll() said of the listener: whether nobody is left who could ask. POLLERR says only that a signal or the freezer
 * came while somebody else had its lock; who asks next would wait for an answer for ever.
 */
static inline bool init_is_over(short revents)
{
	return (revents & (POLLHUP | POLLNVAL)) != 0;
}

#endif
