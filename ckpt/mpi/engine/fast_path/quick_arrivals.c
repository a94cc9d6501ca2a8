/* Arrival: messages are put into their channels, and a receive looks for the next one for a short time; for the module `_quick`. */

#include "quick.h"

static PyObject *name_posted, *name_messages;

/* ---- a short look ---------------------------------------------------------------------------------------------------------- */

int none_has_failed(PyObject *engine)
{
    PyObject *failed = GET(engine, ENGINE_FAILED), *ranks = IS(failed, FAILED) ? GET(failed, FAILED_KNOWN) : NULL;
    return ranks && PyAnySet_Check(ranks) && !PySet_GET_SIZE(ranks);
}

/* Is waiting all that is left to do?  `engine` is one, and its lock is held. */
static int only_waits(PyObject *engine)
{
    PyObject *runnable = GET(engine, ENGINE_RUNNABLE), *handlers = GET(engine, ENGINE_HANDLERS);
    if (!none_has_failed(engine)) return 0;
    if (!runnable || !PyList_CheckExact(runnable) || PyList_GET_SIZE(runnable) || !handlers) return 0;
    if (IS(handlers, NO_HANDLERS)) return 1; /* nothing is posted */
    PyObject *posted = PyObject_GetAttr(handlers, name_posted);
    int some = posted ? PyObject_IsTrue(posted) : -1;
    Py_XDECREF(posted);
    if (some < 0) PyErr_Clear();
    return !some;
}

static int look_on(PyObject *engine, int (*waits)(PyObject *with), PyObject *with)
{
    while (waits(with) && GET(engine, ENGINE_GUARD) == Py_None && only_waits(engine)) {
        PyObject *look = Py_NewRef(GET(engine, ENGINE_LOOK)), *found = PyObject_CallNoArgs(look);
        int has_come = found ? PyObject_IsTrue(found) : -1;
        Py_DECREF(look);
        Py_XDECREF(found);
        if (has_come <= 0) return has_come;
    }
    return 0;
}

int look_while(PyObject *engine, int (*waits)(PyObject *with), PyObject *with)
{
    PyObject *lock = GET(engine, ENGINE_LOCK);
    if (GET(engine, ENGINE_LOOK) == Py_None || !lock) return 0;
    int taken = take_if_free(lock);
    if (taken <= 0) return taken; /* not free: somebody else makes progress, and Python waits for the lock */
    Py_INCREF(lock);
    int failed = look_on(engine, waits, with);
    if (let_go(lock)) failed = -1;
    Py_DECREF(lock);
    return failed;
}

static int has_none(PyObject *channel) { return !Py_SIZE(GET(channel, CHANNEL_MESSAGES)); }

/* A short look for a message of a channel, which has none.  0, or -1 with an exception. */
static int look_for(PyObject *engine, PyObject *channel, int *long_waits)
{
    PyObject *messages = GET(channel, CHANNEL_MESSAGES);
    if (!messages || (PyObject *)Py_TYPE(messages) != quick_deque) return 0;
    if (long_waits) Py_XSETREF(GET(engine, ENGINE_AHEAD), Py_NewRef(channel));
    int failed = look_while(engine, has_none, channel);
    if (long_waits) *long_waits = GET(engine, ENGINE_AHEAD) != channel; /* Engine.place has been asked for it */
    if (long_waits) Py_XSETREF(GET(engine, ENGINE_AHEAD), Py_NewRef(Py_None));
    return failed;
}

PyObject *awaited(PyObject *comm, PyObject *source, PyObject *tag, int *long_waits, PyObject **channel)
{
    PyObject *found = channel_for(comm, source, tag), *data = found ? oldest(found) : NULL;
    PyObject *messages = found ? GET(found, CHANNEL_MESSAGES) : NULL;
    if (!found || (!data && (!messages || Py_SIZE(messages)))) return NULL;
    Py_INCREF(found);
    if (!data) {
        PyObject *engine = Py_NewRef(GET(comm, COMM_ENGINE));
        /* what comes may end the communicator, too */
        if (!look_for(engine, found, long_waits) && channel_for(comm, source, tag) == found) data = oldest(found);
        Py_DECREF(engine);
    }
    if (data)
        *channel = found;
    else
        Py_DECREF(found);
    return data;
}

/* ---- what comes ------------------------------------------------------------------------------------------------------------ */
/* Append (serial, data) to the channel's messages, and to the order across channels if there is one. */
static int put(PyObject *channel, PyObject *serial, PyObject *data)
{
    PyObject *messages = GET(channel, CHANNEL_MESSAGES), *order = GET(GET(channel, CHANNEL_CONTEXT), CONTEXT_ORDER);
    PyObject *entry = PyTuple_Pack(2, serial, data);
    if (!entry) return -1;
    PyObject *args[] = {messages, entry};
    PyObject *done = PyObject_Vectorcall(quick_append, args, 2, NULL);
    Py_DECREF(entry);
    Py_XDECREF(done);
    if (!done) return -1;
    return order == Py_None ? 0 : PyObject_SetItem(order, serial, channel);
}

/* The channel of a message, borrowed.  `channel` is the channel of the message `former`, and is used again if both messages have the
   same envelope.  NULL: the message is not ordinary, or its channel does not exist. */
static PyObject *channel_of(PyObject *table, PyObject *data, PyObject *former, PyObject *channel)
{
    if (!PyBytes_CheckExact(data) || PyBytes_GET_SIZE(data) < ENVELOPE) return NULL;
    const char *text = PyBytes_AS_STRING(data);
    if (former && !memcmp(text, PyBytes_AS_STRING(former), ENVELOPE)) return channel;
    PyObject *head = PyBytes_FromStringAndSize(text, ENVELOPE);
    PyObject *found = head ? PyDict_GetItemWithError(table, head) : NULL;
    Py_XDECREF(head);
    if (!IS(found, CHANNEL) || !IS(GET(found, CHANNEL_CONTEXT), CONTEXT)) return NULL;
    PyObject *messages = GET(found, CHANNEL_MESSAGES);
    return messages && (PyObject *)Py_TYPE(messages) == quick_deque ? found : NULL;
}

/* Matcher.keep: append a message to its channel.  0, or -1 with an exception. */
static int keep(PyObject *matcher, PyObject *channel, PyObject *data)
{
    PyObject *before = GET(matcher, MATCHER_SERIAL);
    PyObject *serial = before ? PyLong_FromLongLong(PyLong_AsLongLong(before) + 1) : NULL;
    if (!serial) return -1;
    Py_SETREF(GET(matcher, MATCHER_SERIAL), Py_NewRef(serial));
    int failed = put(channel, serial, data);
    Py_DECREF(serial);
    return failed;
}

/* Put the messages of a batch into their channels, from `at` on: the index of the first that is not in its channel.  -1 with an
   exception. */
static Py_ssize_t sorted_in(PyObject *matcher, PyObject *batch, Py_ssize_t at)
{
    if (known != CLASSES || !IS(matcher, MATCHER)) return at;
    PyObject *table = GET(matcher, MATCHER_FOUND), *posted = GET(matcher, MATCHER_POSTED);
    if (!table || !PyDict_CheckExact(table) || !posted || !PyLong_CheckExact(posted)) return at;
    PyObject *channel = NULL, *former = NULL;
    while (at < PyList_GET_SIZE(batch) && PyLong_AsLong(GET(matcher, MATCHER_POSTED)) == 0) {
        PyObject *data = PyList_GET_ITEM(batch, at);
        channel = channel_of(table, data, former, channel);
        if (!channel) break;
        if (keep(matcher, channel, data)) return -1;
        former = data;
        at++;
    }
    return PyErr_Occurred() ? -1 : at;
}

static PyObject *sort_in(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyList_CheckExact(args[1]) || !PyLong_CheckExact(args[2])) {
        PyErr_SetString(PyExc_TypeError, "sort_in(matcher, batch, start)");
        return NULL;
    }
    Py_ssize_t at = PyLong_AsSsize_t(args[2]);
    if (at >= 0) at = sorted_in(args[0], args[1], at);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(at);
}

/* The same where receives are posted.  The message at `at` is given to one, or kept: 1; 0: Python has to do it; -1 with an exception. */
static int give(PyObject *engine, PyObject *batch, Py_ssize_t at)
{
    PyObject *matcher = GET(engine, ENGINE_MATCHER), *data = PyList_GET_ITEM(batch, at);
    PyObject *table = known == CLASSES && IS(matcher, MATCHER) ? GET(matcher, MATCHER_FOUND) : NULL;
    PyObject *channel = table && PyDict_CheckExact(table) ? channel_of(table, data, NULL, NULL) : NULL;
    if (!channel) return PyErr_Occurred() ? -1 : 0;
    int found = give_to_posted(engine, channel, data);
    if (found == NOBODY) return keep(matcher, channel, data) ? -1 : 1;
    return found < 0 ? -1 : found == GIVEN;
}

/* Match or keep the messages of a batch: the index of the first that is left to Python.  -1 with an exception. */
static Py_ssize_t taken_in(PyObject *engine, PyObject *batch)
{
    Py_ssize_t at = 0;
    for (int given = 1; given && at < PyList_GET_SIZE(batch); at += given) {
        at = sorted_in(GET(engine, ENGINE_MATCHER), batch, at);
        if (at < 0 || at == PyList_GET_SIZE(batch)) return at;
        if ((given = give(engine, batch, at)) < 0) return -1;
    }
    return at;
}

/* Engine.on_messages of the engine that this function is bound to. */
static PyObject *on_messages(PyObject *engine, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyList_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "on_messages(source, batch)");
        return NULL;
    }
    Py_ssize_t at = IS(engine, ENGINE) ? taken_in(engine, args[1]) : 0;
    if (at < 0) return NULL;
    if (at == PyList_GET_SIZE(args[1])) Py_RETURN_NONE;
    PyObject *rest = PyList_GetSlice(args[1], at, PyList_GET_SIZE(args[1])), *done = NULL;
    if (rest) {
        PyObject *left[] = {engine, args[0], rest};
        done = PyObject_VectorcallMethod(name_messages, left, 3, NULL);
        Py_DECREF(rest);
    }
    return done;
}

static PyObject *arrivals(PyObject *Py_UNUSED(self), PyObject *engine)
{
    static PyMethodDef bound = {"on_messages", (PyCFunction)(void (*)(void))on_messages, METH_FASTCALL,
                                "on_messages(source, batch, /)\n\nAs Engine.on_messages."};
    if (known != CLASSES || !IS(engine, ENGINE)) return PyObject_GetAttr(engine, name_messages);
    return PyCFunction_New(&bound, engine);
}

PyMethodDef quick_arrival_functions[] = {
    {"sort_in", (PyCFunction)(void (*)(void))sort_in, METH_FASTCALL,
     "sort_in(matcher, batch, start, /) -> int\n\n"
     "Put messages into their channels; the index of the first one that is not in its channel."},
    {"arrivals", arrivals, METH_O, "arrivals(engine, /)\n\nThe function on_messages of an engine."},
    {NULL, NULL, 0, NULL},
};

int quick_prepare_arrivals(void)
{
    return (name_posted = PyUnicode_InternFromString("posted")) &&
                   (name_messages = PyUnicode_InternFromString("on_messages"))
               ? 0
               : -1;
}
