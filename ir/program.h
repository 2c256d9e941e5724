// A program: functions of SSA ops with regions.  Immutable once built; shared by const pointer.
//
// A region is a closed Function: what it takes from outside is an operand of the op that owns it,
// so a transform never looks outside the function it walks.  Made only by Builder (builder.h), or
// by the readers in text.h and serial/, which go through Builder.
#pragma once
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "base/site.h"
#include "ir/attrs.h"
#include "ir/mesh.h"
#include "ir/type.h"

namespace tessera::ir {

struct OpDef;
struct Function;
using FunctionRef = std::shared_ptr<const Function>;
using ValueId = int32_t;

// The version of the op set.  Grows when an op is added; names are never reused.
inline constexpr int kOpset = 1;

// The elements of `list` at `ids`: the types of an op's operands, or the values mapped from them.
template <class T>
std::vector<T> ElementsAt(const std::vector<T>& list, absl::Span<const ValueId> ids) {
  std::vector<T> out;
  out.reserve(ids.size());
  for (ValueId id : ids) out.push_back(list[id]);
  return out;
}

struct Op {
  const OpDef* def = nullptr;
  std::vector<ValueId> operands, results;
  Attrs attrs;
  std::vector<FunctionRef> regions;
};

// What a vmap maps over: `size` members of a batch, which become a dim of the arrays.
struct MappedAxis {
  int64_t size = 0;
  std::string name = {};   // by which collectives exchange among the members; empty: none can
  AxisList sharding = {};  // the Explicit axes that shard the dim; the body can't use them
  AxisList spmd = {};      // spmd_axis_name: the axes over which constraints and shard_maps cut it

  MappedAxis() = default;
  MappedAxis(int64_t n) : size(n) {}  // NOLINT(google-explicit-constructor): reads as the size
  // Whether it stands in the scope of the vmap's body; else nothing in there can tell of it.
  bool in_scope() const { return !name.empty() || !sharding.empty() || !spmd.empty(); }
  auto operator<=>(const MappedAxis&) const = default;
  bool operator==(const MappedAxis&) const = default;
  std::string ToString() const;  // i=4, i=4@('x'), i=4 spmd ('x')
};

// The scope of an op: the mesh with the type of each axis here, whether manual axes types are
// tracked (shard_map's check_vma), and the mapped axes of the vmaps around it, outermost first.
// Batch takes these away: a program has none.
struct Scope {
  Mesh mesh;
  bool check_vma = true;
  std::vector<MappedAxis> mapped = {};
  bool operator==(const Scope&) const = default;

  // The innermost mapped axis of this name, or null.
  const MappedAxis* Mapped(std::string_view name) const;
  // Whether collectives may name it: a mapped axis, or a Manual axis of the mesh.
  bool IsBound(std::string_view axis) const { return Mapped(axis) || mesh.IsManual(axis); }
  // The product. Requires: each is bound, or an axis of the mesh.
  int64_t SizeOf(absl::Span<const std::string> axes) const;
};

struct Function : std::enable_shared_from_this<Function> {
  std::string name;
  Scope scope;
  int num_params = 0;       // params are values 0 .. num_params-1
  std::vector<Type> types;  // of every value
  std::vector<Op> ops;      // each after the ops that define its operands
  std::vector<ValueId> results;
  // Where each op was written, parallel to `ops`; never part of a hash.
  std::vector<Site> sites;
  // Whether some op has an effect, here or in a region: such ops are not dead without results.
  bool effects = false;

  const Type& type(ValueId v) const { return types[v]; }
  std::vector<Type> param_types() const { return {types.begin(), types.begin() + num_params}; }
  std::vector<Type> result_types() const { return ElementsAt(types, results); }
};

// An entry function at logical types, with the shardings of its arguments and results (Auto axes;
// nullopt leaves one to the planner).
struct Program {
  int opset = kOpset;
  FunctionRef entry;
  std::vector<std::optional<PartitionSpec>> in_shardings, out_shardings;  // empty: none given
  // Display names of the arguments and results: "args[0].w1", "%x". Printable ASCII, at most
  // kValueNameMax long; "" for one without a name. An empty list: none
  // has a name.
  std::vector<std::string> in_names = {}, out_names = {};

  const Mesh& mesh() const { return entry->scope.mesh; }
};

inline constexpr size_t kValueNameMax = 256;
// "argument 3 (args[0].w1)", or "argument 3" of a program that does not name it.
std::string ArgumentText(const Program& program, size_t i);
std::string ResultText(const Program& program, size_t i);

// Number of ops, regions included.
int64_t CountOps(const Function& f);
// SHA-256, in hex, of the structure: ops, types, attributes, scope and shardings; no names of
// functions, arguments and results, no sites.
std::string StructuralHash(const Program& program);
std::string StructuralHash(const Function& function);
// SHA-256, in hex, of what StructuralHash leaves out: names and sites.
std::string AnnotationHash(const Program& program);

}  // namespace tessera::ir
