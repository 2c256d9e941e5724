// jit: a function that is compiled once for each structure, types and placement of its arguments.
// Declares explain, eval_shape and trace, too.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "client/precision.h"
#include "client/session.h"
#include "client/transform/call.h"
#include "client/transform/stages.h"

namespace tessera {

namespace internal {

// Returns the types of the results of `body` for arguments with the types of `args`.
std::vector<Type> ResultTypes(const std::vector<Array>& args, FlatBody body);

}  // namespace internal

struct JitOptions {
  std::string name = {};  // appears in errors and logs; if empty, the call site
  // Indices of the arguments whose memory may be reused. Negative numbers count from the end. Using
  // such an argument again throws ARRAY_DELETED, unless the run failed or was cancelled before it
  // began.
  std::vector<int> donate_argnums = {};
  // Names of the arguments, or of parts of arguments, that are donated. C++ parameters have no
  // names, so a name is that of a field or key of an argument ("state"), that of a part of such a
  // field ("state.mu[0]"), or the path that errors and plans show ("args[1]", "args[0].state"). All
  // arrays in the named part are donated. VALUE_ERROR for a name that no argument has, and for a
  // name without "args[...]" that several arguments have.
  std::vector<std::string> donate_argnames = {};
  // Shardings on Auto axes. Where none is given, the planner decides.
  Prefix<PartitionSpec> in_shardings = {}, out_shardings = {};
};

namespace internal {

// A call of a jitted function, in terms of flat lists of arrays.
struct JitCall {
  const JitOptions& options;
  const Site& site;
  const FlatArgs& args;
  const std::type_info& type;  // type of the tuple of arguments
  FlatBody body;
  // `body` sets `structure` to the structure of the results, which is cached with the executable.
  // `result_tree` returns the tree of the results; call it after `body`.
  std::shared_ptr<const void>* structure;
  absl::FunctionRef<TreeNode()> result_tree;
};
// Holds the executables of one jitted function. Thread-safe.
class JitCache;
std::shared_ptr<JitCache> MakeJitCache();
std::vector<Array> CallJitted(JitCache& cache, const JitCall& call);
// Returns the plan for the arguments. With `absent`, plans for absent devices; arguments may then
// be abstract.
api::CompileReply ExplainJitted(const JitCall& call, const AbsentDevices* absent);
// Returns the program for the arguments, which may be abstract.
std::shared_ptr<const LoweredCall> LowerJitted(const JitCall& call);
int64_t NumCompiled(const JitCache& cache);

// Replaces an array by a blank one, which keeps no memory on a device alive.
void BlankLeaf(Array& a);

}  // namespace internal

// A jitted function. It is compiled once for each structure, types and placement of the arguments.
template <class F>
class Jitted {
 public:
  Jitted(F f, JitOptions options, Site site)
      : f_(std::move(f)), options_(std::move(options)), site_(site) {
    if (options_.name.empty()) options_.name = "jit(" + site.ToString() + ")";
  }

  template <class... A>
  requires internal::Traceable<F, A...> internal::ResultOf<F, internal::Traced<F, A...>>
  operator()(const A&... args) const {
    const FlatCall<internal::Traced<F, A...>> call(*this, internal::TracedArgs<F>(site_, args...));
    const std::vector<Array> out = internal::CallJitted(*cache_, call.call);
    return internal::UnflattenFilled(call.result(), out);
  }

  // Returns the program for arguments of these types, which may be abstract: see stages.h.
  // Traces the function anew, and runs nothing. Reference: jax.jit(f).lower.
  template <class... A>
  requires internal::Traceable<F, A...>
  auto lower(const A&... args) const {
    using Tuple = internal::Traced<F, A...>;
    const FlatCall<Tuple> call(*this, internal::TracedArgs<F>(site_, args...));
    std::shared_ptr<const internal::LoweredCall> lowered = internal::LowerJitted(call.call);
    return stages::Lowered<F, Tuple, internal::ResultOf<F, Tuple>>(std::move(lowered),
                                                                   call.result());
  }

  // Returns the plan for these arguments.
  template <class... A>
  api::CompileReply Explain(const A&... args) const {
    return ExplainOn(nullptr, args...);
  }
  // Returns the plan for absent devices. The arguments may be abstract. Throws OUT_OF_MEMORY if the
  // plan does not fit the devices.
  template <class... A>
  api::CompileReply ExplainFor(const AbsentDevices& devices, const A&... args) const {
    return ExplainOn(&devices, args...);
  }

  // Returns how many executables the cache holds.
  int64_t num_compiled() const { return internal::NumCompiled(*cache_); }

 private:
  template <class... A>
  api::CompileReply ExplainOn(const AbsentDevices* absent, const A&... args) const {
    const FlatCall<internal::Traced<F, A...>> call(*this, internal::TracedArgs<F>(site_, args...));
    return internal::ExplainJitted(call.call, absent);
  }
  // A call of f_ with flattened arguments.
  template <class Tuple>
  struct FlatCall {
    using R = internal::ResultOf<F, Tuple>;
    FlatCall(const Jitted& jitted, Tuple args)
        : f(jitted.f_),
          tuple(std::move(args)),
          flat(internal::FlattenArgs(tuple, "args")),
          call{jitted.options_, jitted.site_, flat, typeid(Tuple), *this, &structure, *this} {}
    FlatCall(const FlatCall&) = delete;
    // The body of the call. It keeps the structure of the result, without its arrays.
    std::vector<Array> operator()(const std::vector<Array>& in) const {
      std::optional<R> like;
      std::vector<Array> out = internal::TreeBody<F, Tuple, R>{f, tuple, &like}(in);
      tree::WalkLeaves(*like, internal::BlankLeaf);
      structure = std::make_shared<const R>(*std::move(like));
      return out;
    }
    // Returns the tree of the result. Requires that the body has run.
    TreeNode operator()() const { return internal::FlattenFilled(result()).tree; }
    const R& result() const { return *static_cast<const R*>(structure.get()); }

    const F& f;
    const Tuple tuple;
    const internal::FlatArgs flat;
    mutable std::shared_ptr<const void> structure;  // points to an R
    const internal::JitCall call;
  };

  F f_;
  JitOptions options_;
  Site site_;
  std::shared_ptr<internal::JitCache> cache_ = internal::MakeJitCache();
};
template <class F>
Jitted<F> jit(F f, JitOptions options = {}, Site site = Site::Here()) {
  return Jitted<F>(std::move(f), std::move(options), site);
}

// Returns the plan as text: shardings, collectives, bytes and memory. The text names arguments and
// results by their paths: "args[0].blocks[0..11].w1", "result.loss".
template <class F, class... A>
std::string explain(const Jitted<F>& f, const A&... args) {
  return f.Explain(args...).explain_text;
}
// Like explain above, but for absent devices. Arguments may be abstract:
//   explain({abstract_mesh({64, 8}, {"data", "model"}), 80LL << 30}, f, abstract({8192, 1024}))
// Throws OUT_OF_MEMORY if the plan does not fit them.
template <class F, class... A>
std::string explain(const AbsentDevices& devices, const Jitted<F>& f, const A&... args) {
  return f.ExplainFor(devices, args...).explain_text;
}

// Returns f's result for arguments of these types (concrete, traced or abstract), with abstract
// arrays in place of its arrays. The call computes nothing. Reference: jax.eval_shape.
template <class F, class... A>
auto eval_shape(const F& f, const A&... args) {
  using Tuple = internal::Traced<F, A...>;
  using R = internal::ResultOf<F, Tuple>;
  const Tuple tuple = internal::TracedArgs<F>(Site{}, args...);
  std::optional<R> like;
  const std::vector<Type> types = internal::ResultTypes(
      internal::FlattenFilled(tuple).leaves, internal::TreeBody<F, Tuple, R>{f, tuple, &like});
  R out = *like;
  size_t next = 0;
  for_each_leaf(out, [&](Array& a) {
    if (a.valid()) a = abstract_of(types[next++]);
  });
  return out;
}

// Traces f for arguments with these types (concrete or abstract), and returns the program.
template <class F, class... A>
internal::TracedProgram trace(const F& f, const A&... args) {
  using Tuple = internal::Traced<F, A...>;
  using R = internal::ResultOf<F, Tuple>;
  const Tuple tuple = internal::TracedArgs<F>(Site{}, args...);
  std::optional<R> like;
  return internal::TraceProgram("trace", Site{}, internal::FlattenFilled(tuple).leaves,
                                internal::TreeBody<F, Tuple, R>{f, tuple, &like});
}

}  // namespace tessera
