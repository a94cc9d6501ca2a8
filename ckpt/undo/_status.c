/* What a path is bound to, in one call of statx(2), with the time at which the file was made: that, device and number
   together are given to one file only.

       look(path) -> (device, inode, born_ns, mode, links, nbytes, mtime_ns, user, group), or None: the path does not exist

       reserve(fd, nbytes)    the file system keeps space for the first `nbytes` bytes of the file, whose length stays

       inotify_open() -> fd, which does not block; inotify_add(fd, path, mask) -> watch descriptor: see inotify(7)

   A symbolic link is not followed. `born_ns` is 0 where the file system does not say. Raises OSError for other failures. */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static long long nanoseconds(struct statx_timestamp at) { return (long long)at.tv_sec * 1000000000 + at.tv_nsec; }

PyDoc_STRVAR(look_doc,
             "look(path, /) -> tuple[int, ...] | None\n\n"
             "Device, inode, time of creation in ns (0: unknown), mode, number of links, length in bytes, mtime in ns,\n"
             "user, group; None: the path does not exist. Raises OSError.");

static PyObject *look(PyObject *module, PyObject *path)
{
    PyObject *bytes;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    struct statx found;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = statx(AT_FDCWD, PyBytes_AS_STRING(bytes), AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &found);
    Py_END_ALLOW_THREADS
    Py_DECREF(bytes);
    if (failed) {
        if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
            Py_RETURN_NONE;
        return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    }
    return Py_BuildValue("(KKLIIKLII)", (unsigned long long)makedev(found.stx_dev_major, found.stx_dev_minor),
                         (unsigned long long)found.stx_ino,
                         found.stx_mask & STATX_BTIME ? nanoseconds(found.stx_btime) : 0LL, (unsigned)found.stx_mode,
                         (unsigned)found.stx_nlink, (unsigned long long)found.stx_size, nanoseconds(found.stx_mtime),
                         (unsigned)found.stx_uid, (unsigned)found.stx_gid);
}

PyDoc_STRVAR(reserve_doc,
             "reserve(fd, nbytes, /) -> None\n\n"
             "Have space for the first bytes of a file (fallocate(2), FALLOC_FL_KEEP_SIZE). Does nothing where the file system\n"
             "cannot. Raises OSError: there is no space.");

static PyObject *reserve(PyObject *module, PyObject *args)
{
    int fd;
    long long nbytes;
    if (!PyArg_ParseTuple(args, "iL", &fd, &nbytes))
        return NULL;
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, nbytes) && errno != EOPNOTSUPP && errno != ENOSYS)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(inotify_open_doc, "inotify_open() -> int\n\nA descriptor that does not block. Raises OSError.");

static PyObject *inotify_open(PyObject *module, PyObject *unused)
{
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    return fd < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromLong(fd);
}

PyDoc_STRVAR(inotify_add_doc, "inotify_add(fd, path, mask, /) -> int\n\nThe watch descriptor. Raises OSError.");

static PyObject *inotify_add(PyObject *module, PyObject *args)
{
    int fd;
    PyObject *path;
    unsigned int mask;
    if (!PyArg_ParseTuple(args, "iO&I", &fd, PyUnicode_FSConverter, &path, &mask))
        return NULL;
    int number = inotify_add_watch(fd, PyBytes_AS_STRING(path), mask);
    PyObject *result = number < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromLong(number);
    Py_DECREF(path);
    return result;
}

static PyMethodDef methods[] = {{"look", look, METH_O, look_doc},
                                {"reserve", reserve, METH_VARARGS, reserve_doc},
                                {"inotify_open", inotify_open, METH_NOARGS, inotify_open_doc},
                                {"inotify_add", inotify_add, METH_VARARGS, inotify_add_doc},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_status", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__status(void) { return PyModule_Create(&definition); }
