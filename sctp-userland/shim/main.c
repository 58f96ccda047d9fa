/* sctp-shim: check the rules of sctp-run --shim, and explain which decides. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "../protocol.h"
#include "rules.h"

#define PATIENCE_S 3

static const char usage[] = "usage: sctp-shim check FILE\n"
			    "       sctp-shim explain [--rules FILE] local|remote ADDRESS:PORT\n"
			    "       sctp-shim --version\n\n"
			    "check    name each mistake in the rules of sctp-run --shim FILE, with its line\n"
			    "explain  tell which rule decides about a listener (local), or a connection to that address (remote), and what sctpd\n"
			    "         knows of the address. Without --rules the file is that in $SCTP_SHIM, as in a program that sctp-run started\n";

static const char tcp_only[] = "stays TCP: fast open, MD5 signatures, repair mode, sockets tied to a device or with a mark. Refused: kernel TLS.\n"
			       "Without effect: TCP and IP options; zeros: TCP_INFO. Urgent data arrives among the other bytes\n";

/* ADDRESS:PORT, [ADDRESS]:PORT. */
static bool parse(const char *text, struct sockaddr_in6 *address)
{
	char host[INET6_ADDRSTRLEN + 2], *end;
	const char *colon = strrchr(text, ':');
	struct sockaddr_in *v4 = (struct sockaddr_in *)address;
	unsigned long port;
	size_t length;

	*address = (struct sockaddr_in6){ 0 };
	length = colon != NULL ? (size_t)(colon - text) : 0;
	if (length == 0 || length >= sizeof(host))
		return false;
	port = strtoul(colon + 1, &end, 10);
	if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || port < 1 || port > 65535)
		return false;
	snprintf(host, sizeof(host), "%.*s", (int)length, text);
	address->sin6_port = htons((uint16_t)port); /* at the same place in both */
	if (host[0] == '[' && host[length - 1] == ']') {
		host[length - 1] = '\0';
		address->sin6_family = AF_INET6;
		return inet_pton(AF_INET6, host + 1, &address->sin6_addr) == 1;
	}
	v4->sin_family = AF_INET;
	return inet_pton(AF_INET, host, &v4->sin_addr) == 1;
}

static int connect_to(const struct sockaddr_un *name, socklen_t length)
{
	const struct timeval patience = { .tv_sec = PATIENCE_S };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (fd >= 0 && connect(fd, (const struct sockaddr *)name, length) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static void tell_verdict(const struct sockaddr_in6 *address)
{
	static const char *const verdicts[] = {
		[SHIM_UNKNOWN] = "nothing is known of it: the next connect() tries SCTP",
		[SHIM_SCTP] = "SCTP was answered",
		[SHIM_REFUSED] = "SCTP was refused: TCP for a minute",
		[SHIM_SILENT] = "SCTP got no answer: TCP for a minute",
	};
	const uint32_t length = address->sin6_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(*address);
	const struct request request = { .version = PROTOCOL_VERSION, .operation = OP_SHIM_VERDICT, .address_length = length };
	struct {
		struct request request;
		char address[sizeof(*address)];
	} asked = { .request = request };
	struct {
		struct reply reply;
		uint32_t age_ms;
	} answer = { 0 };
	struct sockaddr_un name;
	socklen_t name_length = service_name(&name);
	int fd = connect_to(&name, name_length);

	if (fd < 0) {
		name_length = abstract_name(&name, CONTROL_NAME);
		fd = connect_to(&name, name_length);
	}
	memcpy(asked.address, address, length);
	if (fd < 0 || send(fd, &asked, sizeof(request) + length, MSG_NOSIGNAL) < 0 || recv(fd, &answer, sizeof(answer), 0) != sizeof(answer) ||
	    answer.reply.error != 0 || answer.reply.result < SHIM_UNKNOWN || answer.reply.result > SHIM_SILENT) {
		puts("verdict: no sctpd answers in this network namespace");
	} else if (answer.reply.result == SHIM_UNKNOWN) {
		printf("verdict: %s\n", verdicts[SHIM_UNKNOWN]);
	} else {
		printf("verdict: %s (%u.%u s ago)\n", verdicts[answer.reply.result], answer.age_ms / 1000, answer.age_ms % 1000 / 100);
	}
	if (fd >= 0)
		close(fd);
}

static int explain(const struct rules *rules, const char *path, const char *end, const char *text)
{
	const enum rule_end which = strcmp(end, "local") == 0 ? END_LOCAL : strcmp(end, "remote") == 0 ? END_REMOTE : END_NONE;
	struct sockaddr_in6 address;
	const struct rule *rule;

	if (which == END_NONE || !parse(text, &address)) {
		fprintf(stderr, "sctp-shim: explain %s %s: write local or remote, then ADDRESS:PORT or [ADDRESS]:PORT\n", end, text);
		return 2;
	}
	rule = rules_match(rules, which, (struct sockaddr *)&address);
	printf("%s %s: %s, by ", end, text, rule->use == USE_SCTP ? "sctp" : "tcp");
	if (rule->line > 0)
		printf("%s:%d\n", path, rule->line);
	else
		printf("the default\n");
	if (rule->use != USE_SCTP)
		return 0;
	if (rule->rto_min_ms > 0)
		printf("rto_min_ms: %d\n", rule->rto_min_ms);
	if (which == END_REMOTE) {
		printf("tried: %s, for %d ms\n", rule->try == TRY_BACKGROUND ? "in the background" : "first", rule->wait_ms);
		tell_verdict(&address);
	}
	fputs(tcp_only, stdout);
	return 0;
}

/* A file that was copied from another host would have all connections go by TCP. */
static void warn_of_addresses(const struct rules *rules, const char *path)
{
	char text[INET6_ADDRSTRLEN];
	int i;

	for (i = 0; i < rules->address_count; i++) {
		const struct sockaddr_in6 *address = &rules->addresses[i];
		const bool v4 = address->sin6_family == AF_INET;
		const int fd = socket(address->sin6_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

		if (fd >= 0 && bind(fd, (const struct sockaddr *)address, v4 ? sizeof(struct sockaddr_in) : sizeof(*address)) < 0 && errno == EADDRNOTAVAIL)
			fprintf(stderr, "%s: warning: addresses: %s is none of this host's now: connections that need it go by TCP\n", path,
				inet_ntop(address->sin6_family,
					  v4 ? (const void *)&((const struct sockaddr_in *)address)->sin_addr : &address->sin6_addr, text, sizeof(text)));
		if (fd >= 0)
			close(fd);
	}
}

static int check(struct rules *rules, const char *path)
{
	if (rules_read(rules, path, stderr) > 0)
		return 1;
	warn_of_addresses(rules, path);
	return 0;
}

int main(int argc, char **argv)
{
	static struct rules rules;
	const char *path = getenv(RULES_VARIABLE);

	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		puts("sctp-shim, version " PROJECT_VERSION);
		return 0;
	}
	if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		fputs(usage, stdout);
		return 0;
	}
	if (argc == 3 && strcmp(argv[1], "check") == 0)
		return check(&rules, argv[2]);
	if (argc >= 4 && strcmp(argv[1], "explain") == 0 && strcmp(argv[2], "--rules") == 0) {
		path = argv[3];
		argv[3] = argv[1];
		argv += 2;
		argc -= 2;
	}
	if (argc != 4 || strcmp(argv[1], "explain") != 0) {
		fputs(usage, stderr);
		return 2;
	}
	if (path == NULL) {
		fputs("sctp-shim: which rules? Write explain --rules FILE\n", stderr);
		return 2;
	}
	return rules_read(&rules, path, stderr) > 0 ? 1 : explain(&rules, path, argv[2], argv[3]);
}
