// Typed attributes of an op: a small ordered map from name to value, printed, hashed and serialised
// in one place each (text.cc, program.cc, serial/).
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

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, AttrValue>> init) : map_(init) {}

  bool Has(std::string_view name) const { return map_.find(name) != map_.end(); }
  void Set(std::string_view name, AttrValue value) {
    map_.insert_or_assign(std::string(name), std::move(value));
  }
  void Erase(std::string_view name) {
    if (auto it = map_.find(name); it != map_.end()) map_.erase(it);
  }
  const std::map<std::string, AttrValue, std::less<>>& map() const { return map_; }
  bool operator==(const Attrs&) const = default;

  // Typed reads.  The verifier has checked presence and kind against OpDef::attrs before any rule
  // runs, so a mismatch here is our bug and CHECK-fails.
  bool Bool(std::string_view name) const { return Get<bool>(name); }
  int64_t Int(std::string_view name) const { return Get<int64_t>(name); }
  double Double(std::string_view name) const { return Get<double>(name); }
  const std::string& Str(std::string_view name) const { return Get<std::string>(name); }
  const std::vector<int64_t>& Ints(std::string_view name) const {
    return Get<std::vector<int64_t>>(name);
  }
  const std::vector<std::string>& Strings(std::string_view name) const {
    return Get<std::vector<std::string>>(name);
  }
  const std::vector<bool>& Bools(std::string_view name) const {
    return Get<std::vector<bool>>(name);
  }
  DType Dtype(std::string_view name) const { return Get<DType>(name); }
  const Array& Literal(std::string_view name) const { return Get<Array>(name); }
  const PartitionSpec& Spec(std::string_view name) const { return Get<PartitionSpec>(name); }
  const std::vector<PartitionSpec>& Specs(std::string_view name) const {
    return Get<std::vector<PartitionSpec>>(name);
  }

 private:
  template <class T>
  const T& Get(std::string_view name) const {
    return std::get<T>(Find(name));
  }
  const AttrValue& Find(std::string_view name) const;  // CHECK-fails when absent

  std::map<std::string, AttrValue, std::less<>> map_;
};

// The alternatives of AttrValue, in order, for OpDef::attrs.
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
