/* Writes that go elsewhere than to the end of a file of which only the length has been kept.

   Of a file that is opened for appending only its length is kept, and of a large one that the program has open for writing at an
   image, at its end, too. Then the program may truncate it, or seek, or write at an offset. Here that is told as os.truncate, which
   keeps the contents, before it happens: of files that are opened for appending, where the length becomes less, or where the
   descriptor is made one that does not append (F_SETFL); of the others (`watch_set_ends`), where a position comes before the end
   that they had.

   Not here: which files these are (ckpt.rank.files). */

#include "watch.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#undef fcntl
#undef lseek
#undef ftruncate
#undef pwrite
#undef pwritev
#undef fseeko
#undef fsetpos

#define CALLER __builtin_return_address(0)
#define NOWHERE ((off_t)-1)

struct end {
    dev_t device;
    ino_t inode;
    off_t nbytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct end *ends;
static Py_ssize_t count; /* read without the lock, too: where there are none, nothing else is looked at */

/* Is this a change of the program's, in the process that is watched? */
static int is_watched(void) { return watch_pid && getpid() == watch_pid && !watch_is_telling(); }

static int are_there(void) { return __atomic_load_n(&count, __ATOMIC_ACQUIRE) != 0 && is_watched(); }

/* The end that the file had; 0: it is none of these. `forgets`: it is none of these any more. */
static off_t end_of(const struct stat *file, int forgets)
{
    off_t found = 0;
    pthread_mutex_lock(&lock);
    for (Py_ssize_t i = 0; i < count; i++)
        if (ends[i].device == file->st_dev && ends[i].inode == file->st_ino) {
            found = ends[i].nbytes;
            if (forgets)
                ends[i].nbytes = 0;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

static void tell_of(int fd, void *caller)
{
    char link[64], path[PATH_MAX + 1];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t nbytes = readlink(link, path, sizeof path - 1);
    if (nbytes <= 0)
        return;
    path[nbytes] = '\0';
    watch_operation(&(struct operation){"os.truncate", AT_FDCWD, path, AT_FDCWD, NULL, 0, caller});
}

static int has_name(int fd, struct stat *file)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && !fstat(fd, file) && S_ISREG(file->st_mode) && file->st_nlink > 0;
}

static void about_to_write_at(int fd, off_t at, void *caller)
{
    struct stat file;
    int before = errno;
    if (at != NOWHERE && has_name(fd, &file) && at < end_of(&file, 0)) {
        tell_of(fd, caller);
        end_of(&file, 1);
    }
    errno = before;
}

/* Where a seek leads; NOWHERE: where the file ends, or where it is. */
static off_t led_to(int fd, off_t offset, int whence)
{
    struct stat file;
    switch (whence) {
    case SEEK_SET:
        return offset < 0 ? NOWHERE : offset;
    case SEEK_CUR:
        return offset == 0 ? NOWHERE : lseek(fd, 0, SEEK_CUR) + offset;
    case SEEK_END:
        return offset >= 0 || fstat(fd, &file) ? NOWHERE : file.st_size + offset;
    }
    return 0;
}

off_t our_lseek(int fd, off_t offset, int whence)
{
    if (are_there())
        about_to_write_at(fd, led_to(fd, offset, whence), CALLER);
    return lseek(fd, offset, whence);
}

ssize_t our_pwrite(int fd, const void *data, size_t nbytes, off_t offset)
{
    if (are_there())
        about_to_write_at(fd, offset, CALLER);
    return pwrite(fd, data, nbytes, offset);
}

ssize_t our_pwritev(int fd, const struct iovec *data, int parts, off_t offset)
{
    if (are_there())
        about_to_write_at(fd, offset, CALLER);
    return pwritev(fd, data, parts, offset);
}

ssize_t our_pwritev2(int fd, const struct iovec *data, int parts, off_t offset, int flags)
{
    if (are_there())
        about_to_write_at(fd, offset, CALLER);
    return pwritev2(fd, data, parts, offset, flags);
}

ssize_t our_copy_file_range(int from, off_t *from_offset, int fd, off_t *offset, size_t nbytes, unsigned flags)
{
    if (offset && are_there())
        about_to_write_at(fd, *offset, CALLER);
    return copy_file_range(from, from_offset, fd, offset, nbytes, flags);
}

int our_ftruncate(int fd, off_t nbytes)
{
    struct stat file;
    int before = errno;
    if (is_watched()) {
        if (has_name(fd, &file) && nbytes < file.st_size && fcntl(fd, F_GETFL) & O_APPEND)
            tell_of(fd, CALLER);
        else
            about_to_write_at(fd, nbytes, CALLER);
    }
    errno = before;
    return ftruncate(fd, nbytes);
}

/* Each command has one argument at most: a number or an address. */
int our_fcntl(int fd, int command, ...)
{
    struct stat file;
    int before = errno;
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (command == F_SETFL && !((int)(intptr_t)argument & O_APPEND) && is_watched() && has_name(fd, &file) &&
        fcntl(fd, F_GETFL) & O_APPEND)
        tell_of(fd, CALLER);
    errno = before;
    return fcntl(fd, command, argument);
}

int our_fseek(FILE *file, off_t offset, int whence)
{
    if (are_there())
        about_to_write_at(fileno(file), led_to(fileno(file), offset, whence), CALLER);
    return fseeko(file, offset, whence);
}

int our_fsetpos(FILE *file, const fpos_t *position)
{
    if (are_there())
        about_to_write_at(fileno(file), 0, CALLER);
    return fsetpos(file, position);
}

void our_rewind(FILE *file)
{
    if (are_there())
        about_to_write_at(fileno(file), 0, CALLER);
    rewind(file);
}

const char watch_set_ends_doc[] = "set_ends(rows, /) -> None\n\n"
                                  "rows: (device, inode, nbytes) of files whose contents are told before they are written before\n"
                                  "that length. Raises MemoryError, TypeError.";

PyObject *watch_set_ends(PyObject *module, PyObject *rows)
{
    if (!PyList_Check(rows)) {
        PyErr_SetString(PyExc_TypeError, "a list is wanted");
        return NULL;
    }
    Py_ssize_t many = PyList_GET_SIZE(rows);
    struct end *made = many ? PyMem_RawMalloc(many * sizeof *made) : NULL;
    if (many && made == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < many; i++) {
        unsigned long long device, inode;
        long long nbytes;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(rows, i), "KKL", &device, &inode, &nbytes)) {
            PyMem_RawFree(made);
            return NULL;
        }
        made[i] = (struct end){device, inode, nbytes};
    }
    pthread_mutex_lock(&lock);
    struct end *old = ends;
    ends = made;
    __atomic_store_n(&count, many, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    PyMem_RawFree(old);
    Py_RETURN_NONE;
}
