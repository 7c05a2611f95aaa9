/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel, and eBPF with it, calls a cgroup. */
#ifndef WEIR_KERNEL_CGROUPID_H
#define WEIR_KERNEL_CGROUPID_H

#include <fcntl.h>
#include <stdint.h>

/* Of a directory of cgroup2: its file handle, which is also its inode where inodes have 64 bits. 0: it is none. */
static inline uint64_t cgroup_id_of(int fd)
{
	struct {
		struct file_handle h;
		uint64_t id;
	} fh = {.h.handle_bytes = sizeof fh.id};
	int mount_id;

	return name_to_handle_at(fd, "", &fh.h, &mount_id, AT_EMPTY_PATH) == 0 ? fh.id : 0;
}

#endif
