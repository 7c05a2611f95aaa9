/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a file is still the one that was read, or somebody has written it, or put another in its place. */
#ifndef WEIR_CORE_SAMEFILE_H
#define WEIR_CORE_SAMEFILE_H

#include <stdbool.h>
#include <sys/stat.h>

/* By the time of the last change of any kind, which, unlike that of the last write, nobody can set. All zero is no file. */
static inline bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

#endif
