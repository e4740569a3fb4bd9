/* SPDX-License-Identifier: BSD-3-Clause */
/* The target's configuration file. */
#include "oriel-target/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ndk/ndk.h>

#include "common/ini.h"

struct parse {
	struct target_config *config;
	struct ini_reader reader;
	struct target_export *export;
	uint32_t seen[TARGET_MAX_EXPORTS];
	uint32_t seen_target;
};

struct key {
	const char *name;
	void (*set)(struct parse *parse, const struct ini_entry *entry);
};

/* "10.0.0.1:7471", "[fd00::1]:7471" */
static bool parse_listen(const char *text, struct target_address *address)
{
	static const uint8_t zero[16];
	const char *colon = strrchr(text, ':');
	char host[64];
	size_t length;
	unsigned long port;
	char *end;
	bool v4;

	if (!colon || colon[1] < '0' || colon[1] > '9')
		return false;
	port = strtoul(colon + 1, &end, 10);
	length = (size_t)(colon - text);
	if (*end || port < 1 || port > 65535 || length < 2)
		return false;
	if (text[0] == '[' && text[length - 1] == ']') {
		text++;
		length -= 2;
	} else if (memchr(text, ':', length)) {
		return false;
	}
	if (length >= sizeof(host))
		return false;
	memcpy(host, text, length);
	host[length] = '\0';
	if (!address_parse(host, address->gid, &v4))
		return false;
	address->port = (uint16_t)port;
	address->any = !memcmp(address->gid + (v4 ? 12 : 0), zero, v4 ? 4 : 16);
	return true;
}

static void set_listen(struct parse *parse, const struct ini_entry *entry)
{
	struct target_export *export = parse->export;
	const char *list = entry->value;
	char element[96];

	while (ini_next(&list, element, sizeof(element))) {
		if (export->listens == TARGET_MAX_LISTEN) {
			ini_refuse(entry, "at most %u addresses", TARGET_MAX_LISTEN);
			return;
		}
		if (!parse_listen(element, &export->listen[export->listens++])) {
			ini_refuse(entry, "addresses with port, as 10.0.0.1:7471, [fd00::1]:7471");
			return;
		}
	}
	if (!export->listens)
		ini_refuse(entry, "at least one address with port, as 10.0.0.1:7471");
}

static void set_size(struct parse *parse, const struct ini_entry *entry)
{
	ini_get_size(entry, &parse->export->size);
}

static void set_backing(struct parse *parse, const struct ini_entry *entry)
{
	struct target_export *export = parse->export;

	if (!strcmp(entry->value, "memfd")) {
		export->backing = BACKING_MEMFD;
	} else if (!strcmp(entry->value, "hugepage")) {
		export->backing = BACKING_HUGEPAGE;
	} else if (!strncmp(entry->value, "file:/", 6) &&
		   strlen(entry->value + 5) < sizeof(export->file)) {
		export->backing = BACKING_FILE;
		snprintf(export->file, sizeof(export->file), "%s", entry->value + 5);
	} else {
		ini_refuse(entry, "memfd, hugepage or file:/absolute/path");
	}
}

static void set_access(struct parse *parse, const struct ini_entry *entry)
{
	static const char *const names[] = { "read", "write", "atomic" };
	const char *list = entry->value;
	char element[32];

	parse->export->access = 0;
	while (ini_next(&list, element, sizeof(element))) {
		unsigned int i = 0;

		while (i < 3 && strcmp(element, names[i]) != 0)
			i++;
		if (i == 3) {
			ini_refuse(entry, "a list of read, write, atomic");
			return;
		}
		parse->export->access |= (uint8_t)(1u << i);
	}
	if (!parse->export->access)
		ini_refuse(entry, "at least one of read, write, atomic");
}

static void set_window(struct parse *parse, const struct ini_entry *entry)
{
	static const char *const choices[] = { "domain", "connection", NULL };
	unsigned int choice;

	if (ini_get_choice(entry, choices, &choice))
		parse->export->tied = choice;
}

static bool parse_network(char *text, struct target_network *network)
{
	char *slash = strchr(text, '/');
	unsigned long length = 128;
	char *end;
	bool v4;

	if (slash)
		*slash = '\0';
	if (!address_parse(text, network->gid, &v4))
		return false;
	if (slash) {
		length = strtoul(slash + 1, &end, 10);
		if (slash[1] < '0' || slash[1] > '9' || *end || length > (v4 ? 32 : 128))
			return false;
		if (v4)
			length += 96;
	}
	network->prefix_length = (uint32_t)length;
	return true;
}

static void set_allow(struct parse *parse, const struct ini_entry *entry)
{
	struct target_export *export = parse->export;
	const char *list = entry->value;
	char element[96];

	while (ini_next(&list, element, sizeof(element))) {
		if (export->allows == TARGET_MAX_ALLOW) {
			ini_refuse(entry, "at most %u networks", TARGET_MAX_ALLOW);
			return;
		}
		if (!parse_network(element, &export->allow[export->allows++])) {
			ini_refuse(entry, "addresses or networks, as 10.0.0.0/24, fd00::/64");
			return;
		}
	}
	/* An empty list would open the export to everybody. */
	if (!export->allows)
		ini_refuse(entry, "at least one address or network, as 10.0.0.0/24");
}

static const struct key export_keys[] = {
	{ "listen", set_listen }, { "size", set_size },     { "backing", set_backing },
	{ "access", set_access }, { "window", set_window }, { "allow", set_allow },
	{ NULL, NULL },
};

static struct target_export *find_export(struct parse *parse, const struct ini_entry *entry)
{
	struct target_config *config = parse->config;
	const char *name = entry->section + 7;
	struct target_export *export;

	while (*name == ' ')
		name++;
	for (uint32_t i = 0; i < config->count; i++)
		if (!strcmp(config->exports[i].name, name))
			return &config->exports[i];
	if (!*name || strlen(name) > EXPORT_NAME_SIZE) {
		ini_refuse(entry, "a section [export NAME] with a name of 1 to %u characters",
			   EXPORT_NAME_SIZE);
		return NULL;
	}
	if (config->count == TARGET_MAX_EXPORTS) {
		ini_refuse(entry, "at most %u exports", TARGET_MAX_EXPORTS);
		return NULL;
	}
	export = &config->exports[config->count++];
	snprintf(export->name, sizeof(export->name), "%s", name);
	export->access = EXPORT_READ;
	export->tied = true;
	export->line = entry->reader->line;
	return export;
}

/* False: no such key. */
static bool section_entry(struct parse *parse, const struct key *keys, uint32_t *seen,
			  const struct ini_entry *entry)
{
	for (unsigned int i = 0; keys[i].name; i++) {
		if (strcmp(entry->key, keys[i].name) != 0)
			continue;
		if (*seen & 1u << i)
			ini_refuse(entry, "each key once in a section");
		else
			keys[i].set(parse, entry);
		*seen |= 1u << i;
		return true;
	}
	return false;
}

static void export_entry(struct parse *parse, const struct ini_entry *entry)
{
	uint32_t *seen = &parse->seen[parse->export - parse->config->exports];

	if (!section_entry(parse, export_keys, seen, entry))
		ini_refuse(entry, "one of the keys listen, size, backing, access, window, allow");
}

static void set_socket(struct parse *parse, const struct ini_entry *entry)
{
	if (entry->value[0] != '/' &&
	    strncmp(entry->value, ORIEL_IN_PROCESS, strlen(ORIEL_IN_PROCESS)) != 0)
		ini_refuse(entry, "an absolute path, or in-process:FILE");
	else
		ini_get_string(entry, parse->config->socket, sizeof(parse->config->socket));
}

static void set_probe(struct parse *parse, const struct ini_entry *entry)
{
	uint64_t seconds;

	if (ini_get_number(entry, 0, 86400, &seconds))
		parse->config->probe = (uint32_t)seconds;
}

static const struct key target_keys[] = {
	{ "socket", set_socket },
	{ "probe", set_probe },
	{ NULL, NULL },
};

static void target_entry(struct parse *parse, const struct ini_entry *entry)
{
	if (!section_entry(parse, target_keys, &parse->seen_target, entry))
		ini_refuse(entry, "one of the keys socket, probe");
}

static void on_entry(void *context, const struct ini_entry *entry)
{
	struct parse *parse = context;

	if (!strcmp(entry->section, "target")) {
		target_entry(parse, entry);
	} else if (!strncmp(entry->section, "export ", 7)) {
		parse->export = find_export(parse, entry);
		if (parse->export)
			export_entry(parse, entry);
	} else {
		ini_refuse(entry, "a section [target] or [export NAME]");
	}
}

static void check_export(struct parse *parse, struct target_export *export)
{
	if (!export->listens)
		ini_complain(&parse->reader, "export", export->name, export->line,
			     "expected listen = ADDRESS:PORT");
	if (!export->size && export->backing != BACKING_FILE)
		ini_complain(&parse->reader, "export", export->name, export->line,
			     "expected size = BYTES (64M); only a file brings its own size");
}

int target_config_read(struct target_config *config, const char *path)
{
	struct parse parse = { .config = config };
	int error;

	memset(config, 0, sizeof(*config));
	config->path = path;
	config->probe = 10;
	error = ini_read(&parse.reader, path, on_entry, &parse);
	if (error)
		return error; /* what was refused would only be said to be missing as well */
	if (!config->count)
		ini_complain(&parse.reader, NULL, NULL, 0,
			     "expected at least one section [export NAME]");
	for (uint32_t i = 0; i < config->count; i++)
		check_export(&parse, &config->exports[i]);
	return parse.reader.errors ? -EINVAL : 0;
}
