/* The records in a ring: writing them, whole or piece by piece, and reading them.  transport/rings/ring.py specifies what they are.

   What the other process has written is never trusted: each number is read once, checked, and used from a local variable. */

#define PY_SSIZE_T_CLEAN
#include "ring_ends.h"

#include <string.h>

/* Copy to or from the ring at a position, round its end. */
static void put(Ring *ring, uint64_t at, const void *from, size_t size)
{
    uint64_t offset = at & (ring->capacity - 1), room = ring->capacity - offset;
    size_t before = size < room ? size : (size_t)room;
    memcpy(ring->data + offset, from, before);
    memcpy(ring->data, (const char *)from + before, size - before);
}

static void get(Ring *ring, uint64_t at, void *to, size_t size)
{
    uint64_t offset = at & (ring->capacity - 1), room = ring->capacity - offset;
    size_t before = size < room ? size : (size_t)room;
    memcpy(to, ring->data + offset, before);
    memcpy((char *)to + before, ring->data, size - before);
}

unsigned long ring_pointers;

/* ---- writing --------------------------------------------------------------------------------------------------------------- */

/* Is there room for `need` bytes?  -1: the reader's position is impossible. */
static int room_for(Ring *ring, uint64_t need)
{
    if (ring->at + need - ring->other <= ring->capacity) return 1;
    uint64_t tail = atomic_load_explicit(&ring->memory->tail, memory_order_acquire);
    if (tail - ring->other > ring->at - ring->other || tail & 15u) {
        ring->damaged = 1;
        return -1;
    }
    ring->other = tail;
    return ring->at + need - tail <= ring->capacity;
}

int ring_room(Ring *ring, uint64_t bytes)
{
    uint64_t need = RING_ROUND(sizeof(ring_record) + bytes);
    return ring_usable(ring) && need <= ring->capacity / 2 && room_for(ring, need) > 0;
}

/* Publish what was written up to `at`, and look whether the reader sleeps. */
static int publish(Ring *ring, uint64_t at)
{
    ring->at = at;
    ring->records++;
    atomic_store_explicit(&ring->memory->head, at, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    uint32_t word = atomic_load_explicit(&ring->memory->word, memory_order_relaxed);
    if (word == AWAKE) return TAKEN;
    if (word == ASLEEP) {
        uint32_t expected = ASLEEP;
        return atomic_compare_exchange_strong(&ring->memory->word, &expected, AWAKE) ? TAKEN_ASLEEP : TAKEN;
    }
    if (word != OFFERED) ring->damaged = word != CLOSED;
    return word == OFFERED ? TAKEN : BROKEN;
}

/* Begin a record of so many bytes in all. */
static int begin(RingRecord *record, Ring *ring, const ring_record *head)
{
    uint64_t need = RING_ROUND(sizeof *head + (uint64_t)head->total);
    int room = need > ring->capacity / 2 ? TOO_LONG : room_for(ring, need);
    if (room != 1) return room < 0 ? BROKEN : room; /* TOO_LONG, or 0: FULL */
    put(ring, ring->at, head, sizeof *head);
    if (head->count == 3) ring->pointed = ++ring_pointers; /* the reader may ask for help with what the frame points to */
    *record = (RingRecord){ring, ring->at + sizeof *head, ring->at + need};
    return TAKEN;
}

int ring_begin(RingRecord *record, Ring *ring, uint64_t bytes, uint32_t second)
{
    if (bytes > ring->capacity / 2) return TOO_LONG;
    ring_record head = {(uint32_t)bytes, second ? 3 : 1, (uint32_t)bytes - second, second};
    return begin(record, ring, &head);
}

void ring_add(RingRecord *record, const void *from, size_t size)
{
    put(record->ring, record->at, from, size);
    record->at += size;
}

int ring_end(RingRecord *record) { return publish(record->ring, record->end); }

int ring_write(Ring *ring, const Py_buffer *parts, Py_ssize_t count)
{
    uint64_t total = 0;
    for (Py_ssize_t i = 0; i < count; i++) total += (uint64_t)parts[i].len;
    if (total > ring->capacity / 2) return TOO_LONG;
    ring_record head = {(uint32_t)total, (uint32_t)count, (uint32_t)parts[0].len, count > 1 ? (uint32_t)parts[1].len : 0};
    RingRecord record;
    int code = begin(&record, ring, &head);
    if (code != TAKEN) return code;
    for (Py_ssize_t i = 0; i < count; i++) ring_add(&record, parts[i].buf, (size_t)parts[i].len);
    return ring_end(&record);
}

/* ---- reading --------------------------------------------------------------------------------------------------------------- */

/* The parts of a record of known lengths, copied out of the ring. */
static PyObject *copied(Ring *ring, const ring_record *record)
{
    uint32_t lengths[3] = {record->first, record->second, record->total - record->first - record->second};
    PyObject *frame = PyTuple_New((Py_ssize_t)record->count);
    uint64_t at = ring->at + sizeof *record;
    for (uint32_t i = 0; frame && i < record->count; i++) {
        PyObject *part = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)lengths[i]);
        if (!part) {
            Py_CLEAR(frame);
            break;
        }
        get(ring, at, PyBytes_AS_STRING(part), lengths[i]);
        at += lengths[i];
        PyTuple_SET_ITEM(frame, (Py_ssize_t)i, part);
    }
    return frame;
}

/* Read the head of the next record: 1; 0: there is none, or the ring is damaged. */
static int look_at(Ring *ring, ring_record *record)
{
    uint64_t head = atomic_load_explicit(&ring->memory->head, memory_order_acquire), filled = head - ring->at;
    if (!filled) return 0;
    *record = (ring_record){0, 0, 0, 0};
    int whole = filled <= ring->capacity && !(filled & 15u) && filled >= sizeof *record;
    if (whole) get(ring, ring->at, record, sizeof *record);
    uint64_t need = RING_ROUND(sizeof *record + (uint64_t)record->total);
    if (!whole || need > filled || need > ring->capacity / 2 || record->count < 1 || record->count > 3 ||
        (uint64_t)record->first + record->second > record->total || (record->count == 1 && record->first != record->total) ||
        (record->count < 3 && record->first + record->second != record->total)) {
        ring->damaged = 1;
        return 0;
    }
    return 1;
}

static void go_on(Ring *ring, uint64_t at)
{
    ring->at = at;
    ring->records++;
    atomic_store_explicit(&ring->memory->tail, at, memory_order_release);
}

PyObject *ring_next(Ring *ring)
{
    ring_record record;
    PyObject *frame = look_at(ring, &record) ? copied(ring, &record) : NULL;
    if (frame) go_on(ring, ring->at + RING_ROUND(sizeof record + (uint64_t)record.total));
    return frame;
}

int ring_peek(Ring *ring, const unsigned char *at[2], size_t size[2], uint32_t lengths[2])
{
    ring_record record;
    if (!look_at(ring, &record)) return 0;
    uint64_t offset = (ring->at + sizeof record) & (ring->capacity - 1), room = ring->capacity - offset;
    at[0] = ring->data + offset;
    at[1] = ring->data;
    size[0] = record.total < room ? record.total : (size_t)room;
    size[1] = record.total - size[0];
    lengths[0] = record.first;
    lengths[1] = record.second;
    ring->peeked = ring->at + RING_ROUND(sizeof record + (uint64_t)record.total);
    return (int)record.count;
}

void ring_skip(Ring *ring) { go_on(ring, ring->peeked); }
