/* Messages of buffers: the ordinary cases of `BufferMessages.Send`, `Isend`, `Recv` and `Sendrecv`, for the module `_quick`.

   Ordinary is a contiguous buffer of plain numbers or bytes that is not given with a count or a datatype: below REFERENCE_BYTES, or one
   that its receiver reads (quick_remote.c).  All else, every error included, is left to Python.  No buffer stays exported when a function returns. */

#include "quick.h"

/* A buffer of numbers in the machine's order, or of bytes: what every datatype of a plain number accepts without further checks. */
static int is_plain(const Py_buffer *view)
{
    const char *format = view->format;
    if (!PyBuffer_IsContiguous(view, 'A')) return 0;
    if (!format) return 1;
    if (format[0] == 'Z') return (format[1] == 'f' || format[1] == 'd') && !format[2];
    return format[0] && !format[1] && strchr("bBhHiIlLqQfd?", format[0]);
}

int export_plain(PyObject *from, Py_buffer *view, int flags)
{
    if (PyList_CheckExact(from) || PyTuple_CheckExact(from) || !PyObject_CheckBuffer(from)) return -1;
    if (PyObject_GetBuffer(from, view, flags)) {
        PyErr_Clear();
        return -1;
    }
    if (is_plain(view)) return 0;
    PyBuffer_Release(view);
    return -1;
}

int runs_code(PyObject *from) { return PyType_HasFeature(Py_TYPE(from), Py_TPFLAGS_HEAPTYPE); }

PyObject *start_send(PyObject *const *args, Py_ssize_t count)
{
    PyObject *lane = NULL, *route = count == 4 ? route_of(args[0], args[2], args[3], &lane) : NULL;
    Py_buffer view;
    if (!route) Py_RETURN_FALSE;
    Py_INCREF(route); /* an exporter may run code of the program, which may free the communicator */
    Py_INCREF(lane);
    PyObject *sent = NULL, *message = NULL, *head = PyTuple_GET_ITEM(route, 1);
    if (export_plain(args[1], &view, PyBUF_FULL_RO)) goto nothing;
    Py_ssize_t size = view.len;
    if (size < REFERENCE_BYTES - ENVELOPE) message = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(head) + view.len);
    if (message) {
        memcpy(PyBytes_AS_STRING(message), PyBytes_AS_STRING(head), (size_t)PyBytes_GET_SIZE(head));
        memcpy(PyBytes_AS_STRING(message) + PyBytes_GET_SIZE(head), view.buf, (size_t)view.len);
    }
    PyBuffer_Release(&view);
    if (message) {
        PyObject *window = lanes->open(lane, PyTuple_GET_ITEM(route, 0), PyBytes_GET_SIZE(message));
        sent = window ? (lanes->append(lane, window, message) ? NULL : Py_NewRef(Py_None))
                      : send_now(lane, PyTuple_GET_ITEM(route, 0), message);
        if (!sent && !PyErr_Occurred()) sent = Py_NewRef(message);
        Py_DECREF(message);
        goto done;
    }
    if (size >= REFERENCE_BYTES - ENVELOPE) sent = send_by_reference(args[0], route, args[1], size);
    if (sent) goto done;
nothing:
    if (!PyErr_Occurred()) sent = Py_NewRef(Py_False);
done:
    Py_DECREF(route);
    Py_DECREF(lane);
    return sent;
}

PyObject *send_buffer(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    PyObject *sent = start_send(args, count);
    return IS(sent, SENT) ? wait_for_reader(sent) : sent;
}

PyObject *recv_buffer(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    int waits = 0;
    PyObject *channel = NULL, *data = count == 5 ? awaited(args[0], args[2], args[3], &waits, &channel) : NULL;
    if (!data && PyErr_Occurred()) return NULL;
    if (!data && waits) return receive_posted(args[0], args[1], args[2], args[3], args[4]);
    if (!data) Py_RETURN_FALSE;
    Py_buffer view;
    int left = 1, is_open = !export_plain(args[1], &view, PyBUF_FULL);
    if (is_open && runs_code(args[1])) { /* another message may be the oldest now */
        PyObject *again = channel_for(args[0], args[2], args[3]), *oldest_now = again == channel ? oldest(channel) : NULL;
        if (oldest_now != data) {
            PyBuffer_Release(&view);
            is_open = 0;
        }
        Py_XDECREF(oldest_now);
    }
    if (is_open) {
        if (GET(GET(args[0], COMM_ENGINE), ENGINE_CHOICES) == Py_None && PyBytes_GET_SIZE(data) - ENVELOPE <= view.len)
            left = take_oldest(args[0], channel, data);
        if (!left) memcpy(view.buf, PyBytes_AS_STRING(data) + ENVELOPE, (size_t)(PyBytes_GET_SIZE(data) - ENVELOPE));
        PyBuffer_Release(&view);
    }
    if (!left && args[4] != Py_None && fill_status(args[4], channel, PyBytes_GET_SIZE(data))) left = -1;
    Py_DECREF(channel);
    Py_DECREF(data);
    return left < 0 ? NULL : PyBool_FromLong(!left);
}

PyObject *sendrecv_buffer(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    /* Nothing is sent unless the receive is ordinary, too: an error in it has to leave everything as it was. */
    Py_buffer view;
    if (count != 8 || !channel_for(args[0], args[5], args[6]) || export_plain(args[4], &view, PyBUF_FULL)) Py_RETURN_FALSE;
    PyBuffer_Release(&view);
    PyObject *sending[] = {args[0], args[1], args[2], args[3]}, *sent = start_send(sending, 4);
    if (IS(sent, SENT)) return receive_beside(sent, args[0], args[4], args[5], args[6], args[7]);
    if (sent != Py_None && sent != Py_True) { /* no receive may wait for the backlog: it is looked at by other sends */
        Py_XDECREF(sent);
        return sent ? Py_NewRef(Py_False) : NULL;
    }
    Py_DECREF(sent);
    PyObject *receiving[] = {args[0], args[4], args[5], args[6], args[7]}, *received = recv_buffer(NULL, receiving, 5);
    if (received == Py_False) Py_SETREF(received, Py_NewRef(Py_None)); /* or it is posted, for a long one */
    return received;
}
