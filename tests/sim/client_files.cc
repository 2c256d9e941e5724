// The actions of a client on files. It saves arrays, sometimes over existing files, looks at files
// and loads them.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/status.h"
#include "tests/sim/client_call.h"

namespace tessera::sim {
namespace {

constexpr size_t kFilesMax = 8;

}  // namespace

void Client::HandleFiles() {
  Random& random = world_->random();
  if (files_.size() < kFilesMax && random.OneIn(4)) {
    const std::string path = absl::StrCat("f", life_, "-", ++last_request_, ".safetensors");
    files_[path].is_new = true;
    return Save(path);
  }
  if (files_.empty()) return;
  auto it = files_.begin();
  std::advance(it, random.Below(static_cast<int64_t>(files_.size())));
  if (random.OneIn(5)) return DescribeSavedFile(it->first);
  if (!it->second.is_free()) return;
  if (random.OneIn(16)) {
    files_.erase(it);
  } else if (it->second.is_there && !random.OneIn(4)) {
    Load(it->first);
  } else {
    Save(it->first);
  }
}

// Saves some arrays to the path. Until the save has been seen to end, the contents of the file are
// unknown. A save without an answer may still happen, so the client then forgets the path instead
// of expecting anything of it.
void Client::Save(const std::string& path) {
  File& file = files_.at(path);
  scheduler::SaveArrays e;
  e.path = path;
  e.overwrite = !file.is_new || world_->random().OneIn(2);
  std::map<std::string, double> values;
  const int64_t arrays = 1 + world_->random().Below(3);
  for (int64_t i = 0; i < arrays && !arrays_.empty(); ++i) {
    const uint64_t array = AnyArray();
    const std::string name = absl::StrCat("a", i);
    e.arrays.push_back({name, array});
    values[name] = arrays_.at(array).value;
  }
  if (e.arrays.empty()) return;
  const bool was_there = file.is_there;
  file.is_there = false;
  file.has_open_call = true;
  Ask(absl::StrCat("save to ", path), e, [=, this](const scheduler::Reply& reply) {
    if (reply.status.ok()) {
      const uint64_t operation = std::get<api::Operation>(reply.body).id;
      checker_->OnAccepted(operation);
      operations_.insert(operation);
    }
    const auto it = files_.find(path);
    if (it == files_.end()) return;
    File& saved = it->second;
    saved.has_open_call = false;
    if (reply.status.ok()) {
      saved.save = std::get<api::Operation>(reply.body).id;
      saved.values = values;
      Wait(saved.save, /*until_ended=*/true);
    } else if (ReasonOf(reply.status).empty() ||
               KindOf(reply.status) == ErrorKind::kOperationNotFound) {
      // The save may still happen, or it has happened and the coordinator has forgotten its
      // operation since.
      files_.erase(it);
    } else {
      saved.is_there = was_there;
    }
  });
}

void Client::UpdateFiles(const api::Operation& operation, bool known) {
  const bool done = known && operation.state == api::OperationState::kDone;
  const bool failed = known && !done;
  const ErrorKind kind = failed ? KindOf(operation.error) : ErrorKind::kCancelled;
  for (auto it = files_.begin(); it != files_.end();) {
    File& file = it->second;
    if (file.loads.erase(operation.id) > 0 && kind == ErrorKind::kFileNotFound)
      world_->Violate("file ", it->first,
                      " was saved, and cannot be loaded: ", std::string(operation.error.message()));
    const bool saved = file.save == operation.id;
    if (saved && file.is_new && kind == ErrorKind::kAlreadyExists)
      world_->Violate("file ", it->first, " was saved twice");
    if (saved) {
      file.save = 0;
      file.is_new = false;
      file.is_there = done;
    }
    // An executor that is cut off may still give the path to the draft that could not be saved.
    it = saved && !done ? files_.erase(it) : std::next(it);
  }
}

void Client::DescribeSavedFile(const std::string& path) {
  scheduler::DescribeFile e;
  e.path = path;
  const File was = files_.at(path);
  const bool certain = was.is_there && was.is_free();
  Ask(absl::StrCat("look at ", path), e, [=, this](const scheduler::Reply& reply) {
    // The file may have been saved anew since the question was sent.
    const auto it = files_.find(path);
    if (!certain || it == files_.end() || !it->second.is_there || it->second.values != was.values)
      return;
    if (!reply.status.ok()) {
      if (KindOf(reply.status) == ErrorKind::kFileNotFound)
        world_->Violate("file ", path, " was saved, and is not there");
      return;
    }
    const auto& arrays = std::get<std::vector<api::FileArrayInfo>>(reply.body);
    const bool same =
        arrays.size() == was.values.size() &&
        std::all_of(arrays.begin(), arrays.end(), [&](const api::FileArrayInfo& array) {
          return was.values.count(array.name) > 0;
        });
    if (!same) world_->Violate("file ", path, " does not hold what was saved");
  });
}

// Loads the file's arrays with placements of known programs. A file that was seen to be saved must
// be there, and each loaded array must have the value that was saved under its name.
void Client::Load(const std::string& path) {
  File& file = files_.at(path);
  scheduler::LoadArrays e;
  e.session = session_;
  e.path = path;
  for (const auto& [name, value] : file.values)
    e.arrays.push_back({name, AnyProgram().in[0].placement});
  file.has_open_call = true;
  const std::map<std::string, double> values = file.values;
  Ask(absl::StrCat("load from ", path), e, [=, this](const scheduler::Reply& reply) {
    const auto it = files_.find(path);
    if (it != files_.end()) it->second.has_open_call = false;
    if (!reply.status.ok()) {
      if (KindOf(reply.status) == ErrorKind::kSessionNotFound) OnSessionLost(e.session);
      if (KindOf(reply.status) == ErrorKind::kFileNotFound && it != files_.end())
        world_->Violate("file ", path, " was saved, and cannot be loaded");
      return;
    }
    const auto& made = std::get<scheduler::PendingArrays>(reply.body);
    checker_->OnAccepted(made.operation.id);
    operations_.insert(made.operation.id);
    if (it != files_.end()) {
      it->second.loads.insert(made.operation.id);
      Wait(made.operation.id, /*until_ended=*/true);
    }
    auto value = values.begin();
    for (const scheduler::ArrayInfo& info : made.arrays) {
      checker_->OnAcknowledged("array", info.array);
      checker_->OnOwned(caller_.tenant, info.array);
      if (e.session == session_)
        arrays_[info.array] = {value->second, *info.spec, e.session, made.operation.id};
      ++value;
    }
  });
}

}  // namespace tessera::sim
