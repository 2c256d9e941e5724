// The reads of values out of an artifact's tables, each with the bounds that untrusted input needs.
// The importer and the sharding code use them for everything that they take from attributes and
// types.
#include "ir/stablehlo/values.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/verify.h"

namespace tessera::ir::stablehlo {

void Malformed(std::string_view what, std::string_view problem) {
  Throw(ErrorKind::kMalformedProgram,
        absl::StrCat("StableHLO: ", ToAbsl(what), " ", ToAbsl(problem)));
}
void NotSupported(std::string_view what, std::string_view problem) {
  Throw(ErrorKind::kNotImplemented,
        absl::StrCat("StableHLO: ", ToAbsl(what), " ", ToAbsl(problem)));
}

std::optional<DType> StorageOf(const Artifact& a, const DecodedType& type) {
  if (type.kind != TypeKind::kQuantized && type.kind != TypeKind::kQuantizedPerAxis)
    return std::nullopt;
  const DecodedType& storage = a.types[Slice(a.refs, type.refs)[0]];
  if (storage.kind != TypeKind::kScalar || !IsInteger(storage.dtype)) return std::nullopt;
  if ((Slice(a.ints, type.ints)[0] & 1) != 0) return storage.dtype;
  // Without the flag the integers are unsigned, whatever the type says.
  switch (storage.dtype) {
    case DType::kS2:
      return DType::kU2;
    case DType::kS4:
      return DType::kU4;
    case DType::kS8:
      return DType::kU8;
    case DType::kS16:
      return DType::kU16;
    case DType::kS32:
      return DType::kU32;
    default:
      return storage.dtype;
  }
}

namespace {

constexpr int64_t kRankMax = 32;
constexpr int64_t kIntsMax = 4096;
constexpr int64_t kElementsMax = int64_t{1} << 48;
constexpr int kLocationDepth = 16;
constexpr int kTupleDepth = 8;
constexpr int kTupleMax = 4096;
constexpr size_t kFileNameMax = 256;

[[noreturn]] void ThrowTooLarge(std::string_view what, std::string_view problem) {
  Throw(ErrorKind::kLimitExceeded, absl::StrCat("StableHLO: ", ToAbsl(what), " ", ToAbsl(problem)));
}

DType ElementDType(const Artifact& a, uint32_t index, std::string_view what) {
  const DecodedType& type = a.types[index];
  if (type.kind == TypeKind::kScalar) return type.dtype;
  if (type.kind == TypeKind::kComplex) {
    const DecodedType& part = a.types[a.refs[type.refs.begin]];
    if (part.kind == TypeKind::kScalar && part.dtype == DType::kF32) return DType::kC64;
    if (part.kind == TypeKind::kScalar && part.dtype == DType::kF64) return DType::kC128;
  }
  if (const std::optional<DType> storage = StorageOf(a, type)) return *storage;
  NotSupported(what, "has elements of a type that Tessera lacks");
}

// Decodes booleans. Writers have used four forms: bits, lowest first; a byte each; and a splat as
// 0xff or as 1.
std::vector<std::byte> DecodeBooleans(Bytes bytes, int64_t elements, bool* splat,
                                      std::string_view what) {
  std::vector<std::byte> out(elements);
  const size_t n = elements, packed = (n + 7) / 8;
  *splat = bytes.size() == 1 && (bytes[0] == 0xff || n == 1 || n > 8);
  if (*splat) return {std::byte{bytes[0] != 0}};
  if (bytes.size() == packed) {
    for (size_t i = 0; i < n; ++i) out[i] = std::byte((bytes[i / 8] >> (i % 8)) & 1);
  } else if (bytes.size() == n) {
    for (size_t i = 0; i < n; ++i) out[i] = std::byte{bytes[i] != 0};
  } else {
    Malformed(what, absl::StrCat("has ", bytes.size(), " bytes for ", n, " truth values"));
  }
  return out;
}

// Extends numbers of 2 and 4 bits to a byte. Signed integers are extended by their sign.
void ExtendToBytes(DType dtype, absl::Span<std::byte> bytes) {
  const int bits = BitWidth(dtype);
  if (bits >= 8) return;
  for (std::byte& byte : bytes) {
    const uint8_t value = static_cast<uint8_t>(byte) << (8 - bits);
    byte = static_cast<std::byte>(
        IsSignedInt(dtype) ? static_cast<uint8_t>(static_cast<int8_t>(value) >> (8 - bits))
                           : value >> (8 - bits));
  }
}

}  // namespace

const Attr& AttrOf(const Artifact& a, uint32_t attr, AttrKind kind, std::string_view what) {
  if (attr == kNone) Malformed(what, "is missing");
  if (a.attrs[attr].kind != kind) Malformed(what, "is an attribute of another kind");
  return a.attrs[attr];
}

Type TensorType(const Artifact& a, uint32_t index, std::string_view what) {
  const DecodedType& type = a.types[index];
  const bool encoded = type.kind == TypeKind::kEncodedTensor;
  if (type.kind == TypeKind::kUnrankedTensor) NotSupported(what, "has a type of unknown rank");
  if (!IsArray(a, index)) NotSupported(what, "is a tuple or a token, not an array");
  if (type.kind != TypeKind::kTensor && !encoded) Malformed(what, "is not a tensor");
  const absl::Span<const int64_t> dims = Slice(a.ints, type.ints).subspan(1);
  if (dims.size() > kRankMax) ThrowTooLarge(what, absl::StrCat("has ", dims.size(), " dims"));
  const DType dtype = ElementDType(a, Slice(a.refs, type.refs).back(), what);
  int64_t elements = 1;
  for (const int64_t dim : dims) {
    if (dim < 0)
      NotSupported(what, "has a dim that is known only when it runs; refine the program's shapes");
    if (dim > 0 && elements > kElementsMax / dim) ThrowTooLarge(what, "has too many elements");
    elements *= std::max<int64_t>(dim, 1);
  }
  return MakeType(dtype, Dims(dims.begin(), dims.end()));
}

bool IsArray(const Artifact& a, uint32_t index) {
  return a.types[index].kind != TypeKind::kTuple && a.types[index].kind != TypeKind::kToken;
}

namespace {

// A tuple that contains itself would have no end, so depth and count are bounded.
void AddArrays(const Artifact& a, uint32_t index, std::string_view what, int depth, int* left,
               std::vector<Type>* out) {
  const DecodedType& type = a.types[index];
  if (--*left < 0)
    ThrowTooLarge(what, absl::StrCat("is a tuple of more than ", kTupleMax, " elements"));
  if (type.kind == TypeKind::kToken) return;
  if (type.kind != TypeKind::kTuple) {
    out->push_back(TensorType(a, index, what));
    return;
  }
  if (depth == kTupleDepth) ThrowTooLarge(what, "is a tuple of tuples of tuples, and so on");
  for (const uint32_t element : Slice(a.refs, type.refs))
    AddArrays(a, element, what, depth + 1, left, out);
}

}  // namespace

std::vector<Type> ArrayTypesOf(const Artifact& a, uint32_t type, std::string_view what) {
  std::vector<Type> out;
  int left = kTupleMax;
  AddArrays(a, type, what, 0, &left, &out);
  return out;
}

int64_t IntOf(const Artifact& a, uint32_t attr, std::string_view what) {
  const Attr& value = AttrOf(a, attr, AttrKind::kInteger, what);
  const DecodedType& type = a.types[a.refs[value.refs.begin]];
  const int64_t bits = a.ints[value.ints.begin];
  if (type.kind == TypeKind::kIndex) return bits;
  if (type.kind != TypeKind::kScalar || IsFloat(type.dtype)) Malformed(what, "is not an integer");
  const int unused = 64 - (type.dtype == DType::kBool ? 8 : BitWidth(type.dtype));
  return IsSignedInt(type.dtype)
             ? static_cast<int64_t>(static_cast<uint64_t>(bits) << unused) >> unused
             : bits;
}

bool BoolOf(const Artifact& a, uint32_t attr, std::string_view what) {
  return a.ints[AttrOf(a, attr, AttrKind::kBool, what).ints.begin] != 0;
}

std::string_view TextOf(const Artifact& a, uint32_t attr, std::string_view what) {
  // A symbol names itself by a text.
  if (attr != kNone && a.attrs[attr].kind == AttrKind::kSymbol)
    attr = a.refs[a.attrs[attr].refs.begin];
  return AttrOf(a, attr, AttrKind::kString, what).text();
}

int64_t EnumOf(const Artifact& a, uint32_t attr, AttrKind kind, std::string_view what) {
  return a.ints[AttrOf(a, attr, kind, what).ints.begin];
}

std::vector<int64_t> IntsOf(const Artifact& a, uint32_t attr, std::string_view what) {
  const Tensor tensor = TensorOf(a, attr, what);
  const DType dtype = tensor.type.dtype;
  if (!IsInteger(dtype) && dtype != DType::kBool) Malformed(what, "is not of integers");
  const int64_t elements = tensor.type.num_elements();
  if (elements > kIntsMax) ThrowTooLarge(what, absl::StrCat("has ", elements, " elements"));
  std::vector<int64_t> out(elements);
  for (int64_t i = 0; i < elements; ++i) out[i] = tensor.literal.IntAt(tensor.is_splat ? 0 : i);
  return out;
}

// Decodes a tensor of constants. A splat is kept as a scalar, so that a few bytes cannot ask for
// much memory, and the number of bytes must fit the type otherwise. Booleans are packed in several
// ways and elements of fewer than 8 bits are extended, so both have a path of their own.
Tensor TensorOf(const Artifact& a, uint32_t attr, std::string_view what) {
  const Attr& dense = AttrOf(a, attr, AttrKind::kDense, what);
  Tensor out;
  out.type = TensorType(a, a.refs[dense.refs.begin], what);
  const DType dtype = out.type.dtype;
  const int64_t elements = out.type.num_elements(), width = ByteWidth(dtype);
  const Bytes bytes = dense.bytes;
  if (static_cast<int64_t>(bytes.size()) > Limits().attr_bytes)
    ThrowTooLarge(what, absl::StrCat("has ", bytes.size(), " bytes; pass it as an argument"));
  if (elements == 0) {
    // A single value may stand for no elements.
    if (static_cast<int64_t>(bytes.size()) > std::max<int64_t>(width, 1))
      Malformed(what, "has bytes, but no elements");
    out.literal = Array(dtype, out.type.shape);
    return out;
  }
  std::vector<std::byte> data;
  if (dtype == DType::kBool) {
    if (bytes.empty() || (elements > static_cast<int64_t>(bytes.size()) * 8 && bytes.size() != 1))
      Malformed(what, "has too few bytes");
    // A splat may stand for any number of booleans. Only the bytes that are written are expanded.
    const int64_t written = std::min<int64_t>(elements, 8 * bytes.size() + 1);
    data = DecodeBooleans(bytes, written, &out.is_splat, what);
  } else {
    out.is_splat = static_cast<int64_t>(bytes.size()) == width;
    if (!out.is_splat && static_cast<int64_t>(bytes.size()) != elements * width)
      Malformed(what, absl::StrCat("has ", bytes.size(), " bytes for ", out.type.ToString()));
    const auto* const begin = reinterpret_cast<const std::byte*>(bytes.data());
    data.assign(begin, begin + bytes.size());
    ExtendToBytes(dtype, absl::MakeSpan(data));
  }
  out.literal = Array(dtype, out.is_splat ? Dims{} : out.type.shape, data);
  return out;
}

// Follows a location to a file and a line: names and fused locations are unwrapped, and of a call
// site the callee is taken. The number of steps is bounded, since locations may refer to each other
// in a circle.
Site SiteOf(const Artifact& a, uint32_t location) {
  for (int depth = 0; depth < kLocationDepth && location != kNone; ++depth) {
    const Attr& attr = a.attrs[location];
    const absl::Span<const uint32_t> refs = Slice(a.refs, attr.refs);
    const absl::Span<const int64_t> ints = Slice(a.ints, attr.ints);
    switch (attr.kind) {
      case AttrKind::kFileLine:
      case AttrKind::kFileLineRange: {
        // A range begins with the count of its numbers.
        const size_t line = attr.kind == AttrKind::kFileLine ? 0 : 1;
        const Attr& file = a.attrs[refs[0]];
        if (ints.size() <= line || file.kind != AttrKind::kString) return {};
        const std::string_view name = file.text();
        if (name.size() > kFileNameMax ||
            !std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isprint(c); }))
          return {};
        return {InternFile(name), static_cast<int>(std::clamp<int64_t>(ints[line], 0, 1 << 30))};
      }
      case AttrKind::kNamed:
        location = refs[1];
        break;
      // Take the innermost of the calls.
      case AttrKind::kCallSite:
        location = refs[0];
        break;
      case AttrKind::kFused:
        location = refs.empty() ? kNone : refs[0];
        break;
      default:
        return {};
    }
  }
  return {};
}

}  // namespace tessera::ir::stablehlo
