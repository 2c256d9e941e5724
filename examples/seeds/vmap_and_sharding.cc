// vmap says what is computed, and shardings say where: docs/seeds/vmap_and_sharding.md.
#include <iostream>
#include <string>

#include "client/tessera.h"

using namespace tessera;  // NOLINT(google-build-using-namespace): a script

struct Layer {
  Array weight, bias;
  std::string name;
  Array operator()(const Array& x) const { return tanh(matmul(x, weight) + bias); }
};
TESSERA_TREE(Layer, weight, bias, name)

int main() {
  const set_mesh context(make_mesh({4}, {"data"}, {AxisType::kAuto}));
  const Layer layer{ones({2, 3}), arange(3, kF32), "the first"};
  const Array xs = arange(8, kF32).reshape({4, 2});

  const auto placed_by_vmap =
      filter_vmap([](Array x) { return with_sharding_constraint(x, P("batch")); }, if_array(0),
                  if_array(0), {.axis_name = "batch"});
  try {
    filter_jit(placed_by_vmap)(xs);
  } catch (const Error& e) {
    std::cout << e.reason() << ": " << e.what() << "\n";
  }

  const auto of_each =
      filter_jit(filter_vmap([](const Layer& f, Array x) { return f(x); }, {None, 0}));
  const Array spread = filter_shard(xs, context_mesh(), P("data"));
  std::cout << of_each(layer, xs).to_string() << "\n" << of_each(layer, spread).to_string() << "\n";
}
