/* Functions of the interpreter that take items from an iterator and keep what they have so far in variables of C: sum, min, max,
 * functools.reduce, and the types dict, bytes and bytearray called with an iterator.
 *
 * follow_folds() puts loops of ours into their place, in the very objects that the program calls. Such a loop does what the
 * interpreter's does, with the same results and errors, and keeps its state in a Fold, which a capture finds by the frame that has
 * made the call. In another process the call is repeated with a copy of the Fold in the place of the callable: it goes on with the
 * state. Calls that run no Python code from inside (a list without a key) go to the interpreter's own function.
 *
 * States of a Fold: NEXT, it asks its iterator; CALLS, it calls its function; BUSY, it compares, adds, releases: what Python code
 * does then is not known, and no image is taken.
 *
 * A Fold is no item of the collector of garbage, as variables of C are none, and none is made that the program could see.
 */
#include "frames.h"

#if FRAMES_SUPPORTED

#include <math.h>
#include <structmember.h>

enum { SUM, MIN, MAX, REDUCE, DICT, BYTES, BYTEARRAY, KINDS };
enum { BUSY, NEXT, CALLS };
enum { WHOLE, REAL, ANY }; /* how a sum is kept: in `whole`, in `real` and `lost`, in `result` */

typedef struct Fold {
    PyObject ob_base;
    int kind, phase, mode;
    long whole;            /* SUM; DICT: the number of items taken */
    double real, lost;     /* SUM */
    PyObject *iterator;    /* NULL: it does not run */
    PyObject *function;    /* MIN, MAX: of the key, or NULL; REDUCE */
    PyObject *otherwise;   /* MIN, MAX: the result if there are no items, or NULL */
    PyObject *result;      /* so far */
    PyObject *value;       /* MIN, MAX: the key of the result */
    PyObject *item;        /* CALLS: the one with which the function is called */
    PyObject *first, *second; /* REDUCE: arguments of the last call, which are released after the next item has come */
    Frame *frame;          /* that has made the call */
    struct Fold *below, *above; /* others that run, in any thread */
} Fold;

PyTypeObject FoldType;
static Fold *running;
static PyObject *followed[KINDS]; /* the callables */

/* ------------------------------------------------------------------ the loops */

static PyObject *next_item(Fold *self)
{
    self->phase = NEXT;
    PyObject *item = PyIter_Next(self->iterator);
    self->phase = BUSY;
    return item;
}

/* Takes the reference to item. */
static int add_object(Fold *self, PyObject *item)
{
    PyObject *sum = PyNumber_Add(self->result, item);
    Py_DECREF(self->result);
    Py_DECREF(item);
    self->result = sum;
    return sum == NULL ? -1 : 0;
}

static int as_long(PyObject *item, long *value)
{
    int overflow;
    *value = PyLong_AsLongAndOverflow(item, &overflow);
    return !overflow;
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
    while ((item = next_item(self)) != NULL) {
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
    return item != NULL ? item : next_item(self);
}

static PyObject *run_extreme(Fold *self)
{
    PyObject *item;
    while ((item = item_to_call_with(self)) != NULL) {
        PyObject *value;
        if (self->function != NULL) {
            self->item = Py_NewRef(item);
            self->phase = CALLS;
            value = PyObject_CallOneArg(self->function, item);
            self->phase = BUSY;
            Py_CLEAR(self->item);
            if (value == NULL) {
                Py_DECREF(item);
                return NULL;
            }
        } else
            value = Py_NewRef(item);
        int replaces = self->value == NULL ? 1 : PyObject_RichCompareBool(value, self->value, self->kind == MAX ? Py_GT : Py_LT);
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
    Py_ssize_t value = PyNumber_AsSsize_t(item, NULL);
    if (value == -1 && PyErr_Occurred())
        return -1;
    if (value < 0 || value > 255) {
        PyErr_SetString(PyExc_ValueError, self->kind == BYTES ? "bytes must be in range(0, 256)" : "byte must be in range(0, 256)");
        return -1;
    }
    Py_ssize_t size = PyByteArray_GET_SIZE(self->result);
    if (PyByteArray_Resize(self->result, size + 1) < 0)
        return -1;
    PyByteArray_AS_STRING(self->result)[size] = (char)value;
    return 0;
}

static PyObject *run_container(Fold *self)
{
    PyObject *item;
    for (; (item = next_item(self)) != NULL; self->whole++) {
        int failed = self->kind == DICT ? add_pair(self, item) : add_byte(self, item);
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

/* ------------------------------------------------------------------ the object */

static PyObject **fields(Fold *self, int i)
{
    PyObject **all[] = {&self->function, &self->otherwise, &self->result, &self->value, &self->item, &self->first, &self->second};
    return all[i];
}
enum { FIELDS = 7 };

static Fold *fold_make(int kind)
{
    Fold *self = PyObject_New(Fold, &FoldType);
    if (self != NULL)
        memset((char *)self + sizeof(PyObject), 0, sizeof(Fold) - sizeof(PyObject));
    if (self != NULL)
        self->kind = kind;
    return self;
}

static void fold_dealloc(PyObject *object)
{
    Fold *self = (Fold *)object;
    for (int i = 0; i < FIELDS; i++)
        Py_CLEAR(*fields(self, i));
    Py_CLEAR(self->iterator);
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
    case REDUCE: result = run_reduce(self); break;
    case MIN: case MAX: result = run_extreme(self); break;
    default: result = run_container(self);
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
static PyObject *fold_run_once(Fold *self, PyObject *iterator)
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
    PyObject *given[FIELDS];
    if (!PyArg_ParseTuple(args, "iilddOOOOOOO:Fold", &kind, &mode, &whole, &real, &lost, &given[0], &given[1], &given[2], &given[3],
                          &given[4], &given[5], &given[6]))
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
    for (int i = 0; i < FIELDS; i++)
        if (given[i] != null_object)
            *fields(self, i) = Py_NewRef(given[i]);
    return (PyObject *)self;
}

static PyObject *fold_reduce(PyObject *object, PyObject *unused)
{
    Fold *self = (Fold *)object;
    PyObject *given[FIELDS];
    for (int i = 0; i < FIELDS; i++)
        given[i] = *fields(self, i) ? *fields(self, i) : null_object;
    return Py_BuildValue("O(iilddOOOOOOO)", Py_TYPE(self), self->kind, self->mode, self->whole, self->real, self->lost, given[0],
                         given[1], given[2], given[3], given[4], given[5], given[6]);
}

static PyObject *fold_state(PyObject *object, PyObject *unused)
{
    Fold *self = (Fold *)object;
    PyObject *null = null_object;
    return Py_BuildValue("OiOOO", followed[self->kind] ? followed[self->kind] : null, self->phase, self->iterator ? self->iterator : null,
                         self->function ? self->function : null, self->item ? self->item : null);
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
    {"state", fold_state, METH_NOARGS, "(callable, phase, iterator, function, item); phase: 1, it asks the iterator; 2, it calls the function"},
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

/* ------------------------------------------------------------------ in the place of the interpreter's functions */

/* Does iterating it run no Python code? */
static int is_plain(PyObject *iterable)
{
    return PyList_CheckExact(iterable) || PyTuple_CheckExact(iterable) || PyDict_CheckExact(iterable) || PyAnySet_CheckExact(iterable)
           || PyRange_Check(iterable) || PyUnicode_CheckExact(iterable) || PyBytes_CheckExact(iterable)
           || PyDictKeys_Check(iterable) || PyDictValues_Check(iterable) || PyDictItems_Check(iterable);
}

/* An iterator that nothing but iteration is asked of. */
static int is_iterator(PyObject *iterable)
{
    PyTypeObject *type = Py_TYPE(iterable);
    return PyGen_CheckExact(iterable) || type == &PyMap_Type || type == &PyFilter_Type || type == &PyZip_Type || type == &PyEnum_Type;
}

typedef PyObject *(*FastKeywordsCall)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
static FastKeywordsCall sum_before;
static PyCFunction reduce_before, min_before, max_before;

static PyObject *our_sum(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    PyObject *start = nargs == 2 && names == NULL ? args[1] : NULL;
    if (nargs == 1 && names != NULL && PyTuple_GET_SIZE(names) == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "start") == 0)
        start = args[1];
    int is_usual = start != NULL ? !PyUnicode_Check(start) && !PyBytes_Check(start) && !PyByteArray_Check(start)
                                 : nargs == 1 && names == NULL;
    if (!is_usual || is_plain(args[0]))
        return sum_before(module, args, nargs, names);
    PyObject *iterator = PyObject_GetIter(args[0]);
    Fold *self = iterator ? fold_make(SUM) : NULL;
    if (self == NULL) {
        Py_XDECREF(iterator);
        return NULL;
    }
    self->mode = ANY;
    if (start == NULL)
        self->mode = WHOLE;
    else if (PyLong_CheckExact(start) && as_long(start, &self->whole))
        self->mode = WHOLE;
    else if (PyFloat_CheckExact(start)) {
        self->mode = REAL;
        self->real = PyFloat_AS_DOUBLE(start);
    } else
        self->result = Py_NewRef(start);
    return fold_run_once(self, iterator);
}

/* key, otherwise: borrowed, or NULL */
static PyObject *begin_extreme(int kind, PyObject *iterable, PyObject *key, PyObject *otherwise)
{
    PyObject *iterator = PyObject_GetIter(iterable);
    Fold *self = iterator ? fold_make(kind) : NULL;
    if (self == NULL) {
        Py_XDECREF(iterator);
        return NULL;
    }
    self->function = Py_XNewRef(key);
    self->otherwise = Py_XNewRef(otherwise);
    return fold_run_once(self, iterator);
}

/* Is this one argument by keyword of min and max? */
static int read_keyword(PyObject *name, PyObject *value, PyObject **key, PyObject **otherwise)
{
    if (PyUnicode_CompareWithASCIIString(name, "key") == 0)
        *key = value == Py_None ? NULL : value;
    else if (PyUnicode_CompareWithASCIIString(name, "default") == 0)
        *otherwise = value;
    else
        return 0;
    return 1;
}

static PyObject *extreme_of_tuple(int kind, PyCFunction before, PyObject *module, PyObject *args, PyObject *keywords)
{
    PyObject *key = NULL, *otherwise = NULL, *name, *value;
    Py_ssize_t at = 0;
    int is_usual = PyTuple_GET_SIZE(args) == 1;
    while (is_usual && keywords != NULL && PyDict_Next(keywords, &at, &name, &value))
        is_usual = read_keyword(name, value, &key, &otherwise);
    if (!is_usual || (key == NULL && is_plain(PyTuple_GET_ITEM(args, 0))))
        return ((PyCFunctionWithKeywords)(void (*)(void))before)(module, args, keywords);
    return begin_extreme(kind, PyTuple_GET_ITEM(args, 0), key, otherwise);
}

static PyObject *extreme_of_array(int kind, PyCFunction before, PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    PyObject *key = NULL, *otherwise = NULL;
    int is_usual = nargs == 1;
    for (Py_ssize_t i = 0; is_usual && names != NULL && i < PyTuple_GET_SIZE(names); i++)
        is_usual = read_keyword(PyTuple_GET_ITEM(names, i), args[1 + i], &key, &otherwise);
    if (!is_usual || (key == NULL && is_plain(args[0])))
        return ((FastKeywordsCall)(void (*)(void))before)(module, args, nargs, names);
    return begin_extreme(kind, args[0], key, otherwise);
}

static PyObject *min_of_tuple(PyObject *m, PyObject *args, PyObject *kw) { return extreme_of_tuple(MIN, min_before, m, args, kw); }
static PyObject *max_of_tuple(PyObject *m, PyObject *args, PyObject *kw) { return extreme_of_tuple(MAX, max_before, m, args, kw); }
static PyObject *min_of_array(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    return extreme_of_array(MIN, min_before, m, args, n, names);
}
static PyObject *max_of_array(PyObject *m, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    return extreme_of_array(MAX, max_before, m, args, n, names);
}

static PyObject *our_reduce(PyObject *module, PyObject *args)
{
    Py_ssize_t count = PyTuple_GET_SIZE(args);
    if ((count != 2 && count != 3) || (PyCFunction_Check(PyTuple_GET_ITEM(args, 0)) && is_plain(PyTuple_GET_ITEM(args, 1))))
        return reduce_before(module, args);
    PyObject *iterator = PyObject_GetIter(PyTuple_GET_ITEM(args, 1));
    if (iterator == NULL) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_SetString(PyExc_TypeError, "reduce() arg 2 must support iteration");
        return NULL;
    }
    Fold *self = fold_make(REDUCE);
    if (self == NULL) {
        Py_DECREF(iterator);
        return NULL;
    }
    self->function = Py_NewRef(PyTuple_GET_ITEM(args, 0));
    self->result = count == 3 ? Py_NewRef(PyTuple_GET_ITEM(args, 2)) : NULL;
    return fold_run_once(self, iterator);
}

static vectorcallfunc calls_before[KINDS]; /* NULL: the type is called by tp_call of its own type */

static PyObject *call_by_slot(PyObject *type, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *positional = PyTuple_New(count), *keywords = names ? PyDict_New() : NULL, *result = NULL;
    int failed = positional == NULL || (names != NULL && keywords == NULL);
    for (Py_ssize_t i = 0; !failed && i < count; i++)
        PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; !failed && names != NULL && i < PyTuple_GET_SIZE(names); i++)
        failed = PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, i), args[count + i]) < 0;
    if (!failed && Py_EnterRecursiveCall(" while calling a Python object") == 0) {
        result = Py_TYPE(type)->tp_call(type, positional, keywords);
        Py_LeaveRecursiveCall();
    }
    Py_XDECREF(positional);
    Py_XDECREF(keywords);
    return result;
}

static PyObject *container_of(int kind, PyTypeObject *exact, PyObject *type, PyObject *const *args, size_t nargsf, PyObject *names)
{
    if (type != (PyObject *)exact || PyVectorcall_NARGS(nargsf) != 1 || names != NULL || !is_iterator(args[0])) {
        if (calls_before[kind] != NULL)
            return calls_before[kind](type, args, nargsf, names);
        return call_by_slot(type, args, PyVectorcall_NARGS(nargsf), names);
    }
    Fold *self = fold_make(kind);
    if (self == NULL)
        return NULL;
    self->result = kind == DICT ? PyDict_New() : PyByteArray_FromStringAndSize("", 0);
    if (self->result == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return fold_run_once(self, Py_NewRef(args[0]));
}

static PyObject *our_dict(PyObject *t, PyObject *const *a, size_t n, PyObject *k) { return container_of(DICT, &PyDict_Type, t, a, n, k); }
static PyObject *our_bytes(PyObject *t, PyObject *const *a, size_t n, PyObject *k) { return container_of(BYTES, &PyBytes_Type, t, a, n, k); }
static PyObject *our_bytearray(PyObject *t, PyObject *const *a, size_t n, PyObject *k)
{
    return container_of(BYTEARRAY, &PyByteArray_Type, t, a, n, k);
}

/* Put a function in the place of a builtin that is called in this way; the one before. NULL: it is called in another way. */
static PyCFunction replace(int kind, PyObject *builtin, int flags, PyCFunction ours)
{
    if (!PyCFunction_CheckExact(builtin) || PyCFunction_GET_FLAGS(builtin) != flags)
        return NULL;
    PyMethodDef *definition = ((PyCFunctionObject *)builtin)->m_ml;
    PyCFunction before = definition->ml_meth;
    definition->ml_meth = ours;
    followed[kind] = Py_NewRef(builtin);
    return before;
}

static void replace_call(int kind, PyTypeObject *type, vectorcallfunc ours)
{
    calls_before[kind] = type->tp_vectorcall;
    type->tp_vectorcall = ours;
    followed[kind] = Py_NewRef(type);
}

PyDoc_STRVAR(follow_folds_doc,
"follow_folds(sum, min, max, reduce, /)\n\n"
"From now on, calls of these functions of the interpreter, and of dict, bytes and bytearray with an iterator, are found by\n"
"folds_of().  What they do does not change.  Functions that are not those known are left alone.");
static PyObject *follow_folds(PyObject *module, PyObject *args)
{
    PyObject *sum, *min, *max, *reduce;
    if (!PyArg_ParseTuple(args, "OOOO:follow_folds", &sum, &min, &max, &reduce))
        return NULL;
    if (followed[DICT] != NULL || !frames_fit)
        Py_RETURN_NONE;
    const int array = METH_FASTCALL | METH_KEYWORDS, tuple = METH_VARARGS | METH_KEYWORDS;
    sum_before = (FastKeywordsCall)(void (*)(void))replace(SUM, sum, array, (PyCFunction)(void (*)(void))our_sum);
    reduce_before = replace(REDUCE, reduce, METH_VARARGS, our_reduce);
    min_before = replace(MIN, min, tuple, (PyCFunction)(void (*)(void))min_of_tuple);
    max_before = replace(MAX, max, tuple, (PyCFunction)(void (*)(void))max_of_tuple);
    if (min_before == NULL)
        min_before = replace(MIN, min, array, (PyCFunction)(void (*)(void))min_of_array);
    if (max_before == NULL)
        max_before = replace(MAX, max, array, (PyCFunction)(void (*)(void))max_of_array);
    replace_call(DICT, &PyDict_Type, our_dict);
    replace_call(BYTES, &PyBytes_Type, our_bytes);
    replace_call(BYTEARRAY, &PyByteArray_Type, our_bytearray);
    Py_RETURN_NONE;
}

PyMethodDef fold_functions[] = {
    {"folds_of", folds_of, METH_O, folds_of_doc},
    {"follow_folds", follow_folds, METH_VARARGS, follow_folds_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
