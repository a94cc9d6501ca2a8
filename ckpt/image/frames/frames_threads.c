/* Other threads: what is theirs alone, how they are stopped, and how the main thread is woken where it waits for them.
 *
 * Stopping
 *   stop() is called with the interpreter's lock (GIL) held, for threads that stand at a check or in a wait (c_waits.py): they
 *   hold no lock of C code. Each gets a signal, whose handler tells that it runs, and waits for go_on(). From then on the lock
 *   may be released: the thread cannot take it. Two things can be wrong, and then all go on and stop() is to be tried again:
 *   another thread had the lock since the stacks were read; or a thread was stopped while it held a mutex of the lock itself.
 *
 *   The handler waits on a futex, which is all that it does, so that it may interrupt anything. Interrupted system calls are made
 *   again (SA_RESTART), so the threads do not notice.
 */
#include "frames.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if FRAMES_SUPPORTED

PyThreadState *thread_by_ident(unsigned long ident)
{
    PyThreadState *ts = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    while (ts != NULL && ts->thread_id != ident)
        ts = PyThreadState_Next(ts);
    return ts;
}

PyDoc_STRVAR(thread_values_doc,
"thread_values(ident, /) -> (key, context)\n\n"
"The object by which `threading.local` finds the values of a thread (ckpt.compat.threads.values_of), and the thread's context;\n"
"None for each that it has not.  LookupError: there is no such thread.");
static PyObject *thread_values(PyObject *module, PyObject *ident)
{
    unsigned long number = PyLong_AsUnsignedLong(ident);
    if (number == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    PyThreadState *ts = thread_by_ident(number);
    if (ts == NULL)
        return PyErr_Format(PyExc_LookupError, "there is no thread %lu", number);
    PyObject *key = thread_local_key(ts);
    return Py_BuildValue("(OO)", key ? key : Py_None, ts->context ? ts->context : Py_None);
}

/* ------------------------------------------------------------------ signals of our own */

static void do_nothing(int number) {}

/* The signal that has this handler; one that nothing else uses gets it first. 0: none is left. */
static int signal_with(void (*handler)(int), int flags, int *number)
{
    struct sigaction present, action = {.sa_handler = handler, .sa_flags = flags};
    sigfillset(&action.sa_mask);
    if (*number && sigaction(*number, NULL, &present) == 0 && present.sa_handler == handler)
        return *number;
    for (*number = SIGRTMAX - 1; *number >= SIGRTMIN; --*number)
        if (sigaction(*number, NULL, &present) == 0 && !(present.sa_flags & SA_SIGINFO) && present.sa_handler == SIG_DFL
            && sigaction(*number, &action, NULL) == 0)
            return *number;
    return *number = 0;
}

PyDoc_STRVAR(wake_signal_doc,
"wake_signal() -> number\n\n"
"A signal that nothing else uses, with a handler that does nothing: a wait in C that the signal interrupts makes the calls that\n"
"are queued for the main thread, and goes on.  0: no signal is left.");
static PyObject *wake_signal(PyObject *module, PyObject *unused)
{
    static int number;
    return PyLong_FromLong(signal_with(do_nothing, 0, &number));
}

/* ------------------------------------------------------------------ stopping */

#define MOST_THREADS 4096
#define STOP_WITHIN_NS 200000000LL

static struct {
    int number;           /* of the signal */
    int active;           /* a round is under way: a signal that comes late stops nobody */
    int round;            /* a thread waits until this is another one than when it was stopped */
    int stopped, sent;    /* threads whose handler waits, and threads that have got the signal */
} stopping;

static void futex(int *word, int operation, int value, const struct timespec *timeout)
{
    int error = errno;
    syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
    errno = error;
}

static void wait_stopped(int number)
{
    int round = __atomic_load_n(&stopping.round, __ATOMIC_ACQUIRE);
    if (!__atomic_load_n(&stopping.active, __ATOMIC_ACQUIRE))
        return;
    __atomic_add_fetch(&stopping.stopped, 1, __ATOMIC_ACQ_REL);
    futex(&stopping.stopped, FUTEX_WAKE, 1, NULL);
    while (__atomic_load_n(&stopping.round, __ATOMIC_ACQUIRE) == round)
        futex(&stopping.round, FUTEX_WAIT, round, NULL);
    __atomic_sub_fetch(&stopping.stopped, 1, __ATOMIC_ACQ_REL);
}

static void let_go_on(void)
{
    __atomic_store_n(&stopping.active, 0, __ATOMIC_RELEASE);
    __atomic_add_fetch(&stopping.round, 1, __ATOMIC_ACQ_REL);
    futex(&stopping.round, FUTEX_WAKE, INT_MAX, NULL);
    stopping.sent = 0;
}

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Wait until that many handlers wait. */
static int all_stop(int count)
{
    long long end = now_ns() + STOP_WITHIN_NS;
    for (;;) {
        int stopped = __atomic_load_n(&stopping.stopped, __ATOMIC_ACQUIRE);
        long long left = end - now_ns();
        if (stopped == count || left <= 0)
            return stopped == count;
        struct timespec timeout = {left / 1000000000LL, left % 1000000000LL};
        futex(&stopping.stopped, FUTEX_WAIT, stopped, &timeout);
    }
}

static int is_free(pthread_mutex_t *mutex) { return pthread_mutex_trylock(mutex) == 0 && pthread_mutex_unlock(mutex) == 0; }

PyDoc_STRVAR(switches_doc,
"switches() -> number\n\n"
"Of the times that the interpreter's lock has gone to another thread.  While it stays the same, no other thread runs.");
static PyObject *switches(PyObject *module, PyObject *unused) { return PyLong_FromUnsignedLong(gil_get()->switch_number); }

PyDoc_STRVAR(stop_doc,
"stop(idents, switches, /) -> bool\n\n"
"Stop the threads with these identifiers until go_on(), all of them or none.  Their stacks have been read when switches() was the\n"
"given number; each stands at a check or in a wait.  False: another thread has run since, or they cannot be stopped at this moment.\n"
"OSError: the signal cannot be sent.  RuntimeError: they are stopped already.");
static PyObject *stop(PyObject *module, PyObject *args)
{
    PyObject *idents;
    unsigned long before;
    if (!PyArg_ParseTuple(args, "O!k:stop", &PyTuple_Type, &idents, &before))
        return NULL;
    if (stopping.sent) {
        PyErr_SetString(PyExc_RuntimeError, "threads are stopped already");
        return NULL;
    }
    Gil *gil = gil_get();
    Py_ssize_t count = PyTuple_GET_SIZE(idents);
    int number = signal_with(wait_stopped, SA_RESTART, &stopping.number), error = number ? 0 : EAGAIN;
    if (count > MOST_THREADS || gil->switch_number != before || __atomic_load_n(&stopping.stopped, __ATOMIC_ACQUIRE))
        Py_RETURN_FALSE; /* the last two: handlers of the last round have not ended yet */
    __atomic_store_n(&stopping.active, 1, __ATOMIC_RELEASE);
    for (Py_ssize_t i = 0; i < count && !error; i++) {
        error = pthread_kill((pthread_t)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(idents, i)), number);
        stopping.sent += !error;
    }
    int done = !error && all_stop(stopping.sent) && is_free(&gil->mutex) && is_free(&gil->switch_mutex);
    if (!done)
        let_go_on();
    if (error) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyBool_FromLong(done);
}

PyDoc_STRVAR(go_on_doc, "go_on()\n\nHave the threads that stop() has stopped go on.");
static PyObject *go_on(PyObject *module, PyObject *unused)
{
    if (stopping.sent)
        let_go_on();
    Py_RETURN_NONE;
}

PyDoc_STRVAR(blocked_signals_doc,
"blocked_signals(native_id, /) -> mask\n\n"
"The signals that a thread of this process holds back: bit n - 1 stands for signal n.  OSError: there is no such thread.  The\n"
"interpreter's lock is not released meanwhile.");
static PyObject *blocked_signals(PyObject *module, PyObject *native_id)
{
    char path[64], text[4096], *found;
    int fd;
    snprintf(path, sizeof path, "/proc/self/task/%lu/status", PyLong_AsUnsignedLongMask(native_id));
    if (PyErr_Occurred() || (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return PyErr_Occurred() ? NULL : PyErr_SetFromErrno(PyExc_OSError);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    if ((found = strstr(text, "\nSigBlk:")) == NULL) {
        errno = ESRCH;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromUnsignedLongLong(strtoull(found + 8, NULL, 16));
}

PyMethodDef thread_methods[] = {
    {"blocked_signals", blocked_signals, METH_O, blocked_signals_doc},
    {"thread_values", thread_values, METH_O, thread_values_doc},
    {"wake_signal", wake_signal, METH_NOARGS, wake_signal_doc},
    {"switches", switches, METH_NOARGS, switches_doc},
    {"stop", stop, METH_VARARGS, stop_doc},
    {"go_on", go_on, METH_NOARGS, go_on_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
