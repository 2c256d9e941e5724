// Files of arrays below the workers' folder of files: what both the coordinator and the executors
// know of them.  Pure; any thread.
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

// An array in a file.
struct FileArray {
  std::string name;  // "" in a .npy
  ir::DType dtype = ir::DType::kF32;
  ir::Dims shape;
  bool operator==(const FileArray&) const = default;
};

// An array, and its name in a file.
struct NamedArray {
  std::string name;
  uint64_t array = 0;
};

inline constexpr size_t kFilePathBytesMax = 1024;
inline constexpr size_t kFileNameBytesMax = 512;  // of an array
inline constexpr size_t kFileArraysMax = 65'536;

// The format that the path's ending says.  VALUE_ERROR: the path is empty, too long or absolute, a
// part of it is empty, begins with a dot or is no plain name, or its ending is another.
absl::StatusOr<FileFormat> CheckFilePath(std::string_view path);
// Whether a file of this format can hold these: VALUE_ERROR, or NOT_IMPLEMENTED for a dtype that
// the format does not have.
absl::Status CheckFileArrays(FileFormat format, absl::Span<const FileArray> arrays);

}  // namespace tessera::api
