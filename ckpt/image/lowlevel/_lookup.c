/* The pickler's question about every object, answered without running Python code; and the memory layout of sets.

   Nothing here writes to the objects it looks at, reference counts included, where that can be avoided: in a forked
   child (and in its parent) the first write to a page copies it, and looking at every imported module from Python costs more
   in page faults than the whole rest of a small image.

   Finder(ids, more, check, special, table) is called with an object and returns its persistent id, or None:

   1. if the object's address is in `ids` or `more` (address -> persistent id): check(pid, object), unless that is None;
   2. if the object is a set or frozenset whose iteration order would not come back by adding its members one after the other, or
      a dict, set or frozenset with keys whose hash is computed by Python code (or by a frozenset), or a nan, which containers
      find by its identity only: special(object);
   3. if the object is an interned str (not a subclass, not empty): the object itself;
   4. else None.

   Before 2 to 4, table(object) is called for a dict or set that may keep numbers that are the id() of objects. In such a dict a key
   is the address of its value, of the object that its value refers to weakly, or of an object in its value (a tuple or list); or
   the address of the dict itself (the memo of copy.deepcopy); or all keys that are numbers, or all such members, may be addresses.
   Numbers in keys and members that are tuples count as such.

   Resolver(load) is called with a persistent id: 3 gives the interned str, all else what load(id) returns. So a str that was the
   same object as a constant in code is the same one again (what pickle writes later depends on that), though this process may
   have got a constant with that text before the image was loaded.

   What searches the imported modules is in lookup_modules.c, what compares them with notes in lookup_notes.c.

   layout(s) and restore(s, ...) read and rebuild the table of a set. The place of a member in the table depends on all insertions
   and removals in the life of the set, and iteration and pop() follow the table.  A set finds its members only if their hashes
   are the same in the new process; restore() checks that, and otherwise adds the members one by one.

   No function here calls __eq__ or __hash__ of members, except restore() (__hash__; __eq__ where it adds members).
   This file is long because all of it walks the same tables (dicts, sets, tuples) under the same rule: nothing is written.

   The tables are those of CPython's public header cpython/setobject.h; the constants below are of its setobject.c. */

#include "lookup.h"

#include <math.h>
#include <string.h>

static PyObject *set_dummy; /* what a set has in the place of a removed member */

#define LINEAR_PROBES 9
#define PERTURB_SHIFT 5
#define REMEMBERED_ITEMS 64 /* containers larger than this are examined once */
#define TUPLE_DEPTH 3
#define LOOKED_AT 8 /* items of a value that is a tuple or list */
#define LEAST_ADDRESS (1LL << 32)
#define LEAST_NO_ADDRESS (1LL << 47)
#define ALIGNMENT 8

/* ---------------------------------------------------------------- addresses */

typedef struct {
    void *address;
    PyObject *pid; /* borrowed from the dict; NULL: an ordinary container, which has been examined */
} Slot;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Slot *slots;
    size_t mask, used;
    PyObject *ids, *more, *check, *special, *table;
} Finder;

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
    slot->pid = pid;
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
    if (PyWeakref_CheckRef(key)) { /* hashes as its referent does */
        PyObject *referent = ((PyWeakReference *)key)->wr_object;
        return referent == Py_None || has_python_hash(referent, depth); /* one that is gone has no hash in a new process */
    }
    if (type == &PyTuple_Type && depth) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++)
            if (has_python_hash(PyTuple_GET_ITEM(key, i), depth - 1)) return 1;
        return 0;
    }
    return type->tp_flags & Py_TPFLAGS_HEAPTYPE && type->tp_hash != PyBaseObject_Type.tp_hash;
}

static int leads_to(PyObject *value, uintptr_t address, int depth)
{
    if ((uintptr_t)value == address) return 1;
    if (PyWeakref_Check(value)) return (uintptr_t)((PyWeakReference *)value)->wr_object == address;
    if (!depth || (!PyTuple_CheckExact(value) && !PyList_CheckExact(value))) return 0;
    PyObject **items = PySequence_Fast_ITEMS(value);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value) && i < LOOKED_AT; i++)
        if (leads_to(items[i], address, depth - 1)) return 1;
    return 0;
}

/* The number, if it may be the address of an object, else 0. */
static uintptr_t as_address(PyObject *number)
{
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow || value < LEAST_ADDRESS || value >= LEAST_NO_ADDRESS || value % ALIGNMENT) return 0;
    return (uintptr_t)value;
}

static int is_by_id(PyObject *dict, uintptr_t address, PyObject *value)
{
    if (!address) return 0;
    if (address == (uintptr_t)dict) return PyList_CheckExact(value); /* copy.deepcopy keeps objects alive there */
    return leads_to(value, address, 1);
}

/* Of a key or member: notes in *addresses and *others what its numbers are, those of a tuple, too. Returns whether one of them is
   the address of what the value (NULL: there is none) leads to. */
static int look_at_numbers(PyObject *container, PyObject *key, PyObject *value, int *addresses, int *others)
{
    int found = 0;
    if (PyLong_CheckExact(key)) {
        uintptr_t address = as_address(key);
        *(address ? addresses : others) = 1;
        return value && is_by_id(container, address, value);
    }
    if (!PyTuple_CheckExact(key)) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++) {
        PyObject *item = PyTuple_GET_ITEM(key, i);
        uintptr_t address = PyLong_CheckExact(item) ? as_address(item) : 0;
        if (address) *addresses = 1;
        if (address && value) found = found || leads_to(value, address, 1);
        if (!address && PyLong_CheckExact(item)) *others = 1;
    }
    return found;
}

/* 1: special, 0: ordinary, -1: error */
static int is_special(PyObject *obj, int *is_table)
{
    int special = 0, addresses = 0, others = 0;
    if (PyDict_Check(obj)) {
        Py_ssize_t position = 0;
        PyObject *key, *value;
        while ((!special || !*is_table) && PyDict_Next(obj, &position, &key, &value)) {
            if (look_at_numbers(obj, key, value, &addresses, &others)) *is_table = 1;
            if (!PyLong_CheckExact(key)) special = special || has_python_hash(key, TUPLE_DEPTH);
        }
        *is_table = *is_table || (addresses && !others);
        return special;
    }
    PySetObject *so = (PySetObject *)obj;
    if (!set_dummy) return 0; /* not laid out as expected */
    if (!so->used && PyFrozenSet_CheckExact(obj)) return 0;
    for (Py_ssize_t i = 0; i <= so->mask; i++) {
        PyObject *key = so->table[i].hash != -1 ? so->table[i].key : NULL;
        if (!key) continue;
        look_at_numbers(obj, key, NULL, &addresses, &others);
        if (!PyLong_CheckExact(key)) special = special || has_python_hash(key, TUPLE_DEPTH);
    }
    *is_table = addresses && !others && PySet_CheckExact(obj);
    if (special) return 1;
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
    if (PyUnicode_CheckExact(obj)) {
        if (PyUnicode_CHECK_INTERNED(obj) && PyUnicode_GET_LENGTH(obj)) return Py_NewRef(obj);
        Py_RETURN_NONE;
    }
    if (PyFloat_CheckExact(obj) && isnan(PyFloat_AS_DOUBLE(obj))) return PyObject_CallOneArg(self->special, obj);
    if (!PyDict_Check(obj) && !PyAnySet_CheckExact(obj)) Py_RETURN_NONE;
    int is_table = 0, special = is_special(obj, &is_table);
    if (special < 0) return NULL;
    if (PyDict_Check(obj) && !PyDict_CheckExact(obj)) special = 0; /* its reducer sees to that */
    if (is_table) {
        PyObject *noted = PyObject_CallOneArg(self->table, obj);
        if (!noted) return NULL;
        Py_DECREF(noted);
    }
    if (special) return PyObject_CallOneArg(self->special, obj);
    Py_ssize_t size = PyDict_Check(obj) ? PyDict_GET_SIZE(obj) : ((PySetObject *)obj)->mask;
    if (size > REMEMBERED_ITEMS && put(self, obj, NULL)) return NULL;
    Py_RETURN_NONE;
}

static int put_all(Finder *self, PyObject *ids)
{
    Py_ssize_t position = 0;
    PyObject *key, *pid;
    while (PyDict_Next(ids, &position, &key, &pid)) {
        void *address = PyLong_AsVoidPtr(key);
        if ((!address && PyErr_Occurred()) || put(self, address, pid)) return -1;
    }
    return 0;
}

static PyObject *finder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *ids, *more, *check, *special, *table;
    if (!PyArg_ParseTuple(args, "O!O!OOO", &PyDict_Type, &ids, &PyDict_Type, &more, &check, &special, &table)) return NULL;
    Finder *self = (Finder *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->vectorcall = find;
    self->ids = Py_NewRef(ids); /* neither dict may change while this lives */
    self->more = Py_NewRef(more);
    self->check = Py_NewRef(check);
    self->special = Py_NewRef(special);
    self->table = Py_NewRef(table);
    size_t mask = 63;
    while (mask < (size_t)(PyDict_GET_SIZE(ids) + PyDict_GET_SIZE(more)) * 3) mask = mask * 2 + 1;
    if (grow(self, mask) || put_all(self, ids) || put_all(self, more)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int finder_traverse(Finder *self, visitproc visit, void *arg)
{
    Py_VISIT(self->ids);
    Py_VISIT(self->more);
    Py_VISIT(self->check);
    Py_VISIT(self->special);
    Py_VISIT(self->table);
    return 0;
}

static int finder_clear(Finder *self)
{
    Py_CLEAR(self->ids);
    Py_CLEAR(self->more);
    Py_CLEAR(self->check);
    Py_CLEAR(self->special);
    Py_CLEAR(self->table);
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
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.image.lowlevel._lookup.Finder",
    .tp_basicsize = sizeof(Finder),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "Finder(ids, more, check, special, table)\n\n"
    "Called with an object, a Finder returns the persistent id of the object, or None; see the source.",
    .tp_new = finder_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Finder, vectorcall),
    .tp_traverse = (traverseproc)finder_traverse,
    .tp_clear = (inquiry)finder_clear,
    .tp_dealloc = (destructor)finder_dealloc,
};

/* ---------------------------------------------------------------- Resolver */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *load;
} Resolver;

static PyObject *resolved(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (PyVectorcall_NARGS(nargsf) != 1 || kwnames) {
        PyErr_SetString(PyExc_TypeError, "a Resolver takes one argument");
        return NULL;
    }
    if (!PyUnicode_CheckExact(args[0])) return PyObject_CallOneArg(((Resolver *)callable)->load, args[0]);
    PyObject *text = Py_NewRef(args[0]);
    PyUnicode_InternInPlace(&text);
    return text;
}

static PyObject *resolver_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *load;
    if (!PyArg_ParseTuple(args, "O", &load)) return NULL;
    Resolver *self = (Resolver *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->vectorcall = resolved;
    self->load = Py_NewRef(load);
    return (PyObject *)self;
}

static int resolver_traverse(Resolver *self, visitproc visit, void *arg)
{
    Py_VISIT(self->load);
    return 0;
}

static int resolver_clear(Resolver *self)
{
    Py_CLEAR(self->load);
    return 0;
}

static void resolver_dealloc(Resolver *self)
{
    PyObject_GC_UnTrack(self);
    resolver_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject ResolverType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.image.lowlevel._lookup.Resolver",
    .tp_basicsize = sizeof(Resolver),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "Resolver(load)\n\nCalled with a persistent id, a Resolver returns the object; see the source.",
    .tp_new = resolver_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Resolver, vectorcall),
    .tp_traverse = (traverseproc)resolver_traverse,
    .tp_clear = (inquiry)resolver_clear,
    .tp_dealloc = (destructor)resolver_dealloc,
};

/* ---------------------------------------------------------------- layout and restore */

static int need_set(PyObject *obj)
{
    if (!set_dummy) {
        PyErr_SetString(PyExc_SystemError, "sets are not laid out as expected");
        return -1;
    }
    if (PyAnySet_Check(obj)) return 0;
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
        if (entry->key == set_dummy) {
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
        if (table[i].key && table[i].key != set_dummy) Py_DECREF(table[i].key);
    if (!is_small) PyMem_Free(table);
}

static PyObject *restore(PyObject *module, PyObject *args);

/* Fill the set with the members, at the places that adding them one by one gives in this process. */
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
        entry->key = i < used ? Py_NewRef(PyList_GET_ITEM(members, i)) : set_dummy;
        entry->hash = i < used ? hash[i] : -1;
    }
    so->table = table;
    so->mask = mask;
    so->fill = fill;
    so->used = used;
    so->finger = finger;
    Py_RETURN_TRUE;
}

static void forget(PyObject *key, int depth)
{
    if (PyWeakref_CheckRef(key)) {
        PyWeakReference *ref = (PyWeakReference *)key;
        if (ref->wr_object != Py_None)
            ref->hash = -1;
        else if (ref->hash == -1)
            ref->hash = (Py_hash_t)((uintptr_t)key >> 4); /* equal to itself only */
    }
    for (Py_ssize_t i = 0; depth && PyTuple_CheckExact(key) && i < PyTuple_GET_SIZE(key); i++) forget(PyTuple_GET_ITEM(key, i), depth - 1);
}

PyDoc_STRVAR(forget_hashes_doc, "forget_hashes(keys, /)\n\n"
                                "Weak references among these keys (a list) ask their referents for the hash again, which they had kept.\n"
                                "One whose referent is gone has a hash again.");

static PyObject *forget_hashes(PyObject *module, PyObject *keys)
{
    if (!PyList_Check(keys)) return PyErr_Format(PyExc_TypeError, "a list is needed");
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys); i++) forget(PyList_GET_ITEM(keys, i), TUPLE_DEPTH);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(has_special_keys_doc, "has_special_keys(container, /) -> bool\n\n"
                                   "Has a dict or set, or an instance of a subclass, keys whose hash is computed by Python code (or by a\n"
                                   "frozenset)?");

static PyObject *has_special_keys(PyObject *module, PyObject *obj)
{
    Py_ssize_t position = 0;
    PyObject *key, *value;
    int special = 0;
    if (PyDict_Check(obj)) {
        while (!special && PyDict_Next(obj, &position, &key, &value)) special = has_python_hash(key, TUPLE_DEPTH);
        return PyBool_FromLong(special);
    }
    if (need_set(obj)) return NULL;
    PySetObject *so = (PySetObject *)obj;
    for (Py_ssize_t i = 0; i <= so->mask && !special; i++)
        special = so->table[i].key && so->table[i].key != set_dummy && has_python_hash(so->table[i].key, TUPLE_DEPTH);
    return PyBool_FromLong(special);
}

PyDoc_STRVAR(new_frozenset_doc, "new_frozenset() -> an empty frozenset of its own, to be filled by restore()");

static PyObject *new_frozenset(PyObject *module, PyObject *unused)
{
    return PyFrozenSet_New(NULL);
}

static PyMethodDef methods[] = {
    {"forget_hashes", forget_hashes, METH_O, forget_hashes_doc},
    {"has_special_keys", has_special_keys, METH_O, has_special_keys_doc},
    {"layout", layout, METH_O, layout_doc},
    {"restore", restore, METH_VARARGS, restore_doc},
    {"new_frozenset", new_frozenset, METH_NOARGS, new_frozenset_doc},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.image.lowlevel._lookup",
    .m_doc = "Persistent ids by address; the layout of sets.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__lookup(void)
{
    set_dummy = find_set_dummy();
    if (PyErr_Occurred()) return NULL;
    const char *misfit = !set_dummy ? "the table of a set" : !dict_state_fits() ? "the version of a dict" : "";
    if (PyType_Ready(&FinderType) || PyType_Ready(&ResolverType)) return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module && (PyModule_AddObjectRef(module, "Finder", (PyObject *)&FinderType) ||
                   PyModule_AddObjectRef(module, "Resolver", (PyObject *)&ResolverType) ||
                   PyModule_AddStringConstant(module, "MISFIT", misfit) || add_module_searches(module) ||
                   add_comparisons(module)))
        Py_CLEAR(module);
    return module;
}
