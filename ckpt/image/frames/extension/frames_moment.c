/* State of the process that a forked child does not have as the program had it: timers, the mask of signals, offsets of open files,
 * file locks. And the opening of files in the child, after which it shares no offset with the program.
 *
 * The state is read in the parent while the program stands still. If the parent has forked lately, the first write to each page
 * costs a page fault of some microseconds, and a mere look at a Python object is a write, to its reference count. So one call
 * returns one object of bytes, which ckpt.image.process.moment takes apart in the child.
 *
 * This file is long because one record has all of this, and one function reads it. */
#include "frames.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#define PATIENCE_MS 2000

/* The layout, as ckpt.image.process.moment reads it: a Head, then a Descriptor for each. */
typedef struct {
    int64_t timers[3][4]; /* of ITIMER_REAL, _VIRTUAL, _PROF: seconds and microseconds left, the same of the interval */
    uint64_t blocked;     /* bit n - 1: signal n */
    uint64_t pending;     /* signals that have arrived, and that the kernel holds back since they are blocked */
    uint64_t is_tripped;  /* another signal has arrived, and the interpreter has not called its handler yet */
} Head;

typedef struct { /* followed by its path, by the lines of /proc/self/fdinfo that tell of locks, and by its content */
    int64_t offset, size;
    uint64_t device, inode, born_ns;
    int32_t fd, flags, first; /* first: the lowest descriptor of the same open file; O_CLOEXEC among the flags if it is set */
    uint32_t mode, links, path_bytes, lock_bytes, content_bytes; /* size of a TCP connection: of the TcpHead that begins its content */
} Descriptor;

typedef struct { /* of getdents64(2) */
    uint64_t inode;
    int64_t next;
    unsigned short bytes;
    unsigned char type;
    char name[];
} Entry;

#define OURS_MAX 1024
#define HIGH_MAX 8

typedef struct {
    char *data;
    size_t used, room;
    size_t files;                /* offset of the first descriptor */
    uint64_t ours[OURS_MAX / 64]; /* bit n: the event descriptor n is the library's own, so its content is of no use */
    PyObject *known;              /* dict, or NULL: descriptor -> (device, inode), of those that are not the program's */
} Buffer;

static int append(Buffer *buffer, const void *data, size_t bytes)
{
    if (buffer->used + bytes > buffer->room) {
        size_t room = 2 * (buffer->used + bytes) + 2048;
        char *grown = PyMem_RawRealloc(buffer->data, room);
        if (grown == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        buffer->data = grown;
        buffer->room = room;
    }
    memcpy(buffer->data + buffer->used, data, bytes);
    buffer->used += bytes;
    return 0;
}

static uint64_t bits_of(const sigset_t *signals)
{
    uint64_t bits = 0;
    for (int number = 1; number <= 64; number++)
        if (sigismember(signals, number) == 1)
            bits |= (uint64_t)1 << (number - 1);
    return bits;
}

static int note_timers(Head *head)
{
    const int timers[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};
    for (int i = 0; i < 3; i++) {
        struct itimerval timer;
        if (getitimer(timers[i], &timer) < 0)
            return -1;
        int64_t values[] = {timer.it_value.tv_sec, timer.it_value.tv_usec, timer.it_interval.tv_sec, timer.it_interval.tv_usec};
        memcpy(head->timers[i], values, sizeof values);
    }
    return 0;
}

/* All signals are blocked meanwhile: what a timer has sent that is noted as over is then among those that have arrived. */
static int append_head(Buffer *buffer)
{
    Head head = {0};
    sigset_t all, blocked, pending;
    sigfillset(&all);
    int error = pthread_sigmask(SIG_SETMASK, &all, &blocked);
    if (!error) {
        if (note_timers(&head) < 0 || sigpending(&pending) < 0)
            error = errno;
        else
            head.pending = bits_of(&pending);
        head.is_tripped = (uint64_t)signals_are_tripped(PyThreadState_Get());
        head.blocked = bits_of(&blocked);
        int restored = pthread_sigmask(SIG_SETMASK, &blocked, NULL);
        error = error ? error : restored;
    }
    if (error) {
        errno = error;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    return append(buffer, &head, sizeof head);
}

/* When the file was made, in nanoseconds; 0: its file system does not say. The number of an inode may be used again later. */
static uint64_t born_ns(int fd)
{
#ifdef STATX_BTIME
    struct statx status;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &status) == 0 && status.stx_mask & STATX_BTIME)
        return (uint64_t)status.stx_btime.tv_sec * 1000000000u + status.stx_btime.tv_nsec;
#endif
    return 0;
}

static size_t record_bytes(const Descriptor *noted)
{
    return sizeof *noted + noted->path_bytes + noted->lock_bytes + noted->content_bytes;
}

/* Find the next descriptor of a record, from offset `*at` on, which moves behind it. Its path and content end there. 0: there is none. */
static int next_descriptor(const char *data, size_t bytes, size_t *at, Descriptor *found)
{
    if (*at + sizeof *found > bytes)
        return 0;
    memcpy(found, data + *at, sizeof *found);
    *at += record_bytes(found);
    return 1;
}

static int lowest_duplicate(const Buffer *buffer, const Descriptor *noted)
{
    Descriptor other;
    for (size_t at = buffer->files; next_descriptor(buffer->data, buffer->used, &at, &other);)
        if (S_ISREG(other.mode) && other.inode == noted->inode && other.device == noted->device && other.first == other.fd &&
            share_offset(noted->fd, other.fd))
            return other.fd;
    return noted->fd;
}

static int is_number(PyObject *pair, Py_ssize_t at, uint64_t number)
{
    return PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(pair, at)) == number;
}

/* Is the descriptor the library's own, as it was known to be? Then no more than its type is of use: its path, locks and contents would
 * take most of the time. Event descriptors all have one inode. */
static int is_ours(const Buffer *buffer, int fd, const struct stat *status)
{
    if (!(status->st_mode & S_IFMT))
        return fd < OURS_MAX && buffer->ours[fd / 64] >> (fd % 64) & 1;
    PyObject *number = fd > STDERR_FILENO && buffer->known != NULL ? PyLong_FromLong(fd) : NULL;
    PyObject *pair = number == NULL ? NULL : PyDict_GetItemWithError(buffer->known, number);
    Py_XDECREF(number);
    PyErr_Clear();
    return pair != NULL && PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2 && is_number(pair, 0, status->st_dev) &&
           is_number(pair, 1, status->st_ino);
}

/* Note one descriptor. Of one that is no regular file only the type is noted, of a directory how far it has been read, and the
 * contents (frames_contents.c): nothing else can change before the child looks. An offset of -1: it cannot be read (O_PATH).
 * Returns 1: noted; 0: the descriptor is not open; -1: an exception is set. */
static int append_descriptor(Buffer *buffer, int fd)
{
    struct stat status;
    Descriptor noted = {.fd = fd, .first = fd};
    char path[PATH_MAX], locks[LOCK_BYTES_MAX], *content = NULL;
    ssize_t content_bytes = 0;
    if (fstat(fd, &status) < 0)
        return 0;
    noted.mode = status.st_mode;
    noted.device = status.st_dev;
    noted.inode = status.st_ino;
    if (is_ours(buffer, fd, &status))
        noted.links = (uint32_t)status.st_nlink;
    else if (S_ISREG(status.st_mode)) {
        char name[32];
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(name, path, sizeof path);
        int closes = fcntl(fd, F_GETFD);
        noted.flags = fcntl(fd, F_GETFL);
        noted.offset = lseek(fd, 0, SEEK_CUR);
        noted.size = status.st_size;
        noted.links = (uint32_t)status.st_nlink;
        if (length < 0 || noted.flags < 0 || noted.offset < 0)
            noted.mode = 0; /* opened with O_PATH, say: nothing that is read or written */
        else {
            noted.flags |= closes & FD_CLOEXEC ? O_CLOEXEC : 0;
            noted.path_bytes = (uint32_t)length;
            noted.born_ns = born_ns(fd);
            noted.first = lowest_duplicate(buffer, &noted);
            noted.lock_bytes = read_locks(fd, locks);
        }
    }
    else if (S_ISDIR(status.st_mode))
        noted.offset = lseek(fd, 0, SEEK_CUR);
    else if ((content = read_content(fd, status.st_mode, &content_bytes, &noted.size)) == NULL && content_bytes < 0)
        noted.offset = -1;
    else
        noted.content_bytes = (uint32_t)content_bytes;
    int failed = append(buffer, &noted, sizeof noted) || append(buffer, path, noted.path_bytes) ||
                 append(buffer, locks, noted.lock_bytes) || append(buffer, content, noted.content_bytes);
    PyMem_RawFree(content);
    return failed ? -1 : 1;
}

/* The open descriptors from `end` on that `known` names, in order: the library has given its own files high numbers. Returns how many
 * there are; -1: more than HIGH_MAX. */
static int high_ones(const Buffer *buffer, int64_t end, int *high)
{
    PyObject *number, *pair;
    Py_ssize_t next = 0;
    int count = 0;
    while (buffer->known != NULL && PyDict_Next(buffer->known, &next, &number, &pair)) {
        int overflow;
        long fd = PyLong_Check(number) ? PyLong_AsLongAndOverflow(number, &overflow) : -1;
        if (fd < end || fd > INT_MAX || fcntl((int)fd, F_GETFD) < 0)
            continue;
        if (count == HIGH_MAX)
            return -1;
        int at = count++;
        for (; at > 0 && high[at - 1] > fd; at--)
            high[at] = high[at - 1];
        high[at] = (int)fd;
    }
    return count;
}

/* Note the descriptors one by one, if the kernel says how many there are (Linux 6.2): faster than a listing. Another thread may
 * open or close one meanwhile: moment.check() looks in the child whether a file was missed. Returns as append_descriptor() does;
 * 0 also if the kernel does not say, or if the numbers are far apart and not known. */
static int append_counted(Buffer *buffer)
{
    struct stat status;
    if (stat("/proc/self/fd", &status) < 0 || status.st_size <= 0)
        return 0;
    size_t before = buffer->used;
    int64_t end = 4 * status.st_size + 256;
    int high[HIGH_MAX], count = high_ones(buffer, end, high);
    int64_t left = status.st_size - count;
    for (int fd = 0; count >= 0 && fd < end && left > 0; fd++) {
        int noted = append_descriptor(buffer, fd);
        if (noted < 0)
            return -1;
        left -= noted;
    }
    for (int i = 0; left == 0 && i < count; i++) {
        int noted = append_descriptor(buffer, high[i]);
        if (noted < 0)
            return -1;
        left += 1 - noted;
    }
    if (left > 0)
        buffer->used = before;
    return left == 0;
}

static int append_descriptors(Buffer *buffer)
{
    int counted = append_counted(buffer);
    if (counted)
        return counted < 0 ? -1 : 0;
    _Alignas(Entry) char entries[2048];
    int listing = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long bytes = listing < 0 ? -1 : 0;
    int failed = 0;
    while (!failed && listing >= 0 && (bytes = syscall(SYS_getdents64, listing, entries, sizeof entries)) > 0)
        for (long at = 0; !failed && at < bytes; at += ((Entry *)(entries + at))->bytes) {
            const char *name = ((Entry *)(entries + at))->name;
            int fd = atoi(name);
            if (name[0] >= '0' && name[0] <= '9' && fd != listing)
                failed = append_descriptor(buffer, fd) < 0;
        }
    if (!failed && bytes < 0) {
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, "/proc/self/fd");
        failed = 1;
    }
    if (listing >= 0)
        close(listing);
    return failed ? -1 : 0;
}

/* As `next_descriptor`: the next end of a TCP connection. */
static int next_connection(const char *data, size_t bytes, size_t *at, Descriptor *found, TcpHead *head)
{
    while (next_descriptor(data, bytes, at, found))
        if (S_ISSOCK(found->mode) && found->size > 0) {
            memcpy(head, data + *at - record_bytes(found) + sizeof *found, sizeof *head);
            return 1;
        }
    return 0;
}

/* The ends of TCP connections are looked at once more when all have been read. */
static void confirm_connections(const Buffer *buffer)
{
    Descriptor each;
    TcpHead head;
    for (int is_last = 0; is_last < 2; is_last++)
        for (size_t at = buffer->files; next_connection(buffer->data, buffer->used, &at, &each, &head);) {
            confirm_connection(each.fd, &head, each.content_bytes - sizeof head, is_last);
            memcpy(buffer->data + at - record_bytes(&each) + sizeof each, &head, sizeof head);
        }
}

static PyObject *bytes_of(Buffer *buffer)
{
    PyObject *noted = NULL;
    if (append_head(buffer) == 0 && (buffer->files = buffer->used) && append_descriptors(buffer) == 0) {
        confirm_connections(buffer);
        noted = PyBytes_FromStringAndSize(buffer->data, (Py_ssize_t)buffer->used);
    }
    PyMem_RawFree(buffer->data);
    return noted;
}

PyDoc_STRVAR(note_moment_doc,
"note_moment(ours=(), known={}, /) -> bytes\n\n"
"Timers, signals that are blocked in this thread or have arrived, and every open descriptor; see the C source for the layout.  No more than the type is\n"
"noted of the event descriptors in `ours`, and of descriptors that refer to what `known` says, {descriptor: (device, inode)}, but\n"
"for standard streams.  Raises OSError.");
static PyObject *note_moment(PyObject *module, PyObject *args)
{
    Buffer buffer = {0};
    PyObject *ours = NULL, *iterator, *each;
    if (!PyArg_ParseTuple(args, "|OO!", &ours, &PyDict_Type, &buffer.known))
        return NULL;
    if (ours != NULL) {
        if ((iterator = PyObject_GetIter(ours)) == NULL)
            return NULL;
        while ((each = PyIter_Next(iterator)) != NULL) {
            long fd = PyLong_AsLong(each);
            Py_DECREF(each);
            if (fd >= 0 && fd < OURS_MAX)
                buffer.ours[fd / 64] |= (uint64_t)1 << (fd % 64);
        }
        Py_DECREF(iterator);
        if (PyErr_Occurred())
            return NULL;
    }
    return bytes_of(&buffer);
}

/* Is there another end that has got what this one was given, and the other way round? Whether it is the other one is found out later. */
static int has_counterpart(const char *data, size_t bytes, int own, const TcpHead *head)
{
    Descriptor each;
    TcpHead other;
    for (size_t at = sizeof(Head); next_connection(data, bytes, &at, &each, &other);)
        if (each.fd != own && other.received_bytes == head->given_bytes && other.given_bytes == head->received_bytes)
            return 1;
    return 0;
}

PyDoc_STRVAR(unfinished_doc,
"unfinished(noted, /) -> tuple[int, ...]\n\n"
"Of a record of note_moment(): the descriptors of TCP connections that are open, and of which not everything may have been noted,\n"
"because something is on its way, too much waits, or the other end is none that was noted.");
static PyObject *unfinished(PyObject *module, PyObject *noted)
{
    if (!PyBytes_Check(noted))
        return PyErr_Format(PyExc_TypeError, "a record is needed, in bytes");
    const char *data = PyBytes_AS_STRING(noted);
    size_t bytes = (size_t)PyBytes_GET_SIZE(noted);
    PyObject *found = PyList_New(0), *tuple;
    Descriptor each;
    TcpHead head;
    for (size_t at = sizeof(Head); found != NULL && next_connection(data, bytes, &at, &each, &head);)
        if (head.is_unread || (!is_over(&head) && !has_counterpart(data, bytes, each.fd, &head))) {
            PyObject *number = PyLong_FromLong(each.fd);
            if (number == NULL || PyList_Append(found, number) < 0)
                Py_CLEAR(found);
            Py_XDECREF(number);
        }
    if (found == NULL)
        return NULL;
    tuple = PyList_AsTuple(found);
    Py_DECREF(found);
    return tuple;
}

static int is_in_one(const char *path, size_t bytes, PyObject *directories)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(directories); i++) {
        PyObject *directory = PyTuple_GET_ITEM(directories, i);
        size_t length = (size_t)PyBytes_GET_SIZE(directory);
        if (bytes > length && path[length] == '/' && !memcmp(path, PyBytes_AS_STRING(directory), length))
            return 1;
    }
    return 0;
}

PyDoc_STRVAR(written_doc,
"written(noted, left_out=(), /) -> bytes\n\n"
"Of a record of note_moment(): the descriptors of regular files that are open for writing, without those in the directories\n"
"left_out, a tuple of bytes.  Raises TypeError.");
static PyObject *written(PyObject *module, PyObject *args)
{
    PyObject *none = PyTuple_New(0), *left_out = none, *found = NULL;
    Py_buffer noted;
    if (none == NULL || !PyArg_ParseTuple(args, "y*|O!", &noted, &PyTuple_Type, &left_out)) {
        Py_XDECREF(none);
        return NULL;
    }
    Buffer buffer = {0};
    int failed = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(left_out); i++)
        failed |= !PyBytes_Check(PyTuple_GET_ITEM(left_out, i));
    if (failed)
        PyErr_SetString(PyExc_TypeError, "the directories left out are bytes");
    const char *data = noted.buf;
    size_t at = sizeof(Head);
    Descriptor each;
    while (!failed && next_descriptor(data, (size_t)noted.len, &at, &each)) {
        const char *start = data + at - record_bytes(&each);
        if (S_ISREG(each.mode) && (each.flags & O_ACCMODE) != O_RDONLY &&
            !is_in_one(start + sizeof each, each.path_bytes, left_out))
            failed = append(&buffer, start, record_bytes(&each));
    }
    if (!failed)
        found = PyBytes_FromStringAndSize(buffer.data, (Py_ssize_t)buffer.used);
    PyMem_RawFree(buffer.data);
    PyBuffer_Release(&noted);
    Py_DECREF(none);
    return found;
}

static int is_among(int fd, const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (fds[i] == fd)
            return 1;
    return 0;
}

/* Find the next file or directory that a child must not share, from offset `at` of the record on. 0: there is none. A standard
 * stream is shared, unless a lock belongs to it. */
static int next_shared(const MomentRecord *noted, size_t *at, Descriptor *found)
{
    while (next_descriptor(noted->data, noted->bytes, at, found)) {
        int is_read = S_ISREG(found->mode) || (S_ISDIR(found->mode) && found->offset >= 0);
        if (is_read && (found->fd > STDERR_FILENO || found->lock_bytes) &&
            !is_among(found->fd, noted->ours, noted->count))
            return 1;
    }
    return 0;
}

/* In a new child: replace each such file by an open file description of the child's own, for reading only, at the same offset;
 * the flags of a directory stay, since the child reads them. The child may read a directory to its end: the offset of the
 * program's own reading does not move. The program's locks belong to its open file descriptions, and last until the last descriptor of one is closed: so the child
 * must have none of these. */
static void reopen_files(const MomentRecord *noted)
{
    Descriptor each;
    size_t at = sizeof(Head);
    while (next_shared(noted, &at, &each)) {
        char name[32];
        snprintf(name, sizeof name, "/proc/self/fd/%d", each.fd);
        int is_directory = S_ISDIR(each.mode), flags = O_RDONLY, closes = O_CLOEXEC;
        if (is_directory) {
            flags = fcntl(each.fd, F_GETFL);
            closes = fcntl(each.fd, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0;
        }
        int own = open(name, flags | O_CLOEXEC);
        if (own < 0) /* nothing that may be read */
            own = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (own < 0)
            close(each.fd);
        else {
            lseek(own, each.offset, SEEK_SET);
            dup3(own, each.fd, closes);
            close(own);
        }
    }
}

/* fork(2), which returns to the parent when the child has reopened the noted files. Until then both processes have the program's
 * open files: a file that the program closed meanwhile would keep its lock. */
pid_t fork_with_own_files(const MomentRecord *noted)
{
    int ends[2];
    Descriptor any;
    size_t at = sizeof(Head);
    if (!next_shared(noted, &at, &any))
        return fork();
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    int error = errno;
    if (pid == 0) {
        reopen_files(noted);
        if (write(ends[1], "", 1) < 0) /* nobody waits any more */
            errno = 0;
        close(ends[0]);
        close(ends[1]);
        return 0;
    }
    close(ends[1]);
    if (pid > 0) {
        struct pollfd done = {.fd = ends[0], .events = POLLIN};
        while (poll(&done, 1, PATIENCE_MS) < 0 && errno == EINTR)
            continue;
    }
    close(ends[0]);
    errno = error;
    return pid;
}

PyDoc_STRVAR(born_doc, "born(fd, /) -> int\n\n"
    "When the file of a descriptor was made, in nanoseconds since 1970; 0: its file system does not say.");
static PyObject *born(PyObject *module, PyObject *fd)
{
    int number = PyObject_AsFileDescriptor(fd);
    return number < 0 ? NULL : PyLong_FromUnsignedLongLong(born_ns(number));
}

PyMethodDef moment_methods[] = {
    {"born", born, METH_O, born_doc},
    {"note_moment", note_moment, METH_VARARGS, note_moment_doc},
    {"unfinished", unfinished, METH_O, unfinished_doc},
    {"written", written, METH_VARARGS, written_doc},
    {NULL, NULL, 0, NULL},
};
