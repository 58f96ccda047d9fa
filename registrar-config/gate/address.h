/* IP addresses and networks. An IPv4 address is held IPv4-mapped (::ffff:a.b.c.d), so that there is one kind. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ADDRESS_BYTES 16
#define ADDRESS_TEXT 46 /* INET6_ADDRSTRLEN */

struct address {
	uint8_t bytes[ADDRESS_BYTES];
};

struct network {
	struct address base;
	uint8_t prefix; /* bits, 0..128 */
};

struct address address_v4(const uint8_t bytes[4]);
bool address_equal(const struct address *a, const struct address *b);
/* text has ADDRESS_TEXT bytes. */
void address_print(const struct address *address, char *text);
/* Read "10.0.0.1", "10.20.0.0/16", "fd00::/8". Bits behind the prefix must be 0. False: it is none. */
bool network_read(const char *text, struct network *network);
bool network_holds(const struct network *network, const struct address *address);
