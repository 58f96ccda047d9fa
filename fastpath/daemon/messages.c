#include "messages.h"

#include <string.h>

/* The rest of a body. A read beyond its end marks it as broken. */
struct reader {
	const uint8_t *at;
	size_t left;
	bool is_broken;
};

static struct reader reader_of(const struct message *message)
{
	return (struct reader){.at = message->body, .left = message->size, .is_broken = false};
}

static const uint8_t *take(struct reader *reader, size_t size)
{
	if (reader->is_broken || reader->left < size) {
		reader->is_broken = true;
		return NULL;
	}
	const uint8_t *at = reader->at;
	reader->at += size;
	reader->left -= size;
	return at;
}

static void take_into(struct reader *reader, void *to, size_t size)
{
	const uint8_t *at = take(reader, size);
	if (at)
		memcpy(to, at, size);
	else
		memset(to, 0, size);
}

static uint8_t take_byte(struct reader *reader)
{
	uint8_t byte;
	take_into(reader, &byte, sizeof(byte));
	return byte;
}

static uint16_t take_short(struct reader *reader)
{
	uint16_t number;
	take_into(reader, &number, sizeof(number));
	return number;
}

static bool is_whole(const struct reader *reader) { return !reader->is_broken && reader->left == 0; }

long message_read(const uint8_t *bytes, size_t size, struct message *message)
{
	uint32_t length;
	if (size < sizeof(length))
		return 0;
	memcpy(&length, bytes, sizeof(length));
	if (length < 1 || length > MOST_MESSAGE_BYTES)
		return -1;
	if (size < sizeof(length) + length)
		return 0;
	message->kind = bytes[sizeof(length)];
	message->body = bytes + sizeof(length) + 1;
	message->size = length - 1;
	return (long)(sizeof(length) + length);
}

bool hello_read(const struct message *message, struct hello *hello)
{
	struct reader reader = reader_of(message);
	take_into(&reader, &hello->version, sizeof(hello->version));
	hello->payload = take_short(&reader);
	hello->subnets = take_byte(&reader) != 0;
	return is_whole(&reader) && hello->payload >= MOST_ANSWER_BYTES;
}

/* A name in lower case on the wire, of this size: labels that end where the name ends. */
static bool is_name(const uint8_t *name, size_t size)
{
	size_t at = 0;
	while (at < size && name[at] != 0) {
		if (name[at] > 63)
			return false;
		at += (size_t)name[at] + 1;
	}
	if (at + 1 != size)
		return false;
	for (size_t i = 0; i < size; i++)
		if (name[i] >= 'A' && name[i] <= 'Z')
			return false;
	return true;
}

static bool take_name(struct reader *reader, struct question *question)
{
	size_t size = take_byte(reader);
	const uint8_t *name = take(reader, size);
	if (!name || size > NAME_BYTES || !is_name(name, size))
		return false;
	memcpy(question->name, name, size);
	question->size = (uint16_t)size;
	return true;
}

bool put_read(const struct message *message, struct put *put)
{
	struct reader reader = reader_of(message);
	memset(&put->question, 0, sizeof(put->question));
	put->question.type = take_short(&reader);
	put->question.asker_class = take_short(&reader);
	put->classes = take_short(&reader);
	if (!take_name(&reader, &put->question))
		return false;
	put->count = take_byte(&reader);
	if (put->question.asker_class && put->classes)
		return false;
	if (put->count > MOST_VARIANTS)
		return false;
	for (uint32_t i = 0; i < put->count; i++) {
		struct variant *variant = &put->variants[i];
		variant->answers = take_short(&reader);
		variant->additional = take_short(&reader);
		variant->size = take_short(&reader);
		variant->bytes = take(&reader, variant->size);
		if (!variant->bytes || variant->size == 0 || variant->size > RECORD_BYTES)
			return false;
	}
	return is_whole(&reader);
}

static bool is_number(uint16_t number) { return number && number < MOST_CLASSES_NUMBERS; }

bool near_read(const struct message *message, struct near_blocks *told)
{
	struct reader reader = reader_of(message);
	told->number = take_short(&reader);
	for (told->count = 0; reader.left && !reader.is_broken && told->count < MOST_BLOCKS_TOLD; told->count++) {
		struct near_block *block = &told->blocks[told->count];
		block->asker_class = take_short(&reader);
		block->version = take_byte(&reader);
		block->length = take_byte(&reader);
		take_into(&reader, block->address, sizeof(block->address));
		if ((block->version != 4 && block->version != 6) || block->length > (block->version == 4 ? 32 : 128))
			return false;
	}
	return is_whole(&reader) && is_number(told->number);
}

bool forget_read(const struct message *message, uint16_t *number)
{
	struct reader reader = reader_of(message);
	*number = take_short(&reader);
	return is_whole(&reader) && is_number(*number);
}

bool limit_read(const struct message *message, struct wanted_limit *wanted)
{
	struct reader reader = reader_of(message);
	take_into(&reader, &wanted->deep_per_s, sizeof(wanted->deep_per_s));
	take_into(&reader, &wanted->all_per_s, sizeof(wanted->all_per_s));
	wanted->ipv4_prefix_bits = take_byte(&reader);
	wanted->ipv6_prefix_bits = take_byte(&reader);
	wanted->slip = take_short(&reader);
	return is_whole(&reader) && wanted->deep_per_s <= MOST_PER_S && wanted->all_per_s <= MOST_PER_S &&
	       wanted->ipv4_prefix_bits <= 32 && wanted->ipv6_prefix_bits <= 128 && wanted->slip >= 1 &&
	       wanted->slip <= MOST_SLIP;
}

bool zone_depth_read(const struct message *message, struct zone_depth *found)
{
	struct reader reader = reader_of(message);
	struct question name = {0};
	found->depth = take_byte(&reader);
	if (found->depth > MOST_DEPTH || !take_name(&reader, &name))
		return false;
	memcpy(found->zone.name, name.name, sizeof(found->zone.name));
	return is_whole(&reader);
}

bool number_read(const struct message *message, uint64_t *number)
{
	struct reader reader = reader_of(message);
	take_into(&reader, number, sizeof(*number));
	return is_whole(&reader);
}
