// The state of an export. The rows of export_ops.cc write through it. Internal to this folder;
// thread-compatible.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "ir/op_def.h"
#include "ir/program.h"
#include "ir/stablehlo/module.h"

namespace tessera::ir::stablehlo {

// Values of the artifact that is being written.
using ValueIds = std::vector<uint32_t>;

// An op of a program, together with the values of the artifact that are its operands.
struct SourceOp {
  const Function& f;
  const Op& op;
  ValueIds in;

  const Attrs& attrs() const { return op.attrs; }
  size_t num_results() const { return op.results.size(); }
  const Type& in_type(size_t i) const { return f.type(op.operands[i]); }
  const Type& out_type(size_t i = 0) const { return f.type(op.results[i]); }
  std::vector<Type> in_types() const { return ElementsAt(f.types, op.operands); }
  std::vector<Type> out_types() const { return ElementsAt(f.types, op.results); }
};

class Exporter {
 public:
  Exporter(int target, const ReadLimits& limits) : module_(target), limits_(limits) {}

  // Writes the program. Throws StatusException.
  void WriteProgram(const Program& program);
  Module& module() { return module_; }

  // A region of an op: its params, and a function that writes its ops and returns its results.
  struct Region {
    std::vector<Type> params;
    absl::FunctionRef<ValueIds(const ValueIds& args)> write;
  };
  // A region of an op of Shardy, which also states the types of its results.
  struct ShardyRegion {
    Region region;
    std::vector<Type> results;
  };
  // Writes an op of VHLO and returns its results.
  ValueIds Emit(std::string_view name, absl::Span<const uint32_t> in, const std::vector<Type>& out,
                const Module::NamedAttrs& attrs = {}, const std::vector<Region>& regions = {});
  uint32_t Emit1(std::string_view name, absl::Span<const uint32_t> in, const Type& out,
                 const Module::NamedAttrs& attrs = {}) {
    return Emit(name, in, {out}, attrs)[0];
  }
  // Writes a call of the function that JAX registers for CPUs under this name. Operands and results
  // of the highest rank are matrices whose columns are contiguous. `config` holds the arguments of
  // the call.
  ValueIds CustomCall(std::string_view target, absl::Span<const uint32_t> in,
                      const std::vector<Type>& in_types, const std::vector<Type>& out,
                      const Module::NamedAttrs& config);
  // Writes a constant op and returns its result.
  uint32_t Constant(const Array& literal);
  // Returns the sharding attribute. Throws if the spec has unreduced or reduced axes.
  uint32_t Sharding(const PartitionSpec& spec, int rank);
  // Writes an op of Shardy. The operands, results and region have MLIR's own types; `in` are the
  // types of the operands.
  ValueIds EmitShardy(std::string_view name, const ValueIds& operands, const std::vector<Type>& in,
                      const std::vector<Type>& out, const Module::NamedAttrs& attrs,
                      const ShardyRegion* region = nullptr);
  // Returns the groups of devices that exchange along `axes`: a matrix with one row for each group.
  uint32_t Groups(const Mesh& mesh, const AxisList& axes);

  // Writes the ops of `f` with these arguments, and returns its results.
  ValueIds Inline(const Function& f, const ValueIds& args);
  // Writes a call of `f`. The function itself is written once.
  ValueIds Call(const FunctionRef& f, const ValueIds& args);
  // Writes a composite of this name with this decomposition. Keeps only the `attrs` that are
  // integers, booleans or dtypes.
  ValueIds Composite(std::string_view name, const Attrs& attrs, const FunctionRef& decomposition,
                     const ValueIds& args);
  // Returns the decomposition of a composite. `make` is called once for all equal ops.
  FunctionRef Decomposition(const SourceOp& op, absl::FunctionRef<FunctionRef()> make);

  [[noreturn]] void Refuse(const SourceOp& op, std::string_view why) const;

 private:
  void RegisterLocations(const Function& f);
  // Like Module::BeginOp with the current location. Throws if the limits of a reader are reached.
  uint32_t BeginOp(std::string_view dialect, std::string_view name,
                   absl::Span<const uint32_t> operands, absl::Span<const uint32_t> result_types,
                   const Module::NamedAttrs& attrs, size_t num_regions = 0);
  // Writes a cast of the value to another type.
  uint32_t Cast(uint32_t value, uint32_t type);
  // `program` is the program whose entry the function is, or null.
  void WriteFunction(const Function& f, std::string_view name, const Program* program);
  // Returns the list of the attributes that each value carries: a name and a sharding.
  uint32_t CarriedAttrs(const std::vector<Type>& types, const std::vector<std::string>& names,
                        const std::vector<std::optional<PartitionSpec>>& shardings);
  ValueIds WriteOp(const SourceOp& op);
  // Returns the name under which the module contains `f`. A new function gets a name like `hint`.
  std::string NameOf(const FunctionRef& f, std::string_view hint);

  Module module_;
  const ReadLimits limits_;
  uint32_t location_ = 0;  // location for the ops that are written next
  Site site_;
  // Functions that are called, in the order in which they will be written.
  std::deque<std::pair<FunctionRef, std::string>> called_;
  std::map<FunctionRef, std::string> names_;  // names of called functions
  struct KnownDecomposition {
    Attrs attrs;
    std::vector<Type> in;
    FunctionRef f;
  };
  std::map<const OpDef*, std::vector<KnownDecomposition>> decompositions_;
  std::set<const Function*> located_;    // functions whose locations are registered
  std::map<AxisList, uint32_t> groups_;  // groups on the program's mesh
};

// A row says how an op is written.
struct ExportRow {
  const OpDef* def;
  ValueIds (*write)(Exporter& out, const SourceOp& op);
};
// Returns null for an op without a row of its own.
const ExportRow* FindExport(const OpDef& def);
// The rows of ops about shardings and of ops that run on shards (export_sharded.cc).
absl::Span<const ExportRow> ShardedRows();
// The rows of linear algebra that StableHLO has no ops for (export_lapack.cc).
absl::Span<const ExportRow> LapackRows();
// Expresses an op by other ops on these operands.
using ExpandFn = std::vector<Value> (*)(const RuleContext& c);
// Returns the ops of `expand` as a function of the op's operands.
FunctionRef Expanded(const SourceOp& op, ExpandFn expand);

// Returns the result of a reduction of no elements. Combining with it changes nothing.
Array IdentityOf(const OpDef& reduction, DType dtype);

// ---- Ops in terms of other ops (expand.cc). ----
std::vector<Value> ExpandElementwise(const RuleContext& c);
std::vector<Value> ExpandArg(const RuleContext& c);
std::vector<Value> ExpandSort(const RuleContext& c);
std::vector<Value> ExpandTopK(const RuleContext& c);
std::vector<Value> ExpandCumlogsumexp(const RuleContext& c);
std::vector<Value> ExpandWindows(const RuleContext& c);
std::vector<Value> ExpandFilledGather(const RuleContext& c);
std::vector<Value> ExpandClippedScatter(const RuleContext& c);

}  // namespace tessera::ir::stablehlo
