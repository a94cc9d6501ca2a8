/* Frames that are about to leave: their heads, byte for byte as transport/protocol/frames.py has them, pointers to payloads as
   transport/wires/directwire.py has them, and the parts of a frame in order. */

#define PY_SSIZE_T_CLEAN
#include "express_numbers.h"

static void put_number(unsigned char **at, uint64_t number, int bytes)
{
    number = htole64(number);
    memcpy(*at, &number, (size_t)bytes);
    *at += bytes;
}

/* ---- the parts of a frame -------------------------------------------------------------------------------------------------- */

/* The table of lengths, and the messages. */
static void body_parts(const Outgoing *frame, Taker take, void *with)
{
    Py_ssize_t count = frame->messages ? PyList_GET_SIZE(frame->messages) : 0;
    for (Py_ssize_t i = 0; i < count && frame->length == VARIED; i++) {
        unsigned char length[4], *at = length;
        put_number(&at, (uint64_t)PyBytes_GET_SIZE(PyList_GET_ITEM(frame->messages, i)), 4);
        take(with, length, sizeof length);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *message = PyList_GET_ITEM(frame->messages, i);
        take(with, PyBytes_AS_STRING(message), (size_t)PyBytes_GET_SIZE(message));
    }
}

void express_parts(const Outgoing *frame, Taker take, void *with)
{
    take(with, frame->head, frame->head_bytes);
    body_parts(frame, take, with);
    if (frame->payload) take(with, frame->pointer, POINTER);
}

static void add_to_place(void *with, const void *part, size_t size)
{
    unsigned char **at = with;
    memcpy(*at, part, size);
    *at += size;
}

PyObject *express_whole(const Outgoing *frame)
{
    uint64_t size = frame->payload ? frame->head_bytes : frame->bytes;
    PyObject *whole = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    unsigned char *at = whole ? (unsigned char *)PyBytes_AS_STRING(whole) : NULL;
    if (!whole) return NULL;
    add_to_place(&at, frame->head, frame->head_bytes);
    body_parts(frame, add_to_place, &at);
    PyObject *parts = frame->payload ? PyTuple_Pack(2, whole, frame->payload) : PyTuple_Pack(1, whole);
    Py_DECREF(whole);
    return parts;
}

void express_release(Outgoing *frame)
{
    Py_CLEAR(frame->messages);
    Py_CLEAR(frame->payload);
}

/* ---- their heads ----------------------------------------------------------------------------------------------------------- */

/* batches.common_length, and the size of the frame.  0: a message is not of bytes, or too long. */
static int measure(Outgoing *frame)
{
    Py_ssize_t count = PyList_GET_SIZE(frame->messages);
    uint64_t bytes = HEADER, first = 0;
    int is_varied = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *message = PyList_GET_ITEM(frame->messages, i);
        if (!PyBytes_CheckExact(message) || PyBytes_GET_SIZE(message) >= VARIED) return 0;
        uint64_t size = (uint64_t)PyBytes_GET_SIZE(message);
        if (!i) first = size;
        is_varied |= size != first || (count > 1 && !size);
        bytes += size;
    }
    frame->length = is_varied ? VARIED : (uint32_t)first;
    frame->bytes = bytes + (is_varied ? 4 * (uint64_t)count : 0);
    return count > 0;
}

/* What the head of a frame says beside who it is from and for. */
typedef struct {
    int kind, flags;
    const long long *stamp;
    long long sequence;
    uint32_t count, length;
} Content;

/* The 72 bytes that each head begins with, but for the checksum.  0: these are no numbers of ranks. */
static int begin_head(Outgoing *frame, PyObject *ident, const Content *content)
{
    Reading reading = {0};
    if (!ident || !PyTuple_CheckExact(ident) || PyTuple_GET_SIZE(ident) != 5) return 0;
    /* the job's number may need all 64 bits */
    unsigned long long job = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(ident, 0));
    if (PyErr_Occurred()) return 0;
    long long parts[5];
    for (int i = 1; i < 5; i++) parts[i] = value(&reading, PyTuple_GET_ITEM(ident, i));
    if (reading.bad) return 0;
    unsigned char *at = frame->head + 4;
    put_number(&at, MAGIC, 2);
    put_number(&at, (uint64_t)content->kind, 1);
    put_number(&at, (uint64_t)content->flags, 1);
    put_number(&at, job, 8);
    for (int i = 1; i < 5; i++) put_number(&at, (uint64_t)parts[i], 4);
    for (int i = 0; i < 3; i++) put_number(&at, (uint64_t)content->stamp[i], 8);
    put_number(&at, (uint64_t)content->sequence, 8);
    put_number(&at, content->count, 4);
    put_number(&at, content->length, 4);
    frame->head_bytes = HEADER;
    return 1;
}

static void add_to_sum(void *with, const void *part, size_t size) { *(uint32_t *)with = checksum(*(uint32_t *)with, part, size); }

static void put_checksum(Outgoing *frame)
{
    uint32_t sum = checksum(0, frame->head + 4, frame->head_bytes - 4);
    body_parts(frame, add_to_sum, &sum);
    unsigned char *at = frame->head;
    put_number(&at, sum, 4);
}

int express_fill(Outgoing *frame, PyObject *ident, const long long stamp[3], long long sequence, PyObject *messages)
{
    frame->messages = messages;
    frame->payload = NULL;
    if (!measure(frame)) return 0;
    Content content = {MESSAGES, 0, stamp, sequence, (uint32_t)PyList_GET_SIZE(messages), frame->length};
    if (!begin_head(frame, ident, &content)) return 0;
    put_checksum(frame);
    return 1;
}

int express_fill_ack(Outgoing *frame, PyObject *ident, const long long stamp[3])
{
    Content content = {ACK, 0, stamp, 0, 0, 0};
    frame->messages = frame->payload = NULL;
    frame->bytes = HEADER;
    if (!begin_head(frame, ident, &content)) return 0;
    put_checksum(frame);
    return 1;
}

static void point_to(Outgoing *frame, const Express *express, const void *address, uint64_t size)
{
    unsigned char *at = frame->pointer + 4;
    put_number(&at, POINTS, 1);
    put_number(&at, (uint64_t)express->rank, 4);
    put_number(&at, (uint64_t)(uintptr_t)address, 8);
    put_number(&at, size, 8);
    memcpy(at, express->badge, BADGE);
    uint32_t sum = checksum(0, frame->pointer + 4, POINTER - 4);
    at = frame->pointer;
    put_number(&at, sum, 4);
}

int express_fill_fragment(Outgoing *frame, const Express *express, PyObject *ident, const long long stamp[3], long long sequence,
                          PyObject *data, const void *address, uint64_t size, int flags)
{
    uint64_t before = (uint64_t)PyBytes_GET_SIZE(data);
    Content content = {FRAGMENT_FRAME, flags, stamp, sequence, (uint32_t)before, (uint32_t)size};
    frame->messages = frame->payload = NULL;
    if (before > MOST_INLINE || size > UINT32_MAX || !begin_head(frame, ident, &content)) return 0;
    unsigned char *at = frame->head + HEADER;
    put_number(&at, before + size, 8);
    put_number(&at, 0, 8); /* the offset */
    put_number(&at, 0, 4); /* the payload has no checksum */
    memcpy(at, PyBytes_AS_STRING(data), before);
    frame->head_bytes = HEADER + PIECE + (uint32_t)before;
    put_checksum(frame);
    point_to(frame, express, address, size);
    frame->bytes = frame->head_bytes + POINTER;
    return 1;
}
