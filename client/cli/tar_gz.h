// Writes a .tar.gz entry by entry, so that at most one entry is in memory.
//
// The file is written under a temporary name, readable by its owner only, and renamed by Close. So
// it is complete or absent. Thread-compatible.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::cli {

class TarGz {
 public:
  // Creates the temporary file. Fails with VALUE_ERROR if it cannot be written there.
  static absl::StatusOr<std::unique_ptr<TarGz>> Open(const std::string& path);
  TarGz(const TarGz&) = delete;
  TarGz& operator=(const TarGz&) = delete;
  ~TarGz();  // Removes the temporary file if Close was not called.

  // Adds an entry. `name` has at most 100 bytes. If writing fails, Close returns the error.
  void Add(const std::string& name, std::string_view bytes);
  absl::Status Close();

 private:
  TarGz(std::string path, void* gz) : path_(std::move(path)), gz_(gz) {}
  void Write(std::string_view bytes);

  const std::string path_;
  void* gz_;  // zlib's gzFile; null after Close
  bool failed_ = false;
};

}  // namespace tessera::cli
