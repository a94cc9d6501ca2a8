/* A message that a posted receive waits for: what `Engine.on_messages`, `Matcher.offer` and `Receive.fill` do in ordinary cases; for the
   module `_quick`.

   Ordinary is a message below REFERENCE_BYTES for a receive of an object, or into one piece of memory that is long enough, of an
   exporter that runs no code of the program.  Everything is looked at first, and all that is not ordinary, every error included, is
   left to Python, and nothing has changed. */

#include "quick.h"

static long long any_source, any_tag;

long long number(PyObject *object, int slot, int *bad)
{
    PyObject *found = GET(object, slot);
    int overflow = 0;
    long long value = found && PyLong_CheckExact(found) ? PyLong_AsLongLongAndOverflow(found, &overflow) : (*bad = 1, 0);
    *bad |= overflow;
    return value;
}

PyObject *earliest(PyObject *channel, Py_ssize_t *place, int *bad)
{
    PyObject *posted = GET(channel, CHANNEL_POSTED), *wild = GET(GET(channel, CHANNEL_CONTEXT), CONTEXT_WILD), *best = NULL;
    *place = -1;
    if (!posted || (PyObject *)Py_TYPE(posted) != quick_deque || !wild || !PyList_CheckExact(wild)) *bad = 1;
    if (*bad) return NULL;
    if (Py_SIZE(posted)) {
        best = PySequence_GetItem(posted, 0);
        Py_XDECREF(best); /* the deque has it */
        if (!IS(best, RECEIVE)) *bad = 1;
    }
    long long source = number(channel, CHANNEL_SOURCE, bad), tag = number(channel, CHANNEL_TAG, bad);
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(wild) && !*bad; at++) {
        PyObject *receive = PyList_GET_ITEM(wild, at);
        if (!IS(receive, RECEIVE)) *bad = 1;
        if (*bad || (best && number(receive, RECEIVE_TICKET, bad) > number(best, RECEIVE_TICKET, bad))) break;
        long long want_source = number(receive, RECEIVE_WANT_SOURCE, bad), want_tag = number(receive, RECEIVE_WANT_TAG, bad);
        if ((want_source == source || want_source == any_source) && (want_tag == tag || want_tag == any_tag)) {
            *place = at;
            return receive;
        }
    }
    return best;
}

PyObject *room_of(PyObject *receive, Py_ssize_t size, Py_ssize_t *offset)
{
    PyObject *target = GET(receive, RECEIVE_TARGET);
    int bad = 0;
    if (GET(receive, RECEIVE_OWNER) != Py_None || !IS(target, SPEC) || GET(target, SPEC_DENSE) != Py_True) return NULL;
    PyObject *from = GET(target, SPEC_OBJ);
    *offset = (Py_ssize_t)number(target, SPEC_OFFSET, &bad);
    if (bad || *offset < 0 || number(target, SPEC_NBYTES, &bad) < size || bad || !from || !PyObject_CheckBuffer(from)) return NULL;
    return runs_code(from) ? NULL : from;
}

/* Where a receive wants a message of `size` bytes: nowhere in particular (0), or in memory that is exported (1).  -1: not ordinary. */
static int export_target(PyObject *receive, Py_ssize_t size, Py_buffer *view, char **into)
{
    Py_ssize_t offset;
    if (GET(receive, RECEIVE_OWNER) == Py_None && GET(receive, RECEIVE_TARGET) == Py_None) return 0;
    PyObject *from = room_of(receive, size, &offset);
    if (!from) return -1;
    if (PyObject_GetBuffer(from, view, PyBUF_WRITABLE | PyBUF_ANY_CONTIGUOUS)) {
        PyErr_Clear();
        return -1;
    }
    if (offset <= view->len && size <= view->len - offset) {
        *into = (char *)view->buf + offset;
        return 1;
    }
    PyBuffer_Release(view);
    return -1;
}

int take_off(PyObject *channel, Py_ssize_t place)
{
    if (place >= 0) return PyList_SetSlice(GET(GET(channel, CHANNEL_CONTEXT), CONTEXT_WILD), place, place + 1, NULL);
    PyObject *posted = GET(channel, CHANNEL_POSTED), *done = PyObject_Vectorcall(quick_popleft, &posted, 1, NULL);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

void fill_receive(PyObject *receive, PyObject *channel, PyObject *data, PyObject *nbytes)
{
    Py_XSETREF(GET(receive, RECEIVE_SOURCE), Py_NewRef(GET(channel, CHANNEL_SOURCE)));
    Py_XSETREF(GET(receive, RECEIVE_TAG), Py_NewRef(GET(channel, CHANNEL_TAG)));
    Py_XSETREF(GET(receive, RECEIVE_NBYTES), Py_NewRef(nbytes));
    if (data) Py_XSETREF(GET(receive, RECEIVE_DATA), Py_NewRef(data));
    Py_XSETREF(GET(receive, RECEIVE_DONE), Py_NewRef(Py_True));
}

int give_to_posted(PyObject *engine, PyObject *channel, PyObject *data)
{
    PyObject *matcher = GET(engine, ENGINE_MATCHER);
    Py_ssize_t place, size = PyBytes_GET_SIZE(data) - ENVELOPE;
    int bad = 0;
    long long posted = number(matcher, MATCHER_POSTED, &bad);
    PyObject *receive = earliest(channel, &place, &bad);
    if (bad) return LEFT;
    if (!receive) return NOBODY;
    Py_buffer view;
    char *into = NULL;
    int is_open = PyBytes_GET_SIZE(data) < REFERENCE_BYTES ? export_target(receive, size, &view, &into) : -1;
    if (is_open < 0) return LEFT;
    Py_INCREF(receive);
    PyObject *nbytes = PyLong_FromSsize_t(size), *left = nbytes ? PyLong_FromLongLong(posted - 1) : NULL;
    int found = left && !account(GET(engine, ENGINE_DEBTS), GET(channel, CHANNEL_SRC), PyBytes_GET_SIZE(data)) ? GIVEN : LEFT;
    if (found == LEFT) PyErr_Clear();
    if (found == GIVEN && take_off(channel, place)) found = -1;
    if (found == GIVEN) {
        Py_SETREF(GET(matcher, MATCHER_POSTED), Py_NewRef(left));
        if (into) memcpy(into, PyBytes_AS_STRING(data) + ENVELOPE, (size_t)size);
        fill_receive(receive, channel, is_open ? NULL : data, nbytes);
    }
    if (is_open) PyBuffer_Release(&view);
    Py_XDECREF(nbytes);
    Py_XDECREF(left);
    Py_DECREF(receive);
    return found;
}

static int read_constant(PyObject *module, const char *name, long long *value)
{
    PyObject *found = module ? PyObject_GetAttrString(module, name) : NULL;
    *value = found ? PyLong_AsLongLong(found) : 0;
    Py_XDECREF(found);
    return PyErr_Occurred() ? -1 : 0;
}

int quick_prepare_posted(void)
{
    PyObject *module = PyImport_ImportModule("ckpt.mpi.base.constants");
    int failed = read_constant(module, "ANY_SOURCE", &any_source) || read_constant(module, "ANY_TAG", &any_tag);
    Py_XDECREF(module);
    return failed ? -1 : 0;
}
