/* What frames_folds.c, which has the loops, and frames_followed.c, which puts them into place, share. */
#ifndef CKPT_FOLDS_H
#define CKPT_FOLDS_H

#include "../extension/frames.h"

#if FRAMES_SUPPORTED

enum {
    SUM, MIN, MAX, REDUCE, DICT, BYTES, BYTEARRAY, FROZENSET, SORTED, SORT, CALLBACK,
    HEAPPUSH, HEAPPOP, HEAPREPLACE, HEAPPUSHPOP, HEAPIFY, SOLVER, KINDS
};
enum { HEAP_KINDS = HEAPIFY + 1 - HEAPPUSH };
enum { BUSY, NEXT, CALLS, COMPARES };
enum { WHOLE, REAL, ANY }; /* how a sum is kept: in `whole`, in `real` and `lost`, in `result` */
enum { COLLECTS, KEYS, SORTS };   /* SORTED and SORT, in `mode`: it takes items, it calls the key, it compares */
enum { RETURNED, LOST };       /* CALLBACK and SOLVER, in `mode`: what has been returned is noted; not any more, so no image is taken */

typedef struct Sorting Sorting; /* frames_sorting.c */

typedef struct {
    Py_ssize_t size;         /* of the heap, which must stay the same */
    Py_ssize_t start, place; /* where the item that is moved began; where it is */
    Py_ssize_t row;          /* heapify: where the branch began to which it belongs */
} HeapPlace;             /* frames_heaps.c */

typedef struct Fold {
    PyObject ob_base;
    int kind, phase, mode;
    long whole;            /* SUM; DICT: the number of items taken; SORTED, SORT: in reverse?; CALLBACK: calls so far */
    double real, lost;     /* SUM */
    Sorting *sorting;      /* SORTED, SORT */
    HeapPlace heap;        /* HEAPPUSH … HEAPIFY */
    PyObject *iterator;    /* NULL: it does not run */
    PyObject *function;    /* MIN, MAX, SORTED, SORT: of the key, or NULL; REDUCE; CALLBACK */
    PyObject *otherwise;   /* MIN, MAX: the result if there are no items, or NULL; SORTED, SORT: how a sort begins, or NULL;
                            * CALLBACK: the call */
    PyObject *result;      /* so far */
    PyObject *value;       /* MIN, MAX: the key of the result; SORTED, SORT: a list of keys to begin with, or NULL */
    PyObject *item;        /* CALLS: the one with which the function is called; MIN, MAX: that is compared */
    PyObject *first, *second; /* REDUCE: arguments of the last call, which are released after the next item has come; MIN, MAX: the
                               * second one is the key that is compared */
    Frame *frame;          /* that has made the call */
    struct Fold *below, *above; /* others that run, in any thread */
} Fold;

/* Does the number fit? */
static inline int as_long(PyObject *item, long *value)
{
    int overflow;
    *value = PyLong_AsLongAndOverflow(item, &overflow);
    return !overflow;
}

static inline PyObject *fold_next_item(Fold *self)
{
    self->phase = NEXT;
    PyObject *item = (*Py_TYPE(self->iterator)->tp_iternext)(self->iterator);
    self->phase = BUSY;
    if (item == NULL && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_StopIteration))
        PyErr_Clear();
    return item;
}

extern PyObject *followed[KINDS]; /* the callables in whose place the loops are, or NULL */
extern Fold *fold_make(int kind);
/* Put a function in the place of a builtin that is called in this way; the one before. NULL: it is called in another way. */
extern PyCFunction follow_builtin(int kind, PyObject *builtin, int flags, PyCFunction ours);
/* frames_heaps.c */
extern PyObject *run_heap(Fold *self);
/* frames_containers.c */
extern PyObject *run_container(Fold *self);
extern PyTypeObject *partial_type; /* functools.partial, once follow_folds() has been called */
/* frames_callbacks.c */
extern PyObject *run_callback(Fold *self);
enum { OF_UFUNC = -1, OF_PARSER = -2 }; /* in the place of the argument that is the function */
/* It stands in for a function of the program, and notes in a Fold what that function returns. Names and defaults are the function's. */
typedef struct {
    PyObject ob_base;
    vectorcallfunc call; /* how it notes */
    PyObject *function;
    Fold *fold; /* NULL: its call is over */
} Recorder;
extern PyTypeObject RecorderType;
extern PyObject *recorder_make(PyObject *function, Fold *fold, vectorcallfunc call);
extern int is_in_python(PyObject *function);
extern PyObject *callback_recorder(PyObject *function, Fold *fold);
/* args: one array, positional ones first */
extern PyObject *begin_callback(PyObject *callable, PyObject *const *args, Py_ssize_t nargs, PyObject *names, Py_ssize_t place,
                                PyObject *function);
/* frames_parsers.c: a parser of JSON like this one, with Recorders for its hooks in Python, which are added to a list. */
extern PyObject *parser_with(PyObject *parser, Fold *fold, PyObject *recorders);
/* frames_solvers.c */
extern PyObject *run_solver(Fold *self);
/* frames_numbers.c */
extern int is_array(PyObject *object);
/* A copy of what a function has returned, which nobody changes; NULL without an exception: of something else. bytes: its size. */
extern PyObject *noted_copy(PyObject *returned, Py_ssize_t *bytes);
/* The bytes of an array that is an argument; None: of something else. NULL without an exception: of an array that cannot be read. */
extern PyObject *content_of(PyObject *argument);
/* Is the argument what it was? content: what content_of() has said of it then. */
extern int is_as_noted(PyObject *argument, PyObject *content);
/* Put the content of one array, or bytes, into an array of the same size. */
extern int copy_content(PyObject *from, PyObject *to);
enum { MOST_GIVEN = 32 };
/* The contents of the arguments that are arrays, or NULL if none is; 0: they cannot be noted. */
extern int note_contents(PyObject *arguments, PyObject **contents);
/* What content_of() has said of an argument. contents: NULL: none is an array. */
extern PyObject *noted_content(PyObject *contents, Py_ssize_t i);
/* Are these arguments the same as those before, a tuple or one float? contents: of the latter. */
extern int are_same_arguments(PyObject *before, PyObject *contents, PyObject *arguments);
/* Put the noted content back into the arguments that have been changed. */
extern int put_back(PyObject *arguments, PyObject *contents);
/* frames_sorting.c */
extern PyTypeObject *key_of_comparison; /* what functools.cmp_to_key() makes keys of */
extern int compares_in_python(PyObject *item);
/* Begin one that sorts items. Takes the reference. */
extern int sorting_begin(Fold *self, PyObject *items);
/* Begin one that sorts a list in place. */
extern int sorting_begin_in_place(Fold *self, PyObject *list);
extern PyObject *run_sorted(Fold *self);
extern int sorting_traits(Fold *self, PyObject **given);
extern PyObject *sorting_compared(Fold *self, int side);
extern void sorting_end(Fold *self);
typedef PyObject *(*FastKeywordsCall)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
extern FastKeywordsCall sort_before; /* list.sort() */
/* Run the loop of one that has just been made, over an iterator. Takes both references. */
extern PyObject *fold_run_once(Fold *self, PyObject *iterator);

#endif
#endif
