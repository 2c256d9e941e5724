// Code that the fake devices run. There are three kinds of images. An image with the text
// kTestImage has a few named kernels for the tests of streams and launches. An image of PTX is
// loaded, and written to the folder TESSERA_FAKE_PTX_FOLDER if that is set, but its kernels cannot
// run. Other images belong to the SIMT emulator (worker/codegen/testing/simt.h). The emulator is in
// a library of its own, libfakesimt.so, so that only processes that need it load LLVM.
//
// Immutable once loaded, and thread-safe.
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
  // arguments, with device addresses replaced by host addresses that the kernel can read
  std::vector<uint64_t> args;
};

class Image {
 public:
  virtual ~Image() = default;
  // Returns the number of arguments of a kernel, or nullopt if there is no such kernel.
  virtual std::optional<int> NumArgs(const std::string& kernel) const = 0;
  virtual worker::cuda::CUresult Run(const std::string& kernel, const Launch& launch) const = 0;
};

// Returns null if the bytes are not an image; `why` then says what is wrong.
std::unique_ptr<Image> LoadImage(const void* bytes, std::string* why);

// The function that libfakesimt.so exports under the name kLoadSimt. It loads an image of the
// emulator, whose length follows from its contents.
using LoadSimtFn = Image* (*)(const void* bytes, std::string* why);
inline constexpr char kLoadSimt[] = "tesseraFakeLoadSimt";
// The text with which an image of the emulator begins.
inline constexpr char kSimtImage[] = "tessera-simt ";

}  // namespace tessera::fakes
