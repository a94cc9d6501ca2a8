/* Accessors to the interpreter's frames, CPython 3.13.
 *
 * The extension reads and writes frames through these functions only; another minor version is another header with the same
 * names. What is particular to 3.13:
 *   - `instr_ptr` is the instruction that is being executed, not the one before the next. A frame that waits for a callee
 *     stands at the call and goes on `return_offset` code units later; only in a frame that is about to begin, and in a
 *     suspended generator, is it the next instruction.  Records count as in the earlier versions ("the code unit before the
 *     next one"), which is translated here;
 *   - a type call that the interpreter has inlined puts a frame of its own between the caller and __init__, which holds the new
 *     object and counts as one level of recursion. It is skipped here like the ones that every evaluation loop puts on the C
 *     stack; `frame_initialises` tells of it;
 *   - a generator suspended in `yield from` has a state of its own, which follows from the instruction it resumes at;
 *   - evaluation loops, clearing of frames and the two depths are as in 3.12.
 */
#ifndef CKPT_FRAMES_313_H
#define CKPT_FRAMES_313_H

#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#undef _PyGC_FINALIZED /* defined again by the internal headers */
#include "internal/pycore_ceval.h"
#include "internal/pycore_frame.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_opcode_utils.h"

typedef _PyInterpreterFrame Frame;

static inline Frame *thread_current_frame(PyThreadState *ts) { return ts->current_frame; }
static inline void thread_set_current_frame(PyThreadState *ts, Frame *f) { ts->current_frame = f; }
/* The C stack between the evaluation loop that runs f, which is inside of a C function, and the loop that this function has entered:
 * addresses from *low to *high; *end: that of the outermost loop. 0: there is none. Each loop has a frame of its own on the C
 * stack, below the first one it runs. */
static inline int thread_c_stack(PyThreadState *ts, Frame *f, uintptr_t *low, uintptr_t *high, uintptr_t *end)
{
    Frame *entry = NULL, *at = ts->current_frame;
    for (; at != NULL && at != f; at = at->previous)
        entry = at->owner == FRAME_OWNED_BY_CSTACK ? at : NULL;
    if (at == NULL || entry == NULL)
        return 0;
    *low = (uintptr_t)entry;
    *high = 0;
    for (; at != NULL; at = at->previous)
        if (at->owner == FRAME_OWNED_BY_CSTACK) {
            *high = *high ? *high : (uintptr_t)at;
            *end = (uintptr_t)at;
        }
    return *high != 0 && *low < *high && *high <= *end;
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

/* what an object of `threading.local` finds the values of a thread by: a key, and what must live as long as the values; or NULL */
static inline PyObject *thread_local_key(PyThreadState *ts)
{
    if (ts->threading_local_key == NULL)
        return NULL;
    return PyTuple_Pack(2, ts->threading_local_key, ts->threading_local_sentinel ? ts->threading_local_sentinel : Py_None);
}

/* whether a signal has arrived whose handler in Python has not been called yet */
static inline int signals_are_tripped(PyThreadState *ts) { return _Py_eval_breaker_bit_is_set(ts, _PY_SIGNALS_PENDING_BIT) != 0; }

/* the interpreter's lock (GIL); the number of switches grows when another thread than the last one gets it */
typedef struct _gil_runtime_state Gil;
static inline Gil *gil_get(void) { return PyInterpreterState_Get()->ceval.gil; }
static inline int gil_is_held_by(Gil *gil, PyThreadState *ts) { return gil->locked == 1 && gil->last_holder == ts; }

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

/* A check inside a queued call clears the flag for the calls queued meanwhile, without running them: set the flag again. */
static inline void thread_recheck_queue(PyThreadState *ts) { _Py_set_eval_breaker_bit(ts, _PY_CALLS_TO_DO_BIT); }

/* whether the interpreter was built to compile what it runs: its frames are then not always where they seem to be */
enum { SUM_IS_COMPENSATED = 1 }; /* sum() of floats keeps what it has lost by rounding */

static inline int interpreter_has_jit(PyInterpreterState *interp) { return interp->optimizer != NULL; }

static inline int frame_is_shim(Frame *f) { return f->owner == FRAME_OWNED_BY_CSTACK; }
static inline int frame_is_init_shim(Frame *f) { return f->owner == FRAME_OWNED_BY_THREAD && f->f_funcobj == Py_None; }
static inline Frame *frame_previous(Frame *f)
{
    for (f = f->previous; f != NULL && (frame_is_shim(f) || frame_is_init_shim(f)); f = f->previous)
        ;
    return f;
}
static inline PyCodeObject *frame_code(Frame *f) { return (PyCodeObject *)f->f_executable; }
static inline PyObject *frame_func(Frame *f) { return f->f_funcobj; }
static inline PyObject *frame_globals(Frame *f) { return f->f_globals; }
static inline PyObject *frame_namespace(Frame *f) { return f->f_locals; }
/* locals() of a function is a new dictionary each time */
static inline void frame_set_namespace(Frame *f, PyObject *namespace) {}
static inline int frame_is_entry(Frame *f) { return f->previous != NULL && frame_is_shim(f->previous); }
/* the object whose __init__ this is, if the interpreter has inlined the type call (its caller gets that object), or NULL */
static inline PyObject *frame_initialises(Frame *f)
{
    return f->previous != NULL && frame_is_init_shim(f->previous) ? f->previous->localsplus[0] : NULL;
}
/* Has the frame between f and frame_previous(f) just been popped, and is it being cleared? */
static inline int frame_caller_is_gone(Frame *f)
{
    return frame_is_entry(f) && f->previous->previous != NULL && frame_is_shim(f->previous->previous);
}
static inline int frame_is_incomplete(Frame *f) { return _PyFrame_IsIncomplete(f); }
static inline int frame_is_thread_owned(Frame *f) { return f->owner == FRAME_OWNED_BY_THREAD; }
static inline PyObject **frame_slots(Frame *f) { return f->localsplus; }

/* Index of the instruction that executes or, of a frame that waits for `callee` or has not begun (NULL), of the code unit before
 * the next instruction. A generator comes back by a yield to behind the instruction and its cache, by its end elsewhere. */
static inline int frame_lasti(Frame *f, Frame *callee)
{
    int at = _PyInterpreterFrame_LASTI(f);
    if (f->stacktop < 0)
        return at;
    if (callee != NULL && callee->owner == FRAME_OWNED_BY_GENERATOR)
        return at + INLINE_CACHE_ENTRIES_SEND;
    return at + f->return_offset - 1;
}
/* index of the instruction that executes, or that a trace function is told of */
static inline int frame_executes(Frame *f) { return _PyInterpreterFrame_LASTI(f); }
/* the operation code there; of a frame that executes code of Python */
static inline int frame_operation(Frame *f, PyCodeObject *code) { return *(const unsigned char *)(_PyCode_CODE(code) + frame_executes(f)); }
static inline void frame_set_lasti(Frame *f, int lasti)
{
    f->instr_ptr = _PyCode_CODE(frame_code(f)) + lasti + 1;
    f->return_offset = 0;
}
/* A frame with its content waits for the instruction at this index, which ends before the next one … */
static inline void frame_wait_at(Frame *f, int at)
{
    _Py_CODEUNIT *call = _PyCode_CODE(frame_code(f)) + at;
    f->return_offset = (uint16_t)(f->instr_ptr - call);
    f->instr_ptr = call;
}
/* … and is about to be run: behind it, or, to raise an exception, still at it. */
static inline void frame_wait_end(Frame *f, int throwing)
{
    if (!throwing)
        f->instr_ptr += f->return_offset;
    f->return_offset = 0;
}

/* entries on the evaluation stack, or -1 while the frame executes */
static inline int frame_stack_size(Frame *f) { return f->stacktop < 0 ? -1 : f->stacktop - frame_code(f)->co_nlocalsplus; }
static inline void frame_set_stack_size(Frame *f, int n) { f->stacktop = frame_code(f)->co_nlocalsplus + n; }
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
static inline PyObject *generator_code(PyGenObject *gen) { return generator_frame(gen)->f_executable; }
/* index of the code unit before the next one, of a generator that does not run */
static inline int generator_lasti(PyGenObject *gen) { return _PyInterpreterFrame_LASTI(generator_frame(gen)) - 1; }

enum { GEN_CREATED = -2, GEN_SUSPENDED = -1, GEN_EXECUTING = 0 };
static inline int generator_state(PyGenObject *gen)
{
    int state = gen->gi_frame_state;
    return state == FRAME_CREATED ? GEN_CREATED : FRAME_STATE_SUSPENDED(state) ? GEN_SUSPENDED : GEN_EXECUTING;
}
static inline int generator_is_finished(PyGenObject *gen) { return FRAME_STATE_FINISHED(gen->gi_frame_state); }
/* when the content of the generator's frame is in place */
static inline void generator_set_state(PyGenObject *gen, int state)
{
    int resume = generator_frame(gen)->instr_ptr->op.arg & RESUME_OPARG_LOCATION_MASK;
    int suspended = resume >= RESUME_AFTER_YIELD_FROM ? FRAME_SUSPENDED_YIELD_FROM : FRAME_SUSPENDED;
    gen->gi_frame_state = (int8_t)(state == GEN_CREATED ? FRAME_CREATED : state == GEN_SUSPENDED ? suspended : FRAME_EXECUTING);
}
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
