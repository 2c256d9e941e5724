// The part of the state with the programs that clients have uploaded, by tenant and SHA-256 of
// their bytes, and those that are being uploaded in chunks.
//
// A program is written to the store when it is whole and has been checked; an upload that is not
// is unknown to the next life, and begins anew.
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

// What the bytes of a program are.
enum class ProgramFormat : uint8_t {
  kTessera,    // a serialized tessera.v1.Program
  kStablehlo,  // a StableHLO portable artifact
};

// Its bytes are a program of this format, of the hash that is its key.
struct UploadedProgram {
  ProgramBytes bytes;
  ProgramFormat format = ProgramFormat::kTessera;
};

struct ProgramUpload {
  ProgramFormat format = ProgramFormat::kTessera;
  int64_t size_bytes = 0;  // of the whole program
  std::string bytes;       // those that have come, until all have
  ProgramBytes whole;      // all, which nobody has checked yet
  absl::Time last_chunk;

  int64_t committed_bytes() const {
    return whole != nullptr ? size_bytes : static_cast<int64_t>(bytes.size());
  }
};

class Uploads {
 public:
  using Key = std::pair<std::string, std::string>;  // tenant, hash

  const std::map<Key, UploadedProgram>& programs() const { return programs_; }
  const UploadedProgram* FindProgram(const Key& key) const { return FindIn(programs_, key); }
  const ProgramUpload* FindUpload(const Key& key) const { return FindIn(uploads_, key); }
  // Of programs and uploads together.
  int64_t num_programs() const { return static_cast<int64_t>(programs_.size() + uploads_.size()); }
  int64_t num_bytes() const { return num_bytes_; }

  // Adds to the upload, which begins with its first chunk. Requires: the chunk fits `size_bytes`,
  // and there is no such program.
  const ProgramUpload& Append(const Key& key, ProgramFormat format, int64_t size_bytes,
                              const std::string& chunk, absl::Time now);
  // The upload is a program from now on. Requires: it is whole.
  void Keep(const Key& key);
  // Requires: it exists.
  void RemoveUpload(const Key& key);
  void RemoveProgram(const Key& key);
  // Removes the uploads whose last chunk came at `until` or earlier.
  void RemoveIdle(absl::Time until);
  // One of an earlier life.
  void Restore(const Key& key, UploadedProgram program);

 private:
  std::map<Key, UploadedProgram> programs_;
  std::map<Key, ProgramUpload> uploads_;
  int64_t num_bytes_ = 0;
};

}  // namespace tessera::server::scheduler
