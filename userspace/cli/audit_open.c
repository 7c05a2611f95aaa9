/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/audit_open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auditor/auditor.h"
#include "core/cleanup.h"
#include "kernel/confine.h"
#include "supervisor/keyfiles.h"
#include "supervisor/supervisor.h"

static int open_directory(struct audit_record *r, int *ret_state, const char *state_dir, struct err *e)
{
	_cleanup_fd_ int state = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	snprintf(r->path, sizeof r->path, "%s/%s", state_dir, AUDITOR_DIR);
	if (state >= 0)
		r->dir = openat(state, AUDITOR_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (r->dir < 0)
		return errno == ENOENT ? err_set(e, ENOENT, "",
						 "can't open %s: No such file or directory: no service has kept a record "
						 "there; --state-dir or --config names another place",
						 r->path)
				       : err_set(e, errno, "", "can't open %s: %s%s", r->path, strerror(errno),
						 errno == EACCES ? ": the record is root's alone (try sudo)" : "");
	*ret_state = TAKE_FD(state);
	return 0;
}

/* Root never reads a database that another process wrote. Who is not root reads what is theirs. */
static int drop(const struct audit_record *r, struct err *e)
{
	struct stat st;

	if (fstat(r->dir, &st) < 0)
		return err_errno(e, errno, "", "can't examine %s", r->path);
	if (geteuid() != 0)
		return confine_identity("weir audit", geteuid(), getegid(), e);
	/* A copy that root made is root's: whoever reads it instead has no rights on it but everybody's. */
	return confine_identity("weir audit", st.st_uid ? st.st_uid : UID_AUDITOR, st.st_gid ? st.st_gid : UID_AUDITOR, e);
}

int audit_open_refused(const struct audit_record *r, struct err *e)
{
	return err_set(
	    e, EACCES, "",
	    "can't read %s: Permission denied: the record is never read as root, but as its owner, and a copy of root's as "
	    "user %u, which nobody is; let that one read the copy: chown -R %u:%u %s",
	    r->path, (unsigned)geteuid(), (unsigned)geteuid(), (unsigned)getegid(), r->path);
}

int audit_enter(struct audit_record *ret, const char *state_dir, struct err *e)
{
	struct audit_record r = {.dir = -1};
	_cleanup_fd_ int state = -1;
	int rc = open_directory(&r, &state, state_dir, e);

	if (rc == 0)
		rc = keyfiles_public(state, &r.has_public, r.public, e);
	if (rc == 0)
		rc = keyfiles_head(state, &r.has_head, &r.head, e);
	if (rc == 0)
		rc = drop(&r, e);
	if (rc < 0) {
		audit_close(&r);
		return rc;
	}
	*ret = r;
	return 0;
}

int audit_open(struct audit_record *ret, const char *state_dir, struct err *e)
{
	struct audit_record r = {.dir = -1};
	int rc = audit_enter(&r, state_dir, e);

	if (rc == 0)
		rc = store_open_readonly(&r.store, r.dir, e);
	if (rc == -EACCES || rc == -EPERM)
		rc = audit_open_refused(&r, e);
	if (rc < 0) {
		audit_close(&r);
		return rc;
	}
	*ret = r;
	return 0;
}

void audit_close(struct audit_record *r)
{
	r->store = store_free(r->store);
	cleanup_fdp(&r->dir);
}
