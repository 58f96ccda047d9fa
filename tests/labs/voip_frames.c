/* Tests of frames.h. It is compiled with sanitizers by test_voip.py. */
#undef NDEBUG
#include "frames.h"

#include <assert.h>
#include <stdlib.h>

static const struct codec G711 = { 160, 20, 8 }, GSM = { 33, 20, 3 };

static void payloads_have_the_published_lengths(void)
{
    uint8_t packet[MAX_PACKET];
    struct stamp stamp = { 1, 7, 3, 5000000000 }, read;
    assert(14 + IP_UDP_BYTES + put_payload(packet, RTP, &G711, &stamp, 1) == 214);
    assert(packet[0] == 0x80 && packet[1] == 8 && get16(packet + 2) == 3 && get32(packet + 4) == 3 * 160 && get32(packet + 8) == 0x80000007);
    assert(get_stamp(packet + RTP_BYTES, 160, 1, 8, &read) && read.call == 7 && read.number == 3 && read.sent_ns == 5000000000);
    assert(14 + IP_UDP_BYTES + put_payload(packet, IAX2, &G711, &stamp, 1) == 206);
    assert(get16(packet) == 8 && get16(packet + 2) == 60);
    assert(14 + IP_UDP_BYTES + put_payload(packet, RTP, &GSM, &stamp, 1) == 87);
    assert(put_headers(packet, 1, 2, 4569, 164) == 192 && get16(packet + 2) == 192 && get16(packet + 24) == 172);
}

static void a_trunk_holds_as_many_calls_as_fit(void)
{
    uint8_t packet[MAX_PACKET];
    struct stamp first = { 0, 14, 9, 1 }, read;
    uint32_t calls = calls_in_packet(TRUNK, 160);
    assert(calls == 7 && calls_in_packet(TRUNK, 33) == 31 && calls_in_packet(RTP, 160) == 1);
    assert(put_payload(packet, TRUNK, &G711, &first, calls) == TRUNK_BYTES + 7 * (ENTRY_BYTES + 160));
    const uint8_t *last = packet + TRUNK_BYTES + 6 * (ENTRY_BYTES + 160);
    assert(get16(packet) == 0 && packet[2] == 1 && packet[3] == 1 && get16(last) == 160 && get16(last + 2) == 21);
    assert(get_stamp(last + ENTRY_BYTES, 160, 0, 21, &read) && read.call == 20);
}

static void stamps_of_others_are_refused(void)
{
    uint8_t packet[STAMP_BYTES];
    struct stamp stamp = { 0, 5, 1, 1 }, read;
    put_stamp(packet, &stamp);
    assert(!get_stamp(packet, STAMP_BYTES - 1, 0, 6, &read));
    assert(!get_stamp(packet, STAMP_BYTES, 1, 6, &read));
    assert(!get_stamp(packet, STAMP_BYTES, 0, 5, &read));
    assert(get_stamp(packet, STAMP_BYTES, 0, 6, &read));
}

static struct account account_of(uint32_t numbers)
{
    struct account account = { .seen = calloc(1, numbers / 8 + 1) };
    assert(account.seen);
    return account;
}

static void jitter_is_that_of_rfc_3550(void)
{
    struct account account = account_of(8);
    const int64_t transits_ms[] = { 1, 5, 2 };
    for (uint32_t number = 0; number < 3; number++) {
        struct stamp stamp = { 0, 0, number, number * 20000000LL };
        assert(count_arrival(&account, &stamp, stamp.sent_ns + transits_ms[number] * 1000000, 8));
    }
    assert(fabs(account.jitter_ns - 421875) < 0.01); /* 4 / 16 = 0.25; 0.25 + (3 - 0.25) / 16 */
    assert(account.jitter_us == 421 && account.received == 3 && account.highest == 2);
    free(account.seen);
}

static void losses_are_the_packets_that_did_not_come(void)
{
    struct account account = account_of(20);
    uint32_t lost, runs, longest;
    for (uint32_t number = 0; number < 16; number++) {
        struct stamp stamp = { 0, 0, number ^ 1, 0 }; /* each pair in the wrong order */
        if (number != 3 && (number < 6 || number > 9))
            assert(count_arrival(&account, &stamp, number == 15 ? LATE_NS + 2 : 1, 20));
    }
    struct stamp again = { 0, 0, 5, 0 }, beyond = { 0, 0, 20, 0 };
    assert(count_arrival(&account, &again, 1, 20) && !count_arrival(&account, &beyond, 1, 20));
    find_losses(&account, 18, &lost, &runs, &longest);
    assert(lost == 7 && runs == 3 && longest == 4);
    assert(account.received == 11 && account.duplicates == 1 && account.reordered == 5 && account.late == 1);
    find_losses(&account, 0, &lost, &runs, &longest);
    assert(lost == 0);
    free(account.seen);
}

static void reports_say_what_was_heard(void)
{
    uint8_t packet[RTCP_BYTES];
    struct account heard = account_of(100);
    heard.received = 75;
    heard.highest = 99;
    heard.jitter_us = 1000;
    assert(put_rtcp(packet, 0, 3, 50, &G711, 1500000000, &heard) == RTCP_BYTES);
    assert(get32(packet + 20) == 50 && get32(packet + 24) == 8000 && get32(packet + 28) == 0x80000003);
    assert(packet[32] == 63 && (get32(packet + 32) & 0xffffff) == 25 && get32(packet + 36) == 99 && get32(packet + 40) == 8);
    free(heard.seen);
}

int main(void)
{
    payloads_have_the_published_lengths();
    a_trunk_holds_as_many_calls_as_fit();
    stamps_of_others_are_refused();
    jitter_is_that_of_rfc_3550();
    losses_are_the_packets_that_did_not_come();
    reports_say_what_was_heard();
    return 0;
}
