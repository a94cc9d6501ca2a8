/* Pickling of small objects: None, bool, int of 64 bits, float, short ASCII str, short bytes, and tuple, list and dict of these.
   Objects of derived classes are not pickled here. */

#ifndef CKPT_SMALL_PICKLE_H
#define CKPT_SMALL_PICKLE_H

#include <Python.h>

#define PICKLE_MOST 512 /* size in bytes of the longest pickle that is made or read here */

/* Writes pickle.dumps(object, 5) into `out` (PICKLE_MOST bytes); the pickle begins at *start.  Returns its length; 0: the object is
   not small, or not of these types. */
size_t small_pickle(PyObject *object, unsigned char *out, unsigned char **start);

/* The object of such a pickle.  NULL without an exception: the pickle has other opcodes, so the module pickle has to load it. */
PyObject *small_unpickle(const unsigned char *at, Py_ssize_t size);

#endif
