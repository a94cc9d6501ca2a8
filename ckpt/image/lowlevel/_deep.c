/* call(function, nbytes): function() on a C stack of that size, in the calling thread.

   The pickler recurses in C for every level of nesting, and the main thread's stack is what the shell has allowed (8 MiB).  A
   thread with a larger stack would do too, but costs several context switches, which is much for a small image on a busy machine,
   and sees other thread-local values.

   The memory is reserved, not used: only pages that are touched exist.  A guard page below it turns an overflow into a fault
   instead of damage.  CPython up to 3.13 does not look at the C stack's bounds; on 3.14 this must be told to it. */

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

typedef struct {
    ucontext_t here, there;
    PyObject *function, *result;
} Switch;

static void enter(unsigned int high, unsigned int low)
{
    Switch *s = (Switch *)(((uintptr_t)high << 32) | low);
    s->result = PyObject_CallNoArgs(s->function);
}

PyDoc_STRVAR(call_doc, "call(function, nbytes, /)\n\n"
    "The result of function(), called on a C stack of so many bytes.  MemoryError: the stack cannot be reserved.  "
    "OSError: the system refuses to switch to it.");

static PyObject *call(PyObject *module, PyObject *args)
{
    Switch s = {.result = NULL};
    Py_ssize_t nbytes;
    if (!PyArg_ParseTuple(args, "On", &s.function, &nbytes)) return NULL;
    Py_ssize_t page = sysconf(_SC_PAGESIZE);
    if (nbytes < 16 * page) return PyErr_Format(PyExc_ValueError, "a stack of %zd bytes is too small", nbytes);
    nbytes -= nbytes % page;
    char *stack = mmap(NULL, (size_t)nbytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) return PyErr_NoMemory();
    if (mprotect(stack, (size_t)page, PROT_NONE) || getcontext(&s.there)) {
        PyErr_SetFromErrno(PyExc_OSError);
    } else {
        s.there.uc_stack.ss_sp = stack;
        s.there.uc_stack.ss_size = (size_t)nbytes;
        s.there.uc_link = &s.here;
        uintptr_t address = (uintptr_t)&s;
        makecontext(&s.there, (void (*)(void))enter, 2, (unsigned int)(address >> 32), (unsigned int)address);
        if (swapcontext(&s.here, &s.there)) PyErr_SetFromErrno(PyExc_OSError);
    }
    munmap(stack, (size_t)nbytes);
    return s.result;
}

static PyMethodDef methods[] = {
    {"call", call, METH_VARARGS, call_doc},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.image.lowlevel._deep",
    .m_doc = "Calls on a large C stack.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__deep(void)
{
    return PyModule_Create(&definition);
}
