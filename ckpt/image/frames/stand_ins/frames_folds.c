/* Functions of the interpreter that take items from an iterator and keep what they have so far in variables of C: sum, min, max,
 * functools.reduce, sorted, list.sort and the functions of heapq with a key or with comparisons in Python, and the types dict,
 * frozenset, bytes and bytearray called with an iterator.
 *
 * Loops of this module are put into the place of these functions (frames_followed.c), in the very objects that the program calls.
 * Such a loop does what the interpreter's does, with the same results and errors, and keeps its state in a Fold, which a capture
 * finds by the frame that has made the call. In another process the call is repeated with a copy of the Fold in the place of the
 * callable: it goes on with the state. Calls that run no Python code from inside (a list without a key) go to the interpreter's own
 * function.
 *
 * States of a Fold: NEXT, it asks its iterator; CALLS, it calls its function; COMPARES, it compares two objects; BUSY, it adds,
 * hashes, releases: what Python code does then is not known, and no image is taken.
 *
 * A Fold is no item of the collector of garbage, as variables of C are none, and none is made that the program could see.
 */
#include "folds.h"

#if FRAMES_SUPPORTED

#include <math.h>
#include <stddef.h>
#include <structmember.h>

PyTypeObject FoldType;
static Fold *running;
PyObject *followed[KINDS];

/* ------------------------------------------------------------------ the loops */

/* Takes the reference to item. */
static int add_object(Fold *self, PyObject *item)
{
    PyObject *sum = PyNumber_Add(self->result, item);
    Py_DECREF(self->result);
    Py_DECREF(item);
    self->result = sum;
    return sum == NULL ? -1 : 0;
}

static void add_double(Fold *self, double x)
{
    double sum = self->real + x;
    if (SUM_IS_COMPENSATED) /* Neumaier's algorithm, as in builtin_sum_impl() */
        self->lost += fabs(self->real) >= fabs(x) ? (self->real - sum) + x : (x - sum) + self->real;
    self->real = sum;
}

static PyObject *total(Fold *self)
{
    if (self->mode == WHOLE)
        return PyLong_FromLong(self->whole);
    if (self->mode == REAL)
        return PyFloat_FromDouble(self->lost && isfinite(self->lost) ? self->real + self->lost : self->real);
    return Py_NewRef(self->result);
}

static PyObject *run_sum(Fold *self)
{
    PyObject *item;
    long value;
    while ((item = fold_next_item(self)) != NULL) {
        if (self->mode == WHOLE && (PyLong_CheckExact(item) || PyBool_Check(item)) && as_long(item, &value)
            && (self->whole >= 0 ? value <= LONG_MAX - self->whole : value >= LONG_MIN - self->whole)) {
            self->whole += value;
            Py_DECREF(item);
            continue;
        }
        if (self->mode == REAL && PyFloat_CheckExact(item)) {
            add_double(self, PyFloat_AS_DOUBLE(item));
            Py_DECREF(item);
            continue;
        }
        if (self->mode == REAL && PyLong_Check(item) && as_long(item, &value)) {
            self->real += (double)value;
            Py_DECREF(item);
            continue;
        }
        if (self->mode != ANY && (self->result = total(self)) == NULL) {
            Py_DECREF(item);
            return NULL;
        }
        int was = self->mode;
        self->mode = ANY;
        if (add_object(self, item) < 0)
            return NULL;
        if (was == WHOLE && PyFloat_CheckExact(self->result)) {
            self->mode = REAL;
            self->real = PyFloat_AS_DOUBLE(self->result);
            self->lost = 0.0;
            Py_CLEAR(self->result);
        }
    }
    return PyErr_Occurred() ? NULL : total(self);
}

/* The next item: the one whose call is made again, or one from the iterator. */
static PyObject *item_to_call_with(Fold *self)
{
    PyObject *item = self->item;
    self->item = NULL;
    return item != NULL ? item : fold_next_item(self);
}

/* The key of an item: a new reference. */
static PyObject *key_of(Fold *self, PyObject *item)
{
    if (self->function == NULL)
        return Py_NewRef(item);
    self->item = Py_NewRef(item);
    self->phase = CALLS;
    PyObject *value = PyObject_CallOneArg(self->function, item);
    self->phase = BUSY;
    Py_CLEAR(self->item);
    return value;
}

static PyObject *run_extreme(Fold *self)
{
    PyObject *item;
    while ((item = item_to_call_with(self)) != NULL) {
        PyObject *value = self->second; /* of a comparison that is made again */
        self->second = NULL;
        if (value == NULL && (value = key_of(self, item)) == NULL) {
            Py_DECREF(item);
            return NULL;
        }
        int replaces = 1;
        if (self->value != NULL) {
            self->item = item;
            self->second = value;
            self->phase = COMPARES;
            replaces = PyObject_RichCompareBool(value, self->value, self->kind == MAX ? Py_GT : Py_LT);
            self->phase = BUSY;
            self->item = self->second = NULL;
        }
        if (replaces > 0) {
            Py_XSETREF(self->value, value);
            Py_XSETREF(self->result, item);
        } else {
            Py_DECREF(item);
            Py_DECREF(value);
        }
        if (replaces < 0)
            return NULL;
    }
    if (PyErr_Occurred())
        return NULL;
    if (self->result != NULL)
        return Py_NewRef(self->result);
    if (self->otherwise != NULL)
        return Py_NewRef(self->otherwise);
    PyObject *empty = PyTuple_New(0); /* for the message of the interpreter */
    PyObject *nothing = empty ? PyObject_CallOneArg(followed[self->kind], empty) : NULL;
    Py_XDECREF(empty);
    return nothing;
}

static PyObject *run_reduce(Fold *self)
{
    PyObject *item;
    while ((item = item_to_call_with(self)) != NULL) {
        if (self->result == NULL) {
            self->result = item;
            continue;
        }
        Py_CLEAR(self->first);
        Py_CLEAR(self->second);
        self->item = item;
        self->phase = CALLS;
        PyObject *args[] = {self->result, item};
        PyObject *result = PyObject_Vectorcall(self->function, args, 2, NULL);
        self->phase = BUSY;
        self->item = NULL;
        self->first = self->result;
        self->second = item;
        self->result = result;
        if (result == NULL)
            return NULL;
    }
    if (PyErr_Occurred())
        return NULL;
    if (self->result != NULL)
        return Py_NewRef(self->result);
    PyErr_SetString(PyExc_TypeError, "reduce() of empty iterable with no initial value");
    return NULL;
}

/* ------------------------------------------------------------------ the object */

enum { FIELDS = 7 };
static const size_t offsets[FIELDS] = {
    offsetof(Fold, function), offsetof(Fold, otherwise), offsetof(Fold, result), offsetof(Fold, value),
    offsetof(Fold, item), offsetof(Fold, first), offsetof(Fold, second),
};

static PyObject **fields(Fold *self, int i) { return (PyObject **)((char *)self + offsets[i]); }

static Fold *spare; /* of the last call, for the next one: one of heapq's takes as long as some comparisons */

Fold *fold_make(int kind)
{
    Fold *self = spare != NULL ? spare : PyObject_New(Fold, &FoldType);
    if (self == spare && self != NULL) {
        spare = NULL;
        PyObject_Init((PyObject *)self, &FoldType);
    }
    if (self != NULL)
        memset((char *)self + sizeof(PyObject), 0, sizeof(Fold) - sizeof(PyObject));
    if (self != NULL)
        self->kind = kind;
    return self;
}

static void fold_dealloc(PyObject *object)
{
    Fold *self = (Fold *)object;
    if (self->sorting != NULL)
        sorting_end(self);
    for (int i = 0; i < FIELDS; i++)
        Py_CLEAR(*fields(self, i));
    Py_CLEAR(self->iterator);
    if (spare == NULL)
        spare = self;
    else
        PyObject_Free(self);
}

/* Run the loop over an iterator, to which it takes the reference. */
static PyObject *fold_run(Fold *self, PyObject *iterator)
{
    PyObject *result;
    self->iterator = iterator;
    self->frame = thread_current_frame(PyThreadState_Get());
    self->below = running;
    self->above = NULL;
    if (running != NULL)
        running->above = self;
    running = self;
    switch (self->kind) {
    case SUM: result = run_sum(self); break;
    case SORTED: case SORT: result = run_sorted(self); break;
    case CALLBACK: result = run_callback(self); break;
    case SOLVER: result = run_solver(self); break;
    case HEAPPUSH: case HEAPPOP: case HEAPREPLACE: case HEAPPUSHPOP: case HEAPIFY: result = run_heap(self); break;
    case REDUCE: result = run_reduce(self); break;
    case MIN: case MAX: result = run_extreme(self); break;
    default: result = run_container(self); /* frames_containers.c */
    }
    if (self->above != NULL)
        self->above->below = self->below;
    else
        running = self->below;
    if (self->below != NULL)
        self->below->above = self->above;
    self->phase = BUSY;
    return result;
}

/* The same of one that has just been made. What it holds is released as the interpreter's function does: the iterator first. */
PyObject *fold_run_once(Fold *self, PyObject *iterator)
{
    PyObject *result = fold_run(self, iterator);
    Py_CLEAR(self->iterator);
    Py_DECREF(self);
    return result;
}

static PyObject *fold_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int kind, mode;
    long whole;
    double real, lost;
    HeapPlace heap;
    PyObject *given[FIELDS];
    if (!PyArg_ParseTuple(args, "iildd(nnnn)OOOOOOO:Fold", &kind, &mode, &whole, &real, &lost, &heap.size, &heap.start, &heap.place,
                          &heap.row, &given[0], &given[1], &given[2], &given[3], &given[4], &given[5], &given[6]))
        return NULL;
    if (kind < 0 || kind >= KINDS || mode < 0 || mode > ANY)
        return PyErr_Format(PyExc_ValueError, "no such fold: %d, %d", kind, mode);
    Fold *self = fold_make(kind);
    if (self == NULL)
        return NULL;
    self->mode = mode;
    self->whole = whole;
    self->real = real;
    self->lost = lost;
    self->heap = heap;
    for (int i = 0; i < FIELDS; i++)
        if (given[i] != null_object)
            *fields(self, i) = Py_NewRef(given[i]);
    return (PyObject *)self;
}

static PyObject *fold_reduce(PyObject *object, PyObject *unused)
{
    Fold *self = (Fold *)object;
    PyObject *given[FIELDS], *made = NULL;
    for (int i = 0; i < FIELDS; i++)
        given[i] = Py_NewRef(*fields(self, i) ? *fields(self, i) : null_object);
    int failed = 0;
    if (self->sorting != NULL) {
        for (int i = 1; i < 4; i++)
            Py_CLEAR(given[i]);
        failed = sorting_traits(self, given) < 0;
    }
    if (!failed)
        made = Py_BuildValue("O(iildd(nnnn)OOOOOOO)", Py_TYPE(self), self->kind, self->mode, self->whole, self->real, self->lost,
                             self->heap.size, self->heap.start, self->heap.place, self->heap.row, given[0], given[1], given[2],
                             given[3], given[4], given[5], given[6]);
    for (int i = 0; i < FIELDS; i++)
        Py_XDECREF(given[i]);
    return made;
}

static PyObject *fold_state(PyObject *object, PyObject *unused)
{
    Fold *self = (Fold *)object;
    PyObject *null = null_object, *callable = followed[self->kind];
    int is_recorded = self->kind == CALLBACK || self->kind == SOLVER;
    if (is_recorded && self->otherwise != NULL && PyTuple_Check(self->otherwise) && PyTuple_GET_SIZE(self->otherwise) > 0)
        callable = PyTuple_GET_ITEM(self->otherwise, 0);
    return Py_BuildValue("OiOOO", callable ? callable : null, self->mode == LOST && is_recorded ? BUSY : self->phase,
                         self->iterator ? self->iterator : null, self->function ? self->function : null, self->item ? self->item : null);
}

/* The first object of a comparison, in COMPARES; NULL without an exception: none is made. A new reference. */
static PyObject *compared(Fold *self, int side)
{
    if (self->phase != COMPARES)
        return NULL;
    if (self->sorting != NULL)
        return sorting_compared(self, side);
    return Py_XNewRef(side ? self->value : self->second);
}

static PyObject *fold_comparison(PyObject *object, PyObject *unused)
{
    Fold *self = (Fold *)object;
    PyObject *left = compared(self, 0), *right = compared(self, 1), *both = Py_None;
    if (left != NULL && right != NULL)
        both = Py_BuildValue("OOs", left, right, self->kind == MAX ? "__gt__" : "__lt__");
    else
        Py_INCREF(both);
    Py_XDECREF(left);
    Py_XDECREF(right);
    return both;
}

static PyObject *fold_call(PyObject *object, PyObject *args, PyObject *keywords)
{
    Fold *self = (Fold *)object;
    if (PyTuple_GET_SIZE(args) < 1 || !PyIter_Check(PyTuple_GET_ITEM(args, 0)) || self->iterator != NULL)
        return PyErr_Format(PyExc_TypeError, "a fold is called once, with an iterator");
    return fold_run(self, Py_NewRef(PyTuple_GET_ITEM(args, 0)));
}

static PyMethodDef fold_methods[] = {
    {"__reduce__", fold_reduce, METH_NOARGS, "its class and state"},
    {"comparison", fold_comparison, METH_NOARGS, "(left, right, method), of the comparison that is being made; None: it makes none"},
    {"state", fold_state, METH_NOARGS,
     "(callable, phase, iterator, function, item); phase: 1, it asks the iterator; 2, it calls the function; 3, it compares"},
    {NULL, NULL, 0, NULL},
};

PyTypeObject FoldType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.image.frames._frames.Fold",
    .tp_basicsize = sizeof(Fold),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A call of sum and its like that has taken some of its items. Called with the iterator, and with any other arguments, it\n"
              "goes on.",
    .tp_new = fold_new,
    .tp_dealloc = fold_dealloc,
    .tp_call = fold_call,
    .tp_methods = fold_methods,
};

PyDoc_STRVAR(folds_of_doc,
"folds_of(address, /) -> list\n\nThe Folds that C code runs which this frame, listed by walk(), has called; innermost first.");
static PyObject *folds_of(PyObject *module, PyObject *address)
{
    Frame *f = PyLong_AsVoidPtr(address);
    PyObject *found = PyErr_Occurred() ? NULL : PyList_New(0);
    for (Fold *fold = running; found != NULL && fold != NULL; fold = fold->below)
        if (fold->frame == f && PyList_Append(found, (PyObject *)fold) < 0)
            Py_CLEAR(found);
    return found;
}

PyMethodDef fold_functions[] = {
    {"folds_of", folds_of, METH_O, folds_of_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
