// Reads and writes at sharded indices, on an Explicit axis: docs/seeds/gather_scatter.md.
#include <iostream>
#include <string>

#include "client/tessera.h"

using namespace tessera;  // NOLINT(google-build-using-namespace): a script

// Returns the part of a plan that lists what is sent.
std::string Sent(const std::string& plan) {
  const size_t begin = plan.find("collectives:");
  return plan.substr(begin, plan.find("memory per device:") - begin);
}
// The page shows each part and its output. It names lines of this file, so no line may move.
int main() {
  const set_mesh context(make_mesh({2}, {"x"}));  // Explicit, as in JAX
  const Array table = reshard(arange(12, kF32).reshape({4, 3}), P("x"));
  const Array i = reshard(array<int32_t>({0, 1, 2, 0}), P("x"));
  const Array j = reshard(array<int32_t>({2, 0, 1, 2}), P("x"));

  const auto moves = jit([](Array x, Array to, Array from) {
    return x.at({Slice{}, to}).set(x[{Slice{}, from}]);
  });
  try {
    moves(table, i, j);
  } catch (const Error& e) {
    std::cout << e.reason() << ": " << e.what() << "\n";
  }

  const auto says_where = jit([](Array x, Array to, Array from) {
    const Array columns = x.at({Slice{}, from}).get(P("x"));
    return x.at({Slice{}, to}).set(columns, P("x"));
  });
  std::cout << says_where(table, i, j).to_string() << "\n";
  std::cout << Sent(explain(says_where, table, i, j));

  const auto in_each_row =
      jit(vmap([](Array row, Array to, Array from) { return row.at(to).set(row[from]); }));
  std::cout << in_each_row(table, i, j).to_string() << "\n";
  std::cout << Sent(explain(in_each_row, table, i, j));
}
