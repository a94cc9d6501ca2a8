/* Small objects made of None, bool, int of 64 bits, float, short ASCII str, short bytes, tuple, list and dict, nothing derived from them. */

#ifndef CKPT_SMALL_PICKLE_H
#define CKPT_SMALL_PICKLE_H

#include <Python.h>

#define PICKLE_MOST 512 /* bytes of the longest pickle that is made and read here */

/* pickle.dumps(object, 5) into `out` (PICKLE_MOST bytes), which begins at *start: its length, or 0 if it is none such. */
size_t small_pickle(PyObject *object, unsigned char *out, unsigned char **start);

/* pickle.loads of it; NULL without an exception: it is another pickle. */
PyObject *small_unpickle(const unsigned char *at, Py_ssize_t size);

#endif
