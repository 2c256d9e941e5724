// The hashes of programs and small queries about them. The client and the coordinator cache
// executables by StructuralHash, so its input must not depend on names, sites or pointers.
#include "ir/program.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/sha256.h"
#include "ir/op_def.h"

namespace tessera::ir {
namespace {

// Feeds a structure to SHA-256 in an injective form: every list and string is preceded by its
// length, and every alternative by its index.
class Hasher {
 public:
  void Add(const Function& f) {
    Add(f.scope.mesh);
    Add(f.scope.check_vma);
    Add(int64_t{f.num_params});
    Add(f.types);
    Add(f.results);
    Add(static_cast<int64_t>(f.ops.size()));
    for (const Op& op : f.ops) {
      Add(op.def->name);
      Add(op.operands);
      Add(op.results);
      Add(static_cast<int64_t>(op.attrs.map().size()));
      for (const auto& [name, value] : op.attrs.map()) {
        Add(std::string_view(name));
        Add(static_cast<int64_t>(value.index()));
        std::visit([&](const auto& v) { Add(v); }, value);
      }
      Add(static_cast<int64_t>(op.regions.size()));
      for (const FunctionRef& r : op.regions) Add(*r);
    }
    for (const MappedAxis& axis : f.scope.mapped) Add(std::string_view(axis.ToString()));
  }
  void AddSites(const Function& f) {
    for (const Site& site : f.sites) {
      Add(std::string_view(site.valid() ? site.file : ""));
      Add(int64_t{site.line});
    }
    for (const Op& op : f.ops)
      for (const FunctionRef& r : op.regions) AddSites(*r);
  }
  void Add(const std::optional<PartitionSpec>& s) {
    Add(s.has_value());
    if (s) Add(*s);
  }
  template <class T>
  void Add(const std::vector<T>& list) {
    Add(static_cast<int64_t>(list.size()));
    for (const auto& x : list) Add(x);
  }
  void Add(int64_t v) { Bytes(&v, sizeof v); }
  void Add(const std::string& s) { Add(std::string_view(s)); }
  std::string Hex() { return hash_.Hex(); }

 private:
  void Bytes(const void* p, size_t n) { hash_.Add(p, n); }
  void Add(ValueId v) { Add(int64_t{v}); }
  void Add(bool v) { Add(int64_t{v}); }
  void Add(double v) { Bytes(&v, sizeof v); }
  void Add(DType v) { Add(static_cast<int64_t>(v)); }
  void Add(std::string_view s) {
    Add(static_cast<int64_t>(s.size()));
    Bytes(s.data(), s.size());
  }
  void Add(const AxisSet& set) {
    Add(static_cast<int64_t>(set.size()));
    for (const std::string& a : set) Add(a);
  }
  void Add(const Mesh& m) {
    Add(static_cast<int64_t>(m.axes.size()));
    for (const MeshAxis& a : m.axes) {
      Add(a.name);
      Add(a.size);
      Add(static_cast<int64_t>(a.type));
    }
  }
  void Add(const PartitionSpec& s) {
    Add(s.dims);
    Add(s.unreduced);
    Add(s.reduced);
    Add(s.open);
  }
  void Add(const Array& a) {
    Add(a.dtype());
    Add(a.shape());
    Bytes(a.data(), a.num_bytes());
  }
  void Add(const Type& t) {
    Add(t.dtype);
    Add(t.shape);
    Add(t.weak);
    Add(t.sharding);
    Add(t.varying);
    Add(t.unreduced);
    Add(t.reduced);
  }

  Sha256 hash_;
};

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

const MappedAxis* Scope::Mapped(std::string_view name) const {
  for (auto axis = mapped.rbegin(); axis != mapped.rend(); ++axis)
    if (!axis->name.empty() && axis->name == name) return &*axis;
  return nullptr;
}

int64_t Scope::SizeOf(absl::Span<const std::string> axes) const {
  int64_t n = 1;
  for (const std::string& axis : axes) {
    const MappedAxis* of_vmap = Mapped(axis);
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

std::string StructuralHash(const Function& function) {
  Hasher h;
  h.Add(function);
  return h.Hex();
}

std::string StructuralHash(const Program& program) {
  Hasher h;
  h.Add(int64_t{program.opset});
  h.Add(*program.entry);
  h.Add(program.in_shardings);
  h.Add(program.out_shardings);
  return h.Hex();
}

std::string AnnotationHash(const Program& program) {
  Hasher h;
  h.Add(program.entry->name);
  h.Add(program.in_names);
  h.Add(program.out_names);
  h.AddSites(*program.entry);
  return h.Hex();
}

}  // namespace tessera::ir
