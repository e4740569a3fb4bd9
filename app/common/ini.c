/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading of INI files for the programs: libinih, line numbers, one way to refuse. */
#include "common/ini.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct parse {
	struct ini_reader *reader;
	FILE *file;
	void (*handler)(void *context, const struct ini_entry *entry);
	void *context;
	bool too_long;
};

/* inih asks for one line at a time, so counting here gives the handler its line. */
static char *read_line(char *buffer, int room, void *stream)
{
	struct parse *parse = stream;
	char *line = fgets(buffer, room, parse->file);

	if (!line)
		return NULL;
	parse->reader->line++;
	if (!strchr(line, '\n') && !feof(parse->file)) {
		int c;

		parse->too_long = true;
		ini_complain(parse->reader, NULL, NULL, parse->reader->line,
			     "line longer than %d characters", room - 2);
		while ((c = fgetc(parse->file)) != EOF && c != '\n')
			;
	}
	return line;
}

static int on_entry(void *user, const char *section, const char *key, const char *value)
{
	struct parse *parse = user;
	struct ini_entry entry = { parse->reader, section, key, value ? value : "" };

	parse->handler(parse->context, &entry);
	return 1;
}

int ini_read(struct ini_reader *reader, const char *path,
	     void (*handler)(void *context, const struct ini_entry *entry), void *context)
{
	struct parse parse = { .reader = reader, .handler = handler, .context = context };
	struct stat status;
	int line;

	reader->path = path;
	reader->line = 0;
	reader->errors = 0;
	if (!reader->messages)
		reader->messages = stderr;
	parse.file = fopen(path, "r");
	if (parse.file && fstat(fileno(parse.file), &status) == 0 && S_ISDIR(status.st_mode)) {
		fclose(parse.file);
		parse.file = NULL;
		errno = EISDIR;
	}
	if (!parse.file) {
		int error = errno;

		fprintf(reader->messages, "%s: %s\n", path, strerror(error));
		return -error;
	}
	/* inih takes one user pointer for handler and another for the reader: same here. */
	line = ini_parse_stream(read_line, &parse, on_entry, &parse);
	fclose(parse.file);
	if (line > 0 && !parse.too_long)
		ini_complain(reader, NULL, NULL, (unsigned int)line,
			     "not a section, a comment or 'key = value'");
	return reader->errors ? -EINVAL : 0;
}

void ini_refuse(const struct ini_entry *entry, const char *expected, ...)
{
	FILE *out = entry->reader->messages;
	va_list arguments;

	entry->reader->errors++;
	fprintf(out, "%s:%u: [%s] %s = %s: expected ", entry->reader->path, entry->reader->line,
		entry->section, entry->key, entry->value);
	va_start(arguments, expected);
	vfprintf(out, expected, arguments);
	va_end(arguments);
	fputc('\n', out);
}

void ini_complain(struct ini_reader *reader, const char *kind, const char *name, unsigned int line,
		  const char *format, ...)
{
	va_list arguments;

	reader->errors++;
	fprintf(reader->messages, "%s:", reader->path);
	if (line)
		fprintf(reader->messages, "%u:", line);
	if (kind)
		fprintf(reader->messages, " [%s%s%s]", kind, name ? " " : "", name ? name : "");
	fputc(' ', reader->messages);
	va_start(arguments, format);
	vfprintf(reader->messages, format, arguments);
	va_end(arguments);
	fputc('\n', reader->messages);
}

/* Digits only: no sign, blank, exponent or prefix (known fault: "1k", "-1" read as numbers). */
static bool parse_digits(const char *text, const char **end, uint64_t *number)
{
	uint64_t value = 0;
	const char *p = text;

	for (; isdigit((unsigned char)*p); p++) {
		unsigned int digit = (unsigned int)(*p - '0');

		if (value > (UINT64_MAX - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*number = value;
	*end = p;
	return p != text;
}

bool ini_get_number(const struct ini_entry *entry, uint64_t minimum, uint64_t maximum,
		    uint64_t *number)
{
	const char *end;

	if (!parse_digits(entry->value, &end, number) || *end || *number < minimum ||
	    *number > maximum) {
		ini_refuse(entry, "a number from %llu to %llu", (unsigned long long)minimum,
			   (unsigned long long)maximum);
		return false;
	}
	return true;
}

bool ini_get_size(const struct ini_entry *entry, uint64_t *bytes)
{
	const char *end;
	unsigned int shift = 0;

	if (!parse_digits(entry->value, &end, bytes))
		goto refuse;
	switch (*end) {
	case '\0': break;
	case 'k':
	case 'K': shift = 10; break;
	case 'm':
	case 'M': shift = 20; break;
	case 'g':
	case 'G': shift = 30; break;
	case 't':
	case 'T': shift = 40; break;
	default: goto refuse;
	}
	if ((*end && end[1]) || *bytes == 0 || *bytes > (UINT64_MAX >> 1) >> shift)
		goto refuse;
	*bytes <<= shift;
	return true;
refuse:
	ini_refuse(entry, "a size in bytes above 0, with K, M, G or T if wanted (64M)");
	return false;
}

bool ini_get_string(const struct ini_entry *entry, char *buffer, size_t room)
{
	size_t length = strlen(entry->value);

	if (length == 0 || length >= room) {
		ini_refuse(entry, "1 to %zu characters", room - 1);
		return false;
	}
	memcpy(buffer, entry->value, length + 1);
	return true;
}

bool ini_get_choice(const struct ini_entry *entry, const char *const choices[], unsigned int *index)
{
	char list[256];
	size_t used = 0;

	for (unsigned int i = 0; choices[i]; i++) {
		if (!strcmp(entry->value, choices[i])) {
			*index = i;
			return true;
		}
	}
	for (unsigned int i = 0; choices[i] && used < sizeof(list); i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
					 i == 0           ? ""
					 : choices[i + 1] ? ", "
							  : " or ",
					 choices[i]);
	ini_refuse(entry, "%s", list);
	return false;
}

bool ini_next(const char **list, char *element, size_t room)
{
	const char *p = *list;
	size_t length;
	const char *end;

	while (*p == ' ' || *p == '\t' || *p == ',')
		p++;
	if (!*p)
		return false;
	length = strcspn(p, ",");
	end = p + length;
	*list = end;
	while (length && isspace((unsigned char)p[length - 1]))
		length--;
	if (length >= room)
		length = room - 1;
	memcpy(element, p, length);
	element[length] = '\0';
	return true;
}

bool address_parse(const char *text, uint8_t gid[16], bool *is_v4)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (inet_pton(AF_INET, text, gid + 12) == 1) {
		memcpy(gid, mapped, sizeof(mapped));
		*is_v4 = true;
		return true;
	}
	*is_v4 = false;
	return inet_pton(AF_INET6, text, gid) == 1 && memcmp(gid, mapped, sizeof(mapped)) != 0;
}

const char *address_format(const uint8_t gid[16], char *buffer)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (!memcmp(gid, mapped, sizeof(mapped)))
		return inet_ntop(AF_INET, gid + 12, buffer, 64);
	return inet_ntop(AF_INET6, gid, buffer, 64);
}
