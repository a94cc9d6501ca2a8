/* The C interface of `ckpt.transport.driver._lane` for other C modules, in the capsule `ckpt.transport.driver._lane.api`.

   `open` checks whether a message of `size` bytes for rank `dst` may be appended without further work: the port's lock is free,
   the link is busy, the message does not fill the frame, and the backlog need not be checked or is small.  If so, it returns a
   borrowed reference to the SendWindow, else NULL without an exception.  `append` appends the message to that window.  The caller
   must not release the GIL between `open` and `append`, so that no other thread changes the window in between.  `append` returns
   0; or -1 with an exception when there is no memory, and then nothing has changed. */

#ifndef CKPT_TRANSPORT_LANE_H
#define CKPT_TRANSPORT_LANE_H

#include <Python.h>
#include <structmember.h>

#define LANE_API "ckpt.transport.driver._lane.api"

typedef struct {
    PyTypeObject *type;
    PyObject *(*open)(PyObject *lane, PyObject *dst, Py_ssize_t size);
    int (*append)(PyObject *lane, PyObject *window, PyObject *message);
} LaneApi;

/* Return the offset of the slot `name` in instances of `cls` (__slots__); -1 with an exception when there is none. */
static inline Py_ssize_t slot_of(PyObject *cls, const char *name)
{
    PyObject *found = PyObject_GetAttrString(cls, name);
    if (!found) return -1;
    Py_ssize_t offset = -1;
    if (Py_IS_TYPE(found, &PyMemberDescr_Type)) offset = ((PyMemberDescrObject *)found)->d_member->offset;
    Py_DECREF(found);
    if (offset <= 0) {
        PyErr_Format(PyExc_TypeError, "%R has no slot %s", cls, name);
        return -1;
    }
    return offset;
}

#define SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))

#endif
