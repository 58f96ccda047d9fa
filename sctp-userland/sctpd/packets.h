/* Packets of IP protocol 132: the raw sockets. */
#ifndef PACKETS_H
#define PACKETS_H

#include <stdbool.h>
#include <stdint.h>

/* Open the raw sockets and watch them. Return 0 or -errno. */
int packets_open(void);

/* Give one SCTP packet (from its common header on) to usrsctp; one with its IPv4 header. Any bytes are safe. */
struct sockaddr;
struct mbuf;
void packets_input4(const char *datagram, int length);
void packets_input(const char *packet, int length, struct sockaddr *source, struct sockaddr *destination, uint8_t ecn_bits);

/* The library's buffers for this number of bytes, still to be written; NULL: no memory. */
struct mbuf *packets_buffers(int length);

/* Take at once what was just sent to this host itself. Return whether anything was. waits: for a moment, until the kernel has brought it. */
bool packets_take_own(bool waits);

/* Take what has come by now, and what this answers: a peer on this host may have answered already. */
void packets_take_waiting(void);

#endif
