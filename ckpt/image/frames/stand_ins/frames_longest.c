/* `itertools.zip_longest`, which has items of its first sources in a variable of C while it asks the next one, as `zip` has
 * (frames_iterators.c). Besides, it forgets sources that have ended, in the tuple in which it has them: nobody else may look into
 * that tuple.
 *
 * follow_longest() puts a function of this module into its place, which does the same. A capture learns from longest_state() what
 * the iterator has. A step of a Pending, (zip_longest, (items, ended)), says with which items it begins, and which of the sources
 * that have given them have ended: these are not asked any more.
 */
#include "sources.h"

#if FRAMES_SUPPORTED

typedef struct {
    PyObject ob_base;
    Py_ssize_t size, active;
    PyObject *sources, *result, *filling;
} Longest; /* Modules/itertoolsmodule.c, ziplongestobject */

/* One that asks a source. On the heap: what switches between stacks of C moves the content of a stack. */
typedef struct Asking {
    Longest *zip;
    PyObject *items;  /* a tuple, filled up to … */
    Py_ssize_t count; /* … here: the index of the source that is asked */
    struct Asking *below, *above;
} Asking;
static Asking *asking;
static iternextfunc longest_before;
static PyTypeObject *longest_type;

static Asking *asking_push(Longest *zip, PyObject *items)
{
    Asking *mine = PyMem_Malloc(sizeof(Asking));
    if (mine == NULL)
        return NULL;
    *mine = (Asking){.zip = zip, .items = items, .below = asking};
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
    PyMem_Free(mine);
}

/* Does no source run Python code? */
static int all_plain(Longest *zip)
{
    for (Py_ssize_t i = 0; i < zip->size; i++) {
        PyObject *source = PyTuple_GET_ITEM(zip->sources, i);
        if (source != NULL && !is_plain_iterator(Py_TYPE(source)))
            return 0;
    }
    return 1;
}

/* The item of a source, or what fills its place; NULL: the iteration is over, or has failed. A new reference. */
static PyObject *item_of_source(Longest *zip, Py_ssize_t at)
{
    PyObject *source = PyTuple_GET_ITEM(zip->sources, at);
    PyObject *item = source ? (*Py_TYPE(source)->tp_iternext)(source) : NULL;
    if (item != NULL)
        return item;
    if (source != NULL) {
        const int failed = is_failure();
        zip->active--;
        if (zip->active == 0 || failed) {
            zip->active = 0;
            return NULL;
        }
        PyTuple_SET_ITEM(zip->sources, at, NULL);
        Py_DECREF(source);
    }
    return Py_NewRef(zip->filling);
}

static void forget_sources(Longest *zip, PyObject *ended)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ended); i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(ended, i));
        PyObject *source = at >= 0 && at < zip->size ? PyTuple_GET_ITEM(zip->sources, at) : NULL;
        if (source != NULL) {
            PyTuple_SET_ITEM(zip->sources, at, NULL);
            zip->active--;
            Py_DECREF(source);
        }
    }
    PyErr_Clear();
}

/* given: items that have been taken already, or NULL */
static PyObject *longest_ask(Longest *zip, PyObject *given)
{
    PyObject *items = tuple_again(zip->result, zip->size);
    Asking *mine = items ? asking_push(zip, items) : NULL;
    if (mine == NULL) {
        Py_XDECREF(items);
        return PyErr_NoMemory();
    }
    const Py_ssize_t size = zip->size, has = given ? Py_MIN(PyTuple_GET_SIZE(given), size) : 0;
    Py_ssize_t at = 0;
    for (; at < size; at++) {
        PyObject *item = at < has ? Py_NewRef(PyTuple_GET_ITEM(given, at)) : item_of_source(zip, at);
        if (item == NULL)
            break;
        PyObject *before = PyTuple_GET_ITEM(items, at);
        PyTuple_SET_ITEM(items, at, item);
        mine->count = at + 1;
        Py_XDECREF(before);
    }
    asking_remove(mine);
    if (at < size)
        Py_CLEAR(items);
    return items;
}

static PyObject *longest_next(PyObject *self)
{
    Longest *zip = (Longest *)self;
    PyObject *how = pending_step(self), *given, *ended, *items;
    if (how == NULL)
        return zip->active == 0 || all_plain(zip) ? longest_before(self) : longest_ask(zip, NULL);
    if (!PyArg_ParseTuple(how, "O!O!", &PyTuple_Type, &given, &PyTuple_Type, &ended)) {
        Py_DECREF(how);
        return NULL;
    }
    forget_sources(zip, ended);
    items = longest_ask(zip, given);
    Py_DECREF(how);
    return items;
}

PyDoc_STRVAR(longest_state_doc,
"longest_state(zip_longest, /) -> (tuple, tuple or None) or None\n\nIts sources, NULL in the place of one that has ended, and the\n"
"items that it has while it asks one of them; None: it asks none, or none of them can run Python code.  None alone: its state is\n"
"not known.  LookupError: several threads ask it.");
static PyObject *longest_state(PyObject *module, PyObject *object)
{
    Longest *zip = (Longest *)object;
    Asking *found = NULL;
    if (longest_before == NULL || Py_TYPE(object) != longest_type)
        Py_RETURN_NONE;
    for (Asking *each = asking; each != NULL; each = each->below) {
        if (each->zip != zip)
            continue;
        if (found != NULL)
            return PyErr_Format(PyExc_LookupError, "several threads ask this zip_longest");
        found = each;
    }
    PyObject *sources = PyTuple_New(zip->size), *taken = found ? PyTuple_New(found->count) : Py_NewRef(Py_None);
    for (Py_ssize_t i = 0; sources != NULL && i < zip->size; i++) {
        PyObject *source = PyTuple_GET_ITEM(zip->sources, i);
        PyTuple_SET_ITEM(sources, i, Py_NewRef(source ? source : null_object));
    }
    for (Py_ssize_t i = 0; taken != NULL && found != NULL && i < found->count; i++)
        PyTuple_SET_ITEM(taken, i, Py_NewRef(PyTuple_GET_ITEM(found->items, i)));
    PyObject *both = sources && taken ? PyTuple_Pack(2, sources, taken) : NULL;
    Py_XDECREF(sources);
    Py_XDECREF(taken);
    return both;
}

/* Is a zip_longest what this file takes it for? */
static int longest_fits(PyTypeObject *type)
{
    PyObject *both = PyObject_CallFunction((PyObject *)type, "()()");
    Longest *zip = (Longest *)both;
    int fits = both != NULL && type->tp_basicsize == sizeof(Longest) && zip->size == 2 && zip->active == 2
               && PyTuple_CheckExact(zip->sources) && PyTuple_GET_SIZE(zip->sources) == 2 && PyTuple_CheckExact(zip->result)
               && zip->filling == Py_None;
    Py_XDECREF(both);
    PyErr_Clear();
    return fits;
}

PyDoc_STRVAR(follow_longest_doc,
"follow_longest(zip_longest, /)\n\n"
"From now on, longest_state() tells what an object of this type has, and a Pending can be announced.  What it does does not change.");
static PyObject *follow_longest(PyObject *module, PyObject *type)
{
    if (PyType_Check(type) && longest_before == NULL && frames_fit && longest_fits((PyTypeObject *)type)) {
        longest_type = (PyTypeObject *)Py_NewRef(type);
        longest_before = longest_type->tp_iternext;
        longest_type->tp_iternext = longest_next;
    }
    Py_RETURN_NONE;
}

PyMethodDef longest_functions[] = {
    {"follow_longest", follow_longest, METH_O, follow_longest_doc},
    {"longest_state", longest_state, METH_O, longest_state_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
