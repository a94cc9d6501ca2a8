/* Directories that the fast path has met: see places.c. */

#ifndef CKPT_UNDO_PLACES_H
#define CKPT_UNDO_PLACES_H

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <sys/types.h>

enum { PLACES = 16 };
enum standing { PLAIN, NEW, LEFT_ALONE };

struct place {
    char given[512], canonical[512];
    size_t given_bytes, canonical_bytes;
    dev_t device;
    ino_t inode;
    long long seen_ns; /* when it was last seen to lead there; 0: it is looked at each time */
    enum standing standing;
};

struct places {
    int noted; /* since they were last forgotten; they go round */
    struct place at[PLACES];
};

/* A path that the fast path reads; NULL: it does not. */
const char *plain_path(PyObject *path);

/* Its last part. */
const char *base_of(const char *path);

/* A program has given the path, whose directory has this canonical name. */
void note_place(struct places *places, const char *path, const char *canonical, int standing, int is_unsteady);

/* The place that the path's directory part leads to, or (a plain name) the descriptor, if it is not -1; NULL: it is not known. */
struct place *place_of(struct places *places, const char *path, int fd);

#endif
