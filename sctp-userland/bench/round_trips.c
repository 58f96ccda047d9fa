/* Round trips of a request and its echo, between two processes: UDP and SCTP in turn.
 *
 *     round_trips COUNT    (where SCTP works: under sctp-run, or on a kernel that has it)
 *
 * Prints one line of JSON: the median of each in us, over seven rounds of COUNT, and the ratio in the best round: what else
 * runs disturbs that round least. */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SCTP_NODELAY 3 /* of linux/sctp.h */
#define ROUNDS 7
#define WARM_UP 100
#define SIZE 100

static void fail(const char *call)
{
	perror(call);
	exit(1);
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int new_socket(int protocol)
{
	const int yes = 1;
	int fd = socket(AF_INET, protocol == IPPROTO_UDP ? SOCK_DGRAM : SOCK_STREAM, protocol);

	if (fd < 0)
		fail("socket");
	if (protocol == IPPROTO_SCTP && setsockopt(fd, protocol, SCTP_NODELAY, &yes, sizeof(yes)) < 0)
		fail("SCTP_NODELAY");
	return fd;
}

static void echo(int protocol, int fd)
{
	struct sockaddr_in client;
	socklen_t length = sizeof(client);
	char message[SIZE];
	ssize_t got;

	if (protocol == IPPROTO_SCTP && (fd = accept(fd, NULL, NULL)) < 0)
		fail("accept");
	while ((got = recvfrom(fd, message, sizeof(message), 0, (struct sockaddr *)&client, &length)) > 0) {
		if (protocol == IPPROTO_UDP ? sendto(fd, message, (size_t)got, 0, (struct sockaddr *)&client, length) != got :
					      send(fd, message, (size_t)got, 0) != got)
			fail("echo");
		length = sizeof(client);
	}
	exit(0);
}

/* Return a socket, connected to one in another process that sends back all that it gets. */
static int connected(int protocol)
{
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(name);
	int server = new_socket(protocol), client;

	if (bind(server, (struct sockaddr *)&name, sizeof(name)) < 0 || getsockname(server, (struct sockaddr *)&name, &length) < 0)
		fail("bind");
	if (protocol == IPPROTO_SCTP && listen(server, 1) < 0)
		fail("listen");
	switch (fork()) {
	case -1:
		fail("fork");
		break;
	case 0:
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		echo(protocol, server);
	}
	close(server);
	client = new_socket(protocol);
	if (connect(client, (struct sockaddr *)&name, sizeof(name)) < 0)
		fail("connect");
	return client;
}

static void go_and_return(int fd)
{
	char message[SIZE] = "";

	if (send(fd, message, sizeof(message), 0) != SIZE || recv(fd, message, sizeof(message), 0) != SIZE)
		fail("round trip");
}

static int ascending(const void *first, const void *second)
{
	const double left = *(const double *)first, right = *(const double *)second;

	return left < right ? -1 : left > right;
}

static double median(double *values, size_t count)
{
	qsort(values, count, sizeof(*values), ascending);
	return values[count / 2];
}

static double median_us(int fd, size_t count, double *took_us)
{
	double began_us;
	size_t i;

	for (i = 0; i < count; i++) {
		began_us = now_us();
		go_and_return(fd);
		took_us[i] = now_us() - began_us;
	}
	return median(took_us, count);
}

int main(int argc, char **argv)
{
	const size_t count = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
	double *took_us = calloc(count + 1, sizeof(*took_us)), udp_us[ROUNDS], sctp_us[ROUNDS], best = 1e9;
	int udp, sctp, i;

	if (count == 0 || took_us == NULL) {
		fputs("usage: round_trips COUNT\n", stderr);
		return 2;
	}
	udp = connected(IPPROTO_UDP);
	sctp = connected(IPPROTO_SCTP);
	for (i = 0; i < WARM_UP; i++) {
		go_and_return(udp);
		go_and_return(sctp);
	}
	for (i = 0; i < ROUNDS; i++) {
		udp_us[i] = median_us(udp, count, took_us);
		sctp_us[i] = median_us(sctp, count, took_us);
		best = sctp_us[i] / udp_us[i] < best ? sctp_us[i] / udp_us[i] : best;
	}
	printf("{\"udp\": %.2f, \"sctp\": %.2f, \"best_ratio\": %.3f}\n", median(udp_us, ROUNDS), median(sctp_us, ROUNDS), best);
	return 0;
}
