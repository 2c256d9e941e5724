// The typed attributes of an op: a small ordered map from name to value. Attributes are printed,
// hashed and serialised in one place each (text.cc, program.cc, serial/). Thread-compatible.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/array.h"
#include "ir/dtype.h"
#include "ir/mesh.h"
#include "ir/type.h"

namespace tessera::ir {

using AttrValue =
    std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<std::string>,
                 std::vector<bool>, DType, Array, PartitionSpec, std::vector<PartitionSpec>>;

// Every file that uses programs includes this header, and a variant with this many alternatives is
// slow to compile. The functions that copy, compare and destroy values are therefore defined in
// attrs.cc.
class Attrs {
 public:
  Attrs();
  Attrs(std::initializer_list<std::pair<const std::string, AttrValue>> init);
  Attrs(const Attrs&);
  Attrs(Attrs&&) noexcept;
  Attrs& operator=(const Attrs&);
  Attrs& operator=(Attrs&&) noexcept;
  ~Attrs();

  bool Has(std::string_view name) const;
  void Set(std::string_view name, AttrValue value);
  void Erase(std::string_view name);
  const std::map<std::string, AttrValue, std::less<>>& map() const { return map_; }
  bool operator==(const Attrs&) const;

  // Typed reads. InferTypes compares the names and kinds with OpDef::attrs before any rule runs, so
  // a mismatch here is our bug and fails a CHECK.
  bool Bool(std::string_view name) const;
  int64_t Int(std::string_view name) const;
  double Double(std::string_view name) const;
  const std::string& Str(std::string_view name) const;
  const std::vector<int64_t>& Ints(std::string_view name) const;
  const std::vector<std::string>& Strings(std::string_view name) const;
  const std::vector<bool>& Bools(std::string_view name) const;
  DType Dtype(std::string_view name) const;
  const Array& Literal(std::string_view name) const;
  const PartitionSpec& Spec(std::string_view name) const;
  const std::vector<PartitionSpec>& Specs(std::string_view name) const;

 private:
  template <class T>
  const T& Get(std::string_view name) const;

  std::map<std::string, AttrValue, std::less<>> map_;
};

// The alternatives of AttrValue in the same order. OpDef::attrs names an attribute's kind with
// these.
enum class AttrKind : uint8_t {
  kBool,
  kInt,
  kDouble,
  kString,
  kInts,
  kStrings,
  kBools,
  kDType,
  kArray,
  kSpec,
  kSpecs
};

}  // namespace tessera::ir
