/* Iterators of itertools that ask a function about an item that they have taken: `takewhile`, `dropwhile`, `filterfalse`, and
 * `groupby` with its groups. The item is in a variable of C meanwhile.
 *
 * follow_asking() puts functions of this module into the place of those of itertools. They do the same; where a Pending names the
 * iterator (frames_iterators.c), they ask about the item of its step first, and go on as usual.
 */
#include "../extension/frames.h"

#if FRAMES_SUPPORTED

#include <stddef.h>

typedef struct {
    PyObject ob_base;
    PyObject *function, *iterator;
    long flag; /* takewhile: it has stopped; dropwhile: it has begun; filterfalse has none */
} Asker; /* Modules/itertoolsmodule.c: takewhileobject, dropwhileobject, filterfalseobject */

typedef struct {
    PyObject ob_base;
    PyObject *iterator, *function, *key_of_group, *key, *item;
} GroupBy; /* groupbyobject */

typedef struct {
    PyObject ob_base;
    PyObject *groups, *key;
} Group; /* _grouperobject */

static iternextfunc takewhile_before, dropwhile_before, filterfalse_before, groupby_before, group_before;

/* The item of a step; takes the reference. NULL: an exception. */
static PyObject *item_of(PyObject *how)
{
    PyObject *item = PyTuple_GET_SIZE(how) == 1 ? Py_NewRef(PyTuple_GET_ITEM(how, 0)) : NULL;
    if (item == NULL)
        PyErr_SetString(PyExc_TypeError, "this step has no item");
    Py_DECREF(how);
    return item;
}

/* What the function says of an item; -1: an exception */
static int ask(Asker *self, PyObject *item)
{
    PyObject *answer = PyObject_CallOneArg(self->function, item);
    int is_true = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return is_true;
}

/* answer: gets that of the function; the item, or NULL: an exception */
static PyObject *ask_again(PyObject *self, PyObject *how, int *answer)
{
    PyObject *item = item_of(how);
    *answer = item ? ask((Asker *)self, item) : -1;
    if (*answer < 0)
        Py_CLEAR(item);
    return item;
}

static PyObject *takewhile_next(PyObject *self)
{
    PyObject *how = pending_step(self);
    if (how == NULL)
        return takewhile_before(self);
    int answer;
    PyObject *item = ask_again(self, how, &answer);
    if (answer == 0) {
        ((Asker *)self)->flag = 1;
        Py_CLEAR(item);
    }
    return item;
}

static PyObject *dropwhile_next(PyObject *self)
{
    PyObject *how = pending_step(self);
    if (how == NULL)
        return dropwhile_before(self);
    int answer;
    PyObject *item = ask_again(self, how, &answer);
    if (answer <= 0) {
        ((Asker *)self)->flag |= answer == 0;
        return item;
    }
    Py_DECREF(item);
    return dropwhile_before(self);
}

static PyObject *filterfalse_next(PyObject *self)
{
    PyObject *how = pending_step(self);
    if (how == NULL)
        return filterfalse_before(self);
    int answer;
    PyObject *item = ask_again(self, how, &answer);
    if (answer <= 0)
        return item;
    Py_DECREF(item);
    return filterfalse_before(self);
}

/* As groupby_step() with an item that has been taken. */
static int step_again(GroupBy *self, PyObject *how)
{
    PyObject *item = item_of(how), *key = item ? PyObject_CallOneArg(self->function, item) : NULL;
    if (key == NULL) {
        Py_XDECREF(item);
        return -1;
    }
    PyObject *before = self->item;
    self->item = item;
    Py_XSETREF(self->key, key);
    Py_XDECREF(before);
    return 0;
}

static PyObject *groupby_next(PyObject *self)
{
    PyObject *how = pending_step(self);
    return how != NULL && step_again((GroupBy *)self, how) < 0 ? NULL : groupby_before(self);
}

static PyObject *group_next(PyObject *self)
{
    PyObject *how = pending_step(self);
    return how != NULL && step_again((GroupBy *)((Group *)self)->groups, how) < 0 ? NULL : group_before(self);
}

/* ------------------------------------------------------------------ are they what this file takes them for? */

/* bool is the function, of the items 1 and 0. */
static PyObject *sample(PyTypeObject *type, Py_ssize_t size)
{
    return type->tp_basicsize < size ? NULL : PyObject_CallFunction((PyObject *)type, "O[ii]", (PyObject *)&PyBool_Type, 1, 0);
}

static int is_asker(PyTypeObject *type, int has_flag)
{
    PyObject *made = sample(type, has_flag ? sizeof(Asker) : offsetof(Asker, flag));
    Asker *self = (Asker *)made;
    int fits = made != NULL && self->function == (PyObject *)&PyBool_Type && Py_IS_TYPE(self->iterator, &PyListIter_Type);
    fits = fits && (!has_flag || self->flag == 0);
    for (int i = 0; fits && i < 2; i++)
        Py_XDECREF(PyIter_Next(made));
    fits = fits && (!has_flag || self->flag == 1);
    Py_XDECREF(made);
    PyErr_Clear();
    return fits;
}

/* The type of groups; NULL: they are something else. */
static PyTypeObject *type_of_groups(PyTypeObject *groupby)
{
    PyObject *made = groupby->tp_basicsize < (Py_ssize_t)sizeof(GroupBy)
                         ? NULL
                         : PyObject_CallFunction((PyObject *)groupby, "[ii]O", 1, 0, (PyObject *)&PyBool_Type);
    GroupBy *self = (GroupBy *)made;
    PyTypeObject *type = NULL;
    int fits = made != NULL && self->function == (PyObject *)&PyBool_Type && Py_IS_TYPE(self->iterator, &PyListIter_Type)
               && self->key == NULL && self->item == NULL && self->key_of_group == NULL;
    PyObject *pair = fits ? PyIter_Next(made) : NULL;
    if (pair != NULL && PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2) {
        PyObject *group = PyTuple_GET_ITEM(pair, 1);
        fits = self->key == Py_True && self->key_of_group == Py_True && self->item != NULL && PyLong_Check(self->item)
               && Py_TYPE(group)->tp_basicsize >= (Py_ssize_t)sizeof(Group) && Py_TYPE(group)->tp_iternext != NULL
               && ((Group *)group)->groups == made && ((Group *)group)->key == Py_True;
        type = fits ? Py_TYPE(group) : NULL;
    }
    Py_XDECREF(pair);
    Py_XDECREF(made);
    PyErr_Clear();
    return type;
}

static iternextfunc replace_next(PyTypeObject *type, iternextfunc ours)
{
    iternextfunc before = type->tp_iternext;
    type->tp_iternext = ours;
    return before;
}

PyDoc_STRVAR(follow_asking_doc,
"follow_asking(takewhile, dropwhile, filterfalse, groupby, /) -> tuple\n\n"
"From now on, a Pending can be announced for these iterators.  What they do does not change.  Returns the types for which this is so,\n"
"that of the groups of a groupby included.");
static PyObject *follow_asking(PyObject *module, PyObject *args)
{
    static PyObject *followed_types;
    PyTypeObject *takewhile, *dropwhile, *filterfalse, *groupby, *group;
    if (!PyArg_ParseTuple(args, "O!O!O!O!:follow_asking", &PyType_Type, &takewhile, &PyType_Type, &dropwhile, &PyType_Type,
                          &filterfalse, &PyType_Type, &groupby))
        return NULL;
    if (followed_types != NULL || !frames_fit)
        return followed_types ? Py_NewRef(followed_types) : PyTuple_New(0);
    PyObject *found = PyList_New(0);
    int failed = found == NULL;
    if (!failed && is_asker(takewhile, 1)) {
        takewhile_before = replace_next(takewhile, takewhile_next);
        failed = PyList_Append(found, (PyObject *)takewhile) < 0;
    }
    if (!failed && is_asker(dropwhile, 1)) {
        dropwhile_before = replace_next(dropwhile, dropwhile_next);
        failed = PyList_Append(found, (PyObject *)dropwhile) < 0;
    }
    if (!failed && is_asker(filterfalse, 0)) {
        filterfalse_before = replace_next(filterfalse, filterfalse_next);
        failed = PyList_Append(found, (PyObject *)filterfalse) < 0;
    }
    if (!failed && (group = type_of_groups(groupby)) != NULL) {
        groupby_before = replace_next(groupby, groupby_next);
        group_before = replace_next(group, group_next);
        failed = PyList_Append(found, (PyObject *)groupby) < 0 || PyList_Append(found, (PyObject *)group) < 0;
    }
    followed_types = failed ? NULL : PyList_AsTuple(found);
    Py_XDECREF(found);
    return Py_XNewRef(followed_types);
}

PyMethodDef asking_functions[] = {
    {"follow_asking", follow_asking, METH_VARARGS, follow_asking_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
