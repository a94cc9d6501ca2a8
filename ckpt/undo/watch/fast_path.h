/* Operations on files that need no before-image, or only the record of a name that was free: answered without the recorder.

   Shared by _watch.c (the hook), fast_path.c and log_end.c. See fast_path.c. */

#ifndef CKPT_UNDO_FAST_PATH_H
#define CKPT_UNDO_FAST_PATH_H

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

extern PyTypeObject LogEnd_Type, FastPath_Type;

/* How many threads are in the callback of the hook. */
extern int callbacks_under_way;

/* Is all done that this audit event needs? 0: the recorder has to look at it. No Python code runs, the GIL is kept, and no
   exception is set. */
int fast_path_settles(PyObject *fast_path, const char *event, PyObject *args);

/* The working directory changes: relative paths lead elsewhere. */
void fast_path_forget(PyObject *fast_path);

/* Add a line with this text. 0: it is not in the log; there may be an exception. */
int log_end_append(PyObject *log_end, const char *text, size_t nbytes);

/* mac(key, before, text) -> str, for the module */
PyObject *log_mac(PyObject *module, PyObject *args);

#endif
