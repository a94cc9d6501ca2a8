/* What frames_folds.c, which has the loops, and frames_followed.c, which puts them into place, share. */
#ifndef CKPT_FOLDS_H
#define CKPT_FOLDS_H

#include "frames.h"

#if FRAMES_SUPPORTED

enum { SUM, MIN, MAX, REDUCE, DICT, BYTES, BYTEARRAY, FROZENSET, SORTED, KINDS };
enum { BUSY, NEXT, CALLS };
enum { WHOLE, REAL, ANY }; /* how a sum is kept: in `whole`, in `real` and `lost`, in `result` */
enum { COLLECTS, KEYS };   /* SORTED, in `mode`: it takes items, it calls the key */

typedef struct Fold {
    PyObject ob_base;
    int kind, phase, mode;
    long whole;            /* SUM; DICT: the number of items taken; SORTED: in reverse? */
    double real, lost;     /* SUM */
    PyObject **keys;       /* SORTED: of the first items */
    Py_ssize_t count, place; /* SORTED: the number of keys; of those that the interpreter's sort has got */
    PyObject *iterator;    /* NULL: it does not run */
    PyObject *function;    /* MIN, MAX, SORTED: of the key, or NULL; REDUCE */
    PyObject *otherwise;   /* MIN, MAX: the result if there are no items, or NULL */
    PyObject *result;      /* so far */
    PyObject *value;       /* MIN, MAX: the key of the result; SORTED: a list of keys to begin with, or NULL */
    PyObject *item;        /* CALLS: the one with which the function is called */
    PyObject *first, *second; /* REDUCE: arguments of the last call, which are released after the next item has come */
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
/* frames_containers.c */
extern PyObject *run_container(Fold *self);
extern PyObject *run_sorted(Fold *self);
extern PyObject *fold_keys(Fold *self);
extern void fold_release_keys(Fold *self);
/* Run the loop of one that has just been made, over an iterator. Takes both references. */
extern PyObject *fold_run_once(Fold *self, PyObject *iterator);

#endif
#endif
