// Shows which values vary over an axis, and which do not: docs/seeds/varying_axes.md.
#include <iostream>

#include "client/tessera.h"

using namespace tessera;  // NOLINT(google-build-using-namespace): a script
// The page shows each part and its output. It names lines of this file, so no line may move.
int main() {
  const Mesh mesh = make_mesh({2}, {"x"}, {AxisType::kAuto});
  const Array p = array<float>({3}), t = array<float>({1, 2});
  const auto f = [](Array v) { return mean(square(v)); };

  const auto there_and_back = [&](Array point, Array tangent) {
    std::cout << "at a " << point.to_string() << ", along a " << tangent.to_string() << "\n";
    const auto [y, fwd] = linearize(f, point);
    const auto bwd = linear_transpose(fwd, point);
    return std::get<0>(bwd(fwd(tangent)));
  };

  const auto at_p = [&](Array tangent) { return there_and_back(p, tangent); };
  try {
    shard_map(at_p, mesh, {P("x")}, P("x"))(t);
  } catch (const Error& e) {
    std::cout << e.reason() << ": " << e.what() << "\n";
  }

  const auto at_a_p_for_each = [&](Array tangent) {
    return there_and_back(lax::pcast(p, "x", "varying"), tangent);
  };
  std::cout << shard_map(at_a_p_for_each, mesh, {P("x")}, P("x"))(t).to_string() << "\n";

  const auto by_p = [&](Array x) { return grad([&](Array q) { return sum(q * x); })(p); };
  const auto by_a_p_for_each = [&](Array x) {
    return grad([&](Array q) { return sum(q * x); })(lax::pcast(p, "x", "varying"));
  };
  std::cout << shard_map(by_p, mesh, {P("x")}, P())(t).to_string() << "\n";
  std::cout << shard_map(by_a_p_for_each, mesh, {P("x")}, P("x"))(t).to_string() << "\n";
}
