/* Iterators of the interpreter that are asked for an item again: `map`, and `zip`, which has items of its first sources in a variable
 * of C while it asks the next one.
 *
 * follow_iterators() puts functions of ours into the place of theirs. They do the same; a capture learns from zip_taken() what a
 * `zip` has. A Pending says where they go on: the next time that this very `map` or `zip` is asked for an item, it calls its
 * function without asking its sources, or begins with the items that it has. rebuild_frame() announces a Pending (frames_rebuild.c)
 * just before it has an instruction repeated, which asks the iterator before anything else.
 */
#include "frames.h"

#if FRAMES_SUPPORTED

#include <structmember.h>

/* ------------------------------------------------------------------ what is pending */

typedef struct {
    PyObject ob_base;
    PyObject *steps;
} Pending;

static PyObject *announced; /* list of steps that have not been taken, or NULL */

int pending_announce(PyObject *value)
{
    if (Py_TYPE(value) != &PendingType)
        return 0;
    Py_XSETREF(announced, PySequence_List(((Pending *)value)->steps));
    return announced == NULL ? -1 : 0;
}

/* How this iterator goes on (a new reference); NULL without an exception: as usual. */
static PyObject *take_step(PyObject *iterator)
{
    for (Py_ssize_t i = 0; announced != NULL && i < PyList_GET_SIZE(announced); i++) {
        PyObject *step = PyList_GET_ITEM(announced, i);
        if (PyTuple_GET_ITEM(step, 0) != iterator)
            continue;
        PyObject *how = Py_NewRef(PyTuple_GET_ITEM(step, 1));
        if (PyList_GET_SIZE(announced) == 1)
            Py_CLEAR(announced);
        else if (PyList_SetSlice(announced, i, i + 1, NULL) < 0)
            PyErr_Clear();
        return how;
    }
    return NULL;
}

static int is_step(PyObject *step)
{
    return PyTuple_Check(step) && PyTuple_GET_SIZE(step) == 2 && PyTuple_Check(PyTuple_GET_ITEM(step, 1));
}

static PyObject *pending_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *steps;
    if (!PyArg_ParseTuple(args, "O!:Pending", &PyList_Type, &steps))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(steps); i++)
        if (!is_step(PyList_GET_ITEM(steps, i)))
            return PyErr_Format(PyExc_TypeError, "no step: %R", PyList_GET_ITEM(steps, i));
    Pending *self = PyObject_New(Pending, &PendingType);
    if (self != NULL)
        self->steps = Py_NewRef(steps);
    return (PyObject *)self;
}

static void pending_dealloc(PyObject *self)
{
    Py_XDECREF(((Pending *)self)->steps);
    PyObject_Free(self);
}

static PyObject *pending_reduce(PyObject *self, PyObject *unused) { return Py_BuildValue("O(O)", Py_TYPE(self), ((Pending *)self)->steps); }

static PyMemberDef pending_members[] = {
    {"steps", T_OBJECT, offsetof(Pending, steps), READONLY, "[(map, (function, number of arguments)) or (zip, (item, …)), …]"},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef pending_methods[] = {
    {"__reduce__", pending_reduce, METH_NOARGS, "its class and steps"},
    {NULL, NULL, 0, NULL},
};

PyTypeObject PendingType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.image.frames._frames.Pending",
    .tp_basicsize = sizeof(Pending),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Where iterators of the interpreter go on that had been asked for an item, and had not returned it.",
    .tp_new = pending_new,
    .tp_dealloc = pending_dealloc,
    .tp_members = pending_members,
    .tp_methods = pending_methods,
};

/* ------------------------------------------------------------------ map and zip */

static iternextfunc map_before, zip_before;

/* The arguments are not used: the content of the frame that is entered will be replaced. */
static PyObject *map_next(PyObject *self)
{
    PyObject *how = announced ? take_step(self) : NULL;
    if (how == NULL)
        return map_before(self);
    Py_ssize_t count = PyTuple_GET_SIZE(how) == 2 ? PyLong_AsSsize_t(PyTuple_GET_ITEM(how, 1)) : -1;
    PyObject *nones = count < 0 ? NULL : PyTuple_New(count), *result = NULL;
    for (Py_ssize_t i = 0; nones != NULL && i < count; i++)
        PyTuple_SET_ITEM(nones, i, Py_NewRef(Py_None));
    if (nones != NULL)
        result = PyObject_Call(PyTuple_GET_ITEM(how, 0), nones, NULL);
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "no step of a map");
    Py_XDECREF(nones);
    Py_DECREF(how);
    return result;
}

typedef struct {
    PyObject ob_base;
    Py_ssize_t size;
    PyObject *sources, *result;
    int strict;
} Zip; /* Python/bltinmodule.c, zipobject */

/* A `zip` that asks a source. */
typedef struct Asking {
    Zip *zip;
    PyObject *items;  /* a tuple, filled up to … */
    Py_ssize_t count; /* … here: the index of the source that is asked */
    struct Asking *below, *above;
} Asking;
static Asking *asking;

/* Does an iterator of this type run no Python code? */
static int is_plain_iterator(PyTypeObject *type)
{
    return type == &PyListIter_Type || type == &PyTupleIter_Type || type == &PyRangeIter_Type || type == &PyUnicodeIter_Type
           || type == &PyDictIterKey_Type || type == &PyDictIterValue_Type || type == &PyDictIterItem_Type || type == &PySetIter_Type
           || type == &PyBytesIter_Type || type == &PyLongRangeIter_Type;
}

static int asks_first_only(Zip *zip)
{
    for (Py_ssize_t i = 1; i < zip->size; i++)
        if (!is_plain_iterator(Py_TYPE(PyTuple_GET_ITEM(zip->sources, i))))
            return 0;
    return 1;
}

static PyObject *zip_next(PyObject *self)
{
    Zip *zip = (Zip *)self;
    PyObject *how = announced ? take_step(self) : NULL;
    if (how == NULL && (zip->strict || asks_first_only(zip)))
        return zip_before(self);
    Asking *mine = PyMem_Malloc(sizeof(Asking));
    PyObject *items = PyTuple_New(zip->size);
    Py_ssize_t has = how ? Py_MIN(PyTuple_GET_SIZE(how), zip->size) : 0;
    if (mine == NULL || items == NULL) {
        PyMem_Free(mine);
        Py_XDECREF(items);
        Py_XDECREF(how);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < has; i++)
        PyTuple_SET_ITEM(items, i, Py_NewRef(PyTuple_GET_ITEM(how, i)));
    Py_XDECREF(how);
    *mine = (Asking){zip, items, has, asking, NULL};
    if (asking != NULL)
        asking->above = mine;
    asking = mine;
    for (; mine->count < zip->size; mine->count++) {
        PyObject *source = PyTuple_GET_ITEM(zip->sources, mine->count), *item = (*Py_TYPE(source)->tp_iternext)(source);
        if (item == NULL)
            break;
        PyTuple_SET_ITEM(items, mine->count, item);
    }
    if (mine->above != NULL)
        mine->above->below = mine->below;
    else
        asking = mine->below;
    if (mine->below != NULL)
        mine->below->above = mine->above;
    int is_whole = mine->count == zip->size;
    PyMem_Free(mine);
    if (!is_whole)
        Py_CLEAR(items);
    return items;
}

PyDoc_STRVAR(zip_taken_doc,
"zip_taken(zip, /) -> tuple or None\n\nThe items of its first sources that a zip has while it asks the next one.  None: it asks none, or\n"
"only the first one can run Python code.  LookupError: several threads ask it.");
static PyObject *zip_taken(PyObject *module, PyObject *zip)
{
    Asking *found = NULL;
    for (Asking *each = asking; each != NULL; each = each->below) {
        if ((PyObject *)each->zip != zip)
            continue;
        if (found != NULL) {
            PyErr_SetString(PyExc_LookupError, "several threads ask this zip");
            return NULL;
        }
        found = each;
    }
    if (found == NULL)
        Py_RETURN_NONE;
    PyObject *taken = PyTuple_New(found->count);
    for (Py_ssize_t i = 0; taken != NULL && i < found->count; i++)
        PyTuple_SET_ITEM(taken, i, Py_NewRef(PyTuple_GET_ITEM(found->items, i)));
    return taken;
}

/* Is a zip what this file takes it for? */
static int zip_fits(void)
{
    PyObject *both = PyObject_CallFunction((PyObject *)&PyZip_Type, "()()");
    Zip *zip = (Zip *)both;
    int fits = both != NULL && PyZip_Type.tp_basicsize == sizeof(Zip) && zip->size == 2 && PyTuple_CheckExact(zip->sources)
               && PyTuple_GET_SIZE(zip->sources) == 2 && PyTuple_CheckExact(zip->result) && zip->strict == 0;
    Py_XDECREF(both);
    PyErr_Clear();
    return fits;
}

PyDoc_STRVAR(follow_iterators_doc,
"follow_iterators()\n\nFrom now on, zip_taken() tells what a zip has, and a Pending can be announced.  What map and zip do does not change.");
static PyObject *follow_iterators(PyObject *module, PyObject *unused)
{
    if (map_before != NULL || !frames_fit)
        Py_RETURN_NONE;
    map_before = PyMap_Type.tp_iternext;
    PyMap_Type.tp_iternext = map_next;
    if (zip_fits()) {
        zip_before = PyZip_Type.tp_iternext;
        PyZip_Type.tp_iternext = zip_next;
    }
    Py_RETURN_NONE;
}

PyMethodDef iterator_functions[] = {
    {"follow_iterators", follow_iterators, METH_NOARGS, follow_iterators_doc},
    {"zip_taken", zip_taken, METH_O, zip_taken_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
