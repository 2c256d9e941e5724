// Samples of the ops in ir/ops/data_movement.cc. A sample, or row, is one op with given attributes
// and operands: a test case (samples.h). Every element of a result is an element of an operand or a
// fill value, so results are equal bit for bit. samples.cc collects the rows, and the tests of this
// folder check them.
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/ops/samples.h"

namespace tessera::ir::samples {
namespace {

using enum DType;

// Returns an operand of random bits. If `d` is inexact, returns one of usual numbers instead,
// because the checks of derivatives need those.
Operand MovedOperand(DType d, Dims shape) {
  return Of(d, std::move(shape), IsInexact(d) ? UsualFill(d) : Bits());
}

class Rows {
 public:
  // Adds one row for each dtype that has kernels. For the first label of an op, adds rows for the
  // other dtypes, too.
  void Unary(std::string_view op, std::string_view label, Dims shape, const Attrs& attrs) {
    for (DType d : DTypesFor(op))
      rows.push_back(Make(op, absl::StrCat(N(d), "/", ToAbsl(label)), {MovedOperand(d, shape)})
                         .With(attrs)
                         .Linear({{0}})
                         .Moves());
  }
  void Broadcast(std::string_view label, Dims from, Dims shape, Dims at) {
    Unary("broadcast_in_dim", label, from, {{"shape", shape}, {"broadcast_dimensions", at}});
  }
  void Reshape(std::string_view label, Dims from, Dims shape) {
    Unary("reshape", label, from, {{"shape", shape}});
  }
  void Transpose(std::string_view label, Dims from, Dims permutation) {
    Unary("transpose", label, from, {{"permutation", permutation}});
  }
  void Slice(std::string_view label, Dims from, Dims start, Dims limit, Dims strides) {
    Unary("slice", label, from,
          {{"start_indices", start}, {"limit_indices", limit}, {"strides", strides}});
  }
  void Windows(std::string_view label, Dims from, Dims dims, Dims sizes, Dims strides,
               Dims dilations) {
    Unary("sliding_window_view", label, from,
          {{"dimensions", dims},
           {"window_dimensions", sizes},
           {"window_strides", strides},
           {"window_dilations", dilations}});
  }
  void Reverse(std::string_view label, Dims from, Dims dims) {
    Unary("reverse", label, from, {{"dimensions", dims}});
  }
  void Concatenate(std::string_view label, const std::vector<Dims>& shapes, int64_t dimension) {
    for (DType d : DTypesFor("concatenate")) {
      std::vector<Operand> in;
      std::vector<std::vector<int>> linear(1);
      for (const Dims& s : shapes) {
        linear[0].push_back(static_cast<int>(in.size()));
        linear.push_back({static_cast<int>(in.size())});
        in.push_back(MovedOperand(d, s));
      }
      rows.push_back(Make("concatenate", absl::StrCat(N(d), "/", ToAbsl(label)), in)
                         .With({{"dimension", dimension}})
                         .Linear(linear)
                         .Moves());
    }
  }
  void Pad(std::string_view label, Dims from, Dims low, Dims high, Dims interior) {
    for (DType d : DTypesFor("pad"))
      rows.push_back(Make("pad", absl::StrCat(N(d), "/", ToAbsl(label)),
                          {MovedOperand(d, from), MovedOperand(d, {})})
                         .With({{"edge_padding_low", low},
                                {"edge_padding_high", high},
                                {"interior_padding", interior}})
                         .Linear({{0, 1}, {0}, {1}})
                         .Moves());
  }

  std::vector<Sample> rows;

 private:
  std::vector<DType> DTypesFor(std::string_view op) {
    return seen_.emplace(op).second ? AllDTypes() : Computable();
  }
  std::set<std::string, std::less<>> seen_;
};

Array SomeLiteral(DType d, Dims shape) {
  return FilledShards(MakeType(d, shape), d == kBool || IsInexact(d) ? UsualFill(d) : Bits(), {},
                      "literal")[0];
}

}  // namespace

// Lists the rows op by op. The label of a row names its special property: empty dims, dims of size
// one, permutations, strides.
std::vector<Sample> DataMovementSamples() {
  Rows r;
  for (DType d : AllDTypes()) {
    r.rows.push_back(Make("constant", N(d), {}).With({{"value", SomeLiteral(d, {})}}));
    r.rows.push_back(Make("constant", absl::StrCat(N(d), "/matrix"), {})
                         .With({{"value", SomeLiteral(d, {4, 4})}}));
  }
  for (DType d : Numbers()) {
    r.rows.push_back(
        Make("iota", absl::StrCat(N(d), "/rows"), {})
            .With({{"dtype", d}, {"shape", Dims{8, 4}}, {"iota_dimension", int64_t{0}}}));
    r.rows.push_back(
        Make("iota", absl::StrCat(N(d), "/columns"), {})
            .With({{"dtype", d}, {"shape", Dims{4, 8}}, {"iota_dimension", int64_t{1}}}));
  }
  // A bf16 cannot represent every whole number above 256. So each index must be converted on its
  // own; repeatedly adding 1 in bf16 would not get past 256.
  r.rows.push_back(
      Make("iota", "bf16/long", {})
          .With({{"dtype", kBF16}, {"shape", Dims{520}}, {"iota_dimension", int64_t{0}}}));

  r.Broadcast("scalar", {}, {4, 8}, {});
  r.Broadcast("rows", {4}, {4, 8}, {0});
  r.Broadcast("columns", {8}, {4, 8}, {1});
  r.Broadcast("expand", {4, 1}, {4, 8}, {0, 1});
  r.Broadcast("crossed", {4, 8}, {8, 4, 2}, {1, 0});
  r.Broadcast("same", {4, 8}, {4, 8}, {0, 1});
  r.Broadcast("empty", {0}, {4, 0}, {1});
  r.Reshape("merge", {4, 8}, {32});
  r.Reshape("split", {32}, {4, 2, 4});
  r.Reshape("regroup", {4, 6}, {6, 4});
  r.Reshape("ones", {1, 8, 1}, {8});
  r.Reshape("scalar", {1, 1}, {});
  r.Reshape("empty", {0, 4}, {4, 0, 2});
  r.Reshape("split_and_merge", {4, 4, 8}, {2, 8, 8});
  r.Transpose("matrix", {4, 8}, {1, 0});
  r.Transpose("cycle", {4, 2, 8}, {2, 0, 1});
  r.Transpose("same", {4, 8}, {0, 1});
  r.Slice("block", {8, 8}, {2, 1}, {6, 8}, {1, 1});
  r.Slice("strided", {8, 9}, {0, 1}, {8, 9}, {1, 3});
  r.Slice("whole_rows", {8, 8}, {0, 4}, {8, 8}, {1, 1});
  r.Slice("empty", {8, 4}, {3, 0}, {3, 4}, {1, 1});
  r.Slice("one_of_each", {16, 4}, {1, 0}, {16, 4}, {2, 1});
  r.Windows("rows", {6, 4}, {0}, {3}, {1}, {1});
  r.Windows("apart", {4, 8}, {1}, {2}, {2}, {1});
  r.Windows("strided", {2, 9}, {1}, {3}, {2}, {1});
  r.Windows("dilated", {9, 2}, {0}, {3}, {1}, {2});
  r.Windows("both", {5, 8}, {1, 0}, {2, 3}, {3, 1}, {2, 1});
  r.Windows("single", {7, 4}, {0}, {1}, {3}, {5});
  r.Windows("whole", {4, 3}, {1}, {3}, {1}, {1});
  r.Windows("too_large", {4, 3}, {1}, {4}, {1}, {1});
  r.Windows("none", {4, 8}, {}, {}, {}, {});
  r.Windows("blocks", {16, 4}, {0}, {2}, {2}, {1});
  r.Windows("blocks_apart", {2, 16}, {1}, {2}, {4}, {2});
  r.Reverse("one", {4, 8}, {0});
  r.Reverse("both", {4, 8}, {0, 1});
  r.Reverse("none", {4, 8}, {});
  r.Concatenate("rows", {{2, 8}, {4, 8}, {2, 8}}, 0);
  r.Concatenate("columns", {{4, 4}, {4, 4}}, 1);
  r.Concatenate("one", {{4, 8}}, 0);
  r.Concatenate("with_empty", {{0, 4}, {4, 4}}, 0);
  r.Pad("edges", {4, 8}, {1, 0}, {3, 0}, {0, 0});
  r.Pad("interior", {4, 8}, {0, 1}, {0, 2}, {0, 2});
  r.Pad("negative", {4, 8}, {-1, 2}, {1, -3}, {0, 0});
  r.Pad("negative_interior", {4, 5}, {0, -2}, {0, -1}, {0, 2});
  r.Pad("nothing", {4, 8}, {0, 0}, {0, 0}, {0, 0});
  r.Pad("from_empty", {0, 4}, {2, 0}, {2, 0}, {1, 0});
  r.Pad("one_of_each", {8, 2}, {1, 0}, {2, 0}, {3, 0});
  return std::move(r.rows);
}

}  // namespace tessera::ir::samples
