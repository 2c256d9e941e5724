// Rows of ir/ops/contraction.cc.
#include "absl/strings/str_cat.h"
#include "tests/ops/samples.h"

namespace tessera::ir::samples {
namespace {

using enum DType;

struct Shapes {
  std::string label;
  Dims lhs, rhs;
  Dims lhs_batch, rhs_batch, lhs_contract, rhs_contract;
  double terms;
};

}  // namespace

std::vector<Sample> ContractionSamples() {
  const std::vector<Shapes> all = {
      {"matmul", {4, 8}, {8, 4}, {}, {}, {1}, {0}, 8},
      {"transposed", {8, 4}, {4, 8}, {}, {}, {0}, {1}, 8},
      {"matvec", {4, 8}, {8}, {}, {}, {1}, {0}, 8},
      {"inner", {8}, {8}, {}, {}, {0}, {0}, 8},
      {"outer", {4}, {8}, {}, {}, {}, {}, 1},
      {"batched", {4, 2, 8}, {4, 8, 4}, {0}, {0}, {2}, {1}, 8},
      {"batch_moved", {2, 4, 8}, {8, 4, 4}, {1}, {2}, {2}, {0}, 8},
      {"two_contracted", {4, 4, 2}, {2, 4, 4}, {}, {}, {1, 2}, {1, 0}, 8},
      {"empty_sum", {4, 0}, {0, 4}, {}, {}, {1}, {0}, 1}};
  std::vector<Sample> rows;
  auto attrs = [](const Shapes& s) {
    return Attrs{{"lhs_batching_dimensions", s.lhs_batch},
                 {"rhs_batching_dimensions", s.rhs_batch},
                 {"lhs_contracting_dimensions", s.lhs_contract},
                 {"rhs_contracting_dimensions", s.rhs_contract}};
  };
  for (const Shapes& s : all)
    for (DType d : Numbers())
      rows.push_back(
          Make("dot_general", absl::StrCat(N(d), "/", s.label), {Of(d, s.lhs), Of(d, s.rhs)})
              .With(attrs(s))
              .Within(IsFloat(d) ? Reordered(s.terms + 1) : kExact)
              .Linear({{0}, {1}}));
  // One product is no sum: -0 stays.
  const Shapes alone[] = {{"outer_signed_zeros", {4}, {8}, {}, {}, {}, {}, 1},
                          {"one_term_signed_zeros", {4, 1}, {1, 8}, {}, {}, {1}, {0}, 1},
                          {"four_terms_signed_zeros", {8, 4}, {4, 8}, {}, {}, {1}, {0}, 4}};
  for (const Shapes& s : alone)
    for (DType d : Floats())
      rows.push_back(
          Make("dot_general", absl::StrCat(N(d), "/", s.label),
               {Of(d, s.lhs, Values({-1, 0, 2, -0.0})), Of(d, s.rhs, Values({0, 1, -0.0}))})
              .With(attrs(s))
              .Linear({{0}, {1}}));
  for (auto [from, to] : {std::pair{kBF16, kF32}, {kF16, kF32}, {kF32, kF64}, {kS8, kS32}}) {
    Attrs a = attrs(all[0]);
    a.Set("preferred_element_type", to);
    rows.push_back(Make("dot_general", absl::StrCat(N(from), "/matmul_to_", N(to)),
                        {Of(from, {4, 8}), Of(from, {8, 4})})
                       .With(a)
                       .Within(IsFloat(from) ? Reordered(9) : kExact)
                       .Linear({{0}, {1}}));
  }
  return rows;
}

}  // namespace tessera::ir::samples
