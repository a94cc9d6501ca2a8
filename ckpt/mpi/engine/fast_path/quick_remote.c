/* Long messages that their receiver reads from the memory of their sender: the ordinary cases of `Engine.place` and `on_placed`, of
   `Engine.send_memory` and `wait_sent`, and of a blocking receive for which such a message waits; for the module `_quick`.

   Ordinary is a contiguous buffer of plain numbers, of an exporter that runs no code of the program, to or from a rank of which no failure
   is known.  All else, every error included, is left to Python, and nothing has changed then but what a look has brought. */

#include "quick.h"
#include <time.h>

enum { DIRECT_COPY_BYTES = 512 << 10, BUSY_SENDS = 32, BUSY_NS = 500000 }; /* engine.py */

static PyObject *name_raw, *name_send, *name_consumed, *name_place, *name_placed, *name_head, *name_spot, *name_total, *name_withdraw;
static PyObject *zero;

/* The memory of a buffer, from `offset` on: a new memoryview of bytes.  NULL, maybe with an exception: it has none. */
static PyObject *memory_of(PyObject *from, Py_ssize_t offset, Py_ssize_t size)
{
    PyObject *pickled = PyPickleBuffer_FromObject(from);
    PyObject *whole = pickled ? PyObject_CallMethodNoArgs(pickled, name_raw) : NULL;
    Py_XDECREF(pickled);
    if (!whole || (!offset && PyObject_Size(whole) == size)) return whole;
    PyObject *part = PySequence_GetSlice(whole, offset, offset + size);
    Py_DECREF(whole);
    return part;
}

/* ---- what comes ------------------------------------------------------------------------------------------------------------ */

/* Receive.spot: 1 and a new Spot; 0: Python has to find it. */
static int spot_of(PyObject *receive, PyObject *nbytes, PyObject **spot)
{
    Py_ssize_t size = PyLong_AsSsize_t(nbytes), offset;
    PyObject *from = size > 0 ? room_of(receive, size, &offset) : NULL;
    if (!from) {
        PyErr_Clear();
        return 0;
    }
    Py_INCREF(receive); /* making the view may start a collection, which runs anything */
    PyObject *memory = memory_of(from, offset, size);
    if (memory && PyMemoryView_Check(memory) && PyObject_Size(memory) == size && !PyMemoryView_GET_BUFFER(memory)->readonly) {
        const Filled filled[] = {{SPOT_RECEIVE, receive}, {SPOT_MEMORY, memory}};
        *spot = MADE(SPOT, filled);
    }
    Py_XDECREF(memory);
    Py_DECREF(receive);
    PyErr_Clear();
    return *spot != NULL;
}

/* The channel of an envelope: borrowed, or NULL. */
static PyObject *channel_under(PyObject *engine, PyObject *head)
{
    PyObject *matcher = known == CLASSES && IS(engine, ENGINE) ? GET(engine, ENGINE_MATCHER) : NULL;
    PyObject *table = IS(matcher, MATCHER) ? GET(matcher, MATCHER_FOUND) : NULL;
    PyObject *channel = table && PyDict_CheckExact(table) ? PyDict_GetItemWithError(table, head) : NULL;
    PyErr_Clear();
    return IS(channel, CHANNEL) && IS(GET(channel, CHANNEL_CONTEXT), CONTEXT) ? channel : NULL;
}

/* Engine.place of the engine that this function is bound to. */
static PyObject *place(PyObject *engine, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyBytes_CheckExact(args[0]) || !PyLong_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "place(head, nbytes)");
        return NULL;
    }
    PyObject *channel = channel_under(engine, args[0]), *messages = channel ? GET(channel, CHANNEL_MESSAGES) : NULL, *spot = NULL;
    if (messages && (PyObject *)Py_TYPE(messages) == quick_deque && !Py_SIZE(messages)) {
        Py_ssize_t at;
        int bad = 0;
        PyObject *receive = earliest(channel, &at, &bad);
        if (!bad && receive && spot_of(receive, args[1], &spot)) return spot;
        if (!bad && !receive && GET(engine, ENGINE_AHEAD) == channel) {
            Py_XSETREF(GET(engine, ENGINE_AHEAD), Py_NewRef(Py_None));
            const Filled filled[] = {{SPOT_RECEIVE, Py_None}, {SPOT_MEMORY, Py_None}}; /* SOON */
            return MADE(SPOT, filled);
        }
    }
    PyObject *asked[] = {engine, args[0], args[1]};
    return PyObject_VectorcallMethod(name_place, asked, 3, NULL);
}

/* Engine.pay after a message of this size: what the program has taken is reported.  0, or -1 with an exception. */
static int pay(PyObject *engine, PyObject *src, Py_ssize_t at, long long debt)
{
    PyObject *nbytes = PyLong_FromLongLong(debt % DEBT_UNIT), *messages = PyLong_FromLongLong(debt / DEBT_UNIT), *done = NULL;
    if (nbytes && messages && !PyList_SetItem(GET(engine, ENGINE_DEBTS), at, Py_NewRef(zero))) {
        PyObject *said[] = {GET(engine, ENGINE_PROGRESS), src, nbytes, messages};
        done = PyObject_VectorcallMethod(name_consumed, said, 4, NULL);
    }
    Py_XDECREF(nbytes);
    Py_XDECREF(messages);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Give a message, which is in the memory of the receive already.  1; 0: Python has to do it; -1 with an exception. */
static int give_placed(PyObject *engine, PyObject *src, PyObject *channel, PyObject *receive, long long size)
{
    PyObject *matcher = GET(engine, ENGINE_MATCHER), *debts = GET(engine, ENGINE_DEBTS);
    Py_ssize_t at, rank = PyLong_AsSsize_t(src);
    int bad = 0;
    long long posted = number(matcher, MATCHER_POSTED, &bad);
    if (bad || earliest(channel, &at, &bad) != receive || bad || size < ENVELOPE || size >= DEBT_UNIT) return 0;
    if (!debts || !PyList_CheckExact(debts) || rank < 0 || rank >= PyList_GET_SIZE(debts)) return 0;
    int overflow = 0;
    long long debt = PyLong_AsLongLongAndOverflow(PyList_GET_ITEM(debts, rank), &overflow);
    PyObject *nbytes = PyLong_FromLongLong(size - ENVELOPE), *left = PyLong_FromLongLong(posted - 1);
    int given = nbytes && left && !overflow && debt >= 0 && debt < DEBT_UNIT * 1024;
    if (given && take_off(channel, at)) given = -1;
    if (given > 0) {
        Py_SETREF(GET(matcher, MATCHER_POSTED), Py_NewRef(left));
        if (pay(engine, src, rank, debt + size + DEBT_UNIT))
            given = -1;
        else
            fill_receive(receive, channel, NULL, nbytes);
    }
    Py_XDECREF(nbytes);
    Py_XDECREF(left);
    return given;
}

/* Engine.on_placed of the engine that this function is bound to. */
static PyObject *on_placed(PyObject *engine, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyLong_CheckExact(args[0])) {
        PyErr_SetString(PyExc_TypeError, "on_placed(source, message)");
        return NULL;
    }
    PyObject *head = PyObject_GetAttr(args[1], name_head), *spot = head ? PyObject_GetAttr(args[1], name_spot) : NULL;
    PyObject *channel = spot && PyBytes_CheckExact(head) ? channel_under(engine, head) : NULL;
    PyObject *receive = channel && IS(spot, SPOT) ? GET(spot, SPOT_RECEIVE) : NULL;
    PyObject *total = spot ? PyObject_GetAttr(args[1], name_total) : NULL;
    long long size = total ? PyLong_AsLongLong(total) : -1;
    int given = PyErr_Occurred() ? -1 : 0;
    if (!given && IS(receive, RECEIVE) && GET(receive, RECEIVE_OWNER) == Py_None) {
        Py_INCREF(receive);
        Py_INCREF(channel);
        given = give_placed(engine, args[0], channel, receive, size);
        Py_DECREF(channel);
        Py_DECREF(receive);
    }
    Py_XDECREF(head);
    Py_XDECREF(spot);
    Py_XDECREF(total);
    if (given < 0) return NULL;
    if (given) Py_RETURN_NONE;
    PyErr_Clear();
    PyObject *said[] = {engine, args[0], args[1]};
    return PyObject_VectorcallMethod(name_placed, said, 3, NULL);
}

static PyObject *placing(PyObject *Py_UNUSED(self), PyObject *engine)
{
    static PyMethodDef bound[] = {
        {"place", (PyCFunction)(void (*)(void))place, METH_FASTCALL, "place(head, nbytes, /)\n\nAs Engine.place."},
        {"on_placed", (PyCFunction)(void (*)(void))on_placed, METH_FASTCALL, "on_placed(source, message, /)\n\nAs Engine.on_placed."}};
    PyObject *first = PyCFunction_New(&bound[0], engine), *second = first ? PyCFunction_New(&bound[1], engine) : NULL;
    PyObject *both = second ? PyTuple_Pack(2, first, second) : NULL;
    Py_XDECREF(first);
    Py_XDECREF(second);
    return both;
}

/* ---- sending --------------------------------------------------------------------------------------------------------------- */

/* Is a buffer of this size read from this process's memory by rank `dst`?  The rank is not busy then, or that makes no difference. */
static int is_read_by(PyObject *engine, PyObject *dst, Py_ssize_t size)
{
    PyObject *direct = GET(engine, ENGINE_DIRECT), *busy = GET(engine, ENGINE_BUSY);
    int bad = 0, reads = direct && PyAnySet_Check(direct) ? PySet_Contains(direct, dst) : 0;
    if (reads > 0 && size < DIRECT_COPY_BYTES) reads = busy && PyDict_CheckExact(busy) ? !PyDict_Contains(busy, dst) : 0;
    PyErr_Clear();
    return reads > 0 && size >= number(engine, ENGINE_JOINED, &bad) && !bad;
}

/* BufferMessages._start_send, with the lock held: the sequence number, a new reference.  NULL, maybe with an exception: nothing is sent. */
static PyObject *send_view(PyObject *comm, PyObject *route, PyObject *view)
{
    PyObject *engine = GET(comm, COMM_ENGINE), *shared = GET(comm, COMM_SHARED);
    if (!IS(shared, SHARED) || GET(shared, SHARED_REVOKED) != Py_False || !none_has_failed(engine)) return NULL;
    PyObject *sent[] = {GET(engine, ENGINE_PROGRESS), PyTuple_GET_ITEM(route, 0), PyTuple_GET_ITEM(route, 1), view};
    return PyObject_VectorcallMethod(name_send, sent, 4, NULL);
}

PyObject *send_by_reference(PyObject *comm, PyObject *route, PyObject *from, Py_ssize_t size)
{
    PyObject *engine = GET(comm, COMM_ENGINE), *dst = PyTuple_GET_ITEM(route, 0), *operation = NULL, *sequence = NULL;
    if (runs_code(from) || !is_read_by(engine, dst, size)) return NULL;
    PyObject *view = memory_of(from, 0, size);
    if (view) {
        const Filled filled[] = {{SENT_DONE, Py_False},          {SENT_CANCELLED, Py_False}, {SENT_ERROR, Py_None},
                                 {SENT_SOURCE, quick_no_source}, {SENT_TAG, quick_no_tag},   {SENT_NBYTES, zero},
                                 {SENT_ENGINE, engine},          {SENT_SHARED, GET(comm, COMM_SHARED)},
                                 {SENT_DST, dst},                {SENT_SEQUENCE, zero}};
        operation = MADE(SENT, filled);
    }
    PyErr_Clear();
    int taken = operation ? take_if_free(GET(engine, ENGINE_LOCK)) : 0;
    if (taken > 0) {
        sequence = send_view(comm, route, view);
        if (let_go(GET(engine, ENGINE_LOCK))) Py_CLEAR(sequence);
    }
    Py_XDECREF(view);
    if (sequence)
        Py_SETREF(GET(operation, SENT_SEQUENCE), sequence);
    else
        Py_CLEAR(operation);
    return operation;
}

static long long clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The rank has taken long to read a message: see Engine.busy.  Without memory nobody is told. */
static void note_busy(PyObject *engine, PyObject *dst)
{
    PyObject *busy = GET(engine, ENGINE_BUSY), *sends = PyLong_FromLong(BUSY_SENDS);
    if (!sends || !busy || !PyDict_CheckExact(busy) || PyDict_SetItem(busy, dst, sends)) PyErr_Clear();
    Py_XDECREF(sends);
}

PyObject *wait_for_reader(PyObject *operation)
{
    PyObject *engine = GET(operation, SENT_ENGINE);
    long long began_ns = clock_ns();
    int is_alone = is_acknowledged(operation, Py_EQ), done = is_alone < 0 ? -1 : is_done(engine, operation);
    if (done > 0 && is_alone && clock_ns() - began_ns > BUSY_NS) note_busy(engine, GET(operation, SENT_DST));
    PyObject *left = done < 0 ? NULL : done && GET(operation, SENT_ERROR) == Py_None ? Py_NewRef(Py_None) : Py_NewRef(operation);
    Py_DECREF(operation);
    return left;
}

/* ---- receiving ------------------------------------------------------------------------------------------------------------- */

/* Is a receive that has no request done, perhaps after a short look?  -1 with an exception: it is withdrawn, as by Engine.wait_receive. */
static int is_received(PyObject *engine, PyObject *receive)
{
    int done = is_done(engine, receive);
    if (done >= 0) return done;
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyObject *gone = PyObject_CallMethodOneArg(engine, name_withdraw, receive);
    PyErr_Restore(type, error, trace);
    Py_XDECREF(gone);
    return -1;
}

/* Tell the status, if one is wanted, of a receive that is done.  True, or NULL with an exception. */
static PyObject *completed(PyObject *receive, PyObject *status)
{
    PyObject *source = GET(receive, RECEIVE_SOURCE), *tag = GET(receive, RECEIVE_TAG), *nbytes = GET(receive, RECEIVE_NBYTES);
    return status != Py_None && tell_status(status, source, tag, nbytes) ? NULL : Py_NewRef(Py_True);
}

PyObject *receive_posted(PyObject *comm, PyObject *into, PyObject *source, PyObject *tag, PyObject *status)
{
    PyObject *receive = post_receive(comm, into, source, tag, NULL);
    if (!receive) Py_RETURN_FALSE;
    int done = is_received(GET(comm, COMM_ENGINE), receive);
    if (!done || (done > 0 && GET(receive, RECEIVE_ERROR) != Py_None)) return receive;
    PyObject *whether = done < 0 ? NULL : completed(receive, status);
    Py_DECREF(receive);
    return whether;
}

PyObject *receive_beside(PyObject *sent, PyObject *comm, PyObject *into, PyObject *source, PyObject *tag, PyObject *status)
{
    PyObject *engine = GET(comm, COMM_ENGINE), *receive = post_receive(comm, into, source, tag, NULL), *result = NULL;
    int done = receive ? is_received(engine, receive) : 0;
    if (done > 0) done = is_done(engine, sent);
    if (done > 0 && GET(receive, RECEIVE_ERROR) == Py_None && GET(sent, SENT_ERROR) == Py_None)
        result = completed(receive, status);
    else if (done >= 0)
        result = PyTuple_Pack(2, receive ? receive : Py_None, sent);
    Py_XDECREF(receive);
    Py_DECREF(sent);
    return result;
}

PyMethodDef quick_remote_functions[] = {
    {"placing", placing, METH_O, "placing(engine, /) -> tuple\n\nThe functions place and on_placed of an engine."},
    {NULL, NULL, 0, NULL},
};

int quick_prepare_remote(void)
{
    return (name_raw = PyUnicode_InternFromString("raw")) && (name_send = PyUnicode_InternFromString("send")) &&
                   (name_consumed = PyUnicode_InternFromString("consumed")) && (name_place = PyUnicode_InternFromString("place")) &&
                   (name_placed = PyUnicode_InternFromString("on_placed")) && (name_head = PyUnicode_InternFromString("head")) &&
                   (name_spot = PyUnicode_InternFromString("spot")) && (name_total = PyUnicode_InternFromString("total")) &&
                   (name_withdraw = PyUnicode_InternFromString("withdraw")) && (zero = PyLong_FromLong(0))
               ? 0
               : -1;
}
