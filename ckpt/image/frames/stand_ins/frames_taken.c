/* Iterators from which C code takes items that it keeps where nobody can read them: `a, b = generator`, and functions that
 * depend on the items alone (math.prod, math.fsum, dict.fromkeys, numpy.fromiter).
 *
 * Such code gets a Taken instead of the iterator, which asks the iterator and notes the items. In another process the
 * instruction is repeated with a copy of the Taken: it gives the same items again, and then asks the iterator.
 *
 * follow_unpacking() has iterators of the interpreter return a Taken where an instruction unpacks them; follow_taking() puts
 * functions of this module into the place of those functions. Items that such a function works with, rather than stores, must be
 * numbers, texts or bytes: it works with them again, and no code of the program may run twice. A Taken that somebody keeps, and
 * asks elsewhere, notes nothing any more.
 */
#include "folds.h"

#if FRAMES_SUPPORTED

#include <opcode.h>

enum { MOST_ITEMS = 4000000 }; /* noted of one call of a function */

typedef struct Taken {
    PyObject ob_base;
    PyObject *iterator;
    PyObject *items;     /* list; NULL: they are not noted any more, and no image is taken */
    Py_ssize_t place;    /* of the next one that is given again */
    Frame *frame;        /* that executes … */
    int at;              /* … the instruction at this index, which takes items; -1: it has not begun */
    int is_for_function; /* does the instruction call a function, which works with the items? */
    int asks;            /* is the iterator being asked? */
    uint64_t operands;   /* bit n: the iterator is entry n of the frame's evaluation stack, or is known to be what is taken from */
    struct Taken *below, *above;
} Taken;
static Taken *newest;

/* A number, a text, bytes: of a type made in C, and with no other objects in it. Arrays may change. */
static int is_plain_item(PyObject *item)
{
    PyTypeObject *type = Py_TYPE(item);
    if (type->tp_flags & Py_TPFLAGS_HEAPTYPE)
        return 0;
    if (PyLong_Check(item) || PyFloat_Check(item) || PyComplex_Check(item) || PyUnicode_Check(item) || PyBytes_Check(item) || item == Py_None)
        return 1;
    return strncmp(type->tp_name, "numpy.", 6) == 0 && type->tp_as_number != NULL && type->tp_as_sequence == NULL;
}

static PyObject *taken_make(PyTypeObject *type, PyObject *iterator, PyObject *items)
{
    Taken *self = PyObject_New(Taken, type);
    if (self == NULL)
        return NULL;
    memset((char *)self + sizeof(PyObject), 0, sizeof(Taken) - sizeof(PyObject));
    self->items = items ? Py_NewRef(items) : PyList_New(0);
    if (self->items == NULL) {
        PyObject_Free(self);
        return NULL;
    }
    self->iterator = Py_NewRef(iterator);
    self->at = -1;
    self->below = newest;
    if (newest != NULL)
        newest->above = self;
    newest = self;
    return (PyObject *)self;
}

static void taken_dealloc(PyObject *object)
{
    Taken *self = (Taken *)object;
    if (self->above != NULL)
        self->above->below = self->below;
    else
        newest = self->below;
    if (self->below != NULL)
        self->below->above = self->above;
    Py_XDECREF(self->items);
    Py_DECREF(self->iterator);
    PyObject_Free(self);
}

/* The instruction that takes items is the one that asks first. */
static int is_at_its_place(Taken *self)
{
    Frame *f = thread_current_frame(PyThreadState_Get());
    if (f != NULL && self->at < 0) {
        self->frame = f;
        self->at = frame_executes(f);
    }
    return f != NULL && f == self->frame && frame_executes(f) == self->at;
}

static PyObject *taken_next(PyObject *object)
{
    Taken *self = (Taken *)object;
    if (!is_at_its_place(self))
        Py_CLEAR(self->items);
    if (self->items != NULL && self->place < PyList_GET_SIZE(self->items))
        return Py_NewRef(PyList_GET_ITEM(self->items, self->place++));
    int was = self->asks;
    self->asks = 1;
    PyObject *item = (*Py_TYPE(self->iterator)->tp_iternext)(self->iterator);
    self->asks = was;
    if (item == NULL || self->items == NULL)
        return item;
    int is_noted = !self->is_for_function || (is_plain_item(item) && self->place < MOST_ITEMS);
    if (was || !is_noted || PyList_Append(self->items, item) < 0) {
        PyErr_Clear();
        Py_CLEAR(self->items);
    }
    self->place++;
    return item;
}

static PyObject *taken_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *iterator, *items, *made;
    int is_for_function;
    if (!PyArg_ParseTuple(args, "OO!p:Taken", &iterator, &PyList_Type, &items, &is_for_function))
        return NULL;
    if (!PyIter_Check(iterator))
        return PyErr_Format(PyExc_TypeError, "an iterator is needed, not %R", iterator);
    if ((made = taken_make(type, iterator, items)) != NULL) {
        ((Taken *)made)->is_for_function = is_for_function;
        ((Taken *)made)->operands = ~(uint64_t)0;
    }
    return made;
}

static PyObject *taken_reduce(PyObject *object, PyObject *unused)
{
    Taken *self = (Taken *)object;
    return Py_BuildValue("O(OOi)", Py_TYPE(self), self->iterator, self->items ? self->items : Py_None, self->is_for_function);
}

static PyObject *taken_is_of(PyObject *object, PyObject *index)
{
    long entry = PyLong_AsLong(index);
    if (entry == -1 && PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(entry >= 0 && entry < 64 && ((Taken *)object)->operands >> entry & 1);
}

static PyMethodDef taken_methods[] = {
    {"is_of", taken_is_of, METH_O, "Is what it takes from this entry of the evaluation stack?"},
    {"__reduce__", taken_reduce, METH_NOARGS, "its class, and (iterator, items, is_for_function); items: None: they are not known"},
    {NULL, NULL, 0, NULL},
};

PyTypeObject TakenType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.image.frames._frames.Taken",
    .tp_basicsize = sizeof(Taken),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Taken(iterator, items, is_for_function)\n\nAn iterator that gives these items again, and then those of the iterator.",
    .tp_new = taken_new,
    .tp_dealloc = taken_dealloc,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = taken_next,
    .tp_methods = taken_methods,
};

PyDoc_STRVAR(taken_of_doc,
"taken_of(address, /) -> list\n\nThe Takens that the instruction of this frame, listed by walk(), is asking for an item.");
static PyObject *taken_of(PyObject *module, PyObject *address)
{
    Frame *f = PyLong_AsVoidPtr(address);
    PyObject *found = PyErr_Occurred() ? NULL : PyList_New(0);
    for (Taken *each = newest; found != NULL && each != NULL; each = each->below)
        if (each->asks && each->frame == f && PyList_Append(found, (PyObject *)each) < 0)
            Py_CLEAR(found);
    return found;
}

/* ------------------------------------------------------------------ unpacking */

/* Does the frame execute an instruction that unpacks an iterable? */
static int unpacks(Frame *f)
{
    PyCodeObject *code = frame_code(f);
    if (!PyCode_Check(code) || frame_executes(f) < 0)
        return 0;
    switch (frame_operation(f, code)) {
    case UNPACK_SEQUENCE:
    case UNPACK_SEQUENCE_LIST:
    case UNPACK_SEQUENCE_TUPLE:
    case UNPACK_SEQUENCE_TWO_TUPLE:
#ifdef UNPACK_SEQUENCE_ADAPTIVE
    case UNPACK_SEQUENCE_ADAPTIVE:
#endif
    case UNPACK_EX: return 1;
    default: return 0;
    }
}

/* An instruction may ask for an iterator twice: `a, *b = object` makes a list of what is left. And the operand may be of a type in C
 * that asks another iterator. So it is noted where on the stack the iterator is. */
static PyObject *taken_from_stack(PyObject *iterator, Frame *f)
{
    PyObject *made = taken_make(&TakenType, iterator, NULL);
    PyCodeObject *code = frame_code(f);
    for (int i = 0; made != NULL && i < Py_MIN(code->co_stacksize, 64); i++)
        if (frame_slots(f)[code->co_nlocalsplus + i] == iterator)
            ((Taken *)made)->operands |= (uint64_t)1 << i;
    return made;
}

static PyObject *iter_or_taken(PyObject *self)
{
    Frame *f = thread_current_frame(PyThreadState_Get());
    return f != NULL && unpacks(f) ? taken_from_stack(self, f) : Py_NewRef(self);
}

PyDoc_STRVAR(follow_unpacking_doc,
"follow_unpacking(types, /)\n\nFrom now on, where an iterator of one of these types of the interpreter is unpacked, its Taken is found by\n"
"taken_of().  What unpacking does not change.");
static PyObject *follow_unpacking(PyObject *module, PyObject *types)
{
    if (!PyTuple_Check(types))
        return PyErr_Format(PyExc_TypeError, "a tuple of types is needed");
    if (PyType_Ready(&TakenType) < 0)
        return NULL;
    for (Py_ssize_t i = 0; frames_fit && i < PyTuple_GET_SIZE(types); i++) {
        PyTypeObject *type = (PyTypeObject *)PyTuple_GET_ITEM(types, i);
        if (PyType_Check(type) && type->tp_iter == PyObject_SelfIter && type->tp_iternext != NULL)
            type->tp_iter = iter_or_taken;
    }
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ functions that depend on the items alone */

/* An iterator that may run Python code, and of which nothing but iteration is asked. */
static int is_followed(PyObject *iterable)
{
    PyTypeObject *type = Py_TYPE(iterable);
    if (type->tp_iternext == NULL || (type->tp_iter != PyObject_SelfIter && type->tp_iter != iter_or_taken))
        return 0;
    return type != &PyListIter_Type && type != &PyTupleIter_Type && type != &PyRangeIter_Type && type != &PyUnicodeIter_Type
           && type != &PySetIter_Type && type != &PyDictIterKey_Type && type != &PyDictIterValue_Type && type != &TakenType;
}

/* A new reference to what a function gets in the place of its argument. */
static PyObject *given(PyObject *iterable)
{
    if (!is_followed(iterable))
        return Py_NewRef(iterable);
    PyObject *made = taken_make(&TakenType, iterable, NULL);
    if (made != NULL)
        ((Taken *)made)->is_for_function = 1;
    return made;
}

enum { PROD, FROMKEYS, FROMITER, FSUM, FUNCTIONS };
static PyCFunction functions_before[FUNCTIONS];
typedef PyObject *(*ArrayCall)(PyObject *, PyObject *const *, Py_ssize_t);
typedef PyObject *(*ArrayKeywordsCall)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
#define BEFORE(type, which) ((type)(void (*)(void))functions_before[which])

enum { MOST_ARGUMENTS = 4 };

static PyObject *our_prod(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t all = count + (names ? PyTuple_GET_SIZE(names) : 0);
    PyObject *copy[MOST_ARGUMENTS], *result = NULL;
    if (count != 1 || all > 2 || (all == 2 && !is_plain_item(args[1])) || !is_followed(args[0]))
        return BEFORE(ArrayKeywordsCall, PROD)(module, args, count, names);
    memcpy(copy, args, all * sizeof *copy);
    if ((copy[0] = given(args[0])) != NULL)
        result = BEFORE(ArrayKeywordsCall, PROD)(module, copy, count, names);
    Py_XDECREF(copy[0]);
    return result;
}

static PyObject *our_fromkeys(PyObject *type, PyObject *const *args, Py_ssize_t count)
{
    PyObject *copy[MOST_ARGUMENTS], *result = NULL;
    if (type != (PyObject *)&PyDict_Type || count < 1 || count > 2 || !is_followed(args[0]))
        return BEFORE(ArrayCall, FROMKEYS)(type, args, count);
    memcpy(copy, args, count * sizeof *copy);
    if ((copy[0] = given(args[0])) != NULL)
        result = BEFORE(ArrayCall, FROMKEYS)(type, copy, count);
    Py_XDECREF(copy[0]);
    return result;
}

static PyObject *our_fromiter(PyObject *module, PyObject *args, PyObject *keywords)
{
    Py_ssize_t count = PyTuple_GET_SIZE(args);
    PyObject *copy, *result = NULL;
    if (count < 1 || !is_followed(PyTuple_GET_ITEM(args, 0)))
        return BEFORE(PyCFunctionWithKeywords, FROMITER)(module, args, keywords);
    if ((copy = PyTuple_New(count)) == NULL)
        return NULL;
    for (Py_ssize_t i = 1; i < count; i++)
        PyTuple_SET_ITEM(copy, i, Py_NewRef(PyTuple_GET_ITEM(args, i)));
    PyTuple_SET_ITEM(copy, 0, given(PyTuple_GET_ITEM(args, 0)));
    if (PyTuple_GET_ITEM(copy, 0) != NULL)
        result = BEFORE(PyCFunctionWithKeywords, FROMITER)(module, copy, keywords);
    Py_DECREF(copy);
    return result;
}

static PyObject *our_fsum(PyObject *module, PyObject *iterable)
{
    PyObject *copy = given(iterable), *result = copy ? functions_before[FSUM](module, copy) : NULL;
    Py_XDECREF(copy);
    return result;
}

static const struct {
    int flags;
    PyCFunction ours;
} functions[FUNCTIONS] = {
    [PROD] = {METH_FASTCALL | METH_KEYWORDS, (PyCFunction)(void (*)(void))our_prod},
    [FROMKEYS] = {METH_FASTCALL | METH_CLASS, (PyCFunction)(void (*)(void))our_fromkeys},
    [FSUM] = {METH_O, our_fsum},
    [FROMITER] = {METH_VARARGS | METH_KEYWORDS, (PyCFunction)(void (*)(void))our_fromiter},
};

PyDoc_STRVAR(follow_taking_doc,
"follow_taking(functions, /)\n\n"
"From now on, what a call of one of these functions takes from an iterator is found by taken_of().  What it returns does not change.\n"
"functions: at most math.prod, dict.fromkeys, numpy.fromiter, math.fsum, in this order; None for one that is left alone, as is one\n"
"that is called in another way than is known.");
static PyObject *follow_taking(PyObject *module, PyObject *given_functions)
{
    if (!PyTuple_Check(given_functions) || PyTuple_GET_SIZE(given_functions) > FUNCTIONS)
        return PyErr_Format(PyExc_TypeError, "a tuple of at most %d functions is needed", FUNCTIONS);
    if (PyType_Ready(&TakenType) < 0)
        return NULL;
    for (Py_ssize_t i = 0; frames_fit && i < PyTuple_GET_SIZE(given_functions); i++) {
        PyObject *function = PyTuple_GET_ITEM(given_functions, i);
        PyMethodDef *definition = PyCFunction_CheckExact(function) ? ((PyCFunctionObject *)function)->m_ml : NULL;
        if (definition == NULL || definition->ml_flags != functions[i].flags || definition->ml_meth == functions[i].ours)
            continue;
        functions_before[i] = definition->ml_meth;
        definition->ml_meth = functions[i].ours;
    }
    Py_RETURN_NONE;
}

PyMethodDef taken_functions[] = {
    {"follow_taking", follow_taking, METH_O, follow_taking_doc},
    {"follow_unpacking", follow_unpacking, METH_O, follow_unpacking_doc},
    {"taken_of", taken_of, METH_O, taken_of_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
