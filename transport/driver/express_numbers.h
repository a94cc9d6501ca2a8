/* What the parts of the hot way have in common: numbers in slots, counters, links. */

#ifndef CKPT_TRANSPORT_EXPRESS_NUMBERS_H
#define CKPT_TRANSPORT_EXPRESS_NUMBERS_H

#include "../protocol/checksum.h"
#include "express.h"

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define NEVER (1LL << 62)
#define MAGIC 0xC701
#define MESSAGES 1
#define FRAGMENT_FRAME 2
#define ACK 3
#define ANSWER 1 /* a flag */
#define POINTS 1 /* directwire.py: a pointer, not a refusal */
#define VARIED 0xFFFFFFFFu
#define FLIGHT 1
#define DONE 4
#define BULK_CHARGE (64 << 10)
#define GRANULARITY_NS 1000000
#define PLAIN_ACK 1

#define GET(object, slot) SLOT(object, express_offsets[slot])
#define IS(object, cls) ((object) && Py_IS_TYPE(object, express_classes[cls]))

/* A slot that both kinds of units have: batches, and fragments of long messages. */
#define UNIT(unit, slot) (IS(unit, BATCH) ? BATCH_##slot : FRAGMENT_##slot)

/* ---- numbers -------------------------------------------------------------------------------------------------------------- */

/* Ints are read through one `Reading`, which remembers whether each was an int that fits. */
typedef struct {
    int bad;
} Reading;

static inline long long value(Reading *reading, PyObject *number)
{
    int overflow = 0;
    if (!number || !PyLong_CheckExact(number)) {
        reading->bad = 1;
        return 0;
    }
    long long found = PyLong_AsLongLongAndOverflow(number, &overflow);
    reading->bad |= overflow;
    return found;
}

/* The number in a slot that holds numbers. */
#define NUMBER(object, slot) NUMBER_SLOT(object, express_offsets[slot])

/* New values of numbers: all are stored together, when nothing can fail any more. */
enum { MOST_CHANGES = 32 }; /* a frame that has come changes 25 at the most */
typedef struct {
    int count;
    struct {
        long long *at, value;
    } each[MOST_CHANGES];
} Changes;

static inline void change(Changes *changes, PyObject *object, enum express_slot slot, long long value)
{
    assert(changes->count < MOST_CHANGES);
    changes->each[changes->count].at = &NUMBER(object, slot);
    changes->each[changes->count++].value = value;
}

static inline void store(const Changes *changes)
{
    for (int i = 0; i < changes->count; i++) *changes->each[i].at = changes->each[i].value;
}

static inline int empty_list(PyObject *list) { return list && PyList_CheckExact(list) && !PyList_GET_SIZE(list); }

static inline int empty_set(PyObject *set) { return set && PyAnySet_CheckExact(set) && !PySet_GET_SIZE(set); }

static inline int empty_dict(PyObject *dict) { return dict && PyDict_CheckExact(dict) && !PyDict_GET_SIZE(dict); }

static inline int empty_deque(PyObject *deque) { return deque && PyObject_Size(deque) == 0; }

/* The link to a rank (an int), if its endpoint is neither frozen nor a zombie: borrowed. */
static inline PyObject *link_of(const Express *express, PyObject *rank)
{
    PyObject *endpoint = express->endpoint, *links = GET(endpoint, ENDPOINT__links);
    if (GET(endpoint, ENDPOINT__frozen) != Py_False || GET(endpoint, ENDPOINT__zombie) != Py_False) return NULL;
    PyObject *link = links && PyDict_CheckExact(links) ? PyDict_GetItemWithError(links, rank) : NULL;
    if (!link && PyErr_Occurred()) PyErr_Clear();
    return IS(link, LINK) && IS(GET(link, LINK_window), WINDOW) && IS(GET(link, LINK_ledger), LEDGER) &&
                   IS(GET(link, LINK_timeout), TIMEOUT) && IS(GET(link, LINK_counts), COUNTS)
               ? link
               : NULL;
}

/* Link.request_transmit(now=True), without its last step: what has to be stored is `request_stored`.  0: there is no memory. */
static inline int request(PyObject *link, PyObject *common)
{
    PyObject *window = GET(link, LINK_window), *dirty = GET(common, COMMON_dirty);
    if (GET(window, WINDOW_clean) != Py_True) return 1;
    return dirty && PyList_CheckExact(dirty) && !PyList_Append(dirty, link);
}

/* Undo `request`. */
static inline void request_undone(PyObject *link, PyObject *common)
{
    PyObject *dirty = GET(common, COMMON_dirty);
    if (GET(GET(link, LINK_window), WINDOW_clean) == Py_True)
        PyList_SetSlice(dirty, PyList_GET_SIZE(dirty) - 1, PyList_GET_SIZE(dirty), NULL);
}

static inline void request_stored(PyObject *link, PyObject *common)
{
    Py_XSETREF(GET(GET(link, LINK_window), WINDOW_clean), Py_NewRef(Py_False));
    Py_XSETREF(GET(common, COMMON_flush_due), Py_NewRef(Py_True));
}

/* Has nothing come beyond what is delivered?  Then an acknowledgement has no hints. */
static inline int has_no_hints(PyObject *ledger)
{
    return empty_dict(GET(ledger, LEDGER_early)) && empty_dict(GET(ledger, LEDGER_partials)) &&
           NUMBER(ledger, LEDGER_rx) == NUMBER(ledger, LEDGER_arrived);
}

/* Timeout.rto_ns() where nothing has expired in a row.  `srtt`, `var`: the estimate of round trips, as it is or is about to be. */
long long express_rto_ns(PyObject *timeout, long long srtt, long long var);

/* Nothing but a new message waits on this link, and nothing on any other. */
int express_has_nothing_else(PyObject *link, PyObject *window, PyObject *common);

/* An entry whose only unit is about to be sent. */
typedef struct {
    PyObject *entry, *unit;
    long long charge, flying, order; /* of the entry: credit; of the unit */
    long long stamp[3];
} Sending;

/* SendWindow.sent, and what Link.emit does then: what has to be stored.  0: it is another case. */
int express_going(const Express *express, PyObject *link, Sending *sending, long long now_ns, Changes *changes);

/* The unit is in flight now, if there is memory for that: 1. */
int express_gone(PyObject *link, const Sending *sending);

/* The bytes of a payload: a view of single bytes in one run.  0: it is none.  The memory stays as long as the view. */
static inline int bytes_of(PyObject *payload, const void **at, Py_ssize_t *size)
{
    if (!payload || !PyMemoryView_Check(payload)) return 0;
    const Py_buffer *view = PyMemoryView_GET_BUFFER(payload);
    if (view->ndim != 1 || view->itemsize != 1 || (view->format && strcmp(view->format, "B")) || !PyBuffer_IsContiguous(view, 'C'))
        return 0;
    *at = view->buf;
    *size = view->len;
    return 1;
}

/* A frame that has come, read from its head (frames.py). */
typedef struct {
    uint64_t job, epoch, ack, room, first;
    uint32_t source, target, source_incarnation, target_incarnation, count, length, sum, sum_of_head;
    int kind, flags;
} Header;

static inline uint64_t get_number(const unsigned char *at, int bytes)
{
    uint64_t number = 0;
    memcpy(&number, at, (size_t)bytes);
    return le64toh(number);
}

/* Read the head that a frame of so many bytes begins with: 1; 0: it is none.  Its numbers may be anything until the checksum of the whole
   head is compared with `sum`; `sum_of_head` is the checksum of this part of it. */
int express_open(const Incoming *frame, Header *header);

/* Is this the next frame of a link on which all is well?  An acknowledgement alone has no place in the order. */
int express_is_next(const Express *express, PyObject *link, const Header *header);

/* Take what each frame says beside its messages; and of messages in order, which take so much credit each and together, that they are
   delivered.  1: what has to be stored is in `news`, and `express_settled` stores it.  0: it is another case, and nothing has changed. */
enum { MOST_ACKED = 4 };
typedef struct {
    PyObject *link;
    int acked;                     /* the oldest entries, which an acknowledgement frees */
    PyObject *entries[MOST_ACKED], *units[MOST_ACKED]; /* borrowed, the window has them; and the only unit of each */
    PyObject *orders[MOST_ACKED];  /* of the units, as they are found in flight */
    long long next;                /* the oldest order that is in flight after it; NEVER: none is */
    int answers;                   /* an acknowledgement is due at once */
    int is_ack;                    /* the frame is an acknowledgement alone */
    Changes changes;
} News;
int express_settle(const Express *express, PyObject *link, const Header *header, long long messages, long long charge, long long now_ns,
                   News *news);
int express_settled(const Express *express, News *news);
void express_unsettled(const Express *express, News *news);

/* Functions of deques: `append` to one, and `popleft`. */
extern PyObject *express_append_to, *express_popleft;

/* Prepare one part: 0, or -1 with an exception. */
int express_prepare_send(void);
int express_prepare_remote(void);

#endif
