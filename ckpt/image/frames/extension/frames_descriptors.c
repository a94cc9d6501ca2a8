/* The program closes its own descriptors only. Daemons close all that there are (os.closerange, os.close in a loop), and would take
 * the rank's connections and logs with them; what they opened next under these numbers would be read and written as ckpt's.
 *
 * keep_descriptors() puts functions of this file into the place of those behind os.close, os.closerange and os.dup2; the objects stay
 * the same, under whatever name the program has them. For os.close, ckpt's numbers are not open (EBADF), as most of them are not in a
 * process without ckpt; os.closerange passes over them; nothing is put into their place by os.dup2 (EBUSY). ckpt's own modules
 * close what they like. In a forked child of the program, which is no rank, all is as ever.
 *
 * What costs time is asked seldom: a number that is among those known, or that is a socket. Which sockets are ckpt's is known by their
 * addresses only, because ZeroMQ opens them when a peer dials in.
 */
#include "frames.h"

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static PyObject *known_files, *known_events, *ours_in, *others_in;
static int is_rank; /* 0 in a forked child */

static PyObject *our_close(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
static PyObject *our_dup2(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
static PyObject *our_closerange(PyObject *, PyObject *const *, Py_ssize_t);

static StandIn close_in = {"close", METH_FASTCALL | METH_KEYWORDS, {.ml_meth = (PyCFunction)(void (*)(void))our_close}, NULL};
static StandIn dup2_in = {"dup2", METH_FASTCALL | METH_KEYWORDS, {.ml_meth = (PyCFunction)(void (*)(void))our_dup2}, NULL};
static StandIn closerange_in = {"closerange", METH_FASTCALL, {.ml_meth = (PyCFunction)(void (*)(void))our_closerange}, NULL};

typedef PyObject *(*WithKeywords)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
typedef PyObject *(*WithoutKeywords)(PyObject *, PyObject *const *, Py_ssize_t);

static void is_child(void) { is_rank = 0; }

/* Is the function called by a module of ckpt? */
static int is_called_by_ckpt(void)
{
    PyObject *globals = PyEval_GetGlobals();
    PyObject *name = globals == NULL ? NULL : PyDict_GetItemString(globals, "__name__");
    const char *text = name == NULL || !PyUnicode_Check(name) ? NULL : PyUnicode_AsUTF8(name);
    return text != NULL && strncmp(text, "ckpt", 4) == 0 && (text[4] == '.' || text[4] == '\0');
}

/* May the number be one of ckpt's? -1: an exception. Blocks on no file system. */
static int may_be_ours(PyObject *number, int fd)
{
    int kind;
    socklen_t size = sizeof kind;
    if (fd < 3 || !is_rank)
        return 0;
    int found = PyDict_Contains(known_files, number);
    if (found == 0)
        found = PySet_Contains(known_events, number);
    if (found == 0)
        found = getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &size) == 0;
    return found > 0 ? !is_called_by_ckpt() : found;
}

/* Is this argument the number of one of ckpt's descriptors? -1: an exception. What is no number is left to the interpreter. */
static int is_ours(PyObject *argument)
{
    if (argument == NULL || !PyLong_Check(argument))
        return 0;
    long fd = PyLong_AsLong(argument);
    if (fd == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    int found = fd > INT_MAX ? 0 : may_be_ours(argument, (int)fd);
    if (found <= 0)
        return found;
    PyObject *ours = PyObject_CallFunction(ours_in, "ll", fd, fd + 1);
    found = ours == NULL ? -1 : PyObject_IsTrue(ours);
    Py_XDECREF(ours);
    return found;
}

/* The argument at this place, or of this name; NULL: it is not given. */
static PyObject *argument_at(PyObject *const *args, Py_ssize_t count, PyObject *names, Py_ssize_t place, const char *name)
{
    if (place < count)
        return args[place];
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), name) == 0)
            return args[count + i];
    return NULL;
}

static PyObject *our_close(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    int found = is_ours(argument_at(args, count, names, 0, "fd"));
    if (found == 0)
        return ((WithKeywords)(void (*)(void))close_in.before)(module, args, count, names);
    if (found > 0) {
        errno = EBADF;
        PyErr_SetFromErrno(PyExc_OSError);
    }
    return NULL;
}

static PyObject *our_dup2(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *number = argument_at(args, count, names, 1, "fd2");
    int found = is_ours(number);
    if (found == 0)
        return ((WithKeywords)(void (*)(void))dup2_in.before)(module, args, count, names);
    if (found > 0) {
        PyObject *text = PyUnicode_FromFormat("descriptor %S is one of ckpt's own; use another number", number);
        PyObject *failure = text == NULL ? NULL : PyObject_CallFunction(PyExc_OSError, "iO", EBUSY, text);
        if (failure != NULL)
            PyErr_SetObject((PyObject *)Py_TYPE(failure), failure);
        Py_XDECREF(failure);
        Py_XDECREF(text);
    }
    return NULL;
}

static PyObject *our_closerange(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!is_rank || count != 2 || !PyLong_Check(args[0]) || !PyLong_Check(args[1]) || is_called_by_ckpt())
        return ((WithoutKeywords)(void (*)(void))closerange_in.before)(module, args, count);
    PyObject *numbers = PyObject_CallFunctionObjArgs(others_in, args[0], args[1], NULL);
    if (numbers == NULL)
        return NULL;
    for (Py_ssize_t i = 0; PyList_Check(numbers) && i < PyList_GET_SIZE(numbers); i++) {
        int fd = (int)PyLong_AsLong(PyList_GET_ITEM(numbers, i));
        Py_BEGIN_ALLOW_THREADS
        close(fd); /* errors are ignored, as ever */
        Py_END_ALLOW_THREADS
    }
    Py_DECREF(numbers);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(keep_descriptors_doc,
"keep_descriptors(files, events, ours, others, /)\n\n"
"From now on, os.close, closerange and dup2 spare ckpt's descriptors in this process.  files: a dictionary by descriptor, events: a\n"
"set of descriptors, which are read at each call and hold all of them but sockets.  ours(first, end): ckpt's descriptors in this\n"
"range; others(first, end): a list of those open that are not ckpt's.");
static PyObject *keep_descriptors(PyObject *module, PyObject *args)
{
    PyObject *files, *events, *ours, *others;
    if (!PyArg_ParseTuple(args, "O!O!OO", &PyDict_Type, &files, &PySet_Type, &events, &ours, &others))
        return NULL;
    Py_XSETREF(known_files, Py_NewRef(files));
    Py_XSETREF(known_events, Py_NewRef(events));
    Py_XSETREF(ours_in, Py_NewRef(ours));
    Py_XSETREF(others_in, Py_NewRef(others));
    if (close_in.before == NULL && pthread_atfork(NULL, NULL, is_child) != 0)
        return PyErr_NoMemory();
    is_rank = 1;
    stand_in(&close_in);
    stand_in(&closerange_in);
    stand_in(&dup2_in);
    Py_RETURN_NONE;
}

PyMethodDef descriptor_methods[] = {
    {"keep_descriptors", keep_descriptors, METH_VARARGS, keep_descriptors_doc},
    {NULL, NULL, 0, NULL},
};
