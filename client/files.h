// Trees of arrays in files, which the workers write and read below their folder of files
// (--files-dir), each its own shards; in an embedded cluster below EmbeddedOptions::files_dir.
//
//   save(state, "run7/state.safetensors", {.overwrite = true});
//   state = load(state, "run7/state.safetensors");
//
// An array's name in the file is its path in the tree: "params.w1", "blocks[0].w1"; an array alone
// is "array". Static leaves are not saved. A .npy holds one array, without a name.
//
// A file appears under its name at once, when it is whole and on the disk: who is killed while it
// saves leaves the file that was there before.  Any number of devices may read what others wrote.
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
  bool overwrite = false;  // a file that is there; else that is ALREADY_EXISTS
};

// Name, dtype and shape of an array in a file.
using SavedArray = api::FileArrayInfo;
// What a file holds, in its order.  FILE_NOT_FOUND.
std::vector<SavedArray> saved_arrays(const std::string& path, Site site = Site::Here());

namespace internal {
void SaveLeaves(const Flat& flat, const std::string& path, const SaveOptions& options,
                const Site& site);
// `mesh` null: where each leaf of `like` lies, or the mesh in context.  `specs` is empty, or one
// per leaf.
std::vector<Array> LoadLeaves(const Flat& like, const std::string& path, const Mesh* mesh,
                              const std::vector<std::optional<PartitionSpec>>& specs,
                              const Site& site);
inline std::vector<std::optional<PartitionSpec>> SpecsOf(const Prefix<PartitionSpec>& shardings,
                                                         const Flat& like, const Site& site) {
  if (!shardings.given()) return {};
  return BroadcastPrefix(shardings, like.tree, "load shardings", site);
}
}  // namespace internal

// Writes the arrays of a tree, which are of one session; returns when the file is there.
template <class T>
void save(const T& tree, const std::string& path, SaveOptions options = {},
          Site site = Site::Here()) {
  internal::SaveLeaves(flatten(tree), path, options, site);
}

// A tree like `like`, whose arrays may be abstract, out of a file that holds arrays of those names,
// dtypes and shapes, and perhaps others; TYPE_ERROR says which differs. The arrays may be used at
// once. Each lies as `shardings` say, on the mesh in context or the leaf's own; where they say
// nothing, as the leaf of `like` does.
template <class T>
T load(T like, const std::string& path, const Prefix<PartitionSpec>& shardings = {},
       Site site = Site::Here()) {
  const Flat flat = flatten(like);
  return unflatten(
      std::move(like),
      internal::LoadLeaves(flat, path, nullptr, internal::SpecsOf(shardings, flat, site), site));
}
// On another mesh; where `shardings` say nothing, whole on each device.
template <class T>
T load(T like, const std::string& path, const Mesh& mesh, const Prefix<PartitionSpec>& shardings,
       Site site = Site::Here()) {
  const Flat flat = flatten(like);
  return unflatten(
      std::move(like),
      internal::LoadLeaves(flat, path, &mesh, internal::SpecsOf(shardings, flat, site), site));
}

}  // namespace tessera
