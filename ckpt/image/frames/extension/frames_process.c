/* Calls at the interpreter's next check, fork without side effects, and other things of the process.
 *
 * All of this works on any CPython. If the frames of this version are known, and the self-test has passed (frames_fit), a queued
 * call also records which frame it has interrupted.
 */
#include "frames.h"

#include <errno.h>
#include <limits.h>
#include <sys/prctl.h>
#include <unistd.h>

#if FRAMES_SUPPORTED
State state;
#endif

#define OURS_MAX 64
#define LARGEST_COUNT (1UL << 20) /* no address is that low */

#if FRAMES_SUPPORTED
/* What the library does between two instructions of the program is not traced, for two reasons. No program wants to see it. And
 * CPython 3.11 looks for pending calls when a traced function begins, until there are none, but makes none while one is running:
 * a call that is queued meanwhile, by the running call or by another thread, would keep it in this loop for ever. */
static void tracing_pause(PyThreadState *ts)
{
    state.pauses++;
    PyThreadState_EnterTracing(ts);
}

static void tracing_go_on(PyThreadState *ts)
{
    PyThreadState_LeaveTracing(ts);
    state.pauses--;
}

PyObject *call_here(PyThreadState *ts, PyObject *callable)
{
    Frame *before = state.checked;
    state.checked = frames_fit ? thread_current_frame(ts) : NULL;
    state.in_request++;
    tracing_pause(ts);
    PyObject *result = PyObject_CallNoArgs(callable);
    tracing_go_on(ts);
    state.checked = before;
    state.in_request--;
    if (frames_fit)
        thread_recheck_queue(ts);
    return result;
}
#endif

static int pending(void *queued)
{
    PyObject *callable = queued;
    int rc = 0;
#if FRAMES_SUPPORTED
    PyObject *result = call_here(PyThreadState_Get(), callable);
#else
    PyObject *result = PyObject_CallNoArgs(callable);
#endif
    if (result == NULL) {
        if (PyErr_ExceptionMatches(PyExc_Exception))
            PyErr_WriteUnraisable(callable); /* a fault of ours must not appear inside of the program */
        else
            rc = -1; /* KeyboardInterrupt, SystemExit: meant for the program */
    }
    Py_XDECREF(result);
    Py_DECREF(callable);
    return rc;
}

PyDoc_STRVAR(request_doc,
"request(callable, /) -> bool\n\n"
"Queue a call without arguments for the main thread's next check between two instructions; from any thread.  False: the\n"
"interpreter's queue is full.  An Exception from it goes to sys.unraisablehook, other exceptions to the program.");
static PyObject *request(PyObject *module, PyObject *callable)
{
    if (!PyCallable_Check(callable)) {
        PyErr_SetString(PyExc_TypeError, "request() needs a callable");
        return NULL;
    }
    if (Py_AddPendingCall(pending, Py_NewRef(callable)) == 0)
        Py_RETURN_TRUE;
    Py_DECREF(callable);
    Py_RETURN_FALSE;
}

PyDoc_STRVAR(untraced_doc,
"untraced(callable, /) -> result\n\n"
"Call it without arguments, with the trace and profile functions of this thread off; its result, or its exception.");
static PyObject *untraced(PyObject *module, PyObject *callable)
{
#if FRAMES_SUPPORTED
    PyThreadState *ts = PyThreadState_Get();
    tracing_pause(ts);
#endif
    PyObject *result = PyObject_CallNoArgs(callable);
#if FRAMES_SUPPORTED
    tracing_go_on(ts);
#endif
    return result;
}

PyDoc_STRVAR(profile_call_doc,
"profile_call(frame, /)\n\n"
"Tell the profile function of this thread, if there is one, that the function of a frame has just been called.  TypeError: no\n"
"frame was given.  Raises what the profile function raises.");
static PyObject *profile_call(PyObject *module, PyObject *frame)
{
    PyThreadState *ts = PyThreadState_Get();
    if (!PyFrame_Check(frame)) {
        PyErr_SetString(PyExc_TypeError, "profile_call() needs a frame");
        return NULL;
    }
    if (ts->c_profilefunc != NULL && ts->c_profilefunc(ts->c_profileobj, (PyFrameObject *)frame, PyTrace_CALL, Py_None) < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(fork_doc,
"fork(noted=b'', ours=(), switches=0, /) -> pid\n\n"
"fork(2) with the interpreter's own repairs (its locks and threads) but without the callbacks of os.register_at_fork(), so\n"
"that the child's memory is the program's: random is not seeded again, locks of the program are not reset.\n"
"noted: the result of note_moment(), or b''.  In the child each regular file and directory in it is opened again, for reading only, so\n"
"that its offset is the child's own; the descriptors in `ours` stay as they are.  The result is 0 in the child.  Raises OSError.\n"
"switches: fork only if switches() is this number, so that no other thread has run since then; else the result is -1.");
static PyObject *fork_bare(PyObject *module, PyObject *args)
{
    const char *data = "";
    Py_ssize_t bytes = 0;
    PyObject *ours = NULL;
    int fds[OURS_MAX];
    unsigned long switches = 0;
    if (!PyArg_ParseTuple(args, "|y#O!k:fork", &data, &bytes, &PyTuple_Type, &ours, &switches))
        return NULL;
#if FRAMES_SUPPORTED
    if (switches && gil_get()->switch_number != switches)
        return PyLong_FromLong(-1);
#endif
    MomentRecord noted = {.data = data, .bytes = (size_t)bytes, .ours = fds};
    for (Py_ssize_t i = 0; ours && i < PyTuple_GET_SIZE(ours) && i < OURS_MAX; i++) {
        fds[i] = (int)PyLong_AsLong(PyTuple_GET_ITEM(ours, i));
        if (fds[i] == -1 && PyErr_Occurred())
            return NULL;
        noted.count++;
    }
#if FRAMES_SUPPORTED
    PyObject *hooks[3];
    PyInterpreterState *interp = PyInterpreterState_Get();
    for (int i = 0; i < 3 && frames_fit; i++) {
        hooks[i] = *interpreter_fork_hooks(interp, i);
        *interpreter_fork_hooks(interp, i) = NULL;
    }
    if (frames_fit)
        PyOS_BeforeFork();
#endif
    pid_t pid = fork_with_own_files(&noted);
    int error = errno;
    if (pid > 0)
        own_child(pid);
#if FRAMES_SUPPORTED
    if (frames_fit && pid == 0)
        PyOS_AfterFork_Child();
    else if (frames_fit)
        PyOS_AfterFork_Parent();
    for (int i = 0; i < 3 && frames_fit; i++)
        *interpreter_fork_hooks(interp, i) = hooks[i];
#endif
    if (pid < 0) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromPid(pid);
}

PyDoc_STRVAR(pdeathsig_doc, "pdeathsig(signal, /)\n\n"
    "Have the kernel send this signal to this process when the thread that has forked it ends; 0: none.  Raises OSError.");
static PyObject *pdeathsig(PyObject *module, PyObject *number)
{
    long signal = PyLong_AsLong(number);
    if (signal == -1 && PyErr_Occurred())
        return NULL;
    if (prctl(PR_SET_PDEATHSIG, (unsigned long)signal, 0, 0, 0) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(allow_c_depth_doc,
"allow_c_depth(levels, /) -> levels allowed before\n\n"
"Let C code of the calling thread recurse `levels` deep from here; the caller knows that the C stack has room for that.\n"
"Nothing happens in versions that count this by sys.setrecursionlimit().  To be undone at the same depth.");
static PyObject *allow_c_depth(PyObject *module, PyObject *levels)
{
    long n = PyLong_AsLong(levels), before = 0;
    if (n == -1 && PyErr_Occurred())
        return NULL;
    before = c_depth_left(PyThreadState_Get());
    set_c_depth_left(PyThreadState_Get(), n);
    return PyLong_FromLong(before);
}

PyDoc_STRVAR(lookup_doc,
"lookup(type, name, /) -> object or NULL\n\n"
"The attribute that the classes in the method resolution order of a type have under this name, without running any code of the\n"
"program; NULL: none has it.  TypeError: no type was given.");
static PyObject *lookup(PyObject *module, PyObject *args)
{
    PyTypeObject *type;
    PyObject *name;
    if (!PyArg_ParseTuple(args, "O!U:lookup", &PyType_Type, &type, &name))
        return NULL;
    PyObject *found = type_lookup(type, name);
    return Py_NewRef(found ? found : null_object);
}

/* Is the object of a built-in type other than a frame, and so holds nothing of a C library? Large numbers may be addresses. */
static int is_usual(PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    if (type == &PyLong_Type)
        return PyLong_AsUnsignedLongMask(value) <= LARGEST_COUNT;
    if (type == &PyFrame_Type || type->tp_flags & Py_TPFLAGS_HEAPTYPE)
        return 0;
    return type == Py_TYPE(null_object) || strchr(type->tp_name, '.') == NULL;
}

PyDoc_STRVAR(unusual_doc,
"unusual(values, namespace, names, /) -> list\n\n"
"Objects of a list, and values that a dictionary (`namespace`) has under a tuple of names, that Python code must look at: frames,\n"
"integers of more than 20 bits, and objects whose type is not built in.  The reference counts of all others are not changed:\n"
"after a fork that would cost a page fault each.");
static PyObject *unusual(PyObject *module, PyObject *args)
{
    PyObject *values, *namespace, *names;
    if (!PyArg_ParseTuple(args, "O!O!O!:unusual", &PyList_Type, &values, &PyDict_Type, &namespace, &PyTuple_Type, &names))
        return NULL;
    PyObject *found = PyList_New(0);
    for (Py_ssize_t i = 0; found && i < PyList_GET_SIZE(values); i++) {
        PyObject *value = PyList_GET_ITEM(values, i);
        if (!is_usual(value) && PyList_Append(found, value) < 0)
            Py_CLEAR(found);
    }
    for (Py_ssize_t i = 0; found && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *value = PyDict_GetItemWithError(namespace, PyTuple_GET_ITEM(names, i));
        if (value == NULL ? PyErr_Occurred() != NULL : !is_usual(value) && PyList_Append(found, value) < 0)
            Py_CLEAR(found);
    }
    return found;
}

PyMethodDef process_methods[] = {
    {"request", request, METH_O, request_doc},
    {"profile_call", profile_call, METH_O, profile_call_doc},
    {"untraced", untraced, METH_O, untraced_doc},
    {"fork", fork_bare, METH_VARARGS, fork_doc},
    {"pdeathsig", pdeathsig, METH_O, pdeathsig_doc},
    {"allow_c_depth", allow_c_depth, METH_O, allow_c_depth_doc},
    {"unusual", unusual, METH_VARARGS, unusual_doc},
    {"lookup", lookup, METH_VARARGS, lookup_doc},
    {NULL, NULL, 0, NULL},
};
