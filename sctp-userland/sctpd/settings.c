#include "settings.h"

#include <getopt.h>
#include <grp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../protocol.h"
#include "limits.h"
#include "loop.h"

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
	      "  --socket-limit N --connection-limit N        sockets, and threads of programs that use them (16384 4096)\n"
	      "  --memory-limit MB                            what all that is queued, and all associations, may take (512)\n"
	      "  --detach                                     go to the background once it serves\n"
	      "  --log FILE                                   its log then (sctpd-UID.log in $XDG_RUNTIME_DIR, $TMPDIR or /tmp)\n"
	      "  --kernel                                     only tell (exit status) whether the kernel has SCTP\n"
	      "  --version                                    tell the version\n"
	      "  --debug                                      usrsctp's own messages\n",
	      to);
}

enum { RTO_MIN = 1, RTO_INITIAL, RTO_MAX, SACK, HEARTBEAT, INIT_RTX, ASSOC_RTX, PATH_RTX, IDLE, GROUP, EVERYONE, LIMIT,
       CONNECTIONS, MEMORY, DEBUG, STATUS, JSON, HELP, DETACH, LOG, KERNEL, VERSION };

static const struct option long_options[] = {
	{ "rto-min", 1, NULL, RTO_MIN },	   { "rto-initial", 1, NULL, RTO_INITIAL },
	{ "rto-max", 1, NULL, RTO_MAX },	   { "sack-delay", 1, NULL, SACK },
	{ "heartbeat", 1, NULL, HEARTBEAT },	   { "init-retransmissions", 1, NULL, INIT_RTX },
	{ "association-retransmissions", 1, NULL, ASSOC_RTX },
	{ "path-retransmissions", 1, NULL, PATH_RTX }, { "idle-exit", 1, NULL, IDLE },
	{ "group", 1, NULL, GROUP },		   { "everyone", 0, NULL, EVERYONE },
	{ "socket-limit", 1, NULL, LIMIT },	   { "connection-limit", 1, NULL, CONNECTIONS },
	{ "memory-limit", 1, NULL, MEMORY },
	{ "debug", 0, NULL, DEBUG },
	{ "status", 0, NULL, STATUS },		   { "json", 0, NULL, JSON },
	{ "detach", 0, NULL, DETACH },		   { "log", 1, NULL, LOG },
	{ "kernel", 0, NULL, KERNEL },
	{ "help", 0, NULL, HELP },		   { "version", 0, NULL, VERSION },
	{ NULL, 0, NULL, 0 },
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

void settings_parse(struct settings *settings, int argc, char **argv)
{
	int option, index = 0;

	*settings = (struct settings){ .stack = stack_defaults, .idle_exit_s = -1, .group = (gid_t)-1 };
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
		case LIMIT: limits.sockets = (int)number(name, optarg, 1, STATES_MAX); break;
		case CONNECTIONS: limits.connections = (int)number(name, optarg, 1, 1000000); break;
		case MEMORY: limits.memory = (uint64_t)number(name, optarg, 16, 1000000) << 20; break;
		case DEBUG: stack->debug = true; break;
		case DETACH: settings->detach = true; break;
		case LOG: settings->log = optarg; break;
		case KERNEL: exit(kernel_has_sctp() ? 0 : 1);
		case STATUS: settings->status = true; break;
		case JSON: settings->json = true; break;
		case HELP: case 'h': usage(stdout); exit(0);
		case VERSION: puts("sctpd, version " PROJECT_VERSION); exit(0);
		default: usage(stderr); exit(2);
		}
	}
	if (optind < argc) {
		log_line("unexpected argument '%s' (see --help)", argv[optind]);
		exit(2);
	}
}
