/* The fast path of the undo log: what the recorder (ckpt/undo/recorder.py) would answer to the most common operations.

   Two answers are given here: "nothing needs to be kept", and "the name was free". All other operations are left to the
   recorder, which stays the only place with rules; tests compare both (tests/unit/ckpt/undo/test_fast_path.py).

   FastPath    knows the recorder's own tables of this interval (`begin`), and a few directories (`note`), see places.c
   LogEnd      where the log ends (log_end.c)

   Rules
   - A renaming of what is no directory replaces no directory: if there is nothing to record of the second name, it is not
     looked at.
   - unlink(2) removes no directory: it fails then. So what is removed is not looked at.
   - When this rank last changed a path is noted here as there (Tables.changes); not of what no other rank can change.
   - In new directories an open is not looked at while all in them has been made in the interval (Tables.mixed is empty), and
     no other rank can put something there. A renaming to one of them, from elsewhere, ends that.
   - While the recorder handles an operation of another thread, all operations are left to it.

   Not here: what needs a copy or a hard link. */

#include "fast_path.h"
#include "places.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };
enum { END, NAMES, CONTENTS, OLD, LINKED, WRITTEN_AS, MIXED, CHANGES, TABLES };

typedef struct {
    PyObject_HEAD
    PyObject *known[TABLES]; /* a LogEnd, the recorder's dicts and sets */
    long long new_after_ns;
    int *is_here; /* 1; and 0 in a forked process, where the kernel has wiped it (MADV_WIPEONFORK) */
    struct places places;
} FastPath;

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The file of this name is about to be written to, or the name to be bound to another one. 0: this is not noted. */
static int note_change(FastPath *self, PyObject *name)
{
    PyObject *time_ns = PyLong_FromLongLong(now_ns());
    PyObject *changes = self->known[CHANGES]; /* the newest is the last */
    int is_noted = time_ns != NULL && (PyDict_Contains(changes, name) != 1 || PyDict_DelItem(changes, name) == 0) &&
                   PyDict_SetItem(changes, name, time_ns) == 0;
    Py_XDECREF(time_ns);
    return is_noted;
}

/* Write the record of a name that was free. 0: it is not in the log. */
static int append_free_name(FastPath *self, const char *path)
{
    char text[PATH_BYTES + 64];
    int nbytes = snprintf(text, sizeof text, "[\"name\",\"%s\",null,0,%lld]", path, now_ns());
    return nbytes > 0 && (size_t)nbytes < sizeof text && log_end_append(self->known[END], text, (size_t)nbytes);
}

static int path_init(FastPath *self, PyObject *args, PyObject *keywords)
{
    if (!PyArg_ParseTuple(args, ""))
        return -1;
    if (self->is_here == NULL) {
        void *page = mmap(NULL, sizeof *self->is_here, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            return PyErr_SetFromErrno(PyExc_OSError), -1;
        self->is_here = page;
        /* A kernel without it: nothing is settled here. */
        *self->is_here = madvise(page, sizeof *self->is_here, MADV_WIPEONFORK) == 0;
    }
    self->places.noted = 0;
    return 0;
}

static void path_clear(FastPath *self)
{
    self->places.noted = 0;
    for (int i = 0; i < TABLES; i++)
        Py_CLEAR(self->known[i]);
}

static void path_dealloc(FastPath *self)
{
    path_clear(self);
    if (self->is_here != NULL)
        munmap(self->is_here, sizeof *self->is_here);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyDoc_STRVAR(begin_doc, "begin(end, new_after_ns, names, contents, old, linked, written_as, mixed, changes, /) -> None\n\n"
                        "An interval begins. ``end``: of its log; the others: the recorder's (Recorder.tables).");

static PyObject *path_begin(FastPath *self, PyObject *args)
{
    PyObject *given[TABLES];
    long long new_after_ns;
    if (!PyArg_ParseTuple(args, "O!LO!O!O!O!O!O!O!", &LogEnd_Type, given + END, &new_after_ns, &PyDict_Type, given + NAMES, &PyDict_Type,
                          given + CONTENTS, &PySet_Type, given + OLD, &PySet_Type, given + LINKED, &PySet_Type,
                          given + WRITTEN_AS, &PySet_Type, given + MIXED, &PyDict_Type, given + CHANGES))
        return NULL;
    path_clear(self);
    for (int i = 0; i < TABLES; i++)
        self->known[i] = Py_NewRef(given[i]);
    self->new_after_ns = new_after_ns;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(settle_doc, "settle(new_after_ns, /) -> None\n\nA file that is made later is in no line (Recorder.settle).");

static PyObject *path_settle(FastPath *self, PyObject *given)
{
    long long new_after_ns = PyLong_AsLongLong(given);
    if (new_after_ns == -1 && PyErr_Occurred())
        return NULL;
    self->new_after_ns = new_after_ns;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(forget_doc, "forget() -> None\n\nNo place is known any more.");

static PyObject *path_forget(FastPath *self, PyObject *unused)
{
    fast_path_forget((PyObject *)self);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(note_doc, "note(path, canonical, standing, is_unsteady, /) -> None\n\n"
                       "A program has given ``path``, whose directory has the canonical name ``canonical``. ``standing``: 0, plain; 1,\n"
                       "new; 2, left alone. ``is_unsteady``: the path may lead elsewhere at any time.");

static PyObject *path_note(FastPath *self, PyObject *args)
{
    PyObject *given, *canonical;
    int standing, is_unsteady;
    if (!PyArg_ParseTuple(args, "OUip", &given, &canonical, &standing, &is_unsteady))
        return NULL;
    const char *path = plain_path(given), *name = PyUnicode_AsUTF8(canonical);
    PyErr_Clear(); /* not UTF-8 */
    if (path != NULL && name != NULL)
        note_place(&self->places, path, name, standing, is_unsteady);
    Py_RETURN_NONE;
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
        settled = (long long)found->stx_btime.tv_sec * 1000000000 + found->stx_btime.tv_nsec > self->new_after_ns;
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

/* Has all in this directory been made in the interval? */
static int is_all_new(FastPath *self, const struct place *place)
{
    return place->standing == NEW && place->seen_ns /* else another rank may have put something there */ &&
           PySet_GET_SIZE(self->known[MIXED]) == 0;
}

static int open_is_settled(FastPath *self, PyObject *args)
{
    if (PyTuple_GET_SIZE(args) != 3 || !PyLong_CheckExact(PyTuple_GET_ITEM(args, 2)))
        return 0;
    int overflow;
    long flags = PyLong_AsLongAndOverflow(PyTuple_GET_ITEM(args, 2), &overflow);
    const char *path = plain_path(PyTuple_GET_ITEM(args, 0));
    struct place *place = path == NULL || overflow ? NULL : place_of(&self->places, path, -1);
    if (place == NULL)
        return 0;
    if (place->standing == LEFT_ALONE)
        return 1;
    if (place->standing == NEW && flags & O_CREAT && flags & O_EXCL)
        return 1; /* new, or nothing happens */
    if (is_all_new(self, place))
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
    int appends = flags & O_APPEND && !(flags & O_TRUNC);
    int settled = type == S_IFREG ? writing_is_settled(self, place, name, &found, appends) && note_change(self, name)
                                  : free_name_is_settled(self, name, text);
    Py_DECREF(name);
    return settled;
}

/* Is there nothing to record of this name? */
static int name_is_known(FastPath *self, const struct place *place, const char *path)
{
    char text[PATH_BYTES];
    if (place->standing != PLAIN)
        return 1;
    PyObject *name = canonical_name(place, base_of(path), text);
    int is_known = name != NULL && PyDict_Contains(self->known[NAMES], name) == 1;
    Py_XDECREF(name);
    return is_known;
}

/* A name of anything but a directory, which is there, is bound to something else. */
static int old_name_is_settled(FastPath *self, const struct place *place, const char *path)
{
    struct statx found;
    int type = look(path, &found);
    return type >= 0 && type != S_IFDIR && name_is_known(self, place, path);
}

/* What comes to this new directory may have been there before. */
static int is_mixed_from_now_on(FastPath *self, const struct place *place)
{
    if (PySet_GET_SIZE(self->known[MIXED]))
        return 1;
    PyObject *directory = PyUnicode_FromString(place->canonical);
    int is_told = directory != NULL && PySet_Add(self->known[MIXED], directory) == 0;
    Py_XDECREF(directory);
    return is_told;
}

/* A name, which may be free, is bound to something that is no directory. */
static int new_name_is_settled(FastPath *self, const struct place *from, struct place *place, const char *path)
{
    if (place->standing == LEFT_ALONE || (place->standing == NEW && is_all_new(self, from)))
        return 1;
    struct statx found;
    char text[PATH_BYTES];
    PyObject *name = canonical_name(place, base_of(path), text);
    int settled = name != NULL;
    if (settled && place->standing == NEW)
        settled = is_mixed_from_now_on(self, place);
    else if (settled)
        settled = PyDict_Contains(self->known[NAMES], name) == 1 ||
                  (look(path, &found) == -1 && free_name_is_settled(self, name, text));
    settled = settled && note_change(self, name);
    Py_XDECREF(name);
    return settled;
}

/* -1: there is none, -2: this is no descriptor. */
static int descriptor_of(PyObject *fd)
{
    int overflow;
    long number = PyLong_CheckExact(fd) ? PyLong_AsLongAndOverflow(fd, &overflow) : -2;
    return number >= -1 && number <= INT_MAX ? (int)number : -2;
}

static int rename_is_settled(FastPath *self, PyObject *args)
{
    if (PyTuple_GET_SIZE(args) != 4 || descriptor_of(PyTuple_GET_ITEM(args, 2)) != -1 ||
        descriptor_of(PyTuple_GET_ITEM(args, 3)) != -1)
        return 0;
    const char *source = plain_path(PyTuple_GET_ITEM(args, 0)), *target = plain_path(PyTuple_GET_ITEM(args, 1));
    struct place *from = source == NULL ? NULL : place_of(&self->places, source, -1);
    struct place *to = target == NULL ? NULL : place_of(&self->places, target, -1);
    /* Where one of both is left alone, the other may matter. */
    return from != NULL && to != NULL && (from->standing == LEFT_ALONE) == (to->standing == LEFT_ALONE) &&
           old_name_is_settled(self, from, source) && new_name_is_settled(self, from, to, target);
}

static int remove_is_settled(FastPath *self, PyObject *args)
{
    if (PyTuple_GET_SIZE(args) != 2)
        return 0;
    int fd = descriptor_of(PyTuple_GET_ITEM(args, 1));
    const char *path = plain_path(PyTuple_GET_ITEM(args, 0));
    struct place *place = path == NULL || fd < -1 ? NULL : place_of(&self->places, path, fd);
    return place != NULL && name_is_known(self, place, path);
}

int fast_path_settles(PyObject *fast_path, const char *event, PyObject *args)
{
    FastPath *self = (FastPath *)fast_path;
    if (!self->places.noted || callbacks_under_way || !PyTuple_Check(args) || !*self->is_here)
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

void fast_path_forget(PyObject *fast_path) { ((FastPath *)fast_path)->places.noted = 0; }

static PyMethodDef path_methods[] = {{"begin", (PyCFunction)path_begin, METH_VARARGS, begin_doc},
                                     {"settle", (PyCFunction)path_settle, METH_O, settle_doc},
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
