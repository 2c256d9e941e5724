// The archive that `tessera debug-bundle` writes. zlib compresses; the tar format around the
// entries is simple enough to be written here.
#include "client/cli/tar_gz.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"

namespace tessera::cli {
namespace {

constexpr size_t kBlock = 512;

std::string PartialPath(const std::string& path) { return path + ".part"; }

// The header of an entry, in the POSIX ustar format.
struct Header {
  char name[100], mode[8], uid[8], gid[8], size[12], time[12], sum[8], type, link[100], magic[6],
      version[2], rest[247];
};
static_assert(sizeof(Header) == kBlock);

// Writes the value into the field as octal digits, which is how ustar writes numbers.
template <size_t n>
void WriteOctal(char (&field)[n], uint64_t value) {
  std::snprintf(field, n, "%0*llo", static_cast<int>(n - 1),
                static_cast<unsigned long long>(value));  // NOLINT(google-runtime-int)
}

Header HeaderOf(const std::string& name, size_t bytes) {
  Header h{};
  std::memcpy(h.name, name.data(), std::min(name.size(), sizeof(h.name)));
  WriteOctal(h.mode, 0600);
  WriteOctal(h.uid, 0);
  WriteOctal(h.gid, 0);
  WriteOctal(h.size, bytes);
  WriteOctal(h.time, static_cast<uint64_t>(absl::ToUnixSeconds(absl::Now())));
  h.type = '0';
  std::memcpy(h.magic, "ustar", 6);
  std::memcpy(h.version, "00", 2);
  // The checksum is computed over the header with blanks in the field of the checksum.
  std::memset(h.sum, ' ', sizeof(h.sum));
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i) sum += reinterpret_cast<const uint8_t*>(&h)[i];
  std::snprintf(h.sum, sizeof(h.sum), "%06llo",
                static_cast<unsigned long long>(sum));  // NOLINT(google-runtime-int)
  return h;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TarGz>> TarGz::Open(const std::string& path) {
  const std::string partial = PartialPath(path);
  const int fd = open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0)
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("cannot write ", partial, ": ", std::strerror(errno)));
  return std::unique_ptr<TarGz>(new TarGz(path, gzdopen(fd, "wb")));
}

TarGz::~TarGz() {
  if (gz_ == nullptr) return;
  gzclose(static_cast<gzFile>(gz_));
  unlink(PartialPath(path_).c_str());
}

void TarGz::Write(std::string_view bytes) {
  if (bytes.empty()) return;
  failed_ |=
      gzwrite(static_cast<gzFile>(gz_), bytes.data(), static_cast<unsigned>(bytes.size())) <= 0;
}

void TarGz::Add(const std::string& name, std::string_view bytes) {
  const Header header = HeaderOf(name, bytes.size());
  Write({reinterpret_cast<const char*>(&header), sizeof(header)});
  Write(bytes);
  const size_t last_block_bytes = bytes.size() % kBlock;
  if (last_block_bytes > 0) Write(std::string(kBlock - last_block_bytes, '\0'));
}

absl::Status TarGz::Close() {
  Write(std::string(2 * kBlock, '\0'));
  failed_ |= gzclose(static_cast<gzFile>(std::exchange(gz_, nullptr))) != Z_OK;
  if (!failed_ && std::rename(PartialPath(path_).c_str(), path_.c_str()) == 0)
    return absl::OkStatus();
  const int error = errno;
  unlink(PartialPath(path_).c_str());
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat("cannot write ", path_, ": ", std::strerror(error)));
}

}  // namespace tessera::cli
