/* What transport/integers.py needs of C: the type of what lies in a slot. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

_Static_assert(sizeof(long long) == sizeof(PyObject *), "a slot has room for a number");

/* The member behind a slot of an object that `cls` itself has: borrowed; NULL with an exception. */
static PyMemberDef *member_of(PyObject *cls, PyObject *name)
{
    PyObject *found = PyObject_GetAttr(cls, name);
    PyMemberDef *member = NULL;
    if (!found) return NULL;
    if (Py_IS_TYPE(found, &PyMemberDescr_Type) && (PyObject *)PyDescr_TYPE(found) == cls)
        member = ((PyMemberDescrObject *)found)->d_member;
    Py_DECREF(found); /* the class has it */
    if (member && member->type == T_OBJECT_EX) return member;
    PyErr_Format(PyExc_TypeError, "%R has no slot %R of an object", cls, name);
    return NULL;
}

/* The interpreter asks the member what lies there: for attributes, in the collector, and where an instance ends. */
static PyObject *hold_integers(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *cls, *names;
    if (!PyArg_ParseTuple(args, "O!O!", &PyType_Type, &cls, &PyTuple_Type, &names)) return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        PyMemberDef *member = member_of(cls, PyTuple_GET_ITEM(names, i));
        if (!member) return NULL;
        member->type = T_LONGLONG;
    }
    PyType_Modified((PyTypeObject *)cls);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"hold_integers", hold_integers, METH_VARARGS,
     "hold_integers(cls, names, /)\n\nThese slots of a class without instances hold integers of 64 bits.  TypeError: it has no such slot."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.transport._integers",
    .m_doc = "Slots that hold integers.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__integers(void) { return PyModule_Create(&module); }
