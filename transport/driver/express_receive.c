/* What Endpoint.receive and Endpoint.delivered do with a MESSAGES frame that is next in order, on the very objects of
   transport/protocol.

   It looks at everything first, and leaves all that is not ordinary to Python, having changed nothing: other kinds of frames and
   flags, later epochs, other incarnations, gaps, duplicates, early messages, a paused or silent peer, acknowledgements of anything
   but the oldest few batches, an acknowledgement that is due at once.  Otherwise as express_send.c. */

#define PY_SSIZE_T_CLEAN
#include "express_numbers.h"

static PyObject *name_popleft, *frames_received;

static uint64_t get_number(const unsigned char *at, int bytes)
{
    uint64_t number = 0;
    for (int i = 0; i < bytes; i++) number |= (uint64_t)at[i] << 8 * i;
    return number;
}

/* ---- receiving ------------------------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t job, epoch, ack, room, first;
    uint32_t source, target, source_incarnation, target_incarnation, count, length, sum, sum_of_head;
} Header;

static size_t size_of(const Incoming *frame) { return frame->size[0] + frame->size[1]; }

/* Copy from a place of the frame, which has so much. */
static void copy_out(const Incoming *frame, size_t from, void *to, size_t size)
{
    size_t first = from < frame->size[0] ? frame->size[0] - from : 0;
    if (first > size) first = size;
    if (first) memcpy(to, frame->at[0] + from, first);
    if (size > first) memcpy((char *)to + first, frame->at[1] + (from + first - frame->size[0]), size - first);
}

/* Read the head.  Its numbers may be anything until the checksum of the whole frame is compared (`messages_of`). */
static int open_header(const Incoming *frame, Header *header)
{
    unsigned char at[HEADER];
    if (size_of(frame) < HEADER) return 0;
    copy_out(frame, 0, at, HEADER);
    if (get_number(at + 4, 4) != (MAGIC | MESSAGES << 16)) return 0; /* magic, kind, no flags */
    header->sum = (uint32_t)get_number(at, 4);
    header->sum_of_head = checksum(0, at + 4, HEADER - 4);
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

/* As batches.split: do so many messages fill the frame?  Of a table only its own length is known here. */
static int may_fit(const Incoming *frame, const Header *header)
{
    uint64_t size = size_of(frame) - HEADER;
    if (header->length == VARIED) return header->count <= size / 4;
    return (header->count == 1 || header->length) && (uint64_t)header->count * header->length == size;
}

/* Copy the messages into the list, and compare the checksum.  0: the frame is damaged, or there is no memory. */
static int fill_list(const Incoming *frame, const Header *header, const unsigned char *table, PyObject *list)
{
    size_t at = HEADER + (table ? 4 * (size_t)header->count : 0), size = size_of(frame);
    uint32_t sum = table ? checksum(header->sum_of_head, table, 4 * (size_t)header->count) : header->sum_of_head;
    for (uint32_t i = 0; i < header->count; i++) {
        size_t length = table ? (size_t)get_number(table + 4 * (size_t)i, 4) : header->length;
        PyObject *message = length <= size - at ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length) : NULL;
        if (!message) return 0;
        copy_out(frame, at, PyBytes_AS_STRING(message), length);
        sum = checksum(sum, (unsigned char *)PyBytes_AS_STRING(message), length);
        PyList_SET_ITEM(list, (Py_ssize_t)i, message);
        at += length;
    }
    return at == size && sum == header->sum;
}

static int copy_messages(const Incoming *frame, const Header *header, PyObject *list)
{
    if (header->length != VARIED) return fill_list(frame, header, NULL, list);
    unsigned char *table = PyMem_Malloc(4 * (size_t)header->count); /* its own copy: the sender may still write to the frame */
    if (!table) return 0;
    copy_out(frame, HEADER, table, 4 * (size_t)header->count);
    int is_whole = fill_list(frame, header, table, list);
    PyMem_Free(table);
    return is_whole;
}

/* The oldest batches, which an acknowledgement frees, and the oldest order that is in flight after it (NEVER: none is). */
enum { MOST_ACKED = 4 };
typedef struct {
    int count;
    long long next;
    PyObject *each[MOST_ACKED]; /* borrowed: the window has them */
} Acked;

/* Is nothing of the window lost, reported by hints, or long and under way? */
static int is_plain(PyObject *window)
{
    PyObject *unacked = GET(window, WINDOW_unacked), *flight = GET(window, WINDOW_flight), *queue = GET(window, WINDOW_queue);
    return unacked && flight && PyDict_CheckExact(flight) && PyObject_Size(unacked) == PyDict_GET_SIZE(flight) && queue &&
           PyList_CheckExact(queue) && empty_deque(GET(window, WINDOW_sealed)) && empty_deque(GET(window, WINDOW_resend)) &&
           GET(window, WINDOW_current) == Py_None;
}

/* Find what `ack` frees: whole batches that are in flight.  0: it is another case. */
static int find_acked(PyObject *window, long long ack, Acked *acked)
{
    Reading reading = {0};
    PyObject *unacked = GET(window, WINDOW_unacked), *flight = GET(window, WINDOW_flight), *order, *unit;
    if (!is_plain(window) || NUMBER(window, WINDOW_tx) < ack) return 0;
    long long end = -1, top = NUMBER(window, WINDOW_top_order);
    while (end != ack) {
        PyObject *batch = acked->count < MOST_ACKED && acked->count < PyDict_GET_SIZE(flight)
                              ? PySequence_GetItem(unacked, acked->count)
                              : NULL;
        Py_XDECREF(batch); /* the deque has it */
        if (!IS(batch, BATCH) || NUMBER(batch, BATCH_state) != FLIGHT) return 0;
        if (PyDict_GetItemWithError(flight, GET(batch, BATCH_order)) != batch) return 0;
        if ((end = NUMBER(batch, BATCH_end)) > ack || reading.bad) return 0;
        if (NUMBER(batch, BATCH_order) > top) top = NUMBER(batch, BATCH_order);
        acked->each[acked->count++] = batch;
    }
    Py_ssize_t at = 0, number = 0;
    while (PyDict_Next(flight, &at, &order, &unit) && number < acked->count && unit == acked->each[number]) number++;
    if (number < acked->count) return 0; /* they were not sent in this order */
    acked->next = PyDict_GET_SIZE(flight) == acked->count ? NEVER : value(&reading, order);
    return !reading.bad && acked->next >= top; /* else a later one has arrived before it: is it lost? */
}

/* Timeout.sample. */
static void take_sample(long long *srtt, long long *var, long long rtt)
{
    if (rtt < 1) rtt = 1;
    long long apart = *srtt > rtt ? *srtt - rtt : rtt - *srtt;
    *var = *srtt ? *var + ((apart - *var) >> 2) : rtt >> 1;
    *srtt = *srtt ? *srtt + ((rtt - *srtt) >> 3) : rtt;
}

/* Link._on_ack.  `deadline`: the time of the next timer of the port, which may become earlier.  Returns the charge that is freed. */
static long long take_ack(Reading *state, PyObject *link, long long ack, const Acked *acked, long long now_ns, long long *deadline,
                          Changes *changes)
{
    Reading reading = {0};
    PyObject *window = GET(link, LINK_window), *timeout = GET(link, LINK_timeout);
    long long freed = 0, top = NUMBER(window, WINDOW_top_order), sample = 0;
    long long srtt = NUMBER(timeout, TIMEOUT_srtt_ns), var = NUMBER(timeout, TIMEOUT__var_ns);
    for (int i = 0; i < acked->count; i++) {
        PyObject *batch = acked->each[i];
        long long order = NUMBER(batch, BATCH_order);
        freed += NUMBER(batch, BATCH_charge);
        if (order > top) top = order;
        if (NUMBER(batch, BATCH_sends) == 1) sample = now_ns - NUMBER(batch, BATCH_sent_ns);
        change(changes, batch, BATCH_state, DONE);
    }
    change(changes, window, WINDOW_acked_charge, NUMBER(window, WINDOW_acked_charge) + freed);
    change(changes, window, WINDOW_flight_charge, NUMBER(window, WINDOW_flight_charge) - freed);
    change(changes, window, WINDOW_base, ack);
    change(changes, window, WINDOW_top_order, top);
    if (sample) take_sample(&srtt, &var, sample);
    change(changes, timeout, TIMEOUT_srtt_ns, srtt);
    change(changes, timeout, TIMEOUT__var_ns, var);
    change(changes, timeout, TIMEOUT_backoff, 0);
    long long rto_at = acked->next == NEVER ? NEVER : now_ns + express_rto_ns(&reading, timeout, srtt, var);
    if (rto_at != NEVER && NUMBER(link, LINK__rto_at) == NEVER) change(changes, link, LINK__waiting_since_ns, now_ns);
    change(changes, link, LINK__rto_at, rto_at);
    if (rto_at < *deadline) *deadline = rto_at;
    if (PyList_GET_SIZE(GET(window, WINDOW_queue)) && GET(window, WINDOW_clean) != Py_False) reading.bad = 1;
    state->bad |= reading.bad;
    return freed;
}

/* Link.on_control for the acknowledgement and the credit.  `acked`: what is freed, perhaps nothing. */
static void take_control(Reading *state, PyObject *link, const Header *header, const Acked *acked, long long now_ns,
                         long long *deadline, Changes *changes)
{
    Reading reading = {0};
    PyObject *window = GET(link, LINK_window);
    long long acked_charge = NUMBER(window, WINDOW_acked_charge);
    if (acked->count) acked_charge += take_ack(&reading, link, (long long)header->ack, acked, now_ns, deadline, changes);
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
                          long long now_ns, long long *deadline, Changes *changes)
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
            if (at < *deadline) *deadline = at;
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

/* Window.acknowledge: what is freed leaves the window.  -1 with an exception. */
static int leave(PyObject *window, const Acked *acked)
{
    for (int i = 0; i < acked->count; i++) {
        PyObject *done = PyObject_CallMethodNoArgs(GET(window, WINDOW_unacked), name_popleft);
        if (!done) return -1;
        int failed = PyDict_DelItem(GET(window, WINDOW_flight), GET(done, BATCH_order));
        Py_DECREF(done);
        if (failed) return -1;
    }
    return 0;
}

/* 1: the messages are in the list, and count as delivered.  0: nothing has changed. */
static int accepted(const Express *express, PyObject *link, const Incoming *frame, const Header *header, long long now_ns,
                    PyObject *messages)
{
    Reading reading = {0};
    PyObject *window = GET(link, LINK_window), *common = GET(express->endpoint, ENDPOINT__common);
    Acked acked = {0};
    if (!is_next(express, link, header)) return 0;
    if ((long long)header->ack != NUMBER(window, WINDOW_base) && !find_acked(window, (long long)header->ack, &acked)) return 0;
    Changes changes = {0};
    long long before = NUMBER(common, COMMON_deadline_ns), deadline = before;
    take_control(&reading, link, header, &acked, now_ns, &deadline, &changes);
    take_messages(&reading, express, link, header, (Py_ssize_t)size_of(frame), now_ns, &deadline, &changes);
    if (deadline < before) change(&changes, common, COMMON_deadline_ns, deadline);
    PyObject *count = counted(GET(link, LINK_counts), frames_received);
    int is_taken = !reading.bad && !changes.failed && count && copy_messages(frame, header, messages);
    for (int i = 0; i < acked.count; i++) Py_INCREF(acked.each[i]); /* their numbers are stored last */
    is_taken = is_taken && !leave(window, &acked);
    if (is_taken) {
        PyDict_SetItem(GET(link, LINK_counts), frames_received, count); /* replaces a value: needs no memory */
        store(&changes);
        if (acked.count && acked.next == NEVER && PyList_GET_SIZE(GET(window, WINDOW_queue)))
            Py_XSETREF(GET(common, COMMON_flush_due), Py_NewRef(Py_True)); /* Link.request_transmit: nothing is in flight */
    } else {
        undo(&changes);
    }
    for (int i = 0; i < acked.count; i++) Py_DECREF(acked.each[i]);
    Py_XDECREF(count);
    return is_taken;
}

PyObject *express_accept(const Express *express, const Incoming *frame, long long now_ns, PyObject **source)
{
    Header header;
    if (!open_header(frame, &header) || !may_fit(frame, &header)) return NULL;
    PyObject *messages = PyList_New((Py_ssize_t)header.count); /* now, since it may start a collection, which runs anything */
    PyObject *rank = messages ? PyLong_FromUnsignedLong(header.source) : NULL, *link = rank ? link_of(express, rank) : NULL;
    if (link && accepted(express, link, frame, &header, now_ns, messages)) {
        *source = rank;
        return messages;
    }
    PyErr_Clear();
    Py_XDECREF(rank);
    Py_XDECREF(messages);
    return NULL;
}

int express_prepare_receive(void)
{
    return (name_popleft = PyUnicode_InternFromString("popleft")) &&
                   (frames_received = PyUnicode_InternFromString("frames_received"))
               ? 0
               : -1;
}
