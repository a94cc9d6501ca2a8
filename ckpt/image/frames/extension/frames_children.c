/* The program waits for its own children only. The processes that write images are children of the rank, too, so `os.wait()` and
 * the like would hand them to a program that waits for any child.
 *
 * own_child() notes such a process, and the first time puts functions of this file into the place of those behind os.wait, waitpid,
 * wait3, wait4 and waitid; the objects stay the same, under whatever name the program has them. The functions pass over what
 * own_child() has noted, unless it is asked for by its number, as ckpt does; it is answered then, too, if it was passed over before.
 */
#include "frames.h"

#include <string.h>
#include <sys/wait.h>

#define OWN_MOST 64 /* as a rule one at a time */

static pid_t own_pids[OWN_MOST], owner;
static int own_count;
static struct {
    pid_t pid;
    int status;
} passed_over[OWN_MOST]; /* ended, and not asked for yet */
static int passed_count;

typedef struct {
    StandIn function;
    int any_at, options_at; /* places of the arguments that say which child is waited for, and how; -1: any child; no options */
} Wait;

static PyObject *our_wait(PyObject *, PyObject *);
static PyObject *our_waitpid(PyObject *, PyObject *const *, Py_ssize_t);
static PyObject *our_waitid(PyObject *, PyObject *const *, Py_ssize_t);
static PyObject *our_wait3(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
static PyObject *our_wait4(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

enum { WAIT, WAITPID, WAITID, WAIT3, WAIT4, WAITS };
static Wait waits[WAITS] = {
    [WAIT] = {{"wait", METH_NOARGS, {.ml_meth = our_wait}, NULL}, -1, -1},
    [WAITPID] = {{"waitpid", METH_FASTCALL, {.ml_meth = (PyCFunction)(void (*)(void))our_waitpid}, NULL}, 0, 1},
    [WAITID] = {{"waitid", METH_FASTCALL, {.ml_meth = (PyCFunction)(void (*)(void))our_waitid}, NULL}, 0, 2},
    [WAIT3] = {{"wait3", METH_FASTCALL | METH_KEYWORDS, {.ml_meth = (PyCFunction)(void (*)(void))our_wait3}, NULL}, -1, -1},
    [WAIT4] = {{"wait4", METH_FASTCALL | METH_KEYWORDS, {.ml_meth = (PyCFunction)(void (*)(void))our_wait4}, NULL}, 0, -1},
};

/* Was this an own one? It is none any more: its end has been asked for. */
static int forget_child(pid_t pid)
{
    for (int i = 0; i < own_count && owner == getpid(); i++)
        if (own_pids[i] == pid) {
            own_pids[i] = own_pids[--own_count];
            return 1;
        }
    return 0;
}

static long number_at(PyObject *const *args, Py_ssize_t count, int place, long otherwise)
{
    return place >= 0 && place < count && PyLong_CheckExact(args[place]) ? PyLong_AsLong(args[place]) : otherwise;
}

/* Does the call wait for any child, or any of a group? */
static int is_for_any(const Wait *wait, PyObject *const *args, Py_ssize_t count)
{
    if (wait->any_at < 0)
        return 1;
    long which = number_at(args, count, wait->any_at, 1);
    return wait == &waits[WAITID] ? which == P_ALL || which == P_PGID : which <= 0;
}

static PyObject *ask(const Wait *wait, PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    void (*function)(void) = (void (*)(void))wait->function.before;
    if (wait->function.flags == METH_NOARGS)
        return wait->function.before(module, NULL);
    if (wait->function.flags == METH_FASTCALL)
        return ((PyObject * (*)(PyObject *, PyObject *const *, Py_ssize_t)) function)(module, args, count);
    return ((PyObject * (*)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *)) function)(module, args, count, names);
}

/* What waitpid() is to say of a process that has been passed over; NULL: there is no such one. */
static PyObject *passed_before(const Wait *wait, PyObject *const *args, Py_ssize_t count)
{
    long pid = wait == &waits[WAITPID] && passed_count && owner == getpid() ? number_at(args, count, 0, 0) : 0;
    for (int i = 0; pid > 0 && i < passed_count; i++)
        if (passed_over[i].pid == pid) {
            int status = passed_over[i].status;
            passed_over[i] = passed_over[--passed_count];
            return Py_BuildValue("(li)", pid, status);
        }
    return NULL;
}

static void pass_over(const Wait *wait, pid_t pid, PyObject *found)
{
    int status = 0;
    if (wait == &waits[WAITID])
        waitpid(pid, &status, WNOHANG); /* after WNOWAIT it is still there */
    else if (PyTuple_GET_SIZE(found) > 1 && PyLong_Check(PyTuple_GET_ITEM(found, 1)))
        status = (int)PyLong_AsLong(PyTuple_GET_ITEM(found, 1));
    if (passed_count == OWN_MOST)
        passed_count--;
    passed_over[passed_count].pid = pid;
    passed_over[passed_count++].status = status;
}

static PyObject *wait_for_others(const Wait *wait, PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *before = passed_before(wait, args, count);
    if (before != NULL)
        return before;
    int is_any = is_for_any(wait, args, count), passed = 0;
    for (;;) {
        PyObject *found = ask(wait, module, args, count, names);
        if (found == NULL) {
            /* Without WNOHANG this is the answer; with it, a handler of SIGCHLD may ask for what is only ckpt's: nothing yet. */
            int is_patient = !(number_at(args, count, wait->options_at, 0) & WNOHANG);
            if (!passed || is_patient || !PyErr_ExceptionMatches(PyExc_ChildProcessError))
                return NULL;
            PyErr_Clear();
            return wait == &waits[WAITID] ? Py_NewRef(Py_None) : Py_BuildValue("(ii)", 0, 0);
        }
        PyObject *number = PyTuple_Check(found) && PyTuple_GET_SIZE(found) > 0 ? PyTuple_GET_ITEM(found, 0) : NULL;
        pid_t pid = number != NULL && PyLong_Check(number) ? (pid_t)PyLong_AsLong(number) : 0;
        if (pid <= 0 || !forget_child(pid) || !is_any)
            return found;
        pass_over(wait, pid, found);
        Py_DECREF(found);
        passed = 1;
    }
}

static PyObject *our_wait(PyObject *module, PyObject *nothing)
{
    return wait_for_others(&waits[WAIT], module, NULL, 0, NULL);
}

static PyObject *our_waitpid(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    return wait_for_others(&waits[WAITPID], module, args, count, NULL);
}

static PyObject *our_waitid(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    return wait_for_others(&waits[WAITID], module, args, count, NULL);
}

static PyObject *our_wait3(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    return wait_for_others(&waits[WAIT3], module, args, count, names);
}

static PyObject *our_wait4(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    return wait_for_others(&waits[WAIT4], module, args, count, names);
}

void stand_in(StandIn *wanted)
{
    PyObject *posix = wanted->before == NULL ? PyImport_ImportModule("posix") : NULL;
    PyObject *function = posix == NULL ? NULL : PyObject_GetAttrString(posix, wanted->name);
    if (function != NULL && PyCFunction_CheckExact(function)) {
        PyCFunctionObject *object = (PyCFunctionObject *)function;
        if (object->m_ml->ml_flags == wanted->flags) {
            wanted->before = object->m_ml->ml_meth;
            PyCFunction ours = wanted->ours.ml_meth;
            wanted->ours = *object->m_ml;
            wanted->ours.ml_meth = ours;
            object->m_ml = &wanted->ours;
        }
    }
    Py_XDECREF(function);
    Py_XDECREF(posix);
    PyErr_Clear();
}

void own_child(pid_t pid)
{
    if (owner != getpid()) {
        own_count = passed_count = 0;
        owner = getpid();
    }
    if (waits[WAIT].function.before == NULL)
        for (Wait *wait = waits; wait < waits + WAITS; wait++)
            stand_in(&wait->function);
    if (own_count == OWN_MOST)
        own_count--;
    own_pids[own_count++] = pid;
}

PyDoc_STRVAR(own_children_doc,
"own_children() -> tuple\n\n"
"The numbers of the processes that write images, and have not been asked for since they have ended.  A forked child sees those of\n"
"the process that has forked it.");
static PyObject *own_children(PyObject *module, PyObject *nothing)
{
    PyObject *found = PyTuple_New(own_count);
    for (int i = 0; found != NULL && i < own_count; i++) {
        PyObject *pid = PyLong_FromPid(own_pids[i]);
        if (pid == NULL)
            Py_CLEAR(found);
        else
            PyTuple_SET_ITEM(found, i, pid);
    }
    return found;
}

PyMethodDef children_methods[] = {
    {"own_children", own_children, METH_NOARGS, own_children_doc},
    {NULL, NULL, 0, NULL},
};
