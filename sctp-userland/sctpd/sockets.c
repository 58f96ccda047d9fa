#include "sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "usrsctp_internal.h"

#define BUCKETS 1024 /* power of two */
#define WAITING_MS 20
#define PATH_FIRST_MS 250 /* half of the time between the first two heartbeats on dead paths: each doubles it */
#define PATH_SEND_MS 1000 /* no more than this, doubled, while the program sends */

static struct sctp_socket *first, *dirty_list;
static struct sctp_socket *by_stack[BUCKETS], *by_cookie[BUCKETS];
static int count;

static unsigned int stack_bucket(const struct socket *so)
{
	return (unsigned int)(((uintptr_t)so >> 5) & (BUCKETS - 1));
}

static struct sctp_socket *find_stack(const struct socket *so)
{
	struct sctp_socket *s = by_stack[stack_bucket(so)];

	while (s != NULL && s->so != so)
		s = s->next_in_stack;
	return s;
}

void socket_look(struct sctp_socket *s)
{
	if (s->dirty)
		return;
	s->dirty = true;
	s->next_dirty = dirty_list;
	dirty_list = s;
}

static bool some_wait;

void sockets_wait_for_time(void)
{
	some_wait = true;
}

void sockets_run_waiting(void)
{
	static uint64_t looked_ms;
	struct sctp_socket *s;

	if (some_wait && loop_now_ms() - looked_ms >= WAITING_MS) {
		looked_ms = loop_now_ms();
		some_wait = false;
		for (s = first; s != NULL; s = s->next)
			if (s->wants_memory || s->held != NULL || s->path_due_ms != 0 || s->due_ms != 0) {
				some_wait = true;
				if (s->wants_memory || s->held != NULL || (s->path_due_ms != 0 && looked_ms >= s->path_due_ms) ||
				    (s->due_ms != 0 && looked_ms >= s->due_ms))
					socket_look(s);
			}
	}
}

int sockets_waiting_next_ms(void)
{
	return some_wait ? WAITING_MS : -1;
}

void socket_wakeup(struct socket *so)
{
	struct sctp_socket *s = find_stack(so);

	if (s != NULL) {
		s->blocked = s->unasked = false;
		socket_look(s);
	}
}

void socket_lost_path(struct socket *so)
{
	struct sctp_socket *s = find_stack(so);

	if (s != NULL)
		socket_doubt_paths(s);
}

void socket_doubt_paths(struct sctp_socket *s)
{
	if (s->path_wait_ms == 0 || s->path_wait_ms > PATH_SEND_MS)
		s->path_wait_ms = s->path_wait_ms == 0 ? PATH_FIRST_MS : PATH_SEND_MS;
	socket_look(s);
}

static void no_upcall(struct socket *, void *, int)
{
}

static void enter_stack(struct sctp_socket *s)
{
	struct sctp_socket **bucket = &by_stack[stack_bucket(s->so)];

	s->next_in_stack = *bucket;
	*bucket = s;
	usrsctp_set_non_blocking(s->so, 1);
	usrsctp_set_upcall(s->so, no_upcall, NULL);
}

void socket_leave_stack(struct sctp_socket *s)
{
	struct sctp_socket **link = &by_stack[stack_bucket(s->so)];

	while (*link != s)
		link = &(*link)->next_in_stack;
	*link = s->next_in_stack;
}

/* The states that clients may know without asking: a word for each socket, in memory that all of them can read. */

static int memory = -1;
static uint32_t *words;
static uint32_t free_slots[STATES_MAX], free_count;

int states_start(void)
{
	const size_t size = STATES_MAX * sizeof(*words);
	void *mapped;

	memory = memfd_create("sctpd-states", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memory < 0 || ftruncate(memory, (off_t)size) < 0)
		return -errno;
	mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (mapped == MAP_FAILED)
		return -errno;
	/* Clients are given it to read (Linux 5.1; before, they are believed not to write). */
	fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
	words = mapped;
	while (free_count < STATES_MAX) {
		free_slots[free_count] = STATES_MAX - 1 - free_count;
		free_count++;
	}
	return 0;
}

int states_memory(void)
{
	return memory;
}

uint32_t states_take(void)
{
	if (words == NULL || free_count == 0)
		return STATES_MAX;
	states_tell(free_slots[--free_count], 0);
	return free_slots[free_count];
}

void states_tell(uint32_t slot, uint32_t state)
{
	if (slot < STATES_MAX)
		__atomic_store_n(&words[slot], state, __ATOMIC_RELEASE);
}

void states_give_back(uint32_t slot)
{
	if (slot < STATES_MAX)
		free_slots[free_count++] = slot;
}

#define BIT(state) (1U << SOCKET_##state)
#define LEFT (BIT(CLOSING) | BIT(GONE))

static const struct socket_state_means states_mean[] = {
	[SOCKET_OPEN] = { "open", .receives = true, .next = BIT(LISTENS) | BIT(CONNECTING) | BIT(CONNECTED) | BIT(BROKEN) | LEFT },
	[SOCKET_LISTENS] = { "listening", .receives = true, .told = STATE_LISTENS, .next = BIT(OPEN) | BIT(BROKEN) | LEFT },
	[SOCKET_CONNECTING] = { "connecting", .receives = true, .told = STATE_RECEIVES,
				.next = BIT(CONNECTED) | BIT(FAILED) | BIT(BROKEN) | LEFT },
	[SOCKET_FAILED] = { "open", .receives = true, .next = BIT(OPEN) | BIT(LISTENS) | BIT(CONNECTED) | BIT(BROKEN) | LEFT },
	[SOCKET_CONNECTED] = { "connected", true, .receives = true, .told = STATE_RECEIVES,
			       .next = BIT(WRITE_SHUT) | BIT(READ_SHUT) | BIT(ENDED) | BIT(BROKEN) | LEFT },
	[SOCKET_WRITE_SHUT] = { "connected", true, .receives = true, .told = STATE_RECEIVES | STATE_TAKES_NO_MORE,
				.next = BIT(READ_SHUT) | BIT(FINISHED) | BIT(BROKEN) | LEFT },
	[SOCKET_READ_SHUT] = { "connected", true, .discards = true, .hangs_up = true, .told = STATE_RECEIVES | STATE_TAKES_NO_MORE,
			       .next = BIT(READ_SHUT) | LEFT },
	[SOCKET_ENDED] = { "ended", true, .hangs_up = true, .told = STATE_RECEIVES | STATE_TAKES_NO_MORE, .next = BIT(READ_SHUT) | LEFT },
	[SOCKET_FINISHED] = { "ended", true, .told = STATE_RECEIVES | STATE_OVER | STATE_TAKES_NO_MORE, .next = BIT(READ_SHUT) | LEFT },
	[SOCKET_BROKEN] = { "ended", true, .hangs_up = true, .told = STATE_RECEIVES | STATE_OVER | STATE_TAKES_NO_MORE,
			    .next = BIT(BROKEN) | BIT(READ_SHUT) | LEFT },
	[SOCKET_CLOSING] = { "closing", .discards = true, .next = BIT(GONE) },
	[SOCKET_GONE] = { "gone" },
};

const struct socket_state_means *socket_means(const struct sctp_socket *s)
{
	return &states_mean[s->state];
}

void socket_enter(struct sctp_socket *s, enum socket_state state)
{
	if (!(socket_means(s)->next & 1U << state)) {
		log_line("a fault of its own: a socket that is %s may not be %s", socket_means(s)->name, states_mean[state].name);
#ifdef __SANITIZE_ADDRESS__
		abort();
#endif
	}
	s->state = state;
	socket_tell_state(s);
}

static bool has_client(const struct sctp_socket *s)
{
	return s->watch.fd >= 0;
}

void sockets_add(struct sctp_socket *s)
{
	struct sctp_socket **bucket = &by_cookie[s->cookie & (BUCKETS - 1)];

	enter_stack(s);
	s->next = first;
	if (first != NULL)
		first->previous = &s->next;
	s->previous = &first;
	first = s;
	if (has_client(s)) {
		s->next_cookie = *bucket;
		*bucket = s;
		count++;
	}
	socket_look(s);
}

void sockets_remove(struct sctp_socket *s)
{
	struct sctp_socket **link = &by_cookie[s->cookie & (BUCKETS - 1)];

	*s->previous = s->next;
	if (s->next != NULL)
		s->next->previous = s->previous;
	if (!has_client(s))
		return;
	while (*link != s)
		link = &(*link)->next_cookie;
	*link = s->next_cookie;
	count--;
}

bool socket_create_closing(const struct sctp_socket *of, const struct sctp_socket *s)
{
	struct sctp_socket *closing = calloc(1, sizeof(*closing));

	if (closing == NULL)
		return false;
	*closing = (struct sctp_socket){ .watch.fd = -1, .so = of->so, .type = of->type, .domain = s->domain, .owner = s->owner, .port = s->port,
					 .bound_count = s->bound_count, .v6only = s->v6only,
					 .state = SOCKET_CLOSING, .slot = STATES_MAX };
	memcpy(closing->bound, s->bound, sizeof(closing->bound));
	sockets_add(closing);
	socket_doubt_paths(closing); /* what was sent last may wait for one */
	return true;
}

static bool has_associations(struct sctp_socket *s)
{
	uint32_t number = 0;
	socklen_t length = sizeof(number);

	return usrsctp_getsockopt(s->so, IPPROTO_SCTP, SCTP_GET_ASSOC_NUMBER, &number, &length) < 0 || number > 0;
}

void socket_tell_state(struct sctp_socket *s)
{
	uint32_t state = STATE_KNOWN | (s->returned != NULL ? STATE_RETURNED : 0);

	if (s->state == SOCKET_GONE)
		return;
	if (IS_ONE_TO_ONE(s))
		state |= socket_means(s)->told & ~(uint32_t)(s->end_told ? 0 : STATE_OVER);
	if (IS_ONE_TO_ONE(s) ? s->error != 0 : s->state == SOCKET_LISTENS || has_associations(s))
		state |= STATE_RECEIVES;
	state |= (s->near ? STATE_NEAR : 0) | (s->events[0] ? STATE_WANTS_SNDRCV : 0) | (s->wants_rcvinfo ? STATE_WANTS_RCVINFO : 0) |
		 (s->wants_nxtinfo ? STATE_WANTS_NXTINFO : 0);
	if (s->ends || s->error != 0 || s->so->error != 0 || s->lost != 0)
		state |= STATE_TAKES_NO_MORE;
	if (s->blocked || s->calls_only || socket_is_connecting(s))
		state |= STATE_CALLS_ONLY;
	state |= (uint32_t)s->way << STATE_WAY_SHIFT;
	states_tell(s->slot, state);
}

void socket_replace(struct sctp_socket *s, struct socket *fresh)
{
	socket_leave_stack(s);
	usrsctp_close(s->so);
	s->so = fresh;
	enter_stack(s);
}

struct sctp_socket *socket_of(int client_fd)
{
	uint64_t cookie;
	socklen_t length = sizeof(cookie);
	struct sctp_socket *s;
	struct stat status;

	if (getsockopt(client_fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) < 0 || fstat(client_fd, &status) < 0)
		return NULL;
	for (s = by_cookie[cookie & (BUCKETS - 1)]; s != NULL && (s->cookie != cookie || s->inode != status.st_ino);)
		s = s->next_cookie;
	return s;
}

void sockets_unblock_all(void)
{
	struct sctp_socket *s;

	for (s = first; s != NULL; s = s->next)
		if (s->blocked || s->state == SOCKET_CLOSING) {
			s->blocked = false;
			socket_look(s);
		}
}

void sockets_look_unasked(void)
{
	struct sctp_socket *s;

	for (s = first; s != NULL; s = s->next)
		s->unasked = s->blocked || s->state == SOCKET_CLOSING;
	sockets_unblock_all();
}

void socket_went_on(struct sctp_socket *s)
{
	if (!s->unasked)
		return;
	s->unasked = false;
	loop_figures.found_by_net++;
	log_line("a fault of its own: a socket that is %s could go on, and nothing had told so", socket_means(s)->name);
}

bool sockets_pending(void)
{
	return dirty_list != NULL;
}

struct sctp_socket *sockets_take_pending(void)
{
	struct sctp_socket *list = dirty_list;

	dirty_list = NULL;
	return list;
}

int sockets_count(void)
{
	return count;
}

struct sctp_socket *sockets_first(void)
{
	return first;
}
