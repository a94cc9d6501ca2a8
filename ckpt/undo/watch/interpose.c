/* Interposition: reports what compiled libraries are about to do with files, as audit events report what Python is about to do.

   A library written in C, C++, Fortran or Rust changes files through functions of the C library (open, fopen, rename, …), and
   raises no audit event. Its calls are led here (linking.c): to functions of the same types, which tell the callback (telling.c)
   and then call the C library.

   Not seen: system calls that a library makes by itself (Go), functions that it has looked up with dlsym (ctypes, cffi),
   libraries in which the C library is linked statically.

   Not here: what an operation needs, and which paths matter (ckpt.undo.watching). */

#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#undef open
#undef open64
#undef openat
#undef openat64
#undef creat
#undef fopen
#undef freopen
#undef truncate
#undef mkstemp
#undef mkostemp
#undef mkstemps
#undef mkostemps

#define CALLER __builtin_return_address(0)
#define HERE AT_FDCWD

static void about_to_open(int fd, const char *path, int flags, void *caller)
{
    if (((flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC)) && !(flags & O_PATH))
        watch_operation(&(struct operation){"open", fd, path, HERE, NULL, flags, caller});
}

static void about_to_change(const char *event, int fd, const char *path, void *caller)
{
    watch_operation(&(struct operation){event, fd, path, HERE, NULL, 0, caller});
}

static void about_to_bind(const char *event, int fd, const char *path, int other_fd, const char *other, void *caller)
{
    watch_operation(&(struct operation){event, fd, path, other_fd, other, 0, caller});
}

static int flags_of(const char *mode)
{
    int updates = strchr(mode, '+') != NULL;
    switch (mode[0]) {
    case 'w':
        return (updates ? O_RDWR : O_WRONLY) | O_CREAT | O_TRUNC;
    case 'a':
        return (updates ? O_RDWR : O_WRONLY) | O_CREAT | O_APPEND;
    default:
        return updates ? O_RDWR : O_RDONLY;
    }
}

#define MODE(last)                                                                                                          \
    mode_t mode = 0;                                                                                                        \
    if (last & O_CREAT || (last & O_TMPFILE) == O_TMPFILE) {                                                                \
        va_list more;                                                                                                       \
        va_start(more, last);                                                                                               \
        mode = va_arg(more, mode_t);                                                                                        \
        va_end(more);                                                                                                       \
    }

static int our_open(const char *path, int flags, ...)
{
    MODE(flags)
    about_to_open(HERE, path, flags, CALLER);
    return open(path, flags, mode);
}

static int our_openat(int fd, const char *path, int flags, ...)
{
    MODE(flags)
    about_to_open(fd, path, flags, CALLER);
    return openat(fd, path, flags, mode);
}

static int our_creat(const char *path, mode_t mode)
{
    about_to_open(HERE, path, O_WRONLY | O_CREAT | O_TRUNC, CALLER);
    return creat(path, mode);
}

static FILE *our_fopen(const char *path, const char *mode)
{
    about_to_open(HERE, path, flags_of(mode), CALLER);
    return fopen(path, mode);
}

static FILE *our_freopen(const char *path, const char *mode, FILE *file)
{
    if (path)
        about_to_open(HERE, path, flags_of(mode), CALLER);
    return freopen(path, mode, file);
}

static int our_truncate(const char *path, off_t length)
{
    about_to_change("os.truncate", HERE, path, CALLER);
    return truncate(path, length);
}

static int our_rename(const char *source, const char *target)
{
    about_to_bind("os.rename", HERE, source, HERE, target, CALLER);
    return rename(source, target);
}

static int our_renameat(int source_fd, const char *source, int target_fd, const char *target)
{
    about_to_bind("os.rename", source_fd, source, target_fd, target, CALLER);
    return renameat(source_fd, source, target_fd, target);
}

static int our_renameat2(int source_fd, const char *source, int target_fd, const char *target, unsigned flags)
{
    about_to_bind("os.rename", source_fd, source, target_fd, target, CALLER);
    if (flags & RENAME_EXCHANGE)
        about_to_bind("os.rename", target_fd, target, source_fd, source, CALLER);
    return renameat2(source_fd, source, target_fd, target, flags);
}

static int our_unlink(const char *path)
{
    about_to_change("os.remove", HERE, path, CALLER);
    return unlink(path);
}

static int our_unlinkat(int fd, const char *path, int flags)
{
    about_to_change("os.remove", fd, path, CALLER);
    return unlinkat(fd, path, flags);
}

static int our_remove(const char *path)
{
    about_to_change("os.remove", HERE, path, CALLER);
    return remove(path);
}

static int our_rmdir(const char *path)
{
    about_to_change("os.rmdir", HERE, path, CALLER);
    return rmdir(path);
}

static int our_mkdir(const char *path, mode_t mode)
{
    about_to_change("os.mkdir", HERE, path, CALLER);
    return mkdir(path, mode);
}

static int our_mkdirat(int fd, const char *path, mode_t mode)
{
    about_to_change("os.mkdir", fd, path, CALLER);
    return mkdirat(fd, path, mode);
}

static int our_link(const char *source, const char *target)
{
    about_to_bind("os.link", HERE, source, HERE, target, CALLER);
    return link(source, target);
}

static int our_linkat(int source_fd, const char *source, int target_fd, const char *target, int flags)
{
    about_to_bind("os.link", source_fd, source, target_fd, target, CALLER);
    return linkat(source_fd, source, target_fd, target, flags);
}

static int our_symlink(const char *content, const char *path)
{
    about_to_change("os.symlink", HERE, path, CALLER);
    return symlink(content, path);
}

static int our_symlinkat(const char *content, int fd, const char *path)
{
    about_to_change("os.symlink", fd, path, CALLER);
    return symlinkat(content, fd, path);
}

/* A special file, or an empty one, is made: as with a symbolic link, its name only is of interest. */
static int our_mknod(const char *path, mode_t mode, dev_t device)
{
    about_to_change("os.symlink", HERE, path, CALLER);
    return mknod(path, mode, device);
}

static int our_mknodat(int fd, const char *path, mode_t mode, dev_t device)
{
    about_to_change("os.symlink", fd, path, CALLER);
    return mknodat(fd, path, mode, device);
}

static int our_mkfifo(const char *path, mode_t mode)
{
    about_to_change("os.symlink", HERE, path, CALLER);
    return mkfifo(path, mode);
}

static int our_mkfifoat(int fd, const char *path, mode_t mode)
{
    about_to_change("os.symlink", fd, path, CALLER);
    return mkfifoat(fd, path, mode);
}

static int our_chmod(const char *path, mode_t mode)
{
    about_to_change("os.chmod", HERE, path, CALLER);
    return chmod(path, mode);
}

static int our_utime(const char *path, const struct utimbuf *times)
{
    about_to_change("os.utime", HERE, path, CALLER);
    return utime(path, times);
}

static int our_utimes(const char *path, const struct timeval *times)
{
    about_to_change("os.utime", HERE, path, CALLER);
    return utimes(path, times);
}

static int our_utimensat(int fd, const char *path, const struct timespec *times, int flags)
{
    about_to_change("os.utime", fd, path, CALLER);
    return utimensat(fd, path, times, flags);
}

/* A file, or (flags < 0) a directory, of a new name, which is told before: "XXXXXX" of the template becomes six letters. */
static int make_temporary(char *template, int suffix, int flags, void *caller)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    size_t length = strlen(template);
    char *end = template + length - suffix - 6;
    struct stat found;
    if (suffix < 0 || length < (size_t)suffix + 6 || strncmp(end, "XXXXXX", 6)) {
        errno = EINVAL;
        return -1;
    }
    for (int turn = 0; turn < 10000; turn++) {
        unsigned char random[6];
        if (getrandom(random, sizeof random, 0) != sizeof random)
            continue;
        for (int i = 0; i < 6; i++)
            end[i] = letters[random[i] % (sizeof letters - 1)];
        if (!lstat(template, &found))
            continue;
        int result;
        if (flags < 0) {
            about_to_change("os.mkdir", HERE, template, caller);
            result = mkdir(template, 0700);
        } else {
            about_to_open(HERE, template, O_RDWR | O_CREAT | O_EXCL, caller);
            result = open(template, (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL, 0600);
        }
        if (result >= 0 || errno != EEXIST)
            return result;
    }
    errno = EEXIST;
    return -1;
}

static int our_mkstemp(char *template) { return make_temporary(template, 0, 0, CALLER); }
static int our_mkostemp(char *template, int flags) { return make_temporary(template, 0, flags, CALLER); }
static int our_mkstemps(char *template, int suffix) { return make_temporary(template, suffix, 0, CALLER); }
static int our_mkostemps(char *template, int suffix, int flags)
{
    return make_temporary(template, suffix, flags, CALLER);
}
static char *our_mkdtemp(char *template) { return make_temporary(template, 0, -1, CALLER) < 0 ? NULL : template; }

const struct replacement watch_replacements[] = {
    {"open", our_open},
    {"open64", our_open},
    {"__open_2", our_open}, /* of programs compiled with checks; flags without O_CREAT */
    {"__open64_2", our_open},
    {"openat", our_openat},
    {"openat64", our_openat},
    {"__openat_2", our_openat},
    {"__openat64_2", our_openat},
    {"creat", our_creat},
    {"creat64", our_creat},
    {"fopen", our_fopen},
    {"fopen64", our_fopen},
    {"freopen", our_freopen},
    {"freopen64", our_freopen},
    {"truncate", our_truncate},
    {"truncate64", our_truncate},
    {"ftruncate", our_ftruncate},
    {"ftruncate64", our_ftruncate},
    {"fcntl", our_fcntl},
    {"fcntl64", our_fcntl},
    {"lseek", our_lseek},
    {"lseek64", our_lseek},
    {"pwrite", our_pwrite},
    {"pwrite64", our_pwrite},
    {"pwritev", our_pwritev},
    {"pwritev64", our_pwritev},
    {"pwritev2", our_pwritev2},
    {"pwritev64v2", our_pwritev2},
    {"copy_file_range", our_copy_file_range},
    {"fseek", our_fseek},
    {"fseeko", our_fseek},
    {"fseeko64", our_fseek},
    {"fsetpos", our_fsetpos},
    {"fsetpos64", our_fsetpos},
    {"rewind", our_rewind},
    {"rename", our_rename},
    {"renameat", our_renameat},
    {"renameat2", our_renameat2},
    {"unlink", our_unlink},
    {"unlinkat", our_unlinkat},
    {"remove", our_remove},
    {"rmdir", our_rmdir},
    {"mkdir", our_mkdir},
    {"mkdirat", our_mkdirat},
    {"link", our_link},
    {"linkat", our_linkat},
    {"symlink", our_symlink},
    {"symlinkat", our_symlinkat},
    {"mknod", our_mknod},
    {"mknodat", our_mknodat},
    {"mkfifo", our_mkfifo},
    {"mkfifoat", our_mkfifoat},
    {"chmod", our_chmod},
    {"utime", our_utime},
    {"utimes", our_utimes},
    {"utimensat", our_utimensat},
    {"mkstemp", our_mkstemp},
    {"mkstemp64", our_mkstemp},
    {"mkostemp", our_mkostemp},
    {"mkostemp64", our_mkostemp},
    {"mkstemps", our_mkstemps},
    {"mkstemps64", our_mkstemps},
    {"mkostemps", our_mkostemps},
    {"mkostemps64", our_mkostemps},
    {"mkdtemp", our_mkdtemp},
    {NULL, NULL},
};
