// Small queries about programs and their mapped axes. Tracing, the planner and error texts use
// them.
#include "ir/program.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::ir {
namespace {

std::string NumberAndName(const char* what, const std::vector<std::string>& names, size_t i) {
  const bool named = i < names.size() && !names[i].empty();
  return named ? absl::StrCat(what, i, " (", names[i], ")") : absl::StrCat(what, i);
}

}  // namespace

std::string MappedAxis::ToString() const {
  std::string out = absl::StrCat(name, "=", size);
  if (!sharding.empty()) absl::StrAppend(&out, "@('", absl::StrJoin(sharding, "','"), "')");
  if (!spmd.empty()) absl::StrAppend(&out, " spmd ('", absl::StrJoin(spmd, "','"), "')");
  return out;
}

const MappedAxis* Scope::FindMapped(std::string_view name) const {
  for (auto axis = mapped.rbegin(); axis != mapped.rend(); ++axis)
    if (!axis->name.empty() && axis->name == name) return &*axis;
  return nullptr;
}

int64_t Scope::SizeOf(absl::Span<const std::string> axes) const {
  int64_t n = 1;
  for (const std::string& axis : axes) {
    const MappedAxis* of_vmap = FindMapped(axis);
    n *= of_vmap != nullptr ? of_vmap->size : mesh.SizeOf(axis);
  }
  return n;
}

std::string ArgumentText(const Program& program, size_t i) {
  return NumberAndName("argument ", program.in_names, i);
}

std::string ResultText(const Program& program, size_t i) {
  return NumberAndName("result ", program.out_names, i);
}

int64_t CountOps(const Function& f) {
  int64_t n = static_cast<int64_t>(f.ops.size());
  for (const Op& op : f.ops)
    for (const FunctionRef& r : op.regions) n += CountOps(*r);
  return n;
}

}  // namespace tessera::ir
