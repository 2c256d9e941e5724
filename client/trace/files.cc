// The part of save and load that is no template: gives the leaves of a tree their names, checks the
// file's list of arrays, and leaves the transfer to Session::Save and Session::Load.
#include "client/files.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/session.h"
#include "client/trace/trace.h"

namespace tessera {
namespace {

constexpr char kSingleArrayName[] = "array";  // name of an array that is not in a tree

std::vector<std::string> NamesOf(const Flat& flat, const std::string& path) {
  std::vector<std::string> names = LeafPaths(flat.tree, "");
  if (absl::EndsWith(path, ".npy") && names.size() == 1) return {""};
  for (std::string& name : names) {
    if (!name.empty() && name[0] == '.') name.erase(0, 1);
    if (name.empty()) name = kSingleArrayName;
  }
  return names;
}

void ThrowIfNoArrays(std::string_view what, const Flat& flat, const Site& site) {
  if (!flat.leaves.empty()) return;
  internal::ThrowError(ErrorKind::kValueError, site, ToAbsl(what), ": the tree holds no array");
}

// Throws unless the file has an array of the right type for every leaf.
void CheckFile(const std::string& path, const std::vector<SavedArray>& saved, const Flat& like,
               const std::vector<std::string>& names, const Site& site) {
  for (size_t i = 0; i < names.size(); ++i) {
    const auto found = std::find_if(saved.begin(), saved.end(),
                                    [&](const SavedArray& a) { return a.name == names[i]; });
    if (found == saved.end()) {
      const auto name_of = [](std::string* out, const SavedArray& a) { out->append(a.name); };
      const size_t shown = std::min<size_t>(saved.size(), 8);
      internal::ThrowError(
          ErrorKind::kFileNotFound, site, "load: ", path, " holds no array '", names[i],
          "'; it holds ",
          absl::StrJoin(saved.begin(), saved.begin() + static_cast<long>(shown), ", ", name_of),
          shown < saved.size() ? ", ..." : "");
    }
    const Array& leaf = like.leaves[i];
    if (found->dtype == leaf.dtype() && found->shape == leaf.shape()) continue;
    internal::ThrowError(ErrorKind::kTypeError, site, "load: '", names[i], "' of ", path, " is ",
                         ir::MakeType(found->dtype, found->shape).ToString(), ", expected ",
                         ir::MakeType(leaf.dtype(), leaf.shape()).ToString(), " as in `like`");
  }
}

}  // namespace

std::vector<SavedArray> saved_arrays(const std::string& path, Site site) {
  return internal::OrThrow(Session::Default(site)->service().DescribeFile(path), site);
}

namespace internal {

void SaveLeaves(const Flat& flat, const std::string& path, const SaveOptions& options,
                const Site& site) {
  ThrowIfNoArrays("save", flat, site);
  const std::vector<std::string> names = NamesOf(flat, path);
  std::vector<api::ArrayToSave> arrays;
  std::shared_ptr<Session> session;
  for (size_t i = 0; i < names.size(); ++i) {
    const ConcreteState& c =
        RequireConcrete(absl::StrCat("save '", names[i], "'"), flat.leaves[i], site);
    if (session != nullptr && c.session != session) {
      ThrowError(ErrorKind::kValueError, site, "save: '", names[i],
                 "' belongs to another session than '", names[0],
                 "'. Save the arrays of each session to a separate file");
    }
    session = c.session;
    arrays.push_back({names[i], c.id});
  }
  session->Save(path, arrays, options.overwrite, site);
}

std::vector<Array> LoadLeaves(const Flat& like, const std::string& path, const Mesh* mesh,
                              const std::vector<std::optional<PartitionSpec>>& specs,
                              const Site& site) {
  ThrowIfNoArrays("load", like, site);
  if (CurrentFrame()) ThrowNotReadable("load", like.leaves[0], site);
  std::shared_ptr<Session> session;
  for (const Array& leaf : like.leaves) {
    if (const ConcreteState* c = AsConcrete(leaf); c && !session) session = c->session;
  }
  if (!session) session = Session::Default(site);
  const std::vector<std::string> names = NamesOf(like, path);
  CheckFile(path, OrThrow(session->service().DescribeFile(path), site), like, names, site);
  std::vector<Session::LoadRequest> requests;
  for (size_t i = 0; i < names.size(); ++i) {
    const ConcreteState* c = AsConcrete(like.leaves[i]);
    const std::optional<PartitionSpec> spec = specs.empty() ? std::nullopt : specs[i];
    Session::LoadRequest& r = requests.emplace_back();
    r.name = names[i];
    r.dtype = like.leaves[i].dtype();
    r.shape = like.leaves[i].shape();
    r.mesh = mesh ? *mesh : c ? Mesh{c->placement->mesh, c->placement->devices} : context_mesh();
    r.spec = spec ? *spec : c && !mesh ? c->placement->spec : PartitionSpec{};
  }
  return session->Load(path, requests, site);
}

}  // namespace internal
}  // namespace tessera
