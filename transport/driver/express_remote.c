/* A long message of which the payload is read from its sender's memory: what Endpoint.send, Endpoint.transmit and DirectWire.send, and
   DirectWire.receive, Endpoint.receive and Endpoint.delivered do with its frame of three parts (transport/wires/directwire.py), on the
   very objects of transport/protocol.

   Ordinary is a message in one fragment.  On its way out nothing else waits to be sent.  When it comes it is next in order.  All else,
   every failure to read included, is left to Python, and nothing has changed then but memory that the program may not read yet. */

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include "express_numbers.h"

enum {
    ALONE_BYTES = 1 << 20,   /* a longer payload is read without the interpreter's lock */
    SHARED_BYTES = 256 << 10 /* so long a payload is copied by both processes, where its sender waits for that */
};

static PyObject *name_memory;

/* ---- sending --------------------------------------------------------------------------------------------------------------- */

/* A message and its only fragment, which are not sent yet.  0: there is no memory. */
static int large_of(PyObject *data, PyObject *payload, long long first, long long size, long long overhead, Sending *sending)
{
    PyTypeObject *types[] = {express_classes[LARGE], express_classes[FRAGMENT]};
    PyObject *large = types[0]->tp_alloc(types[0], 0), *piece = types[1]->tp_alloc(types[1], 0), *pieces = PyList_New(1);
    if (!large || !piece || !pieces) {
        Py_XDECREF(large);
        Py_XDECREF(piece);
        Py_XDECREF(pieces);
        return 0;
    }
    NUMBER(large, LARGE_first) = first;
    NUMBER(large, LARGE_end) = first + 1;
    NUMBER(large, LARGE_size) = NUMBER(large, LARGE_cursor) = NUMBER(piece, FRAGMENT_charge) = size;
    NUMBER(large, LARGE_charge) = size + overhead;
    GET(large, LARGE_data) = Py_NewRef(data);
    GET(large, LARGE_payload) = Py_NewRef(payload);
    GET(piece, FRAGMENT_large) = Py_NewRef(large);
    PyList_SET_ITEM(pieces, 0, Py_NewRef(piece));
    GET(large, LARGE_pieces) = pieces;
    *sending = (Sending){large, piece, size + overhead, size, 0, {0}};
    return 1;
}

/* May the whole message leave in one frame, and nothing be left to be sent? */
static int fits(PyObject *window, PyObject *common, long long size, long long before)
{
    return GET(common, COMMON_checksum_payload) == Py_False && size < NUMBER(common, COMMON_burst_bytes) &&
           size <= NUMBER(window, WINDOW_fragment) + before && NUMBER(window, WINDOW_flight_charge) < NUMBER(window, WINDOW_pipeline);
}

static int large_emitted(const Express *express, PyObject *link, PyObject *data, PyObject *payload, long long now_ns, Outgoing *frame)
{
    PyObject *window = GET(link, LINK_window);
    const void *at;
    Py_ssize_t length;
    Changes changes = {0};
    Sending sending;
    if (!bytes_of(payload, &at, &length) || length < express->direct_from || length > express->direct_limit) return 0;
    long long first = NUMBER(window, WINDOW_tx), before = (long long)PyBytes_GET_SIZE(data), size = before + (long long)length;
    int flags = NUMBER(window, WINDOW_flight_charge) ? 0 : ANSWER; /* else see Link._emit_messages */
    if (size <= express->longest || size > express->longest_message) return 0;
    if (!fits(window, GET(express->endpoint, ENDPOINT__common), size, before)) return 0;
    if (!large_of(data, payload, first, size, express->overhead, &sending)) return 0;
    change(&changes, window, WINDOW_tx, first + 1);
    int is_sent = express_going(express, link, &sending, now_ns, &changes) &&
                  express_fill_fragment(frame, express, GET(link, LINK__ident), sending.stamp, first, data, at, (uint64_t)length, flags) &&
                  express_gone(link, &sending);
    if (is_sent) {
        store(&changes);
        frame->payload = Py_NewRef(payload);
    } else {
        PyList_SetSlice(GET(sending.entry, LARGE_pieces), 0, 1, NULL); /* the two refer to each other */
    }
    Py_DECREF(sending.entry);
    Py_DECREF(sending.unit);
    return is_sent;
}

int express_emit_large(const Express *express, PyObject *dst, PyObject *data, PyObject *payload, long long now_ns, Outgoing *frame)
{
    PyObject *link = express->direct && PyBytes_CheckExact(data) ? link_of(express, dst) : NULL;
    PyObject *common = GET(express->endpoint, ENDPOINT__common);
    if (!link || !IS(common, COMMON)) return 0;
    PyObject *window = GET(link, LINK_window), *flight = GET(window, WINDOW_flight);
    if (window == GET(express->endpoint, ENDPOINT__self_window) || !flight || !PyDict_CheckExact(flight)) return 0;
    int reads = PySet_Contains(express->direct, dst), is_sent = 0;
    if (reads > 0 && express_has_nothing_else(link, window, common)) is_sent = large_emitted(express, link, data, payload, now_ns, frame);
    PyErr_Clear();
    return is_sent;
}

/* ---- receiving ------------------------------------------------------------------------------------------------------------- */

/* A fragment, as its head says, and where its payload is. */
typedef struct {
    Header header;
    uint64_t total, offset, address;
    RingProcess process;
    unsigned char inside[MOST_INLINE];
    Ring *ring; /* by which it has come; NULL: it is read by this process alone */
} Remote;

/* frames.open_frame and decode_fragment. */
static int open_piece(const Incoming *frame, Remote *remote)
{
    unsigned char piece[PIECE];
    Header *header = &remote->header;
    if (!express_open(frame, header) || header->kind != FRAGMENT_FRAME || header->flags & ~ANSWER) return 0;
    if (header->count > MOST_INLINE || frame->lengths[0] != HEADER + PIECE + header->count) return 0;
    express_copy(frame, HEADER, piece, PIECE);
    express_copy(frame, HEADER + PIECE, remote->inside, header->count);
    uint32_t sum = checksum(checksum(header->sum_of_head, piece, PIECE), remote->inside, header->count);
    remote->total = get_number(piece, 8);
    remote->offset = get_number(piece + 8, 8);
    return sum == header->sum && !remote->offset && remote->total == (uint64_t)header->count + header->length;
}

/* DirectWire._open_pointer. */
static int open_pointer(const Incoming *frame, const Express *express, Remote *remote)
{
    unsigned char at[POINTER];
    if (frame->lengths[1] != POINTER || frame->size[0] + frame->size[1] != (size_t)frame->lengths[0] + POINTER) return 0;
    express_copy(frame, frame->lengths[0], at, POINTER);
    uint64_t nbytes = get_number(at + 17, 8), pid = get_number(at + 25, 8);
    remote->address = get_number(at + 9, 8);
    remote->process = (RingProcess){.pid = (pid_t)pid, .badge_at = get_number(at + 33, 8)};
    memcpy(remote->process.badge, at + 41, RING_BADGE);
    remote->ring = express->direct ? frame->ring : NULL;
    return get_number(at, 4) == checksum(0, at + 4, POINTER - 4) && at[4] == POINTS && nbytes == remote->header.length &&
           (long long)nbytes <= express->direct_limit && pid <= INT32_MAX;
}

/* crossmemory.Reader.read; with the sender's help, where that is possible. */
static int copy(const Express *express, const Remote *remote, void *into, size_t size, int has_lock)
{
    if (!remote->ring || size < SHARED_BYTES) return express->rings->read(&remote->process, remote->address, into, size);
    return express->rings->copy_shared(remote->ring, &express->own, &remote->process, remote->address, into, size, has_lock);
}

/* Fill memory of the length of the payload.  0: it cannot be. */
static int fill(const Express *express, const Remote *remote, const void *at, Py_ssize_t size)
{
    int is_read = (uint64_t)size == remote->header.length;
    if (is_read && size < ALONE_BYTES) return copy(express, remote, (void *)(uintptr_t)at, (size_t)size, 1);
    if (is_read) {
        Py_BEGIN_ALLOW_THREADS /* the caller has the port's lock: nothing changes meanwhile */
        is_read = copy(express, remote, (void *)(uintptr_t)at, (size_t)size, 0);
        Py_END_ALLOW_THREADS
    }
    return is_read;
}

/* The message in other memory (Ledger.accept_remote): a new list of it.  NULL: it cannot be, maybe with an exception. */
static PyObject *elsewhere(const Express *express, const Remote *remote)
{
    PyObject *total = PyLong_FromUnsignedLongLong(remote->total), *allocate = GET(express->endpoint, ENDPOINT__allocate);
    PyObject *buffer = total && allocate ? PyObject_CallOneArg(allocate, total) : NULL, *messages = NULL;
    Py_XDECREF(total);
    if (buffer && PyByteArray_CheckExact(buffer) && (uint64_t)PyByteArray_GET_SIZE(buffer) == remote->total) {
        PyObject *view = PyMemoryView_FromObject(buffer); /* nobody changes its length meanwhile */
        char *at = PyByteArray_AS_STRING(buffer);
        memcpy(at, remote->inside, remote->header.count);
        if (view && fill(express, remote, at + remote->header.count, (Py_ssize_t)remote->header.length) && (messages = PyList_New(1)))
            PyList_SET_ITEM(messages, 0, Py_NewRef(buffer));
        Py_XDECREF(view);
    }
    Py_XDECREF(buffer);
    return messages;
}

/* Read the payload into the memory of a spot (ledger.py): 1 and a new `Placed`; SOON; 0, maybe with an exception: it cannot be. */
static int read_into(const Express *express, PyObject *spot, const Remote *remote, PyObject *head, PyObject **placed)
{
    PyObject *memory = PyObject_GetAttr(spot, name_memory), *total = PyLong_FromUnsignedLongLong(remote->total);
    const void *at;
    Py_ssize_t size;
    int code = memory == Py_None ? SOON : 0;
    if (total && bytes_of(memory, &at, &size) && !PyMemoryView_GET_BUFFER(memory)->readonly && fill(express, remote, at, size)) {
        *placed = express_classes[PLACED]->tp_alloc(express_classes[PLACED], 0);
    }
    if (*placed) {
        code = 1;
        GET(*placed, PLACED_head) = Py_NewRef(head);
        GET(*placed, PLACED_spot) = Py_NewRef(spot);
        GET(*placed, PLACED_total) = Py_NewRef(total);
    }
    Py_XDECREF(memory);
    Py_XDECREF(total);
    return code;
}

/* Read the payload where it is wanted: 1; SOON; 0: it cannot be; -1: `place` has raised an exception. */
static int read_payload(const Express *express, PyObject *place, const Remote *remote, Arrived *arrived)
{
    PyObject *head = PyBytes_FromStringAndSize((const char *)remote->inside, (Py_ssize_t)remote->header.count);
    PyObject *length = head ? PyLong_FromUnsignedLong(remote->header.length) : NULL, *spot = NULL;
    int code = 0;
    if (length) {
        PyObject *asked[] = {head, length};
        spot = place == Py_None ? Py_NewRef(Py_None) : PyObject_Vectorcall(place, asked, 2, NULL);
        if (!spot) code = -1;
    }
    if (spot && spot != Py_None)
        code = read_into(express, spot, remote, head, &arrived->placed);
    else if (spot)
        code = (arrived->messages = elsewhere(express, remote)) != NULL;
    if (code >= 0) PyErr_Clear();
    Py_XDECREF(spot);
    Py_XDECREF(length);
    Py_XDECREF(head);
    return code;
}

int express_accept_remote(const Express *express, const Incoming *frame, PyObject *place, long long now_ns, Arrived *arrived)
{
    Remote remote;
    News news;
    if (!open_piece(frame, &remote) || !open_pointer(frame, express, &remote)) return 0;
    PyObject *rank = PyLong_FromUnsignedLong(remote.header.source), *link = rank ? link_of(express, rank) : NULL;
    int code = link && (long long)remote.total <= express->longest_message && express_is_next(express, link, &remote.header) &&
               has_no_hints(GET(link, LINK_ledger));
    if (code) code = read_payload(express, place, &remote, arrived);
    if (code == 1 && express_is_next(express, link, &remote.header) && /* still */
        express_settle(express, link, &remote.header, 1, (long long)remote.total + express->overhead, now_ns, &news) &&
        express_settled(express, &news)) {
        arrived->source = rank;
        return 1;
    }
    express_forget(arrived);
    Py_XDECREF(rank);
    if (code >= 0) PyErr_Clear();
    return code == 1 ? 0 : code;
}

int express_prepare_remote(void)
{
    return (name_memory = PyUnicode_InternFromString("memory")) ? 0 : -1;
}
