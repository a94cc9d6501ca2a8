/* The clocks of `time` that show something else than those of the host: a program that goes on in another boot, where they began
   at another moment, has them go on from where they were.

   shift(functions, offsets) sets in the six function objects of `time` which function in C they call. The objects stay what they
   are, so code that has imported one by name, or keeps it in a variable, calls the new function, too. Nothing is changed before
   the first offset that is not 0: a program that needs none runs CPython's own functions.

   `functions`: monotonic, monotonic_ns, perf_counter, perf_counter_ns (one clock on Linux), clock_gettime, clock_gettime_ns.
   `offsets`: of CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW and CLOCK_BOOTTIME, in nanoseconds.

   Not here: how large offsets are (ckpt/image/process/clock_offsets.py). Not reached: C code that asks the system itself. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <time.h>

enum { CLOCKS = 3, FUNCTIONS = 6, SHOWS_NS = 1, FIRST_WITH_ID = 4 };

static const clockid_t ids[CLOCKS] = {CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME};
static long long offsets_ns[CLOCKS];
static PyMethodDef changed[FUNCTIONS], *genuine[FUNCTIONS];

/* What clock number `which` shows, as `time` gives it. Seconds as CPython makes them of nanoseconds: the same of the same. */
static PyObject *shown(int which, int in_ns)
{
    struct timespec now;
    if (clock_gettime(ids[which], &now)) return PyErr_SetFromErrno(PyExc_OSError);
    long long ns = (long long)now.tv_sec * 1000000000 + now.tv_nsec + offsets_ns[which];
    if (in_ns) return PyLong_FromLongLong(ns);
    return PyFloat_FromDouble(ns % 1000000000 ? (double)ns / 1e9 : (double)(ns / 1000000000));
}

static PyObject *seconds(PyObject *module, PyObject *none) { return shown(0, 0); }

static PyObject *nanoseconds(PyObject *module, PyObject *none) { return shown(0, 1); }

/* `arguments`: the one argument, or a tuple of it, as this version of CPython has it. All that is no clock of ours, wrong
   arguments too, is left to the genuine function. */
static PyObject *of_id(PyObject *module, PyObject *arguments, int function)
{
    PyObject *id = arguments;
    if (genuine[function]->ml_flags == METH_VARARGS) id = PyTuple_GET_SIZE(arguments) == 1 ? PyTuple_GET_ITEM(arguments, 0) : NULL;
    if (id && PyLong_CheckExact(id)) {
        long number = PyLong_AsLong(id);
        if (number == -1 && PyErr_Occurred()) PyErr_Clear();
        for (int which = 0; which < CLOCKS; which++)
            if (number == ids[which]) return shown(which, function & SHOWS_NS);
    }
    return genuine[function]->ml_meth(module, arguments);
}

static PyObject *seconds_of_id(PyObject *module, PyObject *arguments) { return of_id(module, arguments, FIRST_WITH_ID); }

static PyObject *nanoseconds_of_id(PyObject *module, PyObject *arguments) { return of_id(module, arguments, FIRST_WITH_ID + SHOWS_NS); }

static const PyCFunction ours[FUNCTIONS] = {seconds, nanoseconds, seconds, nanoseconds, seconds_of_id, nanoseconds_of_id};

static int is_as_known(PyObject *function, int number)
{
    if (!PyCFunction_CheckExact(function)) return 0;
    int flags = ((PyCFunctionObject *)function)->m_ml->ml_flags;
    return number < FIRST_WITH_ID ? flags == METH_NOARGS : flags == METH_O || flags == METH_VARARGS;
}

static void lead_elsewhere(PyObject *function, int number)
{
    PyCFunctionObject *object = (PyCFunctionObject *)function;
    if (object->m_ml == &changed[number]) return;
    genuine[number] = object->m_ml;
    changed[number] = *object->m_ml; /* name, flags and documentation */
    changed[number].ml_meth = ours[number];
    object->m_ml = &changed[number];
}

PyDoc_STRVAR(shift_doc, "shift(functions, offsets_ns, /)\n\n"
    "From now on the six functions show what the clocks of the host show, and the offset of the clock.  TypeError: a function is\n"
    "not what this version of CPython should have; nothing is changed.");

static PyObject *shift(PyObject *module, PyObject *args)
{
    PyObject *functions;
    long long wanted[CLOCKS];
    if (!PyArg_ParseTuple(args, "O!(LLL)", &PyTuple_Type, &functions, &wanted[0], &wanted[1], &wanted[2])) return NULL;
    if (PyTuple_GET_SIZE(functions) != FUNCTIONS) return PyErr_Format(PyExc_TypeError, "%d functions are needed", FUNCTIONS);
    for (int i = 0; i < FUNCTIONS; i++)
        if (!is_as_known(PyTuple_GET_ITEM(functions, i), i))
            return PyErr_Format(PyExc_TypeError, "%R cannot be led to another clock", PyTuple_GET_ITEM(functions, i));
    memcpy(offsets_ns, wanted, sizeof wanted);
    if (wanted[0] || wanted[1] || wanted[2])
        for (int i = 0; i < FUNCTIONS; i++) lead_elsewhere(PyTuple_GET_ITEM(functions, i), i);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(offsets_doc, "offsets() -> (int, int, int)\n\nWhat the three clocks show more than those of the host, in nanoseconds.");

static PyObject *offsets(PyObject *module, PyObject *none)
{
    return Py_BuildValue("LLL", offsets_ns[0], offsets_ns[1], offsets_ns[2]);
}

static PyMethodDef methods[] = {
    {"shift", shift, METH_VARARGS, shift_doc},
    {"offsets", offsets, METH_NOARGS, offsets_doc},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.image.lowlevel._clock",
    .m_doc = "Clocks that go on in another boot.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__clock(void)
{
    return PyModule_Create(&definition);
}
