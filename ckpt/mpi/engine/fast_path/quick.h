/* What the C code for ordinary messages shares: `_quick.c` has the objects' messages and the module, `quick_buffers.c` the buffers',
   `quick_boards.c` the collectives on boards, `quick_arrivals.c` arrival, `quick_posted.c` arrival where receives wait,
   `quick_requests.c` requests. */

#ifndef CKPT_MPI_ENGINE_QUICK_H
#define CKPT_MPI_ENGINE_QUICK_H

#define PY_SSIZE_T_CLEAN
#include "../../../../transport/driver/lane.h"
#include <string.h>

#define ENVELOPE 32
#define REFERENCE_BYTES (64 << 10)

/* The classes, their slots, and the offsets of the slots. */
enum {
    COMM_ROUTES, COMM_CHANNELS, COMM_ENGINE, COMM_SHARED, COMM_CONTEXT,
    SHARED_CLOSED, SHARED_BROKEN, SHARED_EXCHANGE,
    ENGINE_CODEC, ENGINE_GUARD, ENGINE_LANE, ENGINE_TAKEN, ENGINE_CHOICES, ENGINE_LOCK, ENGINE_RUNNABLE, ENGINE_LOOK,
    ENGINE_HANDLERS, ENGINE_FAILED, ENGINE_MATCHER, ENGINE_DEBTS, ENGINE_AHEAD, ENGINE_PROGRESS,
    CHANNEL_MESSAGES, CHANNEL_SOURCE, CHANNEL_TAG, CHANNEL_SRC, CHANNEL_CONTEXT, CHANNEL_POSTED,
    CONTEXT_ORDER, CONTEXT_WILD, CONTEXT_NUMBER,
    MATCHER_FOUND, MATCHER_SERIAL, MATCHER_POSTED, MATCHER_TICKET,
    FAILED_KNOWN,
    EXCHANGE_NUMBER, EXCHANGE_BOARD,
    OP_NAME, OP_FUNCTION,
    RECEIVE_SOURCE, RECEIVE_TAG, RECEIVE_NBYTES, RECEIVE_DONE, RECEIVE_DATA, RECEIVE_WANT_SOURCE, RECEIVE_WANT_TAG,
    RECEIVE_TICKET, RECEIVE_TARGET, RECEIVE_OWNER, RECEIVE_CANCELLED, RECEIVE_ERROR, RECEIVE_CONTEXT, RECEIVE_SLOT, RECEIVE_CODEC,
    SPEC_OBJ, SPEC_OFFSET, SPEC_NBYTES, SPEC_DENSE, SPEC_COUNT, SPEC_DATATYPE,
    DONE_DONE, DONE_CANCELLED, DONE_ERROR, DONE_SOURCE, DONE_TAG, DONE_NBYTES,
    SENT_DONE, SENT_ERROR, SENT_ENGINE, SENT_DST, SENT_SEQUENCE,
    REQUEST_ENGINE, REQUEST_KEPT, REQUEST_OPERATION, REQUEST_RECIPE,
    SLOTS
};
enum { COMM, SHARED, ENGINE, CHANNEL, CONTEXT, MATCHER, FAILED, EXCHANGE, OP, RECEIVE, SPEC, DONE, SENT, REQUEST, CLASSES };

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
   look for it (Engine.look).  NULL, maybe with an exception: there is none, or the case is not ordinary.  `has_memory`: the receive has
   memory for a long message, which waits for it (Engine.ahead). */
PyObject *awaited(PyObject *comm, PyObject *source, PyObject *tag, int has_memory, PyObject **channel);

/* Is it known of no rank that it has failed?  `engine` is one. */
int none_has_failed(PyObject *engine);

/* A short look (Engine.look), if the lock of the engine is free, while nothing else is to be done and `waits(with)`.  0, or -1 with an
   exception. */
int look_while(PyObject *engine, int (*waits)(PyObject *with), PyObject *with);

/* Export a buffer.  Returns 0; -1 without an exception: it is not ordinary, and nothing is exported. */
int export_plain(PyObject *from, Py_buffer *view, int flags);

/* Count for flow control (Engine.taken, or Engine.debts, with the lock) that a message of `size` bytes of rank `src` leaves the mailbox.
   Returns 0; 1: Python has to do it, and nothing is done. */
int account(PyObject *counts, PyObject *src, Py_ssize_t size);

/* Give a message, which is next in its channel, to the posted receive that waits for it.  GIVEN; NOBODY: none does; LEFT: Python has to
   do it.  Nothing is done in both cases.  -1 with an exception. */
enum { GIVEN, NOBODY, LEFT };
int give_to_posted(PyObject *engine, PyObject *channel, PyObject *data);

extern PyObject *quick_deque, *quick_popleft, *quick_append; /* the class collections.deque, and two of its methods */
extern PyMethodDef quick_board_functions[], quick_arrival_functions[];
int quick_prepare_boards(void);
int quick_prepare_arrivals(void);
int quick_prepare_posted(void);
int quick_prepare_requests(void);

PyObject *send_buffer(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *recv_buffer(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *sendrecv_buffer(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *isend_buffer(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *irecv_buffer(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *finish(PyObject *self, PyObject *requests);

#endif
