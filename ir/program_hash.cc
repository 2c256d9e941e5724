// The hashes of programs. The client and the coordinator cache executables by StructuralHash, so
// its input must not depend on names, sites or pointers.
#include "ir/program_hash.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

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
  void Add(int64_t v) { AddBytes(&v, sizeof v); }
  void Add(const std::string& s) { Add(std::string_view(s)); }
  std::string Hex() { return hash_.Hex(); }

 private:
  void AddBytes(const void* p, size_t n) { hash_.Add(p, n); }
  void Add(ValueId v) { Add(int64_t{v}); }
  void Add(bool v) { Add(int64_t{v}); }
  void Add(double v) { AddBytes(&v, sizeof v); }
  void Add(DType v) { Add(static_cast<int64_t>(v)); }
  void Add(std::string_view s) {
    Add(static_cast<int64_t>(s.size()));
    AddBytes(s.data(), s.size());
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
    AddBytes(a.data(), a.num_bytes());
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

}  // namespace

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
