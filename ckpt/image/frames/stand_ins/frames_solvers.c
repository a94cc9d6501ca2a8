/* Functions in C that compute with what a function of the program returns: integrate it, find its zero, fit it to data (scipy).
 *
 * They keep their state in memory of their own, but it depends on nothing but their arguments and on what they get returned. So
 * such a call gets a Recorder instead of the program's function, which notes copies of what is returned in a Fold
 * (frames_folds.c). In another process the call is made again with the same arguments: what has been returned is returned again,
 * and the first call that was not over is made. No code of the program runs twice.
 *
 * That is right as long as
 *   numbers come back                floats, integers, arrays, lists and tuples of such, up to MOST_BYTES in one call
 *   the arguments stay what they are   they are memory of the function in C, which must not be changed and not be kept
 * Where one of these is not so, nothing is noted any more, and no image is taken until the call is over. What the interrupted call
 * changes in its arguments is put where the function in C has them now. If that asks for something else than when the image was
 * taken, RuntimeError is raised: it does not depend on its arguments alone.
 *
 * follow_solver() puts functions of this module into the place of those functions in C. A call with anything but a function in
 * Python goes on to the original.
 */
#include "folds.h"

#if FRAMES_SUPPORTED

#include <stddef.h>

enum { MOST = 24, MOST_PLACES = 2, MOST_BYTES = 64 << 20 };

static struct {
    PyObject *callable;
    PyCFunction before;
    int flags;
    Py_ssize_t places[MOST_PLACES]; /* arguments that are functions; -1: no more */
} solvers[MOST];
static int known;

/* ------------------------------------------------------------------ one call of the program's function */

static void lose(Fold *fold)
{
    fold->mode = LOST;
    Py_CLEAR(fold->result);
    Py_CLEAR(fold->item);
    Py_CLEAR(fold->second);
}

/* Note the arguments of a call that begins. Those of an interrupted one stay: its frame has them. 0: they cannot be noted. */
static int note_arguments(Fold *fold, PyObject *arguments, int is_interrupted, Py_ssize_t *references)
{
    PyObject *contents;
    if (!note_contents(arguments, &contents))
        return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments); i++)
        references[i] = Py_REFCNT(PyTuple_GET_ITEM(arguments, i));
    if (is_interrupted) {
        Py_XDECREF(contents);
        return 1;
    }
    Py_XSETREF(fold->item, Py_NewRef(arguments));
    Py_XSETREF(fold->second, contents);
    return 1;
}

/* Has the call neither changed nor kept an array that it was given? */
static int are_untouched(Fold *fold, PyObject *arguments, const Py_ssize_t *references)
{
    for (Py_ssize_t i = 0; fold->second != NULL && i < PyTuple_GET_SIZE(arguments); i++) {
        PyObject *argument = PyTuple_GET_ITEM(arguments, i), *content = noted_content(fold->second, i);
        if (content != Py_None && (Py_REFCNT(argument) != references[i] || !is_as_noted(argument, content)))
            return 0;
    }
    return 1;
}

static void note_result(Fold *fold, PyObject *returned)
{
    Py_ssize_t bytes;
    PyObject *copy = noted_copy(returned, &bytes);
    fold->heap.size += bytes;
    if (copy == NULL || fold->heap.size > MOST_BYTES || PyList_Append(fold->result, copy) < 0) {
        PyErr_Clear();
        lose(fold);
    } else
        fold->whole++;
    Py_XDECREF(copy);
}

/* The interrupted call is over, in the arrays of the image: those of now get what it has written. */
static int write_back(PyObject *interrupted, PyObject *contents, PyObject *arguments)
{
    for (Py_ssize_t i = 0; PyTuple_Check(interrupted) && i < PyTuple_GET_SIZE(arguments); i++) {
        PyObject *then = PyTuple_GET_ITEM(interrupted, i);
        if (!is_as_noted(then, noted_content(contents, i)) && copy_content(then, PyTuple_GET_ITEM(arguments, i)) < 0)
            return -1;
    }
    return 0;
}

/* arguments: a tuple. interrupted, contents: of the call in the image that is made again, or NULL */
static PyObject *call_and_note(Recorder *self, PyObject *arguments, PyObject *interrupted, PyObject *contents)
{
    Fold *fold = self->fold;
    Py_ssize_t references[MOST_GIVEN];
    /* one call within another is not known */
    if (fold->phase == CALLS || !note_arguments(fold, arguments, interrupted != NULL, references)) {
        lose(fold);
        return PyObject_Call(self->function, arguments, NULL);
    }
    if (fold->function != self->function)
        Py_XSETREF(fold->function, Py_NewRef(self->function));
    fold->phase = CALLS;
    PyObject *returned = PyObject_Call(self->function, arguments, NULL);
    fold->phase = BUSY;
    if (fold->mode == LOST)
        return returned;
    if (returned != NULL && interrupted != NULL && write_back(interrupted, contents, arguments) < 0)
        Py_CLEAR(returned);
    if (returned == NULL || !are_untouched(fold, arguments, references))
        lose(fold);
    else
        note_result(fold, returned);
    Py_CLEAR(fold->item);
    Py_CLEAR(fold->second);
    return returned;
}

/* The same for one float, as integrands and their like have: `item` is that float. */
static PyObject *call_of_float(Recorder *self, PyObject *const *args, size_t nargsf)
{
    Fold *fold = self->fold;
    fold->item = Py_NewRef(args[0]);
    if (fold->function != self->function)
        Py_XSETREF(fold->function, Py_NewRef(self->function));
    fold->phase = CALLS;
    PyObject *returned = PyObject_Vectorcall(self->function, args, nargsf, NULL);
    fold->phase = BUSY;
    Py_CLEAR(fold->item);
    if (fold->mode == LOST)
        return returned;
    if (returned == NULL)
        lose(fold);
    else
        note_result(fold, returned);
    return returned;
}

static PyObject *record(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Recorder *self = (Recorder *)object;
    Fold *fold = self->fold;
    if (fold == NULL || fold->mode == LOST || names != NULL) {
        if (fold != NULL)
            lose(fold);
        return PyObject_Vectorcall(self->function, args, nargsf, names);
    }
    if (fold->whole < PyList_GET_SIZE(fold->result)) {
        Py_ssize_t bytes;
        PyObject *again = noted_copy(PyList_GET_ITEM(fold->result, fold->whole++), &bytes);
        return again != NULL || PyErr_Occurred() ? again : PyErr_NoMemory();
    }
    const Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    if (count == 1 && PyFloat_CheckExact(args[0]) && fold->item == NULL && fold->phase != CALLS)
        return call_of_float(self, args, nargsf);
    PyObject *arguments = PyTuple_New(count), *interrupted = fold->item, *contents = fold->second, *returned = NULL;
    for (Py_ssize_t i = 0; arguments != NULL && i < count; i++)
        PyTuple_SET_ITEM(arguments, i, Py_NewRef(args[i]));
    if (arguments != NULL && interrupted != NULL && !are_same_arguments(fold->item, fold->second, arguments)) {
        PyErr_Format(PyExc_RuntimeError, "%R, called again after a restart, has not asked for the same as before: it depends on more "
                     "than its arguments, and cannot go on", PyTuple_GET_ITEM(fold->otherwise, 0));
        Py_CLEAR(arguments);
    }
    Py_XINCREF(interrupted);
    Py_XINCREF(contents);
    if (arguments != NULL)
        returned = call_and_note(self, arguments, interrupted, contents);
    Py_XDECREF(interrupted);
    Py_XDECREF(contents);
    Py_XDECREF(arguments);
    return returned;
}

/* ------------------------------------------------------------------ the call */

static PyObject *call_before(int which, PyObject *args, PyObject *keywords)
{
    PyObject *module = PyCFunction_GET_SELF(solvers[which].callable);
    if (solvers[which].flags & METH_KEYWORDS)
        return ((PyCFunctionWithKeywords)(void (*)(void))solvers[which].before)(module, args, keywords);
    return solvers[which].before(module, args);
}

static int which_solver(PyObject *callable)
{
    for (int i = 0; i < known; i++)
        if (solvers[i].callable == callable)
            return i;
    return -1;
}

/* Somebody may have kept a Recorder: it notes nothing any more. */
static void end_recorders(PyObject *args, Fold *fold)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++) {
        PyObject *each = PyTuple_GET_ITEM(args, i);
        if (each != NULL && Py_IS_TYPE(each, &RecorderType) && ((Recorder *)each)->fold == fold)
            ((Recorder *)each)->fold = NULL;
    }
}

/* `otherwise` of the fold: (callable, arguments, keywords or None, which arguments are functions, contents of those that
 * are arrays when the call began, or None): such functions work in the arrays that they are given. */
PyObject *run_solver(Fold *self)
{
    PyObject *callable, *args, *keywords, *places, *contents;
    if (self->result == NULL || !PyList_CheckExact(self->result) || self->otherwise == NULL || !PyTuple_Check(self->otherwise)
        || !PyArg_ParseTuple(self->otherwise, "OO!OO!O", &callable, &PyTuple_Type, &args, &keywords, &PyTuple_Type, &places, &contents))
        return PyErr_Format(PyExc_TypeError, "this is no state of a call");
    int which = which_solver(callable);
    if (which < 0)
        return PyErr_Format(PyExc_RuntimeError, "%R cannot be called again in this process", callable);
    if (PyTuple_Check(contents) && put_back(args, contents) < 0)
        return NULL;
    self->whole = 0;
    self->phase = BUSY;
    PyObject *given = PyTuple_New(PyTuple_GET_SIZE(args)), *result = NULL;
    for (Py_ssize_t i = 0; given != NULL && i < PyTuple_GET_SIZE(args); i++)
        PyTuple_SET_ITEM(given, i, Py_NewRef(PyTuple_GET_ITEM(args, i)));
    for (Py_ssize_t i = 0; given != NULL && i < PyTuple_GET_SIZE(places); i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(places, i));
        PyObject *recorder = place < 0 || place >= PyTuple_GET_SIZE(args) ? NULL : recorder_make(PyTuple_GET_ITEM(args, place), self, record);
        if (recorder == NULL)
            Py_CLEAR(given);
        else {
            Py_DECREF(PyTuple_GET_ITEM(given, place));
            PyTuple_SET_ITEM(given, place, recorder);
        }
    }
    if (given == NULL)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "this is no state of a call");
    result = call_before(which, given, keywords == Py_None ? NULL : keywords);
    end_recorders(given, self);
    Py_DECREF(given);
    return result;
}

static int is_callable_in_python(PyObject *object)
{
    if (is_in_python(object))
        return 1;
    PyObject *call = Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE ? PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__call__") : NULL;
    int is = call != NULL && PyFunction_Check(call);
    Py_XDECREF(call);
    PyErr_Clear();
    return is;
}

/* Which arguments are functions in Python: a tuple. */
static PyObject *places_of_functions(int which, PyObject *args)
{
    PyObject *places = PyList_New(0);
    for (int i = 0; places != NULL && i < MOST_PLACES; i++) {
        Py_ssize_t place = solvers[which].places[i];
        if (place < 0 || place >= PyTuple_GET_SIZE(args) || !is_callable_in_python(PyTuple_GET_ITEM(args, place)))
            continue;
        PyObject *number = PyLong_FromSsize_t(place);
        if (number == NULL || PyList_Append(places, number) < 0)
            Py_CLEAR(places);
        Py_XDECREF(number);
    }
    PyObject *all = places ? PyList_AsTuple(places) : NULL;
    Py_XDECREF(places);
    return all;
}

static PyObject *call_solver(int which, PyObject *args, PyObject *keywords)
{
    PyObject *places = places_of_functions(which, args), *contents = NULL;
    if (places == NULL)
        return NULL;
    if (PyTuple_GET_SIZE(places) == 0 || !note_contents(args, &contents)) {
        Py_DECREF(places);
        return call_before(which, args, keywords);
    }
    PyObject *nothing = PyTuple_New(0), *iterator = nothing ? PyObject_GetIter(nothing) : NULL;
    Fold *self = iterator ? fold_make(SOLVER) : NULL;
    if (self != NULL) {
        self->result = PyList_New(0);
        self->otherwise = Py_BuildValue("OOOOO", solvers[which].callable, args, keywords ? keywords : Py_None, places,
                                        contents ? contents : Py_None);
    }
    Py_XDECREF(nothing);
    Py_XDECREF(contents);
    Py_DECREF(places);
    if (self == NULL || self->result == NULL || self->otherwise == NULL) {
        Py_XDECREF(iterator);
        Py_XDECREF(self);
        return NULL;
    }
    return fold_run_once(self, iterator);
}

/* ------------------------------------------------------------------ in their places */

/* A function in C is not told which one it is: each has its own. */
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) \
                X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
#define ENTRY(n) \
    static PyObject *plain_##n(PyObject *module, PyObject *args) { return call_solver(n, args, NULL); } \
    static PyObject *named_##n(PyObject *module, PyObject *args, PyObject *keywords) { return call_solver(n, args, keywords); }
EACH(ENTRY)
#define ROW(n) {plain_##n, named_##n},
static const struct {
    PyCFunction plain;
    PyCFunctionWithKeywords named;
} entries[MOST] = {EACH(ROW)};

PyDoc_STRVAR(follow_solver_doc,
"follow_solver(function, places, /) -> bool\n\n"
"From now on, calls of this function in C with functions in Python as positional arguments at these places are found by\n"
"folds_of().  What it does does not change.  It must depend on nothing but its arguments and on the numbers that it gets returned,\n"
"and keep none of them.  False: it is called in a way for which there is no stand-in.");
static PyObject *follow_solver(PyObject *module, PyObject *args)
{
    PyObject *callable, *places;
    if (!PyArg_ParseTuple(args, "OO!:follow_solver", &callable, &PyTuple_Type, &places))
        return NULL;
    if (PyType_Ready(&RecorderType) < 0)
        return NULL;
    if (!frames_fit || !PyCFunction_CheckExact(callable) || PyTuple_GET_SIZE(places) > MOST_PLACES)
        Py_RETURN_FALSE;
    if (which_solver(callable) >= 0)
        Py_RETURN_TRUE;
    const int flags = PyCFunction_GET_FLAGS(callable);
    if (known == MOST || (flags != METH_VARARGS && flags != (METH_VARARGS | METH_KEYWORDS)))
        Py_RETURN_FALSE;
    for (int i = 0; i < MOST_PLACES; i++)
        solvers[known].places[i] = i < PyTuple_GET_SIZE(places) ? PyLong_AsSsize_t(PyTuple_GET_ITEM(places, i)) : -1;
    if (PyErr_Occurred())
        return NULL;
    PyMethodDef *definition = ((PyCFunctionObject *)callable)->m_ml;
    solvers[known].callable = Py_NewRef(callable);
    solvers[known].before = definition->ml_meth;
    solvers[known].flags = flags;
    definition->ml_meth = flags & METH_KEYWORDS ? (PyCFunction)(void (*)(void))entries[known].named : entries[known].plain;
    known++;
    Py_RETURN_TRUE;
}

PyMethodDef solver_functions[] = {
    {"follow_solver", follow_solver, METH_VARARGS, follow_solver_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
