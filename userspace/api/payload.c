/* SPDX-License-Identifier: Apache-2.0 */
#include "api/payload.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"

void payload_digest(struct file_digest *ret, const char *path, size_t path_len, const void *content, size_t len)
{
	gnutls_hash_hd_t hash;

	ret->size = len;
	/* Fails only where the library itself is broken; then a changed file would pass as an unchanged one. */
	if (gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) < 0 || gnutls_hash(hash, path, path_len) < 0 ||
	    gnutls_hash(hash, "", 1) < 0 || (len > 0 && gnutls_hash(hash, content, len) < 0))
		abort();
	gnutls_hash_deinit(hash, ret->sha256);
}

static char *put(char *at, const void *data, size_t len)
{
	if (data) /* what there is none of is NULL */
		memcpy(at, data, len);
	return at + len;
}

static uint32_t flags_of(const struct payload_parts *parts)
{
	if (parts->call)
		return REQUEST_CALL;
	return (parts->session ? REQUEST_SESSION : 0) | (parts->stdin_text ? REQUEST_STDIN : 0);
}

int payload_make(struct payload *ret, const struct payload_parts *parts)
{
	struct request_header header = {
	    .magic = REQUEST_MAGIC,
	    .flags = flags_of(parts),
	    .code_len = (uint32_t)parts->code_len,
	    .stdin_len = (uint32_t)parts->stdin_len,
	    .env_len = (uint32_t)parts->env_len,
	    .file_count = (uint32_t)parts->file_count,
	};
	_cleanup_free_ struct file_digest *digests = NULL;
	_cleanup_free_ char *data = NULL;
	size_t digest_count = 0, len;
	char *at;

	for (size_t i = 0; i < parts->file_count; i++)
		header.files_len += sizeof(struct request_file) + parts->files[i].path_len + parts->files[i].len;
	len = sizeof header + parts->code_len + parts->stdin_len + parts->env_len + header.files_len;
	data = malloc(len);
	digests = calloc(parts->file_count + 1, sizeof *digests);
	if (!data || !digests)
		return -ENOMEM;

	at = put(data, &header, sizeof header);
	at = put(at, parts->code, parts->code_len);
	at = put(at, parts->stdin_text, parts->stdin_len);
	at = put(at, parts->env, parts->env_len);
	for (size_t i = 0; i < parts->file_count; i++) {
		const struct payload_file *f = &parts->files[i];
		struct request_file head = {.path_len = (uint32_t)f->path_len, .size = (uint32_t)f->len};

		at = put(at, &head, sizeof head);
		at = put(at, f->path, f->path_len);
		at = put(at, f->content, f->len);
		payload_digest(&digests[digest_count++], f->path, f->path_len, f->content, f->len);
	}
	if (!parts->session && !parts->call)
		payload_digest(&digests[digest_count++], PAYLOAD_SCRIPT, strlen(PAYLOAD_SCRIPT), parts->code, parts->code_len);

	*ret = (struct payload){.data = TAKE_PTR(data), .len = len, .digests = TAKE_PTR(digests), .digest_count = digest_count};
	return 0;
}

void payload_clear(struct payload *p)
{
	free(p->data);
	free(p->digests);
	*p = (struct payload){0};
}
