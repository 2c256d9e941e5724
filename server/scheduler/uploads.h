// The part of the state that keeps the programs that clients have uploaded, by tenant and SHA-256
// of their bytes, and those that are being uploaded in chunks.
//
// A program is written to the store when it is complete and has been checked. The next life does
// not know of an unfinished upload, which then begins anew.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "server/scheduler/find.h"

namespace tessera::server::scheduler {

using ProgramBytes = std::shared_ptr<const std::string>;

// The kinds of bytes that a program may consist of.
enum class ProgramFormat : uint8_t {
  kTessera,    // a serialized tessera.v1.Program
  kStablehlo,  // a StableHLO portable artifact
};

// A program whose bytes have this format, and whose hash is its key.
struct UploadedProgram {
  ProgramBytes bytes;
  ProgramFormat format = ProgramFormat::kTessera;
};

struct ProgramUpload {
  ProgramFormat format = ProgramFormat::kTessera;
  int64_t size_bytes = 0;  // size of the whole program
  std::string bytes;       // bytes that have come; empty once all have
  ProgramBytes whole;      // all bytes, not checked yet; null until all have come
  absl::Time last_chunk;

  int64_t committed_bytes() const {
    return whole != nullptr ? size_bytes : static_cast<int64_t>(bytes.size());
  }
};

class Uploads {
 public:
  using Key = std::pair<std::string, std::string>;  // (tenant, hash)

  const std::map<Key, UploadedProgram>& programs() const { return programs_; }
  const UploadedProgram* FindProgram(const Key& key) const { return FindIn(programs_, key); }
  const ProgramUpload* FindUpload(const Key& key) const { return FindIn(uploads_, key); }
  // The number of programs and uploads together.
  int64_t num_programs() const { return static_cast<int64_t>(programs_.size() + uploads_.size()); }
  int64_t num_bytes() const { return num_bytes_; }

  // Adds a chunk to the upload, which begins with its first chunk. Requires: the chunk fits
  // `size_bytes`, and there is no program with this key.
  const ProgramUpload& Append(const Key& key, ProgramFormat format, int64_t size_bytes,
                              const std::string& chunk, absl::Time now);
  // Makes the upload a program. Requires: all its bytes have come.
  void Keep(const Key& key);
  // Requires: the upload or the program exists.
  void RemoveUpload(const Key& key);
  void RemoveProgram(const Key& key);
  // Removes the uploads whose last chunk came at `until` or earlier.
  void RemoveIdle(absl::Time until);
  // Adds a program of an earlier life.
  void Restore(const Key& key, UploadedProgram program);

 private:
  std::map<Key, UploadedProgram> programs_;
  std::map<Key, ProgramUpload> uploads_;
  int64_t num_bytes_ = 0;
};

}  // namespace tessera::server::scheduler
