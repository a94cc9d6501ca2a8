/* What the stand-ins of `zip` (frames_iterators.c) and of `zip_longest` (frames_longest.c) share: how an iterator in C that asks
 * several sources treats them and its tuple of items. */
#ifndef CKPT_SOURCES_H
#define CKPT_SOURCES_H

#include "../extension/frames.h"

#if FRAMES_SUPPORTED

/* Does an iterator of this type run no Python code? */
static inline int is_plain_iterator(PyTypeObject *type)
{
    return type == &PyListIter_Type || type == &PyTupleIter_Type || type == &PyRangeIter_Type || type == &PyUnicodeIter_Type
           || type == &PyDictIterKey_Type || type == &PyDictIterValue_Type || type == &PyDictIterItem_Type || type == &PySetIter_Type
           || type == &PyBytesIter_Type || type == &PyLongRangeIter_Type;
}

/* The tuple of the last time, if nobody else has it, as the iterators themselves do; or another one. */
static inline PyObject *tuple_again(PyObject *last, Py_ssize_t size)
{
    if (Py_REFCNT(last) != 1)
        return PyTuple_New(size);
    if (!PyObject_GC_IsTracked(last)) /* a collection may have taken it from its lists: for other items */
        PyObject_GC_Track(last);
    return Py_NewRef(last);
}

/* A source has given no item: has it failed? If not, there is no exception any more. */
static inline int is_failure(void)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_StopIteration))
        return 1;
    PyErr_Clear();
    return 0;
}

#endif
#endif
