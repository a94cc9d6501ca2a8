/* Searches of the dictionaries of all imported modules.

   Nothing here writes to the objects it looks at, reference counts included: in a forked child the first write to a page
   copies it, and looking at every imported module from Python costs more in page faults than the whole rest of a small image.

   ModuleStates().changed(sys.modules) lists the modules that are new or have changed since its last call.
   owners(attributes, name, only_functions) lists the classes, functions and objects of a module with dictionaries to copy.
   untrack_constants(objects) spares collections of garbage the tuples of strings and numbers, half of all objects of modules.

   patches(sys.modules, by_value) finds functions, classes and instances of by-value modules in the others; foreign(modules,
   packages) those of modules outside of the packages.
   instances(sys.modules, types, excluded) finds the objects of exactly these types in modules and in the classes written there.
   bound(sys.modules, variable) lists the values of that variable in all modules.
   identities(module, types) finds the values of a module that an image may have to refer to by their name.
   added(sys.modules, known) lists the names of modules that a dict does not have.

   Not here: what the pickler asks about one object, and the tables of sets (_lookup.c); comparisons with notes (lookup_notes.c). */

#include "lookup.h"

typedef struct {
    PyObject *name, *module; /* addresses only */
    uint64_t state;
} Known;

typedef struct {
    PyObject_HEAD
    Known *known;
    size_t mask, used;
} ModuleStates;

static Known *known_of(Known *known, size_t mask, PyObject *name)
{
    size_t i = spread(name) & mask;
    while (known[i].name && known[i].name != name) i = (i + 1) & mask;
    return &known[i];
}

static int states_grow(ModuleStates *self)
{
    size_t mask = self->known ? self->mask * 2 + 1 : 1023;
    Known *known = PyMem_Calloc(mask + 1, sizeof(Known));
    if (!known) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; self->known && i <= self->mask; i++)
        if (self->known[i].name) *known_of(known, mask, self->known[i].name) = self->known[i];
    PyMem_Free(self->known);
    self->known = known;
    self->mask = mask;
    return 0;
}

PyDoc_STRVAR(changed_doc, "changed(modules, /) -> list of names\n\n"
                          "The modules that are new, have been replaced, or have got or lost attributes since the last call.  Up to Python 3.12 also\n"
                          "those with an attribute that has been bound anew.");

static PyObject *changed(ModuleStates *self, PyObject *modules)
{
    if (!PyDict_Check(modules)) return PyErr_Format(PyExc_TypeError, "a dict of modules is needed");
    PyObject *names = PyList_New(0);
    Py_ssize_t position = 0;
    PyObject *name, *module;
    while (names && PyDict_Next(modules, &position, &name, &module)) {
        if (!PyModule_Check(module)) continue;
        PyObject *attributes = PyModule_GetDict(module);
        uint64_t state = attributes ? dict_state(attributes) : 0;
        if ((!self->known || self->used * 2 >= self->mask) && states_grow(self)) Py_CLEAR(names);
        if (!names) break;
        Known *known = known_of(self->known, self->mask, name);
        if (known->module == module && known->state == state) continue;
        if (!known->name) self->used++;
        *known = (Known){name, module, state};
        if (PyList_Append(names, name)) Py_CLEAR(names);
    }
    return names;
}

static void states_dealloc(ModuleStates *self)
{
    PyMem_Free(self->known);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef states_methods[] = {
    {"changed", (PyCFunction)changed, METH_O, changed_doc},
    {NULL},
};

static PyTypeObject ModuleStatesType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.image.lowlevel._lookup.ModuleStates",
    .tp_basicsize = sizeof(ModuleStates),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "ModuleStates()\n\nRemembers the modules that changed() has seen, and the state of each.",
    .tp_new = PyType_GenericNew,
    .tp_methods = states_methods,
    .tp_dealloc = (destructor)states_dealloc,
};

static PyObject *module_name; /* "__module__" */

/* the name of the module that a function, class or instance was written in; borrowed, or NULL without an error */
static PyObject *written_in(PyObject *value)
{
    if (PyFunction_Check(value)) return ((PyFunctionObject *)value)->func_module;
    PyTypeObject *type = PyType_Check(value) ? (PyTypeObject *)value : Py_TYPE(value);
    PyObject *namespace = class_namespace(type);
    return namespace ? PyDict_GetItemWithError(namespace, module_name) : NULL;
}

static int put_row(PyObject *found, PyObject *module, PyObject *variable, PyObject *value)
{
    PyObject *row = PyTuple_Pack(3, module, variable, value);
    int failed = !row || PyList_Append(found, row);
    Py_XDECREF(row);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(patches_doc, "patches(modules, by_value, /) -> list of (module name, name, value)\n\n"
                          "Functions, classes and instances of modules that the dict by_value names, found as attributes of other modules.");

static PyObject *patches(PyObject *self, PyObject *args)
{
    PyObject *modules, *by_value, *found = PyList_New(0);
    if (!found || !PyArg_ParseTuple(args, "O!O!", &PyDict_Type, &modules, &PyDict_Type, &by_value)) goto failed;
    Py_ssize_t position = 0;
    PyObject *name, *module;
    while (PyDict_Next(modules, &position, &name, &module)) {
        if (!PyModule_Check(module) || PyDict_GetItemWithError(by_value, name)) continue;
        PyObject *attributes = PyModule_GetDict(module), *key, *value, *elsewhere = NULL;
        Py_ssize_t at = 0;
        while (attributes && PyDict_Next(attributes, &at, &key, &value)) {
            PyObject *home = written_in(value);
            if (home && home == elsewhere) continue; /* most of a module's values are written in few modules */
            if (!home || !PyUnicode_CheckExact(home) || !PyDict_GetItemWithError(by_value, home)) {
                if (PyErr_Occurred()) goto failed;
                elsewhere = home;
                continue;
            }
            if (put_row(found, name, key, value)) goto failed;
        }
    }
    return found;
failed:
    Py_XDECREF(found);
    return NULL;
}

PyDoc_STRVAR(foreign_doc, "foreign(modules, packages, /) -> list of (module name, name, value)\n\n"
                          "Functions, classes and instances found as attributes of those modules that are in a package of the frozenset packages,\n"
                          "and written in a module that is in none.");

/* 1: the module of this name is in one of the packages; -1: error */
static int is_within(PyObject *home, PyObject *packages)
{
    Py_ssize_t length = PyUnicode_GET_LENGTH(home), dot = PyUnicode_FindChar(home, '.', 0, length, 1);
    if (dot < 0) return dot == -1 ? PySet_Contains(packages, home) : -1;
    PyObject *package = PyUnicode_Substring(home, 0, dot);
    int answer = package ? PySet_Contains(packages, package) : -1;
    Py_XDECREF(package);
    return answer;
}

static PyObject *foreign(PyObject *self, PyObject *args)
{
    PyObject *modules, *packages, *name, *module, *found;
    Py_ssize_t position = 0;
    if (!PyArg_ParseTuple(args, "O!O!", &PyDict_Type, &modules, &PyFrozenSet_Type, &packages)) return NULL;
    found = PyList_New(0);
    while (found && PyDict_Next(modules, &position, &name, &module)) {
        int is_searched = PyModule_Check(module) && PyUnicode_Check(name) ? is_within(name, packages) : 0;
        PyObject *attributes = is_searched == 1 ? PyModule_GetDict(module) : NULL, *key, *value, *within = NULL;
        Py_ssize_t at = 0;
        if (is_searched < 0) Py_CLEAR(found);
        while (found && attributes && PyDict_Next(attributes, &at, &key, &value)) {
            PyObject *home = written_in(value);
            if (home && home == within) continue;
            int answer = home && PyUnicode_CheckExact(home) ? is_within(home, packages) : PyErr_Occurred() ? -1 : 1;
            if (answer < 0 || (!answer && put_row(found, name, key, value))) Py_CLEAR(found);
            if (answer == 1) within = home;
        }
    }
    return found;
}

static int may_have_attributes(PyObject *value, PyObject *name)
{
    if (PyType_Check(value)) {
        PyObject *namespace = class_namespace((PyTypeObject *)value);
        return namespace && is_named(PyDict_GetItemWithError(namespace, module_name), name);
    }
    if (Py_IS_TYPE(value, &PyFunction_Type)) return is_function_with_attributes(value, name);
    return !PyModule_Check(value) && Py_TYPE(value)->tp_dictoffset != 0;
}

PyDoc_STRVAR(owners_doc, "owners(attributes, name, only_functions, /) -> list of (variable, value, copy)\n\n"
                         "Of the variables of the module of that name, those whose values have attributes that programs may change: classes\n"
                         "of the module that are written in Python, functions of the module that have attributes now, and, unless\n"
                         "only_functions, instances that may have a dictionary. copy: of the namespace of a class, else None. attributes: a copy of\n"
                         "the module's, which nobody changes meanwhile.");

static PyObject *owners(PyObject *self, PyObject *args)
{
    PyObject *attributes, *name, *key, *value, *found;
    Py_ssize_t position = 0;
    int only_functions;
    if (!PyArg_ParseTuple(args, "O!Up", &PyDict_Type, &attributes, &name, &only_functions)) return NULL;
    found = PyList_New(0);
    while (found && PyDict_Next(attributes, &position, &key, &value)) {
        if (!PyUnicode_Check(key)) continue;
        if (PyUnicode_GET_LENGTH(key) > 1 && PyUnicode_READ_CHAR(key, 0) == '_' && PyUnicode_READ_CHAR(key, 1) == '_') continue;
        if (!(only_functions ? is_function_with_attributes : may_have_attributes)(value, name)) continue;
        PyObject *copy = PyType_Check(value) ? PyDict_Copy(class_namespace((PyTypeObject *)value)) : Py_NewRef(Py_None);
        PyObject *row = copy ? PyTuple_Pack(3, key, value, copy) : NULL;
        Py_XDECREF(copy);
        if (!row || PyList_Append(found, row)) Py_CLEAR(found);
        Py_XDECREF(row);
    }
    return found;
}

PyDoc_STRVAR(untrack_constants_doc, "untrack_constants(objects, /)\n\n"
                                    "Untrack each tuple of the list that can be part of no cycle, as a collection of garbage does.");

static PyObject *untrack_constants(PyObject *self, PyObject *objects)
{
    if (!PyList_Check(objects)) return PyErr_Format(PyExc_TypeError, "a list is needed");
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(objects); i++) {
        PyObject *tuple = PyList_GET_ITEM(objects, i);
        if (!PyTuple_CheckExact(tuple)) continue;
        Py_ssize_t j = 0, size = PyTuple_GET_SIZE(tuple);
        while (j < size && PyTuple_GET_ITEM(tuple, j) && !PyObject_IS_GC(PyTuple_GET_ITEM(tuple, j))) j++;
        if (j == size) PyObject_GC_UnTrack(tuple);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(instances_doc, "instances(modules, types, excluded, /) -> list of (module name, variable, attribute, object)\n\n"
                            "Objects whose type is one of the tuple types, and that are variables of modules (attribute: None), or attributes of classes\n"
                            "written in Python whose metaclass is type and that are variables of the module they were made in. excluded: a tuple of\n"
                            "names of packages that are not searched.");

static int put_instance(PyObject *found, PyObject *module, PyObject *variable, PyObject *attribute, PyObject *value)
{
    PyObject *row = PyTuple_Pack(4, module, variable, attribute, value);
    int failed = !row || PyList_Append(found, row);
    Py_XDECREF(row);
    return failed ? -1 : 0;
}

static int put_instances(PyObject *found, PyObject *module, PyObject *attributes, PyObject *types)
{
    Py_ssize_t position = 0;
    PyObject *name, *key, *value;
    while (PyDict_Next(attributes, &position, &name, &value)) {
        if (is_one_of(value, types)) {
            if (put_instance(found, module, name, Py_None, value)) return -1;
            continue;
        }
        if (!Py_IS_TYPE(value, &PyType_Type)) continue;
        PyObject *namespace = class_namespace((PyTypeObject *)value);
        if (!namespace || !is_named(PyDict_GetItemWithError(namespace, module_name), module)) {
            if (PyErr_Occurred()) return -1;
            continue;
        }
        Py_ssize_t at = 0;
        while (PyDict_Next(namespace, &at, &key, &value))
            if (is_one_of(value, types) && put_instance(found, module, name, key, value)) return -1;
    }
    return 0;
}

static int is_in_packages(PyObject *name, PyObject *packages)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(packages); i++) {
        PyObject *package = PyTuple_GET_ITEM(packages, i);
        if (!PyUnicode_Check(package)) continue;
        Py_ssize_t length = PyUnicode_GET_LENGTH(package), rest = PyUnicode_GET_LENGTH(name) - length;
        if (rest < 0 || (rest && PyUnicode_READ_CHAR(name, length) != '.')) continue;
        if (PyUnicode_Tailmatch(name, package, 0, length, -1) == 1) return 1;
    }
    return 0;
}

static PyObject *instances(PyObject *self, PyObject *args)
{
    PyObject *modules, *types, *excluded, *name, *module, *found;
    Py_ssize_t position = 0;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyDict_Type, &modules, &PyTuple_Type, &types, &PyTuple_Type, &excluded)) return NULL;
    found = PyList_New(0);
    while (found && PyDict_Next(modules, &position, &name, &module)) {
        if (!PyModule_Check(module) || !PyUnicode_Check(name) || is_in_packages(name, excluded)) continue;
        PyObject *attributes = PyModule_GetDict(module);
        if (attributes && put_instances(found, name, attributes, types)) Py_CLEAR(found);
    }
    return found;
}

PyDoc_STRVAR(added_doc, "added(modules, known, /) -> list of names\n\nThe names in the dict modules that the dict known does not have, in order.");

static PyObject *added(PyObject *self, PyObject *args)
{
    PyObject *modules, *known, *name, *module, *found;
    Py_ssize_t position = 0;
    if (!PyArg_ParseTuple(args, "O!O!", &PyDict_Type, &modules, &PyDict_Type, &known)) return NULL;
    found = PyList_New(0);
    while (found && PyDict_Next(modules, &position, &name, &module)) {
        int answer = PyDict_Contains(known, name);
        if (answer < 0 || (!answer && PyList_Append(found, name))) Py_CLEAR(found);
    }
    return found;
}

PyDoc_STRVAR(identities_doc, "identities(module, excluded, /) -> list of (name, value)\n\n"
                             "The attributes of a module whose identity matters: their exact type is none of the tuple excluded, and they are no types.\n"
                             "A string counts if its name is in capitals and it has several characters (argparse.SUPPRESS), a float if it is no number.");

/* 1, 0, or -1 with an error */
static int has_identity(PyObject *name, PyObject *value, PyObject *excluded)
{
    if (is_one_of(value, excluded) || PyType_Check(value)) return 0;
    if (PyFloat_CheckExact(value)) return PyFloat_AS_DOUBLE(value) != PyFloat_AS_DOUBLE(value);
    if (!PyUnicode_CheckExact(value)) return 1;
    if (PyUnicode_GET_LENGTH(value) < 2 || !PyUnicode_Check(name)) return 0;
    Py_UCS4 third = PyUnicode_GET_LENGTH(name) > 2 ? PyUnicode_READ_CHAR(name, 2) : 0; /* of most names enough to tell */
    if (third >= 'a' && third <= 'z') return 0;
    PyObject *is_upper = PyObject_CallMethod(name, "isupper", NULL);
    Py_XDECREF(is_upper);
    return is_upper ? is_upper == Py_True : -1;
}

static PyObject *identities(PyObject *self, PyObject *args)
{
    PyObject *module, *excluded, *name, *value, *found;
    Py_ssize_t position = 0;
    if (!PyArg_ParseTuple(args, "O!O!", &PyModule_Type, &module, &PyTuple_Type, &excluded)) return NULL;
    PyObject *attributes = PyModule_GetDict(module);
    found = PyList_New(0);
    while (found && attributes && PyDict_Next(attributes, &position, &name, &value)) {
        int answer = has_identity(name, value, excluded);
        PyObject *row = answer > 0 ? PyTuple_Pack(2, name, value) : NULL;
        if (answer < 0 || (answer && (!row || PyList_Append(found, row)))) Py_CLEAR(found);
        Py_XDECREF(row);
    }
    return found;
}

PyDoc_STRVAR(bound_doc, "bound(modules, variable, /) -> list of values\n\nThe values of that variable in those modules that have it, in order.");

static PyObject *bound(PyObject *self, PyObject *args)
{
    PyObject *modules, *variable, *name, *module, *found;
    Py_ssize_t position = 0;
    if (!PyArg_ParseTuple(args, "O!U", &PyDict_Type, &modules, &variable)) return NULL;
    found = PyList_New(0);
    while (found && PyDict_Next(modules, &position, &name, &module)) {
        PyObject *attributes = PyModule_Check(module) ? PyModule_GetDict(module) : NULL;
        PyObject *value = attributes ? PyDict_GetItemWithError(attributes, variable) : NULL;
        if (PyErr_Occurred() || (value && PyList_Append(found, value))) Py_CLEAR(found);
    }
    return found;
}

static PyMethodDef methods[] = {
    {"identities", identities, METH_VARARGS, identities_doc},
    {"bound", bound, METH_VARARGS, bound_doc},
    {"added", added, METH_VARARGS, added_doc},
    {"owners", owners, METH_VARARGS, owners_doc},
    {"patches", patches, METH_VARARGS, patches_doc},
    {"foreign", foreign, METH_VARARGS, foreign_doc},
    {"instances", instances, METH_VARARGS, instances_doc},
    {"untrack_constants", untrack_constants, METH_O, untrack_constants_doc},
    {NULL},
};

int add_module_searches(PyObject *module)
{
    if (PyType_Ready(&ModuleStatesType)) return -1;
    if (!module_name && !(module_name = PyUnicode_InternFromString("__module__"))) return -1;
    if (PyModule_AddObjectRef(module, "ModuleStates", (PyObject *)&ModuleStatesType)) return -1;
    return PyModule_AddFunctions(module, methods);
}
