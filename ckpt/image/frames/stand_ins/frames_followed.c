/* The loops of frames_folds.c in the place of the interpreter's functions, in the very objects that the program calls. A call that
 * runs no Python code from inside (of a list without a key), or that is unusual, goes to the function of the interpreter.
 */
#include "folds.h"

#if FRAMES_SUPPORTED

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

static FastKeywordsCall sum_before;
static FastKeywordsCall sorted_before;
static PyCFunction reduce_before, min_before, max_before;
PyTypeObject *partial_type;

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

/* The first item of a list or tuple is compared in Python. */
static int begins_with_comparison(PyObject *items)
{
    if (PyList_CheckExact(items))
        return PyList_GET_SIZE(items) > 1 && compares_in_python(PyList_GET_ITEM(items, 0));
    return PyTuple_CheckExact(items) && PyTuple_GET_SIZE(items) > 1 && compares_in_python(PyTuple_GET_ITEM(items, 0));
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
    if (!is_usual || (key == NULL && is_plain(PyTuple_GET_ITEM(args, 0)) && !begins_with_comparison(PyTuple_GET_ITEM(args, 0))))
        return ((PyCFunctionWithKeywords)(void (*)(void))before)(module, args, keywords);
    return begin_extreme(kind, PyTuple_GET_ITEM(args, 0), key, otherwise);
}

static PyObject *extreme_of_array(int kind, PyCFunction before, PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    PyObject *key = NULL, *otherwise = NULL;
    int is_usual = nargs == 1;
    for (Py_ssize_t i = 0; is_usual && names != NULL && i < PyTuple_GET_SIZE(names); i++)
        is_usual = read_keyword(PyTuple_GET_ITEM(names, i), args[1 + i], &key, &otherwise);
    if (!is_usual || (key == NULL && is_plain(args[0]) && !begins_with_comparison(args[0])))
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

/* Is a call of the key a call of Python code, or what it returns compared by such code? */
static int is_python_function(PyObject *key)
{
    return PyFunction_Check(key) || PyMethod_Check(key) || Py_TYPE(key) == partial_type || Py_TYPE(key) == key_of_comparison;
}

/* The arguments by keyword of sorted and list.sort. Are they usual? */
static int read_sort_keywords(PyObject *const *values, PyObject *names, PyObject **key, PyObject **reverse)
{
    *key = NULL;
    *reverse = Py_False;
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        if (PyUnicode_CompareWithASCIIString(name, "key") == 0)
            *key = values[i] == Py_None ? NULL : values[i];
        else if (PyUnicode_CompareWithASCIIString(name, "reverse") == 0)
            *reverse = values[i];
        else
            return 0;
    }
    return (*key == NULL || is_python_function(*key)) && PyBool_Check(*reverse);
}

/* Takes the reference to self. */
static PyObject *run_sort(Fold *self, PyObject *iterable, PyObject *key, PyObject *reverse)
{
    PyObject *iterator = PyObject_GetIter(iterable);
    if (iterator == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    self->whole = reverse == Py_True;
    self->function = Py_XNewRef(key);
    return fold_run_once(self, iterator);
}

static PyObject *nothing; /* an empty tuple */

static PyObject *our_sorted(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    PyObject *key, *reverse;
    if (nargs != 1 || !read_sort_keywords(args + 1, names, &key, &reverse))
        return sorted_before(module, args, nargs, names);
    int collects = is_iterator(args[0]);
    if (key == NULL && !collects && !is_plain(args[0]))
        return sorted_before(module, args, nargs, names);
    PyObject *items = collects ? PyList_New(0) : PySequence_List(args[0]);
    if (items == NULL)
        return NULL;
    if (key == NULL && !collects && !begins_with_comparison(items)) {
        PyObject *none = sort_before(items, args + 1, 0, names);
        if (none == NULL)
            Py_CLEAR(items);
        Py_XDECREF(none);
        return items;
    }
    Fold *self = fold_make(SORTED);
    if (self == NULL) {
        Py_DECREF(items);
        return NULL;
    }
    self->mode = collects ? COLLECTS : KEYS;
    if (sorting_begin(self, items) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return run_sort(self, collects ? args[0] : nothing, key, reverse);
}

static PyObject *our_sort(PyObject *list, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    PyObject *key, *reverse;
    if (nargs != 0 || Py_SIZE(list) == 0 || !read_sort_keywords(args, names, &key, &reverse)
        || (key == NULL && !compares_in_python(PyList_GET_ITEM(list, 0))))
        return sort_before(list, args, nargs, names);
    Fold *self = fold_make(SORT);
    if (self == NULL)
        return NULL;
    self->mode = KEYS;
    if (sorting_begin_in_place(self, list) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return run_sort(self, nothing, key, reverse);
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
    self->result = kind == DICT ? PyDict_New() : kind == FROZENSET ? PyFrozenSet_New(NULL) : PyByteArray_FromStringAndSize("", 0);
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

static PyObject *our_frozenset(PyObject *t, PyObject *const *a, size_t n, PyObject *k)
{
    return container_of(FROZENSET, &PyFrozenSet_Type, t, a, n, k);
}

PyCFunction follow_builtin(int kind, PyObject *builtin, int flags, PyCFunction ours)
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

/* The same for a method of a type. */
static PyCFunction replace_method(int kind, PyObject *method, int flags, PyCFunction ours)
{
    if (!Py_IS_TYPE(method, &PyMethodDescr_Type) || ((PyMethodDescrObject *)method)->d_method->ml_flags != flags)
        return NULL;
    PyMethodDef *definition = ((PyMethodDescrObject *)method)->d_method;
    PyCFunction before = definition->ml_meth;
    definition->ml_meth = ours;
    followed[kind] = Py_NewRef(method);
    return before;
}

/* list.sort(), which sorted() needs, too */
static void follow_sorts(PyObject *sort, PyObject *sorted, PyObject *key)
{
    const int array = METH_FASTCALL | METH_KEYWORDS;
    key_of_comparison = Py_TYPE(key);
    if ((nothing = PyTuple_New(0)) == NULL)
        return;
    sort_before = (FastKeywordsCall)(void (*)(void))replace_method(SORT, sort, array, (PyCFunction)(void (*)(void))our_sort);
    if (sort_before != NULL)
        sorted_before = (FastKeywordsCall)(void (*)(void))follow_builtin(SORTED, sorted, array, (PyCFunction)(void (*)(void))our_sorted);
}

PyDoc_STRVAR(follow_folds_doc,
"follow_folds(sum, min, max, reduce, sorted, sort, comparison, partial, /)\n\n"
"From now on, calls of these functions of the interpreter, and of dict, frozenset, bytes and bytearray with an iterator, are found by\n"
"folds_of().  What they do does not change.  Functions that are not those known are left alone.  sort: list.sort; comparison: what\n"
"functools.cmp_to_key() has returned; partial: the type.");
static PyObject *follow_folds(PyObject *module, PyObject *args)
{
    PyObject *sum, *min, *max, *reduce, *sorted, *sort, *comparison, *partial;
    if (!PyArg_ParseTuple(args, "OOOOOOOO:follow_folds", &sum, &min, &max, &reduce, &sorted, &sort, &comparison, &partial))
        return NULL;
    if (followed[DICT] != NULL || !frames_fit)
        Py_RETURN_NONE;
    const int array = METH_FASTCALL | METH_KEYWORDS, tuple = METH_VARARGS | METH_KEYWORDS;
    sum_before = (FastKeywordsCall)(void (*)(void))follow_builtin(SUM, sum, array, (PyCFunction)(void (*)(void))our_sum);
    partial_type = (PyTypeObject *)partial;
    follow_sorts(sort, sorted, comparison);
    reduce_before = follow_builtin(REDUCE, reduce, METH_VARARGS, our_reduce);
    min_before = follow_builtin(MIN, min, tuple, (PyCFunction)(void (*)(void))min_of_tuple);
    max_before = follow_builtin(MAX, max, tuple, (PyCFunction)(void (*)(void))max_of_tuple);
    if (min_before == NULL)
        min_before = follow_builtin(MIN, min, array, (PyCFunction)(void (*)(void))min_of_array);
    if (max_before == NULL)
        max_before = follow_builtin(MAX, max, array, (PyCFunction)(void (*)(void))max_of_array);
    replace_call(DICT, &PyDict_Type, our_dict);
    replace_call(FROZENSET, &PyFrozenSet_Type, our_frozenset);
    replace_call(BYTES, &PyBytes_Type, our_bytes);
    replace_call(BYTEARRAY, &PyByteArray_Type, our_bytearray);
    Py_RETURN_NONE;
}

PyMethodDef followed_functions[] = {
    {"follow_folds", follow_folds, METH_VARARGS, follow_folds_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
