// Saves and loads trees of arrays. Each worker writes and reads its own shards, in files below its
// --files-dir, or below EmbeddedOptions::files_dir in an embedded cluster.
//
//   save(state, "run7/state.safetensors", {.overwrite = true});
//   state = load(state, "run7/state.safetensors");
//
// An array's name in the file is its path in the tree: "params.w1", "blocks[0].w1". A single array
// has the name "array". Static leaves are not saved. A .npy file holds one array, without a name.
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
  bool overwrite = false;  // if false, an existing file gives ALREADY_EXISTS
};

// Name, dtype and shape of an array in a file.
using SavedArray = api::FileArrayInfo;
// Lists the arrays that a file has, in the file's order. Asks the cluster of the default session.
// Throws FILE_NOT_FOUND if there is no such file.
std::vector<SavedArray> saved_arrays(const std::string& path, Site site = Site::Here());

namespace internal {
void SaveLeaves(const Flat& flat, const std::string& path, const SaveOptions& options,
                const Site& site);
// If `mesh` is null, each leaf is loaded onto the mesh of its leaf in `like`, or else onto the mesh
// in context. `specs` is empty or has one entry per leaf.
std::vector<Array> LoadLeaves(const Flat& like, const std::string& path, const Mesh* mesh,
                              const std::vector<std::optional<PartitionSpec>>& specs,
                              const Site& site);
inline std::vector<std::optional<PartitionSpec>> SpecsOf(const Prefix<PartitionSpec>& shardings,
                                                         const Flat& like, const Site& site) {
  if (!shardings.given()) return {};
  return BroadcastPrefix(shardings, like.tree, "load shardings", site);
}
}  // namespace internal

// Writes the arrays of a tree, which must belong to one session. Returns when the file is complete.
// Throws VALUE_ERROR for a tree without arrays or with arrays of several sessions.
template <class T>
void save(const T& tree, const std::string& path, SaveOptions options = {},
          Site site = Site::Here()) {
  internal::SaveLeaves(flatten(tree), path, options, site);
}

// Loads a tree with the structure of `like`, whose arrays may be abstract. The file must contain an
// array with the name of each leaf (else FILE_NOT_FOUND) and with its dtype and shape (else
// TYPE_ERROR). It may contain other arrays. Returns before the arrays are ready. Each array has the
// sharding that `shardings` gives, or else that of its leaf in `like`. It lies on the leaf's mesh,
// or else on the mesh in context.
template <class T>
T load(T like, const std::string& path, const Prefix<PartitionSpec>& shardings = {},
       Site site = Site::Here()) {
  const Flat flat = flatten(like);
  return unflatten(
      std::move(like),
      internal::LoadLeaves(flat, path, nullptr, internal::SpecsOf(shardings, flat, site), site));
}
// Like load above, but onto another mesh. Arrays without an entry in `shardings` are replicated.
template <class T>
T load(T like, const std::string& path, const Mesh& mesh, const Prefix<PartitionSpec>& shardings,
       Site site = Site::Here()) {
  const Flat flat = flatten(like);
  return unflatten(
      std::move(like),
      internal::LoadLeaves(flat, path, &mesh, internal::SpecsOf(shardings, flat, site), site));
}

}  // namespace tessera
