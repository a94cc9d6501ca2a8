/* Looks at the program's stack at the interpreter's checks, which wait until a frame that is in the way has left its instruction.
 *
 * A look is made at some hundreds of checks after each tick of the helper thread, no more, so that a program is hardly slowed. The
 * frame in the way executes a call of C code, which calls a function in Python, often several times: a loop of such calls may give
 * way only for some nanoseconds, between two of them. So the frame of that function gets a Leaving, which is released when it
 * returns, and has the next check look again. That is at most MOST_LEAVINGS times after each tick, and never where few checks are to
 * be looked at: what is in the way there stays for long.
 */
#include "frames.h"

enum { OF_LIBRARY, OF_PROGRAM };
#if FRAMES_SUPPORTED
typedef struct { /* what look() or call_in_program() has queued, one of each */
    PyObject *callable;
    Frame *obstacle; /* not called while this frame is on the stack … */
    int at;          /* … at this instruction */
    int checks;      /* so many more places are looked at */
    int queued;
    Frame *noticed;  /* called by the obstacle: its return is noticed … */
    int leavings;    /* … and that of so many more */
    Frame *place;    /* the last place that was looked at, and how often the interpreter has come back to it */
    int place_at, times;
} Look;

static Look looks[2];

#define MOST_TIMES 512 /* at each check the interpreter makes up to 32 calls that are queued meanwhile; some rounds of a loop */
#define MOST_FRAMES 4096
#define MOST_LEAVINGS 256 /* each costs some tenths of a microsecond */
#define NEAR_FRAMES 64
#define CHECKS_AFTER 16 /* where the function has returned, the call is over, or another function begins */

/* ------------------------------------------------------------------ a frame returns */

static void look_has_left(void);

static void leaving_dealloc(PyObject *object)
{
    PyObject_Free(object);
    look_has_left();
}

/* A program that begins to be traced meanwhile calls it for lines of that frame: it is not traced. */
static PyObject *leaving_call(PyObject *object, PyObject *args, PyObject *keywords) { Py_RETURN_NONE; }

static PyTypeObject LeavingType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.image.frames._frames.Leaving",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_call = leaving_call,
    .tp_dealloc = leaving_dealloc,
};

/* The frame object of a frame of this thread, which is made if there is none; NULL without an exception: not found. */
static PyFrameObject *object_of_frame(PyThreadState *ts, Frame *frame)
{
    PyFrameObject *object = PyThreadState_GetFrame(ts);
    for (int i = 0; object != NULL && object->f_frame != frame; i++) {
        PyFrameObject *back = i < NEAR_FRAMES ? PyFrame_GetBack(object) : NULL;
        Py_DECREF(object);
        object = back;
    }
    PyErr_Clear();
    return object;
}

/* Have the frame's return noticed, unless the program is traced. It keeps the frame from nothing: what the frame object has as its
 * trace function is released with it. */
static void notice_return(PyThreadState *ts, Frame *frame)
{
    if (thread_trace_function(ts) != NULL || thread_profile_function(ts) != NULL || PyType_Ready(&LeavingType) < 0)
        return;
    PyFrameObject *object = object_of_frame(ts, frame);
    PyObject *present = object ? PyObject_GetAttrString((PyObject *)object, "f_trace") : NULL;
    PyObject *leaving = present == Py_None ? PyObject_New(PyObject, &LeavingType) : NULL;
    if (leaving != NULL && PyObject_SetAttrString((PyObject *)object, "f_trace", leaving) < 0)
        PyErr_Clear();
    Py_XDECREF(leaving);
    Py_XDECREF(present);
    Py_XDECREF(object);
    PyErr_Clear();
}

/* called: gets the frame that the obstacle has called, or NULL */
static int is_on_stack(Frame *obstacle, int at, Frame **called)
{
    Frame *callee = NULL;
    int depth = 0;
    *called = NULL;
    for (Frame *f = thread_current_frame(PyThreadState_Get()); f != NULL && obstacle != NULL; callee = f, f = frame_previous(f)) {
        if (f == obstacle) {
            *called = callee;
            return frame_lasti(f, callee) == at;
        }
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

/* The function has returned that the obstacle had called. */
static void look_has_left(void)
{
    for (int i = 0; i < 2; i++) {
        Look *look = &looks[i];
        if (look->noticed == NULL)
            continue;
        look->noticed = look->place = NULL;
        look->checks = Py_MAX(look->checks, CHECKS_AFTER);
        if (look->callable != NULL && !look->queued)
            look->queued = Py_AddPendingCall(look_here, look) == 0;
    }
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
    Frame *called;
    if (is_on_stack(look->obstacle, look->at, &called)) {
        if (called != NULL && called != look->noticed && look->leavings > 0) {
            look->noticed = called;
            look->leavings--;
            notice_return(ts, called);
        }
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
    look->place = look->noticed = NULL;
    look->leavings = checks > CHECKS_AFTER ? MOST_LEAVINGS : 0;
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
    Frame *called;
    return PyBool_FromLong(frames_fit && is_on_stack(PyLong_AsVoidPtr(obstacle), at, &called));
#else
    Py_RETURN_FALSE;
#endif
}

PyMethodDef look_methods[] = {
    {"call_in_program", call_in_program, METH_VARARGS, call_in_program_doc},
    {"look", look, METH_VARARGS, look_doc},
    {"on_stack", on_stack, METH_VARARGS, on_stack_doc},
    {NULL, NULL, 0, NULL},
};
