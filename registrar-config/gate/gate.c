#include "gate.h"

#include <stdlib.h>
#include <string.h>

/* Bounds; the fuzzer has smaller ones, to reach them. */
#ifndef MAX_HOSTS
#define MAX_HOSTS 4096
#define MAX_ELEMENTS 65536
#define MAX_SENDERS 1024
#define BUCKETS 4096
#endif
#define MAX_LEFT 64 /* of one host: elements that ended before their lives */
#define MAX_HOST_SENDERS 8 /* of one follower: ENRP identifiers */
#define OWNERS 8 /* addresses kept of each element: of its host, and its own */
#define GRACE_MS 1000
#define FULL_SWEEP_MS 1000
#define REPORT_UNIT 1000 /* tokens that a report costs; each ms gives as many as there are reports a second */

const char *const verdict_names[VERDICTS] = {
	"passed",
	"stranger",
	"unconfirmed",
	"malformed",
	"handle-too-long",
	"addresses",
	"zero-identifier",
	"not-element",
	"handle-not-allowed",
	"address-not-allowed",
	"policy",
	"transport",
	"life",
	"too-many",
	"not-its-own",
	"report",
	"not-follower",
	"enrp-change",
	"sender-taken",
};

/* A pool element: whose it is. Learned from its registration here, or from what registrars tell. */
struct known {
	struct known *next;
	uint64_t expires_ms;
	uint32_t identifier;
	uint64_t association; /* 0: registered elsewhere, or ended */
	bool has_left; /* it ended before its life; until then it stays its owner's */
	bool is_told; /* only registrars told of it; without owners: they contradict each other */
	uint32_t host; /* index of the host that counts it; only with an association, or when it left */
	struct address owners[OWNERS];
	uint8_t owner_count;
	uint8_t handle_length;
	uint8_t handle[MAX_HANDLE];
};

struct host {
	struct address address;
	uint32_t registrations;
	uint32_t left; /* of its elements: has_left */
	uint64_t tokens, tokens_at_ms;
	uint64_t dropped[VERDICTS], told[VERDICTS];
};

/* An ENRP identifier, and whose it is. */
struct sender {
	uint32_t identifier;
	bool is_registrar;
	struct address address;
	uint64_t heard_ms;
};

struct gate {
	struct rules *rules;
	struct known *buckets[BUCKETS];
	size_t elements, swept;
	uint64_t full_sweep_ms;
	struct host hosts[MAX_HOSTS]; /* the first: all those that found no place */
	size_t host_count, told_host, reused_host;
	struct sender senders[MAX_SENDERS];
	size_t sender_count;
};

struct gate *gate_new(struct rules *rules)
{
	struct gate *gate = calloc(1, sizeof(*gate));

	if (gate) {
		gate->rules = rules;
		gate->host_count = 1;
	}
	return gate;
}

void gate_free(struct gate *gate)
{
	struct known *known, *next;
	size_t i;

	for (i = 0; i < BUCKETS; i++) {
		for (known = gate->buckets[i]; known; known = next) {
			next = known->next;
			free(known);
		}
	}
	rules_free(gate->rules);
	free(gate);
}

void gate_set_rules(struct gate *gate, struct rules *rules)
{
	rules_free(gate->rules);
	gate->rules = rules;
}

/* Hosts */

/* Take the place of a host that has nothing registered; what was dropped of it counts for all without a place. 0: there is none. */
static size_t reuse_host(struct gate *gate)
{
	struct host *reused;
	size_t i, j;

	for (i = 1; i < MAX_HOSTS; i++) {
		gate->reused_host = gate->reused_host % (MAX_HOSTS - 1) + 1;
		reused = &gate->hosts[gate->reused_host];
		if (reused->registrations)
			continue;
		for (j = 0; j < VERDICTS; j++) {
			gate->hosts[0].dropped[j] += reused->dropped[j];
			gate->hosts[0].told[j] += reused->told[j];
		}
		memset(reused, 0, sizeof(*reused));
		return gate->reused_host;
	}
	return 0;
}

static size_t find_host(struct gate *gate, const struct address *address, bool adds)
{
	size_t i;

	for (i = 1; i < gate->host_count; i++)
		if (address_equal(&gate->hosts[i].address, address))
			return i;
	if (!adds)
		return 0;
	i = gate->host_count < MAX_HOSTS ? gate->host_count++ : reuse_host(gate);
	if (i)
		gate->hosts[i].address = *address;
	return i;
}

static bool is_of_peer(const struct peer *peer, const struct address *address)
{
	size_t i;

	for (i = 0; i < peer->count; i++)
		if (address_equal(&peer->addresses[i], address))
			return true;
	return false;
}

static unsigned roles_of(const struct gate *gate, const struct peer *peer)
{
	unsigned roles = 0;
	size_t i;

	for (i = 0; i < peer->count; i++)
		roles |= rules_roles(gate->rules, &peer->addresses[i]);
	return roles;
}

static bool is_rule_of(const struct rule *rule, const struct peer *peer)
{
	size_t i;

	for (i = 0; i < peer->count; i++)
		if (network_holds(&rule->hosts, &peer->addresses[i]))
			return true;
	return false;
}

/* Elements */

static struct known **bucket_of(struct gate *gate, const struct element *element)
{
	uint32_t hash = 2166136261u ^ element->identifier;
	size_t i;

	for (i = 0; i < element->handle_length; i++)
		hash = (hash ^ element->handle[i]) * 16777619u;
	return &gate->buckets[(hash ^ hash >> 16) % BUCKETS];
}

static void unlink_known(struct gate *gate, struct known **link)
{
	struct known *known = *link;

	*link = known->next;
	if (known->association)
		gate->hosts[known->host].registrations--;
	/* The place of a host without registrations may be another's by now. */
	if (known->has_left && gate->hosts[known->host].left && address_equal(&gate->hosts[known->host].address, &known->owners[0]))
		gate->hosts[known->host].left--;
	gate->elements--;
	free(known);
}

/* The element ended before its life, so nobody but its host may take it up; false: it is no longer known. */
static bool leave(struct gate *gate, struct known **link)
{
	struct known *known = *link;
	size_t host;

	if (known->has_left || known->owner_count == 0)
		return true;
	host = known->association ? known->host : find_host(gate, &known->owners[0], true);
	if (host == 0 || gate->hosts[host].left >= MAX_LEFT) {
		unlink_known(gate, link);
		return false;
	}
	if (known->association)
		gate->hosts[host].registrations--;
	gate->hosts[host].left++;
	known->association = 0;
	known->host = (uint32_t)host;
	known->has_left = true;
	return true;
}

static void sweep(struct gate *gate, uint64_t now_ms, size_t bucket)
{
	struct known **link = &gate->buckets[bucket];

	while (*link) {
		if ((*link)->expires_ms <= now_ms)
			unlink_known(gate, link);
		else
			link = &(*link)->next;
	}
}

static void sweep_all(struct gate *gate, uint64_t now_ms)
{
	size_t i;

	if (now_ms < gate->full_sweep_ms)
		return;
	gate->full_sweep_ms = now_ms + FULL_SWEEP_MS;
	for (i = 0; i < BUCKETS; i++)
		sweep(gate, now_ms, i);
}

/* Make room: first of elements whose lives ended, then of one that is not registered here. */
static void make_room(struct gate *gate, uint64_t now_ms)
{
	struct known **link;
	size_t i;

	sweep_all(gate, now_ms);
	for (i = 0; i < BUCKETS && gate->elements == MAX_ELEMENTS; i++) {
		link = &gate->buckets[(gate->swept + i) % BUCKETS];
		while (*link && (*link)->association)
			link = &(*link)->next;
		if (*link)
			unlink_known(gate, link);
	}
}

static struct known **find_known(struct gate *gate, uint64_t now_ms, const struct element *element)
{
	struct known **link = bucket_of(gate, element);

	sweep(gate, now_ms, (size_t)(link - gate->buckets));
	for (; *link; link = &(*link)->next)
		if ((*link)->identifier == element->identifier && (*link)->handle_length == element->handle_length &&
		    memcmp((*link)->handle, element->handle, element->handle_length) == 0)
			return link;
	return NULL;
}

static bool is_anothers(struct gate *gate, uint64_t now_ms, const struct peer *peer, const struct element *element)
{
	struct known **link = find_known(gate, now_ms, element);
	size_t i;

	for (i = 0; link && i < (*link)->owner_count; i++)
		if (is_of_peer(peer, &(*link)->owners[i]))
			return false;
	return link && (*link)->owner_count > 0;
}

static uint64_t expires_ms(const struct gate *gate, uint64_t now_ms, const struct element *element)
{
	return now_ms + (element->life_ms < gate->rules->life_ms ? element->life_ms : gate->rules->life_ms) + GRACE_MS;
}

/* Note an element; `host` and `association`: 0 for one that is registered elsewhere. */
static void note(struct gate *gate, uint64_t now_ms, const struct element *element, const struct address *owners, size_t owner_count,
		 uint64_t association, size_t host)
{
	struct known **link = find_known(gate, now_ms, element), *known;

	if (link)
		unlink_known(gate, link);
	if (gate->elements == MAX_ELEMENTS && association)
		make_room(gate, now_ms);
	else if (gate->elements == MAX_ELEMENTS)
		sweep_all(gate, now_ms);
	known = gate->elements < MAX_ELEMENTS && owner_count ? calloc(1, sizeof(*known)) : NULL;
	if (!known)
		return;
	known->expires_ms = expires_ms(gate, now_ms, element);
	known->identifier = element->identifier;
	known->association = association;
	known->is_told = !association;
	known->host = (uint32_t)host;
	known->owner_count = (uint8_t)(owner_count < OWNERS ? owner_count : OWNERS);
	memcpy(known->owners, owners, known->owner_count * sizeof(*owners));
	known->handle_length = (uint8_t)element->handle_length;
	memcpy(known->handle, element->handle, element->handle_length);
	link = bucket_of(gate, element);
	known->next = *link;
	*link = known;
	gate->elements++;
	if (association)
		gate->hosts[host].registrations++;
}

static void drop_known(struct gate *gate, uint64_t now_ms, const struct element *element)
{
	struct known **link = find_known(gate, now_ms, element);

	if (link)
		unlink_known(gate, link);
}

static void leave_known(struct gate *gate, uint64_t now_ms, const struct element *element)
{
	struct known **link = find_known(gate, now_ms, element);

	if (link)
		leave(gate, link);
}

void gate_forget(struct gate *gate, uint64_t association)
{
	struct known **link;
	size_t i;

	for (i = 0; i < BUCKETS && association; i++) {
		link = &gate->buckets[i];
		while (*link) {
			if ((*link)->association != association || leave(gate, link))
				link = &(*link)->next;
		}
	}
}

/* ASAP */

static enum verdict judge_handle(struct gate *gate, const struct peer *peer, const struct element *element)
{
	size_t i;

	for (i = 0; i < gate->rules->count; i++)
		if (is_rule_of(&gate->rules->all[i], peer) && rule_has_handle(&gate->rules->all[i], element->handle, element->handle_length))
			return PASSED;
	return HANDLE_NOT_ALLOWED;
}

static bool has_addresses(const struct rule *rule, const struct transport *transport)
{
	size_t i;

	for (i = 0; i < transport->count; i++)
		if (!rule_has_address(rule, &transport->addresses[i]))
			return false;
	return true;
}

/* A pool that was empty is what its first element is, and rspregistrar then refuses all that differ. */
static enum verdict judge_kind(const struct gate *gate, const struct element *element)
{
	size_t i;

	for (i = 0; i < gate->rules->pool_count; i++) {
		const struct pool *pool = &gate->rules->pools[i];

		if (!pool_has_handle(pool, element->handle, element->handle_length))
			continue;
		if (pool->policy && pool->policy != element->policy)
			return POLICY;
		if (pool->protocol && (pool->protocol != element->user.protocol || pool->use != element->user.use))
			return TRANSPORT;
	}
	return PASSED;
}

static enum verdict judge_registration(struct gate *gate, uint64_t now_ms, const struct peer *peer, const struct element *element)
{
	enum verdict verdict = HANDLE_NOT_ALLOWED;
	unsigned most = 0;
	struct known **link;
	size_t i, host;

	for (i = 0; i < gate->rules->count; i++) {
		const struct rule *rule = &gate->rules->all[i];

		if (!is_rule_of(rule, peer) || !rule_has_handle(rule, element->handle, element->handle_length))
			continue;
		if (has_addresses(rule, &element->user)) {
			verdict = PASSED;
			most = rule->most > most ? rule->most : most;
		} else if (verdict != PASSED) {
			verdict = ADDRESS_NOT_ALLOWED;
		}
	}
	if (verdict == PASSED)
		verdict = judge_kind(gate, element);
	if (verdict != PASSED)
		return verdict;
	if (element->life_ms > gate->rules->life_ms)
		return LIFE;
	if (is_anothers(gate, now_ms, peer, element))
		return NOT_ITS_OWN;
	host = find_host(gate, &peer->addresses[0], true);
	link = find_known(gate, now_ms, element);
	if (!link || !(*link)->association || (*link)->host != host) {
		if (gate->hosts[host].registrations >= most)
			sweep_all(gate, now_ms);
		if (gate->hosts[host].registrations >= most || host == 0)
			return TOO_MANY;
	}
	note(gate, now_ms, element, peer->addresses, peer->count, peer->association, host);
	return PASSED;
}

static enum verdict judge_report(struct gate *gate, uint64_t now_ms, const struct peer *peer)
{
	unsigned reports_per_s = 0;
	struct host *host;
	size_t i;

	for (i = 0; i < gate->rules->count; i++)
		if (is_rule_of(&gate->rules->all[i], peer) && gate->rules->all[i].reports_per_s > reports_per_s)
			reports_per_s = gate->rules->all[i].reports_per_s;
	if (!reports_per_s)
		return REPORT;
	i = find_host(gate, &peer->addresses[0], true);
	host = &gate->hosts[i];
	if (i == 0)
		return REPORT;
	if (now_ms - host->tokens_at_ms >= 1000 || now_ms < host->tokens_at_ms)
		host->tokens = (uint64_t)reports_per_s * REPORT_UNIT;
	else
		host->tokens += (now_ms - host->tokens_at_ms) * reports_per_s;
	if (host->tokens > (uint64_t)reports_per_s * REPORT_UNIT)
		host->tokens = (uint64_t)reports_per_s * REPORT_UNIT;
	host->tokens_at_ms = now_ms;
	if (host->tokens < REPORT_UNIT)
		return REPORT;
	host->tokens -= REPORT_UNIT;
	return PASSED;
}

static enum verdict judge_asap(struct gate *gate, uint64_t now_ms, const struct peer *peer, unsigned roles, const struct message *message)
{
	const struct element *element = &message->element;
	enum verdict verdict;

	if (message->type == ASAP_HANDLE_RESOLUTION)
		return PASSED;
	if (message->type == ASAP_UNREACHABLE)
		return judge_report(gate, now_ms, peer);
	if (!(roles & ROLE_ELEMENT))
		return NOT_ELEMENT;
	if (message->type == ASAP_REGISTRATION)
		return judge_registration(gate, now_ms, peer, element);
	/* A deregistration, or an answer to a keep-alive, which keeps an element in. */
	verdict = judge_handle(gate, peer, element);
	if (verdict == PASSED && is_anothers(gate, now_ms, peer, element))
		return NOT_ITS_OWN;
	if (verdict == PASSED && message->type == ASAP_DEREGISTRATION)
		drop_known(gate, now_ms, element);
	return verdict;
}

/* ENRP */

/* The place for an identifier that is new: a free one, a follower's own oldest when it has many, or that of the sender that was
 * heard longest ago. Registrars are heard all the time: those that live keep theirs. NULL: all are live registrars'. */
static struct sender *place_of_sender(struct gate *gate, uint64_t now_ms, const struct peer *peer, bool is_registrar)
{
	struct sender *oldest = NULL, *oldest_own = NULL;
	size_t i, own = 0;

	for (i = 0; i < gate->sender_count; i++) {
		struct sender *sender = &gate->senders[i];

		if (sender->is_registrar && !is_registrar && now_ms - sender->heard_ms < gate->rules->life_ms)
			continue;
		if (!oldest || sender->heard_ms < oldest->heard_ms)
			oldest = sender;
		if (sender->is_registrar || !is_of_peer(peer, &sender->address))
			continue;
		own++;
		if (!oldest_own || sender->heard_ms < oldest_own->heard_ms)
			oldest_own = sender;
	}
	if (!is_registrar && own >= MAX_HOST_SENDERS)
		return oldest_own;
	return gate->sender_count < MAX_SENDERS ? &gate->senders[gate->sender_count++] : oldest;
}

/* Note the identifier of a sender; false when it is a registrar's, or another follower's that was heard just now. */
static bool is_senders_own(struct gate *gate, uint64_t now_ms, const struct peer *peer, uint32_t identifier, bool is_registrar)
{
	struct sender *sender = NULL;
	size_t i;

	for (i = 0; i < gate->sender_count && !sender; i++)
		if (gate->senders[i].identifier == identifier)
			sender = &gate->senders[i];
	if (!sender)
		sender = place_of_sender(gate, now_ms, peer, is_registrar);
	else if (!is_registrar && (sender->is_registrar || (!is_of_peer(peer, &sender->address) &&
							    now_ms - sender->heard_ms < gate->rules->life_ms)))
		return false;
	if (sender)
		*sender = (struct sender){ identifier, is_registrar, peer->addresses[0], now_ms };
	return sender != NULL;
}

/* The host at which the element is, by what a registrar tells: the rules let it register the element. */
static bool may_register(const struct gate *gate, const struct peer *host, const struct element *element)
{
	size_t i;

	for (i = 0; i < gate->rules->count; i++)
		if (is_rule_of(&gate->rules->all[i], host) && rule_has_handle(&gate->rules->all[i], element->handle, element->handle_length) &&
		    has_addresses(&gate->rules->all[i], &element->user))
			return true;
	return false;
}

/* A registrar tells of an element, and may lie: it takes nothing from the host that registered the element here. An element that
 * is unknown here is noted when the rules let its host register it. The host of the element's own address is an owner, too, whatever
 * host is told to have registered it. If registrars tell of different hosts, the element is anybody's until its life ended. */
static void learn_element(struct gate *gate, uint64_t now_ms, const struct element *element)
{
	const struct transport *transports[] = { &element->asap, &element->user };
	struct known **link = find_known(gate, now_ms, element);
	struct peer owners = { 0 };
	size_t i, j;

	for (i = 0; i < 2; i++)
		for (j = 0; j < transports[i]->count && owners.count < (i + 1) * OWNERS / 2; j++)
			owners.addresses[owners.count++] = transports[i]->addresses[j];
	if (!may_register(gate, &owners, element))
		return;
	if (!link) {
		note(gate, now_ms, element, owners.addresses, owners.count, 0, 0);
		return;
	}
	if (!is_anothers(gate, now_ms, &owners, element)) {
		if ((*link)->expires_ms < expires_ms(gate, now_ms, element))
			(*link)->expires_ms = expires_ms(gate, now_ms, element);
		return;
	}
	if ((*link)->is_told)
		(*link)->owner_count = 0;
}

static void learn(struct gate *gate, uint64_t now_ms, const struct message *message)
{
	struct message rest = *message;
	struct element element = { 0 };

	if (message->type == ENRP_UPDATE && message->action == UPDATE_DELETE)
		leave_known(gate, now_ms, &message->element);
	else if (message->type == ENRP_UPDATE)
		learn_element(gate, now_ms, &message->element);
	else if (message->type == ENRP_TABLE_RESPONSE)
		while (message_next(&rest, &element))
			learn_element(gate, now_ms, &element);
}

static enum verdict judge_enrp(struct gate *gate, uint64_t now_ms, const struct peer *peer, unsigned roles, const struct message *message)
{
	if (roles & ROLE_REGISTRAR) {
		is_senders_own(gate, now_ms, peer, message->sender, true);
		learn(gate, now_ms, message);
		return PASSED;
	}
	if (!(roles & ROLE_FOLLOWER))
		return NOT_FOLLOWER;
	switch (message->type) {
	case ENRP_PRESENCE:
	case ENRP_TABLE_REQUEST:
	case ENRP_LIST_REQUEST:
	case ENRP_INIT_TAKEOVER_ACK: /* a registrar waits for that of each peer that it has */
		break;
	case ENRP_TABLE_RESPONSE: /* rejects what it was asked: an empty table would count as one */
		if (message->flags != FLAG_REJECT || message->table_length)
			return ENRP_CHANGE;
		break;
	case ENRP_LIST_RESPONSE:
		if (message->flags != FLAG_REJECT || message->servers)
			return ENRP_CHANGE;
		break;
	default:
		return ENRP_CHANGE;
	}
	return is_senders_own(gate, now_ms, peer, message->sender, false) ? PASSED : SENDER_TAKEN;
}

enum verdict gate_judge(struct gate *gate, uint64_t now_ms, const struct peer *peer, uint32_t ppid, const uint8_t *data,
			size_t length)
{
	static const enum verdict of_form[] = {
		[FORM_RIGHT] = PASSED, [FORM_MALFORMED] = MALFORMED, [FORM_HANDLE] = HANDLE_TOO_LONG, [FORM_ADDRESSES] = ADDRESSES, [FORM_ZERO] = ZERO_IDENTIFIER,
	};
	struct message message;
	enum verdict verdict;
	unsigned roles;

	gate->swept = (gate->swept + 1) % BUCKETS;
	sweep(gate, now_ms, gate->swept);
	if (peer->count == 0)
		return UNCONFIRMED;
	roles = roles_of(gate, peer);
	if (!roles)
		return STRANGER;
	verdict = of_form[message_read(ppid, data, length, &message)];
	if (verdict != PASSED)
		return verdict;
	return ppid == PPID_ASAP ? judge_asap(gate, now_ms, peer, roles, &message) : judge_enrp(gate, now_ms, peer, roles, &message);
}

/* Counters */

void gate_count(struct gate *gate, const struct peer *peer, enum verdict verdict)
{
	/* Strangers, of whom there may be any number, leave room for the others. */
	const bool adds = peer->count && (verdict != STRANGER || gate->host_count < MAX_HOSTS / 2);
	const size_t host = peer->count ? find_host(gate, &peer->addresses[0], adds) : 0;

	gate->hosts[host].dropped[verdict]++;
}

bool gate_next_changed(struct gate *gate, struct address *host, enum verdict *verdict, uint64_t *dropped)
{
	size_t i, j;

	for (i = 0; i < gate->host_count; i++) {
		struct host *found = &gate->hosts[(gate->told_host + i) % gate->host_count];

		for (j = 1; j < VERDICTS; j++) {
			if (found->dropped[j] == found->told[j])
				continue;
			gate->told_host = (gate->told_host + i) % gate->host_count;
			found->told[j] = *dropped = found->dropped[j];
			*host = found->address;
			*verdict = (enum verdict)j;
			return true;
		}
	}
	return false;
}

unsigned gate_registrations(const struct gate *gate, const struct address *host)
{
	size_t i;

	for (i = 1; i < gate->host_count; i++)
		if (address_equal(&gate->hosts[i].address, host))
			return gate->hosts[i].registrations;
	return 0;
}

size_t gate_elements(const struct gate *gate)
{
	return gate->elements;
}
