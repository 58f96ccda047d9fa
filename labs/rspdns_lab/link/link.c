/* An emulated link between two TAP devices: rate, delay, loss and a queue in each direction.
 *
 *     link DEVICE DEVICE COUNTERS SEED THERE BACK     the frames of each device go to the other one
 *     link replay SEED THERE <trace                    a trace on a clock of its own
 *
 * THERE and BACK are settings, `rate_bps=1e6,queue=50`; COUNTERS is a file with the counters of both directions. A line
 * of a trace is `time_us flow length syn`, in order of time; each packet's fate is printed: `number time_us delivered`,
 * or `lost`, `full`, `early`, `matched`, `displaced`. The kernel segments and sums up what it sends to a TAP
 * device, so frames are those of a real Ethernet. */
#define _GNU_SOURCE
#include "queue.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_ether.h>
#include <linux/if_tun.h>
#include <math.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { NS_PER_S = 1000000000, NS_PER_MS = 1000000, FRAME_MOST = 65536, READS_MOST = 64, ON_THE_WAY_MOST = 200000 };

/* rspdns_lab/link/__init__.py reads these: keep both alike. `dropped` counts by reason, `syns_dropped` all reasons. */
struct counters {
    uint64_t arrived, delivered, delivered_bytes, lost, dropped[REASONS], syns, syns_dropped;
    uint64_t length, average_x1000; /* the queue now */
    uint64_t late, late_most_us; /* delivered more than 1 ms too late: this machine is too busy */
};

struct way {
    struct setting setting;
    struct queue *queue;
    struct counters *counters;
    uint64_t free_ns; /* when the transmitter is done with the last packet */
    struct packet *first, **end;
    unsigned on_the_way;
    int from, to; /* -1 in a replay */
};

static volatile sig_atomic_t is_over;

static void end(int number)
{
    (void)number;
    is_over = 1;
}

static _Noreturn void fail(const char *what, const char *name)
{
    fprintf(stderr, "link: %s %s: %s\n", what, name, strerror(errno));
    exit(2);
}

static _Noreturn void refuse(const char *what, const char *text)
{
    fprintf(stderr, "link: %s: %s\n", what, text);
    exit(2);
}

static void report(const struct way *way, const struct packet *packet, uint64_t at_ns, const char *fate)
{
    if (way->to < 0)
        printf("%" PRIu32 " %" PRIu64 " %s\n", packet->number, at_ns / 1000, fate);
}

static uint64_t replayed_ns;

static void drop(void *context, struct packet *packet, enum reason reason)
{
    static const char *const names[REASONS] = {"full", "early", "matched", "displaced"};
    struct way *way = context;
    way->counters->dropped[reason]++;
    way->counters->syns_dropped += packet->is_syn;
    report(way, packet, replayed_ns, names[reason]);
    free(packet);
}

/* Parsing of settings */

static const struct {
    const char *name;
    size_t offset;
    double least, most, usual;
} keys[] = {
#define KEY(name, least, most, usual) {#name, offsetof(struct setting, name), least, most, usual}
    KEY(rate_bps, 0, 1e11, 0),   KEY(delay_ms, 0, 60000, 0), KEY(loss, 0, 1, 0),
    KEY(queue, 1, 100000, 1000), KEY(discipline, 0, 3, 0),   KEY(min, 0, 100000, 5),
    KEY(max, 1, 100000, 15),     KEY(weight, 1e-9, 1, 0.002), KEY(max_p, 1e-9, 1, 0.1),
    KEY(gentle, 0, 1, 1),        KEY(wait, 0, 1, 1),         KEY(mean_packet, 1, 65536, 500),
    KEY(syn_share, 0, 1, 1),
};

static double *value(struct setting *setting, size_t key) { return (double *)((char *)setting + keys[key].offset); }

static struct setting parse(char *text)
{
    struct setting setting;
    size_t count = sizeof keys / sizeof keys[0], key;
    for (key = 0; key < count; key++)
        *value(&setting, key) = keys[key].usual;
    for (char *item = strtok(text, ","); item; item = strtok(NULL, ",")) {
        char *number = strchr(item, '='), *rest;
        if (!number)
            refuse("no key=value", item);
        *number++ = '\0';
        for (key = 0; key < count && strcmp(keys[key].name, item); key++)
            ;
        if (key == count)
            refuse("no such key", item);
        double got = *value(&setting, key) = strtod(number, &rest);
        if (rest == number || *rest || !(got >= keys[key].least && got <= keys[key].most))
            refuse(item, "not a number in its range");
    }
    if (setting.max <= setting.min)
        refuse("max", "not above min");
    return setting;
}

static void open_way(struct way *way, char *text, uint64_t seed, struct counters *counters)
{
    *way = (struct way){.setting = parse(text), .counters = counters, .end = &way->first, .from = -1, .to = -1};
    way->queue = queue_new(&way->setting, seed, drop, way);
    if (!way->queue)
        fail("no memory for", "a queue");
}

/* The link */

/* Send what the transmitter has begun to send until `now_ns`, at the time when it was free, however late this is. */
static void transmit(struct way *way, uint64_t now_ns)
{
    struct packet *packet;
    while (way->free_ns <= now_ns && (packet = queue_take(way->queue, way->free_ns))) {
        if (way->setting.rate_bps > 0)
            way->free_ns += (uint64_t)llround(packet->length * 8.0 * NS_PER_S / way->setting.rate_bps);
        if (way->setting.loss > 0 && queue_random(way->queue) < way->setting.loss) {
            way->counters->lost++;
            report(way, packet, way->free_ns, "lost");
            free(packet);
            continue;
        }
        packet->due_ns = way->free_ns + (uint64_t)(way->setting.delay_ms * NS_PER_MS);
        packet->next = NULL;
        *way->end = packet;
        way->end = &packet->next;
        way->on_the_way++;
    }
}

static void deliver(struct way *way, uint64_t now_ns)
{
    struct packet *packet;
    while ((packet = way->first) && packet->due_ns <= now_ns) {
        if (!(way->first = packet->next))
            way->end = &way->first;
        way->on_the_way--;
        uint64_t late_us = (now_ns - packet->due_ns) / 1000;
        way->counters->late += late_us > 1000;
        if (late_us > way->counters->late_most_us)
            way->counters->late_most_us = late_us;
        if (way->to < 0 || write(way->to, packet->frame, packet->size) >= 0) {
            way->counters->delivered++;
            way->counters->delivered_bytes += packet->length;
            report(way, packet, packet->due_ns, "delivered");
            free(packet);
        } else { /* the device is down, or its queue is full */
            drop(way, packet, FULL);
        }
    }
}

static void advance(struct way *way, uint64_t now_ns)
{
    transmit(way, now_ns);
    deliver(way, now_ns);
    way->counters->length = queue_length(way->queue);
    way->counters->average_x1000 = (uint64_t)(queue_average(way->queue) * 1000);
}

static void arrive(struct way *way, struct packet *packet, uint64_t now_ns)
{
    way->counters->arrived++;
    way->counters->syns += packet->is_syn;
    transmit(way, now_ns);
    if (!queue_length(way->queue) && way->free_ns < now_ns)
        way->free_ns = now_ns;
    if (way->on_the_way < ON_THE_WAY_MOST)
        queue_put(way->queue, packet, now_ns);
    else
        drop(way, packet, FULL);
    transmit(way, now_ns);
}

/* The time of the next thing to do; UINT64_MAX: nothing. */
static uint64_t next_ns(const struct way *way)
{
    uint64_t next = way->first ? way->first->due_ns : UINT64_MAX;
    return queue_length(way->queue) && way->free_ns < next ? way->free_ns : next;
}

/* Packets */

static uint64_t mixed(uint64_t hash, const unsigned char *bytes, size_t count) /* FNV-1a */
{
    while (count--)
        hash = (hash ^ *bytes++) * 0x100000001b3;
    return hash;
}

/* Find length, flow and SYN in a frame, whatever it holds. */
static void dissect(struct packet *packet)
{
    const unsigned char *ip = packet->frame + ETH_HLEN;
    uint32_t left = packet->size > ETH_HLEN ? packet->size - ETH_HLEN : 0, header;
    unsigned protocol;
    packet->length = left ? left : 1;
    packet->flow = mixed(0xcbf29ce484222325, packet->frame, packet->size < ETH_HLEN ? packet->size : ETH_HLEN);
    if (left >= 20 && packet->frame[12] == 0x08 && packet->frame[13] == 0x00 && ip[0] >> 4 == 4) {
        header = (ip[0] & 15) * 4u;
        protocol = ip[9];
        packet->flow = mixed(packet->flow, ip + 12, 8);
        if ((ip[6] & 0x1f) || ip[7]) /* a fragment, and not the first */
            return;
    } else if (left >= 40 && packet->frame[12] == 0x86 && packet->frame[13] == 0xdd) {
        header = 40;
        protocol = ip[6];
        packet->flow = mixed(packet->flow, ip + 8, 32);
    } else {
        return;
    }
    if (header < 20 || left < header + 4)
        return;
    packet->flow = mixed(mixed(packet->flow, ip + header, 4), (unsigned char[]){(unsigned char)protocol}, 1);
    packet->is_syn = protocol == IPPROTO_TCP && left >= header + 14 && (ip[header + 13] & 2);
}

static struct packet *new_packet(size_t size)
{
    struct packet *packet = calloc(1, sizeof *packet + size);
    if (!packet)
        fail("no memory for", "a packet");
    packet->size = (uint32_t)size;
    return packet;
}

static void read_frames(struct way *way, uint64_t now_ns)
{
    static unsigned char frame[FRAME_MOST];
    ssize_t size;
    for (int reads = 0; reads < READS_MOST && (size = read(way->from, frame, sizeof frame)) > 0; reads++) {
        struct packet *packet = new_packet((size_t)size);
        memcpy(packet->frame, frame, (size_t)size);
        dissect(packet);
        arrive(way, packet, now_ns);
    }
}

static int open_tap(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (device < 0)
        fail("can't open", "/dev/net/tun");
    if (strlen(name) >= sizeof request.ifr_name)
        refuse("name of a device is too long", name);
    memcpy(request.ifr_name, name, strlen(name) + 1);
    if (ioctl(device, TUNSETIFF, &request) < 0)
        fail("can't make the device", name);
    return device;
}

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void emulate(struct way ways[2])
{
    struct pollfd polled[2] = {{ways[0].from, POLLIN, 0}, {ways[1].from, POLLIN, 0}};
    while (!is_over) {
        uint64_t now_ns = clock_ns(), due_ns = UINT64_MAX;
        for (int at = 0; at < 2; at++) {
            advance(&ways[at], now_ns);
            if (polled[at].revents)
                read_frames(&ways[at], now_ns);
            if (next_ns(&ways[at]) < due_ns)
                due_ns = next_ns(&ways[at]);
        }
        uint64_t left_ns = due_ns > (now_ns = clock_ns()) ? due_ns - now_ns : 0;
        struct timespec left = {(time_t)(left_ns / NS_PER_S), (long)(left_ns % NS_PER_S)};
        polled[0].revents = polled[1].revents = 0;
        if (ppoll(polled, 2, due_ns == UINT64_MAX ? NULL : &left, NULL) < 0 && errno != EINTR)
            fail("can't wait for", "frames");
    }
}

static void replay(struct way *way)
{
    double time_us, last_us = 0;
    uint64_t next, flow;
    uint32_t length, number = 0;
    int syn, got;
    while ((got = scanf("%lf %" SCNu64 " %" SCNu32 " %d", &time_us, &flow, &length, &syn)) == 4) {
        if (!(time_us >= last_us && time_us < 1e15))
            refuse("trace", "times go back");
        last_us = time_us;
        uint64_t now_ns = (uint64_t)(time_us * 1000);
        while ((next = next_ns(way)) <= now_ns)
            advance(way, replayed_ns = next);
        struct packet *packet = new_packet(0);
        *packet = (struct packet){.flow = flow, .length = length, .is_syn = syn, .number = number++};
        arrive(way, packet, replayed_ns = now_ns);
    }
    if (got != EOF)
        refuse("trace", "a line is not `time_us flow length syn`");
    while ((next = next_ns(way)) != UINT64_MAX)
        advance(way, next);
}

static void close_way(struct way *way)
{
    for (struct packet *packet; (packet = way->first); free(packet))
        way->first = packet->next;
    queue_free(way->queue);
}

int main(int argc, char **argv)
{
    struct way ways[2];
    if (argc == 4 && !strcmp(argv[1], "replay")) {
        struct counters counters = {0};
        open_way(&ways[0], argv[3], strtoull(argv[2], NULL, 10), &counters);
        replay(&ways[0]);
        close_way(&ways[0]);
        return 0;
    }
    if (argc != 7)
        refuse("usage", "link DEVICE DEVICE COUNTERS SEED THERE BACK, or link replay SEED THERE");
    int file = open(argv[3], O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    struct counters *counters = NULL;
    if (file < 0 || ftruncate(file, 2 * sizeof *counters) < 0)
        fail("can't make", argv[3]);
    counters = mmap(NULL, 2 * sizeof *counters, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (counters == MAP_FAILED)
        fail("can't map", argv[3]);
    for (int at = 0; at < 2; at++)
        open_way(&ways[at], argv[5 + at], strtoull(argv[4], NULL, 10) + (uint64_t)at, &counters[at]);
    ways[0].from = ways[1].to = open_tap(argv[1]);
    ways[1].from = ways[0].to = open_tap(argv[2]);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = end}, NULL);
    /* A link that waits for a processor has another delay. A host that does not allow it is only less exact. */
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
    prctl(PR_SET_TIMERSLACK, 1UL);
    puts("ready");
    fflush(stdout);
    emulate(ways);
    close_way(&ways[0]);
    close_way(&ways[1]);
    return 0;
}
