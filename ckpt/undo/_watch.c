/* An audit hook (PEP 578) that tells of operations which may change files, before they begin.

       install(callback, fast_path)     callback(event, arguments, is_nested) is called from now on; None: no more. Not for
                                        operations that the FastPath settles (fast_path.c); None: there is none
       LEFT_ALONE                       directories of the system, in which nothing is recorded
       before_opening(function)         function(event, path) is called before something is opened, listed or changed by its
                                        path, until it returns false; None: no more
       set_ends(rows)                   files of which the contents are told before they are written elsewhere than at their end
       LEADS                            are calls of compiled libraries, and positions of open files, seen on this system?
       set_patience(ns)                 how long a thread without the GIL waits until its operation is told

   The hook is in C because it is called for every audit event: most of them it leaves at once, and a file that is opened for
   reading only, too. Python cannot remove an audit hook, so the hook is added once in a process, and asks for its callback.

   - Handlers of signals that have arrived before run first. If one of them raises, the operation does not begin.
   - While the callback runs, all signals are blocked in its thread, so that they wait if no other thread takes them; and
     tracing and profiling are off: the callback is no part of the program.
   - An operation that begins while the callback runs in the same thread is nested: one of the callback itself, of a signal
     handler, or of a finalizer. Within a nested one, nothing is told.
   - If the callback raises, the operation does not begin, and the program gets the exception.

   Operations of compiled libraries raise no audit events: interpose.c and telling.c tell of them.

   Not here: what an operation needs, and which paths matter (ckpt.undo.watching). */

#include "watch/fast_path.h"
#include "watch/watch.h"
#include <fcntl.h>
#include <signal.h>
#include <string.h>

static PyObject *callback; /* borrowed by calls, so install() must not run within one */
static PyObject *fast_path;
static PyObject *opener;
int callbacks_under_way;
static int is_added;
static __thread int depth;
long long watch_patience_ns = 1000000000;
pid_t watch_pid;

static const char *const told[] = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate",
                                   "os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr", "sqlite3.connect",
                                   "mmap.__new__", "socket.bind", "subprocess.Popen", "os.system", "os.posix_spawn", "os.fork", "os.forkpty",
                                   NULL};

/* Does open(path, mode, flags) leave the file as it is? */
static int only_reads(PyObject *args)
{
    if (!PyTuple_Check(args) || PyTuple_GET_SIZE(args) < 3 || !PyLong_Check(PyTuple_GET_ITEM(args, 2)))
        return 0;
    int overflow;
    long flags = PyLong_AsLongAndOverflow(PyTuple_GET_ITEM(args, 2), &overflow);
    return !overflow && (flags & O_ACCMODE) == O_RDONLY && !(flags & (O_CREAT | O_TRUNC));
}

static int matters(const char *event, PyObject *args)
{
    if (strcmp(event, "open") == 0)
        return !only_reads(args);
    if (event[0] != 'o' && event[0] != 's' && event[0] != 'm')
        return 0;
    for (const char *const *each = told; *each; each++)
        if (strcmp(event, *each) == 0)
            return 1;
    return 0;
}

int watch_is_telling(void)
{
    return depth > 0;
}

int watch_tell(const char *event, PyObject *args)
{
    if (callback == NULL || depth > 1)
        return 0;
    PyThreadState *thread = PyThreadState_Get();
    PyObject *called = Py_NewRef(callback);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    PyThreadState_EnterTracing(thread);
    depth++;
    callbacks_under_way++;
    PyObject *result = PyObject_CallFunction(called, "sOO", event, args, depth > 1 ? Py_True : Py_False);
    callbacks_under_way--;
    depth--;
    PyThreadState_LeaveTracing(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    Py_DECREF(called);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static const char *const openings[] = {"open", "os.listdir", "os.scandir", "sqlite3.connect", "ctypes.dlopen", "os.rename",
                                       "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", NULL};

/* Tell `opener` of a path, unless it is itself what opens it. */
static int tell_opener(const char *event, PyObject *args)
{
    static __thread int is_telling;
    const char *const *each = openings;
    while (*each && strcmp(event, *each) != 0)
        each++;
    if (*each == NULL || is_telling || !PyTuple_Check(args) || PyTuple_GET_SIZE(args) == 0)
        return 0;
    PyObject *called = Py_NewRef(opener);
    is_telling = 1;
    PyObject *result = PyObject_CallFunction(called, "sO", event, PyTuple_GET_ITEM(args, 0));
    is_telling = 0;
    int goes_on = result == NULL ? -1 : PyObject_IsTrue(result);
    if (goes_on == 0 && opener == called)
        Py_CLEAR(opener);
    Py_XDECREF(result);
    Py_DECREF(called);
    return goes_on < 0 ? -1 : 0;
}

static int hook(const char *event, PyObject *args, void *unused)
{
    if (opener != NULL && tell_opener(event, args) < 0)
        return -1;
    if (callback == NULL)
        return 0;
    if (fast_path != NULL && strcmp(event, "os.chdir") == 0)
        fast_path_forget(fast_path);
    if (strncmp(event, "ctypes.dlsym", 12) == 0)
        watch_libraries();
    if (depth > 1 || !matters(event, args))
        return 0;
    if (depth == 0 && fast_path != NULL && fast_path_settles(fast_path, event, args))
        return 0;
    if (depth == 0 && PyErr_CheckSignals())
        return -1;
    watch_libraries();
    return watch_tell(event, args);
}

static int add_hook(void)
{
    if (!is_added && PySys_AddAuditHook(hook, NULL) < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_RuntimeError, "another audit hook refuses that files are watched");
        return -1;
    }
    is_added = 1;
    return 0;
}

PyDoc_STRVAR(before_opening_doc,
             "before_opening(function, /) -> None\n\n"
             "Call function(event, path) before something is opened, listed or changed by its path (or descriptor), until it\n"
             "returns false; None: call nothing. If it raises, that does not happen. Raises as install().");

static PyObject *before_opening(PyObject *module, PyObject *function)
{
    if (function != Py_None && add_hook() < 0)
        return NULL;
    PyObject *old = opener;
    opener = function == Py_None ? NULL : Py_NewRef(function);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(install_doc, "install(callback, fast_path, /) -> None\n\n"
                          "Call callback(event, arguments, is_nested) before operations that may change files and that the\n"
                          "FastPath (or None) does not settle; None: call nothing. Raises RuntimeError: another audit hook\n"
                          "refuses this one.");

static PyObject *install(PyObject *module, PyObject *args)
{
    PyObject *called, *settles;
    if (!PyArg_ParseTuple(args, "OO", &called, &settles))
        return NULL;
    if (settles != Py_None && !Py_IS_TYPE(settles, &FastPath_Type)) {
        PyErr_SetString(PyExc_TypeError, "a FastPath or None is wanted");
        return NULL;
    }
    if (called != Py_None && add_hook() < 0)
        return NULL;
    PyObject *old = callback, *old_path = fast_path;
    callback = called == Py_None ? NULL : Py_NewRef(called);
    fast_path = settles == Py_None ? NULL : Py_NewRef(settles);
    watch_pid = callback ? getpid() : 0;
    if (callback)
        watch_libraries();
    Py_XDECREF(old);
    Py_XDECREF(old_path);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(set_patience_doc,
             "set_patience(ns, /) -> None\n\n"
             "How long a thread without the GIL waits until its operation is told; then it is told as missed.");

static PyObject *set_patience(PyObject *module, PyObject *ns)
{
    long long given = PyLong_AsLongLong(ns);
    if (given == -1 && PyErr_Occurred())
        return NULL;
    watch_patience_ns = given;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(mac_doc, "mac(key, before, text, /) -> str\n\n"
                      "The MAC of a line of the log. ``key``: 16 bytes; ``before``: the MAC of the line before. Raises ValueError.");

static PyMethodDef methods[] = {{"install", install, METH_VARARGS, install_doc},
                                {"before_opening", before_opening, METH_O, before_opening_doc},
                                {"set_patience", set_patience, METH_O, set_patience_doc},
                                {"set_ends", watch_set_ends, METH_O, watch_set_ends_doc},
                                {"mac", log_mac, METH_VARARGS, mac_doc},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_watch", NULL, -1, methods, NULL, NULL, NULL, NULL};

static int add_left_alone(PyObject *module)
{
    PyObject *paths = PyList_New(0);
    int failed = paths == NULL;
    for (const char *const *each = watch_left_alone; *each && !failed; each++) {
        PyObject *path = PyUnicode_FromString(*each);
        failed = path == NULL || PyList_Append(paths, path) < 0;
        Py_XDECREF(path);
    }
    PyObject *fixed = failed ? NULL : PyList_AsTuple(paths);
    Py_XDECREF(paths);
    failed = PyModule_AddObjectRef(module, "LEFT_ALONE", fixed);
    Py_XDECREF(fixed);
    return failed;
}

PyMODINIT_FUNC PyInit__watch(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && (PyModule_AddType(module, &LogEnd_Type) < 0 || PyModule_AddType(module, &FastPath_Type) < 0 ||
                           add_left_alone(module) < 0 || PyModule_AddIntConstant(module, "LEADS", watch_leads) < 0))
        Py_CLEAR(module);
    return module;
}
