/* Declarations that the C files of the module _watch share: the callback, the fast path, interposition. */

#ifndef CKPT_UNDO_WATCH_H
#define CKPT_UNDO_WATCH_H

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <stdio.h>
#include <sys/uio.h>

/* Tells the callback of an operation that is about to begin; the GIL is held. Returns -1 with an exception: the callback, or
   a signal handler that has run meanwhile, has raised. */
int watch_tell(const char *event, PyObject *args);

/* The process whose operations are told; 0: of none. */
extern pid_t watch_pid;

/* How long a thread that Python does not know waits until its operation is told. */
extern long long watch_patience_ns;

/* An operation of a compiled library, in the words of Python's audit events. A path relative to a directory comes with the
   directory's descriptor (or AT_FDCWD). */
struct operation {
    const char *event;
    int fd;
    const char *path;
    int other_fd;
    const char *other; /* the second path, or NULL */
    int flags;         /* of open */
    void *caller;      /* an address in the library */
};

/* Directories of the system, in which nothing is recorded; ends with a NULL. */
extern const char *const watch_left_alone[];

void watch_operation(const struct operation *operation);

/* Functions of the C library, and those that are called in their place; ends with a NULL. */
extern const struct replacement {
    const char *name;
    void *function;
} watch_replacements[];

/* What is called in place of functions that change positions and lengths of open files (positions.c). */
off_t our_lseek(int fd, off_t offset, int whence);
ssize_t our_pwrite(int fd, const void *data, size_t nbytes, off_t offset);
ssize_t our_pwritev(int fd, const struct iovec *data, int parts, off_t offset);
ssize_t our_pwritev2(int fd, const struct iovec *data, int parts, off_t offset, int flags);
ssize_t our_copy_file_range(int from, off_t *from_offset, int fd, off_t *offset, size_t nbytes, unsigned flags);
int our_ftruncate(int fd, off_t nbytes);
int our_fcntl(int fd, int command, ...);
int our_fseek(FILE *file, off_t offset, int whence);
int our_fsetpos(FILE *file, const fpos_t *position);
void our_rewind(FILE *file);

/* Says of which files the contents are told before they are written before their end. */
PyObject *watch_set_ends(PyObject *module, PyObject *rows);
extern const char watch_set_ends_doc[];

/* Does this thread run the callback? */
int watch_is_telling(void);

/* Are calls led here at all? */
extern const int watch_leads;

/* Treats the shared objects that are new since the last call. */
void watch_libraries(void);

#endif
