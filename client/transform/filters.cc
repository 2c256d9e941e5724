// The parts of filters.h that are no templates. They work on flattened trees (Flat), leaf by leaf.
#include "client/transform/filters.h"

namespace tessera {
namespace internal {

std::vector<Array> KeepWhere(std::vector<Array> arrays, const std::vector<bool>& chosen, bool keep,
                             const Array& replacement) {
  for (size_t i = 0; i < arrays.size(); ++i)
    if (chosen[i] != keep) arrays[i] = replacement;
  return arrays;
}

std::vector<Array> FirstValidLeaves(const std::vector<Flat>& trees, const Site& site) {
  std::vector<Array> out = trees[0].leaves;
  for (const Flat& tree : trees) {
    CheckSameStructure(trees[0].tree, tree.tree, "tree", ErrorKind::kValueError, "combine: ", site);
    for (size_t i = 0; i < out.size(); ++i)
      if (!out[i].valid()) out[i] = tree.leaves[i];
  }
  return out;
}

}  // namespace internal

std::vector<std::optional<int>> FilteredAxes::Of(const Flat& flat, std::string_view what,
                                                 const Site& site) const {
  if (!axis_of) return internal::BroadcastPrefix(prefix, flat.tree, what, site);
  std::vector<std::optional<int>> out;
  for (const Array& leaf : flat.leaves) out.push_back(axis_of(leaf));
  return out;
}

}  // namespace tessera
