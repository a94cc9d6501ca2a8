/* The fast path for small messages that carry pickled objects: the ordinary cases of `ObjectMessages.send`, `ObjectMessages.recv`
   and `Engine.on_messages`, in C.

       know(cls)                            registers the offsets of a class's slots; until all of CLASSES are registered, every
                                            function leaves its work to Python
       send(comm, obj, dest, tag)           -> None: the message is sent.  True: the same, and the caller has to look at the backlog.
                                            False: nothing is done.  bytes: the pickled object, not sent
       recv(comm, source, tag, status)      -> the object, or MISS: nothing is done
       sort_in(matcher, batch, start)       -> index of the first message of the batch that is not in its channel; the caller goes on
                                            from there in Python
       arrivals(engine)                     -> a function for Engine.on_messages
       send_buffer(comm, buf, dest, tag), recv_buffer(comm, buf, source, tag, status), sendrecv_buffer(comm, ...)
                                            the same for messages of buffers (quick_buffers.c); collectives: quick_boards.c.  Arrival, and
                                            the look for it: quick_arrivals.c, quick_posted.c
       isend_buffer(comm, buf, dest, tag)   -> a request; False or bytes as send_buffer
       irecv_buffer(comm, buf, source, tag) -> a request; False: nothing is done
       finish(requests)                     -> True: they are done, and null.  False: Python has to wait for them (quick_requests.c)
       placing(engine)                      -> functions for Engine.place and Engine.on_placed (quick_remote.c)
       dumps(obj), loads(data, start)       pickle.dumps(obj, 5) and pickle.loads; for tests

   This module has no state, except for these offsets.  It reads and writes the slots of the same Python objects that the Python code
   uses.  So images, wildcards, probes and failures need no code here, and every case that is not ordinary is left to Python.  No
   function here waits but for a short look (Engine.look), in which no image is taken: no C frame is on the stack of a call during
   which one may be.

   Thread safety comes from the interpreter's lock (GIL): `send` tests that the port's lock is free (transport/driver/lane.h) and
   appends before another thread can run, or takes that lock; in `recv` the program's thread takes from the left of a deque, while the
   helper thread only appends at the right.  A look takes the lock, if it is free.

   small_pickle.c pickles and unpickles small objects of Python's built-in types; the module pickle does all others. */

#include "fast_path/quick.h"
#include "fast_path/small_pickle.h"
#include <stdint.h>

#define DEBT_LIMIT (64 * DEBT_UNIT)
#define KIND_AT 2

LaneApi *lanes;
static PyObject *pickle_dumps, *pickle_loads, *protocol, *MISS;
PyObject *quick_deque, *quick_popleft, *quick_append;
static PyObject *name_fill;

static const char *const class_names[CLASSES] = {"CommBase", "CommShared", "Engine",      "Channel",  "Context",
                                                  "Matcher",  "FailedRanks", "Exchange", "Op",       "Receive",
                                                  "BufferSpec", "Done",     "BufferSend",   "Request",  "Spot",
                                                  "NoHandlers"};
static const struct {
    int cls;
    const char *name;
} slot_names[SLOTS] = {
    {COMM, "_routes"}, {COMM, "_channels"}, {COMM, "_engine"}, {COMM, "_shared"}, {COMM, "_context"},
    {SHARED, "closed"}, {SHARED, "broken"}, {SHARED, "exchange"}, {SHARED, "revoked"},
    {ENGINE, "codec"}, {ENGINE, "guard"}, {ENGINE, "lane"}, {ENGINE, "taken"}, {ENGINE, "choices"},
    {ENGINE, "lock"}, {ENGINE, "runnable"}, {ENGINE, "look"}, {ENGINE, "handlers"}, {ENGINE, "failed_ranks"}, {ENGINE, "matcher"},
    {ENGINE, "debts"}, {ENGINE, "ahead"}, {ENGINE, "progress"}, {ENGINE, "direct"}, {ENGINE, "busy"}, {ENGINE, "joined_bytes"},
    {CHANNEL, "messages"}, {CHANNEL, "source"}, {CHANNEL, "tag"}, {CHANNEL, "src"}, {CHANNEL, "context"},
    {CHANNEL, "posted"},
    {CONTEXT, "order"}, {CONTEXT, "wild"}, {CONTEXT, "number"},
    {MATCHER, "by_envelope"}, {MATCHER, "serial"}, {MATCHER, "posted"}, {MATCHER, "ticket"},
    {FAILED, "known"},
    {EXCHANGE, "number"}, {EXCHANGE, "board"},
    {OP, "_name"}, {OP, "_function"},
    {RECEIVE, "source"}, {RECEIVE, "tag"}, {RECEIVE, "nbytes"}, {RECEIVE, "done"}, {RECEIVE, "data"}, {RECEIVE, "want_source"},
    {RECEIVE, "want_tag"}, {RECEIVE, "ticket"}, {RECEIVE, "target"}, {RECEIVE, "owner"}, {RECEIVE, "cancelled"}, {RECEIVE, "error"},
    {RECEIVE, "context"}, {RECEIVE, "slot"}, {RECEIVE, "codec"},
    {SPEC, "obj"}, {SPEC, "offset"}, {SPEC, "nbytes"}, {SPEC, "dense"}, {SPEC, "count"}, {SPEC, "datatype"},
    {DONE, "done"}, {DONE, "cancelled"}, {DONE, "error"}, {DONE, "source"}, {DONE, "tag"}, {DONE, "nbytes"},
    {SENT, "done"}, {SENT, "error"}, {SENT, "engine"}, {SENT, "dst"}, {SENT, "sequence"}, {SENT, "shared"},
    {SENT, "cancelled"}, {SENT, "source"}, {SENT, "tag"}, {SENT, "nbytes"},
    {REQUEST, "_engine"}, {REQUEST, "_kept"}, {REQUEST, "_operation"}, {REQUEST, "_recipe"},
    {SPOT, "receive"}, {SPOT, "memory"},
};
PyTypeObject *classes[CLASSES];
Py_ssize_t offsets[SLOTS];
int known;

static PyObject *know(PyObject *Py_UNUSED(self), PyObject *cls)
{
    if (!PyType_Check(cls)) {
        PyErr_SetString(PyExc_TypeError, "know(cls)");
        return NULL;
    }
    PyObject *name = PyObject_GetAttrString(cls, "__name__");
    const char *text = name ? PyUnicode_AsUTF8(name) : NULL;
    if (!text) {
        Py_XDECREF(name);
        return NULL;
    }
    int number = 0;
    while (number < CLASSES && strcmp(text, class_names[number])) number++;
    Py_DECREF(name);
    if (number == CLASSES) {
        PyErr_Format(PyExc_ValueError, "%R is none of the classes of messages", cls);
        return NULL;
    }
    Py_ssize_t found[SLOTS];
    for (int slot = 0; slot < SLOTS; slot++)
        if (slot_names[slot].cls == number && (found[slot] = slot_of(cls, slot_names[slot].name)) < 0) return NULL;
    for (int slot = 0; slot < SLOTS; slot++)
        if (slot_names[slot].cls == number) offsets[slot] = found[slot];
    if (!classes[number]) known++;
    Py_XSETREF(classes[number], (PyTypeObject *)Py_NewRef(cls));
    Py_RETURN_NONE;
}

/* ---- pickles -------------------------------------------------------------------------------------------------------------- */

static PyObject *dumps_by_pickle(PyObject *object)
{
    PyObject *args[] = {object, protocol};
    return PyObject_Vectorcall(pickle_dumps, args, 2, NULL);
}

static PyObject *dumps(PyObject *Py_UNUSED(self), PyObject *object)
{
    unsigned char small[PICKLE_MOST], *start;
    size_t size = small_pickle(object, small, &start);
    return size ? PyBytes_FromStringAndSize((char *)start, (Py_ssize_t)size) : dumps_by_pickle(object);
}

/* The object of a message.  The bytes before `start` (the envelope) are pickle opcodes without effect. */
static PyObject *load(PyObject *data, Py_ssize_t start)
{
    PyObject *object =
        small_unpickle((unsigned char *)PyBytes_AS_STRING(data) + start, PyBytes_GET_SIZE(data) - start);
    return object ? object : PyObject_CallOneArg(pickle_loads, data);
}

static PyObject *loads(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *data;
    Py_ssize_t start = 0;
    if (!PyArg_ParseTuple(args, "S|n", &data, &start)) return NULL;
    if (start < 0 || start > PyBytes_GET_SIZE(data)) {
        PyErr_SetString(PyExc_ValueError, "start");
        return NULL;
    }
    return load(data, start);
}

/* ---- sending -------------------------------------------------------------------------------------------------------------- */

/* The value of a dict under the key (first, second), borrowed.  NULL without an exception: there is none, or one of the two is not
   exactly an int. */
static PyObject *found_under(PyObject *table, PyObject *first, PyObject *second)
{
    static PyObject *key; /* of ints, kept for the next search: no code of the program runs meanwhile */
    if (!table || !PyDict_CheckExact(table) || !PyLong_CheckExact(first) || !PyLong_CheckExact(second)) return NULL;
    if (!key && !(key = PyTuple_Pack(2, first, second))) {
        PyErr_Clear();
        return NULL;
    }
    PyObject *former[] = {PyTuple_GET_ITEM(key, 0), PyTuple_GET_ITEM(key, 1)};
    PyTuple_SET_ITEM(key, 0, Py_NewRef(first));
    PyTuple_SET_ITEM(key, 1, Py_NewRef(second));
    Py_DECREF(former[0]);
    Py_DECREF(former[1]);
    PyObject *found = PyDict_GetItemWithError(table, key);
    if (!found && PyErr_Occurred()) PyErr_Clear();
    return found;
}

PyObject *route_of(PyObject *comm, PyObject *dest, PyObject *tag, PyObject **lane)
{
    if (known != CLASSES || !PyObject_TypeCheck(comm, classes[COMM])) return NULL;
    PyObject *engine = GET(comm, COMM_ENGINE);
    if (!IS(engine, ENGINE) || GET(engine, ENGINE_GUARD) != Py_None) return NULL;
    *lane = GET(engine, ENGINE_LANE);
    if (!*lane || !Py_IS_TYPE(*lane, lanes->type)) return NULL;
    PyObject *route = found_under(GET(comm, COMM_ROUTES), dest, tag);
    if (!route || !PyTuple_CheckExact(route) || PyTuple_GET_SIZE(route) != 2) return NULL;
    return PyBytes_CheckExact(PyTuple_GET_ITEM(route, 1)) ? route : NULL;
}

PyObject *send_now(PyObject *lane, PyObject *dst, PyObject *message)
{
    int sent = lanes->send(lane, dst, message);
    return sent < 0 ? NULL : Py_NewRef(sent ? Py_True : Py_None);
}

static PyObject *send(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    if (count != 4) Py_RETURN_FALSE;
    PyObject *object = args[1], *lane = NULL, *route = route_of(args[0], args[2], args[3], &lane);
    if (!route || GET(GET(args[0], COMM_ENGINE), ENGINE_CODEC) != Py_None) Py_RETURN_FALSE;

    unsigned char small[PICKLE_MOST], *start;
    PyObject *data = NULL, *message = NULL, *window;
    Py_ssize_t size = (Py_ssize_t)small_pickle(object, small, &start);
    Py_INCREF(route); /* pickling may run code of the program, which may send messages and free the communicator */
    Py_INCREF(lane);
    if (!size) {
        data = dumps_by_pickle(object);
        if (!data || !PyBytes_CheckExact(data)) goto done;
        start = (unsigned char *)PyBytes_AS_STRING(data);
        size = PyBytes_GET_SIZE(data);
        if (size >= REFERENCE_BYTES) goto done;
    }
    PyObject *head = PyTuple_GET_ITEM(route, 1);
    Py_ssize_t head_size = PyBytes_GET_SIZE(head);
    message = PyBytes_FromStringAndSize(NULL, head_size + size);
    if (!message) {
        Py_CLEAR(data);
        goto done;
    }
    memcpy(PyBytes_AS_STRING(message), PyBytes_AS_STRING(head), (size_t)head_size);
    memcpy(PyBytes_AS_STRING(message) + head_size, start, (size_t)size);
    window = lanes->open(lane, PyTuple_GET_ITEM(route, 0), head_size + size);
    if (window) {
        Py_XSETREF(data, lanes->append(lane, window, message) ? NULL : Py_NewRef(Py_None));
    } else {
        PyObject *sent = send_now(lane, PyTuple_GET_ITEM(route, 0), message);
        if (sent || PyErr_Occurred())
            Py_XSETREF(data, sent);
        else if (!data)
            data = PyBytes_FromStringAndSize((char *)start, size);
    }
done:
    Py_XDECREF(message);
    Py_DECREF(route);
    Py_DECREF(lane);
    return data;
}

/* ---- receiving ------------------------------------------------------------------------------------------------------------ */

static PyObject *missed(void) { return Py_NewRef(MISS); }

PyObject *channel_for(PyObject *comm, PyObject *source, PyObject *tag)
{
    if (known != CLASSES || !PyObject_TypeCheck(comm, classes[COMM])) return NULL;
    PyObject *engine = GET(comm, COMM_ENGINE), *shared = GET(comm, COMM_SHARED);
    if (!IS(engine, ENGINE) || !IS(shared, SHARED) || GET(engine, ENGINE_GUARD) != Py_None) return NULL;
    PyObject *channel = found_under(GET(comm, COMM_CHANNELS), source, tag);
    return IS(channel, CHANNEL) && GET(shared, SHARED_CLOSED) == Py_False ? channel : NULL;
}

PyObject *oldest(PyObject *channel)
{
    PyObject *messages = GET(channel, CHANNEL_MESSAGES);
    if (!messages || (PyObject *)Py_TYPE(messages) != quick_deque || !Py_SIZE(messages)) return NULL;
    PyObject *entry = PySequence_GetItem(messages, 0);
    PyObject *data = NULL;
    if (entry && PyTuple_CheckExact(entry) && PyTuple_GET_SIZE(entry) == 2) data = PyTuple_GET_ITEM(entry, 1);
    if (data && PyBytes_CheckExact(data) && PyBytes_GET_SIZE(data) > ENVELOPE && PyBytes_GET_SIZE(data) < REFERENCE_BYTES &&
        !PyBytes_AS_STRING(data)[KIND_AT])
        Py_INCREF(data);
    else
        data = NULL;
    if (!entry) PyErr_Clear();
    Py_XDECREF(entry);
    return data;
}

int account(PyObject *counts, PyObject *src, Py_ssize_t size)
{
    if (!counts || !PyList_CheckExact(counts) || !src || !PyLong_CheckExact(src)) return 1;
    Py_ssize_t at = PyLong_AsSsize_t(src);
    if (at < 0 || at >= PyList_GET_SIZE(counts)) {
        PyErr_Clear();
        return 1;
    }
    PyObject *former = PyList_GET_ITEM(counts, at);
    int overflow;
    long long debt = PyLong_CheckExact(former) ? PyLong_AsLongLongAndOverflow(former, &overflow) : -1;
    if (debt < 0 || debt + size + DEBT_UNIT > DEBT_LIMIT) return 1;
    PyObject *now = PyLong_FromLongLong(debt + size + DEBT_UNIT);
    if (!now) {
        PyErr_Clear();
        return 1;
    }
    PyList_SET_ITEM(counts, at, now);
    Py_DECREF(former);
    return 0;
}

int take_oldest(PyObject *comm, PyObject *channel, PyObject *data)
{
    if (account(GET(GET(comm, COMM_ENGINE), ENGINE_TAKEN), GET(channel, CHANNEL_SRC), PyBytes_GET_SIZE(data))) return 1;
    PyObject *messages = GET(channel, CHANNEL_MESSAGES);
    PyObject *entry = PyObject_Vectorcall(quick_popleft, &messages, 1, NULL);
    Py_XDECREF(entry);
    return entry ? 0 : -1;
}

int tell_status(PyObject *status, PyObject *source, PyObject *tag, PyObject *nbytes)
{
    PyObject *args[] = {status, source, tag, nbytes}, *done = PyObject_VectorcallMethod(name_fill, args, 4, NULL);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

int fill_status(PyObject *status, PyObject *channel, Py_ssize_t size)
{
    PyObject *nbytes = PyLong_FromSsize_t(size - ENVELOPE);
    int failed = nbytes ? tell_status(status, GET(channel, CHANNEL_SOURCE), GET(channel, CHANNEL_TAG), nbytes) : -1;
    Py_XDECREF(nbytes);
    return failed;
}

static PyObject *recv(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    PyObject *channel = count == 4 ? channel_for(args[0], args[1], args[2]) : NULL;
    if (!channel || GET(GET(args[0], COMM_ENGINE), ENGINE_CODEC) != Py_None) return missed();
    PyObject *data = awaited(args[0], args[1], args[2], NULL, &channel), *object = NULL;
    if (!data) return PyErr_Occurred() ? NULL : missed();
    /* the channel is kept: unpickling may run code of the program, which may free it */
    int left = take_oldest(args[0], channel, data);
    if (!left && (args[3] == Py_None || !fill_status(args[3], channel, PyBytes_GET_SIZE(data)))) object = load(data, ENVELOPE);
    Py_DECREF(channel);
    Py_DECREF(data);
    return left > 0 ? missed() : object;
}

/* ---- the module ----------------------------------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"know", know, METH_O, "know(cls, /)\n\n"
     "Register the offsets of the slots of a class.  ValueError: it is none of the classes of messages."},
    {"send", (PyCFunction)(void (*)(void))send, METH_FASTCALL,
     "send(comm, obj, dest, tag, /)\n\n"
     "None: obj is sent.  True: it is, and the caller has to look at the backlog.  False: nothing has happened.  bytes: the pickled "
     "object, which the caller has to send."},
    {"recv", (PyCFunction)(void (*)(void))recv, METH_FASTCALL,
     "recv(comm, source, tag, status, /)\n\n"
     "The received object, or MISS: nothing has happened.  Raises what unpickling raises."},
    {"send_buffer", (PyCFunction)(void (*)(void))send_buffer, METH_FASTCALL,
     "send_buffer(comm, buf, dest, tag, /)\n\n"
     "None: the buffer is sent.  True: it is, and the caller has to look at the backlog.  False: nothing has happened.  bytes: the "
     "whole message, which the caller has to send.  An operation: the caller has to wait for it."},
    {"recv_buffer", (PyCFunction)(void (*)(void))recv_buffer, METH_FASTCALL,
     "recv_buffer(comm, buf, source, tag, status, /)\n\n"
     "True: a message was received into the buffer.  False: nothing has happened.  An operation: the caller has to wait for it."},
    {"sendrecv_buffer", (PyCFunction)(void (*)(void))sendrecv_buffer, METH_FASTCALL,
     "sendrecv_buffer(comm, sendbuf, dest, sendtag, recvbuf, source, recvtag, status, /)\n\n"
     "True: a buffer was sent and a message was received.  None: the former only, and the caller has to receive.  A receive: the same, "
     "and the caller has to wait for it.  A receive, or None, and a send: the caller has to wait for both.  False: nothing has happened."},
    {"isend_buffer", (PyCFunction)(void (*)(void))isend_buffer, METH_FASTCALL,
     "isend_buffer(comm, buf, dest, tag, /)\n\n"
     "The request of a buffer that is sent.  False: nothing has happened.  bytes: the whole message, which the caller has to send."},
    {"irecv_buffer", (PyCFunction)(void (*)(void))irecv_buffer, METH_FASTCALL,
     "irecv_buffer(comm, buf, source, tag, /)\n\nThe request of a receive that is posted.  False: nothing has happened."},
    {"finish", finish, METH_O,
     "finish(requests, /) -> bool\n\n"
     "Whether all are done, and complete now: they are null.  False: the caller has to wait for them, and to complete them."},
    {"dumps", dumps, METH_O, "dumps(obj, /) -> bytes\n\nAs pickle.dumps(obj, 5)."},
    {"loads", loads, METH_VARARGS, "loads(data, start=0, /)\n\n"
     "As pickle.loads(data); the pickle's first `start` bytes have no effect, and are skipped.  ValueError: start is "
     "not in data."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.mpi.engine._quick",
    .m_doc = "The ordinary object message.",
    .m_size = -1,
    .m_methods = functions,
};

static PyObject *attribute_of(const char *from, const char *name)
{
    PyObject *imported = PyImport_ImportModule(from);
    PyObject *found = imported ? PyObject_GetAttrString(imported, name) : NULL;
    Py_XDECREF(imported);
    return found;
}

PyMODINIT_FUNC PyInit__quick(void)
{
    PyObject *capsule = attribute_of("ckpt.transport.driver._lane", "api");
    lanes = capsule ? PyCapsule_GetPointer(capsule, LANE_API) : NULL; /* valid for ever: the module _lane is never unloaded */
    Py_XDECREF(capsule);
    if (!lanes || quick_prepare_boards()) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (!made) return NULL;
    if (!(pickle_dumps = attribute_of("pickle", "dumps")) || !(pickle_loads = attribute_of("pickle", "loads")) ||
        !(protocol = PyLong_FromLong(5)) || !(quick_deque = attribute_of("collections", "deque")) ||
        !(quick_popleft = PyObject_GetAttrString(quick_deque, "popleft")) ||
        !(quick_append = PyObject_GetAttrString(quick_deque, "append")) ||
        !(name_fill = PyUnicode_InternFromString("_fill")) || quick_prepare_arrivals() || quick_prepare_posted() ||
        quick_prepare_requests() || quick_prepare_remote() || !(MISS = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type)) ||
        PyModule_AddObjectRef(made, "MISS", MISS) || PyModule_AddFunctions(made, quick_board_functions) ||
        PyModule_AddFunctions(made, quick_arrival_functions) || PyModule_AddFunctions(made, quick_remote_functions)) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
