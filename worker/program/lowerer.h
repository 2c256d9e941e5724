// The class that lowers one function (lower.h). The methods of the class turn each kind of op in
// the op table into items. They are spread over several files, which the headings below name, and
// are described where they are defined. Thread-compatible; Run is called once.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/derive/computation_graph.h"
#include "ir/derive/factors.h"
#include "worker/program/build_options.h"
#include "worker/program/graph_builder.h"
#include "worker/program/items.h"

namespace tessera::worker::program {

// Returns the entries of `from` at `dims`.
inline ir::Dims Pick(const ir::Dims& from, const std::vector<int>& dims) {
  ir::Dims picked;
  for (int d : dims) picked.push_back(from[d]);
  return picked;
}
// Return the number of elements of an array over the dims before `dim`, and over the dims from
// `dim` on.
inline int64_t ElementsBefore(const ir::Dims& shape, int64_t dim) {
  return NumElements(absl::MakeConstSpan(shape).subspan(0, dim));
}
inline int64_t ElementsFrom(const ir::Dims& shape, int64_t dim) {
  return NumElements(absl::MakeConstSpan(shape).subspan(dim));
}

class Lowerer {
 public:
  explicit Lowerer(const BuildOptions& options) : options_(options) {}

  void Run(const ir::Function& f);
  absl::StatusOr<LoweredFunction> Take() &&;

 private:
  // The op to lower, and the lowered values of its operands.
  struct OpContext {
    const ir::Function& f;
    const ir::Op& op;
    std::vector<int> operands;

    const ir::OpDef& def() const { return *op.def; }
    const ir::Type& in(int i) const { return f.type(op.operands[i]); }
    const ir::Type& out(int i) const { return f.type(op.results[i]); }
    std::vector<ir::Type> in_types() const { return TypesOf(op.operands); }
    std::vector<ir::Type> out_types() const { return TypesOf(op.results); }
    std::vector<ir::Type> TypesOf(const std::vector<ir::ValueId>& ids) const {
      std::vector<ir::Type> types;
      for (ir::ValueId v : ids) types.push_back(f.type(v));
      return types;
    }
  };

  // ---- lower.cc: values and functions; scalars, index maps and sorts. ----

  int NewValue(ir::DType dtype, int64_t elements);
  int NewValue(const ir::Type& type);
  int NewConstant(const ir::Array& literal);
  template <class What>
  void Add(std::vector<int> operands, std::vector<int> results, What what) {
    items_->push_back({label_, std::move(operands), std::move(results), std::move(what)});
  }
  std::vector<int> LowerFunction(const ir::Function& f, const std::vector<int>& args);
  std::vector<int> LowerOp(const OpContext& ctx);
  std::vector<int> LowerBarrier(const OpContext& ctx);
  int BeforeBarrier(int v) const;
  std::optional<std::vector<int>> LowerToCode(const OpContext& ctx);
  std::vector<int> LowerToHost(const OpContext& ctx);
  void Refuse(absl::string_view why);
  std::optional<std::vector<int>> LowerScalar(const OpContext& ctx);
  static std::vector<DynamicValueOffset> ShiftsOf(const OpContext& ctx,
                                                  const std::vector<ir::DynamicOffset>& shifts);
  int AddSource(const OpContext& ctx, const ir::IndexMap& map, const ir::IndexPiece& piece);
  static PiecesItem::Piece PieceInto(const ir::Dims& strides, const ir::IndexPiece& piece);
  std::optional<std::vector<int>> LowerIndexMap(const OpContext& ctx);
  static std::optional<ir::ScalarGraph> ComputationOf(const OpContext& ctx);
  void AddFill(const OpContext& ctx, const ir::IndexPiece& piece, int read, int fill, int result);
  static ir::Type AddCarrierDim(const ir::Type& out, ir::IndexMap* map);
  static bool WritesWholeResult(const ir::IndexPiece& piece, const ir::Type& out);
  // Returns the shape of a sort op, or nullopt if its rows are empty or too long for a routine that
  // sorts.
  static std::optional<SortShape> SortShapeOf(const OpContext& ctx);
  std::optional<std::vector<int>> LowerSort(const OpContext& ctx);
  std::vector<int> NewResults(const OpContext& ctx);

  // ---- lower_scan.cc: scans and scatters. ----

  bool HasScan(const OpContext& ctx) const;
  std::optional<std::vector<int>> LowerScan(const OpContext& ctx);
  std::optional<std::vector<int>> LowerScatter(const OpContext& ctx);
  static void AddCarrierDim(int64_t n, ir::ScatterMap* map);

  // ---- lower_reduce.cc: reductions. The op's factors tell which dims belong together. ----

  static ir::Signature SignatureOf(const OpContext& ctx);
  static std::set<int> FactorsIn(const ir::TensorFactors& dims);
  static bool HasAll(const std::set<int>& factors, const ir::FactorList& dim);
  static bool IsEmpty(const OpContext& ctx);
  std::optional<std::vector<int>> LowerEmpty(const OpContext& ctx);
  // The dims of operand 0 that results have, and the other dims.
  struct ReducedDims {
    std::vector<int> kept, reduced;
  };
  static ReducedDims ReducedDimsOf(const OpContext& ctx);
  std::optional<std::vector<int>> LowerReduce(const OpContext& ctx);
  void AddReduction(int operand, int result, ReduceItem item);
  std::optional<std::vector<int>> LowerReduceByComputation(const OpContext& ctx);
  std::vector<int> CombineRuns(const ir::ScalarGraph& computation, const std::vector<int>& xs,
                               const ir::Dims& shape);
  // `count` runs of `length` rows each, from row `first` on. Each run is combined to one row.
  struct Runs {
    int64_t first, count, length;
  };
  std::vector<int> CombineEqualRuns(const ir::ScalarGraph& computation, const std::vector<int>& xs,
                                    const ir::Dims& shape, const Runs& runs);

  // ---- lower_contract.cc: contractions. ----

  std::optional<std::vector<int>> LowerContract(const OpContext& ctx);
  int AddConvert(int value, ir::DType to);
  bool IsSmallMatmul(const ContractItem& item) const;
  int AddPadded(int operand, const ir::Type& type, const ir::ContractionMap& map);
  int AddInOrder(int value, const ir::Dims& sizes, const ir::Dims& strides);
  void AddContractionAsReduction(const std::vector<int>& operands, ir::DType from,
                                 const ContractItem& item, int result);
  static ir::ScalarGraph ConvertGraph(ir::DType from, ir::DType to);
  static ir::ScalarGraph MultiplyGraph(ir::DType in, ir::DType accumulator);

  // ---- lower_collective.cc: collectives. ----

  // The views around a collective, which works on contiguous blocks: its operand is packed into
  // blocks before, and its result is unpacked after. A view is nullopt if nothing has to be moved.
  struct Packing {
    std::optional<View> pack, unpack;
  };
  static Packing PackingOf(const OpContext& ctx, int64_t n, int64_t carriers_per_element);
  int AddView(int operand, const View& view);
  std::vector<int> LowerCollective(const OpContext& ctx);
  std::vector<int> LowerToExchangeAndReduction(int in, CollectiveStep step);

  // ---- lower_control.cc: calls, branches and loops. ----

  std::vector<int> LowerRegions(const OpContext& ctx);
  static std::vector<int> ArgsOf(const OpContext& ctx, const ir::RegionDataFlow& edges,
                                 const ir::Function& region);
  std::vector<int> LowerCall(const OpContext& ctx, const ir::RegionDataFlow& edges,
                             const ir::Function& region);
  void AddUpdates(const std::vector<std::pair<int, int>>& from_to, Block* block);
  std::vector<int> LowerBranches(const OpContext& ctx, const ir::DataFlow& flow);
  std::vector<int> LowerWhile(const OpContext& ctx, const ir::DataFlow& flow);
  int LowerPredicate(const ir::Function& predicate, const std::vector<int>& args);
  int AddSubview(int whole, const ir::Type& row, int loop, const ir::DataFlow& flow);
  std::vector<int> LowerLoop(const OpContext& ctx, const ir::DataFlow& flow);

  const BuildOptions& options_;
  LoweredFunction out_;
  std::vector<Item>* items_ = nullptr;
  int label_ = -1;
  int predicate_depth_ = 0;
  absl::Status refusal_;
};

}  // namespace tessera::worker::program
