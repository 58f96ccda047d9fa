/* The queue before a link's transmitter: drop-tail, RED, CHOKe, REDFavor. It has no clock and no input or output of
 * its own, so a trace of arrivals can be replayed through it. */
#ifndef RSPDNS_LAB_QUEUE_H
#define RSPDNS_LAB_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

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

struct setting {
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

struct queue;

/* The queue hands every packet that it drops to `drop`, which owns it from then on. */
typedef void drop_function(void *context, struct packet *packet, enum reason reason);

struct queue *queue_new(const struct setting *setting, uint64_t seed, drop_function *drop, void *context);
void queue_free(struct queue *queue);
void queue_put(struct queue *queue, struct packet *packet, uint64_t now_ns);
/* NULL: the queue is empty; the transmitter is idle from then on. */
struct packet *queue_take(struct queue *queue, uint64_t now_ns);
unsigned queue_length(const struct queue *queue);
double queue_average(const struct queue *queue);
/* A random number from 0 to 1, never 1. */
double queue_random(struct queue *queue);

#endif
