// Makes and compares random secrets, for the code of tokens and certificates. That code keeps them
// in files by base/file.h.
#include "base/secret.h"

#include <openssl/crypto.h>
#include <sys/random.h>

#include <cerrno>

#include "absl/strings/escaping.h"
#include "base/check.h"

namespace tessera {

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

}  // namespace tessera
