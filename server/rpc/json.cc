// Converts JSON for RunProgram, ReadArray and WriteArray. The input comes from clients, so its
// shape is checked before memory is allocated, and errors name the place of an invalid value.
#include "server/rpc/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera::server::rpc {
namespace {

using google::protobuf::Value;
using ir::DType;

constexpr int64_t kJsonValuesMax = 1 << 22;       // bound for one array, about 46 MB on the wire
constexpr double kExactMax = 9007199254740992.0;  // 2^53, up to which doubles hold integers exactly

absl::Status InputError(const std::string& where, const std::string& what) {
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat("input", where.empty() ? "" : " at ", where, ": ", what));
}

// Returns the minimum and the maximum of an integer dtype.
std::pair<double, double> RangeOf(DType dtype) {
  const int bits = ir::BitWidth(dtype);
  if (ir::IsUnsignedInt(dtype)) return {0, std::ldexp(1.0, bits) - 1};
  return {-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1};
}

absl::Status SetElementFromText(const std::string& text, const std::string& where, int64_t index,
                                ir::Array* out) {
  if (ir::IsFloat(out->dtype())) {
    double v = 0;
    if (text == "NaN") {
      v = std::numeric_limits<double>::quiet_NaN();
    } else if (text == "Infinity" || text == "-Infinity") {
      v = text[0] == '-' ? -std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::infinity();
    } else {
      return InputError(where, absl::StrCat("'", absl::CEscape(text.substr(0, 32)),
                                            "' is not a number, NaN, Infinity or -Infinity"));
    }
    out->Set(index, v);
    return absl::OkStatus();
  }
  if (out->dtype() == DType::kS64 && absl::SimpleAtoi(text, &out->MutableAs<int64_t>()[index]))
    return absl::OkStatus();
  if (out->dtype() == DType::kU64 && absl::SimpleAtoi(text, &out->MutableAs<uint64_t>()[index]))
    return absl::OkStatus();
  return InputError(where, absl::StrCat("'", absl::CEscape(text.substr(0, 32)), "' is not a ",
                                        ToAbsl(ir::DTypeName(out->dtype()))));
}

absl::Status SetElement(const Value& value, const std::string& where, int64_t index,
                        ir::Array* out) {
  const DType dtype = out->dtype();
  if (dtype == DType::kBool) {
    if (value.kind_case() != Value::kBoolValue)
      return InputError(where, "true or false was expected");
    out->Set(index, value.bool_value() ? 1 : 0);
    return absl::OkStatus();
  }
  if (value.kind_case() == Value::kStringValue)
    return SetElementFromText(value.string_value(), where, index, out);
  if (value.kind_case() != Value::kNumberValue) return InputError(where, "a number was expected");
  const double v = value.number_value();
  if (ir::IsInteger(dtype)) {
    const auto [min, max] = RangeOf(dtype);
    if (v != std::floor(v) || v < min || v > max || std::abs(v) > kExactMax)
      return InputError(
          where, absl::StrCat(v, " is not a ", ToAbsl(ir::DTypeName(dtype)),
                              std::abs(v) > kExactMax ? "; write it as a decimal text" : ""));
  }
  out->Set(index, v);
  return absl::OkStatus();
}

// Checks that nested lists have the sizes of the shape.
absl::Status CheckLists(const Value& value, const ir::Dims& shape, size_t dim,
                        const std::string& where) {
  if (dim == shape.size()) return absl::OkStatus();
  const int64_t n = shape[dim];
  if (value.kind_case() != Value::kListValue)
    return InputError(where, absl::StrCat("a list of ", n, " values was expected"));
  if (value.list_value().values_size() != n)
    return InputError(where, absl::StrCat("a list of ", n, " values was expected, but it has ",
                                          value.list_value().values_size()));
  if (dim + 1 == shape.size()) return absl::OkStatus();
  for (int64_t i = 0; i < n; ++i)
    TESSERA_RETURN_IF_ERROR(CheckLists(value.list_value().values(static_cast<int>(i)), shape,
                                       dim + 1, absl::StrCat(where, "[", i, "]")));
  return absl::OkStatus();
}

// Reads the value and the lists inside it into the array. Requires: CheckLists has passed.
absl::Status ReadJson(const Value& value, size_t dim, const std::string& where, int64_t* index,
                      ir::Array* out) {
  if (dim == out->shape().size()) return SetElement(value, where, (*index)++, out);
  const int64_t n = out->shape()[dim];
  for (int64_t i = 0; i < n; ++i)
    TESSERA_RETURN_IF_ERROR(ReadJson(value.list_value().values(static_cast<int>(i)), dim + 1,
                                     absl::StrCat(where, "[", i, "]"), index, out));
  return absl::OkStatus();
}

void WriteElement(const ir::Array& array, int64_t index, Value* out) {
  if (array.dtype() == DType::kBool) return out->set_bool_value(array.At(index) != 0);
  if (ir::IsInteger(array.dtype())) {
    if (array.dtype() == DType::kU64) {
      const uint64_t v = array.As<uint64_t>()[index];
      if (static_cast<double>(v) > kExactMax) return out->set_string_value(absl::StrCat(v));
      return out->set_number_value(static_cast<double>(v));
    }
    const int64_t v = array.IntAt(index);
    if (std::abs(static_cast<double>(v)) > kExactMax) return out->set_string_value(absl::StrCat(v));
    return out->set_number_value(static_cast<double>(v));
  }
  const double v = array.At(index);
  if (std::isnan(v)) return out->set_string_value("NaN");
  if (std::isinf(v)) return out->set_string_value(v > 0 ? "Infinity" : "-Infinity");
  out->set_number_value(v);
}

void WriteJson(const ir::Array& array, size_t dim, int64_t* index, Value* out) {
  if (dim == array.shape().size()) return WriteElement(array, (*index)++, out);
  out->mutable_list_value();
  for (int64_t i = 0; i < array.shape()[dim]; ++i)
    WriteJson(array, dim + 1, index, out->mutable_list_value()->add_values());
}

}  // namespace

// Refuses complex dtypes, because JSON has no complex numbers.
absl::Status CheckJsonDType(DType dtype) {
  if (!ir::IsComplex(dtype)) return absl::OkStatus();
  return MakeError(ErrorKind::kNotImplemented,
                   absl::StrCat("run: ", ToAbsl(ir::DTypeName(dtype)),
                                " values have no JSON form; compile and execute the program, "
                                "and write and read its arrays"));
}

// Counts the JSON values of an array. Lists count too, because an array without elements may have
// many lists.
absl::Status CheckJsonSize(const ir::Type& type) {
  int64_t level_size = 1;  // number of lists or elements at one depth
  int64_t num_values = 1;
  for (const int64_t n : type.shape) {
    if (level_size == 0) break;
    // Neither `level_size` nor `num_values` overflows, because the previous `level_size` is within
    // the bound.
    level_size = n > kJsonValuesMax / level_size ? kJsonValuesMax : level_size * n;
    num_values += level_size;
    if (num_values > kJsonValuesMax)
      return MakeError(
          ErrorKind::kLimitExceeded,
          absl::StrCat("run: a result of type ", type.ToString(), " is more than ", kJsonValuesMax,
                       " JSON values; compile and execute the program "
                       "and read its arrays"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ir::Array> ArrayFromJson(const Value& value, DType dtype, const ir::Dims& shape) {
  TESSERA_RETURN_IF_ERROR(CheckJsonDType(dtype));
  // The lists are checked before memory is allocated for the shape.
  TESSERA_RETURN_IF_ERROR(CheckLists(value, shape, 0, ""));
  ir::Array out(dtype, shape);
  int64_t index = 0;
  TESSERA_RETURN_IF_ERROR(ReadJson(value, 0, "", &index, &out));
  return out;
}

absl::StatusOr<Value> JsonFromArray(const ir::Array& array) {
  TESSERA_RETURN_IF_ERROR(CheckJsonDType(array.dtype()));
  TESSERA_RETURN_IF_ERROR(CheckJsonSize(ir::MakeType(array.dtype(), array.shape())));
  Value out;
  int64_t index = 0;
  WriteJson(array, 0, &index, &out);
  return out;
}

}  // namespace tessera::server::rpc
