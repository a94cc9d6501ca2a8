/* Both ends of a ring, for the C modules of this room and for others by the capsule `ckpt.transport.rings._ring.api`. */

#ifndef CKPT_TRANSPORT_RING_ENDS_H
#define CKPT_TRANSPORT_RING_ENDS_H

#include <Python.h>

#include "ring_layout.h"

#include <sys/types.h>

enum { FULL = 0, TAKEN = 1, TAKEN_ASLEEP = 2, TOO_LONG = 3, BROKEN = 4 };

typedef struct {
    PyObject_HEAD
    ring_memory *memory; /* NULL: closed */
    unsigned char *data;
    uint64_t capacity, at, other; /* own position; the other side's, as last seen */
    uint64_t peeked;              /* where the record ends that `ring_peek` has found */
    unsigned long made_after;     /* ring_forks */
    unsigned long long records;
    unsigned long pointed; /* the writer's: number of its last frame of three parts, which has a pointer; of ring_pointers */
    uint64_t written; /* the reader's: pieces that the writer will have done with (ring_share.c) */
    uint32_t turn;
    int alone; /* the writer has failed to help: it is not asked again */
    int fd, damaged;
} Ring;

extern unsigned long ring_forks; /* of this process since its start, counted in the child */
extern PyTypeObject RingWriterType, RingReaderType;

extern unsigned long ring_pointers; /* frames of three parts that this process has written */

void ring_count_fork(void);

/* Write one frame of `count` parts (1 to 3): FULL, TAKEN, TAKEN_ASLEEP, TOO_LONG or BROKEN. */
int ring_room(Ring *ring, uint64_t bytes);
int ring_write(Ring *ring, const Py_buffer *parts, Py_ssize_t count);

/* Write one frame piece by piece: begin a record of so many bytes (TAKEN, or why not), add them all, and end it (a code as above).  It
   has one part; or three, of which the second has `second` bytes, and the third none. */
typedef struct {
    Ring *ring;
    uint64_t at, end;
} RingRecord;
int ring_begin(RingRecord *record, Ring *ring, uint64_t bytes, uint32_t second);
void ring_add(RingRecord *record, const void *from, size_t size);
int ring_end(RingRecord *record);

/* May this end be used here and now? */
static inline int ring_usable(const Ring *ring)
{
    return ring->memory && !ring->damaged && ring->made_after == ring_forks;
}

static inline int ring_has_record(const Ring *ring)
{
    return atomic_load_explicit(&ring->memory->head, memory_order_relaxed) != ring->at;
}

/* The next record as a frame: a new reference.  NULL without an exception: there is none, or the ring is damaged. */
PyObject *ring_next(Ring *ring);

/* Where the next record lies: in two runs, of which the second may be empty; and the lengths of its first two parts.  Returns how many
   parts it has; 0: there is none, or the ring is damaged.  `ring_skip` ends that record. */
int ring_peek(Ring *ring, const unsigned char *at[2], size_t size[2], uint32_t lengths[2]);
void ring_skip(Ring *ring);

/* A process whose memory is read or written, and its badge (crossmemory.py). */
enum { RING_BADGE = 16 };
typedef struct {
    pid_t pid;
    uint64_t badge_at;
    unsigned char badge[RING_BADGE];
} RingProcess;

/* Read memory of a process, and its badge: 1; 0: it cannot be, or that is another process. */
int ring_read_from(const RingProcess *process, uint64_t from, void *into, size_t size);

/* Copy a payload of the ring's writer, which may help (ring_share.c): 1; 0: it cannot be.  `has_lock`: the caller has the interpreter's
   lock, which is given up while this waits long. */
int ring_copy_shared(Ring *ring, const RingProcess *own, const RingProcess *sender, uint64_t from, void *into, size_t size, int has_lock);

/* The writer's: does the reader copy a payload now, of which something is left?  Help with it: how many pieces; -1: it cannot be. */
int ring_wants_help(const Ring *ring);
int ring_help(Ring *ring);
int ring_take(Ring *ring); /* for tests: take one and do nothing, as who is stopped before the copy */

/* The interface for other C modules, in the capsule RING_API. */
#define RING_API "ckpt.transport.rings._ring.api"

typedef struct {
    PyTypeObject *writer, *inbox;
    int (*usable)(const Ring *ring);
    int (*room)(Ring *ring, uint64_t bytes); /* for a frame of so many bytes: 1; 0: not now, or never */
    int (*begin)(RingRecord *record, Ring *ring, uint64_t bytes, uint32_t second);
    void (*add)(RingRecord *record, const void *from, size_t size);
    int (*end)(RingRecord *record);
    int (*spin)(PyObject *inbox, int64_t end_ns, int64_t pause_ns); /* until a record is there: 1; 0: the time is over */
    /* the same, or until also(with) is not 0, which must not call the interpreter */
    int (*spin_also)(PyObject *inbox, int64_t end_ns, int64_t pause_ns, int (*also)(void *with), void *with);
    int64_t (*now_ns)(void);
    Ring *(*turn)(PyObject *inbox); /* whose turn it is, of those with a record: borrowed; NULL: none has any */
    int (*peek)(Ring *ring, const unsigned char *at[2], size_t size[2], uint32_t lengths[2]);
    void (*skip)(Ring *ring);
    PyObject *(*next)(Ring *ring); /* its next frame; NULL, maybe with an exception: there is none, or the ring is damaged */
    int64_t clock_offset_ns; /* what the clock of this process shows more than CLOCK_MONOTONIC */
    Py_ssize_t (*count)(PyObject *inbox); /* of the rings that are read */
    int (*read)(const RingProcess *process, uint64_t from, void *into, size_t size);
    int (*copy_shared)(Ring *ring, const RingProcess *own, const RingProcess *sender, uint64_t from, void *into, size_t size, int has_lock);
    const unsigned long *pointers;
    int (*wants_help)(const Ring *ring);
    int (*help)(Ring *ring);
} RingApi;

#endif
