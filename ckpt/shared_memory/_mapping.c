/* `Mapping`: a part of a file, mapped for shared reading and writing, that exports a buffer. Unlike `mmap.mmap` it keeps no
 * descriptor, and a subclass written in Python can be the object that a view of the memory refers to (before Python 3.12 only
 * classes written in C can export a buffer). The memory is unmapped with the last view. And two functions for such a file. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <fcntl.h>
#include <structmember.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    PyObject_HEAD
    void *at;
    Py_ssize_t nbytes;
} Mapping;

static PyObject *mapping_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = {"fd", "offset", "nbytes", NULL};
    int fd;
    long long offset;
    Py_ssize_t nbytes;
    if (!PyArg_ParseTupleAndKeywords(args, named, "iLn:Mapping", names, &fd, &offset, &nbytes)) return NULL;
    if (nbytes <= 0) return PyErr_Format(PyExc_ValueError, "nothing to map: %zd bytes", nbytes);
    void *at = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
    if (at == MAP_FAILED) return PyErr_SetFromErrno(PyExc_OSError);
    Mapping *self = (Mapping *)type->tp_alloc(type, 0);
    if (!self) {
        munmap(at, nbytes);
        return NULL;
    }
    self->at = at;
    self->nbytes = nbytes;
    return (PyObject *)self;
}

static void mapping_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Mapping *mapping = (Mapping *)self;
    if (mapping->at) munmap(mapping->at, mapping->nbytes);
    type->tp_free(self);
    Py_DECREF(type);
}

static int mapping_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    Mapping *mapping = (Mapping *)self;
    return PyBuffer_FillInfo(view, self, mapping->at, mapping->nbytes, 0, flags);
}

/* Python's own functions tell audit hooks of a change of a file, which would be taken for one of the program's. */
static PyObject *open_file(PyObject *module, PyObject *path)
{
    PyObject *name;
    if (!PyUnicode_FSConverter(path, &name)) return NULL;
    int fd = open(PyBytes_AS_STRING(name), O_RDWR | O_CLOEXEC);
    Py_DECREF(name);
    return fd < 0 ? PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path) : PyLong_FromLong(fd);
}

static PyObject *extend(PyObject *module, PyObject *args)
{
    int fd;
    long long nbytes;
    struct stat found;
    if (!PyArg_ParseTuple(args, "iL:extend", &fd, &nbytes)) return NULL;
    if (fstat(fd, &found) || (found.st_size < nbytes && ftruncate(fd, nbytes))) return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"open_file", open_file, METH_O, "A descriptor of a file, for reading and writing. Raises OSError."},
    {"extend", extend, METH_VARARGS, "extend(fd, nbytes): let the file have at least this size. Raises OSError."},
    {NULL},
};

static PyMemberDef members[] = {
    {"nbytes", T_PYSSIZET, offsetof(Mapping, nbytes), READONLY, "Size of the memory in bytes."},
    {NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Mapping(fd, offset, nbytes): a part of a file as shared memory. OSError: it cannot be mapped."},
    {Py_tp_new, mapping_new},
    {Py_tp_dealloc, mapping_dealloc},
    {Py_tp_members, members},
    {Py_bf_getbuffer, mapping_getbuffer},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "ckpt.shared_memory._mapping.Mapping",
    .basicsize = sizeof(Mapping),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.shared_memory._mapping",
    .m_doc = "Files mapped as shared memory.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__mapping(void)
{
    PyObject *made = PyModule_Create(&module);
    PyObject *type = made ? PyType_FromSpec(&spec) : NULL;
    if (!type || PyModule_AddObjectRef(made, "Mapping", type)) {
        Py_XDECREF(type);
        Py_XDECREF(made);
        return NULL;
    }
    Py_DECREF(type);
    return made;
}
