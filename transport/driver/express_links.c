/* The ordinary frame of a link, on the very objects of transport/protocol.

       express_emit     what Endpoint.send and Endpoint.transmit do with a short message on a link that has nothing else to send
       express_accept   what Endpoint.receive and Endpoint.delivered do with a MESSAGES frame that is next in order

   Each looks at everything first, and leaves all that is not ordinary to Python, having changed nothing: other kinds of frames and
   flags, other epochs and incarnations, gaps, duplicates, early or unsent messages, a paused, dropped or silent peer, little
   credit, acknowledgements of anything but the only batch in flight.  All new numbers are made before the first is stored, so a
   lack of memory changes nothing either.  The Python code is the specification; tests/unit/transport/driver/test_express.py runs
   whole histories both ways and compares everything. */

#define PY_SSIZE_T_CLEAN
#include "express.h"

#include <stdint.h>
#include <string.h>

#define NEVER (1LL << 62)
#define HEADER 72
#define MAGIC 0xC701
#define MESSAGES 1
#define VARIED 0xFFFFFFFFu
#define FLIGHT 1
#define DONE 4
#define BULK_CHARGE (64 << 10)
#define GRANULARITY_NS 1000000
#define PLAIN_ACK 1

PyTypeObject *express_classes[EXPRESS_CLASSES];
Py_ssize_t express_offsets[SLOT_COUNT];
static PyObject *split, *name_append, *name_popleft, *frames_sent, *frames_received;
static uint32_t sums[8][256];

#define GET(object, slot) SLOT(object, express_offsets[slot])
#define IS(object, cls) ((object) && Py_IS_TYPE(object, express_classes[cls]))

/* ---- numbers -------------------------------------------------------------------------------------------------------------- */

/* Numbers are read through one `Reading`, which remembers whether each was an int that fits. */
typedef struct {
    int bad;
} Reading;

static long long value(Reading *reading, PyObject *number)
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
enum { MOST_CHANGES = 24 };
typedef struct {
    int count, failed;
    struct {
        PyObject **at, *made;
    } each[MOST_CHANGES];
} Changes;

static void change(Changes *changes, PyObject *object, enum express_slot slot, long long number)
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

static void undo(Changes *changes)
{
    while (changes->count) Py_DECREF(changes->each[--changes->count].made);
    PyErr_Clear();
}

static void store(Changes *changes)
{
    for (int i = 0; i < changes->count; i++) Py_XSETREF(*changes->each[i].at, changes->each[i].made);
    changes->count = 0;
}

/* The same dict of counters with one more: prepared as the new number, NULL when that cannot be. */
static PyObject *counted(PyObject *counts, PyObject *name)
{
    if (!counts || !PyDict_CheckExact(counts)) return NULL;
    Reading reading = {0};
    long long number = value(&reading, PyDict_GetItemWithError(counts, name));
    return reading.bad || PyErr_Occurred() ? NULL : PyLong_FromLongLong(number + 1);
}

static int empty_list(PyObject *list) { return list && PyList_CheckExact(list) && !PyList_GET_SIZE(list); }

static int empty_set(PyObject *set) { return set && PyAnySet_CheckExact(set) && !PySet_GET_SIZE(set); }

static int empty_dict(PyObject *dict) { return dict && PyDict_CheckExact(dict) && !PyDict_GET_SIZE(dict); }

static int empty_deque(PyObject *deque) { return deque && PyObject_Size(deque) == 0; }

/* ---- the checksum ---------------------------------------------------------------------------------------------------------- */

static uint32_t crc32(const unsigned char *at, size_t size)
{
    uint32_t sum = 0xFFFFFFFFu;
    for (; size >= 8; size -= 8, at += 8) {
        uint32_t low = (sum ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24));
        sum = sums[7][low & 255] ^ sums[6][low >> 8 & 255] ^ sums[5][low >> 16 & 255] ^ sums[4][low >> 24] ^ sums[3][at[4]] ^
              sums[2][at[5]] ^ sums[1][at[6]] ^ sums[0][at[7]];
    }
    while (size--) sum = sums[0][(sum ^ *at++) & 255] ^ sum >> 8;
    return ~sum;
}

static void prepare_sums(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t sum = i;
        for (int bit = 0; bit < 8; bit++) sum = sum & 1 ? 0xEDB88320u ^ sum >> 1 : sum >> 1;
        sums[0][i] = sum;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int table = 1; table < 8; table++) sums[table][i] = sums[0][sums[table - 1][i] & 255] ^ sums[table - 1][i] >> 8;
}

static void put_number(unsigned char **at, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++) *(*at)++ = (unsigned char)(number >> 8 * i);
}

static uint64_t get_number(const unsigned char *at, int bytes)
{
    uint64_t number = 0;
    for (int i = 0; i < bytes; i++) number |= (uint64_t)at[i] << 8 * i;
    return number;
}

/* ---- sending --------------------------------------------------------------------------------------------------------------- */

static long long rto_ns(Reading *state, PyObject *timeout)
{
    Reading reading = {0};
    long long srtt = NUMBER(timeout, TIMEOUT_srtt_ns), var = NUMBER(timeout, TIMEOUT__var_ns);
    long long backoff = NUMBER(timeout, TIMEOUT_backoff), least = NUMBER(timeout, TIMEOUT__min_ns);
    long long rto = NUMBER(timeout, TIMEOUT__initial_ns), most = NUMBER(timeout, TIMEOUT__max_ns);
    state->bad |= reading.bad || backoff || srtt < 0 || srtt > NEVER / 2 || var < 0 || var > NEVER / 8;
    if (srtt) {
        rto = srtt + (4 * var > GRANULARITY_NS ? 4 * var : GRANULARITY_NS);
        if (rto < least) rto = least;
    }
    return rto < most ? rto : most;
}

static PyObject *frame_of(PyObject *ident, const long long stamp[3], long long sequence, PyObject *message)
{
    Reading reading = {0};
    Py_ssize_t size = PyBytes_GET_SIZE(message);
    if (!ident || !PyTuple_CheckExact(ident) || PyTuple_GET_SIZE(ident) != 5) return NULL;
    /* the job's number may need all 64 bits */
    unsigned long long job = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(ident, 0));
    if (PyErr_Occurred()) return NULL;
    long long parts[5];
    for (int i = 1; i < 5; i++) parts[i] = value(&reading, PyTuple_GET_ITEM(ident, i));
    if (reading.bad) return NULL;
    PyObject *frame = PyBytes_FromStringAndSize(NULL, HEADER + size);
    if (!frame) return NULL;
    unsigned char *begin = (unsigned char *)PyBytes_AS_STRING(frame), *at = begin + 4;
    put_number(&at, MAGIC, 2);
    put_number(&at, MESSAGES, 1);
    put_number(&at, 0, 1);
    put_number(&at, job, 8);
    for (int i = 1; i < 5; i++) put_number(&at, (uint64_t)parts[i], 4);
    for (int i = 0; i < 3; i++) put_number(&at, (uint64_t)stamp[i], 8);
    put_number(&at, (uint64_t)sequence, 8);
    put_number(&at, 1, 4);
    put_number(&at, (uint64_t)size, 4);
    memcpy(at, PyBytes_AS_STRING(message), (size_t)size);
    uint32_t sum = crc32(begin + 4, (size_t)(HEADER + size - 4));
    put_number(&begin, sum, 4);
    return frame;
}

static PyObject *batch_of(PyObject *message, long long first, long long charge, long long order, long long now_ns)
{
    PyTypeObject *type = express_classes[BATCH];
    PyObject *batch = type->tp_alloc(type, 0);
    if (!batch) return NULL;
    PyObject *messages = GET(batch, BATCH_messages) = PyList_New(1);
    if (messages) PyList_SET_ITEM(messages, 0, Py_NewRef(message));
    Changes changes = {0};
    change(&changes, batch, BATCH_first, first);
    change(&changes, batch, BATCH_end, first + 1);
    change(&changes, batch, BATCH_charge, charge);
    change(&changes, batch, BATCH_order, order);
    change(&changes, batch, BATCH_sends, 1);
    change(&changes, batch, BATCH_sent_ns, now_ns);
    change(&changes, batch, BATCH_state, FLIGHT);
    if (changes.failed || !messages) {
        undo(&changes);
        Py_DECREF(batch);
        return NULL;
    }
    store(&changes);
    return batch;
}

/* Nothing but the new message waits on this link, and nothing on any other. */
static int is_idle(PyObject *link, PyObject *window, PyObject *common)
{
    return GET(link, LINK_reachable) == Py_True && GET(link, LINK_paused) == Py_False && GET(link, LINK__probe_due) == Py_False &&
           GET(window, WINDOW_clean) == Py_True && GET(window, WINDOW_current) == Py_None && empty_list(GET(window, WINDOW_queue)) &&
           empty_deque(GET(window, WINDOW_sealed)) && empty_deque(GET(window, WINDOW_resend)) &&
           empty_dict(GET(window, WINDOW_flight)) && GET(common, COMMON_flush_due) == Py_False &&
           empty_list(GET(common, COMMON_dirty)) && empty_set(GET(common, COMMON_tight));
}

static PyObject *link_of(const Express *express, PyObject *rank)
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

static PyObject *emitted(const Express *express, PyObject *link, PyObject *message, long long now_ns, Changes *changes)
{
    PyObject *window = GET(link, LINK_window), *ledger = GET(link, LINK_ledger), *timeout = GET(link, LINK_timeout);
    PyObject *common = GET(express->endpoint, ENDPOINT__common);
    Reading reading = {0};
    long long charge = (long long)PyBytes_GET_SIZE(message) + express->overhead;
    long long tx = NUMBER(window, WINDOW_tx), order = NUMBER(window, WINDOW_order) + 1;
    long long sent = NUMBER(window, WINDOW_sent_charge) + charge, ack_due = NUMBER(link, LINK__ack_due);
    long long floor = NUMBER(common, COMMON_floor), room = NUMBER(ledger, LEDGER_credit) - NUMBER(ledger, LEDGER_unconsumed);
    if (room < floor) room = floor;
    if (room < NUMBER(common, COMMON_hungry_floor) || sent > NUMBER(window, WINDOW_edge) || ack_due > PLAIN_ACK) return NULL;
    const long long stamp[3] = {NUMBER(common, COMMON_epoch), NUMBER(ledger, LEDGER_rx), room};
    change(changes, window, WINDOW_tx, tx + 1);
    change(changes, window, WINDOW_order, order);
    change(changes, window, WINDOW_sent_charge, sent);
    change(changes, window, WINDOW_flight_charge, NUMBER(window, WINDOW_flight_charge) + charge);
    change(changes, ledger, LEDGER_offered, NUMBER(ledger, LEDGER_delivered_charge) + room);
    change(changes, link, LINK__ack_at, NEVER);
    change(changes, link, LINK__acked_charge, 0);
    change(changes, link, LINK__ack_due, 0);
    if (NUMBER(link, LINK__rto_at) == NEVER) {
        long long at = now_ns + rto_ns(&reading, timeout);
        change(changes, link, LINK__waiting_since_ns, now_ns);
        change(changes, link, LINK__rto_at, at);
        if (at < NUMBER(common, COMMON_deadline_ns)) change(changes, common, COMMON_deadline_ns, at);
    }
    PyObject *frame = NULL, *batch = NULL, *number = NULL, *count = NULL, *done = NULL;
    if (!reading.bad && !changes->failed && (frame = frame_of(GET(link, LINK__ident), stamp, tx, message)) &&
        (batch = batch_of(message, tx, charge, order, now_ns)) && (number = PyLong_FromLongLong(order)) &&
        (count = counted(GET(link, LINK_counts), frames_sent)) && !PyDict_SetItem(GET(window, WINDOW_flight), number, batch)) {
        done = PyObject_CallMethodOneArg(GET(window, WINDOW_unacked), name_append, batch);
        if (!done)
            PyDict_DelItem(GET(window, WINDOW_flight), number);
        else
            PyDict_SetItem(GET(link, LINK_counts), frames_sent, count); /* replaces a value: needs no memory */
    }
    if (!done) Py_CLEAR(frame);
    Py_XDECREF(done);
    Py_XDECREF(batch);
    Py_XDECREF(number);
    Py_XDECREF(count);
    return frame;
}

PyObject *express_emit(const Express *express, PyObject *dst, PyObject *message, long long now_ns)
{
    if (!PyBytes_CheckExact(message) || PyBytes_GET_SIZE(message) > express->longest) return NULL;
    if (PyBytes_GET_SIZE(message) + express->overhead >= express->coalesce) return NULL;
    PyObject *link = link_of(express, dst), *common = GET(express->endpoint, ENDPOINT__common);
    if (!link || !IS(common, COMMON)) return NULL;
    PyObject *window = GET(link, LINK_window);
    if (window == GET(express->endpoint, ENDPOINT__self_window) || !is_idle(link, window, common)) return NULL;
    Changes changes = {0};
    PyObject *frame = emitted(express, link, message, now_ns, &changes);
    if (frame)
        store(&changes);
    else
        undo(&changes);
    return frame;
}

/* ---- receiving ------------------------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t job, epoch, ack, room, first;
    uint32_t source, target, source_incarnation, target_incarnation, count, length;
} Header;

static int open_header(PyObject *frame, Header *header)
{
    if (!PyBytes_CheckExact(frame) || PyBytes_GET_SIZE(frame) < HEADER) return 0;
    const unsigned char *at = (unsigned char *)PyBytes_AS_STRING(frame);
    if (get_number(at + 4, 4) != (MAGIC | MESSAGES << 16)) return 0; /* magic, kind, no flags */
    if (get_number(at, 4) != crc32(at + 4, (size_t)PyBytes_GET_SIZE(frame) - 4)) return 0;
    header->job = get_number(at + 8, 8);
    header->source = (uint32_t)get_number(at + 16, 4);
    header->target = (uint32_t)get_number(at + 20, 4);
    header->source_incarnation = (uint32_t)get_number(at + 24, 4);
    header->target_incarnation = (uint32_t)get_number(at + 28, 4);
    header->epoch = get_number(at + 32, 8);
    header->ack = get_number(at + 40, 8);
    header->room = get_number(at + 48, 8);
    header->first = get_number(at + 56, 8);
    header->count = (uint32_t)get_number(at + 64, 4);
    header->length = (uint32_t)get_number(at + 68, 4);
    return header->epoch < NEVER && header->ack < NEVER && header->room < NEVER && header->first < NEVER && header->count;
}

static PyObject *messages_of(PyObject *frame, const Header *header)
{
    const char *body = PyBytes_AS_STRING(frame) + HEADER;
    Py_ssize_t size = PyBytes_GET_SIZE(frame) - HEADER;
    if (header->count == 1 && (Py_ssize_t)header->length == size) {
        PyObject *list = PyList_New(1), *message = list ? PyBytes_FromStringAndSize(body, size) : NULL;
        if (!message) Py_CLEAR(list);
        if (message) PyList_SET_ITEM(list, 0, message);
        return list;
    }
    PyObject *list = PyObject_CallFunction(split, "Onkk", frame, (Py_ssize_t)HEADER, (unsigned long)header->count,
                                           (unsigned long)header->length);
    if (list == Py_None) Py_CLEAR(list);
    return list;
}

/* The only batch in flight, if `ack` acknowledges it and nothing else: borrowed. */
static PyObject *acked_batch(PyObject *window, long long ack)
{
    Reading reading = {0};
    PyObject *unacked = GET(window, WINDOW_unacked), *flight = GET(window, WINDOW_flight);
    if (!unacked || PyObject_Size(unacked) != 1 || !flight || !PyDict_CheckExact(flight)) return NULL;
    if (!empty_list(GET(window, WINDOW_queue)) || !empty_deque(GET(window, WINDOW_sealed))) return NULL;
    if (GET(window, WINDOW_current) != Py_None || PyDict_GET_SIZE(flight) != 1) return NULL;
    PyObject *batch = PySequence_GetItem(unacked, 0);
    Py_XDECREF(batch); /* the deque has it */
    if (!IS(batch, BATCH)) return NULL;
    int right = NUMBER(batch, BATCH_end) == ack && NUMBER(batch, BATCH_state) == FLIGHT && NUMBER(window, WINDOW_tx) >= ack;
    return right && !reading.bad && PyDict_GetItemWithError(flight, GET(batch, BATCH_order)) == batch ? batch : NULL;
}

/* Timeout.sample. */
static void take_sample(Reading *state, PyObject *timeout, long long rtt, Changes *changes)
{
    Reading reading = {0};
    long long srtt = NUMBER(timeout, TIMEOUT_srtt_ns), var = NUMBER(timeout, TIMEOUT__var_ns);
    if (rtt < 1) rtt = 1;
    long long apart = srtt > rtt ? srtt - rtt : rtt - srtt;
    change(changes, timeout, TIMEOUT_srtt_ns, srtt ? srtt + ((rtt - srtt) >> 3) : rtt);
    change(changes, timeout, TIMEOUT__var_ns, srtt ? var + ((apart - var) >> 2) : rtt >> 1);
    state->bad |= reading.bad;
}

/* Link.on_control for the acknowledgement and the credit.  `acked`: the batch that is acknowledged, or NULL. */
static void take_control(Reading *state, PyObject *link, const Header *header, PyObject *acked, long long now_ns, Changes *changes)
{
    Reading reading = {0};
    PyObject *window = GET(link, LINK_window), *timeout = GET(link, LINK_timeout);
    long long acked_charge = NUMBER(window, WINDOW_acked_charge);
    if (acked) {
        long long charge = NUMBER(acked, BATCH_charge), order = NUMBER(acked, BATCH_order);
        acked_charge += charge;
        change(changes, window, WINDOW_acked_charge, acked_charge);
        change(changes, window, WINDOW_flight_charge, NUMBER(window, WINDOW_flight_charge) - charge);
        change(changes, window, WINDOW_base, (long long)header->ack);
        change(changes, acked, BATCH_state, DONE);
        if (order > NUMBER(window, WINDOW_top_order)) change(changes, window, WINDOW_top_order, order);
        if (NUMBER(acked, BATCH_sends) == 1) {
            long long sample = now_ns - NUMBER(acked, BATCH_sent_ns);
            if (sample) take_sample(&reading, timeout, sample, changes);
        }
        change(changes, timeout, TIMEOUT_backoff, 0);
        change(changes, link, LINK__rto_at, NEVER);
    }
    long long edge = acked_charge + (long long)header->room;
    if (edge > NUMBER(window, WINDOW_edge)) {
        change(changes, window, WINDOW_edge, edge);
        int waits = !empty_list(GET(window, WINDOW_queue)) || !empty_deque(GET(window, WINDOW_sealed));
        if (waits && GET(window, WINDOW_clean) == Py_True) reading.bad = 1;
    }
    if ((long long)header->epoch > NUMBER(link, LINK_peer_epoch)) change(changes, link, LINK_peer_epoch, (long long)header->epoch);
    change(changes, link, LINK_heard_ns, now_ns);
    state->bad |= reading.bad;
}

/* Ledger.accept, and Link.take. */
static void take_messages(Reading *state, const Express *express, PyObject *link, const Header *header, Py_ssize_t size,
                          long long now_ns, Changes *changes)
{
    Reading reading = {0};
    PyObject *ledger = GET(link, LINK_ledger), *common = GET(express->endpoint, ENDPOINT__common);
    long long body = (long long)size - HEADER - (header->length == VARIED ? 4LL * header->count : 0);
    long long charge = body + express->overhead * header->count, upto = (long long)header->first + header->count;
    change(changes, ledger, LEDGER_arrived, upto);
    change(changes, ledger, LEDGER_rx, upto);
    change(changes, ledger, LEDGER_unconsumed, NUMBER(ledger, LEDGER_unconsumed) + charge);
    change(changes, ledger, LEDGER_delivered_charge, NUMBER(ledger, LEDGER_delivered_charge) + charge);
    long long owed = NUMBER(link, LINK__acked_charge) + charge, ack_at = NUMBER(link, LINK__ack_at);
    change(changes, link, LINK__acked_charge, owed);
    if (owed >= NUMBER(common, COMMON_ack_bytes)) reading.bad = 1; /* an ACK is due at once */
    if (ack_at == NEVER || owed >= BULK_CHARGE) {
        long long at = now_ns + (NUMBER(common, COMMON_ack_delay_ns) >> (owed >= BULK_CHARGE ? 3 : 0));
        if (at < ack_at) {
            change(changes, link, LINK__ack_at, at);
            if (at < NUMBER(common, COMMON_deadline_ns)) change(changes, common, COMMON_deadline_ns, at);
        }
    }
    change(changes, express->endpoint, ENDPOINT__clock_ns, now_ns);
    state->bad |= reading.bad;
}

/* Is this the next frame of a link on which all is well? */
static int is_next(const Express *express, PyObject *link, const Header *header)
{
    Reading reading = {0};
    PyObject *endpoint = express->endpoint, *common = GET(endpoint, ENDPOINT__common), *ledger = GET(link, LINK_ledger);
    PyObject *self_window = GET(endpoint, ENDPOINT__self_window);
    return IS(common, COMMON) && IS(self_window, WINDOW) && header->job == express->job &&
           header->target == express->rank && header->source != express->rank && header->target_incarnation == express->incarnation &&
           header->source_incarnation == NUMBER(link, LINK_incarnation) && (long long)header->epoch <= NUMBER(common, COMMON_epoch) &&
           GET(link, LINK_paused) == Py_False && GET(link, LINK__silence_reported) == Py_False && !NUMBER(link, LINK_timeouts) &&
           (long long)header->first == NUMBER(ledger, LEDGER_arrived) && empty_dict(GET(ledger, LEDGER_early)) &&
           empty_list(GET(ledger, LEDGER_inbox)) && empty_list(GET(endpoint, ENDPOINT__fresh)) &&
           GET(self_window, WINDOW_clean) == Py_True && !reading.bad;
}

static PyObject *accepted(const Express *express, PyObject *link, PyObject *frame, const Header *header, long long now_ns)
{
    Reading reading = {0};
    PyObject *window = GET(link, LINK_window), *acked = NULL;
    if (!is_next(express, link, header)) return NULL;
    if ((long long)header->ack != NUMBER(window, WINDOW_base) && !(acked = acked_batch(window, (long long)header->ack))) return NULL;
    Changes changes = {0};
    take_control(&reading, link, header, acked, now_ns, &changes);
    take_messages(&reading, express, link, header, PyBytes_GET_SIZE(frame), now_ns, &changes);
    PyObject *count = counted(GET(link, LINK_counts), frames_received);
    PyObject *messages = reading.bad || changes.failed || !count ? NULL : messages_of(frame, header);
    Py_XINCREF(acked);
    if (messages && acked) {
        PyObject *done = PyObject_CallMethodNoArgs(GET(window, WINDOW_unacked), name_popleft);
        if (!done || PyDict_DelItem(GET(window, WINDOW_flight), GET(acked, BATCH_order))) Py_CLEAR(messages);
        Py_XDECREF(done);
    }
    if (messages) {
        PyDict_SetItem(GET(link, LINK_counts), frames_received, count); /* replaces a value: needs no memory */
        store(&changes);
    } else {
        undo(&changes);
    }
    Py_XDECREF(acked);
    Py_XDECREF(count);
    return messages;
}

PyObject *express_accept(const Express *express, PyObject *frame, long long now_ns, PyObject **source)
{
    Header header;
    if (!open_header(frame, &header)) return NULL;
    PyObject *rank = PyLong_FromUnsignedLong(header.source), *link = rank ? link_of(express, rank) : NULL, *messages = NULL;
    if (link) messages = accepted(express, link, frame, &header, now_ns);
    if (!messages) {
        PyErr_Clear();
        Py_XDECREF(rank);
        return NULL;
    }
    *source = rank;
    return messages;
}

int express_prepare(void)
{
    prepare_sums();
    PyObject *module = PyImport_ImportModule("ckpt.transport.protocol.batches");
    split = module ? PyObject_GetAttrString(module, "split") : NULL;
    Py_XDECREF(module);
    return split && (name_append = PyUnicode_InternFromString("append")) && (name_popleft = PyUnicode_InternFromString("popleft")) &&
                   (frames_sent = PyUnicode_InternFromString("frames_sent")) &&
                   (frames_received = PyUnicode_InternFromString("frames_received"))
               ? 0
               : -1;
}
