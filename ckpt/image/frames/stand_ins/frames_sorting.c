/* The loop of frames_folds.c that sorts: sorted() and list.sort(). It takes the items, calls the key with each, and has the interpreter
 * sort them by the keys that it has.
 *
 * That calls no key, but it may compare in Python. Where all keys do, it gets a Compared for each of them, which compares as the key
 * does, and notes the answer: one bit. In another process the interpreter sorts the same keys again, and each comparison that
 * was over is answered by its bit; the first one that was not is made. So no code of the program runs twice, and what the
 * interpreter's algorithm keeps need not be known.
 *
 * The list that list.sort() sorts looks empty while it is sorted; its items are in `result` meanwhile.
 *
 * This file is long because keys, comparisons and the list share one state (Sorting).
 */
#include "folds.h"

#if FRAMES_SUPPORTED

#include "../../lowlevel/private_api.h"

#include <stddef.h>

typedef struct {
    PyObject ob_base;
    PyObject *key; /* borrowed: `keys` has it */
    Fold *fold;
} Compared;

struct Sorting {
    PyObject **keys;         /* of the first items; NULL: the items are the keys */
    Py_ssize_t count, place; /* the number of keys; of those that the interpreter's sort has got */
    PyObject *target;        /* SORT: the list */
    PyObject *items;         /* while the interpreter sorts: in their order of before, or NULL: no image is taken */
    Compared *compared;      /* one for each key, or NULL: the keys compare themselves */
    int is_one_type;         /* are all keys of one type? */
    int is_changed;          /* SORT: had the list been changed when an image was taken? */
    unsigned char *answers;
    Py_ssize_t asked, known, room; /* comparisons that have been made; that have an answer; bytes of answers */
    Py_ssize_t left, right;  /* the keys that are compared, or are to be when all answers have been given */
};

PyTypeObject *key_of_comparison;
FastKeywordsCall sort_before;

/* Is an object compared by code of Python, and by nothing else? */
int compares_in_python(PyObject *item)
{
    static PyObject *name;
    PyTypeObject *type = Py_TYPE(item);
    if (type == key_of_comparison)
        return 1;
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || (name == NULL && (name = PyUnicode_InternFromString("__lt__")) == NULL))
        return 0;
    PyObject *found = type_lookup(type, name);
    return found != NULL && PyFunction_Check(found);
}

/* ------------------------------------------------------------------ comparisons */

static int answer_of(Sorting *sorting, Py_ssize_t i) { return sorting->answers[i / 8] >> i % 8 & 1; }

static int note_answer(Sorting *sorting, int answer)
{
    if (sorting->asked / 8 >= sorting->room) {
        Py_ssize_t room = sorting->room ? 2 * sorting->room : 64;
        unsigned char *answers = PyMem_Realloc(sorting->answers, room);
        if (answers == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memset(answers + sorting->room, 0, room - sorting->room);
        sorting->answers = answers;
        sorting->room = room;
    }
    if (answer)
        sorting->answers[sorting->asked / 8] |= 1 << sorting->asked % 8;
    sorting->known = ++sorting->asked;
    return 0;
}

/* left < right, as list.sort() compares them: see unsafe_object_compare() */
static int is_less(Fold *fold, PyObject *left, PyObject *right)
{
    PyObject *result = Py_NotImplemented;
    fold->phase = COMPARES;
    if (fold->sorting->is_one_type)
        result = (*Py_TYPE(left)->tp_richcompare)(left, right, Py_LT);
    int answer = -1;
    if (result == Py_NotImplemented) {
        if (fold->sorting->is_one_type) {
            Py_DECREF(result);
            fold->phase = BUSY;
        }
        answer = PyObject_RichCompareBool(left, right, Py_LT);
    } else if (result != NULL) {
        fold->phase = BUSY;
        answer = PyBool_Check(result) ? result == Py_True : PyObject_IsTrue(result);
        Py_DECREF(result);
    }
    fold->phase = BUSY;
    return answer;
}

static PyObject *compare(PyObject *a, PyObject *b, int operator)
{
    if (operator != Py_LT || Py_TYPE(a) != Py_TYPE(b))
        Py_RETURN_NOTIMPLEMENTED;
    Fold *fold = ((Compared *)a)->fold;
    Sorting *sorting = fold->sorting;
    Py_ssize_t left = (Compared *)a - sorting->compared, right = (Compared *)b - sorting->compared;
    if (sorting->asked < sorting->known)
        return PyBool_FromLong(answer_of(sorting, sorting->asked++));
    if (sorting->left >= 0 && (sorting->left != left || sorting->right != right))
        return PyErr_Format(PyExc_RuntimeError, "this sort does not go as it went before the restart");
    sorting->left = left;
    sorting->right = right;
    int answer = is_less(fold, ((Compared *)a)->key, ((Compared *)b)->key);
    sorting->left = sorting->right = -1;
    if (answer < 0 || note_answer(sorting, answer) < 0)
        return NULL;
    return PyBool_FromLong(answer);
}

static PyTypeObject ComparedType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.image.frames._frames.Compared",
    .tp_basicsize = sizeof(Compared),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_richcompare = compare,
};

/* A new reference to a key that is compared in COMPARES; side: 0, the left one. */
PyObject *sorting_compared(Fold *self, int side)
{
    Py_ssize_t place = side ? self->sorting->right : self->sorting->left;
    return place < 0 ? NULL : Py_NewRef(self->sorting->compared[place].key);
}

/* ------------------------------------------------------------------ keys */

/* Called by list.sort() with the items in their order: the key of each, which is handed over. */
typedef struct {
    PyObject ob_base;
    vectorcallfunc call;
    Fold *fold;
} KeyFeeder;

static PyObject *next_key(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Sorting *sorting = ((KeyFeeder *)self)->fold->sorting;
    if (sorting->place < sorting->count) {
        Py_ssize_t place = sorting->place++;
        return sorting->compared ? Py_NewRef((PyObject *)&sorting->compared[place]) : sorting->keys[place];
    }
    PyErr_SetString(PyExc_RuntimeError, "there are no more keys");
    return NULL;
}

static PyTypeObject KeyFeederType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.image.frames._frames.KeyFeeder",
    .tp_basicsize = sizeof(KeyFeeder),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(KeyFeeder, call),
    .tp_call = PyVectorcall_Call,
};

/* If all keys compare in Python, a Compared for each. */
static int prepare_comparisons(Fold *self)
{
    Sorting *sorting = self->sorting;
    PyTypeObject *last = NULL;
    sorting->is_one_type = 1;
    for (Py_ssize_t i = 0; i < sorting->count; i++) {
        if (Py_TYPE(sorting->keys[i]) == last)
            continue;
        if (!compares_in_python(sorting->keys[i]))
            return 0;
        sorting->is_one_type = sorting->is_one_type && last == NULL;
        last = Py_TYPE(sorting->keys[i]);
    }
    if (last == NULL)
        return 0;
    sorting->items = PyList_GetSlice(self->result, 0, sorting->count);
    sorting->compared = PyMem_New(Compared, sorting->count);
    if (sorting->items == NULL || sorting->compared == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < sorting->count; i++) {
        PyObject_Init((PyObject *)&sorting->compared[i], &ComparedType); /* one reference is ours: it is never deallocated */
        sorting->compared[i].key = sorting->keys[i];
        sorting->compared[i].fold = self;
    }
    self->mode = SORTS;
    return 0;
}

static int sort_by_keys(Fold *self)
{
    static PyObject *names;
    if (names == NULL && (PyType_Ready(&KeyFeederType) < 0 || PyType_Ready(&ComparedType) < 0
                          || (names = Py_BuildValue("(ss)", "key", "reverse")) == NULL))
        return -1;
    if (prepare_comparisons(self) < 0)
        return -1;
    KeyFeeder *feeder = PyObject_New(KeyFeeder, &KeyFeederType);
    if (feeder == NULL)
        return -1;
    feeder->call = next_key;
    feeder->fold = self;
    PyObject *args[] = {(PyObject *)feeder, self->whole ? Py_True : Py_False};
    PyObject *none = sort_before(self->result, args, 0, names);
    Py_DECREF(feeder);
    Py_XDECREF(none);
    return none == NULL ? -1 : 0;
}

/* The last one first, as list.sort() does when a key has failed. */
static void release_keys(Sorting *sorting)
{
    const Py_ssize_t given = sorting->compared ? 0 : sorting->place;
    while (sorting->count > given)
        Py_DECREF(sorting->keys[--sorting->count]);
    PyMem_Free(sorting->keys);
    sorting->keys = NULL;
    sorting->count = sorting->place = 0;
}

/* Room for a key of each item; the first ones are those that a Fold of another process had. */
static int begin_keys(Fold *self)
{
    Sorting *sorting = self->sorting;
    Py_ssize_t size = PyList_GET_SIZE(self->result), has = self->value ? PyList_GET_SIZE(self->value) : 0;
    if ((sorting->keys = PyMem_New(PyObject *, Py_MAX(size, has))) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; sorting->count < has; sorting->count++)
        sorting->keys[sorting->count] = Py_NewRef(PyList_GET_ITEM(self->value, sorting->count));
    Py_CLEAR(self->value);
    return 0;
}

static int call_keys(Fold *self)
{
    Sorting *sorting = self->sorting;
    const Py_ssize_t size = PyList_GET_SIZE(self->result);
    while (sorting->count < size && sorting->count < PyList_GET_SIZE(self->result)) {
        PyObject *item = Py_NewRef(PyList_GET_ITEM(self->result, sorting->count)), *key = item;
        if (self->function != NULL) {
            self->phase = CALLS;
            key = PyObject_CallOneArg(self->function, item);
            self->phase = BUSY;
            Py_DECREF(item);
            if (key == NULL)
                return -1;
        }
        sorting->keys[sorting->count++] = key;
    }
    return 0;
}

/* ------------------------------------------------------------------ the list that is sorted in place */

/* While it is sorted, it looks as list.sort() makes it look; any change of it sets `allocated`. */
static void seem_empty(Sorting *sorting)
{
    PyListObject *list = (PyListObject *)sorting->target;
    PyObject **items = list->ob_item;
    if (sorting->is_changed || Py_SIZE(list))
        return;
    list->ob_item = NULL;
    list->allocated = -1;
    PyMem_Free(items);
}

static int is_changed(Sorting *sorting) { return sorting->is_changed || ((PyListObject *)sorting->target)->allocated != -1; }

static void swap_content(PyListObject *a, PyListObject *b)
{
    PyObject **items = a->ob_item;
    Py_ssize_t size = Py_SIZE(a), allocated = a->allocated;
    a->ob_item = b->ob_item;
    a->allocated = b->allocated;
    Py_SET_SIZE(a, Py_SIZE(b));
    b->ob_item = items;
    b->allocated = allocated;
    Py_SET_SIZE(b, size);
}

int sorting_begin(Fold *self, PyObject *items)
{
    self->sorting = PyMem_Calloc(1, sizeof(Sorting));
    self->result = items;
    if (self->sorting == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->sorting->left = self->sorting->right = -1;
    return 0;
}

int sorting_begin_in_place(Fold *self, PyObject *list)
{
    PyObject *items = PyList_New(0);
    if (items == NULL || sorting_begin(self, items) < 0)
        return -1;
    swap_content((PyListObject *)items, (PyListObject *)list);
    self->sorting->target = Py_NewRef(list);
    seem_empty(self->sorting);
    return 0;
}

/* The items are in the list again; what it had got meanwhile goes. */
static PyObject *give_back(Fold *self, int failed)
{
    PyObject *target = self->sorting->target;
    if (target == NULL)
        return failed ? NULL : Py_NewRef(self->result);
    if (is_changed(self->sorting) && !failed) {
        PyErr_SetString(PyExc_ValueError, "list modified during sort");
        failed = 1;
    }
    if (((PyListObject *)target)->allocated == -1)
        ((PyListObject *)target)->allocated = 0;
    swap_content((PyListObject *)target, (PyListObject *)self->result);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* ------------------------------------------------------------------ its state, for another process */

/* What a Fold is made of, beside what all have: given[1]: (list, is it changed?, answers, their number, left, right) or NULL;
 * given[2]: items; given[3]: a list of keys or NULL. New references. */
int sorting_traits(Fold *self, PyObject **given)
{
    Sorting *sorting = self->sorting;
    PyObject *keys = sorting->keys ? PyList_New(sorting->count) : NULL;
    for (Py_ssize_t i = 0; keys != NULL && i < sorting->count; i++)
        PyList_SET_ITEM(keys, i, Py_NewRef(sorting->keys[i]));
    given[3] = keys ? keys : Py_NewRef(self->value ? self->value : null_object);
    given[2] = Py_NewRef(sorting->items ? sorting->items : self->result);
    given[1] = Py_BuildValue("Oiy#nnn", sorting->target ? sorting->target : null_object, sorting->target ? is_changed(sorting) : 0,
                             sorting->answers ? (char *)sorting->answers : "", (sorting->known + 7) / 8, sorting->known,
                             sorting->left, sorting->right);
    return given[1] == NULL || (sorting->keys != NULL && keys == NULL) ? -1 : 0;
}

/* The other way round. */
static int read_traits(Fold *self)
{
    Sorting *sorting = self->sorting;
    PyObject *target, *traits = self->otherwise;
    const char *answers;
    Py_ssize_t size;
    if (traits == NULL)
        return 0;
    if (!PyTuple_Check(traits)
        || !PyArg_ParseTuple(traits, "Oiy#nnn", &target, &sorting->is_changed, &answers, &size, &sorting->known, &sorting->left,
                             &sorting->right)
        || size != (sorting->known + 7) / 8 || (target != null_object && !PyList_Check(target))) {
        PyErr_SetString(PyExc_ValueError, "this is no state of a sort");
        return -1;
    }
    sorting->answers = PyMem_Malloc(size + 1);
    if (sorting->answers == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(sorting->answers, answers, size);
    sorting->room = size;
    if (target != null_object) {
        sorting->target = Py_NewRef(target);
        seem_empty(sorting);
    }
    Py_CLEAR(self->otherwise);
    return 0;
}

PyObject *run_sorted(Fold *self)
{
    PyObject *item;
    if (self->sorting == NULL) { /* of another process */
        PyObject *items = self->result;
        if (items == NULL || !PyList_CheckExact(items) || (self->value != NULL && !PyList_CheckExact(self->value)))
            return PyErr_Format(PyExc_TypeError, "this is no state of a sort");
        if (sorting_begin(self, items) < 0 || read_traits(self) < 0)
            return NULL;
    }
    while (self->mode == COLLECTS && (item = fold_next_item(self)) != NULL) {
        int failed = PyList_Append(self->result, item);
        Py_DECREF(item);
        if (failed)
            return NULL;
    }
    if (PyErr_Occurred())
        return NULL;
    if (self->mode == COLLECTS)
        self->mode = KEYS;
    int failed = begin_keys(self) < 0 || call_keys(self) < 0;
    if (!failed)
        failed = sort_by_keys(self) < 0;
    if (failed && self->sorting->compared == NULL)
        release_keys(self->sorting);
    return give_back(self, failed);
}

void sorting_end(Fold *self)
{
    Sorting *sorting = self->sorting;
    if (sorting == NULL)
        return;
    release_keys(sorting);
    Py_CLEAR(sorting->target);
    Py_CLEAR(sorting->items);
    PyMem_Free(sorting->compared);
    PyMem_Free(sorting->answers);
    PyMem_Free(sorting);
    self->sorting = NULL;
}

#endif /* FRAMES_SUPPORTED */
