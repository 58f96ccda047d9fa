#include "settings.h"

#include <getopt.h>
#include <grp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../protocol.h"
#include "limits.h"
#include "loop.h"

static struct settings parsed;
static long memory_mb;

/* An option is a flag, has a number from `smallest` to `largest`, or is one of the last, which settings_parse() knows. */
static const struct row {
	const char *name, *value, *help;
	bool *flag;
	long *number, smallest, largest;
} rows[] = {
#define MS(option, member, smallest, largest, help) { option, "MS", help, NULL, &parsed.stack.member, smallest, largest }
#define COUNT(option, member, largest, help) { option, "N", help, NULL, &member, 1, largest }
	MS("rto-min", rto_min_ms, 10, 3600000, "least retransmission timeout (1000)"),
	MS("rto-initial", rto_initial_ms, 10, 3600000, "first retransmission timeout (3000)"),
	MS("rto-max", rto_max_ms, 10, 3600000, "longest retransmission timeout (60000)"),
	MS("sack-delay", sack_delay_ms, 1, 500, "delay of acknowledgements (200)"),
	MS("heartbeat", heartbeat_ms, 10, 3600000, "interval of heartbeats (30000)"),
	COUNT("init-retransmissions", parsed.stack.init_retransmissions, 1000, "of an INIT, until connecting fails (8)"),
	COUNT("association-retransmissions", parsed.stack.association_retransmissions, 1000, "until an association ends (10)"),
	COUNT("path-retransmissions", parsed.stack.path_retransmissions, 1000, "until a path is taken for dead (5)"),
	{ "idle-exit", "S", "end S seconds after the last client left", NULL, &parsed.idle_exit_s, 0, 86400 },
	{ "wait", "S", "wait up to S seconds for the end of another one of this network namespace (0)", NULL, &parsed.wait_s, 0, 86400 },
	{ "everyone", NULL, "any user may use it, not only root, its own user and --group", &parsed.everyone },
	COUNT("socket-limit", limits.sockets, STATES_MAX, "sockets of all programs (16384)"),
	COUNT("connection-limit", limits.connections, 1000000, "threads of programs that use sockets (4096)"),
	{ "memory-limit", "MB", "what all that is queued, and all associations, may take (512)", NULL, &memory_mb, 16, 1000000 },
	{ "detach", NULL, "go to the background once it serves", &parsed.detach },
	{ "status", NULL, "show what is served", &parsed.status },
	{ "json", NULL, "... for programs", &parsed.json },
	{ "debug", NULL, "usrsctp's own messages", &parsed.stack.debug },
	{ "group", "NAME", "processes that have this group may use it" },
	{ "log", "FILE", "its log in the background (sctpd-UID.log in $XDG_RUNTIME_DIR, $TMPDIR or /tmp)" },
	{ "kernel", NULL, "only tell (exit status) whether the kernel has SCTP" },
	{ "version", NULL, "tell the version" },
	{ "help", NULL, "tell this" },
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static void usage(FILE *to)
{
	char left[64];
	size_t i;

	fputs("usage: sctpd [OPTIONS]          serve SCTP to the programs of this network namespace\n"
	      "       sctpd --status [--json]  show what is served\n",
	      to);
	for (i = 0; i < ROWS; i++) {
		snprintf(left, sizeof(left), "--%s %s", rows[i].name, rows[i].value != NULL ? rows[i].value : "");
		fprintf(to, "  %-34s %s\n", left, rows[i].help);
	}
}

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

	return fd >= 0 && close(fd) == 0;
}

struct settings settings_parse(int argc, char **argv)
{
	struct option options[ROWS + 1] = { 0 };
	int option, index;
	size_t i;

	parsed = (struct settings){ .stack = stack_defaults, .idle_exit_s = -1, .group = (gid_t)-1 };
	for (i = 0; i < ROWS; i++)
		options[i] = (struct option){ rows[i].name, rows[i].value != NULL, NULL, 1 };
	while ((option = getopt_long(argc, argv, "h", options, &index)) != -1) {
		const struct row *row = option == 1 ? &rows[index] : NULL;
		const char *name = option == 'h' ? "help" : row != NULL ? row->name : "";

		if (row != NULL && row->flag != NULL) {
			*row->flag = true;
		} else if (row != NULL && row->number != NULL) {
			*row->number = number(name, optarg, row->smallest, row->largest);
		} else if (strcmp(name, "group") == 0) {
			parsed.group = group_named(optarg);
		} else if (strcmp(name, "log") == 0) {
			parsed.log = optarg;
		} else if (strcmp(name, "kernel") == 0) {
			exit(kernel_has_sctp() ? 0 : 1);
		} else if (strcmp(name, "version") == 0) {
			puts("sctpd, version " PROJECT_VERSION);
			exit(0);
		} else {
			usage(option == '?' ? stderr : stdout);
			exit(option == '?' ? 2 : 0);
		}
	}
	if (memory_mb > 0)
		limits.memory = (uint64_t)memory_mb << 20;
	if (optind < argc) {
		log_line("unexpected argument '%s' (see --help)", argv[optind]);
		exit(2);
	}
	return parsed;
}
