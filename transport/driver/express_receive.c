/* What Endpoint.receive and Endpoint.delivered do with a MESSAGES frame that is next in order, and with an ACK without hints, on the
   very objects of transport/protocol.  What a frame says beside its messages is taken here for express_remote.c, too.

   It looks at everything first, and leaves all that is not ordinary to Python, having changed nothing: other kinds of frames and
   flags, later epochs, other incarnations, gaps, duplicates, early messages, a paused or silent peer, acknowledgements of anything
   but the oldest few batches and whole long messages.  Otherwise as express_send.c. */

#define PY_SSIZE_T_CLEAN
#include "express_numbers.h"

/* ---- a frame that has come ------------------------------------------------------------------------------------------------- */

static size_t size_of(const Incoming *frame) { return frame->size[0] + frame->size[1]; }

void express_copy(const Incoming *frame, size_t from, void *to, size_t size)
{
    size_t first = from < frame->size[0] ? frame->size[0] - from : 0;
    if (first > size) first = size;
    if (first) memcpy(to, frame->at[0] + from, first);
    if (size > first) memcpy((char *)to + first, frame->at[1] + (from + first - frame->size[0]), size - first);
}

int express_open(const Incoming *frame, Header *header)
{
    unsigned char at[HEADER];
    if (size_of(frame) < HEADER) return 0;
    express_copy(frame, 0, at, HEADER);
    if (get_number(at + 4, 2) != MAGIC) return 0;
    header->kind = at[6];
    header->flags = at[7];
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
    return header->epoch < NEVER && header->ack < NEVER && header->room < NEVER && header->first < NEVER;
}

/* Are these messages, or an acknowledgement without hints?  Messages must fill the frame, as for batches.split; of a table only its own
   length is known here. */
static int may_fit(const Incoming *frame, const Header *header)
{
    uint64_t size = size_of(frame) - HEADER;
    if (header->flags) return 0;
    if (header->kind == ACK) return !size && !header->count && !header->length && header->sum == header->sum_of_head;
    if (header->kind != MESSAGES || !header->count) return 0;
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
        express_copy(frame, at, PyBytes_AS_STRING(message), length);
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
    express_copy(frame, HEADER, table, 4 * (size_t)header->count);
    int is_whole = fill_list(frame, header, table, list);
    PyMem_Free(table);
    return is_whole;
}

/* ---- what it acknowledges -------------------------------------------------------------------------------------------------- */

/* Is nothing of the window lost, reported by hints, or under way in pieces? */
static int is_plain(PyObject *window)
{
    PyObject *unacked = GET(window, WINDOW_unacked), *flight = GET(window, WINDOW_flight), *queue = GET(window, WINDOW_queue);
    return unacked && flight && PyDict_CheckExact(flight) && PyObject_Size(unacked) == PyDict_GET_SIZE(flight) && queue &&
           PyList_CheckExact(queue) && empty_deque(GET(window, WINDOW_sealed)) && empty_deque(GET(window, WINDOW_resend)) &&
           GET(window, WINDOW_current) == Py_None;
}

/* The only unit of an entry: borrowed.  NULL: it has several, or none. */
static PyObject *unit_of(PyObject *entry)
{
    if (IS(entry, BATCH)) return entry;
    PyObject *pieces = IS(entry, LARGE) ? GET(entry, LARGE_pieces) : NULL;
    if (!pieces || !PyList_CheckExact(pieces) || PyList_GET_SIZE(pieces) != 1) return NULL;
    PyObject *piece = PyList_GET_ITEM(pieces, 0);
    return IS(piece, FRAGMENT) ? piece : NULL;
}

#define ENTRY(entry, slot) (IS(entry, BATCH) ? BATCH_##slot : LARGE_##slot)

/* Find what `ack` frees: whole entries that are in flight.  0: it is another case. */
static int find_acked(PyObject *window, long long ack, News *news)
{
    PyObject *unacked = GET(window, WINDOW_unacked), *flight = GET(window, WINDOW_flight), *unit;
    if (!is_plain(window) || NUMBER(window, WINDOW_tx) < ack) return 0;
    long long end = -1, top = NUMBER(window, WINDOW_top_order);
    while (end != ack) {
        int is_known = news->acked < MOST_ACKED && news->acked < PyDict_GET_SIZE(flight);
        PyObject *entry = is_known ? PySequence_GetItem(unacked, news->acked) : NULL;
        Py_XDECREF(entry); /* the deque has it */
        unit = entry ? unit_of(entry) : NULL;
        if (!unit || NUMBER(unit, UNIT(unit, state)) != FLIGHT) return 0;
        if ((end = NUMBER(entry, ENTRY(entry, end))) > ack) return 0;
        if (NUMBER(unit, UNIT(unit, order)) > top) top = NUMBER(unit, UNIT(unit, order));
        news->entries[news->acked] = entry;
        news->units[news->acked++] = unit;
    }
    Py_ssize_t at = 0;
    int number = 0;
    while (PyDict_Next(flight, &at, NULL, &unit) && number < news->acked && unit == news->units[number]) number++;
    if (number < news->acked) return 0; /* they were not sent in this order */
    news->next = PyDict_GET_SIZE(flight) == news->acked ? NEVER : NUMBER(unit, UNIT(unit, order));
    return news->next >= top; /* else a later one has arrived before it: is it lost? */
}

/* Timeout.sample. */
static void take_sample(long long *srtt, long long *var, long long rtt)
{
    if (rtt < 1) rtt = 1;
    long long apart = *srtt > rtt ? *srtt - rtt : rtt - *srtt;
    *var = *srtt ? *var + ((apart - *var) >> 2) : rtt >> 1;
    *srtt = *srtt ? *srtt + ((rtt - *srtt) >> 3) : rtt;
}

/* The time that the last of the freed units took; 0: none was sent once only. */
static long long sample_of(const News *news, long long now_ns)
{
    long long sample = 0;
    for (int i = 0; i < news->acked; i++) {
        PyObject *unit = news->units[i];
        if (NUMBER(unit, UNIT(unit, sends)) != 1) continue;
        long long took = now_ns - NUMBER(unit, UNIT(unit, sent_ns));
        if (took || unit == news->entries[i]) sample = took;
    }
    return sample;
}

/* SendWindow.acknowledge: what is freed, in numbers.  Returns its charge. */
static long long free_entries(PyObject *window, long long ack, News *news)
{
    Changes *changes = &news->changes;
    long long freed = 0, landed = 0, top = NUMBER(window, WINDOW_top_order);
    for (int i = 0; i < news->acked; i++) {
        PyObject *entry = news->entries[i], *unit = news->units[i];
        long long order = NUMBER(unit, UNIT(unit, order));
        freed += NUMBER(entry, ENTRY(entry, charge));
        landed += NUMBER(unit, UNIT(unit, charge));
        if (order > top) top = order;
        change(changes, unit, UNIT(unit, state), DONE);
    }
    change(changes, window, WINDOW_acked_charge, NUMBER(window, WINDOW_acked_charge) + freed);
    change(changes, window, WINDOW_flight_charge, NUMBER(window, WINDOW_flight_charge) - landed);
    change(changes, window, WINDOW_base, ack);
    change(changes, window, WINDOW_top_order, top);
    return freed;
}

/* Link._on_ack.  `deadline`: the time of the next timer of the port, which may become earlier.  Returns the charge that is freed;
   -1: it is another case. */
static long long take_ack(PyObject *link, long long ack, News *news, long long now_ns, long long *deadline)
{
    Changes *changes = &news->changes;
    PyObject *window = GET(link, LINK_window), *timeout = GET(link, LINK_timeout);
    long long srtt = NUMBER(timeout, TIMEOUT_srtt_ns), var = NUMBER(timeout, TIMEOUT__var_ns), sample = sample_of(news, now_ns);
    long long freed = free_entries(window, ack, news);
    if (sample) take_sample(&srtt, &var, sample);
    change(changes, timeout, TIMEOUT_srtt_ns, srtt);
    change(changes, timeout, TIMEOUT__var_ns, var);
    change(changes, timeout, TIMEOUT_backoff, 0);
    long long rto_at = news->next == NEVER ? NEVER : now_ns + express_rto_ns(timeout, srtt, var);
    if (rto_at != NEVER && NUMBER(link, LINK__rto_at) == NEVER) change(changes, link, LINK__waiting_since_ns, now_ns);
    change(changes, link, LINK__rto_at, rto_at);
    if (rto_at < *deadline) *deadline = rto_at;
    return PyList_GET_SIZE(GET(window, WINDOW_queue)) && GET(window, WINDOW_clean) != Py_False ? -1 : freed;
}

/* ---- what it changes ------------------------------------------------------------------------------------------------------- */

/* Link.on_control for the acknowledgement, which frees the entries that were found, the credit, and the flag ANSWER.  0: it is another
   case. */
static int take_control(PyObject *link, const Header *header, long long now_ns, long long *deadline, News *news)
{
    Changes *changes = &news->changes;
    PyObject *window = GET(link, LINK_window);
    long long acked_charge = NUMBER(window, WINDOW_acked_charge);
    if (news->acked) {
        long long freed = take_ack(link, (long long)header->ack, news, now_ns, deadline);
        if (freed < 0) return 0;
        acked_charge += freed;
    }
    long long edge = acked_charge + (long long)header->room;
    if (edge > NUMBER(window, WINDOW_edge)) {
        change(changes, window, WINDOW_edge, edge);
        int waits = !empty_list(GET(window, WINDOW_queue)) || !empty_deque(GET(window, WINDOW_sealed));
        if (waits && GET(window, WINDOW_clean) == Py_True) return 0;
    }
    if ((long long)header->epoch > NUMBER(link, LINK_peer_epoch)) change(changes, link, LINK_peer_epoch, (long long)header->epoch);
    change(changes, link, LINK_heard_ns, now_ns);
    news->answers = header->flags & ANSWER;
    return 1;
}

/* Ledger.accept, and Link.take. */
static void take_messages(const Express *express, PyObject *link, long long upto, long long charge, long long now_ns,
                          long long *deadline, News *news)
{
    Changes *changes = &news->changes;
    PyObject *ledger = GET(link, LINK_ledger), *common = GET(express->endpoint, ENDPOINT__common);
    change(changes, ledger, LEDGER_arrived, upto);
    change(changes, ledger, LEDGER_rx, upto);
    change(changes, ledger, LEDGER_unconsumed, NUMBER(ledger, LEDGER_unconsumed) + charge);
    change(changes, ledger, LEDGER_delivered_charge, NUMBER(ledger, LEDGER_delivered_charge) + charge);
    long long owed = NUMBER(link, LINK__acked_charge) + charge, ack_at = NUMBER(link, LINK__ack_at);
    change(changes, link, LINK__acked_charge, owed);
    if (owed >= NUMBER(common, COMMON_ack_bytes)) {
        news->answers = 1;
    } else if (ack_at == NEVER || owed >= BULK_CHARGE) {
        long long at = now_ns + (NUMBER(common, COMMON_ack_delay_ns) >> (owed >= BULK_CHARGE ? 3 : 0));
        if (at < ack_at) {
            change(changes, link, LINK__ack_at, at);
            if (at < *deadline) *deadline = at;
        }
    }
}

int express_is_next(const Express *express, PyObject *link, const Header *header)
{
    PyObject *endpoint = express->endpoint, *common = GET(endpoint, ENDPOINT__common), *ledger = GET(link, LINK_ledger);
    PyObject *self_window = GET(endpoint, ENDPOINT__self_window);
    int is_in_order = header->kind == ACK || ((long long)header->first == NUMBER(ledger, LEDGER_arrived) &&
                                              empty_dict(GET(ledger, LEDGER_early)) && empty_list(GET(ledger, LEDGER_inbox)));
    int is_delivered = IS(self_window, WINDOW) && GET(self_window, WINDOW_clean) == Py_True && empty_list(GET(endpoint, ENDPOINT__fresh));
    return IS(common, COMMON) && header->job == express->job &&
           header->target == express->rank && header->source != express->rank && header->target_incarnation == express->incarnation &&
           header->source_incarnation == NUMBER(link, LINK_incarnation) && (long long)header->epoch <= NUMBER(common, COMMON_epoch) &&
           GET(link, LINK_paused) == Py_False && GET(link, LINK__silence_reported) == Py_False && !NUMBER(link, LINK_timeouts) &&
           is_in_order && is_delivered;
}

/* Window.acknowledge: what is freed leaves the window.  -1 with an exception. */
static int leave(PyObject *window, const News *news)
{
    for (int i = 0; i < news->acked; i++) {
        PyObject *entry = PyObject_Vectorcall(express_popleft, &GET(window, WINDOW_unacked), 1, NULL);
        if (!entry) return -1;
        int failed = PyDict_DelItem(GET(window, WINDOW_flight), news->orders[i]);
        /* the two refer to each other; needs no memory */
        if (news->units[i] != entry) PyList_SetSlice(GET(entry, LARGE_pieces), 0, 1, NULL);
        Py_DECREF(entry);
        if (failed) return -1;
    }
    return 0;
}

int express_settle(const Express *express, PyObject *link, const Header *header, long long messages, long long charge, long long now_ns,
                   News *news)
{
    PyObject *window = GET(link, LINK_window), *common = GET(express->endpoint, ENDPOINT__common);
    *news = (News){.link = link, .is_ack = header->kind == ACK};
    if ((long long)header->ack != NUMBER(window, WINDOW_base) && !find_acked(window, (long long)header->ack, news)) return 0;
    long long before = NUMBER(common, COMMON_deadline_ns), deadline = before;
    if (!take_control(link, header, now_ns, &deadline, news)) return 0;
    if (messages) take_messages(express, link, (long long)header->first + messages, charge, now_ns, &deadline, news);
    if (deadline < before) change(&news->changes, common, COMMON_deadline_ns, deadline);
    if (news->answers && NUMBER(link, LINK__ack_due) < PLAIN_ACK) change(&news->changes, link, LINK__ack_due, PLAIN_ACK);
    change(&news->changes, express->endpoint, ENDPOINT__clock_ns, now_ns);
    int has_orders = 1;
    for (int i = 0; i < news->acked; i++) {
        PyObject *unit = Py_NewRef(news->units[i]); /* its numbers are stored last */
        news->orders[i] = PyLong_FromLongLong(NUMBER(unit, UNIT(unit, order)));
        if (!news->orders[i]) has_orders = 0;
    }
    if (has_orders && (!news->answers || request(link, common))) return 1;
    news->answers = 0; /* nothing is requested */
    express_unsettled(express, news);
    return 0;
}

static void let_go_of(News *news)
{
    for (int i = 0; i < news->acked; i++) {
        Py_DECREF(news->units[i]);
        Py_XDECREF(news->orders[i]);
    }
}

void express_unsettled(const Express *express, News *news)
{
    if (news->answers) request_undone(news->link, GET(express->endpoint, ENDPOINT__common));
    let_go_of(news);
    PyErr_Clear();
}

int express_settled(const Express *express, News *news)
{
    PyObject *link = news->link, *window = GET(link, LINK_window), *common = GET(express->endpoint, ENDPOINT__common);
    PyObject *counts = GET(link, LINK_counts);
    if (leave(window, news)) {
        express_unsettled(express, news);
        return 0;
    }
    NUMBER(counts, COUNTS_frames_received)++;
    NUMBER(counts, COUNTS_acks_received) += news->is_ack;
    if (news->answers) request_stored(link, common);
    store(&news->changes);
    if (news->acked && news->next == NEVER && PyList_GET_SIZE(GET(window, WINDOW_queue)))
        Py_XSETREF(GET(common, COMMON_flush_due), Py_NewRef(Py_True)); /* Link.request_transmit: nothing is in flight */
    let_go_of(news);
    return 1;
}

/* ---- one frame of one part ------------------------------------------------------------------------------------------------- */

void express_forget(Arrived *arrived)
{
    Py_CLEAR(arrived->source);
    Py_CLEAR(arrived->messages);
    Py_CLEAR(arrived->placed);
}

/* 1: the messages are in the list (NULL for an acknowledgement), and count as delivered.  0: nothing has changed. */
static int accepted(const Express *express, PyObject *link, const Incoming *frame, const Header *header, long long now_ns,
                    PyObject *messages)
{
    News news;
    long long count = messages ? header->count : 0;
    long long body = (long long)size_of(frame) - HEADER - (header->length == VARIED ? 4 * count : 0);
    if (!express_is_next(express, link, header)) return 0;
    if (!express_settle(express, link, header, count, body + express->overhead * count, now_ns, &news)) return 0;
    if (!messages || copy_messages(frame, header, messages)) return express_settled(express, &news);
    express_unsettled(express, &news);
    return 0;
}

int express_accept(const Express *express, const Incoming *frame, long long now_ns, Arrived *arrived)
{
    Header header;
    if (!express_open(frame, &header) || !may_fit(frame, &header)) return 0;
    int has_messages = header.kind == MESSAGES;
    /* now, since it may start a collection, which runs anything */
    PyObject *messages = has_messages ? PyList_New((Py_ssize_t)header.count) : NULL;
    PyObject *rank = messages || !has_messages ? PyLong_FromUnsignedLong(header.source) : NULL;
    PyObject *link = rank ? link_of(express, rank) : NULL;
    if (link && accepted(express, link, frame, &header, now_ns, messages)) {
        arrived->source = rank;
        arrived->messages = messages;
        return 1;
    }
    PyErr_Clear();
    Py_XDECREF(rank);
    Py_XDECREF(messages);
    return 0;
}
