/* The functions of express_credit.c, express_frames.c, express_send.c, express_receive.c and express_remote.c that `_express.c` calls:
   sending and receiving an ordinary frame. */

#ifndef CKPT_TRANSPORT_EXPRESS_H
#define CKPT_TRANSPORT_EXPRESS_H

#include "lane.h"

#include "../rings/ring_ends.h"

#include <stdint.h>

/* The classes of the protocol, and the slots of them that are read or written: X has objects, N numbers
   (transport/integers.py). */
enum express_class { ENDPOINT, COMMON, LINK, COUNTS, WINDOW, LEDGER, TIMEOUT, BATCH, LARGE, FRAGMENT, PLACED, EXPRESS_CLASSES };

#define EXPRESS_SLOTS(X, N)                                                                                                        \
    X(ENDPOINT, _allocate) X(ENDPOINT, _fresh) X(ENDPOINT, _frozen) X(ENDPOINT, _zombie) X(ENDPOINT, _links)                     \
    X(ENDPOINT, _windows) X(ENDPOINT, _common) X(ENDPOINT, _self_window) N(ENDPOINT, _clock_ns)                                  \
    X(COMMON, checksum_payload) X(COMMON, dirty) X(COMMON, flush_due) X(COMMON, tight) N(COMMON, ack_bytes)                      \
    N(COMMON, ack_delay_ns) N(COMMON, burst_bytes) N(COMMON, deadline_ns) N(COMMON, epoch) N(COMMON, floor)                      \
    N(COMMON, hungry_floor) N(COMMON, update_bytes)                                                                              \
    X(LINK, _ident) X(LINK, _probe_due) X(LINK, _silence_reported) X(LINK, counts) X(LINK, ledger) X(LINK, paused)               \
    X(LINK, reachable) X(LINK, timeout) X(LINK, window) N(LINK, _ack_at) N(LINK, _ack_due) N(LINK, _acked_charge)                \
    N(LINK, _rto_at) N(LINK, _waiting_since_ns) N(LINK, heard_ns) N(LINK, incarnation) N(LINK, peer_epoch) N(LINK, timeouts)     \
    N(COUNTS, acks_received) N(COUNTS, acks_sent) N(COUNTS, frames_received) N(COUNTS, frames_sent)                              \
    X(WINDOW, clean) X(WINDOW, current) X(WINDOW, flight) X(WINDOW, queue) X(WINDOW, resend) X(WINDOW, sealed)                   \
    X(WINDOW, unacked) N(WINDOW, acked_charge) N(WINDOW, base) N(WINDOW, edge) N(WINDOW, flight_charge) N(WINDOW, fragment)      \
    N(WINDOW, order) N(WINDOW, pipeline) N(WINDOW, queued) N(WINDOW, sealed_charge) N(WINDOW, sent_charge)                       \
    N(WINDOW, top_order) N(WINDOW, tx)                                                                                           \
    X(LEDGER, early) X(LEDGER, inbox) X(LEDGER, partials) N(LEDGER, arrived) N(LEDGER, credit) N(LEDGER, delivered_charge)       \
    N(LEDGER, offered) N(LEDGER, rx) N(LEDGER, unconsumed)                                                                       \
    N(TIMEOUT, _initial_ns) N(TIMEOUT, _max_ns) N(TIMEOUT, _min_ns) N(TIMEOUT, _var_ns) N(TIMEOUT, backoff) N(TIMEOUT, srtt_ns)  \
    X(BATCH, messages) N(BATCH, charge) N(BATCH, end) N(BATCH, first) N(BATCH, order) N(BATCH, sends) N(BATCH, sent_ns)          \
    N(BATCH, state)                                                                                                              \
    X(LARGE, data) X(LARGE, payload) X(LARGE, pieces) N(LARGE, charge) N(LARGE, cursor) N(LARGE, end) N(LARGE, first)            \
    N(LARGE, size)                                                                                                               \
    X(FRAGMENT, large) N(FRAGMENT, charge) N(FRAGMENT, offset) N(FRAGMENT, order) N(FRAGMENT, sends) N(FRAGMENT, sent_ns)        \
    N(FRAGMENT, state)                                                                                                           \
    X(PLACED, head) X(PLACED, spot) X(PLACED, total)

#define EXPRESS_NAME(cls, name) cls##_##name,
enum express_slot { EXPRESS_SLOTS(EXPRESS_NAME, EXPRESS_NAME) SLOT_COUNT };

extern PyTypeObject *express_classes[EXPRESS_CLASSES];
extern Py_ssize_t express_offsets[SLOT_COUNT];

/* Lengths in bytes: of a head, of what the head of a fragment has more, of the data that may come with it; of a badge
   (crossmemory.py), and of a pointer to a payload (directwire.py). */
enum { HEADER = 72, PIECE = 20, MOST_INLINE = 64, BADGE = 32, POINTER = 25 + BADGE };

/* The numbers of a configuration that never change; and the ranks that read payloads from this process's memory. */
typedef struct {
    PyObject *endpoint;
    unsigned long long job;
    long long rank, incarnation, coalesce, overhead, longest, longest_message;
    PyObject *direct; /* a set; NULL: nobody does */
    long long direct_from, direct_limit; /* bytes */
    unsigned char badge[BADGE];
    RingProcess own;      /* the same badge */
    const RingApi *rings;
} Express;

/* A frame that counts as sent: where it goes is yet to be written.  Its kind is MESSAGES; ACK, without messages; or FRAGMENT, with a
   pointer to the payload. */
typedef struct {
    PyObject *messages; /* a list of bytes, a reference; or NULL */
    PyObject *payload;  /* a memoryview, a reference; or NULL */
    uint64_t bytes;     /* of all parts */
    uint32_t length;    /* of each message; VARIED: a table of lengths comes first */
    uint32_t head_bytes;
    unsigned char head[HEADER + PIECE + MOST_INLINE], pointer[POINTER];
} Outgoing;

/* The head of a frame with these messages (borrowed): 1.  0: they cannot be in one. */
int express_fill(Outgoing *frame, PyObject *ident, const long long stamp[3], long long sequence, PyObject *messages);

/* The head of an ACK without hints. */
int express_fill_ack(Outgoing *frame, PyObject *ident, const long long stamp[3]);

/* The head of the only fragment of a message, and the pointer to its payload: `data`, then `size` bytes at `address`. */
int express_fill_fragment(Outgoing *frame, const Express *express, PyObject *ident, const long long stamp[3], long long sequence,
                          PyObject *data, const void *address, uint64_t size, int flags);

/* Give the bytes of a frame, in order, to `take`. */
typedef void (*Taker)(void *with, const void *part, size_t size);
void express_parts(const Outgoing *frame, Taker take, void *with);

/* A frame as a tuple of its parts, as in frames.py: a new reference.  NULL with an exception: there is no memory. */
PyObject *express_whole(const Outgoing *frame);

/* Let go of what a frame refers to. */
void express_release(Outgoing *frame);

/* The frame for one message on an idle link, which counts as sent: 1.  0 without an exception: the case is not ordinary (or there is
   no memory), and nothing has changed. */
int express_emit(const Express *express, PyObject *dst, PyObject *message, long long now_ns, Outgoing *frame);

/* The same for a long message, of which the whole payload is to be read: `data`, then the bytes of `payload`. */
int express_emit_large(const Express *express, PyObject *dst, PyObject *data, PyObject *payload, long long now_ns, Outgoing *frame);

/* The next frame on the first link that has something to send, which counts as sent: messages that wait, or an acknowledgement that is
   due: 1.  `dst`: that rank, a new reference.  0 as above. */
int express_transmit(const Express *express, long long now_ns, PyObject **dst, Outgoing *frame);

/* The first link that has something to send, and the greatest length of its frame; NULL: express_transmit() would return 0. */
PyObject *express_waiting(const Express *express, long long *bytes);

/* The sequence number of a short message that waits on a busy link, to share a frame with others.  -1 without an exception: the
   case is not ordinary, and nothing has changed. */
long long express_append(const Express *express, PyObject *dst, PyObject *message);

/* A frame that has come, in memory that its sender may still write to: each byte is read once. */
typedef struct {
    const unsigned char *at[2]; /* in two runs, round the end of a ring; the second may be empty */
    size_t size[2];
    uint32_t lengths[2]; /* of the first two parts; the third has the rest */
    Ring *ring;          /* in which it lies: borrowed; NULL: it is elsewhere */
} Incoming;

/* Copy from a place of the frame, which has so much. */
void express_copy(const Incoming *frame, size_t from, void *to, size_t size);

/* What has come: its source (a rank), and a list of messages, or a long one that was read into memory of the program (`Placed`).  New
   references, or NULL. */
typedef struct {
    PyObject *source, *messages, *placed;
} Arrived;
void express_forget(Arrived *arrived);

/* Take a frame of one part: its messages count as delivered; an acknowledgement alone brings none.  1; 0 without an exception: the case
   is not ordinary (or there is no memory), and nothing has changed. */
int express_accept(const Express *express, const Incoming *frame, long long now_ns, Arrived *arrived);

/* The same for a frame with a pointer to the payload of a whole message: it is read into the memory that `place` (None, or a function:
   Endpoint.place) names, or into other memory, and is the only one of the messages then.  SOON: it is the next one, and its place is
   about to be known; nothing has changed.  -1: `place` has raised an exception. */
enum { SOON = 2 };
int express_accept_remote(const Express *express, const Incoming *frame, PyObject *place, long long now_ns, Arrived *arrived);

/* Endpoint.consumed: 1; 0: it is another case, and nothing has changed. */
int express_consumed(const Express *express, PyObject *src, PyObject *nbytes, PyObject *messages);

/* Endpoint.base: a new reference, or NULL: it is another case, or there is no memory (with an exception). */
PyObject *express_base(const Express *express, PyObject *dst);

#endif
