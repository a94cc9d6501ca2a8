/* The functions of transport/protocol/batches.py in C.  That module specifies each function;
   tests/unit/transport/protocol/test_batches.py compares both. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "checksum.h"

#define VARIED 0xFFFFFFFFu

static uint32_t little(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void put_little(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> 8 * i);
}

/* Write the crc32 of the rest of a frame into its first four bytes.  No other code has a reference to the frame yet. */
static void seal(PyObject *frame)
{
    unsigned char *start = (unsigned char *)PyBytes_AS_STRING(frame);
    put_little(start, checksum(0, start + 4, (size_t)PyBytes_GET_SIZE(frame) - 4));
}

static PyObject *crc32(PyObject *Py_UNUSED(self), PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) return NULL;
    uint32_t sum = checksum(0, view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(sum);
}

static int all_bytes(PyObject *list)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++)
        if (!PyBytes_Check(PyList_GET_ITEM(list, i))) {
            PyErr_SetString(PyExc_TypeError, "a message of a batch is not bytes");
            return 0;
        }
    return 1;
}

static PyObject *common_length(PyObject *Py_UNUSED(self), PyObject *messages)
{
    PyObject *list = PySequence_List(messages);
    if (!list) return NULL;
    Py_ssize_t count = PyList_GET_SIZE(list);
    unsigned long long length = VARIED;
    if (!count) PyErr_SetString(PyExc_IndexError, "no messages");
    if (!count || !all_bytes(list)) {
        Py_DECREF(list);
        return NULL;
    }
    length = (unsigned long long)PyBytes_GET_SIZE(PyList_GET_ITEM(list, 0));
    if (count > 1 && !length) length = VARIED;
    for (Py_ssize_t i = 1; i < count && length != VARIED; i++)
        if ((unsigned long long)PyBytes_GET_SIZE(PyList_GET_ITEM(list, i)) != length) length = VARIED;
    Py_DECREF(list);
    return PyLong_FromUnsignedLongLong(length);
}

static PyObject *join(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *head, *messages;
    unsigned long long length;
    if (!PyArg_ParseTuple(args, "SOK", &head, &messages, &length)) return NULL;
    PyObject *list = PySequence_List(messages), *frame = NULL;
    if (!list) return NULL;
    if (!all_bytes(list)) goto done;
    Py_ssize_t count = PyList_GET_SIZE(list), size = 4 + PyBytes_GET_SIZE(head) + (length == VARIED ? 4 * count : 0);
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t more = PyBytes_GET_SIZE(PyList_GET_ITEM(list, i));
        if (more > PY_SSIZE_T_MAX - size || (length == VARIED && more > (Py_ssize_t)UINT32_MAX)) {
            PyErr_SetString(PyExc_OverflowError, "a frame of such size");
            goto done;
        }
        size += more;
    }
    frame = PyBytes_FromStringAndSize(NULL, size);
    if (!frame) goto done;
    unsigned char *at = (unsigned char *)PyBytes_AS_STRING(frame) + 4;
    memcpy(at, PyBytes_AS_STRING(head), (size_t)PyBytes_GET_SIZE(head));
    at += PyBytes_GET_SIZE(head);
    if (length == VARIED)
        for (Py_ssize_t i = 0; i < count; i++, at += 4)
            put_little(at, (uint32_t)PyBytes_GET_SIZE(PyList_GET_ITEM(list, i)));
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *message = PyList_GET_ITEM(list, i);
        memcpy(at, PyBytes_AS_STRING(message), (size_t)PyBytes_GET_SIZE(message));
        at += PyBytes_GET_SIZE(message);
    }
    seal(frame);
done:
    Py_DECREF(list);
    return frame;
}

/* Do `count` messages fill the frame exactly from `start` to its end? */
static int fits(const unsigned char *frame, uint64_t size, uint64_t start, uint64_t count, uint64_t length)
{
    if (start > size) return 0;
    if (length != VARIED) return (count == 1 || length) && count * length == size - start;
    if (count > (size - start) / 4) return 0;
    uint64_t total = start + 4 * count;
    for (uint64_t i = 0; i < count; i++) total += little(frame + start + 4 * i);
    return total == size;
}

static PyObject *split(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *frame;
    Py_ssize_t start;
    unsigned long count, length;
    if (!PyArg_ParseTuple(args, "Snkk", &frame, &start, &count, &length)) return NULL;
    const unsigned char *text = (unsigned char *)PyBytes_AS_STRING(frame);
    if (start < 0 || count > UINT32_MAX || length > UINT32_MAX ||
        !fits(text, (uint64_t)PyBytes_GET_SIZE(frame), (uint64_t)start, count, length))
        Py_RETURN_NONE;
    PyObject *messages = PyList_New((Py_ssize_t)count);
    if (!messages) return NULL;
    const unsigned char *lengths = text + start, *at = length == VARIED ? lengths + 4 * count : lengths;
    for (unsigned long i = 0; i < count; i++) {
        size_t size = length == VARIED ? little(lengths + 4 * i) : length;
        PyObject *message = PyBytes_FromStringAndSize((const char *)at, (Py_ssize_t)size);
        if (!message) {
            Py_DECREF(messages);
            return NULL;
        }
        PyList_SET_ITEM(messages, (Py_ssize_t)i, message);
        at += size;
    }
    return messages;
}

static PyMethodDef functions[] = {
    {"crc32", crc32, METH_O, "crc32(data, /) -> int\n\nAs zlib.crc32(data).  `data`: bytes, or a contiguous buffer."},
    {"common_length", common_length, METH_O, "common_length(messages, /) -> int\n\n"
     "The length in bytes that all messages have, or VARIED.  TypeError: one is no bytes."},
    {"join", join, METH_VARARGS, "join(head, messages, length, /) -> bytes\n\nOne frame; length: by common_length()."},
    {"split", split, METH_VARARGS, "split(frame, start, count, length, /) -> list\n\n"
     "The inverse of join(): the messages of a frame whose head has `start` bytes; None: they do not fill the frame "
     "exactly, so it is damaged."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.transport.protocol._batch",
    .m_doc = "The body of a frame of many messages.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__batch(void)
{
    checksum_prepare();
    return PyModule_Create(&module);
}
