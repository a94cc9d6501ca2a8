/* What Endpoint.send and Endpoint.transmit do with a short message on a link that has nothing else to send, Endpoint.send alone on a
   link with messages in flight, where others wait to share its frame, and Endpoint.transmit alone with those that wait, and with an
   acknowledgement that is due; on the very objects of transport/protocol.  What each sending changes is here for express_remote.c, too.

   It looks at everything first, and leaves all that is not ordinary to Python, having changed nothing: long messages, messages
   that were lost, a paused, dropped or frozen peer, little credit, an acknowledgement with hints that is due.  All that needs
   memory comes before the first number is stored, so a lack of it changes nothing either.  The Python code is the specification;
   tests/unit/transport/driver/test_express.py runs whole histories both ways and compares everything. */

#define PY_SSIZE_T_CLEAN
#include "express_numbers.h"

PyObject *express_append_to, *express_popleft;

/* ---- sending --------------------------------------------------------------------------------------------------------------- */

long long express_rto_ns(PyObject *timeout, long long srtt, long long var)
{
    long long least = NUMBER(timeout, TIMEOUT__min_ns);
    long long rto = NUMBER(timeout, TIMEOUT__initial_ns), most = NUMBER(timeout, TIMEOUT__max_ns);
    if (srtt) {
        rto = srtt + (4 * var > GRANULARITY_NS ? 4 * var : GRANULARITY_NS);
        if (rto < least) rto = least;
    }
    return rto < most ? rto : most;
}

static PyObject *batch_of(PyObject *messages, long long first, long long charge)
{
    PyTypeObject *type = express_classes[BATCH];
    PyObject *batch = type->tp_alloc(type, 0);
    if (!batch) return NULL;
    GET(batch, BATCH_messages) = Py_NewRef(messages);
    NUMBER(batch, BATCH_first) = first;
    NUMBER(batch, BATCH_end) = first + (long long)PyList_GET_SIZE(messages);
    NUMBER(batch, BATCH_charge) = charge;
    return batch;
}

int express_has_nothing_else(PyObject *link, PyObject *window, PyObject *common)
{
    return GET(link, LINK_reachable) == Py_True && GET(link, LINK_paused) == Py_False && GET(link, LINK__probe_due) == Py_False &&
           GET(window, WINDOW_clean) == Py_True && GET(window, WINDOW_current) == Py_None && empty_list(GET(window, WINDOW_queue)) &&
           empty_deque(GET(window, WINDOW_sealed)) && empty_deque(GET(window, WINDOW_resend)) &&
           GET(common, COMMON_flush_due) == Py_False && empty_list(GET(common, COMMON_dirty)) && empty_set(GET(common, COMMON_tight));
}

/* Nor is anything in flight. */
static int is_idle(PyObject *link, PyObject *window, PyObject *common)
{
    return empty_dict(GET(window, WINDOW_flight)) && express_has_nothing_else(link, window, common);
}

/* The stamp of a frame that leaves now, and what changes by it (Link._stamp and _acked).  0: it is another case. */
static int stamped(const Express *express, PyObject *link, long long stamp[3], Changes *changes)
{
    PyObject *ledger = GET(link, LINK_ledger), *common = GET(express->endpoint, ENDPOINT__common);
    long long floor = NUMBER(common, COMMON_floor), room = NUMBER(ledger, LEDGER_credit) - NUMBER(ledger, LEDGER_unconsumed);
    if (room < floor) room = floor;
    if (room < NUMBER(common, COMMON_hungry_floor)) return 0;
    stamp[0] = NUMBER(common, COMMON_epoch);
    stamp[1] = NUMBER(ledger, LEDGER_rx);
    stamp[2] = room;
    change(changes, ledger, LEDGER_offered, NUMBER(ledger, LEDGER_delivered_charge) + room);
    change(changes, link, LINK__ack_at, NEVER);
    change(changes, link, LINK__acked_charge, 0);
    change(changes, link, LINK__ack_due, 0);
    return 1;
}

int express_going(const Express *express, PyObject *link, Sending *sending, long long now_ns, Changes *changes)
{
    PyObject *window = GET(link, LINK_window), *timeout = GET(link, LINK_timeout), *unit = sending->unit;
    PyObject *common = GET(express->endpoint, ENDPOINT__common);
    long long sent = NUMBER(window, WINDOW_sent_charge) + sending->charge;
    sending->order = NUMBER(window, WINDOW_order) + 1;
    if (sent > NUMBER(window, WINDOW_edge) || NUMBER(link, LINK__ack_due) > PLAIN_ACK) return 0;
    if (!stamped(express, link, sending->stamp, changes)) return 0;
    change(changes, unit, UNIT(unit, order), sending->order);
    change(changes, unit, UNIT(unit, sends), 1);
    change(changes, unit, UNIT(unit, sent_ns), now_ns);
    change(changes, unit, UNIT(unit, state), FLIGHT);
    change(changes, window, WINDOW_order, sending->order);
    change(changes, window, WINDOW_sent_charge, sent);
    change(changes, window, WINDOW_flight_charge, NUMBER(window, WINDOW_flight_charge) + sending->flying);
    if (NUMBER(link, LINK__rto_at) == NEVER) {
        long long srtt = NUMBER(timeout, TIMEOUT_srtt_ns), var = NUMBER(timeout, TIMEOUT__var_ns);
        long long at = now_ns + express_rto_ns(timeout, srtt, var);
        if (NUMBER(timeout, TIMEOUT_backoff)) return 0;
        change(changes, link, LINK__waiting_since_ns, now_ns);
        change(changes, link, LINK__rto_at, at);
        if (at < NUMBER(common, COMMON_deadline_ns)) change(changes, common, COMMON_deadline_ns, at);
    }
    return 1;
}

int express_gone(PyObject *link, const Sending *sending)
{
    PyObject *window = GET(link, LINK_window), *number = PyLong_FromLongLong(sending->order), *done = NULL;
    if (number && !PyDict_SetItem(GET(window, WINDOW_flight), number, sending->unit)) {
        PyObject *args[] = {GET(window, WINDOW_unacked), sending->entry};
        done = PyObject_Vectorcall(express_append_to, args, 2, NULL);
        if (!done)
            PyDict_DelItem(GET(window, WINDOW_flight), number);
        else
            NUMBER(GET(link, LINK_counts), COUNTS_frames_sent)++;
    }
    Py_XDECREF(done);
    Py_XDECREF(number);
    return done != NULL;
}

/* Sends a batch of messages: the head of its frame, and all that changes then; the caller adds to the changes what it has taken the
   messages from, and stores them.  0: it cannot be, and nothing has changed.  1: `frame` has a reference. */
static int emitted(const Express *express, PyObject *link, PyObject *batch, long long now_ns, Changes *changes, Outgoing *frame)
{
    PyObject *messages = GET(batch, BATCH_messages), *ident = GET(link, LINK__ident);
    Sending sending = {batch, batch, NUMBER(batch, BATCH_charge), NUMBER(batch, BATCH_charge), 0, {0}};
    long long first = NUMBER(batch, BATCH_first);
    if (!messages || !PyList_CheckExact(messages) || !express_going(express, link, &sending, now_ns, changes) ||
        !express_fill(frame, ident, sending.stamp, first, messages) || !express_gone(link, &sending))
        return 0;
    Py_INCREF(messages);
    return 1;
}

int express_emit(const Express *express, PyObject *dst, PyObject *message, long long now_ns, Outgoing *frame)
{
    if (!PyBytes_CheckExact(message) || PyBytes_GET_SIZE(message) > express->longest) return 0;
    PyObject *link = link_of(express, dst), *common = GET(express->endpoint, ENDPOINT__common);
    if (!link || !IS(common, COMMON)) return 0;
    PyObject *window = GET(link, LINK_window), *messages = NULL, *batch = NULL;
    if (window == GET(express->endpoint, ENDPOINT__self_window) || !is_idle(link, window, common)) return 0;
    Changes changes = {0};
    long long first = NUMBER(window, WINDOW_tx), charge = (long long)PyBytes_GET_SIZE(message) + express->overhead;
    change(&changes, window, WINDOW_tx, first + 1);
    if ((messages = PyList_New(1)) != NULL) {
        PyList_SET_ITEM(messages, 0, Py_NewRef(message));
        batch = batch_of(messages, first, charge);
        Py_DECREF(messages);
    }
    int is_sent = batch && emitted(express, link, batch, now_ns, &changes, frame);
    if (is_sent) store(&changes);
    PyErr_Clear();
    Py_XDECREF(batch);
    return is_sent;
}

/* ---- what waits ------------------------------------------------------------------------------------------------------------ */

/* The closed batch that leaves next, if none of its messages was sent before: a new reference. */
static PyObject *closed_batch(PyObject *window)
{
    PyObject *sealed = GET(window, WINDOW_sealed), *batch = empty_deque(sealed) ? NULL : PySequence_GetItem(sealed, 0);
    if (IS(batch, BATCH) && !NUMBER(batch, BATCH_sends)) return batch;
    PyErr_Clear();
    Py_XDECREF(batch);
    return NULL;
}

/* What waits on this link?  Messages of which none was sent before: in the open batch alone, or the next ones are in a closed batch; or an
   acknowledgement alone, without hints.  Or something else, or nothing. */
enum waiting { OTHERWISE, OPEN, CLOSED_BATCH, ACK_ALONE };
static enum waiting what_waits(PyObject *link, PyObject *window)
{
    PyObject *queue = GET(window, WINDOW_queue);
    int is_plain = GET(link, LINK_reachable) == Py_True && GET(link, LINK_paused) == Py_False &&
                   GET(link, LINK__probe_due) == Py_False && GET(window, WINDOW_current) == Py_None &&
                   empty_deque(GET(window, WINDOW_resend)) && queue && PyList_CheckExact(queue) && GET(window, WINDOW_sealed);
    if (!is_plain) return OTHERWISE;
    if (!empty_deque(GET(window, WINDOW_sealed))) return CLOSED_BATCH;
    if (PyList_GET_SIZE(queue)) return OPEN;
    return NUMBER(link, LINK__ack_due) && has_no_hints(GET(link, LINK_ledger)) ? ACK_ALONE : OTHERWISE;
}

PyObject *express_waiting(const Express *express, long long *bytes)
{
    PyObject *common = GET(express->endpoint, ENDPOINT__common), *dirty = IS(common, COMMON) ? GET(common, COMMON_dirty) : NULL;
    if (!dirty || !PyList_CheckExact(dirty) || !PyList_GET_SIZE(dirty) || !empty_set(GET(common, COMMON_tight))) return NULL;
    PyObject *link = PyList_GET_ITEM(dirty, 0), *ident = IS(link, LINK) ? GET(link, LINK__ident) : NULL;
    if (!ident || !PyTuple_CheckExact(ident) || PyTuple_GET_SIZE(ident) != 5) return NULL;
    if (link_of(express, PyTuple_GET_ITEM(ident, 2)) != link) return NULL; /* frozen, or no peer any more */
    PyObject *window = GET(link, LINK_window), *messages = GET(window, WINDOW_queue), *batch = NULL;
    enum waiting found = what_waits(link, window);
    if (found == CLOSED_BATCH && (batch = closed_batch(window))) messages = GET(batch, BATCH_messages);
    long long charge = batch ? NUMBER(batch, BATCH_charge) : NUMBER(window, WINDOW_queued);
    if (!found || (found == CLOSED_BATCH && !batch) || !messages || !PyList_CheckExact(messages)) link = NULL;
    if (link) *bytes = HEADER + charge + 4LL * PyList_GET_SIZE(messages);
    Py_XDECREF(batch);
    return link;
}

/* What was to be sent on the first link has left: it is clean, unless more waits on it. */
static void leave_dirty(PyObject *window, PyObject *common)
{
    PyObject *dirty = GET(common, COMMON_dirty);
    if (PyList_GET_SIZE(GET(window, WINDOW_queue)) || !empty_deque(GET(window, WINDOW_sealed))) return;
    Py_XSETREF(GET(window, WINDOW_clean), Py_NewRef(Py_True));
    if (PyList_GET_SIZE(dirty) == 1) Py_XSETREF(GET(common, COMMON_flush_due), Py_NewRef(Py_False));
    PyList_SetSlice(dirty, 0, 1, NULL); /* makes it shorter: needs no memory */
}

/* The closed batch of a link. */
static int transmit_closed(const Express *express, PyObject *link, PyObject *batch, long long now_ns, Outgoing *frame)
{
    PyObject *window = GET(link, LINK_window), *done = NULL;
    Changes changes = {0};
    change(&changes, window, WINDOW_sealed_charge, NUMBER(window, WINDOW_sealed_charge) - NUMBER(batch, BATCH_charge));
    if (emitted(express, link, batch, now_ns, &changes, frame)) {
        done = PyObject_Vectorcall(express_popleft, &GET(window, WINDOW_sealed), 1, NULL); /* it is not empty, and nobody else has it */
        store(&changes);
    }
    int is_sent = done != NULL;
    Py_XDECREF(done);
    return is_sent;
}

/* The open batch of a link. */
static int transmit_open(const Express *express, PyObject *link, long long now_ns, Outgoing *frame)
{
    PyObject *window = GET(link, LINK_window), *queue = GET(window, WINDOW_queue), *fresh = PyList_New(0);
    Changes changes = {0};
    long long first = NUMBER(window, WINDOW_tx) - (long long)PyList_GET_SIZE(queue), charge = NUMBER(window, WINDOW_queued);
    PyObject *batch = fresh ? batch_of(queue, first, charge) : NULL;
    change(&changes, window, WINDOW_queued, 0);
    int is_sent = batch && emitted(express, link, batch, now_ns, &changes, frame);
    Py_XDECREF(batch);
    if (!is_sent) {
        Py_XDECREF(fresh);
        return 0;
    }
    store(&changes);
    Py_SETREF(GET(window, WINDOW_queue), fresh); /* the batch has the other one */
    return 1;
}

/* The acknowledgement of a link on which nothing else waits. */
static int transmit_ack(const Express *express, PyObject *link, Outgoing *frame)
{
    Changes changes = {0};
    long long stamp[3];
    if (!stamped(express, link, stamp, &changes) || !express_fill_ack(frame, GET(link, LINK__ident), stamp)) return 0;
    store(&changes);
    NUMBER(GET(link, LINK_counts), COUNTS_acks_sent)++;
    return 1;
}

int express_transmit(const Express *express, long long now_ns, PyObject **dst, Outgoing *frame)
{
    long long bytes;
    PyObject *link = express_waiting(express, &bytes);
    if (!link) return 0;
    PyObject *window = GET(link, LINK_window), *batch = closed_batch(window);
    int is_sent = batch                                          ? transmit_closed(express, link, batch, now_ns, frame)
                  : PyList_GET_SIZE(GET(window, WINDOW_queue)) ? transmit_open(express, link, now_ns, frame)
                                                                 : transmit_ack(express, link, frame);
    Py_XDECREF(batch);
    PyErr_Clear();
    if (!is_sent) return 0;
    *dst = Py_NewRef(PyTuple_GET_ITEM(GET(link, LINK__ident), 2));
    leave_dirty(window, GET(express->endpoint, ENDPOINT__common));
    return 1;
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
    long long queued = NUMBER(window, WINDOW_queued) + (long long)PyBytes_GET_SIZE(message) + express->overhead;
    if (queued >= express->coalesce || !queue || !PyList_CheckExact(queue)) return -1;
    int is_marked = !link || !PyList_Append(dirty, link);
    if (!is_marked || PyList_Append(queue, message)) {
        if (link && is_marked) PyList_SetSlice(dirty, PyList_GET_SIZE(dirty) - 1, PyList_GET_SIZE(dirty), NULL);
        PyErr_Clear();
        return -1;
    }
    if (link) Py_XSETREF(GET(window, WINDOW_clean), Py_NewRef(Py_False));
    NUMBER(window, WINDOW_queued) = queued;
    return NUMBER(window, WINDOW_tx)++;
}

int express_prepare_send(void)
{
    checksum_prepare();
    PyObject *collections = PyImport_ImportModule("collections"), *deque = NULL;
    if (collections && (deque = PyObject_GetAttrString(collections, "deque")) &&
        (express_append_to = PyObject_GetAttrString(deque, "append")))
        express_popleft = PyObject_GetAttrString(deque, "popleft");
    Py_XDECREF(deque);
    Py_XDECREF(collections);
    return express_popleft ? 0 : -1;
}
