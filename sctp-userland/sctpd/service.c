#include "service.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop.h"

int background_start(void)
{
	int pair[2], status, null;
	char byte;
	pid_t child;

	if (pipe2(pair, O_CLOEXEC) < 0 || (child = fork()) < 0) {
		log_line("cannot go to the background: %s", strerror(errno));
		exit(1);
	}
	if (child > 0) {
		close(pair[1]);
		if (read(pair[0], &byte, 1) == 1)
			_exit(0);
		_exit(waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
	setsid();
	pair[1] = dup3(pair[1], 3, O_CLOEXEC) < 0 ? pair[1] : 3;
	close_range(4, ~0U, 0);
	null = open("/dev/null", O_RDWR);
	dup2(null, 0);
	dup2(null, 1);
	close(null);
	if (chdir("/") < 0)
		log_line("cannot go to /: %s", strerror(errno));
	return pair[1];
}

static int log_fd = -1;

/* Anyone may have put something in its place, in /tmp. Return the descriptor, -1 and errno. */
static int open_log(const char *path)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	struct stat status;

	if (fd < 0)
		return -1;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() && status.st_nlink == 1)
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

void background_ready(const char *log_path)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR"), *folder = runtime != NULL ? runtime : getenv("TMPDIR");
	char path[4096];

	snprintf(path, sizeof(path), "%s/sctpd-%u.log", folder != NULL && *folder == '/' ? folder : "/tmp", geteuid());
	if (log_path == NULL)
		log_path = path;
	log_fd = open_log(log_path);
	if (log_fd >= 0)
		return;
	log_line("there will be no log: %s: %s (--log names another file)", log_path, strerror(errno));
	log_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
}

void background_serves(int fd)
{
	if (write(fd, "", 1) < 0)
		log_line("cannot tell the parent: %s", strerror(errno));
	close(fd);
	dup2(log_fd, STDERR_FILENO);
	close(log_fd);
	log_to_file();
}

static int manager_fd = -1;

void manager_connect(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (path == NULL || strlen(path) >= sizeof(address.sun_path))
		return;
	memcpy(address.sun_path, path, strlen(path));
	if (address.sun_path[0] == '@')
		address.sun_path[0] = '\0';
	manager_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (manager_fd < 0 || connect(manager_fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path))) < 0)
		log_line("cannot reach the service manager at %s: %s", path, strerror(errno));
}

void manager_tell(const char *what)
{
	if (manager_fd >= 0)
		send(manager_fd, what, strlen(what), MSG_NOSIGNAL | MSG_DONTWAIT);
}

int manager_watchdog_ms(void)
{
	const char *limit = getenv("WATCHDOG_USEC"), *process = getenv("WATCHDOG_PID");

	if (limit == NULL || (process != NULL && atol(process) != getpid()) || atol(limit) < 2000)
		return -1;
	return (int)(atol(limit) / 2000);
}
