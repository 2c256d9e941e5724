// The checksum of array bytes, computed for every chunk on the wire. On x86-64 the crc32
// instruction does the work; elsewhere, and on CPUs without it, tables do.
#include "ir/api/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tessera::api {
namespace {

// The polynomial with its bits reversed.
constexpr uint32_t kPolynomial = 0x82f63b78;

std::array<std::array<uint32_t, 256>, 8> MakeTables() {
  std::array<std::array<uint32_t, 256>, 8> t{};
  for (uint32_t n = 0; n < 256; ++n) {
    uint32_t c = n;
    for (int k = 0; k < 8; ++k) c = (c >> 1) ^ ((c & 1) ? kPolynomial : 0u);
    t[0][n] = c;
  }
  for (int k = 1; k < 8; ++k)
    for (int n = 0; n < 256; ++n) t[k][n] = (t[k - 1][n] >> 8) ^ t[0][t[k - 1][n] & 0xff];
  return t;
}

uint32_t Crc32cByTables(uint32_t c, const unsigned char* p, size_t size) {
  static const auto kTables = MakeTables();
  for (; size >= 8; p += 8, size -= 8) {
    uint64_t w;
    std::memcpy(&w, p, 8);
    w ^= c;
    c = kTables[7][w & 0xff] ^ kTables[6][(w >> 8) & 0xff] ^ kTables[5][(w >> 16) & 0xff] ^
        kTables[4][(w >> 24) & 0xff] ^ kTables[3][(w >> 32) & 0xff] ^ kTables[2][(w >> 40) & 0xff] ^
        kTables[1][(w >> 48) & 0xff] ^ kTables[0][w >> 56];
  }
  for (; size > 0; ++p, --size) c = kTables[0][(c ^ *p) & 0xff] ^ (c >> 8);
  return c;
}

// Constants and functions on polynomials, modulo the checksum's polynomial. The bits of a
// polynomial are reversed: the top bit is the constant term.
constexpr uint32_t kOne = 0x80000000;

// Returns the product of two polynomials.
uint32_t MultiplyPolynomials(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kPolynomial : b >> 1;
  }
  return product;
}

// Returns x to the power of 8 * `bytes`.
uint32_t PowerOfX8(uint64_t bytes) {
  uint32_t square = kOne >> 8;  // x^8
  uint32_t power = kOne;
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) power = MultiplyPolynomials(power, square);
    square = MultiplyPolynomials(square, square);
  }
  return power;
}

#if defined(__x86_64__)
uint64_t WordAt(const unsigned char* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  return word;
}

// The result of a crc32 instruction takes three cycles, but an instruction can start in each cycle.
// This function therefore interleaves three runs of `kRun` bytes, as long as 3 * kRun bytes are
// left (Gopal et al., "Fast CRC computation for iSCSI polynomial using CRC32 instruction", 2011).
template <size_t kRun>
__attribute__((target("sse4.2"))) uint32_t ThreeRuns(uint32_t c, const unsigned char*& p,
                                                     size_t& size) {
  static const uint32_t past_one = PowerOfX8(kRun), past_two = PowerOfX8(2 * kRun);
  for (; size >= 3 * kRun; p += 3 * kRun, size -= 3 * kRun) {
    uint64_t first = c, second = 0, third = 0;
    for (size_t i = 0; i < kRun; i += 8) {
      first = _mm_crc32_u64(first, WordAt(p + i));
      second = _mm_crc32_u64(second, WordAt(p + kRun + i));
      third = _mm_crc32_u64(third, WordAt(p + 2 * kRun + i));
    }
    c = MultiplyPolynomials(past_two, static_cast<uint32_t>(first)) ^
        MultiplyPolynomials(past_one, static_cast<uint32_t>(second)) ^ static_cast<uint32_t>(third);
  }
  return c;
}

__attribute__((target("sse4.2"))) uint32_t Crc32cByInstruction(uint32_t c, const unsigned char* p,
                                                               size_t size) {
  c = ThreeRuns<size_t{16} << 10>(c, p, size);
  c = ThreeRuns<size_t{1} << 10>(c, p, size);
  uint64_t wide = c;
  for (; size >= 8; p += 8, size -= 8) wide = _mm_crc32_u64(wide, WordAt(p));
  c = static_cast<uint32_t>(wide);
  for (; size > 0; ++p, --size) c = _mm_crc32_u8(c, *p);
  return c;
}
#endif

}  // namespace

uint32_t Crc32c(uint32_t crc, const void* bytes, size_t size) {
  const auto* p = static_cast<const unsigned char*>(bytes);
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") > 0;
  if (has_instruction) return ~Crc32cByInstruction(~crc, p, size);
#endif
  return ~Crc32cByTables(~crc, p, size);
}

uint32_t CopyWithCrc32c(absl::Span<const absl::string_view> pieces, void* to) {
  auto* at = static_cast<unsigned char*>(to);
  uint32_t crc = 0;
  for (const absl::string_view piece : pieces) {
    if (piece.empty()) continue;
    crc = Crc32c(crc, piece.data(), piece.size());
    std::memcpy(at, piece.data(), piece.size());
    at += piece.size();
  }
  return crc;
}

uint32_t Crc32cCombine(uint32_t first, uint32_t second, uint64_t second_size) {
  return MultiplyPolynomials(PowerOfX8(second_size), first) ^ second;
}

}  // namespace tessera::api
