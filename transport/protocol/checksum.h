/* The crc32 of zlib, PNG and Ethernet (polynomial 0x04C11DB7, reflected), of frames: transport/protocol/frames.py. */

#ifndef CKPT_TRANSPORT_CHECKSUM_H
#define CKPT_TRANSPORT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Call once, before the others. */
void checksum_prepare(void);

/* The crc32 of what has the crc32 `before` (0: of nothing), followed by `size` bytes: as zlib.crc32(data, before). */
uint32_t checksum(uint32_t before, const unsigned char *at, size_t size);

#endif
