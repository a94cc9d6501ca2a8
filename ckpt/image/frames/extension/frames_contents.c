/* What the kernel tells of a descriptor: what waits in the pipes and pairs of sockets of the program, what its epoll instances
 * wait for, locks of files, and whether two descriptors share an offset. Parent and forked child share all of that, so the parent
 * reads it while the program stands still, without taking anything out. And the reading of small files without a release of the
 * interpreter's lock.
 *
 * Not here: which of them belong to the program (ckpt.image.ipc.survey), and how they are made again (ckpt.image.ipc.remake).
 */
#include "frames.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef KCMP_FILE
#define KCMP_FILE 0
#endif

/* Bytes of a pipe or socket that wait to be read. */
static int waiting_bytes(int fd)
{
    int count = 0;
    return ioctl(fd, FIONREAD, &count) < 0 ? -1 : count;
}

/* What waits in a pipe, without taking it out: tee(2) copies it into another pipe. */
static ssize_t copy_pipe(int fd, char *content, int count)
{
    int ends[2], room = fcntl(fd, F_GETPIPE_SZ);
    ssize_t copied = -1, more = 0;
    if (room < 0 || pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    if (fcntl(ends[1], F_SETPIPE_SZ, room) >= 0 && tee(fd, ends[1], (size_t)count, SPLICE_F_NONBLOCK) == count) {
        copied = 0;
        while (copied < count && (more = read(ends[0], content + copied, (size_t)(count - copied))) > 0)
            copied += more;
    }
    close(ends[0]);
    close(ends[1]);
    return copied;
}

/* Is it a Unix socket without a name (one of a pair), or connected to another? */
static int is_paired(int fd, int *is_stream)
{
    struct sockaddr_un name;
    int domain, type;
    socklen_t bytes = sizeof domain, type_bytes = sizeof type, name_bytes = sizeof name, peer_bytes = sizeof name;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) < 0 || domain != AF_UNIX ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes) < 0)
        return 0;
    *is_stream = type == SOCK_STREAM;
    if (type != SOCK_DGRAM)
        return 1;
    return getsockname(fd, (struct sockaddr *)&name, &name_bytes) == 0 && name_bytes == sizeof name.sun_family &&
           (getpeername(fd, (struct sockaddr *)&name, &peer_bytes) < 0 || peer_bytes == sizeof name.sun_family);
}

static char *read_pending(int fd, mode_t mode, ssize_t *bytes)
{
    int count = 0, is_stream = 0;
    char *content = NULL;
    *bytes = 0;
    if (S_ISFIFO(mode) && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY)
        return NULL;
    if (S_ISFIFO(mode) || (S_ISSOCK(mode) && is_paired(fd, &is_stream)))
        count = waiting_bytes(fd);
    if (count <= 0 || (S_ISSOCK(mode) && !is_stream) || (content = PyMem_RawMalloc((size_t)count)) == NULL) {
        *bytes = count > 0 ? -1 : 0;
        return NULL;
    }
    *bytes = S_ISFIFO(mode) ? copy_pipe(fd, content, count) : recv(fd, content, (size_t)count, MSG_PEEK | MSG_DONTWAIT);
    if (*bytes == count)
        return content;
    PyMem_RawFree(content);
    *bytes = -1;
    return NULL;
}

/* The lines of /proc/self/fdinfo that tell which descriptors an epoll instance waits for. */
static char *read_registered(int fd, ssize_t *bytes)
{
    char name[40], target[32];
    *bytes = 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, target, sizeof target);
    if (length < 0 || strncmp(target, "anon_inode:[eventpoll]", (size_t)length))
        return NULL;
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", fd);
    int info = open(name, O_RDONLY | O_CLOEXEC);
    size_t room = 4096;
    char *text = info < 0 ? NULL : PyMem_RawMalloc(room), *larger;
    ssize_t more = 0;
    while (text != NULL && (more = read(info, text + *bytes, room - (size_t)*bytes)) > 0) {
        *bytes += more;
        if (room - (size_t)*bytes < 1024) {
            if ((larger = PyMem_RawRealloc(text, room *= 2)) == NULL)
                break;
            text = larger;
        }
    }
    if (info >= 0)
        close(info);
    if (text != NULL && more == 0)
        return text;
    PyMem_RawFree(text);
    *bytes = -1;
    return NULL;
}

/* The content of a pipe, or of a connected socket, is taken by the program as it goes on; so are the
 * files that an epoll instance waits for. Returns it in raw memory, or NULL with `*bytes` 0: there is none, or -1: it cannot be
 * read without taking it out. `mode`: of stat(2). `*head_bytes`: of a TCP connection, the size of the TcpHead before it; else 0. */
char *read_content(int fd, mode_t mode, ssize_t *bytes, int64_t *head_bytes)
{
    *bytes = 0;
    if (S_ISSOCK(mode)) {
        char *record = read_connection(fd, bytes);
        *head_bytes = record == NULL ? 0 : (int64_t)sizeof(TcpHead);
        if (record != NULL || *bytes < 0)
            return record;
    }
    if (S_ISFIFO(mode) || S_ISSOCK(mode))
        return read_pending(fd, mode, bytes);
    return mode & S_IFMT ? NULL : read_registered(fd, bytes);
}

/* Do two descriptors of one file share an offset? Without kcmp(2) that is tried, since nobody else uses them now. */
int share_offset(int fd, int other)
{
    pid_t self = getpid();
    long order = syscall(SYS_kcmp, self, self, KCMP_FILE, fd, other);
    if (order >= 0)
        return order == 0;
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (at < 0 || lseek(other, 0, SEEK_CUR) != at || lseek(fd, at + 1, SEEK_SET) < 0)
        return 0;
    int moved = lseek(other, 0, SEEK_CUR) == at + 1;
    lseek(fd, at, SEEK_SET);
    return moved;
}

/* The lines of /proc/self/fdinfo that tell of locks, LOCK_BYTES_MAX at most; most files have none. */
uint32_t read_locks(int fd, char *lines)
{
    char name[40], text[LOCK_BYTES_MAX];
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", fd);
    int info = open(name, O_RDONLY | O_CLOEXEC);
    if (info < 0)
        return 0;
    ssize_t bytes = 0, more;
    while (bytes < (ssize_t)sizeof text - 1 && (more = read(info, text + bytes, sizeof text - 1 - (size_t)bytes)) > 0)
        bytes += more;
    close(info);
    text[bytes] = 0;
    const char *first = strstr(text, "\nlock:");
    if (first == NULL)
        return 0;
    size_t length = strlen(first + 1);
    memcpy(lines, first + 1, length);
    return (uint32_t)length;
}

PyDoc_STRVAR(read_file_doc,
"read_file(path, /) -> bytes\n\n"
"The content of a small file, as the kernel has them in /proc.  The interpreter's lock (GIL) is not released meanwhile: beside\n"
"threads that compute, each release would cost some milliseconds.  Raises OSError.");
static PyObject *read_file(PyObject *module, PyObject *path)
{
    PyObject *name, *found = NULL;
    if (!PyUnicode_FSConverter(path, &name))
        return NULL;
    int fd = open(PyBytes_AS_STRING(name), O_RDONLY | O_CLOEXEC);
    Py_DECREF(name);
    if (fd < 0)
        return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    size_t size = 0, room = 1 << 14;
    ssize_t n = -1;
    char *data = malloc(room), *larger;
    while (data != NULL && (n = read(fd, data + size, room - size)) > 0) {
        size += (size_t)n;
        if (size == room) {
            if ((larger = realloc(data, room *= 2)) == NULL)
                break;
            data = larger;
        }
    }
    int error = errno;
    close(fd);
    if (n == 0)
        found = PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
    free(data);
    if (n != 0) {
        errno = error;
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    }
    return found;
}

PyMethodDef contents_methods[] = {
    {"read_file", read_file, METH_O, read_file_doc},
    {NULL, NULL, 0, NULL},
};
