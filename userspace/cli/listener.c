/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/listen.h"

#define BACKLOG 512
#define WHERE "--listen"

static void cleanup_addrinfop(struct addrinfo **ai)
{
	if (*ai)
		freeaddrinfo(*ai);
}

static bool is_loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return (ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr) >> 24) == 127;
	return sa->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)sa)->sin6_addr);
}

static int parse(const char *address, struct listen_address *ret, struct err *e)
{
	int rc = listen_parse(address, ret, e);

	if (rc < 0)
		snprintf(e->where, sizeof e->where, WHERE);
	return rc;
}

/* Turns the name into an address, and sees whether we may listen there. */
static int look_up(const struct listen_address *a, const struct listener_rules *rules, struct addrinfo **ret, struct err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_PASSIVE};
	__attribute__((cleanup(cleanup_addrinfop))) struct addrinfo *ai = NULL;
	int rc = getaddrinfo(a->host, a->port, &hints, &ai);

	if (rc)
		return err_set(e, EINVAL, WHERE, "%s: %s", a->host, gai_strerror(rc));
	if (!is_loopback(ai->ai_addr) && rules->dev_token)
		return err_set(e, EPERM, "--dev-token",
			       "%s is not a loopback address; a development token is for loopback alone: use one of `weir "
			       "token mint`",
			       a->host);
	if (!is_loopback(ai->ai_addr) && !rules->protected)
		return err_set(e, EPERM, WHERE,
			       "%s is not a loopback address and there is no TLS: say --tls-cert and --tls-key, put a TLS "
			       "proxy in front of a loopback address, or say --plaintext",
			       a->host);
	*ret = ai;
	ai = NULL;
	return 0;
}

static int look_unix(const char *path, struct err *e)
{
	char dir[sizeof((struct listen_address *)0)->path];
	struct stat st;
	char *slash;

	if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
		return err_set(e, EEXIST, WHERE, "%s is there already, and no socket: name another path, or move it away",
			       path);
	snprintf(dir, sizeof dir, "%s", path);
	slash = strrchr(dir, '/');
	if (slash && slash != dir) {
		*slash = 0;
		if (stat(dir, &st) < 0)
			return err_errno(e, errno, WHERE, "the directory %s", dir);
	}
	return 0;
}

int listener_check(const char *address, const struct listener_rules *rules, struct err *e)
{
	__attribute__((cleanup(cleanup_addrinfop))) struct addrinfo *ai = NULL;
	struct listen_address a;
	int rc = parse(address, &a, e);

	if (rc < 0)
		return rc;
	return a.is_unix ? look_unix(a.path, e) : look_up(&a, rules, &ai, e);
}

static int open_unix(const char *path, int *ret, struct err *e)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	_cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct stat st;

	memcpy(sa.sun_path, path, strlen(path) + 1); /* listen_parse() has seen to its length */
	/* A socket that a dead instance left; never anything else. */
	if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) && connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0 &&
	    errno == ECONNREFUSED)
		unlink(path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0 || chmod(path, 0660) < 0 || listen(fd, BACKLOG) < 0)
		return err_errno(e, errno, WHERE, "listen on %s", path);
	*ret = TAKE_FD(fd);
	return 0;
}

void listener_note(const char *address, struct stat *ret)
{
	if (strncmp(address, "unix:", 5) != 0 || lstat(address + 5, ret) < 0)
		memset(ret, 0, sizeof *ret);
}

void listener_remove(const char *address, const struct stat *made)
{
	struct stat now;

	/* Somebody may have put another there since: that one is in use. */
	if (made->st_ino && lstat(address + 5, &now) == 0 && now.st_ino == made->st_ino && now.st_dev == made->st_dev)
		unlink(address + 5);
}

static int open_tcp(const struct listen_address *a, const char *address, const struct listener_rules *rules, int *ret,
		    struct err *e)
{
	__attribute__((cleanup(cleanup_addrinfop))) struct addrinfo *ai = NULL;
	_cleanup_fd_ int fd = -1;
	const int on = 1;
	int rc = look_up(a, rules, &ai, e);

	if (rc < 0 || !ai)
		return rc;
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
	    bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
		return errno == EADDRINUSE
			   ? err_set(e, EADDRINUSE, WHERE,
				     "%s: Address already in use: another program listens there (ss -ltnp says which); "
				     "choose another port",
				     address)
			   : err_errno(e, errno, WHERE, "listen on %s", address);
	*ret = TAKE_FD(fd);
	return 0;
}

int listener_open(const char *address, const struct listener_rules *rules, int *ret, struct err *e)
{
	struct listen_address a;
	int rc = parse(address, &a, e);

	if (rc < 0)
		return rc;
	return a.is_unix ? open_unix(a.path, ret, e) : open_tcp(&a, address, rules, ret, e);
}

void listener_name(int fd, const char *address, char *ret, size_t size)
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof sa;
	char host[NI_MAXHOST], port[NI_MAXSERV];

	snprintf(ret, size, "%s", address);
	if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0 || sa.ss_family == AF_UNIX ||
	    getnameinfo((struct sockaddr *)&sa, len, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV))
		return;
	snprintf(ret, size, sa.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}
