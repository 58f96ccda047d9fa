#include "rules.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "../protocol.h"

#define LINE_MAX_BYTES 1024
#define VALUES_MAX RULES_ADDRESSES_MAX

enum table { TABLE_TOP = 1, TABLE_DEFAULT = 2, TABLE_RULE = 4, TABLE_UNKNOWN = 8 };

enum { ADDRESSES, WAIT_MS, RTO_MIN_MS, TRY, LOCAL, REMOTE, END, USE, ADDRESS, PORT, KEYS };

struct reader {
	struct rules *rules;
	struct rule top, *rule; /* the file's own values, for rules that say nothing else; the rule being read */
	const char *path;
	FILE *mistakes;
	int line, count;
	enum table table;
	unsigned int given; /* keys of this table, a bit each */
};

struct value {
	bool is_number, is_list;
	long number;
	char texts[VALUES_MAX][64];
	int count;
};

static void mistake(struct reader *reader, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void mistake(struct reader *reader, int line, const char *format, ...)
{
	va_list arguments;

	reader->count++;
	fprintf(reader->mistakes, "%s:%d: ", reader->path, line);
	va_start(arguments, format);
	vfprintf(reader->mistakes, format, arguments);
	va_end(arguments);
	fputc('\n', reader->mistakes);
}

static char *skip_space(char *at)
{
	return at + strspn(at, " \t\r\n");
}

/* A string in quotes. Return what is behind it, NULL: it is none. */
static char *read_text(char *at, struct value *value)
{
	char *end = *at == '"' ? strchr(at + 1, '"') : NULL;

	if (end == NULL || value->count == VALUES_MAX || end - at > (ptrdiff_t)sizeof(value->texts[0]) || memchr(at, '\\', (size_t)(end - at)))
		return NULL;
	snprintf(value->texts[value->count++], sizeof(value->texts[0]), "%.*s", (int)(end - at - 1), at + 1);
	return skip_space(end + 1);
}

/* The part of TOML that the rules need. Return false: it is none. */
static bool read_value(char *at, struct value *value)
{
	char *end;

	*value = (struct value){ 0 };
	if (*at == '[') {
		value->is_list = true;
		for (at = skip_space(at + 1); *at != ']';) {
			at = read_text(at, value);
			if (at == NULL || (*at != ',' && *at != ']'))
				return false;
			at = *at == ',' ? skip_space(at + 1) : at;
		}
		at = skip_space(at + 1);
	} else if (*at == '"') {
		at = read_text(at, value);
	} else {
		errno = 0;
		value->is_number = true;
		value->number = strtol(at, &end, 10);
		at = end == at || errno != 0 ? NULL : skip_space(end);
	}
	return at != NULL && (*at == '\0' || *at == '#');
}

static bool read_address(const char *text, struct sockaddr_in6 *address)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET };

	*address = (struct sockaddr_in6){ .sin6_family = AF_INET6 };
	if (inet_pton(AF_INET6, text, &address->sin6_addr) == 1)
		return true;
	if (inet_pton(AF_INET, text, &v4.sin_addr) != 1)
		return false;
	*address = (struct sockaddr_in6){ 0 };
	memcpy(address, &v4, sizeof(v4));
	return true;
}

static void map_address(const struct sockaddr *address, struct in6_addr *mapped)
{
	*mapped = (struct in6_addr){ .s6_addr = { [10] = 0xff, [11] = 0xff } };
	if (address->sa_family == AF_INET)
		memcpy(&mapped->s6_addr[12], &((const struct sockaddr_in *)address)->sin_addr, sizeof(struct in_addr));
	else
		*mapped = ((const struct sockaddr_in6 *)address)->sin6_addr;
}

static bool same_bits(const struct in6_addr *first, const struct in6_addr *second, int bits)
{
	const int whole = bits / 8, rest = bits % 8;

	return memcmp(first, second, (size_t)whole) == 0 &&
	       (rest == 0 || (first->s6_addr[whole] ^ second->s6_addr[whole]) >> (8 - rest) == 0);
}

static bool read_network(struct rule *rule, const char *text)
{
	char copy[64], *slash, *end;
	struct sockaddr_in6 address;
	struct in6_addr rest;
	long bits, i;

	snprintf(copy, sizeof(copy), "%s", text);
	slash = strchr(copy, '/');
	if (slash != NULL)
		*slash++ = '\0';
	if (!read_address(copy, &address))
		return false;
	bits = address.sin6_family == AF_INET ? 32 : 128;
	if (slash != NULL) {
		i = strtol(slash, &end, 10);
		if (!isdigit((unsigned char)*slash) || *end != '\0' || i > bits)
			return false;
		bits = i;
	}
	map_address((struct sockaddr *)&address, &rule->network);
	rule->prefix = (int)bits + (address.sin6_family == AF_INET ? 96 : 0);
	rest = rule->network;
	for (i = rule->prefix; i < 128; i++)
		rest.s6_addr[i / 8] &= (uint8_t)~(0x80 >> i % 8);
	return same_bits(&rest, &rule->network, 128);
}

static bool read_ports(struct rule *rule, const struct value *value)
{
	char more;

	rule->first_port = rule->last_port = value->is_number && value->number <= 65535 ? (int)value->number : 0;
	if (!value->is_number && !(isdigit((unsigned char)value->texts[0][0]) &&
				   sscanf(value->texts[0], "%5d-%5d%c", &rule->first_port, &rule->last_port, &more) == 2))
		return false;
	return rule->first_port >= 1 && rule->last_port <= 65535 && rule->first_port <= rule->last_port;
}

static void read_addresses(struct reader *reader, const struct value *value)
{
	int i;

	for (i = 0; i < value->count; i++)
		if (!read_address(value->texts[i], &reader->rules->addresses[i]))
			mistake(reader, reader->line, "addresses: \"%s\" is no IPv4 or IPv6 address", value->texts[i]);
	reader->rules->address_count = value->count;
}

static bool read_use(const char *text, enum rule_use *use)
{
	*use = strcmp(text, "sctp") == 0 ? USE_SCTP : strcmp(text, "tcp") == 0 ? USE_TCP : USE_NONE;
	return *use != USE_NONE;
}

static bool read_number(const struct value *value, int largest, int *number)
{
	if (!value->is_number || value->number < 1 || value->number > largest)
		return false;
	*number = (int)value->number;
	return true;
}

static void read_key(struct reader *reader, const char *key, const struct value *value)
{
	static const struct {
		const char *key;
		int tables;
		bool number, text, list;
		const char *expected;
	} keys[] = {
		{ "addresses", TABLE_TOP, .list = true, .expected = "write addresses of this host: [\"10.1.0.1\", \"10.2.0.1\"]" },
		{ "wait_ms", TABLE_TOP | TABLE_RULE, .number = true, .expected = "write a whole number from 1 to 10000" },
		{ "rto_min_ms", TABLE_TOP | TABLE_RULE, .number = true, .expected = "write a whole number from 1 to 60000" },
		{ "try", TABLE_TOP | TABLE_RULE, .text = true, .expected = "write \"first\" or \"background\"" },
		{ "local", TABLE_DEFAULT, .text = true, .expected = "write \"sctp\" or \"tcp\"" },
		{ "remote", TABLE_DEFAULT, .text = true, .expected = "write \"sctp\" or \"tcp\"" },
		{ "end", TABLE_RULE, .text = true, .expected = "write \"local\" or \"remote\"" },
		{ "use", TABLE_RULE, .text = true, .expected = "write \"sctp\" or \"tcp\"" },
		{ "address", TABLE_RULE, .text = true,
		  .expected = "write an address or a network whose further bits are 0, such as \"10.1.1.0/24\"" },
		{ "port", TABLE_RULE, .number = true, .text = true, .expected = "write a port such as 80, or ports such as \"8000-9000\"" },
	};
	struct rule *rule = reader->table == TABLE_RULE ? reader->rule : &reader->top;
	const char *text = value->texts[0];
	bool ok = true;
	int i = 0;

	while (i < KEYS && (strcmp(keys[i].key, key) != 0 || !(keys[i].tables & (int)reader->table)))
		i++;
	if (reader->table == TABLE_UNKNOWN)
		return;
	if (i < KEYS && reader->given & 1U << i) {
		mistake(reader, reader->line, "%s: it stands here twice", key);
		return;
	}
	reader->given |= 1U << i;
	if (i == KEYS) {
		while (i-- > 0 && strcmp(keys[i].key, key) != 0)
			;
		mistake(reader, reader->line, "%s: there is no such key%s", key,
			i < 0			       ? "" :
			keys[i].tables & TABLE_DEFAULT ? " here: it belongs under [default]" :
			keys[i].tables & TABLE_TOP     ? " here: it belongs before the first table" :
							 " here: it belongs under [[rule]]");
		return;
	}
	if (value->is_list ? !keys[i].list : value->is_number ? !keys[i].number : !keys[i].text) {
		mistake(reader, reader->line, "%s: %s", key, keys[i].expected);
		return;
	}
	switch (i) {
	case ADDRESSES:
		read_addresses(reader, value);
		break;
	case WAIT_MS:
		ok = read_number(value, SHIM_WAIT_MAX_MS, &rule->wait_ms);
		break;
	case RTO_MIN_MS:
		ok = read_number(value, SHIM_RTO_MAX_MS, &rule->rto_min_ms);
		break;
	case TRY:
		rule->try = strcmp(text, "first") == 0 ? TRY_FIRST : strcmp(text, "background") == 0 ? TRY_BACKGROUND : TRY_NONE;
		ok = rule->try != TRY_NONE;
		break;
	case LOCAL:
	case REMOTE:
		ok = read_use(text, &reader->rules->all[RULES_MAX + (i == REMOTE)].use);
		reader->rules->all[RULES_MAX + (i == REMOTE)].line = reader->line;
		break;
	case END:
		rule->end = strcmp(text, "local") == 0 ? END_LOCAL : strcmp(text, "remote") == 0 ? END_REMOTE : END_NONE;
		ok = rule->end != END_NONE;
		break;
	case USE:
		ok = read_use(text, &rule->use);
		break;
	case ADDRESS:
		ok = read_network(rule, text);
		break;
	default:
		ok = read_ports(rule, value);
	}
	if (!ok)
		mistake(reader, reader->line, "%s: %s", key, keys[i].expected);
}

/* Its keys are all read. */
static void finish_table(struct reader *reader)
{
	const bool is_rule = reader->table == TABLE_RULE;

	if (is_rule && !(reader->given & 1U << END))
		mistake(reader, reader->rule->line, "[[rule]]: end is missing: write end = \"local\" or end = \"remote\"");
	if (is_rule && !(reader->given & 1U << USE))
		mistake(reader, reader->rule->line, "[[rule]]: use is missing: write use = \"sctp\" or use = \"tcp\"");
}

static void begin_table(struct reader *reader, const char *at)
{
	static struct rule beyond;
	size_t length = strcspn(at, "#");

	while (length > 0 && isspace((unsigned char)at[length - 1]))
		length--;
	reader->table = TABLE_UNKNOWN;
	if (length == strlen("[default]") && strncmp(at, "[default]", length) == 0) {
		reader->table = TABLE_DEFAULT;
	} else if (length == strlen("[[rule]]") && strncmp(at, "[[rule]]", length) == 0) {
		reader->table = TABLE_RULE;
		reader->rule = reader->rules->count < RULES_MAX ? &reader->rules->all[reader->rules->count++] : &beyond;
		if (reader->rule == &beyond)
			mistake(reader, reader->line, "there are more than %d rules", RULES_MAX);
		*reader->rule = (struct rule){ .line = reader->line, .last_port = 65535 };
	} else {
		mistake(reader, reader->line, "%.*s: there is no such table: write [[rule]] or [default]", (int)length, at);
	}
}

static void read_line(struct reader *reader, char *line)
{
	char *at = skip_space(line), *equals;
	struct value value;
	size_t length;

	if (*at == '\0' || *at == '#')
		return;
	if (*at == '[') {
		finish_table(reader);
		reader->given = 0;
		begin_table(reader, at);
		return;
	}
	equals = strchr(at, '=');
	length = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
	if (equals == NULL || length == 0 || skip_space(at + length) != equals) {
		mistake(reader, reader->line, "write key = value, [[rule]] or [default]");
		return;
	}
	at[length] = '\0';
	if (!read_value(skip_space(equals + 1), &value))
		mistake(reader, reader->line, "%s: the value is no \"text\", number or [\"list\", \"of texts\"] on one line", at);
	else
		read_key(reader, at, &value);
}

/* A rule takes what it lacks from the top of the file, else the usual value. */
static void fill(struct rule *rule, const struct rule *top)
{
	rule->wait_ms = rule->wait_ms != 0 ? rule->wait_ms : top->wait_ms != 0 ? top->wait_ms : 200;
	rule->rto_min_ms = rule->rto_min_ms != 0 ? rule->rto_min_ms : top->rto_min_ms;
	rule->try = rule->try != TRY_NONE ? rule->try : top->try != TRY_NONE ? top->try : TRY_FIRST;
}

int rules_read(struct rules *rules, const char *path, FILE *mistakes)
{
	struct reader reader = { .rules = rules, .path = path, .mistakes = mistakes, .table = TABLE_TOP };
	FILE *file = fopen(path, "re");
	char line[LINE_MAX_BYTES];
	int i;

	*rules = (struct rules){ .all[RULES_MAX] = { .end = END_LOCAL, .use = USE_TCP, .last_port = 65535 },
				 .all[RULES_MAX + 1] = { .end = END_REMOTE, .use = USE_TCP, .last_port = 65535 } };
	if (file == NULL) {
		fprintf(mistakes, "%s: %s\n", path, strerror(errno));
		return 1;
	}
	while (fgets(line, sizeof(line), file) != NULL) {
		reader.line++;
		if (strchr(line, '\n') == NULL && !feof(file)) {
			mistake(&reader, reader.line, "the line has more than %d characters", LINE_MAX_BYTES - 2);
			break;
		}
		read_line(&reader, line);
	}
	if (ferror(file))
		mistake(&reader, reader.line, "%s", strerror(errno));
	fclose(file);
	finish_table(&reader);
	memmove(&rules->all[rules->count], &rules->all[RULES_MAX], 2 * sizeof(rules->all[0]));
	rules->count += 2;
	for (i = 0; i < rules->count; i++)
		fill(&rules->all[i], &reader.top);
	return reader.count;
}

const struct rule *rules_match(const struct rules *rules, enum rule_end end, const struct sockaddr *address)
{
	struct in6_addr mapped;
	uint16_t port;
	int i;

	if (address->sa_family != AF_INET && address->sa_family != AF_INET6)
		return NULL;
	map_address(address, &mapped);
	memcpy(&port, (const char *)address + offsetof(struct sockaddr_in, sin_port), sizeof(port)); /* at the same place in both */
	port = ntohs(port);
	for (i = 0; i < rules->count; i++) {
		const struct rule *rule = &rules->all[i];

		if (rule->end == end && port >= rule->first_port && port <= rule->last_port && same_bits(&rule->network, &mapped, rule->prefix))
			return rule;
	}
	return NULL;
}
