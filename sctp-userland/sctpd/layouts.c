/* No code: the compiler checks linux_sctp.h against the kernel's own header. */
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <linux/sctp.h>

#include "linux_sctp.h"

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours)
#define SAME_PLACE(ours, our_member, theirs, their_member)                                                              \
	_Static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member), #ours "." #our_member)

SAME_SIZE(struct lx_sndrcvinfo, struct sctp_sndrcvinfo);
SAME_SIZE(struct lx_sndinfo, struct sctp_sndinfo);
SAME_SIZE(struct lx_assocparams, struct sctp_assocparams);
SAME_SIZE(struct lx_prim, struct sctp_prim);
SAME_SIZE(struct lx_paddrparams, struct sctp_paddrparams);
SAME_SIZE(struct lx_paddrinfo, struct sctp_paddrinfo);
SAME_SIZE(struct lx_status, struct sctp_status);
SAME_SIZE(struct lx_event, struct sctp_event);
SAME_SIZE(struct lx_paddr_change, struct sctp_paddr_change);
SAME_SIZE(struct lx_authkey_event, struct sctp_authkey_event);
SAME_PLACE(struct lx_authkey_event, assoc_id, struct sctp_authkey_event, auth_assoc_id);
_Static_assert(LX_AUTH_NO_AUTH == (int)SCTP_AUTH_NO_AUTH, "indications");
SAME_SIZE(struct lx_pdapi_event, struct sctp_pdapi_event);
SAME_PLACE(struct lx_send_failed, assoc_id, struct sctp_send_failed, ssf_assoc_id);
SAME_PLACE(struct lx_sndrcvinfo, assoc_id, struct sctp_sndrcvinfo, sinfo_assoc_id);
SAME_PLACE(struct lx_paddrparams, flags, struct sctp_paddrparams, spp_flags);
SAME_PLACE(struct lx_status, primary, struct sctp_status, sstat_primary);
SAME_PLACE(struct lx_paddr_change, assoc_id, struct sctp_paddr_change, spc_assoc_id);

_Static_assert(LX_RTOINFO == SCTP_RTOINFO && LX_PEER_ADDR_PARAMS == SCTP_PEER_ADDR_PARAMS, "options");
_Static_assert(LX_EVENTS == SCTP_EVENTS && LX_STATUS == SCTP_STATUS && LX_EVENT == SCTP_EVENT, "options");
_Static_assert(LX_GET_ASSOC_ID_LIST == SCTP_GET_ASSOC_ID_LIST && LX_RECVRCVINFO == SCTP_RECVRCVINFO, "options");
_Static_assert(LX_DEFAULT_SNDINFO == SCTP_DEFAULT_SNDINFO, "options");
_Static_assert(LX_ASSOC_CHANGE == (int)SCTP_ASSOC_CHANGE && LX_SEND_FAILED_EVENT == (int)SCTP_SEND_FAILED_EVENT, "notifications");
_Static_assert(LX_UNORDERED == (int)SCTP_UNORDERED && LX_ABORT == (int)SCTP_ABORT && LX_EOF == (int)SCTP_EOF, "flags");
_Static_assert(LX_SENDALL == (int)SCTP_SENDALL && LX_SACK_IMMEDIATELY == (int)SCTP_SACK_IMMEDIATELY, "flags");
_Static_assert(LX_ACTIVE == (int)SCTP_ACTIVE && LX_ESTABLISHED == (int)SCTP_ESTABLISHED, "states");
