/* The loop of sorted(iterable, key=function): it takes the items, calls the function with each, and has the interpreter sort them
 * by the keys that it has. That calls no key; comparisons in Python run from inside, and no image is taken then.
 */
#include "folds.h"

#if FRAMES_SUPPORTED

/* Called by list.sort() with the items in their order: the key of each, which is handed over. */
static PyObject *next_key(PyObject *object, PyObject *item)
{
    Fold *self = (Fold *)object;
    PyObject *key = PyList_GET_ITEM(self->value, self->place);
    PyList_SET_ITEM(self->value, self->place, Py_NewRef(Py_None));
    self->place++;
    return key;
}
static PyMethodDef next_key_definition = {"next_key", next_key, METH_O, NULL};

static int sort_by_keys(Fold *self)
{
    static PyObject *sort, *names;
    if (names == NULL && ((sort = PyUnicode_InternFromString("sort")) == NULL || (names = Py_BuildValue("(ss)", "key", "reverse")) == NULL))
        return -1;
    PyObject *keys = PyCFunction_New(&next_key_definition, (PyObject *)self), *none = NULL;
    PyObject *args[] = {self->result, keys, self->whole ? Py_True : Py_False};
    self->place = 0;
    if (keys != NULL)
        none = PyObject_VectorcallMethod(sort, args, 1, names);
    Py_XDECREF(keys);
    Py_XDECREF(none);
    return none == NULL ? -1 : 0;
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
    if (self->value == NULL && (self->value = PyList_New(0)) == NULL)
        return NULL;
    while (PyList_GET_SIZE(self->value) < PyList_GET_SIZE(self->result)) {
        item = Py_NewRef(PyList_GET_ITEM(self->result, PyList_GET_SIZE(self->value)));
        self->phase = CALLS;
        PyObject *key = PyObject_CallOneArg(self->function, item);
        self->phase = BUSY;
        Py_DECREF(item);
        int failed = key == NULL ? -1 : PyList_Append(self->value, key);
        Py_XDECREF(key);
        if (failed) {
            Py_CLEAR(self->value);
            return NULL;
        }
    }
    return sort_by_keys(self) < 0 ? NULL : Py_NewRef(self->result);
}

#endif /* FRAMES_SUPPORTED */
