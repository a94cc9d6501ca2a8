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

static PyObject *call_here(PyThreadState *ts, PyObject *callable)
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

enum { OF_LIBRARY, OF_PROGRAM };
#if FRAMES_SUPPORTED
typedef struct { /* what look() or call_in_program() has queued, one of each */
    PyObject *callable;
    Frame *obstacle; /* not called while this frame is on the stack … */
    int at;          /* … at this instruction */
    int checks;      /* so many more places are looked at */
    int queued;
    Frame *place;    /* the last place that was looked at, and how often the interpreter has come back to it */
    int place_at, times;
} Look;

static Look looks[2];

#define MOST_TIMES 512 /* at each check the interpreter makes up to 32 calls that are queued meanwhile; some rounds of a loop */
#define MOST_FRAMES 4096

static int is_on_stack(Frame *obstacle, int at)
{
    Frame *callee = NULL;
    int depth = 0;
    for (Frame *f = thread_current_frame(PyThreadState_Get()); f != NULL && obstacle != NULL; callee = f, f = frame_previous(f)) {
        if (f == obstacle)
            return frame_lasti(f, callee) == at;
        if (++depth == MOST_FRAMES)
            return 1; /* it may be */
    }
    return 0;
}

static int look_here(void *look);

static void look_further(Look *look)
{
    if (look->checks > 0 && !look->queued)
        look->queued = Py_AddPendingCall(look_here, look) == 0;
    thread_recheck_queue(PyThreadState_Get());
}

static int look_here(void *queued)
{
    Look *look = queued;
    PyThreadState *ts = PyThreadState_Get();
    Frame *here = thread_current_frame(ts);
    look->queued = 0;
    if (look->callable == NULL || here == NULL)
        return 0;
    if (here == look->place && frame_lasti(here, NULL) == look->place_at) {
        if (++look->times < MOST_TIMES)
            look_further(look);
        return 0;
    }
    look->place = here;
    look->place_at = frame_lasti(here, NULL);
    look->times = 0;
    look->checks--;
    if (is_on_stack(look->obstacle, look->at)) {
        look_further(look);
        return 0;
    }
    PyObject *callable = Py_NewRef(look->callable);
    PyObject *result = call_here(ts, callable);
    int again = result != NULL && result == Py_True;
    int rc = 0;
    if (result == NULL) {
        if (look == &looks[OF_LIBRARY] && PyErr_ExceptionMatches(PyExc_Exception))
            PyErr_WriteUnraisable(callable);
        else
            rc = -1;
    }
    Py_XDECREF(result);
    Py_DECREF(callable);
    if (again)
        look_further(look);
    return rc;
}
#endif

static PyObject *begin_look(int of, PyObject *args, const char *format)
{
#if FRAMES_SUPPORTED
    PyObject *callable, *obstacle;
    int at, checks;
    Look *look = &looks[of];
    if (!PyArg_ParseTuple(args, format, &callable, &PyLong_Type, &obstacle, &at, &checks))
        return NULL;
    if (!frames_fit)
        Py_RETURN_FALSE;
    look->obstacle = PyLong_AsVoidPtr(obstacle);
    if (look->obstacle == NULL && PyErr_Occurred())
        return NULL;
    look->at = at;
    look->checks = checks;
    look->place = NULL;
    Py_XSETREF(look->callable, Py_NewRef(callable));
    if (look->queued)
        Py_RETURN_FALSE;
    look->queued = Py_AddPendingCall(look_here, look) == 0;
    return PyBool_FromLong(look->queued);
#else
    Py_RETURN_FALSE;
#endif
}

PyDoc_STRVAR(look_doc,
"look(callable, obstacle, at, checks, /) -> bool\n\n"
"As request(), but the call is made only at a check where the frame at the address `obstacle` (0: none) is not on the main\n"
"thread's stack at the instruction `at`.  While the call returns True, it is made again at the next check; at most `checks`\n"
"checks are looked at.  False: an earlier call is still queued; from now on it waits for the new obstacle.");
static PyObject *look(PyObject *module, PyObject *args)
{
    return begin_look(OF_LIBRARY, args, "OO!ii:look");
}

PyDoc_STRVAR(call_in_program_doc,
"call_in_program(callable, obstacle, at, checks, /) -> bool\n\n"
"As look(), but the call is one of the program: every exception from it goes to the program.");
static PyObject *call_in_program(PyObject *module, PyObject *args)
{
    return begin_look(OF_PROGRAM, args, "OO!ii:call_in_program");
}

PyDoc_STRVAR(on_stack_doc,
"on_stack(obstacle, at, /) -> bool\n\n"
"Whether the frame at the address `obstacle` is on the calling thread's stack, at the instruction `at`.");
static PyObject *on_stack(PyObject *module, PyObject *args)
{
#if FRAMES_SUPPORTED
    PyObject *obstacle;
    int at;
    if (!PyArg_ParseTuple(args, "O!i:on_stack", &PyLong_Type, &obstacle, &at))
        return NULL;
    return PyBool_FromLong(frames_fit && is_on_stack(PyLong_AsVoidPtr(obstacle), at));
#else
    Py_RETURN_FALSE;
#endif
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
    {"call_in_program", call_in_program, METH_VARARGS, call_in_program_doc},
    {"look", look, METH_VARARGS, look_doc},
    {"on_stack", on_stack, METH_VARARGS, on_stack_doc},
    {"profile_call", profile_call, METH_O, profile_call_doc},
    {"untraced", untraced, METH_O, untraced_doc},
    {"fork", fork_bare, METH_VARARGS, fork_doc},
    {"pdeathsig", pdeathsig, METH_O, pdeathsig_doc},
    {"allow_c_depth", allow_c_depth, METH_O, allow_c_depth_doc},
    {"unusual", unusual, METH_VARARGS, unusual_doc},
    {"lookup", lookup, METH_VARARGS, lookup_doc},
    {NULL, NULL, 0, NULL},
};
