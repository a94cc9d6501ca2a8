/* A long payload is copied by two processes at once: its receiver reads pieces of it from the memory of its sender
   (process_vm_readv(2)), and the sender, where it waits for that meanwhile, writes other pieces into the memory of the receiver
   (process_vm_writev(2)).  They agree by numbers in the page of the ring by which the message came: the receiver is its reader.

   The reader writes what is to be copied, and then `work`: turn and pieces.  Who takes a piece counts `work` down by
   compare-and-exchange; so a writer that has read what belongs to an earlier turn gets nothing.  At the end the reader takes all that
   is left, and waits until `written` counts every piece that the writer has taken: when it returns, nobody writes into its memory.
   Where the writer could not write a piece the reader reads everything itself, from then on; where it has written numbers that
   cannot be, the ring is damaged.

   A writer that dies is waited for until its memory cannot be read, and its last thread has ended.  One that is stopped between
   taking a piece and writing it is waited for: the message is not there before.

   Model of the order of memory: tests/model/ring_share.py. */

#define _GNU_SOURCE
#include "ring_ends.h"

#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* headers older than Linux 5.3 */
#endif

enum { LEAST_PIECE = 128 << 10, MOST_PIECE = 1 << 20, PIECES = 16, SPIN_NS = 20000, ALIVE_NS = 1000000, END_MS = 1000, NAP_NS = 200000 };

static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int is_process(const RingProcess *process, const unsigned char seen[RING_BADGE])
{
    return !memcmp(seen, process->badge, RING_BADGE);
}

int ring_read_from(const RingProcess *process, uint64_t from, void *into, size_t size)
{
    unsigned char seen[RING_BADGE];
    struct iovec here[] = {{seen, sizeof seen}, {into, size}};
    struct iovec there[] = {{(void *)(uintptr_t)process->badge_at, sizeof seen}, {(void *)(uintptr_t)from, size}};
    return process_vm_readv(process->pid, here, 2, there, 2, 0) == (ssize_t)(sizeof seen + size) && is_process(process, seen);
}

static int is_alive(const RingProcess *process)
{
    unsigned char seen[RING_BADGE];
    struct iovec here = {seen, sizeof seen}, there = {(void *)(uintptr_t)process->badge_at, sizeof seen};
    return process_vm_readv(process->pid, &here, 1, &there, 1, 0) == (ssize_t)sizeof seen && is_process(process, seen);
}

static int write_to(const RingProcess *process, uint64_t from, uint64_t into, size_t size)
{
    struct iovec here = {(void *)(uintptr_t)from, size}, there = {(void *)(uintptr_t)into, size};
    return process_vm_writev(process->pid, &here, 1, &there, 1, 0) == (ssize_t)size;
}

static uint32_t pieces_of(uint64_t size, uint64_t piece) { return (uint32_t)((size + piece - 1) / piece); }

/* The pieces from number `first` on, `count` of them, in bytes: where they begin, and how long they are together. */
static size_t extent(uint64_t size, uint64_t piece, uint32_t first, uint32_t count, uint64_t *begin)
{
    uint64_t end = ((uint64_t)first + count) * piece;
    *begin = first * piece;
    return (size_t)((end < size ? end : size) - *begin);
}

/* Take so many of the pieces that are left, of this turn: the number of the first; -1: there are not as many. */
static int64_t take(ring_share *share, uint64_t *work, uint32_t count)
{
    if ((uint32_t)*work < count) return -1;
    uint64_t less = *work - count;
    if (!atomic_compare_exchange_strong_explicit(&share->work, work, less, memory_order_acq_rel, memory_order_acquire)) return -1;
    *work = less;
    return (uint32_t)less;
}

/* ---- the reader ------------------------------------------------------------------------------------------------------------ */

static void offer(Ring *ring, const RingProcess *own, uint64_t from, void *into, uint64_t size, uint64_t piece)
{
    ring_share *share = &ring->memory->share;
    const uint64_t values[] = {from, (uint64_t)(uintptr_t)into, size, piece, (uint64_t)own->pid, own->badge_at};
    _Atomic uint64_t *const places[] = {&share->from, &share->into, &share->size, &share->piece, &share->pid, &share->badge_at};
    uint64_t badge[2];
    memcpy(badge, own->badge, sizeof badge);
    for (int i = 0; i < 6; i++) atomic_store_explicit(places[i], values[i], memory_order_relaxed);
    for (int i = 0; i < 2; i++) atomic_store_explicit(&share->badge[i], badge[i], memory_order_relaxed);
    atomic_store_explicit(&share->work, (uint64_t)++ring->turn << 32 | pieces_of(size, piece), memory_order_release);
}

/* Read pieces until none is left: 1; 0: one cannot be read.  `own_pieces`: so many were read here. */
static int read_pieces(Ring *ring, const RingProcess *sender, uint64_t from, char *into, uint64_t size, uint64_t piece,
                       uint32_t *own_pieces)
{
    ring_share *share = &ring->memory->share;
    uint64_t work = atomic_load_explicit(&share->work, memory_order_relaxed), begin;
    uint32_t pieces = pieces_of(size, piece);
    while ((uint32_t)work && (uint32_t)work <= pieces && work >> 32 == ring->turn) {
        /* as long as nobody helps, several at once: each call costs */
        uint32_t left = (uint32_t)work, count = left + *own_pieces == pieces && left >= 8 ? left / 4 : 1;
        int64_t first = take(share, &work, count);
        if (first < 0) continue; /* somebody has been quicker */
        size_t length = extent(size, piece, (uint32_t)first, count, &begin);
        *own_pieces += count;
        if (!ring_read_from(sender, from + begin, into + begin, length)) return 0;
    }
    return 1;
}

/* Wait until all threads of a process that has no memory any more have ended their calls. */
static void await_end(const RingProcess *process)
{
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, process->pid, 0), .events = POLLIN};
    if (ended.fd < 0) return; /* it has been waited for; or this kernel is older than 5.3 */
    poll(&ended, 1, END_MS); /* no longer: it may be another process with that id */
    close(ended.fd);
}

/* Let others have the core: soon for a while, as the writer may be stopped. */
static void pause_for(int64_t waited_ns, int has_lock)
{
    PyThreadState *state = has_lock ? PyEval_SaveThread() : NULL;
    struct timespec nap = {.tv_nsec = NAP_NS};
    if (waited_ns < ALIVE_NS)
        sched_yield();
    else
        nanosleep(&nap, NULL);
    if (state) PyEval_RestoreThread(state);
}

/* Wait until the writer has done with all pieces that it has taken.  0: it is dead, or has counted what it has not taken. */
static int await_writer(Ring *ring, const RingProcess *sender, int has_lock)
{
    _Atomic uint64_t *written = &ring->memory->share.written;
    int64_t began_ns = clock_ns(), looked_ns = began_ns, left;
    while ((left = (int64_t)(ring->written - atomic_load_explicit(written, memory_order_acquire))) > 0) {
        int64_t at_ns = clock_ns();
        if (at_ns - began_ns < SPIN_NS) continue;
        if (at_ns - looked_ns > ALIVE_NS) {
            if (!is_alive(sender)) {
                await_end(sender);
                return 0;
            }
            looked_ns = at_ns;
        }
        pause_for(at_ns - began_ns, has_lock);
    }
    ring->damaged |= left < 0;
    return !left;
}

int ring_copy_shared(Ring *ring, const RingProcess *own, const RingProcess *sender, uint64_t from, void *into, size_t size, int has_lock)
{
    ring_share *share = &ring->memory->share;
    uint64_t piece = ((uint64_t)size / PIECES + 4095) & ~(uint64_t)4095;
    piece = piece < LEAST_PIECE ? LEAST_PIECE : piece > MOST_PIECE ? MOST_PIECE : piece;
    uint32_t pieces = pieces_of(size, piece), own_pieces = 0;
    if (ring->alone) return ring_read_from(sender, from, into, size);
    offer(ring, own, from, into, size, piece);
    int is_read = read_pieces(ring, sender, from, into, size, piece, &own_pieces);
    uint64_t work = atomic_exchange_explicit(&share->work, (uint64_t)ring->turn << 32, memory_order_acq_rel);
    if (work >> 32 != ring->turn || (uint32_t)work > pieces - own_pieces) {
        ring->damaged = 1;
        return 0;
    }
    uint32_t others = pieces - own_pieces - (uint32_t)work;
    ring->written += others;
    if (others && !await_writer(ring, sender, has_lock)) return 0;
    if (!others || atomic_load_explicit(&share->failed, memory_order_relaxed) != ring->turn) return is_read;
    ring->alone = 1;
    return ring_read_from(sender, from, into, size);
}

/* ---- the writer ------------------------------------------------------------------------------------------------------------ */

int ring_wants_help(const Ring *ring)
{
    return ring_usable(ring) && (uint32_t)atomic_load_explicit(&ring->memory->share.work, memory_order_relaxed) != 0;
}

/* What is shared in this turn.  0: numbers that cannot be. */
static int read_offer(ring_share *share, uint64_t work, RingProcess *reader, uint64_t numbers[4])
{
    _Atomic uint64_t *const places[] = {&share->from, &share->into, &share->size, &share->piece};
    uint64_t badge[2];
    for (int i = 0; i < 4; i++) numbers[i] = atomic_load_explicit(places[i], memory_order_relaxed);
    for (int i = 0; i < 2; i++) badge[i] = atomic_load_explicit(&share->badge[i], memory_order_relaxed);
    uint64_t pid = atomic_load_explicit(&share->pid, memory_order_relaxed), size = numbers[2], piece = numbers[3];
    reader->pid = (pid_t)pid;
    reader->badge_at = atomic_load_explicit(&share->badge_at, memory_order_relaxed);
    memcpy(reader->badge, badge, sizeof badge);
    return pid && pid <= INT32_MAX && piece >= LEAST_PIECE && piece <= MOST_PIECE && size <= (uint64_t)UINT32_MAX * LEAST_PIECE &&
           (uint32_t)work <= pieces_of(size, piece);
}

int ring_help(Ring *ring)
{
    ring_share *share = &ring->memory->share;
    uint64_t work = atomic_load_explicit(&share->work, memory_order_acquire), turn = work >> 32, numbers[4], begin;
    RingProcess reader;
    int helped = 0;
    if (!(uint32_t)work) return 0;
    if (!read_offer(share, work, &reader, numbers) || !is_alive(&reader)) return -1;
    while ((uint32_t)work && work >> 32 == turn) {
        int64_t first = take(share, &work, 1);
        if (first < 0) continue;
        size_t length = extent(numbers[2], numbers[3], (uint32_t)first, 1, &begin);
        helped++;
        if (!write_to(&reader, numbers[0] + begin, numbers[1] + begin, length))
            atomic_store_explicit(&share->failed, turn, memory_order_relaxed);
        atomic_fetch_add_explicit(&share->written, 1, memory_order_release);
    }
    return helped;
}

int ring_take(Ring *ring)
{
    ring_share *share = &ring->memory->share;
    uint64_t work = atomic_load_explicit(&share->work, memory_order_acquire);
    return (uint32_t)work && take(share, &work, 1) >= 0;
}
