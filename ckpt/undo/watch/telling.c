/* Tells the callback of an operation that a compiled library is about to begin, in the words of Python's audit events.

   - The GIL. A thread that holds it (h5py) calls the callback. A thread that has released it (pyarrow), or that Python does not
     know (polars), must not wait for it without end, because the thread that holds the GIL may be waiting for this one, or for
     a lock that it has. So it asks a helper, which takes the GIL and tells the callback. If the helper does not get the GIL in
     time, or the callback takes too long, the operation begins nevertheless, and is told as *missed*: ("missed", (path, library)).
     While the main thread runs, or waits for a core only, it does not wait for this one: the helper is given more time.
   - The library cannot be told of an exception, so the operation begins in any case. What the program's own signal handler
     has raised is raised again in this thread when the library has returned (only its type).
   - No garbage collection while the callback runs: finalizers could call the library that is just being executed.
   - The C library's own errno is kept, and so is an exception that is set.
   - A forked process is not told of.

   The helper is a thread of its own, which begins with the first question and ends with the process. All signals are blocked in
   it, so that they reach the program's threads.

   A deadlock remains possible, as with every callback of a library: a thread calls a library with the GIL held, the library takes
   a lock of its own and opens a file, and while the callback has released the GIL, another thread waits for that lock without
   releasing it. */

#include "watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HERE AT_FDCWD
#define CALLBACK_NS 60000000000 /* copies may be long */
#define RUNNING_NS 30000000000  /* for the GIL, of a main thread that runs */

static const char *library_of(void *address)
{
    Dl_info found;
    if (!dladdr(address, &found) || !found.dli_fname)
        return "";
    const char *name = strrchr(found.dli_fname, '/');
    return name ? name + 1 : found.dli_fname;
}

static PyObject *path_of(int fd, const char *path)
{
    if (fd == HERE || path[0] == '/')
        return PyBytes_FromString(path);
    return PyBytes_FromFormat("/proc/self/fd/%d/%s", fd, path);
}

static PyObject *arguments(const struct operation *operation)
{
    PyObject *path = path_of(operation->fd, operation->path);
    PyObject *other = operation->other ? path_of(operation->other_fd, operation->other) : Py_NewRef(Py_None);
    if (path == NULL || other == NULL) {
        Py_XDECREF(path);
        Py_XDECREF(other);
        return NULL;
    }
    const char *event = operation->event;
    if (!strcmp(event, "open"))
        return Py_BuildValue("(NNi)", path, other, operation->flags);
    if (!strcmp(event, "os.rename") || !strcmp(event, "os.link"))
        return Py_BuildValue("(NNii)", path, other, -1, -1);
    if (!strcmp(event, "os.symlink"))
        return Py_BuildValue("(NNi)", other, path, -1);
    if (!strcmp(event, "os.truncate"))
        return Py_BuildValue("(NN)", path, other);
    if (!strcmp(event, "os.utime"))
        return Py_BuildValue("(NNOi)", path, other, Py_None, -1);
    if (!strcmp(event, "os.mkdir") || !strcmp(event, "os.chmod"))
        return Py_BuildValue("(NNi)", path, other, -1);
    Py_DECREF(other);
    if (!strcmp(event, "missed"))
        return Py_BuildValue("(Ns)", path, library_of(operation->caller));
    return Py_BuildValue("(Ni)", path, -1); /* os.remove, os.rmdir */
}

/* The GIL is held. */
static int tell(const char *event, const struct operation *operation)
{
    struct operation told = *operation;
    told.event = event;
    int collects = PyGC_Disable();
    PyObject *args = arguments(&told);
    int result = args == NULL ? -1 : watch_tell(event, args);
    Py_XDECREF(args);
    if (collects)
        PyGC_Enable();
    return result;
}

/* ---------------------------------------------------------------------- threads without the GIL */

struct question {
    struct question *next;
    struct operation operation;
    enum { WAITING, BEGUN, DONE } state;
    int is_abandoned; /* nobody waits for the answer any more */
    char texts[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what is below; never held while waiting for the GIL */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct question *first;
static pid_t helper_pid; /* the process in which the helper runs */
static pid_t helper_tid;

static struct question *question_of(const struct operation *operation)
{
    size_t size = strlen(operation->path) + 1, more = operation->other ? strlen(operation->other) + 1 : 0;
    struct question *question = calloc(1, sizeof *question + size + more);
    if (question == NULL)
        return NULL;
    question->operation = *operation;
    question->operation.path = strcpy(question->texts, operation->path);
    if (more)
        question->operation.other = strcpy(question->texts + size, operation->other);
    return question;
}

/* The lock is held, and the GIL is not. */
static void answer_question(struct question *question)
{
    pthread_mutex_unlock(&lock);
    PyGILState_STATE gil = PyGILState_Ensure();
    pthread_mutex_lock(&lock);
    if (!question->is_abandoned) {
        question->state = BEGUN;
        pthread_mutex_unlock(&lock);
        if (tell(question->operation.event, &question->operation) < 0)
            PyErr_WriteUnraisable(NULL);
        pthread_mutex_lock(&lock);
    }
    int is_missed = question->is_abandoned;
    question->state = DONE;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (is_missed) {
        if (tell("missed", &question->operation) < 0)
            PyErr_WriteUnraisable(NULL);
        free(question);
    }
    PyGILState_Release(gil);
    pthread_mutex_lock(&lock);
}

static void *run_helper(void *unused)
{
    pthread_mutex_lock(&lock);
    helper_tid = gettid();
    for (;;) {
        struct question *question = first;
        if (question) {
            first = question->next;
            answer_question(question);
        } else
            pthread_cond_wait(&changed, &lock);
    }
    return NULL;
}

/* The lock is held. Returns 0: there is a helper. */
static int start_helper(void)
{
    if (helper_pid == watch_pid)
        return 0;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = pthread_create(&thread, NULL, run_helper, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return -1;
    pthread_detach(thread);
    helper_pid = watch_pid;
    return 0;
}

static int wait_until(const struct timespec *limit) { return pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, limit); }

/* Does a thread run, or wait for nothing but a core or a disk? (The state in /proc/PID/task/TID/stat, proc(5), follows the name of the
   program, which ends with the last parenthesis.) */
static int runs(pid_t tid)
{
    char text[512], path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t nbytes = read(fd, text, sizeof text - 1);
    close(fd);
    text[nbytes < 0 ? 0 : nbytes] = 0;
    const char *end = strrchr(text, ')');
    return end && (!strncmp(end, ") R", 3) || !strncmp(end, ") D", 3));
}

/* Does the main thread run? Then it does not wait for the thread that asks. Or does the helper? While the main thread hands the
   GIL over to it, the main thread sleeps until the helper has got a core. */
static int goes_on(void) { return runs(getpid()) || runs(helper_tid); }

static void ask_helper(const struct operation *operation)
{
    struct question *question = question_of(operation), **last = &first;
    if (question == NULL)
        return;
    pthread_mutex_lock(&lock);
    if (start_helper()) {
        pthread_mutex_unlock(&lock);
        free(question);
        return;
    }
    while (*last)
        last = &(*last)->next;
    *last = question;
    pthread_cond_broadcast(&changed);
    struct timespec limit;
    clock_gettime(CLOCK_MONOTONIC, &limit);
    long long begin_ns = limit.tv_sec * 1000000000LL + limit.tv_nsec, limit_ns = begin_ns + watch_patience_ns;
    for (int has_begun = 0; question->state != DONE;) {
        limit = (struct timespec){limit_ns / 1000000000, limit_ns % 1000000000};
        if (wait_until(&limit) != ETIMEDOUT)
            continue;
        if (question->state == BEGUN && !has_begun) {
            has_begun = 1;
            limit_ns += CALLBACK_NS;
        } else if (question->state == WAITING && limit_ns < begin_ns + RUNNING_NS && goes_on())
            limit_ns += watch_patience_ns;
        else if (question->state != DONE) {
            question->is_abandoned = 1; /* the helper frees it */
            question = NULL;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    free(question);
}

/* Would the operation change a regular file, a directory or a symbolic link, or make one? Sockets are made and removed by
   libraries all the time, ckpt's own among them. */
static int may_change_files(const struct operation *operation)
{
    struct stat found;
    if (!fstatat(operation->fd, operation->path, &found, AT_SYMLINK_NOFOLLOW))
        return S_ISREG(found.st_mode) || S_ISDIR(found.st_mode) || S_ISLNK(found.st_mode);
    return operation->flags & O_CREAT || !strcmp(operation->event, "os.mkdir") || !strcmp(operation->event, "os.link") ||
           !strcmp(operation->event, "os.symlink");
}

const char *const watch_left_alone[] = {"/dev", "/proc", "/sys", NULL};

static int is_left_alone(const char *path)
{
    for (const char *const *each = watch_left_alone; *each; each++) {
        size_t nbytes = strlen(*each);
        if (!strncmp(path, *each, nbytes) && path[nbytes] == '/')
            return 1;
    }
    return 0;
}

void watch_operation(const struct operation *operation)
{
    int before = errno;
    if (watch_pid == 0 || operation->path == NULL || is_left_alone(operation->path) || getpid() != watch_pid ||
        !Py_IsInitialized() || !may_change_files(operation)) {
        errno = before;
        return;
    }
    if (!PyGILState_Check()) {
        ask_helper(operation);
        errno = before;
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (tell(operation->event, operation) < 0)
        PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), PyErr_Occurred());
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    errno = before;
}
