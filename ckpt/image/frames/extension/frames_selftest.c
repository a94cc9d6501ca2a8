/* Are the interpreter's structs where this module was compiled to find them?
 *
 * prove() answers that from a few frames and generators whose content is known (ckpt/image/frames/selftest.py makes them): what
 * is read through the accessors of frames_31N.h is held against what CPython's public functions say. Nothing is written, no count
 * of references changes, and a read that faults is an answer too. Only when all of it fits, the module gets the functions that
 * read and build frames, and those that work without frames begin to use them (frames_fit).
 */
#include "frames.h"

#if FRAMES_SUPPORTED

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

int frames_fit;

/* The frames are, from the inside: `inner`, which calls prove(); `caller`, which waits for it with `marker` on its evaluation
 * stack, and was called by C; the generator `running`. Functions are Python functions; the others are their generators. */
typedef struct {
    PyObject *inner, *caller, *marker, *error, *steps;
    PyObject *created, *suspended, *finished, *running;
    int traced;      /* the thread has a trace or profile function */
    int resume;      /* the opcode with which a suspended generator goes on … */
    int behind_call; /* … and with which `caller` does */
    PyFrameObject *frame, *back;
    PyCodeObject *inner_code, *caller_code;
    PyObject *globals, *caller_bytes, *steps_bytes;
} Truth;

enum { CODE_UNIT = 2 }; /* bytes */

static int opcode_behind(PyObject *bytes, int lasti)
{
    Py_ssize_t at = ((Py_ssize_t)lasti + 1) * CODE_UNIT;
    return at < 0 || at >= PyBytes_GET_SIZE(bytes) ? -1 : (unsigned char)PyBytes_AS_STRING(bytes)[at];
}

#define MUST(fits, what) \
    if (!(fits)) \
        return what

static const char *frame_misfit(const Truth *t, PyThreadState *ts)
{
    Frame *f = thread_current_frame(ts);
    MUST(f != NULL && !((uintptr_t)f & 7), "the current frame");
    MUST(frame_code(f) == t->inner_code, "the code of a frame");
    MUST(frame_func(f) == t->inner, "the function of a frame");
    MUST(frame_globals(f) == t->globals, "the globals of a frame");
    MUST(frame_namespace(f) == NULL, "the namespace of a frame");
    MUST(frame_is_thread_owned(f) && frame_generator(f) == NULL, "the owner of a frame");
    MUST(!frame_is_incomplete(f) && frame_lasti(f, NULL) * CODE_UNIT == PyFrame_GetLasti(t->frame),
         "the instruction of a frame");
    MUST(frame_stack_size(f) == -1, "the stack pointer of a frame that executes");
    MUST(frame_slots(f)[0] == t->marker && frame_slots(f)[2] == t->error, "the local variables of a frame");

    Frame *c = frame_previous(f);
    MUST(c != NULL && !((uintptr_t)c & 7) && frame_code(c) == t->caller_code && frame_func(c) == t->caller, "the frame before a frame");
    MUST(frame_slots(c)[0] == t->marker, "the local variables of a frame");
    if (!frame_is_entry(f)) { /* a debugger's hook (PEP 523) has every call go through C */
        int nlocals = t->caller_code->co_nlocalsplus;
        MUST(frame_stack_size(c) == 1 && frame_slots(c)[nlocals] == t->marker, "the evaluation stack of a frame");
        MUST(opcode_behind(t->caller_bytes, frame_lasti(c, f)) == t->behind_call, "the instruction of a frame that waits");
    }
    MUST(frame_is_entry(c), "the mark of a frame that C has called");
    Frame *g = frame_previous(c);
    MUST(g != NULL && !((uintptr_t)g & 7) && frame_func(g) == t->steps && (PyObject *)frame_generator(g) == t->running
             && !frame_is_thread_owned(g), "the frame of a generator that runs");
    return NULL;
}

static const char *generator_misfit(const Truth *t)
{
    PyGenObject *created = (PyGenObject *)t->created, *suspended = (PyGenObject *)t->suspended;
    PyObject *code = PyFunction_GetCode(t->steps);
    Frame *f = generator_frame(suspended);
    MUST(frame_func(f) == t->steps && frame_generator(f) == suspended && generator_code(suspended) == code, "the frame of a generator");
    MUST(frame_slots(f)[0] == t->marker, "the local variables of a generator");
    MUST(frame_stack_size(f) == 1 && frame_slots(f)[((PyCodeObject *)code)->co_nlocalsplus] == t->marker,
         "the evaluation stack of a generator");
    MUST(generator_state(created) == GEN_CREATED && generator_state(suspended) == GEN_SUSPENDED
             && generator_state((PyGenObject *)t->running) == GEN_EXECUTING && !generator_is_finished(suspended)
             && generator_is_finished((PyGenObject *)t->finished), "the state of a generator");
    MUST(opcode_behind(t->steps_bytes, generator_lasti(suspended)) == t->resume, "the instruction of a generator");
    MUST(generator_exc_item(suspended)->exc_value == NULL && generator_exc_item(created)->exc_value == NULL,
         "the exception that a generator handles");
    return NULL;
}

static const char *thread_misfit(const Truth *t, PyThreadState *ts)
{
    ExcItem *handled = thread_handled(ts);
    MUST(handled == generator_exc_item((PyGenObject *)t->running) && handled->exc_value == t->error && handled->previous_item != NULL,
         "the exception that a thread handles");
    int limit = thread_recursion_limit(ts), depth = thread_recursion_depth(ts), budget = c_depth_left(ts);
    MUST(limit == Py_GetRecursionLimit() && depth > 2 && depth <= limit, "the depth of recursion");
    if (Py_EnterRecursiveCall(""))
        return "the depth of recursion";
    int levels = thread_recursion_depth(ts) - depth + budget - c_depth_left(ts);
    Py_LeaveRecursiveCall();
    MUST(levels == 1, "the depth of recursion");
    MUST(thread_tracing(ts) >= 0 && (!t->traced || thread_is_traced(ts)), "the trace function of a thread");
    MUST(gil_is_held_by(gil_get(), ts), "the interpreter's lock");
    PyInterpreterState *interp = PyInterpreterState_Get();
    for (int i = 0; i < 3; i++) { /* there is one at least to be called in a child: the one that threading has registered */
        PyObject *hooks = *interpreter_fork_hooks(interp, i);
        MUST(hooks != NULL ? !((uintptr_t)hooks & 7) && PyList_CheckExact(hooks) : i < 2, "the list of calls around a fork");
        for (Py_ssize_t j = 0; hooks != NULL && j < PyList_GET_SIZE(hooks); j++)
            MUST(PyCallable_Check(PyList_GET_ITEM(hooks, j)), "the list of calls around a fork");
        MUST(i < 2 || PyList_GET_SIZE(hooks) > 0, "the list of calls around a fork");
    }
    return NULL;
}

/* ------------------------------------------------------------------ reading what may not be there */

static struct {
    sigjmp_buf back;
    pthread_t thread;
    volatile int on;
    struct sigaction before[2];
} guard;
static const int faults[2] = {SIGSEGV, SIGBUS};

static void on_fault(int number)
{
    if (guard.on && pthread_equal(guard.thread, pthread_self()))
        siglongjmp(guard.back, 1);
    sigaction(number, &guard.before[number == SIGBUS], NULL); /* not ours: it comes again */
}

static const char *misfit(const Truth *t)
{
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER | SA_ONSTACK};
    const char *volatile found = "something";
    sigemptyset(&action.sa_mask);
    guard.thread = pthread_self();
    for (int i = 0; i < 2; i++)
        sigaction(faults[i], &action, &guard.before[i]);
    if (sigsetjmp(guard.back, 0) == 0) {
        guard.on = 1;
        PyThreadState *ts = PyThreadState_Get();
        found = "a pointer to or in a frame";
        const char *result = frame_misfit(t, ts);
        if (result == NULL) {
            found = "a pointer in a generator";
            result = generator_misfit(t);
        }
        if (result == NULL) {
            found = "a pointer in the state of the thread or the interpreter";
            result = thread_misfit(t, ts);
        }
        found = result;
    }
    guard.on = 0;
    for (int i = 0; i < 2; i++)
        sigaction(faults[i], &guard.before[i], NULL);
    return found;
}

PyDoc_STRVAR(prove_doc,
"prove((error, marker, inner, caller, steps, created, suspended, finished, running, traced, resume, behind_call), /)\n\n"
"The name of a struct of the interpreter that is not where this module was compiled to find it; None: all are there, and the\n"
"module now has the functions that read and build frames.  For ckpt.image.frames.selftest only.");
static PyObject *prove(PyObject *module, PyObject *truth)
{
    Truth t = {.traced = 0};
    if (!PyTuple_Check(truth)
        || !PyArg_ParseTuple(truth, "OOO!O!O!O!O!O!O!pii", &t.error, &t.marker, &PyFunction_Type, &t.inner, &PyFunction_Type, &t.caller,
                             &PyFunction_Type, &t.steps, &PyGen_Type, &t.created, &PyGen_Type, &t.suspended, &PyGen_Type, &t.finished,
                             &PyGen_Type, &t.running, &t.traced, &t.resume, &t.behind_call))
        return NULL;
    t.frame = PyEval_GetFrame();
    t.back = t.frame ? PyFrame_GetBack(t.frame) : NULL;
    if (t.back == NULL)
        return PyErr_Format(PyExc_RuntimeError, "prove() was called by no function");
    t.inner_code = PyFrame_GetCode(t.frame);
    t.caller_code = PyFrame_GetCode(t.back);
    t.globals = PyEval_GetGlobals();
    t.caller_bytes = PyCode_GetCode(t.caller_code);
    t.steps_bytes = PyCode_GetCode((PyCodeObject *)PyFunction_GetCode(t.steps));
    const char *what = t.caller_bytes && t.steps_bytes ? misfit(&t) : NULL;
    int failed = !t.caller_bytes || !t.steps_bytes;
    Py_XDECREF(t.caller_bytes);
    Py_XDECREF(t.steps_bytes);
    Py_DECREF(t.back);
    Py_DECREF(t.inner_code);
    Py_DECREF(t.caller_code);
    if (failed)
        return NULL;
    if (what != NULL)
        return PyUnicode_FromString(what);
    if (!frames_fit
        && (PyModule_AddFunctions(module, read_methods) || PyModule_AddFunctions(module, rebuild_methods)
            || PyModule_AddFunctions(module, thread_methods) || PyModule_AddFunctions(module, collected_methods)
            || PyModule_AddFunctions(module, fold_functions) || PyModule_AddFunctions(module, followed_functions)
            || PyModule_AddFunctions(module, callback_functions) || PyModule_AddFunctions(module, asking_functions)
            || PyModule_AddFunctions(module, iterator_functions) || PyModule_AddFunctions(module, taken_functions)
            || PyModule_AddFunctions(module, heap_functions)
            || PyModule_AddFunctions(module, solver_functions) || PyModule_AddFunctions(module, longest_functions)
            || PyModule_AddFunctions(module, parser_functions)
            || PyModule_AddType(module, &CollectorType) < 0 || PyModule_AddType(module, &FoldType) < 0
            || PyModule_AddType(module, &PendingType) < 0 || PyModule_AddType(module, &TakenType) < 0
            || PyModule_AddIntConstant(module, "JIT", interpreter_has_jit(PyInterpreterState_Get())) < 0
            || PyModule_AddIntConstant(module, "SUPPORTED", 1) < 0))
        return NULL;
    frames_fit = 1;
    Py_RETURN_NONE;
}

PyMethodDef selftest_methods[] = {
    {"prove", prove, METH_O, prove_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
