/* The packets of synthetic calls, and what their receiver makes of them. Pure: no sockets, no clocks.
 *
 * A packet is an IPv4 datagram with UDP: RTP (RFC 3550), a mini frame of IAX2 (RFC 5456, section 8.1.2), or a trunk frame of IAX2
 * with time stamps (section 8.1.3), which carries the speech of several calls. The speech begins with a stamp by which the
 * receiver knows call, number and time of sending. */
#ifndef RSPDNS_LAB_VOIP_FRAMES_H
#define RSPDNS_LAB_VOIP_FRAMES_H

#include <arpa/inet.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum medium { RTP, IAX2, TRUNK };
enum {
    IP_UDP_BYTES = 28, RTP_BYTES = 12, MINI_BYTES = 4, TRUNK_BYTES = 8, ENTRY_BYTES = 6, STAMP_BYTES = 20,
    RTCP_BYTES = 8 + 20 + 24 + 16, /* sender report with a report block; SDES with a CNAME of 4 octets */
    TRUNK_LIMIT = 1240, /* Asterisk's trunkmtu */
    RTP_PORT = 16384, RTP_PORTS = 16, IAX2_PORT = 4569, MAX_PACKET = 1500
};
static const uint32_t MAGIC = 0x766f6970;
static const int64_t LATE_NS = 40000000; /* what a jitter buffer waits for */

struct codec {
    uint32_t speech_bytes; /* in a packet of one call */
    uint32_t packet_ms;
    uint8_t rtp_type;
};

struct stamp {
    uint32_t direction, call, number;
    int64_t sent_ns;
};

/* Receiver's account of a call in one direction. The other direction's RTCP reads the atomic fields. */
struct account {
    _Atomic uint32_t received, highest, jitter_us;
    uint32_t duplicates, reordered, late;
    int64_t least_ns, last_ns;
    double jitter_ns, delays_ns;
    uint8_t *seen; /* a bit for each number */
};

static inline void put16(uint8_t *at, uint32_t value) { uint16_t wire = htons((uint16_t)value); memcpy(at, &wire, 2); }
static inline void put32(uint8_t *at, uint32_t value) { uint32_t wire = htonl(value); memcpy(at, &wire, 4); }
static inline uint32_t get16(const uint8_t *at) { uint16_t wire; memcpy(&wire, at, 2); return ntohs(wire); }
static inline uint32_t get32(const uint8_t *at) { uint32_t wire; memcpy(&wire, at, 4); return ntohl(wire); }

/* The calls whose speech shares a packet. */
static inline uint32_t calls_in_packet(enum medium medium, uint32_t speech_bytes)
{
    return medium == TRUNK ? (TRUNK_LIMIT - TRUNK_BYTES) / (ENTRY_BYTES + speech_bytes) : 1;
}

static inline void put_stamp(uint8_t *at, const struct stamp *stamp)
{
    put32(at, MAGIC + stamp->direction);
    put32(at + 4, stamp->call);
    put32(at + 8, stamp->number);
    put32(at + 12, (uint32_t)(stamp->sent_ns >> 32));
    put32(at + 16, (uint32_t)stamp->sent_ns);
}

/* Read the stamp of one of this direction's calls; false: it is none. */
static inline bool get_stamp(const uint8_t *at, size_t bytes, uint32_t direction, uint32_t calls, struct stamp *stamp)
{
    if (bytes < STAMP_BYTES || get32(at) != MAGIC + direction)
        return false;
    *stamp = (struct stamp){ direction, get32(at + 4), get32(at + 8), 0 };
    stamp->sent_ns = (int64_t)((uint64_t)get32(at + 12) << 32 | get32(at + 16));
    return stamp->call < calls;
}

/* Write the UDP payload of the calls `first` to `first` + `count` - 1; return its length. */
static inline size_t put_payload(uint8_t *at, enum medium medium, const struct codec *codec, const struct stamp *first, uint32_t count)
{
    uint32_t time_ms = first->number * codec->packet_ms;
    if (medium == RTP) {
        at[0] = 0x80;
        at[1] = codec->rtp_type;
        put16(at + 2, first->number);
        put32(at + 4, time_ms * 8);
        put32(at + 8, first->direction << 31 | first->call);
        put_stamp(at + RTP_BYTES, first);
        return RTP_BYTES + codec->speech_bytes;
    }
    if (medium == IAX2) {
        put16(at, first->call + 1);
        put16(at + 2, time_ms);
        put_stamp(at + MINI_BYTES, first);
        return MINI_BYTES + codec->speech_bytes;
    }
    put32(at, 0x00000101); /* meta frame, trunk, with time stamps */
    put32(at + 4, time_ms);
    uint8_t *entry = at + TRUNK_BYTES;
    for (struct stamp stamp = *first; stamp.call < first->call + count; stamp.call++) {
        put16(entry, codec->speech_bytes);
        put16(entry + 2, stamp.call + 1);
        put16(entry + 4, time_ms);
        put_stamp(entry + ENTRY_BYTES, &stamp);
        entry += ENTRY_BYTES + codec->speech_bytes;
    }
    return (size_t)(entry - at);
}

/* Write IP's and UDP's header; the kernel fills in IP's checksum, and UDP's is left out (RFC 768). */
static inline size_t put_headers(uint8_t *at, uint32_t from, uint32_t to, uint16_t port, size_t payload_bytes)
{
    size_t length = IP_UDP_BYTES + payload_bytes;
    memset(at, 0, IP_UDP_BYTES);
    at[0] = 0x45;
    at[1] = 0xb8; /* Expedited Forwarding */
    put16(at + 2, (uint32_t)length);
    at[8] = 64;
    at[9] = 17;
    put32(at + 12, from);
    put32(at + 16, to);
    put16(at + 20, port);
    put16(at + 22, port);
    put16(at + 24, (uint32_t)(8 + payload_bytes));
    return length;
}

static inline uint16_t port_of(enum medium medium, uint32_t packet_of_round)
{
    return medium == RTP ? (uint16_t)(RTP_PORT + 2 * (packet_of_round % RTP_PORTS)) : IAX2_PORT;
}

/* Count a packet that arrived; `limit`: the numbers that `seen` has room for. RFC 3550, section 6.4.1 and appendix A.8: the jitter. */
static inline bool count_arrival(struct account *account, const struct stamp *stamp, int64_t arrived_ns, uint32_t limit)
{
    uint32_t received = atomic_load_explicit(&account->received, memory_order_relaxed);
    uint32_t highest = atomic_load_explicit(&account->highest, memory_order_relaxed);
    if (stamp->number >= limit)
        return false;
    uint8_t bit = (uint8_t)(1U << (stamp->number & 7));
    if (account->seen[stamp->number >> 3] & bit) {
        account->duplicates++;
        return true;
    }
    account->seen[stamp->number >> 3] |= bit;
    int64_t transit_ns = arrived_ns - stamp->sent_ns;
    if (received == 0) {
        account->least_ns = transit_ns;
    } else {
        account->jitter_ns += (fabs((double)(transit_ns - account->last_ns)) - account->jitter_ns) / 16;
        account->reordered += stamp->number < highest;
    }
    if (transit_ns < account->least_ns)
        account->least_ns = transit_ns;
    account->late += transit_ns - account->least_ns > LATE_NS;
    account->last_ns = transit_ns;
    account->delays_ns += (double)transit_ns;
    atomic_store_explicit(&account->received, received + 1, memory_order_relaxed);
    atomic_store_explicit(&account->jitter_us, (uint32_t)(account->jitter_ns / 1000), memory_order_relaxed);
    if (stamp->number > highest)
        atomic_store_explicit(&account->highest, stamp->number, memory_order_relaxed);
    return true;
}

/* Find the packets of `sent` that did not arrive: how many, in how many runs, and the longest run. */
static inline void find_losses(const struct account *account, uint32_t sent, uint32_t *lost, uint32_t *runs, uint32_t *longest)
{
    uint32_t run = 0;
    *lost = *runs = *longest = 0;
    for (uint32_t number = 0; number < sent; number++) {
        if (account->seen[number >> 3] & 1U << (number & 7)) {
            run = 0;
            continue;
        }
        *lost += 1;
        *runs += run == 0;
        run++;
        if (run > *longest)
            *longest = run;
    }
}

/* Write a compound RTCP packet (RFC 3550, sections 6.4.1 and 6.5): what this end sent, what it heard from the other; its length. */
static inline size_t put_rtcp(uint8_t *at, uint32_t direction, uint32_t call, uint32_t sent, const struct codec *codec, int64_t now_ns,
                              const struct account *heard)
{
    uint32_t received = atomic_load_explicit(&heard->received, memory_order_relaxed);
    uint32_t highest = atomic_load_explicit(&heard->highest, memory_order_relaxed);
    uint32_t expected = received ? highest + 1 : 0, lost = expected > received ? expected - received : 0;
    uint32_t source = direction << 31 | call;
    memset(at, 0, RTCP_BYTES);
    put32(at, 0x81c8000c); /* version 2, a report block, sender report of 12 words and the header */
    put32(at + 4, source);
    put32(at + 8, (uint32_t)(now_ns / 1000000000 + 2208988800));
    put32(at + 12, (uint32_t)((double)(now_ns % 1000000000) * 4.294967296));
    put32(at + 16, sent * codec->packet_ms * 8);
    put32(at + 20, sent);
    put32(at + 24, sent * codec->speech_bytes);
    put32(at + 28, (direction ^ 1) << 31 | call);
    put32(at + 32, (lost < 0x7fffff ? lost : 0x7fffff) | (expected ? lost * 255ULL / expected : 0) << 24);
    put32(at + 36, highest);
    put32(at + 40, atomic_load_explicit(&heard->jitter_us, memory_order_relaxed) / 125); /* in samples of 8 kHz */
    put32(at + 52, 0x81ca0003);
    put32(at + 56, source);
    put32(at + 60, 0x01046c61); /* CNAME, 4 octets: "lab" and the end of the list */
    put32(at + 64, 0x62310000);
    return RTCP_BYTES;
}

#endif
