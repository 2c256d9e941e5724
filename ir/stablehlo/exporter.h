// The state of an export, which the rows of export_ops.cc write through.  Internal to this folder.
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

// Values of the artifact.
using ValueIds = std::vector<uint32_t>;

// An op of a program, whose operands are these values of the artifact.
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

  // Throws StatusException.
  void Run(const Program& program);
  Module& module() { return module_; }

  // A region of an op: its arguments, and what writes its ops and returns its results.
  struct Region {
    std::vector<Type> params;
    absl::FunctionRef<ValueIds(const ValueIds& args)> write;
  };
  // The same of Shardy's, which says the types of its results.
  struct ShardyRegion {
    Region region;
    std::vector<Type> results;
  };
  // An op of VHLO; its results.
  ValueIds Emit(std::string_view name, absl::Span<const uint32_t> in, const std::vector<Type>& out,
                const Module::NamedAttrs& attrs = {}, const std::vector<Region>& regions = {});
  uint32_t Emit1(std::string_view name, absl::Span<const uint32_t> in, const Type& out,
                 const Module::NamedAttrs& attrs = {}) {
    return Emit(name, in, {out}, attrs)[0];
  }
  // A call of what JAX registers for CPUs under this name, of matrices whose columns lie in one
  // piece, as operands and results of the highest rank; `config`: its arguments.
  ValueIds CustomCall(std::string_view target, absl::Span<const uint32_t> in,
                      const std::vector<Type>& in_types, const std::vector<Type>& out,
                      const Module::NamedAttrs& config);
  uint32_t Constant(const Array& literal);
  // Throws for one of unreduced axes.
  uint32_t Sharding(const PartitionSpec& spec, int rank);
  // An op of Shardy, whose operands, results and region have MLIR's own types. `in`: the types of
  // the operands.
  ValueIds EmitShardy(std::string_view name, const ValueIds& operands, const std::vector<Type>& in,
                      const std::vector<Type>& out, const Module::NamedAttrs& attrs,
                      const ShardyRegion* region = nullptr);
  // The devices of the mesh that exchange along axes, a row for each group.
  uint32_t Groups(const Mesh& mesh, const AxisList& axes);

  // The ops of `f`, with these arguments; its results.
  ValueIds Body(const Function& f, const ValueIds& args);
  // A call of `f`, which is written once.
  ValueIds Call(const FunctionRef& f, const ValueIds& args);
  // A composite of this name, which is `decomposition`, with those attributes that are ints, truth
  // values or dtypes.
  ValueIds Composite(std::string_view name, const Attrs& attrs, const FunctionRef& decomposition,
                     const ValueIds& args);
  // The decomposition of a composite that `make` makes, once for all such ops.
  FunctionRef Decomposition(const SourceOp& op, absl::FunctionRef<FunctionRef()> make);

  [[noreturn]] void Refuse(const SourceOp& op, std::string_view why) const;

 private:
  void RegisterLocations(const Function& f);
  // Module::Begin, here; throws where a reader's limits are.
  uint32_t Begin(std::string_view dialect, std::string_view name,
                 absl::Span<const uint32_t> operands, absl::Span<const uint32_t> result_types,
                 const Module::NamedAttrs& attrs, size_t num_regions = 0);
  // The same value with another type.
  uint32_t Cast(uint32_t value, uint32_t type);
  // `program`: of which the function is the entry, or null.
  void WriteFunction(const Function& f, std::string_view name, const Program* program);
  // What each of some values carries: a name, and a sharding.
  uint32_t Carried(const std::vector<Type>& types, const std::vector<std::string>& names,
                   const std::vector<std::optional<PartitionSpec>>& shardings);
  ValueIds WriteOp(const SourceOp& op);
  // The name of the function in the module.
  std::string NameOf(const FunctionRef& f, std::string_view hint);

  Module module_;
  const ReadLimits limits_;
  uint32_t location_ = 0;  // of the ops that are written
  Site site_;
  // Functions that are called, in the order in which they are written.
  std::deque<std::pair<FunctionRef, std::string>> called_;
  std::map<FunctionRef, std::string> names_;
  struct Known {
    Attrs attrs;
    std::vector<Type> in;
    FunctionRef f;
  };
  std::map<const OpDef*, std::vector<Known>> decompositions_;
  std::set<const Function*> located_;
  std::map<AxisList, uint32_t> groups_;  // of the program's mesh
};

// How an op is written.
struct ExportRow {
  const OpDef* def;
  ValueIds (*write)(Exporter& out, const SourceOp& op);
};
// Null for an op without a row of its own.
const ExportRow* FindExport(const OpDef& def);
// The rows of what is said about shardings and of what runs on shards (export_sharded.cc).
absl::Span<const ExportRow> ShardedRows();
// The rows of linear algebra that StableHLO has no ops for (export_lapack.cc).
absl::Span<const ExportRow> LapackRows();
// What an op is in terms of others, of these operands.
using ExpandFn = std::vector<Value> (*)(const RuleContext& c);
// The ops of `expand` as a function of the op's operands.
FunctionRef Expanded(const SourceOp& op, ExpandFn expand);

// What a reduction makes of no elements, which changes nothing else.
Array IdentityOf(const OpDef& reduction, DType dtype);

// ---- What ops are in terms of others (expand.cc). ----
std::vector<Value> ExpandElementwise(const RuleContext& c);
std::vector<Value> ExpandArg(const RuleContext& c);
std::vector<Value> ExpandSort(const RuleContext& c);
std::vector<Value> ExpandTopK(const RuleContext& c);
std::vector<Value> ExpandCumlogsumexp(const RuleContext& c);
std::vector<Value> ExpandWindows(const RuleContext& c);
std::vector<Value> ExpandFilledGather(const RuleContext& c);
std::vector<Value> ExpandClippedScatter(const RuleContext& c);

}  // namespace tessera::ir::stablehlo
