/* The layouts and numbers of Linux's SCTP socket interface (linux/sctp.h), under names of their own, because usrsctp.h uses the
 * same names for other layouts. Programs speak these; usrsctp doesn't. */
#ifndef LINUX_SCTP_H
#define LINUX_SCTP_H

#include <stdint.h>
#include <sys/socket.h>

enum linux_option {
	LX_RTOINFO = 0, LX_ASSOCINFO = 1, LX_INITMSG = 2, LX_NODELAY = 3, LX_AUTOCLOSE = 4, LX_SET_PEER_PRIMARY_ADDR = 5,
	LX_PRIMARY_ADDR = 6, LX_ADAPTATION_LAYER = 7, LX_DISABLE_FRAGMENTS = 8, LX_PEER_ADDR_PARAMS = 9,
	LX_DEFAULT_SEND_PARAM = 10, LX_EVENTS = 11, LX_I_WANT_MAPPED_V4_ADDR = 12, LX_MAXSEG = 13, LX_STATUS = 14,
	LX_GET_PEER_ADDR_INFO = 15, LX_DELAYED_SACK = 16, LX_CONTEXT = 17, LX_FRAGMENT_INTERLEAVE = 18,
	LX_PARTIAL_DELIVERY_POINT = 19, LX_MAX_BURST = 20, LX_GET_ASSOC_NUMBER = 28, LX_GET_ASSOC_ID_LIST = 29,
	LX_RECVRCVINFO = 32, LX_RECVNXTINFO = 33, LX_DEFAULT_SNDINFO = 34, LX_REUSE_PORT = 36,
	LX_PR_SUPPORTED = 113, LX_RECONFIG_SUPPORTED = 117, LX_ENABLE_STREAM_RESET = 118, LX_EVENT = 127,
};

enum linux_notification {
	LX_ASSOC_CHANGE = 0x8001, LX_PEER_ADDR_CHANGE, LX_SEND_FAILED, LX_REMOTE_ERROR, LX_SHUTDOWN_EVENT,
	LX_PARTIAL_DELIVERY_EVENT, LX_ADAPTATION_INDICATION, LX_AUTHENTICATION_EVENT, LX_SENDER_DRY_EVENT,
	LX_STREAM_RESET_EVENT, LX_ASSOC_RESET_EVENT, LX_STREAM_CHANGE_EVENT, LX_SEND_FAILED_EVENT,
};
#define LX_EVENT_COUNT 14 /* bytes of struct sctp_event_subscribe; byte i is for notification 0x8000 + i */

#define LX_UNORDERED 0x0001
#define LX_ADDR_OVER 0x0002
#define LX_ABORT 0x0004
#define LX_SACK_IMMEDIATELY 0x0008
#define LX_PR_MASK 0x0030
#define LX_PR_TTL 0x0010
#define LX_PR_RTX 0x0020
#define LX_PR_PRIO 0x0030
#define LX_SENDALL 0x0040
#define LX_EOF 0x0200

#define LX_PACKED __attribute__((packed, aligned(4)))

struct lx_sndrcvinfo {
	uint16_t stream, ssn, flags;
	uint32_t ppid, context, timetolive, tsn, cumtsn, assoc_id;
};
struct lx_sndinfo {
	uint16_t sid, flags;
	uint32_t ppid, context, assoc_id;
};
struct lx_assocparams {
	uint32_t assoc_id;
	uint16_t asocmaxrxt, number_peer_destinations;
	uint32_t peer_rwnd, local_rwnd, cookie_life;
};
struct lx_prim {
	uint32_t assoc_id;
	struct sockaddr_storage addr;
} LX_PACKED;
struct lx_paddrparams {
	uint32_t assoc_id;
	struct sockaddr_storage address;
	uint32_t hbinterval;
	uint16_t pathmaxrxt;
	uint32_t pathmtu, sackdelay, flags, ipv6_flowlabel;
	uint8_t dscp;
} LX_PACKED;
#define LX_SPP_SACKDELAY_ENABLE 0x20
#define LX_SPP_SACKDELAY_DISABLE 0x40
struct lx_paddrinfo {
	uint32_t assoc_id;
	struct sockaddr_storage address;
	int32_t state;
	uint32_t cwnd, srtt, rto, mtu;
} LX_PACKED;
struct lx_status {
	uint32_t assoc_id;
	int32_t state;
	uint32_t rwnd;
	uint16_t unackdata, penddata, instrms, outstrms;
	uint32_t fragmentation_point;
	struct lx_paddrinfo primary;
};
struct lx_event {
	uint32_t assoc_id;
	uint16_t type;
	uint8_t on;
};
struct lx_paddr_change {
	uint16_t type, flags;
	uint32_t length;
	struct sockaddr_storage address;
	uint32_t state, error, assoc_id;
} LX_PACKED;
struct lx_send_failed {
	uint16_t type, flags;
	uint32_t length, error;
	struct lx_sndrcvinfo info;
	uint32_t assoc_id;
};
struct lx_authkey_event {
	uint16_t type, flags;
	uint32_t length;
	uint16_t key, other_key;
	uint32_t indication, assoc_id;
};
#define LX_AUTH_NO_AUTH 2
struct lx_pdapi_event {
	uint16_t type, flags;
	uint32_t length, indication, assoc_id, stream, seq;
};

enum { LX_INACTIVE, LX_PF, LX_ACTIVE, LX_UNCONFIRMED };
enum { LX_STATE_CLOSED = 1, LX_COOKIE_WAIT, LX_COOKIE_ECHOED, LX_ESTABLISHED, LX_SHUTDOWN_PENDING, LX_SHUTDOWN_SENT,
       LX_SHUTDOWN_RECEIVED, LX_SHUTDOWN_ACK_SENT };

#endif
