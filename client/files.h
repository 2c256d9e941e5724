// Saves and loads trees of arrays. Each worker writes and reads its own shards, in files under its
// --files-dir, or EmbeddedOptions::files_dir in an embedded cluster.
//
//   save(state, "run7/state.safetensors", {.overwrite = true});
//   state = load(state, "run7/state.safetensors");
//
// An array's name in the file is its path in the tree: "params.w1", "blocks[0].w1"; a single array
// has the name "array". Static leaves are not saved. A .npy holds one array, without a name.
//
// Saving is atomic: a save that is interrupted leaves the previous file. A file may be loaded onto
// another number of devices than it was saved from.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/array.h"
#include "client/mesh.h"
#include "client/tree.h"
#include "ir/api/files.h"

namespace tessera {

struct SaveOptions {
  bool overwrite = false;  // if false, an existing file is ALREADY_EXISTS
};

// Name, dtype and shape of an array in a file.
using SavedArray = api::FileArrayInfo;
// The arrays of a file, in its order. FILE_NOT_FOUND.
std::vector<SavedArray> saved_arrays(const std::string& path, Site site = Site::Here());

namespace internal {
void SaveLeaves(const Flat& flat, const std::string& path, const SaveOptions& options,
                const Site& site);
// `mesh` null: the mesh of each leaf of `like`, or else the one in context. `specs` is empty or has
// one entry per leaf.
std::vector<Array> LoadLeaves(const Flat& like, const std::string& path, const Mesh* mesh,
                              const std::vector<std::optional<PartitionSpec>>& specs,
                              const Site& site);
inline std::vector<std::optional<PartitionSpec>> SpecsOf(const Prefix<PartitionSpec>& shardings,
                                                         const Flat& like, const Site& site) {
  if (!shardings.given()) return {};
  return BroadcastPrefix(shardings, like.tree, "load shardings", site);
}
}  // namespace internal

// Writes the arrays of a tree, which must be of one session; returns when the file is complete.
template <class T>
void save(const T& tree, const std::string& path, SaveOptions options = {},
          Site site = Site::Here()) {
  internal::SaveLeaves(flatten(tree), path, options, site);
}

// Loads a tree with the structure of `like`, whose arrays may be abstract. The file must contain
// arrays of those names, dtypes and shapes (else TYPE_ERROR), and may contain others. Returns
// before the arrays are ready. Each has the sharding of `shardings`, or else of its leaf in `like`,
// on the leaf's mesh or the one in context.
template <class T>
T load(T like, const std::string& path, const Prefix<PartitionSpec>& shardings = {},
       Site site = Site::Here()) {
  const Flat flat = flatten(like);
  return unflatten(
      std::move(like),
      internal::LoadLeaves(flat, path, nullptr, internal::SpecsOf(shardings, flat, site), site));
}
// Loads onto another mesh; arrays without an entry in `shardings` are replicated.
template <class T>
T load(T like, const std::string& path, const Mesh& mesh, const Prefix<PartitionSpec>& shardings,
       Site site = Site::Here()) {
  const Flat flat = flatten(like);
  return unflatten(
      std::move(like),
      internal::LoadLeaves(flat, path, &mesh, internal::SpecsOf(shardings, flat, site), site));
}

}  // namespace tessera
