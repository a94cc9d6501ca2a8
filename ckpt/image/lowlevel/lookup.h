/* What the files of the module _lookup share. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>

#include "private_api.h"

/* the place of an address in a table of a power of two of entries */
static inline size_t spread(void *address)
{
    size_t x = (size_t)address >> 4;
    return x ^ (x >> 15);
}

static inline int is_named(PyObject *found, PyObject *name) { return found && PyUnicode_Check(found) && PyUnicode_Compare(found, name) == 0; }

static inline int is_function_with_attributes(PyObject *value, PyObject *name)
{
    if (!Py_IS_TYPE(value, &PyFunction_Type) || !is_named(PyFunction_GetModule(value), name)) return 0;
    PyObject *attributes = ((PyFunctionObject *)value)->func_dict;
    return attributes && PyDict_GET_SIZE(attributes);
}

static inline int is_one_of(PyObject *value, PyObject *types)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); i++)
        if (PyTuple_GET_ITEM(types, i) == (PyObject *)Py_TYPE(value)) return 1;
    return 0;
}

/* add what lookup_modules.c and lookup_notes.c offer to the module; 0, or -1 with an error */
int add_module_searches(PyObject *module);
int add_comparisons(PyObject *module);
