// A cluster inside this process: declared here, and defined in embed/, the only folder that may
// include the coordinator and the executor.
//
// Programs that use it link tessera_embed; in others Session::Embedded throws. The service returned
// owns its threads; its destructor stops them.
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
  int64_t memory_bytes_per_device = 0;  // 0: an equal share of the machine's
  // The root directory of save and load; empty: TESSERA_FILES_DIR, else the working directory.
  std::string files_dir = {};
};

struct ConnectOptions;

}  // namespace tessera

// Defined by tessera_embed and tessera_client_remote; null in programs that do not link them.
extern "C" {
__attribute__((weak)) void TesseraStartEmbedded(
    const tessera::EmbeddedOptions& options,
    absl::StatusOr<std::shared_ptr<tessera::api::Service>>* out);
__attribute__((weak)) void TesseraConnectRemote(
    const char* address, const tessera::ConnectOptions& options,
    absl::StatusOr<std::shared_ptr<tessera::api::Service>>* out);
}
