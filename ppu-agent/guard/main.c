/*
 * ppu-guard: repeats connection set-ups through a gateway that nobody answers, and refuses them in the end. ppu-agent
 * starts it, tells it on stdin which addresses are members, and reads on stdout what it counts; its words are below.
 *
 *   member ADDRESS PORT tcp|sctp fixed|rtt   one of those that the next `commit` guards, and no others
 *   commit                                   guard these
 *   renew                                    the agent lives: for LEASE_MS more
 *   tell                                     count now, not only once a second
 *
 * It ends with its stdin. The BPF program lets pass all for which it lacks the agent's word, or time.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "core.h"
#include "program.h"

#define LEASE_MS 3000
#define OWN_LEASE_MS 500 /* it is renewed each time that this process looks */
#define BUSY_MS TICK_MS
#define IDLE_MS 25
#define TELL_MS 1000
#define RETIRED_MS 4000 /* the time for which set-ups to a member that left are still ended by its answers */
#define LINE_BYTES 256
#define BATCH 64

struct one_member {
	struct destination destination;
	uint64_t retired_ms; /* 0: it is guarded */
	bool is_used, is_wanted, learns;
};

struct outbox {
	int file;
	unsigned int count;
	uint64_t failed;
	struct mmsghdr messages[BATCH];
	struct iovec parts[BATCH];
	struct sockaddr_ll interfaces[BATCH];
	uint8_t frames[BATCH][MOST_FRAME + 4];
};

struct guard {
	struct program program;
	struct core core;
	struct ring_buffer *ring;
	struct one_member *members;
	uint32_t member_count; /* indexes used so far */
	struct outbox outboxes[2]; /* by enum act */
	uint64_t now_ms, lease_ms, unheard;
	uint64_t refused_members;
	bool is_waiting_long;
};

static volatile sig_atomic_t is_ending;

static void end_soon(int number)
{
	(void)number;
	is_ending = 1;
}

static void fail(const char *words, const char *what)
{
	fprintf(stderr, "ppu-guard: %s%s\n", words, what);
	exit(1);
}

static uint64_t clock_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Sending */

static void flush(struct outbox *outbox)
{
	for (unsigned int sent = 0; sent < outbox->count;) {
		int done = sendmmsg(outbox->file, outbox->messages + sent, outbox->count - sent, MSG_DONTWAIT);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0) {
			outbox->failed++;
			done = 1; /* the others may have another interface */
		}
		sent += (unsigned int)done;
	}
	outbox->count = 0;
}

static void send_later(void *to, enum act act, uint32_t interface, const uint8_t *frame, uint16_t size)
{
	struct guard *guard = to;
	struct outbox *outbox = &guard->outboxes[act];
	unsigned int i = outbox->count++;
	memcpy(outbox->frames[i], frame, size);
	outbox->parts[i] = (struct iovec){outbox->frames[i], size};
	outbox->interfaces[i] = (struct sockaddr_ll){.sll_family = AF_PACKET, .sll_ifindex = (int)interface,
						     .sll_halen = 6};
	memcpy(&outbox->interfaces[i].sll_protocol, frame + 12, 2);
	memcpy(outbox->interfaces[i].sll_addr, frame, 6);
	outbox->messages[i].msg_hdr = (struct msghdr){.msg_name = &outbox->interfaces[i],
						      .msg_namelen = sizeof(outbox->interfaces[i]),
						      .msg_iov = &outbox->parts[i],
						      .msg_iovlen = 1};
	if (outbox->count == BATCH)
		flush(outbox);
}

static void open_outboxes(struct guard *guard)
{
	int mark = (int)REPEAT_MARK;
	for (int i = 0; i < 2; i++) {
		guard->outboxes[i].file = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
		if (guard->outboxes[i].file < 0)
			fail("no packet socket (it needs CAP_NET_RAW): ", strerror(errno));
	}
	if (setsockopt(guard->outboxes[REPEAT].file, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)))
		fail("packets can't be marked (it needs CAP_NET_ADMIN): ", strerror(errno));
}

/* Set-ups that the BPF program entered */

static int take_notice(void *to, void *data, size_t size)
{
	struct guard *guard = to;
	struct notice notice;
	const uint8_t *frame;
	if (!notice_read(data, size, &notice, &frame))
		return 0;
	bool learns = guard->members[notice.member].learns;
	uint32_t round_trip_us = learns ? guard->program.members[notice.member].round_trip_us : 0;
	core_take(&guard->core, &notice, frame, core_spacing_ms(round_trip_us), guard->now_ms);
	return 0;
}

/* Members */

static struct one_member *member_for(struct guard *guard, const struct destination *destination)
{
	uint32_t index;
	if (bpf_map_lookup_elem(guard->program.destinations, destination, &index) == 0)
		return &guard->members[index];
	for (index = 0; index < guard->member_count && guard->members[index].is_used; index++)
		;
	if (index == MOST_MEMBERS || bpf_map_update_elem(guard->program.destinations, destination, &index, BPF_ANY))
		return NULL;
	if (index == guard->member_count)
		guard->member_count++;
	guard->program.members[index] = (struct member){0};
	guard->members[index] = (struct one_member){.destination = *destination, .is_used = true};
	return &guard->members[index];
}

static void want(struct guard *guard, const char *line)
{
	char address[64], protocol[8], pace[8];
	unsigned int port;
	struct destination destination;
	memset(&destination, 0, sizeof(destination));
	if (sscanf(line, "member %63s %u %7s %7s", address, &port, protocol, pace) != 4 || port < 1 || port > 65535)
		return;
	if (inet_pton(AF_INET, address, destination.address) == 1)
		destination.version = 4;
	else if (inet_pton(AF_INET6, address, destination.address) == 1)
		destination.version = 6;
	else
		return;
	destination.port = htons((uint16_t)port);
	destination.protocol = strcmp(protocol, "sctp") == 0 ? PROTOCOL_SCTP : PROTOCOL_TCP;
	struct one_member *member = member_for(guard, &destination);
	if (!member) {
		guard->refused_members++;
		return;
	}
	member->is_wanted = true;
	member->learns = strcmp(pace, "rtt") == 0;
}

static void commit(struct guard *guard)
{
	for (uint32_t i = 0; i < guard->member_count; i++) {
		struct one_member *member = &guard->members[i];
		if (!member->is_used)
			continue;
		if (member->is_wanted)
			member->retired_ms = 0;
		else if (!member->retired_ms)
			member->retired_ms = guard->now_ms;
		guard->program.members[i].is_guarded = member->is_wanted;
		member->is_wanted = false;
	}
}

/* Those that are gone for long are forgotten, but never before a `commit` is through with what it wants. */
static void forget_retired(struct guard *guard)
{
	for (uint32_t i = 0; i < guard->member_count; i++) {
		struct one_member *member = &guard->members[i];
		if (member->is_used && !member->is_wanted && member->retired_ms &&
		    guard->now_ms - member->retired_ms > RETIRED_MS) {
			bpf_map_delete_elem(guard->program.destinations, &member->destination);
			*member = (struct one_member){0};
		}
	}
}

/* Telling */

static void tell(struct guard *guard)
{
	static const char *const NAMES[] = {
#define AS_TEXT(name, text) text,
		COUNTERS(AS_TEXT)
#undef AS_TEXT
	};
	char words[16384];
	uint64_t totals[COUNTER_COUNT];
	int at = 0;
	program_count(&guard->program, totals);
	uint64_t ended = totals[COUNT_ANSWERED] + totals[COUNT_REFUSED] + totals[COUNT_REPLACED] + guard->core.refused +
			 guard->core.unlike;
	uint64_t pending = totals[COUNT_GUARDED] > ended ? totals[COUNT_GUARDED] - ended : 0;
#define SAY(...) at += snprintf(words + at, sizeof(words) - (size_t)at, __VA_ARGS__)
	SAY("{\"pending\": %llu", (unsigned long long)pending);
	for (int i = 0; i < COUNTER_COUNT; i++)
		SAY(", \"%s_count\": %llu", NAMES[i], (unsigned long long)totals[i]);
	SAY(", \"repeated_count\": %llu, \"given_up_count\": %llu, \"unlike_count\": %llu, \"unsent_count\": %llu",
	    (unsigned long long)guard->core.repeated, (unsigned long long)guard->core.refused,
	    (unsigned long long)guard->core.unlike,
	    (unsigned long long)(guard->outboxes[REPEAT].failed + guard->outboxes[REFUSE].failed));
	SAY(", \"unheeded_members\": %llu, \"bytes\": %llu, \"interfaces\": {", (unsigned long long)guard->refused_members,
	    (unsigned long long)(core_bytes(&guard->core) + bpf_map__max_entries(bpf_object__find_map_by_name(
								    guard->program.object, "notices"))));
	for (unsigned int i = 0; i < guard->program.interface_count; i++) {
		const struct interface *interface = &guard->program.interfaces[i];
		SAY("%s\"%s\": \"%s\"", i ? ", " : "", interface->name, interface->problem);
	}
	SAY("}}\n");
#undef SAY
	for (int sent = 0; sent < at;) {
		ssize_t done = write(STDOUT_FILENO, words + sent, (size_t)(at - sent));
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0) {
			guard->unheard++;
			return;
		}
		sent += (int)done;
	}
}

/* Commands of the agent */

static void hear(struct guard *guard, const char *line)
{
	if (strncmp(line, "member ", 7) == 0)
		want(guard, line);
	else if (strcmp(line, "commit") == 0)
		commit(guard);
	else if (strcmp(line, "tell") == 0)
		tell(guard);
	else if (strcmp(line, "renew") != 0)
		return;
	guard->lease_ms = guard->now_ms + LEASE_MS;
}

/* Read what the agent says; false at its end. */
static bool listen_to_agent(struct guard *guard)
{
	static char line[LINE_BYTES];
	static size_t length;
	char bytes[4096];
	for (;;) {
		ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));
		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
			return false;
		if (got < 0)
			return true;
		for (ssize_t i = 0; i < got; i++) {
			if (bytes[i] != '\n') {
				if (length + 1 < sizeof(line))
					line[length++] = bytes[i];
				continue;
			}
			line[length] = 0;
			length = 0;
			hear(guard, line);
		}
	}
}

/* The loop */

static void renew_own_lease(struct guard *guard)
{
	bool lives = guard->now_ms < guard->lease_ms;
	__atomic_store_n(&guard->program.settings->alive_until_ns,
			 lives ? (guard->now_ms + OWN_LEASE_MS) * 1000000ull : 0, __ATOMIC_RELEASE);
}

static void run(struct guard *guard)
{
	struct pollfd watched[] = {{.fd = STDIN_FILENO, .events = POLLIN},
				   {.fd = ring_buffer__epoll_fd(guard->ring), .events = POLLIN}};
	uint64_t told_ms = 0;
	while (!is_ending) {
		poll(watched, 2, guard->core.waiting ? BUSY_MS : IDLE_MS);
		guard->now_ms = clock_ms();
		if (watched[0].revents && !listen_to_agent(guard))
			break;
		ring_buffer__consume(guard->ring);
		core_advance(&guard->core, guard->now_ms);
		flush(&guard->outboxes[REPEAT]);
		flush(&guard->outboxes[REFUSE]);
		renew_own_lease(guard);
		if (guard->now_ms - told_ms >= TELL_MS) {
			told_ms = guard->now_ms;
			program_attach(&guard->program);
			forget_retired(guard);
			tell(guard);
		}
	}
}

static const char USAGE[] = "usage: ppu-guard --pending NUMBER INTERFACE ...\n"
			    "       ppu-guard --probe\n"
			    "ppu-agent starts it ([gateway] in ppu-agent.toml); it is no command for people.\n";

int main(int count, char **words)
{
	static struct guard guard;
	bool is_probe = count == 2 && strcmp(words[1], "--probe") == 0;
	if (count == 2 && strcmp(words[1], "--help") == 0) {
		fputs(USAGE, stdout);
		return 0;
	}
	if (count == 2 && strcmp(words[1], "--version") == 0) {
		puts("ppu-guard, version " PROJECT_VERSION);
		return 0;
	}
	char *end = "";
	unsigned long pending = is_probe ? 1 : count > 3 && strcmp(words[1], "--pending") == 0 ? strtoul(words[2], &end, 10) : 0;
	if (pending < 1 || pending > 10000000 || *end || count - 3 > MOST_INTERFACES) {
		fputs(USAGE, stderr);
		return 2;
	}
	for (int i = 3; i < count; i++) {
		if (!*words[i] || strlen(words[i]) >= IF_NAMESIZE || strpbrk(words[i], "\"\\/ "))
			fail("no name of an interface: ", words[i]);
		strcpy(guard.program.interfaces[guard.program.interface_count++].name, words[i]);
	}
	uint32_t buckets = core_buckets((uint32_t)pending);
	const char *problem = program_load(&guard.program, buckets);
	if (problem)
		fail(problem, "");
	open_outboxes(&guard);
	guard.now_ms = clock_ms();
	guard.members = calloc(MOST_MEMBERS, sizeof(*guard.members));
	guard.ring = ring_buffer__new(guard.program.notices, take_notice, &guard, NULL);
	if (!guard.members || !guard.ring ||
	    core_open(&guard.core, guard.program.buckets, buckets, guard.now_ms, send_later, &guard) ||
	    getrandom(&guard.core.secret, sizeof(guard.core.secret), 0) < 0)
		fail("no memory", "");
	if (is_probe)
		return 0;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	signal(SIGTERM, end_soon);
	signal(SIGINT, SIG_IGN); /* Ctrl-C is for the agent, whose end ends this */
	signal(SIGPIPE, SIG_IGN);
	if (fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK) || fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK))
		fail("stdin and stdout: ", strerror(errno));
	run(&guard);
	program_detach(&guard.program);
	core_close(&guard.core);
	ring_buffer__free(guard.ring);
	bpf_object__close(guard.program.object);
	return 0;
}
