/* Directories that a program has given paths in: what the text of a path led to, for the fast path (fast_path.c).

       place       the directory part of a path as programs give it, and what it led to: device and inode, canonical name
       standing    of a place. PLAIN: its name is that of the beginning of the interval. NEW: it has been made in the
                   interval, nothing in it is recorded. LEFT_ALONE: nothing in it is of interest

   Rules
   - A place counts only while its directory part still leads to the same inode. The watch forgets all places (`forget`) before
     it handles anything that could change the name or the standing of a directory, and when the working directory changes.
     This is tested at each operation for a path that may lead elsewhere at any time: through a symbolic link, or to a new
     directory, which another rank may replace by a directory of the checkpoint, where all changes must be recorded. For all
     other paths it is tested once in a millisecond (`STEADY_NS`).
   - A path may be relative to a descriptor if it is a plain name: the place is then found by its inode.
   - Paths that are not plain text in ASCII, or whose last part is a link, are left to the recorder. */

#include "places.h"
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static const long long STEADY_NS = 1000000;

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The directory part of a path as it is given, into a buffer; its length, or 0: it does not fit. */
static size_t directory_part(const char *path, const char *base, char *given, size_t size)
{
    size_t nbytes = base == path ? 1 : base - path == 1 ? 1 : (size_t)(base - path - 1);
    if (nbytes >= size)
        return 0;
    if (base == path)
        given[0] = '.';
    else
        memcpy(given, path, nbytes);
    given[nbytes] = 0;
    return nbytes;
}

const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* Printable ASCII without what JSON escapes. */
static int is_plain(const char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~' || *text == '"' || *text == '\\')
            return 0;
    return 1;
}

const char *plain_path(PyObject *path)
{
    if (!PyUnicode_CheckExact(path) || !PyUnicode_IS_ASCII(path))
        return NULL;
    Py_ssize_t nbytes = PyUnicode_GET_LENGTH(path);
    const char *text = (const char *)PyUnicode_1BYTE_DATA(path);
    if (nbytes >= 512 || (Py_ssize_t)strlen(text) != nbytes || !is_plain(text))
        return NULL;
    const char *base = base_of(text);
    return !*base || !strcmp(base, ".") || !strcmp(base, "..") ? NULL : text;
}

void note_place(struct places *places, const char *path, const char *canonical, int standing, int is_unsteady)
{
    struct place *place = &places->at[places->noted % PLACES];
    struct stat found;
    if (!is_plain(canonical) || strlen(canonical) >= sizeof place->canonical)
        return;
    place->given_bytes = directory_part(path, base_of(path), place->given, sizeof place->given);
    if (!place->given_bytes || stat(place->given, &found))
        return;
    strcpy(place->canonical, canonical);
    place->canonical_bytes = strlen(canonical);
    place->device = found.st_dev;
    place->inode = found.st_ino;
    place->standing = standing;
    place->seen_ns = is_unsteady ? 0 : now_ns();
    places->noted++;
}

/* Does the place's directory part still lead there? */
static int is_steady(struct place *place)
{
    struct stat found;
    long long now = place->seen_ns ? now_ns() : 0;
    if (now && now - place->seen_ns < STEADY_NS)
        return 1;
    place->seen_ns = now;
    return !stat(place->given, &found) && found.st_dev == place->device && found.st_ino == place->inode;
}

struct place *place_of(struct places *places, const char *path, int fd)
{
    char given[512];
    struct stat found;
    size_t nbytes = directory_part(path, base_of(path), given, sizeof given);
    if (fd >= 0 && (base_of(path) != path || fstat(fd, &found)))
        return NULL;
    int known = places->noted < PLACES ? places->noted : PLACES;
    for (int i = 0; nbytes && i < known; i++) {
        struct place *place = &places->at[i];
        int is_it = fd >= 0 ? found.st_ino == place->inode && found.st_dev == place->device
                            : place->given_bytes == nbytes && !memcmp(place->given, given, nbytes);
        if (is_it)
            return is_steady(place) ? place : NULL;
    }
    return NULL;
}
