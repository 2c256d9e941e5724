// The whole cluster inside this process: declared here, defined in embed/, which alone may see the
// coordinator and the executor.
//
// A program that wants it links tessera_embed; one that does not gets a clear error from
// Session::Embedded.  The service returned owns its threads and stops them when released.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ir/api/service.h"

namespace tessera {

constexpr int kEmbeddedDevicesMax = 256;

struct EmbeddedOptions {
  int devices = 4;                      // CPU devices, at most kEmbeddedDevicesMax
  int64_t memory_bytes_per_device = 0;  // 0: a fair share of the machine
  // Below which save and load find their files; empty: TESSERA_FILES_DIR, else where the process
  // is.
  std::string files_dir = {};
};

struct ConnectOptions;

}  // namespace tessera

// Resolved when tessera_embed, and tessera_client_remote, are linked; null otherwise.
extern "C" {
__attribute__((weak)) void TesseraStartEmbedded(
    const tessera::EmbeddedOptions& options,
    absl::StatusOr<std::shared_ptr<tessera::api::Service>>* out);
__attribute__((weak)) void TesseraConnectRemote(
    const char* address, const tessera::ConnectOptions& options,
    absl::StatusOr<std::shared_ptr<tessera::api::Service>>* out);
}
