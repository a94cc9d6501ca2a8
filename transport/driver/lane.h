/* The C interface of `ckpt.transport.driver._lane` for other C modules, in the capsule `ckpt.transport.driver._lane.api`.

   `open` checks whether a message of `size` bytes for rank `dst` may be appended without further work: the port's lock is free,
   the link is busy, the message does not fill the frame, and the backlog need not be checked or is small.  If so, it returns a
   borrowed reference to the SendWindow, else NULL without an exception.  `append` appends the message to that window.  The caller
   must not release the GIL between `open` and `append`, so that no other thread changes the window in between.  `append` returns
   0; or -1 with an exception when there is no memory, and then nothing has changed.

   `send` is for a message for which `open` has returned NULL.  It takes the port's lock, if that is free, and has the message sent
   the hot way (_express.c).  It returns 0; 1: it is sent, and the backlog has to be looked at; NOT_SENT without an exception: the case
   is not ordinary, and nothing has changed; -1 with an exception.

   EXPRESS_API is what `send` calls, in the capsule `ckpt.transport.driver._express.api`: the same with the lock held, but a sequence
   number where it is sent. */

#ifndef CKPT_TRANSPORT_LANE_H
#define CKPT_TRANSPORT_LANE_H

#include <Python.h>
#include <structmember.h>

#define LANE_API "ckpt.transport.driver._lane.api"
#define EXPRESS_API "ckpt.transport.driver._express.api"

enum { NOT_SENT = -2 };

typedef struct {
    PyTypeObject *type;
    PyObject *(*open)(PyObject *lane, PyObject *dst, Py_ssize_t size);
    int (*append)(PyObject *lane, PyObject *window, PyObject *message);
    int (*send)(PyObject *lane, PyObject *dst, PyObject *message);
} LaneApi;

typedef struct {
    PyTypeObject *type;
    long long (*send)(PyObject *express, PyObject *dst, PyObject *message);
} ExpressApi;

/* Return the offset of the slot `name` in instances of `cls` (__slots__), which holds an object (T_OBJECT_EX) or a number
   (T_LONGLONG; transport/integers.py); -1 with an exception when there is no such slot. */
static inline Py_ssize_t slot_of_kind(PyObject *cls, const char *name, int kind)
{
    PyObject *found = PyObject_GetAttrString(cls, name);
    if (!found) return -1;
    Py_ssize_t offset = -1;
    if (Py_IS_TYPE(found, &PyMemberDescr_Type)) {
        const PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
        if (member->type == kind) offset = member->offset;
    }
    Py_DECREF(found);
    if (offset <= 0) {
        PyErr_Format(PyExc_TypeError, "%R has no slot %s of %s", cls, name, kind == T_LONGLONG ? "a number" : "an object");
        return -1;
    }
    return offset;
}

static inline Py_ssize_t slot_of(PyObject *cls, const char *name) { return slot_of_kind(cls, name, T_OBJECT_EX); }

static inline Py_ssize_t number_slot_of(PyObject *cls, const char *name) { return slot_of_kind(cls, name, T_LONGLONG); }

/* The function `acquire`, and after it `release`, of the class of a lock: borrowed; NULL with an exception.  They are looked up once for
   each class that comes: nearly all are of one. */
static inline PyObject *const *lock_functions(PyObject *lock)
{
    static PyTypeObject *type;
    static PyObject *functions[2];
    if (Py_TYPE(lock) == type) return functions;
    PyObject *acquire = PyObject_GetAttrString((PyObject *)Py_TYPE(lock), "acquire");
    PyObject *release = acquire ? PyObject_GetAttrString((PyObject *)Py_TYPE(lock), "release") : NULL;
    if (!release) {
        Py_XDECREF(acquire);
        return NULL;
    }
    Py_XSETREF(type, (PyTypeObject *)Py_NewRef(Py_TYPE(lock)));
    Py_XSETREF(functions[0], acquire);
    Py_XSETREF(functions[1], release);
    return functions;
}

/* Take a lock if it is free.  1: taken; 0: it is not free; -1 with an exception. */
static inline int take_if_free(PyObject *lock)
{
    PyObject *const *functions = lock_functions(lock);
    if (!functions) return -1;
    PyObject *asked[] = {lock, Py_False}, *taken = PyObject_Vectorcall(functions[0], asked, 2, NULL);
    Py_XDECREF(taken);
    return taken ? taken == Py_True : -1;
}

/* Let go of a lock that `take_if_free` has taken.  An exception that is set stays set.  0, or -1 with an exception of the lock. */
static inline int let_go(PyObject *lock)
{
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyObject *const *functions = lock_functions(lock);
    PyObject *done = functions ? PyObject_Vectorcall(functions[1], &lock, 1, NULL) : NULL;
    if (type) PyErr_Restore(type, error, trace);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

#define SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))
#define NUMBER_SLOT(object, offset) (*(long long *)((char *)(object) + (offset)))

#endif
