/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that can be registered: sealed memfds of the process, passed once to each daemon. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "ndk/ndk_private.h"
#include "shm/segment.h"
#include "shm/socket.h"

#define HUGE_PAGE (2ull << 20)

/* Nests outside adapter.lock. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct adapter *open_adapters;
static uint64_t last_cookie;

void memory_adapter_opened(struct adapter *adapter)
{
	pthread_mutex_lock(&open_lock);
	adapter->next_open = open_adapters;
	open_adapters = adapter;
	pthread_mutex_unlock(&open_lock);
}

void memory_adapter_closed(struct adapter *adapter)
{
	struct adapter **link = &open_adapters;

	pthread_mutex_lock(&open_lock);
	while (*link != adapter)
		link = &(*link)->next_open;
	*link = adapter->next_open;
	pthread_mutex_unlock(&open_lock);
}

/* --- making and ending it -------------------------------------------------------------- */

/* Takes the descriptor. */
static NTSTATUS memory_create(int fd, uint64_t offset, uint64_t size, MDL **mdl)
{
	struct memory *memory = calloc(1, sizeof(*memory));
	NTSTATUS status = STATUS_NO_MEMORY;
	struct stat st;
	void *address;

	if (!memory)
		goto close_fd;
	if (fstat(fd, &st)) {
		status = STATUS_INVALID_HANDLE;
		goto free_memory;
	}
	/* Populated: what is registered later is there, and stays there. */
	address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
		       (off_t)offset);
	if (address == MAP_FAILED)
		goto free_memory;
	memory->fd = fd;
	memory->address = address;
	memory->size = size;
	memory->offset = offset;
	memory->device = st.st_dev;
	memory->inode = st.st_ino;
	memory->mdl = (MDL){ .StartVa = address, .ByteCount = size, .OrielMemory = memory };
	pthread_mutex_lock(&open_lock);
	memory->cookie = ++last_cookie;
	pthread_mutex_unlock(&open_lock);
	*mdl = &memory->mdl;
	return STATUS_SUCCESS;
free_memory:
	free(memory);
close_fd:
	close(fd);
	return status;
}

static uint64_t round_up(uint64_t size, uint64_t unit)
{
	return (size + unit - 1) / unit * unit;
}

/* Touching pages that the machine cannot have would end somebody, sooner or later. */
static bool machine_has(uint64_t size)
{
	struct sysinfo info;

	return sysinfo(&info) || size / info.mem_unit < info.totalram + info.totalswap;
}

NTSTATUS OrielAllocateMemory(SIZE_T Length, ULONG Flags, MDL **ppMdl)
{
	const ULONG huge = ORIEL_MEMORY_HUGE_PAGES | ORIEL_MEMORY_HUGE_REQUIRED;
	uint64_t size = round_up(Length, (uint64_t)sysconf(_SC_PAGESIZE));
	NTSTATUS status = STATUS_NO_MEMORY;
	int fd;

	if (Length == 0 || Length > UINT64_MAX / 2 || (Flags & ~huge))
		return STATUS_INVALID_PARAMETER;
	if (!machine_has(size))
		return STATUS_NO_MEMORY;
	if (Flags & huge) {
		fd = shm_segment_create("oriel-memory", round_up(Length, HUGE_PAGE), true);
		if (fd >= 0)
			status = memory_create(fd, 0, round_up(Length, HUGE_PAGE), ppMdl);
		if (status == STATUS_SUCCESS || (Flags & ORIEL_MEMORY_HUGE_REQUIRED))
			goto done;
	}
	fd = shm_segment_create("oriel-memory", size, false);
	if (fd < 0)
		return STATUS_NO_MEMORY;
	status = memory_create(fd, 0, size, ppMdl);
done:
	if (status == STATUS_SUCCESS)
		(*ppMdl)->ByteCount = Length;
	return status;
}

NTSTATUS OrielAdoptMemory(int MemFd, UINT64 Offset, SIZE_T Length, MDL **ppMdl)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t size;
	int error = shm_segment_check(MemFd, &size);
	int fd;

	if (error)
		return error == -EPERM ? STATUS_ACCESS_VIOLATION : STATUS_INVALID_HANDLE;
	if (Length == 0 || Offset % page || Offset > size || Length > size - Offset)
		return STATUS_INVALID_PARAMETER;
	fd = fcntl(MemFd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return STATUS_INSUFFICIENT_RESOURCES;
	return memory_create(fd, Offset, Length, ppMdl);
}

/* The daemons that have it let it go too. */
static void drop_everywhere(uint64_t cookie)
{
	pthread_mutex_lock(&open_lock);
	for (struct adapter *adapter = open_adapters; adapter; adapter = adapter->next_open) {
		struct shm_request message = { .op = SHM_OP_SEGMENT_DROP,
					       .segment_drop = { .cookie = cookie } };
		struct sent_memory **link, *sent;
		struct request *request;

		pthread_mutex_lock(&adapter->lock);
		link = &adapter->sent_memory;
		while (*link && (*link)->cookie != cookie)
			link = &(*link)->next;
		sent = *link;
		if (sent) {
			*link = sent->next;
			free(sent);
			/* Without memory for the request it ends with the session. */
			request = request_create(REQUEST_SILENT, NULL, NULL);
			if (request && request_send(adapter, request, &message) != STATUS_PENDING)
				free(request);
		}
		pthread_mutex_unlock(&adapter->lock);
	}
	pthread_mutex_unlock(&open_lock);
}

void OrielFreeMemory(MDL *Mdl)
{
	struct memory *memory;

	if (!Mdl)
		return;
	memory = Mdl->OrielMemory;
	drop_everywhere(memory->cookie);
	munmap(memory->address, memory->size);
	close(memory->fd);
	free(memory);
}

/* --- passing it to the daemon -------------------------------------------------------- */

static struct sent_memory *find_sent(const struct adapter *adapter, uint64_t cookie)
{
	struct sent_memory *sent = adapter->sent_memory;

	while (sent && sent->cookie != cookie)
		sent = sent->next;
	return sent;
}

NTSTATUS memory_send(struct adapter *adapter, struct memory *memory)
{
	struct shm_segment_message message = { .type = SHM_MSG_SEGMENT_ADD,
					       .cookie = memory->cookie };
	struct sent_memory *sent = find_sent(adapter, memory->cookie), *made = NULL;
	struct stat st;

	if (sent && !sent->doubtful)
		return STATUS_SUCCESS;
	if (fstat(memory->fd, &st))
		return STATUS_INVALID_HANDLE;
	message.size = (uint64_t)st.st_size;
	if (!sent)
		sent = made = calloc(1, sizeof(*made));
	if (!sent)
		return STATUS_INSUFFICIENT_RESOURCES;
	if (shm_socket_send(adapter->socket, &message, sizeof(message), &memory->fd, 1)) {
		free(made);
		return STATUS_INSUFFICIENT_RESOURCES;
	}
	plane_hear(adapter); /* or many fill the socket */
	sent->doubtful = false;
	if (made) {
		made->cookie = memory->cookie;
		made->next = adapter->sent_memory;
		adapter->sent_memory = made;
	}
	return STATUS_SUCCESS;
}

uint32_t memory_get_segment(const struct adapter *adapter, uint64_t cookie)
{
	const struct sent_memory *sent = find_sent(adapter, cookie);

	return sent ? sent->segment : 0;
}

void memory_set_segment(struct adapter *adapter, uint64_t cookie, uint32_t segment)
{
	struct sent_memory *sent = find_sent(adapter, cookie);

	if (sent)
		sent->segment = segment;
}

/* The daemon says so too when it could not have the memory itself: then it has forgotten it. */
void memory_heard(struct adapter *adapter, uint64_t cookie, NTSTATUS status)
{
	struct sent_memory *sent = find_sent(adapter, cookie);

	if (sent && status == STATUS_INSUFFICIENT_RESOURCES)
		sent->doubtful = true;
}

static struct memory *memory_behind(const MDL *mdl)
{
	return mdl->OrielMemory;
}

/* One piece follows another both in virtual addresses and in the same memfd. */
static bool follows(const MDL *first, uint64_t length, const MDL *next)
{
	const struct memory *a = memory_behind(first);
	const struct memory *b = memory_behind(next);

	return b && a->device == b->device && a->inode == b->inode &&
	       a->offset + length == b->offset &&
	       (uintptr_t)first->StartVa + length == (uintptr_t)next->StartVa;
}

NTSTATUS memory_of_mdl(MDL *mdl, uint64_t length, struct memory **memory)
{
	const MDL *piece = mdl;
	uint64_t seen;

	if (!mdl || !mdl->OrielMemory)
		return STATUS_INVALID_PARAMETER;
	if (mdl->ByteCount > memory_behind(mdl)->size)
		return STATUS_INVALID_PARAMETER;
	seen = mdl->ByteCount;
	while (seen < length) {
		piece = piece->Next;
		if (!piece || !follows(mdl, seen, piece) ||
		    piece->ByteCount > memory_behind(piece)->size)
			return STATUS_INVALID_PARAMETER;
		seen += piece->ByteCount;
	}
	*memory = mdl->OrielMemory;
	return STATUS_SUCCESS;
}
