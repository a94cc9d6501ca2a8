/* Counts the checks of the interpreter: the moments between two instructions at which it looks for pending calls.

   start(function, at)   from now on; at check number `at` (and not before) function(number) is called, between two
                         instructions of the program. It returns the number of the next check it wants, or -1: the end.

   The count is of the program alone: the same program does the same checks every time. A pending call that queues itself
   again is called CALLS times at one check, then the interpreter goes on. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define CALLS 32

static PyObject *function;
static long long calls, at;

static int tick(void *unused)
{
    (void)unused;
    if (calls++ % CALLS == 0 && calls / CALLS >= at) { /* the first of this check: what function queues still runs at it */
        PyObject *next = PyObject_CallFunction(function, "L", calls / CALLS);
        if (next == NULL) {
            PyErr_WriteUnraisable(function);
            return 0;
        }
        at = PyLong_AsLongLong(next);
        Py_DECREF(next);
    }
    return at < 0 ? 0 : Py_AddPendingCall(tick, NULL);
}

static PyObject *start(PyObject *self, PyObject *args)
{
    (void)self;
    if (!PyArg_ParseTuple(args, "OL", &function, &at))
        return NULL;
    Py_INCREF(function);
    calls = 0;
    if (at >= 0 && Py_AddPendingCall(tick, NULL) < 0)
        return PyErr_Format(PyExc_RuntimeError, "the queue of pending calls is full");
    Py_RETURN_NONE;
}

static PyObject *count(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyLong_FromLongLong(calls / CALLS);
}

static PyMethodDef methods[] = {
    {"start", start, METH_VARARGS, "start(function, at)"},
    {"count", count, METH_NOARGS, "Checks since start()."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "ticks", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit_ticks(void)
{
    return PyModule_Create(&module);
}
