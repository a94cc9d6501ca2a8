/* Iterators of the interpreter that are asked for an item again: `map`, `starmap`, `accumulate`, and `zip`, which has items of its
 * first sources in a variable of C while it asks the next one.
 *
 * follow_iterators() puts functions of this module into the place of the interpreter's. They do the same; a capture learns from
 * zip_taken() what a `zip` has. A Pending says where they go on: the next time that this very iterator is asked for an item, it
 * calls its function without asking its sources, or begins with the items that it has. rebuild_frame() announces a Pending
 * (frames_rebuild.c) just before it has an instruction repeated, which asks the iterator before anything else.
 */
#include "sources.h"

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
PyObject *pending_step(PyObject *iterator)
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
    {"steps", T_OBJECT, offsetof(Pending, steps), READONLY, "[(map and its like, (function, number of arguments)) or (zip, (item, …)), …]"},
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

static iternextfunc map_before, zip_before, starmap_before, accumulate_before;

/* Call the function of a step; takes the reference. The arguments are not used: the content of the frame that is entered will be
 * replaced. */
static PyObject *call_of_step(PyObject *how)
{
    Py_ssize_t count = PyTuple_GET_SIZE(how) == 2 ? PyLong_AsSsize_t(PyTuple_GET_ITEM(how, 1)) : -1;
    PyObject *nones = count < 0 ? NULL : PyTuple_New(count), *result = NULL;
    for (Py_ssize_t i = 0; nones != NULL && i < count; i++)
        PyTuple_SET_ITEM(nones, i, Py_NewRef(Py_None));
    if (nones != NULL)
        result = PyObject_Call(PyTuple_GET_ITEM(how, 0), nones, NULL);
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "this step has no function");
    Py_XDECREF(nones);
    Py_DECREF(how);
    return result;
}

static PyObject *map_next(PyObject *self)
{
    PyObject *how = pending_step(self);
    return how == NULL ? map_before(self) : call_of_step(how);
}

static PyObject *starmap_next(PyObject *self)
{
    PyObject *how = pending_step(self);
    return how == NULL ? starmap_before(self) : call_of_step(how);
}

typedef struct {
    PyObject ob_base;
    PyObject *total, *iterator, *function;
} Accumulate; /* Modules/itertoolsmodule.c, accumulateobject */

static PyObject *accumulate_next(PyObject *self)
{
    PyObject *how = pending_step(self);
    if (how == NULL)
        return accumulate_before(self);
    PyObject *total = call_of_step(how);
    if (total != NULL)
        Py_XSETREF(((Accumulate *)self)->total, Py_NewRef(total));
    return total;
}

PyDoc_STRVAR(accumulate_parts_doc,
"accumulate_parts(accumulate, /) -> tuple or None\n\nIts iterator and its function, or NULL. None: they are not known.");
static PyObject *accumulate_parts(PyObject *module, PyObject *object)
{
    Accumulate *self = (Accumulate *)object;
    if (accumulate_before == NULL || Py_TYPE(object)->tp_iternext != accumulate_next)
        Py_RETURN_NONE;
    return Py_BuildValue("OO", self->iterator, self->function ? self->function : null_object);
}

/* Is an accumulate what this file takes it for? */
static int accumulate_fits(PyTypeObject *type)
{
    if (type->tp_basicsize < (Py_ssize_t)sizeof(Accumulate))
        return 0;
    PyObject *some = Py_BuildValue("[s]", "first"), *iterator = some ? PyObject_GetIter(some) : NULL;
    PyObject *made = iterator ? PyObject_CallFunctionObjArgs((PyObject *)type, iterator, (PyObject *)type, NULL) : NULL;
    Accumulate *self = (Accumulate *)made;
    int fits = made != NULL && self->total == NULL && self->iterator == iterator && self->function == (PyObject *)type;
    PyObject *item = fits ? PyIter_Next(made) : NULL;
    fits = fits && item != NULL && self->total == item;
    Py_XDECREF(item);
    Py_XDECREF(made);
    Py_XDECREF(iterator);
    Py_XDECREF(some);
    PyErr_Clear();
    return fits;
}

typedef struct {
    PyObject ob_base;
    Py_ssize_t size;
    PyObject *sources, *result;
    int strict;
} Zip; /* Python/bltinmodule.c, zipobject */

/* A `zip` that asks a source. On the heap: what switches between stacks of C moves the content of a stack. */
typedef struct Asking {
    Zip *zip;
    PyObject *items;  /* a tuple, filled up to … */
    Py_ssize_t count; /* … here: the index of the source that is asked; ENDS: it has its last item, and looks for longer sources */
    struct Asking *below, *above;
} Asking;
enum { ENDS = -1 };
static Asking *asking, *spare;

static Asking *asking_push(Zip *zip, PyObject *items)
{
    Asking *mine = spare != NULL ? spare : PyMem_Malloc(sizeof(Asking));
    if (mine == NULL)
        return NULL;
    spare = NULL;
    mine->zip = zip;
    mine->items = items;
    mine->count = 0;
    mine->below = asking;
    mine->above = NULL;
    if (asking != NULL)
        asking->above = mine;
    return asking = mine;
}

static void asking_remove(Asking *mine)
{
    if (mine->above != NULL)
        mine->above->below = mine->below;
    else
        asking = mine->below;
    if (mine->below != NULL)
        mine->below->above = mine->above;
    if (spare == NULL)
        spare = mine;
    else
        PyMem_Free(mine);
}

static int asks_first_only(Zip *zip)
{
    for (Py_ssize_t i = 1; i < zip->size; i++) {
        PyTypeObject *type = Py_TYPE(PyTuple_GET_ITEM(zip->sources, i));
        if (type == &PyGen_Type || !is_plain_iterator(type))
            return 0;
    }
    return 1;
}

static void raise_length(Py_ssize_t source, const char *difference)
{
    PyErr_Format(PyExc_ValueError, "zip() argument %zd is %s than argument%s%zd", source + 1, difference,
                 source == 1 ? " " : "s 1-", source);
}

/* A source of a strict zip has no more items: nor may the others. */
static void zip_end(Asking *mine, Py_ssize_t ended)
{
    mine->count = ENDS;
    if (is_failure())
        return;
    if (ended > 0) {
        raise_length(ended, "shorter");
        return;
    }
    for (Py_ssize_t i = 1; i < mine->zip->size; i++) {
        PyObject *source = PyTuple_GET_ITEM(mine->zip->sources, i), *item = (*Py_TYPE(source)->tp_iternext)(source);
        if (item != NULL) {
            Py_DECREF(item);
            raise_length(i, "longer");
            return;
        }
        if (is_failure())
            return;
    }
}

/* how: items that have been taken already, or NULL; takes the reference. */
static PyObject *zip_ask(Zip *zip, PyObject *how)
{
    PyObject *items = tuple_again(zip->result, zip->size);
    Asking *mine = items ? asking_push(zip, items) : NULL;
    if (mine == NULL) {
        Py_XDECREF(items);
        Py_XDECREF(how);
        return PyErr_NoMemory();
    }
    const Py_ssize_t size = zip->size, has = how ? Py_MIN(PyTuple_GET_SIZE(how), size) : 0;
    Py_ssize_t at = 0;
    for (; at < size; at++) {
        PyObject *source = PyTuple_GET_ITEM(zip->sources, at);
        PyObject *item = at < has ? Py_NewRef(PyTuple_GET_ITEM(how, at)) : (*Py_TYPE(source)->tp_iternext)(source);
        if (item == NULL)
            break;
        PyObject *before = PyTuple_GET_ITEM(items, at);
        PyTuple_SET_ITEM(items, at, item);
        mine->count = at + 1;
        Py_XDECREF(before);
    }
    if (at < size && zip->strict)
        zip_end(mine, at);
    asking_remove(mine);
    Py_XDECREF(how);
    if (at < size)
        Py_CLEAR(items);
    return items;
}

static PyObject *zip_next(PyObject *self)
{
    Zip *zip = (Zip *)self;
    PyObject *how = pending_step(self);
    return how == NULL && asks_first_only(zip) ? zip_before(self) : zip_ask(zip, how);
}

PyDoc_STRVAR(zip_taken_doc,
"zip_taken(zip, /) -> tuple or None\n\nThe items of its first sources that a zip has while it asks the next one.  None: it asks none, or\n"
"only the first one can run Python code.  LookupError: several threads ask it, or it is strict and looks for longer sources.");
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
    if (found->count == ENDS) {
        PyErr_SetString(PyExc_LookupError, "this zip has ended");
        return NULL;
    }
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
"follow_iterators(starmap, accumulate, /)\n\n"
"From now on, zip_taken() tells what a zip has, and a Pending can be announced.  What map, zip and these do does not change.");
static PyObject *follow_iterators(PyObject *module, PyObject *args)
{
    PyTypeObject *starmap, *accumulate;
    if (!PyArg_ParseTuple(args, "O!O!:follow_iterators", &PyType_Type, &starmap, &PyType_Type, &accumulate))
        return NULL;
    if (map_before != NULL || !frames_fit)
        Py_RETURN_NONE;
    map_before = PyMap_Type.tp_iternext;
    PyMap_Type.tp_iternext = map_next;
    starmap_before = starmap->tp_iternext;
    starmap->tp_iternext = starmap_next;
    if (zip_fits()) {
        zip_before = PyZip_Type.tp_iternext;
        PyZip_Type.tp_iternext = zip_next;
    }
    if (accumulate_fits(accumulate)) {
        accumulate_before = accumulate->tp_iternext;
        accumulate->tp_iternext = accumulate_next;
    }
    Py_RETURN_NONE;
}

PyMethodDef iterator_functions[] = {
    {"accumulate_parts", accumulate_parts, METH_O, accumulate_parts_doc},
    {"follow_iterators", follow_iterators, METH_VARARGS, follow_iterators_doc},
    {"zip_taken", zip_taken, METH_O, zip_taken_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
