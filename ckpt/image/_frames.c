/* Frames of the running interpreter: read them, and have them rebuilt.
 *
 * Reading.  walk() lists the frames from the innermost one to a base frame, with their locals and, where the interpreter
 * keeps a valid stack pointer, their evaluation stack.  A frame that is inside of a C function has no valid stack pointer:
 * its depth is worked out in Python and slots() reads it, defensively when asked to, because operands of a half finished
 * instruction may already be dead.
 *
 * Rebuilding.  run() calls the function of the outermost record with dummy arguments while a frame evaluation hook
 * (PEP 523) is installed.  The interpreter allocates a genuine frame; on its entry the hook overwrites locals, stack and
 * instruction pointer and then, by the record's mode:
 *   'L'  removes the hook and lets the frame run: the program goes on;
 *   'V'  links the frame, calls the next record's function, pushes its result (or throws its exception) and runs the frame;
 *   'I'  the same, but what is pushed is `self`, the value of the type call that was running __init__;
 *   'R'  runs the frame, which repeats its instruction, which enters the next frame by itself.
 * The hook owns each record only until the frame has its content: lifetimes are the program's own from then on.
 * A failure raises RestoreError and is propagated without running code of the program where that is in our hands.
 *
 * A rebuilt 'V' or 'I' frame waits in our hook, not in the evaluation loop.  `Link` items on the C stack remember those, so
 * that walk() can tell such a frame (capturable) from one whose callee is just being torn down (not capturable).
 *
 * State is process wide: frames are rebuilt and captured in the main interpreter's main thread only.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(PYPY_VERSION) || defined(Py_GIL_DISABLED)
#define FRAMES_SUPPORTED 0
#elif PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000
#include "frames_311.h"
#define FRAMES_SUPPORTED 1
#elif PY_VERSION_HEX >= 0x030c0000 && PY_VERSION_HEX < 0x030d0000
#include "frames_312.h"
#define FRAMES_SUPPORTED 1
#elif PY_VERSION_HEX >= 0x030d0000 && PY_VERSION_HEX < 0x030e0000
#include "frames_313.h"
#define FRAMES_SUPPORTED 1
#else
#define FRAMES_SUPPORTED 0
#endif

/* ------------------------------------------------------------------ sentinels: content of a slot that is no object */

static PyObject *sentinel_repr(PyObject *self);
static PyObject *sentinel_reduce(PyObject *self, PyObject *unused);

static PyMethodDef sentinel_methods[] = {
    {"__reduce__", sentinel_reduce, METH_NOARGS, "pickled by reference"},
    {NULL, NULL, 0, NULL},
};
static PyTypeObject SentinelType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.image._frames.Sentinel",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Content of a frame slot that is no object: NULL (empty) or DEAD (a pointer to something already freed).",
    .tp_repr = sentinel_repr,
    .tp_methods = sentinel_methods,
};
static PyObject *null_object, *dead_object;

static const char *sentinel_name(PyObject *self) { return self == null_object ? "NULL" : "DEAD"; }
static PyObject *sentinel_repr(PyObject *self) { return PyUnicode_FromFormat("<%s>", sentinel_name(self)); }
static PyObject *sentinel_reduce(PyObject *self, PyObject *unused) { return PyUnicode_FromString(sentinel_name(self)); }

#if FRAMES_SUPPORTED

typedef struct Link {
    Frame *frame;
    PyObject *init;  /* the object whose __init__ runs below (mode I), or NULL; owned by the hook's C frame */
    PyObject *kept;  /* list of operands that the call keeps alive until it returns, or None; owned likewise */
    int levels;      /* of recursion that lie between the two frames */
    int in_flight;   /* the callee has returned: its value is in C hands, the frame cannot be captured */
    struct Link *up;
} Link;

enum { R_FUNC, R_CODE, R_GLOBALS, R_NAMESPACE, R_LOCALS, R_STACK, R_LASTI, R_MODE, R_VALUE, R_GEN, R_EXC, R_UNTIL, R_KEPT, R_AT, R_SIZE };

typedef struct Rebuild {
    PyObject **records;  /* owned; an entry is NULL once its frame is filled */
    Py_ssize_t count, next;
    Frame *parent;       /* the frame that must enter the next one */
    int redo_first, redo_until;  /* parent repeats the instruction in these code units; until 0: we call the next one */
    int active, failed, gc_enabled, depth, c_budget;
    PyObject *error;     /* kept to raise again while C frames unwind */
    PyObject **nones;    /* dummy arguments */
    _PyFrameEvalFunction evaluator;  /* what was installed before */
} Rebuild;

static struct {
    int in_request;    /* a call queued by request() is running … */
    Frame *checked;    /* … and this frame was interrupted for it (NULL: none, the interpreter is starting or ending) */
    Link *links;
    Rebuild *rebuild;  /* set while the hook is installed */
} state;

/* ------------------------------------------------------------------ reading memory that may not be there */

static int read_memory(const void *address, void *buffer, size_t size)
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
static int is_alive(PyObject *object)
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

enum { ENTRY = 1, WAITING = 2, IN_FLIGHT = 4, CODE_REPLACED = 8, INCOMPLETE = 16, FOREIGN_EXC = 32, EXTRA_LEVEL = 64 };

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
    return Py_BuildValue("(NOOiiOnNNOOOOO)", address, (PyObject *)code, func, frame_lasti(f, callee), flags, gen ? (PyObject *)gen : Py_None,
                         gen_references, locals, stack, init ? init : null_object, in_module ? frame_globals(f) : Py_None,
                         in_module && namespace ? namespace : Py_None, exc ? exc : Py_None, link ? link->kept : Py_None);
}

static int in_tuple(PyObject *tuple, PyObject *item)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
        if (PyTuple_GET_ITEM(tuple, i) == item)
            return 1;
    return 0;
}

PyDoc_STRVAR(walk_doc,
"walk(bases, skip, at_check, /) -> (frames, callee, exc, depth, limit, traced)\n\n"
"Frames of the calling thread, innermost first, up to (excluding) the first one whose code is in `bases`; None for frames when\n"
"there is no such frame or a rebuild is under way.  Innermost frames whose code is in `skip` are left out; `callee` is the\n"
"outermost of these or None.  at_check: start at the frame that was interrupted by request().\n"
"Frame: (address, code, func, lasti, flags, generator, generator_references, locals, stack or None, init, globals,\n"
"namespace, exc, kept or None).");
static PyObject *walk(PyObject *module, PyObject *args)
{
    PyObject *bases, *skip, *frames, *callee = NULL, *item;
    int at_check, skipped = 0, found = 0;
    if (!PyArg_ParseTuple(args, "O!O!p:walk", &PyTuple_Type, &bases, &PyTuple_Type, &skip, &at_check))
        return NULL;
    PyThreadState *ts = PyThreadState_Get();
    Frame *f = thread_current_frame(ts), *outermost_skipped = NULL;
    if (at_check) {
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
    _PyErr_StackItem *handled = ts->exc_info;
    for (Frame *g = thread_current_frame(ts); g != f; g = frame_previous(g))
        if (frame_generator(g) && handled == generator_exc_item(frame_generator(g)))
            handled = handled->previous_item;
    Link *link = state.links;
    if ((frames = PyList_New(0)) == NULL)
        return NULL;
    int caller_is_gone = f != NULL && outermost_skipped != NULL && frame_caller_is_gone(outermost_skipped);
    for (Frame *inner = outermost_skipped; f != NULL && !found; inner = f, f = frame_previous(f)) {
        if (in_tuple(bases, (PyObject *)frame_code(f))) {
            found = 1;
            break;
        }
        int flags = frame_is_incomplete(f) || caller_is_gone ? INCOMPLETE : 0;
        caller_is_gone = frame_caller_is_gone(f);
        PyObject *exc = NULL;
        Link *waiting = link != NULL && link->frame == f ? link : NULL;
        if (waiting != NULL) {
            flags |= waiting->in_flight ? IN_FLIGHT : WAITING;
            link = link->up;
        }
        if (frame_generator(f) != NULL) {
            if (handled == generator_exc_item(frame_generator(f))) {
                exc = handled->exc_value;
                handled = handled->previous_item;
            } else
                flags |= FOREIGN_EXC;
        }
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
                         thread_recursion_depth(ts) - skipped - DEPTH_OF_C_CALL, thread_recursion_limit(ts), thread_is_traced(ts));
}

PyDoc_STRVAR(slots_doc,
"slots(address, count, safe, /) -> list\n\n"
"The first `count` entries of the evaluation stack of a frame that walk() has just listed.  safe: pointers to what is no\n"
"living object become DEAD.");
static PyObject *slots(PyObject *module, PyObject *args)
{
    PyObject *address;
    int count, safe;
    if (!PyArg_ParseTuple(args, "O!ip:slots", &PyLong_Type, &address, &count, &safe))
        return NULL;
    Frame *f = PyLong_AsVoidPtr(address);
    if (f == NULL)
        return NULL;
    if (count < 0 || count > frame_code(f)->co_stacksize)
        return PyErr_Format(PyExc_ValueError, "stack of %U cannot hold %d entries", frame_code(f)->co_qualname, count);
    return read_slots(f, frame_code(f)->co_nlocalsplus, count, safe);
}

/* ------------------------------------------------------------------ filling frames */

/* Overwrite the content of a frame that does not run. Takes its own references; the old content is released last. */
static int fill(Frame *f, PyObject *locals, PyObject *stack, int lasti)
{
    PyCodeObject *code = frame_code(f);
    int nlocals = code->co_nlocalsplus, old_depth = frame_stack_size(f), units = (int)(Py_SIZE(code));
    if (!PyList_Check(locals) || !PyList_Check(stack) || PyList_GET_SIZE(locals) != nlocals || lasti < -1 || lasti >= units
        || PyList_GET_SIZE(stack) > code->co_stacksize || old_depth < 0) {
        PyErr_Format(PyExc_ValueError, "content does not fit a frame of %U", code->co_qualname);
        return -1;
    }
    int depth = (int)PyList_GET_SIZE(stack), nold = nlocals + old_depth;
    PyObject **slot = frame_slots(f), **old = PyMem_Malloc(sizeof(PyObject *) * (nold + 1));
    if (old == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(old, slot, sizeof(PyObject *) * nold);
    for (int i = 0; i < nlocals + depth; i++) {
        PyObject *o = i < nlocals ? PyList_GET_ITEM(locals, i) : PyList_GET_ITEM(stack, i - nlocals);
        slot[i] = o == null_object ? NULL : Py_NewRef(o);
    }
    frame_set_stack_size(f, depth);
    frame_set_lasti(f, lasti);
    for (int i = 0; i < nold; i++)
        Py_XDECREF(old[i]);
    PyMem_Free(old);
    return 0;
}

static PyGenObject *as_generator(PyObject *o)
{
    if (PyGen_CheckExact(o) || PyCoro_CheckExact(o))
        return (PyGenObject *)o;
    PyErr_Format(PyExc_TypeError, "not a generator or coroutine: %s", Py_TYPE(o)->tp_name);
    return NULL;
}

PyDoc_STRVAR(generator_read_doc,
"generator_read(gen, /) -> (state, func or code, lasti, locals, stack, exc)\n\n"
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

PyDoc_STRVAR(generator_fill_doc,
"generator_fill(gen, state, locals, stack, lasti, exc, /)\n\n"
"Overwrite the content of a generator that neither runs nor is finished.  State 0: it is going to be entered by a rebuild,\n"
"which brings the content along; until then it only looks suspended.");
static PyObject *generator_fill(PyObject *module, PyObject *args)
{
    PyObject *object, *locals, *stack, *exc;
    int new_state, lasti;
    if (!PyArg_ParseTuple(args, "OiO!O!iO:generator_fill", &object, &new_state, &PyList_Type, &locals, &PyList_Type, &stack,
                          &lasti, &exc))
        return NULL;
    PyGenObject *gen = as_generator(object);
    if (gen == NULL)
        return NULL;
    if (generator_is_finished(gen) || generator_state(gen) == GEN_EXECUTING || new_state < GEN_CREATED || new_state > 0)
        return PyErr_Format(PyExc_ValueError, "%R cannot be filled", object);
    if (new_state != 0 && fill(generator_frame(gen), locals, stack, lasti) < 0)
        return NULL;
    if (new_state == GEN_EXECUTING)
        generator_seem_suspended(gen);
    else
        generator_set_state(gen, new_state);
    if (new_state == GEN_SUSPENDED)
        Py_XSETREF(generator_exc_item(gen)->exc_value, exc == Py_None ? NULL : Py_NewRef(exc));
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ rebuilding */

static int imported_error(const char *name, PyObject **out)
{
    PyObject *module = PyImport_ImportModule("ckpt.image.errors");
    *out = module ? PyObject_GetAttrString(module, name) : NULL;
    Py_XDECREF(module);
    return *out ? 0 : -1;
}

static void rebuild_end(Rebuild *r)
{
    if (!r->active)
        return;
    r->active = 0;
    state.rebuild = NULL;
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), r->evaluator);
    if (r->gc_enabled)
        PyGC_Enable();
}

/* Ends the rebuild with a RestoreError caused by the exception that may be set. Returns NULL, always. */
static PyObject *rebuild_fail(Rebuild *r, const char *what, PyObject *name)
{
    PyObject *type, *value, *traceback, *cause_type, *cause, *cause_traceback, *error_type;
    rebuild_end(r);
    r->failed = 1;
    PyErr_Fetch(&cause_type, &cause, &cause_traceback);
    PyErr_NormalizeException(&cause_type, &cause, &cause_traceback);
    if (imported_error("RestoreError", &error_type) == 0) {
        PyErr_Format(error_type, "%s: %S", what, name);
        Py_DECREF(error_type);
    }
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (cause != NULL)
        PyException_SetCause(value, Py_NewRef(cause));
    Py_XSETREF(r->error, Py_NewRef(value));
    PyErr_Restore(type, value, traceback);
    Py_XDECREF(cause_type);
    Py_XDECREF(cause);
    Py_XDECREF(cause_traceback);
    return NULL;
}

static PyObject *rebuild_fail_again(Rebuild *r)
{
    PyErr_Clear();
    PyErr_SetObject((PyObject *)Py_TYPE(r->error), r->error);
    return NULL;
}

static PyObject *record_name(PyObject *record)
{
    PyObject *func = PyTuple_GET_ITEM(record, R_FUNC);
    PyObject *code = func == Py_None ? PyTuple_GET_ITEM(record, R_CODE) : PyFunction_GET_CODE(func);
    return ((PyCodeObject *)code)->co_qualname;
}

/* Have the interpreter make the frame of the next record; the hook takes over on its entry. */
static PyObject *enter_next(Rebuild *r)
{
    Py_ssize_t mine = r->next;
    PyObject *record = r->records[mine], *func = PyTuple_GET_ITEM(record, R_FUNC), *result = NULL;
    PyObject *name = Py_NewRef(record_name(record));
    if (func == Py_None) {
        result = PyEval_EvalCode(PyTuple_GET_ITEM(record, R_CODE), PyTuple_GET_ITEM(record, R_GLOBALS),
                                 PyTuple_GET_ITEM(record, R_NAMESPACE));
    } else {
        PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(func);
        PyObject *kwnames = NULL;
        if (code->co_kwonlyargcount > 0)
            kwnames = PyTuple_GetSlice(code->co_localsplusnames, code->co_argcount, code->co_argcount + code->co_kwonlyargcount);
        if (code->co_kwonlyargcount == 0 || kwnames != NULL)
            result = ((PyFunctionObject *)func)->vectorcall(func, r->nones, code->co_argcount, kwnames);
        Py_XDECREF(kwnames);
    }
    if (r->next == mine && !r->failed) {
        Py_CLEAR(result);
        rebuild_fail(r, "this frame could not be entered", name);
    }
    Py_DECREF(name);
    return result;
}

/* Operands of a call are released from the first to the last; destructors may run, whatever exception is on its way. */
static void release_in_order(PyObject *list)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++)
        PyList_SetItem(list, i, Py_NewRef(Py_None));
    PyErr_Restore(type, value, traceback);
}

/* Mode V and I: the frame waits here for the next one, as if it had called it. */
static PyObject *wait_for_next(PyThreadState *ts, Frame *f, Rebuild *r, int mode, int levels, PyObject *init, PyObject *kept)
{
    Link link = {f, mode == 'I' ? init : NULL, kept, levels, 0, state.links};
    int depth = thread_recursion_depth(ts);
    frame_link(ts, f);
    state.links = &link;
    r->parent = f;
    r->redo_until = 0;
    thread_set_recursion_depth(ts, depth + 1 + levels);
    PyObject *result = enter_next(r);
    thread_set_recursion_depth(ts, thread_recursion_depth(ts) - 1 - levels);
    if (PyList_Check(kept))
        release_in_order(kept);
    state.links = link.up;
    frame_unlink(ts, f);
    if (mode == 'I' && result != NULL && !r->failed) {
        if (result == Py_None)
            Py_SETREF(result, Py_NewRef(init));
        else {
            PyErr_Format(PyExc_TypeError, "__init__() should return None, not '%.200s'", Py_TYPE(result)->tp_name);
            Py_CLEAR(result);
        }
    }
    return result;
}

static PyObject *rebuild_frame(PyThreadState *ts, Frame *f, int throwing, Rebuild *r)
{
    Py_ssize_t mine = r->next;
    PyObject *record = r->records[mine], *value = Py_NewRef(PyTuple_GET_ITEM(record, R_VALUE)), *result;
    PyObject *kept = Py_NewRef(PyTuple_GET_ITEM(record, R_KEPT));
    PyGenObject *gen = frame_generator(f);
    int mode = (int)PyLong_AsLong(PyTuple_GET_ITEM(record, R_MODE));
    int lasti = (int)PyLong_AsLong(PyTuple_GET_ITEM(record, R_LASTI)), until = (int)PyLong_AsLong(PyTuple_GET_ITEM(record, R_UNTIL));
    int at = (int)PyLong_AsLong(PyTuple_GET_ITEM(record, R_AT));
    if (throwing)
        PyErr_Clear(); /* what was thrown into the generator has long been delivered */
    if (fill(f, PyTuple_GET_ITEM(record, R_LOCALS), PyTuple_GET_ITEM(record, R_STACK), lasti) < 0) {
        Py_DECREF(value);
        Py_DECREF(kept);
        rebuild_fail(r, "bad record", record_name(record));
        return frame_abandon(ts, f);
    }
    if (gen != NULL) {
        PyObject *exc = PyTuple_GET_ITEM(record, R_EXC);
        Py_XSETREF(generator_exc_item(gen)->exc_value, exc == Py_None ? NULL : Py_NewRef(exc));
    }
    r->next++;
    r->records[mine] = NULL;
    Py_DECREF(record);
    if (mode == 'L' || mode == 'R')
        Py_DECREF(kept);
    if (mode == 'L') {
        if (value != null_object)
            frame_push(f, Py_NewRef(value));
        Py_DECREF(value);
        rebuild_end(r);
        if (r->depth > 0 && r->depth <= thread_recursion_limit(ts))
            thread_set_recursion_depth(ts, r->depth - 1);
        return _PyEval_EvalFrameDefault(ts, f, 0);
    }
    if (mode == 'R') {
        Py_DECREF(value);
        r->parent = f;
        r->redo_first = lasti + 1;
        r->redo_until = until;
        int budget = thread_c_budget(ts); /* the instruction may have needed none of C's depth when it was not repeated */
        thread_set_c_budget(ts, r->c_budget);
        result = _PyEval_EvalFrameDefault(ts, f, 0);
        thread_set_c_budget(ts, budget);
        if (r->active && r->next == mine + 1) {
            Py_CLEAR(result);
            rebuild_fail(r, "the instruction did not enter its frame again", record_name(r->records[r->next]));
        }
        return result;
    }
    frame_wait_at(f, at);
    result = wait_for_next(ts, f, r, mode, until, value, kept);
    frame_wait_end(f, result == NULL);
    Py_DECREF(value);
    Py_DECREF(kept);
    if (r->failed) {
        Py_XDECREF(result);
        rebuild_fail_again(r);
        return frame_abandon(ts, f);
    }
    if (result != NULL)
        frame_push(f, result);
    return _PyEval_EvalFrameDefault(ts, f, result == NULL);
}

/* Whether a frame is the one a record without generator describes. A repeated instruction may enter the function that an
 * installed class has under a property or decorator, where the image has brought its own copy: the code is the same then. */
static int is_described(Frame *f, PyObject *func, PyObject *code, int repeated)
{
    if (!frame_is_thread_owned(f))
        return 0;
    if (func == Py_None)
        return (PyObject *)frame_code(f) == code;
    if (frame_func(f) == func || !repeated)
        return frame_func(f) == func;
    PyCodeObject *ours = (PyCodeObject *)PyFunction_GET_CODE(func), *theirs = frame_code(f);
    if (ours->co_firstlineno != theirs->co_firstlineno || ours->co_nlocalsplus != theirs->co_nlocalsplus)
        return 0;
    int same = PyObject_RichCompareBool((PyObject *)ours, (PyObject *)theirs, Py_EQ);
    if (same < 0)
        PyErr_Clear();
    return same > 0;
}

/* The frame evaluation hook, installed only while frames are being rebuilt. */
static PyObject *hook(PyThreadState *ts, Frame *f, int throwing)
{
    Rebuild *r = state.rebuild;
    if (r == NULL || thread_current_frame(ts) != r->parent)
        return _PyEval_EvalFrameDefault(ts, f, throwing); /* code run by a repeated instruction, or a finaliser */
    PyObject *record = r->records[r->next], *func = PyTuple_GET_ITEM(record, R_FUNC), *gen = PyTuple_GET_ITEM(record, R_GEN);
    int matches;
    if (gen != Py_None)
        matches = (PyObject *)frame_generator(f) == gen;
    else
        matches = is_described(f, func, PyTuple_GET_ITEM(record, R_CODE), r->redo_until > 0);
    if (matches) {
        Link *outer = state.links && state.links->frame == r->parent ? state.links : NULL;
        PyObject *result = rebuild_frame(ts, f, throwing, r);
        if (outer != NULL)
            outer->in_flight = 1;
        return result;
    }
    if (r->redo_until > 0 && (frame_lasti(r->parent, NULL) < r->redo_first || frame_lasti(r->parent, NULL) >= r->redo_until)) {
        rebuild_fail(r, "the instruction did not enter its frame again", record_name(record));
        return frame_abandon(ts, f);
    }
    return _PyEval_EvalFrameDefault(ts, f, throwing);
}

static int check_records(PyObject *list, Py_ssize_t *dummies)
{
    Py_ssize_t n = PyList_GET_SIZE(list);
    for (Py_ssize_t i = 1; i < n; i++) {
        PyObject *t = PyList_GET_ITEM(list, i);
        if (!PyTuple_Check(t) || PyTuple_GET_SIZE(t) != R_SIZE)
            goto bad;
        PyObject *func = PyTuple_GET_ITEM(t, R_FUNC);
        PyObject *code = func == Py_None ? PyTuple_GET_ITEM(t, R_CODE) : PyFunction_Check(func) ? PyFunction_GET_CODE(func) : NULL;
        if (code == NULL || !PyCode_Check(code) || (func == Py_None && !PyDict_Check(PyTuple_GET_ITEM(t, R_GLOBALS)))
            || !PyLong_Check(PyTuple_GET_ITEM(t, R_LASTI)) || !PyLong_Check(PyTuple_GET_ITEM(t, R_MODE))
            || !PyLong_Check(PyTuple_GET_ITEM(t, R_UNTIL)) || !PyLong_Check(PyTuple_GET_ITEM(t, R_AT)))
            goto bad;
        long mode = PyLong_AsLong(PyTuple_GET_ITEM(t, R_MODE)), at = PyLong_AsLong(PyTuple_GET_ITEM(t, R_AT));
        if (at < 0 || at > Py_MAX(PyLong_AsLong(PyTuple_GET_ITEM(t, R_LASTI)), 0))
            goto bad;
        if ((i == n - 1) != (mode == 'L') || (mode != 'L' && mode != 'V' && mode != 'I' && mode != 'R'))
            goto bad;
        Py_ssize_t need = ((PyCodeObject *)code)->co_argcount + ((PyCodeObject *)code)->co_kwonlyargcount;
        if (need > *dummies)
            *dummies = need;
    }
    if (n > 1)
        return 0;
bad:
    PyErr_SetString(PyExc_ValueError, "malformed frame records");
    return -1;
}

PyDoc_STRVAR(run_doc,
"run(records, depth, /) -> result of the outermost frame\n\n"
"Rebuild the frames of `records` under the calling frame and run them to the end.  The list holds the exception being\n"
"handled, or None, and then the records, outermost first; it is emptied.\n"
"Record: (func, code, globals, namespace, locals, stack, lasti, ord(mode), value, generator, exc, until, kept, at).\n"
"at: index of the instruction a frame of mode V or I waits for.  until: R: end of the repeated instruction; V, I: levels of\n"
"recursion between the frame and the next.\n"
"depth: recursion depth of the innermost frame, 0 to leave it.");
static PyObject *run(PyObject *module, PyObject *args)
{
    PyObject *list;
    Rebuild r = {.active = 1};
    Py_ssize_t dummies = 0;
    if (!PyArg_ParseTuple(args, "O!i:run", &PyList_Type, &list, &r.depth) || check_records(list, &dummies) < 0)
        return NULL;
    if (state.rebuild != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "frames are already being rebuilt");
        return NULL;
    }
    PyThreadState *ts = PyThreadState_Get();
    int depth = thread_recursion_depth(ts);
    r.c_budget = thread_c_budget(ts);
    PyObject *handled = PyErr_GetHandledException();
    r.count = PyList_GET_SIZE(list) - 1;
    r.records = PyMem_Malloc(sizeof(PyObject *) * r.count);
    r.nones = PyMem_Malloc(sizeof(PyObject *) * (dummies + 1));
    if (r.records == NULL || r.nones == NULL) {
        PyMem_Free(r.records);
        PyMem_Free(r.nones);
        Py_XDECREF(handled);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < r.count; i++)
        r.records[i] = Py_NewRef(PyList_GET_ITEM(list, i + 1));
    for (Py_ssize_t i = 0; i < dummies; i++)
        r.nones[i] = Py_None;
    PyObject *result = NULL, *exc = Py_NewRef(PyList_GET_ITEM(list, 0));
    if (PyList_SetSlice(list, 0, r.count + 1, NULL) < 0) {
        Py_DECREF(exc);
    } else {
        PyErr_SetHandledException(exc == Py_None ? NULL : exc);
        Py_DECREF(exc);
        r.gc_enabled = PyGC_Disable();
        r.parent = thread_current_frame(ts);
        r.evaluator = _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
        state.rebuild = &r;
        _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), hook);
        result = enter_next(&r);
        rebuild_end(&r);
        if (r.failed) {
            Py_CLEAR(result);
            rebuild_fail_again(&r);
        }
        PyErr_SetHandledException(handled);
        thread_set_recursion_depth(ts, depth);
    }
    for (Py_ssize_t i = 0; i < r.count; i++)
        Py_XDECREF(r.records[i]);
    PyMem_Free(r.records);
    PyMem_Free(r.nones);
    Py_XDECREF(r.error);
    Py_XDECREF(handled);
    return result;
}

#endif /* FRAMES_SUPPORTED */

/* ------------------------------------------------------------------ calls at the next check, fork, death signal */

static int pending(void *arg)
{
    PyObject *callable = arg;
    int rc = 0;
#if FRAMES_SUPPORTED
    Frame *before = state.checked;
    state.checked = thread_current_frame(PyThreadState_Get());
    state.in_request++;
#endif
    PyObject *result = PyObject_CallNoArgs(callable);
#if FRAMES_SUPPORTED
    state.checked = before;
    state.in_request--;
    thread_recheck_queue(PyThreadState_Get());
#endif
    if (result == NULL) {
        if (PyErr_ExceptionMatches(PyExc_Exception))
            PyErr_WriteUnraisable(callable); /* a fault of ours must not appear inside of the program */
        else
            rc = -1; /* KeyboardInterrupt, SystemExit: meant for the program */
    }
    Py_XDECREF(result);
    Py_DECREF(callable);
    return rc;
}

PyDoc_STRVAR(request_doc,
"request(callable, /) -> bool\n\n"
"Queue a call without arguments for the main thread's next check between two instructions; from any thread.  False: the\n"
"interpreter's queue is full.  An Exception from it goes to sys.unraisablehook, other exceptions to the program.");
static PyObject *request(PyObject *module, PyObject *callable)
{
    if (!PyCallable_Check(callable)) {
        PyErr_SetString(PyExc_TypeError, "request() needs a callable");
        return NULL;
    }
    if (Py_AddPendingCall(pending, Py_NewRef(callable)) == 0)
        Py_RETURN_TRUE;
    Py_DECREF(callable);
    Py_RETURN_FALSE;
}

PyDoc_STRVAR(fork_doc,
"fork() -> pid\n\n"
"fork(2) with the interpreter's own repairs (its locks and threads) but without the callbacks of os.register_at_fork(), so\n"
"that the child's memory is the program's: random is not seeded again, locks of the program are not reset.");
static PyObject *fork_bare(PyObject *module, PyObject *unused)
{
#if FRAMES_SUPPORTED
    PyObject *hooks[3];
    PyInterpreterState *interp = PyInterpreterState_Get();
    for (int i = 0; i < 3; i++) {
        hooks[i] = *interpreter_fork_hooks(interp, i);
        *interpreter_fork_hooks(interp, i) = NULL;
    }
    PyOS_BeforeFork();
#endif
    pid_t pid = fork();
    int error = errno;
#if FRAMES_SUPPORTED
    if (pid == 0)
        PyOS_AfterFork_Child();
    else
        PyOS_AfterFork_Parent();
    for (int i = 0; i < 3; i++)
        *interpreter_fork_hooks(interp, i) = hooks[i];
#endif
    if (pid < 0) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromPid(pid);
}

PyDoc_STRVAR(pdeathsig_doc, "pdeathsig(signal, /)\n\nHave the kernel send this signal when the thread that forked us ends; 0: none.");
static PyObject *pdeathsig(PyObject *module, PyObject *number)
{
    long signal = PyLong_AsLong(number);
    if (signal == -1 && PyErr_Occurred())
        return NULL;
    if (prctl(PR_SET_PDEATHSIG, (unsigned long)signal, 0, 0, 0) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(allow_c_depth_doc,
"allow_c_depth(levels, /) -> levels allowed before\n\n"
"Let C code of the calling thread recurse that deep from here, on a stack that is known to have room for it; where the\n"
"interpreter counts this apart from sys.setrecursionlimit(), else nothing happens.  To be undone at the same depth.");
static PyObject *allow_c_depth(PyObject *module, PyObject *levels)
{
    long n = PyLong_AsLong(levels), before = 0;
    if (n == -1 && PyErr_Occurred())
        return NULL;
#if FRAMES_SUPPORTED
    before = thread_c_budget(PyThreadState_Get());
    thread_set_c_budget(PyThreadState_Get(), n < INT_MAX / 2 ? (int)n : INT_MAX / 2);
#elif PY_VERSION_HEX >= 0x030c0000 && PY_VERSION_HEX < 0x030e0000 && !defined(PYPY_VERSION)
    before = PyThreadState_Get()->c_recursion_remaining;
    PyThreadState_Get()->c_recursion_remaining = n < INT_MAX / 2 ? (int)n : INT_MAX / 2;
#endif
    return PyLong_FromLong(before);
}

PyDoc_STRVAR(lookup_doc,
"lookup(type, name, /) -> object or NULL\n\n"
"What the method resolution order of a type has under this name, without running any code of the program.");
static PyObject *lookup(PyObject *module, PyObject *args)
{
    PyTypeObject *type;
    PyObject *name;
    if (!PyArg_ParseTuple(args, "O!U:lookup", &PyType_Type, &type, &name))
        return NULL;
    PyObject *found = _PyType_Lookup(type, name);
    return Py_NewRef(found ? found : null_object);
}

static PyMethodDef methods[] = {
#if FRAMES_SUPPORTED
    {"walk", walk, METH_VARARGS, walk_doc},
    {"slots", slots, METH_VARARGS, slots_doc},
    {"generator_read", generator_read, METH_O, generator_read_doc},
    {"generator_fill", generator_fill, METH_VARARGS, generator_fill_doc},
    {"run", run, METH_VARARGS, run_doc},
#endif
    {"request", request, METH_O, request_doc},
    {"fork", fork_bare, METH_NOARGS, fork_doc},
    {"pdeathsig", pdeathsig, METH_O, pdeathsig_doc},
    {"allow_c_depth", allow_c_depth, METH_O, allow_c_depth_doc},
    {"lookup", lookup, METH_VARARGS, lookup_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_frames",
    .m_doc = "Frames of the running interpreter: capture and rebuild (internal to ckpt.image.stack).",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__frames(void)
{
    if (PyType_Ready(&SentinelType) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    int has_jit = 0;
#if FRAMES_SUPPORTED
    has_jit = interpreter_has_jit(PyInterpreterState_Get());
#endif
    null_object = SentinelType.tp_alloc(&SentinelType, 0);
    dead_object = SentinelType.tp_alloc(&SentinelType, 0);
    if (null_object == NULL || dead_object == NULL || PyModule_AddObjectRef(module, "NULL", null_object) < 0
        || PyModule_AddObjectRef(module, "DEAD", dead_object) < 0
        || PyModule_AddIntConstant(module, "SUPPORTED", FRAMES_SUPPORTED) < 0
        || PyModule_AddIntConstant(module, "JIT", has_jit) < 0
        || PyModule_AddStringConstant(module, "BUILT_FOR", PY_VERSION) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
