#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "closer.h"
#include "control.h"
#include "lifecycle.h"
#include "limits.h"
#include "listeners.h"
#include "loop.h"
#include "service.h"
#include "privilege.h"
#include "settings.h"
#include "show.h"
#include "sockets.h"
#include "stack.h"
#include "stranger.h"

#define NET_MS 2000 /* a net under the wake-ups: what it finds is counted, and a fault */
#define NICENESS -10
#define EXIT_NO_PRIVILEGE 77
#define EXIT_RUNNING 3 /* another one serves this network namespace */

static bool ending;

/* Work that a kernel does at once waits for this process's turn here, twice in each round trip: before others, where that is allowed. */
static void come_first(void)
{
	char text[8];
	int fd;

	if (getpriority(PRIO_PROCESS, 0) > NICENESS)
		setpriority(PRIO_PROCESS, 0, NICENESS);
	if (getsid(0) != getpid() || (fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC)) < 0)
		return; /* it shares a session: others' priority isn't its to change */
	if (write(fd, text, (size_t)snprintf(text, sizeof(text), "%d", NICENESS)) < 0)
		errno = 0; /* not allowed: then like others */
	close(fd);
}

/* One descriptor for each socket and each thread of each client. */
static void raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static void signalled(struct watch *, uint32_t)
{
	ending = true;
}

static struct watch signals = { -1, EPOLLIN, signalled };

static void watch_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	loop_add(&signals);
}

static int sooner(int first_ms, int second_ms)
{
	return first_ms < 0 || (second_ms >= 0 && second_ms < first_ms) ? second_ms : first_ms;
}

static void serve(const struct settings *settings)
{
	uint64_t used_ms = loop_now_ms(), looked_ms = used_ms, told_ms = used_ms;
	int tell_ms = manager_watchdog_ms();

	while (!ending) {
		uint64_t now_ms;
		int next_ms;

		timers_run();
		limits_run();
		sockets_run_waiting();
		stack_run_deferred_work();
		sockets_turn(control_wants_turn());
		control_had_turn();
		now_ms = loop_now_ms();
		if (now_ms - looked_ms >= NET_MS) {
			sockets_look_unasked();
			listeners_look();
			looked_ms = now_ms;
		}
		if (tell_ms >= 0 && now_ms - told_ms >= (uint64_t)tell_ms) {
			manager_tell("WATCHDOG=1");
			told_ms = now_ms;
		}
		/* Behind all work of the turn: it may have started timers. */
		next_ms = sooner(sooner(timers_next_ms(), limits_next_ms()), sooner(sooner(sockets_waiting_next_ms(), control_next_ms()), tell_ms));
		if (sockets_count() > 0 || control_count() > 0)
			used_ms = now_ms;
		else if (settings->idle_exit_s >= 0 && now_ms - used_ms >= (uint64_t)settings->idle_exit_s * 1000)
			break;
		if (sockets_count() > 0)
			next_ms = sooner(next_ms, NET_MS);
		else if (settings->idle_exit_s >= 0)
			next_ms = sooner(next_ms, (int)(settings->idle_exit_s * 1000 - (long)(now_ms - used_ms)) + 1);
		loop_wait(sockets_pending() ? 0 : next_ms);
	}
	sockets_end_all();
	sockets_run();
	control_end();
}

/* Return 0 or -errno: -EADDRINUSE if another sctpd serves this network namespace, -ECONNREFUSED if a stranger has the name and this one may not
 * listen elsewhere. Doubtful: when the stranger leaves just as two start at once, each may take another place. */
static int listen_somewhere(const struct settings *settings)
{
	int error = control_listen(settings->group, settings->everyone);

	if (error != -EADDRINUSE || !stranger_has_name())
		return error;
	error = control_listen_in_folder();
	if (error == 0)
		stranger_tell("This sctpd serves in " SERVICE_FOLDER ": programs that see another /run have no SCTP until it starts again after that");
	return error;
}

/* Another sctpd may be about to end for idleness: unless it answers, its place is taken. An sctpd that is stuck still runs. With --wait, the end of
 * either is waited for, without questions: each would count its idle time anew. */
static int listen_or_find_running(const struct settings *settings)
{
	enum show_answer answer = SHOW_NONE;
	const uint64_t until_ms = loop_now_ms() + (uint64_t)settings->wait_s * 1000;
	int attempt, error = 0;

	for (attempt = 0; attempt < 50 && answer == SHOW_NONE; attempt++) {
		if (attempt > 0)
			usleep(20000);
		error = listen_somewhere(settings);
		if (error != -EADDRINUSE)
			return error;
		answer = show_answers();
	}
	if (answer == SHOW_STRANGER)
		return -ECONNREFUSED;
	if (settings->wait_s > 0)
		log_line("another one serves this network namespace: waiting for its end");
	while (error == -EADDRINUSE && loop_now_ms() < until_ms) {
		usleep(20000);
		error = listen_somewhere(settings);
	}
	if (error == -EADDRINUSE && answer == SHOW_REFUSES)
		log_line("%s", REFUSES_USER);
	return error;
}

/* The process that started us may have closed some of these: then the next sockets would take their place. */
static void fill_standard_descriptors(void)
{
	int fd = open("/dev/null", O_RDWR);

	while (fd >= 0 && fd <= STDERR_FILENO)
		fd = open("/dev/null", O_RDWR);
	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	struct settings settings;
	int parent = -1, error;

	fill_standard_descriptors();
	settings = settings_parse(argc, argv);
	if (settings.status)
		return show_status(settings.json);
	if (settings.detach)
		parent = background_start();
	privilege_take();
	raise_limit();
	come_first();
	error = loop_start();
	if (error == 0)
		error = listen_or_find_running(&settings);
	watch_signals(); /* from here on they are heard in the loop */
	if (error == -EADDRINUSE) {
		if (!settings.detach)
			log_line("another one already serves this network namespace");
		return EXIT_RUNNING;
	}
	if (error == -ECONNREFUSED) {
		stranger_tell("Where root starts sctpd, it serves in " SERVICE_FOLDER " meanwhile");
		return 1;
	}
	if (error == 0)
		error = stack_start(&settings.stack);
	if (error == -EPERM || error == -EACCES) {
		log_line("CAP_NET_RAW is missing: run it as root, or give it that capability (setcap cap_net_raw+ep)");
		return EXIT_NO_PRIVILEGE;
	}
	if (error != 0) {
		log_line("cannot start: %s", strerror(-error));
		return 1;
	}
	if (parent >= 0)
		background_ready(settings.log);
	manager_connect();
	error = privilege_drop();
	if (error == 0)
		error = closer_start(); /* with as little, which each thread has for itself */
	if (error == 0)
		error = privilege_refuse_calls();
	if (error != 0) {
		log_line("cannot give up what it doesn't need: %s", strerror(-error));
		return 1;
	}
	manager_tell("READY=1");
	if (parent >= 0)
		background_serves(parent);
	serve(&settings);
	return 0;
}
