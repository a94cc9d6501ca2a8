/* What Endpoint.receive and Endpoint.delivered do with a MESSAGES frame that is next in order, on the very objects of
   transport/protocol.

   It looks at everything first, and leaves all that is not ordinary to Python, having changed nothing: other kinds of frames and
   flags, later epochs, other incarnations, gaps, duplicates, early messages, a paused or silent peer, acknowledgements of anything
   but the only batch in flight, an acknowledgement that is due at once.  Otherwise as express_send.c. */

#define PY_SSIZE_T_CLEAN
#include "express_numbers.h"

static PyObject *split, *name_popleft, *frames_received;

static uint64_t get_number(const unsigned char *at, int bytes)
{
    uint64_t number = 0;
    for (int i = 0; i < bytes; i++) number |= (uint64_t)at[i] << 8 * i;
    return number;
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
    if (get_number(at, 4) != express_crc32(at + 4, (size_t)PyBytes_GET_SIZE(frame) - 4)) return 0;
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

int express_prepare_receive(void)
{
    PyObject *module = PyImport_ImportModule("ckpt.transport.protocol.batches");
    split = module ? PyObject_GetAttrString(module, "split") : NULL;
    Py_XDECREF(module);
    return split && (name_popleft = PyUnicode_InternFromString("popleft")) &&
                   (frames_received = PyUnicode_InternFromString("frames_received"))
               ? 0
               : -1;
}
