/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/attachment.h"
#include "core/cleanup.h"

#define MAGIC 0x31474f5250524957ull /* another form gets another number */

struct progress_slot {
	char id[IPC_ID_MAX];	/* "": free */
	_Atomic uint32_t which; /* of the two that holds; 0: none yet */
	uint32_t pad;
	struct progress_at at[2];
};

struct file {
	uint64_t magic, size;
	struct progress_slot slots[ATTACHED_MAX];
};

struct progress {
	struct file *file;
};

int progress_open(struct progress **ret, const char *path, struct err *e)
{
	_cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	struct file *file = MAP_FAILED;
	struct progress *p;
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, errno, "attached", "open %s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EINVAL, "attached", "%s is no regular file: remove it", path);
	/* All of it at once: a file system that is full later must not end us in the middle of a store. */
	if (st.st_size != sizeof *file && ftruncate(fd, 0) < 0)
		return err_errno(e, errno, "attached", "empty %s", path);
	rc = posix_fallocate(fd, 0, sizeof *file);
	if (rc != 0)
		return err_errno(e, rc, "attached", "make room for %s", path);
	file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (file == MAP_FAILED)
		return err_errno(e, errno, "attached", "map %s", path);
	if (file->magic != MAGIC || file->size != sizeof *file) {
		memset(file, 0, sizeof *file);
		file->size = sizeof *file;
		file->magic = MAGIC;
	}
	p = malloc(sizeof *p);
	if (!p) {
		munmap(file, sizeof *file);
		return err_set(e, ENOMEM, "attached", "out of memory");
	}
	p->file = file;
	*ret = p;
	return 0;
}

struct progress *progress_close(struct progress *p)
{
	if (p)
		munmap(p->file, sizeof *p->file);
	free(p);
	return NULL;
}

struct progress_slot *progress_of(struct progress *p, const char *id)
{
	struct progress_slot *vacant = NULL;

	for (size_t i = 0; i < ATTACHED_MAX; i++) {
		struct progress_slot *slot = &p->file->slots[i];

		if (!strncmp(slot->id, id, sizeof slot->id))
			return slot;
		if (!vacant && !slot->id[0])
			vacant = slot;
	}
	if (vacant)
		snprintf(vacant->id, sizeof vacant->id, "%s", id);
	return vacant;
}

bool progress_read(const struct progress_slot *slot, struct progress_at *ret)
{
	uint32_t which = atomic_load(&slot->which);

	if (which != 1 && which != 2)
		return false;
	*ret = slot->at[which - 1];
	return true;
}

void progress_write(struct progress_slot *slot, const struct progress_at *at)
{
	uint32_t next = atomic_load(&slot->which) == 1 ? 2 : 1;

	slot->at[next - 1] = *at;
	atomic_store(&slot->which, next);
}

void progress_forget(struct progress_slot *slot)
{
	atomic_store(&slot->which, 0);
	memset(slot->id, 0, sizeof slot->id);
}

void progress_prune(struct progress *p, bool (*known)(void *ctx, const char *id), void *ctx)
{
	for (size_t i = 0; i < ATTACHED_MAX; i++) {
		struct progress_slot *slot = &p->file->slots[i];

		slot->id[sizeof slot->id - 1] = '\0';
		if (slot->id[0] && !known(ctx, slot->id))
			progress_forget(slot);
	}
}
