/* An emulated link between two TAP devices: rate, delay, loss and a queue in each direction.
 *
 *     link DEVICE DEVICE COUNTERS SEED THERE BACK     the frames of each device go to the other one
 *
 * THERE and BACK are settings: the numbers of `struct setting`, in their order, between commas. COUNTERS is a file with the
 * counters of both directions. The kernel segments and sums up what it sends to a TAP device, so frames are those of a real
 * Ethernet. */
#define _GNU_SOURCE
#include "queue.h"

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { FRAME_MOST = 65536, READS_MOST = 64, ON_THE_WAY_MOST = 200000 };

/* rspdns_lab/link/__init__.py reads these: keep both alike. `dropped` counts by reason, `syns_dropped` all reasons. */
struct counters {
    uint64_t arrived, delivered, delivered_bytes, lost, dropped[REASONS], syns, syns_dropped;
    uint64_t length; /* of the queue now */
    uint64_t late; /* delivered more than 1 ms too late: this machine is too busy */
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

/* For a replay of the tests: each packet's fate, and when it was delivered or lost. */
static void (*on_fate)(const struct packet *packet, uint64_t at_ns, const char *fate);

static void drop(void *context, struct packet *packet, enum reason reason)
{
    static const char *const names[REASONS] = {"full", "early", "matched", "displaced"};
    struct way *way = context;
    way->counters->dropped[reason]++;
    way->counters->syns_dropped += packet->is_syn;
    if (on_fate)
        on_fate(packet, 0, names[reason]);
    free(packet);
}

/* The numbers have names in LinkSetting alone. */
static struct setting parse(const char *text)
{
    struct setting setting;
    double *numbers = (double *)&setting;
    size_t count = sizeof setting / sizeof *numbers;
    char *rest = (char *)text;
    for (size_t at = 0; at < count; at++) {
        const char *from = at ? rest + 1 : rest;
        numbers[at] = strtod(from, &rest);
        if (rest == from || *rest != (at + 1 < count ? ',' : '\0') || !(numbers[at] >= 0 && numbers[at] <= 1e11))
            errx(2, "not the numbers of a setting: %s", text);
    }
    if (!(setting.queue >= 1 && setting.queue <= 1e5 && setting.discipline <= RED_FAVOR && setting.delay_ms <= 6e4))
        errx(2, "no such queue, or too long a delay: %s", text);
    if (!(setting.max > setting.min && setting.weight > 0 && setting.weight <= 1 && setting.mean_packet >= 1))
        errx(2, "RED can't work so: %s", text);
    return setting;
}

static void open_way(struct way *way, const char *text, uint64_t seed, struct counters *counters)
{
    *way = (struct way){.setting = parse(text), .counters = counters, .end = &way->first, .from = -1, .to = -1};
    way->queue = queue_new(&way->setting, seed, drop, way);
    if (!way->queue)
        err(2, "a queue");
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
            if (on_fate)
                on_fate(packet, way->free_ns, "lost");
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
        way->counters->late += now_ns - packet->due_ns > NS_PER_MS;
        if (way->to < 0 || write(way->to, packet->frame, packet->size) >= 0) {
            way->counters->delivered++;
            way->counters->delivered_bytes += packet->length;
            if (on_fate)
                on_fate(packet, packet->due_ns, "delivered");
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
    uint32_t left = packet->size > ETH_HLEN ? packet->size - ETH_HLEN : 0;
    packet->length = left ? left : 1;
    packet->flow = mixed(0xcbf29ce484222325, packet->frame, packet->size < ETH_HLEN ? packet->size : ETH_HLEN);
    if (left < 20 || packet->frame[12] != 0x08 || packet->frame[13] != 0x00 || ip[0] >> 4 != 4)
        return; /* the labs have no IPv6 */
    uint32_t header = (ip[0] & 15) * 4u;
    packet->flow = mixed(packet->flow, ip + 12, 8);
    if ((ip[6] & 0x1f) || ip[7] || header < 20 || left < header + 4) /* a fragment, and not the first */
        return;
    packet->flow = mixed(mixed(packet->flow, ip + header, 4), ip + 9, 1);
    packet->is_syn = ip[9] == IPPROTO_TCP && left >= header + 14 && (ip[header + 13] & 2);
}

static struct packet *new_packet(size_t size)
{
    struct packet *packet = calloc(1, sizeof *packet + size);
    if (!packet)
        err(2, "a packet");
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
        err(2, "/dev/net/tun");
    if (strlen(name) >= sizeof request.ifr_name)
        errx(2, "name of a device is too long: %s", name);
    memcpy(request.ifr_name, name, strlen(name) + 1);
    if (ioctl(device, TUNSETIFF, &request) < 0)
        err(2, "the device %s", name);
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
            err(2, "frames");
    }
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
    if (argc != 7)
        errx(2, "usage: link DEVICE DEVICE COUNTERS SEED THERE BACK");
    int file = open(argv[3], O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    struct counters *counters = NULL;
    if (file >= 0 && ftruncate(file, 2 * sizeof *counters) == 0)
        counters = mmap(NULL, 2 * sizeof *counters, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (!counters || counters == MAP_FAILED)
        err(2, "%s", argv[3]);
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
