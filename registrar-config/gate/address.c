#include "address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

struct address address_v4(const uint8_t bytes[4])
{
	struct address address;

	memcpy(address.bytes, mapped, sizeof(mapped));
	memcpy(address.bytes + sizeof(mapped), bytes, 4);
	return address;
}

bool address_equal(const struct address *a, const struct address *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

void address_print(const struct address *address, char *text)
{
	if (memcmp(address->bytes, mapped, sizeof(mapped)) == 0)
		inet_ntop(AF_INET, address->bytes + sizeof(mapped), text, ADDRESS_TEXT);
	else
		inet_ntop(AF_INET6, address->bytes, text, ADDRESS_TEXT);
}

/* The bits of byte i that belong to a prefix of that many bits. */
static uint8_t mask(uint8_t prefix, int i)
{
	const int bits = prefix - 8 * i;

	return bits >= 8 ? 0xff : bits <= 0 ? 0 : (uint8_t)(0xff << (8 - bits));
}

bool network_read(const char *text, struct network *network)
{
	char host[ADDRESS_TEXT];
	const char *slash = strchr(text, '/');
	const size_t length = slash ? (size_t)(slash - text) : strlen(text);
	uint8_t v4[4];
	unsigned long bits, most;
	char *end;
	int i;

	if (length == 0 || length >= sizeof(host))
		return false;
	memcpy(host, text, length);
	host[length] = '\0';
	if (inet_pton(AF_INET, host, v4) == 1) {
		network->base = address_v4(v4);
		most = 32;
	} else if (inet_pton(AF_INET6, host, network->base.bytes) == 1) {
		most = 128;
	} else {
		return false;
	}
	bits = most;
	if (slash) {
		if (slash[1] < '0' || slash[1] > '9')
			return false;
		bits = strtoul(slash + 1, &end, 10);
		if (*end != '\0' || bits > most)
			return false;
	}
	network->prefix = (uint8_t)(128 - most + bits);
	for (i = 0; i < ADDRESS_BYTES; i++)
		if (network->base.bytes[i] & ~mask(network->prefix, i))
			return false;
	return true;
}

bool network_holds(const struct network *network, const struct address *address)
{
	int i;

	for (i = ADDRESS_BYTES - 1; i >= 0; i--) /* addresses differ at their ends */
		if ((network->base.bytes[i] ^ address->bytes[i]) & mask(network->prefix, i))
			return false;
	return true;
}
