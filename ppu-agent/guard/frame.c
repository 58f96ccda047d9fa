#include "frame.h"

#include <arpa/inet.h>
#include <string.h>

#define MAC 14
#define IPV4 20
#define IPV6 40
#define TCP 20
#define SCTP 12
#define INIT 20
#define HOST_LIFE 64

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define TCP_SYN 0x02
#define TCP_RST_ACK 0x14
#define CHUNK_INIT 1
#define CHUNK_ABORT 6

static uint16_t get16(const uint8_t *from)
{
	return (uint16_t)(from[0] << 8 | from[1]);
}

static void put16(uint8_t *to, uint16_t value)
{
	to[0] = (uint8_t)(value >> 8);
	to[1] = (uint8_t)value;
}

/* Offset of the value in TCP's timestamps option; 0 when there is none. */
static uint16_t find_stamp(const uint8_t *frame, uint16_t at, uint16_t end)
{
	while (at < end && frame[at] != 0) {
		if (frame[at] == 1) {
			at++;
			continue;
		}
		if (at + 2 > end || frame[at + 1] < 2 || at + frame[at + 1] > end)
			return 0;
		if (frame[at] == 8 && frame[at + 1] == 10)
			return (uint16_t)(at + 2);
		at = (uint16_t)(at + frame[at + 1]);
	}
	return 0;
}

bool frame_shape(const uint8_t *frame, uint16_t size, struct shape *shape)
{
	if (size < MAC + IPV4 || size > MOST_FRAME)
		return false;
	uint16_t type = get16(frame + 12);
	uint8_t protocol;
	memset(shape, 0, sizeof(*shape));
	if (type == ETHERTYPE_IPV4 && frame[MAC] == 0x45 && get16(frame + MAC + 2) == size - MAC) {
		protocol = frame[MAC + 9];
		shape->transport = MAC + IPV4;
	} else if (type == ETHERTYPE_IPV6 && size >= MAC + IPV6 && frame[MAC] >> 4 == 6 &&
		   get16(frame + MAC + 4) == size - MAC - IPV6) {
		protocol = frame[MAC + 6];
		shape->transport = MAC + IPV6;
		shape->is_ipv6 = true;
	} else {
		return false;
	}
	uint16_t rest = (uint16_t)(size - shape->transport);
	const uint8_t *head = frame + shape->transport;
	if (protocol == PROTOCOL_TCP && rest >= TCP && (head[12] >> 4) * 4 == rest && (head[13] & 0x17) == TCP_SYN) {
		shape->stamp = find_stamp(frame, (uint16_t)(shape->transport + TCP), size);
		return true;
	}
	if (protocol == PROTOCOL_SCTP && rest >= SCTP + INIT && head[SCTP] == CHUNK_INIT) {
		shape->is_sctp = true;
		shape->stamp = (uint16_t)(shape->transport + SCTP + 16);
		return true;
	}
	return false;
}

static void swap_varying(uint8_t *frame, const struct shape *shape, struct varying *taken, const struct varying *given)
{
	uint8_t *ip = frame + MAC;
	uint32_t none = 0;
	if (shape->is_ipv6) {
		if (taken)
			memcpy(&taken->ip, ip, 4);
		memcpy(ip, given ? &given->ip : &none, 4);
	} else {
		if (taken) {
			taken->ip = 0;
			memcpy(&taken->ip, ip + 4, 2);
		}
		memcpy(ip + 4, given ? &given->ip : &none, 2);
	}
	if (taken)
		taken->stamp = 0;
	if (shape->stamp) {
		if (taken)
			memcpy(&taken->stamp, frame + shape->stamp, 4);
		memcpy(frame + shape->stamp, given ? &given->stamp : &none, 4);
	}
}

static uint16_t token_offset(const struct shape *shape)
{
	return (uint16_t)(shape->transport + (shape->is_sctp ? SCTP + 4 : 4));
}

static uint16_t sum_offset(const struct shape *shape)
{
	return (uint16_t)(shape->transport + (shape->is_sctp ? 8 : 16));
}

void frame_take_varying(uint8_t *frame, const struct shape *shape, struct varying *varying)
{
	swap_varying(frame, shape, varying, NULL);
	if (shape->is_ipv6) {
		memset(frame + MAC + 8, 0, 16);
	} else {
		memset(frame + MAC + 10, 0, 2);
		memset(frame + MAC + 12, 0, 4);
	}
	memset(frame + shape->transport, 0, 2);
	memset(frame + token_offset(shape), 0, 4);
	memset(frame + sum_offset(shape), 0, shape->is_sctp ? 4 : 2);
}

static uint32_t add(uint32_t sum, const uint8_t *bytes, uint16_t size)
{
	for (uint16_t i = 0; i + 1 < size; i += 2)
		sum += get16(bytes + i);
	return size & 1 ? sum + (uint32_t)(bytes[size - 1] << 8) : sum;
}

static uint16_t fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

uint16_t checksum(const uint8_t *frame, uint16_t size, const struct shape *shape)
{
	uint16_t rest = (uint16_t)(size - shape->transport);
	uint32_t sum = add((uint32_t)(PROTOCOL_TCP + rest), frame + shape->transport, rest);
	return fold(shape->is_ipv6 ? add(sum, frame + MAC + 8, 32) : add(sum, frame + MAC + 12, 8));
}

uint32_t crc32c(const uint8_t *bytes, uint16_t size)
{
	uint32_t crc = ~0u;
	for (uint16_t i = 0; i < size; i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
	}
	return ~crc;
}

/* Both headers' checksums; zeros stand in their fields. */
static void put_sums(uint8_t *frame, uint16_t size, const struct shape *shape)
{
	if (!shape->is_ipv6)
		put16(frame + MAC + 10, fold(add(0, frame + MAC, IPV4)));
	uint8_t *field = frame + sum_offset(shape);
	if (!shape->is_sctp) {
		put16(field, checksum(frame, size, shape));
		return;
	}
	uint32_t sum = crc32c(frame + shape->transport, (uint16_t)(size - shape->transport));
	for (int i = 0; i < 4; i++) /* the only field that is little-endian on the wire (RFC 9260 appendix A) */
		field[i] = (uint8_t)(sum >> 8 * i);
}

void frame_fill(uint8_t *frame, uint16_t size, const struct shape *shape, const struct varying *varying,
		const struct entry *entry)
{
	swap_varying(frame, shape, NULL, varying);
	memcpy(frame + MAC + (shape->is_ipv6 ? 8 : 12), entry->client, shape->is_ipv6 ? 16 : 4);
	memcpy(frame + shape->transport, &entry->port, 2);
	memcpy(frame + token_offset(shape), &entry->token, 4);
	put_sums(frame, size, shape);
}

uint16_t frame_refusal(const uint8_t *setup, const struct shape *shape, uint8_t refusal[MOST_RESET])
{
	uint16_t rest = shape->is_sctp ? SCTP + 4 : TCP, size = (uint16_t)(shape->transport + rest);
	uint32_t token;
	memset(refusal, 0, MOST_RESET);
	memcpy(refusal, setup + 6, 6);
	memcpy(refusal + 6, setup, 6);
	memcpy(refusal + 12, setup + 12, 2);
	uint8_t *ip = refusal + MAC;
	const uint8_t *asked = setup + MAC;
	if (shape->is_ipv6) {
		ip[0] = 0x60;
		put16(ip + 4, rest);
		ip[6] = asked[6];
		ip[7] = HOST_LIFE;
		memcpy(ip + 8, asked + 24, 16);
		memcpy(ip + 24, asked + 8, 16);
	} else {
		ip[0] = 0x45;
		put16(ip + 2, (uint16_t)(IPV4 + rest));
		ip[6] = 0x40; /* don't fragment */
		ip[8] = HOST_LIFE;
		ip[9] = asked[9];
		memcpy(ip + 12, asked + 16, 4);
		memcpy(ip + 16, asked + 12, 4);
	}
	uint8_t *head = refusal + shape->transport;
	memcpy(head, setup + shape->transport + 2, 2);
	memcpy(head + 2, setup + shape->transport, 2);
	memcpy(&token, setup + token_offset(shape), 4);
	if (shape->is_sctp) {
		memcpy(head + 4, &token, 4);
		head[SCTP] = CHUNK_ABORT;
		head[SCTP + 3] = 4;
	} else {
		token = htonl(ntohl(token) + 1);
		memcpy(head + 8, &token, 4);
		head[12] = TCP / 4 << 4;
		head[13] = TCP_RST_ACK;
	}
	put_sums(refusal, size, shape);
	return size;
}

uint16_t frame_tag(uint8_t *frame, uint16_t size, uint16_t tag)
{
	memmove(frame + 16, frame + 12, (size_t)size - 12);
	put16(frame + 12, 0x8100);
	put16(frame + 14, tag);
	return (uint16_t)(size + 4);
}
