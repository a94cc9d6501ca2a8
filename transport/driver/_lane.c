/* The fast path of `Endpoint.send` in C: enqueues a short message on a busy link when the frame does not become full, and has one
   sent on an idle link.

       Lane(endpoint, lock, backlog_bytes, check_mask, express=None)
       lane.append(dst, message) -> bool: was it appended?  If not, nothing has changed and the caller uses Endpoint.send
       lane.send(dst, message) -> bool | None: by `express`, with the lock, if that is free.  True: it is sent, and the backlog has to be
                                  looked at.  False: it is sent.  None: nothing has changed

   A lane has no state of its own: it reads and writes the slots of the endpoint's SendWindow, which stays the plain Python object
   that images, clones and the model checker use.  The caller need not hold the port's lock: the lane checks that no thread
   holds it, and then does all the work without releasing the GIL.

   In all other cases `append` returns False: an unknown or dropped rank, a window that is clean (its link is not yet
   in the list of links to transmit), a frame that becomes full, a long message, a port whose lock is held, and every (check_mask + 1)-th message
   while the backlog is above `backlog_bytes`, so that the owner processes acknowledgements. */

#define PY_SSIZE_T_CLEAN
#include "lane.h"

typedef struct {
    PyObject_HEAD
    PyObject *windows;         /* dict: rank -> SendWindow */
    PyObject *locked;          /* bound method: is the port's lock taken? */
    PyObject *lock;            /* the port's */
    PyObject *express;         /* the hot way of the port, or NULL */
    ExpressApi *hot;
    PyTypeObject *window_type; /* SendWindow: the offsets below are those of its slots */
    Py_ssize_t queue, queued, tx, clean, sealed_charge, sent_charge, acked_charge;
    long long coalesce, large, overhead, backlog, mask;
} Lane;

static PyTypeObject LaneType;

static int number_of(PyObject *from, const char *name, long long *value)
{
    PyObject *found = PyObject_GetAttrString(from, name);
    if (!found) return -1;
    *value = PyLong_AsLongLong(found);
    Py_DECREF(found);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

static void lane_dealloc(PyObject *self)
{
    Lane *lane = (Lane *)self;
    PyObject_GC_UnTrack(self);
    Py_CLEAR(lane->windows);
    Py_CLEAR(lane->locked);
    Py_CLEAR(lane->lock);
    Py_CLEAR(lane->express);
    Py_CLEAR(lane->window_type);
    Py_TYPE(self)->tp_free(self);
}

static int lane_traverse(PyObject *self, visitproc visit, void *arg)
{
    Lane *lane = (Lane *)self;
    Py_VISIT(lane->windows);
    Py_VISIT(lane->locked);
    Py_VISIT(lane->lock);
    Py_VISIT(lane->express);
    Py_VISIT(lane->window_type);
    return 0;
}

static int lane_clear(PyObject *self)
{
    Lane *lane = (Lane *)self;
    Py_CLEAR(lane->windows);
    Py_CLEAR(lane->locked);
    Py_CLEAR(lane->lock);
    Py_CLEAR(lane->express);
    return 0;
}

/* Look up the offsets of the slots of SendWindow, the class of the endpoint's windows. */
static int learn_slots(Lane *lane, PyObject *windows)
{
    Py_ssize_t at = 0;
    PyObject *window;
    if (!PyDict_Next(windows, &at, NULL, &window)) {
        PyErr_SetString(PyExc_ValueError, "an endpoint without windows");
        return -1;
    }
    PyObject *type = (PyObject *)Py_TYPE(window);
    if ((lane->queue = slot_of(type, "queue")) < 0 || (lane->clean = slot_of(type, "clean")) < 0 ||
        (lane->queued = number_slot_of(type, "queued")) < 0 || (lane->tx = number_slot_of(type, "tx")) < 0 ||
        (lane->sealed_charge = number_slot_of(type, "sealed_charge")) < 0 ||
        (lane->sent_charge = number_slot_of(type, "sent_charge")) < 0 ||
        (lane->acked_charge = number_slot_of(type, "acked_charge")) < 0)
        return -1;
    lane->window_type = (PyTypeObject *)Py_NewRef(type);
    return 0;
}

/* `express`: None, or the port's. */
static int use_express(Lane *lane, PyObject *express)
{
    if (express == Py_None) return 0;
    if (!(lane->hot = PyCapsule_Import(EXPRESS_API, 0))) return -1;
    if (!Py_IS_TYPE(express, lane->hot->type)) {
        PyErr_Format(PyExc_TypeError, "%R is no hot way", express);
        return -1;
    }
    lane->express = Py_NewRef(express);
    return 0;
}

static PyObject *lane_new(PyTypeObject *type, PyObject *args, PyObject *options)
{
    PyObject *endpoint, *lock, *express = Py_None;
    long long backlog, mask;
    static char *names[] = {"endpoint", "lock", "backlog_bytes", "check_mask", "express", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, options, "OOLL|O", names, &endpoint, &lock, &backlog, &mask, &express)) return NULL;
    Lane *lane = (Lane *)type->tp_alloc(type, 0);
    if (!lane) return NULL;
    lane->backlog = backlog;
    lane->mask = mask;
    lane->windows = PyObject_GetAttrString(endpoint, "_windows");
    lane->locked = PyObject_GetAttrString(lock, "locked");
    lane->lock = Py_NewRef(lock);
    if (!lane->windows || !lane->locked || use_express(lane, express) || number_of(endpoint, "_coalesce", &lane->coalesce) ||
        number_of(endpoint, "_large", &lane->large) || number_of(endpoint, "_overhead", &lane->overhead))
        goto failed;
    if (!PyDict_CheckExact(lane->windows)) {
        PyErr_SetString(PyExc_TypeError, "the endpoint's windows are not in a dict");
        goto failed;
    }
    if (learn_slots(lane, lane->windows)) goto failed;
    return (PyObject *)lane;
failed:
    Py_DECREF(lane);
    return NULL;
}

static PyObject *lane_open(PyObject *self, PyObject *dst, Py_ssize_t size)
{
    Lane *lane = (Lane *)self;
    PyObject *window = PyDict_GetItemWithError(lane->windows, dst);
    if (!window) {
        PyErr_Clear();
        return NULL;
    }
    if (!Py_IS_TYPE(window, lane->window_type) || SLOT(window, lane->clean) != Py_False || size > lane->large) return NULL;
    long long queued = NUMBER_SLOT(window, lane->queued);
    PyObject *queue = SLOT(window, lane->queue);
    if (!queue || !PyList_CheckExact(queue) || queued + size + lane->overhead >= lane->coalesce) return NULL;
    if (!(NUMBER_SLOT(window, lane->tx) & lane->mask)) {
        long long sealed = NUMBER_SLOT(window, lane->sealed_charge), sent = NUMBER_SLOT(window, lane->sent_charge);
        if (queued + sealed + sent - NUMBER_SLOT(window, lane->acked_charge) > lane->backlog) return NULL;
    }
    /* the last step, so that no other code runs between this check and the append */
    PyObject *locked = PyObject_CallNoArgs(lane->locked);
    if (!locked) PyErr_Clear();
    Py_XDECREF(locked);
    return locked == Py_False ? window : NULL;
}

static int lane_append(PyObject *self, PyObject *window, PyObject *message)
{
    Lane *lane = (Lane *)self;
    long long size = (long long)PyBytes_GET_SIZE(message);
    if (PyList_Append(SLOT(window, lane->queue), message)) return -1;
    NUMBER_SLOT(window, lane->tx) += 1;
    NUMBER_SLOT(window, lane->queued) += size + lane->overhead;
    return 0;
}

static int lane_send(PyObject *self, PyObject *dst, PyObject *message)
{
    Lane *lane = (Lane *)self;
    int taken = lane->express ? take_if_free(lane->lock) : 0;
    if (taken <= 0) {
        PyErr_Clear();
        return NOT_SENT;
    }
    long long sequence = lane->hot->send(lane->express, dst, message);
    if (let_go(lane->lock)) return -1;
    return sequence < 0 ? (int)sequence : !(sequence & lane->mask);
}

static PyObject *append_method(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "append(dst, message)");
        return NULL;
    }
    if (!PyBytes_CheckExact(args[1])) Py_RETURN_FALSE;
    PyObject *window = lane_open(self, args[0], PyBytes_GET_SIZE(args[1]));
    if (!window) Py_RETURN_FALSE;
    if (lane_append(self, window, args[1])) return NULL;
    Py_RETURN_TRUE;
}

static PyObject *send_method(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "send(dst, message)");
        return NULL;
    }
    int sent = lane_send(self, args[0], args[1]);
    if (sent == NOT_SENT) Py_RETURN_NONE;
    return sent < 0 ? NULL : PyBool_FromLong(sent);
}

static PyMethodDef methods[] = {
    {"append", (PyCFunction)(void (*)(void))append_method, METH_FASTCALL,
     "append(dst, message, /) -> bool\n\n"
     "Whether the message (bytes) was enqueued for rank dst; if not, nothing has changed: call Endpoint.send."},
    {"send", (PyCFunction)(void (*)(void))send_method, METH_FASTCALL,
     "send(dst, message, /) -> bool | None\n\n"
     "Whether the backlog has to be looked at, now that the message (bytes) is sent to rank dst; None: nothing has changed."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject LaneType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "ckpt.transport.driver._lane.Lane",
    .tp_basicsize = sizeof(Lane),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Lane(endpoint, lock, backlog_bytes, check_mask, express=None)\n\n"
    "Enqueues short messages in an endpoint's windows without its Python code; see the source.",
    .tp_new = lane_new,
    .tp_dealloc = lane_dealloc,
    .tp_traverse = lane_traverse,
    .tp_clear = lane_clear,
    .tp_methods = methods,
};

static LaneApi api = {&LaneType, lane_open, lane_append, lane_send};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.transport.driver._lane",
    .m_doc = "The ordinary message of a busy link.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__lane(void)
{
    if (PyType_Ready(&LaneType)) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (!made) return NULL;
    PyObject *capsule = PyCapsule_New(&api, LANE_API, NULL);
    if (!capsule || PyModule_AddObjectRef(made, "Lane", (PyObject *)&LaneType) ||
        PyModule_AddObjectRef(made, "api", capsule)) {
        Py_XDECREF(capsule);
        Py_DECREF(made);
        return NULL;
    }
    Py_DECREF(capsule);
    return made;
}
