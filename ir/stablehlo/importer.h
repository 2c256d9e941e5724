// The state of an import. The rows of import_ops.cc read their op through it. Internal to this
// folder; thread-compatible.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "ir/builder.h"
#include "ir/stablehlo/artifact.h"
#include "ir/stablehlo/host_program.h"
#include "ir/stablehlo/quantization.h"
#include "ir/stablehlo/shardings.h"
#include "ir/stablehlo/values.h"

namespace tessera::ir::stablehlo {

// The axes along which a collective exchanges; for a permutation, which positions send to which;
// for a broadcast, the position that sends.
struct Exchange {
  AxisList axes;
  std::vector<std::pair<int64_t, int64_t>> perm;
  int64_t root = 0;
};

class Importer {
 public:
  // `for_host` is the result of ImportForHost, whose lists of sums ImportMain fills in; otherwise
  // it is null.
  Importer(const Artifact& artifact, HostProgram* for_host);

  // Returns the function "main" with the shardings of its params and results.
  Program ImportMain();
  // Returns the function of this name, imported for calls from a scope. Throws if it is missing or
  // calls itself.
  FunctionRef Function(std::string_view name, const Scope& scope);

  Builder& b() { return *builder_; }
  bool for_host() const { return for_host_ != nullptr; }
  // Emits a call of the host. Only for ImportForHost.
  std::vector<Value> EmitHostCall(std::string_view name, const std::vector<Value>& operands,
                                  const std::vector<Type>& results);
  // If the function of this name calls the host for results, emits its body in place of a call and
  // returns the body's results. Returns nullopt for any other function.
  std::optional<std::vector<Value>> InlineCallOfHost(std::string_view name,
                                                     const std::vector<Value>& args);
  const Shardings& shardings() const { return shardings_; }

 private:
  friend class OpReader;
  friend class ShardCodeImporter;
  // Builds a region as a function. The params are the captured values from outside, then the
  // region's own arguments. Constants from outside are emitted inside it.
  FunctionRef BuildRegion(const RawRegion& region, Scope scope, std::string name,
                          const std::vector<uint32_t>& captures,
                          const std::vector<uint32_t>& constants);
  // Returns the constant op whose result the value is, directly or through a sharding constraint.
  // Returns kNone if the value is not a constant.
  uint32_t ConstantOpOf(uint32_t value) const;
  // Builds a function from the ops that `body` emits. Afterwards the values `shadowed` mean again
  // what they meant before.
  FunctionRef BuildFunction(Scope scope, std::string name, const std::vector<uint32_t>& shadowed,
                            absl::FunctionRef<std::vector<Value>()> body);
  // Charges this many ops, params or inlined ops to the import. Throws LIMIT_EXCEEDED above the
  // limit of a program.
  void ChargeOps(int64_t ops);
  // Returns the number of ops of a function. The ops of a called function count at each call.
  int64_t SizeOf(const FunctionRef& f);
  // Returns the values of builder_ for values of the artifact; a tuple is replaced by its arrays,
  // each of which counts as an op. Throws for a value that is missing.
  std::vector<Value> ValuesOf(absl::Span<const uint32_t> values, std::string_view what);
  // ArraysOfValue returns the arrays of which one value consists. Keep stores them; their number
  // must be that of the value's type.
  absl::Span<const Value> ArraysOfValue(uint32_t value) const;
  void Keep(uint32_t value, absl::Span<const Value> arrays);
  // Like Keep, but takes the arrays of the value from `arrays`, beginning at `*next`, which it
  // moves on.
  void KeepNext(uint32_t value, const std::vector<Value>& arrays, size_t* next);
  // Drops the arrays of the values from `begin` up to, but not including, `end`.
  void Forget(uint32_t begin, uint32_t end);
  uint32_t type_of(uint32_t value) const { return a_.code.value_types[value]; }
  // Emits the ops of a region. The results are the operands of its last op.
  std::vector<Value> EmitRegion(const RawRegion& region);
  std::vector<Value> Emit(uint32_t op);
  void EmitAndKeep(uint32_t op);

  void AddCallback(std::string_view name);
  // Returns whether a function calls the host for results, outside of the regions of its ops.
  bool CallsHost(uint32_t function);
  // Emits the ops from `begin` on that run on shards (see on_shards.h). Returns the op after them.
  uint32_t EmitOpsOnShards(uint32_t begin, uint32_t end);

  const Artifact& a_;
  HostProgram* const for_host_;
  const Shardings shardings_;
  Builder* builder_ = nullptr;
  // Values of builder_ for those values of the artifact that are one array.
  std::vector<Value> values_;
  std::map<uint32_t, std::vector<Value>> tuples_;  // the arrays of all other values
  std::vector<uint32_t> defined_by_;               // the op of each value; kNone for an argument
  std::map<std::string, uint32_t, std::less<>> func_ops_;   // the op of each function, by name
  std::map<uint32_t, Tensor> constants_;                    // by attribute
  std::map<std::pair<uint32_t, int>, Exchange> exchanges_;  // by attribute and kind
  std::map<FunctionRef, int64_t> sizes_;                    // results of SizeOf
  std::map<FunctionRef, bool> are_ciphers_;
  int64_t charged_ops_ = 0;                // sum of the ops that ChargeOps was given
  int depth_ = 0;                          // nesting depth of functions and regions
  std::vector<Value> host_call_operands_;  // operands of HostProgram.calls
  std::map<uint32_t, bool> calls_host_;    // by function
  // The functions that InlineCallOfHost is emitting now, the outermost first.
  std::vector<uint32_t> inlining_;
  // Functions by their op and the scope of the call: whether there is a mesh, and its manual axes.
  // Null while the function is being imported.
  std::map<std::tuple<uint32_t, bool, AxisList>, FunctionRef> functions_;
};

// One op, as its row sees it: attributes by name, operands, regions.
class OpReader {
 public:
  OpReader(Importer& importer, uint32_t op, std::vector<Value> operands)
      : in(std::move(operands)), importer_(importer), op_(op) {}
  // Returns the same op with other operands and with a result that is computed in another dtype.
  OpReader WithOperands(DType result, std::vector<Value> operands) const {
    OpReader other(importer_, op_, std::move(operands));
    other.result_dtype_ = result;
    return other;
  }

  const std::vector<Value> in;

  Builder& b() const { return importer_.b(); }
  bool for_host() const { return importer_.for_host(); }
  std::vector<Value> EmitHostCall() const;
  // See Importer::InlineCallOfHost.
  std::optional<std::vector<Value>> InlineCallOfHost() const {
    return importer_.InlineCallOfHost(Text("callee"), in);
  }
  const Artifact& artifact() const { return importer_.a_; }
  const Shardings& shardings() const { return importer_.shardings_; }
  // Returns the attribute, or kNone.
  uint32_t Find(std::string_view attr) const { return importer_.a_.Find(op_, attr); }
  AttrKind KindOf(std::string_view attr) const { return importer_.a_.attrs[Find(attr)].kind; }
  // Returns the dictionary of attributes that the op carries for others, or kNone.
  uint32_t carried() const { return raw().attrs; }
  bool Has(std::string_view attr) const { return importer_.a_.Find(op_, attr) != kNone; }
  int64_t Int(std::string_view attr) const;
  // Returns false if the attribute is absent.
  bool Bool(std::string_view attr) const;
  std::vector<int64_t> Ints(std::string_view attr) const;
  // Returns an empty list if the attribute is absent.
  std::vector<int64_t> IntsOrNone(std::string_view attr) const;
  std::string_view Text(std::string_view attr) const;
  int64_t Enum(std::string_view attr, AttrKind kind) const;
  Tensor Constant(std::string_view attr) const;
  // Returns the result of `make` for an attribute. `make` is called once for all ops that share the
  // attribute.
  const Exchange& CachedExchange(std::string_view attr, int kind,
                                 absl::FunctionRef<Exchange()> make) const;
  // Returns an integer within [-limit, limit].
  int SmallInt(std::string_view attr, int limit = 1 << 16) const;
  FunctionRef Callee(std::string_view attr) const;
  // Returns the one function of called_computations, a computation of scalars.
  FunctionRef CalledComputation() const;
  // Returns whether `f` is the function that JAX writes for its cipher.
  bool IsCipher(const FunctionRef& f) const;

  // Returns the declared type of a result.
  Type ResultType(int i = 0) const;
  // Returns the quantization of an operand or a result, or nullopt if its numbers stand for
  // themselves.
  std::optional<Quantization> OperandQuantization(int i) const;
  std::optional<Quantization> ResultQuantization(int i) const;
  // Returns, for each element of an operand that is a tuple, the number of its arrays.
  std::vector<size_t> ArraysPerElement(size_t operand) const;
  // The number of operands as the artifact counts them: a tuple is one operand. `in` holds its
  // arrays.
  int num_operands() const { return static_cast<int>(raw().operands.size); }
  int num_results() const { return static_cast<int>(raw().results.size); }
  // FirstOperands returns the first `n` operands, and OperandsFrom the operands after them.
  std::vector<Value> FirstOperands(size_t n) const;
  std::vector<Value> OperandsFrom(size_t n) const;

  // Returns the integers of an operand that is a constant: a list, or a matrix row by row.
  std::vector<int64_t> KnownInts(size_t operand) const;
  bool IsKnown(size_t operand) const { return KnownLiteral(operand).has_value(); }

  // Marks the regions as read, because they hold nothing that is needed.
  void IgnoreRegions() const { regions_read_ += num_regions(); }
  int num_regions() const { return static_cast<int>(raw().regions.size); }
  // Returns a computation of scalars: a region that uses no values from outside except constants.
  FunctionRef Computation(int region) const;
  // Like Computation, for a computation that is inlined into the emitted ops. Adds the ops of the
  // computation to the count.
  FunctionRef Inlined(int region) const;
  // Charges the ops that are emitted if `f` is inlined `times` times, and two more ops for each
  // time.
  void ChargeRepeatedOps(const FunctionRef& f, int64_t times) const;
  // Charges this many ops to the import. Call it before many ops are emitted for one op of the
  // artifact.
  void ChargeOps(int64_t ops) const;
  // Returns the name of the only op of a region with two arguments, or "" for any other region.
  std::string_view SoleOpName(int region) const;
  // Returns the outside values that the regions use, each once, in the order of the first uses.
  std::vector<uint32_t> Captures(std::vector<int> regions) const;
  std::vector<Value> ValuesOf(const std::vector<uint32_t>& captures) const;
  // Returns a region as a function. The params are the captures, then the region's own arguments.
  FunctionRef Region(int region, const std::vector<uint32_t>& captures) const {
    return Region(region, captures, {}, b().scope());
  }
  // Returns a region that uses no values from outside, in another scope.
  FunctionRef RegionInScope(int region, const Scope& scope) const {
    return Region(region, {}, {}, scope);
  }
  // Returns the reader of the op that defines an operand, or nullopt for a param.
  std::optional<OpReader> Defining(size_t operand) const;

  // Return the name of the op, "slice", and of one of its attributes, "slice: strides", for errors.
  std::string Name() const;
  std::string Name(std::string_view attr) const;
  // Returns "slice (model.py:7)", and "slice (model.py:7): strides", for values that are read
  // elsewhere.
  std::string Where() const;
  std::string Where(std::string_view attr) const;
  [[noreturn]] void Malformed(std::string_view problem) const;
  [[noreturn]] void NotSupported(std::string_view problem) const;

 private:
  // Returns the literal that an operand is, or is a broadcast of; nullopt if it is not a constant.
  std::optional<Array> KnownLiteral(size_t operand) const;
  const RawOp& raw() const { return importer_.a_.code.ops[op_]; }
  FunctionRef Region(int region, const std::vector<uint32_t>& captures,
                     const std::vector<uint32_t>& constants, const Scope& scope) const;
  const RawRegion& region(int i) const {
    return importer_.a_.code.regions[raw().regions.begin + i];
  }

  friend class Importer;
  Importer& importer_;
  const uint32_t op_;
  std::optional<DType> result_dtype_;  // used instead of the declared dtype
  mutable int regions_read_ = 0;
};

// A row says how an op becomes ours.
struct ImportRow {
  std::string_view name;  // "slice"
  std::vector<Value> (*import)(const OpReader& op);
};
// Returns null for an op that Tessera lacks.
const ImportRow* FindImport(std::string_view dialect, std::string_view name);
// Returns why a known op is not imported ("takes its data from ..."), or "" for other ops.
std::string_view WhyNotImported(std::string_view name);
// Returns whether an op may have operands that are tuples or tokens.
bool TakesTuples(std::string_view name);
const ImportRow* FindCollective(std::string_view name);
// Find the rows of products and of batch normalization.
const ImportRow* FindProduct(std::string_view name);
const ImportRow* FindBatchNorm(std::string_view name);
const ImportRow* FindShardy(std::string_view name);
// Imports a composite that is known by its name. Returns nullopt for all others, and if the op does
// not fit; the composite then means its decomposition.
std::optional<std::vector<Value>> ImportKnownComposite(const OpReader& op);
// Returns the row for a custom call by which JAX writes linear algebra for CPUs: "potrf" for
// lapack_spotrf_ffi and for every other type of elements. Returns null if Tessera lacks it.
const ImportRow* FindLapack(std::string_view target);
// Imports JAX's approx_max_k and approx_min_k, exactly: the k largest, or smallest, of all
// elements.
std::vector<Value> ImportApproxTopK(const OpReader& op);
std::vector<Value> ImportBitcast(const OpReader& op);
std::vector<Value> ImportRandomBits(const OpReader& op);
// IsJaxCipher returns whether `f` is the function that JAX writes for its cipher. EmitCipher emits
// our op for it.
bool IsJaxCipher(const Function& f);
std::vector<Value> EmitCipher(const std::vector<Value>& in);
// Emits a manual_computation of a body that is already in its scope.
std::vector<Value> EmitManual(Builder& b, const FunctionRef& body, std::vector<Value> args,
                              const std::vector<PartitionSpec>& in_specs,
                              const std::vector<PartitionSpec>& out_specs, const AxisList& manual);
// Imports a custom call of @Sharding, which is a constraint.
std::vector<Value> ImportShardingCall(const OpReader& op);
// If the op `remainder` computes (partition_id / stride) % size for axes that have this stride and
// size, returns the position along these axes.
std::optional<Value> PositionAlongAxis(const OpReader& remainder);
// Returns whether a custom_call with this target is known.
bool KnowsTarget(std::string_view target);

}  // namespace tessera::ir::stablehlo
