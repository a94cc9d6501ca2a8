/* What the parts of the frames extension share: the accessors of this version, the sentinels, the state.
 *
 * ../_frames.c           the module and its sentinels
 *   frames_selftest.c  whether the interpreter's structs are where they are expected to be
 *   frames_read.c      frames and generators as data
 *   frames_rebuild.c   content put into generators and frames; the hook that has frames made again
 *   frames_children.c  the program waits for its own child processes only
 *   frames_descriptors.c  the program closes its own descriptors only
 *   frames_process.c   calls at the next check, fork, and other things of the process
 *   frames_looks.c     looks at the stack, at checks, until nothing is in the way
 *   frames_threads.c   other threads: what is theirs alone, and how the main thread is woken
 *   frames_moment.c    what a forked child does not find as it was
 *   frames_collected.c containers that C code is filling
 *   frames_contents.c  what waits in pipes and pairs of sockets
 *   frames_connections.c  what waits in TCP connections within the process
 *   frames_31N.h       what differs between versions of the interpreter, under the same names
 * ../stand_ins:
 *   frames_folds.c     sum, min and their like, whose state can be read
 *   frames_followed.c  puts the loops of frames_folds.c into the place of the interpreter's functions
 *   frames_containers.c  those of them that fill a container, and sorted with a key
 *   frames_iterators.c  map and zip, which are asked again for an item
 *   frames_longest.c   zip_longest, which is asked again for an item
 *   frames_sorting.c   sorted and list.sort: keys and comparisons that are over are not made again
 *   frames_heaps.c     the functions of heapq where they compare in Python
 *   frames_asking.c    iterators of itertools that ask a function about an item
 *   frames_callbacks.c  functions in C that call a function of the program for each item
 *   frames_solvers.c   functions in C that compute with what a function of the program returns: scipy's
 *   frames_numbers.c   numbers and arrays that those give and get
 *   frames_parsers.c   parsers of JSON that call hooks of the program
 *   frames_taken.c     items that C code has taken from an iterator, given again: unpacking, math.prod and its like
 *
 * State is process wide, and of the main interpreter. Frames of one thread at a time are rebuilt. A capture may read the frames
 * of any thread: none of them runs meanwhile, because the thread that captures holds the interpreter's lock (GIL).
 */
#ifndef CKPT_FRAMES_H
#define CKPT_FRAMES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sys/types.h>

#include "../../lowlevel/private_api.h"

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

/* content of a slot that is no object */
extern PyObject *null_object; /* NULL: empty */
extern PyObject *dead_object; /* DEAD: a pointer to something already freed */

extern PyMethodDef process_methods[], children_methods[], descriptor_methods[], moment_methods[], contents_methods[], look_methods[];

/* frames_moment.c: what note_moment() has noted, and descriptors that are not the program's. */
typedef struct {
    const char *data;
    size_t bytes;
    const int *ours;
    size_t count;
} MomentRecord;

extern pid_t fork_with_own_files(const MomentRecord *noted);
/* frames_children.c: os.wait() and the like pass over this process */
extern void own_child(pid_t pid);

/* A function of the module `posix` with these flags, the function of ours that takes its place, and what it has called before. */
typedef struct {
    const char *name;
    int flags;
    PyMethodDef ours;
    PyCFunction before;
} StandIn;

/* frames_children.c: put it there. What is no function of the expected kind stays as it is. */
extern void stand_in(StandIn *wanted);

/* frames_contents.c */
#define LOCK_BYTES_MAX 4096
extern char *read_content(int fd, mode_t mode, ssize_t *bytes, int64_t *head_bytes);
extern int share_offset(int fd, int other);
extern uint32_t read_locks(int fd, char *lines);

/* frames_connections.c: the layout is known to ckpt.image.ipc.tcp_ends. `events`: of poll(2). `unacknowledged`: bytes that the peer has not
 * confirmed; `given_bytes`: what this end was given to send, UINT64_MAX: not known; `received_bytes`: what it has got. The end of what is
 * sent counts as one byte. `is_unread`: what waits could not be read, or changed meanwhile. */
typedef struct {
    uint8_t state, is_unread;
    uint16_t events;
    uint32_t unacknowledged;
    uint64_t given_bytes, received_bytes;
} TcpHead;

extern char *read_connection(int fd, ssize_t *bytes);
extern int is_over(const TcpHead *head);
extern void confirm_connection(int fd, TcpHead *head, size_t content_bytes, int is_last);

#if FRAMES_SUPPORTED

/* frames_process.c: call it at a check, untraced */
extern PyObject *call_here(PyThreadState *ts, PyObject *callable);

extern PyMethodDef selftest_methods[], read_methods[], rebuild_methods[], thread_methods[], collected_methods[], fold_functions[], followed_functions[], iterator_functions[], callback_functions[], asking_functions[], taken_functions[], heap_functions[], solver_functions[], longest_functions[], parser_functions[];
extern PyTypeObject CollectorType, FoldType, PendingType, TakenType;

/* frames_iterators.c: if the value of a record is a Pending, its steps are taken from now on. -1: no memory. */
extern int pending_announce(PyObject *value);
extern PyObject *pending_step(PyObject *iterator);

/* frames_read.c: of memory that may not be there. 0: it is not. */
extern int read_memory(const void *address, void *buffer, size_t size);
extern int is_alive(PyObject *object);

/* Has the self-test found everything private where it is expected? Nothing private is touched before. */
extern int frames_fit;

/* Private, and the same in all versions that are known. */
typedef _PyErr_StackItem ExcItem; /* exc_value, previous_item */
typedef _PyFrameEvalFunction Evaluator;

static inline Evaluator evaluator_get(void) { return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()); }
static inline void evaluator_set(Evaluator e) { _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), e); }
static inline PyObject *evaluate(PyThreadState *ts, Frame *f, int throwing) { return _PyEval_EvalFrameDefault(ts, f, throwing); }
static inline ExcItem *thread_handled(PyThreadState *ts) { return ts->exc_info; }
static inline int thread_tracing(PyThreadState *ts) { return ts->tracing; }
static inline unsigned long thread_ident(PyThreadState *ts) { return ts->thread_id; }
static inline PyObject *thread_context(PyThreadState *ts) { return ts->context; }
static inline Py_tracefunc thread_trace_function(PyThreadState *ts) { return ts->c_tracefunc; }
static inline Py_tracefunc thread_profile_function(PyThreadState *ts) { return ts->c_profilefunc; }

/* A rebuilt frame that waits in our hook, not in the evaluation loop, for the frame it has called. These are items on the C
 * stack of the hook; they tell such a frame (capturable) from one whose callee is just being torn down (not capturable). */
typedef struct Link {
    PyThreadState *thread;
    Frame *frame;
    PyObject *init;  /* the object whose __init__ runs below (mode I), or NULL; owned by the hook's C frame */
    PyObject *kept;  /* list of operands that the call keeps alive until it returns, or None; owned likewise */
    int levels;      /* of recursion that lie between the two frames */
    int in_flight;   /* the callee has returned: its value is in C hands, the frame cannot be captured */
    struct Link *up; /* of any thread */
} Link;

struct Rebuild;

typedef struct {
    int in_request;    /* a call queued by request() is running … */
    Frame *checked;    /* … and this frame was interrupted for it (NULL: none, the interpreter is starting or ending) */
    int pauses;        /* how often tracing has been paused by us */
    Link *links;
    struct Rebuild *rebuild;  /* set while the hook is installed */
} State;
extern State state;

/* The first link at or above `link` that is of this thread; or NULL. */
static inline Link *link_of(Link *link, PyThreadState *ts)
{
    while (link != NULL && link->thread != ts)
        link = link->up;
    return link;
}

/* The state of a thread by its identifier (threading.get_ident), or NULL without an exception. */
PyThreadState *thread_by_ident(unsigned long ident);
/* Has the thread stopped for us at the beginning of a line? Has the program a trace or profile function there? */
int thread_has_stopped(PyThreadState *ts);
int thread_is_traced_by_program(PyThreadState *ts);

/* A generator or coroutine, or NULL with TypeError. */
PyGenObject *as_generator(PyObject *o);

#else
static inline int signals_are_tripped(PyThreadState *ts) { (void)ts; return 0; } /* images are refused anyway */
#endif /* FRAMES_SUPPORTED */
#endif
