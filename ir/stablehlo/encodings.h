// The rows of entries.def and vhlo_ops.def as tables: the encodings of attributes, types and ops.
// The reader and the writer of artifacts both use them. Internal to this folder; thread-safe.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "ir/dtype.h"
#include "ir/stablehlo/kinds.h"

namespace tessera::ir::stablehlo {

enum class Dialect { kBuiltin, kVhlo, kSdy, kOther };
inline Dialect DialectOf(std::string_view name) {
  if (name == "builtin") return Dialect::kBuiltin;
  if (name == "vhlo") return Dialect::kVhlo;
  return name == "sdy" ? Dialect::kSdy : Dialect::kOther;
}

struct AttrRow {
  Dialect dialect;
  uint64_t code;
  AttrKind kind;
  const char* fields;
};
struct TypeRow {
  Dialect dialect;
  uint64_t code;
  TypeKind kind;
  const char* fields;
  DType dtype = DType::kBool;
  int bits = 0;
};
inline constexpr AttrRow kAttrRows[] = {
#define TESSERA_ATTR(dialect, code, kind, fields) \
  {Dialect::k##dialect, code, AttrKind::k##kind, fields},
#define TESSERA_TYPE(...)
#define TESSERA_SCALAR(...)
#define TESSERA_WIDTH(...)
#include "ir/stablehlo/entries.def"
#undef TESSERA_ATTR
#undef TESSERA_TYPE
#undef TESSERA_SCALAR
#undef TESSERA_WIDTH
};
inline constexpr TypeRow kTypeRows[] = {
#define TESSERA_ATTR(...)
#define TESSERA_TYPE(dialect, code, kind, fields) \
  {Dialect::k##dialect, code, TypeKind::k##kind, fields},
#define TESSERA_SCALAR(dialect, code, dtype) \
  {Dialect::k##dialect, code, TypeKind::kScalar, "", DType::k##dtype},
#define TESSERA_WIDTH(dialect, code, bits) \
  {Dialect::k##dialect, code, TypeKind::kOtherScalar, "", DType::kBool, bits},
#include "ir/stablehlo/entries.def"
#undef TESSERA_ATTR
#undef TESSERA_TYPE
#undef TESSERA_SCALAR
#undef TESSERA_WIDTH
};
template <typename Row, size_t kRows>
const Row* FindRow(const Row (&rows)[kRows], Dialect dialect, uint64_t code) {
  for (const Row& row : rows)
    if (row.dialect == dialect && row.code == code) return &row;
  return nullptr;
}

struct OpRow {
  std::string_view dialect;
  std::string_view name;
  int first_version, last_version;
  std::string_view attributes;  // separated by spaces
};
inline constexpr OpRow kOpRows[] = {
#define TESSERA_VHLO_OP(name, first, last, attributes) {"vhlo", name, first, last, attributes},
#define TESSERA_PLAIN_OP(dialect, name, attributes) {dialect, name, 0, 0, attributes},
#include "ir/stablehlo/vhlo_ops.def"
#undef TESSERA_VHLO_OP
#undef TESSERA_PLAIN_OP
};
// Returns the row of an op, or null if the op is unknown.
inline const OpRow* FindOpRow(std::string_view dialect, std::string_view name, int version) {
  const auto* const row = std::find_if(std::begin(kOpRows), std::end(kOpRows), [&](const OpRow& r) {
    return r.dialect == dialect && r.name == name && r.first_version <= version &&
           version <= r.last_version;
  });
  return row == std::end(kOpRows) ? nullptr : row;
}

// Removes the next word from `words` and returns it.
inline std::string_view NextWord(std::string_view& words) {
  const size_t end = std::min(words.find(' '), words.size());
  const std::string_view word = words.substr(0, end);
  words.remove_prefix(std::min(end + 1, words.size()));
  return word;
}

}  // namespace tessera::ir::stablehlo
