/* What a forked child does not find as it was: timers, the mask of signals, where open files stand.
 *
 * Noted in the parent while the program stands still, right after another fork perhaps: then each page that is written to for
 * the first time costs a page fault, some microseconds, and so does every Python object that is as much as looked at, for the
 * count in it. Hence one call, and one object: bytes, taken apart by ckpt.image.moment in the child.
 */
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
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

/* The layout, as ckpt.image.moment reads it: a Head, then a Descriptor for each, followed by its path. */
typedef struct {
    int64_t timers[3][4]; /* of ITIMER_REAL, _VIRTUAL, _PROF: seconds and microseconds left, the same of the interval */
    uint64_t blocked;     /* bit n - 1: signal n */
} Head;

typedef struct {
    int64_t offset, size;
    int32_t fd, flags;
    uint32_t mode, links, path_bytes, unused;
} Descriptor;

typedef struct { /* of getdents64(2) */
    uint64_t inode;
    int64_t next;
    unsigned short bytes;
    unsigned char type;
    char name[];
} Entry;

typedef struct {
    char *data;
    size_t used, room;
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

static int append_head(Buffer *buffer)
{
    Head head = {0};
    const int kinds[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};
    for (int i = 0; i < 3; i++) {
        struct itimerval timer;
        if (getitimer(kinds[i], &timer) < 0) {
            PyErr_SetFromErrno(PyExc_OSError);
            return -1;
        }
        int64_t values[] = {timer.it_value.tv_sec, timer.it_value.tv_usec, timer.it_interval.tv_sec, timer.it_interval.tv_usec};
        memcpy(head.timers[i], values, sizeof values);
    }
    sigset_t blocked;
    int error = pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    if (error) {
        errno = error;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    for (int number = 1; number <= 64; number++)
        if (sigismember(&blocked, number) == 1)
            head.blocked |= (uint64_t)1 << (number - 1);
    return append(buffer, &head, sizeof head);
}

/* Only of a regular file more than its kind is noted: nothing else can change before the child looks. 1: noted; 0: there is
 * nothing to note; -1: an exception. */
static int append_descriptor(Buffer *buffer, int fd)
{
    struct stat status;
    Descriptor noted = {.fd = fd};
    char path[PATH_MAX];
    if (fstat(fd, &status) < 0)
        return 0;
    noted.mode = status.st_mode;
    if (S_ISREG(status.st_mode)) {
        char name[32];
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(name, path, sizeof path);
        noted.flags = fcntl(fd, F_GETFL);
        noted.offset = lseek(fd, 0, SEEK_CUR);
        noted.size = status.st_size;
        noted.links = (uint32_t)status.st_nlink;
        if (length < 0 || noted.flags < 0 || noted.offset < 0)
            noted.mode = 0; /* opened with O_PATH, say: nothing that is read or written */
        else
            noted.path_bytes = (uint32_t)length;
    }
    return append(buffer, &noted, sizeof noted) || append(buffer, path, noted.path_bytes) ? -1 : 1;
}

/* One by one, if the kernel says how many there are (Linux 6.2): faster than a listing. Another thread may open or close one
 * meanwhile: a child has moment.check() look whether a file was missed. Returns as append_descriptor() does, 0 where the kernel
 * does not say, or they are far apart. */
static int append_counted(Buffer *buffer)
{
    struct stat status;
    if (stat("/proc/self/fd", &status) < 0 || status.st_size <= 0)
        return 0;
    size_t before = buffer->used;
    int64_t left = status.st_size, end = 4 * status.st_size + 256;
    for (int fd = 0; fd < end && left > 0; fd++) {
        int noted = append_descriptor(buffer, fd);
        if (noted < 0)
            return -1;
        left -= noted;
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

PyDoc_STRVAR(note_moment_doc,
"note_moment() -> bytes\n\n"
"Timers, blocked signals of this thread, and every open descriptor; see the C source for the layout.  Raises OSError.");
static PyObject *note_moment(PyObject *module, PyObject *unused)
{
    Buffer buffer = {0};
    PyObject *noted = NULL;
    if (append_head(&buffer) == 0 && append_descriptors(&buffer) == 0)
        noted = PyBytes_FromStringAndSize(buffer.data, (Py_ssize_t)buffer.used);
    PyMem_RawFree(buffer.data);
    return noted;
}

PyMethodDef moment_methods[] = {
    {"note_moment", note_moment, METH_NOARGS, note_moment_doc},
    {NULL, NULL, 0, NULL},
};
