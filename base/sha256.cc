// Wraps OpenSSL's SHA-256, so that OpenSSL's types appear in no other header.
#include "base/sha256.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "base/check.h"

namespace tessera {

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  TESSERA_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1)
      << "SHA-256 is not available";
}

void Sha256::Add(const void* bytes, size_t size) { EVP_DigestUpdate(context_.get(), bytes, size); }

std::string Sha256::Hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_.get(), digest, &size);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<char*>(digest), size));
}

std::string Sha256Hex(std::string_view bytes) {
  Sha256 hash;
  hash.Add(bytes.data(), bytes.size());
  return hash.Hex();
}

}  // namespace tessera
