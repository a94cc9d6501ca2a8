/* The memory of one ring: one direction between two processes of one host.  transport/rings/ring.py describes it, and is the oracle.

       0     magic, version (u32 each), capacity (u64)        written before the ring is handed over
       64    head (u64)                                       the writer's: all bytes before it are published
       128   tail (u64)                                       the reader's: all bytes before it are free again
       192   word (u32)                                       what the reader does: see below
       256   work (u64)                                       what both copy together: ring_share.c
       320   written, failed (u64 each)                       the writer's, of that
       384   the rest of `ring_share`                         the reader's, of that
       4096  data: `capacity` bytes, a power of two

   Order of memory (C11; a model of it is explored in tests/model/ring_memory.py).  The writer fills a record and then stores `head`
   with release; the reader loads `head` with acquire and then reads the record.  The reader stores `tail` with release after it has
   copied a record; the writer loads `tail` with acquire before it overwrites.  Sleeping: the reader stores word = ASLEEP, a fence,
   loads head; the writer stores head, a fence, loads word.  Both fences are sequentially consistent, so at least one of the two
   sees what the other has stored: no wake-up is lost. */

#ifndef CKPT_TRANSPORT_RING_LAYOUT_H
#define CKPT_TRANSPORT_RING_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define RING_MAGIC 0x474e4952u
#define RING_VERSION 2u
#define RING_DATA 4096
#define RING_LEAST (16u << 10)
#define RING_MOST (16u << 20)

enum ring_word { AWAKE = 0, ASLEEP = 1, CLOSED = 2, OFFERED = 3 };

/* A payload that both sides copy, in so many pieces of `piece` bytes (the last one has the rest). */
typedef struct {
    _Alignas(64) _Atomic uint64_t work;    /* the turn, and in the lower half how many pieces are left: the last one is taken first */
    _Alignas(64) _Atomic uint64_t written; /* pieces that the writer has done with, in all turns */
    _Atomic uint64_t failed;               /* the last turn in which it could not write one */
    /* Of this turn: where the payload lies in the writer's memory, and where it belongs in the reader's; and the reader's badge. */
    _Alignas(64) _Atomic uint64_t from;
    _Atomic uint64_t into, size, piece, pid, badge_at, badge[2];
} ring_share;

typedef struct {
    uint32_t magic, version;
    uint64_t capacity;
    _Alignas(64) _Atomic uint64_t head;
    _Alignas(64) _Atomic uint64_t tail;
    _Alignas(64) _Atomic uint32_t word;
    ring_share share;
} ring_memory;

/* A record: this header, then the parts one after the other; records begin at multiples of 16, and go round the end of the data. */
typedef struct {
    uint32_t total;  /* bytes of all parts */
    uint32_t count;  /* parts: 1 to 3 */
    uint32_t first, second;  /* lengths of the first two parts; the third has the rest */
} ring_record;

#define RING_ROUND(bytes) (((uint64_t)(bytes) + 15u) & ~(uint64_t)15u)

_Static_assert(sizeof(ring_record) == 16, "a record's header");
_Static_assert(offsetof(ring_memory, share.size) == 400 && sizeof(ring_memory) <= RING_DATA, "the page of numbers");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "64-bit atomics without locks");

#endif
