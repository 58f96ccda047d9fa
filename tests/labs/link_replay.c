/* The emulated link on a clock of its own, for tests.
 *
 *     link_replay SEED SETTING <trace
 *
 * A line of a trace is `time_us flow length syn`, in order of time. Each packet's fate is printed: `number time_us delivered`, or
 * `lost`, `full`, `early`, `matched`, `displaced`. With the six arguments of link it is link. */
#define main link_main
#include "link.c"
#undef main
#include <inttypes.h>

static uint64_t replayed_ns;

static void print_fate(const struct packet *packet, uint64_t at_ns, const char *fate)
{
    printf("%" PRIu32 " %" PRIu64 " %s\n", packet->number, (at_ns ? at_ns : replayed_ns) / 1000, fate);
}

static void replay(struct way *way)
{
    double time_us, last_us = 0;
    uint64_t next, flow;
    uint32_t length, number = 0;
    int syn, got;
    while ((got = scanf("%lf %" SCNu64 " %" SCNu32 " %d", &time_us, &flow, &length, &syn)) == 4) {
        if (!(time_us >= last_us && time_us < 1e15))
            errx(2, "the times of a trace go back");
        last_us = time_us;
        uint64_t now_ns = (uint64_t)(time_us * 1000);
        while ((next = next_ns(way)) <= now_ns)
            advance(way, replayed_ns = next);
        struct packet *packet = new_packet(0);
        *packet = (struct packet){.flow = flow, .length = length, .is_syn = syn, .number = number++};
        arrive(way, packet, replayed_ns = now_ns);
    }
    if (got != EOF)
        errx(2, "a line of a trace is not `time_us flow length syn`");
    while ((next = next_ns(way)) != UINT64_MAX)
        advance(way, next);
}

int main(int argc, char **argv)
{
    struct counters counters = {0};
    struct way way;
    if (argc != 3)
        return link_main(argc, argv);
    open_way(&way, argv[2], strtoull(argv[1], NULL, 10), &counters);
    on_fate = print_fate;
    replay(&way);
    close_way(&way);
    return 0;
}
