/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tlsfile.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/limits.h"

#define CERT "--tls-cert"
#define KEY "--tls-key"

static void wipe(char **text)
{
	if (*text)
		explicit_bzero(*text, strlen(*text));
	free(*text);
	*text = NULL;
}

void tlsfile_clear(struct tlsfile *t)
{
	wipe(&t->certificate);
	wipe(&t->key);
}

/* Into `data`, which has room for one byte more than the limit allows. */
static int read_all(int fd, const char *where, const char *path, char *data, struct err *e)
{
	size_t n = 0;

	for (;;) {
		ssize_t got = read(fd, data + n, LIMIT_TLS_BYTES + 1 - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_errno(e, errno, where, "read %s", path);
		n += (size_t)got;
		if (n > LIMIT_TLS_BYTES)
			return err_set(e, EFBIG, where, "%s has over %d bytes", path, LIMIT_TLS_BYTES);
		if (got == 0)
			break;
	}
	/* What is behind a NUL would be read by nobody and wiped by nobody. */
	if (n == 0 || memchr(data, 0, n))
		return err_set(e, EINVAL, where, "%s is not PEM text", path);
	data[n] = 0;
	return 0;
}

static int read_file(const char *path, const char *where, bool secret, char **ret, struct err *e)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	char *data;
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, errno, where, "open %s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EINVAL, where, "%s is not a regular file", path);
	if (secret && (st.st_mode & (S_IROTH | S_IWOTH | S_IWGRP)))
		return err_set(e, EPERM, where, "%s can be read by everybody or written by others than its owner: chmod 600 it",
			       path);
	data = calloc(1, LIMIT_TLS_BYTES + 2);
	if (!data)
		return err_set(e, ENOMEM, where, "out of memory");
	rc = read_all(fd, where, path, data, e);
	if (rc < 0) {
		explicit_bzero(data, LIMIT_TLS_BYTES + 2);
		free(data);
		return rc;
	}
	*ret = data;
	return 0;
}

static gnutls_datum_t datum(char *text)
{
	return (gnutls_datum_t){(unsigned char *)text, (unsigned)strlen(text)};
}

/* The library's own reading of both, as the api will do it. */
static int check_pair(struct tlsfile *t, const char *certificate, const char *key, struct err *e)
{
	gnutls_certificate_credentials_t cred;
	gnutls_datum_t c = datum(t->certificate), k = datum(t->key);
	int rc;

	if (gnutls_certificate_allocate_credentials(&cred) < 0)
		return err_set(e, ENOMEM, CERT, "out of memory");
	rc = gnutls_certificate_set_x509_key_mem(cred, &c, &k, GNUTLS_X509_FMT_PEM);
	gnutls_certificate_free_credentials(cred);
	if (rc == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
		return err_set(e, EINVAL, KEY, "%s is not the key of %s", key, certificate);
	if (rc < 0)
		return err_set(e, EINVAL, CERT, "%s and %s are no certificate and key in PEM without a password: %s",
			       certificate, key, gnutls_strerror(rc));
	return 0;
}

static const char *check_time(struct tlsfile *t)
{
	const char *warning = NULL;
	gnutls_datum_t c = datum(t->certificate);
	gnutls_x509_crt_t crt;
	time_t now = time(NULL);

	if (gnutls_x509_crt_init(&crt) < 0)
		return NULL;
	if (gnutls_x509_crt_import(crt, &c, GNUTLS_X509_FMT_PEM) < 0)
		warning = NULL; /* the pair was taken, so it is a form that this call does not know */
	else if (gnutls_x509_crt_get_expiration_time(crt) < now)
		warning = "the TLS certificate has expired: clients will refuse it";
	else if (gnutls_x509_crt_get_activation_time(crt) > now)
		warning = "the TLS certificate is not valid yet: clients will refuse it";
	gnutls_x509_crt_deinit(crt);
	return warning;
}

int tlsfile_load(const char *certificate, const char *key, struct tlsfile *ret, const char **ret_warning, struct err *e)
{
	struct tlsfile t = {NULL, NULL};
	int rc = read_file(certificate, CERT, false, &t.certificate, e);

	if (rc == 0)
		rc = read_file(key, KEY, true, &t.key, e);
	if (rc == 0 && t.certificate && t.key) {
		rc = check_pair(&t, certificate, key, e);
		*ret_warning = rc == 0 ? check_time(&t) : NULL;
	}
	if (rc < 0) {
		tlsfile_clear(&t);
		return rc;
	}
	*ret = t;
	return 0;
}
