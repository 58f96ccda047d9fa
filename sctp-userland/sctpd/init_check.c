#include "init_check.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>

#define INIT 1
#define INIT_ACK 2
#define ADDRESSES_TAKEN 64 /* of a peer, each of which costs memory and time */
#define LEAST_WINDOW 1500
#define PARAMETER_HEADER 4
#define RANDOM_SIZE 36
#define SHA1 1

enum chunk { ASCONF = 0xc1, ASCONF_ACK = 0x80 };
enum parameter { IPV4 = 5, IPV6 = 6, RANDOM = 0x8002, CHUNKS = 0x8003, HMACS = 0x8004, EXTENSIONS = 0x8008 };

struct init {
	uint8_t type, flags;
	uint16_t size;
	uint32_t tag, window;
	uint16_t out_streams, in_streams;
	uint32_t first_tsn;
};

struct seen {
	int addresses, random, hmacs, chunks, asconf, protects_asconf, protects_asconf_ack, wrong;
};

static uint16_t read16(const char *at)
{
	uint16_t value;

	memcpy(&value, at, sizeof(value));
	return ntohs(value);
}

static int lists(const char *bytes, int length, enum chunk wanted)
{
	return memchr(bytes, (int)wanted, (size_t)length) != NULL;
}

static int lists_sha1(const char *numbers, int length)
{
	int at;

	for (at = 0; at + 2 <= length; at += 2)
		if (read16(numbers + at) == SHA1)
			return 1;
	return 0;
}

static void see(struct seen *seen, enum parameter type, const char *value, int length)
{
	switch (type) {
	case IPV4:
	case IPV6:
		seen->wrong |= ++seen->addresses > ADDRESSES_TAKEN;
		break;
	case RANDOM:
		seen->random = 1;
		seen->wrong |= length != RANDOM_SIZE - PARAMETER_HEADER;
		break;
	case HMACS:
		seen->hmacs = 1;
		seen->wrong |= !lists_sha1(value, length);
		break;
	case CHUNKS:
		seen->chunks = 1;
		seen->protects_asconf |= lists(value, length, ASCONF);
		seen->protects_asconf_ack |= lists(value, length, ASCONF_ACK);
		break;
	case EXTENSIONS:
		seen->asconf |= lists(value, length, ASCONF) || lists(value, length, ASCONF_ACK);
		break;
	}
}

/* RFC 4895 section 6.1 and RFC 5061 section 4.2.7: authentication needs its three parameters, ASCONF needs authentication. */
static int is_consistent(const struct seen *seen)
{
	int authenticates = seen->random && seen->hmacs;

	if (seen->wrong || (seen->chunks && !authenticates))
		return 0;
	return !seen->asconf || (authenticates && seen->protects_asconf && seen->protects_asconf_ack);
}

/* Whether an INIT ACK gives too many addresses; all else of it usrsctp judges. */
static int gives_too_many(const char *chunks, int length)
{
	int at, size, addresses = 0;

	for (at = sizeof(struct init); at + PARAMETER_HEADER <= length; at += (size + 3) & ~3) {
		uint16_t type = read16(chunks + at);

		size = read16(chunks + at + 2);
		if (size < PARAMETER_HEADER)
			break;
		addresses += type == IPV4 || type == IPV6;
	}
	return addresses > ADDRESSES_TAKEN;
}

int init_is_wrong(const char *chunks, int length)
{
	struct seen seen = { 0 };
	struct init init;
	int at, size, end;

	if (length > 0 && chunks[0] == INIT_ACK)
		return gives_too_many(chunks, length);
	if (length < 1 || chunks[0] != INIT)
		return 0;
	if (length < (int)sizeof(init))
		return 1;
	memcpy(&init, chunks, sizeof(init));
	end = ntohs(init.size);
	if (end < (int)sizeof(init) || end > length || init.tag == 0 || ntohl(init.window) < LEAST_WINDOW ||
	    init.out_streams == 0 || init.in_streams == 0)
		return 1;
	for (at = sizeof(init); at + PARAMETER_HEADER <= length; at += (size + 3) & ~3) {
		size = read16(chunks + at + 2);
		if (size < PARAMETER_HEADER || at + size > end)
			return 1;
		see(&seen, read16(chunks + at), chunks + at + PARAMETER_HEADER, size - PARAMETER_HEADER);
	}
	return !is_consistent(&seen);
}
