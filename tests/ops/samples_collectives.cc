// Samples of the ops in ir/ops/collectives.cc. A sample, or row, is one op with given attributes
// and operands: a test case (samples.h). A row of this file runs on all shards of a mesh with
// Manual axes, each with its own block. samples.cc collects the rows, and the tests of this folder
// check them.
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/ops/samples.h"

namespace tessera::ir::samples {
namespace {

using enum DType;

Scope OneAxis() { return {Mesh{{{"x", 4, AxisType::kManual}}}}; }
Scope TwoAxes() { return {Mesh{{{"x", 2, AxisType::kManual}, {"y", 2, AxisType::kManual}}}}; }

struct Group {
  Scope scope;
  AxisList axes;    // axes of the collective
  AxisSet varying;  // varying axes of the operand
  int64_t size;
};
std::vector<Group> Groups() {
  return {{OneAxis(), {"x"}, {"x"}, 4},
          {TwoAxes(), {"y"}, {"x", "y"}, 2},
          {TwoAxes(), {"x"}, {"x"}, 2},
          {TwoAxes(), {"x", "y"}, {"x", "y"}, 4},
          {TwoAxes(), {"y", "x"}, {"x", "y"}, 4}};
}

constexpr char kMovesNothing[] = "it moves nothing";
constexpr char kPerShard[] = "a collective stands inside manual code; the planner leaves it there";

class Rows {
 public:
  Sample& Add(std::string_view op, DType d, std::string_view label, const Group& g, Dims shape,
              Attrs attrs, Tolerance t, bool linear, std::optional<Fill> fill = {}) {
    attrs.Set("axes", g.axes);
    Sample s =
        Make(op,
             absl::StrCat(N(d), "/",
                          absl::StrJoin(g.scope.mesh.axes, "",
                                        [](std::string* o, const MeshAxis& a) { *o += a.name; }),
                          "_over_", absl::StrJoin(g.axes, ""), label.empty() ? "" : "/",
                          ToAbsl(label)),
             {Varying(d, std::move(shape), g.varying, fill.value_or(UsualFill(d)))})
            .With(std::move(attrs))
            .In(g.scope)
            .Within(t)
            .Without(CheckKind::kSharded, kPerShard);
    if (linear) s.Linear({{0}});
    s.Moves();
    if (op == "ppermute" && d == kF8E8M0FNU)
      s.Without(CheckKind::kRecorded, "it has no zero to receive: JAX makes it NaN, we zero bits");
    if (op == "ppermute" && g.axes.size() > 1 && g.axes[0] > g.axes[1])
      s.Without(CheckKind::kRecorded,
                "JAX counts positions in mesh order here, unlike in axis_index; we do not");
    rows.push_back(std::move(s));
    return rows.back();
  }
  std::vector<Sample> rows;
};

}  // namespace

// Adds every collective for every group of axes: with all dtypes for the first two groups, and with
// three dtypes for the others. The few dtypes bound the number of rows, each of which runs on four
// devices in every check.
std::vector<Sample> CollectiveSamples() {
  Rows r;
  const std::vector<Group> groups = Groups();
  for (const Group& g : groups) {
    const int64_t n = g.size;
    for (DType d : AllDTypes()) {
      // How an exchange treats its axes does not depend on the dtype, so few dtypes suffice here.
      if (&g - groups.data() > 1 && d != kS32 && d != kF32 && d != kF64) continue;
      const Tolerance sum = IsFloat(d) ? Reordered(static_cast<double>(n)) : kExact;
      if (d != kBool && (IsComputable(d) || IsComplex(d))) {
        // Sums of complex numbers are compared bit for bit, so they add whole numbers, which is
        // exact.
        const std::optional<Fill> fill = IsComplex(d) ? std::optional(Ints(-9, 9)) : std::nullopt;
        r.Add("psum", d, "", g, {2, 3}, {}, sum, true, fill);
        for (bool tiled : {false, true}) {
          const std::string label = tiled ? "tiled" : "";
          r.Add("psum_scatter", d, label, g, {2, tiled ? 2 * n : n, 3},
                {{"scatter_dimension", int64_t{1}}, {"tiled", tiled}}, sum, true, fill);
        }
      }
      if (IsComputable(d)) {
        r.Add("pmax", d, "", g, {2, 3}, {}, kExact, false);
        r.Add("pmin", d, "", g, {2, 3}, {}, kExact, false);
      }
      if (IsComputable(d) && IsFloat(d))
        for (const char* op : {"pmax", "pmin"})
          r.Add(op, d, "zeros", g, {4, 5}, {}, kExact, false, Picks({0, -0.0}))
              .Without(CheckKind::kRecorded, "JAX keeps the zero that comes first");
      for (bool tiled : {false, true})
        for (const char* to : {"varying", "invarying"})
          r.Add("all_gather", d, absl::StrCat(tiled ? "tiled_" : "", to), g, {2, 3},
                {{"all_gather_dimension", int64_t{1}}, {"tiled", tiled}, {"to", std::string(to)}},
                kExact, true);
      Dims ring, partial;
      for (int64_t i = 0; i < n; ++i) ring.insert(ring.end(), {i, (i + 1) % n});
      partial = {0, n - 1};
      r.Add("ppermute", d, "ring", g, {2, 3}, {{"perm", ring}}, kExact, true);
      r.Add("ppermute", d, "partial", g, {2, 3}, {{"perm", partial}}, kExact, true);
      r.Add("all_to_all", d, "", g, {n, 3},
            {{"split_dimension", int64_t{0}}, {"concat_dimension", int64_t{1}}, {"tiled", false}},
            kExact, true);
      r.Add("all_to_all", d, "tiled", g, {2 * n, 3},
            {{"split_dimension", int64_t{0}}, {"concat_dimension", int64_t{1}}, {"tiled", true}},
            kExact, true);
    }
    r.rows.push_back(
        Make("axis_index",
             absl::StrCat(g.scope.mesh.axes.size(), "d_over_", absl::StrJoin(g.axes, "")), {})
            .With({{"axes", g.axes}})
            .In(g.scope)
            .Without(CheckKind::kCost, kMovesNothing)
            .Without(CheckKind::kSharded, kPerShard));
  }
  for (DType d : AllDTypes()) {
    r.rows.push_back(Make("pvary", absl::StrCat(N(d), "/one"), {Of(d, {2, 3})})
                         .Moves()
                         .With({{"axes", AxisList{"x"}}})
                         .In(OneAxis())
                         .Linear({{0}})
                         .Without(CheckKind::kCost, kMovesNothing)
                         .Without(CheckKind::kSharded, kPerShard)
                         .Without(CheckKind::kVarying, "what it takes is invarying"));
    r.rows.push_back(Make("pvary", absl::StrCat(N(d), "/other"), {Varying(d, {2, 3}, {"x"})})
                         .Moves()
                         .With({{"axes", AxisList{"y"}}})
                         .In(TwoAxes())
                         .Linear({{0}})
                         .Without(CheckKind::kCost, kMovesNothing)
                         .Without(CheckKind::kSharded, kPerShard)
                         .Without(CheckKind::kVarying, "what it takes is invarying"));
  }
  // Casts between a value and a pending sum. A cast does not change the block of any device.
  const auto cast = [&](const char* op, DType d, Operand x) {
    r.rows.push_back(Make(op, N(d), {std::move(x)})
                         .Moves()
                         .With({{"axes", AxisList{"x"}}})
                         .In(OneAxis())
                         .Without(CheckKind::kCost, kMovesNothing)
                         .Without(CheckKind::kSharded, kPerShard)
                         .Without(CheckKind::kRecorded, "it is its operand")
                         .Without(CheckKind::kTranspose,
                                  "terms alone are no value; the acceptance programs have it")
                         .Without(CheckKind::kVarying, "semantics/varying has what it refuses"));
  };
  for (DType d : AllDTypes()) {
    cast("preduced", d, Of(d, {2, 3}));
    cast("vary_unreduced_cast", d, Varying(d, {2, 3}, {"x"}));
    Operand reduced = Of(d, {2, 3});
    reduced.type.reduced = {"x"};
    cast("reduced_vary_cast", d, std::move(reduced));
  }
  return std::move(r.rows);
}

}  // namespace tessera::ir::samples
