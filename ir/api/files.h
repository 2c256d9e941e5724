// The checks of array files (.safetensors, .npy) under the workers' --files-dir. The coordinator
// and the executors both make them. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/dtype.h"
#include "ir/type.h"

namespace tessera::api {

enum class FileFormat : uint8_t { kSafetensors, kNumpy };

// The metadata of an array in a file.
struct FileArrayInfo {
  std::string name;  // "" in a .npy file
  ir::DType dtype = ir::DType::kF32;
  ir::Dims shape;
  bool operator==(const FileArrayInfo&) const = default;
};

// An array id together with the name that the array gets in a file.
struct ArrayToSave {
  std::string name;
  uint64_t array = 0;
};

inline constexpr size_t kMaxFilePathBytes = 1024;
inline constexpr size_t kMaxArrayNameBytes = 512;
inline constexpr size_t kMaxArraysPerFile = 65'536;

// Returns the format that the path's extension names. VALUE_ERROR: the path is empty, too long or
// absolute; a component is empty, starts with a dot or has unprintable characters; or the extension
// is unknown.
absl::StatusOr<FileFormat> CheckFilePath(std::string_view path);
// Checks that a file of this format can hold these arrays. Errors are VALUE_ERROR, and
// NOT_IMPLEMENTED for a dtype that the format does not have.
absl::Status CheckFileArrays(FileFormat format, absl::Span<const FileArrayInfo> arrays);

}  // namespace tessera::api
