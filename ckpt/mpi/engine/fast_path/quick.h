/* What the C code for ordinary messages shares: `_quick.c` has the objects' messages and the module, `quick_buffers.c` the buffers',
   `quick_boards.c` the collectives on boards, `quick_arrivals.c` arrival, `quick_posted.c` arrival where receives wait,
   `quick_requests.c` requests, `quick_remote.c` long messages. */

#ifndef CKPT_MPI_ENGINE_QUICK_H
#define CKPT_MPI_ENGINE_QUICK_H

#define PY_SSIZE_T_CLEAN
#include "../../../../transport/driver/lane.h"
#include <string.h>

#define ENVELOPE 32
#define REFERENCE_BYTES (64 << 10)
#define DEBT_UNIT (1LL << 48)

/* The classes, their slots, and the offsets of the slots. */
enum {
    COMM_ROUTES, COMM_CHANNELS, COMM_ENGINE, COMM_SHARED, COMM_CONTEXT,
    SHARED_CLOSED, SHARED_BROKEN, SHARED_EXCHANGE, SHARED_REVOKED,
    ENGINE_CODEC, ENGINE_GUARD, ENGINE_LANE, ENGINE_TAKEN, ENGINE_CHOICES, ENGINE_LOCK, ENGINE_RUNNABLE, ENGINE_LOOK,
    ENGINE_HANDLERS, ENGINE_FAILED, ENGINE_MATCHER, ENGINE_DEBTS, ENGINE_AHEAD, ENGINE_PROGRESS,
    ENGINE_DIRECT, ENGINE_BUSY, ENGINE_JOINED,
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
    SENT_DONE, SENT_ERROR, SENT_ENGINE, SENT_DST, SENT_SEQUENCE, SENT_SHARED, SENT_CANCELLED, SENT_SOURCE, SENT_TAG, SENT_NBYTES,
    REQUEST_ENGINE, REQUEST_KEPT, REQUEST_OPERATION, REQUEST_RECIPE,
    SPOT_RECEIVE, SPOT_MEMORY,
    SLOTS
};
enum {
    COMM, SHARED, ENGINE, CHANNEL, CONTEXT, MATCHER, FAILED, EXCHANGE, OP, RECEIVE, SPEC, DONE, SENT, REQUEST, SPOT, NO_HANDLERS,
    CLASSES
};

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

/* Tell a Status of a message; of one of `size` bytes with its envelope.  Returns 0; -1 with an exception. */
int tell_status(PyObject *status, PyObject *source, PyObject *tag, PyObject *nbytes);
int fill_status(PyObject *status, PyObject *channel, Py_ssize_t size);

/* Have a message sent that the lane does not append, to that rank.  Returns None, or True, as `send` and `send_buffer` do: a new
   reference.  NULL, maybe without an exception: it is not ordinary. */
PyObject *send_now(PyObject *lane, PyObject *dst, PyObject *message);

/* The oldest message for a receive of (source, tag), as oldest(), and its channel: new references.  Where there is none, after a short
   look for it (Engine.look).  NULL, maybe with an exception: there is none, or the case is not ordinary.  `long_waits`, where the receive
   has memory: does a long message wait for it to be posted (Engine.ahead)? */
PyObject *awaited(PyObject *comm, PyObject *source, PyObject *tag, int *long_waits, PyObject **channel);

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

/* A number in a slot.  `bad` is set where there is none. */
long long number(PyObject *object, int slot, int *bad);

/* Matcher._earliest: the receive that takes the next message of a channel, borrowed, and its place in the list of those with a
   wildcard, or -1.  NULL: none does.  `bad` is set where that cannot be told here. */
PyObject *earliest(PyObject *channel, Py_ssize_t *place, int *bad);

/* The exporter in whose memory, in one piece from `offset` on, a receive has room for so many bytes: borrowed; it runs no code of the
   program.  NULL: there is none. */
PyObject *room_of(PyObject *receive, Py_ssize_t size, Py_ssize_t *offset);

/* Matcher.take_off, but for the count.  `place`: as of `earliest`.  0, or -1 with an exception. */
int take_off(PyObject *channel, Py_ssize_t place);

/* Receive.fill, where the message is copied already (`data` NULL), or kept. */
void fill_receive(PyObject *receive, PyObject *channel, PyObject *data, PyObject *nbytes);

/* May an exporter of this type run code of the program? */
int runs_code(PyObject *from);

/* A new object of a class, of which these slots refer to these values.  NULL with an exception: there is no memory. */
typedef struct {
    int slot;
    PyObject *value;
} Filled;
PyObject *made(int cls, const Filled *filled, size_t count);
#define MADE(cls, filled) made(cls, filled, sizeof filled / sizeof *filled)

/* As send_buffer, without waiting: a BufferSend is one that is under way. */
PyObject *start_send(PyObject *const *args, Py_ssize_t count);

/* A new BufferSend of a buffer that its receiver reads.  NULL, maybe with an exception: nothing is sent. */
PyObject *send_by_reference(PyObject *comm, PyObject *route, PyObject *from, Py_ssize_t size);

/* Engine.wait_sent, with a short look, and the lock not held.  Takes the reference: None, or the operation: Python has to wait for it. */
PyObject *wait_for_reader(PyObject *operation);

/* Does this comparison (Py_GT, …) of what is acknowledged hold with the number of the message?  -1 with an exception. */
int is_acknowledged(PyObject *sent, int how);

/* Is an ordinary operation done, perhaps after a short look?  -1 with an exception. */
int is_done(PyObject *engine, PyObject *operation);

/* Post a receive of which no message has come yet: a new reference, and its request where one is wanted.  NULL without an exception: the
   case is not ordinary, and nothing has changed. */
PyObject *post_receive(PyObject *comm, PyObject *into, PyObject *source, PyObject *tag, PyObject **request);

/* The same for a blocking receive, and a short look.  True: it is done.  False: nothing has changed.  The receive: Python has to wait. */
PyObject *receive_posted(PyObject *comm, PyObject *into, PyObject *source, PyObject *tag, PyObject *status);

/* The same beside a long send, of which it takes the reference.  True: both are done.  Else the receive (None: it is not posted) and the
   send, for which Python has to wait. */
PyObject *receive_beside(PyObject *sent, PyObject *comm, PyObject *into, PyObject *source, PyObject *tag, PyObject *status);

extern PyObject *quick_deque, *quick_popleft, *quick_append; /* the class collections.deque, and two of its methods */
extern PyObject *quick_no_source, *quick_no_tag;             /* ANY_SOURCE, ANY_TAG */
extern PyMethodDef quick_board_functions[], quick_arrival_functions[], quick_remote_functions[];
int quick_prepare_boards(void);
int quick_prepare_arrivals(void);
int quick_prepare_posted(void);
int quick_prepare_requests(void);
int quick_prepare_remote(void);

PyObject *send_buffer(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *recv_buffer(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *sendrecv_buffer(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *isend_buffer(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *irecv_buffer(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *finish(PyObject *self, PyObject *requests);

#endif
