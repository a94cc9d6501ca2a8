/* Functions in C that call a function of the program for each item, and keep what it has returned where nobody can read it: the
 * methods `sub` and `subn` of patterns, parsers of JSON with hooks for objects, universal functions made by `numpy.frompyfunc` (and so `numpy.vectorize`), functions of
 * Cython.
 *
 * Such a call gets a Recorder instead of the program's function, which calls that function and notes what it has returned, in a
 * Fold (frames_folds.c). In another process the call is made again, with the same arguments: what has been returned is returned
 * again, and the first call that was not over is made. So no code of the program runs twice. That is right for functions that
 * depend on nothing but their arguments and on what they get returned, and that return only when all items are done; the
 * arguments that they read again must be as they were, and what was returned must mean the same when it is read again.
 *
 * follow_callbacks() puts functions of this module into the place of those functions in C. A call with anything but a function in
 * Python goes on to the original.
 */
#include "folds.h"

#if FRAMES_SUPPORTED

#include <stddef.h>

/* An array of numpy without dimensions is read at once, and may be another number by the time it would be read again. */
static int can_be_noted(PyObject *returned) { return strcmp(Py_TYPE(returned)->tp_name, "numpy.ndarray") != 0; }

static PyObject *record(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Recorder *self = (Recorder *)object;
    Fold *fold = self->fold;
    if (fold == NULL || fold->mode == LOST)
        return PyObject_Vectorcall(self->function, args, nargsf, names);
    if (fold->whole < PyList_GET_SIZE(fold->result))
        return Py_NewRef(PyList_GET_ITEM(fold->result, fold->whole++));
    int was = fold->phase;
    if (fold->function != self->function)
        Py_XSETREF(fold->function, Py_NewRef(self->function));
    fold->phase = was == CALLS ? BUSY : CALLS; /* one call within another is not known */
    PyObject *returned = PyObject_Vectorcall(self->function, args, nargsf, names);
    fold->phase = was;
    if (returned == NULL || was == CALLS || !can_be_noted(returned) || PyList_Append(fold->result, returned) < 0)
        fold->mode = LOST;
    fold->whole++;
    return returned;
}

static void recorder_dealloc(PyObject *object)
{
    Py_DECREF(((Recorder *)object)->function);
    PyObject_Free(object);
}

/* Names and defaults are those of the function. */
static PyObject *recorder_getattro(PyObject *object, PyObject *name) { return PyObject_GetAttr(((Recorder *)object)->function, name); }

PyTypeObject RecorderType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.image.frames._frames.Recorder",
    .tp_basicsize = sizeof(Recorder),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Recorder, call),
    .tp_call = PyVectorcall_Call,
    .tp_getattro = recorder_getattro,
    .tp_dealloc = recorder_dealloc,
};

/* ------------------------------------------------------------------ the call */

static PyCFunction frompyfunc_before;

/* What numpy.frompyfunc() has made, with another function; a new reference. */
static PyObject *ufunc_with(PyObject *ufunc, PyObject *function)
{
    PyObject *inputs = PyObject_GetAttrString(ufunc, "nin"), *outputs = inputs ? PyObject_GetAttrString(ufunc, "nout") : NULL;
    PyObject *args = outputs ? PyTuple_Pack(3, function, inputs, outputs) : NULL, *made = NULL;
    if (args != NULL && frompyfunc_before != NULL)
        made = ((PyCFunctionWithKeywords)(void (*)(void))frompyfunc_before)(NULL, args, NULL);
    else if (args != NULL)
        PyErr_SetString(PyExc_TypeError, "numpy.frompyfunc is not known here");
    Py_XDECREF(inputs);
    Py_XDECREF(outputs);
    Py_XDECREF(args);
    return made;
}

PyObject *recorder_make(PyObject *function, Fold *fold, vectorcallfunc call)
{
    Recorder *recorder = PyObject_New(Recorder, &RecorderType);
    if (recorder != NULL) {
        recorder->call = call;
        recorder->function = Py_NewRef(function);
        recorder->fold = fold;
    }
    return (PyObject *)recorder;
}

PyObject *callback_recorder(PyObject *function, Fold *fold) { return recorder_make(function, fold, record); }

int is_in_python(PyObject *function)
{
    return PyFunction_Check(function) || PyMethod_Check(function) || Py_TYPE(function) == partial_type;
}

/* `otherwise` of the fold: (callable, arguments, keywords or None, which argument the function is, or OF_UFUNC, OF_PARSER) */
PyObject *run_callback(Fold *self)
{
    PyObject *callable, *args, *keywords;
    Py_ssize_t place;
    if (self->result == NULL || !PyList_CheckExact(self->result) || self->otherwise == NULL || self->function == NULL
        || !PyTuple_Check(self->otherwise)
        || !PyArg_ParseTuple(self->otherwise, "OO!On", &callable, &PyTuple_Type, &args, &keywords, &place)
        || place >= PyTuple_GET_SIZE(args))
        return PyErr_Format(PyExc_TypeError, "this is no state of a call");
    PyObject *recorder = callback_recorder(self->function, self), *recorders = PyList_New(0);
    if (recorder == NULL || recorders == NULL || PyList_Append(recorders, recorder) < 0) {
        Py_XDECREF(recorder);
        Py_XDECREF(recorders);
        return NULL;
    }
    self->whole = 0;
    self->mode = self->mode == LOST ? LOST : RETURNED;
    PyObject *called = place == OF_UFUNC ? ufunc_with(callable, recorder)
                       : place == OF_PARSER ? parser_with(callable, self, recorders) : Py_NewRef(callable);
    PyObject *result = NULL;
    PyObject *given = PyTuple_New(PyTuple_GET_SIZE(args));
    for (Py_ssize_t i = 0; given != NULL && i < PyTuple_GET_SIZE(args); i++)
        PyTuple_SET_ITEM(given, i, Py_NewRef(i == place ? recorder : PyTuple_GET_ITEM(args, i)));
    if (called != NULL && given != NULL)
        result = PyObject_Call(called, given, keywords == Py_None ? NULL : keywords);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(recorders); i++)
        ((Recorder *)PyList_GET_ITEM(recorders, i))->fold = NULL;
    Py_XDECREF(called);
    Py_XDECREF(given);
    Py_DECREF(recorder);
    Py_DECREF(recorders);
    return result;
}

/* args: one array, positional ones first */
PyObject *begin_callback(PyObject *callable, PyObject *const *args, Py_ssize_t nargs, PyObject *names, Py_ssize_t place,
                         PyObject *function)
{
    PyObject *nothing = PyTuple_New(0), *iterator = nothing ? PyObject_GetIter(nothing) : NULL;
    PyObject *given = PyTuple_New(nargs), *keywords = names ? PyDict_New() : Py_NewRef(Py_None);
    Fold *self = iterator && given && keywords ? fold_make(CALLBACK) : NULL;
    int failed = self == NULL || (self->result = PyList_New(0)) == NULL;
    for (Py_ssize_t i = 0; !failed && i < nargs; i++)
        PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; !failed && names != NULL && i < PyTuple_GET_SIZE(names); i++)
        failed = PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, i), args[nargs + i]) < 0;
    if (!failed) {
        self->function = Py_NewRef(function);
        self->otherwise = Py_BuildValue("OOOn", callable, given, keywords, place);
        failed = self->otherwise == NULL;
    }
    Py_XDECREF(nothing);
    Py_XDECREF(given);
    Py_XDECREF(keywords);
    if (failed) {
        Py_XDECREF(iterator);
        Py_XDECREF(self);
        return NULL;
    }
    return fold_run_once(self, iterator);
}

/* ------------------------------------------------------------------ in their places: methods of patterns */

typedef PyObject *(*MethodCall)(PyObject *, PyTypeObject *, PyObject *const *, size_t, PyObject *);
enum { SUB, SUBN, METHODS };
static struct { PyObject *descriptor; MethodCall before; } methods[METHODS];

static PyObject *substitute(int which, PyObject *pattern, PyTypeObject *type, PyObject *const *args, size_t nargs, PyObject *names)
{
    if (nargs < 2 || nargs > 3 || names != NULL || !is_in_python(args[0]))
        return methods[which].before(pattern, type, args, nargs, names);
    PyObject *all[] = {pattern, args[0], args[1], nargs > 2 ? args[2] : NULL};
    return begin_callback(methods[which].descriptor, all, 1 + nargs, NULL, 1, args[0]);
}

static PyObject *our_sub(PyObject *p, PyTypeObject *t, PyObject *const *a, size_t n, PyObject *k) { return substitute(SUB, p, t, a, n, k); }
static PyObject *our_subn(PyObject *p, PyTypeObject *t, PyObject *const *a, size_t n, PyObject *k) { return substitute(SUBN, p, t, a, n, k); }

static void replace_in_pattern(int which, PyObject *pattern_type, const char *name, MethodCall ours)
{
    PyObject *found = PyObject_GetAttrString(pattern_type, name);
    PyErr_Clear();
    if (found != NULL && Py_IS_TYPE(found, &PyMethodDescr_Type)) {
        PyMethodDef *definition = ((PyMethodDescrObject *)found)->d_method;
        if (definition->ml_flags == (METH_METHOD | METH_FASTCALL | METH_KEYWORDS)) {
            methods[which].before = (MethodCall)(void (*)(void))definition->ml_meth;
            methods[which].descriptor = Py_NewRef(found);
            definition->ml_meth = (PyCFunction)(void (*)(void))ours;
        }
    }
    Py_XDECREF(found);
}

/* ------------------------------------------------------------------ universal functions */

static vectorcallfunc ufunc_before; /* the same for all of them */

/* tp_traverse: the function is what the object refers to that can be called. */
static int visit_callable(PyObject *object, void *found)
{
    if (PyFunction_Check(object))
        *(PyObject **)found = object;
    return 0;
}

static vectorcallfunc *place_of_call(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    if (!(type->tp_flags & Py_TPFLAGS_HAVE_VECTORCALL) || type->tp_vectorcall_offset <= 0)
        return NULL;
    return (vectorcallfunc *)((char *)object + type->tp_vectorcall_offset);
}

/* An array that is read again must be what it was: numpy works on copies of arrays of other types. */
static int is_array_of_objects(PyObject *object)
{
    PyObject *type = PyObject_GetAttrString(object, "dtype"), *kind = type ? PyObject_GetAttrString(type, "char") : NULL;
    int is = kind != NULL && PyUnicode_Check(kind) && PyUnicode_CompareWithASCIIString(kind, "O") == 0;
    Py_XDECREF(type);
    Py_XDECREF(kind);
    PyErr_Clear();
    return is && strcmp(Py_TYPE(object)->tp_name, "numpy.ndarray") == 0;
}

/* No arguments by keyword, or out=... alone, which asks for an array even of one item. */
static int has_usual_names(PyObject *names, PyObject *const *values)
{
    return names == NULL || PyTuple_GET_SIZE(names) == 0
           || (PyTuple_GET_SIZE(names) == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "out") == 0
               && values[0] == Py_Ellipsis);
}

static PyObject *call_ufunc(PyObject *ufunc, PyObject *const *args, size_t nargsf, PyObject *names)
{
    PyObject *function = NULL;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    int is_usual = nargs > 0 && has_usual_names(names, args + nargs);
    for (Py_ssize_t i = 0; is_usual && i < nargs; i++)
        is_usual = is_array_of_objects(args[i]);
    if (is_usual && Py_TYPE(ufunc)->tp_traverse != NULL)
        Py_TYPE(ufunc)->tp_traverse(ufunc, visit_callable, &function);
    if (function == NULL)
        return ufunc_before(ufunc, args, nargsf, names);
    return begin_callback(ufunc, args, nargs, names, OF_UFUNC, function);
}

static PyObject *our_frompyfunc(PyObject *module, PyObject *args, PyObject *keywords)
{
    PyObject *made = ((PyCFunctionWithKeywords)(void (*)(void))frompyfunc_before)(module, args, keywords);
    vectorcallfunc *place = made ? place_of_call(made) : NULL;
    int is_in_python = PyTuple_GET_SIZE(args) > 0 && PyFunction_Check(PyTuple_GET_ITEM(args, 0));
    if (place != NULL && is_in_python && *place != NULL && (ufunc_before == NULL || ufunc_before == *place)) {
        ufunc_before = *place;
        *place = call_ufunc;
    }
    return made;
}

PyDoc_STRVAR(follow_ufuncs_doc,
"follow_ufuncs(frompyfunc, /)\n\n"
"From now on, calls of what this function makes, with arrays of objects, are found by folds_of().  What it does does not change.");
static PyObject *follow_ufuncs(PyObject *module, PyObject *frompyfunc)
{
    if (frompyfunc_before == NULL && frames_fit && PyCFunction_CheckExact(frompyfunc)
        && PyCFunction_GET_FLAGS(frompyfunc) == (METH_VARARGS | METH_KEYWORDS)) {
        PyMethodDef *definition = ((PyCFunctionObject *)frompyfunc)->m_ml;
        frompyfunc_before = definition->ml_meth;
        definition->ml_meth = (PyCFunction)(void (*)(void))our_frompyfunc;
    }
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ functions that keep the address of their own call */

enum { MOST = 8 };
static struct { PyObject *callable; vectorcallfunc before; Py_ssize_t place; } functions[MOST];
static int known;

static PyObject *call_function(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    int i = 0;
    while (i + 1 < known && functions[i].callable != callable)
        i++;
    if (nargs <= functions[i].place || !is_in_python(args[functions[i].place]))
        return functions[i].before(callable, args, nargsf, names);
    return begin_callback(callable, args, nargs, names, functions[i].place, args[functions[i].place]);
}

PyDoc_STRVAR(follow_function_doc,
"follow_function(callable, place, /) -> bool\n\n"
"From now on, calls of this callable in C with a function in Python as that positional argument are found by folds_of().  What it\n"
"does does not change.  False: it is of a kind for which there is no way.");
static PyObject *follow_function(PyObject *module, PyObject *args)
{
    PyObject *callable;
    Py_ssize_t place;
    if (!PyArg_ParseTuple(args, "On:follow_function", &callable, &place))
        return NULL;
    vectorcallfunc *call = place_of_call(callable);
    if (!frames_fit || known == MOST || call == NULL || *call == NULL || PyFunction_Check(callable))
        Py_RETURN_FALSE;
    if (*call != call_function) {
        functions[known].callable = Py_NewRef(callable);
        functions[known].before = *call;
        functions[known++].place = place;
        *call = call_function;
    }
    Py_RETURN_TRUE;
}

PyDoc_STRVAR(follow_substitutions_doc,
"follow_substitutions(type, /)\n\n"
"From now on, calls of `sub` and `subn` of this type of patterns with a function in Python are found by folds_of().  What they do\n"
"does not change.");
static PyObject *follow_substitutions(PyObject *module, PyObject *pattern_type)
{
    if (PyType_Ready(&RecorderType) < 0)
        return NULL;
    if (methods[SUB].before == NULL && frames_fit) {
        replace_in_pattern(SUB, pattern_type, "sub", our_sub);
        replace_in_pattern(SUBN, pattern_type, "subn", our_subn);
    }
    Py_RETURN_NONE;
}

PyMethodDef callback_functions[] = {
    {"follow_function", follow_function, METH_VARARGS, follow_function_doc},
    {"follow_substitutions", follow_substitutions, METH_O, follow_substitutions_doc},
    {"follow_ufuncs", follow_ufuncs, METH_O, follow_ufuncs_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
