// The transforms on flat lists of arrays: what the templates of transform.h call.
//
// Each traces the body into a function, transforms that, and applies the result in the current
// frame, or as a program of its own when there is none.  Not for users.
#pragma once
#include <any>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "client/session.h"
#include "client/trace.h"
#include "client/tree.h"
#include "ir/transform/transform.h"

namespace tessera::internal {

std::vector<Type> TypesOf(const std::vector<Array>& arrays);

// A number as an argument of a traced function: a scalar that gives way to the dtypes it meets, s32
// or f32; an integer that s32 does not hold is s64.  A bool is an array of bool.  `wide`: a real
// number is f64.  In a trace, a constant of it.
Array NumberArgument(const Arg& number, bool wide);
// Whether an array is of 64-bit real numbers, or complex ones of them.
bool AnyWide(const std::vector<Array>& arrays);

// Arguments of a transform: the arrays and what to call them in errors.
struct FlatArgs {
  std::vector<Array> leaves;
  std::vector<std::string> paths;  // args[0].w
};

// result 0 is the loss.  Returns the body's results, then the gradients of the active arguments.
std::vector<Array> ValueAndGradFlat(const char* name, const FlatArgs& args,
                                    const std::vector<bool>& active, const Site& site,
                                    FlatBody body);

// Results, then their tangents: zeros where there is none.
std::vector<Array> JvpFlat(const FlatArgs& primals, const std::vector<Array>& tangents,
                           const Site& site, FlatBody body);

// The linear map at a point: residuals bound, types kept in full.
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

// `body` is linear in all of its arguments, which have the types of `like`.
std::vector<Array> LinearTransposeFlat(const FlatArgs& like, const std::vector<Array>& cotangents,
                                       const Site& site, FlatBody body);

// dims[i]: the mapped dim of argument i, or nullopt.  `out_dims` answers once the results are
// known.
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
// `body`: carry then x slices -> carry then y slices.  Answers carry then stacked ys.
std::vector<Array> RunScan(const ScanFlat& call, const Site& site, FlatBody body);

std::vector<Array> CheckpointFlat(const FlatArgs& args, const Site& site, FlatBody body);

// Per leaf of the tuple `args`, whether `argnums` donate it; empty when they are.
std::vector<bool> DonatedLeaves(const std::string& name, const std::vector<int>& argnums,
                                const TreeNode& args, const Site& site);

// What one jitted function has compiled.  Thread-safe.
class JitCache {
 public:
  struct Options {
    std::string name;
    std::vector<bool> donate;                                // per leaf of this call
    std::vector<std::optional<PartitionSpec>> in_shardings;  // per leaf; empty: where they lie
    // Per result, asked once the results are known; empty: the planner decides.
    std::function<std::vector<std::optional<PartitionSpec>>()> out_shardings;
    std::function<std::vector<std::string>()> out_paths;  // result.loss; asked as these are
  };
  // `like_out`: the structure of the results, written by `body` and remembered with the program.
  std::vector<Array> Call(const std::string& key, const FlatArgs& args, const Options& options,
                          const Site& site, FlatBody body, std::any* like_out);
  // With `absent`, for devices that are not there; arguments may then be abstract.
  api::CompileReply Explain(const FlatArgs& args, const Options& options,
                            const AbsentDevices* absent, const Site& site, FlatBody body);
  int64_t num_compiled() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Entry {
    std::shared_ptr<Session> session;
    std::shared_ptr<const Session::Executable> executable;
    std::vector<Array> hidden;
    std::any like_out;
  };
  mutable absl::Mutex mu_;
  std::map<std::string, std::shared_ptr<const Entry>> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::internal
