// The state of an import, which the rows of import_ops.cc read.  Internal to this folder.
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
#include "ir/stablehlo/import.h"
#include "ir/stablehlo/shardings.h"
#include "ir/stablehlo/values.h"

namespace tessera::ir::stablehlo {

struct Quantization;

// Along which axes a collective exchanges; which positions send to which, of one that permutes; the
// position that sends, of one that broadcasts.
struct Exchange {
  AxisList axes;
  std::vector<std::pair<int64_t, int64_t>> perm;
  int64_t root = 0;
};

class Importer {
 public:
  // `for_host`: of ImportForHost, whose lists of sums Main fills in; else null.
  Importer(const Artifact& artifact, HostProgram* for_host);

  // The function "main", with the shardings of its params and results.
  Program Main();
  // The function of this name as a function of ours in a scope; throws if it is not there or calls
  // itself.
  FunctionRef Function(std::string_view name, const Scope& scope);

  Builder& b() { return *builder_; }
  bool for_host() const { return for_host_ != nullptr; }
  // A call of the host; only of ImportForHost.
  std::vector<Value> CallHost(std::string_view name, const std::vector<Value>& operands,
                              const std::vector<Type>& results);
  // The results of a function that calls the host for results, which is emitted where it is called;
  // nullopt for any other.
  std::optional<std::vector<Value>> CallThatAsks(std::string_view name,
                                                 const std::vector<Value>& args);
  const Shardings& shardings() const { return shardings_; }

 private:
  friend class OpReader;
  friend class OnShards;
  // A region as a function of values of outside, which become params, then of its arguments.
  // Constants of outside are emitted in it.
  FunctionRef Build(const RawRegion& region, Scope scope, std::string name,
                    const std::vector<uint32_t>& captures, const std::vector<uint32_t>& constants);
  // The op that makes the constant that a value is, as it is or constrained to lie somewhere;
  // kNone: it is none.
  uint32_t ConstantOf(uint32_t value) const;
  // A function of what `body` emits; the values `shadowed` mean what they did again after it.
  FunctionRef BuildOf(Scope scope, std::string name, const std::vector<uint32_t>& shadowed,
                      absl::FunctionRef<std::vector<Value>()> body);
  // Counts ops, params and what is inlined; throws LIMIT_EXCEEDED above what a program may have.
  void Spend(int64_t ops);
  // The ops of a function, with those of what it calls, each time.
  int64_t SizeOf(const FunctionRef& f);
  // The values of the artifact in builder_, the arrays of tuples in the tuples' places, of which
  // each counts as an op; throws for one that is not there.
  std::vector<Value> ValuesOf(absl::Span<const uint32_t> values, std::string_view what);
  // The arrays of one value, and as many of them as it is made of.
  absl::Span<const Value> ArraysOfValue(uint32_t value) const;
  void Keep(uint32_t value, absl::Span<const Value> arrays);
  // As many of `arrays`, from `*next` on, as the value is made of.
  void KeepNext(uint32_t value, const std::vector<Value>& arrays, size_t* next);
  void Forget(uint32_t begin, uint32_t end);
  uint32_t type_of(uint32_t value) const { return a_.code.value_types[value]; }
  // Emits the ops of a region; the results are the operands of its last op.
  std::vector<Value> Run(const RawRegion& region);
  std::vector<Value> Emit(uint32_t op);
  void EmitAndKeep(uint32_t op);

  void AddCallback(std::string_view name);
  // Whether a function calls the host for results, outside of its ops' regions.
  bool Asks(uint32_t function);
  // The ops from `begin` on that run on shards, as on_shards.h says; returns the op after them.
  uint32_t RunOnShards(uint32_t begin, uint32_t end);

  const Artifact& a_;
  HostProgram* const for_host_;
  const Shardings shardings_;
  Builder* builder_ = nullptr;
  std::vector<Value> values_;  // of each value of the artifact that is one array, in builder_
  std::map<uint32_t, std::vector<Value>> tuples_;     // the arrays of the others
  std::vector<uint32_t> defined_by_;                  // the op of each value; kNone for an argument
  std::map<std::string, uint32_t, std::less<>> ops_;  // the functions
  std::map<uint32_t, Tensor> constants_;              // by their attributes
  std::map<std::pair<uint32_t, int>, Exchange> exchanges_;  // by an attribute and a kind
  std::map<FunctionRef, int64_t> sizes_;
  std::map<FunctionRef, bool> are_ciphers_;
  int64_t spent_ = 0;
  int depth_ = 0;                     // of functions and regions within each other
  std::vector<Value> asked_;          // operands of HostProgram.calls
  std::map<uint32_t, bool> asks_;     // by function
  std::vector<uint32_t> emitted_in_;  // functions that are emitted where they are called
  // By their ops and where they are called: whether there is a mesh, and its manual axes. Null
  // while one is imported.
  std::map<std::tuple<uint32_t, bool, AxisList>, FunctionRef> functions_;
};

// One op, for its row: attributes by name, operands, regions.
class OpReader {
 public:
  OpReader(Importer& importer, uint32_t op, std::vector<Value> operands)
      : in(std::move(operands)), importer_(importer), op_(op) {}
  // The same op, of other operands, whose result is computed as another dtype.
  OpReader As(DType result, std::vector<Value> operands) const {
    OpReader other(importer_, op_, std::move(operands));
    other.result_ = result;
    return other;
  }

  const std::vector<Value> in;

  Builder& b() const { return importer_.b(); }
  bool for_host() const { return importer_.for_host(); }
  std::vector<Value> CallHost() const;
  // See Importer::CallThatAsks.
  std::optional<std::vector<Value>> CallThatAsks() const {
    return importer_.CallThatAsks(Text("callee"), in);
  }
  const Artifact& artifact() const { return importer_.a_; }
  const Shardings& shardings() const { return importer_.shardings_; }
  // The attribute, or kNone.
  uint32_t Find(std::string_view attr) const { return importer_.a_.Find(op_, attr); }
  AttrKind KindOf(std::string_view attr) const { return importer_.a_.attrs[Find(attr)].kind; }
  // The dictionary of what the op carries for others, or kNone.
  uint32_t carried() const { return raw().attrs; }
  bool Has(std::string_view attr) const { return importer_.a_.Find(op_, attr) != kNone; }
  int64_t Int(std::string_view attr) const;
  // Absent: false.
  bool Bool(std::string_view attr) const;
  std::vector<int64_t> Ints(std::string_view attr) const;
  // Absent: none.
  std::vector<int64_t> IntsOrNone(std::string_view attr) const;
  std::string_view Text(std::string_view attr) const;
  int64_t Enum(std::string_view attr, AttrKind kind) const;
  Tensor Constant(std::string_view attr) const;
  // What `make` makes of an attribute: once for all ops that share it.
  const Exchange& Once(std::string_view attr, int kind, absl::FunctionRef<Exchange()> make) const;
  // An int within [-limit, limit].
  int Small(std::string_view attr, int limit = 1 << 16) const;
  FunctionRef Callee(std::string_view attr) const;
  // The one function of called_computations, a computation of scalars.
  FunctionRef CalledComputation() const;
  // Whether it is the function that JAX writes for its cipher.
  bool IsCipher(const FunctionRef& f) const;

  // The declared type of a result.
  Type ResultType(int i = 0) const;
  // What the numbers of an operand or a result stand for; nullopt: themselves.
  std::optional<Quantization> OperandQuantization(int i) const;
  std::optional<Quantization> ResultQuantization(int i) const;
  // Of how many arrays each element of an operand that is a tuple is made.
  std::vector<size_t> ElementsOf(size_t operand) const;
  // Operands as the artifact counts them, of which a tuple is one; `in` has its arrays.
  int num_operands() const { return static_cast<int>(raw().operands.size); }
  int num_results() const { return static_cast<int>(raw().results.size); }
  // The first `n` operands, and those after them.
  std::vector<Value> First(size_t n) const;
  std::vector<Value> From(size_t n) const;

  // The integers of an operand that the program says: a list, or a matrix row by row.
  std::vector<int64_t> KnownInts(size_t operand) const;
  bool IsKnown(size_t operand) const { return KnownLiteral(operand).has_value(); }

  // Its regions say nothing that is needed.
  void IgnoreRegions() const { regions_read_ += num_regions(); }
  int num_regions() const { return static_cast<int>(raw().regions.size); }
  // A region that uses no values of outside but constants: a computation of scalars.
  FunctionRef Computation(int region) const;
  // The same, of which an op's function inlines what it calls.
  FunctionRef Inlined(int region) const;
  // Counts what an op's function is about to emit of it, so many times, with an op or two for each.
  void WillRepeat(const FunctionRef& f, int64_t times) const;
  // Counts what it is about to emit, of which there is much.
  void WillEmit(int64_t ops) const;
  // The name of the op that a region of two arguments is, and no more; else "".
  std::string_view SoleOp(int region) const;
  // What the regions use of outside, without repetition, in the order of the first uses.
  std::vector<uint32_t> Captures(std::vector<int> regions) const;
  std::vector<Value> ValuesOf(const std::vector<uint32_t>& captures) const;
  // A region as a function: of the captures, then of its own arguments.
  FunctionRef Region(int region, const std::vector<uint32_t>& captures) const {
    return Region(region, captures, {}, b().scope());
  }
  // A region without values of outside, in another scope.
  FunctionRef Within(int region, const Scope& scope) const { return Region(region, {}, {}, scope); }
  // The reader of the op that defines an operand; nullopt for a param.
  std::optional<OpReader> Defining(size_t operand) const;

  // "slice", and "slice: strides".
  std::string What() const;
  std::string What(std::string_view attr) const;
  // "slice (model.py:7)", and "slice (model.py:7): strides": for what is read elsewhere.
  std::string Where() const;
  std::string Where(std::string_view attr) const;
  [[noreturn]] void Malformed(std::string_view problem) const;
  [[noreturn]] void NotSupported(std::string_view problem) const;

 private:
  // The literal that an operand is, or is a broadcast of; nullopt for one that is no constant.
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
  std::optional<DType> result_;  // instead of the one that is declared
  mutable int regions_read_ = 0;
};

// A row: how an op becomes ours.
struct ImportRow {
  std::string_view name;  // "slice"
  std::vector<Value> (*import)(const OpReader& op);
};
// Null for an op that Tessera lacks.
const ImportRow* FindImport(std::string_view dialect, std::string_view name);
// Why it does not import an op that it knows: "takes its data from ..."; "" for another.
std::string_view WhyNotImported(std::string_view name);
// Whether an op may have operands that are tuples or tokens.
bool TakesTuples(std::string_view name);
const ImportRow* FindCollective(std::string_view name);
// Products, and what normalizes batches.
const ImportRow* FindProduct(std::string_view name);
const ImportRow* FindBatchNorm(std::string_view name);
const ImportRow* FindShardy(std::string_view name);
// The op that a composite is, of those known by name; nullopt for every other, or one that the op
// does not fit, which is what its decomposition says.
std::optional<std::vector<Value>> ImportKnownComposite(const OpReader& op);
// What the targets of custom calls mean by which JAX says linear algebra for CPUs: "potrf" of
// lapack_spotrf_ffi, of every type of elements. Null for one that Tessera lacks.
const ImportRow* FindLapack(std::string_view target);
// The k largest, or smallest, of JAX's approx_max_k and approx_min_k: those of all.
std::vector<Value> ImportApproxTopK(const OpReader& op);
std::vector<Value> ImportBitcast(const OpReader& op);
std::vector<Value> ImportRandomBits(const OpReader& op);
// Whether it is the function that JAX writes for its cipher, and what that is here.
bool IsJaxCipher(const Function& f);
std::vector<Value> EmitCipher(const std::vector<Value>& in);
// A manual_computation of a body that is in its scope.
std::vector<Value> EmitManual(Builder& b, const FunctionRef& body, std::vector<Value> args,
                              const std::vector<PartitionSpec>& in_specs,
                              const std::vector<PartitionSpec>& out_specs, const AxisList& manual);
// A custom call of @Sharding: a constraint.
std::vector<Value> ImportShardingCall(const OpReader& op);
// The position along an axis, if `remainder` is of partition_id divided by the axis's stride.
std::optional<Value> PositionAlongAxis(const OpReader& remainder);
// Whether a custom_call of this target is known.
bool KnowsTarget(std::string_view target);

}  // namespace tessera::ir::stablehlo
