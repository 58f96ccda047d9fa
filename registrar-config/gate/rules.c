#include "rules.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_LIFE_MS 300000
#define DEFAULT_MOST 64
#define LONGEST_LIFE_S 86400
#define BLANKS " \t\r"

struct reader {
	struct rules *rules;
	char *problem;
	size_t problem_bytes;
	int line;
	bool has_ended;
};

__attribute__((format(printf, 2, 3))) static bool wrong(struct reader *reader, const char *format, ...)
{
	va_list arguments;
	int written = snprintf(reader->problem, reader->problem_bytes, "line %d: ", reader->line);

	va_start(arguments, format);
	if (written >= 0 && (size_t)written < reader->problem_bytes)
		vsnprintf(reader->problem + written, reader->problem_bytes - (size_t)written, format, arguments);
	va_end(arguments);
	return false;
}

static bool read_number(struct reader *reader, const char *key, const char *text, unsigned long least,
			unsigned long most, unsigned long *number)
{
	char *end;
	const int base = text && strncmp(text, "0x", 2) == 0 ? 16 : 10;

	errno = 0;
	*number = text && *text >= '0' && *text <= '9' ? strtoul(text, &end, base) : 0;
	if (!text || *text < '0' || *text > '9' || *end != '\0' || errno || *number < least || *number > most)
		return wrong(reader, "%s needs a number from %lu to %lu", key, least, most);
	return true;
}

static int hexadecimal(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'A' && digit <= 'F')
		return digit - 'A' + 10;
	return -1;
}

static bool read_pattern(struct reader *reader, const char *text, struct pattern *pattern)
{
	const char *from = text;

	memset(pattern, 0, sizeof(*pattern));
	for (; *from; from++) {
		uint8_t byte = (uint8_t)*from;

		if (byte == '*' && from[1] == '\0') {
			pattern->is_prefix = true;
			return true;
		}
		if (byte == '%') {
			if (hexadecimal(from[1]) < 0 || hexadecimal(from[2]) < 0)
				return wrong(reader, "handle \"%.80s\": %% needs two digits 0-9A-F behind it", text);
			byte = (uint8_t)(hexadecimal(from[1]) << 4 | hexadecimal(from[2]));
			from += 2;
		} else if (byte == '*') {
			return wrong(reader, "handle \"%.80s\": * stands at the end only; as a letter it is %%2A", text);
		}
		if (pattern->length == MAX_HANDLE)
			return wrong(reader, "handle \"%.80s\" has more than %d bytes", text, MAX_HANDLE);
		pattern->bytes[pattern->length++] = byte;
	}
	if (pattern->length == 0)
		return wrong(reader, "a handle is empty");
	return true;
}

static bool read_handles(struct reader *reader, struct pattern **handles, size_t *count, char *list)
{
	char *item, *rest = list;

	*handles = calloc(MAX_ITEMS, sizeof(**handles));
	if (!*handles)
		return wrong(reader, "no memory");
	while ((item = strsep(&rest, ","))) {
		if (*count == MAX_ITEMS)
			return wrong(reader, "more than %d handles", MAX_ITEMS);
		if (!read_pattern(reader, item, &(*handles)[*count]))
			return false;
		(*count)++;
	}
	return true;
}

static bool read_addresses(struct reader *reader, struct rule *rule, char *list)
{
	char *item, *rest = list;

	rule->addresses = calloc(MAX_ITEMS, sizeof(*rule->addresses));
	if (!rule->addresses)
		return wrong(reader, "no memory");
	while ((item = strsep(&rest, ","))) {
		if (rule->address_count == MAX_ITEMS)
			return wrong(reader, "more than %d addresses", MAX_ITEMS);
		if (!network_read(item, &rule->addresses[rule->address_count]))
			return wrong(reader, "\"%.80s\" is no address or network, e.g. 10.20.0.0/16", item);
		rule->address_count++;
	}
	return true;
}

static char *next_word(char **rest)
{
	char *word;

	do
		word = strsep(rest, BLANKS);
	while (word && *word == '\0');
	return word;
}

static bool read_keys(struct reader *reader, struct rule *rule, char **rest)
{
	unsigned long number;
	char *key, *value;

	while ((key = next_word(rest))) {
		const bool is_element = rule->role == ROLE_ELEMENT;

		value = next_word(rest);
		if (strcmp(key, "reports") == 0) {
			if (!read_number(reader, key, value, 0, 1000, &number))
				return false;
			rule->reports_per_s = (unsigned)number;
		} else if (is_element && strcmp(key, "most") == 0) {
			if (!read_number(reader, key, value, 1, 1000000, &number))
				return false;
			rule->most = (unsigned)number;
		} else if (is_element && strcmp(key, "handles") == 0 && value && !rule->handles) {
			if (!read_handles(reader, &rule->handles, &rule->handle_count, value))
				return false;
		} else if (is_element && strcmp(key, "addresses") == 0 && value && !rule->addresses) {
			if (!read_addresses(reader, rule, value))
				return false;
		} else {
			return wrong(reader, "\"%.80s\" is unknown here, there twice, or without a value", key);
		}
	}
	return rule->role != ROLE_ELEMENT || rule->handles || wrong(reader, "an element needs handles");
}

static bool read_transport(struct reader *reader, struct pool *pool, const char *text)
{
	static const struct {
		const char *word;
		uint16_t protocol;
		uint16_t use;
	} transports[] = {
		{ "udp", TRANSPORT_UDP, 0 },
		{ "tcp", TRANSPORT_TCP, 0 },
		{ "sctp", TRANSPORT_SCTP, 0 },
		{ "tcp+control", TRANSPORT_TCP, 1 },
		{ "sctp+control", TRANSPORT_SCTP, 1 },
	};
	size_t i;

	for (i = 0; i < sizeof(transports) / sizeof(*transports); i++) {
		if (strcmp(text, transports[i].word) != 0)
			continue;
		pool->protocol = transports[i].protocol;
		pool->use = transports[i].use;
		return true;
	}
	return wrong(reader, "\"%.80s\" is not udp, tcp, sctp, tcp+control or sctp+control", text);
}

static bool read_pool(struct reader *reader, char **rest)
{
	struct rules *rules = reader->rules;
	struct pool *pool = &rules->pools[rules->pool_count];
	unsigned long number;
	char *key, *value = next_word(rest);

	if (rules->pool_count == MAX_RULES)
		return wrong(reader, "more than %d pools", MAX_RULES);
	rules->pool_count++;
	if (!value)
		return wrong(reader, "a pool needs handles");
	if (!read_handles(reader, &pool->handles, &pool->handle_count, value))
		return false;
	while ((key = next_word(rest))) {
		value = next_word(rest);
		if (strcmp(key, "policy") == 0 && !pool->policy) {
			if (!read_number(reader, key, value, 1, UINT32_MAX, &number))
				return false;
			pool->policy = (uint32_t)number;
		} else if (strcmp(key, "transport") == 0 && value && !pool->protocol) {
			if (!read_transport(reader, pool, value))
				return false;
		} else {
			return wrong(reader, "\"%.80s\" is unknown here, there twice, or without a value", key);
		}
	}
	return pool->policy || pool->protocol || wrong(reader, "a pool needs policy or transport");
}

static bool read_line(struct reader *reader, char *line)
{
	static const struct {
		const char *word;
		enum role role;
	} roles[] = { { "registrar", ROLE_REGISTRAR }, { "follower", ROLE_FOLLOWER }, { "user", ROLE_USER }, { "element", ROLE_ELEMENT } };
	struct rules *rules = reader->rules;
	struct rule *rule;
	unsigned long number;
	char *word, *hosts;
	size_t i;

	line[strcspn(line, "#")] = '\0';
	word = next_word(&line);
	if (!word)
		return true;
	if (reader->has_ended)
		return wrong(reader, "`end` stands in the last line only");
	if (strcmp(word, "end") == 0) {
		reader->has_ended = true;
		return next_word(&line) == NULL || wrong(reader, "end has no value");
	}
	if (strcmp(word, "pool") == 0)
		return read_pool(reader, &line);
	if (strcmp(word, "life") == 0) {
		if (!read_number(reader, word, next_word(&line), 1, LONGEST_LIFE_S, &number))
			return false;
		rules->life_ms = (uint32_t)number * 1000;
		return next_word(&line) == NULL || wrong(reader, "life has one value");
	}
	for (i = 0; i < sizeof(roles) / sizeof(*roles); i++)
		if (strcmp(word, roles[i].word) == 0)
			break;
	if (i == sizeof(roles) / sizeof(*roles))
		return wrong(reader, "\"%.80s\" is not registrar, follower, user, element, pool, life or end", word);
	if (rules->count == MAX_RULES)
		return wrong(reader, "more than %d rules", MAX_RULES);
	rule = &rules->all[rules->count++];
	rule->role = roles[i].role;
	rule->most = DEFAULT_MOST;
	hosts = next_word(&line);
	if (!hosts || !network_read(hosts, &rule->hosts))
		return wrong(reader, "\"%.80s\" is no address or network, e.g. 10.20.0.0/16", hosts ? hosts : "");
	return read_keys(reader, rule, &line);
}

struct rules *rules_read(char *text, char *problem, size_t problem_bytes)
{
	struct reader reader = { .problem = problem, .problem_bytes = problem_bytes };
	char *line;
	bool has_registrar = false;
	size_t i;

	reader.rules = calloc(1, sizeof(*reader.rules));
	if (reader.rules) {
		reader.rules->all = calloc(MAX_RULES, sizeof(*reader.rules->all));
		reader.rules->pools = calloc(MAX_RULES, sizeof(*reader.rules->pools));
	}
	if (!reader.rules || !reader.rules->all || !reader.rules->pools) {
		wrong(&reader, "no memory");
		rules_free(reader.rules);
		return NULL;
	}
	reader.rules->life_ms = DEFAULT_LIFE_MS;
	while ((line = strsep(&text, "\n"))) {
		reader.line++;
		if (!read_line(&reader, line)) {
			rules_free(reader.rules);
			return NULL;
		}
	}
	if (!reader.has_ended) {
		wrong(&reader, "the file has no last line `end`: it is not whole, or still being copied");
		rules_free(reader.rules);
		return NULL;
	}
	for (i = 0; i < reader.rules->count; i++)
		has_registrar = has_registrar || reader.rules->all[i].role == ROLE_REGISTRAR;
	if (!has_registrar) { /* another file */
		wrong(&reader, "the file ends here and names no registrar");
		rules_free(reader.rules);
		return NULL;
	}
	return reader.rules;
}

void rules_free(struct rules *rules)
{
	size_t i;

	if (!rules)
		return;
	for (i = 0; i < rules->count; i++) {
		free(rules->all[i].handles);
		free(rules->all[i].addresses);
	}
	for (i = 0; i < rules->pool_count; i++)
		free(rules->pools[i].handles);
	free(rules->pools);
	free(rules->all);
	free(rules);
}

unsigned rules_roles(const struct rules *rules, const struct address *host)
{
	unsigned roles = 0;
	size_t i;

	for (i = 0; i < rules->count; i++)
		if (network_holds(&rules->all[i].hosts, host))
			roles |= rules->all[i].role;
	return roles;
}

/* A pattern that does not begin so itself takes no sentinel's handle: "*" lets nobody forge a sentinel. */
static bool is_sentinel(const uint8_t *bytes, size_t length)
{
	const size_t prefix = sizeof(SENTINEL_PREFIX) - 1;

	return length >= prefix && memcmp(bytes, SENTINEL_PREFIX, prefix) == 0;
}

static bool has_handle(const struct pattern *patterns, size_t count, const uint8_t *handle, size_t length)
{
	size_t i;

	for (i = 0; i < count; i++) {
		const struct pattern *pattern = &patterns[i];

		if (is_sentinel(handle, length) && !is_sentinel(pattern->bytes, pattern->length))
			continue;
		if ((pattern->is_prefix ? length >= pattern->length : length == pattern->length) &&
		    memcmp(handle, pattern->bytes, pattern->length) == 0)
			return true;
	}
	return false;
}

bool rule_has_handle(const struct rule *rule, const uint8_t *handle, size_t length)
{
	return has_handle(rule->handles, rule->handle_count, handle, length);
}

bool pool_has_handle(const struct pool *pool, const uint8_t *handle, size_t length)
{
	return has_handle(pool->handles, pool->handle_count, handle, length);
}

bool rule_has_address(const struct rule *rule, const struct address *address)
{
	size_t i;

	for (i = 0; i < rule->address_count; i++)
		if (network_holds(&rule->addresses[i], address))
			return true;
	return rule->address_count == 0 && network_holds(&rule->hosts, address);
}
