/* The memory of one ring: one direction between two processes of one host.  transport/wires/ring.py describes it, and is the oracle.

       0     magic, version (u32 each), capacity (u64)        written before the ring is handed over
       64    head (u64)                                       the writer's: all bytes before it are published
       128   tail (u64)                                       the reader's: all bytes before it are free again
       192   word (u32)                                       what the reader does: see below
       4096  data: `capacity` bytes, a power of two

   Order of memory (C11; a model of it is explored in tests/model/ring_memory.py).  The writer fills a record and then stores `head`
   with release; the reader loads `head` with acquire and then reads the record.  The reader stores `tail` with release after it has
   copied a record; the writer loads `tail` with acquire before it overwrites.  Sleeping: the reader stores word = ASLEEP, a fence,
   loads head; the writer stores head, a fence, loads word.  Both fences are sequentially consistent, so at least one of the two
   sees what the other has stored: no wake-up is lost. */

#ifndef CKPT_TRANSPORT_RING_LAYOUT_H
#define CKPT_TRANSPORT_RING_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

#define RING_MAGIC 0x474e4952u
#define RING_VERSION 1u
#define RING_DATA 4096
#define RING_LEAST (16u << 10)
#define RING_MOST (16u << 20)

enum ring_word { AWAKE = 0, ASLEEP = 1, CLOSED = 2, OFFERED = 3 };

typedef struct {
    uint32_t magic, version;
    uint64_t capacity;
    _Alignas(64) _Atomic uint64_t head;
    _Alignas(64) _Atomic uint64_t tail;
    _Alignas(64) _Atomic uint32_t word;
} ring_memory;

/* A record: this header, then the parts one after the other; records begin at multiples of 16, and go round the end of the data. */
typedef struct {
    uint32_t total;  /* bytes of all parts */
    uint32_t count;  /* parts: 1 to 3 */
    uint32_t first, second;  /* lengths of the first two parts; the third has the rest */
} ring_record;

#define RING_ROUND(bytes) (((uint64_t)(bytes) + 15u) & ~(uint64_t)15u)

_Static_assert(sizeof(ring_record) == 16, "a record's header");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "64-bit atomics without locks");

#endif
