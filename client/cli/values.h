// Reads and writes arrays as NumPy's .npy files and as JSON, and parses the values of --input.
//
// Input is not trusted: sizes are checked before memory is allocated. Stateless; thread-safe.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/json.h"
#include "ir/array.h"
#include "ir/type.h"

namespace tessera::cli {

absl::StatusOr<std::string> ReadFile(const std::string& path);  // "-" reads standard input
// Replaces the file as a whole, so that it is complete or absent.
absl::Status WriteFile(const std::string& path, const std::string& bytes);

// Read and write .npy files. Reads versions 1 to 3, little-endian, row-major or column-major. The
// dtype bf16 is "<V2", as ml_dtypes writes it.
absl::StatusOr<ir::Array> ParseNpy(const std::string& bytes, const std::string& where);
absl::StatusOr<std::string> NpyOf(const ir::Array& array);
absl::StatusOr<ir::Array> ReadNpy(const std::string& path);
absl::Status WriteNpy(const std::string& path, const ir::Array& array);

// Read and write arrays as nested JSON lists, as the RPC RunProgram does: NaN, infinities and
// integers beyond 2^53 are strings.
absl::StatusOr<ir::Array> ArrayOfJson(const Json& json, ir::DType dtype, const ir::Dims& shape);
absl::StatusOr<Json> JsonOfArray(const ir::Array& array);

// Returns the value of --input for a parameter of `type`. The text names a .npy or a .json file, is
// JSON itself, or is one of the words zeros, ones and count (0, 1, 2, ..., 1023, 0, 1, ...).
absl::StatusOr<ir::Array> InputOf(const std::string& text, const ir::Type& type);

}  // namespace tessera::cli
