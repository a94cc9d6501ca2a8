/* Loops of frames_folds.c in the place of heapq's functions, where items compare in Python (`__lt__`): heappush, heappop,
 * heapreplace, heappushpop, heapify.
 *
 * A heap is always a whole list: what the interpreter's functions keep to themselves is the place in it that they have come to,
 * and the item that they will return. Here both are in the Fold, with the two items that are being compared. In another process
 * that comparison is made again, and the loop goes on. Items are compared in the order in which the interpreter compares them, and
 * errors leave the same heap. Other calls (numbers, tuples, errors to report) go to the interpreter's own functions.
 *
 * `mode`: LIFTS, the smaller child moves up, until a leaf is free; LOWERS, the item there moves up to its place; ASKS, heappushpop
 * asks whether the first item is smaller. `result`: the heap; `first`: what is returned; `item`: of heappushpop; `second`, `value`:
 * what is compared; `whole`: the number of items when heapify began.
 */
#include "folds.h"

#if FRAMES_SUPPORTED

enum { LIFTS, LOWERS, ASKS };
enum { LARGE = 2500 }; /* from more items on, heapify goes through a heap by its branches, for the processor's cache */

static PyObject *no_items; /* an iterator */

/* The item at `left` < the one at `right`; -1: self->item. */
static int is_smaller(Fold *self, Py_ssize_t left, Py_ssize_t right)
{
    if (self->second == NULL || self->value == NULL) { /* else: of a comparison that is made again */
        PyObject **items = ((PyListObject *)self->result)->ob_item;
        Py_XSETREF(self->second, Py_NewRef(items[left]));
        Py_XSETREF(self->value, Py_NewRef(right < 0 ? self->item : items[right]));
    }
    self->phase = COMPARES;
    int is = PyObject_RichCompareBool(self->second, self->value, Py_LT);
    self->phase = BUSY;
    Py_CLEAR(self->second);
    Py_CLEAR(self->value);
    return is;
}

static int has_its_size(Fold *self)
{
    if (PyList_GET_SIZE(self->result) == self->heap.size)
        return 1;
    PyErr_SetString(PyExc_RuntimeError, "list changed size during iteration");
    return 0;
}

static void exchange(Fold *self, Py_ssize_t a, Py_ssize_t b)
{
    PyObject **items = ((PyListObject *)self->result)->ob_item, *item = items[a];
    items[a] = items[b];
    items[b] = item;
}

/* One item finds its place, from the place where it is. */
static int move_item(Fold *self)
{
    while (self->mode == LIFTS && self->heap.place < self->heap.size >> 1) {
        Py_ssize_t child = 2 * self->heap.place + 1;
        if (child + 1 < self->heap.size) {
            int is = is_smaller(self, child, child + 1);
            if (is < 0 || !has_its_size(self))
                return -1;
            child += !is;
        }
        exchange(self, child, self->heap.place);
        self->heap.place = child;
    }
    self->mode = LOWERS;
    while (self->heap.place > self->heap.start) {
        Py_ssize_t parent = (self->heap.place - 1) >> 1;
        int is = is_smaller(self, self->heap.place, parent);
        if (is < 0 || !has_its_size(self))
            return -1;
        if (!is)
            break;
        exchange(self, parent, self->heap.place);
        self->heap.place = parent;
    }
    return 0;
}

static void begin_at(Fold *self, int mode, Py_ssize_t start, Py_ssize_t place)
{
    self->mode = mode;
    self->heap.size = PyList_GET_SIZE(self->result);
    self->heap.start = start;
    self->heap.place = place;
}

/* ------------------------------------------------------------------ heapify */

/* The first place of the row that is the last one whose items all have children. */
static Py_ssize_t first_of_row(Py_ssize_t parents)
{
    Py_ssize_t row = 1;
    while (2 * row <= parents + 1)
        row *= 2;
    return row - 1;
}

/* The place behind `row` from which the next branch begins; -1: none is left. */
static Py_ssize_t next_branch(Fold *self)
{
    const Py_ssize_t parents = self->whole >> 1, first = first_of_row(parents), row = self->heap.row;
    if (self->whole <= LARGE)
        return row - 1;
    if (row < first && row > parents >> 1) /* the row above: those whose children's row is whole … */
        return row - 1;
    if (row < first)
        return parents > first ? parents - 1 : -1; /* … then the row itself */
    return row > first ? row - 1 : -1;
}

static Py_ssize_t first_branch(Fold *self)
{
    const Py_ssize_t parents = self->whole >> 1, first = first_of_row(parents);
    return self->whole > LARGE && first > parents >> 1 ? first - 1 : parents - 1;
}

/* From a branch heapify goes on to its parent, if that has no other child to come. */
static int next_start(Fold *self)
{
    Py_ssize_t next = self->heap.start >> 1;
    if (self->whole <= LARGE || !(self->heap.start & 1))
        next = self->heap.row = next_branch(self);
    if (next < 0)
        return 0;
    begin_at(self, LIFTS, next, next);
    if (next < self->heap.size)
        return 1;
    PyErr_SetString(PyExc_IndexError, "index out of range");
    return -1;
}

/* ------------------------------------------------------------------ the call */

/* heappushpop: the item itself, if nothing in the heap is smaller. 1: that is what is returned. */
static int is_returned_at_once(Fold *self)
{
    PyObject *heap = self->result;
    int is = is_smaller(self, 0, -1);
    if (is < 0)
        return -1;
    if (is == 0) {
        self->first = self->item;
        self->item = NULL;
        return 1;
    }
    if (PyList_GET_SIZE(heap) == 0) {
        PyErr_SetString(PyExc_IndexError, "index out of range");
        return -1;
    }
    self->first = PyList_GET_ITEM(heap, 0);
    PyList_SET_ITEM(heap, 0, self->item);
    self->item = NULL;
    begin_at(self, LIFTS, 0, 0);
    return 0;
}

PyObject *run_heap(Fold *self)
{
    if (self->result == NULL || !PyList_Check(self->result) || (self->mode == ASKS && self->item == NULL))
        return PyErr_Format(PyExc_TypeError, "this is no state of a heap");
    int is = self->mode == ASKS ? is_returned_at_once(self) : 0;
    if (is == 0)
        is = move_item(self);
    while (is == 0 && self->kind == HEAPIFY && (is = next_start(self)) > 0)
        is = move_item(self);
    if (is < 0)
        return NULL;
    return Py_NewRef(self->first ? self->first : Py_None);
}

/* A Fold of a heap; NULL with an exception. */
static Fold *heap_fold(int kind, PyObject *heap)
{
    Fold *self = fold_make(kind);
    if (self != NULL)
        self->result = Py_NewRef(heap);
    return self;
}

static PyObject *run_now(Fold *self) { return fold_run_once(self, Py_NewRef(no_items)); }

/* ------------------------------------------------------------------ in their places */

typedef PyObject *(*TwoCall)(PyObject *, PyObject *const *, Py_ssize_t);
static PyCFunction before[HEAP_KINDS];
#define TWO_BEFORE(kind) ((TwoCall)(void (*)(void))before[kind - HEAPPUSH])

static int is_usual(PyObject *const *args, Py_ssize_t nargs)
{
    return nargs == 2 && PyList_Check(args[0]) && PyList_GET_SIZE(args[0]) > 0 && compares_in_python(args[1]);
}

static PyObject *our_heappush(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (!is_usual(args, nargs))
        return TWO_BEFORE(HEAPPUSH)(module, args, nargs);
    Fold *self = heap_fold(HEAPPUSH, args[0]);
    if (self == NULL || PyList_Append(args[0], args[1]) < 0) {
        Py_XDECREF(self);
        return NULL;
    }
    begin_at(self, LOWERS, 0, PyList_GET_SIZE(args[0]) - 1);
    return run_now(self);
}

static PyObject *our_heapreplace(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    Fold *self = is_usual(args, nargs) ? heap_fold(HEAPREPLACE, args[0]) : NULL;
    if (self == NULL)
        return PyErr_Occurred() ? NULL : TWO_BEFORE(HEAPREPLACE)(module, args, nargs);
    self->first = PyList_GET_ITEM(args[0], 0);
    PyList_SET_ITEM(args[0], 0, Py_NewRef(args[1]));
    begin_at(self, LIFTS, 0, 0);
    return run_now(self);
}

static PyObject *our_heappushpop(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    Fold *self = is_usual(args, nargs) ? heap_fold(HEAPPUSHPOP, args[0]) : NULL;
    if (self == NULL)
        return PyErr_Occurred() ? NULL : TWO_BEFORE(HEAPPUSHPOP)(module, args, nargs);
    self->item = Py_NewRef(args[1]);
    self->mode = ASKS;
    return run_now(self);
}

/* Is it a heap of several items, of which the last one compares in Python? */
static int has_comparisons(PyObject *heap)
{
    return PyList_Check(heap) && PyList_GET_SIZE(heap) > 1 && compares_in_python(PyList_GET_ITEM(heap, PyList_GET_SIZE(heap) - 1));
}

static PyObject *our_heappop(PyObject *module, PyObject *heap)
{
    if (!has_comparisons(heap))
        return before[HEAPPOP - HEAPPUSH](module, heap);
    Py_ssize_t last = PyList_GET_SIZE(heap) - 1;
    PyObject *item = Py_NewRef(PyList_GET_ITEM(heap, last));
    Fold *self = heap_fold(HEAPPOP, heap);
    if (self == NULL || PyList_SetSlice(heap, last, last + 1, NULL) < 0) {
        Py_DECREF(item);
        Py_XDECREF(self);
        return NULL;
    }
    self->first = PyList_GET_ITEM(heap, 0);
    PyList_SET_ITEM(heap, 0, item);
    begin_at(self, LIFTS, 0, 0);
    return run_now(self);
}

static PyObject *our_heapify(PyObject *module, PyObject *heap)
{
    Fold *self = has_comparisons(heap) ? heap_fold(HEAPIFY, heap) : NULL;
    if (self == NULL)
        return PyErr_Occurred() ? NULL : before[HEAPIFY - HEAPPUSH](module, heap);
    self->whole = PyList_GET_SIZE(heap);
    self->heap.row = first_branch(self);
    begin_at(self, LIFTS, self->heap.row, self->heap.row);
    return run_now(self);
}

static const struct {
    int flags;
    PyCFunction ours;
} functions[HEAP_KINDS] = {
    {METH_FASTCALL, (PyCFunction)(void (*)(void))our_heappush},
    {METH_O, our_heappop},
    {METH_FASTCALL, (PyCFunction)(void (*)(void))our_heapreplace},
    {METH_FASTCALL, (PyCFunction)(void (*)(void))our_heappushpop},
    {METH_O, our_heapify},
};

PyDoc_STRVAR(follow_heaps_doc,
"follow_heaps(functions, /)\n\n"
"From now on, calls of these functions with items that compare in Python are found by folds_of().  What they do does not change.\n"
"functions: heapq's heappush, heappop, heapreplace, heappushpop, heapify; one that is called in another way is left alone.");
static PyObject *follow_heaps(PyObject *module, PyObject *given)
{
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != HEAP_KINDS)
        return PyErr_Format(PyExc_TypeError, "a tuple of %d functions is needed", HEAP_KINDS);
    PyObject *nothing = no_items == NULL ? PyTuple_New(0) : NULL;
    if (no_items == NULL)
        no_items = nothing ? PyObject_GetIter(nothing) : NULL;
    Py_XDECREF(nothing);
    if (no_items == NULL)
        return NULL;
    for (int i = 0; frames_fit && i < HEAP_KINDS; i++)
        if (followed[HEAPPUSH + i] == NULL)
            before[i] = follow_builtin(HEAPPUSH + i, PyTuple_GET_ITEM(given, i), functions[i].flags, functions[i].ours);
    Py_RETURN_NONE;
}

PyMethodDef heap_functions[] = {
    {"follow_heaps", follow_heaps, METH_O, follow_heaps_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
