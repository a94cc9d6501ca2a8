/* What a path is bound to, in one call of statx(2), with the time at which the file was made: no two files ever have the same
   device, inode number and time.

       look(path) -> (device, inode, born_ns, mode, links, nbytes, mtime_ns, user, group), or None: the path does not exist

       noted(path) -> bytes   look() as the text of a record `noted` (ckpt.undo.records): ten thousands of them are written at a
                              checkpoint. None: it is a symbolic link, or the path is no plain ASCII

       look_at(fd, name)      the same of a name in the directory that is open as `fd`; "": of what is open

       open_directory(path)   a descriptor of a directory; no component of the path may be a symbolic link

       share(devices)         from now on: {device: number that all hosts of the job know this file system by}. Empty: none is shared

       reserve(fd, nbytes)    the file system keeps space for the first `nbytes` bytes of the file, whose length stays

       sync_file_system(fd)   all that was changed in the file system of an open file is durable (syncfs(2))

       inotify_open() -> fd, which does not block; inotify_add(fd, path, mask) -> watch descriptor;
       inotify_remove(fd, number): see inotify(7)

   With shared file systems (`share`), another host may have changed what this one remembers: a network file system is made to
   ask its server (AT_STATX_FORCE_SYNC), for the directory first, since that a name is absent is remembered, too.

   A symbolic link is not followed. `born_ns` is 0 where the file system does not say. Raises OSError for other failures.

   open_directory() goes from the root down, one component at a time, so whoever replaces one by a symbolic link meanwhile
   leads it nowhere, and a path may be longer than PATH_MAX. */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { SHARED = 64 };
static struct { unsigned long long device, number; } shared[SHARED];
static int shared_count;

static unsigned long long device_of(const struct statx *found)
{
    unsigned long long device = makedev(found->stx_dev_major, found->stx_dev_minor);
    for (int i = 0; i < shared_count; i++)
        if (shared[i].device == device)
            return shared[i].number;
    return device;
}

/* statx(2), with what the server says. 0, or -1 and errno. */
static int statx_now(int fd, const char *path, int flags, struct statx *found)
{
    if (shared_count) {
        const char *name = strrchr(path, '/');
        char *above = name == NULL ? strdup("") : strndup(path, name == path ? 1 : (size_t)(name - path));
        if (above != NULL)
            (void)statx(fd, above, AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, found); /* the next call says what is wrong */
        free(above);
        flags |= AT_STATX_FORCE_SYNC;
    }
    return statx(fd, path, AT_SYMLINK_NOFOLLOW | flags, STATX_BASIC_STATS | STATX_BTIME, found);
}

static long long nanoseconds(struct statx_timestamp at) { return (long long)at.tv_sec * 1000000000 + at.tv_nsec; }

PyDoc_STRVAR(look_doc,
             "look(path, /) -> tuple[int, ...] | None\n\n"
             "Device, inode, time of creation in ns (0: unknown), mode, number of links, length in bytes, mtime in ns,\n"
             "user, group; None: the path does not exist. Raises OSError.");

static PyObject *found_at(int fd, PyObject *path, int flags)
{
    PyObject *bytes;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    struct statx found;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = statx_now(fd, PyBytes_AS_STRING(bytes), flags, &found);
    Py_END_ALLOW_THREADS
    Py_DECREF(bytes);
    if (failed) {
        if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
            Py_RETURN_NONE;
        return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    }
    return Py_BuildValue("(KKLIIKLII)", device_of(&found),
                         (unsigned long long)found.stx_ino,
                         found.stx_mask & STATX_BTIME ? nanoseconds(found.stx_btime) : 0LL, (unsigned)found.stx_mode,
                         (unsigned)found.stx_nlink, (unsigned long long)found.stx_size, nanoseconds(found.stx_mtime),
                         (unsigned)found.stx_uid, (unsigned)found.stx_gid);
}

static PyObject *look(PyObject *module, PyObject *path) { return found_at(AT_FDCWD, path, 0); }

PyDoc_STRVAR(noted_doc, "noted(path, /) -> bytes | None\n\nThe record `noted` of this path, as JSON. Raises OSError.");

static int is_plain(const char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~' || *text == '"' || *text == '\\')
            return 0;
    return 1;
}

static PyObject *noted(PyObject *module, PyObject *path)
{
    if (!PyUnicode_Check(path) || !PyUnicode_IS_ASCII(path) || !is_plain((const char *)PyUnicode_1BYTE_DATA(path)))
        Py_RETURN_NONE;
    const char *text = (const char *)PyUnicode_1BYTE_DATA(path);
    struct statx found;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = statx_now(AT_FDCWD, text, 0, &found);
    Py_END_ALLOW_THREADS
    if (failed) {
        if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
            return PyBytes_FromFormat("[\"noted\",\"%s\",null]", text);
        return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    }
    if (S_ISLNK(found.stx_mode))
        Py_RETURN_NONE;
    char status[256];
    snprintf(status, sizeof status, "[[%llu,%llu,%lld],%u,%u,%llu,%lld,%u,%u,\"\"]",
             device_of(&found), (unsigned long long)found.stx_ino,
             found.stx_mask & STATX_BTIME ? nanoseconds(found.stx_btime) : 0LL, (unsigned)found.stx_mode,
             (unsigned)found.stx_nlink, (unsigned long long)found.stx_size, nanoseconds(found.stx_mtime),
             (unsigned)found.stx_uid, (unsigned)found.stx_gid);
    return PyBytes_FromFormat("[\"noted\",\"%s\",%s]", text, status);
}

PyDoc_STRVAR(look_at_doc, "look_at(fd, name, /) -> tuple[int, ...] | None\n\nlook() of a name in an open directory; \"\": of what is open.");

static PyObject *look_at(PyObject *module, PyObject *args)
{
    int fd;
    PyObject *name;
    return PyArg_ParseTuple(args, "iO", &fd, &name) ? found_at(fd, name, AT_EMPTY_PATH) : NULL;
}

PyDoc_STRVAR(open_directory_doc,
             "open_directory(path, /) -> int\n\n"
             "A descriptor (O_PATH) of the directory with this absolute path. Raises OSError: ELOOP if a component is a\n"
             "symbolic link, ENOTDIR if one is no directory either.");

static int is_symlink(int fd, const char *name)
{
    struct stat found;
    return fstatat(fd, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(found.st_mode);
}

/* A descriptor, or -1 and errno. `path` is written to. */
static int opened_directory(char *path)
{
    const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = open("/", flags);
    char *left = path;
    for (char *name; fd >= 0 && (name = strsep(&left, "/")) != NULL;) {
        if (*name == 0)
            continue;
        int below = openat(fd, name, flags);
        int failure = below < 0 && errno == ENOTDIR && is_symlink(fd, name) ? ELOOP : errno;
        close(fd);
        fd = below;
        errno = failure;
    }
    return fd;
}

static PyObject *open_directory(PyObject *module, PyObject *path)
{
    PyObject *bytes;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    char *text = strdup(PyBytes_AS_STRING(bytes));
    Py_DECREF(bytes);
    if (text == NULL)
        return PyErr_NoMemory();
    int fd;
    Py_BEGIN_ALLOW_THREADS
    fd = opened_directory(text);
    Py_END_ALLOW_THREADS
    free(text);
    return fd < 0 ? PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path) : PyLong_FromLong(fd);
}

PyDoc_STRVAR(share_doc,
             "share(devices, /) -> None\n\n"
             "From now on: the number by which all hosts of the job know the file system of a device. Empty: none is shared.\n"
             "Raises ValueError: there are too many.");

static PyObject *share(PyObject *module, PyObject *devices)
{
    PyObject *device, *number;
    Py_ssize_t at = 0;
    int count = 0;
    if (!PyDict_Check(devices) || PyDict_Size(devices) > SHARED)
        return PyErr_Format(PyExc_ValueError, "a dict of at most %d file systems is wanted", SHARED);
    while (PyDict_Next(devices, &at, &device, &number)) {
        shared[count].device = PyLong_AsUnsignedLongLong(device);
        shared[count].number = PyLong_AsUnsignedLongLong(number);
        if (PyErr_Occurred())
            return NULL;
        count++;
    }
    shared_count = count;
    Py_RETURN_NONE;
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

PyDoc_STRVAR(sync_file_system_doc,
             "sync_file_system(fd, /) -> None\n\n"
             "What was changed in the file system of this open file is durable. Raises OSError.");

static PyObject *sync_file_system(PyObject *module, PyObject *fd)
{
    int number = PyObject_AsFileDescriptor(fd), failed;
    if (number < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    failed = syncfs(number);
    Py_END_ALLOW_THREADS
    if (failed)
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

PyDoc_STRVAR(inotify_remove_doc, "inotify_remove(fd, number, /) -> None\n\nRaises OSError.");

static PyObject *inotify_remove(PyObject *module, PyObject *args)
{
    int fd, number;
    if (!PyArg_ParseTuple(args, "ii", &fd, &number))
        return NULL;
    return inotify_rm_watch(fd, number) < 0 ? PyErr_SetFromErrno(PyExc_OSError) : Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"look", look, METH_O, look_doc},
    {"noted", noted, METH_O, noted_doc},
    {"look_at", look_at, METH_VARARGS, look_at_doc},
    {"open_directory", open_directory, METH_O, open_directory_doc},
    {"share", share, METH_O, share_doc},
    {"reserve", reserve, METH_VARARGS, reserve_doc},
    {"sync_file_system", sync_file_system, METH_O, sync_file_system_doc},
    {"inotify_open", inotify_open, METH_NOARGS, inotify_open_doc},
    {"inotify_add", inotify_add, METH_VARARGS, inotify_add_doc},
    {"inotify_remove", inotify_remove, METH_VARARGS, inotify_remove_doc},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_status", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__status(void) { return PyModule_Create(&definition); }
