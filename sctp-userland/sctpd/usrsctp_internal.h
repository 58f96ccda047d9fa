/* The parts of libusrsctp (0.9.5) that are used beyond its public header: exported by the shared library, stable since 2015.
 *
 * Two kinds: functions called from here, and functions defined here that replace the library's own (its calls go through the
 * dynamic linker). This is what makes one thread, real routing and exact timers possible with Debian's build. */
#ifndef USRSCTP_INTERNAL_H
#define USRSCTP_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/time.h>

struct socket;

struct mbuf { /* the beginning; the rest is never touched */
	struct mbuf *m_next;
	struct mbuf *m_nextpkt;
	char *m_data;
	int m_len;
};

struct sockbuf {
	pthread_cond_t condition;
	pthread_mutex_t lock;
	short state;
	void *first, *last, *last_record, *send_pointer;
	unsigned int send_offset;
	unsigned int used, room; /* bytes */
	unsigned int mbufs_used, mbufs_room, control;
	int low_water, timeout;
	short flags;
};

struct socket { /* the beginning, checked at start */
	int references;
	short type, options, linger, state;
	int queue_state;
	void *protocol_block;
	int domain;
	struct socket *head;
	struct {
		struct socket *first, **last;
	} incomplete, complete, entry;
	unsigned short queue_length, incomplete_length, queue_limit;
	short timeout;
	pthread_cond_t timeout_condition;
	unsigned short error;
	void *signal_owner;
	unsigned long out_of_band;
	struct {
		void *first, **last;
	} jobs;
	struct sockbuf receive, send;
};

/* The structure that a socket's protocol_block points to. */
struct endpoint { /* the beginning, checked when it is used */
	void *in_lists[4], *unused[2];
	struct socket *socket;
	uint32_t flow;
	int flags;
};
#define ENDPOINT_V6ONLY 0x8000 /* usrsctp keeps to it, but has no option that sets it */

/* Further on in it: the identifier that the endpoint's next association gets. Used only where it is seen to be that. */
#define ENDPOINT_NEXT_IDENTIFIER (sizeof(void *) == 8 ? 1016 : 0)

/* Which addresses matter to an association: all of it. */
struct scope {
	uint8_t ipv4_legal, ipv6_legal, upper_layer_legal, loopback, ipv4_private, ipv6_link, ipv6_site;
};

/* The structure that the output functions get as route: the library looks there afterwards whether the path's MTU has become smaller. */
struct route_entry { /* the beginning */
	void *interface, *address;
	uint32_t mtu;
};
struct path_route { /* the beginning */
	struct route_entry *entry;
};

/* A socket option: what an association has queued. */
#define GET_BUFFER_USE 0x1101
struct buffer_use {
	uint32_t association, sending, receiving; /* receiving: not deliverable yet */
};

/* A socket option: after how many timeouts a path is potentially failed (RFC 7829), and dead. */
#define PATH_THRESHOLDS 0x23
struct path_thresholds {
	struct sockaddr_storage address; /* any: of all paths */
	uint32_t association;
	uint16_t dead, potentially_failed, changes_primary;
};
#define CHANGES_NEVER 0xffff

struct callout { /* all of it */
	uintptr_t position; /* the library's list link, here the position in the heap */
	void *unused;
	uint32_t time;
	void *argument;
	void (*function)(void *);
	int flags;
};

#define MBUF_CLUSTER 2048
#define MBUF_NOWAIT 1
#define MBUF_DATA 1

/* Called. */
struct mbuf *sctp_get_mbuf_for_msg(unsigned int space, int want_header, int how, int one_buffer, int type);
void m_freem(struct mbuf *m);
unsigned int m_length(struct mbuf *m, struct mbuf **last);
void m_copyback(struct mbuf *m, int offset, int length, const char *from); /* also sets the chain's length */
void m_copydata(const struct mbuf *m, int offset, int length, char *to);
void sctp_common_input_processing(struct mbuf **m, int ip_header_length, int offset, int length, struct sockaddr *source,
				  struct sockaddr *destination, void *sctp_header, void *chunk_header, uint8_t compute_crc,
				  uint8_t ecn_bits, uint32_t vrf, uint16_t udp_port);
struct sctp_ifa; /* an address of this host */
struct sctp_ifa *sctp_add_addr_to_vrf(uint32_t vrf, void *ifn, uint32_t interface_index, uint32_t interface_type, const char *name,
			   void *ifa, struct sockaddr *address, uint32_t flags, int dynamic);
void sctp_del_addr_from_vrf(uint32_t vrf, struct sockaddr *address, uint32_t interface_index, const char *name);
struct sctp_tcb { /* an association: the beginning */
	struct socket *socket;
};
struct sctp_nets { /* an address of its peer: the beginning */
	struct sctp_nets *next, **previous;
};
struct sctp_nets *sctp_findnet(struct sctp_tcb *tcb, struct sockaddr *address);
void sctp_remove_net(struct sctp_tcb *tcb, struct sctp_nets *address);
void sctp_handle_sack(struct mbuf *m, int offset_segments, int offset_duplicates, struct sctp_tcb *tcb, uint16_t segments,
		      uint16_t nr_segments, uint16_t duplicates, int *abort_now, uint8_t flags, uint32_t cumulative_ack,
		      uint32_t window, int ecne_seen);
bool sctp_is_vtag_good(uint32_t tag, uint16_t port, uint16_t peers_port, struct timeval *now); /* that is: whether no association has it */
void sctp_iterator_worker(void);
extern pthread_mutex_t sctp_it_ctl; /* a structure whose first member is this lock */

/* Replaced, each for the reason beside it. */
void sowakeup(struct socket *so, struct sockbuf *buffer); /* upcalls don't come for every loss of an association (stack.c) */
void sctp_userspace_ip_output(int *result, struct mbuf *packet, void *route, void *tcb, uint32_t vrf); /* the kernel's routes, one raw socket for all */
void sctp_userspace_ip6_output(int *result, struct mbuf *packet, void *route, void *tcb, uint32_t vrf); /* (packets.c) */
int sctp_userspace_thread_create(pthread_t *thread, void *(*start)(void *)); /* one thread: the loop does the work (stack.c) */
void sctp_wakeup_iterator(void);
int sctp_os_timer_start(struct callout *timer, uint32_t ticks, void (*function)(void *), void *argument); /* exact to the ms (stack.c) */
int sctp_os_timer_stop(struct callout *timer);
uint32_t sctp_get_tick_count(void);
struct sctp_tcb *sctp_aloc_assoc(void *endpoint, struct sockaddr *peer, int *error, uint32_t tag, uint32_t vrf, uint16_t out_streams,
				 uint16_t udp_port, void *process, int authenticates); /* each association's memory counts (stack.c) */
struct sctp_tcb *sctp_findasoc_ep_asocid_locked(void *endpoint, uint32_t identifier, int want_lock); /* identifiers unique on the host (stack.c) */
#define PATH_IS_DEAD 3
void sctp_ulp_notify(uint32_t what, struct sctp_tcb *tcb, uint32_t error, void *about, int is_locked); /* no data for paths that are dead (stack.c) */
void sctp_express_handle_sack(struct sctp_tcb *tcb, uint32_t cumulative_ack, uint32_t window, int *abort_now,
			      int ecne_seen); /* a shut window must not end an association (stack.c) */
struct mbuf *sctp_add_addresses_to_i_ia(void *endpoint, struct sctp_tcb *tcb, struct scope *scope, struct mbuf *at, int count,
					uint16_t *padding, uint16_t *length); /* addresses on no interface (interfaces.c) */
int sctp_is_address_in_scope(struct sctp_ifa *ifa, struct scope *scope, int update);
int sctp_is_address_on_local_host(struct sockaddr *address, uint32_t vrf);
int sctp_load_addresses_from_init(struct sctp_tcb *tcb, struct mbuf *m, int offset, int limit, struct sockaddr *source,
				  struct sockaddr *destination, struct sockaddr *instead_of_source,
				  uint16_t port); /* a restart leaves no use of freed memory (restart.c) */
/* ... and getifaddrs() and gettimeofday(), which it calls: interfaces.c, stack.c. */

/* The library's own, behind those replaced here that go on to them. */
extern struct library {
	__typeof__(sowakeup) *sowakeup;
	__typeof__(sctp_aloc_assoc) *aloc_assoc;
	__typeof__(sctp_findasoc_ep_asocid_locked) *findasoc_ep_asocid_locked;
	__typeof__(sctp_ulp_notify) *ulp_notify;
	__typeof__(sctp_express_handle_sack) *express_handle_sack;
	__typeof__(sctp_add_addresses_to_i_ia) *add_addresses_to_i_ia;
	__typeof__(sctp_is_address_in_scope) *is_address_in_scope;
	__typeof__(sctp_is_address_on_local_host) *is_address_on_local_host;
	__typeof__(sctp_load_addresses_from_init) *load_addresses_from_init;
} library;

/* Find them; return whether all are there. To be called before usrsctp is started. */
bool library_find(void);

/* Whether its sockets look as declared here. To be called once usrsctp has started. */
bool library_is_known(void);

#endif
