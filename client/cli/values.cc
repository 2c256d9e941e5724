// Arrays in files and on the command line: `run` reads its inputs here, `put`, `get` and `run
// --out` their .npy files. The .npy reader takes bytes of any origin (values_fuzz.cc), so each size
// in a header is compared with the size of the file before it is used.
#include "client/cli/values.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/status.h"

namespace tessera::cli {
namespace {

using ir::DType;

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6, kAlign = 64;
constexpr size_t kRankMax = 32;
// Many JSON readers hold numbers as doubles, and doubles hold every integer up to this magnitude.
constexpr int64_t kExactIntegerMax = int64_t{1} << 53;
constexpr int64_t kCountPeriod = 1024;
constexpr int64_t kJsonValuesMax = 1 << 22;

struct NpyRow {
  DType dtype;
  const char* descr;
};
constexpr NpyRow kRows[] = {
    {DType::kBool, "|b1"}, {DType::kS8, "|i1"},   {DType::kS16, "<i2"},   {DType::kS32, "<i4"},
    {DType::kS64, "<i8"},  {DType::kU8, "|u1"},   {DType::kU16, "<u2"},   {DType::kU32, "<u4"},
    {DType::kU64, "<u8"},  {DType::kBF16, "<V2"}, {DType::kF16, "<f2"},   {DType::kF32, "<f4"},
    {DType::kF64, "<f8"},  {DType::kC64, "<c8"},  {DType::kC128, "<c16"},
};

absl::Status Fault(const std::string& where, const std::string& what) {
  return MakeError(ErrorKind::kValueError, absl::StrCat(where, ": ", what));
}

// Returns the value of `key` in the header, which is a Python literal. Returns "" if it is absent.
std::string FieldOf(const std::string& header, const std::string& key) {
  const size_t at = header.find(absl::StrCat("'", key, "':"));
  if (at == std::string::npos) return "";
  size_t begin = at + key.size() + 3;
  while (begin < header.size() && header[begin] == ' ') ++begin;
  if (begin >= header.size()) return "";
  const char open = header[begin];
  const char close = open == '(' ? ')' : open == '\'' ? '\'' : ',';
  const size_t from = open == '(' || open == '\'' ? begin + 1 : begin;
  const size_t end = header.find(close, from);
  return end == std::string::npos ? "" : header.substr(from, end - from);
}

absl::StatusOr<ir::Dims> ShapeOf(const std::string& text, const std::string& where) {
  ir::Dims shape;
  int64_t elements = 1;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    part = absl::StripAsciiWhitespace(part);
    if (part.empty()) continue;
    int64_t n = 0;
    if (!absl::SimpleAtoi(part, &n) || n < 0 || shape.size() == kRankMax) {
      return Fault(where, absl::StrCat("the shape (", text, ") is not valid"));
    }
    if (n > 0 && elements > (int64_t{1} << 58) / n) return Fault(where, "it is too large");
    elements *= n;
    shape.push_back(n);
  }
  return shape;
}

// Converts column-major bytes to a row-major array.
ir::Array FromFortran(DType dtype, const ir::Dims& shape, const char* bytes) {
  ir::Array out(dtype, shape);
  const auto width = static_cast<size_t>(ir::ByteWidth(dtype));
  std::byte* to = out.MutableData();
  std::vector<int64_t> index(shape.size(), 0);
  for (int64_t flat = 0; flat < out.num_elements(); ++flat) {
    int64_t from = 0;
    for (size_t d = shape.size(); d-- > 0;) from = from * shape[d] + index[d];
    std::memcpy(to + static_cast<size_t>(flat) * width, bytes + static_cast<size_t>(from) * width,
                width);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

absl::Status SetElementFromText(const std::string& text, const std::string& where, int64_t index,
                                ir::Array* out) {
  const DType dtype = out->dtype();
  if (ir::IsFloat(dtype)) {
    if (text == "NaN")
      out->Set(index, std::numeric_limits<double>::quiet_NaN());
    else if (text == "Infinity")
      out->Set(index, std::numeric_limits<double>::infinity());
    else if (text == "-Infinity")
      out->Set(index, -std::numeric_limits<double>::infinity());
    else
      return Fault(where, "a number, \"NaN\", \"Infinity\" or \"-Infinity\" is expected");
    return absl::OkStatus();
  }
  if (dtype == DType::kS64 && absl::SimpleAtoi(text, &out->MutableAs<int64_t>()[index]))
    return absl::OkStatus();
  if (dtype == DType::kU64 && absl::SimpleAtoi(text, &out->MutableAs<uint64_t>()[index]))
    return absl::OkStatus();
  return Fault(where, absl::StrCat("\"", ReplaceControlChars(text).substr(0, 32), "\" is not a ",
                                   ToAbsl(ir::DTypeName(dtype))));
}

// Sets one element. Integers of 64 bits are not converted by way of a double, which would round
// them. For the other integer types a double holds every value, so that fractions and overflows are
// found by one check of the double.
absl::Status SetElement(const Json& json, const std::string& where, int64_t index, ir::Array* out) {
  const DType dtype = out->dtype();
  if (dtype == DType::kBool) {
    if (!json.is_boolean()) return Fault(where, "true or false is expected");
    out->Set(index, json.get<bool>() ? 1 : 0);
    return absl::OkStatus();
  }
  if (json.is_string()) return SetElementFromText(json.get<std::string>(), where, index, out);
  if (!json.is_number()) return Fault(where, "a number is expected");
  if (ir::IsInteger(dtype)) {
    const absl::Status misfit =
        Fault(where, absl::StrCat(json.dump(), " is not a ", ToAbsl(ir::DTypeName(dtype))));
    if (dtype == DType::kS64 || dtype == DType::kU64) {
      const bool large =
          json.is_number_unsigned() &&
          json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
      const bool negative = json.is_number_integer() && !json.is_number_unsigned();
      if (!json.is_number_integer()) return misfit;
      if (dtype == DType::kS64 ? large : negative && json.get<int64_t>() < 0) return misfit;
      if (dtype == DType::kS64) out->MutableAs<int64_t>()[index] = json.get<int64_t>();
      if (dtype == DType::kU64) out->MutableAs<uint64_t>()[index] = json.get<uint64_t>();
      return absl::OkStatus();
    }
    const double v = json.get<double>();
    const int bits = ir::BitWidth(dtype);
    const bool is_unsigned = ir::IsUnsignedInt(dtype);
    const double least = is_unsigned ? 0 : -std::ldexp(1.0, bits - 1);
    const double most = std::ldexp(1.0, is_unsigned ? bits : bits - 1) - 1;
    if (v != std::floor(v) || v < least || v > most) return misfit;
    out->Set(index, v);
    return absl::OkStatus();
  }
  out->Set(index, json.get<double>());
  return absl::OkStatus();
}

absl::Status CheckLists(const Json& json, const ir::Dims& shape, size_t dim,
                        const std::string& where) {
  if (dim == shape.size()) return absl::OkStatus();
  if (!json.is_array() || static_cast<int64_t>(json.size()) != shape[dim]) {
    return Fault(where,
                 absl::StrCat("a list of ", shape[dim], " is expected",
                              json.is_array() ? absl::StrCat(", not of ", json.size()) : ""));
  }
  for (size_t i = 0; i < json.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(CheckLists(json[i], shape, dim + 1, absl::StrCat(where, "[", i, "]")));
  }
  return absl::OkStatus();
}

absl::Status SetElements(const Json& json, size_t dim, const std::string& where, int64_t* index,
                         ir::Array* out) {
  if (dim == out->shape().size()) return SetElement(json, where, (*index)++, out);
  for (size_t i = 0; i < json.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(
        SetElements(json[i], dim + 1, absl::StrCat(where, "[", i, "]"), index, out));
  }
  return absl::OkStatus();
}

// Returns the double of the shortest decimal that parses as `v`, so that 0.1f is printed as 0.1. In
// the rare case that this double rounds to another float, returns `v` itself.
double ShortDouble(float v) {
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), v);
  double out = v;
  std::from_chars(text, end.ptr, out);
  return static_cast<float>(out) == v ? out : v;
}

Json ElementJson(const ir::Array& array, int64_t index) {
  const DType dtype = array.dtype();
  if (dtype == DType::kBool) return array.At(index) != 0;
  if (dtype == DType::kU64) {
    const uint64_t v = array.As<uint64_t>()[index];
    if (v > uint64_t{kExactIntegerMax}) return std::to_string(v);
    return v;
  }
  if (ir::IsInteger(dtype)) {
    const int64_t v = array.IntAt(index);
    if (v > kExactIntegerMax || v < -kExactIntegerMax) return std::to_string(v);
    return v;
  }
  const double v = array.At(index);
  if (std::isnan(v)) return "NaN";
  if (std::isinf(v)) return v > 0 ? "Infinity" : "-Infinity";
  return dtype == DType::kF32 ? ShortDouble(static_cast<float>(v)) : v;
}

Json ListOf(const ir::Array& array, size_t dim, int64_t* index) {
  if (dim == array.shape().size()) return ElementJson(array, (*index)++);
  Json out = Json::array();
  for (int64_t i = 0; i < array.shape()[dim]; ++i) out.push_back(ListOf(array, dim + 1, index));
  return out;
}

// Returns whether values of the dtype can be written as JSON.
bool HasJsonForm(DType dtype) { return !ir::IsComplex(dtype); }

absl::Status NoJsonForm(DType dtype) {
  return MakeError(
      ErrorKind::kNotImplemented,
      absl::StrCat(ToAbsl(ir::DTypeName(dtype)), " values have no JSON form. Use .npy files"));
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  if (path == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return Fault(path, "this is a folder; a file is expected");
  }
  std::string bytes;
  const int error = TryReadWholeFile(path, std::numeric_limits<size_t>::max(), &bytes);
  if (error == 0) return bytes;
  return MakeError(ErrorKind::kFileNotFound, absl::StrCat(path, ": ", std::strerror(error)));
}

absl::Status WriteFile(const std::string& path, const std::string& bytes) {
  const int error =
      TryReplaceFile(path, bytes, {.access = FileAccess::kByUmask, .is_durable = false});
  if (error == 0) return absl::OkStatus();
  if (error == EISDIR) return Fault(path, std::strerror(error));
  return Fault(path, absl::StrCat("it cannot be written: ", std::strerror(error),
                                  ". The folder of the file must exist and be writable"));
}

// The format: a magic text, the version, the length of the header, the header as a Python dict, and
// the elements. The number of bytes behind the header must be the one that dtype and shape need.
// The array is allocated only after this check.
absl::StatusOr<ir::Array> ParseNpy(const std::string& bytes, const std::string& where) {
  if (bytes.size() < kMagicBytes + 4 || bytes.compare(0, kMagicBytes, kMagic) != 0) {
    return Fault(where, "this is not a .npy file");
  }
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<uint8_t>(bytes[at])); };
  const size_t version = byte(6);
  const size_t prefix = version == 1 ? 10 : 12;
  if (version < 1 || version > 3 || bytes.size() < prefix) {
    return Fault(
        where, absl::StrCat("version ", version, " of .npy is not supported; versions 1 to 3 are"));
  }
  size_t size = byte(8) | byte(9) << 8;
  if (version > 1) size |= byte(10) << 16 | byte(11) << 24;
  if (size > bytes.size() - prefix) return Fault(where, "the file ends within its header");
  const std::string header = bytes.substr(prefix, size);
  std::string descr = FieldOf(header, "descr");
  if (descr == "|V2") descr = "<V2";
  const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const NpyRow& r) { return descr == r.descr; });
  if (row == std::end(kRows)) {
    return Fault(where,
                 absl::StrCat("its elements have dtype '", ReplaceControlChars(descr).substr(0, 32),
                              "'; little-endian numbers and booleans are expected"));
  }
  TESSERA_ASSIGN_OR_RETURN(const ir::Dims shape, ShapeOf(FieldOf(header, "shape"), where));
  const int64_t wanted_bytes = ir::MakeType(row->dtype, shape).num_bytes();
  const size_t begin = prefix + size;
  if (static_cast<int64_t>(bytes.size() - begin) != wanted_bytes) {
    return Fault(where, absl::StrCat("it holds ", bytes.size() - begin, " bytes of elements; ",
                                     wanted_bytes, " bytes make up its shape"));
  }
  if (absl::StartsWith(FieldOf(header, "fortran_order"), "True")) {
    return FromFortran(row->dtype, shape, bytes.data() + begin);
  }
  return ir::Array(
      row->dtype, shape,
      absl::Span<const std::byte>(reinterpret_cast<const std::byte*>(bytes.data() + begin),
                                  static_cast<size_t>(wanted_bytes)));
}

absl::StatusOr<std::string> NpyOf(const ir::Array& array) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const NpyRow& r) { return r.dtype == array.dtype(); });
  if (row == std::end(kRows)) {
    return MakeError(ErrorKind::kNotImplemented, absl::StrCat(ToAbsl(ir::DTypeName(array.dtype())),
                                                              " values have no .npy form"));
  }
  std::string header =
      absl::StrCat("{'descr': '", row->descr, "', 'fortran_order': False, 'shape': (",
                   absl::StrJoin(array.shape(), ", "), array.rank() == 1 ? "," : "", "), }");
  const size_t used = kMagicBytes + 4 + header.size() + 1;
  header.append((kAlign - used % kAlign) % kAlign, ' ');
  header += '\n';
  std::string out(kMagic, kMagicBytes);
  out += {'\x01', '\x00', static_cast<char>(header.size() & 0xff),
          static_cast<char>(header.size() >> 8)};
  out += header;
  out.append(reinterpret_cast<const char*>(array.data()), static_cast<size_t>(array.num_bytes()));
  return out;
}

absl::StatusOr<ir::Array> ReadNpy(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  return ParseNpy(bytes, path);
}

absl::Status WriteNpy(const std::string& path, const ir::Array& array) {
  TESSERA_ASSIGN_OR_RETURN(const std::string bytes, NpyOf(array));
  return WriteFile(path, bytes);
}

absl::StatusOr<ir::Array> ArrayOfJson(const Json& json, DType dtype, const ir::Dims& shape) {
  if (!HasJsonForm(dtype)) return NoJsonForm(dtype);
  TESSERA_RETURN_IF_ERROR(CheckLists(json, shape, 0, "value"));
  ir::Array out(dtype, shape);
  int64_t index = 0;
  TESSERA_RETURN_IF_ERROR(SetElements(json, 0, "value", &index, &out));
  return out;
}

absl::StatusOr<Json> JsonOfArray(const ir::Array& array) {
  if (!HasJsonForm(array.dtype())) return NoJsonForm(array.dtype());
  if (array.num_elements() > kJsonValuesMax) {
    return MakeError(ErrorKind::kLimitExceeded,
                     absl::StrCat("the array has ", array.num_elements(), " elements, but at most ",
                                  kJsonValuesMax, " are written as JSON. Write it to a file"));
  }
  int64_t index = 0;
  return ListOf(array, 0, &index);
}

// The words zeros, ones and count make an input without a file, for a first try of a program. A
// file must have exactly the parameter's type, while JSON has no types and is converted.
absl::StatusOr<ir::Array> InputOf(const std::string& text, const ir::Type& type) {
  if (text == "zeros") return ir::Array(type.dtype, type.shape);
  if (text == "ones" || text == "count") {
    if (!HasJsonForm(type.dtype)) return NoJsonForm(type.dtype);
    const bool count = text == "count";
    ir::Array out(type.dtype, type.shape);
    // Count only up to numbers that the dtype holds exactly, then begin again at 0.
    const bool narrow = type.dtype == DType::kBool || ir::BitWidth(type.dtype) < 8 ||
                        (ir::IsFloat(type.dtype) && ir::ByteWidth(type.dtype) == 1);
    const int64_t period = narrow                           ? 2
                           : ir::ByteWidth(type.dtype) == 1 ? 128
                           : type.dtype == DType::kBF16     ? 256
                                                            : kCountPeriod;
    for (int64_t i = 0; i < out.num_elements(); ++i) {
      out.Set(i, count ? static_cast<double>(i % period) : 1);
    }
    return out;
  }
  if (absl::EndsWith(text, ".npy")) {
    TESSERA_ASSIGN_OR_RETURN(ir::Array array, ReadNpy(text));
    if (array.dtype() != type.dtype || array.shape() != type.shape) {
      return MakeError(
          ErrorKind::kTypeError,
          absl::StrCat(text, " holds ", ir::MakeType(array.dtype(), array.shape()).ToString(), "; ",
                       ir::MakeType(type.dtype, type.shape).ToString(), " is expected"));
    }
    return array;
  }
  std::string source = text;
  if (absl::EndsWith(text, ".json")) {
    TESSERA_ASSIGN_OR_RETURN(source, ReadFile(text));
  }
  Json json = Json::parse(source, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return Fault(
        ReplaceControlChars(text).substr(0, 40),
        "this is not an input; FILE.npy, FILE.json, JSON, zeros, ones or count is expected");
  }
  return ArrayOfJson(json, type.dtype, type.shape);
}

}  // namespace tessera::cli
