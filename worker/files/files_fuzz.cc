// Reads the input as a .safetensors and as a .npy file, and as the header of each. The result must
// be an index that lies within the file, or an error.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/status.h"
#include "worker/files/index.h"

using tessera::api::FileFormat;
using tessera::worker::files::Entry;
using tessera::worker::files::Index;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string file(reinterpret_cast<const char*>(data), size);
  for (const FileFormat format : {FileFormat::kSafetensors, FileFormat::kNumpy}) {
    const absl::StatusOr<Index> index = tessera::worker::files::ReadIndex(
        format, static_cast<int64_t>(size), [&](int64_t offset, int64_t bytes, char* into) {
          TESSERA_CHECK(offset >= 0 && bytes >= 0 && offset + bytes <= static_cast<int64_t>(size));
          std::memcpy(into, file.data() + offset, static_cast<size_t>(bytes));
          return absl::OkStatus();
        });
    if (!index.ok()) continue;
    for (const Entry& entry : index->entries) {
      TESSERA_CHECK(entry.offset >= 0 && entry.bytes() >= 0 &&
                    entry.offset <= static_cast<int64_t>(size) - entry.bytes());
    }
  }
  // Parses the input as a header alone, without the length before it.
  static_cast<void>(tessera::worker::files::ParseSafetensors(file, 24));
  static_cast<void>(tessera::worker::files::ParseNumpy(file, 24));
  return 0;
}
