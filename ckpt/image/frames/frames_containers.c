/* The loops of frames_folds.c that fill a container: those of dict, frozenset, bytes and bytearray called with an iterator, and that of
 * sorted(iterable, key=function), which takes the items, calls the function with each, and has the interpreter sort them by the keys
 * that it has. That calls no key; comparisons in Python run from inside, and no image is taken then.
 */
#include "folds.h"

#if FRAMES_SUPPORTED

#include <stddef.h>

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

/* ------------------------------------------------------------------ sorted */

/* Called by list.sort() with the items in their order: the key of each, which is handed over. */
typedef struct {
    PyObject ob_base;
    vectorcallfunc call;
    Fold *fold;
} KeyFeeder;

static PyObject *next_key(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Fold *fold = ((KeyFeeder *)self)->fold;
    if (fold->place < fold->count)
        return fold->keys[fold->place++];
    PyErr_SetString(PyExc_RuntimeError, "there are no more keys");
    return NULL;
}

static PyTypeObject KeyFeederType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.image.frames._frames.KeyFeeder",
    .tp_basicsize = sizeof(KeyFeeder),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(KeyFeeder, call),
    .tp_call = PyVectorcall_Call,
};

static int sort_by_keys(Fold *self)
{
    static PyObject *sort, *names;
    if (names == NULL && (PyType_Ready(&KeyFeederType) < 0 || (sort = PyUnicode_InternFromString("sort")) == NULL
                          || (names = Py_BuildValue("(ss)", "key", "reverse")) == NULL))
        return -1;
    KeyFeeder *feeder = PyObject_New(KeyFeeder, &KeyFeederType);
    if (feeder == NULL)
        return -1;
    feeder->call = next_key;
    feeder->fold = self;
    PyObject *args[] = {self->result, (PyObject *)feeder, self->whole ? Py_True : Py_False};
    PyObject *none = PyObject_VectorcallMethod(sort, args, 1, names);
    Py_DECREF(feeder);
    Py_XDECREF(none);
    return none == NULL ? -1 : 0;
}

/* The last one first, as list.sort() does when a key has failed. */
void fold_release_keys(Fold *self)
{
    while (self->count > self->place)
        Py_DECREF(self->keys[--self->count]);
    PyMem_Free(self->keys);
    self->keys = NULL;
    self->count = self->place = 0;
}

/* The keys so far, as a list. */
PyObject *fold_keys(Fold *self)
{
    PyObject *keys = PyList_New(self->count);
    for (Py_ssize_t i = 0; keys != NULL && i < self->count; i++)
        PyList_SET_ITEM(keys, i, Py_NewRef(self->keys[i]));
    return keys;
}

/* Room for a key of each item; the first ones are those that a Fold of another process had. */
static int begin_keys(Fold *self)
{
    Py_ssize_t size = PyList_GET_SIZE(self->result), has = self->value ? PyList_GET_SIZE(self->value) : 0;
    if ((self->keys = PyMem_New(PyObject *, Py_MAX(size, has))) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; self->count < has; self->count++)
        self->keys[self->count] = Py_NewRef(PyList_GET_ITEM(self->value, self->count));
    Py_CLEAR(self->value);
    return 0;
}

PyObject *run_sorted(Fold *self)
{
    PyObject *item;
    while (self->mode == COLLECTS && (item = fold_next_item(self)) != NULL) {
        int failed = PyList_Append(self->result, item);
        Py_DECREF(item);
        if (failed)
            return NULL;
    }
    if (PyErr_Occurred())
        return NULL;
    self->mode = KEYS;
    const Py_ssize_t size = PyList_GET_SIZE(self->result);
    if (begin_keys(self) < 0)
        return NULL;
    while (self->count < size && self->count < PyList_GET_SIZE(self->result)) {
        item = Py_NewRef(PyList_GET_ITEM(self->result, self->count));
        self->phase = CALLS;
        PyObject *key = PyObject_CallOneArg(self->function, item);
        self->phase = BUSY;
        Py_DECREF(item);
        if (key == NULL) {
            fold_release_keys(self);
            return NULL;
        }
        self->keys[self->count++] = key;
    }
    return sort_by_keys(self) < 0 ? NULL : Py_NewRef(self->result);
}

#endif /* FRAMES_SUPPORTED */
