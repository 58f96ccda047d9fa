#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "background.h"
#include "control.h"
#include "disposal.h"
#include "loop.h"
#include "manager.h"
#include "show.h"
#include "sockets.h"
#include "stack.h"
#include "status.h"
#include "tasks.h"
#include "timers.h"
#include "users.h"

#define UNBLOCK_MS 2000 /* a net under the wake-ups */
#define NICENESS -10
#define EXIT_NO_PRIVILEGE 77
#define EXIT_RUNNING 3 /* another one serves this network namespace */

struct settings {
	struct stack_settings stack;
	long idle_exit_s; /* -1: stay */
	gid_t group;
	bool everyone, detach;
};

static bool ending;

static void usage(FILE *to)
{
	fputs("usage: sctpd [OPTIONS]          serve SCTP to the programs of this network namespace\n"
	      "       sctpd --status [--json]  show what is served\n"
	      "  --rto-min MS --rto-initial MS --rto-max MS   retransmission timeouts (1000 3000 60000)\n"
	      "  --sack-delay MS                              (200)\n"
	      "  --heartbeat MS                               interval (30000)\n"
	      "  --init-retransmissions N --association-retransmissions N --path-retransmissions N   (8 10 5)\n"
	      "  --idle-exit S                                end S seconds after the last client left\n"
	      "  --group NAME, --everyone                     who may use it besides root and its own user\n"
	      "  --socket-limit N --connection-limit N        sockets, and programs' threads, one user may have (16384 1024)\n"
	      "  --queue-limit MB                             what may be queued for one user, and what his associations may take (64)\n"
	      "  --client-socket-limit N --client-queue-limit MB      the same limits of one program (8192 32)\n"
	      "  --memory-limit MB                            what all may take together (512)\n"
	      "  --detach                                     go to the background once it serves\n"
	      "  --kernel                                     only tell (exit status) whether the kernel has SCTP\n"
	      "  --debug                                      usrsctp's own messages\n",
	      to);
}

enum { RTO_MIN = 1, RTO_INITIAL, RTO_MAX, SACK, HEARTBEAT, INIT_RTX, ASSOC_RTX, PATH_RTX, IDLE, GROUP, EVERYONE, LIMIT, CLIENT_LIMIT, CONNECTIONS, QUEUE, CLIENT_QUEUE, MEMORY, DEBUG,
       STATUS, JSON, HELP, DETACH, KERNEL };

static const struct option long_options[] = {
	{ "rto-min", 1, NULL, RTO_MIN },	   { "rto-initial", 1, NULL, RTO_INITIAL },
	{ "rto-max", 1, NULL, RTO_MAX },	   { "sack-delay", 1, NULL, SACK },
	{ "heartbeat", 1, NULL, HEARTBEAT },	   { "init-retransmissions", 1, NULL, INIT_RTX },
	{ "association-retransmissions", 1, NULL, ASSOC_RTX },
	{ "path-retransmissions", 1, NULL, PATH_RTX }, { "idle-exit", 1, NULL, IDLE },
	{ "group", 1, NULL, GROUP },		   { "everyone", 0, NULL, EVERYONE },
	{ "socket-limit", 1, NULL, LIMIT },	   { "connection-limit", 1, NULL, CONNECTIONS },
	{ "queue-limit", 1, NULL, QUEUE },	   { "memory-limit", 1, NULL, MEMORY },
	{ "client-socket-limit", 1, NULL, CLIENT_LIMIT }, { "client-queue-limit", 1, NULL, CLIENT_QUEUE },
	{ "debug", 0, NULL, DEBUG },
	{ "status", 0, NULL, STATUS },		   { "json", 0, NULL, JSON },
	{ "detach", 0, NULL, DETACH },		   { "kernel", 0, NULL, KERNEL },
	{ "help", 0, NULL, HELP },		   { NULL, 0, NULL, 0 },
};

static long number(const char *name, const char *text, long smallest, long largest)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value < smallest || value > largest) {
		log_line("--%s: '%s' is not a whole number from %ld to %ld", name, text, smallest, largest);
		exit(2);
	}
	return value;
}

static gid_t group_named(const char *name)
{
	const struct group *entry = getgrnam(name);

	if (entry == NULL) {
		log_line("--group: there is no group '%s'", name);
		exit(2);
	}
	return entry->gr_gid;
}

static bool kernel_has_sctp(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP);

	if (fd < 0)
		return false;
	close(fd);
	return true;
}

static void parse(struct settings *settings, int argc, char **argv, int *status, int *json)
{
	int option, index = 0;

	while ((option = getopt_long(argc, argv, "h", long_options, &index)) != -1) {
		struct stack_settings *stack = &settings->stack;
		const char *name = long_options[index].name;

		switch (option) {
		case RTO_MIN: stack->rto_min_ms = (uint32_t)number(name, optarg, 10, 3600000); break;
		case RTO_INITIAL: stack->rto_initial_ms = (uint32_t)number(name, optarg, 10, 3600000); break;
		case RTO_MAX: stack->rto_max_ms = (uint32_t)number(name, optarg, 10, 3600000); break;
		case SACK: stack->sack_delay_ms = (uint32_t)number(name, optarg, 1, 500); break;
		case HEARTBEAT: stack->heartbeat_ms = (uint32_t)number(name, optarg, 10, 3600000); break;
		case INIT_RTX: stack->init_retransmissions = (uint32_t)number(name, optarg, 1, 1000); break;
		case ASSOC_RTX: stack->association_retransmissions = (uint32_t)number(name, optarg, 1, 1000); break;
		case PATH_RTX: stack->path_retransmissions = (uint32_t)number(name, optarg, 1, 1000); break;
		case IDLE: settings->idle_exit_s = number(name, optarg, 0, 86400); break;
		case GROUP: settings->group = group_named(optarg); break;
		case EVERYONE: settings->everyone = true; break;
		case LIMIT: user_limits.user.sockets = (int)number(name, optarg, 1, 1000000); break;
		case CLIENT_LIMIT: user_limits.client.sockets = (int)number(name, optarg, 1, 1000000); break;
		case CONNECTIONS: user_limits.connections = (int)number(name, optarg, 1, 1000000); break;
		case QUEUE: user_limits.user.bytes = (uint64_t)number(name, optarg, 1, 1000000) << 20; break;
		case CLIENT_QUEUE: user_limits.client.bytes = (uint64_t)number(name, optarg, 1, 1000000) << 20; break;
		case MEMORY: user_limits.memory = (uint64_t)number(name, optarg, 16, 1000000) << 20; break;
		case DEBUG: stack->debug = true; break;
		case DETACH: settings->detach = true; break;
		case KERNEL: exit(kernel_has_sctp() ? 0 : 1);
		case STATUS: *status = 1; break;
		case JSON: *json = 1; break;
		case HELP: case 'h': usage(stdout); exit(0);
		default: usage(stderr); exit(2);
		}
	}
	if (optind < argc) {
		log_line("unexpected argument '%s' (see --help)", argv[optind]);
		exit(2);
	}
}

/* What a kernel does at once waits for this process's turn here, twice in each round trip: before others, where that is allowed. */
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

static void signalled(struct watch *watch, uint32_t events)
{
	(void)watch, (void)events;
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
	uint64_t used_ms = loop_now_ms(), unblocked_ms = used_ms, told_ms = used_ms;
	int tell_ms = manager_watchdog_ms();

	while (!ending) {
		int next_ms = sooner(sooner(timers_run(), users_run()), inbound_run(loop_now_ms()));
		uint64_t now_ms;

		stack_run_deferred_work();
		sockets_run();
		now_ms = loop_now_ms();
		if (now_ms - unblocked_ms >= UNBLOCK_MS) {
			sockets_unblock_all();
			unblocked_ms = now_ms;
		}
		if (tell_ms >= 0 && now_ms - told_ms >= (uint64_t)tell_ms) {
			manager_tell("WATCHDOG=1");
			told_ms = now_ms;
		}
		next_ms = sooner(sooner(next_ms, tell_ms), sooner(disposal_run(), tasks_run()));
		if (sockets_count() > 0 || control_count() > 0)
			used_ms = now_ms;
		else if (settings->idle_exit_s >= 0 && now_ms - used_ms >= (uint64_t)settings->idle_exit_s * 1000)
			break;
		if (sockets_count() > 0)
			next_ms = sooner(next_ms, UNBLOCK_MS);
		else if (settings->idle_exit_s >= 0)
			next_ms = sooner(next_ms, (int)(settings->idle_exit_s * 1000 - (long)(now_ms - used_ms)) + 1);
		loop_wait(sockets_pending() ? 0 : next_ms);
	}
	sockets_end_all();
	sockets_run();
	control_end();
}

/* One that runs may be about to end for idleness: unless it answers, take its place. One that is stuck still runs. */
static int listen_or_find_running(const struct settings *settings)
{
	enum show_answer answer = SHOW_NONE;
	int attempt, error = 0;

	for (attempt = 0; attempt < 50 && answer == SHOW_NONE; attempt++) {
		if (attempt > 0)
			usleep(20000);
		error = control_listen(settings->group, settings->everyone);
		if (error != -EADDRINUSE)
			return error;
		answer = show_answers();
	}
	return answer == SHOW_STRANGER ? -ECONNREFUSED : error;
}

/* Whoever started us may have closed some of these: then the next sockets would take their place. */
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
	struct settings settings = { .stack = stack_defaults, .idle_exit_s = -1, .group = (gid_t)-1 };
	int status = 0, json = 0, parent = -1, error;

	fill_standard_descriptors();
	parse(&settings, argc, argv, &status, &json);
	if (status)
		return show_status(json != 0);
	if (settings.detach)
		parent = background_start();
	raise_limit();
	come_first();
	disposal_start();
	error = loop_start();
	watch_signals();
	if (error == 0)
		error = listen_or_find_running(&settings);
	if (error == -EADDRINUSE) {
		if (!settings.detach)
			log_line("another one already serves this network namespace");
		return EXIT_RUNNING;
	}
	if (error == -ECONNREFUSED) {
		log_line("%s", STRANGER_HAS_NAME);
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
	manager_tell("READY=1");
	if (parent >= 0)
		background_serves(parent);
	serve(&settings);
	return 0;
}
