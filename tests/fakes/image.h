// Code that the fake devices run: a few kernels for the tests of streams and launches, by name, in
// an image that says kTestImage; and images of the SIMT emulator (worker/codegen/testing/simt.h),
// which a library of its own, libfakesimt.so, runs, so that LLVM is loaded by those alone who need
// it.
//
// Immutable once loaded; any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/cuda/driver_api.h"

namespace tessera::fakes {

struct Launch {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  // Device addresses are replaced by what the kernel can read.
  std::vector<uint64_t> args;
};

class Image {
 public:
  virtual ~Image() = default;
  // How many arguments a kernel takes; nullopt if there is no such kernel.
  virtual std::optional<int> NumArgs(const std::string& kernel) const = 0;
  virtual worker::cuda::CUresult Run(const std::string& kernel, const Launch& launch) const = 0;
};

// Null for bytes that are not an image; `why` then says what is wrong.
std::unique_ptr<Image> LoadImage(const void* bytes, std::string* why);

// What libfakesimt.so exports, under kLoadSimt, for images of the emulator; their length is found
// in them.
using LoadSimtFn = Image* (*)(const void* bytes, std::string* why);
inline constexpr char kLoadSimt[] = "tesseraFakeLoadSimt";
inline constexpr char kSimtImage[] = "tessera-simt ";

}  // namespace tessera::fakes
