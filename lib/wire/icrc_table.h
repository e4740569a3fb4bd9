/* SPDX-License-Identifier: BSD-3-Clause */
/* CRC by tables, eight bytes at a time: for processors that only pretend to multiply. */
#ifndef WIRE_ICRC_TABLE_H
#define WIRE_ICRC_TABLE_H

#include "wire/icrc_method.h"

/* Before the others. */
void icrc_table_prepare(void);

icrc_whole icrc_table_whole;
icrc_last_word icrc_table_last;
uint32_t icrc_table_update(uint32_t crc, const uint8_t *data, uint64_t length);

#endif
