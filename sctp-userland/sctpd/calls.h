/* The calls of clients. */
#ifndef CALLS_H
#define CALLS_H

#include "../protocol.h"
#include "sockets.h"

struct call {
	const struct request *request;
	const char *address, *data; /* request->address_length and data_length bytes, checked to be there */
	const struct ucred *caller;
	struct reply reply;
	char *result;	 /* room for ADDRESSES_MAX bytes of addresses, then for data: an option or a message */
	int passed;	 /* the descriptor that came along; -1: none */
	int descriptor;	 /* to pass to the client, then closed; -1: none */
};

/* Carry out one call. s is NULL for calls about no socket. Fills call->reply; never fails otherwise. */
void call_run(struct call *call, struct sctp_socket *s);

/* calls_addresses.c, calls_send.c: each returns 0 or an errno. */
int call_bind(struct call *call, struct sctp_socket *s);
int call_bindx(struct call *call, struct sctp_socket *s);
int call_names(struct call *call, struct sctp_socket *s);
int call_send(struct call *call, struct sctp_socket *s);
int call_connect(struct call *call, struct sctp_socket *s);
int call_listen(struct call *call, struct sctp_socket *s);

/* calls_shim.c: the calls about what stands for a TCP connection; others than call_shim_may() tells are refused. */
bool call_shim_may(int operation);
int call_shim_connect(struct call *call, struct sctp_socket *s);
int call_shim_listen(struct call *call);
int call_shim_accept(struct call *call);
int call_shim_verdict(struct call *call);

/* The settings that a new socket takes over from the one it came from. */
void call_inherit(struct sctp_socket *to, const struct sctp_socket *from);

/* Number of addresses packed in these bytes, all whole and IPv4 or IPv6; -1: not so. */
int packed_addresses(const char *bytes, size_t length);

/* Whether a link-local one is among them: usrsctp takes none as source, so nothing could be sent there. */
bool packed_link_local(const char *bytes, size_t length);

/* Whether the program has set SO_REUSEADDR: the kernel keeps that, with the descriptor. */
bool call_reuses_addresses(const struct call *call);

#endif
