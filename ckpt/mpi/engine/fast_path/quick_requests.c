/* Requests of buffers: the ordinary cases of `BufferMessages.Isend` and `Irecv`, of `Request.Wait` and `Waitall`; for the module `_quick`.

   Ordinary is a send that is done at once, or whose memory is read, and a receive that only one channel can match, of which no message
   has come yet, into a contiguous buffer of plain numbers.  Their requests are done when the calls that wait for them return, or soon
   after.  All else, every error included, is left to Python, and nothing has changed then but what a look has brought. */

#include "quick.h"

PyObject *quick_no_source, *quick_no_tag;
static PyObject *zero, *name_acked, *numbers; /* `numbers`: the datatypes of plain numbers by format, of buffers.py */

/* ---- making them ----------------------------------------------------------------------------------------------------------- */

PyObject *made(int cls, const Filled *filled, size_t count)
{
    PyObject *object = classes[cls]->tp_alloc(classes[cls], 0);
    for (size_t i = 0; object && i < count; i++) GET(object, filled[i].slot) = Py_NewRef(filled[i].value);
    return object;
}

/* Request._make: lets go of the operation. */
static PyObject *request_of(PyObject *engine, PyObject *operation)
{
    if (!operation) return NULL;
    const Filled filled[] = {
        {REQUEST_ENGINE, engine}, {REQUEST_OPERATION, operation}, {REQUEST_KEPT, Py_None}, {REQUEST_RECIPE, Py_None}};
    PyObject *request = MADE(REQUEST, filled);
    Py_DECREF(operation);
    return request;
}

PyObject *isend_buffer(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    PyObject *sent = start_send(args, count);
    if (IS(sent, SENT)) return request_of(GET(args[0], COMM_ENGINE), sent);
    if (sent != Py_None && sent != Py_True) return sent; /* a nonblocking send never waits for the backlog */
    Py_DECREF(sent);
    const Filled filled[] = {{DONE_DONE, Py_True}, {DONE_CANCELLED, Py_False}, {DONE_ERROR, Py_None},
                             {DONE_SOURCE, quick_no_source}, {DONE_TAG, quick_no_tag}, {DONE_NBYTES, zero}};
    return request_of(GET(args[0], COMM_ENGINE), MADE(DONE, filled));
}

/* The datatype of a buffer whose elements are plain numbers (buffers.simple): borrowed.  NULL without an exception: it is another one. */
static PyObject *datatype_of(PyObject *from, const Py_buffer *view)
{
    if (!view->format || !view->itemsize || PyByteArray_Check(from) || PyMemoryView_Check(from)) return NULL;
    if (!numbers) { /* imported now: that module imports this one */
        PyObject *module = PyImport_ImportModule("ckpt.mpi.datatypes.buffers");
        numbers = module ? PyObject_GetAttrString(module, "NUMBERS") : NULL;
        Py_XDECREF(module);
    }
    PyObject *format = numbers && PyDict_CheckExact(numbers) ? PyUnicode_FromString(view->format) : NULL;
    PyObject *found = format ? PyDict_GetItemWithError(numbers, format) : NULL;
    Py_XDECREF(format);
    PyErr_Clear();
    return found;
}

/* The BufferSpec of a writable buffer: a new reference.  NULL without an exception: it is not ordinary. */
static PyObject *spec_of(PyObject *from)
{
    Py_buffer view;
    if (runs_code(from) || export_plain(from, &view, PyBUF_FULL)) return NULL;
    PyObject *datatype = datatype_of(from, &view);
    PyObject *nbytes = datatype ? PyLong_FromSsize_t(view.len) : NULL;
    PyObject *count = nbytes ? PyLong_FromSsize_t(view.len / view.itemsize) : NULL, *spec = NULL;
    PyBuffer_Release(&view);
    if (count) {
        const Filled filled[] = {{SPEC_OBJ, from},     {SPEC_COUNT, count},   {SPEC_DATATYPE, datatype},
                                 {SPEC_OFFSET, zero}, {SPEC_NBYTES, nbytes}, {SPEC_DENSE, Py_True}};
        spec = MADE(SPEC, filled);
    }
    PyErr_Clear();
    Py_XDECREF(count);
    Py_XDECREF(nbytes);
    return spec;
}

/* Is a receive from this channel one that is posted, and nothing more? */
static int is_open(PyObject *comm, PyObject *channel)
{
    PyObject *engine = GET(comm, COMM_ENGINE), *matcher = GET(engine, ENGINE_MATCHER), *messages = GET(channel, CHANNEL_MESSAGES);
    return messages && (PyObject *)Py_TYPE(messages) == quick_deque && !Py_SIZE(messages) && IS(matcher, MATCHER) &&
           GET(engine, ENGINE_CHOICES) == Py_None && IS(GET(comm, COMM_CONTEXT), CONTEXT) && GET(comm, COMM_CONTEXT) == GET(channel, CHANNEL_CONTEXT) && none_has_failed(engine);
}

/* Matcher.post, with the lock held.  0; -1 with an exception, and nothing has changed. */
static int post(PyObject *matcher, PyObject *channel, PyObject *receive, int is_wild)
{
    PyObject *wild = GET(GET(channel, CHANNEL_CONTEXT), CONTEXT_WILD);
    PyObject *ticket = PyLong_FromLongLong(PyLong_AsLongLong(GET(matcher, MATCHER_TICKET)) + 1);
    PyObject *posted = PyLong_FromLongLong(PyLong_AsLongLong(GET(matcher, MATCHER_POSTED)) + 1), *done = NULL;
    if (ticket && posted && !PyErr_Occurred() && is_wild) {
        done = wild && PyList_CheckExact(wild) && !PyList_Append(wild, receive) ? Py_NewRef(Py_None) : NULL;
    } else if (ticket && posted && !PyErr_Occurred()) {
        PyObject *args[] = {GET(channel, CHANNEL_POSTED), receive};
        done = PyObject_Vectorcall(quick_append, args, 2, NULL);
    }
    if (done) {
        Py_XSETREF(GET(receive, RECEIVE_TICKET), Py_NewRef(ticket));
        Py_XSETREF(GET(matcher, MATCHER_TICKET), Py_NewRef(ticket));
        Py_XSETREF(GET(matcher, MATCHER_POSTED), Py_NewRef(posted));
    }
    Py_XDECREF(ticket);
    Py_XDECREF(posted);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

PyObject *post_receive(PyObject *comm, PyObject *into, PyObject *source, PyObject *tag, PyObject **request)
{
    PyObject *channel = channel_for(comm, source, tag);
    if (!channel || !is_open(comm, channel)) return NULL;
    int is_wild = PyLong_AsLong(source) < 0 || PyLong_AsLong(tag) < 0; /* the channel is the only one that matches */
    PyObject *engine = GET(comm, COMM_ENGINE), *spec = spec_of(into), *receive = NULL;
    if (!spec) return NULL;
    const Filled filled[] = {{RECEIVE_DONE, Py_False},     {RECEIVE_CANCELLED, Py_False}, {RECEIVE_ERROR, Py_None},
                             {RECEIVE_SOURCE, quick_no_source}, {RECEIVE_TAG, quick_no_tag}, {RECEIVE_NBYTES, zero},
                             {RECEIVE_CONTEXT, GET(GET(comm, COMM_CONTEXT), CONTEXT_NUMBER)},
                             {RECEIVE_WANT_SOURCE, source}, {RECEIVE_WANT_TAG, tag},     {RECEIVE_TARGET, spec},
                             {RECEIVE_OWNER, Py_None},     {RECEIVE_SLOT, zero},         {RECEIVE_TICKET, zero},
                             {RECEIVE_CODEC, Py_None},     {RECEIVE_DATA, Py_None}};
    receive = MADE(RECEIVE, filled);
    Py_DECREF(spec);
    int is_made = receive && (!request || (*request = request_of(engine, Py_NewRef(receive)))), is_posted = 0;
    int taken = is_made ? take_if_free(GET(engine, ENGINE_LOCK)) : 0;
    if (taken > 0) { /* making the objects may have started a collection, which runs anything */
        if (channel_for(comm, source, tag) == channel && is_open(comm, channel))
            is_posted = !post(GET(engine, ENGINE_MATCHER), channel, receive, is_wild);
        if (let_go(GET(engine, ENGINE_LOCK))) is_posted = 0;
    }
    if (is_posted) return receive;
    if (request) Py_CLEAR(*request);
    Py_XDECREF(receive);
    PyErr_Clear();
    return NULL;
}

PyObject *irecv_buffer(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    PyObject *request = NULL, *receive = count == 4 ? post_receive(args[0], args[1], args[2], args[3], &request) : NULL;
    if (!receive) Py_RETURN_FALSE;
    Py_DECREF(receive);
    return request;
}

/* ---- waiting for them ------------------------------------------------------------------------------------------------------ */

/* Is this a receive into a buffer, or a send of one, without an error? */
static int is_ordinary(PyObject *operation)
{
    if (IS(operation, DONE)) return GET(operation, DONE_ERROR) == Py_None;
    if (IS(operation, SENT)) return GET(operation, SENT_ERROR) == Py_None;
    return IS(operation, RECEIVE) && GET(operation, RECEIVE_ERROR) == Py_None && GET(operation, RECEIVE_OWNER) == Py_None &&
           IS(GET(operation, RECEIVE_TARGET), SPEC);
}

int is_acknowledged(PyObject *sent, int how)
{
    PyObject *progress = GET(GET(sent, SENT_ENGINE), ENGINE_PROGRESS);
    PyObject *acked = PyObject_CallMethodOneArg(progress, name_acked, GET(sent, SENT_DST));
    int is_so = acked ? PyObject_RichCompareBool(acked, GET(sent, SENT_SEQUENCE), how) : -1;
    Py_XDECREF(acked);
    return is_so;
}

/* BufferSend.poll, where nothing has failed. */
static int waits_for_reader(PyObject *sent)
{
    PyObject *engine = GET(sent, SENT_ENGINE);
    if (GET(sent, SENT_DONE) != Py_False) return 0;
    if (!IS(engine, ENGINE) || !none_has_failed(engine)) return 1;
    int is_read = is_acknowledged(sent, Py_GT);
    if (is_read < 0) PyErr_Clear();
    if (is_read > 0) Py_XSETREF(GET(sent, SENT_DONE), Py_NewRef(Py_True));
    return is_read <= 0;
}

static int waits_for(PyObject *operation)
{
    return IS(operation, SENT) ? waits_for_reader(operation) : IS(operation, RECEIVE) && GET(operation, RECEIVE_DONE) == Py_False;
}

int is_done(PyObject *engine, PyObject *operation)
{
    if (!waits_for(operation)) return 1;
    if (!IS(engine, ENGINE) || look_while(engine, waits_for, operation)) return PyErr_Occurred() ? -1 : 0;
    return !waits_for(operation);
}

/* Are all of them null, or ordinary?  `done`: and done. */
static int are_ordinary(PyObject *const *requests, Py_ssize_t count, int done)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!IS(requests[i], REQUEST) || GET(requests[i], REQUEST_KEPT) != Py_None) return 0;
        PyObject *operation = GET(requests[i], REQUEST_OPERATION);
        if (operation == Py_None) continue;
        if (!is_ordinary(operation) || (done && waits_for(operation))) return 0;
    }
    return 1;
}

/* Are all of them done?  -1 with an exception. */
static int all_done(PyObject *const *requests, Py_ssize_t count)
{
    int done = are_ordinary(requests, count, 0);
    for (Py_ssize_t i = 0; i < count && done > 0; i++) {
        PyObject *operation = Py_NewRef(GET(requests[i], REQUEST_OPERATION));
        if (operation != Py_None) done = is_done(GET(requests[i], REQUEST_ENGINE), operation);
        Py_DECREF(operation);
    }
    /* once more: a look may run code of the program, and other threads */
    return done > 0 ? are_ordinary(requests, count, 1) : done;
}

PyObject *finish(PyObject *Py_UNUSED(self), PyObject *arg)
{
    if (known != CLASSES || (!PyList_CheckExact(arg) && !PyTuple_CheckExact(arg))) Py_RETURN_FALSE;
    PyObject *requests = PySequence_Tuple(arg);
    int done = requests ? all_done(&PyTuple_GET_ITEM(requests, 0), PyTuple_GET_SIZE(requests)) : -1;
    for (Py_ssize_t i = 0; done > 0 && i < PyTuple_GET_SIZE(requests); i++)
        Py_XSETREF(GET(PyTuple_GET_ITEM(requests, i), REQUEST_OPERATION), Py_NewRef(Py_None));
    Py_XDECREF(requests);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

int quick_prepare_requests(void)
{
    PyObject *module = PyImport_ImportModule("ckpt.mpi.base.constants");
    quick_no_source = module ? PyObject_GetAttrString(module, "ANY_SOURCE") : NULL;
    quick_no_tag = module ? PyObject_GetAttrString(module, "ANY_TAG") : NULL;
    Py_XDECREF(module);
    return quick_no_source && quick_no_tag && (name_acked = PyUnicode_InternFromString("acked")) && (zero = PyLong_FromLong(0)) ? 0 : -1;
}
