/* Numbers and arrays that functions in C give to a function of the program, and get from it (frames_solvers.c): copies, and what
 * has been changed.
 */
#include "folds.h"

#if FRAMES_SUPPORTED

enum { OF_AN_OBJECT = 40 }; /* bytes */

static int is_number(PyObject *object)
{
    if (PyFloat_CheckExact(object))
        return 1;
    return PyLong_CheckExact(object) || PyBool_Check(object) || PyComplex_CheckExact(object)
           || (strncmp(Py_TYPE(object)->tp_name, "numpy.", 6) == 0 && Py_TYPE(object)->tp_as_number != NULL
               && Py_TYPE(object)->tp_as_sequence == NULL);
}

int is_array(PyObject *object) { return strcmp(Py_TYPE(object)->tp_name, "numpy.ndarray") == 0; }

static int is_array_of_numbers(PyObject *object)
{
    PyObject *type = is_array(object) ? PyObject_GetAttrString(object, "dtype") : NULL;
    PyObject *kind = type ? PyObject_GetAttrString(type, "kind") : NULL;
    int is = kind != NULL && PyUnicode_Check(kind) && PyUnicode_GET_LENGTH(kind) == 1
             && strchr("biufc", (int)PyUnicode_READ_CHAR(kind, 0)) != NULL;
    Py_XDECREF(type);
    Py_XDECREF(kind);
    PyErr_Clear();
    return is;
}

/* A copy of what a function has returned, which nobody changes; NULL without an exception: of something else. bytes: its size. */
PyObject *noted_copy(PyObject *returned, Py_ssize_t *bytes)
{
    *bytes = OF_AN_OBJECT;
    if (is_number(returned) || returned == Py_None)
        return Py_NewRef(returned);
    if (is_array_of_numbers(returned)) {
        PyObject *copy = PyObject_CallMethod(returned, "copy", NULL), *size = copy ? PyObject_GetAttrString(copy, "nbytes") : NULL;
        Py_ssize_t of_array = size ? PyLong_AsSsize_t(size) : -1;
        Py_XDECREF(size);
        if (of_array < 0)
            Py_CLEAR(copy);
        *bytes += of_array;
        PyErr_Clear();
        return copy;
    }
    if (!PyList_CheckExact(returned) && !PyTuple_CheckExact(returned))
        return NULL;
    PyObject *copy = PySequence_List(returned);
    for (Py_ssize_t i = 0; copy != NULL && i < PyList_GET_SIZE(copy); i++) {
        Py_ssize_t of_item;
        PyObject *item = noted_copy(PyList_GET_ITEM(copy, i), &of_item);
        if (item == NULL)
            Py_CLEAR(copy);
        else
            PyList_SetItem(copy, i, item);
        *bytes += of_item;
    }
    PyErr_Clear();
    return copy;
}

/* The bytes of an array that is an argument; None: of something else. NULL without an exception: of an array that cannot be read. */
PyObject *content_of(PyObject *argument)
{
    Py_buffer view;
    if (!is_array(argument))
        return Py_NewRef(Py_None);
    if (PyObject_GetBuffer(argument, &view, PyBUF_SIMPLE) < 0) {
        PyErr_Clear();
        return NULL;
    }
    PyObject *bytes = PyBytes_FromStringAndSize(view.buf, view.len);
    PyBuffer_Release(&view);
    return bytes;
}

/* Is the argument what it was? content: what content_of() has said of it then. */
int is_as_noted(PyObject *argument, PyObject *content)
{
    if (content == Py_None)
        return 1;
    PyObject *now = content_of(argument);
    int is = now != NULL && PyBytes_Check(now) && PyBytes_Check(content) && PyBytes_GET_SIZE(now) == PyBytes_GET_SIZE(content)
             && memcmp(PyBytes_AS_STRING(now), PyBytes_AS_STRING(content), PyBytes_GET_SIZE(now)) == 0;
    Py_XDECREF(now);
    return is;
}

/* Put the content of one array, or bytes, into an array of the same size. */
int copy_content(PyObject *from, PyObject *to)
{
    Py_buffer source, target;
    if (PyObject_GetBuffer(from, &source, PyBUF_SIMPLE) < 0)
        return -1;
    int failed = PyObject_GetBuffer(to, &target, PyBUF_WRITABLE) < 0;
    if (!failed) {
        memcpy(target.buf, source.buf, Py_MIN(source.len, target.len));
        PyBuffer_Release(&target);
    }
    PyBuffer_Release(&source);
    return failed ? -1 : 0;
}

/* The contents of the arguments that are arrays, or NULL if none is; 0: they cannot be noted. */
int note_contents(PyObject *arguments, PyObject **contents)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(arguments);
    int arrays = 0;
    *contents = NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        arrays += is_array(PyTuple_GET_ITEM(arguments, i));
    if (count > MOST_GIVEN || arrays == 0)
        return count <= MOST_GIVEN;
    *contents = PyTuple_New(count);
    for (Py_ssize_t i = 0; *contents != NULL && i < count; i++) {
        PyObject *content = content_of(PyTuple_GET_ITEM(arguments, i));
        if (content == NULL)
            Py_CLEAR(*contents);
        else
            PyTuple_SET_ITEM(*contents, i, content);
    }
    PyErr_Clear();
    return *contents != NULL;
}

static int are_same_bits(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

/* What content_of() has said of an argument. */
PyObject *noted_content(PyObject *contents, Py_ssize_t i) { return contents ? PyTuple_GET_ITEM(contents, i) : Py_None; }

/* Are these arguments the same as those before, a tuple or one float? contents: of the latter. */
int are_same_arguments(PyObject *before, PyObject *contents, PyObject *arguments)
{
    if (PyFloat_CheckExact(before)) {
        PyObject *now = PyTuple_GET_SIZE(arguments) == 1 ? PyTuple_GET_ITEM(arguments, 0) : Py_None;
        return PyFloat_CheckExact(now) && are_same_bits(PyFloat_AS_DOUBLE(now), PyFloat_AS_DOUBLE(before));
    }
    if (!PyTuple_Check(before) || PyTuple_GET_SIZE(before) != PyTuple_GET_SIZE(arguments))
        return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments); i++) {
        PyObject *now = PyTuple_GET_ITEM(arguments, i), *then = PyTuple_GET_ITEM(before, i);
        if (!Py_IS_TYPE(now, Py_TYPE(then)) || !is_as_noted(now, noted_content(contents, i)))
            return 0;
        if (PyFloat_CheckExact(now) && !are_same_bits(PyFloat_AS_DOUBLE(now), PyFloat_AS_DOUBLE(then)))
            return 0;
        if (PyLong_CheckExact(now) && PyObject_RichCompareBool(now, then, Py_EQ) != 1)
            return 0;
    }
    return 1;
}

/* Put the noted content back into the arguments that have been changed. */
int put_back(PyObject *arguments, PyObject *contents)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments) && i < PyTuple_GET_SIZE(contents); i++) {
        PyObject *argument = PyTuple_GET_ITEM(arguments, i), *content = PyTuple_GET_ITEM(contents, i);
        if (!is_as_noted(argument, content) && copy_content(content, argument) < 0)
            return -1;
    }
    return 0;
}

#endif /* FRAMES_SUPPORTED */
