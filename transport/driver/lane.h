/* What `ckpt.transport.driver._lane` offers to other C modules, through the capsule `ckpt.transport.driver._lane.api`.

   `open` answers whether a message of `size` bytes for rank `dst` may simply be appended now: the port's lock is free, the link is
   busy, the frame does not fill up, and the backlog is not worth a look.  A borrowed reference to the window then, else NULL,
   without an exception.  `append` does it; the interpreter's lock must not have been given up since `open`, so that nobody
   looked at the window in between.  It returns -1 with an exception when there is no memory, and nothing has changed then. */

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

/* Where the slot of a class lies in its instances; -1 with an exception when there is none. */
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
