/* A base class that lets a class written in Python export a buffer: memoryview(obj) refers to that of obj.tomemory().
 *
 * From Python 3.12 on a method __buffer__ is enough, but a memoryview of that refers to an object private to the interpreter,
 * from which nobody finds the memory. Before, only classes written in C can export a buffer. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

static int get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    view->obj = NULL;
    PyObject *exported = PyObject_CallMethod(self, "tomemory", NULL);
    if (!exported) return -1;
    int failed = PyObject_GetBuffer(exported, view, flags); /* view->obj is `exported` */
    Py_DECREF(exported);
    return failed;
}

static PyType_Slot slots[] = {
    {Py_tp_doc, "A base class whose subclasses export the buffer of what their method tomemory returns."},
    {Py_bf_getbuffer, get_buffer},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "ckpt.mpi.rma._exporter.Exporter",
    .basicsize = sizeof(PyObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.mpi.rma._exporter",
    .m_doc = "A base class of exporters of buffers.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__exporter(void)
{
    PyObject *made = PyModule_Create(&module);
    PyObject *type = made ? PyType_FromSpec(&spec) : NULL;
    if (!type || PyModule_AddObjectRef(made, "Exporter", type)) {
        Py_XDECREF(type);
        Py_XDECREF(made);
        return NULL;
    }
    Py_DECREF(type);
    return made;
}
