#include "refused.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sockets.h"

#define PORTS 65536

struct place {
	struct in6_addr address; /* IPv4 as mapped; that of the wildcard: any of its family */
	uint16_t port;		 /* host order */
	bool data, begins;	 /* refused */
};

static const struct in6_addr any4 = { .s6_addr = { [10] = 0xff, [11] = 0xff } }, any6;
static struct place *places;
static size_t count, room;
static uint8_t ports[PORTS / 8]; /* those in it: most packets are for others */

static int by_place(const void *first, const void *second)
{
	const struct place *one = first, *other = second;

	return one->port != other->port ? (int)one->port - (int)other->port : memcmp(&one->address, &other->address, sizeof(one->address));
}

static struct place place_of(const struct sockaddr *address)
{
	struct sockaddr_in6 mapped = { 0 };
	struct place place = { 0 };

	memcpy(&mapped, address, address_length(address));
	address_map(&mapped, AF_INET6);
	place.address = mapped.sin6_addr;
	place.port = ntohs(mapped.sin6_port);
	return place;
}

void refused_forget(void)
{
	count = 0;
	memset(ports, 0, sizeof(ports));
}

static void add(struct place place)
{
	struct place *larger;

	if (count > 0 && by_place(&places[count - 1], &place) == 0 && places[count - 1].data == place.data &&
	    places[count - 1].begins == place.begins)
		return; /* accepted by one listener, mostly */
	if (count == room) {
		larger = realloc(places, (2 * room + 64) * sizeof(*places));
		if (larger == NULL)
			return;
		places = larger;
		room = 2 * room + 64;
	}
	places[count++] = place;
	ports[place.port / 8] |= (uint8_t)(1 << place.port % 8);
}

void refused_add(const struct sctp_socket *s, bool data, bool begins)
{
	struct place place = { .port = s->port, .data = data, .begins = begins };
	int i;

	if (s->port == 0 || (!data && !begins))
		return;
	for (i = 0; i < s->bound_count; i++) {
		place.address = place_of((const struct sockaddr *)&s->bound[i]).address;
		add(place);
	}
	if (s->bound_count > 0 && !s->bound_any)
		return;
	place.address = any4;
	if (s->domain == AF_INET || !s->v6only)
		add(place);
	place.address = any6;
	if (s->domain == AF_INET6)
		add(place);
}

/* Sort them, each once. */
void refused_ready(void)
{
	size_t i, kept = 0;

	if (count == 0)
		return;
	qsort(places, count, sizeof(*places), by_place);
	for (i = 1; i < count; i++)
		if (by_place(&places[kept], &places[i]) == 0) {
			places[kept].data |= places[i].data;
			places[kept].begins |= places[i].begins;
		} else {
			places[++kept] = places[i];
		}
	count = kept + 1;
}

static bool is_refused(const struct place *place, bool data, bool begins)
{
	const struct place *found = bsearch(place, places, count, sizeof(*places), by_place);

	return found != NULL && ((data && found->data) || (begins && found->begins));
}

bool refused_at(const struct sockaddr *local, bool data, bool begins)
{
	struct place place = place_of(local);

	if (count == 0 || (ports[place.port / 8] >> place.port % 8 & 1) == 0)
		return false;
	if (is_refused(&place, data, begins))
		return true;
	place.address = local->sa_family == AF_INET ? any4 : any6;
	return is_refused(&place, data, begins);
}
