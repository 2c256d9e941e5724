// A user's program that is linked with Tessera::embedded. It sums over four devices, each of which
// has two rows, and exits with 0 if the sum is right. tests/install builds it against the installed
// package.
#include <cmath>
#include <iostream>

#include "client/tessera.h"

int main() {
  using namespace tessera;  // NOLINT(google-build-using-namespace): a script
  const Mesh mesh = make_mesh({4}, {"data"}, {AxisType::kAuto});
  const Array x = put(arange(8), mesh, P("data"));
  const auto total = jit([&](Array x) {
    return shard_map([](Array x) { return lax::psum(sum(x * x), "data"); }, mesh, P("data"),
                     P())(x);
  });
  const float value = total(x).item<float>();
  std::cout << value << "\n";
  return value == 140.0F ? 0 : 1;
}
