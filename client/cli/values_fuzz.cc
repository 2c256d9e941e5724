// Fuzzes the reader of .npy files. Any bytes must give an error, or an array that is the same after
// it has been written to a file and read back.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "client/cli/values.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tessera::cli::NpyOf;
  using tessera::cli::ParseNpy;
  const auto array = ParseNpy(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!array.ok()) return 0;
  const auto bytes = NpyOf(*array);
  TESSERA_CHECK(bytes.ok()) << bytes.status();
  const auto again = ParseNpy(*bytes, "again");
  TESSERA_CHECK(again.ok()) << again.status();
  TESSERA_CHECK(*again == *array);
  return 0;
}
