/* Fuzzer of the client protocol: control connections that say anything, with descriptors of anything. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "../protocol.h"
#include "../sctpd/control.h"
#include "../sctpd/limits.h"
#include "world.h"

#define HELD_MAX 12
#define RECORDS_MAX 60
#define COPIES_MAX 4

enum { CALL, RAW, CLOSE, PLUG, READ, PASS_TIME, RECONNECT, SHUT, KINDS };

static int control = -1, stranger = -1, stranger_socket = -1, tcp_listener = -1;
static int held[HELD_MAX];
static unsigned int held_count;
static char frame[sizeof(struct request) + ADDRESSES_MAX + 65536];
static char answer[sizeof(struct reply) + ADDRESSES_MAX + sizeof(struct inbound) + MESSAGE_MAX];

int LLVMFuzzerInitialize(int *argument_count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void connect_control(void)
{
	int pair[2];

	if (control >= 0)
		close(control);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		abort();
	control = pair[1];
	if (!control_serve(pair[0]))
		abort();
}

/* With this number of copies of this descriptor. */
static void send_frame(size_t length, int passed, size_t copies)
{
	char space[CMSG_SPACE(COPIES_MAX * sizeof(int))] = { 0 };
	struct iovec vector = { frame, length };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };

	if (passed >= 0) {
		struct cmsghdr *item;

		message.msg_control = space;
		message.msg_controllen = CMSG_SPACE(copies * sizeof(int));
		item = CMSG_FIRSTHDR(&message);
		item->cmsg_level = SOL_SOCKET;
		item->cmsg_type = SCM_RIGHTS;
		item->cmsg_len = CMSG_LEN(copies * sizeof(int));
		while (copies-- > 0)
			memcpy(CMSG_DATA(item) + copies * sizeof(int), &passed, sizeof(int));
	}
	sendmsg(control, &message, MSG_NOSIGNAL);
}

static void take_descriptor(struct msghdr *message)
{
	struct cmsghdr *item = CMSG_FIRSTHDR(message);
	int fd;

	if (item == NULL)
		return;
	memcpy(&fd, CMSG_DATA(item), sizeof(fd));
	if (held_count < HELD_MAX)
		held[held_count++] = fd;
	else
		close(fd);
}

/* An answer is whole whatever was asked, and its error is one. */
static void check_answer(void)
{
	char space[CMSG_SPACE(sizeof(int))];
	struct iovec vector = { answer, sizeof(answer) };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space) };
	ssize_t length = recvmsg(control, &message, MSG_CMSG_CLOEXEC);
	struct reply reply;

	if (length <= 0) {
		if (length == 0 || errno != EAGAIN)
			connect_control(); /* it was dropped */
		return;
	}
	memcpy(&reply, answer, sizeof(reply));
	if ((size_t)length != sizeof(reply) + reply.address_length + reply.data_length || reply.error < 0 || reply.error > 4095)
		abort();
	if (reply.error != 0 && message.msg_controllen > 0)
		abort();
	take_descriptor(&message);
}

static int pick(uint8_t which)
{
	if (which == 0xff)
		return stranger;
	if (which == 0xfd)
		return stranger_socket;
	if (which == 0xfc)
		return tcp_listener;
	return which == 0xfe || held_count == 0 ? -1 : held[which % held_count];
}

/* Mostly whole addresses of this world, few hosts and ports, so that sockets find each other. */
static uint32_t put_addresses(struct input *input, char *to)
{
	uint8_t shape = input_byte(input), number = shape & 3;
	uint32_t length = 0;

	if (shape & 0x80)
		return (uint32_t)input_bytes(input, to, shape & 0x3f);
	for (; number > 0; number--) {
		uint8_t host = input_byte(input);
		struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(host >> 4 ? 5000 + (host >> 4) : 0),
					  .sin_addr.s_addr = htonl(host & 3 ? 0x0a000000U | (host & 3) : host & 4 ? 0 : 0x7f000001) };
		struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = v4.sin_port };

		v6.sin6_addr.s6_addr[0] = host & 3 ? 0xfd : 0;
		v6.sin6_addr.s6_addr[15] = host & 4 ? 0 : host & 3 ? host & 3 : 1;
		memcpy(to + length, host & 8 ? (void *)&v6 : (void *)&v4, host & 8 ? sizeof(v6) : sizeof(v4));
		length += host & 8 ? sizeof(v6) : sizeof(v4);
	}
	return length;
}

/* Small numbers, association and socket identifiers among them, or any. */
static int32_t number(struct input *input)
{
	uint8_t first = input_byte(input);

	return first < 200 ? first % 136 : first < 220 ? -1 - (first & 7) : (int32_t)((uint32_t)input_short(input) << 16 | input_short(input));
}

static void call(struct input *input)
{
	int passed = pick(input_byte(input));
	struct request request = { .version = PROTOCOL_VERSION, .operation = input_byte(input) % (OP_COUNT + 1) };
	char *address = frame + sizeof(request);
	int i;

	for (i = 0; i < 4; i++)
		request.argument[i] = number(input);
	if (request.operation == OP_SOCKET && request.argument[3] < 100) {
		request.argument[0] = request.argument[0] & 1 ? AF_INET6 : AF_INET;
		request.argument[1] = request.argument[1] & 1 ? SOCK_SEQPACKET : request.argument[1] & 2 ? SHIM_TYPE : SOCK_STREAM;
	}
	if ((request.operation == OP_SETSOCKOPT || request.operation == OP_GETSOCKOPT) && request.argument[3] < 100)
		request.argument[0] = IPPROTO_SCTP;
	if (request.operation == OP_SEND) {
		request.send.gives = input_byte(input);
		if (request.send.gives & 1)
			input_bytes(input, &request.send, sizeof(request.send));
	}
	request.address_length = put_addresses(input, address);
	request.data_length = input_byte(input);
	if (request.operation == OP_SEND && request.data_length > 100) {
		request.data_length *= 100; /* of zeros */
		memset(address + request.address_length, 0, request.data_length);
	} else {
		input_bytes(input, address + request.address_length, request.data_length);
	}
	memcpy(frame, &request, sizeof(request));
	send_frame(sizeof(request) + request.address_length + request.data_length, passed, 1);
}

static void raw(struct input *input)
{
	int passed = pick(input_byte(input));
	size_t length = input_byte(input);

	input_bytes(input, frame, length);
	send_frame(length, passed, 1 + length % COPIES_MAX);
}

/* A plug, or a message that goes one way. */
static void put_in(struct input *input, int fd)
{
	const uint8_t what = input_byte(input);
	struct outbound header = { 0 };
	char *address = frame + sizeof(header);

	memset(frame, 0, PLUG_SIZE);
	if (what < 128) {
		send(fd, frame, 1U + what * 16U, MSG_DONTWAIT | MSG_NOSIGNAL);
		return;
	}
	if (what & 64)
		input_bytes(input, &header, sizeof(header));
	header.type = OUTBOUND_DATA;
	header.address_length = put_addresses(input, address);
	if (what & 32)
		header.address_length = input_byte(input);
	memcpy(frame, &header, sizeof(header));
	send(fd, frame, sizeof(header) + header.address_length + (what & 31U), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void let_go(uint8_t which)
{
	if (held_count == 0)
		return;
	which %= held_count;
	close(held[which]);
	held[which] = held[--held_count];
}

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count, (void)arguments;
	limits.sockets = 40;
	stranger = open("/dev/null", O_RDWR | O_CLOEXEC);
	stranger_socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	tcp_listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	listen(tcp_listener, 5);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = { data, size };
	int records, fd;

	world_begin();
	connect_control();
	for (records = 0; input.left > 0 && records < RECORDS_MAX; records++) {
		switch (input_byte(&input) % KINDS) {
		case CALL:
			call(&input);
			break;
		case RAW:
			raw(&input);
			break;
		case CLOSE:
			let_go(input_byte(&input));
			break;
		case PLUG:
			if ((fd = pick(input_byte(&input))) >= 0 && fd != stranger && fd != stranger_socket && fd != tcp_listener)
				put_in(&input, fd);
			break;
		case READ:
			if ((fd = pick(input_byte(&input))) >= 0)
				recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
			break;
		case PASS_TIME:
			world_turn(1U << (input_byte(&input) % 16), 1);
			break;
		case RECONNECT:
			connect_control();
			break;
		case SHUT:
			if ((fd = pick(input_byte(&input))) >= 0 && fd != tcp_listener)
				shutdown(fd, input_byte(&input) % 3);
			break;
		}
		world_turn(1, 1);
		check_answer();
	}
	while (held_count > 0)
		let_go(0);
	close(control);
	control = -1;
	world_turn(1, 1);
	world_end();
	return 0;
}
