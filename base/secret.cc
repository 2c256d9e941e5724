// Handles secrets for the code of tokens and certificates: makes random secrets, compares secrets,
// and stores them in files that only the files' owner can read.
#include "base/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tessera {
namespace {

absl::Status FileError(const std::string& path, absl::string_view reason) {
  return MakeError(ErrorKind::kValueError, absl::StrCat(path, ": ", reason));
}
absl::Status FileErrno(const std::string& path) { return FileError(path, std::strerror(errno)); }

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

std::string RandomHex(size_t bytes) {
  std::string raw(bytes, '\0');
  size_t filled = 0;
  while (filled < bytes) {
    const ssize_t got = getrandom(raw.data() + filled, bytes - filled, 0);
    TESSERA_CHECK(got > 0 || errno == EINTR) << "the kernel gives no random bytes";
    if (got > 0) filled += static_cast<size_t>(got);
  }
  return absl::BytesToHexString(raw);
}

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t bytes_max) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return FileErrno(path);
  std::string bytes;
  char block[4096];
  while (true) {
    const ssize_t got = read(file.get(), block, sizeof(block));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileErrno(path);
    if (got == 0) return bytes;
    bytes.append(block, static_cast<size_t>(got));
    if (bytes.size() > bytes_max)
      return FileError(path, absl::StrCat("is longer than ", bytes_max, " bytes"));
  }
}

absl::Status ReplaceFile(const std::string& path, std::string_view bytes, bool is_private) {
  const std::string next = absl::StrCat(path, ".", RandomHex(4), ".tmp");
  const mode_t mode = is_private ? 0600 : 0644;
  {
    const UniqueFd file(open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (file.get() < 0) return FileErrno(next);
    // Set the mode again, because the umask may have changed the mode that `open` gave the file.
    if (fchmod(file.get(), mode) != 0 || !WriteAll(file.get(), bytes) || fsync(file.get()) != 0) {
      const absl::Status status = FileErrno(next);
      unlink(next.c_str());
      return status;
    }
  }
  if (std::rename(next.c_str(), path.c_str()) != 0) {
    const absl::Status status = FileErrno(path);
    unlink(next.c_str());
    return status;
  }
  const size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const UniqueFd directory(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || fsync(directory.get()) != 0) return FileErrno(parent);
  return absl::OkStatus();
}

}  // namespace tessera
