/* SPDX-License-Identifier: BSD-3-Clause */
/* What a person can do about a status. */
#include "common/advice.h"

const char *advice_on(NTSTATUS status)
{
	switch (status) {
	case STATUS_HOST_UNREACHABLE:
		return ": nobody answers for that address: is it right, is the link up (orielctl "
		       "status)? A memif link has two ends, and a further program on it none";
	case STATUS_NETWORK_UNREACHABLE:
		return ": no way there from the data plane: see ip and gateway of its [port]";
	case STATUS_INVALID_ADDRESS:
		return ": not an address of the data plane: see ip of its [port]";
	case STATUS_CONNECTION_REFUSED: return ": nobody listens there, or the peer refuses";
	case STATUS_DEVICE_REMOVED: return ": orield is gone";
	default: return "";
	}
}
