/* Which numbers in a program are the addresses of its objects (what id() returns)?

   numbers(roots, ids, more, check, by_value) goes through all that can be reached from the roots, as the garbage collector
   does, and says which of the numbers it meets there are the address of an object it meets there too.  It does not go into

   - objects with a persistent id: their address is in `ids` or `more` (address -> persistent id), and check(pid, object)
     does not say None;
   - classes, but for those written in a module that is named in `by_value`.

   Nothing of the program is called, and no reference count of its objects changes. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "addresses.h"
#include "private_api.h"

typedef struct {
    uintptr_t *slots; /* 0: free */
    size_t mask, used;
} Set;

typedef struct {
    Set seen, numbers;
    PyObject **waiting; /* borrowed: nothing in here changes what the program holds */
    size_t count, room;
} Walk;

static uintptr_t *slot_of(const Set *set, uintptr_t word)
{
    size_t i = ((word >> 4) ^ (word >> 19)) & set->mask;
    while (set->slots[i] && set->slots[i] != word) i = (i + 1) & set->mask;
    return &set->slots[i];
}

static int contains(const Set *set, uintptr_t word)
{
    return set->slots && *slot_of(set, word);
}

/* 1: new, 0: known, -1: no memory */
static int add(Set *set, uintptr_t word)
{
    if (!set->slots || set->used * 2 > set->mask) {
        Set larger = {NULL, set->slots ? set->mask * 2 + 1 : 1023, set->used};
        larger.slots = PyMem_Calloc(larger.mask + 1, sizeof(uintptr_t));
        if (!larger.slots) return -1;
        for (size_t i = 0; set->slots && i <= set->mask; i++)
            if (set->slots[i]) *slot_of(&larger, set->slots[i]) = set->slots[i];
        PyMem_Free(set->slots);
        *set = larger;
    }
    uintptr_t *slot = slot_of(set, word);
    if (*slot) return 0;
    *slot = word;
    set->used++;
    return 1;
}

static int visit(PyObject *obj, void *arg)
{
    Walk *walk = arg;
    if (PyLong_CheckExact(obj)) {
        uintptr_t address = address_in(obj);
        return address && add(&walk->numbers, address) < 0 ? -1 : 0;
    }
    if (PyFloat_CheckExact(obj) || PyComplex_CheckExact(obj)) return 0; /* pickle does not keep their identity */
    int is_new = add(&walk->seen, (uintptr_t)obj);
    if (is_new <= 0) return is_new;
    if (!PyObject_IS_GC(obj)) return 0;
    if (walk->count == walk->room) {
        size_t room = walk->room ? walk->room * 2 : 1024;
        PyObject **waiting = PyMem_Realloc(walk->waiting, room * sizeof(PyObject *));
        if (!waiting) return -1;
        walk->waiting = waiting;
        walk->room = room;
    }
    walk->waiting[walk->count++] = obj;
    return 0;
}

/* 1: it is saved by its name, 0: with what is in it, -1: error */
static int is_named(PyObject *obj, PyObject *const tables[2], PyObject *check)
{
    PyObject *key = PyLong_FromVoidPtr(obj);
    if (!key) return -1;
    for (int i = 0; i < 2; i++) {
        PyObject *pid = PyDict_GetItemWithError(tables[i], key);
        if (!pid) continue;
        PyObject *call[2] = {pid, obj}, *found = PyObject_Vectorcall(check, call, 2, NULL);
        int is_one = found && found != Py_None;
        Py_XDECREF(found);
        if (is_one || !found) {
            Py_DECREF(key);
            return found ? 1 : -1;
        }
    }
    Py_DECREF(key);
    return PyErr_Occurred() ? -1 : 0;
}

static int is_foreign_class(PyObject *obj, PyObject *by_value)
{
    if (!PyType_Check(obj)) return 0;
    PyObject *space = class_space((PyTypeObject *)obj);
    if (!space) return 1;
    PyObject *home = PyDict_GetItemString(space, "__module__");
    return !home || !PyUnicode_CheckExact(home) || !PyDict_GetItemWithError(by_value, home);
}

static PyObject *found_in(const Walk *walk)
{
    PyObject *found = PyDict_New();
    for (size_t i = 0; found && walk->numbers.slots && i <= walk->numbers.mask; i++) {
        uintptr_t number = walk->numbers.slots[i];
        if (!number || !contains(&walk->seen, number)) continue;
        PyObject *key = PyLong_FromVoidPtr((void *)number);
        if (!key || PyDict_SetItem(found, key, (PyObject *)number)) Py_CLEAR(found);
        Py_XDECREF(key);
    }
    return found;
}

PyDoc_STRVAR(numbers_doc,
             "numbers(roots, ids, more, check, by_value, /) -> (found, objects, numbers)\n\n"
             "found: dict, number -> the object it is the address of; objects: how many have been met;\n"
             "numbers: how many different ones that could be an address, those found among them.");

static PyObject *numbers(PyObject *module, PyObject *args)
{
    PyObject *roots, *tables[2], *check, *by_value, *found = NULL;
    if (!PyArg_ParseTuple(args, "O!O!O!OO!", &PyList_Type, &roots, &PyDict_Type, &tables[0], &PyDict_Type, &tables[1], &check,
                          &PyDict_Type, &by_value))
        return NULL;
    Walk walk = {0};
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(roots); i++) {
        PyObject *root = PyList_GET_ITEM(roots, i);
        failed = add(&walk.seen, (uintptr_t)root) < 0;
        if (!failed && PyObject_IS_GC(root)) failed = Py_TYPE(root)->tp_traverse(root, visit, &walk);
    }
    while (!failed && walk.count) {
        PyObject *obj = walk.waiting[--walk.count];
        int named = is_named(obj, tables, check);
        failed = named < 0;
        if (failed || named || is_foreign_class(obj, by_value)) continue;
        failed = Py_TYPE(obj)->tp_traverse(obj, visit, &walk);
    }
    if (!failed)
        found = found_in(&walk);
    else if (!PyErr_Occurred())
        PyErr_NoMemory();
    size_t objects = walk.seen.used, met = walk.numbers.used;
    PyMem_Free(walk.seen.slots);
    PyMem_Free(walk.numbers.slots);
    PyMem_Free(walk.waiting);
    return found ? Py_BuildValue("(Nnn)", found, (Py_ssize_t)objects, (Py_ssize_t)met) : NULL;
}

static PyMethodDef methods[] = {
    {"numbers", numbers, METH_VARARGS, numbers_doc},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.image.lowlevel._addresses",
    .m_doc = "Numbers that are the addresses of objects.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__addresses(void)
{
    return PyModule_Create(&definition);
}
