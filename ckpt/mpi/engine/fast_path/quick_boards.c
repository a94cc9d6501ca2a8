/* Collectives of a group whose members share boards (transport/boards): the ordinary cases of `Exchange` (ckpt/mpi/slots), for the
   module `_quick`.

       barrier(comm)                            False: nothing is done.  None: done.  int: this member has contributed to the collective
                                                with this number, and others have not yet: Exchange.complete goes on
       exchange(comm, data)                     the same, but the list of all members' data in place of None
       share(comm, data, root)                  the same for the root's data alone, which is returned; `data` of others is not looked at
       allreduce(comm, sendbuf, recvbuf, op)    as barrier

   Ordinary is a board that all members look at, while nothing else is to be done, and data that fit into a slot; for allreduce also
   contiguous buffers of one number type that do not overlap, and a predefined operation whose result is the same whoever computes
   it.  The port's lock is held while a function waits; it waits for a short time only, and no image is taken meanwhile. */

#include "quick.h"

#include "../../../../transport/boards/board.h"

static BoardApi *boards;
static PyObject *name_acquire, *name_release;

enum { VALUE = 0, KINDS };

typedef struct {
    PyObject *exchange, *lock;
    Board *board;
    unsigned long long number;
    int size, rank;
    uint32_t others;
} Held;

static int is_empty(PyObject *list) { return list && PyList_CheckExact(list) && !PyList_GET_SIZE(list); }

/* May the next collective of this communicator take the short way?  Takes the lock. */
static int take(PyObject *comm, Held *held)
{
    if (known != CLASSES || !boards || !PyObject_TypeCheck(comm, classes[COMM])) return 0;
    PyObject *engine = GET(comm, COMM_ENGINE), *shared = GET(comm, COMM_SHARED);
    if (!IS(engine, ENGINE) || !IS(shared, SHARED) || GET(shared, SHARED_CLOSED) != Py_False ||
        GET(shared, SHARED_BROKEN) != Py_False || GET(engine, ENGINE_GUARD) != Py_None ||
        GET(engine, ENGINE_CHOICES) != Py_None || !is_empty(GET(engine, ENGINE_RUNNABLE)))
        return 0;
    PyObject *exchange = GET(shared, SHARED_EXCHANGE), *lock = GET(engine, ENGINE_LOCK);
    PyObject *board = IS(exchange, EXCHANGE) ? GET(exchange, EXCHANGE_BOARD) : NULL;
    PyObject *number = board ? GET(exchange, EXCHANGE_NUMBER) : NULL;
    if (!lock || !number || !PyLong_CheckExact(number) || !Py_IS_TYPE(board, boards->type) || !boards->is_ready((Board *)board))
        return 0;
    held->number = PyLong_AsUnsignedLongLong(number);
    PyObject *taken = PyErr_Occurred() ? NULL : PyObject_CallMethodOneArg(lock, name_acquire, Py_False);
    if (!taken) PyErr_Clear();
    Py_XDECREF(taken);
    if (taken != Py_True) return 0;
    held->exchange = Py_NewRef(exchange);
    held->lock = Py_NewRef(lock);
    held->board = (Board *)Py_NewRef(board);
    held->size = boards->size(held->board);
    held->rank = boards->rank(held->board);
    held->others = ((1u << held->size) - 1) & ~(1u << held->rank);
    return 1;
}

/* Let go of the lock, and of what `take` has found. */
static void give(Held *held)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *done = PyObject_CallMethodNoArgs(held->lock, name_release);
    if (!done) PyErr_WriteUnraisable(held->lock);
    Py_XDECREF(done);
    Py_DECREF(held->lock);
    Py_DECREF(held->exchange);
    Py_DECREF((PyObject *)held->board);
    PyErr_Restore(type, value, trace);
}

/* Take the number, contribute for `readers`, and wait for `sources`.  1: they are there.  0: some are not, or a reader needs a
   message.  -1: nothing has happened, with an exception or without. */
static int meet(Held *held, const void *data, uint64_t nbytes, uint32_t readers, uint32_t sources)
{
    PyObject *next = PyLong_FromUnsignedLongLong(held->number + 1);
    if (!next) return -1;
    if (readers) {
        boards->make_room(held->board, held->number);
        uint32_t by_message = boards->post(held->board, held->number, VALUE, data, nbytes, readers);
        if (by_message) { /* Exchange has to send them, and finds the rest as it is: what is posted twice is the same */
            Py_DECREF(next);
            return -1;
        }
    }
    Py_SETREF(GET(held->exchange, EXCHANGE_NUMBER), next);
    return !sources || boards->wait(held->board, held->number, sources) == 1;
}

/* The answer for what `meet` has returned, if it was not 1. */
static PyObject *unmet(const Held *held, int met)
{
    if (PyErr_Occurred()) return NULL;
    return met < 0 ? Py_NewRef(Py_False) : PyLong_FromUnsignedLongLong(held->number);
}

static PyObject *board_barrier(PyObject *Py_UNUSED(self), PyObject *comm)
{
    Held held;
    if (!take(comm, &held)) Py_RETURN_FALSE;
    int met = meet(&held, "", 0, held.others, held.others);
    PyObject *result = met == 1 ? Py_NewRef(Py_None) : unmet(&held, met);
    if (met == 1) boards->finish(held.board, held.number);
    give(&held);
    return result;
}

/* A member's contribution as bytes: a new reference.  NULL, maybe with an exception: Exchange has to take it. */
static PyObject *value_of(Held *held, int member)
{
    uint32_t kind;
    uint64_t nbytes;
    const void *data = boards->look(held->board, held->number, member, &kind, &nbytes);
    PyObject *value = data && kind == VALUE ? PyBytes_FromStringAndSize(data, (Py_ssize_t)nbytes) : NULL;
    if (value && !boards->is_still(held->board, held->number, member)) Py_CLEAR(value);
    return value;
}

static PyObject *board_exchange(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Held held;
    if (count != 2 || !PyBytes_CheckExact(args[1]) || PyBytes_GET_SIZE(args[1]) > BOARD_SLOT_BYTES || !take(args[0], &held))
        Py_RETURN_FALSE;
    int met = meet(&held, PyBytes_AS_STRING(args[1]), (uint64_t)PyBytes_GET_SIZE(args[1]), held.others, held.others);
    PyObject *values = met == 1 ? PyList_New(held.size) : NULL;
    for (int member = 0; values && member < held.size; member++) {
        PyObject *value = member == held.rank ? Py_NewRef(args[1]) : value_of(&held, member);
        if (value)
            PyList_SET_ITEM(values, member, value);
        else
            Py_CLEAR(values);
    }
    if (values)
        boards->finish(held.board, held.number);
    else
        values = unmet(&held, met);
    give(&held);
    return values;
}

static PyObject *board_share(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Held held;
    if (count != 3 || !PyLong_CheckExact(args[2])) Py_RETURN_FALSE;
    long root = PyLong_AsLong(args[2]);
    if (root < 0 || root >= BOARD_MEMBERS) {
        PyErr_Clear();
        Py_RETURN_FALSE;
    }
    if (!take(args[0], &held)) Py_RETURN_FALSE;
    PyObject *value = NULL;
    int met = -1;
    if (root == held.rank) {
        if (PyBytes_CheckExact(args[1]) && PyBytes_GET_SIZE(args[1]) <= BOARD_SLOT_BYTES)
            met = meet(&held, PyBytes_AS_STRING(args[1]), (uint64_t)PyBytes_GET_SIZE(args[1]), held.others, 0);
        if (met == 1) value = Py_NewRef(args[1]);
    } else if (root < held.size) {
        met = meet(&held, NULL, 0, 0, 1u << root);
        if (met == 1) value = value_of(&held, (int)root);
    }
    if (value)
        boards->finish(held.board, held.number);
    else
        value = unmet(&held, met);
    give(&held);
    return value;
}

/* ---- reductions ------------------------------------------------------------------------------------------------------------ */

enum { CHUNK = 2048 }; /* bytes of each member's that are combined at a time */

/* The tree of `allreduce` in ckpt/mpi/collectives/reduce.py: first the pairs of the ranks above a power of two, then doubling.  The
   steps are combined in place: value[step.into] := value[step.into] o value[step.from]. */
typedef struct {
    int count;
    struct {
        int into, from;
    } step[2 * BOARD_MEMBERS];
} Plan;

static Plan plan_for(int size)
{
    Plan plan = {0};
    int power = 1, leaves[BOARD_MEMBERS];
    while (power * 2 <= size) power *= 2;
    int extra = size - power;
    for (int i = 0; i < extra; i++) {
        plan.step[plan.count].into = 2 * i;
        plan.step[plan.count++].from = 2 * i + 1;
    }
    for (int i = 0; i < power; i++) leaves[i] = i < extra ? 2 * i : i + extra;
    for (int mask = 1; mask < power; mask *= 2)
        for (int i = 0; i < power; i += 2 * mask) {
            plan.step[plan.count].into = leaves[i];
            plan.step[plan.count++].from = leaves[i + mask];
        }
    return plan;
}

enum operation { SUM, PROD, MAX, MIN, OPERATIONS };
static const char *const operation_names[OPERATIONS] = {"MPI_SUM", "MPI_PROD", "MPI_MAX", "MPI_MIN"};
enum number { F64, F32, I64, U64, I32, U32, NUMBERS };

#define COMBINE(type, expression)                                                                                                  \
    do {                                                                                                                           \
        type *a = into;                                                                                                            \
        const type *b = from;                                                                                                      \
        for (size_t i = 0; i < nbytes / sizeof(type); i++) a[i] = (type)(expression);                                              \
        return 1;                                                                                                                  \
    } while (0)

/* Integers wrap round, as numpy's do. */
#define COMBINE_INTEGERS(type, unsigned_type)                                                                                      \
    switch (operation) {                                                                                                           \
    case SUM: COMBINE(type, (unsigned_type)a[i] + (unsigned_type)b[i]);                                                            \
    case PROD: COMBINE(type, (unsigned_type)a[i] * (unsigned_type)b[i]);                                                           \
    case MAX: COMBINE(type, a[i] > b[i] ? a[i] : b[i]);                                                                            \
    case MIN: COMBINE(type, a[i] < b[i] ? a[i] : b[i]);                                                                            \
    default: return 0;                                                                                                             \
    }

/* The greatest and least of real numbers are left to Python: signs of zeros, and NaN. */
#define COMBINE_REALS(type)                                                                                                        \
    switch (operation) {                                                                                                           \
    case SUM: COMBINE(type, a[i] + b[i]);                                                                                          \
    case PROD: COMBINE(type, a[i] * b[i]);                                                                                         \
    default: return 0;                                                                                                             \
    }

static int combine(enum operation operation, enum number number, void *into, const void *from, size_t nbytes)
{
    switch (number) {
    case F64: COMBINE_REALS(double)
    case F32: COMBINE_REALS(float)
    case I64: COMBINE_INTEGERS(int64_t, uint64_t)
    case U64: COMBINE_INTEGERS(uint64_t, uint64_t)
    case I32: COMBINE_INTEGERS(int32_t, uint32_t)
    case U32: COMBINE_INTEGERS(uint32_t, uint32_t)
    default: return 0;
    }
}

/* Is a result NaN?  Its sign and payload depend on who computes it. */
static int has_nan(enum number number, const void *values, size_t nbytes)
{
    int found = 0;
    if (number == F64)
        for (size_t i = 0; i < nbytes / 8; i++) found |= ((const double *)values)[i] != ((const double *)values)[i];
    if (number == F32)
        for (size_t i = 0; i < nbytes / 4; i++) found |= ((const float *)values)[i] != ((const float *)values)[i];
    return found;
}

static enum operation operation_of(PyObject *op)
{
    PyObject *name = IS(op, OP) && GET(op, OP_FUNCTION) == Py_None ? GET(op, OP_NAME) : NULL;
    enum operation found = OPERATIONS;
    if (name && PyUnicode_Check(name))
        for (found = SUM; found < OPERATIONS; found++)
            if (!PyUnicode_CompareWithASCIIString(name, operation_names[found])) break;
    return found;
}

static enum number number_of(const Py_buffer *view)
{
    char code = view->format && view->format[0] && !view->format[1] ? view->format[0] : 0;
    int is_signed = code == 'i' || code == 'l' || code == 'q';
    if (code == 'd') return F64;
    if (code == 'f') return F32;
    if (!code || !strchr("ilqILQ", code)) return NUMBERS;
    return view->itemsize == 8 ? (is_signed ? I64 : U64) : view->itemsize == 4 ? (is_signed ? I32 : U32) : NUMBERS;
}

/* Combine all members' contributions into `into`.  0: a case for Python; `into` may have been written to. */
static int reduce_into(Held *held, enum operation operation, enum number number, const Py_buffer *mine, Py_buffer *into)
{
    const unsigned char *values[BOARD_MEMBERS];
    for (int member = 0; member < held->size; member++) {
        uint32_t kind = VALUE;
        uint64_t nbytes = (uint64_t)mine->len;
        values[member] = member == held->rank ? mine->buf : boards->look(held->board, held->number, member, &kind, &nbytes);
        if (!values[member] || kind != VALUE || nbytes != (uint64_t)mine->len) return 0;
    }
    Plan plan = plan_for(held->size);
    _Alignas(64) unsigned char parts[BOARD_MEMBERS][CHUNK];
    for (Py_ssize_t at = 0; at < mine->len; at += CHUNK) {
        size_t nbytes = (size_t)(mine->len - at < CHUNK ? mine->len - at : CHUNK);
        for (int member = 0; member < held->size; member++) memcpy(parts[member], values[member] + at, nbytes);
        for (int i = 0; i < plan.count; i++)
            if (!combine(operation, number, parts[plan.step[i].into], parts[plan.step[i].from], nbytes)) return 0;
        if (has_nan(number, parts[0], nbytes)) return 0;
        memcpy((unsigned char *)into->buf + at, parts[0], nbytes);
    }
    for (int member = 0; member < held->size; member++)
        if (member != held->rank && !boards->is_still(held->board, held->number, member)) return 0;
    return 1;
}

static int apart(const Py_buffer *a, const Py_buffer *b)
{
    return (char *)a->buf + a->len <= (char *)b->buf || (char *)b->buf + b->len <= (char *)a->buf;
}

static PyObject *board_allreduce(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Py_buffer mine, into;
    Held held;
    if (count != 4 || known != CLASSES || !boards) Py_RETURN_FALSE;
    enum operation operation = operation_of(args[3]);
    if (operation == OPERATIONS || export_plain(args[1], &mine, PyBUF_FULL_RO)) Py_RETURN_FALSE;
    if (export_plain(args[2], &into, PyBUF_FULL)) {
        PyBuffer_Release(&mine);
        Py_RETURN_FALSE;
    }
    PyObject *result = NULL;
    enum number number = number_of(&mine);
    int is_ordinary = number != NUMBERS && number == number_of(&into) && mine.len == into.len && mine.len <= BOARD_SLOT_BYTES &&
                      mine.len && apart(&mine, &into) &&
                      ((number != F64 && number != F32) || operation == SUM || operation == PROD);
    if (is_ordinary && take(args[0], &held)) {
        int met = meet(&held, mine.buf, (uint64_t)mine.len, held.others, held.others);
        if (met == 1 && reduce_into(&held, operation, number, &mine, &into)) {
            boards->finish(held.board, held.number);
            result = Py_NewRef(Py_None);
        } else {
            result = unmet(&held, met);
        }
        give(&held);
    } else {
        result = Py_NewRef(Py_False);
    }
    PyBuffer_Release(&mine);
    PyBuffer_Release(&into);
    return result;
}

PyMethodDef quick_board_functions[] = {
    {"barrier", board_barrier, METH_O, "barrier(comm, /)\n\nFalse, None or a number: see quick_boards.c."},
    {"exchange", (PyCFunction)(void (*)(void))board_exchange, METH_FASTCALL,
     "exchange(comm, data, /)\n\nFalse, the list of all members' data, or a number: see quick_boards.c."},
    {"share", (PyCFunction)(void (*)(void))board_share, METH_FASTCALL,
     "share(comm, data, root, /)\n\nFalse, the root's data, or a number: see quick_boards.c."},
    {"allreduce", (PyCFunction)(void (*)(void))board_allreduce, METH_FASTCALL,
     "allreduce(comm, sendbuf, recvbuf, op, /)\n\nFalse, None or a number: see quick_boards.c."},
    {NULL, NULL, 0, NULL},
};

int quick_prepare_boards(void)
{
    PyObject *home = PyImport_ImportModule("ckpt.transport.boards._board");
    PyObject *found = home ? PyObject_GetAttrString(home, "api") : NULL;
    boards = found ? PyCapsule_GetPointer(found, BOARD_API) : NULL; /* valid for ever: the module is never unloaded */
    Py_XDECREF(found);
    Py_XDECREF(home);
    return boards && (name_acquire = PyUnicode_InternFromString("acquire")) &&
                   (name_release = PyUnicode_InternFromString("release"))
               ? 0
               : -1;
}
