/* Where an undo log ends, and the MAC of its lines: what the keeper (ckpt/undo/keeping.py) and the fast path (fast_path.c) share.

       mac(key, before, text)     the MAC of a line, in hexadecimal digits; it covers the MAC of the line before,
                                  or what the keeper has in its place for the first line
       LogEnd(key, spare_bytes)   fd, mac, nbytes, reserved_bytes, is_torn

   A line is added only where space for it and for `spare_bytes` more is reserved: the keeper needs them when the disk is full. If
   writing fails, the log is torn behind its end (`is_torn`), as when the keeper itself is interrupted; then the keeper cuts it.

   Not here: what the lines say. */

#include "fast_path.h"
#include <stdint.h>
#include <structmember.h>
#include <unistd.h>

enum { LINE_BYTES = 4352, MAC_DIGITS = 32, KEY_BYTES = 16 };

/* ---- the MAC of a line: SipHash-2-4 with 128 bits (Aumasson, Bernstein: SipHash, a fast short-input PRF, 2012) ---- */

typedef struct {
    uint64_t v0, v1, v2, v3, tail;
    size_t nbytes;
} SipHash;

static uint64_t rotated(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static void sip_rounds(SipHash *at, int count)
{
    while (count--) {
        at->v0 += at->v1, at->v1 = rotated(at->v1, 13) ^ at->v0, at->v0 = rotated(at->v0, 32);
        at->v2 += at->v3, at->v3 = rotated(at->v3, 16) ^ at->v2;
        at->v0 += at->v3, at->v3 = rotated(at->v3, 21) ^ at->v0;
        at->v2 += at->v1, at->v1 = rotated(at->v1, 17) ^ at->v2, at->v2 = rotated(at->v2, 32);
    }
}

static uint64_t little_endian(const unsigned char *bytes)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

static void sip_begin(SipHash *at, const unsigned char key[KEY_BYTES])
{
    uint64_t k0 = little_endian(key), k1 = little_endian(key + 8);
    *at = (SipHash){k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee, k0 ^ 0x6c7967656e657261,
                    k1 ^ 0x7465646279746573, 0, 0};
}

static void sip_word(SipHash *at, uint64_t word)
{
    at->v3 ^= word;
    sip_rounds(at, 2);
    at->v0 ^= word;
}

static void sip_update(SipHash *at, const char *text, size_t nbytes)
{
    const unsigned char *bytes = (const unsigned char *)text;
    for (; nbytes && at->nbytes % 8; nbytes--, bytes++) {
        at->tail |= (uint64_t)*bytes << 8 * (at->nbytes % 8);
        if (++at->nbytes % 8 == 0) {
            sip_word(at, at->tail);
            at->tail = 0;
        }
    }
    for (; nbytes >= 8; nbytes -= 8, bytes += 8, at->nbytes += 8)
        sip_word(at, little_endian(bytes));
    for (; nbytes; nbytes--, bytes++, at->nbytes++)
        at->tail |= (uint64_t)*bytes << 8 * (at->nbytes % 8);
}

static void sip_end(SipHash *at, char digits[MAC_DIGITS])
{
    static const char hexadecimal[] = "0123456789abcdef";
    uint64_t halves[2];
    sip_word(at, at->tail | (uint64_t)at->nbytes << 56);
    for (int half = 0; half < 2; half++) {
        if (half)
            at->v1 ^= 0xdd;
        else
            at->v2 ^= 0xee;
        sip_rounds(at, 4);
        halves[half] = at->v0 ^ at->v1 ^ at->v2 ^ at->v3;
    }
    for (int i = 0; i < MAC_DIGITS / 2; i++) {
        unsigned char byte = (unsigned char)(halves[i / 8] >> 8 * (i % 8));
        digits[2 * i] = hexadecimal[byte >> 4];
        digits[2 * i + 1] = hexadecimal[byte & 15];
    }
}

/* The MAC of a line covers the MAC of the line before, a space, and the text. */
static void mac_of(const unsigned char key[KEY_BYTES], const char *before, size_t before_bytes, const char *text, size_t nbytes,
                   char digits[MAC_DIGITS])
{
    SipHash at;
    sip_begin(&at, key);
    sip_update(&at, before, before_bytes);
    sip_update(&at, " ", 1);
    sip_update(&at, text, nbytes);
    sip_end(&at, digits);
}

PyObject *log_mac(PyObject *module, PyObject *args)
{
    Py_buffer key;
    const char *before, *text;
    Py_ssize_t before_bytes, nbytes;
    if (!PyArg_ParseTuple(args, "y*s#y#", &key, &before, &before_bytes, &text, &nbytes))
        return NULL;
    PyObject *mac = NULL;
    char digits[MAC_DIGITS];
    if (key.len != KEY_BYTES)
        PyErr_SetString(PyExc_ValueError, "a key has 16 bytes");
    else {
        mac_of(key.buf, before, (size_t)before_bytes, text, (size_t)nbytes, digits);
        mac = PyUnicode_FromStringAndSize(digits, MAC_DIGITS);
    }
    PyBuffer_Release(&key);
    return mac;
}

/* ---- LogEnd ---- */

typedef struct {
    PyObject_HEAD
    PyObject *mac; /* str: of the last line */
    unsigned char key[KEY_BYTES];
    long long nbytes, records, reserved_bytes, spare_bytes;
    int fd;
    char is_torn;
} LogEnd;

static int end_init(LogEnd *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"key", "spare_bytes", NULL};
    Py_buffer key;
    long long spare_bytes;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*L", names, &key, &spare_bytes))
        return -1;
    int fits = key.len == KEY_BYTES;
    if (fits)
        memcpy(self->key, key.buf, KEY_BYTES);
    PyBuffer_Release(&key);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "a key has 16 bytes");
        return -1;
    }
    PyObject *mac = PyUnicode_FromString("");
    if (mac == NULL)
        return -1;
    Py_XSETREF(self->mac, mac);
    self->nbytes = self->records = self->reserved_bytes = 0;
    self->spare_bytes = spare_bytes;
    self->fd = -1;
    self->is_torn = 0;
    return 0;
}

static void end_dealloc(LogEnd *self)
{
    Py_XDECREF(self->mac);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef end_members[] = {
    {"mac", T_OBJECT_EX, offsetof(LogEnd, mac), 0, "MAC of the last whole line"},
    {"nbytes", T_LONGLONG, offsetof(LogEnd, nbytes), 0, "length of the whole lines"},
    {"records", T_LONGLONG, offsetof(LogEnd, records), 0, "number of the whole lines"},
    {"reserved_bytes", T_LONGLONG, offsetof(LogEnd, reserved_bytes), 0, "length that the file system keeps space for"},
    {"fd", T_INT, offsetof(LogEnd, fd), 0, "descriptor of the log; -1: it is not open"},
    {"is_torn", T_BOOL, offsetof(LogEnd, is_torn), 0, "may there be something behind the end?"},
    {NULL, 0, 0, 0, NULL}};

PyDoc_STRVAR(end_doc, "LogEnd(key, spare_bytes)\n\n"
                      "Where a log ends. ``key``: of the MACs of its lines, 16 bytes; ``spare_bytes``: what must stay reserved behind\n"
                      "the lines.");

PyTypeObject LogEnd_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ckpt.undo._watch.LogEnd",
    .tp_basicsize = sizeof(LogEnd),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = end_doc,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)end_init,
    .tp_dealloc = (destructor)end_dealloc,
    .tp_members = end_members,
};

int log_end_append(PyObject *log_end, const char *text, size_t nbytes)
{
    LogEnd *end = (LogEnd *)log_end;
    char line[LINE_BYTES];
    size_t whole = MAC_DIGITS + 1 + nbytes + 1;
    Py_ssize_t before_bytes;
    if (end->fd < 0 || end->is_torn || whole > sizeof line ||
        end->nbytes + (long long)whole + end->spare_bytes > end->reserved_bytes)
        return 0;
    const char *before = PyUnicode_AsUTF8AndSize(end->mac, &before_bytes);
    if (before == NULL)
        return 0;
    mac_of(end->key, before, (size_t)before_bytes, text, nbytes, line);
    line[MAC_DIGITS] = ' ';
    memcpy(line + MAC_DIGITS + 1, text, nbytes);
    line[whole - 1] = '\n';
    PyObject *mac = PyUnicode_FromStringAndSize(line, MAC_DIGITS);
    if (mac == NULL)
        return 0;
    end->is_torn = 1;
    if (pwrite(end->fd, line, whole, end->nbytes) != (ssize_t)whole) {
        Py_DECREF(mac);
        return 0;
    }
    end->nbytes += (long long)whole;
    end->records++;
    Py_SETREF(end->mac, mac);
    end->is_torn = 0;
    return 1;
}
