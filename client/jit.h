// jit: a function compiled once per structure, types and placement of its arguments; explain,
// trace.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/call.h"
#include "client/precision.h"
#include "client/session.h"
#include "client/stages.h"

namespace tessera {

namespace internal {

// Whether `argnums` or `argnames` donate it, per leaf of the tuple `args`; empty if both are.
std::vector<bool> DonatedLeaves(const std::string& name, const std::vector<int>& argnums,
                                const std::vector<std::string>& argnames, const TreeNode& args,
                                const Site& site);

// The executables of one jitted function. Thread-safe.
// The types of what `body` answers for arguments of the types of `args`.
std::vector<Type> ResultTypes(const std::vector<Array>& args, FlatBody body);

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
  // Arguments may be abstract.
  static std::shared_ptr<const LoweredCall> Lower(const FlatArgs& args, const Options& options,
                                                  const Site& site, FlatBody body);
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
    bool auto_pcast = true;
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

}  // namespace internal

struct JitOptions {
  std::string name = {};  // for errors and logs; empty: the call site
  // Arguments whose memory may be reused. Using them again throws, unless the run ended before it
  // began. Negative numbers count from the end.
  std::vector<int> donate_argnums = {};
  // The same by name, as parameters of functions have none in C++: that of a field or key of an
  // argument, "state", or of what is in it, "state.mu[0]"; or the path that errors and plans have,
  // "args[1]", "args[0].state". All arrays there are donated. VALUE_ERROR for a name that is in no
  // argument, or without "args[...]" in several.
  std::vector<std::string> donate_argnames = {};
  // On Auto axes; else the planner decides.
  Prefix<PartitionSpec> in_shardings = {}, out_shardings = {};
};

// Compiled once per structure, types and placement of the arguments.
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
    using Tuple = internal::Traced<F, A...>;
    using R = internal::ResultOf<F, Tuple>;
    const FlatCall<Tuple> call(*this, internal::TracedArgs<F>(site_, args...));
    std::shared_ptr<const void> result_structure;  // an R
    auto traced = [&](const std::vector<Array>& in) {
      std::vector<Array> out = call.body(in);
      result_structure = std::make_shared<R>(call.WithoutArrays());
      return out;
    };
    const std::vector<Array> out =
        cache_->Call(typeid(Tuple), call.flat, call.options, site_, traced, &result_structure);
    return internal::UnflattenFilled(*std::static_pointer_cast<const R>(result_structure), out);
  }

  // The program for arguments of these types, which may be abstract: see client/stages.h. Traces
  // the function anew, and runs nothing. Reference: jax.jit(f).lower.
  template <class... A>
  requires internal::Traceable<F, A...>
  auto lower(const A&... args) const {
    using Tuple = internal::Traced<F, A...>;
    const FlatCall<Tuple> call(*this, internal::TracedArgs<F>(site_, args...));
    std::shared_ptr<const internal::LoweredCall> lowered =
        internal::JitCache::Lower(call.flat, call.options, site_, call.body);
    return stages::Lowered<F, Tuple, internal::ResultOf<F, Tuple>>(std::move(lowered),
                                                                   call.WithoutArrays());
  }

  // The plan for these arguments.
  template <class... A>
  api::CompileReply Explain(const A&... args) const {
    return ExplainOn(nullptr, args...);
  }
  // The plan for absent devices; arguments may be abstract. OUT_OF_MEMORY: it does not fit them.
  template <class... A>
  api::CompileReply ExplainFor(const AbsentDevices& devices, const A&... args) const {
    return ExplainOn(&devices, args...);
  }

  int64_t num_compiled() const { return cache_->num_compiled(); }

 private:
  template <class... A>
  api::CompileReply ExplainOn(const AbsentDevices* absent, const A&... args) const {
    const FlatCall<internal::Traced<F, A...>> call(*this, internal::TracedArgs<F>(site_, args...));
    return cache_->Explain(call.flat, call.options, absent, site_, call.body);
  }
  // A flattened call of f_. `like` is the result of f_, set when `body` has run.
  template <class Tuple>
  struct FlatCall {
    using R = internal::ResultOf<F, Tuple>;
    FlatCall(const Jitted& jitted, Tuple args)
        : tuple(std::move(args)),
          flat(internal::FlattenArgs(tuple, "args")),
          body{jitted.f_, tuple, &like},
          options(jitted.OptionsFor(flat.tree, like)) {}
    FlatCall(const FlatCall&) = delete;
    // The structure of the result, when `body` has run.
    R WithoutArrays() const {
      R blank = *like;
      const Array none = abstract({});  // an array, but none that is kept alive
      for_each_leaf(blank, [&](Array& a) {
        if (a.valid()) a = none;
      });
      return blank;
    }

    const Tuple tuple;
    const internal::FlatArgs flat;
    std::optional<R> like;
    const internal::TreeBody<F, Tuple, R> body;
    const internal::JitCache::Options options;
  };
  template <class R>
  internal::JitCache::Options OptionsFor(const TreeNode& args, const std::optional<R>& like) const {
    std::vector<bool> donate = internal::DonatedLeaves(options_.name, options_.donate_argnums,
                                                       options_.donate_argnames, args, site_);
    std::vector<std::optional<PartitionSpec>> in;
    if (options_.in_shardings.given()) {
      in = internal::BroadcastPrefix(options_.in_shardings, args, "jit in_shardings", site_);
    }
    return {options_.name, std::move(donate), std::move(in),
            [this, &like] { return OutShardings(*like); },
            [&like] { return LeafPaths(internal::FlattenFilled(*like).tree, "result"); }};
  }
  template <class R>
  std::vector<std::optional<PartitionSpec>> OutShardings(const R& like) const {
    if (!options_.out_shardings.given()) return {};
    return internal::BroadcastPrefix(options_.out_shardings, internal::FlattenFilled(like).tree,
                                     "jit out_shardings", site_);
  }

  F f_;
  JitOptions options_;
  Site site_;
  std::shared_ptr<internal::JitCache> cache_ = std::make_shared<internal::JitCache>();
};
template <class F>
Jitted<F> jit(F f, JitOptions options = {}, Site site = Site::Here()) {
  return Jitted<F>(std::move(f), std::move(options), site);
}

// The plan as text: shardings, collectives, bytes and memory. Arguments and results are named by
// their paths: "args[0].blocks[0..11].w1", "result.loss".
template <class F, class... A>
std::string explain(const Jitted<F>& f, const A&... args) {
  return f.Explain(args...).explain_text;
}
// The same for absent devices; arguments may be abstract:
//   explain({abstract_mesh({64, 8}, {"data", "model"}), 80LL << 30}, f, abstract({8192, 1024}))
// Throws OUT_OF_MEMORY if the plan does not fit them.
template <class F, class... A>
std::string explain(const AbsentDevices& devices, const Jitted<F>& f, const A&... args) {
  return f.ExplainFor(devices, args...).explain_text;
}

// f's result for arguments of these types (concrete, traced or abstract), with abstract arrays in
// the place of its own: nothing is computed. Reference: jax.eval_shape.
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

// Traces f at the types of the arguments (concrete or abstract).
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
