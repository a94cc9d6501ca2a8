/* Pickling of small objects without the module pickle: see small_pickle.h.

   The writer makes exactly the bytes of pickle's protocol 5: one frame unless the pickle is very short; every str, bytes, tuple, list
   and dict is memoized in pickle's order; an object that comes again is taken from the memo.  The reader knows only the opcodes that
   the writer uses.  It gives up on any other opcode, and on a pickle that is damaged, so that the module pickle loads it or raises.
   No code of the program runs in the writer or the reader, because all objects are of exactly these built-in types. */

#define PY_SSIZE_T_CLEAN
#include "small_pickle.h"
#include <stdint.h>
#include <string.h>

/* Limits of the pickles that are made and read here: entries of the memo, depth, items of one list or dict, and the reader's stack of
   objects and of marks. */
#define MEMO_MOST 32
#define DEPTH_MOST 6
#define ITEMS_MOST 100
#define STACK_MOST 256
#define MARKS_MOST 16

/* A pickle that is being written.  The memo has the objects that pickle memoizes, in pickle's order.  It is small, so it is searched
   linearly. */
typedef struct {
    unsigned char *at, *end;
    PyObject *memo[MEMO_MOST];
    int memos;
} Writer;

static int write_object(Writer *to, PyObject *object, int depth);

static inline int write_bytes(Writer *to, const void *data, size_t size)
{
    if ((size_t)(to->end - to->at) < size) return -1;
    memcpy(to->at, data, size);
    to->at += size;
    return 0;
}

static inline int write_byte(Writer *to, int byte)
{
    if (to->at == to->end) return -1;
    *to->at++ = (unsigned char)byte;
    return 0;
}

static inline int memoize(Writer *to, PyObject *object)
{
    if (to->memos == MEMO_MOST) return -1;
    to->memo[to->memos++] = object;
    return write_byte(to, 0x94);
}

/* The index of an object in the memo, or -1. */
static inline int remembered(Writer *to, PyObject *object)
{
    for (int i = 0; i < to->memos; i++)
        if (to->memo[i] == object) return i;
    return -1;
}

static int write_int(Writer *to, PyObject *object)
{
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    unsigned char piece[10];
    if (overflow) return -1;
    int bytes, head = 1;
    if (value >= INT32_MIN && value <= INT32_MAX) {
        bytes = value >= 0 && value < 256 ? 1 : value >= 0 && value < 65536 ? 2 : 4;
        piece[0] = bytes == 1 ? 'K' : bytes == 2 ? 'M' : 'J';
    } else {
        bytes = 5;
        while (bytes < 8 && value >> (8 * bytes - 1) != 0 && value >> (8 * bytes - 1) != -1) bytes++;
        piece[0] = 0x8a;
        piece[1] = (unsigned char)bytes;
        head = 2;
    }
    for (int i = 0; i < bytes; i++) piece[head + i] = (unsigned char)((unsigned long long)value >> 8 * i);
    return write_bytes(to, piece, (size_t)(head + bytes));
}

static int write_float(Writer *to, PyObject *object)
{
    uint64_t bits;
    double value = PyFloat_AS_DOUBLE(object);
    unsigned char piece[9] = {'G'};
    memcpy(&bits, &value, 8);
    for (int i = 0; i < 8; i++) piece[1 + i] = (unsigned char)(bits >> 8 * (7 - i));
    return write_bytes(to, piece, 9);
}

static int write_text(Writer *to, PyObject *object, int opcode, const void *text, Py_ssize_t length)
{
    unsigned char head[2] = {(unsigned char)opcode, (unsigned char)length};
    if (length > 255 || write_bytes(to, head, 2) || write_bytes(to, text, (size_t)length)) return -1;
    return memoize(to, object);
}

static int write_tuple(Writer *to, PyObject *object, int depth)
{
    Py_ssize_t count = PyTuple_GET_SIZE(object);
    if (!count) return write_byte(to, ')');
    if (count > 3 && write_byte(to, '(')) return -1;
    for (Py_ssize_t i = 0; i < count; i++)
        if (write_object(to, PyTuple_GET_ITEM(object, i), depth)) return -1;
    if (remembered(to, object) >= 0) return -1; /* the tuple contains itself, through a list or a dict */
    if (write_byte(to, count == 1 ? 0x85 : count == 2 ? 0x86 : count == 3 ? 0x87 : 't')) return -1;
    return memoize(to, object);
}

static int write_list(Writer *to, PyObject *object, int depth)
{
    Py_ssize_t count = PyList_GET_SIZE(object);
    if (count > ITEMS_MOST || write_byte(to, ']') || memoize(to, object)) return -1;
    if (!count) return 0;
    if (count > 1 && write_byte(to, '(')) return -1;
    for (Py_ssize_t i = 0; i < count; i++)
        if (write_object(to, PyList_GET_ITEM(object, i), depth)) return -1;
    return write_byte(to, count == 1 ? 'a' : 'e');
}

static int write_dict(Writer *to, PyObject *object, int depth)
{
    Py_ssize_t count = PyDict_GET_SIZE(object), at = 0;
    PyObject *key, *value;
    if (count > ITEMS_MOST || write_byte(to, '}') || memoize(to, object)) return -1;
    if (!count) return 0;
    if (count > 1 && write_byte(to, '(')) return -1;
    while (PyDict_Next(object, &at, &key, &value))
        if (write_object(to, key, depth) || write_object(to, value, depth)) return -1;
    return write_byte(to, count == 1 ? 's' : 'u');
}

/* Writes an object.  -1: the module pickle has to do it, because a type is not supported or a limit is exceeded.  No code of the
   program runs in here. */
static int write_object(Writer *to, PyObject *object, int depth)
{
    PyTypeObject *type = Py_TYPE(object);
    if (type == &PyLong_Type) return write_int(to, object);
    if (type == &PyFloat_Type) return write_float(to, object);
    if (object == Py_None) return write_byte(to, 'N');
    if (type == &PyBool_Type) return write_byte(to, object == Py_True ? 0x88 : 0x89);
    int known_as = remembered(to, object);
    if (known_as >= 0) return write_byte(to, 'h') || write_byte(to, known_as) ? -1 : 0;
    if (type == &PyUnicode_Type) {
        if (!PyUnicode_IS_COMPACT_ASCII(object)) return -1;
        return write_text(to, object, 0x8c, PyUnicode_1BYTE_DATA(object), PyUnicode_GET_LENGTH(object));
    }
    if (type == &PyBytes_Type) return write_text(to, object, 'C', PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object));
    if (depth == DEPTH_MOST) return -1;
    if (type == &PyTuple_Type) return write_tuple(to, object, depth + 1);
    if (type == &PyDict_Type) return write_dict(to, object, depth + 1);
    if (type == &PyList_Type) return write_list(to, object, depth + 1);
    return -1;
}

/* See small_pickle.h. */
size_t small_pickle(PyObject *object, unsigned char *out, unsigned char **start)
{
    Writer to;
    to.at = out + 11; /* leaves room for the opcodes PROTO and FRAME */
    to.end = out + PICKLE_MOST;
    to.memos = 0;
    if (write_object(&to, object, 0) || write_byte(&to, '.')) return 0;
    size_t size = (size_t)(to.at - out - 11);
    unsigned char *at = out + 9;
    if (size >= 4) { /* pickle writes no FRAME around less than 4 bytes */
        at = out;
        out[2] = 0x95;
        for (int i = 0; i < 8; i++) out[3 + i] = (unsigned char)((uint64_t)size >> 8 * i);
    }
    at[0] = 0x80;
    at[1] = 5;
    *start = at;
    return (size_t)(to.at - at);
}

/* A pickle that is being read.  All references are owned. */
typedef struct {
    const unsigned char *at, *end;
    PyObject *stack[STACK_MOST], *memo[MEMO_MOST];
    int size, memos, marks, mark[MARKS_MOST];
} Reader;

static inline int fence(Reader *from) { return from->marks ? from->mark[from->marks - 1] : 0; }

/* Pushes an object and steals its reference. */
static inline int push(Reader *from, PyObject *object)
{
    if (!object) return -1;
    if (from->size == STACK_MOST) {
        Py_DECREF(object);
        return -1;
    }
    from->stack[from->size++] = object;
    return 0;
}

/* The next `count` bytes, or NULL. */
static inline const unsigned char *next(Reader *from, Py_ssize_t count)
{
    if (from->end - from->at < count) return NULL;
    const unsigned char *found = from->at;
    from->at += count;
    return found;
}

static int read_int(Reader *from, Py_ssize_t bytes, int is_signed)
{
    const unsigned char *piece = next(from, bytes);
    if (!piece) return -1;
    uint64_t bits = 0;
    for (Py_ssize_t i = 0; i < bytes; i++) bits |= (uint64_t)piece[i] << 8 * i;
    if (is_signed && bytes && bytes < 8 && piece[bytes - 1] & 0x80) bits |= ~(uint64_t)0 << 8 * bytes;
    return push(from, PyLong_FromLongLong((long long)bits));
}

static int read_float(Reader *from)
{
    const unsigned char *piece = next(from, 8);
    uint64_t bits = 0;
    double value;
    if (!piece) return -1;
    for (int i = 0; i < 8; i++) bits = bits << 8 | piece[i];
    memcpy(&value, &bits, 8);
    return push(from, PyFloat_FromDouble(value));
}

static int read_text(Reader *from, int is_str)
{
    const unsigned char *length = next(from, 1), *text = length ? next(from, *length) : NULL;
    if (!text) return -1;
    if (!is_str) return push(from, PyBytes_FromStringAndSize((const char *)text, *length));
    for (int i = 0; i < *length; i++)
        if (text[i] & 0x80) return -1;
    return push(from, PyUnicode_DecodeASCII((const char *)text, *length, NULL));
}

static int read_tuple(Reader *from, int count)
{
    if (from->size - fence(from) < count) return -1;
    PyObject *made = PyTuple_New(count);
    if (!made) return -1;
    from->size -= count;
    for (int i = 0; i < count; i++) PyTuple_SET_ITEM(made, i, from->stack[from->size + i]);
    return push(from, made);
}

/* Removes the last mark and returns the number of objects above it.  -1: there is no mark, or fewer than `below`
   objects are between it and the mark before. */
static int above_mark(Reader *from, int below)
{
    if (!from->marks) return -1;
    int count = from->size - from->mark[--from->marks];
    return from->mark[from->marks] - fence(from) < below ? -1 : count;
}

static int read_items(Reader *from, int count)
{
    if (count < 0 || from->size - fence(from) < count + 1) return -1;
    PyObject *list = from->stack[from->size - count - 1];
    if (!PyList_CheckExact(list)) return -1;
    for (int i = from->size - count; i < from->size; i++)
        if (PyList_Append(list, from->stack[i])) return -1;
    while (count--) Py_DECREF(from->stack[--from->size]);
    return 0;
}

static int read_pairs(Reader *from, int count)
{
    if (count < 0 || count % 2 || from->size - fence(from) < count + 1) return -1;
    PyObject *dict = from->stack[from->size - count - 1];
    if (!PyDict_CheckExact(dict)) return -1;
    for (int i = from->size - count; i < from->size; i += 2)
        if (PyDict_SetItem(dict, from->stack[i], from->stack[i + 1])) return -1;
    while (count--) Py_DECREF(from->stack[--from->size]);
    return 0;
}

/* Runs one opcode.  -1: the writer does not use this opcode, or not in this order. */
static int read_opcode(Reader *from, int opcode)
{
    const unsigned char *piece;
    switch (opcode) {
    case 'K': return read_int(from, 1, 0);
    case 'M': return read_int(from, 2, 0);
    case 'J': return read_int(from, 4, 1);
    case 0x8a: piece = next(from, 1); return !piece || *piece > 8 ? -1 : read_int(from, *piece, 1);
    case 'G': return read_float(from);
    case 0x8c: return read_text(from, 1);
    case 'C': return read_text(from, 0);
    case 'N': return push(from, Py_NewRef(Py_None));
    case 0x88: return push(from, Py_NewRef(Py_True));
    case 0x89: return push(from, Py_NewRef(Py_False));
    case 0x94:
        if (from->size - fence(from) < 1 || from->memos == MEMO_MOST) return -1;
        from->memo[from->memos++] = Py_NewRef(from->stack[from->size - 1]);
        return 0;
    case 'h':
        piece = next(from, 1);
        return !piece || *piece >= from->memos ? -1 : push(from, Py_NewRef(from->memo[*piece]));
    case '(':
        if (from->marks == MARKS_MOST) return -1;
        from->mark[from->marks++] = from->size;
        return 0;
    case ')': return push(from, PyTuple_New(0));
    case 0x85: return read_tuple(from, 1);
    case 0x86: return read_tuple(from, 2);
    case 0x87: return read_tuple(from, 3);
    case 't': {
        int count = above_mark(from, 0);
        return count < 0 ? -1 : read_tuple(from, count);
    }
    case ']': return push(from, PyList_New(0));
    case '}': return push(from, PyDict_New());
    case 'a': return read_items(from, 1);
    case 'e': return read_items(from, above_mark(from, 1));
    case 's': return read_pairs(from, 2);
    case 'u': return read_pairs(from, above_mark(from, 1));
    default: return -1;
    }
}

/* See small_pickle.h. */
PyObject *small_unpickle(const unsigned char *at, Py_ssize_t size)
{
    if (size < 4 || size > PICKLE_MOST || at[0] != 0x80 || at[1] != 5 || at[size - 1] != '.') return NULL;
    Reader from;
    from.at = at + 2;
    from.end = at + size - 1;
    from.size = from.memos = from.marks = 0;
    if (at[2] == 0x95) {
        if (size < 15 || at[3] != (unsigned char)(size - 11) || at[4] != (unsigned char)((size - 11) >> 8) ||
            memcmp(at + 5, "\0\0\0\0\0\0", 6))
            return NULL;
        from.at += 9;
    }
    PyObject *found = NULL;
    while (from.at < from.end)
        if (read_opcode(&from, *from.at++)) goto done;
    if (from.size == 1 && !from.marks) found = from.stack[--from.size];
done:
    while (from.size) Py_DECREF(from.stack[--from.size]);
    while (from.memos) Py_DECREF(from.memo[--from.memos]);
    if (!found) PyErr_Clear();
    return found;
}
