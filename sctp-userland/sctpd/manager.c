#include "manager.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void manager_tell(const char *what)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd;

	if (path == NULL || strlen(path) >= sizeof(address.sun_path))
		return;
	memcpy(address.sun_path, path, strlen(path));
	if (address.sun_path[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	sendto(fd, what, strlen(what), MSG_NOSIGNAL, (struct sockaddr *)&address,
	       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
	close(fd);
}

int manager_watchdog_ms(void)
{
	const char *limit = getenv("WATCHDOG_USEC"), *process = getenv("WATCHDOG_PID");

	if (limit == NULL || (process != NULL && atol(process) != getpid()) || atol(limit) < 2000)
		return -1;
	return (int)(atol(limit) / 2000);
}
