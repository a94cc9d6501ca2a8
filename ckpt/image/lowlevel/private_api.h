/* The private parts of CPython, and those that differ between its versions, except those of frames
 * (ckpt/image/frames/extension/frames_31N.h).
 *
 * No other file of C looks at PY_VERSION_HEX or uses a name that begins with _Py; tests/test_private_names.py checks that.
 * docs/new-python.md tells what a new minor version needs here.
 */
#ifndef CKPT_PRIVATE_API_H
#define CKPT_PRIVATE_API_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stdint.h>

/* A number that changes with every change of the dict (up to 3.12), or with its length only: 3.13 does not count changes any more,
 * and has nothing instead. */
static inline uint64_t dict_state(PyObject *dict)
{
#if PY_VERSION_HEX < 0x030C0000
    return ((PyDictObject *)dict)->ma_version_tag;
#elif PY_VERSION_HEX < 0x030D0000
    _Py_COMP_DIAG_PUSH
    _Py_COMP_DIAG_IGNORE_DEPR_DECLS
    return ((PyDictObject *)dict)->ma_version_tag;
    _Py_COMP_DIAG_POP
#else
    return (uint64_t)PyDict_GET_SIZE(dict);
#endif
}

/* The namespace of a heap type (borrowed), which its class statement has filled; NULL: a static type. Since 3.12 the slot is NULL
 * for types that interpreters share; PyType_GetDict() exists since 3.12. */
static inline PyObject *class_namespace(PyTypeObject *type) { return type->tp_flags & Py_TPFLAGS_HEAPTYPE ? type->tp_dict : NULL; }

/* The dictionary of an instance (borrowed), or NULL. No public function gives it without a new reference, which is written into
 * it. An instance that has none yet, but values in its own memory (since 3.11), gets one. */
static inline PyObject *instance_dictionary(PyObject *obj)
{
    PyObject **place = _PyObject_GetDictPtr(obj);
    return place ? *place : NULL;
}

/* The attribute that a class in the method resolution order of a type has under a name (borrowed), or NULL without an exception.
 * Since 2.2; no public function does that without calls into the program. */
static inline PyObject *type_lookup(PyTypeObject *type, PyObject *name) { return _PyType_Lookup(type, name); }

/* Levels that C code of this thread may still recurse. Counted apart from sys.setrecursionlimit() by 3.12 and 3.13; 3.11
 * counts both together, and since 3.14 the bounds of the C stack are looked at. */
static inline int c_depth_left(PyThreadState *ts)
{
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000 && !defined(PYPY_VERSION)
    return ts->c_recursion_remaining;
#else
    return 0;
#endif
}
static inline void set_c_depth_left(PyThreadState *ts, long levels)
{
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000 && !defined(PYPY_VERSION)
    ts->c_recursion_remaining = levels < INT_MAX / 2 ? (int)levels : INT_MAX / 2;
#endif
}

/* The object that the table of a set holds in the place of a removed member (borrowed: it lives as long as the interpreter), or
 * NULL if sets are not laid out as PySetObject says. It is `_PySet_Dummy` up to 3.12 and has no name since 3.13. */
static inline PyObject *find_set_dummy(void)
{
    PyObject *dummy = NULL, *set = PySet_New(NULL);
    PySetObject *so = (PySetObject *)set;
    if (set == NULL || PySet_Add(set, Py_None) < 0)
        goto done;
    int fits = so->used == 1 && so->fill == 1 && so->mask == PySet_MINSIZE - 1 && so->table == so->smalltable && so->finger == 0;
    Py_ssize_t at = 0;
    while (fits && at <= so->mask && so->smalltable[at].key != Py_None)
        at++;
    fits = fits && at <= so->mask && so->smalltable[at].hash == PyObject_Hash(Py_None);
    if (PySet_Discard(set, Py_None) < 0)
        goto done;
    if (fits && so->used == 0 && so->fill == 1 && so->smalltable[at].hash == -1)
        dummy = so->smalltable[at].key;
done:
    Py_XDECREF(set);
    return dummy;
}

/* Does dict_state() change when a dict is changed, and only then? */
static inline int dict_state_fits(void)
{
    PyObject *dict = PyDict_New();
    uint64_t before = dict ? dict_state(dict) : 0;
    int fits = dict && PyDict_SetItem(dict, Py_None, Py_None) == 0 && dict_state(dict) != before;
    before = fits ? dict_state(dict) : 0;
    fits = fits && PyDict_GetItemWithError(dict, Py_None) == Py_None && dict_state(dict) == before;
    Py_XDECREF(dict);
    return fits;
}

#endif
