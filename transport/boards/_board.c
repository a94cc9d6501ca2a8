/* Boards in shared memory, which transport/boards/board.py specifies.

       Host(inbox, common, spin_ns, pause_ns, epoch)   what the boards of a process have in common
       Board(host, size, rank)                         makes the own area in a memory file (memfd_create(2)) and maps it
           .add(member, fd)                            maps that of another member, to be read only

   An area is not inherited by a forked process (MADV_DONTFORK): a board that is used there does nothing, and has nothing.

   What another process has written is never trusted: each number is read once, checked, and used from a local variable.  The caller
   holds the port's lock; only `wait` and `make_room` give up the interpreter's lock, when they yield the core. */

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include "board.h"

#include "../driver/lane.h"
#include "../wires/ring_ends.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static RingApi *rings;
static unsigned long forks;
static PyTypeObject HostType, BoardType;

static void count_fork(void) { forks++; }

/* ---- what the boards of a process have in common --------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *inbox, *common;
    Py_ssize_t dirty, flush_due; /* offsets of slots of `common` */
    long long spin_ns, pause_ns, due_ns;
    uint64_t published, captured;
    char is_closed;
    Board *first;
} Host;

struct Board {
    PyObject_HEAD
    Host *host;
    Board *next;
    board_area *areas[BOARD_MEMBERS]; /* NULL: not looked at */
    uint64_t owed_number[BOARD_SLOTS];
    uint32_t owed[BOARD_SLOTS]; /* who has this slot's contribution here only, and may not have taken it */
    unsigned long made_after;
    int size, rank, fd;
};

static board_area *own(Board *board) { return board->made_after == forks ? board->areas[board->rank] : NULL; }

static PyObject *host_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    PyObject *inbox, *common;
    long long spin_ns, pause_ns;
    unsigned long long epoch;
    if (!PyArg_ParseTuple(args, "OOLLK", &inbox, &common, &spin_ns, &pause_ns, &epoch)) return NULL;
    if (!Py_IS_TYPE(inbox, rings->inbox)) return PyErr_Format(PyExc_TypeError, "%R is no inbox", inbox);
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
        if (own(board)) atomic_store(&own(board)->published, host->published);
    Py_RETURN_NONE;
}

static PyObject *host_advance(PyObject *self, PyObject *number)
{
    Host *host = (Host *)self;
    uint64_t epoch = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return NULL;
    if (epoch > host->captured) host->captured = epoch;
    for (Board *board = host->first; board; board = board->next)
        if (own(board)) atomic_store(&own(board)->captured, host->captured);
    Py_RETURN_NONE;
}

/* ---- areas ----------------------------------------------------------------------------------------------------------------- */

static board_area *mapped(int fd, int protection)
{
    void *at = mmap(NULL, BOARD_BYTES, protection, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        PyErr_SetFromErrno(PyExc_OSError);
        return NULL;
    }
    if (madvise(at, BOARD_BYTES, MADV_DONTFORK)) {
        PyErr_SetFromErrno(PyExc_OSError);
        munmap(at, BOARD_BYTES);
        return NULL;
    }
    return at;
}

static void forget_fd(Board *board)
{
    if (board->fd >= 0 && board->made_after == forks) close(board->fd);
    board->fd = -1;
}

static void let_go(Board *board)
{
    forget_fd(board);
    for (int i = 0; i < BOARD_MEMBERS; i++) {
        if (board->areas[i] && board->made_after == forks) munmap(board->areas[i], BOARD_BYTES);
        board->areas[i] = NULL;
    }
}

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
    board->made_after = forks;
    board->size = size;
    board->rank = rank;
    board->fd = memfd_create("ckpt-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* The memory is allocated now: a page that cannot be had later would be a SIGBUS. */
    int failed = board->fd < 0 || ftruncate(board->fd, BOARD_BYTES) || fallocate(board->fd, 0, 0, BOARD_BYTES) ||
                 fcntl(board->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    if (failed) PyErr_SetFromErrno(PyExc_OSError);
    board_area *area = failed ? NULL : mapped(board->fd, PROT_READ | PROT_WRITE);
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
    let_go(board);
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
    if (!own(board) || member < 0 || member >= board->size || member == board->rank) {
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
    board_area *area = mapped(fd, PROT_READ);
    if (!area) return NULL;
    if (area->magic != BOARD_MAGIC || area->version != BOARD_VERSION || area->slots != BOARD_SLOTS ||
        area->slot_bytes != BOARD_SLOT_BYTES) {
        munmap(area, BOARD_BYTES);
        PyErr_SetString(PyExc_ValueError, "no area of a board: another magic number, version or layout");
        return NULL;
    }
    if (board->areas[member]) munmap(board->areas[member], BOARD_BYTES);
    board->areas[member] = area;
    atomic_fetch_or(&own(board)->reads, 1u << member);
    Py_RETURN_NONE;
}

static int is_read_by(Board *board, int member)
{
    board_area *area = board->areas[member];
    return area && atomic_load_explicit(&area->reads, memory_order_acquire) >> board->rank & 1;
}

static int is_complete(Board *board)
{
    for (int member = 0; member < board->size; member++)
        if (member != board->rank && !is_read_by(board, member)) return 0;
    return own(board) != NULL;
}

/* ---- as a writer ----------------------------------------------------------------------------------------------------------- */

static unsigned char *data_of(board_area *area, int slot, uint64_t nbytes)
{
    return nbytes <= BOARD_SMALL ? area->slot[slot].small : (unsigned char *)area + BOARD_DATA + (size_t)slot * BOARD_SLOT_BYTES;
}

/* Those who may not have taken what is in a slot, and have it there only. */
static uint32_t needed(Board *board, int slot)
{
    for (int member = 0; member < board->size && board->owed[slot]; member++) {
        if (!(board->owed[slot] >> member & 1)) continue;
        board_area *area = board->areas[member];
        uint64_t done = atomic_load_explicit(&area->done, memory_order_acquire);
        if (done > board->owed_number[slot] && atomic_load(&area->published) <= board->host->captured)
            board->owed[slot] &= ~(1u << member);
    }
    return board->owed[slot];
}

static uint32_t post(Board *board, uint64_t number, uint32_t kind, const void *data, uint64_t nbytes, uint32_t readers)
{
    int slot = (int)(number % BOARD_SLOTS);
    board_area *area = own(board);
    if (!area || nbytes > BOARD_SLOT_BYTES) return readers;
    board_slot *at = &area->slot[slot];
    if (atomic_load_explicit(&at->number, memory_order_relaxed) != number + 1) {
        if (needed(board, slot)) return readers;
        atomic_store_explicit(&at->number, 0, memory_order_relaxed);
        atomic_thread_fence(memory_order_release); /* who copies what is written below sees that, too */
        memcpy(data_of(area, slot, nbytes), data, (size_t)nbytes);
        at->length = (uint32_t)nbytes;
        at->kind = kind;
        atomic_store_explicit(&at->number, number + 1, memory_order_release);
    }
    atomic_thread_fence(memory_order_seq_cst);
    uint32_t by_message = 0;
    for (int member = 0; member < board->size; member++) {
        if (!(readers >> member & 1)) continue;
        board_area *other = board->areas[member];
        if (!is_read_by(board, member) || atomic_load_explicit(&other->captured, memory_order_relaxed) < board->host->published ||
            atomic_load_explicit(&other->word, memory_order_relaxed) != BOARD_AWAKE)
            by_message |= 1u << member;
    }
    board->owed[slot] = readers & ~by_message;
    board->owed_number[slot] = number;
    return by_message;
}

typedef struct {
    Board *board;
    int slot;
} Wanted;

static int is_free(void *with) { return !needed(((Wanted *)with)->board, ((Wanted *)with)->slot); }

static void make_room(Board *board, uint64_t number)
{
    Wanted wanted = {board, (int)(number % BOARD_SLOTS)};
    Host *host = board->host;
    if (!own(board) || is_free(&wanted) || !host->spin_ns) return;
    Py_INCREF(board); /* the core is yielded, and with it the interpreter */
    rings->spin_also(host->inbox, rings->now_ns() + host->spin_ns, host->pause_ns, is_free, &wanted);
    Py_DECREF(board);
}

/* ---- as a reader ----------------------------------------------------------------------------------------------------------- */

static int has(Board *board, uint64_t number, int member)
{
    board_area *area = board->areas[member];
    return area && atomic_load_explicit(&area->slot[number % BOARD_SLOTS].number, memory_order_acquire) == number + 1 &&
           atomic_load_explicit(&area->published, memory_order_relaxed) <= board->host->captured;
}

static int is_still(Board *board, uint64_t number, int member)
{
    atomic_thread_fence(memory_order_acquire);
    return has(board, number, member);
}

static const void *look(Board *board, uint64_t number, int member, uint32_t *kind, uint64_t *nbytes)
{
    if (!own(board) || !has(board, number, member)) return NULL;
    int slot = (int)(number % BOARD_SLOTS);
    const volatile board_slot *at = &board->areas[member]->slot[slot];
    *nbytes = at->length;
    *kind = at->kind;
    return *nbytes <= BOARD_SLOT_BYTES ? data_of(board->areas[member], slot, *nbytes) : NULL;
}

static void finish(Board *board, uint64_t number)
{
    if (own(board)) atomic_store_explicit(&own(board)->done, number + 1, memory_order_release);
}

typedef struct {
    Board *board;
    uint64_t number;
    uint32_t sources;
} Awaited;

static int all_there(void *with)
{
    Awaited *awaited = with;
    for (int member = 0; member < awaited->board->size; member++)
        if (awaited->sources >> member & 1 && !has(awaited->board, awaited->number, member)) return 0;
    return 1;
}

/* 1: all have contributed.  2: a frame is in a ring.  0: neither. */
static int wait(Board *board, uint64_t number, uint32_t sources)
{
    Awaited awaited = {board, number, sources};
    if (!own(board)) return 0;
    if (all_there(&awaited)) return 1;
    Host *host = board->host;
    if (!host->spin_ns) return 0;
    Py_INCREF(board); /* the core is yielded, and with it the interpreter */
    int found = rings->spin_also(host->inbox, rings->now_ns() + host->spin_ns, host->pause_ns, all_there, &awaited);
    int done = own(board) && all_there(&awaited);
    Py_DECREF(board);
    return done ? 1 : found ? 2 : 0;
}

static int is_ready(Board *board)
{
    Host *host = board->host;
    PyObject *dirty = SLOT(host->common, host->dirty);
    return own(board) && !host->is_closed && dirty && PyList_CheckExact(dirty) && !PyList_GET_SIZE(dirty) &&
           SLOT(host->common, host->flush_due) == Py_False && is_complete(board) && rings->now_ns() < host->due_ns;
}

static int size_of(Board *board) { return board->size; }

static int rank_of(Board *board) { return board->rank; }

/* ---- for Python ------------------------------------------------------------------------------------------------------------ */

static PyObject *board_post(PyObject *self, PyObject *args)
{
    unsigned long long number;
    unsigned int kind, readers;
    Py_buffer data;
    if (!PyArg_ParseTuple(args, "KIy*I", &number, &kind, &data, &readers)) return NULL;
    uint32_t by_message = post((Board *)self, number, kind, data.buf, (uint64_t)data.len, readers);
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
    return PyBool_FromLong(own((Board *)self) && has((Board *)self, number, member));
}

static PyObject *board_take(PyObject *self, PyObject *args)
{
    Board *board = (Board *)self;
    unsigned long long number;
    int member;
    uint32_t kind = 0;
    uint64_t nbytes = 0;
    if (member_of(board, args, &number, &member)) return NULL;
    const void *data = look(board, number, member, &kind, &nbytes);
    if (!data && nbytes > BOARD_SLOT_BYTES && is_still(board, number, member))
        return PyErr_Format(PyExc_ValueError, "member %d shows a contribution of %llu bytes", member, (unsigned long long)nbytes);
    if (!data) Py_RETURN_NONE;
    PyObject *copy = PyBytes_FromStringAndSize(data, (Py_ssize_t)nbytes);
    if (copy && !is_still(board, number, member)) {
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
    return PyLong_FromLong(wait((Board *)self, number, sources & ((1u << ((Board *)self)->size) - 1)));
}

static PyObject *board_finish(PyObject *self, PyObject *number)
{
    unsigned long long value = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return NULL;
    finish((Board *)self, value);
    Py_RETURN_NONE;
}

static PyObject *board_arm(PyObject *self, PyObject *Py_UNUSED(none))
{
    board_area *area = own((Board *)self);
    if (area) atomic_store_explicit(&area->word, BOARD_ASLEEP, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    Py_RETURN_NONE;
}

static PyObject *board_disarm(PyObject *self, PyObject *Py_UNUSED(none))
{
    board_area *area = own((Board *)self);
    if (area) atomic_store_explicit(&area->word, BOARD_AWAKE, memory_order_relaxed);
    Py_RETURN_NONE;
}

static PyObject *board_settle(PyObject *self, PyObject *wanted)
{
    Board *board = (Board *)self;
    board_area *area = own(board);
    uint32_t of = (uint32_t)PyLong_AsUnsignedLong(wanted);
    if (PyErr_Occurred()) return NULL;
    PyObject *found = PyList_New(0);
    for (int slot = 0; found && area && slot < BOARD_SLOTS; slot++) {
        uint32_t members = needed(board, slot) & of;
        if (!members) continue;
        board_slot *at = &area->slot[slot];
        PyObject *each = Py_BuildValue("(KIy#I)", (unsigned long long)board->owed_number[slot], at->kind,
                                       data_of(area, slot, at->length), (Py_ssize_t)at->length, members);
        if (!each || PyList_Append(found, each)) Py_CLEAR(found);
        Py_XDECREF(each);
    }
    if (found && PyList_Sort(found)) Py_CLEAR(found);
    for (int slot = 0; found && slot < BOARD_SLOTS; slot++) board->owed[slot] &= ~of;
    return found;
}

static PyObject *board_forget_fd(PyObject *self, PyObject *Py_UNUSED(none))
{
    forget_fd((Board *)self);
    Py_RETURN_NONE;
}

static PyObject *board_close(PyObject *self, PyObject *Py_UNUSED(none))
{
    let_go((Board *)self);
    memset(((Board *)self)->owed, 0, sizeof ((Board *)self)->owed);
    Py_RETURN_NONE;
}

/* In an image a board is None. */
static PyObject *board_reduce(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    return Py_BuildValue("(O())", (PyObject *)Py_TYPE(Py_None));
}

static PyObject *get_complete(PyObject *self, void *Py_UNUSED(closure)) { return PyBool_FromLong(is_complete((Board *)self)); }

static PyObject *get_fd(PyObject *self, void *Py_UNUSED(closure)) { return PyLong_FromLong(((Board *)self)->fd); }

static PyObject *get_reads(PyObject *self, void *Py_UNUSED(closure))
{
    board_area *area = own((Board *)self);
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

static BoardApi api = {&BoardType, is_ready, make_room, post, wait, look, is_still, finish, size_of, rank_of};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.transport.boards._board",
    .m_doc = "Boards in shared memory.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__board(void)
{
    PyObject *home = PyImport_ImportModule("ckpt.transport.wires._ring");
    PyObject *found = home ? PyObject_GetAttrString(home, "api") : NULL;
    rings = found ? PyCapsule_GetPointer(found, RING_API) : NULL; /* valid for ever: the module is never unloaded */
    Py_XDECREF(found);
    Py_XDECREF(home);
    if (!rings || PyType_Ready(&HostType) || PyType_Ready(&BoardType)) return NULL;
    if (pthread_atfork(NULL, NULL, count_fork)) return PyErr_NoMemory();
    PyObject *made = PyModule_Create(&module), *capsule = made ? PyCapsule_New(&api, BOARD_API, NULL) : NULL;
    if (!capsule || PyModule_AddObjectRef(made, "api", capsule) || PyModule_AddObjectRef(made, "Host", (PyObject *)&HostType) ||
        PyModule_AddObjectRef(made, "Board", (PyObject *)&BoardType))
        Py_CLEAR(made);
    Py_XDECREF(capsule);
    return made;
}
