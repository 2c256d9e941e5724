// Fuzzes CheckTicket. It must refuse arbitrary bytes. It must refuse an arbitrary body with a valid
// signature, or return a ticket that survives signing and checking again.
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "ir/api/ticket.h"

namespace {

constexpr std::string_view kKey = "0123456789abcdef";

// Returns any body with a valid signature, as only a coordinator could make it.
std::string Signed(absl::string_view body) {
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  HMAC(EVP_sha256(), kKey.data(), static_cast<int>(kKey.size()),
       reinterpret_cast<const unsigned char*>(body.data()), body.size(), mac, &size);
  return absl::StrCat(
      body, "|", absl::BytesToHexString(absl::string_view(reinterpret_cast<char*>(mac), size)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tessera::api::CheckTicket;
  using tessera::api::SignTicket;
  constexpr uint64_t kIncarnation = 7;
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  // The corpus does not know the key, so no input of it is signed.
  TESSERA_CHECK(!CheckTicket({text.data(), text.size()}, kKey, now, kIncarnation).ok());

  const auto read = CheckTicket(Signed(text), kKey, now, kIncarnation);
  if (!read.ok()) return 0;
  const auto again = CheckTicket(SignTicket(*read, kKey), kKey, now, kIncarnation);
  TESSERA_CHECK(again.ok()) << again.status();
  TESSERA_CHECK(*again == *read) << text;
  return 0;
}
