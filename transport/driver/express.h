/* The functions of express_send.c and express_receive.c that `_express.c` calls: sending and receiving an ordinary frame. */

#ifndef CKPT_TRANSPORT_EXPRESS_H
#define CKPT_TRANSPORT_EXPRESS_H

#include "lane.h"

#include <stdint.h>

/* The classes of the protocol, and the slots of them that are read or written. */
enum express_class { ENDPOINT, COMMON, LINK, WINDOW, LEDGER, TIMEOUT, BATCH, EXPRESS_CLASSES };

#define EXPRESS_SLOTS(X)                                                                                                           \
    X(ENDPOINT, _clock_ns) X(ENDPOINT, _fresh) X(ENDPOINT, _frozen) X(ENDPOINT, _zombie) X(ENDPOINT, _links)                      \
    X(ENDPOINT, _windows) X(ENDPOINT, _common) X(ENDPOINT, _self_window)                                                         \
    X(COMMON, ack_bytes) X(COMMON, ack_delay_ns) X(COMMON, deadline_ns) X(COMMON, dirty) X(COMMON, epoch) X(COMMON, floor)       \
    X(COMMON, flush_due) X(COMMON, hungry_floor) X(COMMON, tight)                                                                \
    X(LINK, _ack_at) X(LINK, _ack_due) X(LINK, _acked_charge) X(LINK, _ident) X(LINK, _probe_due) X(LINK, _rto_at)               \
    X(LINK, _silence_reported) X(LINK, _waiting_since_ns) X(LINK, counts) X(LINK, heard_ns) X(LINK, incarnation)                 \
    X(LINK, ledger) X(LINK, paused) X(LINK, peer_epoch) X(LINK, reachable) X(LINK, timeout) X(LINK, timeouts) X(LINK, window)    \
    X(WINDOW, acked_charge) X(WINDOW, base) X(WINDOW, clean) X(WINDOW, current) X(WINDOW, edge) X(WINDOW, flight)                \
    X(WINDOW, flight_charge) X(WINDOW, order) X(WINDOW, queue) X(WINDOW, queued) X(WINDOW, resend) X(WINDOW, sealed)                  \
    X(WINDOW, sealed_charge) X(WINDOW, sent_charge)                                                                              \
    X(WINDOW, top_order) X(WINDOW, tx) X(WINDOW, unacked)                                                                        \
    X(LEDGER, arrived) X(LEDGER, credit) X(LEDGER, delivered_charge) X(LEDGER, early) X(LEDGER, inbox) X(LEDGER, offered)        \
    X(LEDGER, rx) X(LEDGER, unconsumed)                                                                                          \
    X(TIMEOUT, _initial_ns) X(TIMEOUT, _max_ns) X(TIMEOUT, _min_ns) X(TIMEOUT, _var_ns) X(TIMEOUT, backoff) X(TIMEOUT, srtt_ns)  \
    X(BATCH, charge) X(BATCH, end) X(BATCH, first) X(BATCH, messages) X(BATCH, order) X(BATCH, sends) X(BATCH, sent_ns)          \
    X(BATCH, state)

#define EXPRESS_NAME(cls, name) cls##_##name,
enum express_slot { EXPRESS_SLOTS(EXPRESS_NAME) SLOT_COUNT };

extern PyTypeObject *express_classes[EXPRESS_CLASSES];
extern Py_ssize_t express_offsets[SLOT_COUNT];

/* The numbers of a configuration that never change. */
typedef struct {
    PyObject *endpoint;
    unsigned long long job;
    long long rank, incarnation, coalesce, overhead, longest;
} Express;

/* A frame of the kind MESSAGES that counts as sent: where it goes is yet to be written. */
enum { HEADER = 72 };
typedef struct {
    PyObject *messages; /* a list of bytes, a reference */
    uint64_t bytes;     /* of the frame */
    uint32_t length;    /* of each message; VARIED: a table of lengths comes first */
    unsigned char head[HEADER];
} Outgoing;

/* Give the parts of a frame, in order, to `take`. */
typedef void (*Taker)(void *with, const void *part, size_t size);
void express_parts(const Outgoing *frame, Taker take, void *with);

/* A frame as one object: a new reference.  NULL with an exception: there is no memory. */
PyObject *express_whole(const Outgoing *frame);

/* The frame for one message on an idle link, which counts as sent: 1.  0 without an exception: the case is not ordinary (or there is
   no memory), and nothing has changed. */
int express_emit(const Express *express, PyObject *dst, PyObject *message, long long now_ns, Outgoing *frame);

/* The next frame with messages that wait on the first link that has something to send, which counts as sent: 1.  `dst`: that rank, a
   new reference.  0 as above. */
int express_transmit(const Express *express, long long now_ns, PyObject **dst, Outgoing *frame);

/* The first link that has something to send, and the greatest length of its frame; NULL: express_transmit() would return 0. */
PyObject *express_waiting(const Express *express, long long *bytes);

/* The sequence number of a short message that waits on a busy link, to share a frame with others.  -1 without an exception: the
   case is not ordinary, and nothing has changed. */
long long express_append(const Express *express, PyObject *dst, PyObject *message);

/* A frame of one part that has come, in memory that its sender may still write to: each byte is read once. */
typedef struct {
    const unsigned char *at[2]; /* in two runs, round the end of a ring; the second may be empty */
    size_t size[2];
} Incoming;

/* The messages of a frame (a new list), which count as delivered, and their source (a new reference).  NULL without an exception: the
   case is not ordinary (or there is no memory), and nothing has changed. */
PyObject *express_accept(const Express *express, const Incoming *frame, long long now_ns, PyObject **source);

#endif
