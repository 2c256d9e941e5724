// pmap is shard_map over a mesh of its own: docs/seeds/pmap.md.
#include <iostream>

#include "client/tessera.h"

using namespace tessera;  // NOLINT(google-build-using-namespace): a script

int main() {
  const auto share = pmap([](Array x) { return x / lax::psum(x, "i"); }, "i");
  std::cout << share(arange(4, kF32) + 1).to_string() << "\n";

  try {
    share(arange(8, kF32) + 1);
  } catch (const Error& e) {
    std::cout << e.reason() << ": " << e.what() << "\n";
  }
  try {
    pmap([](Array x) { return x / lax::psum(x, "batch"); }, "i")(arange(4, kF32));
  } catch (const Error& e) {
    std::cout << e.reason() << ": " << e.what() << "\n";
  }

  const Mesh mesh = make_mesh({4}, {"i"}, {AxisType::kAuto});
  const auto share_of_blocks = jit(shard_map(
      [](Array block) { return block / lax::psum(sum(block), "i"); }, mesh, {P("i")}, P("i")));
  std::cout << share_of_blocks(arange(8, kF32) + 1).to_string() << "\n";
}
