// The folder in which `tessera init` and `tessera up` keep what makes a cluster safe. Everything is
// PEM or a line of text; folders are 0700, and keys and tokens 0600.
//
//   ca/ca.pem, ca/ca.key                             the authority
//   coordinator/{ca.pem,cert.pem,key.pem,tokens}     tokens: hashes, for --tokens-file
//   coordinator/state/                               the coordinator's own, for --state-dir
//   WORKER/{ca.pem,cert.pem,key.pem}                 of each worker
//   client/{ca.pem,token}                            an administrator's token
//
// Files that are still valid are kept, so that all of it may be done again. One process at a time
// changes a folder (LockFolder), and not while its coordinator runs.
#pragma once
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace tessera::cli {

class StateDir {
 public:
  explicit StateDir(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string File(const std::string& member, const std::string& name) const {
    return path_ + "/" + member + "/" + name;
  }

  // What daemons take to use a member's certificate.
  std::vector<std::string> TlsFlags(const std::string& member) const;

  // Makes what is missing: the authority, the coordinator's certificate for `names` (DNS names and
  // addresses), the file of tokens with an administrator's. A certificate that lacks a name, or
  // ends within 30 days, is made anew.
  absl::Status Prepare(const std::vector<std::string>& names, absl::Time now) const;
  // A worker's folder.
  absl::Status PrepareWorker(const std::string& worker, absl::Time now) const;
  // A token to join with, good for `life`; those that have expired are dropped.
  absl::StatusOr<std::string> MakeJoinToken(absl::Time now, absl::Duration life) const;

 private:
  absl::Status PrepareAuthority(absl::Time now) const;
  absl::Status PrepareTokens(absl::Time now) const;
  const std::string path_;
};

// Makes the folder and those above it. VALUE_ERROR says which cannot be made.
absl::Status MakeFolder(const std::string& path);

// Locks a folder until the descriptor is closed; another process that asks meanwhile is refused
// with ALREADY_EXISTS.
absl::StatusOr<UniqueFd> LockFolder(const std::string& folder);

// Of this machine.
std::string HostName();
// $XDG_STATE_HOME/tessera, or ~/.local/state/tessera.
std::string DefaultStateDir();
// Whether a text is an IP address, not a name.
bool IsAddress(const std::string& text);

}  // namespace tessera::cli
