/* The pickler's question about every object, answered without running Python code; and the memory layout of sets.

   Finder(ids, check, special) is called with an object and returns its persistent id, or None:

   1. the object's address is in `ids` (address -> persistent id): check(pid, object), which may say None;
   2. it is a set or frozenset whose iteration order would not come back by adding its members one after the other, or
      a dict, set or frozenset with keys whose hash is computed by Python code (or by a frozenset): special(object);
   3. None.

   layout(s) and restore(s, ...) read and rebuild the table of a set: where each member stands depends on the order of all
   insertions and removals in its life, and iteration and pop() follow it.  Members are found again only if their hashes are
   the same in the new process; restore() checks that and otherwise just adds them.

   No function here calls __eq__ or __hash__ of members, but for restore() (__hash__; __eq__ where it has to add).
   The tables are those of CPython's public header cpython/setobject.h; the constants below are of its setobject.c. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <string.h>

#define LINEAR_PROBES 9
#define PERTURB_SHIFT 5
#define REMEMBERED_ITEMS 64 /* containers larger than this are examined once */
#define TUPLE_DEPTH 3

/* ---------------------------------------------------------------- addresses */

typedef struct {
    void *address;
    PyObject *pid; /* owned; NULL: examined, an ordinary container */
} Slot;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Slot *slots;
    size_t mask, used;
    PyObject *check, *special;
} Finder;

static size_t spread(void *address)
{
    size_t x = (size_t)address >> 4;
    return x ^ (x >> 15);
}

static Slot *slot_of(Slot *slots, size_t mask, void *address)
{
    size_t i = spread(address) & mask;
    while (slots[i].address && slots[i].address != address) i = (i + 1) & mask;
    return &slots[i];
}

static int grow(Finder *self, size_t mask)
{
    Slot *slots = PyMem_Calloc(mask + 1, sizeof(Slot));
    if (!slots) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; self->slots && i <= self->mask; i++)
        if (self->slots[i].address) *slot_of(slots, mask, self->slots[i].address) = self->slots[i];
    PyMem_Free(self->slots);
    self->slots = slots;
    self->mask = mask;
    return 0;
}

static int put(Finder *self, void *address, PyObject *pid)
{
    if (self->used * 2 >= self->mask && grow(self, self->mask * 2 + 1)) return -1;
    Slot *slot = slot_of(self->slots, self->mask, address);
    if (!slot->address) self->used++;
    slot->address = address;
    Py_XINCREF(pid);
    Py_XSETREF(slot->pid, pid);
    return 0;
}

/* ---------------------------------------------------------------- sets */

typedef struct {
    Py_hash_t hash;
    PyObject *key;
} Entry;

static void insert(Entry *table, size_t mask, PyObject *key, Py_hash_t hash)
{
    size_t perturb = (size_t)hash, i = perturb & mask;
    for (;;) {
        Entry *entry = &table[i];
        int probes = i + LINEAR_PROBES <= mask ? LINEAR_PROBES : 0;
        do {
            if (!entry->key) {
                entry->key = key;
                entry->hash = hash;
                return;
            }
            entry++;
        } while (probes--);
        perturb >>= PERTURB_SHIFT;
        i = (i * 5 + 1 + perturb) & mask;
    }
}

/* Does adding the members one by one, in iteration order, to an empty set lead to this very table? -1: no memory. */
static int is_canonical(PySetObject *so)
{
    if (so->fill != so->used || so->finger != 0) return 0;
    size_t mask = PySet_MINSIZE - 1, used = 0;
    Entry *table = PyMem_Calloc(mask + 1, sizeof(Entry));
    if (!table) return -1;
    for (Py_ssize_t j = 0; j <= so->mask; j++) {
        if (!so->table[j].key) continue;
        insert(table, mask, so->table[j].key, so->table[j].hash);
        used++;
        if (used * 5 < mask * 3) continue;
        size_t wanted = used > 50000 ? used * 2 : used * 4, size = PySet_MINSIZE;
        while (size <= wanted) size <<= 1;
        Entry *larger = PyMem_Calloc(size, sizeof(Entry));
        if (!larger) {
            PyMem_Free(table);
            return -1;
        }
        for (size_t k = 0; k <= mask; k++)
            if (table[k].key) insert(larger, size - 1, table[k].key, table[k].hash);
        PyMem_Free(table);
        table = larger;
        mask = size - 1;
    }
    int same = mask == (size_t)so->mask;
    for (size_t k = 0; same && k <= mask; k++) same = table[k].key == so->table[k].key;
    PyMem_Free(table);
    return same;
}

static int has_python_hash(PyObject *key, int depth)
{
    PyTypeObject *type = Py_TYPE(key);
    if (type == &PyUnicode_Type || type == &PyLong_Type) return 0;
    if (type == &PyFrozenSet_Type) return 1;
    if (type == &PyTuple_Type && depth) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++)
            if (has_python_hash(PyTuple_GET_ITEM(key, i), depth - 1)) return 1;
        return 0;
    }
    return type->tp_flags & Py_TPFLAGS_HEAPTYPE && type->tp_hash != PyBaseObject_Type.tp_hash;
}

/* 1: special, 0: ordinary, -1: error */
static int is_special(PyObject *obj)
{
    if (PyDict_CheckExact(obj)) {
        Py_ssize_t position = 0;
        PyObject *key, *value;
        while (PyDict_Next(obj, &position, &key, &value))
            if (has_python_hash(key, TUPLE_DEPTH)) return 1;
        return 0;
    }
    PySetObject *so = (PySetObject *)obj;
    if (!so->used && PyFrozenSet_CheckExact(obj)) return 0;
    for (Py_ssize_t i = 0; i <= so->mask; i++)
        if (so->table[i].key && so->table[i].hash != -1 && has_python_hash(so->table[i].key, TUPLE_DEPTH)) return 1;
    int canonical = is_canonical(so);
    if (canonical < 0) PyErr_NoMemory();
    return canonical < 0 ? -1 : !canonical;
}

/* ---------------------------------------------------------------- Finder */

static PyObject *find(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Finder *self = (Finder *)callable;
    if (PyVectorcall_NARGS(nargsf) != 1 || kwnames) {
        PyErr_SetString(PyExc_TypeError, "a Finder takes one argument");
        return NULL;
    }
    PyObject *obj = args[0];
    Slot *slot = slot_of(self->slots, self->mask, obj);
    if (slot->address) {
        if (!slot->pid) Py_RETURN_NONE;
        PyObject *call[2] = {slot->pid, obj};
        PyObject *found = PyObject_Vectorcall(self->check, call, 2, NULL);
        if (found != Py_None) return found;
        Py_DECREF(found);
    }
    if (!PyDict_CheckExact(obj) && !PyAnySet_CheckExact(obj)) Py_RETURN_NONE;
    int special = is_special(obj);
    if (special < 0) return NULL;
    if (special) return PyObject_CallOneArg(self->special, obj);
    Py_ssize_t size = PyDict_CheckExact(obj) ? PyDict_GET_SIZE(obj) : ((PySetObject *)obj)->mask;
    if (size > REMEMBERED_ITEMS && put(self, obj, NULL)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *finder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *ids, *check, *special;
    if (!PyArg_ParseTuple(args, "O!OO", &PyDict_Type, &ids, &check, &special)) return NULL;
    Finder *self = (Finder *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->vectorcall = find;
    self->check = Py_NewRef(check);
    self->special = Py_NewRef(special);
    size_t mask = 63;
    while (mask < (size_t)PyDict_GET_SIZE(ids) * 3) mask = mask * 2 + 1;
    if (grow(self, mask)) goto failed;
    Py_ssize_t position = 0;
    PyObject *key, *pid;
    while (PyDict_Next(ids, &position, &key, &pid)) {
        void *address = PyLong_AsVoidPtr(key);
        if ((!address && PyErr_Occurred()) || put(self, address, pid)) goto failed;
    }
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

static int finder_traverse(Finder *self, visitproc visit, void *arg)
{
    for (size_t i = 0; self->slots && i <= self->mask; i++) Py_VISIT(self->slots[i].pid);
    Py_VISIT(self->check);
    Py_VISIT(self->special);
    return 0;
}

static int finder_clear(Finder *self)
{
    for (size_t i = 0; self->slots && i <= self->mask; i++) Py_CLEAR(self->slots[i].pid);
    Py_CLEAR(self->check);
    Py_CLEAR(self->special);
    return 0;
}

static void finder_dealloc(Finder *self)
{
    PyObject_GC_UnTrack(self);
    finder_clear(self);
    PyMem_Free(self->slots);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject FinderType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.image._lookup.Finder",
    .tp_basicsize = sizeof(Finder),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "Finder(ids, check, special)\n\nobject -> persistent id or None",
    .tp_new = finder_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Finder, vectorcall),
    .tp_traverse = (traverseproc)finder_traverse,
    .tp_clear = (inquiry)finder_clear,
    .tp_dealloc = (destructor)finder_dealloc,
};

/* ---------------------------------------------------------------- layout and restore */

static int need_set(PyObject *obj)
{
    if (PyAnySet_CheckExact(obj)) return 0;
    PyErr_SetString(PyExc_TypeError, "a set or frozenset is needed");
    return -1;
}

PyDoc_STRVAR(layout_doc, "layout(set, /) -> (members, places, hashes, mask, finger)\n\n"
                         "places: bytes of uint32, the slot of each member, then the slots of removed ones;\n"
                         "hashes: bytes of int64, one for each member.");

static PyObject *layout(PyObject *module, PyObject *obj)
{
    if (need_set(obj)) return NULL;
    PySetObject *so = (PySetObject *)obj;
    PyObject *members = PyList_New(so->used);
    PyObject *places = PyBytes_FromStringAndSize(NULL, so->fill * (Py_ssize_t)sizeof(uint32_t));
    PyObject *hashes = PyBytes_FromStringAndSize(NULL, so->used * (Py_ssize_t)sizeof(int64_t));
    if (!members || !places || !hashes || so->mask > (Py_ssize_t)UINT32_MAX) {
        Py_XDECREF(members);
        Py_XDECREF(places);
        Py_XDECREF(hashes);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_OverflowError, "the set is too large");
    }
    uint32_t *place = (uint32_t *)PyBytes_AS_STRING(places);
    int64_t *hash = (int64_t *)PyBytes_AS_STRING(hashes);
    Py_ssize_t member = 0, removed = so->used;
    for (Py_ssize_t i = 0; i <= so->mask; i++) {
        setentry *entry = &so->table[i];
        if (!entry->key) continue;
        if (entry->key == _PySet_Dummy) {
            place[removed++] = (uint32_t)i;
            continue;
        }
        place[member] = (uint32_t)i;
        hash[member] = entry->hash;
        PyList_SET_ITEM(members, member++, Py_NewRef(entry->key));
    }
    return Py_BuildValue("(NNNnn)", members, places, hashes, so->mask, so->finger);
}

/* empty a set or frozenset in place */
static void empty(PySetObject *so)
{
    setentry *table = so->table;
    Py_ssize_t mask = so->mask;
    setentry small[PySet_MINSIZE];
    int is_small = table == so->smalltable;
    if (is_small) {
        memcpy(small, table, sizeof small);
        table = small;
    }
    memset(so->smalltable, 0, sizeof so->smalltable);
    so->table = so->smalltable;
    so->mask = PySet_MINSIZE - 1;
    so->fill = so->used = so->finger = 0;
    so->hash = -1;
    for (Py_ssize_t i = 0; i <= mask; i++)
        if (table[i].key && table[i].key != _PySet_Dummy) Py_DECREF(table[i].key);
    if (!is_small) PyMem_Free(table);
}

static PyObject *restore(PyObject *module, PyObject *args);

/* the members in a table of this process' own */
static PyObject *add_all(PyObject *obj, PyObject *members)
{
    PyObject *fresh = PySet_New(members), *result = NULL;
    PyObject *given = fresh ? layout(NULL, fresh) : NULL;
    if (given) {
        PyObject *all[6] = {obj};
        for (int i = 0; i < 5; i++) all[i + 1] = PyTuple_GET_ITEM(given, i);
        PyObject *args = PyTuple_Pack(6, all[0], all[1], all[2], all[3], all[4], all[5]);
        result = args ? restore(NULL, args) : NULL;
        Py_XDECREF(args);
    }
    Py_XDECREF(given);
    Py_XDECREF(fresh);
    if (!result) return NULL;
    Py_DECREF(result);
    Py_RETURN_FALSE;
}

PyDoc_STRVAR(restore_doc, "restore(set, members, places, hashes, mask, finger, /) -> bool\n\n"
                          "Replace the content of a set or frozenset. True: laid out as given; False: the members hash\n"
                          "differently here and have been added one by one.");

static PyObject *restore(PyObject *module, PyObject *args)
{
    PyObject *obj, *members, *places, *hashes;
    Py_ssize_t mask, finger;
    if (!PyArg_ParseTuple(args, "OO!SSnn", &obj, &PyList_Type, &members, &places, &hashes, &mask, &finger)) return NULL;
    if (need_set(obj)) return NULL;
    PySetObject *so = (PySetObject *)obj;
    Py_ssize_t used = PyList_GET_SIZE(members), fill = PyBytes_GET_SIZE(places) / (Py_ssize_t)sizeof(uint32_t);
    const uint32_t *place = (const uint32_t *)PyBytes_AS_STRING(places);
    const int64_t *hash = (const int64_t *)PyBytes_AS_STRING(hashes);
    int valid = mask >= PySet_MINSIZE - 1 && ((mask + 1) & mask) == 0 && used <= fill && fill < mask && finger >= 0 &&
                PyBytes_GET_SIZE(hashes) == used * (Py_ssize_t)sizeof(int64_t);
    for (Py_ssize_t i = 0; valid && i < fill; i++) valid = (Py_ssize_t)place[i] <= mask;
    if (!valid) return PyErr_Format(PyExc_ValueError, "no layout of a set");
    int same = 1;
    for (Py_ssize_t i = 0; i < used; i++) {
        Py_hash_t now = PyObject_Hash(PyList_GET_ITEM(members, i));
        if (now == -1 && PyErr_Occurred()) return NULL;
        same &= now == hash[i];
    }
    if (!same) return add_all(obj, members);
    empty(so);
    setentry *table = so->smalltable;
    if (mask + 1 > PySet_MINSIZE) {
        table = PyMem_Calloc((size_t)mask + 1, sizeof(setentry));
        if (!table) return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < fill; i++) {
        setentry *entry = &table[place[i]];
        entry->key = i < used ? Py_NewRef(PyList_GET_ITEM(members, i)) : _PySet_Dummy;
        entry->hash = i < used ? hash[i] : -1;
    }
    so->table = table;
    so->mask = mask;
    so->fill = fill;
    so->used = used;
    so->finger = finger;
    Py_RETURN_TRUE;
}

PyDoc_STRVAR(new_frozenset_doc, "new_frozenset() -> an empty frozenset of its own, to be filled by restore()");

static PyObject *new_frozenset(PyObject *module, PyObject *unused)
{
    return PyFrozenSet_New(NULL);
}

static PyMethodDef methods[] = {
    {"layout", layout, METH_O, layout_doc},
    {"restore", restore, METH_VARARGS, restore_doc},
    {"new_frozenset", new_frozenset, METH_NOARGS, new_frozenset_doc},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.image._lookup",
    .m_doc = "Persistent ids by address; the layout of sets.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__lookup(void)
{
    if (PyType_Ready(&FinderType)) return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddObjectRef(module, "Finder", (PyObject *)&FinderType)) Py_CLEAR(module);
    return module;
}
