/* Boards in shared memory, which transport/boards/board.py specifies.

       Host(inbox, common, spin_ns, pause_ns, epoch)   what the boards of a process have in common
       Board(host, size, rank)                         makes the own area in a memory file (memfd_create(2)) and maps it
           .add(member, fd)                            maps that of another member, to be read only

   An area is not inherited by a forked process (MADV_DONTFORK): a board that is used there does nothing, and has nothing.

   The caller holds the port's lock; only `wait` and `make_room` give up the interpreter's lock, when they yield the core. */

#define _GNU_SOURCE
#include "board_ends.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static PyTypeObject HostType, BoardType;

static void count_fork(void) { board_forks++; }

/* ---- what the boards of a process have in common --------------------------------------------------------------------------- */

static PyObject *host_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    PyObject *inbox, *common;
    long long spin_ns, pause_ns;
    unsigned long long epoch;
    if (!PyArg_ParseTuple(args, "OOLLK", &inbox, &common, &spin_ns, &pause_ns, &epoch)) return NULL;
    if (!Py_IS_TYPE(inbox, board_rings->inbox)) return PyErr_Format(PyExc_TypeError, "%R is no inbox", inbox);
    Py_ssize_t dirty = slot_of((PyObject *)Py_TYPE(common), "dirty"), due = slot_of((PyObject *)Py_TYPE(common), "flush_due");
    if (dirty < 0 || due < 0) return NULL;
    Host *host = (Host *)type->tp_alloc(type, 0);
    if (!host) return NULL;
    host->inbox = Py_NewRef(inbox);
    host->common = Py_NewRef(common);
    host->dirty = dirty;
    host->flush_due = due;
    host->spin_ns = spin_ns;
    host->pause_ns = pause_ns;
    host->published = host->captured = epoch;
    return (PyObject *)host;
}

static void host_dealloc(PyObject *self)
{
    Py_CLEAR(((Host *)self)->inbox);
    Py_CLEAR(((Host *)self)->common);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *host_publish(PyObject *self, PyObject *number)
{
    Host *host = (Host *)self;
    uint64_t epoch = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return NULL;
    if (epoch > host->published) host->published = epoch;
    for (Board *board = host->first; board; board = board->next)
        if (board_own(board)) atomic_store(&board_own(board)->published, host->published);
    Py_RETURN_NONE;
}

static PyObject *host_advance(PyObject *self, PyObject *number)
{
    Host *host = (Host *)self;
    uint64_t epoch = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return NULL;
    if (epoch > host->captured) host->captured = epoch;
    for (Board *board = host->first; board; board = board->next)
        if (board_own(board)) atomic_store(&board_own(board)->captured, host->captured);
    Py_RETURN_NONE;
}

/* ---- a board --------------------------------------------------------------------------------------------------------------- */

static PyObject *board_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    PyObject *host;
    int size, rank;
    if (!PyArg_ParseTuple(args, "O!ii", &HostType, &host, &size, &rank)) return NULL;
    if (size < 2 || size > BOARD_MEMBERS || rank < 0 || rank >= size) {
        PyErr_Format(PyExc_ValueError, "a board for member %d of %d", rank, size);
        return NULL;
    }
    Board *board = (Board *)type->tp_alloc(type, 0);
    if (!board) return NULL;
    board->made_after = board_forks;
    board->size = size;
    board->rank = rank;
    board->fd = memfd_create("ckpt-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* The memory is allocated now: a page that cannot be had later would be a SIGBUS. */
    int failed = board->fd < 0 || ftruncate(board->fd, BOARD_BYTES) || fallocate(board->fd, 0, 0, BOARD_BYTES) ||
                 fcntl(board->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    if (failed) PyErr_SetFromErrno(PyExc_OSError);
    board_area *area = failed ? NULL : board_mapped(board->fd, PROT_READ | PROT_WRITE);
    if (!area) {
        Py_DECREF(board);
        return NULL;
    }
    board->areas[rank] = area;
    board->host = (Host *)Py_NewRef(host);
    area->magic = BOARD_MAGIC;
    area->version = BOARD_VERSION;
    area->slots = BOARD_SLOTS;
    area->slot_bytes = BOARD_SLOT_BYTES;
    atomic_store(&area->published, board->host->published);
    atomic_store(&area->captured, board->host->captured);
    board->next = board->host->first;
    board->host->first = board;
    return (PyObject *)board;
}

static void board_dealloc(PyObject *self)
{
    Board *board = (Board *)self;
    board_let_go(board);
    if (board->host) {
        Board **at = &board->host->first;
        while (*at && *at != board) at = &(*at)->next;
        if (*at) *at = board->next;
    }
    Py_CLEAR(board->host);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *board_add(PyObject *self, PyObject *args)
{
    Board *board = (Board *)self;
    int member, fd;
    if (!PyArg_ParseTuple(args, "ii", &member, &fd)) return NULL;
    if (!board_own(board) || member < 0 || member >= board->size || member == board->rank) {
        PyErr_Format(PyExc_ValueError, "no member %d of this board", member);
        return NULL;
    }
    struct stat state;
    if (fstat(fd, &state)) return PyErr_SetFromErrno(PyExc_OSError);
    int seals = fcntl(fd, F_GET_SEALS); /* only a sealed memory file keeps its size: a shorter one would be a SIGBUS here */
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || state.st_size != BOARD_BYTES) {
        PyErr_SetString(PyExc_ValueError, "no area of a board: the file has another size, or could change it");
        return NULL;
    }
    board_area *area = board_mapped(fd, PROT_READ);
    if (!area) return NULL;
    if (area->magic != BOARD_MAGIC || area->version != BOARD_VERSION || area->slots != BOARD_SLOTS ||
        area->slot_bytes != BOARD_SLOT_BYTES) {
        munmap(area, BOARD_BYTES);
        PyErr_SetString(PyExc_ValueError, "no area of a board: another magic number, version or layout");
        return NULL;
    }
    if (board->areas[member]) munmap(board->areas[member], BOARD_BYTES);
    board->areas[member] = area;
    atomic_fetch_or(&board_own(board)->reads, 1u << member);
    Py_RETURN_NONE;
}

/* ---- for Python ------------------------------------------------------------------------------------------------------------ */

static PyObject *board_post(PyObject *self, PyObject *args)
{
    unsigned long long number;
    unsigned int kind, readers;
    Py_buffer data;
    if (!PyArg_ParseTuple(args, "KIy*I", &number, &kind, &data, &readers)) return NULL;
    uint32_t by_message = board_write((Board *)self, number, kind, data.buf, (uint64_t)data.len, readers);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(by_message);
}

static int member_of(Board *board, PyObject *args, unsigned long long *number, int *member)
{
    if (!PyArg_ParseTuple(args, "Ki", number, member)) return -1;
    if (*member >= 0 && *member < board->size) return 0;
    PyErr_Format(PyExc_ValueError, "no member %d of this board", *member);
    return -1;
}

static PyObject *board_has(PyObject *self, PyObject *args)
{
    unsigned long long number;
    int member;
    if (member_of((Board *)self, args, &number, &member)) return NULL;
    return PyBool_FromLong(board_own((Board *)self) && board_shows((Board *)self, number, member));
}

static PyObject *board_take(PyObject *self, PyObject *args)
{
    Board *board = (Board *)self;
    unsigned long long number;
    int member;
    uint32_t kind = 0;
    uint64_t nbytes = 0;
    if (member_of(board, args, &number, &member)) return NULL;
    const void *data = board_look(board, number, member, &kind, &nbytes);
    if (!data && nbytes > BOARD_SLOT_BYTES && board_still_shows(board, number, member))
        return PyErr_Format(PyExc_ValueError, "member %d shows a contribution of %llu bytes", member, (unsigned long long)nbytes);
    if (!data) Py_RETURN_NONE;
    PyObject *copy = PyBytes_FromStringAndSize(data, (Py_ssize_t)nbytes);
    if (copy && !board_still_shows(board, number, member)) {
        Py_DECREF(copy);
        Py_RETURN_NONE;
    }
    return copy ? Py_BuildValue("(IN)", kind, copy) : NULL;
}

static PyObject *board_wait(PyObject *self, PyObject *args)
{
    unsigned long long number;
    unsigned int sources;
    if (!PyArg_ParseTuple(args, "KI", &number, &sources)) return NULL;
    if (((Board *)self)->host->is_closed) return PyLong_FromLong(0);
    return PyLong_FromLong(board_await((Board *)self, number, sources & ((1u << ((Board *)self)->size) - 1)));
}

static PyObject *board_finish(PyObject *self, PyObject *number)
{
    unsigned long long value = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return NULL;
    board_leave((Board *)self, value);
    Py_RETURN_NONE;
}

static PyObject *board_arm(PyObject *self, PyObject *Py_UNUSED(none))
{
    board_area *area = board_own((Board *)self);
    if (area) atomic_store_explicit(&area->word, BOARD_ASLEEP, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    Py_RETURN_NONE;
}

static PyObject *board_disarm(PyObject *self, PyObject *Py_UNUSED(none))
{
    board_area *area = board_own((Board *)self);
    if (area) atomic_store_explicit(&area->word, BOARD_AWAKE, memory_order_relaxed);
    Py_RETURN_NONE;
}

static PyObject *board_settle(PyObject *self, PyObject *wanted)
{
    Board *board = (Board *)self;
    board_area *area = board_own(board);
    uint32_t of = (uint32_t)PyLong_AsUnsignedLong(wanted);
    if (PyErr_Occurred()) return NULL;
    PyObject *found = PyList_New(0);
    for (int slot = 0; found && area && slot < BOARD_SLOTS; slot++) {
        uint32_t members = board_needed(board, slot) & of;
        if (!members) continue;
        board_slot *at = &area->slot[slot];
        PyObject *each = Py_BuildValue("(KIy#I)", (unsigned long long)board->owed_number[slot], at->kind,
                                       board_data(area, slot, at->length), (Py_ssize_t)at->length, members);
        if (!each || PyList_Append(found, each)) Py_CLEAR(found);
        Py_XDECREF(each);
    }
    if (found && PyList_Sort(found)) Py_CLEAR(found);
    for (int slot = 0; found && slot < BOARD_SLOTS; slot++) board->owed[slot] &= ~of;
    return found;
}

static PyObject *board_forget_fd(PyObject *self, PyObject *Py_UNUSED(none))
{
    board_close_fd((Board *)self);
    Py_RETURN_NONE;
}

static PyObject *board_close(PyObject *self, PyObject *Py_UNUSED(none))
{
    board_let_go((Board *)self);
    memset(((Board *)self)->owed, 0, sizeof ((Board *)self)->owed);
    Py_RETURN_NONE;
}

/* In an image a board is None. */
static PyObject *board_reduce(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    return Py_BuildValue("(O())", (PyObject *)Py_TYPE(Py_None));
}

static PyObject *get_complete(PyObject *self, void *Py_UNUSED(closure)) { return PyBool_FromLong(board_is_complete((Board *)self)); }

static PyObject *get_fd(PyObject *self, void *Py_UNUSED(closure)) { return PyLong_FromLong(((Board *)self)->fd); }

static PyObject *get_reads(PyObject *self, void *Py_UNUSED(closure))
{
    board_area *area = board_own((Board *)self);
    return PyLong_FromUnsignedLong(area ? atomic_load(&area->reads) : 0);
}

/* ---- the module ------------------------------------------------------------------------------------------------------------ */

static PyMethodDef host_methods[] = {
    {"publish", host_publish, METH_O, "publish(epoch, /)\n\nAs Board.publish, for all boards."},
    {"advance", host_advance, METH_O, "advance(epoch, /)\n\nAs Board.advance, for all boards."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef host_members[] = {
    {"due_ns", T_LONGLONG, offsetof(Host, due_ns), 0, "Until then collectives may take the short way: then others need a look."},
    {"is_closed", T_BOOL, offsetof(Host, is_closed), 0, "No collective may take the short way, or spin."},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef board_methods[] = {
    {"add", board_add, METH_VARARGS, "add(member, fd, /)\n\nLook at a member's area. ValueError: it is none; OSError: it cannot be mapped."},
    {"post", board_post, METH_VARARGS, "post(number, kind, data, readers, /) -> int"},
    {"has", board_has, METH_VARARGS, "has(number, member, /) -> bool"},
    {"take", board_take, METH_VARARGS, "take(number, member, /) -> tuple | None"},
    {"wait", board_wait, METH_VARARGS,
     "wait(number, sources, /) -> int\n\nLook for a short time. 1: all `sources` have contributed; 2: a frame is in a ring; 0: neither."},
    {"finish", board_finish, METH_O, "finish(number, /)"},
    {"arm", board_arm, METH_NOARGS, "arm()"},
    {"disarm", board_disarm, METH_NOARGS, "disarm()"},
    {"settle", board_settle, METH_O, "settle(members, /) -> list"},
    {"forget_fd", board_forget_fd, METH_NOARGS, "forget_fd()\n\nClose the memory file, which was handed over; the memory stays."},
    {"close", board_close, METH_NOARGS, "close()\n\nUnmap all areas. What is owed must have been settled. Idempotent."},
    {"__reduce__", board_reduce, METH_NOARGS, "In an image a board is None."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef board_values[] = {
    {"fd", get_fd, NULL, "Descriptor of the own area, to be handed over; -1: none.", NULL},
    {"reads", get_reads, NULL, "The members whose areas this one looks at.", NULL},
    {"is_complete", get_complete, NULL, "Do all members look at each other's areas, as far as this one takes part?", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject HostType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "ckpt.transport.boards._board.Host",
    .tp_basicsize = sizeof(Host),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Host(inbox, common, spin_ns, pause_ns, epoch)\n\nWhat the boards of one process have in common.",
    .tp_new = host_new,
    .tp_dealloc = host_dealloc,
    .tp_methods = host_methods,
    .tp_members = host_members,
};

static PyTypeObject BoardType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "ckpt.transport.boards._board.Board",
    .tp_basicsize = sizeof(Board),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Board(host, size, rank)\n\nOne member's end; see board.py. Raises OSError: there is no memory for it.",
    .tp_new = board_new,
    .tp_dealloc = board_dealloc,
    .tp_methods = board_methods,
    .tp_getset = board_values,
};

static int size_of(Board *board) { return board->size; }

static int rank_of(Board *board) { return board->rank; }

static BoardApi api = {&BoardType, board_is_ready, board_make_room, board_write, board_await, board_look, board_still_shows, board_leave, size_of, rank_of};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.transport.boards._board",
    .m_doc = "Boards in shared memory.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__board(void)
{
    PyObject *home = PyImport_ImportModule("ckpt.transport.rings._ring");
    PyObject *found = home ? PyObject_GetAttrString(home, "api") : NULL;
    board_rings = found ? PyCapsule_GetPointer(found, RING_API) : NULL; /* valid for ever: the module is never unloaded */
    Py_XDECREF(found);
    Py_XDECREF(home);
    if (!board_rings || PyType_Ready(&HostType) || PyType_Ready(&BoardType)) return NULL;
    if (pthread_atfork(NULL, NULL, count_fork)) return PyErr_NoMemory();
    PyObject *made = PyModule_Create(&module), *capsule = made ? PyCapsule_New(&api, BOARD_API, NULL) : NULL;
    if (!capsule || PyModule_AddObjectRef(made, "api", capsule) || PyModule_AddObjectRef(made, "Host", (PyObject *)&HostType) ||
        PyModule_AddObjectRef(made, "Board", (PyObject *)&BoardType))
        Py_CLEAR(made);
    Py_XDECREF(capsule);
    return made;
}
