/* What the two files of the module `_board` share: `board_ends.c` works on areas, `_board.c` has the classes and the module. */

#ifndef CKPT_TRANSPORT_BOARD_ENDS_H
#define CKPT_TRANSPORT_BOARD_ENDS_H

#define PY_SSIZE_T_CLEAN
#include "board.h"

#include "../driver/lane.h"
#include "../rings/ring_ends.h"

typedef struct {
    PyObject_HEAD
    PyObject *inbox, *common;
    Py_ssize_t dirty, flush_due; /* offsets of slots of `common` */
    long long spin_ns, pause_ns, due_ns;
    uint64_t published, captured;
    char is_closed;
    Board *first;
} Host;

struct Board {
    PyObject_HEAD
    Host *host;
    Board *next;
    board_area *areas[BOARD_MEMBERS]; /* NULL: not looked at */
    uint64_t owed_number[BOARD_SLOTS];
    uint32_t owed[BOARD_SLOTS]; /* who has this slot's contribution here only, and may not have taken it */
    unsigned long made_after;
    int size, rank, fd;
};

extern RingApi *board_rings;
extern unsigned long board_forks; /* of this process since its start, counted in the child */

/* The own area; NULL in a forked process, and behind `close`. */
static inline board_area *board_own(Board *board) { return board->made_after == board_forks ? board->areas[board->rank] : NULL; }

board_area *board_mapped(int fd, int protection); /* NULL with an exception */
void board_close_fd(Board *board);
void board_let_go(Board *board);
int board_is_complete(Board *board);
unsigned char *board_data(board_area *area, int slot, uint64_t nbytes);
uint32_t board_needed(Board *board, int slot);
int board_shows(Board *board, uint64_t number, int member);

/* See BoardApi. */
int board_is_ready(Board *board);
void board_make_room(Board *board, uint64_t number);
uint32_t board_write(Board *board, uint64_t number, uint32_t kind, const void *data, uint64_t nbytes, uint32_t readers);
int board_await(Board *board, uint64_t number, uint32_t sources);
const void *board_look(Board *board, uint64_t number, int member, uint32_t *kind, uint64_t *nbytes);
int board_still_shows(Board *board, uint64_t number, int member);
void board_leave(Board *board, uint64_t number);

#endif
