/* Byte-shuffle of a block and its inverse: byte k of all items are put together, for k = 0, 1, ...

       shuffle(items, item, planes)      unshuffle(planes, item, items)

   `items` and `planes` are contiguous buffers of bytes of equal length, a multiple of `item`, the size of an item in bytes.
   The last argument is written.  Raises ValueError for other lengths.  The functions release the GIL, so that several threads of
   an image child run in parallel.

   Why in C: with slices or with numpy's strided copies the shuffle takes several times as long as the compression of the result.

   How: an item is processed eight bytes at a time (the last piece may be narrower).  Eight items make an 8 x 8 matrix of
   bytes in eight words, which three steps of swaps transpose.  Transposition is its own inverse, so both directions share it.
   64 items make a tile, whose rows are whole cache lines.  Why tiles: the distance between planes is often a power of two, so
   writing a few bytes at a time into all planes would evict the same few cache lines again and again. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define TILE 64

typedef struct {
    unsigned char row[8][TILE]; /* row k: byte k of 64 items */
} Tile;

static uint64_t in_order(uint64_t word)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap64(word);
#else
    return word;
#endif
}

static inline void swap(uint64_t *one, uint64_t *other, int bits, uint64_t mask)
{
    uint64_t crossed = ((*one >> bits) ^ *other) & mask;
    *other ^= crossed;
    *one ^= crossed << bits;
}

static inline void transpose(uint64_t x[8])
{
    for (int i = 0; i < 4; i++) swap(&x[i], &x[i + 4], 32, 0x00000000FFFFFFFFu);
    for (int i = 0; i < 8; i += 4)
        for (int k = i; k < i + 2; k++) swap(&x[k], &x[k + 2], 16, 0x0000FFFF0000FFFFu);
    for (int i = 0; i < 8; i += 2) swap(&x[i], &x[i + 1], 8, 0x00FF00FF00FF00FFu);
}

/* Copy `width` bytes (at most 8) of each of 64 items, which are `item` bytes apart, into the rows of a tile. */
static void gather(const unsigned char *items, size_t item, size_t width, Tile *tile)
{
    for (int group = 0; group < TILE; group += 8) {
        uint64_t x[8] = {0};
        for (int i = 0; i < 8; i++) {
            memcpy(&x[i], items + (group + i) * item, width == 8 ? 8 : width);
            x[i] = in_order(x[i]);
        }
        transpose(x);
        for (size_t k = 0; k < width; k++) {
            uint64_t word = in_order(x[k]);
            memcpy(&tile->row[k][group], &word, 8);
        }
    }
}

static void scatter(const Tile *tile, size_t item, size_t width, unsigned char *items)
{
    for (int group = 0; group < TILE; group += 8) {
        uint64_t x[8] = {0};
        for (size_t k = 0; k < width; k++) {
            memcpy(&x[k], &tile->row[k][group], 8);
            x[k] = in_order(x[k]);
        }
        transpose(x);
        for (int i = 0; i < 8; i++) {
            uint64_t word = in_order(x[i]);
            memcpy(items + (group + i) * item, &word, width == 8 ? 8 : width);
        }
    }
}

static void shuffle(const unsigned char *items, size_t item, size_t count, unsigned char *planes)
{
    Tile tile;
    size_t whole = count - count % TILE;
    for (size_t first = 0; first < whole; first += TILE)
        for (size_t byte = 0; byte < item; byte += 8) {
            size_t width = item - byte < 8 ? item - byte : 8;
            gather(items + first * item + byte, item, width, &tile);
            for (size_t k = 0; k < width; k++) memcpy(planes + (byte + k) * count + first, tile.row[k], TILE);
        }
    for (size_t index = whole; index < count; index++)
        for (size_t byte = 0; byte < item; byte++) planes[byte * count + index] = items[index * item + byte];
}

static void unshuffle(const unsigned char *planes, size_t item, size_t count, unsigned char *items)
{
    Tile tile;
    size_t whole = count - count % TILE;
    for (size_t first = 0; first < whole; first += TILE)
        for (size_t byte = 0; byte < item; byte += 8) {
            size_t width = item - byte < 8 ? item - byte : 8;
            for (size_t k = 0; k < width; k++) memcpy(tile.row[k], planes + (byte + k) * count + first, TILE);
            scatter(&tile, item, width, items + first * item + byte);
        }
    for (size_t index = whole; index < count; index++)
        for (size_t byte = 0; byte < item; byte++) items[index * item + byte] = planes[byte * count + index];
}

typedef void (*Direction)(const unsigned char *, size_t, size_t, unsigned char *);

static PyObject *run(PyObject *args, const char *format, Direction direction)
{
    Py_buffer source, target;
    Py_ssize_t item;
    if (!PyArg_ParseTuple(args, format, &source, &item, &target)) return NULL;
    int fits = item > 0 && source.len == target.len && source.len % item == 0;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        direction(source.buf, (size_t)item, (size_t)(source.len / item), target.buf);
        Py_END_ALLOW_THREADS
    } else {
        PyErr_SetString(PyExc_ValueError, "both buffers have one length, a multiple of the item size");
    }
    PyBuffer_Release(&source);
    PyBuffer_Release(&target);
    if (!fits) return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_shuffle(PyObject *self, PyObject *args)
{
    (void)self;
    return run(args, "y*nw*:shuffle", shuffle);
}

static PyObject *py_unshuffle(PyObject *self, PyObject *args)
{
    (void)self;
    return run(args, "y*nw*:unshuffle", unshuffle);
}

static PyMethodDef methods[] = {
    {"shuffle", py_shuffle, METH_VARARGS, "shuffle(items, item, planes, /)\n\n"
     "Write into `planes` byte 0 of every item of `item` bytes, then byte 1 of every item, and so on.  ValueError: "
     "the lengths differ."},
    {"unshuffle", py_unshuffle, METH_VARARGS, "unshuffle(planes, item, items, /)\n\n"
     "The inverse of shuffle(): write into `items`.  ValueError: the lengths differ."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.store.images._shuffle",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__shuffle(void) { return PyModuleDef_Init(&module); }
