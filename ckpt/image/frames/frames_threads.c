/* Other threads: what is theirs alone, and how the main thread is woken where it waits for them.
 *
 * The interpreter's lock (GIL) is held here, so no other thread runs code of the interpreter meanwhile.
 */
#include "frames.h"

#include <signal.h>

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

static void do_nothing(int number) {}

PyDoc_STRVAR(wake_signal_doc,
"wake_signal() -> number\n\n"
"A signal that nothing else uses, with a handler that does nothing: a wait in C that the signal interrupts makes the calls that\n"
"are queued for the main thread, and goes on.  0: no signal is left.");
static PyObject *wake_signal(PyObject *module, PyObject *unused)
{
    static int number;
    struct sigaction present, action = {.sa_handler = do_nothing};
    sigemptyset(&action.sa_mask);
    if (number && sigaction(number, NULL, &present) == 0 && present.sa_handler == do_nothing)
        return PyLong_FromLong(number);
    for (number = SIGRTMAX - 1; number >= SIGRTMIN; number--)
        if (sigaction(number, NULL, &present) == 0 && !(present.sa_flags & SA_SIGINFO) && present.sa_handler == SIG_DFL
            && sigaction(number, &action, NULL) == 0)
            return PyLong_FromLong(number);
    number = 0;
    return PyLong_FromLong(0);
}

PyMethodDef thread_methods[] = {
    {"thread_values", thread_values, METH_O, thread_values_doc},
    {"wake_signal", wake_signal, METH_NOARGS, wake_signal_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
