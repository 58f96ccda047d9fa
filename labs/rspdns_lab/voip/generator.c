/* Sends synthetic calls from one network namespace to another, both ways at once, and prints what arrived, as JSON.
 *
 *     generator CALLER CALLEE CALLS SPEECH_BYTES PACKET_MS RTP_TYPE MEDIUM SECONDS DIRECTION RTCP
 *
 * CALLER, CALLEE: files of namespaces, whose calls have the addresses 198.18.0.1 and up, 198.19.0.1 and up. MEDIUM: rtp, iax2, trunk;
 * DIRECTION: out, in, both; RTCP: 0 or 1. Packets are sent through a raw socket, many with one system call, and stamped with the time
 * at which each of them leaves; the kernel's time of arrival is read. */
#define _GNU_SOURCE
#include "frames.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { DRAIN_US = 400000, BATCH = 64, MAX_CALLS = 5000, SOCKETS = 2 * RTP_PORTS, RTCP_PORT_BIT = 1, BUCKETS_LOG = 6, BUCKETS = 40 << BUCKETS_LOG };
static const int64_t SECOND_NS = 1000000000, GRACE_NS = 100000000, RTCP_NS = 5000000000;
static const int64_t ANSWER_NS = 300000000; /* by then a firewall knows the caller's flow, and lets the callee's packets pass */

static struct {
    struct codec codec;
    enum medium medium;
    uint32_t calls, per_packet, round, numbers; /* calls in a packet; packets of a round, in which each call speaks once; rounds */
    double gap_ns, rtcp_gap_ns;
    int64_t duration_ns;
} plan;

struct stream {
    uint32_t direction, from, to;
    int sender, receivers[SOCKETS];
    uint32_t ports, sent, refused, arrived, rtcp_sent, rtcp_received, strangers;
    uint64_t overflowed;
    int64_t start_ns, behind_ns, finished_ns;
    double cost_ns[7]; /* time that a packet takes to be sent, in batches of 1, 2, 4, ...: each next one is stamped later by it */
    double costs_ns; /* of all packets */
    uint64_t delays[BUCKETS];
    struct account *accounts;
    struct stream *back; /* the other direction; null: none */
    pthread_t sending, receiving;
};

static atomic_bool drained;

static void die(const char *what)
{
    fprintf(stderr, "voip generator: %s: %s\n", what, strerror(errno));
    exit(2);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

/* Logarithmic buckets, 64 for each power of two: a percentile is right within 1.6 %. */
static size_t bucket_of(int64_t value)
{
    uint64_t size = value > 1 ? (uint64_t)value : 1;
    int power = 63 - __builtin_clzll(size);
    if (power < BUCKETS_LOG)
        return size;
    size_t bucket = (size_t)(power - BUCKETS_LOG + 1) << BUCKETS_LOG | (size >> (power - BUCKETS_LOG) & ((1U << BUCKETS_LOG) - 1));
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

static double percentile_ms(const struct stream *stream, double percent)
{
    uint64_t all = 0, below = 0;
    for (size_t bucket = 0; bucket < BUCKETS; bucket++)
        all += stream->delays[bucket];
    for (size_t bucket = 0; bucket < BUCKETS; bucket++) {
        below += stream->delays[bucket];
        if (below > 0 && (double)below >= (double)all * percent / 100) {
            size_t power = bucket >> BUCKETS_LOG, rest = bucket & ((1U << BUCKETS_LOG) - 1);
            return (power ? ldexp((double)(rest + (1U << BUCKETS_LOG)) + 0.5, (int)power - 1) : (double)rest) / 1e6;
        }
    }
    return 0;
}

static double *cost_of(struct stream *stream, unsigned count) { return &stream->cost_ns[31 - __builtin_clz(count)]; }

static void send_batch(struct stream *stream, struct mmsghdr *messages, unsigned count)
{
    int64_t before_ns = now_ns();
    for (unsigned done = 0; done < count;) {
        int sent = sendmmsg(stream->sender, messages + done, count - done, MSG_DONTWAIT);
        if (sent <= 0 && errno == EINTR)
            continue;
        stream->refused += sent <= 0; /* no route, no neighbour, no buffer: that packet is lost, and counts as lost */
        done += sent > 0 ? (unsigned)sent : 1;
    }
    double each_ns = (double)(now_ns() - before_ns) / count, *cost_ns = cost_of(stream, count);
    *cost_ns = *cost_ns == 0 ? each_ns : *cost_ns * (each_ns > *cost_ns ? 1.02 : 1 / 1.02); /* a running median: pre-emption counts little */
    stream->costs_ns += *cost_ns * count;
}

/* All calls' first reports in a second, so that firewalls in the path learn the flows early; then one report of each call in 5 s. */
static double rtcp_after_ns(uint32_t nth)
{
    double first_ns = (double)SECOND_NS / plan.calls * (nth + 1);
    return nth < plan.calls ? first_ns : (double)SECOND_NS + plan.rtcp_gap_ns * (nth - plan.calls + 1);
}

static void send_rtcp(struct stream *stream, uint32_t nth)
{
    uint8_t packet[IP_UDP_BYTES + RTCP_BYTES];
    uint32_t call = nth % plan.calls;
    uint16_t port = port_of(RTP, call) | RTCP_PORT_BIT;
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(stream->to + call) };
    uint32_t sent = stream->sent / plan.round + (call < stream->sent % plan.round);
    size_t bytes = put_rtcp(packet + IP_UDP_BYTES, stream->direction, call, sent, &plan.codec, now_ns(), &stream->back->accounts[call]);
    bytes = put_headers(packet, stream->from + call, stream->to + call, port, bytes);
    stream->rtcp_sent += sendto(stream->sender, packet, bytes, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to)) >= 0;
}

static void *send_all(void *argument)
{
    struct stream *stream = argument;
    static _Thread_local uint8_t packets[BATCH][MAX_PACKET];
    struct mmsghdr messages[BATCH] = { 0 };
    struct iovec parts[BATCH];
    struct sockaddr_in to[BATCH];
    double first_ns = (double)stream->start_ns;
    uint32_t planned = plan.round * plan.numbers, rtcp = 0;

    memset(packets, 0xd5, sizeof(packets)); /* silence in A-law */
    prctl(PR_SET_TIMERSLACK, 1UL);
    while (stream->sent < planned) {
        int64_t now = now_ns();
        if (now > stream->start_ns + plan.duration_ns + GRACE_NS)
            break; /* a generator that falls behind does not make its calls longer */
        while (plan.rtcp_gap_ns > 0 && (double)now >= first_ns + rtcp_after_ns(rtcp))
            send_rtcp(stream, rtcp++);
        double due = ((double)now - first_ns) / plan.gap_ns + 1;
        int64_t next_ns = (int64_t)(first_ns + plan.gap_ns * stream->sent) + 1;
        if (due < stream->sent + 1) {
            struct timespec when = { next_ns / SECOND_NS, next_ns % SECOND_NS };
            clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &when, NULL);
            continue;
        }
        stream->behind_ns = now - next_ns > stream->behind_ns ? now - next_ns : stream->behind_ns;
        uint32_t last = due < planned ? (uint32_t)due : planned, count = last - stream->sent;
        count = count < BATCH ? count : BATCH;
        now = now_ns();
        for (uint32_t index = 0; index < count; index++) {
            uint32_t packet = (stream->sent + index) % plan.round, call = packet * plan.per_packet;
            uint32_t rest = plan.calls - call, calls = rest < plan.per_packet ? rest : plan.per_packet;
            struct stamp stamp = { stream->direction, call, (stream->sent + index) / plan.round, now };
            stamp.sent_ns += (int64_t)(index * *cost_of(stream, count));
            size_t bytes = put_payload(packets[index] + IP_UDP_BYTES, plan.medium, &plan.codec, &stamp, calls);
            bytes = put_headers(packets[index], stream->from + packet, stream->to + packet, port_of(plan.medium, packet), bytes);
            to[index] = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(stream->to + packet) };
            parts[index] = (struct iovec){ packets[index], bytes };
            messages[index].msg_hdr = (struct msghdr){ &to[index], sizeof(to[index]), &parts[index], 1, NULL, 0, 0 };
        }
        send_batch(stream, messages, count);
        stream->sent += count;
    }
    stream->finished_ns = now_ns();
    return NULL;
}

static void take_frame(struct stream *stream, const uint8_t *speech, size_t bytes, uint32_t packet, int64_t at_ns)
{
    struct stamp stamp;
    if (!get_stamp(speech, bytes, stream->direction, plan.calls, &stamp) || stamp.call / plan.per_packet != packet ||
        !count_arrival(&stream->accounts[stamp.call], &stamp, at_ns, plan.numbers)) {
        stream->strangers++;
        return;
    }
    stream->delays[bucket_of(at_ns - stamp.sent_ns)]++;
}

/* Take a packet from the address of the `packet`th of a round. A packet that is no call's counts as a stranger's. */
static void take_packet(struct stream *stream, bool rtcp, const uint8_t *at, size_t bytes, uint32_t packet, int64_t at_ns)
{
    size_t head = plan.medium == RTP ? RTP_BYTES : MINI_BYTES, whole = plan.codec.speech_bytes;
    bool trunk = plan.medium == TRUNK && bytes >= TRUNK_BYTES && (bytes - TRUNK_BYTES) % (ENTRY_BYTES + whole) == 0;
    if (packet >= plan.round || (rtcp && bytes != RTCP_BYTES) || (!rtcp && plan.medium == TRUNK && !trunk)) {
        stream->strangers++;
    } else if (rtcp) {
        stream->rtcp_received++;
    } else if (!trunk) {
        take_frame(stream, at + head, bytes == head + whole ? whole : 0, packet, at_ns);
    } else {
        for (size_t offset = TRUNK_BYTES; offset < bytes; offset += ENTRY_BYTES + whole)
            take_frame(stream, at + offset + ENTRY_BYTES, whole, packet, at_ns);
    }
}

static int64_t arrival_ns(struct msghdr *message)
{
    struct cmsghdr *head = CMSG_FIRSTHDR(message); /* nothing but the time of arrival is asked for */
    struct timespec at;
    if (!head)
        return now_ns();
    memcpy(&at, CMSG_DATA(head), sizeof(at));
    return at.tv_sec * SECOND_NS + at.tv_nsec;
}

static void *receive_all(void *argument)
{
    struct stream *stream = argument;
    static _Thread_local uint8_t packets[BATCH][MAX_PACKET];
    uint64_t controls[BATCH][8];
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];
    struct sockaddr_in from[BATCH];
    struct epoll_event ready[SOCKETS];
    int poll = epoll_create1(EPOLL_CLOEXEC);

    for (uint32_t index = 0; index < stream->ports; index++) {
        struct epoll_event wanted = { .events = EPOLLIN, .data.u32 = index };
        if (poll < 0 || epoll_ctl(poll, EPOLL_CTL_ADD, stream->receivers[index], &wanted) < 0)
            die("epoll");
    }
    while (!atomic_load(&drained)) {
        int count = epoll_wait(poll, ready, SOCKETS, 20);
        for (int each = 0; each < count; each++) {
            for (int index = 0; index < BATCH; index++) {
                parts[index] = (struct iovec){ packets[index], MAX_PACKET };
                messages[index].msg_hdr = (struct msghdr){ &from[index], sizeof(*from), &parts[index], 1, controls[index], sizeof(*controls), 0 };
            }
            uint32_t socket = ready[each].data.u32;
            int got = recvmmsg(stream->receivers[socket], messages, BATCH, MSG_DONTWAIT, NULL);
            stream->arrived += got > 0 ? (uint32_t)got : 0;
            for (int index = 0; index < got; index++) {
                uint32_t packet = ntohl(from[index].sin_addr.s_addr) - stream->from;
                int64_t at_ns = arrival_ns(&messages[index].msg_hdr);
                take_packet(stream, socket & RTCP_PORT_BIT, packets[index], messages[index].msg_len, packet, at_ns);
            }
        }
    }
    for (uint32_t index = 0; index < stream->ports; index++) {
        uint32_t figures[SK_MEMINFO_VARS] = { 0 };
        socklen_t size = sizeof(figures);
        if (getsockopt(stream->receivers[index], SOL_SOCKET, SO_MEMINFO, figures, &size) == 0)
            stream->overflowed += figures[SK_MEMINFO_DROPS];
    }
    return NULL;
}

/* Odd sockets are for RTCP: the port above that of RTP. */
static void open_receivers(struct stream *stream)
{
    stream->ports = plan.medium == RTP ? SOCKETS : 1;
    for (uint32_t index = 0; index < stream->ports; index++) {
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)((plan.medium == RTP ? RTP_PORT : IAX2_PORT) + index)) };
        int bytes = 1 << 23, yes = 1, made = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (made < 0 || bind(made, (struct sockaddr *)&at, sizeof(at)) < 0)
            die("a UDP port of the calls");
        setsockopt(made, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
        if (setsockopt(made, SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof(yes)) < 0)
            die("times of arrival");
        stream->receivers[index] = made;
    }
}

static void print_stream(const struct stream *stream, bool last)
{
    double took_s = (double)(stream->finished_ns - stream->start_ns) / 1e9;
    printf("\"%s\": {\"planned\": %u, \"sent\": %u, \"refused\": %u, \"arrived\": %u, \"took_s\": %.4f, \"behind_ms\": %.3f, \"packet_us\": %.3f, "
           "\"rtcp_sent\": %u, \"rtcp_received\": %u, \"strangers\": %u, \"overflowed\": %llu, "
           "\"delay_p50_ms\": %.4f, \"delay_p99_ms\": %.4f, \"calls\": [",
           stream->direction ? "in" : "out", plan.round * plan.numbers, stream->sent, stream->refused, stream->arrived, took_s,
           (double)stream->behind_ns / 1e6, stream->costs_ns / (stream->sent ? stream->sent : 1) / 1e3, stream->rtcp_sent, stream->rtcp_received, stream->strangers,
           (unsigned long long)stream->overflowed, percentile_ms(stream, 50), percentile_ms(stream, 99));
    for (uint32_t call = 0; call < plan.calls; call++) {
        const struct account *account = &stream->accounts[call];
        uint32_t packet = call / plan.per_packet, sent = stream->sent / plan.round + (packet < stream->sent % plan.round);
        uint32_t received = account->received, lost, runs, longest;
        find_losses(account, sent, &lost, &runs, &longest);
        printf("%s[%u, %u, %u, %u, %u, %u, %u, %u, %u, %.1f, %.1f]", call ? ", " : "", sent, received, lost, runs, longest, account->highest,
               account->duplicates, account->reordered, account->late, account->jitter_ns / 1e3,
               received ? account->delays_ns / received / 1e3 : 0.0);
    }
    printf("]}%s\n", last ? "" : ",");
}

static uint32_t number(const char *text, uint32_t least, uint32_t most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end || end == text || value < least || value > most) {
        fprintf(stderr, "voip generator: %s: a number from %u to %u is needed\n", text, least, most);
        exit(2);
    }
    return (uint32_t)value;
}

int main(int argc, char **argv)
{
    static struct stream streams[2];
    static const char *const media[] = { "rtp", "iax2", "trunk" };
    if (argc != 11)
        die("ten arguments are needed");
    plan.calls = number(argv[3], 1, MAX_CALLS);
    plan.codec = (struct codec){ number(argv[4], STAMP_BYTES, 320), number(argv[5], 5, 200), (uint8_t)number(argv[6], 0, 127) };
    while (plan.medium < TRUNK && strcmp(argv[7], media[plan.medium]) != 0)
        plan.medium++;
    bool out = strcmp(argv[9], "in") != 0, in = strcmp(argv[9], "out") != 0, with_rtcp = number(argv[10], 0, 1) && out && in;
    uint32_t seconds = number(argv[8], 1, 3600);
    int buffer_bytes = 1 << 23;
    plan.per_packet = calls_in_packet(plan.medium, plan.codec.speech_bytes);
    plan.round = (plan.calls + plan.per_packet - 1) / plan.per_packet;
    plan.numbers = seconds * 1000 / plan.codec.packet_ms;
    plan.gap_ns = plan.codec.packet_ms * 1e6 / plan.round;
    plan.rtcp_gap_ns = with_rtcp && plan.medium == RTP ? (double)RTCP_NS / plan.calls : 0;

    for (uint32_t end = 0; end < 2; end++) {
        struct stream *stream = &streams[end];
        stream->direction = end;
        stream->from = 0xc6120001 + 0x10000 * end;
        stream->to = 0xc6120001 + 0x10000 * !end;
        stream->back = &streams[!end];
        stream->accounts = calloc(plan.calls, sizeof(struct account));
        uint8_t *seen = calloc(plan.calls, plan.numbers / 8 + 1);
        if (!stream->accounts || !seen)
            die("memory");
        for (uint32_t call = 0; call < plan.calls; call++)
            stream->accounts[call].seen = seen + (size_t)call * (plan.numbers / 8 + 1);
    }
    for (uint32_t end = 0; end < 2; end++) {
        int namespace = open(argv[1 + end], O_RDONLY | O_CLOEXEC);
        if (namespace < 0 || setns(namespace, CLONE_NEWNET) < 0)
            die(argv[1 + end]);
        streams[end].sender = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
        if (streams[end].sender < 0)
            die("a raw socket");
        setsockopt(streams[end].sender, SOL_SOCKET, SO_SNDBUFFORCE, &buffer_bytes, sizeof(buffer_bytes));
        open_receivers(&streams[!end]);
    }
    plan.duration_ns = seconds * SECOND_NS;
    streams[0].start_ns = now_ns() + GRACE_NS;
    streams[1].start_ns = streams[0].start_ns + (out ? ANSWER_NS : 0) + (int64_t)plan.gap_ns / 2;
    for (uint32_t end = 0; end < 2; end++) {
        if (pthread_create(&streams[end].receiving, NULL, receive_all, &streams[end]) ||
            ((end ? in : out) && pthread_create(&streams[end].sending, NULL, send_all, &streams[end])))
            die("a thread");
    }
    for (uint32_t end = !out; end <= (uint32_t)in; end++)
        pthread_join(streams[end].sending, NULL);
    usleep(DRAIN_US);
    atomic_store(&drained, true);
    printf("{");
    for (uint32_t end = 0; end < 2; end++) {
        pthread_join(streams[end].receiving, NULL);
        if (end ? in : out)
            print_stream(&streams[end], end || !in);
    }
    printf("}\n");
    return 0;
}
