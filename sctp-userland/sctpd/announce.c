/* Which addresses a peer is told (INIT, INIT ACK), and which peers are on this host. The library judges by the interface; an address that stands
 * on none is told by who has bound it, and by nobody else. */
#include "bound.h"
#include "interfaces.h"
#include "sockets.h"
#include "usrsctp_internal.h"

static const void *telling; /* the endpoint for which addresses are told, NULL: none */
static enum { NOT_ASKED, BINDS_SOME, BINDS_ALL } telling_of;

struct mbuf *sctp_add_addresses_to_i_ia(void *endpoint, struct sctp_tcb *tcb, struct scope *scope, struct mbuf *at, int count,
					uint16_t *padding, uint16_t *length)
{
	telling = endpoint;
	telling_of = NOT_ASKED;
	at = library.add_addresses_to_i_ia(endpoint, tcb, scope, at, count, padding, length);
	telling = NULL;
	return at;
}

int sctp_is_address_in_scope(struct sctp_ifa *ifa, struct scope *scope, int update)
{
	const struct sockaddr *address = telling == NULL ? NULL : interfaces_admitted(ifa);
	struct scope wider;

	if (address == NULL)
		return library.is_address_in_scope(ifa, scope, update);
	if (telling_of == NOT_ASKED)
		telling_of = sockets_bind_all(telling) ? BINDS_ALL : BINDS_SOME;
	if (telling_of == BINDS_ALL)
		return 0;
	wider = *scope;
	wider.loopback |= !address_is_loopback(address);
	return library.is_address_in_scope(ifa, &wider, update);
}

/* Packets to an address that nobody has bound yet go to this host nevertheless, from one of its loopback addresses. */
int sctp_is_address_on_local_host(struct sockaddr *address, uint32_t vrf)
{
	return library.is_address_on_local_host(address, vrf) || address_is_loopback(address);
}
