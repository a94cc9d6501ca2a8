/* What Endpoint.send and Endpoint.transmit do with a short message on a link that has nothing else to send, Endpoint.send alone on a
   link with messages in flight, where others wait to share its frame, and Endpoint.transmit alone with those that wait; on the very
   objects of transport/protocol.

   It looks at everything first, and leaves all that is not ordinary to Python, having changed nothing: long messages, messages
   that were lost, a paused, dropped or frozen peer, little credit, an acknowledgement with hints that is due.  All new
   numbers are made before the first is stored, so a lack of memory changes nothing either.  The Python code is the specification;
   tests/unit/transport/driver/test_express.py runs whole histories both ways and compares everything. */

#define PY_SSIZE_T_CLEAN
#include "express_numbers.h"

static PyObject *name_append, *frames_sent, *encode_messages;

static void put_number(unsigned char **at, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++) *(*at)++ = (unsigned char)(number >> 8 * i);
}

/* ---- sending --------------------------------------------------------------------------------------------------------------- */

long long express_rto_ns(Reading *state, PyObject *timeout, long long srtt, long long var)
{
    Reading reading = {0};
    long long least = NUMBER(timeout, TIMEOUT__min_ns);
    long long rto = NUMBER(timeout, TIMEOUT__initial_ns), most = NUMBER(timeout, TIMEOUT__max_ns);
    state->bad |= reading.bad || srtt < 0 || srtt > NEVER / 2 || var < 0 || var > NEVER / 8;
    if (srtt) {
        rto = srtt + (4 * var > GRANULARITY_NS ? 4 * var : GRANULARITY_NS);
        if (rto < least) rto = least;
    }
    return rto < most ? rto : most;
}

static PyObject *frame_of(PyObject *ident, const long long stamp[3], long long sequence, PyObject *messages)
{
    Reading reading = {0};
    if (!ident || !PyTuple_CheckExact(ident) || PyTuple_GET_SIZE(ident) != 5) return NULL;
    if (PyList_GET_SIZE(messages) != 1)
        return PyObject_CallFunction(encode_messages, "O(LLL)LO", ident, stamp[0], stamp[1], stamp[2], sequence, messages);
    PyObject *message = PyList_GET_ITEM(messages, 0);
    if (!PyBytes_CheckExact(message)) return NULL;
    Py_ssize_t size = PyBytes_GET_SIZE(message);
    /* the job's number may need all 64 bits */
    unsigned long long job = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(ident, 0));
    if (PyErr_Occurred()) return NULL;
    long long parts[5];
    for (int i = 1; i < 5; i++) parts[i] = value(&reading, PyTuple_GET_ITEM(ident, i));
    if (reading.bad) return NULL;
    PyObject *frame = PyBytes_FromStringAndSize(NULL, HEADER + size);
    if (!frame) return NULL;
    unsigned char *begin = (unsigned char *)PyBytes_AS_STRING(frame), *at = begin + 4;
    put_number(&at, MAGIC, 2);
    put_number(&at, MESSAGES, 1);
    put_number(&at, 0, 1);
    put_number(&at, job, 8);
    for (int i = 1; i < 5; i++) put_number(&at, (uint64_t)parts[i], 4);
    for (int i = 0; i < 3; i++) put_number(&at, (uint64_t)stamp[i], 8);
    put_number(&at, (uint64_t)sequence, 8);
    put_number(&at, 1, 4);
    put_number(&at, (uint64_t)size, 4);
    memcpy(at, PyBytes_AS_STRING(message), (size_t)size);
    uint32_t sum = checksum(0, begin + 4, (size_t)(HEADER + size - 4));
    put_number(&begin, sum, 4);
    return frame;
}

static PyObject *batch_of(PyObject *messages, long long first, long long charge, long long order, long long now_ns)
{
    PyTypeObject *type = express_classes[BATCH];
    PyObject *batch = type->tp_alloc(type, 0);
    if (!batch) return NULL;
    GET(batch, BATCH_messages) = Py_NewRef(messages);
    Changes changes = {0};
    change(&changes, batch, BATCH_first, first);
    change(&changes, batch, BATCH_end, first + (long long)PyList_GET_SIZE(messages));
    change(&changes, batch, BATCH_charge, charge);
    change(&changes, batch, BATCH_order, order);
    change(&changes, batch, BATCH_sends, 1);
    change(&changes, batch, BATCH_sent_ns, now_ns);
    change(&changes, batch, BATCH_state, FLIGHT);
    if (changes.failed) {
        undo(&changes);
        Py_DECREF(batch);
        return NULL;
    }
    store(&changes);
    return batch;
}

/* Nothing but the new message waits on this link, and nothing on any other. */
static int is_idle(PyObject *link, PyObject *window, PyObject *common)
{
    return GET(link, LINK_reachable) == Py_True && GET(link, LINK_paused) == Py_False && GET(link, LINK__probe_due) == Py_False &&
           GET(window, WINDOW_clean) == Py_True && GET(window, WINDOW_current) == Py_None && empty_list(GET(window, WINDOW_queue)) &&
           empty_deque(GET(window, WINDOW_sealed)) && empty_deque(GET(window, WINDOW_resend)) &&
           empty_dict(GET(window, WINDOW_flight)) && GET(common, COMMON_flush_due) == Py_False &&
           empty_list(GET(common, COMMON_dirty)) && empty_set(GET(common, COMMON_tight));
}

/* The frame with these messages, from the sequence number `first` on, and all that changes when it is sent; the caller adds to the
   changes what it has taken the messages from, and stores them. */
static PyObject *emitted(const Express *express, PyObject *link, PyObject *messages, long long first, long long charge,
                         long long now_ns, Changes *changes)
{
    PyObject *window = GET(link, LINK_window), *ledger = GET(link, LINK_ledger), *timeout = GET(link, LINK_timeout);
    PyObject *common = GET(express->endpoint, ENDPOINT__common);
    Reading reading = {0};
    long long order = NUMBER(window, WINDOW_order) + 1;
    long long sent = NUMBER(window, WINDOW_sent_charge) + charge, ack_due = NUMBER(link, LINK__ack_due);
    long long floor = NUMBER(common, COMMON_floor), room = NUMBER(ledger, LEDGER_credit) - NUMBER(ledger, LEDGER_unconsumed);
    if (room < floor) room = floor;
    if (room < NUMBER(common, COMMON_hungry_floor) || sent > NUMBER(window, WINDOW_edge) || ack_due > PLAIN_ACK) return NULL;
    const long long stamp[3] = {NUMBER(common, COMMON_epoch), NUMBER(ledger, LEDGER_rx), room};
    change(changes, window, WINDOW_order, order);
    change(changes, window, WINDOW_sent_charge, sent);
    change(changes, window, WINDOW_flight_charge, NUMBER(window, WINDOW_flight_charge) + charge);
    change(changes, ledger, LEDGER_offered, NUMBER(ledger, LEDGER_delivered_charge) + room);
    change(changes, link, LINK__ack_at, NEVER);
    change(changes, link, LINK__acked_charge, 0);
    change(changes, link, LINK__ack_due, 0);
    if (NUMBER(link, LINK__rto_at) == NEVER) {
        long long srtt = NUMBER(timeout, TIMEOUT_srtt_ns), var = NUMBER(timeout, TIMEOUT__var_ns);
        long long at = now_ns + express_rto_ns(&reading, timeout, srtt, var);
        reading.bad |= NUMBER(timeout, TIMEOUT_backoff) != 0;
        change(changes, link, LINK__waiting_since_ns, now_ns);
        change(changes, link, LINK__rto_at, at);
        if (at < NUMBER(common, COMMON_deadline_ns)) change(changes, common, COMMON_deadline_ns, at);
    }
    PyObject *frame = NULL, *batch = NULL, *number = NULL, *count = NULL, *done = NULL;
    if (!reading.bad && !changes->failed && (frame = frame_of(GET(link, LINK__ident), stamp, first, messages)) &&
        (batch = batch_of(messages, first, charge, order, now_ns)) && (number = PyLong_FromLongLong(order)) &&
        (count = counted(GET(link, LINK_counts), frames_sent)) && !PyDict_SetItem(GET(window, WINDOW_flight), number, batch)) {
        done = PyObject_CallMethodOneArg(GET(window, WINDOW_unacked), name_append, batch);
        if (!done)
            PyDict_DelItem(GET(window, WINDOW_flight), number);
        else
            PyDict_SetItem(GET(link, LINK_counts), frames_sent, count); /* replaces a value: needs no memory */
    }
    if (!done) Py_CLEAR(frame);
    Py_XDECREF(done);
    Py_XDECREF(batch);
    Py_XDECREF(number);
    Py_XDECREF(count);
    return frame;
}

PyObject *express_emit(const Express *express, PyObject *dst, PyObject *message, long long now_ns)
{
    if (!PyBytes_CheckExact(message) || PyBytes_GET_SIZE(message) > express->longest) return NULL;
    if (PyBytes_GET_SIZE(message) + express->overhead >= express->coalesce) return NULL;
    PyObject *link = link_of(express, dst), *common = GET(express->endpoint, ENDPOINT__common);
    if (!link || !IS(common, COMMON)) return NULL;
    PyObject *window = GET(link, LINK_window);
    if (window == GET(express->endpoint, ENDPOINT__self_window) || !is_idle(link, window, common)) return NULL;
    PyObject *messages = PyList_New(1);
    if (!messages) return NULL;
    PyList_SET_ITEM(messages, 0, Py_NewRef(message));
    Changes changes = {0};
    Reading reading = {0};
    long long first = NUMBER(window, WINDOW_tx), charge = (long long)PyBytes_GET_SIZE(message) + express->overhead;
    change(&changes, window, WINDOW_tx, first + 1);
    PyObject *frame = reading.bad ? NULL : emitted(express, link, messages, first, charge, now_ns, &changes);
    Py_DECREF(messages);
    if (frame)
        store(&changes);
    else
        undo(&changes);
    return frame;
}

/* Do nothing but short messages, of which none was sent before, wait on this link? */
static int has_short_messages(PyObject *link, PyObject *window)
{
    PyObject *queue = GET(window, WINDOW_queue);
    return GET(link, LINK_reachable) == Py_True && GET(link, LINK_paused) == Py_False && GET(link, LINK__probe_due) == Py_False &&
           GET(window, WINDOW_current) == Py_None && empty_deque(GET(window, WINDOW_sealed)) &&
           empty_deque(GET(window, WINDOW_resend)) && queue && PyList_CheckExact(queue) && PyList_GET_SIZE(queue);
}

PyObject *express_waiting(const Express *express, long long *bytes)
{
    PyObject *common = GET(express->endpoint, ENDPOINT__common), *dirty = IS(common, COMMON) ? GET(common, COMMON_dirty) : NULL;
    if (!dirty || !PyList_CheckExact(dirty) || !PyList_GET_SIZE(dirty) || !empty_set(GET(common, COMMON_tight))) return NULL;
    PyObject *link = PyList_GET_ITEM(dirty, 0), *ident = IS(link, LINK) ? GET(link, LINK__ident) : NULL;
    if (!ident || !PyTuple_CheckExact(ident) || PyTuple_GET_SIZE(ident) != 5) return NULL;
    if (link_of(express, PyTuple_GET_ITEM(ident, 2)) != link) return NULL; /* frozen, or no peer any more */
    PyObject *window = GET(link, LINK_window);
    Reading reading = {0};
    long long queued = NUMBER(window, WINDOW_queued);
    if (reading.bad || queued > express->longest || !has_short_messages(link, window)) return NULL;
    *bytes = HEADER + queued + 4LL * PyList_GET_SIZE(GET(window, WINDOW_queue));
    return link;
}

PyObject *express_transmit(const Express *express, long long now_ns, PyObject **dst)
{
    long long bytes;
    PyObject *link = express_waiting(express, &bytes), *fresh = link ? PyList_New(0) : NULL;
    if (!fresh) return NULL;
    PyObject *window = GET(link, LINK_window), *common = GET(express->endpoint, ENDPOINT__common);
    PyObject *queue = GET(window, WINDOW_queue), *dirty = GET(common, COMMON_dirty);
    Changes changes = {0};
    Reading reading = {0};
    long long first = NUMBER(window, WINDOW_tx) - (long long)PyList_GET_SIZE(queue), charge = NUMBER(window, WINDOW_queued);
    change(&changes, window, WINDOW_queued, 0);
    PyObject *frame = reading.bad ? NULL : emitted(express, link, queue, first, charge, now_ns, &changes);
    if (!frame) {
        PyErr_Clear();
        undo(&changes);
        Py_DECREF(fresh);
        return NULL;
    }
    store(&changes);
    *dst = Py_NewRef(PyTuple_GET_ITEM(GET(link, LINK__ident), 2));
    Py_SETREF(GET(window, WINDOW_queue), fresh); /* the batch has the other one */
    Py_XSETREF(GET(window, WINDOW_clean), Py_NewRef(Py_True));
    if (PyList_GET_SIZE(dirty) == 1) Py_XSETREF(GET(common, COMMON_flush_due), Py_NewRef(Py_False));
    PyList_SetSlice(dirty, 0, 1, NULL); /* makes it shorter: needs no memory */
    return frame;
}

/* The link with messages in flight on which a message may wait, though none does: borrowed. */
static PyObject *busy_link(const Express *express, PyObject *dst, PyObject *window)
{
    PyObject *link = link_of(express, dst), *common = GET(express->endpoint, ENDPOINT__common), *flight = GET(window, WINDOW_flight);
    int is_busy = link && IS(common, COMMON) && GET(link, LINK_window) == window && flight && PyDict_CheckExact(flight) &&
                  PyDict_GET_SIZE(flight) && GET(common, COMMON_flush_due) == Py_False && GET(common, COMMON_dirty) &&
                  PyList_CheckExact(GET(common, COMMON_dirty));
    return is_busy ? link : NULL;
}

long long express_append(const Express *express, PyObject *dst, PyObject *message)
{
    if (!PyBytes_CheckExact(message) || PyBytes_GET_SIZE(message) > express->longest) return -1;
    PyObject *windows = GET(express->endpoint, ENDPOINT__windows), *window = NULL, *link = NULL;
    if (windows && PyDict_CheckExact(windows) && !(window = PyDict_GetItemWithError(windows, dst))) PyErr_Clear();
    if (!IS(window, WINDOW)) return -1;
    if (GET(window, WINDOW_clean) != Py_False && !(link = busy_link(express, dst, window))) return -1;
    PyObject *queue = GET(window, WINDOW_queue), *dirty = link ? GET(GET(express->endpoint, ENDPOINT__common), COMMON_dirty) : NULL;
    Reading reading = {0};
    long long tx = NUMBER(window, WINDOW_tx);
    long long queued = NUMBER(window, WINDOW_queued) + (long long)PyBytes_GET_SIZE(message) + express->overhead;
    if (reading.bad || queued >= express->coalesce || !queue || !PyList_CheckExact(queue)) return -1;
    Changes changes = {0};
    change(&changes, window, WINDOW_tx, tx + 1);
    change(&changes, window, WINDOW_queued, queued);
    if (changes.failed || (link && PyList_Append(dirty, link))) {
        undo(&changes);
        return -1;
    }
    if (PyList_Append(queue, message)) {
        if (link) PyList_SetSlice(dirty, PyList_GET_SIZE(dirty) - 1, PyList_GET_SIZE(dirty), NULL);
        undo(&changes);
        return -1;
    }
    if (link) Py_XSETREF(GET(window, WINDOW_clean), Py_NewRef(Py_False));
    store(&changes);
    return tx;
}

int express_prepare_send(void)
{
    checksum_prepare();
    PyObject *module = PyImport_ImportModule("ckpt.transport.protocol.frames");
    encode_messages = module ? PyObject_GetAttrString(module, "encode_messages") : NULL;
    Py_XDECREF(module);
    return encode_messages && (name_append = PyUnicode_InternFromString("append")) &&
                   (frames_sent = PyUnicode_InternFromString("frames_sent"))
               ? 0
               : -1;
}
