#include "background.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
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

static int nowhere = -1;

void background_ready(void)
{
	nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
}

void background_serves(int fd)
{
	if (write(fd, "", 1) < 0)
		log_line("cannot tell the parent: %s", strerror(errno));
	close(fd);
	dup2(nowhere, 2);
	close(nowhere);
}
