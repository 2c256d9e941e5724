// CRC-32C (Castagnoli), the checksum of all bytes that are sent in chunks (data.proto). Stateless;
// thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera::api {

// Returns the checksum of `bytes`, continuing `crc` (0 to start).
uint32_t Crc32c(uint32_t crc, const void* bytes, size_t size);

// Returns the checksum of two concatenated buffers, given the checksum of each and the size of the
// second. Takes about a microsecond for any size.
uint32_t Crc32cCombine(uint32_t first, uint32_t second, uint64_t second_size);

// Copies the concatenation of `pieces` to `to` and returns its checksum.
uint32_t CopyWithCrc32c(absl::Span<const absl::string_view> pieces, void* to);

}  // namespace tessera::api
