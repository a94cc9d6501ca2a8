/* Comparisons of dictionaries, and of the attributes and contents of objects, with copies of them: the notes.

   Nothing here writes to the objects it looks at, as in lookup_modules.c, and no code of a library runs: all comparisons are by
   identity. A note is a tuple, made by Python code, which says at which of its items an object or a copy is.

   same(noted, owner) compares a copy of a dictionary with the dictionary.
   differing(notes, live, noted) names the modules of which such a copy, one of many, is not what it was.
   may_differ(notes, obj) finds the notes of objects whose attributes or content may be others. Where that is not simple (slots,
   large sets, other containers), it may: Python code then looks closer.
   holding(notes, at, types) finds the notes in which there is an object of one of these types. */

#include "lookup.h"

#define MEMBERS 64 /* of sets that are compared here */

PyDoc_STRVAR(same_doc, "same(noted, owner, /) -> bool\n\n"
                       "Does owner, a dict or a class, have the keys and values of the dict noted, in the same order? By identity.");

static int is_same(PyObject *noted, PyObject *owner)
{
    PyObject *present = PyType_Check(owner) ? class_namespace((PyTypeObject *)owner) : owner;
    if (!present || !PyDict_Check(present) || !PyDict_Check(noted)) {
        PyErr_Format(PyExc_TypeError, "a dict or a class is needed");
        return -1;
    }
    Py_ssize_t then = 0, now = 0;
    PyObject *key, *value, *key_now, *value_now;
    if (PyDict_GET_SIZE(noted) != PyDict_GET_SIZE(present)) return 0;
    while (PyDict_Next(noted, &then, &key, &value))
        if (!PyDict_Next(present, &now, &key_now, &value_now) || key != key_now || value != value_now) return 0;
    return 1;
}

static PyObject *same(PyObject *self, PyObject *args)
{
    PyObject *noted, *owner;
    if (!PyArg_ParseTuple(args, "O!O", &PyDict_Type, &noted, &owner)) return NULL;
    int answer = is_same(noted, owner);
    return answer < 0 ? NULL : PyBool_FromLong(answer);
}

PyDoc_STRVAR(differing_doc, "differing(notes, live, noted, /) -> list of names\n\n"
                            "The modules of which something may have changed. notes: name of a module -> a tuple, or a list of tuples, of which the\n"
                            "item live is a dict or a class, and the item noted a copy of this dict; the first tuple is of the module. Named are\n"
                            "modules of which a dict has changed, and those with a function that has attributes now.");

/* of one note; -1: error */
static int note_differs(PyObject *note, Py_ssize_t live, Py_ssize_t noted)
{
    Py_ssize_t least = 1 + (live > noted ? live : noted);
    if (!PyTuple_Check(note) || PyTuple_GET_SIZE(note) < least) {
        PyErr_Format(PyExc_TypeError, "tuples of at least %zd items are needed", least);
        return -1;
    }
    int answer = is_same(PyTuple_GET_ITEM(note, noted), PyTuple_GET_ITEM(note, live));
    return answer < 0 ? -1 : !answer;
}

static int differs(PyObject *name, PyObject *notes, Py_ssize_t live, Py_ssize_t noted)
{
    PyObject *key, *value, *of_module = PyList_Check(notes) ? NULL : notes;
    Py_ssize_t position = 0, count = of_module ? 1 : PyList_GET_SIZE(notes);
    for (Py_ssize_t i = 0; i < count; i++) {
        int answer = note_differs(of_module && !i ? of_module : PyList_GET_ITEM(notes, i), live, noted);
        if (answer) return answer;
        if (!of_module) of_module = PyList_GET_ITEM(notes, 0);
    }
    PyObject *attributes = of_module ? PyTuple_GET_ITEM(of_module, noted) : NULL;
    while (attributes && PyDict_Next(attributes, &position, &key, &value))
        if (is_function_with_attributes(value, name)) return 1;
    return 0;
}

static PyObject *differing(PyObject *self, PyObject *args)
{
    PyObject *notes, *name, *of_module, *found;
    Py_ssize_t live, noted, position = 0;
    if (!PyArg_ParseTuple(args, "O!nn", &PyDict_Type, &notes, &live, &noted)) return NULL;
    found = PyList_New(0);
    while (found && PyDict_Next(notes, &position, &name, &of_module)) {
        int answer = -1;
        if (PyUnicode_Check(name) && (PyList_Check(of_module) || PyTuple_Check(of_module)) && live >= 0 && noted >= 0)
            answer = differs(name, of_module, live, noted);
        else
            PyErr_SetString(PyExc_TypeError, "tuples, or lists of tuples, by name are needed");
        if (answer < 0 || (answer && PyList_Append(found, name))) Py_CLEAR(found);
    }
    return found;
}

PyDoc_STRVAR(may_differ_doc, "may_differ(notes, obj, /) -> list of notes\n\n"
                             "The notes, values of a dict, that are not surely as what they describe. Three items of each, a tuple, count, from the item\n"
                             "obj on: an object; a copy of its dictionary or None; a copy of its content or None. Surely the same are dictionaries with\n"
                             "the same keys and values in the same order, lists and dicts likewise; by identity.");

static PyObject *dictionary_of(PyObject *obj)
{
    if (PyFunction_Check(obj)) return ((PyFunctionObject *)obj)->func_dict;
    return instance_dictionary(obj);
}

/* Has an instance attributes that are in no dictionary? */
static int has_slots(PyTypeObject *type)
{
    for (Py_ssize_t i = 0; type->tp_mro && i < PyTuple_GET_SIZE(type->tp_mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(type->tp_mro, i);
        PyObject *slots = base->tp_flags & Py_TPFLAGS_HEAPTYPE ? ((PyHeapTypeObject *)base)->ht_slots : NULL;
        if (slots && PyTuple_Check(slots) && PyTuple_GET_SIZE(slots)) return 1;
    }
    return 0;
}

static int attributes_may_differ(PyObject *obj, PyObject *noted)
{
    if (noted == Py_None) return 0;
    PyObject *present = PyType_Check(obj) ? obj : dictionary_of(obj);
    if (!PyDict_Check(noted)) return 1;
    if (!present) return !PyFunction_Check(obj) || PyDict_GET_SIZE(noted) != 0;
    if (!PyType_Check(obj) && has_slots(Py_TYPE(obj))) return 1;
    if (PyType_Check(obj) ? !class_namespace((PyTypeObject *)obj) : !PyDict_Check(present)) return 1;
    return is_same(noted, present) != 1;
}

/* Are the members of both sets the same objects? 0 also where they are many. */
static int are_same_sets(PySetObject *a, PySetObject *b)
{
    if (a->used != b->used || a->used > MEMBERS) return 0;
    for (Py_ssize_t i = 0; i <= a->mask; i++) {
        PyObject *key = a->table[i].hash == -1 ? NULL : a->table[i].key; /* -1: removed */
        Py_ssize_t at = 0;
        while (key && at <= b->mask && b->table[at].key != key) at++;
        if (key && at > b->mask) return 0;
    }
    return 1;
}

static int content_may_differ(PyObject *obj, PyObject *noted)
{
    if (noted == Py_None) return 0;
    if (PyAnySet_Check(noted)) return !PyAnySet_Check(obj) || !are_same_sets((PySetObject *)noted, (PySetObject *)obj);
    if (PyDict_CheckExact(noted)) return !PyDict_Check(obj) || is_same(noted, obj) != 1;
    if (!PyList_CheckExact(noted) || !PyList_Check(obj) || PyList_GET_SIZE(noted) != PyList_GET_SIZE(obj)) return 1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(noted); i++)
        if (PyList_GET_ITEM(noted, i) != PyList_GET_ITEM(obj, i)) return 1;
    return 0;
}

static PyObject *may_differ(PyObject *self, PyObject *args)
{
    PyObject *notes, *key, *note, *found;
    Py_ssize_t position = 0, at;
    if (!PyArg_ParseTuple(args, "O!n", &PyDict_Type, &notes, &at)) return NULL;
    found = PyList_New(0);
    while (found && PyDict_Next(notes, &position, &key, &note)) {
        int is_note = PyTuple_Check(note) && at >= 0 && PyTuple_GET_SIZE(note) >= at + 3;
        if (!is_note) PyErr_Format(PyExc_TypeError, "tuples of at least %zd items are needed", at + 3);
        if (!is_note || ((attributes_may_differ(PyTuple_GET_ITEM(note, at), PyTuple_GET_ITEM(note, at + 1)) ||
                          content_may_differ(PyTuple_GET_ITEM(note, at), PyTuple_GET_ITEM(note, at + 2))) &&
                         PyList_Append(found, note)))
            Py_CLEAR(found);
    }
    return found;
}

PyDoc_STRVAR(holding_doc, "holding(notes, at, types, /) -> list of notes\n\n"
                          "The notes, values of a dict, with an object of one of the types of a tuple in the dict that is the item at, or in the dict or\n"
                          "list that is the item after it.");

static int holds(PyObject *container, PyObject *types)
{
    PyObject *key, *value;
    Py_ssize_t position = 0;
    if (PyDict_Check(container))
        while (PyDict_Next(container, &position, &key, &value))
            if (is_one_of(value, types)) return 1;
    if (PyList_Check(container))
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(container); i++)
            if (is_one_of(PyList_GET_ITEM(container, i), types)) return 1;
    return 0;
}

static PyObject *holding(PyObject *self, PyObject *args)
{
    PyObject *notes, *types, *key, *note, *found;
    Py_ssize_t position = 0, at;
    if (!PyArg_ParseTuple(args, "O!nO!", &PyDict_Type, &notes, &at, &PyTuple_Type, &types)) return NULL;
    found = PyList_New(0);
    while (found && PyDict_Next(notes, &position, &key, &note)) {
        int is_note = PyTuple_Check(note) && at >= 0 && PyTuple_GET_SIZE(note) >= at + 2;
        if (!is_note) PyErr_Format(PyExc_TypeError, "tuples of at least %zd items are needed", at + 2);
        if (!is_note || ((holds(PyTuple_GET_ITEM(note, at), types) || holds(PyTuple_GET_ITEM(note, at + 1), types)) &&
                         PyList_Append(found, note)))
            Py_CLEAR(found);
    }
    return found;
}

static PyMethodDef methods[] = {
    {"same", same, METH_VARARGS, same_doc},
    {"differing", differing, METH_VARARGS, differing_doc},
    {"may_differ", may_differ, METH_VARARGS, may_differ_doc},
    {"holding", holding, METH_VARARGS, holding_doc},
    {NULL},
};

int add_comparisons(PyObject *module) { return PyModule_AddFunctions(module, methods); }
