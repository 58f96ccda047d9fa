/* close() takes a descriptor out of its table first, then asks the file's system, which may never answer. Whoever waits for that keeps the
 * table open, with all that is in it: so the one who waits is left alone with the table, which is emptied, and sctpd takes a copy. Else a
 * killed sctpd would keep its clients' sockets, and its name, for as long as it takes. */
#define _GNU_SOURCE
#include "closer.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"
#include "tasks.h"

#define AT_ONCE 20        /* looks */
#define LOOK_NS 50000     /* between them */

enum leaving { NOT_YET, LEFT, STAYED };

static TASK_CODE int close_one(void *number)
{
	unsigned int fd = (unsigned int)(uintptr_t)number;

	syscall(SYS_prctl, PR_SET_NAME, "sctpd-closes");
	syscall(SYS_close_range, fd, fd, 0); /* unlike close() it never fails */
	return 0;
}

static TASK_CODE int empty_table(void *leaving)
{
	int state;

	while ((state = atomic_load((atomic_int *)leaving)) == NOT_YET)
		syscall(SYS_sched_yield);
	if (state == LEFT)
		syscall(SYS_close_range, 0, ~0U, 0); /* sctpd has them all: nothing ends by this */
	return 0;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void pause_shortly(void)
{
	const struct timespec pause = { 0, LOOK_NS };

	nanosleep(&pause, NULL);
}

/* Have a table of one's own from now on, and leave the old one empty to who waits. */
static void leave_table(uid_t user)
{
	static atomic_int leaving;
	pid_t process;

	leaving = NOT_YET;
	process = task_start(user, CLONE_FILES, empty_table, &leaving);
	if (process < 0) {
		log_line("cannot leave a descriptor that takes long to close: should this process be killed, its end waits for that");
		return;
	}
	leaving = unshare(CLONE_FILES) == 0 ? LEFT : STAYED;
	task_ended(process, true);
}

void closer_close(uid_t user, int fd)
{
	pid_t process = task_start(user, CLONE_FILES, close_one, (void *)(uintptr_t)fd);
	int look;

	for (look = 0; process >= 0; look++) {
		if (task_ended(process, false))
			break;
		if (look >= AT_ONCE && !is_open(fd)) {
			leave_table(user);
			return;
		}
		pause_shortly();
	}
	if (is_open(fd))
		close(fd); /* no memory for a task, or before Linux 5.9 */
}
