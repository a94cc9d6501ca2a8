/* What the two files of the module _lookup share. */

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

/* adds what lookup_modules.c offers to the module; 0, or -1 with an error */
int add_module_searches(PyObject *module);
