// Samples of the ops in ir/ops/indexing.cc, gather.cc, scatter.cc and regions/scatter_by.cc. A
// sample, or row, is one op with given attributes and operands: a test case (samples.h). samples.cc
// collects the rows, and the tests of this folder check them.
#include "absl/strings/str_cat.h"
#include "tests/ops/samples.h"

namespace tessera::ir::samples {
namespace {

using enum DType;

Operand MovedOperand(DType d, Dims shape) {
  return Of(d, std::move(shape), IsFloat(d) ? UsualFill(d) : Bits());
}
Operand StartOperand(double start, DType index = kS32) { return Of(index, {}, Values({start})); }

// The dimension numbers of a gather or a scatter, with the shapes and the index vectors of a row.
struct Windows {
  std::string_view label;
  Dims operand, indices;
  std::vector<double> at;  // elements of the indices in row-major order
  Dims window;             // size of a window along each dim of the operand
  Dims block;              // shape of all windows together: a gather's result, a scatter's updates
  std::vector<int64_t> window_dims, collapsed, index_map;
  int64_t index_vector_dim;
  std::vector<int64_t> batching = {}, indices_batching = {};
};
// Each entry tests another property of the dimension numbers, which its label names. All index
// vectors are in bounds; WithOutOfBounds() moves two of their elements out of bounds.
const std::vector<Windows>& SomeWindows() {
  static const auto* const windows = new std::vector<Windows>{
      {"rows", {8, 4}, {4, 1}, {5, 0, 7, 2}, {1, 4}, {4, 4}, {1}, {0}, {0}, 1},
      {"vectors_are_elements", {8, 4}, {4}, {5, 0, 7, 2}, {1, 4}, {4, 4}, {1}, {0}, {0}, 1},
      {"elements", {4, 8}, {4, 2}, {3, 7, 0, 0, 2, 5, 3, 1}, {1, 1}, {4}, {}, {0, 1}, {0, 1}, 1},
      {"swapped", {4, 8}, {4, 2}, {7, 3, 0, 0, 5, 2, 1, 3}, {1, 1}, {4}, {}, {0, 1}, {1, 0}, 1},
      {"blocks",
       {4, 8},
       {2, 2, 2},
       {1, 4, 0, 0, 2, 5, 1, 3},
       {2, 3},
       {2, 2, 2, 3},
       {2, 3},
       {},
       {0, 1},
       2},
      {"window_first", {4, 8}, {2, 1}, {1, 6}, {4, 2}, {4, 2, 2}, {0, 2}, {}, {1}, 1},
      {"vector_first", {4, 8}, {1, 4}, {3, 0, 1, 2}, {1, 8}, {4, 8}, {1}, {0}, {0}, 0},
      {"batched",
       {4, 2, 8},
       {2, 4, 1},
       {1, 3, 5, 0, 6, 2, 4, 6},
       {1, 1, 2},
       {2, 4, 2},
       {2},
       {},
       {2},
       2,
       {0, 1},
       {1, 0}},
      {"scalar_index", {8, 4}, {1}, {3}, {1, 4}, {4}, {0}, {0}, {0}, 0},
  };
  return *windows;
}
// Scatters that change nothing: the updates have no elements, or the operand has none.
const std::vector<Windows>& EmptyWindows() {
  static const auto* const windows = new std::vector<Windows>{
      {"no_updates", {8, 4}, {4, 1}, {5, 0, 7, 2}, {0, 4}, {4, 0, 4}, {1, 2}, {}, {0}, 1},
      {"no_columns", {8, 4}, {4, 1}, {5, 0, 7, 2}, {1, 0}, {4, 0}, {1}, {0}, {0}, 1},
      {"no_operand", {0, 4}, {4, 1}, {5, 0, 7, 2}, {1, 4}, {4, 4}, {1}, {0}, {0}, 1},
  };
  return *windows;
}
// Returns the indices with the first moved out of bounds below and the last moved out of bounds
// above.
std::vector<double> WithOutOfBounds(std::vector<double> at) {
  at.front() -= 9;
  at.back() += 9;
  return at;
}

Sample GatherRow(std::string label, DType d, const Windows& w, std::vector<double> at,
                 std::string mode, DType index = kS32) {
  return Make("gather", label,
              {MovedOperand(d, w.operand), Of(index, w.indices, Values(std::move(at)))})
      .With({{"offset_dims", w.window_dims},
             {"collapsed_slice_dims", w.collapsed},
             {"operand_batching_dims", w.batching},
             {"start_indices_batching_dims", w.indices_batching},
             {"start_index_map", w.index_map},
             {"index_vector_dim", w.index_vector_dim},
             {"slice_sizes", w.window},
             {"mode", std::move(mode)}})
      .Linear({{0}});
}
Sample ScatterRow(std::string_view op, std::string label, DType d, const Windows& w,
                  std::vector<double> at, std::string mode, DType index = kS32) {
  return Make(op, label,
              {MovedOperand(d, w.operand), Of(index, w.indices, Values(std::move(at))),
               MovedOperand(d, w.block)})
      .With({{"update_window_dims", w.window_dims},
             {"inserted_window_dims", w.collapsed},
             {"input_batching_dims", w.batching},
             {"scatter_indices_batching_dims", w.indices_batching},
             {"scatter_dims_to_operand_dims", w.index_map},
             {"index_vector_dim", w.index_vector_dim},
             {"mode", std::move(mode)}});
}

// Returns a computation in which the order of the updates matters: half the old value (for
// integers, three times the old value) plus the update.
FunctionRef Damped(DType d) {
  return Computation({d, d}, [](const std::vector<Value>& v) -> std::vector<Value> {
    if (v[0].dtype() == kBool) return {And(v[0], Not(v[1]))};
    const Value scaled = v[0] * FullLike(v[0], IsFloat(v[0].dtype()) ? 0.5 : 3);
    return {scaled + v[1]};
  });
}

// Adds scatters whose updates are combined by a computation of the program. The computation does
// not commute, so that these rows also check the order in which updates are applied.
std::vector<Sample> ScatterBySamples() {
  std::vector<Sample> rows;
  const std::vector<Windows>& windows = SomeWindows();
  const auto add = [&](std::string label, DType d, const Windows& w, std::vector<double> at,
                       const char* mode) {
    rows.push_back(
        ScatterRow("scatter_by", std::move(label), d, w, std::move(at), mode).Region(Damped(d)));
  };
  for (DType d : Computable()) {
    add(N(d) + "/rows", d, windows[0], windows[0].at, "clip");
    add(N(d) + "/twice", d, windows[0], {5, 2, 5, 5}, "clip");
    add(N(d) + "/outside", d, windows[0], WithOutOfBounds(windows[0].at), "fill_or_drop");
  }
  for (const Windows& w : windows) {
    const std::string label = absl::StrCat("f64/", ToAbsl(w.label));
    add(label + "/drop", kF64, w, WithOutOfBounds(w.at), "fill_or_drop");
    add(label + "/clip", kF64, w, WithOutOfBounds(w.at), "clip");
    add(label + "/promise", kF64, w, w.at, "promise_in_bounds");
  }
  for (const Windows& w : EmptyWindows())
    for (const char* mode : {"clip", "fill_or_drop"})
      add(absl::StrCat("f64/", ToAbsl(w.label), "/", mode), kF64, w, w.at, mode);
  // These rows scatter two operands at once. They keep the larger value of the first operand, and
  // the value of the second operand that came with it.
  for (const Windows& w : {windows[0], windows[2], windows[7]}) {
    Sample row = ScatterRow("scatter_by", absl::StrCat("f64/pairs_", ToAbsl(w.label)), kF64, w,
                            w.at, "clip");
    row.operands = {row.operands[0], Of(kS32, w.operand), row.operands[1], row.operands[2],
                    Of(kS32, w.block)};
    row.Region(Computation({kF64, kS32, kF64, kS32},
                           [](const std::vector<Value>& v) -> std::vector<Value> {
                             const Value more = Compare(v[2], v[0], "GT");
                             const Value value = Select(more, v[2], v[0]);
                             return {value, Select(more, v[3], v[1])};
                           }))
        .Without(CheckKind::kRecorded, "lax scatters one operand");
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

// Adds rows of dynamic slices, gathers and scatters. One dtype has rows for all windows; the other
// dtypes have rows for the first windows only, because the rules for windows do not depend on the
// dtype.
std::vector<Sample> IndexingSamples() {
  std::vector<Sample> rows;
  auto slice = [&](std::string_view label, DType d, Dims shape, Dims sizes,
                   std::vector<Operand> starts) {
    starts.insert(starts.begin(), MovedOperand(d, shape));
    rows.push_back(Make("dynamic_slice", absl::StrCat(N(d), "/", ToAbsl(label)), starts)
                       .With({{"slice_sizes", sizes}})
                       .Linear({{0}})
                       .Moves());
  };
  auto update = [&](std::string_view label, DType d, Dims shape, Dims block,
                    std::vector<Operand> starts) {
    starts.insert(starts.begin(), {MovedOperand(d, shape), MovedOperand(d, block)});
    rows.push_back(Make("dynamic_update_slice", absl::StrCat(N(d), "/", ToAbsl(label)), starts)
                       .Linear({{0, 1}, {0}, {1}})
                       .Moves());
  };
  for (DType d : AllDTypes()) {
    slice("block", d, {4, 8}, {2, 3}, {StartOperand(1), StartOperand(4)});
    update("block", d, {4, 8}, {2, 3}, {StartOperand(1), StartOperand(4)});
  }
  for (DType d : Computable()) {
    slice("clamped", d, {4, 8}, {2, 3}, {StartOperand(-3), StartOperand(7)});
    slice("rows", d, {8, 4}, {1, 4}, {StartOperand(5), StartOperand(0)});
    update("clamped", d, {4, 8}, {2, 3}, {StartOperand(9), StartOperand(-1)});
    update("rows", d, {8, 4}, {1, 4}, {StartOperand(5), StartOperand(0)});
  }
  for (DType index : Integers()) {
    slice(absl::StrCat("index_", N(index)), kF64, {4, 8}, {2, 4},
          {StartOperand(1, index), StartOperand(6, index)});
    update(absl::StrCat("index_", N(index)), kF64, {4, 8}, {2, 4},
           {StartOperand(3, index), StartOperand(2, index)});
  }
  slice("whole", kF64, {4, 8}, {4, 8}, {StartOperand(2), StartOperand(2)});
  slice("nothing", kF64, {4, 8}, {0, 8}, {StartOperand(2), StartOperand(0)});
  slice("scalar", kF64, {}, {}, {});
  update("whole", kF64, {4, 8}, {4, 8}, {StartOperand(2), StartOperand(2)});
  update("scalar", kF64, {}, {}, {});

  const std::vector<Windows>& windows = SomeWindows();
  for (DType d : AllDTypes()) {
    rows.push_back(
        GatherRow(absl::StrCat(N(d), "/rows"), d, windows[0], windows[0].at, "clip").Moves());
    Sample outside = GatherRow(absl::StrCat(N(d), "/outside"), d, windows[0],
                               WithOutOfBounds(windows[0].at), "fill_or_drop");
    outside.Moves();
    if (IsFloat(d)) outside.NotSmooth("what is out of bounds is NaN");
    rows.push_back(std::move(outside));
  }
  for (const Windows& w : windows) {
    for (const char* mode : {"clip", "fill_or_drop"}) {
      rows.push_back(GatherRow(absl::StrCat("f64/", ToAbsl(w.label), "/", mode), kF64, w,
                               WithOutOfBounds(w.at), mode));
      if (std::string_view(mode) == "fill_or_drop")
        rows.back().attrs.Set("fill_value", Array::Scalar(kF64, 0));
    }
    rows.push_back(GatherRow(absl::StrCat("f64/", ToAbsl(w.label), "/promise"), kF64, w, w.at,
                             "promise_in_bounds"));
  }
  // Zeros must keep their signs, also if a plan cuts the operand.
  for (DType d : Floats()) {
    Sample special = GatherRow(N(d) + "/special", d, windows[0], windows[0].at, "clip");
    special.operands[0] = Of(d, windows[0].operand, Values({0, -0.0, kInf, -kInf, kNan, -0.0, 1}));
    rows.push_back(special.Moves().NotSmooth("NaNs and infinities have no finite difference"));
  }
  Sample filled =
      GatherRow("f64/filled", kF64, windows[0], WithOutOfBounds(windows[0].at), "fill_or_drop");
  filled.attrs.Set("fill_value", Array::Scalar(kF64, -7));
  filled.linear.clear();  // with a fill value other than 0, the op is not linear in the operand
  rows.push_back(std::move(filled));
  for (DType index : {kU32, kS64})
    rows.push_back(GatherRow(absl::StrCat("f64/index_", N(index)), kF64, windows[0], windows[0].at,
                             "clip", index));

  const std::vector<double> twice = {5, 2, 5, 2};  // indices for windows[0] that repeat
  for (const char* op : {"scatter", "scatter_add", "scatter_mul", "scatter_min", "scatter_max"}) {
    const std::string_view name = op;
    const bool replaces = name == "scatter", adds = name == "scatter_add";
    const bool multiplies = name == "scatter_mul";
    // If an element may be written twice, three things change: the op is linear in fewer operands,
    // the order of a sum matters, and a product has no derivative (differentiating it is refused,
    // as in JAX).
    const auto add = [&](Sample row, bool unique) {
      if (unique) row.attrs.Set("unique_indices", true);
      if (adds || (replaces && unique)) {
        row.Linear({{0, 2}, {0}, {2}});
      } else if (replaces || multiplies) {
        row.Linear({{0}});
      }
      if (adds && !unique && IsFloat(row.dtype())) row.Within(Reordered(4));
      rows.push_back(std::move(row.Moves()));
    };
    for (DType d : replaces ? AllDTypes() : Computable()) {
      if (d == kBool && (adds || multiplies)) continue;
      const auto label = [&](const char* what) { return absl::StrCat(N(d), "/", what); };
      add(ScatterRow(name, label("rows"), d, windows[0], windows[0].at, "clip"), true);
      if (!IsComputable(d)) continue;
      if (!multiplies || !IsFloat(d))
        add(ScatterRow(name, label("twice"), d, windows[0], twice, "clip"), false);
      add(ScatterRow(name, label("outside"), d, windows[0], WithOutOfBounds(windows[0].at),
                     "fill_or_drop"),
          true);
    }
    const DType d = multiplies ? kS32 : kF64;
    for (const Windows& w : windows) {
      const auto label = [&](const char* mode) {
        return absl::StrCat(N(d), "/", ToAbsl(w.label), "/", mode);
      };
      add(ScatterRow(name, label("drop"), d, w, WithOutOfBounds(w.at), "fill_or_drop"), false);
      if (!replaces && !adds) continue;  // the other ops differ only in how they combine
      add(ScatterRow(name, label("clip"), d, w, WithOutOfBounds(w.at), "clip"), false);
      add(ScatterRow(name, label("promise"), d, w, w.at, "promise_in_bounds"), false);
    }
    for (const Windows& w : EmptyWindows())
      for (const char* mode : {"clip", "fill_or_drop"})
        add(ScatterRow(name, absl::StrCat(N(d), "/", ToAbsl(w.label), "/", mode), d, w, w.at, mode),
            /*unique=*/false);
    if (name == "scatter_min" || name == "scatter_max")
      for (DType f : Floats()) {
        Sample special = ScatterRow(name, N(f) + "/special", f, windows[0], twice, "clip");
        special.operands[0] = Of(f, windows[0].operand, Values({0, 2, kInf, -kInf, kNan, 1, -1}));
        special.operands[2] = Of(f, windows[0].block, Values({1, kNan, -3, kInf, -kInf}));
        add(std::move(special.NotSmooth("NaNs and infinities have no finite difference")), false);
      }
    for (DType index : {kU32, kS64})
      add(ScatterRow(name, absl::StrCat("f64/index_", N(index)), kF64, windows[0], windows[0].at,
                     "clip", index),
          true);
  }
  for (Sample& s : ScatterBySamples()) rows.push_back(std::move(s));
  return rows;
}

}  // namespace tessera::ir::samples
