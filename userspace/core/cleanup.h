/* SPDX-License-Identifier: Apache-2.0 */
/* Scope-bound ownership: file descriptors start at -1, pointers at NULL, results leave through TAKE_*. */
#ifndef WEIR_CORE_CLEANUP_H
#define WEIR_CORE_CLEANUP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_fdp(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}
static inline void cleanup_freep(void *p)
{
	free(*(void **)p);
}
static inline void cleanup_filep(FILE **f)
{
	if (*f)
		fclose(*f);
}
static inline void cleanup_dirp(DIR **d)
{
	if (*d)
		closedir(*d);
}
#define _cleanup_fd_ __attribute__((cleanup(cleanup_fdp)))
#define _cleanup_free_ __attribute__((cleanup(cleanup_freep)))
#define _cleanup_file_ __attribute__((cleanup(cleanup_filep)))
#define _cleanup_dir_ __attribute__((cleanup(cleanup_dirp)))

#define TAKE_PTR(p)                                                                                                            \
	({                                                                                                                     \
		__typeof__(p) take_ptr_ = (p);                                                                                 \
		(p) = NULL;                                                                                                    \
		take_ptr_;                                                                                                     \
	})
static inline int take_fd_(int *fd)
{
	int v = *fd;

	*fd = -1;
	return v;
}
#define TAKE_FD(fd) take_fd_(&(fd))

#endif
