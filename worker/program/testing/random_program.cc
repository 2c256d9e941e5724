// Makes random functions for the tests of lowering, fusion and the backends. All values are small
// whole numbers, which the generator keeps small by clamping, so that results are exact in any
// order.
#include "worker/program/testing/random_program.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "ir/ops.h"
#include "worker/program/access.h"

namespace tessera::worker::program {
namespace {

class RandomProgramMaker {
 public:
  RandomProgramMaker(uint32_t seed, ir::Scope scope) : scope_(std::move(scope)), gen_(seed) {
    dtype_ = Below(2) == 0 ? ir::DType::kS32 : ir::DType::kF32;
  }

  ir::FunctionRef Make() {
    ir::Builder b(scope_);
    std::vector<ir::Value> values;
    for (int i = Below(3) + 2; i > 0; --i) values.push_back(b.Param(ir::MakeType(dtype_, Shape())));
    std::vector<ir::Value> starts = {b.Param(ir::MakeType(ir::DType::kS32, {}))};
    AddRandomOps(b, &values, starts, /*ops=*/Below(30) + 3, /*depth=*/0);
    std::vector<ir::Value> results;
    for (int i = Below(4) + 1; i > 0; --i) results.push_back(values[Below(values.size())]);
    results.push_back(values.back());
    return b.Build(results);
  }

 private:
  int Below(size_t n) { return static_cast<int>(gen_() % n); }
  ir::Dims Shape() {
    static const std::vector<ir::Dims> kShapes = {{},     {6},       {2, 3}, {3, 2}, {4, 6},
                                                  {6, 4}, {2, 3, 4}, {1, 6}, {24},   {4, 1, 6}};
    return kShapes[Below(kShapes.size())];
  }
  ir::Value Bounded(ir::Value x) {
    const ir::Value low = ir::FullLike(x, -9), high = ir::FullLike(x, 9);
    return ir::Clamp(low, x, high);
  }
  // Returns a value of the shape of `x`: one of `values`, reshaped or broadcast if necessary, or
  // else `x` itself.
  ir::Value Like(ir::Value x, const std::vector<ir::Value>& values) {
    const size_t from = Below(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const ir::Value v = values[(from + i) % values.size()];
      if (v.shape() == x.shape()) return v;
      if (v.type().num_elements() == x.type().num_elements()) return ir::Reshape(v, x.shape());
      if (v.rank() == 0) return ir::BroadcastInDim(v, x.shape(), {});
    }
    return x;
  }

  void AddRandomOps(ir::Builder& b, std::vector<ir::Value>* values,
                    const std::vector<ir::Value>& starts, int ops, int depth) {
    for (int i = 0; i < ops; ++i) {
      const ir::Value x = (*values)[Below(values->size())];
      values->push_back(RandomOp(b, x, *values, starts, depth));
    }
  }

  // Returns a random op on `x`, or `x` itself if the op does not apply. Every kind of lowering has
  // a case, and sizes are bounded so that programs stay small.
  ir::Value RandomOp(ir::Builder& b, ir::Value x, const std::vector<ir::Value>& values,
                     const std::vector<ir::Value>& starts, int depth) {
    const int rank = x.rank();
    const int dim = rank == 0 ? 0 : Below(rank);
    if (!scope_.mesh.empty() && Below(4) == 0)
      return Bounded(ir::Psum(x, {scope_.mesh.axes[0].name}));
    switch (Below(21)) {
      case 0:
        return Bounded(ir::Mul(x, Like(x, values)));
      case 1:
        return ir::Max(x, Like(x, values));
      case 2: {
        const ir::Value y = Like(x, values);
        return ir::Select(ir::Compare(x, y, "GT"), x, ir::Neg(y));
      }
      case 3: {
        std::vector<int64_t> order(rank);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), gen_);
        return ir::Transpose(x, order);
      }
      case 4: {
        const ir::Dims shape = Shape();
        return NumElements(shape) == x.type().num_elements() ? ir::Reshape(x, shape) : x;
      }
      case 5:
        return rank < 3 && x.type().num_elements() < 30
                   ? ir::BroadcastNewDim(x, Below(rank + 1), Below(3) + 1)
                   : x;
      case 6: {
        if (rank == 0) return x;
        ir::Dims start(rank, 0), limit = x.shape(), stride(rank, 1);
        start[dim] = Below(limit[dim]);
        stride[dim] = Below(2) + 1;
        return ir::Slice(x, start, limit, stride);
      }
      case 7:
        return rank == 0 ? x : ir::Reverse(x, {dim});
      case 8: {
        if (rank == 0 || x.type().num_elements() > 60) return x;
        std::vector<int64_t> low(rank, 0), high(rank, 0), interior(rank, 0);
        low[dim] = Below(3) - (x.dim(dim) > 1);
        high[dim] = Below(2);
        interior[dim] = Below(2);
        return ir::Pad(x, ir::Constant(b, dtype_, 7), low, high, interior);
      }
      case 9:
        return rank == 0 || x.type().num_elements() > 60
                   ? x
                   : ir::Concatenate({x, Like(x, values), ir::Neg(x)}, dim);
      case 10:
        return rank == 0 ? x : Bounded(ir::ReduceSum(x, {dim}));
      case 11:
        return rank == 0 ? x : ir::ReduceMax(x, {dim});
      case 12:
        return rank == 0 ? x : ir::Convert(ir::ArgMax(x, dim), dtype_);
      case 13: {
        if (rank == 0 || x.type().num_elements() > 60) return x;
        const ir::Value sums = ir::ReduceSum(x, {dim});
        ir::Dims at;
        for (int64_t d = 0; d < rank; ++d)
          if (d != dim) at.push_back(d);
        return Bounded(ir::Sub(x, ir::BroadcastInDim(sums, x.shape(), at)));
      }
      case 14: {
        if (rank == 0) return x;
        ir::Value start = starts[Below(starts.size())];
        for (const ir::Value v : values)
          if (v.rank() == 0 && Below(2) == 0) start = ir::Convert(v, ir::DType::kS32);
        std::vector<ir::Value> at(rank, start);
        ir::Dims sizes = x.shape();
        sizes[dim] = Below(sizes[dim]) + 1;
        const ir::Value part = ir::DynamicSlice(x, at, sizes);
        return Below(2) == 0 ? part : ir::DynamicUpdateSlice(x, ir::Neg(part), at);
      }
      case 15: {
        if (rank == 0 || x.type().num_elements() > 60) return x;
        ir::DotDims dims;
        dims.lhs_contract = dims.rhs_contract = {dim};
        if (rank == 3) dims.lhs_batch = dims.rhs_batch = {(dim + 1) % 3};
        return Bounded(ir::DotGeneral(x, Like(x, values), dims));
      }
      case 16:
        return rank == 0
                   ? x
                   : ir::Add(x, ir::Convert(ir::Iota(b, ir::DType::kS32, x.shape(), dim), dtype_));
      case 17:
        return rank == 0 || x.type().num_elements() > 30 ? x : GatherWindows(x, dim, values).read;
      case 18: {
        if (rank == 0 || x.type().num_elements() > 30) return x;
        const GatheredWindows w = GatherWindows(x, dim, values);
        const ir::Value updates = ir::Neg(w.read);
        switch (Below(4)) {
          case 0:
            return ir::Scatter(x, w.indices, updates, w.dims, w.options);
          case 1:
            return ir::ScatterMax(x, w.indices, updates, w.dims, w.options);
          case 2:
            return ir::ScatterMin(x, w.indices, updates, w.dims, w.options);
          default:
            return Bounded(ir::ScatterAdd(x, w.indices, updates, w.dims, w.options));
        }
      }
      case 19: {
        if (rank == 0) return x;
        const bool reverse = Below(2) == 0;
        return Below(2) == 0 ? ir::Cummax(x, dim, reverse) : Bounded(ir::Cumsum(x, dim, reverse));
      }
      default:
        return depth < 2 ? Loop(b, x, values, starts, depth) : x;
    }
  }

  // Windows gathers rows of x, or windows of several rows, at indices that another value holds. The
  // indices may be out of bounds.
  struct GatheredWindows {
    ir::Value read, indices;
    ir::ScatterDimensionNumbers dims;
    ir::GatherScatterOptions options;
  };
  GatheredWindows GatherWindows(ir::Value x, int dim, const std::vector<ir::Value>& values) {
    ir::Value numbers = values[Below(values.size())];
    const int64_t count = std::min<int64_t>(numbers.type().num_elements(), Below(6) + 1);
    numbers = ir::Reshape(numbers, {numbers.type().num_elements()});
    numbers = ir::Slice(numbers, {0}, {count}, {1});
    GatheredWindows w;
    w.indices = ir::Reshape(ir::Convert(numbers, ir::DType::kS32), {count, 1});
    w.options.mode =
        Below(2) == 0 ? ir::GatherScatterMode::kClip : ir::GatherScatterMode::kFillOrDrop;
    const bool rows = Below(2) == 0;
    ir::Dims sizes = x.shape();
    sizes[dim] = rows ? 1 : Below(sizes[dim]) + 1;
    // The dim of the result along which the windows follow each other.
    const int64_t at = rows ? Below(x.rank()) : 0;
    for (int64_t d = 0; d < x.rank() + (rows ? 0 : 1); ++d)
      if (d != at) w.dims.update_window_dims.push_back(d);
    if (rows) w.dims.inserted_window_dims = {dim};
    w.dims.scatter_dims_to_operand_dims = {dim};
    const ir::GatherDimensionNumbers reads{w.dims.update_window_dims, w.dims.inserted_window_dims,
                                           w.dims.scatter_dims_to_operand_dims};
    w.read = ir::Gather(x, w.indices, reads, sizes, w.options, ir::Array::Scalar(dtype_, 3));
    return w;
  }

  // A loop that carries x and another value, goes through the rows of x, and reads a value from
  // outside.
  ir::Value Loop(ir::Builder& b, ir::Value x, const std::vector<ir::Value>& values,
                 const std::vector<ir::Value>& starts, int depth) {
    if (x.rank() == 0 || x.dim(0) == 0) return x;
    const ir::Value other = Like(x, values), outside = values[Below(values.size())];
    ir::Dims row(x.shape().begin() + 1, x.shape().end());
    ir::Builder body(scope_, "step");
    std::vector<ir::Value> inner = {
        body.Param(outside.type()), body.Param(ir::MakeType(ir::DType::kS32, {})),
        body.Param(x.type()), body.Param(other.type()), body.Param(ir::MakeType(dtype_, row))};
    const ir::Value start = inner[1];
    const std::vector<ir::Value> carries = {inner[2], inner[3]};
    std::vector<ir::Value> pool = {inner[0], inner[2], inner[3], inner[4]};
    for (ir::Value& v : pool)
      if (v.type().weak) v = ir::Convert(v, dtype_);
    AddRandomOps(body, &pool, {start}, Below(6) + 1, depth + 1);
    std::vector<ir::Value> results = {Like(carries[0], pool), carries[0], pool.back()};
    if (Below(2) == 0) results[1] = Like(carries[0], pool);
    const ir::FunctionRef f = body.Build(results);
    const std::vector<ir::Value> out =
        ir::Scan(b, f, {outside, starts[0], x, other, x}, /*num_consts=*/2, /*num_carry=*/2,
                 x.dim(0), /*reverse=*/Below(2) == 0);
    return out[Below(out.size())];
  }

  const ir::Scope scope_;
  std::mt19937 gen_;
  ir::DType dtype_;
};

}  // namespace

ir::FunctionRef RandomProgram(uint32_t seed, const ir::Scope& scope) {
  return RandomProgramMaker(seed, scope).Make();
}

ir::Array WholeNumbers(const ir::Type& type, int salt) {
  ir::Array a(type.dtype, type.shape);
  for (int64_t i = 0; i < a.num_elements(); ++i)
    a.Set(i, static_cast<double>((i * 7 + salt * 3) % 5));
  return a;
}

}  // namespace tessera::worker::program
