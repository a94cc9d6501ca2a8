/* The areas of a board: mapping, contributing, looking and waiting, for the module `_board`.

   What another process has written is never trusted: each number is read once, checked, and used from a local variable. */

#define _GNU_SOURCE
#include "board_ends.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

RingApi *board_rings;
unsigned long board_forks;

/* ---- areas ----------------------------------------------------------------------------------------------------------------- */

board_area *board_mapped(int fd, int protection)
{
    void *at = mmap(NULL, BOARD_BYTES, protection, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        PyErr_SetFromErrno(PyExc_OSError);
        return NULL;
    }
    if (madvise(at, BOARD_BYTES, MADV_DONTFORK)) {
        PyErr_SetFromErrno(PyExc_OSError);
        munmap(at, BOARD_BYTES);
        return NULL;
    }
    return at;
}

void board_close_fd(Board *board)
{
    if (board->fd >= 0 && board->made_after == board_forks) close(board->fd);
    board->fd = -1;
}

void board_let_go(Board *board)
{
    board_close_fd(board);
    for (int i = 0; i < BOARD_MEMBERS; i++) {
        if (board->areas[i] && board->made_after == board_forks) munmap(board->areas[i], BOARD_BYTES);
        board->areas[i] = NULL;
    }
}

static int is_read_by(Board *board, int member)
{
    board_area *area = board->areas[member];
    return area && atomic_load_explicit(&area->reads, memory_order_acquire) >> board->rank & 1;
}

int board_is_complete(Board *board)
{
    for (int member = 0; member < board->size; member++)
        if (member != board->rank && !is_read_by(board, member)) return 0;
    return board_own(board) != NULL;
}

/* ---- as a writer ----------------------------------------------------------------------------------------------------------- */

unsigned char *board_data(board_area *area, int slot, uint64_t nbytes)
{
    return nbytes <= BOARD_SMALL ? area->slot[slot].small : (unsigned char *)area + BOARD_DATA + (size_t)slot * BOARD_SLOT_BYTES;
}

/* Those who may not have taken what is in a slot, and have it there only. */
uint32_t board_needed(Board *board, int slot)
{
    for (int member = 0; member < board->size && board->owed[slot]; member++) {
        if (!(board->owed[slot] >> member & 1)) continue;
        board_area *area = board->areas[member];
        uint64_t done = atomic_load_explicit(&area->done, memory_order_acquire);
        if (done > board->owed_number[slot] && atomic_load(&area->published) <= board->host->captured)
            board->owed[slot] &= ~(1u << member);
    }
    return board->owed[slot];
}

uint32_t board_write(Board *board, uint64_t number, uint32_t kind, const void *data, uint64_t nbytes, uint32_t readers)
{
    int slot = (int)(number % BOARD_SLOTS);
    board_area *area = board_own(board);
    if (!area || nbytes > BOARD_SLOT_BYTES) return readers;
    board_slot *at = &area->slot[slot];
    if (atomic_load_explicit(&at->number, memory_order_relaxed) != number + 1) {
        if (board_needed(board, slot)) return readers;
        atomic_store_explicit(&at->number, 0, memory_order_relaxed);
        atomic_thread_fence(memory_order_release); /* who copies what is written below sees that, too */
        memcpy(board_data(area, slot, nbytes), data, (size_t)nbytes);
        at->length = (uint32_t)nbytes;
        at->kind = kind;
        atomic_store_explicit(&at->number, number + 1, memory_order_release);
    }
    atomic_thread_fence(memory_order_seq_cst);
    uint32_t by_message = 0;
    for (int member = 0; member < board->size; member++) {
        if (!(readers >> member & 1)) continue;
        board_area *other = board->areas[member];
        if (!is_read_by(board, member) || atomic_load_explicit(&other->captured, memory_order_relaxed) < board->host->published ||
            atomic_load_explicit(&other->word, memory_order_relaxed) != BOARD_AWAKE)
            by_message |= 1u << member;
    }
    board->owed[slot] = readers & ~by_message;
    board->owed_number[slot] = number;
    return by_message;
}

typedef struct {
    Board *board;
    int slot;
} Wanted;

static int is_free(void *with) { return !board_needed(((Wanted *)with)->board, ((Wanted *)with)->slot); }

void board_make_room(Board *board, uint64_t number)
{
    Wanted wanted = {board, (int)(number % BOARD_SLOTS)};
    Host *host = board->host;
    if (!board_own(board) || is_free(&wanted) || !host->spin_ns) return;
    Py_INCREF(board); /* the core is yielded, and with it the interpreter */
    board_rings->spin_also(host->inbox, board_rings->now_ns() + host->spin_ns, host->pause_ns, is_free, &wanted);
    Py_DECREF(board);
}

/* ---- as a reader ----------------------------------------------------------------------------------------------------------- */

int board_shows(Board *board, uint64_t number, int member)
{
    board_area *area = board->areas[member];
    return area && atomic_load_explicit(&area->slot[number % BOARD_SLOTS].number, memory_order_acquire) == number + 1 &&
           atomic_load_explicit(&area->published, memory_order_relaxed) <= board->host->captured;
}

int board_still_shows(Board *board, uint64_t number, int member)
{
    atomic_thread_fence(memory_order_acquire);
    return board_shows(board, number, member);
}

const void *board_look(Board *board, uint64_t number, int member, uint32_t *kind, uint64_t *nbytes)
{
    if (!board_own(board) || !board_shows(board, number, member)) return NULL;
    int slot = (int)(number % BOARD_SLOTS);
    const volatile board_slot *at = &board->areas[member]->slot[slot];
    *nbytes = at->length;
    *kind = at->kind;
    return *nbytes <= BOARD_SLOT_BYTES ? board_data(board->areas[member], slot, *nbytes) : NULL;
}

void board_leave(Board *board, uint64_t number)
{
    if (board_own(board)) atomic_store_explicit(&board_own(board)->done, number + 1, memory_order_release);
}

typedef struct {
    Board *board;
    uint64_t number;
    uint32_t sources;
} Awaited;

static int all_there(void *with)
{
    Awaited *awaited = with;
    for (int member = 0; member < awaited->board->size; member++)
        if (awaited->sources >> member & 1 && !board_shows(awaited->board, awaited->number, member)) return 0;
    return 1;
}

/* 1: all have contributed.  2: a frame is in a ring.  0: neither. */
int board_await(Board *board, uint64_t number, uint32_t sources)
{
    Awaited awaited = {board, number, sources};
    if (!board_own(board)) return 0;
    if (all_there(&awaited)) return 1;
    Host *host = board->host;
    if (!host->spin_ns) return 0;
    Py_INCREF(board); /* the core is yielded, and with it the interpreter */
    int found = board_rings->spin_also(host->inbox, board_rings->now_ns() + host->spin_ns, host->pause_ns, all_there, &awaited);
    int done = board_own(board) && all_there(&awaited);
    Py_DECREF(board);
    return done ? 1 : found ? 2 : 0;
}

int board_is_ready(Board *board)
{
    Host *host = board->host;
    PyObject *dirty = SLOT(host->common, host->dirty);
    return board_own(board) && !host->is_closed && dirty && PyList_CheckExact(dirty) && !PyList_GET_SIZE(dirty) &&
           SLOT(host->common, host->flush_due) == Py_False && board_is_complete(board) && board_rings->now_ns() < host->due_ns;
}
