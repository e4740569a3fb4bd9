/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NTSTATUS values that the daemon puts into replies and completions. <ndk/ndk.h> has them all
 * under NDKPI's names; libndk asserts that these agree.
 */
#ifndef SHM_STATUS_H
#define SHM_STATUS_H

#include <stdint.h>

#define NT(value) ((int32_t)(value))

#define NT_SUCCESS_STATUS         NT(0)
#define NT_PENDING                NT(0x103)
#define NT_BUFFER_OVERFLOW        NT(0x80000005u)
#define NT_DEVICE_BUSY            NT(0x80000011u)
#define NT_ACCESS_VIOLATION       NT(0xc0000005u)
#define NT_INVALID_HANDLE         NT(0xc0000008u)
#define NT_INVALID_PARAMETER      NT(0xc000000du)
#define NT_INVALID_DEVICE_REQUEST NT(0xc0000010u)
#define NT_DATA_OVERRUN           NT(0xc000003cu)
#define NT_DATA_ERROR             NT(0xc000003eu)
#define NT_SHARING_VIOLATION      NT(0xc0000043u)
#define NT_INSUFFICIENT_RESOURCES NT(0xc000009au)
#define NT_IO_TIMEOUT             NT(0xc00000b5u)
#define NT_NOT_SUPPORTED          NT(0xc00000bbu)
#define NT_INTERNAL_ERROR         NT(0xc00000e5u)
#define NT_CANCELLED              NT(0xc0000120u)
#define NT_INVALID_ADDRESS        NT(0xc0000141u)
#define NT_INVALID_DEVICE_STATE   NT(0xc0000184u)
#define NT_INVALID_BUFFER_SIZE    NT(0xc0000206u)
#define NT_TOO_MANY_ADDRESSES     NT(0xc0000209u)
#define NT_ADDRESS_ALREADY_EXISTS NT(0xc000020au)
#define NT_CONNECTION_REFUSED     NT(0xc0000236u)
#define NT_CONNECTION_INVALID     NT(0xc000023au)
#define NT_CONNECTION_ACTIVE      NT(0xc000023bu)
#define NT_NETWORK_UNREACHABLE    NT(0xc000023cu)
#define NT_HOST_UNREACHABLE       NT(0xc000023du)
#define NT_CONNECTION_ABORTED     NT(0xc0000241u)
#define NT_IMPLEMENTATION_LIMIT   NT(0xc000042bu)
#define NT_BAD_VERSION            NT(0xc0010004u)

#endif
