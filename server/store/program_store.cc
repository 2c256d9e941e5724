#include "server/store/program_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status.h"
#include "ir/api/crc32c.h"

namespace tessera::server::store {
namespace {

bool IsHash(const std::string& text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

absl::Status NoProgram(const std::string& sha256) {
  return MakeError(ErrorKind::kProgramNotFound,
                   absl::StrCat("program ", sha256.substr(0, 64),
                                " is not uploaded, or was dropped; upload it"));
}

}  // namespace

void ProgramStore::DropIdle(absl::Time now) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    const Entry& e = it->second;
    if (e.whole != nullptr || e.checking || now - e.last_chunk < limits_.idle_max) {
      ++it;
      continue;
    }
    bytes_ -= static_cast<int64_t>(e.partial.size());
    it = entries_.erase(it);
  }
}

absl::StatusOr<ProgramStore::Progress> ProgramStore::Append(const Key& key, const Chunk& chunk,
                                                            absl::Time now, Bytes* whole) {
  const auto found = entries_.find(key);
  if (found != entries_.end() && (found->second.whole != nullptr || found->second.checking))
    return Progress{found->second.size_bytes, found->second.whole != nullptr};
  const int64_t committed =
      found == entries_.end() ? 0 : static_cast<int64_t>(found->second.partial.size());
  if (chunk.data.empty()) return Progress{committed, false};
  if (chunk.size_bytes <= 0 ||
      (found != entries_.end() && chunk.size_bytes != found->second.size_bytes))
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("upload: size_bytes is ", chunk.size_bytes, ", expected ",
                                  found == entries_.end()
                                      ? std::string("the size of all bytes")
                                      : absl::StrCat(found->second.size_bytes, " as before")));
  if (chunk.size_bytes > limits_.program_bytes_max)
    return MakeError(ErrorKind::kLimitExceeded,
                     absl::StrCat("upload: the program has ", chunk.size_bytes, " bytes, at most ",
                                  limits_.program_bytes_max, " are accepted (max_program_bytes)"));
  const auto size = static_cast<int64_t>(chunk.data.size());
  if (chunk.offset != committed || size > chunk.size_bytes - committed)
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat("upload: a chunk of ", size, " bytes at ", chunk.offset, " when ", committed,
                     " of ", chunk.size_bytes, " are there; go on from ", committed));
  if (found == entries_.end() && static_cast<int64_t>(entries_.size()) >= limits_.programs_max)
    return MakeError(ErrorKind::kLimitExceeded,
                     absl::StrCat("upload: ", entries_.size(), " programs are kept, at most ",
                                  limits_.programs_max, " are (programs_max); delete some"));
  if (bytes_ + size > limits_.bytes_max)
    return MakeError(
        ErrorKind::kLimitExceeded,
        absl::StrCat("upload: programs have ", bytes_, " bytes, at most ", limits_.bytes_max,
                     " are kept (programs_bytes_max); delete some"));
  Entry& entry = entries_[key];
  entry.size_bytes = chunk.size_bytes;
  entry.last_chunk = now;
  entry.partial.append(chunk.data);
  bytes_ += size;
  if (static_cast<int64_t>(entry.partial.size()) == entry.size_bytes) {
    entry.checking = true;
    *whole = std::make_shared<const std::string>(std::exchange(entry.partial, {}));
  }
  return Progress{committed + size, false};
}

absl::StatusOr<ProgramStore::Progress> ProgramStore::Upload(const std::string& tenant,
                                                            const Chunk& chunk, absl::Time now,
                                                            const CheckFn& check) {
  if (!IsHash(chunk.sha256))
    return MakeError(ErrorKind::kValueError,
                     "upload: sha256 is not 64 lower-case hex digits of all bytes' SHA-256");
  if (!chunk.data.empty() && api::Crc32c(0, chunk.data.data(), chunk.data.size()) != chunk.crc32c)
    return MakeError(ErrorKind::kChecksumMismatch,
                     absl::StrCat("upload: the chunk at ", chunk.offset,
                                  " does not match its crc32c; send it again"));
  const Key key(tenant, chunk.sha256);
  Bytes whole;
  absl::StatusOr<Progress> progress;
  {
    absl::MutexLock lock(&mu_);
    DropIdle(now);
    progress = Append(key, chunk, now, &whole);
  }
  if (whole == nullptr) return progress;
  // Reading a large program takes a while: without the lock.
  absl::Status status;
  if (Sha256Hex(*whole) != chunk.sha256) {
    status = MakeError(ErrorKind::kChecksumMismatch,
                       "upload: all bytes are there and their SHA-256 is another; send them again");
  } else {
    status = check(*whole);
  }
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(key);
  if (!status.ok()) {
    bytes_ -= it->second.size_bytes;
    entries_.erase(it);
    return status;
  }
  it->second.checking = false;
  it->second.whole = std::move(whole);
  return Progress{it->second.size_bytes, true};
}

absl::StatusOr<ProgramStore::Bytes> ProgramStore::Find(const std::string& tenant,
                                                       const std::string& sha256) const {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find({tenant, sha256});
  if (it == entries_.end() || it->second.whole == nullptr) return NoProgram(sha256);
  return it->second.whole;
}

absl::Status ProgramStore::Delete(const std::string& tenant, const std::string& sha256) {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find({tenant, sha256});
  if (it == entries_.end() || it->second.whole == nullptr) return NoProgram(sha256);
  bytes_ -= it->second.size_bytes;
  entries_.erase(it);
  return absl::OkStatus();
}

std::vector<ProgramStore::Listed> ProgramStore::List(const std::string& tenant,
                                                     const std::string& after, size_t count) const {
  std::vector<Listed> out;
  absl::MutexLock lock(&mu_);
  for (auto it = entries_.upper_bound({tenant, after});
       it != entries_.end() && it->first.first == tenant && out.size() < count; ++it)
    if (it->second.whole != nullptr) out.push_back({it->first.second, it->second.whole});
  return out;
}

}  // namespace tessera::server::store
