/* How fast libusrsctp itself is, with no sctpd between: both ends in one process, its own threads, its own raw socket.
 *
 *     in-process MESSAGES ROUND_TRIPS    (as root, in a network namespace where nothing else speaks SCTP)
 *
 * Prints one line of JSON: messages of 100 bytes a second through one association, and the median of a round trip in us. */
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <usrsctp.h>

#define SIZE 100
#define PORT 5000

static int messages, round_trips;
static struct socket *server;

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void send_one(struct socket *so)
{
	const char message[SIZE] = "";

	if (usrsctp_sendv(so, message, sizeof(message), NULL, 0, NULL, 0, SCTP_SENDV_NOINFO, 0) != SIZE)
		fail("send");
}

static void receive_one(struct socket *so)
{
	char message[SIZE];
	struct sockaddr_in from;
	socklen_t from_length = sizeof(from), information_length = 0;
	unsigned int information_type;
	int flags = 0;

	if (usrsctp_recvv(so, message, sizeof(message), (struct sockaddr *)&from, &from_length, NULL, &information_length, &information_type,
			  &flags) != SIZE)
		fail("receive");
}

static void no_delay(struct socket *so)
{
	const int yes = 1;

	if (usrsctp_setsockopt(so, IPPROTO_SCTP, SCTP_NODELAY, &yes, sizeof(yes)) < 0)
		fail("SCTP_NODELAY");
}

/* Echo the round trips, then take all messages and say so. */
static void *serve(void *unused)
{
	struct socket *so = usrsctp_accept(server, NULL, NULL);
	int i;

	if (so == NULL)
		fail("accept");
	no_delay(so);
	for (i = 0; i < round_trips; i++) {
		receive_one(so);
		send_one(so);
	}
	for (i = 0; i < messages; i++)
		receive_one(so);
	send_one(so);
	return unused;
}

static int ascending(const void *first, const void *second)
{
	const double one = *(const double *)first, other = *(const double *)second;

	return one < other ? -1 : one > other;
}

int main(int argc, char **argv)
{
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct socket *client;
	pthread_t thread;
	double *took_s, began_s;
	int i;

	messages = argc > 1 ? atoi(argv[1]) : 0;
	round_trips = argc > 2 ? atoi(argv[2]) : 0;
	took_s = calloc((size_t)round_trips + 1, sizeof(*took_s));
	if (messages <= 0 || round_trips <= 0 || took_s == NULL)
		return 2;
	usrsctp_init(0, NULL, NULL);
	usrsctp_sysctl_set_sctp_blackhole(2);
	server = usrsctp_socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);
	client = usrsctp_socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);
	if (server == NULL || client == NULL || usrsctp_bind(server, (struct sockaddr *)&name, sizeof(name)) < 0 || usrsctp_listen(server, 1) < 0)
		fail("socket");
	if (pthread_create(&thread, NULL, serve, NULL) != 0 || usrsctp_connect(client, (struct sockaddr *)&name, sizeof(name)) < 0)
		fail("connect");
	no_delay(client);
	for (i = 0; i < round_trips; i++) {
		began_s = now_s();
		send_one(client);
		receive_one(client);
		took_s[i] = now_s() - began_s;
	}
	qsort(took_s, (size_t)round_trips, sizeof(*took_s), ascending);
	began_s = now_s();
	for (i = 0; i < messages; i++)
		send_one(client);
	receive_one(client);
	printf("{\"messages_per_s\": %.0f, \"round_trip_us\": %.1f}\n", messages / (now_s() - began_s), took_s[round_trips / 2] * 1e6);
	fflush(stdout);
	_Exit(0);
}
