#define _GNU_SOURCE
#include "tasks.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "loop.h"

#define USER_MAX 16
#define ALL_MAX 256 /* more only if each of them is a user's first */
#define AGAIN_MS 1000 /* until it is looked which have ended */
#define STACK (64 * 1024)

struct task {
	struct task *next;
	uid_t user;
	pid_t process;
	char *stack;
};

static struct task *tasks;

static void forget(struct task **link)
{
	struct task *task = *link;

	*link = task->next;
	munmap(task->stack, STACK);
	free(task);
}

static bool has_ended(const struct task *task, int options)
{
	pid_t ended;

	do
		ended = waitpid(task->process, NULL, options | __WALL);
	while (ended < 0 && errno == EINTR);
	return ended != 0;
}

static void forget_ended(void)
{
	struct task **link = &tasks;

	while (*link != NULL)
		if (has_ended(*link, WNOHANG))
			forget(link);
		else
			link = &(*link)->next;
}

pid_t task_start(uid_t user, int flags, int (*run)(void *argument), void *argument)
{
	struct task *task = malloc(sizeof(*task));
	char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	pid_t process = task == NULL || stack == MAP_FAILED ? -1 : clone(run, stack + STACK, CLONE_VM | flags, argument);

	if (process < 0) {
		if (stack != MAP_FAILED)
			munmap(stack, STACK);
		free(task);
		return -1;
	}
	*task = (struct task){ tasks, user, process, stack };
	tasks = task;
	return process;
}

bool task_ended(pid_t process, bool wait)
{
	struct task **link = &tasks;

	while (*link != NULL && (*link)->process != process)
		link = &(*link)->next;
	if (*link == NULL)
		return true;
	if (!has_ended(*link, wait ? 0 : WNOHANG))
		return false;
	forget(link);
	return true;
}

int tasks_of(uid_t user)
{
	const struct task *task;
	int number = 0;

	for (task = tasks; task != NULL; task = task->next)
		number += user == (uid_t)-1 || task->user == user;
	return number;
}

/* Nobody may have more than are left then for others. */
static bool has_share(uid_t user)
{
	int his = tasks_of(user);

	return his == 0 || (his < USER_MAX && his < ALL_MAX - tasks_of((uid_t)-1));
}

bool tasks_are_too_many(uid_t user)
{
	static bool told;

	if (has_share(user))
		return false;
	forget_ended();
	if (has_share(user)) {
		told = false;
		return false;
	}
	if (!told)
		log_line("user %u has passed descriptors that are not closed yet: until they are, his connections are refused", user);
	told = true;
	return true;
}

int tasks_run(void)
{
	forget_ended();
	return tasks == NULL ? -1 : AGAIN_MS;
}
