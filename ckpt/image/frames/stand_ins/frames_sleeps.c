/* time.sleep() in the main thread: while it sleeps, it makes the calls that are queued for it, as the waits for locks do.
 *
 * CPython's own handles signals when one interrupts it, and sleeps on. So a program that sleeps for minutes could not be captured
 * until then. Here a signal of wake_signal() has the queued calls made, too: a capture finds the call of time.sleep() as what runs,
 * and a new process makes it again (c_waits.py).
 *
 * Left to CPython's own: short times, and all that is no plain number. The rest is as there: the end is that of a monotonic clock,
 * and an exception of a signal handler ends it.
 */
#include "folds.h"

#include <errno.h>
#include <time.h>

#if FRAMES_SUPPORTED

static const double SHORT_S = 0.05, LONG_S = 1e8;
static PyCFunction sleep_before;

static PyObject *our_sleep(PyObject *module, PyObject *given)
{
    double wanted_s = PyFloat_CheckExact(given) ? PyFloat_AS_DOUBLE(given) : PyLong_CheckExact(given) ? PyLong_AsDouble(given) : 0;
    if (wanted_s == -1 && PyErr_Occurred())
        PyErr_Clear();
    if (!(wanted_s > SHORT_S && wanted_s < LONG_S))
        return sleep_before(module, given);
    if (SLEEP_IS_AUDITED && PySys_Audit("time.sleep", "O", given) < 0)
        return NULL;
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    long long end_ns = (long long)end.tv_sec * 1000000000 + end.tv_nsec + (long long)(wanted_s * 1e9) + 1;
    end = (struct timespec){end_ns / 1000000000, end_ns % 1000000000};
    for (;;) {
        int failed;
        Py_BEGIN_ALLOW_THREADS
        failed = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
        Py_END_ALLOW_THREADS
        if (failed == 0)
            Py_RETURN_NONE;
        if (failed != EINTR) {
            errno = failed;
            return PyErr_SetFromErrno(PyExc_OSError);
        }
        if (PyErr_CheckSignals() < 0 || Py_MakePendingCalls() < 0)
            return NULL;
    }
}

PyDoc_STRVAR(follow_sleep_doc,
"follow_sleep(sleep, /)\n\n"
"From now on time.sleep(), which is given, makes the calls that are queued for the main thread, when wake_signal() interrupts it.");
static PyObject *follow_sleep(PyObject *module, PyObject *sleep)
{
    PyMethodDef *definition = PyCFunction_CheckExact(sleep) ? ((PyCFunctionObject *)sleep)->m_ml : NULL;
    if (frames_fit && definition != NULL && definition->ml_flags == METH_O && definition->ml_meth != our_sleep) {
        sleep_before = definition->ml_meth;
        definition->ml_meth = our_sleep;
    }
    Py_RETURN_NONE;
}

PyMethodDef sleep_functions[] = {
    {"follow_sleep", follow_sleep, METH_O, follow_sleep_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
