/* What express_send.c and express_receive.c have in common: numbers in slots, counters. */

#ifndef CKPT_TRANSPORT_EXPRESS_NUMBERS_H
#define CKPT_TRANSPORT_EXPRESS_NUMBERS_H

#include "../protocol/checksum.h"
#include "express.h"

#include <stdint.h>
#include <string.h>

#define NEVER (1LL << 62)
#define MAGIC 0xC701
#define MESSAGES 1
#define VARIED 0xFFFFFFFFu
#define FLIGHT 1
#define DONE 4
#define BULK_CHARGE (64 << 10)
#define GRANULARITY_NS 1000000
#define PLAIN_ACK 1

#define GET(object, slot) SLOT(object, express_offsets[slot])
#define IS(object, cls) ((object) && Py_IS_TYPE(object, express_classes[cls]))

/* ---- numbers -------------------------------------------------------------------------------------------------------------- */

/* Numbers are read through one `Reading`, which remembers whether each was an int that fits. */
typedef struct {
    int bad;
} Reading;

static inline long long value(Reading *reading, PyObject *number)
{
    int overflow = 0;
    if (!number || !PyLong_CheckExact(number)) {
        reading->bad = 1;
        return 0;
    }
    long long found = PyLong_AsLongLongAndOverflow(number, &overflow);
    reading->bad |= overflow;
    return found;
}

#define NUMBER(object, slot) value(&reading, GET(object, slot))

/* New values of slots, made before the first is stored. */
enum { MOST_CHANGES = 32 };
typedef struct {
    int count, failed;
    struct {
        PyObject **at, *made;
    } each[MOST_CHANGES];
} Changes;

static inline void change(Changes *changes, PyObject *object, enum express_slot slot, long long number)
{
    PyObject *made = PyLong_FromLongLong(number);
    if (!made || changes->count == MOST_CHANGES) {
        Py_XDECREF(made);
        changes->failed = 1;
        return;
    }
    changes->each[changes->count].at = &GET(object, slot);
    changes->each[changes->count++].made = made;
}

static inline void undo(Changes *changes)
{
    while (changes->count) Py_DECREF(changes->each[--changes->count].made);
    PyErr_Clear();
}

static inline void store(Changes *changes)
{
    for (int i = 0; i < changes->count; i++) Py_XSETREF(*changes->each[i].at, changes->each[i].made);
    changes->count = 0;
}

/* The same dict of counters with one more: prepared as the new number, NULL when that cannot be. */
static inline PyObject *counted(PyObject *counts, PyObject *name)
{
    if (!counts || !PyDict_CheckExact(counts)) return NULL;
    Reading reading = {0};
    long long number = value(&reading, PyDict_GetItemWithError(counts, name));
    return reading.bad || PyErr_Occurred() ? NULL : PyLong_FromLongLong(number + 1);
}

static inline int empty_list(PyObject *list) { return list && PyList_CheckExact(list) && !PyList_GET_SIZE(list); }

static inline int empty_set(PyObject *set) { return set && PyAnySet_CheckExact(set) && !PySet_GET_SIZE(set); }

static inline int empty_dict(PyObject *dict) { return dict && PyDict_CheckExact(dict) && !PyDict_GET_SIZE(dict); }

static inline int empty_deque(PyObject *deque) { return deque && PyObject_Size(deque) == 0; }

/* The link to a rank (an int), if its endpoint is neither frozen nor a zombie: borrowed. */
static inline PyObject *link_of(const Express *express, PyObject *rank)
{
    PyObject *endpoint = express->endpoint, *links = GET(endpoint, ENDPOINT__links);
    if (GET(endpoint, ENDPOINT__frozen) != Py_False || GET(endpoint, ENDPOINT__zombie) != Py_False) return NULL;
    PyObject *link = links && PyDict_CheckExact(links) ? PyDict_GetItemWithError(links, rank) : NULL;
    if (!link && PyErr_Occurred()) PyErr_Clear();
    return IS(link, LINK) && IS(GET(link, LINK_window), WINDOW) && IS(GET(link, LINK_ledger), LEDGER) &&
                   IS(GET(link, LINK_timeout), TIMEOUT)
               ? link
               : NULL;
}

/* Timeout.rto_ns() where nothing has expired in a row.  `srtt`, `var`: the estimate of round trips, as it is or is about to be. */
long long express_rto_ns(Reading *state, PyObject *timeout, long long srtt, long long var);

/* Prepare one half: 0, or -1 with an exception. */
int express_prepare_send(void);
int express_prepare_receive(void);

#endif
