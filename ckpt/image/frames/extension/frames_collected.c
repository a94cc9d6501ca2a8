/* Containers that C code is filling from an iterator, and that nobody else knows yet: `list(generator)` has a list, to which it adds
 * item by item until the generator ends. The list is on the heap; the only reference to it is a variable or saved register of
 * the C code, between the evaluation loop that has made the call and the one that runs the generator.
 *
 * held_by_c() finds such a container, and a Collector goes on with it in another process.
 *
 * Where the argument of the call is no iterator, C code has made one of it (`__iter__`), which nobody else may know either:
 * takes_from_only() tells whether it can be another one than the generator that is running.
 */
#include "frames.h"

#if FRAMES_SUPPORTED

#include <structmember.h>

/* ------------------------------------------------------------------ the container */

/* Does the collector of garbage keep this block in one of its lists? Then it is no remainder of a freed object. */
static int is_tracked(const PyGC_Head *block)
{
    PyGC_Head head, next, previous;
    if (!read_memory(block, &head, sizeof head) || head._gc_next == 0)
        return 0;
    const PyGC_Head *after = (PyGC_Head *)head._gc_next, *before = (PyGC_Head *)(head._gc_prev & ~(uintptr_t)3);
    return read_memory(after, &next, sizeof next) && read_memory(before, &previous, sizeof previous) &&
           (const PyGC_Head *)(next._gc_prev & ~(uintptr_t)3) == block && (const PyGC_Head *)previous._gc_next == block;
}

/* A tuple with an empty last place: others belong to objects that the collector does not know, such as code objects. */
static int is_begun(PyObject *tuple)
{
    Py_ssize_t size = PyTuple_GET_SIZE(tuple);
    return size > 0 && PyTuple_GET_ITEM(tuple, size - 1) == NULL;
}

static int is_unshared(PyObject *object, PyTypeObject *type)
{
    PyObject head;
    return object != NULL && !((uintptr_t)object & 7) && read_memory(object, &head, sizeof head) && head.ob_type == type &&
           head.ob_refcnt == 1 && is_tracked((PyGC_Head *)object - 1) && (type != &PyTuple_Type || is_begun(object));
}

/* Is it in a variable or on the evaluation stack of a running function of any thread? How many entries of a stack are in use is
 * not known while its function is inside of C, and those that are not may hold any pointer: of these, `entries` gets
 * (code, index of the instruction, index of the entry). -1: no memory */
static int is_in_a_frame(PyObject *object, PyObject *entries)
{
    PyThreadState *ts = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    for (; ts != NULL; ts = PyThreadState_Next(ts))
        for (Frame *f = thread_current_frame(ts); f != NULL; f = frame_previous(f)) {
            PyCodeObject *code = frame_code(f);
            int count = code->co_nlocalsplus, known = frame_stack_size(f);
            for (int i = 0; i < count + (known < 0 ? code->co_stacksize : known); i++) {
                if (frame_slots(f)[i] != object)
                    continue;
                if (i < count || known >= 0)
                    return 1;
                PyObject *entry = Py_BuildValue("(Oii)", code, frame_executes(f), i - count);
                int failed = entry == NULL || PyList_Append(entries, entry) < 0;
                Py_XDECREF(entry);
                if (failed)
                    return -1;
            }
        }
    return 0;
}

/* The same; `is_operand` tells of entries that may not be in use. (No code runs before all frames have been looked at.) */
static int is_owned_by_a_frame(PyObject *object, PyObject *is_operand)
{
    PyObject *entries = PyList_New(0);
    int owned = entries == NULL ? -1 : is_in_a_frame(object, entries);
    for (Py_ssize_t i = 0; owned == 0 && i < PyList_GET_SIZE(entries); i++) {
        PyObject *answer = PyObject_CallObject(is_operand, PyList_GET_ITEM(entries, i));
        owned = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
    }
    Py_XDECREF(entries);
    return owned;
}

/* Is a pointer to it in this part of the C stack? */
static int is_between(uintptr_t low, uintptr_t high, PyObject *object)
{
    for (uintptr_t at = low & ~(uintptr_t)7; at < high; at += sizeof(PyObject *))
        if (*(PyObject **)at == object)
            return 1;
    return 0;
}

PyDoc_STRVAR(held_by_c_doc,
"held_by_c(address, thread, type, is_operand, /) -> list\n\n"
"Objects of exactly this type to which C code that the frame has called has the only reference, and that no frame has.\n"
"address: of a frame that walk() has just listed and that is inside of C; thread: as for walk().  is_operand(code, at, index): may\n"
"this entry of the evaluation stack be in use while the instruction at this index executes?  The caller must make sure that\n"
"no other object refers to what is found, and must not touch a tuple (see begun_tuple()) or keep it: C code expects to have the\n"
"only reference when it makes the tuple larger.");
static PyObject *held_by_c(PyObject *module, PyObject *args)
{
    PyObject *address, *found, *is_operand;
    PyTypeObject *type;
    unsigned long thread;
    if (!PyArg_ParseTuple(args, "O!kO!O:held_by_c", &PyLong_Type, &address, &thread, &PyType_Type, &type, &is_operand))
        return NULL;
    PyThreadState *ts = thread ? thread_by_ident(thread) : PyThreadState_Get();
    Frame *f = PyLong_AsVoidPtr(address);
    uintptr_t low = 0, high = 0, end = 0;
    if ((found = PyList_New(0)) == NULL || ts == NULL || f == NULL || !thread_c_stack(ts, f, &low, &high, &end))
        return found;
    for (uintptr_t at = low & ~(uintptr_t)7; at < high; at += sizeof(PyObject *)) {
        PyObject *object = *(PyObject **)at;
        if (is_between(low, at, object) || !is_unshared(object, type))
            continue;
        int owned = is_owned_by_a_frame(object, is_operand);
        if (owned < 0 || (!owned && PyList_Append(found, object) < 0)) {
            Py_DECREF(found);
            return NULL;
        }
    }
    /* What calls further out hold may be saved here, too: in a register. There, it is found in its own place. */
    for (Py_ssize_t i = PyList_GET_SIZE(found) - 1; i >= 0 && PyList_GET_SIZE(found) > 1; i--)
        if (is_between(high, end, PyList_GET_ITEM(found, i)) && PyList_SetSlice(found, i, i + 1, NULL) < 0) {
            Py_DECREF(found);
            return NULL;
        }
    return found;
}

PyDoc_STRVAR(takes_from_only_doc,
"takes_from_only(address, thread, iterator, /) -> bool\n\n"
"Whether C code that the frame has called, as for held_by_c(), has a pointer to this iterator and to no other one.  (What such code\n"
"has left on the stack may be pointers to others, too: then the answer is False.)");
static PyObject *takes_from_only(PyObject *module, PyObject *args)
{
    PyObject *address, *iterator;
    unsigned long thread;
    if (!PyArg_ParseTuple(args, "O!kO:takes_from_only", &PyLong_Type, &address, &thread, &iterator))
        return NULL;
    PyThreadState *ts = thread ? thread_by_ident(thread) : PyThreadState_Get();
    Frame *f = PyLong_AsVoidPtr(address);
    uintptr_t low = 0, high = 0, end = 0;
    if (ts == NULL || f == NULL || !thread_c_stack(ts, f, &low, &high, &end) || !is_between(low, high, iterator))
        Py_RETURN_FALSE;
    for (uintptr_t at = low & ~(uintptr_t)7; at < high; at += sizeof(PyObject *)) {
        PyObject *object = *(PyObject **)at;
        if (object != NULL && object != iterator && is_alive(object) && PyIter_Check(object))
            Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

PyDoc_STRVAR(begun_tuple_doc,
"begun_tuple(tuple, /) -> list\n\nThe items of a tuple that C code is filling; the others are NULL.");
static PyObject *begun_tuple(PyObject *module, PyObject *tuple)
{
    PyObject *items = PyList_New(0);
    for (Py_ssize_t i = 0; items != NULL && i < PyTuple_GET_SIZE(tuple) && PyTuple_GET_ITEM(tuple, i) != NULL; i++)
        if (PyList_Append(items, PyTuple_GET_ITEM(tuple, i)) < 0)
            Py_CLEAR(items);
    return items;
}

/* ------------------------------------------------------------------ the call that goes on with it */

typedef struct {
    PyObject ob_base;
    PyObject *container, *finish;
} Collector;

static PyMemberDef collector_members[] = {
    {"container", T_OBJECT, offsetof(Collector, container), READONLY, "a list, set or deque"},
    {"finish", T_OBJECT, offsetof(Collector, finish), READONLY, "what the container is given to at the end; None: it is the result"},
    {NULL, 0, 0, 0, NULL},
};

static int collector_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((Collector *)self)->container);
    Py_VISIT(((Collector *)self)->finish);
    return 0;
}

static int collector_clear(PyObject *self)
{
    Py_CLEAR(((Collector *)self)->container);
    Py_CLEAR(((Collector *)self)->finish);
    return 0;
}

static void collector_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    collector_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *collector_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *container, *finish;
    if (!PyArg_ParseTuple(args, "OO:Collector", &container, &finish))
        return NULL;
    Collector *self = (Collector *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->container = Py_NewRef(container);
        self->finish = Py_NewRef(finish);
    }
    return (PyObject *)self;
}

static int add_item(PyObject *container, PyObject *item)
{
    if (PyList_Check(container))
        return PyList_Append(container, item);
    if (PyAnySet_Check(container))
        return PySet_Add(container, item);
    /* A deque, which may have a greatest length. "(O)": a tuple alone would be the arguments. */
    PyObject *none = PyObject_CallMethod(container, "append", "(O)", item);
    Py_XDECREF(none);
    return none == NULL ? -1 : 0;
}

static PyObject *collector_call(PyObject *object, PyObject *args, PyObject *keywords)
{
    Collector *self = (Collector *)object;
    PyObject *iterator, *item;
    if (!PyArg_ParseTuple(args, "O:Collector", &iterator))
        return NULL;
    if (!PyIter_Check(iterator))
        return PyErr_Format(PyExc_TypeError, "an iterator is needed, not %R", iterator);
    Py_INCREF(iterator);
    /* Not extend() or update(): these call __iter__ of the iterator, which may be a function in Python. */
    while ((item = PyIter_Next(iterator)) != NULL) {
        int failed = add_item(self->container, item);
        Py_DECREF(item);
        if (failed)
            break;
    }
    Py_DECREF(iterator);
    if (PyErr_Occurred())
        return NULL;
    return self->finish == Py_None ? Py_NewRef(self->container) : PyObject_CallOneArg(self->finish, self->container);
}

static PyObject *collector_reduce(PyObject *self, PyObject *unused)
{
    return Py_BuildValue("O(OO)", Py_TYPE(self), ((Collector *)self)->container, ((Collector *)self)->finish);
}

static PyMethodDef collector_methods[] = {
    {"__reduce__", collector_reduce, METH_NOARGS, "its class and arguments"},
    {NULL, NULL, 0, NULL},
};

PyTypeObject CollectorType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.image.frames._frames.Collector",
    .tp_basicsize = sizeof(Collector),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Collector(container, finish)\n\nA call of it adds the items of an iterator to the container, as `list(iterator)` would.",
    .tp_new = collector_new,
    .tp_dealloc = collector_dealloc,
    .tp_traverse = collector_traverse,
    .tp_clear = collector_clear,
    .tp_call = collector_call,
    .tp_members = collector_members,
    .tp_methods = collector_methods,
};

PyMethodDef collected_methods[] = {
    {"begun_tuple", begun_tuple, METH_O, begun_tuple_doc},
    {"held_by_c", held_by_c, METH_VARARGS, held_by_c_doc},
    {"takes_from_only", takes_from_only, METH_VARARGS, takes_from_only_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
