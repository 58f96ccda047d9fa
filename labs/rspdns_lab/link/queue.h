/* The queue before a link's transmitter: drop-tail, RED, CHOKe, REDFavor. It has no clock and no input or output of
 * its own, so a trace of arrivals can be replayed through it. */
#ifndef RSPDNS_LAB_QUEUE_H
#define RSPDNS_LAB_QUEUE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct packet {
    struct packet *next; /* on the way behind the transmitter */
    uint64_t due_ns;
    uint64_t flow; /* alike for packets of one flow and direction */
    uint32_t length; /* IP packet in bytes, without the Ethernet header */
    bool is_syn; /* SYN or SYN-ACK of TCP */
    uint32_t number; /* in a replay */
    uint32_t size; /* of the frame */
    unsigned char frame[];
};

enum discipline { DROP_TAIL, RED, CHOKE, RED_FAVOR };

enum reason { FULL, EARLY, MATCHED, DISPLACED, REASONS }; /* MATCHED: by CHOKe; DISPLACED: by a SYN, in REDFavor */

struct setting { /* doubles only: link.c reads them in this order, which is LinkSetting's */
    double rate_bps; /* 0: unlimited */
    double delay_ms;
    double loss; /* a share, 0 to 1 */
    double queue; /* packets; the one being sent is none of them */
    double discipline;
    double min, max; /* thresholds of the average queue, in packets */
    double weight; /* of a new sample in the average */
    double max_p; /* the probability of a drop where the average reaches `max` */
    double gentle; /* 1: the probability grows from max_p to 1 between `max` and twice `max`; 0: it jumps to 1 */
    double wait; /* 1: at least 1/p packets pass between two drops, ns-2's `wait_`; 0: as in Linux */
    double mean_packet; /* bytes: how many packets an idle transmitter could have sent */
    double syn_share; /* REDFavor favours SYNs up to this share of the rate; 1: all of them, as published */
};

/* The queue hands every packet that it drops to `drop`, which owns it from then on. */
typedef void drop_function(void *context, struct packet *packet, enum reason reason);

struct queue {
    struct setting setting;
    drop_function *drop;
    void *context;
    uint64_t random;
    double average;
    int64_t since_drop; /* packets that arrived since RED's last drop */
    bool between; /* the last packet met an average between the thresholds */
    bool is_idle;
    uint64_t idle_since_ns;
    double syn_credit; /* bytes of SYNs that may be favoured now */
    uint64_t credit_ns;
    unsigned count, favoured; /* the first `favoured` packets are SYNs */
    struct packet *packets[];
};

enum { NS_PER_S = 1000000000, NS_PER_MS = 1000000, CREDIT_BYTES = 1500 };

static struct queue *queue_new(const struct setting *setting, uint64_t seed, drop_function *drop, void *context)
{
    struct queue *queue = calloc(1, sizeof *queue + (size_t)setting->queue * sizeof queue->packets[0]);
    if (!queue)
        return NULL;
    queue->setting = *setting;
    queue->random = seed;
    queue->drop = drop;
    queue->context = context;
    queue->is_idle = true;
    queue->syn_credit = CREDIT_BYTES;
    return queue;
}

static void queue_free(struct queue *queue)
{
    for (unsigned at = 0; at < queue->count; at++)
        free(queue->packets[at]);
    free(queue);
}

static unsigned queue_length(const struct queue *queue) { return queue->count; }

/* A random number from 0 to 1, never 1: splitmix64. */
static double queue_random(struct queue *queue)
{
    uint64_t mixed = queue->random += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return (double)((mixed ^ (mixed >> 31)) >> 11) * 0x1p-53;
}

static void insert(struct queue *queue, unsigned at, struct packet *packet)
{
    memmove(&queue->packets[at + 1], &queue->packets[at], (queue->count - at) * sizeof queue->packets[0]);
    queue->packets[at] = packet;
    queue->count++;
}

static struct packet *pull(struct queue *queue, unsigned at)
{
    struct packet *packet = queue->packets[at];
    queue->count--;
    queue->favoured -= at < queue->favoured;
    memmove(&queue->packets[at], &queue->packets[at + 1], (queue->count - at) * sizeof queue->packets[0]);
    return packet;
}

/* NULL: the queue is empty; the transmitter is idle from then on. */
static struct packet *queue_take(struct queue *queue, uint64_t now_ns)
{
    if (queue->count)
        return pull(queue, 0);
    if (!queue->is_idle) {
        queue->is_idle = true;
        queue->idle_since_ns = now_ns;
    }
    return NULL;
}

/* The average ages while the transmitter is idle, by a packet for each that it could have sent. */
static void estimate(struct queue *queue, uint64_t now_ns)
{
    const struct setting *setting = &queue->setting;
    double packets = 1;
    if (queue->is_idle && setting->rate_bps > 0)
        packets += floor((double)(now_ns - queue->idle_since_ns) / NS_PER_S * setting->rate_bps / 8 / setting->mean_packet);
    queue->is_idle = false;
    queue->average = queue->average * pow(1 - setting->weight, packets) + setting->weight * queue->count;
}

/* ns-2's modify_p(): drops come at even distances, not in clusters. */
static double spread(double p, double since_drop, bool wait)
{
    double passed = since_drop * p;
    if (!wait)
        return passed < 1 ? fmin(1, p / (1 - passed)) : 1;
    if (passed < 1)
        return 0;
    return passed < 2 ? fmin(1, p / (2 - passed)) : 1;
}

static bool red_drops(struct queue *queue)
{
    const struct setting *setting = &queue->setting;
    double average = queue->average, p;
    queue->since_drop++;
    if (average < setting->min || queue->count <= 1) {
        queue->between = false;
        return false;
    }
    if (average >= (setting->gentle ? 2 : 1) * setting->max) {
        queue->since_drop = 0;
        return true;
    }
    if (!queue->between) {
        queue->between = true;
        queue->since_drop = 1;
        return false;
    }
    if (average < setting->max)
        p = setting->max_p * (average - setting->min) / (setting->max - setting->min);
    else
        p = setting->max_p + (1 - setting->max_p) * (average - setting->max) / setting->max;
    if (queue_random(queue) >= spread(p, (double)queue->since_drop, setting->wait))
        return false;
    queue->since_drop = 0;
    return true;
}

/* CHOKe: a flow that has much in the queue meets itself often. */
static bool meets_its_flow(struct queue *queue, const struct packet *packet)
{
    if (queue->average < queue->setting.min || !queue->count)
        return false;
    unsigned at = (unsigned)(queue_random(queue) * queue->count);
    if (queue->packets[at]->flow != packet->flow)
        return false;
    queue->drop(queue->context, pull(queue, at), MATCHED);
    return true;
}

static bool has_credit(struct queue *queue, const struct packet *syn, uint64_t now_ns)
{
    const struct setting *setting = &queue->setting;
    if (setting->syn_share >= 1)
        return true;
    double rate = setting->syn_share * setting->rate_bps / 8;
    double earned = (double)(now_ns - queue->credit_ns) / NS_PER_S * rate;
    queue->syn_credit = fmin(queue->syn_credit + earned, fmax(CREDIT_BYTES, rate / 10));
    queue->credit_ns = now_ns;
    if (queue->syn_credit < syn->length)
        return false;
    queue->syn_credit -= syn->length;
    return true;
}

static void queue_put(struct queue *queue, struct packet *packet, uint64_t now_ns)
{
    enum discipline discipline = (enum discipline)queue->setting.discipline;
    bool is_favoured = discipline == RED_FAVOR && packet->is_syn && has_credit(queue, packet, now_ns);
    estimate(queue, now_ns);
    if (discipline == CHOKE && meets_its_flow(queue, packet)) {
        queue->drop(queue->context, packet, MATCHED);
        return;
    }
    bool is_early = discipline != DROP_TAIL && red_drops(queue);
    bool is_full = !is_early && queue->count >= (unsigned)queue->setting.queue;
    if (is_full)
        queue->since_drop = 0;
    if (is_early || is_full) {
        if (!is_favoured || queue->favoured == queue->count) {
            queue->drop(queue->context, packet, is_full ? FULL : EARLY);
            return;
        }
        queue->drop(queue->context, pull(queue, queue->count - 1), DISPLACED);
    }
    insert(queue, is_favoured ? queue->favoured++ : queue->count, packet);
}

#endif
