/* The fast path between a program and the rings of shared memory, or another host: an ordinary message in one call.

       Express(port, inbox, writers, unread, far=None, direct=None)
                                                   `far`: how ranks on other hosts are reached: the set of them, the wire (FarWire,
                                                   port.py), the descriptor that becomes readable for a frame, one that
                                                   becomes readable when the caller has something else to do, the number of
                                                   other ranks, and a function that counts the program's threads.  `direct`: who
                                                   reads long payloads from this process's memory (directwire.py): the set of these
                                                   ranks, the badge, and the least and the greatest length of such a payload
           .send(dst, data, payload=None) -> int   as Endpoint.send; an ordinary message leaves on an idle link, by the peer's ring
                                                   or for another host, and waits on a busy one
           .flush() -> bool                        write the frames of ordinary messages that wait; False: something else is left
           .glance() -> bool                       as Port.glance; where nothing else is to be done, without Python
           .look(end_ns, pause_ns) -> bool         look until an ordinary frame has come, whose messages are given to
                                                   port.on_messages, or a long one that was placed to port.on_placed (True), or
                                                   another frame, or the time is over (False). Where
                                                   no rings are read, this sleeps until a frame comes from another host, or there
                                                   is something else to do
           .consumed(src, nbytes, nmessages), .base(dst)      as of Endpoint
           .append(dst, message), .emit(dst, message, now_ns), .emit_large(dst, data, payload, now_ns), .transmit(now_ns),
           .accept(frame, now_ns), .accept_remote(head, pointer, now_ns)
                                                   its parts without rings, for tests

   What is ordinary: express_send.c, express_receive.c, express_remote.c.  Everything else is left to the Python code: `send` calls
   Endpoint.send, and `look` puts a frame that is not ordinary into `unread`, from where the wire's `receive` returns it next.  Longer frames for other hosts
   (FAR_LONGEST) are left to it, too: the port does not look after these, it sleeps.  The state is in the objects of
   transport/protocol, which images, clones and the explorations use; nothing is kept here.

   The caller holds the port's lock.  `look` gives up the interpreter's lock when it yields the core or sleeps, and no image is taken in it.

   This file is long because one call passes through all of it: the rings, the way to other hosts, and what tells them apart. */

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include "express_numbers.h"

#include <poll.h>
#include <time.h>

/* The slots of the port. */
enum { PORT_WATCHING, PORT_PENDING, PORT_SPIN, PORT_LONGEST, PORT_CHECKED, PORT_ENTRIES, PORT_PAUSE, PORT_GLANCED, PORT_SLOTS };
static const char *const port_slots[PORT_SLOTS] = {"helper_watching",     "_has_pending", "_spin_ns",  "_spin_longest_ns",
                                                   "control_checked_ns", "entries",      "_pause_ns", "_glanced"};

typedef struct {
    PyObject_HEAD
    Express core; /* `endpoint` is a reference */
    PyObject *port, *inbox, *writers, *unread, *slow_send, *slow_glance, *slow_consumed, *slow_base, *refused;
    PyObject *far, *far_wire, *send_far, *receive_far, *take_far, *count_threads; /* NULL: there are no other hosts */
    int far_fd, else_fd;
    Py_ssize_t others;
    Py_ssize_t slots[PORT_SLOTS]; /* -1: this port has no such slots */
    Ring *helped; /* to the rank to which the last pointer has gone: that one may ask for help; NULL: none */
    unsigned long pointers; /* so many had gone then */
    unsigned long long sent, taken, seen, pointed, read, placed, shared;
} Hot;

enum { FAR_LONGEST = 8 << 10, LONGEST_LOOK_NS = 10000000, CONTROL_EVERY_NS = 2000000 /* port.py */ };

static RingApi *rings;
static PyTypeObject HotType;
PyTypeObject *express_classes[EXPRESS_CLASSES];
Py_ssize_t express_offsets[SLOT_COUNT];
static PyObject *name_messages, *name_wake, *name_lost, *name_flush, *name_take, *name_threads, *name_place, *name_placed;

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec + rings->clock_offset_ns;
}

/* ---- the object ------------------------------------------------------------------------------------------------------------ */

static int hot_traverse(PyObject *self, visitproc visit, void *arg)
{
    Hot *hot = (Hot *)self;
    Py_VISIT(hot->core.endpoint);
    Py_VISIT(hot->core.direct);
    Py_VISIT(hot->port);
    Py_VISIT(hot->inbox);
    Py_VISIT(hot->writers);
    Py_VISIT(hot->unread);
    Py_VISIT(hot->slow_send);
    Py_VISIT(hot->slow_glance);
    Py_VISIT(hot->slow_consumed);
    Py_VISIT(hot->slow_base);
    Py_VISIT(hot->refused);
    Py_VISIT(hot->far);
    Py_VISIT(hot->far_wire);
    Py_VISIT(hot->send_far);
    Py_VISIT(hot->receive_far);
    Py_VISIT(hot->take_far);
    Py_VISIT(hot->count_threads);
    Py_VISIT(hot->helped);
    return 0;
}

static int hot_clear(PyObject *self)
{
    Hot *hot = (Hot *)self;
    Py_CLEAR(hot->core.endpoint);
    Py_CLEAR(hot->core.direct);
    Py_CLEAR(hot->port);
    Py_CLEAR(hot->inbox);
    Py_CLEAR(hot->writers);
    Py_CLEAR(hot->unread);
    Py_CLEAR(hot->slow_send);
    Py_CLEAR(hot->slow_glance);
    Py_CLEAR(hot->slow_consumed);
    Py_CLEAR(hot->slow_base);
    Py_CLEAR(hot->refused);
    Py_CLEAR(hot->far);
    Py_CLEAR(hot->far_wire);
    Py_CLEAR(hot->send_far);
    Py_CLEAR(hot->receive_far);
    Py_CLEAR(hot->take_far);
    Py_CLEAR(hot->count_threads);
    Py_CLEAR(hot->helped);
    return 0;
}

static void hot_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    hot_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *attribute(PyObject *from, const char *first, const char *second)
{
    PyObject *found = PyObject_GetAttrString(from, first), *inner = found && second ? PyObject_GetAttrString(found, second) : NULL;
    if (!second) return found;
    Py_XDECREF(found);
    return inner;
}

static int number_of(PyObject *config, const char *name, long long *number)
{
    PyObject *found = PyObject_GetAttrString(config, name);
    if (!found) return -1;
    *number = PyLong_AsLongLong(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_config(Express *core, PyObject *endpoint)
{
    PyObject *config = PyObject_GetAttrString(endpoint, "config"), *job = config ? PyObject_GetAttrString(config, "job") : NULL;
    core->job = job ? PyLong_AsUnsignedLongLong(job) : 0;
    int failed = !job || PyErr_Occurred() || number_of(config, "rank", &core->rank) ||
                 number_of(config, "incarnation", &core->incarnation) || number_of(config, "coalesce_bytes", &core->coalesce) ||
                 number_of(config, "message_overhead_bytes", &core->overhead) || number_of(config, "large_bytes", &core->longest) ||
                 number_of(config, "max_message_bytes", &core->longest_message);
    Py_XDECREF(job);
    Py_XDECREF(config);
    core->endpoint = Py_NewRef(endpoint);
    core->rings = rings;
    return failed ? -1 : 0;
}

static void learn_port(Hot *hot)
{
    for (int slot = 0; slot < PORT_SLOTS; slot++) {
        hot->slots[slot] = slot_of((PyObject *)Py_TYPE(hot->port), port_slots[slot]);
        if (hot->slots[slot] < 0) PyErr_Clear();
    }
}

static int learn_far(Hot *hot, PyObject *far)
{
    PyObject *ranks, *wire, *count_threads;
    if (far == Py_None) return 0;
    if (!PyTuple_Check(far) ||
        !PyArg_ParseTuple(far, "O!OiinO", &PySet_Type, &ranks, &wire, &hot->far_fd, &hot->else_fd, &hot->others, &count_threads)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "far: a tuple");
        return -1;
    }
    hot->far = Py_NewRef(ranks);
    hot->far_wire = Py_NewRef(wire);
    hot->count_threads = Py_NewRef(count_threads);
    return (hot->send_far = PyObject_GetAttrString(wire, "send")) && (hot->receive_far = PyObject_GetAttrString(wire, "receive")) &&
                   (hot->take_far = PyObject_GetAttrString(wire, "take"))
               ? 0
               : -1;
}

static int learn_direct(Express *core, PyObject *direct)
{
    PyObject *ranks;
    const char *badge;
    Py_ssize_t size = 0;
    if (direct == Py_None) return 0;
    if (!PyTuple_Check(direct) ||
        !PyArg_ParseTuple(direct, "O!y#LL", &PySet_Type, &ranks, &badge, &size, &core->direct_from, &core->direct_limit) || size != BADGE) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "direct: a tuple, with a badge");
        return -1;
    }
    core->direct = Py_NewRef(ranks);
    memcpy(core->badge, badge, BADGE);
    core->own = (RingProcess){.pid = (pid_t)get_number(core->badge, 8), .badge_at = get_number(core->badge + 8, 8)};
    memcpy(core->own.badge, core->badge + 16, RING_BADGE);
    return 0;
}

static PyObject *hot_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    PyObject *port, *inbox, *writers, *unread, *far = Py_None, *direct = Py_None;
    if (!PyArg_ParseTuple(args, "OOO!O!|OO", &port, &inbox, &PyDict_Type, &writers, &PyList_Type, &unread, &far, &direct)) return NULL;
    if (inbox != Py_None && !Py_IS_TYPE(inbox, rings->inbox)) return PyErr_Format(PyExc_TypeError, "%R is no inbox", inbox);
    PyObject *endpoint = PyObject_GetAttrString(port, "endpoint");
    if (!endpoint) return NULL;
    Hot *hot = (Hot *)type->tp_alloc(type, 0);
    if (!hot || read_config(&hot->core, endpoint) || !(hot->slow_send = PyObject_GetAttrString(endpoint, "send")) ||
        !(hot->slow_glance = PyObject_GetAttrString(port, "glance")) ||
        !(hot->slow_consumed = PyObject_GetAttrString(endpoint, "consumed")) || !(hot->slow_base = PyObject_GetAttrString(endpoint, "base")) || !(hot->refused = attribute(port, "_refused", "by_rank")) ||
        learn_far(hot, far) || learn_direct(&hot->core, direct)) {
        Py_XDECREF(hot);
        Py_DECREF(endpoint);
        return NULL;
    }
    Py_DECREF(endpoint);
    hot->port = Py_NewRef(port);
    learn_port(hot);
    hot->inbox = Py_NewRef(inbox);
    hot->writers = Py_NewRef(writers);
    hot->unread = Py_NewRef(unread);
    return (PyObject *)hot;
}

/* ---- sending --------------------------------------------------------------------------------------------------------------- */

#define PORT(hot, slot) (*((hot)->slots[slot] < 0 ? &absent : &SLOT((hot)->port, (hot)->slots[slot])))
static PyObject *absent; /* NULL: read, and never written */

/* The helper need not be woken, and no frame waits that was refused. */
static int is_free(Hot *hot)
{
    return PyDict_CheckExact(hot->refused) && !PyDict_GET_SIZE(hot->refused) && PORT(hot, PORT_WATCHING) == Py_False;
}

/* May a message go to another host now? */
static int may_go_far(Hot *hot, PyObject *dst, uint64_t bytes)
{
    if (!hot->far || bytes > FAR_LONGEST) return 0;
    int found = PySet_Contains(hot->far, dst);
    if (found < 0) PyErr_Clear();
    return found > 0 && is_free(hot);
}

/* The ring to a rank, if a message may go there now: borrowed. */
static Ring *ring_to(Hot *hot, PyObject *dst, uint64_t bytes)
{
    PyObject *writer = PyDict_GetItemWithError(hot->writers, dst);
    if (!writer || !Py_IS_TYPE(writer, rings->writer)) {
        PyErr_Clear();
        return NULL;
    }
    return rings->room((Ring *)writer, bytes) && is_free(hot) ? (Ring *)writer : NULL;
}

/* Send a frame that counts as sent to another host.  0, or -1 with an exception. */
static int deliver_far(Hot *hot, PyObject *dst, PyObject *parts)
{
    PyObject *taken = NULL;
    if (parts) {
        PyObject *args[] = {dst, parts};
        taken = PyObject_Vectorcall(hot->send_far, args, 2, NULL);
    }
    if (taken && taken != Py_True) {
        PyObject *args[] = {hot->port, dst, parts};
        Py_SETREF(taken, PyObject_VectorcallMethod(name_lost, args, 3, NULL));
    }
    Py_XDECREF(taken);
    return taken ? 0 : -1;
}

static void add_to_ring(void *with, const void *part, size_t size) { rings->add(with, part, size); }

/* Write a frame that counts as sent into a ring.  0, or -1 with an exception. */
static int deliver_near(Hot *hot, Ring *ring, PyObject *dst, const Outgoing *frame)
{
    RingRecord record;
    int code = rings->begin(&record, ring, frame->bytes, frame->payload ? POINTER : 0);
    if (code == TAKEN) {
        express_parts(frame, add_to_ring, &record);
        code = rings->end(&record);
    }
    if (code == TAKEN) return 0;
    PyObject *whole = code == TAKEN_ASLEEP ? NULL : express_whole(frame), *args[] = {hot->port, dst, whole}, *done = NULL;
    if (code == TAKEN_ASLEEP)
        done = PyObject_VectorcallMethod(name_wake, args, 2, NULL);
    else if (whole)
        done = PyObject_VectorcallMethod(name_lost, args, 3, NULL);
    Py_XDECREF(whole);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Write a frame that counts as sent, and let go of what it refers to.  `ring`: NULL for another host.  0, or -1 with an exception. */
static int deliver(Hot *hot, Ring *ring, PyObject *dst, Outgoing *frame)
{
    PyObject *whole = ring ? NULL : express_whole(frame);
    Py_XINCREF(ring);
    int failed = ring ? deliver_near(hot, ring, dst, frame) : deliver_far(hot, dst, whole);
    hot->sent++;
    Py_XDECREF(ring);
    Py_XDECREF(whole);
    express_release(frame);
    return failed;
}

static long long sequence_of(const Outgoing *frame) { return (long long)get_number(frame->head + 56, 8); }

/* Send an ordinary message: see lane.h. */
static long long send_ordinary(PyObject *self, PyObject *dst, PyObject *message)
{
    Hot *hot = (Hot *)self;
    long long waits_as = express_append(&hot->core, dst, message);
    if (waits_as >= 0) return waits_as;
    if (!PyBytes_CheckExact(message)) return NOT_SENT;
    uint64_t bytes = (uint64_t)PyBytes_GET_SIZE(message) + HEADER;
    Ring *ring = ring_to(hot, dst, bytes);
    if (!ring && !may_go_far(hot, dst, bytes)) return NOT_SENT;
    Outgoing frame;
    if (!express_emit(&hot->core, dst, message, now_ns(), &frame)) return NOT_SENT;
    long long sequence = sequence_of(&frame);
    return deliver(hot, ring, dst, &frame) ? -1 : sequence;
}

/* A view of the bytes of a payload: a new one, since the program may end its own.  NULL: it is not ordinary. */
static PyObject *view_of(PyObject *payload)
{
    PyObject *view = PyMemoryView_Check(payload) || PyBytes_CheckExact(payload) ? PyMemoryView_FromObject(payload) : NULL;
    PyErr_Clear();
    return view;
}

/* The same for a long message, which the receiver reads. */
static long long send_large(Hot *hot, PyObject *dst, PyObject *data, PyObject *payload)
{
    Ring *ring = hot->core.direct ? ring_to(hot, dst, HEADER + PIECE + MOST_INLINE + POINTER) : NULL;
    PyObject *view = ring ? view_of(payload) : NULL;
    Outgoing frame;
    int is_sent = view && express_emit_large(&hot->core, dst, data, view, now_ns(), &frame);
    Py_XDECREF(view);
    if (!is_sent) return NOT_SENT;
    hot->pointed++;
    long long sequence = sequence_of(&frame);
    return deliver(hot, ring, dst, &frame) ? -1 : sequence;
}

static PyObject *hot_send(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    long long sequence = NOT_SENT;
    if (count == 2 && !names) sequence = send_ordinary(self, args[0], args[1]);
    if (count == 3 && !names) sequence = send_large((Hot *)self, args[0], args[1], args[2]);
    if (sequence == NOT_SENT) return PyObject_Vectorcall(((Hot *)self)->slow_send, args, (size_t)count, names);
    return sequence < 0 ? NULL : PyLong_FromLongLong(sequence);
}

/* Write the frames of ordinary messages that wait, and acknowledgements.  1: nothing is left to be sent; 0: something is; -1 with an
   exception. */
static int flush(Hot *hot)
{
    PyObject *link, *dst = NULL, *common = GET(hot->core.endpoint, ENDPOINT__common);
    long long bytes = 0;
    while ((link = express_waiting(&hot->core, &bytes)) != NULL) {
        PyObject *rank = PyTuple_GET_ITEM(GET(link, LINK__ident), 2);
        Ring *ring = ring_to(hot, rank, (uint64_t)bytes);
        if (!ring && !may_go_far(hot, rank, (uint64_t)bytes)) return 0;
        Outgoing frame;
        if (!express_transmit(&hot->core, now_ns(), &dst, &frame)) return 0;
        int failed = deliver(hot, ring, dst, &frame);
        Py_CLEAR(dst);
        if (failed) return -1;
    }
    return IS(common, COMMON) && empty_list(GET(common, COMMON_dirty)) && GET(common, COMMON_flush_due) == Py_False;
}

static int flush_due(Hot *hot)
{
    PyObject *common = GET(hot->core.endpoint, ENDPOINT__common);
    return IS(common, COMMON) && GET(common, COMMON_flush_due) == Py_True;
}

static PyObject *hot_flush(PyObject *self, PyObject *Py_UNUSED(none))
{
    int is_all = flush((Hot *)self);
    return is_all < 0 ? NULL : PyBool_FromLong(is_all);
}

/* ---- receiving ------------------------------------------------------------------------------------------------------------- */

/* Give what has come to the port's owner.  0, or -1 with an exception. */
static int hand_over(Hot *hot, const Arrived *arrived)
{
    if (!arrived->messages && !arrived->placed) return 0; /* an acknowledgement */
    PyObject *function = PyObject_GetAttr(hot->port, arrived->placed ? name_placed : name_messages), *done = NULL;
    if (function) {
        PyObject *args[] = {arrived->source, arrived->placed ? arrived->placed : arrived->messages};
        done = PyObject_Vectorcall(function, args, 2, NULL);
        Py_DECREF(function);
    }
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Does the descriptor say that a frame of another host may have come? */
static int far_is_due(const Hot *hot)
{
    struct pollfd far = {.fd = hot->far_fd, .events = POLLIN};
    return poll(&far, 1, 0) > 0;
}

/* Find the ring by which the last pointer has gone. */
static void find_helped(Hot *hot)
{
    PyObject *rank, *writer;
    Py_ssize_t at = 0;
    unsigned long last = hot->pointers;
    while (PyDict_Next(hot->writers, &at, &rank, &writer))
        if (Py_IS_TYPE(writer, rings->writer) && ((Ring *)writer)->pointed > last) {
            last = ((Ring *)writer)->pointed;
            Py_XSETREF(hot->helped, (Ring *)Py_NewRef(writer));
        }
    hot->pointers = *rings->pointers;
}

/* Has a long message gone to a reader that may ask for help with it? */
static int may_be_asked(Hot *hot)
{
    if (hot->pointers != *rings->pointers) find_helped(hot);
    return hot->helped != NULL;
}

static int help_is_due(void *with) { return rings->wants_help(((Hot *)with)->helped); }

static int something_is_due(void *with)
{
    Hot *hot = with;
    return (hot->helped && rings->wants_help(hot->helped)) || far_is_due(hot);
}

/* Look for records, and copy what a reader has asked for, until `end_ns`.  0: the time is over. */
static int spin(Hot *hot, long long end_ns, long long pause_ns)
{
    int is_due, asked = may_be_asked(hot);
    while ((is_due = hot->far      ? rings->spin_also(hot->inbox, end_ns, pause_ns, something_is_due, hot)
                     : asked       ? rings->spin_also(hot->inbox, end_ns, pause_ns, help_is_due, hot)
                                   : rings->spin(hot->inbox, end_ns, pause_ns)) &&
           hot->helped && rings->wants_help(hot->helped)) {
        int helped;
        Py_BEGIN_ALLOW_THREADS /* nobody else has the port's lock */
        helped = rings->help(hot->helped);
        Py_END_ALLOW_THREADS
        if (helped < 0) {
            Py_CLEAR(hot->helped);
            asked = 0;
        }
        if (helped > 0) hot->shared += (unsigned)helped;
    }
    return is_due;
}

/* The next frame of another host: a new reference.  NULL, maybe with an exception: there is none.  `is_due`: the descriptor is
   readable. */
static PyObject *take_far(Hot *hot, int is_due)
{
    PyObject *frame = PyObject_CallNoArgs(is_due ? hot->take_far : hot->receive_far);
    if (frame == Py_None) Py_CLEAR(frame);
    return frame;
}

/* As Port._sleeps_in_look. */
static int sleeps_in_look(Hot *hot)
{
    if (!hot->far || !hot->others || PySet_GET_SIZE(hot->far) != hot->others || rings->count(hot->inbox)) return 0;
    PyObject *running = PyObject_CallNoArgs(hot->count_threads), *own = PyObject_GetAttr(hot->far_wire, name_threads);
    int is_alone = running && own && PyLong_AsLong(running) <= 1 + PyLong_AsLong(own) && !PyErr_Occurred();
    PyErr_Clear();
    Py_XDECREF(running);
    Py_XDECREF(own);
    return is_alone;
}

/* Sleep until a frame of another host may have come.  0: the time is over, or there is something else to do. */
static int sleep_for_far(Hot *hot, long long end_ns)
{
    struct pollfd fds[] = {{.fd = hot->far_fd, .events = POLLIN}, {.fd = hot->else_fd, .events = POLLIN}};
    long long left_ns = end_ns - now_ns();
    if (left_ns > LONGEST_LOOK_NS) left_ns = LONGEST_LOOK_NS;
    struct timespec left = {.tv_nsec = left_ns > 0 ? left_ns : 0};
    int found;
    Py_BEGIN_ALLOW_THREADS
    found = ppoll(fds, 2, &left, NULL);
    Py_END_ALLOW_THREADS
    return found > 0 && fds[0].revents;
}

/* What has come: nothing, a frame that is not ordinary, or what one has brought that is. */
typedef struct {
    PyObject *frame;
    int is_ordinary;
    Arrived arrived;
} Arrival;

/* Take a frame with a pointer.  1, 0, SOON; -1 with an exception. */
static int take_remote(Hot *hot, const Incoming *frame, Arrived *arrived)
{
    PyObject *place = PyObject_GetAttr(hot->port, name_place);
    int taken = place ? express_accept_remote(&hot->core, frame, place, now_ns(), arrived) : -1;
    hot->placed += arrived->placed != NULL;
    hot->read += taken == 1;
    Py_XDECREF(place);
    return taken;
}

/* Take the next frame of a ring, if there is any.  It is copied out of the ring once: by messages, where it is ordinary.  One whose
   payload will have a place soon stays there for the receive that is about to be posted: else the payload would be copied once more. */
static void take_near(Hot *hot, Arrival *arrival)
{
    Ring *ring;
    Incoming frame;
    while (!arrival->frame && !PyErr_Occurred() && (ring = rings->turn(hot->inbox)) != NULL) {
        int parts = rings->peek(ring, frame.at, frame.size, frame.lengths), taken = 0;
        frame.ring = ring;
        if (parts == 1) taken = express_accept(&hot->core, &frame, now_ns(), &arrival->arrived);
        if (parts == 3) taken = take_remote(hot, &frame, &arrival->arrived);
        if (taken < 0 || taken == SOON) return;
        if (taken) {
            rings->skip(ring);
            arrival->is_ordinary = 1;
            return;
        }
        arrival->frame = rings->next(ring); /* NULL: the ring is damaged, and it is nobody's turn any more */
    }
}

/* Take the next frame of another host. */
static void take_from_far(Hot *hot, int is_due, Arrival *arrival)
{
    PyObject *frame = take_far(hot, is_due), *first;
    if (frame && PyTuple_CheckExact(frame) && PyTuple_GET_SIZE(frame) == 1 && PyBytes_CheckExact(first = PyTuple_GET_ITEM(frame, 0))) {
        Incoming whole = {{(unsigned char *)PyBytes_AS_STRING(first)}, {(size_t)PyBytes_GET_SIZE(first)}, {0}};
        arrival->is_ordinary = express_accept(&hot->core, &whole, now_ns(), &arrival->arrived);
    }
    if (arrival->is_ordinary) Py_CLEAR(frame);
    arrival->frame = frame;
}

/* Wait for the next frame until `end_ns`. */
static void await_frame(Hot *hot, long long end_ns, long long pause_ns, Arrival *arrival)
{
    if (!hot->far) {
        if (spin(hot, end_ns, pause_ns)) take_near(hot, arrival);
        return;
    }
    take_from_far(hot, 0, arrival); /* from here on the descriptor becomes readable for the next one */
    if (arrival->frame || arrival->is_ordinary || PyErr_Occurred()) return;
    if (!rings->count(hot->inbox)) {
        if (sleep_for_far(hot, end_ns)) take_from_far(hot, 1, arrival);
    } else if (spin(hot, end_ns, pause_ns)) {
        take_near(hot, arrival);
        if (!arrival->frame && !arrival->is_ordinary && !PyErr_Occurred()) take_from_far(hot, 0, arrival);
    }
}

/* Look until an ordinary frame has come.  1: what it brings is handed over.  0: another frame has come, or the time is over.  -1 with
   an exception. */
static int look_until(Hot *hot, long long end_ns, long long pause_ns)
{
    if (hot->inbox == Py_None || PyList_GET_SIZE(hot->unread)) return 0;
    Arrival arrival = {0};
    await_frame(hot, end_ns, pause_ns, &arrival);
    int failed = PyErr_Occurred() != NULL;
    if (arrival.is_ordinary) {
        Py_CLEAR(hot->helped); /* most likely the acknowledgement */
        /* whoever has sent a long message waits for its acknowledgement: it leaves first */
        failed = (arrival.arrived.placed && flush_due(hot) && flush(hot) < 0) || hand_over(hot, &arrival.arrived);
        hot->taken++;
    } else if (arrival.frame)
        failed = PyList_Append(hot->unread, arrival.frame);
    Py_XDECREF(arrival.frame);
    express_forget(&arrival.arrived);
    return failed ? -1 : arrival.is_ordinary;
}

static PyObject *hot_look(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    long long end_ns = count == 2 ? PyLong_AsLongLong(args[0]) : -1, pause_ns = count == 2 ? PyLong_AsLongLong(args[1]) : -1;
    if (PyErr_Occurred()) return NULL;
    if (count != 2 || pause_ns < 0) {
        PyErr_SetString(PyExc_TypeError, "look(end_ns, pause_ns)");
        return NULL;
    }
    int found = look_until((Hot *)self, end_ns, pause_ns);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

/* Nothing is to be done but to look: no failure, no deferred signal, no timer, no look at the control descriptor; and what waits to be
   sent is sent first.  -1 with an exception. */
static int may_look(Hot *hot, long long at_ns)
{
    PyObject *common = GET(hot->core.endpoint, ENDPOINT__common);
    Reading reading = {0};
    if (!IS(common, COMMON) || !is_free(hot) || PORT(hot, PORT_PENDING) != Py_False) return 0;
    if (at_ns - value(&reading, PORT(hot, PORT_CHECKED)) >= CONTROL_EVERY_NS || reading.bad) return 0;
    int is_flushed = empty_list(GET(common, COMMON_dirty)) && GET(common, COMMON_flush_due) == Py_False ? 1 : flush(hot);
    return is_flushed > 0 ? NUMBER(common, COMMON_deadline_ns) > at_ns : is_flushed;
}

/* A look has found something.  0, or -1 with an exception. */
static int has_seen(Hot *hot)
{
    PyObject *done;
    hot->seen++;
    if (PORT(hot, PORT_SPIN) != PORT(hot, PORT_LONGEST)) Py_SETREF(PORT(hot, PORT_SPIN), Py_NewRef(PORT(hot, PORT_LONGEST)));
    if (!flush_due(hot)) return 0;
    int is_flushed = flush(hot);
    if (is_flushed) return is_flushed < 0 ? -1 : 0;
    done = PyObject_CallMethodNoArgs(hot->port, name_flush);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static PyObject *hot_glance(PyObject *self, PyObject *Py_UNUSED(none))
{
    Hot *hot = (Hot *)self;
    Reading reading = {0};
    long long at_ns = now_ns(), spin_ns = value(&reading, PORT(hot, PORT_SPIN)), pause_ns = value(&reading, PORT(hot, PORT_PAUSE));
    long long entries = value(&reading, PORT(hot, PORT_ENTRIES)), end_ns = at_ns + spin_ns;
    long long longest_ns = value(&reading, PORT(hot, PORT_LONGEST));
    if (spin_ns < longest_ns && may_be_asked(hot)) { /* else it would not help, and wait long again */
        spin_ns = longest_ns;
        end_ns = at_ns + spin_ns;
    }
    int may = reading.bad ? 0 : may_look(hot, at_ns);
    if (may <= 0) return may ? NULL : PyObject_CallNoArgs(hot->slow_glance);
    if (sleeps_in_look(hot)) {
        end_ns = NUMBER(GET(hot->core.endpoint, ENDPOINT__common), COMMON_deadline_ns);
        if (end_ns > at_ns + LONGEST_LOOK_NS) end_ns = at_ns + LONGEST_LOOK_NS;
    } else if (spin_ns <= 0)
        return PyObject_CallNoArgs(hot->slow_glance);
    PyObject *entered = PyLong_FromLongLong(entries + 1);
    if (!entered) return NULL;
    Py_SETREF(PORT(hot, PORT_ENTRIES), entered);
    int found = look_until(hot, end_ns, pause_ns);
    if (!found && PyList_GET_SIZE(hot->unread)) return PyObject_CallMethodNoArgs(hot->port, name_take);
    if (!found) Py_SETREF(PORT(hot, PORT_GLANCED), Py_NewRef(Py_True));
    if (found < 0 || (found && has_seen(hot))) return NULL;
    return PyBool_FromLong(found);
}

/* ---- what is taken, and acknowledged ---------------------------------------------------------------------------------------------- */

static PyObject *hot_consumed(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Hot *hot = (Hot *)self;
    if (count == 3 && express_consumed(&hot->core, args[0], args[1], args[2])) Py_RETURN_NONE;
    return PyObject_Vectorcall(hot->slow_consumed, args, (size_t)count, NULL);
}

static PyObject *hot_base(PyObject *self, PyObject *dst)
{
    PyObject *base = express_base(&((Hot *)self)->core, dst);
    if (base) return base;
    PyErr_Clear();
    return PyObject_CallOneArg(((Hot *)self)->slow_base, dst);
}

/* ---- for tests ------------------------------------------------------------------------------------------------------------- */

/* The parts of a frame as in frames.py, of which the last is a pointer instead of a payload. */
static PyObject *whole_of(Outgoing *frame)
{
    PyObject *parts = express_whole(frame);
    if (parts && frame->payload)
        Py_SETREF(parts, Py_BuildValue("(Oy#)", PyTuple_GET_ITEM(parts, 0), (char *)frame->pointer, (Py_ssize_t)POINTER));
    express_release(frame);
    return parts;
}

static PyObject *hot_emit(PyObject *self, PyObject *args)
{
    PyObject *dst, *message;
    long long at_ns;
    Outgoing frame;
    if (!PyArg_ParseTuple(args, "OOL", &dst, &message, &at_ns)) return NULL;
    if (express_emit(&((Hot *)self)->core, dst, message, at_ns, &frame)) return whole_of(&frame);
    Py_RETURN_NONE;
}

static PyObject *hot_emit_large(PyObject *self, PyObject *args)
{
    PyObject *dst, *data, *payload;
    long long at_ns;
    Outgoing frame;
    if (!PyArg_ParseTuple(args, "OOOL", &dst, &data, &payload, &at_ns)) return NULL;
    PyObject *view = view_of(payload);
    int is_sent = view && express_emit_large(&((Hot *)self)->core, dst, data, view, at_ns, &frame);
    Py_XDECREF(view);
    if (is_sent) return whole_of(&frame);
    Py_RETURN_NONE;
}

static PyObject *hot_append(PyObject *self, PyObject *args)
{
    PyObject *dst, *message;
    if (!PyArg_ParseTuple(args, "OO", &dst, &message)) return NULL;
    long long sequence = express_append(&((Hot *)self)->core, dst, message);
    if (sequence >= 0) return PyLong_FromLongLong(sequence);
    Py_RETURN_NONE;
}

static PyObject *hot_transmit(PyObject *self, PyObject *args)
{
    PyObject *dst;
    long long at_ns;
    Outgoing frame;
    if (!PyArg_ParseTuple(args, "L", &at_ns)) return NULL;
    if (express_transmit(&((Hot *)self)->core, at_ns, &dst, &frame)) return Py_BuildValue("(NN)", dst, whole_of(&frame));
    Py_RETURN_NONE;
}

static PyObject *hot_accept(PyObject *self, PyObject *args)
{
    PyObject *frame;
    long long at_ns;
    Arrived arrived = {0};
    if (!PyArg_ParseTuple(args, "OL", &frame, &at_ns)) return NULL;
    if (PyBytes_CheckExact(frame)) {
        Incoming whole = {{(unsigned char *)PyBytes_AS_STRING(frame)}, {(size_t)PyBytes_GET_SIZE(frame)}, {0}};
        if (express_accept(&((Hot *)self)->core, &whole, at_ns, &arrived))
            return Py_BuildValue("(NN)", arrived.source, arrived.messages ? arrived.messages : PyList_New(0));
    }
    Py_RETURN_NONE;
}

static PyObject *hot_accept_remote(PyObject *self, PyObject *args)
{
    Py_buffer head, pointer;
    long long at_ns;
    Arrived arrived = {0};
    if (!PyArg_ParseTuple(args, "y*y*L", &head, &pointer, &at_ns)) return NULL;
    Incoming frame = {{head.buf, pointer.buf}, {(size_t)head.len, (size_t)pointer.len}, {(uint32_t)head.len, (uint32_t)pointer.len}};
    PyObject *place = PyObject_GetAttr(((Hot *)self)->port, name_place);
    int taken = place ? express_accept_remote(&((Hot *)self)->core, &frame, place, at_ns, &arrived) : -1;
    Py_XDECREF(place);
    PyBuffer_Release(&head);
    PyBuffer_Release(&pointer);
    if (taken < 0) return NULL;
    if (taken == 1) return Py_BuildValue("(NN)", arrived.source, arrived.placed ? arrived.placed : arrived.messages);
    Py_RETURN_NONE;
}

static PyObject *get_asked(PyObject *self, void *Py_UNUSED(closure)) { return PyBool_FromLong(may_be_asked((Hot *)self)); }

static PyObject *get_sent(PyObject *self, void *Py_UNUSED(closure)) { return PyLong_FromUnsignedLongLong(((Hot *)self)->sent); }

static PyObject *get_seen(PyObject *self, void *Py_UNUSED(closure)) { return PyLong_FromUnsignedLongLong(((Hot *)self)->seen); }

static PyObject *get_pointed(PyObject *self, void *Py_UNUSED(closure)) { return PyLong_FromUnsignedLongLong(((Hot *)self)->pointed); }

static PyObject *get_read(PyObject *self, void *Py_UNUSED(closure)) { return PyLong_FromUnsignedLongLong(((Hot *)self)->read); }

static PyObject *get_placed(PyObject *self, void *Py_UNUSED(closure)) { return PyLong_FromUnsignedLongLong(((Hot *)self)->placed); }

static PyObject *get_shared(PyObject *self, void *Py_UNUSED(closure)) { return PyLong_FromUnsignedLongLong(((Hot *)self)->shared); }

static PyObject *get_taken(PyObject *self, void *Py_UNUSED(closure)) { return PyLong_FromUnsignedLongLong(((Hot *)self)->taken); }

/* ---- the module ------------------------------------------------------------------------------------------------------------ */

static const struct {
    enum express_class cls;
    const char *name;
    int kind;
} slot_names[SLOT_COUNT] = {
#define EXPRESS_OBJECT(cls, name) {cls, #name, T_OBJECT_EX},
#define EXPRESS_NUMBER(cls, name) {cls, #name, T_LONGLONG},
    EXPRESS_SLOTS(EXPRESS_OBJECT, EXPRESS_NUMBER)};

static const char *const homes[EXPRESS_CLASSES][2] = {
    {"endpoint", "Endpoint"}, {"link", "LinkContext"}, {"link", "Link"},   {"link", "Counts"}, {"window", "SendWindow"},
    {"ledger", "Ledger"},     {"timeout", "Timeout"},  {"units", "Batch"}, {"units", "Large"}, {"units", "Fragment"},
    {"ledger", "Placed"},
};

static int learn_classes(void)
{
    char home[80];
    for (int cls = 0; cls < EXPRESS_CLASSES; cls++) {
        PyOS_snprintf(home, sizeof home, "ckpt.transport.protocol.%s", homes[cls][0]);
        PyObject *module = PyImport_ImportModule(home);
        express_classes[cls] = module ? (PyTypeObject *)PyObject_GetAttrString(module, homes[cls][1]) : NULL;
        Py_XDECREF(module);
        if (!express_classes[cls]) return -1;
    }
    for (int slot = 0; slot < SLOT_COUNT; slot++) {
        PyObject *cls = (PyObject *)express_classes[slot_names[slot].cls];
        express_offsets[slot] = slot_of_kind(cls, slot_names[slot].name, slot_names[slot].kind);
        if (express_offsets[slot] < 0) return -1;
    }
    return 0;
}

static PyMethodDef methods[] = {
    {"send", (PyCFunction)(void (*)(void))hot_send, METH_FASTCALL | METH_KEYWORDS,
     "send(dst, data, payload=None) -> int\n\nAs Endpoint.send."},
    {"flush", hot_flush, METH_NOARGS,
     "flush() -> bool\n\nWrite the frames of ordinary messages that wait; False: something else is left to be sent."},
    {"glance", hot_glance, METH_NOARGS, "glance() -> bool\n\nAs Port.glance."},
    {"look", (PyCFunction)(void (*)(void))hot_look, METH_FASTCALL,
     "look(end_ns, pause_ns, /) -> bool\n\nWhether an ordinary frame has come by `end_ns`; its messages have been handed over."},
    {"consumed", (PyCFunction)(void (*)(void))hot_consumed, METH_FASTCALL, "consumed(src, nbytes, nmessages, /)\n\nAs Endpoint.consumed."},
    {"base", hot_base, METH_O, "base(dst, /) -> int\n\nAs Endpoint.base."},
    {"emit", hot_emit, METH_VARARGS, "emit(dst, message, now_ns, /) -> tuple | None\n\nThe frame; None: nothing is done."},
    {"emit_large", hot_emit_large, METH_VARARGS,
     "emit_large(dst, data, payload, now_ns, /) -> tuple | None\n\nThe head of the frame and the pointer; None: nothing is done."},
    {"append", hot_append, METH_VARARGS, "append(dst, message, /) -> int | None\n\nSequence number; None: nothing is done."},
    {"transmit", hot_transmit, METH_VARARGS,
     "transmit(now_ns, /) -> tuple | None\n\nThe rank and the frame of what waits on one link; None: nothing is done."},
    {"accept", hot_accept, METH_VARARGS,
     "accept(frame, now_ns, /) -> tuple | None\n\nSource and messages; None: nothing is done."},
    {"accept_remote", hot_accept_remote, METH_VARARGS,
     "accept_remote(head, pointer, now_ns, /) -> tuple | None\n\nSource, and messages or the placed one; None: nothing is done."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef values[] = {
    {"sent", get_sent, NULL, "Frames sent this way.", NULL},
    {"seen", get_seen, NULL, "Glances that have found a message without Python.", NULL},
    {"taken", get_taken, NULL, "Frames received this way.", NULL},
    {"pointed", get_pointed, NULL, "Of the frames sent: those with a pointer.", NULL},
    {"may_be_asked", get_asked, NULL, "Has a long message gone to a reader that may ask for help with it?", NULL},
    {"shared", get_shared, NULL, "Pieces of payloads that were written into a receiver's memory.", NULL},
    {"read", get_read, NULL, "Of the frames received: those with a pointer.", NULL},
    {"placed", get_placed, NULL, "Of these, those that were read into memory of the program.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject HotType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "ckpt.transport.driver._express.Express",
    .tp_basicsize = sizeof(Hot),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Express(port, inbox, writers, unread, far=None, direct=None)\n\nThe hot way of one port; see the source.",
    .tp_new = hot_new,
    .tp_dealloc = hot_dealloc,
    .tp_traverse = hot_traverse,
    .tp_clear = hot_clear,
    .tp_methods = methods,
    .tp_getset = values,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.transport.driver._express",
    .m_doc = "The ordinary message through a ring, or to another host.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__express(void)
{
    PyObject *home = PyImport_ImportModule("ckpt.transport.rings._ring");
    PyObject *capsule = home ? PyObject_GetAttrString(home, "api") : NULL;
    rings = capsule ? PyCapsule_GetPointer(capsule, RING_API) : NULL; /* valid for ever: the module is never unloaded */
    Py_XDECREF(capsule);
    Py_XDECREF(home);
    if (!rings || learn_classes() || express_prepare_send() || express_prepare_remote() ||
        PyType_Ready(&HotType))
        return NULL;
    if (!(name_messages = PyUnicode_InternFromString("on_messages")) || !(name_wake = PyUnicode_InternFromString("_wake_peer")) ||
        !(name_lost = PyUnicode_InternFromString("_send_again")) || !(name_flush = PyUnicode_InternFromString("_flush_seen")) ||
        !(name_take = PyUnicode_InternFromString("_take_seen")) || !(name_threads = PyUnicode_InternFromString("threads")) ||
        !(name_place = PyUnicode_InternFromString("on_place")) || !(name_placed = PyUnicode_InternFromString("on_placed")))
        return NULL;
    static ExpressApi api = {&HotType, send_ordinary};
    PyObject *made = PyModule_Create(&module);
    if (!made) return NULL;
    if (!(capsule = PyCapsule_New(&api, EXPRESS_API, NULL)) || PyModule_AddObjectRef(made, "api", capsule) ||
        PyModule_AddObjectRef(made, "Express", (PyObject *)&HotType))
        Py_CLEAR(made);
    Py_XDECREF(capsule);
    return made;
}
