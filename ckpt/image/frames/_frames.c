/* Frames of the running interpreter: read them, and have them rebuilt. The module; its parts are listed in frames.h. */
#include "extension/frames.h"

static PyObject *sentinel_repr(PyObject *self);
static PyObject *sentinel_reduce(PyObject *self, PyObject *unused);

static PyMethodDef sentinel_methods[] = {
    {"__reduce__", sentinel_reduce, METH_NOARGS, "pickled by reference"},
    {NULL, NULL, 0, NULL},
};
static PyTypeObject SentinelType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.image.frames._frames.Sentinel",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Content of a frame slot that is no object: NULL (empty) or DEAD (a pointer to something already freed).",
    .tp_repr = sentinel_repr,
    .tp_methods = sentinel_methods,
};
PyObject *null_object, *dead_object;

static const char *sentinel_name(PyObject *self) { return self == null_object ? "NULL" : "DEAD"; }
static PyObject *sentinel_repr(PyObject *self) { return PyUnicode_FromFormat("<%s>", sentinel_name(self)); }
static PyObject *sentinel_reduce(PyObject *self, PyObject *unused) { return PyUnicode_FromString(sentinel_name(self)); }

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_frames",
    .m_doc = "Frames of the running interpreter: capture and rebuild (internal to ckpt.image.frames.stack).",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__frames(void)
{
    if (PyType_Ready(&SentinelType) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    int failed = PyModule_AddFunctions(module, process_methods) || PyModule_AddFunctions(module, children_methods)
                 || PyModule_AddFunctions(module, descriptor_methods) || PyModule_AddFunctions(module, moment_methods)
                 || PyModule_AddFunctions(module, contents_methods) || PyModule_AddFunctions(module, look_methods);
#if FRAMES_SUPPORTED
    failed = failed || PyModule_AddFunctions(module, selftest_methods); /* which adds the rest */
#endif
    null_object = SentinelType.tp_alloc(&SentinelType, 0);
    dead_object = SentinelType.tp_alloc(&SentinelType, 0);
    if (failed || null_object == NULL || dead_object == NULL || PyModule_AddObjectRef(module, "NULL", null_object) < 0
        || PyModule_AddObjectRef(module, "DEAD", dead_object) < 0
        || PyModule_AddIntConstant(module, "SUPPORTED", 0) < 0
        || PyModule_AddIntConstant(module, "JIT", 0) < 0 || PyModule_AddIntConstant(module, "BUILT_HEX", PY_VERSION_HEX) < 0
        || PyModule_AddStringConstant(module, "BUILT_FOR", PY_VERSION) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
