// Writes a .tar.gz, entry by entry, so that no more than one of them is in memory.
//
// Made under a temporary name, readable by its owner only, and renamed by Close: the file is whole
// or absent. Thread-compatible.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::cli {

class TarGz {
 public:
  // VALUE_ERROR: it cannot be written there.
  static absl::StatusOr<std::unique_ptr<TarGz>> Open(const std::string& path);
  TarGz(const TarGz&) = delete;
  TarGz& operator=(const TarGz&) = delete;
  ~TarGz();  // Removes what Close has not completed.

  // `name` is at most 100 bytes. An error stays: Close returns it.
  void Add(const std::string& name, std::string_view bytes);
  absl::Status Close();

 private:
  TarGz(std::string path, void* gz) : path_(std::move(path)), gz_(gz) {}
  void Write(std::string_view bytes);

  const std::string path_;
  void* gz_;  // zlib's gzFile; null once it is closed
  bool failed_ = false;
};

}  // namespace tessera::cli
