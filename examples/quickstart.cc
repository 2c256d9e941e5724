// The README's first program: a gradient, sharded over four devices.
#include <iostream>

#include "client/tessera.h"

int main() {
  using namespace tessera;  // NOLINT(google-build-using-namespace): a script
  const Mesh mesh = make_mesh({4}, {"data"}, {AxisType::kAuto});
  const Array x = put(ones({8, 3}), mesh, P("data"));  // two rows on each device
  const Array w = put(array<float>({1, 2, 3}), mesh, P());
  const auto loss = [](Array w, Array x) { return mean(square(matmul(x, w))); };
  const auto step = jit(value_and_grad(loss));
  const auto [value, slope] = step(w, x);
  std::cout << value.to_string() << "\n" << slope.to_string() << "\n" << explain(step, w, x);
}
