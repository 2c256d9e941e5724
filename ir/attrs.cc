// The attributes of an op. The special members are defined here, away from the header, so that the
// variant of all value kinds is compiled once and not in every file that includes a program.
#include "ir/attrs.h"

#include "base/log.h"

namespace tessera::ir {

Attrs::Attrs() = default;
Attrs::Attrs(std::initializer_list<std::pair<const std::string, AttrValue>> init) : map_(init) {}
Attrs::Attrs(const Attrs&) = default;
Attrs::Attrs(Attrs&&) noexcept = default;
Attrs& Attrs::operator=(const Attrs&) = default;
Attrs& Attrs::operator=(Attrs&&) noexcept = default;
Attrs::~Attrs() = default;
bool Attrs::operator==(const Attrs&) const = default;

bool Attrs::Has(std::string_view name) const { return map_.find(name) != map_.end(); }

void Attrs::Set(std::string_view name, AttrValue value) {
  map_.insert_or_assign(std::string(name), std::move(value));
}

void Attrs::Erase(std::string_view name) {
  if (auto it = map_.find(name); it != map_.end()) map_.erase(it);
}

template <class T>
const T& Attrs::Get(std::string_view name) const {
  auto it = map_.find(name);
  TESSERA_CHECK(it != map_.end()) << "attribute '" << std::string(name) << "' is absent";
  return std::get<T>(it->second);
}

bool Attrs::Bool(std::string_view name) const { return Get<bool>(name); }
int64_t Attrs::Int(std::string_view name) const { return Get<int64_t>(name); }
double Attrs::Double(std::string_view name) const { return Get<double>(name); }
const std::string& Attrs::Str(std::string_view name) const { return Get<std::string>(name); }
const std::vector<int64_t>& Attrs::Ints(std::string_view name) const {
  return Get<std::vector<int64_t>>(name);
}
const std::vector<std::string>& Attrs::Strings(std::string_view name) const {
  return Get<std::vector<std::string>>(name);
}
const std::vector<bool>& Attrs::Bools(std::string_view name) const {
  return Get<std::vector<bool>>(name);
}
DType Attrs::Dtype(std::string_view name) const { return Get<DType>(name); }
const Array& Attrs::Literal(std::string_view name) const { return Get<Array>(name); }
const PartitionSpec& Attrs::Spec(std::string_view name) const { return Get<PartitionSpec>(name); }
const std::vector<PartitionSpec>& Attrs::Specs(std::string_view name) const {
  return Get<std::vector<PartitionSpec>>(name);
}

}  // namespace tessera::ir
