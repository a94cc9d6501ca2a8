/* Accessors to the interpreter's frames, CPython 3.12.
 *
 * The extension reads and writes frames through these functions only; another minor version is another header with the same
 * names. What is particular to 3.12:
 *   - `prev_instr` and `stacktop` are as in 3.11, and also valid while a generator runs that FOR_ITER or SEND entered
 *     without C in between; `return_offset` matters only while such a callee is there, which is never so in a rebuilt frame;
 *   - every evaluation loop puts a frame of its own on the C stack between the frame it was entered with and the caller;
 *     those are skipped here, and a frame below one is "entered from C";
 *   - the loop itself clears and pops the frame it was given: a hook that does not run one has to have it done;
 *   - depths of Python and of C are counted apart.
 */
#ifndef CKPT_FRAMES_312_H
#define CKPT_FRAMES_312_H

#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#undef _PyGC_FINALIZED /* defined again by the internal headers */
#include "internal/pycore_frame.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"

typedef _PyInterpreterFrame Frame;

static inline Frame *thread_current_frame(PyThreadState *ts) { return ts->cframe->current_frame; }
static inline void thread_set_current_frame(PyThreadState *ts, Frame *f) { ts->cframe->current_frame = f; }
/* The C stack between the evaluation loop that runs f, which is inside of a C function, and the loop that this function has entered:
 * addresses from *low to *high; *end: that of the outermost loop. 0: there is none. Each loop has a _PyCFrame on the C stack. */
static inline int thread_c_stack(PyThreadState *ts, Frame *f, uintptr_t *low, uintptr_t *high, uintptr_t *end)
{
    _PyCFrame *newer = NULL;
    *low = 0;
    for (_PyCFrame *loop = ts->cframe; loop != NULL && loop != &ts->root_cframe; newer = loop, loop = loop->previous) {
        if (loop->current_frame == f && newer != NULL && *low == 0) {
            *low = (uintptr_t)newer;
            *high = (uintptr_t)loop;
        }
        *end = (uintptr_t)loop;
    }
    return *low != 0 && *low < *high && *high <= *end;
}
static inline int thread_is_traced(PyThreadState *ts)
{
    for (size_t i = 0; i < sizeof ts->interp->monitors.tools; i++)
        if (ts->interp->monitors.tools[i])
            return 1;
    for (size_t i = 0; i < sizeof ts->interp->monitoring_tool_names / sizeof(PyObject *); i++)
        if (ts->interp->monitoring_tool_names[i] != NULL) /* the tool may watch single functions */
            return 1;
    return ts->c_tracefunc != NULL || ts->c_profilefunc != NULL;
}

/* what an object of `threading.local` finds the values of a thread by: a dictionary; or NULL */
static inline PyObject *thread_local_key(PyThreadState *ts) { return Py_XNewRef(ts->dict); }

/* whether a signal has arrived whose handler in Python has not been called yet */
static inline int signals_are_tripped(PyThreadState *ts) { return _Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending) != 0; }

/* the interpreter's lock (GIL); the number of switches grows when another thread than the last one gets it */
typedef struct _gil_runtime_state Gil;
static inline Gil *gil_get(void) { return PyInterpreterState_Get()->ceval.gil; }
static inline int gil_is_held_by(Gil *gil, PyThreadState *ts) { return _Py_atomic_load_relaxed(&gil->locked) == 1 && (PyThreadState *)_Py_atomic_load_relaxed(&gil->last_holder) == ts; }

enum { TRACES_ALL_THREADS = 1 };
/* Give threads a trace function, or (NULL) take it from them. Here: all threads of the interpreter, of which none has one. */
static inline int threads_trace(PyThreadState **threads, Py_ssize_t count, Py_tracefunc function)
{
    PyEval_SetTraceAllThreads(function, NULL);
    return 0;
}

/* depth as counted against sys.setrecursionlimit() */
static inline int thread_recursion_limit(PyThreadState *ts) { return ts->py_recursion_limit; }
static inline int thread_recursion_depth(PyThreadState *ts) { return ts->py_recursion_limit - ts->py_recursion_remaining; }
static inline void thread_set_recursion_depth(PyThreadState *ts, int depth)
{
    ts->py_recursion_remaining = ts->py_recursion_limit - depth;
}

enum { DEPTH_OF_C_CALL = 0 }; /* levels that a call of a C function of this extension adds to the depth */

/* calls that are queued while a queued call runs are not lost */
static inline void thread_recheck_queue(PyThreadState *ts) {}

enum { SUM_IS_COMPENSATED = 1 }; /* sum() of floats keeps what it has lost by rounding */

static inline int interpreter_has_jit(PyInterpreterState *interp) { return 0; }

static inline int frame_is_shim(Frame *f) { return f->owner == FRAME_OWNED_BY_CSTACK; }
static inline Frame *frame_previous(Frame *f)
{
    for (f = f->previous; f != NULL && frame_is_shim(f); f = f->previous)
        ;
    return f;
}
static inline PyCodeObject *frame_code(Frame *f) { return f->f_code; }
static inline PyObject *frame_func(Frame *f) { return f->f_funcobj; }
static inline PyObject *frame_globals(Frame *f) { return f->f_globals; }
static inline PyObject *frame_namespace(Frame *f) { return f->f_locals; }
/* set the dictionary that locals() returns for a function, which is the same object each time */
static inline void frame_set_namespace(Frame *f, PyObject *namespace) { Py_XSETREF(f->f_locals, Py_NewRef(namespace)); }
static inline int frame_is_entry(Frame *f) { return f->previous != NULL && frame_is_shim(f->previous); }
/* type calls are never inlined */
static inline PyObject *frame_initialises(Frame *f) { return NULL; }
/* Has the frame between f and frame_previous(f) just been popped, and is it being cleared? */
static inline int frame_caller_is_gone(Frame *f)
{
    return frame_is_entry(f) && f->previous->previous != NULL && frame_is_shim(f->previous->previous);
}
static inline int frame_is_incomplete(Frame *f) { return _PyFrame_IsIncomplete(f); }
static inline int frame_is_thread_owned(Frame *f) { return f->owner == FRAME_OWNED_BY_THREAD; }
static inline PyObject **frame_slots(Frame *f) { return f->localsplus; }

/* index of the code unit before the next one */
static inline int frame_lasti(Frame *f, Frame *callee) { return _PyInterpreterFrame_LASTI(f); }
/* index of the instruction that executes, or that a trace function is told of */
static inline int frame_executes(Frame *f) { return _PyInterpreterFrame_LASTI(f); }
/* the operation code there; of a frame that executes code of Python */
static inline int frame_operation(Frame *f, PyCodeObject *code) { return *(const unsigned char *)(_PyCode_CODE(code) + frame_executes(f)); }
static inline void frame_set_lasti(Frame *f, int lasti) { f->prev_instr = _PyCode_CODE(f->f_code) + lasti; }
/* the instruction pointer of a frame that waits for a callee is where the frame goes on: nothing to do */
static inline void frame_wait_at(Frame *f, int at) {}
static inline void frame_wait_end(Frame *f, int throwing) {}

/* entries on the evaluation stack, or -1 while the frame executes */
static inline int frame_stack_size(Frame *f) { return f->stacktop < 0 ? -1 : f->stacktop - f->f_code->co_nlocalsplus; }
static inline void frame_set_stack_size(Frame *f, int n) { f->stacktop = f->f_code->co_nlocalsplus + n; }
static inline void frame_push(Frame *f, PyObject *owned) { _PyFrame_StackPush(f, owned); }

/* make f the current frame as if it had been entered from C, without running it */
static inline void frame_link(PyThreadState *ts, Frame *f)
{
    f->previous = thread_current_frame(ts);
    thread_set_current_frame(ts, f);
}
static inline void frame_unlink(PyThreadState *ts, Frame *f)
{
    thread_set_current_frame(ts, f->previous);
    f->previous = NULL;
}

/* Leave a frame the hook was given, with the exception that is set, without running any of its code: no handler covers
 * what is before its first instruction. Returns NULL. */
static inline PyObject *frame_abandon(PyThreadState *ts, Frame *f)
{
    frame_set_lasti(f, -1);
    return _PyEval_EvalFrameDefault(ts, f, 1);
}

/* generators and coroutines; a generator's frame is embedded in it */
static inline PyGenObject *frame_generator(Frame *f)
{
    return f->owner == FRAME_OWNED_BY_GENERATOR ? _PyFrame_GetGenerator(f) : NULL;
}
static inline Frame *generator_frame(PyGenObject *gen) { return (Frame *)gen->gi_iframe; }
static inline PyObject *generator_code(PyGenObject *gen) { return (PyObject *)generator_frame(gen)->f_code; }
static inline int generator_lasti(PyGenObject *gen) { return _PyInterpreterFrame_LASTI(generator_frame(gen)); }

enum { GEN_CREATED = FRAME_CREATED, GEN_SUSPENDED = FRAME_SUSPENDED, GEN_EXECUTING = FRAME_EXECUTING };
static inline int generator_state(PyGenObject *gen) { return gen->gi_frame_state; }
static inline int generator_is_finished(PyGenObject *gen) { return gen->gi_frame_state >= FRAME_COMPLETED; }
static inline void generator_set_state(PyGenObject *gen, int state) { gen->gi_frame_state = (int8_t)state; }
/* for a generator that will be entered and filled later */
static inline void generator_seem_suspended(PyGenObject *gen) { gen->gi_frame_state = FRAME_SUSPENDED; }

/* handled exceptions: one item per executing generator, and the thread's own at the bottom */
static inline _PyErr_StackItem *generator_exc_item(PyGenObject *gen) { return &gen->gi_exc_state; }

/* os.register_at_fork() callbacks of the interpreter: [0] before, [1] parent, [2] child */
static inline PyObject **interpreter_fork_hooks(PyInterpreterState *interp, int which)
{
    return which == 0 ? &interp->before_forkers : which == 1 ? &interp->after_forkers_parent : &interp->after_forkers_child;
}

#endif
