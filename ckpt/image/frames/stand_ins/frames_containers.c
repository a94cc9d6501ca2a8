/* The loops of frames_folds.c that fill a container: those of dict, frozenset, bytes and bytearray called with an iterator. */
#include "folds.h"

#if FRAMES_SUPPORTED

/* As PyDict_MergeFromSeq2() of one item. */
static int add_pair(Fold *self, PyObject *item)
{
    PyObject *pair = PySequence_Fast(item, "");
    if (pair == NULL) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "cannot convert dictionary update sequence element #%zd to a sequence", (Py_ssize_t)self->whole);
        return -1;
    }
    int failed = -1;
    if (PySequence_Fast_GET_SIZE(pair) != 2)
        PyErr_Format(PyExc_ValueError, "dictionary update sequence element #%zd has length %zd; 2 is required",
                     (Py_ssize_t)self->whole, PySequence_Fast_GET_SIZE(pair));
    else {
        PyObject *key = Py_NewRef(PySequence_Fast_GET_ITEM(pair, 0)), *value = Py_NewRef(PySequence_Fast_GET_ITEM(pair, 1));
        failed = PyDict_SetItem(self->result, key, value);
        Py_DECREF(key);
        Py_DECREF(value);
    }
    Py_DECREF(pair);
    return failed;
}

static int add_byte(Fold *self, PyObject *item)
{
    long whole;
    Py_ssize_t value = PyLong_CheckExact(item) && as_long(item, &whole) ? whole : PyNumber_AsSsize_t(item, NULL);
    if (value == -1 && PyErr_Occurred())
        return -1;
    if (value < 0 || value > 255) {
        PyErr_SetString(PyExc_ValueError, self->kind == BYTES ? "bytes must be in range(0, 256)" : "byte must be in range(0, 256)");
        return -1;
    }
    Py_ssize_t size = PyByteArray_GET_SIZE(self->result);
    if (size + 1 < ((PyByteArrayObject *)self->result)->ob_alloc) {
        Py_SET_SIZE(self->result, size + 1);
        PyByteArray_AS_STRING(self->result)[size + 1] = 0;
    } else if (PyByteArray_Resize(self->result, size + 1) < 0)
        return -1;
    PyByteArray_AS_STRING(self->result)[size] = (char)value;
    return 0;
}

/* A frozenset can be added to as long as nobody else has it. */
static int add_member(Fold *self, PyObject *item)
{
    if (Py_REFCNT(self->result) != 1) {
        PyObject *copy = PyFrozenSet_New(self->result);
        if (copy == NULL)
            return -1;
        Py_SETREF(self->result, copy);
    }
    return PySet_Add(self->result, item);
}

PyObject *run_container(Fold *self)
{
    PyObject *item;
    for (; (item = fold_next_item(self)) != NULL; self->whole++) {
        int failed = self->kind == DICT        ? add_pair(self, item)
                     : self->kind == FROZENSET ? add_member(self, item)
                                               : add_byte(self, item);
        Py_DECREF(item);
        if (failed)
            return NULL;
    }
    if (PyErr_Occurred())
        return NULL;
    if (self->kind == BYTES)
        return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(self->result), PyByteArray_GET_SIZE(self->result));
    return Py_NewRef(self->result);
}

#endif /* FRAMES_SUPPORTED */
