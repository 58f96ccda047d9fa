/* Whether this is the libusrsctp that is known here (0.9.5): what is replaced in it must be there, and its sockets must look as they did. */
#include "usrsctp_internal.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <usrsctp.h>

#include "loop.h"

struct library library;

static const struct {
	const char *name;
	size_t at;
} replaced[] = {
	{ "sowakeup", offsetof(struct library, sowakeup) },
	{ "sctp_aloc_assoc", offsetof(struct library, aloc_assoc) },
	{ "sctp_add_addresses_to_i_ia", offsetof(struct library, add_addresses_to_i_ia) },
	{ "sctp_is_address_in_scope", offsetof(struct library, is_address_in_scope) },
	{ "sctp_is_address_on_local_host", offsetof(struct library, is_address_on_local_host) },
	{ "sctp_findasoc_ep_asocid_locked", offsetof(struct library, findasoc_ep_asocid_locked) },
	{ "sctp_ulp_notify", offsetof(struct library, ulp_notify) },
	{ "sctp_express_handle_sack", offsetof(struct library, express_handle_sack) },
	{ "sctp_load_addresses_from_init", offsetof(struct library, load_addresses_from_init) },
};

bool library_find(void)
{
	size_t i;

	for (i = 0; i < sizeof(replaced) / sizeof(replaced[0]); i++) {
		void *found = dlsym(RTLD_NEXT, replaced[i].name);

		if (found == NULL) {
			log_line("this libusrsctp is not the one that is known (0.9.5): it has no %s()", replaced[i].name);
			return false;
		}
		memcpy((char *)&library + replaced[i].at, &found, sizeof(found));
	}
	return true;
}

bool library_is_known(void)
{
	const int receive = 70001, send = 70002, backlog = 77;
	struct socket *so = usrsctp_socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);
	bool known;

	if (so == NULL)
		return false;
	usrsctp_setsockopt(so, SOL_SOCKET, SO_RCVBUF, &receive, sizeof(receive));
	usrsctp_setsockopt(so, SOL_SOCKET, SO_SNDBUF, &send, sizeof(send));
	known = so->receive.room == (unsigned int)receive && so->send.room == (unsigned int)send &&
		usrsctp_listen(so, backlog) == 0 && so->queue_limit == backlog;
	usrsctp_close(so);
	if (!known)
		log_line("this libusrsctp is not the one that is known (0.9.5): its sockets look otherwise");
	return known;
}
