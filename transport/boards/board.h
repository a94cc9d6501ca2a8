/* The memory of a board, and the interface of `_board.c` for other C modules, in the capsule BOARD_API.

   transport/boards/board.py describes an area, and is the oracle.  Order of memory (C11): a writer fills a slot and then stores its
   number with release; a reader loads the number with acquire, copies, and loads it again behind an acquire fence; `published` is
   loaded after the number.  Sleeping is as in a ring: word = ASLEEP, a fence, a look; the number of a slot, a fence, the word. */

#ifndef CKPT_TRANSPORT_BOARD_H
#define CKPT_TRANSPORT_BOARD_H

#include <Python.h>

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define BOARD_MAGIC 0x44524f42u
#define BOARD_VERSION 1u
#define BOARD_SLOTS 4
#define BOARD_SLOT_BYTES (64u << 10)
#define BOARD_SMALL 48
#define BOARD_DATA 4096
#define BOARD_BYTES (BOARD_DATA + BOARD_SLOTS * BOARD_SLOT_BYTES)
#define BOARD_MEMBERS 8

enum board_word { BOARD_AWAKE = 0, BOARD_ASLEEP = 1 };

typedef struct {
    _Alignas(64) _Atomic uint64_t number; /* of the collective, plus one; 0: being written */
    uint32_t length, kind;
    unsigned char small[BOARD_SMALL];
} board_slot;

typedef struct {
    uint32_t magic, version, slots, slot_bytes;
    _Alignas(64) _Atomic uint64_t published;
    _Atomic uint64_t captured;
    _Atomic uint32_t reads, word;
    _Alignas(64) _Atomic uint64_t done;
    _Alignas(256) board_slot slot[BOARD_SLOTS];
} board_area;

_Static_assert(sizeof(board_slot) == 64, "a slot's header");
_Static_assert(offsetof(board_area, slot) == 256, "as board.py has it");

typedef struct Board Board;

#define BOARD_API "ckpt.transport.boards._board.api"

typedef struct {
    PyTypeObject *type;
    /* May a collective take the short way: all members look at each other, nothing else is to be done first? */
    int (*is_ready)(Board *board);
    /* Wait, for a short time, until a contribution to this collective finds a free slot. */
    void (*make_room)(Board *board, uint64_t number);
    /* As Board.post. */
    uint32_t (*post)(Board *board, uint64_t number, uint32_t kind, const void *data, uint64_t nbytes, uint32_t readers);
    /* Until all `sources` have contributed (1) or a frame is in a ring (2); 0: neither, within a short time. */
    int (*wait)(Board *board, uint64_t number, uint32_t sources);
    /* The contribution of a member, where it lies; NULL without an exception: not to be had, or it cannot be.  Still there after it
       was used? */
    const void *(*look)(Board *board, uint64_t number, int member, uint32_t *kind, uint64_t *nbytes);
    int (*is_still)(Board *board, uint64_t number, int member);
    void (*finish)(Board *board, uint64_t number);
    int (*size)(Board *board);
    int (*rank)(Board *board);
} BoardApi;

#endif
