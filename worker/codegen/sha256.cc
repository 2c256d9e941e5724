#include "worker/codegen/sha256.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "base/log.h"

namespace tessera::worker::codegen {

std::string Sha256Hex(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  TESSERA_CHECK(EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) == 1);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), size});
}

}  // namespace tessera::worker::codegen
