// The rules for array files. The coordinator's scheduler checks requests to save and load with
// them, and executors check again before they touch their disk.
#include "ir/api/files.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace tessera::api {

absl::StatusOr<FileFormat> CheckFilePath(std::string_view text) {
  const absl::string_view path = ToAbsl(text);
  const auto bad = [&](absl::string_view why) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("path '", path.substr(0, 100), "': ", why));
  };
  if (path.empty()) return bad("it is empty; expected a file below the workers' folder of files");
  if (path.size() > kMaxFilePathBytes) {
    return bad(absl::StrCat(path.size(), " bytes; expected at most ", kMaxFilePathBytes));
  }
  if (path[0] == '/') return bad("expected a path relative to the workers' folder of files");
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part.empty()) return bad("a part of it is empty");
    if (part[0] == '.') return bad("a part of it begins with a dot");
    for (const char c : part) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') {
        return bad("it holds a control character or a backslash");
      }
    }
  }
  if (absl::EndsWith(path, ".safetensors")) return FileFormat::kSafetensors;
  if (absl::EndsWith(path, ".npy")) return FileFormat::kNumpy;
  return bad("expected it to end in .safetensors or .npy, which says the format");
}

namespace {

// Returns whether the format has a name for the dtype.
bool HasDType(FileFormat format, ir::DType dtype) {
  if (format == FileFormat::kNumpy)
    return ir::IsComplex(dtype) || (ir::IsComputable(dtype) && dtype != ir::DType::kBF16);
  return ir::IsComputable(dtype) || dtype == ir::DType::kF8E4M3FN || dtype == ir::DType::kF8E5M2 ||
         dtype == ir::DType::kF8E8M0FNU;
}

}  // namespace

// Checks a file as a whole: how many arrays its format can hold, that it has a name for each dtype,
// and that the names of arrays are usable and distinct. A .npy holds one array without a name.
// `__metadata__` is refused because safetensors uses it for a header entry of its own.
absl::Status CheckFileArrays(FileFormat format, absl::Span<const FileArrayInfo> arrays) {
  if (arrays.empty() || arrays.size() > kMaxArraysPerFile) {
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat("file: ", arrays.size(), " arrays; expected 1 to ", kMaxArraysPerFile));
  }
  if (format == FileFormat::kNumpy && arrays.size() != 1) {
    return MakeError(ErrorKind::kValueError, absl::StrCat("file: a .npy holds one array, not ",
                                                          arrays.size(), "; use .safetensors"));
  }
  std::set<std::string_view> names;
  for (const FileArrayInfo& array : arrays) {
    if (format == FileFormat::kNumpy) {
      if (!HasDType(format, array.dtype)) {
        return MakeError(
            ErrorKind::kNotImplemented,
            absl::StrCat("file: .npy has no dtype ", ToAbsl(ir::DTypeName(array.dtype)),
                         "; use .safetensors, or convert the array"));
      }
      continue;
    }
    if (!HasDType(format, array.dtype)) {
      return MakeError(
          ErrorKind::kNotImplemented,
          absl::StrCat("file: .safetensors has no dtype ", ToAbsl(ir::DTypeName(array.dtype)),
                       "; use .npy, or convert the array"));
    }
    if (array.name.empty() || array.name.size() > kMaxArrayNameBytes ||
        array.name == "__metadata__") {
      return MakeError(
          ErrorKind::kValueError,
          absl::StrCat("file: an array's name has 1 to ", kMaxArrayNameBytes,
                       " bytes and is not __metadata__; got '", array.name.substr(0, 100), "'"));
    }
    if (!names.insert(array.name).second) {
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("file: two arrays are named '", array.name, "'"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::api
