// Runs images of the SIMT emulator as code of the fake devices. image.cc opens this library when a
// module with such an image is loaded, and calls tesseraFakeLoadSimt. The library is separate
// because it brings LLVM with it.
#include "worker/codegen/testing/simt.h"

#include <elf.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "tests/fakes/control.h"
#include "tests/fakes/image.h"

namespace tessera::fakes {
namespace {

using worker::codegen::SimtLaunch;
using worker::codegen::SimtModule;
using worker::cuda::CUresult;

// The text in front of the object: "tessera-simt VERSION TARGET ENTRIES", and then "NAME ARGS" for
// each entry.
struct Header {
  size_t bytes = 0;
  std::map<std::string, int> num_args;
};

bool ParseHeader(const char* image, Header* header) {
  int version = 0, entries = 0, length = 0;
  if (sscanf(image, "tessera-simt %d %*63s %d%n", &version, &entries, &length) != 2) return false;
  const char* at = image + length;
  for (int i = 0; i < entries; ++i) {
    char name[256];
    int num_args = 0;
    if (sscanf(at, " %255s %d%n", name, &num_args, &length) != 2) return false;
    header->num_args[name] = num_args;
    at += length;
  }
  if (*at != '\n') return false;
  header->bytes = at + 1 - image;
  return true;
}

// Returns the size of an object, which LLVM ends with its table of sections. Returns 0 if the bytes
// are not an object.
size_t ObjectBytes(const char* object) {
  Elf64_Ehdr header;
  if (strncmp(object, ELFMAG, SELFMAG) != 0) return 0;
  memcpy(&header, object, sizeof header);
  return header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
}

class SimtImage : public Image {
 public:
  SimtImage(Header header, std::shared_ptr<const SimtModule> module)
      : header_(std::move(header)), module_(std::move(module)) {}

  std::optional<int> NumArgs(const std::string& kernel) const override {
    const auto it = header_.num_args.find(kernel);
    return it == header_.num_args.end() ? std::nullopt : std::optional<int>(it->second);
  }

  CUresult Run(const std::string& kernel, const Launch& launch) const override {
    SimtLaunch simt;
    simt.entry = kernel;
    memcpy(simt.grid, launch.grid, sizeof simt.grid);
    memcpy(simt.block, launch.block, sizeof simt.block);
    simt.shared_bytes = launch.shared_bytes;
    simt.args = launch.args;
    simt.reversed = Get(Knob::simt_reversed) != 0;
    const absl::Status status = module_->Launch(simt);
    if (status.ok()) return worker::cuda::CUDA_SUCCESS;
    fprintf(stderr, "fake device: %s\n", std::string(status.message()).c_str());
    return worker::cuda::CUDA_ERROR_LAUNCH_FAILED;
  }

 private:
  const Header header_;
  const std::shared_ptr<const SimtModule> module_;
};

}  // namespace
}  // namespace tessera::fakes

using tessera::fakes::Header;
using tessera::fakes::Image;
using tessera::fakes::SimtImage;
using tessera::worker::codegen::SimtModule;

extern "C" TESSERA_FAKE_EXPORT Image* tesseraFakeLoadSimt(const void* bytes, std::string* why) {
  const char* const image = static_cast<const char*>(bytes);
  Header header;
  if (!tessera::fakes::ParseHeader(image, &header)) {
    *why = "the image's header is none of the emulator's";
    return nullptr;
  }
  const size_t object = tessera::fakes::ObjectBytes(image + header.bytes);
  auto module = SimtModule::Load(absl::string_view(image, header.bytes + object));
  if (!module.ok()) {
    *why = std::string(module.status().message());
    return nullptr;
  }
  return new SimtImage(std::move(header), *std::move(module));
}
