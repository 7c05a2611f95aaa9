/* SPDX-License-Identifier: Apache-2.0 */
#include "core/signing.h"

#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"

#define WHERE "audit key"

struct signing_key {
	gnutls_privkey_t key;
	uint8_t pub[SIGNING_PUBLIC];
};

static int failed(struct err *e, int rc, const char *what)
{
	return err_set(e, rc == GNUTLS_E_MEMORY_ERROR ? ENOMEM : EINVAL, WHERE, "%s: %s", what, gnutls_strerror(rc));
}

/* PKCS #8, in memory that free() takes; the library's own copy of it is wiped. */
static int export_key(gnutls_x509_privkey_t key, char **ret_pem, size_t *ret_len, struct err *e)
{
	gnutls_datum_t pem = {0};
	char *copy;
	int rc = gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN, &pem);

	if (rc < 0)
		return failed(e, rc, "can't write a new key as PEM");
	copy = malloc(pem.size);
	if (copy) {
		memcpy(copy, pem.data, pem.size);
		*ret_pem = copy;
		*ret_len = pem.size;
	}
	gnutls_memset(pem.data, 0, pem.size);
	gnutls_free(pem.data);
	return copy ? 0 : err_set(e, ENOMEM, WHERE, "out of memory");
}

int signing_generate(char **ret_pem, size_t *ret_len, struct err *e)
{
	gnutls_x509_privkey_t key;
	int rc = gnutls_x509_privkey_init(&key);

	if (rc < 0)
		return failed(e, rc, "can't make a key");
	/* Of the size that the algorithm has: 0. */
	rc = gnutls_x509_privkey_generate(key, GNUTLS_PK_EDDSA_ED25519, 0, 0);
	rc = rc < 0 ? failed(e, rc, "can't make a key") : export_key(key, ret_pem, ret_len, e);
	gnutls_x509_privkey_deinit(key);
	return rc;
}

/* The 32 bytes of a public key. Returns a code of the library's. */
static int public_bytes(gnutls_pubkey_t pub, uint8_t ret[SIGNING_PUBLIC])
{
	gnutls_datum_t x = {0}, y = {0};
	gnutls_ecc_curve_t curve;
	int rc;

	if (gnutls_pubkey_get_pk_algorithm(pub, NULL) != GNUTLS_PK_EDDSA_ED25519)
		return GNUTLS_E_UNSUPPORTED_SIGNATURE_ALGORITHM;
	rc = gnutls_pubkey_export_ecc_raw(pub, &curve, &x, &y);
	if (rc < 0)
		return rc;
	rc = x.size == SIGNING_PUBLIC ? 0 : GNUTLS_E_ILLEGAL_PARAMETER;
	if (rc == 0)
		memcpy(ret, x.data, SIGNING_PUBLIC);
	gnutls_free(x.data);
	gnutls_free(y.data);
	return rc;
}

static int public_of(gnutls_privkey_t key, uint8_t ret[SIGNING_PUBLIC])
{
	gnutls_pubkey_t pub;
	int rc = gnutls_pubkey_init(&pub);

	if (rc < 0)
		return rc;
	rc = gnutls_pubkey_import_privkey(pub, key, 0, 0);
	if (rc == 0)
		rc = public_bytes(pub, ret);
	gnutls_pubkey_deinit(pub);
	return rc;
}

int signing_load(struct signing_key **ret, const char *pem, size_t len, struct err *e)
{
	const gnutls_datum_t text = {.data = (unsigned char *)pem, .size = (unsigned)len};
	struct signing_key *k = calloc(1, sizeof *k);
	int rc;

	if (!k)
		return err_set(e, ENOMEM, WHERE, "out of memory");
	rc = gnutls_privkey_init(&k->key);
	if (rc < 0)
		k->key = NULL;
	if (rc == 0)
		rc = gnutls_privkey_import_x509_raw(k->key, &text, GNUTLS_X509_FMT_PEM, NULL, 0);
	if (rc == 0)
		rc = public_of(k->key, k->pub);
	if (rc < 0) {
		signing_free(k);
		return failed(e, rc, "it is no Ed25519 key in PEM");
	}
	*ret = k;
	return 0;
}

struct signing_key *signing_free(struct signing_key *k)
{
	if (!k)
		return NULL;
	if (k->key)
		gnutls_privkey_deinit(k->key); /* wipes what it holds */
	free(k);
	return NULL;
}

int signing_sign(const struct signing_key *k, const uint8_t digest[CHAIN_HASH], uint8_t ret[CHAIN_SIGNATURE], struct err *e)
{
	const gnutls_datum_t message = {.data = (unsigned char *)digest, .size = CHAIN_HASH};
	gnutls_datum_t signature = {0};
	int rc = gnutls_privkey_sign_data2(k->key, GNUTLS_SIGN_EDDSA_ED25519, 0, &message, &signature);

	if (rc < 0)
		return failed(e, rc, "can't sign");
	rc = signature.size == CHAIN_SIGNATURE ? 0 : err_set(e, EINVAL, WHERE, "a signature has %u bytes", signature.size);
	if (rc == 0)
		memcpy(ret, signature.data, CHAIN_SIGNATURE);
	gnutls_free(signature.data);
	return rc;
}

void signing_public(const struct signing_key *k, uint8_t ret[SIGNING_PUBLIC])
{
	memcpy(ret, k->pub, SIGNING_PUBLIC);
}

void signing_key_id(const uint8_t pub[SIGNING_PUBLIC], uint8_t ret[CHAIN_HASH])
{
	chain_body_digest(pub, SIGNING_PUBLIC, ret);
}

/* A key of the library's from 32 bytes. */
static int import_public(gnutls_pubkey_t *ret, const uint8_t pub[SIGNING_PUBLIC])
{
	const gnutls_datum_t x = {.data = (unsigned char *)pub, .size = SIGNING_PUBLIC};
	gnutls_pubkey_t key;
	int rc = gnutls_pubkey_init(&key);

	if (rc < 0)
		return rc;
	rc = gnutls_pubkey_import_ecc_raw(key, GNUTLS_ECC_CURVE_ED25519, &x, NULL);
	if (rc < 0)
		gnutls_pubkey_deinit(key);
	else
		*ret = key;
	return rc;
}

int signing_public_pem(const uint8_t pub[SIGNING_PUBLIC], char *buf, size_t size, struct err *e)
{
	gnutls_datum_t pem = {0};
	gnutls_pubkey_t key;
	int rc = import_public(&key, pub);

	if (rc < 0)
		return failed(e, rc, "can't write the public key as PEM");
	rc = gnutls_pubkey_export2(key, GNUTLS_X509_FMT_PEM, &pem);
	gnutls_pubkey_deinit(key);
	if (rc < 0)
		return failed(e, rc, "can't write the public key as PEM");
	rc = pem.size < size ? 0 : err_set(e, ENOBUFS, WHERE, "the public key's PEM is longer than %zu bytes", size);
	if (rc == 0) {
		memcpy(buf, pem.data, pem.size);
		buf[pem.size] = '\0';
	}
	gnutls_free(pem.data);
	return rc;
}

int signing_public_read(const char *pem, size_t len, uint8_t ret[SIGNING_PUBLIC], struct err *e)
{
	const gnutls_datum_t text = {.data = (unsigned char *)pem, .size = (unsigned)len};
	gnutls_pubkey_t key;
	int rc = gnutls_pubkey_init(&key);

	if (rc < 0)
		return failed(e, rc, "can't read a public key");
	rc = gnutls_pubkey_import(key, &text, GNUTLS_X509_FMT_PEM);
	if (rc == 0)
		rc = public_bytes(key, ret);
	gnutls_pubkey_deinit(key);
	return rc < 0 ? failed(e, rc, "it is no Ed25519 public key in PEM") : 0;
}

struct signing_checker {
	gnutls_pubkey_t key;
};

int signing_checker_new(struct signing_checker **ret, const uint8_t pub[SIGNING_PUBLIC], struct err *e)
{
	struct signing_checker *c = calloc(1, sizeof *c);
	int rc;

	if (!c)
		return err_set(e, ENOMEM, WHERE, "out of memory");
	rc = import_public(&c->key, pub);
	if (rc < 0) {
		free(c);
		return failed(e, rc, "it is no Ed25519 public key");
	}
	*ret = c;
	return 0;
}

struct signing_checker *signing_checker_free(struct signing_checker *c)
{
	if (c)
		gnutls_pubkey_deinit(c->key);
	free(c);
	return NULL;
}

int signing_check(const struct signing_checker *c, const uint8_t digest[CHAIN_HASH], const uint8_t signature[CHAIN_SIGNATURE])
{
	const gnutls_datum_t message = {.data = (unsigned char *)digest, .size = CHAIN_HASH};
	const gnutls_datum_t text = {.data = (unsigned char *)signature, .size = CHAIN_SIGNATURE};

	return gnutls_pubkey_verify_data2(c->key, GNUTLS_SIGN_EDDSA_ED25519, 0, &message, &text) < 0 ? -EBADMSG : 0;
}

int signing_verify(const uint8_t pub[SIGNING_PUBLIC], const uint8_t digest[CHAIN_HASH],
		   const uint8_t signature[CHAIN_SIGNATURE])
{
	struct signing_checker *c = NULL;
	int rc = -EBADMSG;

	if (signing_checker_new(&c, pub, NULL) == 0 && c)
		rc = signing_check(c, digest, signature);
	signing_checker_free(c);
	return rc;
}
