// Explicit axes: shardings that are part of types, and how a program changes them.
//
// On Explicit axes an op's result has the sharding that follows from its operands'; where none
// does, the op throws SHARDING_TYPE_ERROR and takes an `out_sharding`. client/array.h's type()
// tells the sharding of a traced array too.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/array.h"
#include "client/mesh.h"
#include "client/tree.h"

namespace tessera {

// `x` with the sharding `spec` of the mesh in context on its Explicit axes: the way to change a
// type's sharding. `x` itself if it has that sharding. Its derivative moves cotangents back.
// Errors: VALUE_ERROR (no mesh; a spec that does not fit, or that names an axis which is not
// Explicit).
Array reshard(const Arg& x, const PartitionSpec& spec);
// The same of every array of a tree: one spec for all, or a prefix of the tree with one for each
// subtree; None leaves arrays as they are. VALUE_ERROR too if the prefix does not fit the tree.
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

// Something that the SDK decided while tracing, or saw, and that the caller may want otherwise: a
// write at sharded indices that keeps the array's sharding; a loop or branch whose predicate
// differs between devices that exchange data in it; and, only where it is collected, each psum that
// differentiation inserts in a shard_map, as one of data-parallel training is what its writer
// wants.
struct Diagnostic {
  std::string message;
  Site site;  // of the user's call
};
// Collects what this thread's traces have to say for the lifetime of the object; the innermost
// one does. Without any it is logged as a warning.
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

// Whether this thread refuses what JAX refuses, for the lifetime of the object: a write at indices
// whose result's sharding the rules leave open, without `out_sharding`. Otherwise such a write
// keeps the sharding of the array, as a Diagnostic tells.
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

// Whether operands are cast to vary over the same axes, for the lifetime of the object and on this
// thread: inside shard_map with check_vma an array that is equal along an axis, beside one that
// differs, is cast to varying, and so is the operand of a collective. With auto_pcast(false) that
// is VALUE_ERROR, and such casts are written down, lax::pcast. Numbers of C++ are cast all the
// same, which JAX refuses. Reference: jax.auto_pcast.
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

// In scope, on this thread, cond, switch_ and while_loop refuse a predicate that varies along a
// Manual axis over which the branches, or the loop, exchange data: VALUE_ERROR while tracing.
// Devices that decide otherwise than others would wait for one another; the run then fails at its
// collective's deadline. JAX traces such a program, and it hangs. Without this there is a
// Diagnostic. In a shard_map with check_vma off nothing is known, and nothing is said.
class [[nodiscard]] strict_collectives {
 public:
  explicit strict_collectives(bool strict = true);
  ~strict_collectives();
  strict_collectives(const strict_collectives&) = delete;
  strict_collectives& operator=(const strict_collectives&) = delete;

 private:
  bool saved_;
};

// In scope, on this thread, a program that is compiled may not have the planner make a value of
// more than `bytes` whole on several devices unasked: LIMIT_EXCEEDED names the largest such value,
// as it is gathered, or a result that no device shares, with its line. What all_gather in a
// shard_map gathers, or out_shardings say, was asked for. Of nested scopes the innermost counts.
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
// Under auto_pcast(false), throws VALUE_ERROR for operands that do not vary over the same axes.
void CheckVaryAlike(std::string_view op, const std::vector<Array>& operands, const Site& site);
}  // namespace internal

}  // namespace tessera
