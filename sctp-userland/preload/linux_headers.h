/* Linux's SCTP structures, without libsctp's functions (whose names would be in the way). */
#ifndef LINUX_HEADERS_H
#define LINUX_HEADERS_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

#include <linux/sctp.h>

#endif
