// Keeps the table of uploaded programs and of unfinished uploads, and counts their bytes. The
// functions of Machine (uploaded_programs.cc) check the requests and call these.
#include "server/scheduler/uploads.h"

#include <iterator>
#include <memory>
#include <string>
#include <utility>

namespace tessera::server::scheduler {

const ProgramUpload& Uploads::Append(const Key& key, ProgramFormat format, int64_t size_bytes,
                                     const std::string& chunk, absl::Time now) {
  ProgramUpload& upload = uploads_[key];
  upload.format = format;
  upload.size_bytes = size_bytes;
  upload.last_chunk = now;
  upload.bytes.append(chunk);
  num_bytes_ += static_cast<int64_t>(chunk.size());
  if (static_cast<int64_t>(upload.bytes.size()) == size_bytes)
    upload.whole = std::make_shared<const std::string>(std::exchange(upload.bytes, {}));
  return upload;
}

void Uploads::Keep(const Key& key) {
  const auto it = uploads_.find(key);
  programs_.emplace(key, UploadedProgram{std::move(it->second.whole), it->second.format});
  uploads_.erase(it);
}

void Uploads::RemoveUpload(const Key& key) {
  const auto it = uploads_.find(key);
  num_bytes_ -= it->second.committed_bytes();
  uploads_.erase(it);
}

void Uploads::RemoveProgram(const Key& key) {
  const auto it = programs_.find(key);
  num_bytes_ -= static_cast<int64_t>(it->second.bytes->size());
  programs_.erase(it);
}

void Uploads::RemoveIdle(absl::Time until) {
  for (auto it = uploads_.begin(); it != uploads_.end();) {
    const auto next = std::next(it);
    if (it->second.last_chunk <= until) RemoveUpload(Key(it->first));
    it = next;
  }
}

void Uploads::Restore(const Key& key, UploadedProgram program) {
  num_bytes_ += static_cast<int64_t>(program.bytes->size());
  programs_.emplace(key, std::move(program));
}

}  // namespace tessera::server::scheduler
