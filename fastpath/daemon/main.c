/* rspdns-fastpath: answers of rspdns from the kernel. See rspdns-fastpath(8) and README.md. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <linux/sched/types.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "messages.h"
#include "program.h"
#include "server.h"
#include "table.h"

#define DEFAULT_SOCKET "/run/rspdns-fastpath/fastpath.sock"
#define DEFAULT_NAMES 16384
#define DEFAULT_ANSWERS 65536
#define MOST_ADDRESSES 128
#define MOST_PORTS 2
#define WAITING 16
#define MOST_REPLY_BYTES (1u << 20) /* a page of the status is less than half of it */
#define ANSWER_WITHIN_S 3
#define STOPPED "the daemon does not answer (is it stopped?)"
#define SLICE_NS 100000 /* the least that Linux gives */

struct options {
	const char *socket, *group, *user;
	struct destination addresses[MOST_ADDRESSES];
	unsigned int address_count;
	__be16 ports[MOST_PORTS];
	unsigned int port_count;
	uint32_t names, answers;
};

static void fail(const char *format, const char *what)
{
	fputs("rspdns-fastpath: ", stderr);
	fprintf(stderr, format, what);
	fputc('\n', stderr);
	exit(1);
}

static const char USAGE[] =
	"usage: rspdns-fastpath run --interface NAME ... --address ADDRESS ... [options]\n"
	"       rspdns-fastpath status [--socket PATH]\n"
	"       rspdns-fastpath trace [--socket PATH]\n"
	"       rspdns-fastpath probe [--mode MODE]\n"
	"       rspdns-fastpath detach [--socket PATH]\n"
	"\n"
	"  --interface NAME   where questions arrive; may be given several times\n"
	"  --address ADDRESS  PowerDNS's own address, IPv4 or IPv6; may be given several times\n"
	"  --port NUMBER      its port (53)\n"
	"  --mode MODE        tc, xdp (the driver's own), xdp-generic (tc)\n"
	"  --mac ADDRESS      of frames for this host in XDP modes, beside the interfaces' own (of VRRP); several times\n"
	"  --socket PATH      where the backend connects (" DEFAULT_SOCKET ")\n"
	"  --group NAME       the socket's group\n"
	"  --user NAME        become this user, with CAP_BPF and CAP_NET_ADMIN alone\n"
	"  --names NUMBER     room for so many names and types (16384)\n"
	"  --answers NUMBER   room for so many ready answers, 512 bytes each (65536)\n";

static uint32_t number(const char *text, uint32_t least, uint32_t most)
{
	char *end;
	errno = 0;
	unsigned long value = strtoul(text, &end, 10);
	if (errno || *end || end == text || *text == '-' || value < least || value > most) {
		fprintf(stderr, "rspdns-fastpath: '%s' is no number from %u to %u\n", text, least, most);
		exit(1);
	}
	return (uint32_t)value;
}

static void add_address(struct options *options, const char *text)
{
	if (options->address_count == MOST_ADDRESSES)
		fail("%s: too many addresses", text);
	struct destination *address = &options->addresses[options->address_count++];
	memset(address, 0, sizeof(*address));
	if (inet_pton(AF_INET, text, address->address) == 1)
		address->version = 4;
	else if (inet_pton(AF_INET6, text, address->address) == 1)
		address->version = 6;
	else
		fail("%s is no address", text);
}

static void add_interface(struct program *program, const char *name)
{
	if (program->interface_count == MOST_INTERFACES)
		fail("%s: too many interfaces", name);
	if (!*name || strlen(name) >= IF_NAMESIZE || strpbrk(name, "\"\\/ "))
		fail("%s is no name of an interface", name);
	struct interface *interface = &program->interfaces[program->interface_count++];
	interface->link = -1;
	memcpy(interface->name, name, strlen(name) + 1);
}

static void add_mac(struct program *program, const char *text)
{
	if (program->mac_count == MOST_MACS)
		fail("%s: too many MAC addresses", text);
	uint8_t *mac = program->macs[program->mac_count++];
	int used = 0;
	if (sscanf(text, "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx%n", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5, &used) != 6 ||
	    text[used] || strlen(text) != 17 || (mac[0] & 1))
		fail("%s is no MAC address of a host, as 00:00:5e:00:01:07", text);
}

static enum mode mode_of(const char *text)
{
	if (strcmp(text, "tc") == 0)
		return TC;
	if (strcmp(text, "xdp") == 0)
		return XDP_NATIVE;
	if (strcmp(text, "xdp-generic") != 0)
		fail("%s is no mode: tc, xdp or xdp-generic", text);
	return XDP_GENERIC;
}

static void read_options(int count, char **words, struct options *options, struct program *program)
{
	static const struct option KNOWN[] = {
		{"interface", required_argument, NULL, 'i'}, {"address", required_argument, NULL, 'a'},
		{"port", required_argument, NULL, 'p'},	     {"mode", required_argument, NULL, 'm'},
		{"mac", required_argument, NULL, 'c'},
		{"socket", required_argument, NULL, 's'},    {"group", required_argument, NULL, 'g'},
		{"user", required_argument, NULL, 'u'},	     {"names", required_argument, NULL, 'n'},
		{"answers", required_argument, NULL, 'r'},   {NULL, 0, NULL, 0},
	};
	int one;
	while ((one = getopt_long(count, words, "", KNOWN, NULL)) != -1) {
		switch (one) {
		case 'i':
			add_interface(program, optarg);
			break;
		case 'a':
			add_address(options, optarg);
			break;
		case 'p':
			if (options->port_count == MOST_PORTS)
				fail("%s: too many ports", optarg);
			options->ports[options->port_count++] = htons((uint16_t)number(optarg, 1, 65535));
			break;
		case 'm':
			program->mode = mode_of(optarg);
			break;
		case 'c':
			add_mac(program, optarg);
			break;
		case 's':
			options->socket = optarg;
			break;
		case 'g':
			options->group = optarg;
			break;
		case 'u':
			options->user = optarg;
			break;
		case 'n':
			options->names = number(optarg, 1, 1u << 20);
			break;
		case 'r':
			options->answers = number(optarg, 1, 1u << 21);
			break;
		default:
			exit(2);
		}
	}
	if (optind < count)
		fail("unexpected: %s", words[optind]);
}

static struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof(address.sun_path))
		fail("%s is too long for a socket", path);
	strcpy(address.sun_path, path);
	return address;
}

/* A connection to a daemon that runs; or -1, with errno. A stopped daemon is waited for no longer than a while. */
static int connect_to(const char *path)
{
	struct sockaddr_un address = address_of(path);
	struct timeval wait = {.tv_sec = ANSWER_WITHIN_S};
	int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (file < 0)
		return -1;
	setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	if (connect(file, (struct sockaddr *)&address, sizeof(address)) == 0)
		return file;
	int failure = errno;
	close(file);
	errno = failure;
	return -1;
}

static int listen_at(const struct options *options)
{
	struct sockaddr_un address = address_of(options->socket);
	struct stat there;
	if (lstat(options->socket, &there) == 0) {
		if (!S_ISSOCK(there.st_mode))
			fail("%s is there, and is no socket", options->socket);
		if (connect_to(options->socket) >= 0 || errno != ECONNREFUSED)
			fail("another program listens at %s", options->socket);
		unlink(options->socket);
	}
	int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t before = umask(0117);
	int failed = file < 0 || bind(file, (struct sockaddr *)&address, sizeof(address)) || listen(file, WAITING);
	umask(before); /* leaves errno */
	if (failed) {
		fprintf(stderr, "rspdns-fastpath: can't listen at %s: %s\n", options->socket, strerror(errno));
		exit(1);
	}
	if (options->group) {
		struct group *group = getgrnam(options->group);
		if (!group)
			fail("there is no group %s", options->group);
		if (chown(options->socket, (uid_t)-1, group->gr_gid))
			fail("the socket can't be given to the group %s", options->group);
	}
	return file;
}

/* Keep CAP_BPF and CAP_NET_ADMIN: programs are attached again where interfaces come again. */
static void drop_privileges(const char *user)
{
	struct passwd *as = user ? getpwnam(user) : NULL;
	if (user && !as)
		fail("there is no user %s", user);
	for (int one = 0; one <= CAP_LAST_CAP; one++)
		if (one != CAP_BPF && one != CAP_NET_ADMIN)
			prctl(PR_CAPBSET_DROP, one, 0, 0, 0);
	if (as && geteuid() != as->pw_uid &&
	    (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setgroups(0, NULL) || setgid(as->pw_gid) || setuid(as->pw_uid)))
		fail("can't become the user %s", user);
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};
	data[CAP_BPF / 32].effective |= 1u << (CAP_BPF % 32);
	data[CAP_NET_ADMIN / 32].effective |= 1u << (CAP_NET_ADMIN % 32);
	for (int i = 0; i < 2; i++)
		data[i].permitted = data[i].effective;
	if (syscall(SYS_capset, &header, data) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		fail("privileges can't be dropped: %s", strerror(errno));
}

/* A change is some ten microseconds of work and waits for it: with a short slice the daemon runs as soon as it is woken,
 * also where another process works. It has no larger share of the processor for that. Linux before 6.12 takes no notice. */
static void ask_for_short_slice(void)
{
	struct sched_attr own;
	if (syscall(SYS_sched_getattr, 0, &own, sizeof(own), 0) || own.sched_policy != SCHED_NORMAL)
		return;
	own.sched_runtime = SLICE_NS;
	syscall(SYS_sched_setattr, 0, &own, 0); /* a sandbox may forbid it: then changes wait for their turn */
}

static int run(struct options *options, struct program *program)
{
	static struct table table;
	if (program->interface_count == 0 || options->address_count == 0)
		fail("%s", "run needs --interface and --address");
	if (options->port_count == 0)
		options->ports[options->port_count++] = htons(53);
	const char *problem = program_load(program, &table, options->names, options->answers);
	if (problem)
		fail("%s", problem);
	for (unsigned int i = 0; i < options->address_count; i++)
		for (unsigned int j = 0; j < options->port_count; j++) {
			uint8_t one = 1;
			options->addresses[i].port = options->ports[j];
			if (bpf_map_update_elem(program->destinations, &options->addresses[i], &one, BPF_ANY))
				fail("%s", "the addresses find no room in the map");
		}
	int listener = listen_at(options);
	drop_privileges(options->user);
	ask_for_short_slice();
	if (server_run(listener, program, &table))
		fail("%s", strerror(errno));
	unlink(options->socket);
	return 0;
}

/* Whether the kernel takes the program: load it, and let it go. */
static int probe(struct program *program)
{
	static struct table table;
	const char *problem = program_load(program, &table, 1, 1);
	if (problem)
		fail("%s", problem);
	return 0;
}

static void send_request(int file, enum kind kind, const void *body, size_t size)
{
	uint8_t bytes[16];
	uint32_t length = (uint32_t)size + 1;
	memcpy(bytes, &length, sizeof(length));
	bytes[4] = (uint8_t)kind;
	if (size)
		memcpy(bytes + 5, body, size);
	if (send(file, bytes, 5 + size, MSG_NOSIGNAL) != (ssize_t)(5 + size))
		fail("%s", "the daemon does not listen");
}

static int read_whole(int file, void *to, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t got = recv(file, (char *)to + at, size - at, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got == 0)
			errno = ECONNRESET;
		if (got <= 0)
			return -1;
		at += (size_t)got;
	}
	return 0;
}

/* A daemon's text holds printable characters and line ends alone: others could be commands to the reader's terminal. */
static void make_printable(char *text)
{
	for (; *text; text++)
		if ((*text < ' ' || *text > '~') && *text != '\n')
			*text = '?';
}

/* Print what the daemon says until it says a message of kind `last`. Returns NULL, or what came instead, in words. */
static const char *print_replies(int file, enum kind last)
{
	static char text[MOST_REPLY_BYTES + 1];
	uint32_t length;
	while (read_whole(file, &length, sizeof(length)) == 0) {
		if (length < 1 || length > MOST_REPLY_BYTES)
			return "the program that listens there is no rspdns-fastpath: its reply has an impossible length";
		if (read_whole(file, text, length))
			return "the daemon ended in the midst of its reply";
		text[length] = 0;
		make_printable(text + 1);
		if (text[0] == REFUSED)
			fail("%s", text + 1);
		if (text[0] == PART || text[0] == TOLD || text[0] == DECIDED)
			fputs(text + 1, stdout);
		fflush(stdout);
		if (text[0] == (char)last)
			return NULL;
	}
	return errno == EAGAIN ? STOPPED : "the daemon ended the connection";
}

static int ask(const struct options *options, enum kind kind, enum kind last)
{
	uint8_t all = 1;
	int file = connect_to(options->socket);
	if (file < 0 && errno == EAGAIN)
		fail("%s", STOPPED);
	if (file < 0)
		fail("no daemon listens at %s (or this user may not use it)", options->socket);
	struct timeval for_ever = {0};
	if (kind == TRACE) /* there may be nothing to tell for long */
		setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &for_ever, sizeof(for_ever));
	send_request(file, kind, &all, kind == STATUS ? 1 : 0);
	const char *problem = print_replies(file, last);
	if (problem)
		fail("%s", problem);
	return 0;
}

/* End a daemon that runs; remove from all interfaces what a killed one left, or one that does not answer. */
static int detach(const struct options *options, const struct program *program)
{
	int file = connect_to(options->socket);
	const char *problem = file < 0 && errno == EAGAIN ? STOPPED : NULL;
	if (file >= 0) {
		send_request(file, DETACH, NULL, 0);
		problem = print_replies(file, DETACHED);
		close(file);
	}
	program_remove_leftovers(program);
	if (problem)
		fail("%s; its program is off the interfaces, and comes again unless you end the daemon", problem);
	return 0;
}

int main(int count, char **words)
{
	static struct program program;
	struct options options = {.socket = DEFAULT_SOCKET, .names = DEFAULT_NAMES, .answers = DEFAULT_ANSWERS};
	const char *command = count > 1 ? words[1] : "";
	if (strcmp(command, "--help") == 0 || strcmp(command, "help") == 0) {
		fputs(USAGE, stdout);
		return 0;
	}
	if (strcmp(command, "--version") == 0) {
		puts("rspdns-fastpath, version " PROJECT_VERSION);
		return 0;
	}
	if (count < 2) {
		fputs(USAGE, stderr);
		return 2;
	}
	read_options(count - 1, words + 1, &options, &program);
	program_named(&program, options.socket);
	if (strcmp(command, "probe") == 0)
		return probe(&program);
	if (strcmp(command, "run") == 0)
		return run(&options, &program);
	if (strcmp(command, "status") == 0)
		return ask(&options, STATUS, TOLD);
	if (strcmp(command, "trace") == 0)
		return ask(&options, TRACE, REFUSED);
	if (strcmp(command, "detach") == 0)
		return detach(&options, &program);
	fputs(USAGE, stderr);
	return 2;
}
