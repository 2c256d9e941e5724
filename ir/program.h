// Programs: functions of SSA ops with regions. Immutable once built; shared by const pointer.
//
// A region is a closed Function: the values that it takes from outside are operands of the op that
// owns it, so a transform never looks outside the function that it walks. Functions are made by
// Builder (builder.h) only; the readers in text.h and serial/ go through Builder too.
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

// The version of the op set. It grows when an op is added. The name of an op is never used again
// for another op.
inline constexpr int kOpset = 1;

// Returns the elements of `list` at `ids`, for example the types of an op's operands.
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

// An axis that a vmap maps over. The batch has `size` members, one for each index of a dim that is
// added to the batched arrays.
struct MappedAxis {
  int64_t size = 0;
  std::string name = {};   // name by which collectives refer to it; if empty, none can
  AxisList sharding = {};  // Explicit axes that shard the added dim; the body cannot use them
  // vmap's spmd_axis_name: sharding constraints and shard_maps in the body cut the added dim over
  // these axes.
  AxisList spmd = {};  // axes of the mesh

  MappedAxis() = default;
  MappedAxis(int64_t n) : size(n) {}  // NOLINT(google-explicit-constructor): conversion is intended
  // Whether the axis is listed in the scope of the vmap's body (Scope::mapped). An axis without
  // name, sharding and spmd is not listed, because nothing in the body can detect it.
  bool in_scope() const { return !name.empty() || !sharding.empty() || !spmd.empty(); }
  auto operator<=>(const MappedAxis&) const = default;
  bool operator==(const MappedAxis&) const = default;
  std::string ToString() const;  // i=4, i=4@('x'), i=4 spmd ('x')
};

// The scope of an op: the mesh with the types that its axes have at this op, whether manual axes
// types are tracked (shard_map's check_vma), and the mapped axes of the vmaps around the op,
// outermost first. Batch (transform/transform.h) removes the mapped axes, so a finished program has
// none.
struct Scope {
  Mesh mesh;
  bool check_vma = true;
  std::vector<MappedAxis> mapped = {};
  bool operator==(const Scope&) const = default;

  // Returns the innermost mapped axis of this name, or null.
  const MappedAxis* FindMapped(std::string_view name) const;
  // Whether collectives may name the axis: it is a mapped axis, or a Manual axis of the mesh.
  bool IsBound(std::string_view axis) const { return FindMapped(axis) || mesh.IsManual(axis); }
  // Returns the product of the sizes. Requires: each axis is bound, or is an axis of the mesh.
  int64_t SizeOf(absl::Span<const std::string> axes) const;
};

// A closed function of SSA ops. A ValueId is an index into `types`.
struct Function : std::enable_shared_from_this<Function> {
  std::string name;
  Scope scope;
  int num_params = 0;       // the params are the values 0 .. num_params-1
  std::vector<Type> types;  // types of all values
  std::vector<Op> ops;      // each op comes after the ops that define its operands
  std::vector<ValueId> results;
  // The call site of each op, parallel to `ops`. StructuralHash ignores the sites.
  std::vector<Site> sites;
  // Whether some op, here or in a region, has an effect. Ops with effects are kept even if nobody
  // uses their results.
  bool has_effects = false;

  const Type& type(ValueId v) const { return types[v]; }
  std::vector<Type> param_types() const { return {types.begin(), types.begin() + num_params}; }
  std::vector<Type> result_types() const { return ElementsAt(types, results); }
};

// An entry function at logical types, with the shardings of its arguments and results over Auto
// axes. Where a sharding is nullopt, the planner chooses one.
struct Program {
  int opset = kOpset;
  FunctionRef entry;
  // One entry for each argument, or result. A list is empty if it gives no sharding.
  std::vector<std::optional<PartitionSpec>> in_shardings, out_shardings;
  // Display names of the arguments and results, such as "args[0].w1" or "%x". A name is printable
  // ASCII and at most kValueNameMax bytes long; "" stands for a value without a name. A list is
  // empty if it gives no name.
  std::vector<std::string> in_names = {}, out_names = {};

  const Mesh& mesh() const { return entry->scope.mesh; }
};

inline constexpr size_t kValueNameMax = 256;
// Returns "argument 3 (args[0].w1)", or "argument 3" if the program does not name the argument.
std::string ArgumentText(const Program& program, size_t i);
std::string ResultText(const Program& program, size_t i);

// Returns the number of ops, including those in regions.
int64_t CountOps(const Function& f);

}  // namespace tessera::ir
