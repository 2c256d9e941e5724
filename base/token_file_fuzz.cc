// Fuzzes the parsers of the token file and of tokens, whose texts callers send. A text must either
// be refused, or be the same when it is parsed and written again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/status.h"
#include "base/token_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto records = tessera::ParseTokenFile(text);
  if (records.ok()) {
    TESSERA_CHECK(tessera::FormatTokenFile(*records) == text);
  } else {
    TESSERA_CHECK(tessera::ReasonOf(records.status()) == "VALUE_ERROR") << records.status();
  }
  if (const auto token = tessera::ParseToken(text); token.ok()) {
    const std::string again = token->fingerprint.empty()
                                  ? tessera::FormatBearerToken(*token)
                                  : tessera::FormatJoinToken(*token, token->fingerprint);
    TESSERA_CHECK(again == text);
  }
  return 0;
}
