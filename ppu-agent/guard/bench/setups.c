/*
 * Many TCP connection set-ups through a network of a lab, and what became of each. Nothing is repeated here.
 *
 *   setups generate INTERFACE MAC COUNT RATE BURST SEED WAIT_MS
 *       sends COUNT SYNs, RATE a second, in bursts of 1 to BURST; each from a random address of 10.1.0.0/24 to a random
 *       one of 10.2.0.0/24. Any answer closes. WAIT_MS after the last one it says in JSON what it found.
 *   setups respond INTERFACE MAC DROPPED SEED
 *       answers SYNs until SIGTERM. Each address drops some, by a probability of its own: on the average DROPPED.
 *
 * MAC is where frames go. Delays are from just before a packet is sent until the kernel has it at the other end (a
 * packet carries its time as TCP timestamp, in ns): the time a program waits for the processor is not in them.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FRAME 74 /* Ethernet, IPv4, TCP with the options that Linux sends */
#define STAMP 58 /* of TCP's timestamp in it */
#define BATCH 64
#define PORT 5060
#define FIRST_ISN 1000000000u
#define SUBS 128 /* of each power of two in a histogram */
#define BINS (32 * SUBS)
#define HOSTS 254

static volatile sig_atomic_t is_over;
static uint8_t own_mac[6], other_mac[6];
static struct sockaddr_ll peer = {.sll_family = AF_PACKET, .sll_halen = 6};

struct delays {
	uint64_t bins[BINS], count;
};

static void fail(const char *what)
{
	fprintf(stderr, "setups: %s: %s\n", what, strerror(errno));
	exit(2);
}

static void end_soon(int number)
{
	(void)number;
	is_over = 1;
}

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now); /* the clock of SO_TIMESTAMPNS */
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t random_state = 88172645463325252ull;

static uint32_t any(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 32);
}

static void note(struct delays *delays, uint32_t ns)
{
	unsigned int power = ns < SUBS ? 0 : 31 - (unsigned int)__builtin_clz(ns) - 6;
	delays->bins[power * SUBS + (ns >> power) % SUBS]++;
	delays->count++;
}

static double quantile_us(const struct delays *delays, double share)
{
	uint64_t wanted = (uint64_t)((double)delays->count * share), seen = 0;
	for (unsigned int i = 0; i < BINS; i++) {
		seen += delays->bins[i];
		if (seen > wanted)
			return (double)((uint64_t)(i % SUBS) << i / SUBS) / 1000;
	}
	return 0;
}

static void print_delays(const char *name, const struct delays *delays)
{
	printf("\"%s\": {\"count\": %llu, \"p50_us\": %.2f, \"p99_us\": %.2f}", name, (unsigned long long)delays->count,
	       quantile_us(delays, 0.5), quantile_us(delays, 0.99));
}

static int open_socket(const char *interface, const char *mac)
{
	struct ifreq request = {0};
	int on = 1, buffer = 128 << 20, file = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
	if (file < 0)
		fail("a packet socket");
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", interface);
	if (ioctl(file, SIOCGIFHWADDR, &request))
		fail(interface);
	memcpy(own_mac, request.ifr_hwaddr.sa_data, 6);
	if (sscanf(mac, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", other_mac, other_mac + 1, other_mac + 2, other_mac + 3,
		   other_mac + 4, other_mac + 5) != 6)
		fail(mac);
	peer.sll_protocol = htons(0x0800);
	peer.sll_ifindex = (int)if_nametoindex(interface);
	memcpy(peer.sll_addr, other_mac, 6);
	struct sockaddr_ll all = peer;
	all.sll_protocol = htons(ETH_P_ALL);
	if (bind(file, (struct sockaddr *)&all, sizeof(all)))
		fail("bind");
	setsockopt(file, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on));
	if (setsockopt(file, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer)) ||
	    setsockopt(file, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)))
		fail("socket options");
	struct timeval wait = {.tv_usec = 100000};
	setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	return file;
}

static uint32_t add(uint32_t sum, const uint8_t *bytes, int size)
{
	for (int i = 0; i < size; i += 2)
		sum += (uint32_t)(bytes[i] << 8 | bytes[i + 1]);
	return sum;
}

static void put_sum(uint8_t *to, uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	to[0] = (uint8_t)(~sum >> 8);
	to[1] = (uint8_t)~sum;
}

static void put32(uint8_t *to, uint32_t value)
{
	value = htonl(value);
	memcpy(to, &value, 4);
}

static uint32_t get32(const uint8_t *from)
{
	uint32_t value;
	memcpy(&value, from, 4);
	return ntohl(value);
}

static void make_frame(uint8_t frame[FRAME], uint32_t source, uint32_t target, uint16_t source_port, uint16_t target_port,
		       uint32_t sequence, uint32_t acknowledged, uint8_t flags)
{
	static const uint8_t OPTIONS[] = {2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 3, 7};
	memset(frame, 0, FRAME);
	memcpy(frame, other_mac, 6);
	memcpy(frame + 6, own_mac, 6);
	memcpy(frame + 12, "\x08\x00\x45\0\0\x3c\0\0\x40\0\x40\x06", 12);
	put32(frame + 26, source);
	put32(frame + 30, target);
	put_sum(frame + 24, add(0, frame + 14, 20));
	frame[34] = (uint8_t)(source_port >> 8);
	frame[35] = (uint8_t)source_port;
	frame[36] = (uint8_t)(target_port >> 8);
	frame[37] = (uint8_t)target_port;
	put32(frame + 38, sequence);
	put32(frame + 42, acknowledged);
	frame[46] = 0xa0;
	frame[47] = flags;
	frame[48] = 0xfa;
	memcpy(frame + 54, OPTIONS, sizeof(OPTIONS));
}

static bool send_now(int file, uint8_t frame[FRAME])
{
	put32(frame + STAMP + 4, (uint32_t)now_ns());
	put_sum(frame + 50, add(add(6 + 40, frame + 26, 8), frame + 34, 40));
	return sendto(file, frame, FRAME, 0, (struct sockaddr *)&peer, sizeof(peer)) == FRAME;
}

/* Receive what there is: for each TCP packet with options its frame, and the kernel's time as the low 32 bits. */
static void receive(int file, void (*take)(int, const uint8_t *, size_t, uint32_t))
{
	static uint8_t frames[BATCH][128], controls[BATCH][64];
	static struct mmsghdr messages[BATCH];
	static struct iovec parts[BATCH];
	for (int i = 0; i < BATCH; i++) {
		parts[i] = (struct iovec){frames[i], sizeof(frames[i])};
		messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i],
						      .msg_iovlen = 1,
						      .msg_control = controls[i],
						      .msg_controllen = sizeof(controls[i])};
	}
	int got = recvmmsg(file, messages, BATCH, MSG_WAITFORONE, NULL);
	for (int i = 0; i < got; i++) {
		struct timespec at = {0};
		for (struct cmsghdr *one = CMSG_FIRSTHDR(&messages[i].msg_hdr); one;
		     one = CMSG_NXTHDR(&messages[i].msg_hdr, one))
			if (one->cmsg_type == SCM_TIMESTAMPNS)
				memcpy(&at, CMSG_DATA(one), sizeof(at));
		const uint8_t *frame = frames[i];
		if (messages[i].msg_len >= 54 && memcmp(frame + 12, "\x08\x00\x45", 3) == 0 && frame[23] == 6)
			take(file, frame, messages[i].msg_len,
			     (uint32_t)((uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec));
	}
}

/* The server */

static struct delays syn_delays;
static uint32_t dropped_below[256];
static uint64_t answered, dropped;

static void answer(int file, const uint8_t *frame, size_t size, uint32_t at_ns)
{
	uint8_t reply[FRAME];
	if (size < FRAME || (frame[47] & 0x12) != 2 || get32(frame + 30) >> 8 != 0x0a0200)
		return;
	uint32_t took_ns = at_ns - get32(frame + STAMP + 4);
	if (took_ns < 100000000) /* else it is a repetition, which has the time of the first */
		note(&syn_delays, took_ns);
	if (any() < dropped_below[frame[33]]) {
		dropped++;
		return;
	}
	make_frame(reply, get32(frame + 30), get32(frame + 26), PORT, (uint16_t)(frame[34] << 8 | frame[35]), any(),
		   get32(frame + 38) + 1, 0x12);
	answered += send_now(file, reply);
}

static int respond(int count, char **words)
{
	if (count != 6)
		return 2;
	int file = open_socket(words[2], words[3]);
	double share = atof(words[4]);
	random_state ^= strtoull(words[5], NULL, 10) << 20;
	for (int i = 0; i < 256; i++) {
		double own = share >= 1 ? 1 : share * 2 * any() / 4294967296.0;
		dropped_below[i] = own >= 1 ? 0xffffffffu : (uint32_t)(own * 4294967296.0);
	}
	puts("ready");
	fflush(stdout);
	while (!is_over)
		receive(file, answer);
	printf("{");
	print_delays("syn", &syn_delays);
	printf(", \"answered\": %llu, \"dropped\": %llu}\n", (unsigned long long)answered, (unsigned long long)dropped);
	return 0;
}

/* The client */

static struct delays answer_delays;
static uint8_t *closed;
static uint32_t wanted;
static uint64_t accepted, refused, again;
static atomic_bool is_done;

static void close_one(int file, const uint8_t *frame, size_t size, uint32_t at_ns)
{
	(void)file;
	uint32_t number = get32(frame + 42) - 1 - FIRST_ISN;
	uint8_t flags = frame[47] & 0x16;
	if (get32(frame + 30) >> 8 != 0x0a0100 || number >= wanted || (flags != 0x12 && flags != 0x14))
		return;
	if (flags == 0x12 && size >= FRAME)
		note(&answer_delays, at_ns - get32(frame + STAMP + 4));
	if (closed[number]) {
		again++;
		return;
	}
	closed[number] = 1;
	if (flags == 0x12)
		accepted++;
	else
		refused++;
}

static void *listen_to_answers(void *file)
{
	while (!is_done)
		receive(*(int *)file, close_one);
	return NULL;
}

static int generate(int count, char **words)
{
	if (count != 9)
		return 2;
	int file = open_socket(words[2], words[3]);
	wanted = (uint32_t)atoi(words[4]);
	double rate = atof(words[5]);
	uint32_t burst = (uint32_t)atoi(words[6]);
	random_state ^= strtoull(words[7], NULL, 10) << 20;
	uint64_t wait_ns = strtoull(words[8], NULL, 10) * 1000000u;
	closed = calloc(wanted, 1);
	pthread_t listener;
	if (!closed || pthread_create(&listener, NULL, listen_to_answers, &file))
		fail("memory");
	uint64_t began_ns = now_ns(), due_ns = began_ns, unsent = 0;
	for (uint32_t sent = 0; sent < wanted && !is_over;) {
		uint32_t size = 1 + any() % burst;
		for (uint32_t i = 0; i < size && sent < wanted; i++, sent++) {
			uint8_t frame[FRAME];
			/* A client never begins twice at the same port within half a million set-ups. */
			uint32_t client = any() % (HOSTS / 8) * 8 + sent / 64000 % 8;
			make_frame(frame, 0x0a010001 + client, 0x0a020001 + any() % HOSTS,
				   (uint16_t)(1024 + sent % 64000), PORT, FIRST_ISN + sent, 0, 2);
			unsent += !send_now(file, frame);
		}
		/* Intervals are uniform, too: up to twice what this burst has a right to. */
		due_ns += (uint64_t)(size / rate * 1e9 * 2 * any() / 4294967296.0);
		int64_t left_ns = (int64_t)(due_ns - now_ns());
		if (left_ns > 100000) {
			struct timespec pause = {left_ns / 1000000000, left_ns % 1000000000};
			nanosleep(&pause, NULL);
		}
		while (now_ns() < due_ns)
			;
	}
	uint64_t took_ns = now_ns() - began_ns, end_ns = now_ns() + wait_ns;
	while (now_ns() < end_ns && accepted + refused < wanted && !is_over)
		usleep(1000);
	is_done = true;
	pthread_join(listener, NULL);
	printf("{\"sent\": %u, \"unsent\": %llu, \"seconds\": %.3f, \"accepted\": %llu, \"refused\": %llu, "
	       "\"again\": %llu, ",
	       wanted, (unsigned long long)unsent, (double)took_ns / 1e9, (unsigned long long)accepted,
	       (unsigned long long)refused, (unsigned long long)again);
	print_delays("answer", &answer_delays);
	puts("}");
	return 0;
}

int main(int count, char **words)
{
	signal(SIGTERM, end_soon);
	signal(SIGINT, end_soon);
	int status = 2;
	if (count > 1 && strcmp(words[1], "generate") == 0)
		status = generate(count, words);
	else if (count > 1 && strcmp(words[1], "respond") == 0)
		status = respond(count, words);
	if (status == 2)
		fputs("usage: see the top of setups.c\n", stderr);
	return status;
}
