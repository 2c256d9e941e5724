// Reads and writes the headers of .safetensors and .npy files, which give the offset of each array.
//
// Reading is strict, since files are untrusted. Every length is checked against the limits here
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
  int64_t offset = 0;  // offset of the array's first byte in the file
  int64_t bytes() const { return ir::MakeType(array.dtype, array.shape).num_bytes(); }
};
struct Index {
  std::vector<Entry> entries;
  int64_t file_bytes = 0;
  // Returns null if no entry has this name.
  const Entry* Find(std::string_view name) const;
};

// Reads all `size` bytes at `offset`, or returns an error.
using ReadAt = std::function<absl::Status(int64_t offset, int64_t size, char* into)>;
// Reads the header of a file. FILE_CORRUPT says what is wrong and where.
absl::StatusOr<Index> ReadIndex(api::FileFormat format, int64_t file_bytes, const ReadAt& read_at);

// Returns the header of a file with these arrays, which must have passed CheckFileArrays. Sets the
// offsets of the arrays in `index`.
std::string MakeHeader(api::FileFormat format, absl::Span<const api::FileArrayInfo> arrays,
                       Index* index);

// The parsers of each format, for tests and fuzzing. In ParseSafetensors `header` is the text after
// the eight bytes of its length, and `data_bytes` follow the header.
absl::StatusOr<std::vector<Entry>> ParseSafetensors(std::string_view header, int64_t data_bytes);
// In ParseNumpy `header` is the dictionary, and `data_bytes` is the size of the data after it.
absl::StatusOr<api::FileArrayInfo> ParseNumpy(std::string_view header, int64_t data_bytes);

}  // namespace tessera::worker::files
