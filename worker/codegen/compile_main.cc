// tessera-compile prints the code of a kernel for this host. With --compile-child it is the process
// that compiles for another process (compile_child.h).
//
//   tessera-compile [--target avx512] [--ir] < kernel.txt
#include <cstring>
#include <iostream>
#include <iterator>
#include <string>

#include "worker/codegen/compile.h"
#include "worker/codegen/compile_child.h"

namespace tessera::worker::codegen {
namespace {

int Fail(const absl::Status& status) {
  std::cerr << "tessera-compile: " << status.message() << "\n";
  return 1;
}

int Main(int argc, char** argv) {
  std::string target_name = "host";
  bool ir = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == kCompileChildFlag) return RunCompileChild(/*compile_image=*/nullptr);
    if (arg == "--ir") {
      ir = true;
    } else if (arg == "--target" && i + 1 < argc) {
      target_name = argv[++i];
    } else {
      std::cerr << "usage: tessera-compile [--target NAME] [--ir] < kernel.txt\n";
      return 2;
    }
  }
  const absl::StatusOr<HostTarget> target = FindHostTarget(target_name);
  if (!target.ok()) return Fail(target.status());
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  const absl::StatusOr<Kernel> kernel = ParseKernel(text);
  if (!kernel.ok()) return Fail(kernel.status());
  const absl::StatusOr<std::string> listing = HostCodegen(*target).Listing(Canonical(*kernel), ir);
  if (!listing.ok()) return Fail(listing.status());
  std::cout << *listing;
  return 0;
}

}  // namespace
}  // namespace tessera::worker::codegen

int main(int argc, char** argv) { return tessera::worker::codegen::Main(argc, argv); }
