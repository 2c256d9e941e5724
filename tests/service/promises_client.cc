// A program that uses the SDK and that promises.py starts; promises.py examines what the program
// leaves behind on the cluster.
//
//   promises_client hold MIB      puts an array of that size on one device and then returns from
//                                 main while the array is still held, as many programs do
//   promises_client queue COUNT   starts COUNT runs of several minutes each and waits for the last
//
// It works over the default session, on the cluster that TESSERA_ADDRESS names, and prints "ready".
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "client/tessera.h"

namespace tessera {
namespace {

void SayReady() {
  std::puts("ready");
  std::fflush(stdout);
}

void Hold(int64_t mebibytes) {
  const Mesh mesh = make_mesh({1}, {"i"}, {AxisType::kAuto});
  static const Array* const kept = new Array(put(ir::Array(kF32, {mebibytes << 18}), mesh, P("i")));
  kept->wait(absl::Seconds(60));
  SayReady();
}

void Queue(int64_t count) {
  const auto devices = static_cast<int64_t>(Session::Default()->devices().size());
  const Mesh mesh = make_mesh({devices}, {"i"}, {AxisType::kAuto});
  const auto steps = jit([mesh](Array x) {
    return shard_map(
        [](Array b) {
          const auto step = [](Array c, NoneType) {
            return std::make_pair(sin(c) + lax::psum(c, "i") * 0.1, std::tuple<>());
          };
          return scan(step, b, None, {.length = 100'000'000}).first;
        },
        mesh, {P("i")}, P("i"))(x);
  });
  std::vector<Array> results = {put(ones({2 * devices}), mesh, P("i"))};
  for (int64_t i = 0; i < count; ++i) results.push_back(steps(results.back()));
  SayReady();
  results.back().wait(absl::Seconds(600));
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const std::string mode = argc == 3 ? argv[1] : "";
  if (mode != "hold" && mode != "queue") {
    std::fputs("usage: promises_client hold MIB | queue COUNT\n", stderr);
    return 2;
  }
  try {
    (mode == "hold" ? tessera::Hold : tessera::Queue)(std::atoll(argv[2]));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "promises_client: %s\n", e.what());
    return 1;
  }
}
