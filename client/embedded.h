// A cluster inside this process. It is declared here and defined in embed/, the only folder that
// may include the coordinator and the executor.
//
// A program that uses it must link tessera_embed; in other programs Session::Embedded throws. The
// service that TesseraStartEmbedded returns owns its threads, and its destructor stops them.
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
  int64_t memory_bytes_per_device = 0;  // 0 means an equal share of the machine's memory
  // The root directory of save and load. If it is empty, TESSERA_FILES_DIR or else the working
  // directory is used.
  std::string files_dir = {};
};

struct ConnectOptions;

}  // namespace tessera

// tessera_embed defines the first function, tessera_client_remote the second. In a program that
// does not link the library, the address of its function is null.
extern "C" {
__attribute__((weak)) void TesseraStartEmbedded(
    const tessera::EmbeddedOptions& options,
    absl::StatusOr<std::shared_ptr<tessera::api::Service>>* out);
__attribute__((weak)) void TesseraConnectRemote(
    const char* address, const tessera::ConnectOptions& options,
    absl::StatusOr<std::shared_ptr<tessera::api::Service>>* out);
}
