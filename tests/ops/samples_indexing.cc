// Rows of ir/ops/indexing.cc.  Starts outside are clamped.
#include "absl/strings/str_cat.h"
#include "tests/ops/samples.h"

namespace tessera::ir::samples {
namespace {

using enum DType;

Operand Moved(DType d, Dims shape) {
  return Of(d, std::move(shape), IsFloat(d) ? Usual(d) : Bits());
}
Operand At(double start, DType index = kS32) { return Of(index, {}, Values({start})); }

}  // namespace

std::vector<Sample> IndexingSamples() {
  std::vector<Sample> rows;
  auto slice = [&](std::string_view label, DType d, Dims shape, Dims sizes,
                   std::vector<Operand> starts) {
    starts.insert(starts.begin(), Moved(d, shape));
    rows.push_back(Make("dynamic_slice", absl::StrCat(N(d), "/", ToAbsl(label)), starts)
                       .With({{"slice_sizes", sizes}})
                       .Linear({{0}}));
  };
  auto update = [&](std::string_view label, DType d, Dims shape, Dims block,
                    std::vector<Operand> starts) {
    starts.insert(starts.begin(), {Moved(d, shape), Moved(d, block)});
    rows.push_back(Make("dynamic_update_slice", absl::StrCat(N(d), "/", ToAbsl(label)), starts)
                       .Linear({{0, 1}, {0}, {1}}));
  };
  for (DType d : Computable()) {
    slice("block", d, {4, 8}, {2, 3}, {At(1), At(4)});
    slice("clamped", d, {4, 8}, {2, 3}, {At(-3), At(7)});
    slice("rows", d, {8, 4}, {1, 4}, {At(5), At(0)});
    update("block", d, {4, 8}, {2, 3}, {At(1), At(4)});
    update("clamped", d, {4, 8}, {2, 3}, {At(9), At(-1)});
    update("rows", d, {8, 4}, {1, 4}, {At(5), At(0)});
  }
  for (DType index : {kU32, kS64}) {
    slice(absl::StrCat("index_", N(index)), kF64, {4, 8}, {2, 4}, {At(1, index), At(6, index)});
    update(absl::StrCat("index_", N(index)), kF64, {4, 8}, {2, 4}, {At(3, index), At(2, index)});
  }
  slice("whole", kF64, {4, 8}, {4, 8}, {At(2), At(2)});
  slice("nothing", kF64, {4, 8}, {0, 8}, {At(2), At(0)});
  slice("scalar", kF64, {}, {}, {});
  update("whole", kF64, {4, 8}, {4, 8}, {At(2), At(2)});
  update("scalar", kF64, {}, {}, {});
  return rows;
}

}  // namespace tessera::ir::samples
