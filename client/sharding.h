// Explicit axes: shardings that are part of types, and how a program changes them.
//
// On Explicit axes an op's result has the sharding that follows from the operands' shardings. If
// none follows, the op throws SHARDING_TYPE_ERROR and needs an `out_sharding`. Array::type()
// (client/array.h) shows the sharding of traced arrays too.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/array.h"
#include "client/mesh.h"
#include "client/tree.h"

namespace tessera {

// Returns `x` with the sharding `spec` on the Explicit axes of the mesh in context: the way to
// change the sharding in a type. Returns `x` itself if it has that sharding. The derivative moves
// the cotangents back. Errors: VALUE_ERROR without a mesh, or if the spec does not fit or names an
// axis that is not Explicit. Reference: jax.sharding.reshard.
Array reshard(const Arg& x, const PartitionSpec& spec);
// Like reshard above, for every array of a tree. `specs` is one spec for all arrays, or a prefix of
// the tree with one spec for each subtree. None leaves arrays unchanged. Throws VALUE_ERROR also if
// the prefix does not fit the tree.
template <class T>
requires(!std::is_convertible_v<const T&, Arg>) T
    reshard(const T& tree, const Prefix<PartitionSpec>& specs, Site site = Site::Here()) {
  const Flat flat = flatten(tree);
  const std::vector<std::optional<PartitionSpec>> all =
      internal::BroadcastPrefix(specs, flat.tree, "reshard out_shardings", site);
  std::vector<Array> out;
  for (size_t i = 0; i < all.size(); ++i)
    out.push_back(all[i] ? reshard(Arg(flat.leaves[i], site), *all[i]) : flat.leaves[i]);
  return unflatten(tree, out);
}

// A message about a program that the SDK traces. It reports something suspicious, or a decision of
// the SDK that the caller may want to make differently:
// - a write at sharded indices that keeps the array's sharding;
// - a loop or branch whose predicate differs between devices that exchange data in it;
// - each psum that differentiation inserts in a shard_map. Data-parallel training wants such a
//   psum, so it is reported only in a collect_diagnostics scope.
struct Diagnostic {
  std::string message;
  Site site;  // site of the user's call
};
// Collects the diagnostics of this thread's traces for the lifetime of the object. If several
// objects exist, the innermost one collects. Without any, diagnostics are logged as warnings.
class [[nodiscard]] collect_diagnostics {
 public:
  collect_diagnostics();
  ~collect_diagnostics();
  collect_diagnostics(const collect_diagnostics&) = delete;
  collect_diagnostics& operator=(const collect_diagnostics&) = delete;
  const std::vector<Diagnostic>& list() const { return list_; }

 private:
  friend void AddDiagnostic(std::string message, const Site& site);
  std::vector<Diagnostic> list_;
  collect_diagnostics* outer_;
};
void AddDiagnostic(std::string message, const Site& site);

// Refuses on this thread, for the lifetime of the object, the writes at indices that JAX refuses:
// those without `out_sharding` whose result's sharding the rules leave open. Otherwise such a write
// keeps the sharding of the array, and a Diagnostic reports it.
class [[nodiscard]] strict_sharding {
 public:
  explicit strict_sharding(bool strict = true);
  ~strict_sharding();
  strict_sharding(const strict_sharding&) = delete;
  strict_sharding& operator=(const strict_sharding&) = delete;

 private:
  bool saved_;
};
bool is_strict_sharding();

// Says whether operands are cast to vary over the same axes, on this thread and for the lifetime of
// the object. Inside shard_map with check_vma, an array that is equal along an axis is cast to
// varying if it stands beside one that differs, or if it is the operand of a collective. With
// auto_pcast(false) these cases throw VALUE_ERROR, and the user writes the casts with lax::pcast.
// C++ numbers are still cast, which JAX refuses. Reference: jax.auto_pcast.
class [[nodiscard]] auto_pcast {
 public:
  explicit auto_pcast(bool enabled);
  ~auto_pcast();
  auto_pcast(const auto_pcast&) = delete;
  auto_pcast& operator=(const auto_pcast&) = delete;

 private:
  bool saved_;
};
bool is_auto_pcast();

// In scope, on this thread, cond, switch_ and while_loop throw VALUE_ERROR while tracing if the
// predicate varies along a Manual axis over which the branches or the loop exchange data. Devices
// that decide differently would wait for one another, and the run would fail at its collective's
// deadline. JAX traces such a program, and it hangs. Outside such a scope such a program adds a
// Diagnostic. In a shard_map with check_vma off it is not known along which axes the predicate
// varies, and nothing is reported.
class [[nodiscard]] strict_collectives {
 public:
  explicit strict_collectives(bool strict = true);
  ~strict_collectives();
  strict_collectives(const strict_collectives&) = delete;
  strict_collectives& operator=(const strict_collectives&) = delete;

 private:
  bool saved_;
};

// In scope, on this thread, compiling a program throws LIMIT_EXCEEDED if the planner, without being
// asked to, makes a value of more than `bytes` bytes whole on several devices. The error names the
// largest such value with its line: a value that is gathered, or a result that is whole on each
// device. Values that an all_gather in a shard_map gathers, and results with out_shardings, were
// asked for. If scopes are nested, the innermost counts.
class [[nodiscard]] replication_budget {
 public:
  explicit replication_budget(int64_t bytes);
  ~replication_budget();
  replication_budget(const replication_budget&) = delete;
  replication_budget& operator=(const replication_budget&) = delete;

 private:
  int64_t saved_;
};

namespace internal {
// Returns whether a collect_diagnostics is in scope on this thread.
bool CollectsDiagnostics();
// Throws VALUE_ERROR under auto_pcast(false) for operands that do not vary over the same axes.
void CheckVaryAlike(std::string_view op, const std::vector<Array>& operands, const Site& site);
}  // namespace internal

}  // namespace tessera
