/* Could a number be what id() returns? */

#ifndef CKPT_ADDRESSES_H
#define CKPT_ADDRESSES_H

#include <Python.h>
#include <stdint.h>

#define LEAST_ADDRESS (1LL << 32)
#define LEAST_NO_ADDRESS (1LL << 47)
#define ALIGNMENT 8

/* the address, or 0; for an exact int */
static inline uintptr_t address_in(PyObject *number)
{
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    return overflow || value < LEAST_ADDRESS || value >= LEAST_NO_ADDRESS || value % ALIGNMENT ? 0 : (uintptr_t)value;
}

#endif
