/* Rings in shared memory: the module, and the readers of a process together.

       Writer(capacity)      makes a ring in a memory file (memfd_create(2)) and maps it     ring_ends.c
       Reader(fd, capacity)  maps the ring of another process                                ring_ends.c, ring_records.c
       Inbox()               looks at many readers in turn, waits for all of them, and spins

   transport/rings/ring.py specifies the first two; tests/unit/transport/rings/test_ring.py compares both on the same memory. */

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include "ring_ends.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

/* ---- many readers ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *readers; /* list */
    Py_ssize_t turn;   /* where the next look begins */
    int64_t crowded_until_ns, taken_ns, taken_at_ns; /* so much others have taken of the core lately, at that time */
    unsigned long long yields, crowded;
} Inbox;

static PyTypeObject InboxType;

static PyObject *inbox_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(options))
{
    Inbox *inbox = (Inbox *)type->tp_alloc(type, 0);
    if (inbox && !(inbox->readers = PyList_New(0))) Py_CLEAR(inbox);
    return (PyObject *)inbox;
}

static void inbox_dealloc(PyObject *self)
{
    Py_CLEAR(((Inbox *)self)->readers);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *inbox_add(PyObject *self, PyObject *reader)
{
    if (!Py_IS_TYPE(reader, &RingReaderType)) return PyErr_Format(PyExc_TypeError, "%R is no reader", reader);
    if (PyList_Append(((Inbox *)self)->readers, reader)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *inbox_remove(PyObject *self, PyObject *reader)
{
    PyObject *readers = ((Inbox *)self)->readers;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(readers); i++)
        if (PyList_GET_ITEM(readers, i) == reader) {
            if (PyList_SetSlice(readers, i, i + 1, NULL)) return NULL;
            break;
        }
    Py_RETURN_NONE;
}

/* The next usable ring from `turn` on that has a record; NULL: none has. */
static Ring *ring_with_record(Inbox *inbox)
{
    Py_ssize_t count = PyList_GET_SIZE(inbox->readers), at = inbox->turn < count ? inbox->turn : 0;
    for (Py_ssize_t i = 0; i < count; i++, at = at + 1 < count ? at + 1 : 0) {
        Ring *ring = (Ring *)PyList_GET_ITEM(inbox->readers, at);
        if (ring_usable(ring) && ring_has_record(ring)) {
            inbox->turn = at + 1;
            return ring;
        }
    }
    return NULL;
}

static PyObject *take(PyObject *self)
{
    Ring *ring;
    while ((ring = ring_with_record((Inbox *)self))) { /* ends: a ring with a damaged record is not looked at again */
        PyObject *frame = ring_next(ring);
        if (frame || PyErr_Occurred()) return frame;
    }
    return NULL;
}

static PyObject *inbox_receive(PyObject *self, PyObject *Py_UNUSED(none))
{
    PyObject *frame = take(self);
    if (!frame && !PyErr_Occurred()) Py_RETURN_NONE;
    return frame;
}

static PyObject *inbox_arm(PyObject *self, PyObject *Py_UNUSED(none))
{
    PyObject *readers = ((Inbox *)self)->readers;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(readers); i++) {
        Ring *ring = (Ring *)PyList_GET_ITEM(readers, i);
        if (ring_usable(ring))
            atomic_store_explicit(&ring->memory->word, ASLEEP, memory_order_relaxed);
    }
    atomic_thread_fence(memory_order_seq_cst);
    return PyBool_FromLong(!ring_with_record((Inbox *)self));
}

static PyObject *inbox_disarm(PyObject *self, PyObject *Py_UNUSED(none))
{
    PyObject *readers = ((Inbox *)self)->readers;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(readers); i++) {
        Ring *ring = (Ring *)PyList_GET_ITEM(readers, i);
        if (ring_usable(ring))
            atomic_store_explicit(&ring->memory->word, AWAKE, memory_order_relaxed);
    }
    Py_RETURN_NONE;
}

/* Waiting while other processes may run.  A yield that takes long shows that another process has had this core.  As long as others take
   more than a SHARE-th part of it, the core is yielded after each look; FREE_NS of that are interrupts.  What the others take does not
   count as time of looking, up to MOST_GIVEN_NS: else a rank that shares its core sleeps, or goes the long way through Python, as soon as
   others have computed for some time. */
enum { SLICE_NS = 20000, LONG_YIELD_NS = 5000, MOST_GIVEN_NS = 1000000, SHARE = 16, FREE_NS = 100000, MOST_TAKEN_NS = 3000000, LOOKS = 16 };

static RingApi api;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + api.clock_offset_ns;
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

/* Is a record there within `pause_ns`, or what `also` looks for? */
static int look_for(Inbox *inbox, int64_t began_ns, int64_t pause_ns, int (*also)(void *), void *with)
{
    do {
        for (int i = 0; i < LOOKS; i++) {
            Py_ssize_t turn = inbox->turn;
            if (also && also(with)) return 1;
            if (ring_with_record(inbox)) {
                inbox->turn = turn; /* nothing was taken */
                return 1;
            }
            if (!pause_ns) return 0;
            relax();
        }
    } while (now_ns() - began_ns < pause_ns);
    return 0;
}

/* Others have had the core so long, until this time. */
static void count_taken(Inbox *inbox, int64_t given_ns, int64_t at_ns)
{
    int64_t left_ns = inbox->taken_ns - (at_ns - inbox->taken_at_ns) / SHARE;
    left_ns = (left_ns > 0 ? left_ns : 0) + given_ns;
    inbox->taken_ns = left_ns < MOST_TAKEN_NS ? left_ns : MOST_TAKEN_NS;
    inbox->taken_at_ns = at_ns;
    inbox->crowded_until_ns = at_ns + SHARE * (inbox->taken_ns - FREE_NS);
    inbox->crowded++;
}

static int spin_also(PyObject *self, int64_t end_ns, int64_t pause_ns, int (*also)(void *), void *with)
{
    Inbox *inbox = (Inbox *)self;
    int64_t at_ns = now_ns(), given_ns = 0; /* so long others have had the core, which costs nothing: it does not count */
    for (;;) {
        int64_t pause = at_ns < inbox->crowded_until_ns ? 0 : pause_ns < end_ns - at_ns ? pause_ns : end_ns - at_ns;
        if (look_for(inbox, at_ns, pause > 0 ? pause : 0, also, with)) return 1;
        int64_t before_ns = now_ns();
        if (before_ns - (given_ns < MOST_GIVEN_NS ? given_ns : MOST_GIVEN_NS) >= end_ns) return 0;
        Py_BEGIN_ALLOW_THREADS
        sched_yield();
        Py_END_ALLOW_THREADS
        inbox->yields++;
        at_ns = now_ns();
        if (at_ns - before_ns > LONG_YIELD_NS) {
            given_ns += at_ns - before_ns;
            count_taken(inbox, at_ns - before_ns, at_ns);
        }
    }
}

static int spin(PyObject *self, int64_t end_ns, int64_t pause_ns) { return spin_also(self, end_ns, pause_ns, NULL, NULL); }

static PyObject *inbox_spin(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    long long end_ns = count == 2 ? PyLong_AsLongLong(args[0]) : -1, pause_ns = count == 2 ? PyLong_AsLongLong(args[1]) : -1;
    if (PyErr_Occurred()) return NULL;
    if (count != 2 || pause_ns < 0) {
        PyErr_SetString(PyExc_TypeError, "spin(end_ns, pause_ns)");
        return NULL;
    }
    int64_t slice_ns = now_ns() + SLICE_NS;
    return PyBool_FromLong(spin(self, end_ns < slice_ns ? end_ns : slice_ns, pause_ns));
}

static PyObject *get_yields(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((Inbox *)self)->yields);
}

static PyObject *get_crowded(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((Inbox *)self)->crowded);
}

static PyObject *get_count(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(PyList_GET_SIZE(((Inbox *)self)->readers));
}

static PyGetSetDef inbox_values[] = {
    {"count", get_count, NULL, "Number of rings.", NULL},
    {"yields", get_yields, NULL, "How often `spin` has yielded the core.", NULL},
    {"crowded", get_crowded, NULL, "How often another process has had the core then.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* ---- the module --------------------------------------------------------------------------------------------------- */

static PyMethodDef inbox_methods[] = {
    {"add", inbox_add, METH_O, "add(reader, /)"},
    {"remove", inbox_remove, METH_O, "remove(reader, /)"},
    {"receive", inbox_receive, METH_NOARGS, "receive() -> tuple | None\n\nThe next frame of any ring, of each in turn."},
    {"arm", inbox_arm, METH_NOARGS, "arm() -> bool\n\nAs Reader.arm, for all rings."},
    {"disarm", inbox_disarm, METH_NOARGS, "disarm()\n\nAs Reader.disarm, for all rings."},
    {"spin", (PyCFunction)(void (*)(void))inbox_spin, METH_FASTCALL,
     "spin(end_ns, pause_ns, /) -> bool\n\n"
     "Look until a frame is there (True), `end_ns` on the monotonic clock, or 20 us have passed. The core is yielded after each\n"
     "`pause_ns` of looking; after each look where that has shown that the core is wanted."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject InboxType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "ckpt.transport.rings._ring.Inbox",
    .tp_basicsize = sizeof(Inbox),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Inbox()\n\nThe readers of one process.",
    .tp_new = inbox_new,
    .tp_dealloc = inbox_dealloc,
    .tp_methods = inbox_methods,
    .tp_getset = inbox_values,
};

static int usable(const Ring *ring) { return ring_usable(ring); }

static Py_ssize_t rings_of(PyObject *self) { return PyList_GET_SIZE(((Inbox *)self)->readers); }

static Ring *turn(PyObject *self) { return ring_with_record((Inbox *)self); }

static RingApi api = {&RingWriterType, &InboxType, usable,    ring_room, ring_begin, ring_add, ring_end, spin,
                      spin_also,       now_ns,     turn,      ring_peek, ring_skip,  ring_next, 0,       rings_of,
                      ring_read_from, ring_copy_shared, &ring_pointers, ring_wants_help, ring_help};

static PyObject *shift_clock(PyObject *Py_UNUSED(module), PyObject *offset)
{
    long long offset_ns = PyLong_AsLongLong(offset);
    if (offset_ns == -1 && PyErr_Occurred()) return NULL;
    api.clock_offset_ns = offset_ns;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"shift_clock", shift_clock, METH_O,
     "shift_clock(offset_ns, /)\n\nThe clock of this process shows so much more than CLOCK_MONOTONIC: `time.monotonic_ns` does, too."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.transport.rings._ring",
    .m_doc = "Rings in shared memory.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__ring(void)
{
    if (PyType_Ready(&RingWriterType) || PyType_Ready(&RingReaderType) || PyType_Ready(&InboxType)) return NULL;
    if (pthread_atfork(NULL, NULL, ring_count_fork)) return PyErr_NoMemory();
    PyObject *made = PyModule_Create(&module);
    if (!made) return NULL;
    PyObject *capsule = PyCapsule_New(&api, RING_API, NULL);
    if (!capsule || PyModule_AddObjectRef(made, "api", capsule) || PyModule_AddObjectRef(made, "Writer", (PyObject *)&RingWriterType) ||
        PyModule_AddObjectRef(made, "Reader", (PyObject *)&RingReaderType) ||
        PyModule_AddObjectRef(made, "Inbox", (PyObject *)&InboxType)) {
        Py_XDECREF(capsule);
        Py_DECREF(made);
        return NULL;
    }
    Py_DECREF(capsule);
    return made;
}
