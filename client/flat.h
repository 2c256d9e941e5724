// The transforms on flat lists of arrays, called by the templates of transform.h.
//
// Each traces the body into a function, transforms it, and applies the result in the current frame,
// or runs it as a program if there is none. Used by the SDK only.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "client/precision.h"
#include "client/session.h"
#include "client/trace.h"
#include "client/tree.h"
#include "ir/transform/transform.h"

namespace tessera::internal {

std::vector<Type> TypesOf(const std::vector<Array>& arrays);
std::vector<Array> Concat(std::vector<Array> a, const std::vector<Array>& b);
Array FullArray(const Type& type, double value, const Site& site);
// Which values have tangents: those of inexact dtypes.
std::vector<bool> HaveTangents(const std::vector<Type>& types);
// One array for each type: the next one of `arrays` if `given`, else zeros.
std::vector<Array> FillWithZeros(const std::vector<Type>& types, const std::vector<bool>& given,
                                 absl::Span<const Array> arrays, const Site& site);
// "pcast(...)" if that makes the manual axes type of a value of type `have` that of `want`; else
// "".
std::string PcastHint(const Type& have, const Type& want);

// A C++ number as an argument of a traced function: a weakly typed scalar s32 or f32, or s64 if s32
// is too small, or f64 if `use_f64`. A bool is an array of bool. While tracing, a constant.
Array NumberArgument(const Arg& number, bool use_f64);
// Whether an array is f64 or c128.
bool HasFloat64(const std::vector<Array>& arrays);

// Arguments of a transform: a tree, whose leaves have paths that begin with `root`: args[0].w.
struct FlatArgs : Flat {
  std::string_view root;
  std::vector<std::string> paths() const { return LeafPaths(tree, root); }
  // For an error: it makes all of them.
  std::string path(size_t leaf) const { return paths().at(leaf); }
};

// The body's result 0 is the loss. Returns its results, then the gradients of the active arguments.
std::vector<Array> ValueAndGradFlat(const char* name, const FlatArgs& args,
                                    const std::vector<bool>& active, const Site& site,
                                    FlatBody body);

// Returns the results, then their tangents, which are zeros if a result has none.
std::vector<Array> JvpFlat(const FlatArgs& primals, const std::vector<Array>& tangents,
                           const Site& site, FlatBody body);

// The linear map at a point, with its residuals.
struct Linear {
  ir::Linearized parts;
  std::vector<Array> residuals;
  std::vector<Type> in_types, out_types;
  std::vector<std::string> in_paths;
  Site site;
};
struct LinearizedFlat {
  std::vector<Array> results;
  std::shared_ptr<const Linear> linear;
};
LinearizedFlat LinearizeFlat(const char* name, const FlatArgs& args, const Site& site,
                             FlatBody body);
std::vector<Array> PushForward(const Linear& linear, const std::vector<Array>& tangents);
std::vector<Array> PullBack(const Linear& linear, const std::vector<Array>& cotangents);

// Requires: `body` is linear in all of its arguments, which have the types of `like`.
std::vector<Array> LinearTransposeFlat(const FlatArgs& like, const std::vector<Array>& cotangents,
                                       const Site& site, FlatBody body);

// dims[i]: the mapped dim of argument i, or nullopt. `out_dims` is called after `body`.
struct VmapFlat {
  FlatArgs args;
  std::vector<std::optional<int>> dims;
  int64_t axis_size = -1;  // -1: from the arguments
};
std::vector<Array> RunVmap(const VmapFlat& call, const Site& site, FlatBody body,
                           absl::FunctionRef<std::vector<std::optional<int>>()> out_dims);

struct ShardMapFlat {
  FlatArgs args;
  std::vector<PartitionSpec> in_specs;
  Mesh mesh;  // empty: the context's
  ir::AxisList axis_names;
  bool check_vma = true;
};
std::vector<Array> RunShardMap(const ShardMapFlat& call, const Site& site, FlatBody body,
                               absl::FunctionRef<std::vector<PartitionSpec>()> out_specs,
                               absl::FunctionRef<std::vector<std::string>()> out_paths);

struct ScanFlat {
  FlatArgs carry, xs;
  int64_t length = -1;  // -1: from xs
  bool reverse = false;
};
// `body`: carry then x slices -> carry then y slices. Returns carry then stacked ys.
std::vector<Array> RunScan(const ScanFlat& call, const Site& site, FlatBody body);

// `predicate`: carry -> a bool; `body`: carry -> carry. Returns the last carry.
std::vector<Array> RunWhile(const FlatArgs& carry, const Site& site, FlatBody predicate,
                            FlatBody body);
// The results of the branch that `index`, an s32, names; `out_paths` is called after the branches.
std::vector<Array> RunBranches(const char* name, const Array& index, const FlatArgs& args,
                               const Site& site, const std::vector<FlatBody>& branches,
                               absl::FunctionRef<std::vector<std::string>()> out_paths);
// The bounds of fori_loop as arrays of one dtype; if both are numbers, how often it runs.
struct ForiBounds {
  Array lower, upper;
  int64_t count = -1;
  Site site;
};
ForiBounds CheckedBounds(const Arg& lower, const Arg& upper);
// A bool or number as the index of cond's branches, {false, true}; an integer as that of one of
// `size` branches. Errors: TYPE_ERROR for another.
Array IndexOfPredicate(const Arg& pred);
Array IndexOfBranch(const Arg& index, size_t size);

// `rule`: the arguments, then a tangent for each (zeros for integers) -> the results, then a
// tangent for each. Called after `body`.
std::vector<Array> CustomJvpFlat(const FlatArgs& args, const Site& site, FlatBody body,
                                 FlatBody rule);
// `fwd`: as `body`, with residuals after the results. `bwd`: the residuals, then a cotangent for
// each result (zeros for integers) -> a cotangent for each argument; one without a value is zero.
// Called in this order.
std::vector<Array> CustomVjpFlat(const FlatArgs& args, const Site& site, FlatBody body,
                                 FlatBody fwd, FlatBody bwd);
// Each function: leaves like those of b -> the same. Without the transposed ones there is no
// gradient.
struct LinearSolveFlat {
  FlatArgs b;
  FlatBody solve, matvec;
  std::optional<FlatBody> transpose_solve, transpose_matvec;
};
std::vector<Array> RunLinearSolve(const LinearSolveFlat& call, const Site& site);

std::vector<Array> CheckpointFlat(const FlatArgs& args, const Site& site, FlatBody body);

// Whether `argnums` donate it, per leaf of the tuple `args`; empty if `argnums` is.
std::vector<bool> DonatedLeaves(const std::string& name, const std::vector<int>& argnums,
                                const TreeNode& args, const Site& site);

// The executables of one jitted function. Thread-safe.
class JitCache {
 public:
  struct Options {
    const std::string& name;
    std::vector<bool> donate;                                // per leaf of this call
    std::vector<std::optional<PartitionSpec>> in_shardings;  // per leaf; empty: the arguments' own
    // Per result, called after the body; empty: the planner decides.
    std::function<std::vector<std::optional<PartitionSpec>>()> out_shardings;
    std::function<std::vector<std::string>()> out_paths;  // "result.loss", called after the body
  };
  // `type`: that of the tuple of arguments. `like_out`: the structure of the results, set by `body`
  // and cached with the executable.
  std::vector<Array> Call(const std::type_info& type, const FlatArgs& args, const Options& options,
                          const Site& site, FlatBody body, std::shared_ptr<const void>* like_out);
  // With `absent`, plans for absent devices; arguments may then be abstract.
  api::CompileReply Explain(const FlatArgs& args, const Options& options,
                            const AbsentDevices* absent, const Site& site, FlatBody body);
  int64_t num_compiled() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // What an executable was compiled for: that of a number has no placement and no session.
  struct LeafKey {
    Type type;
    std::shared_ptr<const api::Placement> placement;
    const Session* session;
  };
  struct Entry {
    const std::type_info* type;
    TreeNode tree;
    Mesh context;
    lax::Precision precision = lax::Precision::kDefault;  // default_matmul_precision's
    std::vector<LeafKey> leaves;

    std::shared_ptr<Session> session;
    std::shared_ptr<const Session::Executable> executable;
    std::vector<Array> captures;
    std::shared_ptr<const void> like_out;
  };
  std::shared_ptr<const Entry> Compile(const std::type_info& type, const FlatArgs& args,
                                       const Options& options, const Site& site, FlatBody body,
                                       std::shared_ptr<const void>* like_out);
  static bool Matches(const Entry& entry, const std::type_info& type, const FlatArgs& args);
  // Null: none.
  std::shared_ptr<const Entry> Find(size_t hash, const std::type_info& type,
                                    const FlatArgs& args) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  // By a hash of what it was compiled for.
  std::unordered_multimap<size_t, std::shared_ptr<const Entry>> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::internal
