// Computes SHA-256 hashes and prints them in lower-case hex: 64 characters.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace tessera {

std::string Sha256Hex(std::string_view bytes);

// Computes a hash of bytes that come in parts. Thread-compatible.
class Sha256 {
 public:
  Sha256();
  void Add(const void* bytes, size_t size);
  // Returns the hash of all bytes that were added. After this call the object must not be used
  // again.
  std::string Hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  const std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace tessera
