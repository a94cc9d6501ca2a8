/* crc32 at the speed of memory.  Three ways, which give the same number (tests/unit/transport/protocol/test_checksum.py compares them with zlib's):

       tables    eight bytes a step ("slicing by 8": Kounavis and Berry, 2005), on every processor
       folding   x86-64: carry-less products (Gopal and others, Intel, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
                 Instruction", 2009); some ten times as fast as zlib's
       instruction   64-bit ARM: the instruction for this very polynomial, where the processor has it

   zlib's own is not called: it is an object of Python here, and takes a third of the time of a message of 64 KiB. */

#include "checksum.h"

#include <string.h>

static uint32_t sums[8][256];

/* What follows works on the register of the division, which is the complement of the number that is told. */
static uint32_t by_tables(uint32_t sum, const unsigned char *at, size_t size)
{
    for (; size >= 8; size -= 8, at += 8) {
        uint32_t low = (sum ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24));
        sum = sums[7][low & 255] ^ sums[6][low >> 8 & 255] ^ sums[5][low >> 16 & 255] ^ sums[4][low >> 24] ^ sums[3][at[4]] ^
              sums[2][at[5]] ^ sums[1][at[6]] ^ sums[0][at[7]];
    }
    while (size--) sum = sums[0][(sum ^ *at++) & 255] ^ sum >> 8;
    return sum;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* Factors that move 128 bits over the next 512, or 128, bits of data: x^(n+32) and x^(n-32) modulo the polynomial, n = 512 or 128,
   reflected: `_factor` in the test computes them. */
#define OVER_512 _mm_set_epi64x(0x1c6e41596, 0x154442bd4)
#define OVER_128 _mm_set_epi64x(0x0ccaa009e, 0x1751997d0)

#define FOLDING __attribute__((target("pclmul,sse4.1")))

FOLDING static inline __m128i moved(__m128i part, __m128i factors, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(part, factors, 0x00), high = _mm_clmulepi64_si128(part, factors, 0x11);
    return _mm_xor_si128(next, _mm_xor_si128(low, high));
}

FOLDING static inline __m128i block(const unsigned char *at) { return _mm_loadu_si128((const __m128i *)at); }

/* `size` is at least 64.  All is folded into 16 bytes that leave the same remainder, which the tables divide. */
FOLDING static uint32_t by_folding(uint32_t sum, const unsigned char *at, size_t size)
{
    __m128i far = OVER_512, near = OVER_128, part[4];
    for (int i = 0; i < 4; i++) part[i] = block(at + 16 * i);
    part[0] = _mm_xor_si128(part[0], _mm_cvtsi32_si128((int)sum));
    for (at += 64, size -= 64; size >= 64; at += 64, size -= 64)
        for (int i = 0; i < 4; i++) part[i] = moved(part[i], far, block(at + 16 * i));
    for (int i = 1; i < 4; i++) part[i] = moved(part[i - 1], near, part[i]);
    for (; size >= 16; at += 16, size -= 16) part[3] = moved(part[3], near, block(at));
    unsigned char rest[16];
    _mm_storeu_si128((__m128i *)rest, part[3]);
    return by_tables(by_tables(0, rest, sizeof rest), at, size);
}

enum { LEAST = 64 };
static int is_available(void) { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"); }
#define by_processor by_folding

#elif defined(__aarch64__) && defined(__linux__) && defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <asm/hwcap.h>
#include <sys/auxv.h>

__attribute__((target("+crc"))) static uint32_t by_instruction(uint32_t sum, const unsigned char *at, size_t size)
{
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        sum = __builtin_aarch64_crc32x(sum, word);
    }
    return by_tables(sum, at, size);
}

enum { LEAST = 8 };
static int is_available(void) { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#define by_processor by_instruction

#else
enum { LEAST = 1 };
static int is_available(void) { return 0; }
#define by_processor by_tables
#endif

static int available;

void checksum_prepare(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t sum = i;
        for (int bit = 0; bit < 8; bit++) sum = sum & 1 ? 0xEDB88320u ^ sum >> 1 : sum >> 1;
        sums[0][i] = sum;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int table = 1; table < 8; table++) sums[table][i] = sums[0][sums[table - 1][i] & 255] ^ sums[table - 1][i] >> 8;
    available = is_available();
}

uint32_t checksum(uint32_t before, const unsigned char *at, size_t size)
{
    return available && size >= LEAST ? ~by_processor(~before, at, size) : ~by_tables(~before, at, size);
}
