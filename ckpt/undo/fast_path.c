/* The fast path of the undo log: what the recorder (ckpt/undo/recorder.py) would answer to the most common operations.

   Two answers are given here: "nothing needs to be kept", and "the name was free". All other operations are left to the
   recorder, which stays the only place with rules; tests compare both (tests/unit/ckpt/undo/test_fast_path.py).

   FastPath    knows the recorder's own tables of this interval (`begin`), and a few directories (`note`):
       place       the directory part of a path as programs give it, and what it led to: device and inode, canonical name
       standing    of a place. PLAIN: its name is that of the beginning of the interval. NEW: it has been made in the
                   interval, nothing in it is recorded. LEFT_ALONE: nothing in it is of interest
   LogEnd      where the log ends (log_end.c)

   Rules
   - A place counts only while its directory part still leads to the same inode. The watch forgets all places (`forget`) before
     it handles anything that could change the name or the standing of a directory, and when the working directory changes.
     Without a symbolic link in it, it can lead elsewhere only if another process exchanges a directory for a link; then it is
     looked at once in a millisecond (`STEADY_NS`), else each time.
   - Paths that are not plain text in ASCII, relative to a descriptor, or whose last part is a link, are left to the recorder.
   - While the recorder handles an operation of another thread, all operations are left to it.

   Not here: what needs a copy or a hard link. */

#include "fast_path.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

enum { PLACES = 16, PATH_BYTES = 4096 };
static const long long STEADY_NS = 1000000;
enum standing { PLAIN, NEW, LEFT_ALONE };

struct place {
    char given[512], canonical[512];
    size_t given_bytes, canonical_bytes;
    dev_t device;
    ino_t inode;
    long long seen_ns; /* when it was last seen to lead there; 0: it is looked at each time */
    enum standing standing;
};

enum { END, NAMES, CONTENTS, OLD, LINKED, WRITTEN_AS, TABLES };

typedef struct {
    PyObject_HEAD
    PyObject *known[TABLES]; /* a LogEnd, the recorder's dicts and sets */
    long long began_ns;
    pid_t pid;
    int noted; /* places noted since they were last forgotten; they go round */
    struct place places[PLACES];
} FastPath;

/* Write the record of a name that was free. 0: it is not in the log. */
static int append_free_name(FastPath *self, const char *path)
{
    char text[PATH_BYTES + 64];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int nbytes = snprintf(text, sizeof text, "[\"name\",\"%s\",null,0,%lld]", path,
                          (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    return nbytes > 0 && (size_t)nbytes < sizeof text && log_end_append(self->known[END], text, (size_t)nbytes);
}

static int path_init(FastPath *self, PyObject *args, PyObject *keywords)
{
    if (!PyArg_ParseTuple(args, ""))
        return -1;
    self->pid = getpid();
    self->noted = 0;
    return 0;
}

static void path_clear(FastPath *self)
{
    self->noted = 0;
    for (int i = 0; i < TABLES; i++)
        Py_CLEAR(self->known[i]);
}

static void path_dealloc(FastPath *self)
{
    path_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyDoc_STRVAR(begin_doc, "begin(end, began_ns, names, contents, old, linked, written_as, /) -> None\n\n"
                        "An interval begins. ``end``: of its log; the others: the recorder's (Recorder.tables).");

static PyObject *path_begin(FastPath *self, PyObject *args)
{
    PyObject *given[TABLES];
    long long began_ns;
    if (!PyArg_ParseTuple(args, "O!LO!O!O!O!O!", &LogEnd_Type, given + END, &began_ns, &PyDict_Type, given + NAMES, &PyDict_Type,
                          given + CONTENTS, &PySet_Type, given + OLD, &PySet_Type, given + LINKED, &PySet_Type,
                          given + WRITTEN_AS))
        return NULL;
    path_clear(self);
    for (int i = 0; i < TABLES; i++)
        self->known[i] = Py_NewRef(given[i]);
    self->began_ns = began_ns;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(forget_doc, "forget() -> None\n\nNo place is known any more.");

static PyObject *path_forget(FastPath *self, PyObject *unused)
{
    self->noted = 0;
    Py_RETURN_NONE;
}

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The directory part of a path as it is given, into a buffer; its length, or 0: it does not fit. */
static size_t directory_part(const char *path, const char *base, char *given, size_t size)
{
    size_t nbytes = base == path ? 1 : base - path == 1 ? 1 : (size_t)(base - path - 1);
    if (nbytes >= size)
        return 0;
    if (base == path)
        given[0] = '.';
    else
        memcpy(given, path, nbytes);
    given[nbytes] = 0;
    return nbytes;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* Printable ASCII without what JSON escapes. */
static int is_plain(const char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~' || *text == '"' || *text == '\\')
            return 0;
    return 1;
}

/* A path that the fast path reads; NULL: it does not. */
static const char *plain_path(PyObject *path)
{
    if (!PyUnicode_CheckExact(path) || !PyUnicode_IS_ASCII(path))
        return NULL;
    Py_ssize_t nbytes = PyUnicode_GET_LENGTH(path);
    const char *text = (const char *)PyUnicode_1BYTE_DATA(path);
    if (nbytes >= 512 || (Py_ssize_t)strlen(text) != nbytes || !is_plain(text))
        return NULL;
    const char *base = base_of(text);
    return !*base || !strcmp(base, ".") || !strcmp(base, "..") ? NULL : text;
}

PyDoc_STRVAR(note_doc, "note(path, canonical, standing, has_links, /) -> None\n\n"
                       "A program has given ``path``, whose directory has the canonical name ``canonical``. ``standing``: 0, plain; 1,\n"
                       "new; 2, left alone. ``has_links``: the path may lead through symbolic links.");

static PyObject *path_note(FastPath *self, PyObject *args)
{
    PyObject *given, *canonical;
    int standing, has_links;
    if (!PyArg_ParseTuple(args, "OUip", &given, &canonical, &standing, &has_links))
        return NULL;
    const char *path = plain_path(given), *name = PyUnicode_AsUTF8(canonical);
    PyErr_Clear(); /* not UTF-8 */
    struct place *place = &self->places[self->noted % PLACES];
    struct stat found;
    if (path == NULL || name == NULL || !is_plain(name) || strlen(name) >= sizeof place->canonical)
        Py_RETURN_NONE;
    place->given_bytes = directory_part(path, base_of(path), place->given, sizeof place->given);
    if (!place->given_bytes || stat(place->given, &found))
        Py_RETURN_NONE;
    strcpy(place->canonical, name);
    place->canonical_bytes = strlen(name);
    place->device = found.st_dev;
    place->inode = found.st_ino;
    place->standing = standing;
    place->seen_ns = has_links ? 0 : now_ns();
    self->noted++;
    Py_RETURN_NONE;
}

/* The place that the path's directory part leads to; NULL: it is not known. */
static struct place *place_of(FastPath *self, const char *path)
{
    char given[512];
    struct stat found;
    size_t nbytes = directory_part(path, base_of(path), given, sizeof given);
    int known = self->noted < PLACES ? self->noted : PLACES;
    for (int i = 0; nbytes && i < known; i++) {
        struct place *place = &self->places[i];
        if (place->given_bytes == nbytes && !memcmp(place->given, given, nbytes)) {
            long long now = place->seen_ns ? now_ns() : 0;
            if (now && now - place->seen_ns < STEADY_NS)
                return place;
            place->seen_ns = now;
            if (stat(given, &found) || found.st_dev != place->device || found.st_ino != place->inode)
                return NULL;
            return place;
        }
    }
    return NULL;
}

/* The canonical name, a new str; NULL: too long (no exception). */
static PyObject *canonical_name(const struct place *place, const char *base, char *name)
{
    size_t nbytes = strlen(base), above = place->canonical_bytes;
    if (above + 1 + nbytes >= PATH_BYTES)
        return NULL;
    memcpy(name, place->canonical, above);
    name[above] = '/';
    memcpy(name + above + 1, base, nbytes + 1);
    PyObject *made = PyUnicode_FromStringAndSize(name, (Py_ssize_t)(above + 1 + nbytes));
    PyErr_Clear();
    return made;
}

/* As ckpt.undo.records.FileId: equal to it, and with its hash. A new tuple, or NULL without an exception. */
static PyObject *file_id(const struct statx *found)
{
    if (!(found->stx_mask & STATX_BTIME))
        return NULL;
    PyObject *made = Py_BuildValue("(KKL)", (unsigned long long)makedev(found->stx_dev_major, found->stx_dev_minor),
                                   (unsigned long long)found->stx_ino,
                                   (long long)found->stx_btime.tv_sec * 1000000000 + found->stx_btime.tv_nsec);
    PyErr_Clear();
    return made;
}

static int in_set(PyObject *set, PyObject *item)
{
    int found = PySet_Contains(set, item);
    PyErr_Clear();
    return found == 1;
}

/* Recorder._before_writing where contents are recorded already, under this name or with a hard link. */
static int contents_are_recorded(FastPath *self, PyObject *file, PyObject *name, int appends)
{
    PyObject *is_complete = PyDict_GetItemWithError(self->known[CONTENTS], file);
    if (is_complete == NULL || !(is_complete == Py_True || (is_complete == Py_False && appends)))
        return 0;
    if (in_set(self->known[LINKED], file))
        return 1;
    PyObject *pair = PyTuple_Pack(2, file, name);
    int is_known = pair != NULL && in_set(self->known[WRITTEN_AS], pair);
    Py_XDECREF(pair);
    return is_known;
}

/* An existing file is opened for writing. */
static int writing_is_settled(FastPath *self, const struct place *place, PyObject *name, const struct statx *found, int appends)
{
    PyObject *file = file_id(found);
    if (file == NULL)
        return 0;
    PyObject *binding = PyDict_GetItemWithError(self->known[NAMES], name); /* NULL: the name is as it was */
    int is_named = 0;
    if (place->standing == PLAIN && binding == NULL)
        is_named = 1;
    else if (place->standing == PLAIN && binding != Py_None) {
        PyObject *bound = PyTuple_Check(binding) ? PyTuple_GET_ITEM(binding, 0) : NULL; /* Status.file */
        is_named = bound == NULL || PyObject_RichCompareBool(bound, file, Py_EQ) != 0;
    }
    int settled;
    if (is_named || in_set(self->known[OLD], file))
        settled = place->standing == PLAIN && contents_are_recorded(self, file, name, appends);
    else
        settled = (long long)found->stx_btime.tv_sec * 1000000000 + found->stx_btime.tv_nsec > self->began_ns;
    Py_DECREF(file);
    return settled;
}

/* -1: nothing is there; -2: not known; else the type of the file. */
static int look(const char *path, struct statx *found)
{
    if (!statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, found))
        return found->stx_mode & S_IFMT;
    return errno == ENOENT ? -1 : -2;
}

/* The record of a name that is free, if it is the first of this name. */
static int free_name_is_settled(FastPath *self, PyObject *name, const char *text)
{
    return PyDict_Contains(self->known[NAMES], name) == 1 ||
           (append_free_name(self, text) && PyDict_SetItem(self->known[NAMES], name, Py_None) == 0);
}

static int open_is_settled(FastPath *self, PyObject *args)
{
    if (PyTuple_GET_SIZE(args) != 3 || !PyLong_CheckExact(PyTuple_GET_ITEM(args, 2)))
        return 0;
    int overflow;
    long flags = PyLong_AsLongAndOverflow(PyTuple_GET_ITEM(args, 2), &overflow);
    const char *path = plain_path(PyTuple_GET_ITEM(args, 0));
    struct place *place = path == NULL || overflow ? NULL : place_of(self, path);
    if (place == NULL)
        return 0;
    if (place->standing == LEFT_ALONE)
        return 1;
    struct statx found;
    int type = look(path, &found);
    if (!(type == S_IFREG || (type == -1 && flags & O_CREAT)))
        return 0;
    if (type == -1 && place->standing == NEW)
        return 1;
    char text[PATH_BYTES];
    PyObject *name = canonical_name(place, base_of(path), text);
    if (name == NULL)
        return 0;
    int settled = type == S_IFREG
                      ? writing_is_settled(self, place, name, &found, flags & O_APPEND && !(flags & O_TRUNC))
                      : free_name_is_settled(self, name, text);
    Py_DECREF(name);
    return settled;
}

/* A name of anything but a directory is bound to something else. ``may_be_free``: it need not exist. Below what is left alone
   the recorder is asked: the other name of a renaming may matter. */
static int name_is_settled(FastPath *self, PyObject *given, int may_be_free)
{
    const char *path = plain_path(given);
    struct place *place = path == NULL ? NULL : place_of(self, path);
    struct statx found;
    if (place == NULL)
        return 0;
    int type = look(path, &found);
    if (type == -2 || type == S_IFDIR || (type == -1 && !may_be_free) || place->standing == LEFT_ALONE)
        return 0;
    if (place->standing == NEW)
        return 1;
    char text[PATH_BYTES];
    PyObject *name = canonical_name(place, base_of(path), text);
    if (name == NULL)
        return 0;
    int settled = type == -1 ? free_name_is_settled(self, name, text) : PyDict_Contains(self->known[NAMES], name) == 1;
    Py_DECREF(name);
    return settled;
}

static int is_no_descriptor(PyObject *fd) { return PyLong_CheckExact(fd) && PyLong_AsLong(fd) == -1; }

static int rename_is_settled(FastPath *self, PyObject *args)
{
    return PyTuple_GET_SIZE(args) == 4 && is_no_descriptor(PyTuple_GET_ITEM(args, 2)) &&
           is_no_descriptor(PyTuple_GET_ITEM(args, 3)) && name_is_settled(self, PyTuple_GET_ITEM(args, 0), 0) &&
           name_is_settled(self, PyTuple_GET_ITEM(args, 1), 1);
}

static int remove_is_settled(FastPath *self, PyObject *args)
{
    return PyTuple_GET_SIZE(args) == 2 && is_no_descriptor(PyTuple_GET_ITEM(args, 1)) &&
           name_is_settled(self, PyTuple_GET_ITEM(args, 0), 0);
}

int fast_path_settles(PyObject *fast_path, const char *event, PyObject *args)
{
    FastPath *self = (FastPath *)fast_path;
    if (!self->noted || callbacks_under_way || !PyTuple_Check(args) || self->pid != getpid())
        return 0;
    int settled = 0;
    if (!strcmp(event, "open"))
        settled = open_is_settled(self, args);
    else if (!strcmp(event, "os.rename"))
        settled = rename_is_settled(self, args);
    else if (!strcmp(event, "os.remove"))
        settled = remove_is_settled(self, args);
    PyErr_Clear();
    return settled;
}

void fast_path_forget(PyObject *fast_path) { ((FastPath *)fast_path)->noted = 0; }

static PyMethodDef path_methods[] = {{"begin", (PyCFunction)path_begin, METH_VARARGS, begin_doc},
                                     {"forget", (PyCFunction)path_forget, METH_NOARGS, forget_doc},
                                     {"note", (PyCFunction)path_note, METH_VARARGS, note_doc},
                                     {NULL, NULL, 0, NULL}};

PyDoc_STRVAR(path_doc, "FastPath()\n\nWhat an operation needs, where that is nothing, or one line. See the header of fast_path.c.");

PyTypeObject FastPath_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.undo._watch.FastPath",
    .tp_basicsize = sizeof(FastPath),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = path_doc,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)path_init,
    .tp_dealloc = (destructor)path_dealloc,
    .tp_methods = path_methods,
};
