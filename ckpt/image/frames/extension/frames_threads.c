/* Other threads: what is theirs alone, how they are stopped, and how the main thread is woken where it waits.
 *
 * Stopping
 *   stop() gives a thread a trace function of this module, which is called at the next line that the thread begins, and waits there
 *   until go_on(), without the interpreter's lock (GIL). A thread that waits in C (c_waits.py) comes to it when its wait is over.
 *   So a thread that has come to the function, or waits in C, changes nothing meanwhile, whoever has the lock.
 *
 *   A child process of a thread that was to stop does not stop: in a child nothing is to be stopped.
 *
 * The interpreter's lock is held in all functions here but for that wait.
 */
#include "frames.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#if FRAMES_SUPPORTED

PyThreadState *thread_by_ident(unsigned long ident)
{
    PyThreadState *ts = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    while (ts != NULL && thread_ident(ts) != ident)
        ts = PyThreadState_Next(ts);
    return ts;
}

/* The thread with this identifier; NULL: there is none, or, with an exception set, that is no number. */
static PyThreadState *thread_of(PyObject *ident)
{
    unsigned long number = PyLong_AsUnsignedLong(ident);
    return number == (unsigned long)-1 && PyErr_Occurred() ? NULL : thread_by_ident(number);
}

PyDoc_STRVAR(thread_values_doc,
"thread_values(ident, /) -> (key, context)\n\n"
"The object by which `threading.local` finds the values of a thread (ckpt.compat.threads.values_of), and the thread's context;\n"
"None for each that it has not.  LookupError: there is no such thread.");
static PyObject *thread_values(PyObject *module, PyObject *ident)
{
    PyThreadState *ts = thread_of(ident);
    if (ts == NULL)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_LookupError, "there is no thread %S", ident);
    PyObject *key = thread_local_key(ts);
    if (key == NULL && PyErr_Occurred())
        return NULL;
    return Py_BuildValue("(NO)", key ? key : Py_NewRef(Py_None), thread_context(ts) ? thread_context(ts) : Py_None);
}

PyDoc_STRVAR(make_queued_calls_doc,
"make_queued_calls(number, frame, /)\n\n"
"A handler of signals that has no frame: make the calls that are queued for the main thread (ckpt.image.threads.waking).");
static PyObject *make_queued_calls(PyObject *module, PyObject *const *unused, Py_ssize_t count)
{
    if (Py_MakePendingCalls() < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(signal_function_doc,
"signal_function(number, /) -> address\n\n"
"Of the function in C that handles a signal; 0: its default is done.  Raises OSError: there is no such signal.");
static PyObject *signal_function(PyObject *module, PyObject *number)
{
    struct sigaction present;
    long which = PyLong_AsLong(number);
    if (which == -1 && PyErr_Occurred())
        return NULL;
    if (sigaction((int)which, NULL, &present) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    return PyLong_FromVoidPtr(present.sa_flags & SA_SIGINFO ? (void *)present.sa_sigaction : (void *)present.sa_handler);
}

/* ------------------------------------------------------------------ stopping */

/* A thread that waits in our trace function; an item on its C stack. */
typedef struct Stopped {
    PyThreadState *thread;
    PyThread_type_lock gate; /* held until the thread may go on */
    struct Stopped *next;
} Stopped;
static Stopped *all_stopped;

#define MOST_THREADS 4096
static PyThreadState *to_stop[MOST_THREADS]; /* between stop() and go_on() */
static Py_ssize_t to_stop_count;
static int is_watching_forks;
static PyObject *never_held; /* a reentrant lock: its owner does not stop */

static int is_to_stop(PyThreadState *ts)
{
    for (Py_ssize_t i = 0; i < to_stop_count; i++)
        if (to_stop[i] == ts)
            return 1;
    return 0;
}

/* Does the frame run code of this package? A thread does not stop there: it may hold a lock that the capture needs. */
static int is_ours(PyFrameObject *frame)
{
    PyObject *globals = PyFrame_GetGlobals(frame);
    PyObject *name = globals ? PyDict_GetItemString(globals, "__name__") : NULL;
    const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    int ours = text != NULL && strncmp(text, "ckpt", 4) == 0 && (text[4] == 0 || text[4] == '.');
    Py_XDECREF(globals);
    PyErr_Clear();
    return ours;
}

static int wait_here(PyObject *unused, PyFrameObject *frame, int what, PyObject *argument)
{
    if (to_stop_count == 0) { /* a child process, which a thread that was to stop has forked: nobody would have it go on */
        PyEval_SetTrace(NULL, NULL);
        return 0;
    }
    if (what != PyTrace_LINE || !is_to_stop(PyThreadState_Get()) || is_ours(frame))
        return 0;
    PyObject *is_owned = PyObject_CallMethod(never_held, "_is_owned", NULL);
    int holds = is_owned == Py_True;
    if (is_owned == NULL)
        PyErr_Clear();
    Py_XDECREF(is_owned);
    if (holds)
        return 0;
    Stopped mine = {PyThreadState_Get(), PyThread_allocate_lock(), all_stopped};
    if (mine.gate == NULL)
        return 0; /* no memory: the thread goes on, and is found not to have stopped */
    PyThread_acquire_lock(mine.gate, WAIT_LOCK);
    all_stopped = &mine;
    Py_BEGIN_ALLOW_THREADS
    PyThread_acquire_lock(mine.gate, WAIT_LOCK);
    Py_END_ALLOW_THREADS
    PyThread_release_lock(mine.gate);
    PyThread_free_lock(mine.gate);
    return 0;
}

int thread_has_stopped(PyThreadState *ts)
{
    Stopped *each = all_stopped;
    while (each != NULL && each->thread != ts)
        each = each->next;
    return each != NULL;
}

int thread_is_traced_by_program(PyThreadState *ts)
{
    return (thread_trace_function(ts) != NULL && thread_trace_function(ts) != wait_here) || thread_profile_function(ts) != NULL;
}

static void forget_stop(void)
{
    to_stop_count = 0;
    all_stopped = NULL;
}

PyDoc_STRVAR(stop_doc,
"stop(idents, never_held, /) -> bool\n\n"
"Have these threads stop at the next line that each begins, until go_on(); see has_stopped().  None stops while it holds the\n"
"reentrant lock `never_held`.  False: one has ended, or the program\n"
"traces or profiles one, or there are too many.  RuntimeError: go_on() has not been called since.");
static PyObject *stop(PyObject *module, PyObject *args)
{
    PyObject *idents, *lock;
    if (!PyArg_ParseTuple(args, "O!O:stop", &PyTuple_Type, &idents, &lock))
        return NULL;
    if (to_stop_count > 0) {
        PyErr_SetString(PyExc_RuntimeError, "go_on() has not been called since the last stop()");
        return NULL;
    }
    Py_XSETREF(never_held, Py_NewRef(lock));
    Py_ssize_t count = PyTuple_GET_SIZE(idents);
    if (count > MOST_THREADS)
        Py_RETURN_FALSE;
    if (!is_watching_forks) /* the thread may be about to begin a process of its own, by fork(2) */
        is_watching_forks = pthread_atfork(NULL, NULL, forget_stop) == 0;
    for (PyThreadState *ts = PyInterpreterState_ThreadHead(PyInterpreterState_Get()); ts != NULL; ts = PyThreadState_Next(ts))
        if (TRACES_ALL_THREADS && thread_trace_function(ts) != NULL)
            Py_RETURN_FALSE;
    for (Py_ssize_t i = 0; i < count; i++) {
        to_stop[i] = thread_by_ident(PyLong_AsUnsignedLongMask(PyTuple_GET_ITEM(idents, i)));
        if (to_stop[i] == NULL || thread_is_traced_by_program(to_stop[i]))
            Py_RETURN_FALSE;
    }
    to_stop_count = count;
    if (count > 0 && threads_trace(to_stop, count, wait_here) < 0)
        return NULL;
    Py_RETURN_TRUE;
}

PyDoc_STRVAR(has_stopped_doc, "has_stopped(ident, /) -> bool\n\nWhether the thread waits for go_on().");
static PyObject *has_stopped(PyObject *module, PyObject *ident)
{
    PyThreadState *ts = thread_of(ident);
    return ts == NULL && PyErr_Occurred() ? NULL : PyBool_FromLong(ts != NULL && thread_has_stopped(ts));
}

PyDoc_STRVAR(step_doc,
"step(ident, /)\n\n"
"Have a thread that has stopped go on to the next line that it begins, where it stops again; nothing happens if it has not.");
static PyObject *step(PyObject *module, PyObject *ident)
{
    PyThreadState *ts = thread_of(ident);
    if (ts == NULL && PyErr_Occurred())
        return NULL;
    for (Stopped **at = &all_stopped; *at != NULL; at = &(*at)->next)
        if ((*at)->thread == ts) {
            PyThread_type_lock gate = (*at)->gate;
            *at = (*at)->next;
            PyThread_release_lock(gate); /* what `at` has pointed to lives until we release the interpreter's lock */
            break;
        }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(go_on_doc, "go_on()\n\nHave all threads go on that stop() has stopped; none: nothing happens.");
static PyObject *go_on(PyObject *module, PyObject *unused)
{
    PyThreadState *living[MOST_THREADS];
    Py_ssize_t count = 0;
    if (to_stop_count == 0)
        Py_RETURN_NONE;
    for (PyThreadState *ts = PyInterpreterState_ThreadHead(PyInterpreterState_Get()); ts != NULL; ts = PyThreadState_Next(ts))
        if (is_to_stop(ts) && thread_trace_function(ts) == wait_here)
            living[count++] = ts;
    to_stop_count = 0;
    int failed = threads_trace(living, count, NULL);
    for (Stopped *each = all_stopped, *next; each != NULL; each = next) {
        next = each->next; /* the thread leaves its function only when we release the interpreter's lock */
        PyThread_release_lock(each->gate);
    }
    all_stopped = NULL;
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(switches_doc,
"switches() -> number\n\n"
"Of the times that the interpreter's lock has gone to another thread.  While it stays the same, no other thread runs.");
static PyObject *switches(PyObject *module, PyObject *unused) { return PyLong_FromUnsignedLong(gil_get()->switch_number); }

/* The content of a file that the kernel has for a thread of this process, as a string; the interpreter's lock is not released. */
static int read_of_thread(PyObject *native_id, const char *name, char *text, size_t size)
{
    char path[64];
    int fd;
    snprintf(path, sizeof path, "/proc/self/task/%lu/%s", PyLong_AsUnsignedLongMask(native_id), name);
    if (PyErr_Occurred())
        return -1;
    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    ssize_t n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return 0;
}

PyDoc_STRVAR(blocked_signals_doc,
"blocked_signals(native_id, /) -> mask\n\n"
"The signals that a thread of this process holds back: bit n - 1 stands for signal n.  OSError: there is no such thread.  The\n"
"interpreter's lock is not released meanwhile.");
static PyObject *blocked_signals(PyObject *module, PyObject *native_id)
{
    char text[4096], *found;
    if (read_of_thread(native_id, "status", text, sizeof text) < 0)
        return NULL;
    if ((found = strstr(text, "\nSigBlk:")) == NULL) {
        errno = ESRCH;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromUnsignedLongLong(strtoull(found + 8, NULL, 16));
}

PyDoc_STRVAR(system_call_doc,
"system_call(native_id, /) -> text\n\n"
"The system call in which a thread of this process is, as in /proc/PID/syscall.  OSError: there is no such thread, or the kernel\n"
"does not tell.  The interpreter's lock is not released meanwhile.");
static PyObject *system_call(PyObject *module, PyObject *native_id)
{
    char text[512];
    if (read_of_thread(native_id, "syscall", text, sizeof text) < 0)
        return NULL;
    return PyUnicode_DecodeASCII(text, strlen(text), "replace");
}

PyMethodDef thread_methods[] = {
    {"blocked_signals", blocked_signals, METH_O, blocked_signals_doc},
    {"system_call", system_call, METH_O, system_call_doc},
    {"thread_values", thread_values, METH_O, thread_values_doc},
    {"make_queued_calls", (PyCFunction)(void (*)(void))make_queued_calls, METH_FASTCALL, make_queued_calls_doc},
    {"signal_function", signal_function, METH_O, signal_function_doc},
    {"switches", switches, METH_NOARGS, switches_doc},
    {"stop", stop, METH_VARARGS, stop_doc},
    {"has_stopped", has_stopped, METH_O, has_stopped_doc},
    {"step", step, METH_O, step_doc},
    {"go_on", go_on, METH_NOARGS, go_on_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
