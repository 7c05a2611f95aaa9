/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rest of a host does all day, as loops: hostload KIND SECONDS prints nanoseconds per operation.
 *   syscall  getppid(), the cheapest there is
 *   fault    a page is touched for the first time
 *   pipe     one byte there and back between two processes (two switches)
 *   fork     fork(), exit, wait
 *   exec     fork(), execve() of itself, exit, wait
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 4096 /* of one mapping */

static const char *self;
static int there[2], back[2];

static double now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "hostload: %s: %s\n", what, strerror(errno));
	exit(1);
}

static unsigned long do_syscalls(void)
{
	for (int i = 0; i < 100000; i++)
		(void)syscall(SYS_getppid);
	return 100000;
}

static unsigned long do_faults(void)
{
	char *p = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	/* Each page by itself, whatever the host's setting for large ones is. */
	(void)madvise(p, (size_t)PAGES * PAGE, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < PAGES; i++)
		*(volatile char *)(p + i * PAGE) = 1;
	munmap(p, (size_t)PAGES * PAGE);
	return PAGES;
}

static unsigned long do_pipe(void)
{
	char c = 0;

	for (int i = 0; i < 1000; i++)
		if (write(there[1], &c, 1) != 1 || read(back[0], &c, 1) != 1)
			die("pipe");
	return 1000;
}

static pid_t echo_bytes(void)
{
	pid_t pid;
	char c;

	if (pipe(there) < 0 || pipe(back) < 0 || (pid = fork()) < 0)
		die("pipe");
	if (pid)
		return pid;
	close(there[1]);
	while (read(there[0], &c, 1) == 1)
		if (write(back[1], &c, 1) != 1)
			break;
	_exit(0);
}

static unsigned long children(int exec)
{
	for (int i = 0; i < 50; i++) {
		pid_t pid = fork();
		int status;

		if (pid < 0)
			die("fork");
		if (pid == 0) {
			if (exec)
				execl(self, self, (char *)NULL);
			_exit(exec);
		}
		if (waitpid(pid, &status, 0) != pid || status != 0)
			die("a child");
	}
	return 50;
}

static unsigned long do_forks(void)
{
	return children(0);
}

static unsigned long do_execs(void)
{
	return children(1);
}

static const struct {
	const char *name;
	unsigned long (*some)(void);
} kinds[] = {{"syscall", do_syscalls}, {"fault", do_faults}, {"pipe", do_pipe}, {"fork", do_forks}, {"exec", do_execs}};

int main(int argc, char **argv)
{
	double start, until;
	unsigned long n = 0;
	pid_t echo = 0;

	if (argc == 1)
		return 0; /* what do_execs() starts */
	self = "/proc/self/exe";
	for (size_t i = 0; argc == 3 && i < sizeof kinds / sizeof kinds[0]; i++) {
		if (strcmp(argv[1], kinds[i].name) != 0)
			continue;
		if (kinds[i].some == do_pipe)
			echo = echo_bytes();
		start = now_ns();
		until = start + atof(argv[2]) * 1e9;
		do
			n += kinds[i].some();
		while (now_ns() < until);
		printf("%.2f\n", (now_ns() - start) / (double)n);
		if (echo) {
			close(there[1]);
			waitpid(echo, NULL, 0);
		}
		return 0;
	}
	fprintf(stderr, "usage: hostload syscall|fault|pipe|fork|exec SECONDS\n");
	return 2;
}
