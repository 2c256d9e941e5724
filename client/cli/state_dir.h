// The directory in which `tessera init` and `tessera up` keep a cluster's certificates and tokens.
// Files are PEM or one line of text; directories have mode 0700, keys and tokens 0600.
//
//   ca/ca.pem, ca/ca.key                             the CA
//   coordinator/{ca.pem,cert.pem,key.pem,tokens}     tokens holds hashes, for --tokens-file
//   coordinator/state/                               for the coordinator's --state-dir
//   WORKER/{ca.pem,cert.pem,key.pem}                 one per worker
//   client/{ca.pem,token}                            an administrator's token
//
// Files that are still valid are kept, so all functions are idempotent. Only one process at a time
// may change a directory (LockDirectory), and none while its coordinator runs.
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
  // Returns the path of the file `name` of `member`, which is one of the subdirectories above: ca,
  // coordinator, client, or the name of a worker.
  std::string FilePath(const std::string& member, const std::string& name) const {
    return path_ + "/" + member + "/" + name;
  }

  // Returns the flags with which a daemon uses the certificate of `member`.
  std::vector<std::string> TlsFlags(const std::string& member) const;

  // Makes the files that are missing: the CA, the coordinator's certificate for `names` (DNS names
  // and addresses), and the token file with an administrator's token. Reissues a certificate that
  // lacks a name or expires within 30 days.
  absl::Status Prepare(const std::vector<std::string>& names, absl::Time now) const;
  // Makes a worker's directory with its certificate.
  absl::Status PrepareWorker(const std::string& worker, absl::Time now) const;
  // Adds and returns a join token that is valid for `lifetime`. Removes join tokens that have
  // expired.
  absl::StatusOr<std::string> MakeJoinToken(absl::Time now, absl::Duration lifetime) const;

 private:
  absl::Status PrepareCa(absl::Time now) const;
  absl::Status PrepareTokens(absl::Time now) const;
  const std::string path_;
};

// Makes the directory and its parents. If that fails, VALUE_ERROR names the directory.
absl::Status MakeDirectory(const std::string& path);

// Locks a directory until the descriptor is closed. Meanwhile other callers get ALREADY_EXISTS.
absl::StatusOr<UniqueFd> LockDirectory(const std::string& directory);

// Returns the name of this machine.
std::string HostName();
// Returns $XDG_STATE_HOME/tessera or, if that variable is not set, ~/.local/state/tessera.
std::string DefaultStateDir();
// Returns whether a text is an IP address and not a name.
bool IsIpAddress(const std::string& text);

}  // namespace tessera::cli
