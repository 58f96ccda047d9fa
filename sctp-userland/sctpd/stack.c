#include "stack.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "interfaces.h"
#include "limits.h"
#include "loop.h"
#include "packets.h"
#include "sockets.h"
#include "translate.h"
#include "usrsctp_internal.h"

#define CHUNKS (64 * 1024)
#define SHUT_WINDOW 2048 /* bytes: no full packet fits */

const struct stack_settings stack_defaults = {
	.rto_min_ms = 1000, .rto_initial_ms = 3000, .rto_max_ms = 60000, .sack_delay_ms = 200, .heartbeat_ms = 30000,
	.init_retransmissions = 8, .association_retransmissions = 10, .path_retransmissions = 5,
};

static bool work_waits;
static const void *beginning; /* the endpoint whose association is being made and has no identifier yet */

static void debug_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void debug_line(const char *format, ...)
{
	va_list arguments;

	log_bound();
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
}

int stack_start(const struct stack_settings *settings)
{
	int error = states_start();

	if (error == 0)
		error = packets_open();
	if (error != 0)
		return error;
	if (!library_find())
		return -ENOSYS;
	usrsctp_init_nothreads(0, NULL, settings->debug ? debug_line : NULL);
	usrsctp_sysctl_set_sctp_blackhole(0);
	usrsctp_sysctl_set_sctp_abort_if_one_2_one_hits_limit(1); /* as a kernel refuses when as many wait as may */
	usrsctp_sysctl_set_sctp_max_retran_chunk(0); /* only the association's and path's own limits end one */
	usrsctp_sysctl_set_sctp_no_csum_on_loopback(0);
	usrsctp_sysctl_set_sctp_max_chunks_on_queue(CHUNKS); /* outbound.c stops before */
	usrsctp_sysctl_set_sctp_ecn_enable(0);
	usrsctp_sysctl_set_sctp_asconf_enable(0);
	usrsctp_sysctl_set_sctp_auto_asconf(0);
	usrsctp_sysctl_set_sctp_auth_enable(0);
	usrsctp_sysctl_set_sctp_nrsack_enable(0);
	usrsctp_sysctl_set_sctp_pktdrop_enable(0);
	usrsctp_sysctl_set_sctp_nr_outgoing_streams_default(OUT_STREAMS);
	usrsctp_sysctl_set_sctp_default_ss_module(SCTP_SS_FIRST_COME); /* as a kernel: in the order of sending, whatever the stream */
	usrsctp_sysctl_set_sctp_rto_min_default((uint32_t)settings->rto_min_ms);
	usrsctp_sysctl_set_sctp_rto_max_default((uint32_t)settings->rto_max_ms);
	usrsctp_sysctl_set_sctp_init_rto_max_default((uint32_t)settings->rto_max_ms);
	usrsctp_sysctl_set_sctp_rto_initial_default((uint32_t)settings->rto_initial_ms);
	usrsctp_sysctl_set_sctp_delayed_sack_time_default((uint32_t)settings->sack_delay_ms);
	usrsctp_sysctl_set_sctp_heartbeat_interval_default((uint32_t)settings->heartbeat_ms);
	usrsctp_sysctl_set_sctp_init_rtx_max_default((uint32_t)settings->init_retransmissions);
	usrsctp_sysctl_set_sctp_assoc_rtx_max_default((uint32_t)settings->association_retransmissions);
	usrsctp_sysctl_set_sctp_path_rtx_max_default((uint32_t)settings->path_retransmissions);
	if (!library_is_known())
		return -ENOSYS;
	return interfaces_watch();
}

void stack_run_deferred_work(void)
{
	while (work_waits) {
		work_waits = false;
		pthread_mutex_lock(&sctp_it_ctl);
		sctp_iterator_worker();
		pthread_mutex_unlock(&sctp_it_ctl);
	}
}

uint32_t stack_association_list(const struct sctp_socket *s, const sctp_assoc_t **identifiers)
{
	static const sctp_assoc_t only[] = { 0 };
	static struct {
		uint32_t count;
		sctp_assoc_t identifiers[];
	} *list;
	static uint32_t room;
	struct lx_status status;
	uint32_t number = 0;
	socklen_t length = sizeof(number);

	*identifiers = only;
	if (IS_ONE_TO_ONE(s))
		return translate_status(s, 0, &status) == 0;
	if (usrsctp_getsockopt(s->so, IPPROTO_SCTP, SCTP_GET_ASSOC_NUMBER, &number, &length) < 0 || number == 0)
		return 0;
	if (number > room) {
		void *larger = realloc(list, sizeof(*list) + 2 * (size_t)number * sizeof(sctp_assoc_t));

		if (larger == NULL)
			return 0;
		list = larger;
		room = 2 * number;
	}
	length = (socklen_t)(sizeof(*list) + room * sizeof(sctp_assoc_t));
	if (usrsctp_getsockopt(s->so, IPPROTO_SCTP, SCTP_GET_ASSOC_ID_LIST, list, &length) < 0)
		return 0;
	*identifiers = list->identifiers;
	return list->count;
}

/* The library's upcalls don't come for every loss of an association; its wake-ups do. */
void sowakeup(struct socket *so, struct sockbuf *buffer)
{
	library.sowakeup(so, buffer);
	socket_wakeup(so);
}

/* It sends no data on dead paths: paths.c sees to those. */
void sctp_ulp_notify(uint32_t what, struct sctp_tcb *tcb, uint32_t error, void *about, int is_locked)
{
	if (what == PATH_IS_DEAD && tcb != NULL)
		socket_lost_path(tcb->socket);
	library.ulp_notify(what, tcb, error, about, is_locked);
}

/* The library's short cut forgets that a SACK proves the peer alive when nothing new is acknowledged: it would abort an association
 * whose receiver keeps its window shut for some retransmission timeouts. The long way, which the short cut abbreviates, does it right. */
void sctp_express_handle_sack(struct sctp_tcb *tcb, uint32_t cumulative_ack, uint32_t window, int *abort_now, int ecne_seen)
{
	if (window < SHUT_WINDOW)
		sctp_handle_sack(NULL, 0, 0, tcb, 0, 0, 0, abort_now, 0, cumulative_ack, window, ecne_seen);
	else
		library.express_handle_sack(tcb, cumulative_ack, window, abort_now, ecne_seen);
}

/* Each association, whoever begins it, is made here. */
struct sctp_tcb *sctp_aloc_assoc(void *endpoint, struct sockaddr *peer, int *error, uint32_t tag, uint32_t vrf, uint16_t out_streams,
				 uint16_t udp_port, void *process, int authenticates)
{
	struct sctp_tcb *made;

	beginning = endpoint;
	made = library.aloc_assoc(endpoint, peer, error, tag, vrf, out_streams, udp_port, process, authenticates);

	beginning = NULL;
	limits_note(made != NULL ? ASSOCIATION_COST : 0);
	return made;
}

/* The library counts for each endpoint, a kernel for all: programs take another socket's identifier for wrong. It looks here whether its next
 * number is free: the first time it is given one that is nobody's, and told to look again. */
struct sctp_tcb *sctp_findasoc_ep_asocid_locked(void *endpoint, uint32_t identifier, int want_lock)
{
	static uint32_t last = SCTP_ALL_ASSOC;
	uint32_t *next = (uint32_t *)(void *)((char *)endpoint + ENDPOINT_NEXT_IDENTIFIER);

	if (beginning != endpoint || ENDPOINT_NEXT_IDENTIFIER == 0 || *next != identifier + 1)
		return library.findasoc_ep_asocid_locked(endpoint, identifier, want_lock);
	beginning = NULL;
	last = last < INT32_MAX ? last + 1 : SCTP_ALL_ASSOC + 1;
	*next = last;
	return endpoint; /* not NULL: taken */
}

/* No threads: what they would do is done by the loop. */
int sctp_userspace_thread_create(pthread_t *thread, void *(*)(void *))
{
	*thread = 0;
	return 0;
}

void sctp_wakeup_iterator(void)
{
	work_waits = true;
}

/* usrsctp measures round trips and cookie lifetimes with the wall clock; a step of it must not disturb associations. */
int gettimeofday(struct timeval *restrict now, void *restrict)
{
	struct timespec monotonic;

	clock_gettime(CLOCK_MONOTONIC, &monotonic);
	now->tv_sec = monotonic.tv_sec + 1; /* zero means "not set" in places */
	now->tv_usec = monotonic.tv_nsec / 1000;
	return 0;
}

/* Its timers, exact to the millisecond. (Its own are a list that a thread walks every 10 ms.) */

#define CALLOUT_ACTIVE 2
#define CALLOUT_PENDING 4

struct entry {
	uint64_t due_ms;
	struct callout *timer;
};

/* A binary heap, the next one due first. Each timer keeps its position in it. */
static struct entry *heap;
static uintptr_t count, room;

static void put(uintptr_t position, struct entry entry)
{
	heap[position] = entry;
	entry.timer->position = position;
}

static void move_up(uintptr_t position, struct entry entry)
{
	while (position > 0 && heap[(position - 1) / 2].due_ms > entry.due_ms) {
		put(position, heap[(position - 1) / 2]);
		position = (position - 1) / 2;
	}
	put(position, entry);
}

static void move_down(uintptr_t position, struct entry entry)
{
	for (;;) {
		uintptr_t child = 2 * position + 1;

		if (child + 1 < count && heap[child + 1].due_ms < heap[child].due_ms)
			child++;
		if (child >= count || heap[child].due_ms >= entry.due_ms)
			break;
		put(position, heap[child]);
		position = child;
	}
	put(position, entry);
}

static void take_out(uintptr_t position)
{
	struct entry last = heap[--count];

	if (position == count)
		return;
	if (position > 0 && heap[(position - 1) / 2].due_ms > last.due_ms)
		move_up(position, last);
	else
		move_down(position, last);
}

int sctp_os_timer_start(struct callout *timer, uint32_t ticks, void (*function)(void *), void *argument)
{
	int was_pending = timer != NULL && timer->flags & CALLOUT_PENDING;

	if (timer == NULL || function == NULL)
		return 0;
	if (was_pending)
		take_out(timer->position);
	if (count == room) {
		uintptr_t larger = room != 0 ? room * 2 : 256;
		struct entry *grown = realloc(heap, larger * sizeof(*heap));

		if (grown == NULL)
			abort(); /* an association without its timers would hang for ever */
		heap = grown;
		room = larger;
	}
	timer->argument = argument;
	timer->function = function;
	timer->flags = CALLOUT_ACTIVE | CALLOUT_PENDING;
	count++;
	move_up(count - 1, (struct entry){ loop_now_ms() + (ticks != 0 ? ticks : 1), timer });
	return was_pending;
}

int sctp_os_timer_stop(struct callout *timer)
{
	int was_pending = timer->flags & CALLOUT_PENDING;

	if (was_pending)
		take_out(timer->position);
	timer->flags &= ~(CALLOUT_ACTIVE | CALLOUT_PENDING);
	return was_pending != 0;
}

uint32_t sctp_get_tick_count(void)
{
	return (uint32_t)loop_now_ms();
}

void timers_run(void)
{
	uint64_t now_ms = loop_now_ms();

	if (count > 0 && now_ms > heap[0].due_ms && now_ms - heap[0].due_ms > loop_figures.latest_timer_ms)
		loop_figures.latest_timer_ms = now_ms - heap[0].due_ms;

	while (count > 0 && heap[0].due_ms <= now_ms) {
		struct callout *timer = heap[0].timer;

		take_out(0);
		timer->flags &= ~CALLOUT_PENDING;
		timer->function(timer->argument);
	}
}

int timers_next_ms(void)
{
	const uint64_t now_ms = loop_now_ms();

	if (count == 0)
		return -1;
	if (heap[0].due_ms <= now_ms)
		return 0;
	return heap[0].due_ms - now_ms > INT_MAX ? INT_MAX : (int)(heap[0].due_ms - now_ms);
}
