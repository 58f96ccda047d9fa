#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <bpf/libbpf.h>

#include "messages.h"

#define LOOK_EVERY_NS 250000000 /* at the interfaces */
#define MOST_CLIENTS 16
#define MOST_UNREAD_BYTES (8u << 20) /* of replies: who does not read them is left */
#define MOST_EVENTS 32
/* A status is told a page at a time, so that no commit waits for more than one page. */
#define NAMES_A_PAGE 500
#define SLOTS_A_PAGE 16384 /* looked at */
#define DECISIONS_A_TURN 256 /* read between two looks at the sockets */
#define DECISIONS_A_LOOK 250 /* told between two looks at the interfaces, so 1000 a second */

struct client {
	int file;	  /* -1: free */
	int passed_file; /* goes along with what is sent next; -1: none */
	uint64_t number;  /* of all that ever connected */
	bool may_rule;	  /* root, and the daemon's own user: may end it, and see who asks what */
	bool is_tracing, is_leaving;
	struct telling {
		bool is_under_way, is_of_all, has_names;
		bool is_asked_again, is_again_of_all; /* while it was under way */
		uint32_t slot, slots_left, names_left;
	} telling; /* of the status */
	uint8_t in[4 + MOST_MESSAGE_BYTES];
	size_t in_size;
	char *out;
	size_t out_size, out_sent, out_room;
};

struct server {
	struct program *program;
	struct table *table;
	struct limiter limiter;
	struct near near;
	struct client clients[MOST_CLIENTS];
	struct client *backend; /* who tells the answers; NULL: nobody */
	uint16_t number;	/* of its lease, or of that of the last backend */
	uint16_t payload;	/* of its answers */
	bool subnets;		/* whether client subnets count */
	bool is_heir;		/* it has not told all answers yet: until then those of a backend that was killed are given, on its lease */
	struct ring_buffer *decisions;
	unsigned int read_in_turn, told_since_look;
	uint64_t untold; /* decisions since the last look at the interfaces, above the rate */
	uint64_t *told; /* the questions about each entry that the backend knows of */
	uint32_t next_asked;		       /* the slot at which the next status of those asked about begins */
	uint64_t connected; /* clients, ever */
	int epoll;
	bool is_over;
};

static const char *const REASON_NAMES[] = {
#define AS_TEXT(name, text) text,
	REASONS(AS_TEXT)
#undef AS_TEXT
};

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static __u64 *lease(const struct server *server)
{
	return &server->program->leases->renewed_ns[server->table->settings->holder % HOLDERS];
}

/* Nothing is answered until the backend renews its lease. */
static void end_lease(struct server *server) { __atomic_store_n(lease(server), 0, __ATOMIC_SEQ_CST); }

static uint64_t lease_left_ns(const struct server *server)
{
	uint64_t renewed_ns = __atomic_load_n(lease(server), __ATOMIC_SEQ_CST), since_ns = now_ns() - renewed_ns;
	return renewed_ns && since_ns < LEASE_NS ? LEASE_NS - since_ns : 0;
}

/* ---- replies ---- */

static void append(struct client *client, const void *bytes, size_t size)
{
	if (client->is_leaving || size == 0)
		return;
	if (client->out_size + size > client->out_room) {
		size_t room = 2 * client->out_room + size + 4096;
		char *larger = room > 2 * (size_t)MOST_UNREAD_BYTES ? NULL : realloc(client->out, room);
		if (!larger) {
			client->is_leaving = true;
			client->out_size = client->out_sent = 0;
			return;
		}
		client->out = larger;
		client->out_room = room;
	}
	memcpy(client->out + client->out_size, bytes, size);
	client->out_size += size;
}

static void reply(struct client *client, enum kind kind, const void *body, size_t size)
{
	uint32_t length = (uint32_t)size + 1;
	uint8_t byte = (uint8_t)kind;
	append(client, &length, sizeof(length));
	append(client, &byte, 1);
	append(client, body, size);
}

static void refuse(struct client *client, const char *words)
{
	reply(client, REFUSED, words, strlen(words));
	client->is_leaving = true;
}

/* ---- what is told ---- */

/* A name in the text form of zone files, fit for JSON: a backslash stands twice. */
static void print_name(FILE *out, const struct question *question)
{
	const uint8_t *name = (const uint8_t *)question->name;
	size_t at = 0;
	while (at < question->size && name[at]) {
		size_t end = at + 1 + name[at];
		for (at++; at < end && at < question->size; at++) {
			if (name[at] > ' ' && name[at] < 0x7f && !strchr("\\\".;()@$", name[at]))
				fputc(name[at], out);
			else
				fprintf(out, "\\\\%03u", name[at]);
		}
		if (at < question->size && name[at])
			fputc('.', out);
	}
}

static void print_type(FILE *out, uint16_t type)
{
	switch (type) {
	case 1:
		fputs("A", out);
		break;
	case 28:
		fputs("AAAA", out);
		break;
	case 33:
		fputs("SRV", out);
		break;
	case 35:
		fputs("NAPTR", out);
		break;
	case 64:
		fputs("SVCB", out);
		break;
	case 65:
		fputs("HTTPS", out);
		break;
	default:
		fprintf(out, "TYPE%u", type);
	}
}

static void print_entry(struct entry *entry, const uint64_t counts[3], FILE *out)
{
	fputs("\n  {\"name\": \"", out);
	print_name(out, &entry->question);
	fputs("\", \"type\": \"", out);
	print_type(out, entry->question.type);
	int half = entry->generation[0] > entry->generation[1] ? 0 : 1;
	fprintf(out, "\", \"variants\": %u, \"answered\": %llu, \"passed\": %llu, \"failed\": %llu}",
		entry->variants[half], (unsigned long long)counts[0], (unsigned long long)counts[1],
		(unsigned long long)counts[2]);
}

/* One page of the names. */
static void print_names(struct server *server, struct telling *telling, FILE *out)
{
	const struct table *table = server->table;
	uint32_t names = 0, slots = 0;
	for (; telling->slots_left && telling->names_left && names < NAMES_A_PAGE && slots < SLOTS_A_PAGE; slots++) {
		uint32_t slot = telling->slot;
		telling->slot = (slot + 1) % table->entry_slots.capacity;
		telling->slots_left--;
		struct entry *entry = &table->entries[slot];
		if (!table->in_use[slot] || entry->question.asker_class)
			continue;
		const uint64_t counts[3] = {__atomic_load_n(&entry->answered, __ATOMIC_RELAXED),
					    __atomic_load_n(&entry->passed, __ATOMIC_RELAXED),
					    __atomic_load_n(&entry->failed, __ATOMIC_RELAXED)};
		if (!telling->is_of_all) {
			if (counts[0] + counts[1] + counts[2] == server->told[slot])
				continue;
			server->told[slot] = counts[0] + counts[1] + counts[2];
		}
		if (telling->has_names)
			fputc(',', out);
		print_entry(entry, counts, out);
		telling->has_names = true;
		telling->names_left--;
		names++;
	}
}

static void print_interfaces(const struct program *program, FILE *out)
{
	for (unsigned int i = 0; i < program->interface_count; i++) {
		const struct interface *interface = &program->interfaces[i];
		fprintf(out, "%s{\"name\": \"%s\", \"attached\": %s, \"problem\": \"%s\"}", i ? ", " : "", interface->name,
			interface->index ? "true" : "false", interface->problem);
	}
}

static void print_totals(const struct server *server, FILE *out)
{
	static const char *const modes[] = {"tc", "xdp", "xdp-generic"};
	uint64_t totals[REASON_COUNT];
	program_count(server->program, totals);
	fprintf(out, "{\"mode\": \"%s\", \"interfaces\": [", modes[server->program->mode]);
	print_interfaces(server->program, out);
	fprintf(out, "],\n \"backend\": %s, \"lease_ms\": %llu, \"generation\": %llu, \"names\": %u,\n",
		server->backend ? "true" : "false", (unsigned long long)lease_left_ns(server) / 1000000,
		(unsigned long long)server->table->settings->generation, server->table->count);
	fprintf(out, " \"room\": {\"names\": %u, \"answers\": %u, \"answers_free\": %u},\n \"decisions\": {",
		server->table->entry_slots.capacity, server->table->answer_slots.capacity,
		server->table->answer_slots.free_count + server->table->answer_slots.resting_count);
	for (int reason = 0; reason < REASON_COUNT; reason++)
		fprintf(out, "%s\"%s\": %llu", reason ? ", " : "", REASON_NAMES[reason], (unsigned long long)totals[reason]);
	fprintf(out, "},\n \"zones_with_depth\": %u, \"near_blocks\": %u,\n \"asked\": [", server->limiter.count,
		server->near.count);
}

/* Tell the first part of the status, or its next page. */
static void tell_part(struct server *server, struct client *client, bool is_first)
{
	struct telling *telling = &client->telling;
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	if (!out)
		return refuse(client, "no memory");
	if (is_first)
		print_totals(server, out);
	else
		print_names(server, telling, out);
	bool is_last = !is_first && (telling->slots_left == 0 || telling->names_left == 0);
	if (is_last)
		fputs("]}\n", out);
	if (fclose(out) == 0)
		reply(client, is_last ? TOLD : PART, text, size);
	else
		refuse(client, "no memory");
	free(text);
	telling->is_under_way = !is_last;
}

static void tell_status(struct server *server, struct client *client, bool all)
{
	struct telling *telling = &client->telling;
	if (telling->is_under_way) {
		telling->is_asked_again = true;
		telling->is_again_of_all |= all;
		return;
	}
	uint32_t capacity = server->table->entry_slots.capacity;
	*telling = (struct telling){.is_of_all = all,
				    .slot = all ? 0 : server->next_asked,
				    .slots_left = capacity,
				    .names_left = all ? capacity : MOST_ASKED};
	tell_part(server, client, true);
}

static void tell_next_page(struct server *server, struct client *client)
{
	struct telling *telling = &client->telling;
	tell_part(server, client, false);
	if (!telling->is_of_all)
		server->next_asked = telling->slot;
	if (!telling->is_under_way && telling->is_asked_again)
		tell_status(server, client, telling->is_again_of_all);
}

/* Whether the next page of a status may be told: the client has read what came before. */
static bool is_page_due(const struct client *client)
{
	return client->file >= 0 && client->telling.is_under_way && client->out_size == 0;
}

static void tell_tracing(struct server *server, const char *text, size_t size)
{
	for (int i = 0; i < MOST_CLIENTS; i++)
		if (server->clients[i].file >= 0 && server->clients[i].is_tracing)
			reply(&server->clients[i], DECIDED, text, size);
}

static void tell_decision(struct server *server, const struct decision *decision)
{
	char *text = NULL, address[INET6_ADDRSTRLEN] = "?";
	size_t length = 0;
	FILE *out = decision->reason < REASON_COUNT ? open_memstream(&text, &length) : NULL;
	if (!out)
		return;
	inet_ntop(decision->version == 6 ? AF_INET6 : AF_INET, decision->source, address, sizeof(address));
	fprintf(out, "%s#%u ", address, ntohs(decision->port));
	if (decision->question.size) {
		print_name(out, &decision->question);
		fputc(' ', out);
		print_type(out, decision->question.type);
		fputc(' ', out);
	}
	fprintf(out, "%s\n", REASON_NAMES[decision->reason]);
	if (fclose(out) == 0)
		tell_tracing(server, text, length);
	free(text);
}

/* Says with a negative number that the others wait for the next turn. */
static int take_decision(void *context, void *data, size_t size)
{
	struct server *server = context;
	if (server->told_since_look == DECISIONS_A_LOOK) {
		server->untold++;
	} else if (size >= sizeof(struct decision)) {
		server->told_since_look++;
		tell_decision(server, data);
	}
	return ++server->read_in_turn < DECISIONS_A_TURN ? 0 : -1;
}

static void tell_untold(struct server *server)
{
	char text[80];
	if (server->untold) {
		int size = snprintf(text, sizeof(text), "%llu more, above 1000 a second\n", (unsigned long long)server->untold);
		tell_tracing(server, text, (size_t)size);
	}
	server->untold = server->told_since_look = 0;
}

static void look_who_traces(struct server *server)
{
	uint32_t traces = 0;
	for (int i = 0; i < MOST_CLIENTS; i++)
		traces |= server->clients[i].file >= 0 && server->clients[i].is_tracing;
	__atomic_store_n(&server->table->settings->trace, traces, __ATOMIC_RELAXED);
}

/* ---- what the backend says ---- */

/* From now on the lease of the backend that tells the answers counts; it did not renew it yet, so nothing is answered. */
static void inherit(struct server *server)
{
	struct settings *settings = server->table->settings;
	__atomic_store_n(&settings->holder, server->number, __ATOMIC_SEQ_CST);
	settings->payload = server->payload;
	settings->subnets = server->subnets;
	server->is_heir = false;
}

/* A lease that no backend writes to: a frozen one that wakes renews its own. */
static uint16_t next_number(const struct server *server)
{
	uint16_t number = (uint16_t)((server->number + 1) % HOLDERS);
	return number == server->table->settings->holder ? (uint16_t)((number + 1) % HOLDERS) : number;
}

static void begin(struct server *server, struct client *client, const struct message *message)
{
	struct hello hello;
	if (!hello_read(message, &hello))
		return refuse(client, "this is no greeting of a backend");
	if (hello.version != PROTOCOL_VERSION)
		return refuse(client, "the backend and rspdns-fastpath are of different versions");
	/* A backend that was killed left answers that are good until its lease ends: only the new backend's first commit ends it earlier. */
	bool is_heir = !server->backend && lease_left_ns(server);
	if (server->backend && server->backend != client) {
		/* A backend that does not renew its lease is frozen, or gone: the new one takes its place. */
		if (lease_left_ns(server))
			return refuse(client, "another backend is connected");
		server->backend->is_leaving = true;
	}
	server->backend = client;
	server->number = next_number(server);
	server->payload = hello.payload;
	server->subnets = hello.subnets;
	server->is_heir = is_heir;
	__atomic_store_n(&server->program->leases->renewed_ns[server->number], 0, __ATOMIC_SEQ_CST);
	limit_clear(&server->limiter);
	near_begin(&server->near, server->number);
	table_clear(server->table);
	if (!is_heir) {
		end_lease(server);
		inherit(server);
		table_commit(server->table);
	}
	client->passed_file = server->program->lease_file;
	reply(client, WELCOME, &server->number, sizeof(server->number));
}

/* Old and new answers do not find room beside each other: the old ones go. */
static void end_former(struct server *server)
{
	inherit(server);
	table_commit(server->table);
}

static void put(struct server *server, struct client *client, const struct message *message)
{
	struct put put;
	if (!put_read(message, &put))
		return refuse(client, "these are no answers to a name");
	uint32_t classes = near_classes(&server->near, put.classes);
	if (put.classes && !classes && put.count) {
		put.count = 0; /* the class of an asker can't be known */
		server->table->refused++;
	}
	uint32_t refused = server->table->refused;
	table_put(server->table, &put.question, classes, put.variants, put.count);
	if (server->is_heir && server->table->refused > refused) {
		end_former(server);
		table_put(server->table, &put.question, classes, put.variants, put.count);
	}
}

static void note_near(struct server *server, struct client *client, const struct message *message)
{
	static struct near_blocks told;
	if (!near_read(message, &told))
		return refuse(client, "these are no networks of askers");
	near_add(&server->near, told.number, told.blocks, told.count); /* without room its names are refused */
}

static void forget_near(struct server *server, struct client *client, const struct message *message)
{
	uint16_t number;
	if (!forget_read(message, &number))
		return refuse(client, "this is no number of classes");
	near_forget(&server->near, number);
}

static void commit(struct server *server, struct client *client, const struct message *message)
{
	uint64_t number;
	if (!number_read(message, &number))
		return refuse(client, "this is no end of a change");
	if (server->is_heir)
		inherit(server);
	uint32_t refused = table_commit(server->table);
	uint8_t body[sizeof(number) + sizeof(refused)];
	memcpy(body, &number, sizeof(number));
	memcpy(body + sizeof(number), &refused, sizeof(refused));
	reply(client, COMMITTED, body, sizeof(body));
}

static void limit(struct server *server, struct client *client, const struct message *message)
{
	struct wanted_limit wanted;
	if (!limit_read(message, &wanted))
		return refuse(client, "this is no limit");
	limit_set(&server->limiter, &wanted);
}

static void note_zone(struct server *server, struct client *client, const struct message *message)
{
	struct zone_depth found;
	if (!zone_depth_read(message, &found))
		return refuse(client, "this is no depth of a zone");
	if (limit_zone(&server->limiter, &found.zone, found.depth) || server->limiter.is_told_full)
		return;
	server->limiter.is_told_full = true;
	fprintf(stderr, "rspdns-fastpath: no room for the depth of more than %d zones\n", MOST_ZONES);
}

static void handle(struct server *server, struct client *client, const struct message *message)
{
	bool is_backend = server->backend == client;
	if ((message->kind == TRACE || message->kind == DETACH) && !client->may_rule)
		return refuse(client, "only root and the daemon's own user may do that");
	switch (message->kind) {
	case HELLO:
		return begin(server, client, message);
	case STATUS:
		return tell_status(server, client, message->size == 1 && message->body[0]);
	case TRACE:
		client->is_tracing = true;
		return look_who_traces(server);
	case DETACH:
		server->is_over = true;
		return;
	default:
		break;
	}
	if (!is_backend)
		return refuse(client, "unknown, or only for a backend that has greeted");
	switch (message->kind) {
	case PUT:
		return put(server, client, message);
	case COMMIT:
		return commit(server, client, message);
	case LIMIT:
		return limit(server, client, message);
	case ZONE:
		return note_zone(server, client, message);
	case NEAR:
		return note_near(server, client, message);
	case FORGET:
		return forget_near(server, client, message);
	default:
		return refuse(client, "unknown message");
	}
}

/* ---- sockets ---- */

/* A backend that gives up ends its lease itself, before it closes. A backend that was killed keeps it for its last second. */
static void leave(struct server *server, struct client *client)
{
	if (server->backend == client) {
		if (client->is_leaving)
			end_lease(server); /* it said what makes no sense */
		server->backend = NULL;
	}
	close(client->file);
	free(client->out);
	*client = (struct client){.file = -1, .passed_file = -1};
	look_who_traces(server);
}

static ssize_t send_some(struct client *client)
{
	struct iovec rest = {client->out + client->out_sent, client->out_size - client->out_sent};
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} along = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	struct msghdr message = {.msg_iov = &rest, .msg_iovlen = 1};
	if (client->passed_file >= 0) {
		memcpy(CMSG_DATA(&along.head), &client->passed_file, sizeof(int));
		message.msg_control = &along;
		message.msg_controllen = sizeof(along);
	}
	ssize_t sent = sendmsg(client->file, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent > 0)
		client->passed_file = -1;
	return sent;
}

static void flush(struct server *server, struct client *client)
{
	while (client->out_sent < client->out_size) {
		ssize_t sent = send_some(client);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && errno != EAGAIN)
			return leave(server, client);
		if (sent < 0)
			break;
		client->out_sent += (size_t)sent;
	}
	if (client->out_sent == client->out_size)
		client->out_sent = client->out_size = 0;
	if (client->is_leaving || client->out_size - client->out_sent > MOST_UNREAD_BYTES)
		return leave(server, client);
	struct epoll_event event = {.events = EPOLLIN | (client->out_size ? EPOLLOUT : 0u), .data.ptr = client};
	epoll_ctl(server->epoll, EPOLL_CTL_MOD, client->file, &event);
}

/* Reads what there is, some at a time, so that one client does not keep the others waiting. */
static void read_from(struct server *server, struct client *client)
{
	ssize_t got = recv(client->file, client->in + client->in_size, sizeof(client->in) - client->in_size, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0)
		return leave(server, client);
	client->in_size += (size_t)got;
	size_t at = 0;
	while (!client->is_leaving && !server->is_over) {
		struct message message;
		long size = message_read(client->in + at, client->in_size - at, &message);
		if (size < 0)
			refuse(client, "a message is longer than any can be");
		if (size <= 0)
			break;
		handle(server, client, &message);
		at += (size_t)size;
	}
	memmove(client->in, client->in + at, client->in_size - at);
	client->in_size -= at;
	flush(server, client);
}

/* A process that may use the socket may publish answers and read the status. To rule takes more. */
static bool may_rule(int file)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	return getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == 0 || peer.uid == geteuid());
}

/* A free slot for a client. When there is none, the client that says nothing for longest gives way. */
static struct client *slot_of_client(struct server *server)
{
	struct client *idle = NULL;
	for (int i = 0; i < MOST_CLIENTS; i++) {
		struct client *client = &server->clients[i];
		if (client->file < 0)
			return client;
		bool is_idle = client != server->backend && !client->is_tracing && !client->telling.is_under_way;
		if (is_idle && (!idle || client->number < idle->number))
			idle = client;
	}
	if (idle)
		leave(server, idle);
	return idle;
}

static void accept_one(struct server *server, int listener)
{
	int file = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (file < 0)
		return;
	struct client *client = slot_of_client(server);
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
	if (!client || epoll_ctl(server->epoll, EPOLL_CTL_ADD, file, &event)) {
		close(file);
		return;
	}
	client->file = file;
	client->number = ++server->connected;
	client->may_rule = may_rule(file);
}

/* One page to each client that is told a status. Returns whether more can be told at once. */
static bool tell_pages(struct server *server)
{
	bool is_more = false;
	for (int i = 0; i < MOST_CLIENTS; i++) {
		struct client *client = &server->clients[i];
		if (!is_page_due(client))
			continue;
		tell_next_page(server, client);
		flush(server, client);
		is_more |= is_page_due(client);
	}
	return is_more;
}

/* Send all queued messages besides replies. */
static void flush_all(struct server *server)
{
	for (int i = 0; i < MOST_CLIENTS; i++)
		if (server->clients[i].file >= 0 && server->clients[i].out_size)
			flush(server, &server->clients[i]);
}

static bool watch(struct server *server, int file, void *what)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
	return file >= 0 && epoll_ctl(server->epoll, EPOLL_CTL_ADD, file, &event) == 0;
}

static int signals(void)
{
	sigset_t wanted;
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGTERM);
	sigaddset(&wanted, SIGINT);
	sigprocmask(SIG_BLOCK, &wanted, NULL);
	return signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int timer(void)
{
	int file = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	struct itimerspec every = {.it_interval = {.tv_nsec = LOOK_EVERY_NS}, .it_value = {.tv_nsec = LOOK_EVERY_NS}};
	if (file >= 0)
		timerfd_settime(file, 0, &every, NULL);
	return file;
}

static void look_at_interfaces(struct server *server)
{
	struct program *program = server->program;
	unsigned int attached = program_attach(program);
	if (!program->is_changed)
		return;
	fprintf(stderr, "rspdns-fastpath: attached to %u of %u interfaces\n", attached, program->interface_count);
	for (unsigned int i = 0; i < program->interface_count; i++) {
		const struct interface *interface = &program->interfaces[i];
		if (interface->problem[0])
			fprintf(stderr, "rspdns-fastpath: %s %s: %s\n", interface->index ? "at" : "not at", interface->name,
				interface->problem);
	}
}

int server_run(int listener, struct program *program, struct table *table)
{
	static struct server server;
	server = (struct server){.program = program, .table = table, .epoll = epoll_create1(EPOLL_CLOEXEC)};
	server.limiter = (struct limiter){.zones = program->zones, .settings = table->settings};
	server.near = (struct near){.blocks = program->blocks};
	limit_clear(&server.limiter);
	for (int i = 0; i < MOST_CLIENTS; i++)
		server.clients[i] = (struct client){.file = -1, .passed_file = -1};
	int ended = signals(), ticks = timer();
	int is_listener, is_end, is_tick, is_decision; /* their addresses tell events apart */
	server.told = calloc(table->entry_slots.capacity, sizeof(uint64_t));
	server.decisions = ring_buffer__new(program->decisions, take_decision, &server, NULL);
	if (server.epoll < 0 || !server.told || !server.decisions ||
	    !watch(&server, listener, &is_listener) || !watch(&server, ended, &is_end) || !watch(&server, ticks, &is_tick) ||
	    !watch(&server, ring_buffer__epoll_fd(server.decisions), &is_decision))
		return -1;
	look_at_interfaces(&server);
	while (!server.is_over) {
		struct epoll_event events[MOST_EVENTS];
		bool is_busy = tell_pages(&server);
		/* The answers of a backend that was killed need the networks that it told. */
		is_busy |= !server.is_heir && near_sweep(&server.near);
		int count = epoll_wait(server.epoll, events, MOST_EVENTS, is_busy ? 0 : -1);
		if (count < 0 && errno != EINTR)
			return -1;
		for (int i = 0; i < count && !server.is_over; i++) {
			void *what = events[i].data.ptr;
			uint64_t ignored;
			if (what == &is_listener) {
				accept_one(&server, listener);
			} else if (what == &is_end) {
				server.is_over = true;
			} else if (what == &is_tick) {
				if (read(ticks, &ignored, sizeof(ignored)) > 0)
					look_at_interfaces(&server);
				tell_untold(&server);
				flush_all(&server);
				if (count == 1)
					table_tidy(table);
			} else if (what == &is_decision) {
				server.read_in_turn = 0;
				ring_buffer__consume(server.decisions); /* what is left is an event of the next turn */
				flush_all(&server);
			} else {
				struct client *client = what;
				if (client->file >= 0 && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
					read_from(&server, client);
				if (client->file >= 0 && events[i].events & EPOLLOUT)
					flush(&server, client);
			}
		}
	}
	end_lease(&server);
	program_detach(program);
	for (int i = 0; i < MOST_CLIENTS; i++) {
		struct client *client = &server.clients[i];
		if (client->file < 0)
			continue;
		reply(client, DETACHED, NULL, 0);
		flush(&server, client);
		if (client->file >= 0)
			leave(&server, client);
	}
	ring_buffer__free(server.decisions);
	free(server.told);
	close(server.epoll);
	close(ticks);
	close(ended);
	return 0;
}
