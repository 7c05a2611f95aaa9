/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/asked_by.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UID_DIGITS 10

/* A number, and one of a user. Anything else is nobody. */
static bool is_uid(const char *text)
{
	size_t len = text ? strlen(text) : 0;

	return len > 0 && len <= UID_DIGITS && !text[strspn(text, "0123456789")];
}

void asked_by(char ret[IPC_CALLER_MAX])
{
	const char *sudo = getenv("SUDO_UID");
	const bool by_sudo = is_uid(sudo);

	snprintf(ret, IPC_CALLER_MAX, "uid:%u%s%s", getuid(), by_sudo ? ",sudo:" : "", by_sudo ? sudo : "");
}
