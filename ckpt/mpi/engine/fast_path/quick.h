/* What the C code for ordinary messages shares: `_quick.c` has the objects' messages and the module, `quick_buffers.c` the buffers',
   `quick_boards.c` the collectives on boards, `quick_arrivals.c` arrival. */

#ifndef CKPT_MPI_ENGINE_QUICK_H
#define CKPT_MPI_ENGINE_QUICK_H

#define PY_SSIZE_T_CLEAN
#include "../../../../transport/driver/lane.h"
#include <string.h>

#define ENVELOPE 32
#define REFERENCE_BYTES (64 << 10)

/* The classes, their slots, and the offsets of the slots. */
enum {
    COMM_ROUTES, COMM_CHANNELS, COMM_ENGINE, COMM_SHARED,
    SHARED_CLOSED, SHARED_BROKEN, SHARED_EXCHANGE,
    ENGINE_CODEC, ENGINE_GUARD, ENGINE_LANE, ENGINE_TAKEN, ENGINE_CHOICES, ENGINE_LOCK, ENGINE_RUNNABLE, ENGINE_LOOK,
    ENGINE_HANDLERS, ENGINE_FAILED, ENGINE_MATCHER,
    CHANNEL_MESSAGES, CHANNEL_SOURCE, CHANNEL_TAG, CHANNEL_SRC, CHANNEL_CONTEXT,
    CONTEXT_ORDER,
    MATCHER_FOUND, MATCHER_SERIAL, MATCHER_POSTED,
    FAILED_KNOWN,
    EXCHANGE_NUMBER, EXCHANGE_BOARD,
    OP_NAME, OP_FUNCTION,
    SLOTS
};
enum { COMM, SHARED, ENGINE, CHANNEL, CONTEXT, MATCHER, FAILED, EXCHANGE, OP, CLASSES };

extern LaneApi *lanes;
extern PyTypeObject *classes[CLASSES];
extern Py_ssize_t offsets[SLOTS];
extern int known; /* of the classes so many are registered */

#define GET(object, slot) SLOT(object, offsets[slot])
#define IS(object, cls) ((object) && Py_IS_TYPE(object, classes[cls]))

/* The route (world rank, envelope) of messages to `dest` with `tag`, and the lane of the engine, both borrowed.  NULL without an
   exception: the case is not ordinary. */
PyObject *route_of(PyObject *comm, PyObject *dest, PyObject *tag, PyObject **lane);

/* The channel from which a receive of (source, tag) takes without a search, borrowed.  NULL without an exception: there is none, or
   the case is not ordinary. */
PyObject *channel_for(PyObject *comm, PyObject *source, PyObject *tag);

/* The oldest message of a channel, if it is ordinary (EAGER, not empty, below REFERENCE_BYTES): a new reference.  Else NULL without
   an exception. */
PyObject *oldest(PyObject *channel);

/* Remove the oldest message of a channel, which is `data`, and count it for flow control.  Returns 0; 1: Python has to do it, and
   nothing is done; -1 with an exception. */
int take_oldest(PyObject *comm, PyObject *channel, PyObject *data);

/* Tell a Status of a message of `size` bytes with its envelope.  Returns 0; -1 with an exception. */
int fill_status(PyObject *status, PyObject *channel, Py_ssize_t size);

/* Have a message sent that the lane does not append, to that rank.  Returns None, or True, as `send` and `send_buffer` do: a new
   reference.  NULL, maybe without an exception: it is not ordinary. */
PyObject *send_now(PyObject *lane, PyObject *dst, PyObject *message);

/* The oldest message for a receive of (source, tag), as oldest(), and its channel: new references.  Where there is none, after a short
   look for it (Engine.look).  NULL, maybe with an exception: there is none, or the case is not ordinary. */
PyObject *awaited(PyObject *comm, PyObject *source, PyObject *tag, PyObject **channel);

/* Export a buffer.  Returns 0; -1 without an exception: it is not ordinary, and nothing is exported. */
int export_plain(PyObject *from, Py_buffer *view, int flags);

extern PyObject *quick_deque; /* the class collections.deque */
extern PyMethodDef quick_board_functions[], quick_arrival_functions[];
int quick_prepare_boards(void);
int quick_prepare_arrivals(void);

PyObject *send_buffer(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *recv_buffer(PyObject *self, PyObject *const *args, Py_ssize_t count);

#endif
