// Reads and writes the headers of .safetensors and .npy files: the offset of each array.
//
// Reading is strict, since files are untrusted: every length is checked against the limits here
// before memory is allocated for it, arrays cover the file without gap or overlap, and unknown
// fields are errors. Stateless; thread-safe. References: github.com/huggingface/safetensors
// (README, "Format"); numpy/lib/format.py.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/api/files.h"

namespace tessera::worker::files {

inline constexpr int64_t kHeaderBytesMax = 32 << 20;

struct Entry {
  api::FileArrayInfo array;
  int64_t offset = 0;  // of its first byte in the file
  int64_t bytes() const { return ir::MakeType(array.dtype, array.shape).num_bytes(); }
};
struct Index {
  std::vector<Entry> entries;
  int64_t file_bytes = 0;
  // Null if no entry has this name.
  const Entry* Find(std::string_view name) const;
};

// Reads `size` bytes at `offset`, all or an error.
using ReadAt = std::function<absl::Status(int64_t offset, int64_t size, char* into)>;
// FILE_CORRUPT has the error and its position.
absl::StatusOr<Index> ReadIndex(api::FileFormat format, int64_t file_bytes, const ReadAt& read_at);

// Returns the header of a file of these arrays, which CheckFileArrays accepts; sets their offsets
// in `index`.
std::string MakeHeader(api::FileFormat format, absl::Span<const api::FileArrayInfo> arrays,
                       Index* index);

// The parsers of each format, for tests and fuzzing.
// `header` follows the eight bytes of its length; `data_bytes` follow the header.
absl::StatusOr<std::vector<Entry>> ParseSafetensors(std::string_view header, int64_t data_bytes);
// `header` is the dictionary; `data_bytes` is what follows it.
absl::StatusOr<api::FileArrayInfo> ParseNumpy(std::string_view header, int64_t data_bytes);

}  // namespace tessera::worker::files
