/* Content put into generators and frames, and frames made again.
 *
 * run() calls the function of the outermost record with dummy arguments while a frame evaluation hook (PEP 523) is installed.
 * The interpreter allocates a genuine frame; on its entry the hook overwrites locals, stack and instruction pointer and
 * then, by the record's mode:
 *   'L'  removes the hook and lets the frame run: the program goes on;
 *   'V'  links the frame, calls the next record's function, pushes its result (or throws its exception) and runs the frame;
 *   'I'  the same, but what is pushed is `self`, the value of the type call that was running __init__;
 *   'R'  runs the frame, which repeats its instruction, which enters the next frame by itself.
 * The hook keeps each record only until the frame has its content: from then on objects live as long as the program needs them.
 *
 * This file is long because the hook, and everything that runs while it is installed, share one state (Rebuild).
 *
 * A failure raises RestoreError. While it propagates, no code of the program runs, as far as the hook can prevent that.
 */
#include "frames.h"

#include <signal.h>

#if FRAMES_SUPPORTED

enum { R_FUNC, R_CODE, R_GLOBALS, R_NAMESPACE, R_LOCALS, R_STACK, R_LASTI, R_MODE, R_VALUE, R_GEN, R_EXC, R_UNTIL, R_KEPT, R_AT, R_SIZE };

typedef struct Rebuild {
    PyObject **records;  /* owned; an entry is NULL once its frame is filled */
    Py_ssize_t count, next;
    Frame *parent;       /* the frame that must enter the next one */
    int redo_first, redo_until;  /* parent repeats the instruction in these code units; until 0: we call the next one */
    int active, failed, gc_enabled, depth, c_budget;
    PyObject *error;     /* kept to raise again while C frames unwind */
    PyObject **nones;    /* dummy arguments */
    PyObject *begin;     /* called when all frames are there, or None */
    Evaluator evaluator;  /* what was installed before */
    int sets_blocked;
    sigset_t blocked;    /* signals, from the moment on when the program goes on */
} Rebuild;

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

PyDoc_STRVAR(generator_fill_doc,
"generator_fill(gen, state, locals, stack, lasti, exc, /)\n\n"
"Overwrite the content of a generator that neither runs nor is finished.  State 0: run() will enter the generator and put its\n"
"content there; until then it looks suspended.  ValueError: it cannot be filled.");
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
    evaluator_set(r->evaluator);
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
    Link link = {ts, f, mode == 'I' ? init : NULL, kept, levels, 0, state.links};
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
    Link **at = &state.links;
    while (*at != &link) /* other threads may have put theirs above */
        at = &(*at)->up;
    *at = link.up;
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

/* What is to be done when all frames are there: trace functions are set again, which therefore do not see any of this. */
static int call_begin(PyThreadState *ts, Frame *f, Rebuild *r)
{
    frame_link(ts, f);
    PyThreadState_EnterTracing(ts);
    PyObject *result = PyObject_CallNoArgs(r->begin);
    PyThreadState_LeaveTracing(ts);
    frame_unlink(ts, f);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Mode L: all frames are there, and the innermost one, `f`, goes on. Takes the reference to `value`. */
static PyObject *let_go(PyThreadState *ts, Frame *f, Rebuild *r, PyObject *value)
{
    if (value != null_object)
        frame_push(f, Py_NewRef(value));
    Py_DECREF(value);
    rebuild_end(r);
    if (r->depth > 0 && r->depth <= thread_recursion_limit(ts))
        thread_set_recursion_depth(ts, r->depth - 1);
    if (r->begin != Py_None && call_begin(ts, f, r) < 0)
        return frame_abandon(ts, f);
    if (r->sets_blocked)
        pthread_sigmask(SIG_SETMASK, &r->blocked, NULL); /* handlers of what has waited run within this frame */
    return evaluate(ts, f, 0);
}

/* Mode R: the frame of record `mine` repeats its instruction, which enters the next frame. Takes the reference to `value`. */
static PyObject *repeat(PyThreadState *ts, Frame *f, Rebuild *r, Py_ssize_t mine, int lasti, int until, PyObject *value)
{
    int failed = pending_announce(value);
    Py_DECREF(value);
    if (failed) {
        rebuild_fail(r, "no memory", record_name(r->records[r->next]));
        return frame_abandon(ts, f);
    }
    r->parent = f;
    r->redo_first = lasti + 1;
    r->redo_until = until;
    int budget = c_depth_left(ts); /* the instruction may have needed none of C's depth when it was not repeated */
    set_c_depth_left(ts, r->c_budget);
    PyObject *result = evaluate(ts, f, 0);
    set_c_depth_left(ts, budget);
    if (r->active && r->next == mine + 1) {
        Py_CLEAR(result);
        rebuild_fail(r, "the instruction did not enter its frame again", record_name(r->records[r->next]));
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
    PyObject *namespace = PyTuple_GET_ITEM(record, R_NAMESPACE);
    if (PyTuple_GET_ITEM(record, R_FUNC) != Py_None && namespace != Py_None)
        frame_set_namespace(f, namespace);
    if (gen != NULL) {
        PyObject *exc = PyTuple_GET_ITEM(record, R_EXC);
        Py_XSETREF(generator_exc_item(gen)->exc_value, exc == Py_None ? NULL : Py_NewRef(exc));
    }
    r->next++;
    r->records[mine] = NULL;
    Py_DECREF(record);
    if (mode == 'L' || mode == 'R')
        Py_DECREF(kept);
    if (mode == 'L')
        return let_go(ts, f, r, value);
    if (mode == 'R')
        return repeat(ts, f, r, mine, lasti, until, value);
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
    return evaluate(ts, f, result == NULL);
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
        return evaluate(ts, f, throwing); /* code run by a repeated instruction, or a finaliser */
    PyObject *record = r->records[r->next], *func = PyTuple_GET_ITEM(record, R_FUNC), *gen = PyTuple_GET_ITEM(record, R_GEN);
    int matches;
    if (gen != Py_None)
        matches = (PyObject *)frame_generator(f) == gen;
    else
        matches = is_described(f, func, PyTuple_GET_ITEM(record, R_CODE), r->redo_until > 0);
    if (matches) {
        Link *outer = link_of(state.links, ts);
        if (outer != NULL && outer->frame != r->parent)
            outer = NULL;
        PyObject *result = rebuild_frame(ts, f, throwing, r);
        if (outer != NULL)
            outer->in_flight = 1;
        return result;
    }
    if (r->redo_until > 0 && (frame_lasti(r->parent, NULL) < r->redo_first || frame_lasti(r->parent, NULL) >= r->redo_until)) {
        rebuild_fail(r, "the instruction did not enter its frame again", record_name(record));
        return frame_abandon(ts, f);
    }
    return evaluate(ts, f, throwing);
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

/* None: as they are */
static int read_blocked(PyObject *numbers, Rebuild *r)
{
    if (numbers == Py_None)
        return 0;
    if (!PyTuple_Check(numbers)) {
        PyErr_SetString(PyExc_TypeError, "a tuple of signals, or None, is needed");
        return -1;
    }
    r->sets_blocked = 1;
    sigemptyset(&r->blocked);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(numbers); i++) {
        long number = PyLong_AsLong(PyTuple_GET_ITEM(numbers, i));
        if (number == -1 && PyErr_Occurred())
            return -1;
        sigaddset(&r->blocked, (int)number);
    }
    return 0;
}

PyDoc_STRVAR(run_doc,
"run(records, depth, blocked, begin, /) -> result of the outermost frame\n\n"
"Rebuild the frames of `records` under the calling frame and run them to the end.  The list holds the exception being\n"
"handled, or None, and then the records, outermost first; it is emptied.\n"
"Record: (func, code, globals, namespace, locals, stack, lasti, ord(mode), value, generator, exc, until, kept, at).\n"
"at: index of the instruction a frame of mode V or I waits for.  until: R: end of the repeated instruction; V, I: levels of\n"
"recursion between the frame and the next.\n"
"depth: recursion depth of the innermost frame, 0 to leave it.\n"
"blocked: tuple of the signals that are blocked from when the innermost frame goes on; None to leave them.\n"
"begin: called, untraced, when the innermost frame is about to go on; or None.");
static PyObject *run(PyObject *module, PyObject *args)
{
    PyObject *list, *blocked;
    Rebuild r = {.active = 1};
    Py_ssize_t dummies = 0;
    if (!PyArg_ParseTuple(args, "O!iOO:run", &PyList_Type, &list, &r.depth, &blocked, &r.begin) || check_records(list, &dummies) < 0
        || read_blocked(blocked, &r) < 0)
        return NULL;
    if (state.rebuild != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "frames are already being rebuilt");
        return NULL;
    }
    PyThreadState *ts = PyThreadState_Get();
    int depth = thread_recursion_depth(ts);
    r.c_budget = c_depth_left(ts);
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
        r.evaluator = evaluator_get();
        state.rebuild = &r;
        evaluator_set(hook);
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

PyMethodDef rebuild_methods[] = {
    {"generator_fill", generator_fill, METH_VARARGS, generator_fill_doc},
    {"run", run, METH_VARARGS, run_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
