/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/bpfcost.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"

int bpfcost_measure(void)
{
	int fd = bpf_enable_stats(BPF_STATS_RUN_TIME);

	return fd < 0 ? -errno : fd;
}

/* What the kernel says of the memory behind a descriptor of its; 0: it does not. */
static uint64_t memlock(int fd)
{
	_cleanup_fd_ int info = -1;
	unsigned long long bytes = 0;
	char path[48], text[2048];
	const char *line;
	ssize_t n;

	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	info = open(path, O_RDONLY | O_CLOEXEC);
	n = info < 0 ? -1 : read(info, text, sizeof text - 1);
	if (n < 0)
		return 0;
	text[n] = 0;
	line = strstr(text, "memlock:");
	return line && sscanf(line, "memlock: %llu", &bytes) == 1 ? bytes : 0;
}

int bpfcost_program(uint32_t id, struct bpfcost_program *ret)
{
	struct bpf_prog_info info = {.nr_map_ids = BPFCOST_MAPS, .map_ids = (uintptr_t)ret->maps};
	uint32_t len = sizeof info;
	_cleanup_fd_ int fd = bpf_prog_get_fd_by_id(id);

	if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &len) < 0)
		return -errno;
	snprintf(ret->name, sizeof ret->name, "%s", info.name);
	ret->run_ns = info.run_time_ns;
	ret->runs = info.run_cnt;
	ret->memory = memlock(fd);
	ret->map_count = info.nr_map_ids < BPFCOST_MAPS ? info.nr_map_ids : BPFCOST_MAPS;
	return 0;
}

int bpfcost_map(uint32_t id, struct bpfcost_map *ret)
{
	struct bpf_map_info info = {0};
	uint32_t len = sizeof info;
	_cleanup_fd_ int fd = bpf_map_get_fd_by_id(id);

	if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &len) < 0)
		return -errno;
	snprintf(ret->name, sizeof ret->name, "%s", info.name);
	ret->memory = memlock(fd);
	return 0;
}
