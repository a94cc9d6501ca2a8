/* The two ends of a ring: the classes `Writer` and `Reader`, which transport/rings/ring.py specifies.

   A ring is not inherited by a forked process (MADV_DONTFORK): the child of a checkpoint has no such memory.  In a forked process
   every call raises RuntimeError, and nothing is unmapped, since something else may lie at that address there.

   What lies in a ring: ring_records.c. */

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include "ring_ends.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

unsigned long ring_forks;

void ring_count_fork(void) { ring_forks++; }

static int usable(Ring *ring)
{
    if (ring->made_after == ring_forks) return 1;
    PyErr_SetString(PyExc_RuntimeError, "a ring of the process that this one was forked from");
    return 0;
}

static int power_of_two(unsigned long long capacity)
{
    return capacity >= RING_LEAST && capacity <= RING_MOST && !(capacity & (capacity - 1));
}

/* Map the memory file.  Returns 0; -1 with an exception. */
static int map(Ring *ring, int fd, uint64_t capacity)
{
    void *at = mmap(NULL, RING_DATA + capacity, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    if (madvise(at, RING_DATA + capacity, MADV_DONTFORK)) {
        PyErr_SetFromErrno(PyExc_OSError);
        munmap(at, RING_DATA + capacity);
        return -1;
    }
    ring->memory = at;
    ring->data = (unsigned char *)at + RING_DATA;
    ring->capacity = capacity;
    return 0;
}

static void let_go(Ring *ring)
{
    if (ring->memory && ring->made_after == ring_forks) munmap(ring->memory, RING_DATA + ring->capacity);
    ring->memory = NULL;
}

static void forget_fd(Ring *ring)
{
    if (ring->fd >= 0 && ring->made_after == ring_forks) close(ring->fd);
    ring->fd = -1;
}

static void ring_dealloc(PyObject *self)
{
    let_go((Ring *)self);
    forget_fd((Ring *)self);
    Py_TYPE(self)->tp_free(self);
}

static Ring *new_ring(PyTypeObject *type)
{
    Ring *ring = (Ring *)type->tp_alloc(type, 0);
    if (!ring) return NULL;
    ring->fd = -1;
    ring->made_after = ring_forks;
    return ring;
}

/* ---- the writer ------------------------------------------------------------------------------------------------------------ */

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *options)
{
    unsigned long long capacity;
    static char *names[] = {"capacity", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, options, "K", names, &capacity)) return NULL;
    if (!power_of_two(capacity)) return PyErr_Format(PyExc_ValueError, "a ring of %llu bytes", capacity);
    Ring *ring = new_ring(type);
    if (!ring) return NULL;
    ring->fd = memfd_create("ckpt-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* The memory is allocated now: a page that cannot be had later would be a SIGBUS. */
    int failed = ring->fd < 0 || ftruncate(ring->fd, (off_t)(RING_DATA + capacity)) ||
                 fallocate(ring->fd, 0, 0, (off_t)(RING_DATA + capacity)) ||
                 fcntl(ring->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    if (failed) PyErr_SetFromErrno(PyExc_OSError);
    if (failed || map(ring, ring->fd, capacity)) {
        Py_DECREF(ring);
        return NULL;
    }
    ring->memory->magic = RING_MAGIC;
    ring->memory->version = RING_VERSION;
    ring->memory->capacity = capacity;
    atomic_store(&ring->memory->word, OFFERED);
    return (PyObject *)ring;
}

static PyObject *writer_send(PyObject *self, PyObject *frame)
{
    Ring *ring = (Ring *)self;
    if (!usable(ring)) return NULL;
    if (!ring->memory) return PyLong_FromLong(BROKEN);
    PyObject *list = PySequence_Fast(frame, "a frame is a sequence of buffers");
    if (!list) return NULL;
    Py_buffer parts[3];
    Py_ssize_t count = PySequence_Fast_GET_SIZE(list), got = 0;
    int code = -1;
    if (count < 1 || count > 3) {
        PyErr_SetString(PyExc_ValueError, "a frame has one to three parts");
        goto done;
    }
    for (; got < count; got++)
        if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(list, got), &parts[got], PyBUF_SIMPLE)) goto done;
    code = ring_write(ring, parts, count);
done:
    while (got) PyBuffer_Release(&parts[--got]);
    Py_DECREF(list);
    return code < 0 ? NULL : PyLong_FromLong(code);
}

static PyObject *writer_word(PyObject *self, PyObject *Py_UNUSED(none))
{
    Ring *ring = (Ring *)self;
    if (!usable(ring)) return NULL;
    return PyLong_FromLong(ring->memory ? (long)atomic_load(&ring->memory->word) : CLOSED);
}

static PyObject *ring_close(PyObject *self, PyObject *Py_UNUSED(none))
{
    Ring *ring = (Ring *)self;
    if (ring->memory && ring->made_after == ring_forks && Py_IS_TYPE(self, &RingReaderType))
        atomic_store(&ring->memory->word, CLOSED);
    let_go(ring);
    forget_fd(ring);
    Py_RETURN_NONE;
}

static PyObject *writer_forget_fd(PyObject *self, PyObject *Py_UNUSED(none))
{
    forget_fd((Ring *)self);
    Py_RETURN_NONE;
}

static PyObject *get_fd(PyObject *self, void *Py_UNUSED(closure)) { return PyLong_FromLong(((Ring *)self)->fd); }

static PyObject *get_capacity(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((Ring *)self)->capacity);
}

static PyObject *get_records(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((Ring *)self)->records);
}

static PyObject *get_damaged(PyObject *self, void *Py_UNUSED(closure)) { return PyBool_FromLong(((Ring *)self)->damaged); }

static PyObject *get_closed(PyObject *self, void *Py_UNUSED(closure)) { return PyBool_FromLong(!((Ring *)self)->memory); }

/* ---- the reader ------------------------------------------------------------------------------------------------------------ */

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *options)
{
    int fd;
    unsigned long long capacity;
    static char *names[] = {"fd", "capacity", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, options, "iK", names, &fd, &capacity)) return NULL;
    if (!power_of_two(capacity)) return PyErr_Format(PyExc_ValueError, "a ring of %llu bytes", capacity);
    struct stat state;
    if (fstat(fd, &state)) return PyErr_SetFromErrno(PyExc_OSError);
    /* Only a sealed memory file keeps its size: a shorter one would be a SIGBUS here. */
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || (unsigned long long)state.st_size != RING_DATA + capacity) {
        PyErr_SetString(PyExc_ValueError, "no ring: the file has another size, or could change it");
        return NULL;
    }
    Ring *ring = new_ring(type);
    if (!ring) return NULL;
    if (map(ring, fd, capacity)) {
        Py_DECREF(ring);
        return NULL;
    }
    if (ring->memory->magic != RING_MAGIC || ring->memory->version != RING_VERSION) {
        PyErr_SetString(PyExc_ValueError, "no ring: another magic number or version");
        Py_DECREF(ring);
        return NULL;
    }
    ring->written = atomic_load(&ring->memory->share.written);
    uint32_t expected = OFFERED;
    atomic_compare_exchange_strong(&ring->memory->word, &expected, AWAKE);
    return (PyObject *)ring;
}

static PyObject *reader_receive(PyObject *self, PyObject *Py_UNUSED(none))
{
    Ring *ring = (Ring *)self;
    if (!usable(ring)) return NULL;
    if (!ring->memory || ring->damaged) Py_RETURN_NONE;
    PyObject *frame = ring_next(ring);
    if (!frame && !PyErr_Occurred()) Py_RETURN_NONE;
    return frame;
}

/* Say that the reader is going to sleep.  0: a record is there after all, and the reader is awake. */
static int arm(Ring *ring)
{
    atomic_store_explicit(&ring->memory->word, ASLEEP, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    return !ring_has_record(ring);
}

static PyObject *reader_arm(PyObject *self, PyObject *Py_UNUSED(none))
{
    Ring *ring = (Ring *)self;
    if (!usable(ring)) return NULL;
    if (!ring->memory || ring->damaged) Py_RETURN_TRUE;
    return PyBool_FromLong(arm(ring));
}

static PyObject *reader_disarm(PyObject *self, PyObject *Py_UNUSED(none))
{
    Ring *ring = (Ring *)self;
    if (!usable(ring)) return NULL;
    if (ring->memory && !ring->damaged) atomic_store_explicit(&ring->memory->word, AWAKE, memory_order_relaxed);
    Py_RETURN_NONE;
}

/* ---- payloads that both copy (ring_share.c), for tests ---------------------------------------------------------------------- */

static int process_of(const Py_buffer *badge, RingProcess *process)
{
    uint64_t numbers[2];
    if (badge->len != sizeof numbers + RING_BADGE) {
        PyErr_SetString(PyExc_ValueError, "no badge of a process");
        return -1;
    }
    memcpy(numbers, badge->buf, sizeof numbers);
    *process = (RingProcess){.pid = (pid_t)numbers[0], .badge_at = numbers[1]};
    memcpy(process->badge, (char *)badge->buf + sizeof numbers, RING_BADGE);
    return 0;
}

static PyObject *reader_copy(PyObject *self, PyObject *args)
{
    Ring *ring = (Ring *)self;
    Py_buffer own, sender, into;
    unsigned long long from;
    if (!PyArg_ParseTuple(args, "y*y*Kw*", &own, &sender, &from, &into)) return NULL;
    RingProcess here, there;
    int is_copied = process_of(&own, &here) || process_of(&sender, &there) || !usable(ring) ? -1 : 0;
    if (!is_copied) {
        Py_BEGIN_ALLOW_THREADS
        is_copied = ring->memory && ring_copy_shared(ring, &here, &there, from, into.buf, (size_t)into.len, 0);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&own);
    PyBuffer_Release(&sender);
    PyBuffer_Release(&into);
    return is_copied < 0 ? NULL : PyBool_FromLong(is_copied);
}

static PyObject *writer_help(PyObject *self, PyObject *Py_UNUSED(none))
{
    int pieces = 0;
    if (!usable((Ring *)self)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    if (ring_wants_help((Ring *)self)) pieces = ring_help((Ring *)self);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(pieces);
}

static PyObject *writer_take(PyObject *self, PyObject *Py_UNUSED(none))
{
    if (!usable((Ring *)self)) return NULL;
    return PyBool_FromLong(((Ring *)self)->memory && ring_take((Ring *)self));
}

/* ---- the types ---------------------------------------------------------------------------------------------------- */

static PyMethodDef writer_methods[] = {
    {"send", writer_send, METH_O, "send(parts, /) -> int\n\nFULL, TAKEN, TAKEN_ASLEEP, TOO_LONG or BROKEN."},
    {"word", writer_word, METH_NOARGS, "word() -> int\n\nWhat the reader does: AWAKE, ASLEEP, CLOSED or OFFERED."},
    {"help", writer_help, METH_NOARGS,
     "help() -> int\n\nCopy what the reader copies now: how many pieces; -1: its process or its numbers are not what they should be."},
    {"take", writer_take, METH_NOARGS, "take() -> bool\n\nTake a piece, and do not copy it."},
    {"forget_fd", writer_forget_fd, METH_NOARGS, "forget_fd()\n\nClose the memory file, which was handed over; the memory stays."},
    {"close", ring_close, METH_NOARGS, "close()\n\nUnmap the ring. Idempotent."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef reader_methods[] = {
    {"receive", reader_receive, METH_NOARGS, "receive() -> tuple | None\n\nThe next frame. None: there is none, or `damaged`."},
    {"copy", reader_copy, METH_VARARGS,
     "copy(own, sender, address, into, /) -> bool\n\nFill `into` from an address in the process of the writer, which may help.\n"
     "The first two: packed badges of this process and of that one."},
    {"arm", reader_arm, METH_NOARGS, "arm() -> bool\n\nSay that this side is going to sleep. False: a record is there."},
    {"disarm", reader_disarm, METH_NOARGS, "disarm()\n\nSay that this side looks at the ring by itself."},
    {"close", ring_close, METH_NOARGS, "close()\n\nTell the writer that nobody reads any more; unmap the ring. Idempotent."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef ring_values[] = {
    {"fd", get_fd, NULL, "Descriptor of the memory file, which the writer hands over; -1: none.", NULL},
    {"capacity", get_capacity, NULL, "Bytes.", NULL},
    {"records", get_records, NULL, "Frames that have passed here.", NULL},
    {"damaged", get_damaged, NULL, "The other side has written what cannot be.", NULL},
    {"closed", get_closed, NULL, "The ring is unmapped.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject RingWriterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "ckpt.transport.rings._ring.Writer",
    .tp_basicsize = sizeof(Ring),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Writer(capacity)\n\nThe writing side of a new ring. Raises OSError: there is no memory for it.",
    .tp_new = writer_new,
    .tp_dealloc = ring_dealloc,
    .tp_methods = writer_methods,
    .tp_getset = ring_values,
};

PyTypeObject RingReaderType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "ckpt.transport.rings._ring.Reader",
    .tp_basicsize = sizeof(Ring),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Reader(fd, capacity)\n\nThe reading side of a ring. Raises ValueError: that is no ring; OSError: it cannot be mapped.",
    .tp_new = reader_new,
    .tp_dealloc = ring_dealloc,
    .tp_methods = reader_methods,
    .tp_getset = ring_values,
};
