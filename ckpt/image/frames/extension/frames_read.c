/* Reads frames and generators of the running interpreter as data.
 *
 * walk() lists the frames from the innermost one to a base frame, with their locals and, where the interpreter keeps a
 * valid stack pointer, their evaluation stack.  A frame that is inside of a C function has no valid stack pointer: its depth is
 * computed in Python, and slots() reads that many entries. With `safe` it tests every pointer first, because operands of a
 * half finished instruction may be freed already.
 */
#include "frames.h"

#if FRAMES_SUPPORTED

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

/* ------------------------------------------------------------------ reading memory that may not be there */

int read_memory(const void *address, void *buffer, size_t size)
{
    struct iovec local = {buffer, size}, remote = {(void *)address, size};
    ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (n < 0 && errno != EFAULT) { /* a sandbox may forbid the call */
        int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return 0;
        n = pread(fd, buffer, size, (off_t)(uintptr_t)address);
        close(fd);
    }
    return n == (ssize_t)size;
}

static int sane_refcount(Py_ssize_t n) { return n > 0 && n < ((Py_ssize_t)1 << 40); }

static int is_common_type(PyTypeObject *t)
{
    return t == &PyLong_Type || t == &PyUnicode_Type || t == &PyFunction_Type || t == &PyCFunction_Type || t == &PyTuple_Type
        || t == &PyList_Type || t == &PyDict_Type || t == &PyGen_Type || t == &PyMethod_Type || t == &PyType_Type
        || t == &PyFloat_Type || t == &PyCell_Type || t == Py_TYPE(Py_None);
}

/* Whether a pointer found in a slot leads to a living object: freed blocks have a zero count or an allocator's link there. */
int is_alive(PyObject *object)
{
    PyObject head;
    PyTypeObject type, meta;
    if (((uintptr_t)object & 7) || !read_memory(object, &head, sizeof head) || !sane_refcount(head.ob_refcnt))
        return 0;
    if (is_common_type(head.ob_type))
        return 1;
    if (((uintptr_t)head.ob_type & 7) || !read_memory(head.ob_type, &type, sizeof type)
        || !sane_refcount(Py_REFCNT((PyObject *)&type)) || !(type.tp_flags & Py_TPFLAGS_READY))
        return 0;
    PyTypeObject *metatype = Py_TYPE((PyObject *)&type);
    if (metatype == &PyType_Type)
        return 1;
    return !((uintptr_t)metatype & 7) && read_memory(metatype, &meta, sizeof meta)
        && (meta.tp_flags & Py_TPFLAGS_TYPE_SUBCLASS) != 0;
}

/* ------------------------------------------------------------------ reading frames */

static PyObject *read_slots(Frame *f, int start, int count, int safe)
{
    PyObject *list = PyList_New(count);
    if (list == NULL)
        return NULL;
    for (int i = 0; i < count; i++) {
        PyObject *o = frame_slots(f)[start + i];
        if (o == NULL)
            o = null_object;
        else if (safe && !is_alive(o))
            o = dead_object;
        PyList_SET_ITEM(list, i, Py_NewRef(o));
    }
    return list;
}

static int in_tuple(PyObject *tuple, PyObject *item)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
        if (PyTuple_GET_ITEM(tuple, i) == item)
            return 1;
    return 0;
}

/* Must an image hold the dictionary that locals() has returned for a running function? Yes, if names other than those of its
 * variables have been put there (by exec, for example), or if another object holds the dictionary. */
static int is_own_namespace(PyCodeObject *code, PyObject *namespace)
{
    if (namespace == NULL || !PyDict_CheckExact(namespace))
        return 0;
    if (Py_REFCNT(namespace) > 1)
        return 1;
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(namespace, &at, &key, &value);)
        if (!in_tuple(code->co_localsplusnames, key))
            return 1;
    return 0;
}

enum { ENTRY = 1, WAITING = 2, IN_FLIGHT = 4, CODE_REPLACED = 8, INCOMPLETE = 16, FOREIGN_EXC = 32, EXTRA_LEVEL = 64, STOPPED = 128 };

static PyObject *read_frame(Frame *f, Frame *callee, int flags, Link *link, PyObject *exc)
{
    PyCodeObject *code = frame_code(f);
    PyGenObject *gen = frame_generator(f);
    int in_module = !(code->co_flags & CO_OPTIMIZED), depth = frame_stack_size(f);
    /* before we take references of our own; 1 may be a generator that is being finalised */
    Py_ssize_t gen_references = gen ? Py_REFCNT(gen) : 0;
    PyObject *func = frame_func(f), *namespace = frame_namespace(f);
    if (func && PyFunction_Check(func) && PyFunction_GET_CODE(func) != (PyObject *)code)
        flags |= CODE_REPLACED;
    flags |= frame_is_entry(f) ? ENTRY : 0;
    PyObject *init = callee != NULL ? frame_initialises(callee) : NULL;
    if (init != NULL || (link != NULL && link->levels > 0))
        flags |= EXTRA_LEVEL;
    if (link != NULL)
        init = link->init;
    PyObject *locals = read_slots(f, 0, code->co_nlocalsplus, 0);
    PyObject *stack = depth >= 0 ? read_slots(f, code->co_nlocalsplus, depth, 0) : Py_NewRef(Py_None);
    PyObject *address = PyLong_FromVoidPtr(f);
    if (locals == NULL || stack == NULL || address == NULL) {
        Py_XDECREF(locals);
        Py_XDECREF(stack);
        Py_XDECREF(address);
        return NULL;
    }
    return Py_BuildValue("(NOOiiOnNNOOOOO)", address, (PyObject *)code, func, flags & STOPPED ? frame_executes(f) : frame_lasti(f, callee), flags, gen ? (PyObject *)gen : Py_None,
                         gen_references, locals, stack, init ? init : null_object, in_module ? frame_globals(f) : Py_None,
                         namespace && (in_module || is_own_namespace(code, namespace)) ? namespace : Py_None, exc ? exc : Py_None, link ? link->kept : Py_None);
}

/* The exception that a generator handles, if the next one in the thread's list is the generator's: `*handled` goes on to the one
 * after it. 0: it is not. */
static int take_exception(PyGenObject *gen, ExcItem **handled, PyObject **exc)
{
    if (*handled != generator_exc_item(gen))
        return 0;
    *exc = (*handled)->exc_value;
    *handled = (*handled)->previous_item;
    return 1;
}

PyDoc_STRVAR(walk_doc,
"walk(bases, skip, at_check, thread=0, /) -> (frames, callee, exc, depth, limit, traced)\n\n"
"Frames of the calling thread, innermost first, up to (excluding) the first one whose code is in `bases`; None for frames when\n"
"there is no such frame or a rebuild is under way.  Innermost frames whose code is in `skip` are left out; `callee` is the\n"
"outermost of these or None.  at_check: start at the frame that was interrupted by request().\n"
"thread: identifier of another thread (`skip` and `at_check` are not used), whose frames need no base; None for frames: it has\n"
"ended.\n"
"traced: 0 no, 1 the thread is traced or profiled, 2 its trace function is running.\n"
"Frame: (address, code, func, lasti, flags, generator, generator_references, locals, stack or None, init, globals,\n"
"namespace, exc, kept or None).");
static PyObject *walk(PyObject *module, PyObject *args)
{
    PyObject *bases, *skip, *frames, *callee = NULL, *item;
    int at_check, skipped = 0, found = 0;
    unsigned long thread = 0;
    if (!PyArg_ParseTuple(args, "O!O!p|k:walk", &PyTuple_Type, &bases, &PyTuple_Type, &skip, &at_check, &thread))
        return NULL;
    PyThreadState *ts = thread ? thread_by_ident(thread) : PyThreadState_Get();
    if (ts == NULL)
        return Py_BuildValue("(OOOiii)", Py_None, Py_None, Py_None, 0, 0, 0);
    Frame *f = thread_current_frame(ts), *outermost_skipped = NULL;
    if (thread) {
        found = 1;
    } else if (at_check) {
        for (; f != NULL && f != state.checked; f = frame_previous(f))
            skipped++;
        if (!state.in_request) {
            PyErr_SetString(PyExc_RuntimeError, "a capture at a check must come from a call queued by request()");
            return NULL;
        }
    } else {
        for (; f != NULL && in_tuple(skip, (PyObject *)frame_code(f)); f = frame_previous(f)) {
            outermost_skipped = f;
            skipped++;
        }
    }
    ExcItem *handled = thread_handled(ts);
    for (Frame *g = thread_current_frame(ts); g != f; g = frame_previous(g))
        if (frame_generator(g) && handled == generator_exc_item(frame_generator(g)))
            handled = handled->previous_item;
    Link *link = link_of(state.links, ts);
    if ((frames = PyList_New(0)) == NULL)
        return NULL;
    int caller_is_gone = f != NULL && outermost_skipped != NULL && frame_caller_is_gone(outermost_skipped);
    for (Frame *inner = outermost_skipped; f != NULL; inner = f, f = frame_previous(f)) {
        if (in_tuple(bases, (PyObject *)frame_code(f))) {
            found = 1;
            break;
        }
        int flags = frame_is_incomplete(f) || caller_is_gone ? INCOMPLETE : 0;
        caller_is_gone = frame_caller_is_gone(f);
        if (thread && inner == NULL && thread_has_stopped(ts))
            flags |= STOPPED;
        PyObject *exc = NULL;
        Link *waiting = link != NULL && link->frame == f ? link : NULL;
        if (waiting != NULL) {
            flags |= waiting->in_flight ? IN_FLIGHT : WAITING;
            link = link_of(link->up, ts);
        }
        if (frame_generator(f) != NULL && !take_exception(frame_generator(f), &handled, &exc))
            flags |= FOREIGN_EXC;
        item = read_frame(f, inner, flags, waiting, exc);
        if (item == NULL || PyList_Append(frames, item) < 0) {
            Py_XDECREF(item);
            Py_DECREF(frames);
            return NULL;
        }
        Py_DECREF(item);
    }
    callee = outermost_skipped ? read_frame(outermost_skipped, NULL, 0, NULL, NULL) : Py_NewRef(Py_None);
    if (callee == NULL) {
        Py_DECREF(frames);
        return NULL;
    }
    if (!found || state.rebuild != NULL)
        Py_SETREF(frames, Py_NewRef(Py_None));
    return Py_BuildValue("(NNOiii)", frames, callee, handled && handled->exc_value ? handled->exc_value : Py_None,
                         thread ? 0 : thread_recursion_depth(ts) - skipped - DEPTH_OF_C_CALL, thread_recursion_limit(ts), thread ? thread_is_traced_by_program(ts) : thread_tracing(ts) > state.pauses ? 2 : thread_is_traced(ts));
}

PyDoc_STRVAR(places_doc,
"places(thread, most, /) -> list of (address, code, lasti, has_stopped)\n\n"
"Where another thread is: at most so many frames, innermost first; none: it has ended, or\n"
"a rebuild is under way.  As walk() says it, but nothing that the\n"
"frames hold is touched: the thread may go on at any time, and its objects must not end in another one.");
static PyObject *places(PyObject *module, PyObject *args)
{
    unsigned long thread;
    Py_ssize_t most;
    PyObject *found;
    if (!PyArg_ParseTuple(args, "kn:places", &thread, &most) || (found = PyList_New(0)) == NULL)
        return NULL;
    PyThreadState *ts = state.rebuild == NULL ? thread_by_ident(thread) : NULL;
    Frame *inner = NULL, *f = ts != NULL ? thread_current_frame(ts) : NULL;
    for (; f != NULL && PyList_GET_SIZE(found) < most; inner = f, f = frame_previous(f)) {
        int stopped = inner == NULL && thread_has_stopped(ts);
        PyObject *place = Py_BuildValue("(NOiN)", PyLong_FromVoidPtr(f), (PyObject *)frame_code(f),
                                        stopped ? frame_executes(f) : frame_lasti(f, inner), PyBool_FromLong(stopped));
        int failed = place == NULL || PyList_Append(found, place) < 0;
        Py_XDECREF(place);
        if (failed) {
            Py_DECREF(found);
            return NULL;
        }
    }
    return found;
}

/* Is the thread still in the frame? Its memory may be another frame's by now, or nobody's. */
static int has_frame(unsigned long thread, Frame *f, PyObject *code)
{
    PyThreadState *ts = thread_by_ident(thread);
    Frame *g = ts != NULL ? thread_current_frame(ts) : NULL;
    while (g != NULL && g != f)
        g = frame_previous(g);
    return g != NULL && (PyObject *)frame_code(g) == code;
}

PyDoc_STRVAR(slots_doc,
"slots(address, count, safe, code, thread, /) -> list\n\n"
"The first `count` entries of the evaluation stack of a frame that walk() has just listed.  safe: pointers to what is no\n"
"living object become DEAD.  code, thread: of the frame, as for walk(); another thread may have gone on since.  ValueError: the\n"
"frame cannot hold so many.  LookupError: the frame has been left.");
static PyObject *slots(PyObject *module, PyObject *args)
{
    PyObject *address, *code;
    int count, safe;
    unsigned long thread;
    if (!PyArg_ParseTuple(args, "O!ipOk:slots", &PyLong_Type, &address, &count, &safe, &code, &thread))
        return NULL;
    Frame *f = PyLong_AsVoidPtr(address);
    if (f == NULL)
        return NULL;
    if (thread && !has_frame(thread, f, code))
        return PyErr_Format(PyExc_LookupError, "thread %lu has left the frame", thread);
    if (count < 0 || count > frame_code(f)->co_stacksize)
        return PyErr_Format(PyExc_ValueError, "stack of %U cannot hold %d entries", frame_code(f)->co_qualname, count);
    return read_slots(f, frame_code(f)->co_nlocalsplus, count, safe);
}

/* ------------------------------------------------------------------ generators */

PyGenObject *as_generator(PyObject *o)
{
    if (PyGen_CheckExact(o) || PyCoro_CheckExact(o) || PyAsyncGen_CheckExact(o))
        return (PyGenObject *)o;
    PyErr_Format(PyExc_TypeError, "not a generator or coroutine: %s", Py_TYPE(o)->tp_name);
    return NULL;
}

PyDoc_STRVAR(generator_read_doc,
"generator_read(gen, /) -> (state, func or code, lasti, locals, stack, exc)\n\n"
"The content of a generator or coroutine; TypeError: it is none.\n"
"state: -2 created, -1 suspended, 0 running (its content is in the stack of frames: lists are empty), 1 finished (only its\n"
"code is left).");
static PyObject *generator_read(PyObject *module, PyObject *object)
{
    PyGenObject *gen = as_generator(object);
    if (gen == NULL)
        return NULL;
    if (generator_is_finished(gen))
        return Py_BuildValue("(iOi[][]O)", 1, generator_code(gen), -1, Py_None);
    Frame *f = generator_frame(gen);
    if (generator_state(gen) == GEN_EXECUTING)
        return Py_BuildValue("(iOi[][]O)", 0, frame_func(f), -1, Py_None);
    PyObject *exc = generator_exc_item(gen)->exc_value;
    PyObject *locals = read_slots(f, 0, frame_code(f)->co_nlocalsplus, 0);
    PyObject *stack = locals ? read_slots(f, frame_code(f)->co_nlocalsplus, frame_stack_size(f), 0) : NULL;
    if (stack == NULL) {
        Py_XDECREF(locals);
        return NULL;
    }
    return Py_BuildValue("(iOiNNO)", generator_state(gen), frame_func(f), generator_lasti(gen), locals, stack, exc ? exc : Py_None);
}

static PyAsyncGenObject *as_async_generator(PyObject *o)
{
    if (PyAsyncGen_CheckExact(o))
        return (PyAsyncGenObject *)o;
    PyErr_Format(PyExc_TypeError, "not an asynchronous generator: %s", Py_TYPE(o)->tp_name);
    return NULL;
}

PyDoc_STRVAR(async_generator_marks_doc,
"async_generator_marks(gen, /) -> (has_begun, is_closed, is_running, finalizer)\n\n"
"has_begun: the first iteration has called the hooks of sys.set_asyncgen_hooks.  is_running: one of its awaitables is under way.\n"
"finalizer: the hook that it got then, or None.");
static PyObject *async_generator_marks(PyObject *module, PyObject *object)
{
    PyAsyncGenObject *gen = as_async_generator(object);
    if (gen == NULL)
        return NULL;
    PyObject *finalizer = gen->ag_origin_or_finalizer;
    return Py_BuildValue("(iiiO)", gen->ag_hooks_inited, gen->ag_closed, gen->ag_running_async, finalizer ? finalizer : Py_None);
}

PyDoc_STRVAR(set_async_generator_marks_doc,
"set_async_generator_marks(gen, has_begun, is_closed, is_running, finalizer, /)\n\nSee async_generator_marks().");
static PyObject *set_async_generator_marks(PyObject *module, PyObject *args)
{
    PyObject *object, *finalizer;
    int has_begun, is_closed, is_running;
    PyAsyncGenObject *gen;
    if (!PyArg_ParseTuple(args, "OpppO", &object, &has_begun, &is_closed, &is_running, &finalizer)
        || (gen = as_async_generator(object)) == NULL)
        return NULL;
    gen->ag_hooks_inited = (char)has_begun;
    gen->ag_closed = (char)is_closed;
    gen->ag_running_async = (char)is_running;
    Py_XSETREF(gen->ag_origin_or_finalizer, finalizer == Py_None ? NULL : Py_NewRef(finalizer));
    Py_RETURN_NONE;
}

PyDoc_STRVAR(frame_place_doc,
"frame_place(frame, /) -> (address, at)\n\n"
"Where a frame of the calling thread is, as on_stack() and look() have it.  LookupError: it is none of them.");
static PyObject *frame_place(PyObject *module, PyObject *object)
{
    Frame *callee = NULL;
    if (!PyFrame_Check(object))
        return PyErr_Format(PyExc_TypeError, "no frame: %R", object);
    for (Frame *f = thread_current_frame(PyThreadState_Get()); f != NULL; callee = f, f = frame_previous(f))
        if (f == ((PyFrameObject *)object)->f_frame)
            return Py_BuildValue("(Ni)", PyLong_FromVoidPtr(f), frame_lasti(f, callee));
    PyErr_SetString(PyExc_LookupError, "the frame does not run in this thread");
    return NULL;
}

PyMethodDef read_methods[] = {
    {"frame_place", frame_place, METH_O, frame_place_doc},
    {"walk", walk, METH_VARARGS, walk_doc},
    {"places", places, METH_VARARGS, places_doc},
    {"slots", slots, METH_VARARGS, slots_doc},
    {"async_generator_marks", async_generator_marks, METH_O, async_generator_marks_doc},
    {"set_async_generator_marks", set_async_generator_marks, METH_VARARGS, set_async_generator_marks_doc},
    {"generator_read", generator_read, METH_O, generator_read_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
