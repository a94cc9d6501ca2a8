/* Keyed sums of the pieces of a block, from which likeness.py computes the block's likeness.  As fast as memory can be read.

       sums(data, key, implementation = the fastest) -> 32 bytes for every 4096 bytes of data; a last, shorter piece is padded with zeros

   The function is NH with four Toeplitz passes (J. Black, S. Halevi, H. Krawczyk, T. Krovetz, P. Rogaway, "UMAC: Fast and Secure
   Message Authentication", CRYPTO 1999, section 4).  With x[i] and k[i] the 32-bit words of a piece and of the key, pass p gives

       sum over i of (x[2i] + k[2i + 16p] mod 2^32) * (x[2i + 1] + k[2i + 1 + 16p] mod 2^32)      mod 2^64

   For two pieces that differ, and a random key that was not known when the pieces were chosen, all four sums are equal with a
   probability of at most 2^-128.  (The paper shifts the key by one pair per pass; here the shift is a row of eight pairs, so that
   all loads are whole rows.  The proof of the paper needs only that each pass has, at the last pair that differs, key words that
   no earlier pass uses at or below that pair.)  The order of the additions is free, so rows are added up lane by lane.

   The function has several implementations; the constant IMPLEMENTATIONS names those that this processor can run, the fastest
   first, separated by spaces.  Words are little-endian on every machine.  `sums` releases the GIL.  It raises ValueError for
   a key of another length and for an unknown implementation. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define PIECE 4096
#define ROW 64
#define PASSES 4
#define SUMS_BYTES (PASSES * 8)
#define KEY_BYTES (PIECE + (PASSES - 1) * ROW)

typedef void (*Implementation)(const unsigned char *piece, const unsigned char *key, uint64_t sums[PASSES]);

static inline uint32_t word(const unsigned char *at)
{
    uint32_t read;
    memcpy(&read, at, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    read = __builtin_bswap32(read);
#endif
    return read;
}

static inline void put(unsigned char *at, const uint64_t sums[PASSES])
{
    for (int pass = 0; pass < PASSES; pass++)
        for (int byte = 0; byte < 8; byte++) *at++ = (unsigned char)(sums[pass] >> 8 * byte);
}

static void plain(const unsigned char *piece, const unsigned char *key, uint64_t sums[PASSES])
{
    uint64_t total[PASSES] = {0};
    for (size_t at = 0; at < PIECE; at += 8) {
        uint32_t one = word(piece + at), other = word(piece + at + 4);
        for (int pass = 0; pass < PASSES; pass++) {
            const unsigned char *k = key + at + pass * ROW;
            total[pass] += (uint64_t)(uint32_t)(one + word(k)) * (uint32_t)(other + word(k + 4));
        }
    }
    memcpy(sums, total, sizeof total);
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* The same function with vectors of LANES pairs: mul_epu32 multiplies the low halves of two 64-bit words. */
#define WITH_VECTORS(name, isa, Vector, prefix, si)                                                                   \
    __attribute__((target(isa))) static void name(const unsigned char *piece, const unsigned char *key,               \
                                                  uint64_t sums[PASSES])                                              \
    {                                                                                                                 \
        enum { STEPS = ROW / sizeof(Vector), LANES = sizeof(Vector) / 8 };                                            \
        Vector total[PASSES][STEPS];                                                                                  \
        memset(total, 0, sizeof total);                                                                               \
        for (size_t at = 0; at < PIECE; at += ROW)                                                                    \
            for (int step = 0; step < STEPS; step++) {                                                                \
                const unsigned char *here = piece + at + step * sizeof(Vector);                                       \
                const unsigned char *there = key + at + step * sizeof(Vector);                                        \
                Vector x = prefix##_loadu_##si((const Vector *)here);                                                 \
                for (int pass = 0; pass < PASSES; pass++) {                                                           \
                    Vector y = prefix##_add_epi32(x, prefix##_loadu_##si((const Vector *)(there + pass * ROW)));      \
                    Vector product = prefix##_mul_epu32(y, prefix##_srli_epi64(y, 32));                               \
                    total[pass][step] = prefix##_add_epi64(total[pass][step], product);                               \
                }                                                                                                     \
            }                                                                                                         \
        for (int pass = 0; pass < PASSES; pass++) {                                                                   \
            uint64_t lanes[STEPS * LANES];                                                                            \
            memcpy(lanes, total[pass], sizeof lanes);                                                                 \
            sums[pass] = 0;                                                                                           \
            for (int lane = 0; lane < STEPS * LANES; lane++) sums[pass] += lanes[lane];                               \
        }                                                                                                             \
    }

WITH_VECTORS(sse2, "sse2", __m128i, _mm, si128)
WITH_VECTORS(avx2, "avx2", __m256i, _mm256, si256)
#endif

static struct {
    const char *name;
    Implementation function;
} implementations[3]; /* the implementations that this processor can run, the fastest first; filled once, when the module is made */

static void find_implementations(void)
{
    int count = 0;
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) {
        implementations[count].name = "avx2";
        implementations[count++].function = avx2;
    }
    implementations[count].name = "sse2"; /* every x86-64 has it */
    implementations[count++].function = sse2;
#endif
    implementations[count].name = "plain";
    implementations[count].function = plain;
}

static Implementation implementation_called(const char *name)
{
    if (name == NULL) return implementations[0].function;
    for (size_t i = 0; i < sizeof implementations / sizeof *implementations; i++)
        if (implementations[i].name != NULL && strcmp(implementations[i].name, name) == 0) return implementations[i].function;
    PyErr_Format(PyExc_ValueError, "this machine has no implementation %s of sums()", name);
    return NULL;
}

static void all_pieces(Implementation function, const unsigned char *data, size_t length, const unsigned char *key,
                       unsigned char *out)
{
    uint64_t sums[PASSES];
    for (; length >= PIECE; data += PIECE, length -= PIECE, out += SUMS_BYTES) {
        function(data, key, sums);
        put(out, sums);
    }
    if (length) {
        unsigned char last[PIECE] = {0};
        memcpy(last, data, length);
        function(last, key, sums);
        put(out, sums);
    }
}

static PyObject *py_sums(PyObject *self, PyObject *args)
{
    Py_buffer data, key;
    const char *name = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*|s:sums", &data, &key, &name)) return NULL;
    PyObject *out = NULL;
    Implementation function = implementation_called(name);
    if (key.len != KEY_BYTES)
        PyErr_Format(PyExc_ValueError, "the key has %d bytes, not %zd", KEY_BYTES, key.len);
    else if (function != NULL)
        out = PyBytes_FromStringAndSize(NULL, (data.len / PIECE + (data.len % PIECE != 0)) * SUMS_BYTES);
    if (out != NULL) {
        unsigned char *into = (unsigned char *)PyBytes_AS_STRING(out); /* no other code has a reference to `out` yet */
        Py_BEGIN_ALLOW_THREADS
        all_pieces(function, data.buf, (size_t)data.len, key.buf, into);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&key);
    return out;
}

static int fill(PyObject *module)
{
    find_implementations();
    char names[32] = "";
    for (size_t i = 0; i < sizeof implementations / sizeof *implementations && implementations[i].name != NULL; i++) {
        if (i) strcat(names, " ");
        strcat(names, implementations[i].name);
    }
    if (PyModule_AddStringConstant(module, "IMPLEMENTATIONS", names) < 0) return -1;
    return PyModule_AddIntMacro(module, KEY_BYTES);
}

static PyMethodDef methods[] = {
    {"sums", py_sums, METH_VARARGS, "sums(data, key, implementation = the fastest, /) -> bytes\n\n"
     "32 bytes for every 4096 bytes of data.  ValueError: the key has another length, or this machine has no such "
     "implementation."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, fill},
    {0, NULL},
};

static struct PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.store.images._likeness",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__likeness(void) { return PyModuleDef_Init(&module); }
