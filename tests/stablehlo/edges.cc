// Builds the programs of edges.h. export_test.cc exports them and reads them back;
// dump_artifacts.cc writes them for JAX, which must give the same bits as the evaluator.
#include "tests/stablehlo/edges.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/ops.h"
#include "ir/verify.h"

namespace tessera::ir::stablehlo {
namespace {

using Results = std::vector<Value>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Returns an array of numbers at which implementations of ops are likely to differ.
Array Filled(const Type& type, int which) {
  Array out(type.dtype, type.shape);
  constexpr double kFloats[] = {0.0, -0.0, 1, -1.5, kNan, kInf, -kInf, 2.25, 0x1p10, -3, 0.5, 7};
  for (int64_t i = 0; i < out.num_elements(); ++i) {
    const int64_t k = i * 5 + which;
    if (IsInexact(type.dtype)) {
      out.Set(i, kFloats[k % std::size(kFloats)]);
    } else if (type.dtype == DType::kBool) {
      out.Set(i, k % 3 == 0 ? 1 : 0);
    } else {
      out.Set(i, static_cast<double>((k * 7) % 11 - (IsSignedInt(type.dtype) ? 5 : 0)));
    }
  }
  return out;
}

class Edges {
 public:
  std::vector<EdgeProgram> Take() { return std::move(edges_); }

  // Adds a program with params of these types. `make` emits its body.
  EdgeProgram& Add(std::string name, const std::vector<Type>& params,
                   const std::function<Results(Builder&, const Results&)>& make, Mesh mesh = {}) {
    Builder b(Scope{std::move(mesh)}, "edge");
    Results args;
    EdgeProgram edge;
    for (const Type& type : params) {
      args.push_back(b.Param(type));
      edge.args.push_back(Filled(type, static_cast<int>(edge.args.size())));
    }
    const Results results = make(b, args);
    edge.name = std::move(name);
    edge.program.entry = b.Build(results);
    if (!edge.program.mesh().empty()) {
      // Every device holds every argument and result whole.
      edge.program.in_shardings.assign(edge.args.size(), PartitionSpec{});
      edge.program.out_shardings.assign(results.size(), PartitionSpec{});
    }
    edges_.push_back(std::move(edge));
    return edges_.back();
  }

 private:
  std::vector<EdgeProgram> edges_;
};

Type Of(DType dtype, Dims shape) { return MakeType(dtype, std::move(shape)); }
Value Literal(Builder& b, Array array) {
  return b.Emit1(ops::kConstant, {}, {{"value", std::move(array)}});
}
Array FromBytes(DType dtype, Dims shape, const std::vector<uint8_t>& bytes) {
  return Array(dtype, std::move(shape),
               {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
}

// ---- Constants. ---------------------------------------------------------------------------------
void AddConstants(Edges& edges) {
  edges.Add("truth_values", {}, [](Builder& b, const Results&) {
    Results out;
    for (int64_t n = 0; n <= 18; ++n) {
      for (int pattern = 0; pattern < 5; ++pattern) {
        Array a(DType::kBool, {n});
        for (int64_t i = 0; i < n; ++i) {
          const bool each[] = {true, false, i == 0, i == n - 1, i % 3 == 1};
          a.Set(i, each[pattern] ? 1 : 0);
        }
        out.push_back(Literal(b, a));
      }
    }
    out.push_back(Literal(b, Array::Scalar(DType::kBool, 1)));
    out.push_back(Literal(b, Array(DType::kBool, {2, 0, 3})));
    return out;
  });
  // Elements of the constants have every byte value at each position of the element. Each constant
  // is written as a scalar, as a splat (one value for all elements) and as a list.
  for (const DType dtype : {DType::kS8,
                            DType::kU8,
                            DType::kS16,
                            DType::kU16,
                            DType::kS32,
                            DType::kU32,
                            DType::kS64,
                            DType::kU64,
                            DType::kF16,
                            DType::kBF16,
                            DType::kF32,
                            DType::kF64,
                            DType::kC64,
                            DType::kC128,
                            DType::kS4,
                            DType::kU4,
                            DType::kS2,
                            DType::kU2,
                            DType::kF8E4M3FN,
                            DType::kF8E5M2,
                            DType::kF8E4M3,
                            DType::kF8E3M4,
                            DType::kF8E4M3FNUZ,
                            DType::kF8E5M2FNUZ,
                            DType::kF8E4M3B11FNUZ,
                            DType::kF8E8M0FNU,
                            DType::kF4E2M1FN}) {
    EdgeProgram& edge =
        edges.Add(absl::StrCat("constants/",
                               absl::string_view(DTypeName(dtype).data(), DTypeName(dtype).size())),
                  {}, [&](Builder& b, const Results&) {
                    const int64_t width = ByteWidth(dtype);
                    const int bits = BitWidth(dtype);
                    const auto element = [&](int seed) {
                      std::vector<uint8_t> bytes(width);
                      for (int64_t i = 0; i < width; ++i)
                        bytes[i] = static_cast<uint8_t>(seed * 37 + i * 101);
                      if (bits >= 8) return bytes;
                      const int value = bytes[0] & ((1 << bits) - 1);
                      const bool negative = IsSignedInt(dtype) && (value >> (bits - 1)) != 0;
                      bytes[0] = static_cast<uint8_t>(negative ? value - (1 << bits) : value);
                      return bytes;
                    };
                    const auto row = [&](int64_t n, bool splat) {
                      std::vector<uint8_t> bytes;
                      for (int64_t i = 0; i < n; ++i) {
                        const std::vector<uint8_t> one = element(splat ? 6 : static_cast<int>(i));
                        bytes.insert(bytes.end(), one.begin(), one.end());
                      }
                      return bytes;
                    };
                    return Results{Literal(b, FromBytes(dtype, {}, row(1, true))),
                                   Literal(b, FromBytes(dtype, {1, 1}, row(1, true))),
                                   Literal(b, FromBytes(dtype, {2, 3}, row(6, true))),
                                   Literal(b, FromBytes(dtype, {255}, row(255, false))),
                                   Literal(b, Array(dtype, {0})),
                                   Literal(b, Array(dtype, {3, 0, 2}))};
                  });
    if (BitWidth(dtype) < 8) edge.not_xla = "XLA's CPU aborts on some elements of few bits";
  }
  edges.Add("zeros_with_signs", {}, [](Builder& b, const Results&) {
    Results out;
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
      out.push_back(Literal(b, Array::Of(dtype, {3}, {0.0, -0.0, 0.0})));
      out.push_back(Literal(b, Array::Of(dtype, {3}, {-0.0, -0.0, -0.0})));
    }
    return out;
  });
}

// ---- Elementwise. -------------------------------------------------------------------------------
void AddElementwise(Edges& edges) {
  const std::string_view kDirections[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
  for (const DType dtype : {DType::kBool, DType::kU8, DType::kS8, DType::kU64, DType::kS64,
                            DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const std::string name(DTypeName(dtype));
    edges.Add(absl::StrCat("compare/", name), {Of(dtype, {24}), Of(dtype, {24})},
              [&](Builder&, const Results& in) {
                Results out;
                for (const std::string_view direction : kDirections) {
                  out.push_back(Compare(in[0], in[1], direction));
                  if (IsFloat(dtype)) out.push_back(CompareTotalOrder(in[0], in[1], direction));
                }
                return out;
              });
  }
  // These u8 values are above the largest s8, so a signed comparison would be wrong.
  edges.Add("compare/u8_high", {}, [&](Builder& b, const Results&) {
    const Value x = Literal(b, FromBytes(DType::kU8, {4}, {0, 127, 128, 255}));
    Results out;
    for (const std::string_view direction : kDirections)
      out.push_back(Compare(x, Reverse(x, {0}), direction));
    return out;
  });
  edges.Add("clamp/scalars", {Of(DType::kF32, {24})}, [](Builder& b, const Results& in) {
    const Value low = Constant(b, DType::kF32, -2), high = Constant(b, DType::kF32, 1);
    return Results{Clamp(low, in[0], high), Clamp(high, in[0], low)};
  });
  edges.Add("select/scalar", {Of(DType::kBool, {}), Of(DType::kF32, {3}), Of(DType::kF32, {3})},
            [](Builder&, const Results& in) { return Results{Select(in[0], in[1], in[2])}; });
}

// ---- Reductions. --------------------------------------------------------------------------------
void AddReductions(Edges& edges) {
  edges.Add("reduce/negative_zeros", {}, [](Builder& b, const Results&) {
    const Value x = Literal(b, Array::Of(DType::kF32, {2, 2}, {-0.0, -0.0, -0.0, 0.0}));
    return Results{ReduceSum(x, {1}), ReduceProd(x, {1}), Cumsum(x, 1), Cumsum(x, 1, true),
                   Cumprod(x, 0)};
  });
  for (const DType dtype : {DType::kS8, DType::kU32, DType::kF32}) {
    edges.Add(absl::StrCat("reduce/of_nothing/", std::string(DTypeName(dtype))),
              {Of(dtype, {3, 0}), Of(dtype, {0, 3})}, [](Builder&, const Results& in) {
                Results out;
                for (const Value x : in)
                  for (const int64_t dim : {0, 1})
                    for (const auto reduce : {ReduceSum, ReduceProd, ReduceMax, ReduceMin})
                      out.push_back(reduce(x, {dim}));
                return out;
              });
  }
  for (const DType dtype :
       {DType::kBool, DType::kU8, DType::kS16, DType::kF16, DType::kBF16, DType::kF64}) {
    edges.Add(absl::StrCat("reduce/arg/", std::string(DTypeName(dtype))), {Of(dtype, {5, 7})},
              [](Builder&, const Results& in) {
                return Results{ArgMax(in[0], 1), ArgMin(in[0], 0), ArgMax(in[0], 0, DType::kU8),
                               ArgMin(in[0], 1, DType::kS64)};
              });
    edges.Add(absl::StrCat("reduce/order/", std::string(DTypeName(dtype))), {Of(dtype, {5, 7})},
              [](Builder& b, const Results& in) {
                const auto sorted = Sort({in[0], Iota(b, DType::kS32, {5, 7}, 1)}, 1);
                const auto [top, at] = TopK(in[0], 3, 0);
                return Results{sorted[0], sorted[1], top, at};
              });
  }
}

// ---- Indices. -----------------------------------------------------------------------------------
void AddIndices(Edges& edges) {
  edges.Add("slices_at/any_index", {Of(DType::kF32, {300, 2})}, [](Builder& b, const Results& in) {
    Results out;
    for (const DType dtype : {DType::kU8, DType::kS8, DType::kS32, DType::kU32, DType::kS64}) {
      for (const double at : {-1.0, 3.0, 127.0, 299.0}) {
        if (at < 0 && !IsSignedInt(dtype)) continue;
        if (at > 127 && BitWidth(dtype) == 8) continue;
        const Value zero = Constant(b, dtype, 0), start = Constant(b, dtype, at);
        out.push_back(DynamicSlice(in[0], {start, zero}, {4, 1}));
        out.push_back(SliceInDim(
            DynamicUpdateSlice(in[0], Slice(in[0], {0, 0}, {2, 2}), {start, start}), 0, 290, 300));
      }
    }
    return out;
  });
  for (const DType dtype : {DType::kS8, DType::kS32, DType::kU32, DType::kS64, DType::kU64}) {
    edges.Add(absl::StrCat("windows_at/", std::string(DTypeName(dtype))),
              {Of(DType::kF32, {6, 3}), Of(DType::kF32, {5, 3})},
              [&](Builder& b, const Results& in) {
                Results out;
                std::vector<double> at = {0, 5, 6, 100, 2};
                if (IsSignedInt(dtype)) at[2] = -1;
                const Value indices = Literal(b, Array::Of(dtype, {5, 1}, at));
                for (const GatherScatterMode mode :
                     {GatherScatterMode::kClip, GatherScatterMode::kFillOrDrop}) {
                  GatherScatterOptions options;
                  options.mode = mode;
                  out.push_back(Gather(in[0], indices, {{1}, {0}, {0}, {}, {}}, {1, 3}, options));
                  out.push_back(Gather(in[0], indices, {{1, 2}, {}, {0}, {}, {}}, {2, 3}, options));
                  const ScatterDimensionNumbers rows = {{1}, {0}, {0}, {}, {}};
                  out.push_back(Scatter(in[0], indices, in[1], rows, options));
                  out.push_back(ScatterMax(in[0], indices, in[1], rows, options));
                }
                return out;
              });
  }
  edges.Add(
      "windows_at/batches", {Of(DType::kF32, {2, 5}), Of(DType::kF32, {2, 3})},
      [](Builder& b, const Results& in) {
        const Value indices = Literal(b, Array::Of(DType::kS32, {2, 3, 1}, {0, 4, -7, 9, 2, 5}));
        Results out;
        for (const GatherScatterMode mode :
             {GatherScatterMode::kClip, GatherScatterMode::kFillOrDrop}) {
          GatherScatterOptions options;
          options.mode = mode;
          out.push_back(Gather(in[0], indices, {{}, {1}, {1}, {0}, {0}}, {1, 1}, options));
          out.push_back(ScatterMin(in[0], indices, in[1], {{}, {1}, {1}, {0}, {0}}, options));
        }
        return out;
      });
  edges.Add("pads", {Of(DType::kF32, {3, 4})}, [](Builder& b, const Results& in) {
    const Value fill = Constant(b, DType::kF32, 9);
    return Results{Pad(in[0], fill, {-1, 2}, {3, -3}, {0, 2}), Pad(in[0], fill, {0, -4}, {0, 0}),
                   Pad(in[0], fill, {-5, 0}, {2, 1}, {1, 0})};
  });
}

// ---- Products. ----------------------------------------------------------------------------------
void AddProducts(Edges& edges) {
  struct Row {
    DType in, out;
  };
  for (const Row& row :
       {Row{DType::kBF16, DType::kF32}, Row{DType::kF32, DType::kBF16},
        Row{DType::kF16, DType::kF64}, Row{DType::kS8, DType::kS32}, Row{DType::kS32, DType::kS8},
        Row{DType::kU8, DType::kU64}, Row{DType::kU8, DType::kS32}, Row{DType::kS8, DType::kU16}}) {
    const std::string name = absl::StrCat("products/", std::string(DTypeName(row.in)), "_to_",
                                          std::string(DTypeName(row.out)));
    EdgeProgram& edge =
        edges.Add(name, {Of(row.in, {2, 3, 5, 2}), Of(row.in, {5, 2, 2, 4})},
                  [&](Builder& b, const Results& in) {
                    const Attrs attrs = {{"lhs_batching_dimensions", std::vector<int64_t>{3, 0}},
                                         {"rhs_batching_dimensions", std::vector<int64_t>{1, 2}},
                                         {"lhs_contracting_dimensions", std::vector<int64_t>{2}},
                                         {"rhs_contracting_dimensions", std::vector<int64_t>{0}},
                                         {"preferred_element_type", row.out}};
                    return Results{b.Emit1(ops::kDotGeneral, in, attrs)};
                  });
    for (Array& array : edge.args)
      for (int64_t i = 0; i < array.num_elements(); ++i)
        array.Set(i, static_cast<double>((i * 7) % 5) - (IsSignedInt(row.in) ? 2 : 0) +
                         (IsFloat(row.in) ? static_cast<double>((i * 3) % 128) / 128 : 0));
    if (BitWidth(row.out) < BitWidth(row.in) || (row.in == DType::kU8 && row.out == DType::kS32) ||
        (row.in == DType::kS8 && row.out == DType::kU16))
      edge.not_xla = "XLA computes other products so, or none";
  }
  edges.Add("products/of_nothing", {Of(DType::kF32, {2, 0}), Of(DType::kF32, {0, 3})},
            [](Builder&, const Results& in) { return Results{Matmul2D(in[0], in[1])}; });
}

// ---- Regions. -----------------------------------------------------------------------------------
FunctionRef FunctionOf(const Scope& scope, const std::vector<Type>& params,
                       const std::function<Results(Builder&, const Results&)>& make) {
  Builder b(scope, "region");
  Results args;
  for (const Type& type : params) args.push_back(b.Param(type));
  const Results results = make(b, args);
  return b.Build(results);
}

// Returns a function of `depth` nested regions around the result of `leaf`. The regions are loops
// that run once, or branches.
FunctionRef Nested(int depth, bool loops, const std::function<Value(Value)>& leaf) {
  const Type type = Of(DType::kF32, {2});
  FunctionRef f = FunctionOf(Scope{}, {type},
                             [&](Builder&, const Results& in) { return Results{leaf(in[0])}; });
  for (int i = 0; i < depth; ++i) {
    f = FunctionOf(Scope{}, {type}, [&](Builder& b, const Results& in) -> Results {
      if (loops) return Scan(b, f, in, 0, 1, 1);
      return Case(Constant(b, DType::kS32, 0), {f, f}, in);
    });
    if (!loops && i > 4) loops = true;  // The number of branches doubles at each level.
  }
  return f;
}

// Adds programs without ops, with unusual names, and with regions nested to the limit. Then adds
// loops and branches in which the export must rearrange operands, because StableHLO's regions
// capture values and ours do not.
void AddRegions(Edges& edges) {
  const Type scalar = Of(DType::kF32, {}), rows = Of(DType::kF32, {4, 3}),
             row = Of(DType::kF32, {3});
  edges.Add("nothing", {}, [](Builder&, const Results&) { return Results(); });
  edges.Add("results/that_are_params", {scalar, row}, [](Builder&, const Results& in) {
    return Results{in[1], in[0], in[1]};
  });
  EdgeProgram& named = edges.Add("names", {scalar, row, scalar}, [](Builder& b, const Results& in) {
    b.SetSite({InternFile("/home/a user/\"model\" \\1.py"), 1 << 20});
    return Results{Neg(in[0]), Neg(in[1]), Neg(in[2])};
  });
  named.program.in_names = {"a \"name\" \\ %0 @x <y>, 'z'", "", std::string(kValueNameMax, '~')};
  named.program.out_names = {"", "loc(\"x\")", std::string(kValueNameMax, ' ')};
  const int deepest = static_cast<int>(Limits().region_depth);
  for (const bool loops : {true, false}) {
    EdgeProgram edge;
    edge.name = loops ? "deep/loops" : "deep/branches";
    // A reduction has a region in StableHLO but not in our ops, so it nests one level deeper.
    const auto leaf = [](Value x) { return BroadcastInDim(ReduceSum(x, {0}), {2}, {}); };
    edge.program.entry = Nested(deepest, loops, leaf);
    edge.args = {Array::Of(DType::kF32, {2}, {1, 2})};
    (void)edges.Add(edge.name, {Of(DType::kF32, {2})}, [&](Builder& b, const Results& in) {
      return Inline(b, *edge.program.entry, in);
    });
  }
  edges.Add("deep/calls", {Of(DType::kF32, {2})}, [&](Builder& b, const Results& in) {
    FunctionRef f = FunctionOf(Scope{}, {Of(DType::kF32, {2})},
                               [](Builder&, const Results& x) { return Results{Cumsum(x[0], 0)}; });
    for (int i = 1; i < deepest; ++i)
      f = FunctionOf(Scope{}, {Of(DType::kF32, {2})},
                     [&](Builder& inner, const Results& x) { return Call(inner, f, {x[0]}); });
    return Call(b, f, in);
  });
  edges.Add("branches/any_index", {row}, [&](Builder& b, const Results& in) {
    std::vector<FunctionRef> branches;
    for (int i = 0; i < 3; ++i)
      branches.push_back(FunctionOf(Scope{}, {row}, [&](Builder&, const Results& x) -> Results {
        if (i == 0) return {x[0]};
        return {Add(x[0], FullLike(x[0], i))};
      }));
    Results out;
    for (const double index : {-1e9, -1.0, 0.0, 1.0, 2.0, 3.0, 1e9})
      out.push_back(Case(Constant(b, DType::kS32, index), branches, in)[0]);
    return out;
  });
  for (const int64_t length : {0, 1, 4})
    for (const bool reverse : {false, true})
      edges.Add(absl::StrCat("loops/scan_of_", length, reverse ? "_back" : ""),
                {row, scalar, Of(DType::kF32, {length, 3}), Of(DType::kS32, {length})},
                [&](Builder& b, const Results& in) {
                  const FunctionRef f =
                      FunctionOf(Scope{}, {row, scalar, row, Of(DType::kS32, {})},
                                 [](Builder&, const Results& x) {
                                   const Value next = Add(x[1], Convert(x[3], DType::kF32));
                                   return Results{next, Sub(x[2], x[0]), x[1], x[0]};
                                 });
                  return Scan(b, f, in, 1, 1, length, reverse);
                });
  edges.Add("loops/scan_of_no_arrays", {scalar}, [&](Builder& b, const Results& in) {
    const FunctionRef f = FunctionOf(Scope{}, {scalar}, [](Builder&, const Results& x) {
      return Results{Add(x[0], FullLike(x[0], 1))};
    });
    const FunctionRef none = FunctionOf(Scope{}, {}, [](Builder& inner, const Results&) {
      return Results{Constant(inner, DType::kS8, 3)};
    });
    return Results{Scan(b, f, in, 0, 1, 5)[0], Scan(b, none, {}, 0, 0, 3)[0]};
  });
  // The loops use values from outside of the loop, values from outside of two loops, and values
  // that change places.
  edges.Add(
      "loops/captures", {scalar, scalar, Of(DType::kS32, {})}, [&](Builder& b, const Results& in) {
        const Type count = Of(DType::kS32, {});
        const FunctionRef below = FunctionOf(
            Scope{}, {count, count, scalar, scalar},
            [](Builder&, const Results& x) { return Results{Compare(x[1], x[0], "LT")}; });
        const FunctionRef swap =
            FunctionOf(Scope{}, {scalar, count, scalar, scalar}, [](Builder&, const Results& x) {
              return Results{Add(x[1], FullLike(x[1], 1)), x[3], Add(x[2], x[0])};
            });
        const FunctionRef outer = FunctionOf(
            Scope{}, {scalar, count, count, scalar, scalar}, [&](Builder& inner, const Results& x) {
              const Value zero = Constant(inner, DType::kS32, 0);
              Results got = While(inner, below, swap, {x[1], x[0], zero, x[3], x[4]}, 1, 1);
              return Results{Add(x[2], FullLike(x[2], 1)), got[2], got[1]};
            });
        const Value zero = Constant(b, DType::kS32, 0), three = Constant(b, DType::kS32, 3);
        const FunctionRef first = FunctionOf(
            Scope{}, {count, count, scalar, scalar},
            [](Builder&, const Results& x) { return Results{Compare(x[1], x[0], "LT")}; });
        return While(b, first, outer, {three, in[0], three, zero, in[0], in[1]}, 1, 2);
      });
}

// ---- On shards. ---------------------------------------------------------------------------------
const Mesh& TwoByTwo() {
  static const auto* const kMesh = new Mesh{{{"x", 2}, {"y", 2}}};
  return *kMesh;
}

// Emits a manual_computation on the shards of `args`, whose body `make` emits. All results of the
// body must vary along the manual axes.
Results OnShards(Builder& b, Results args, const std::vector<PartitionSpec>& in_specs,
                 const std::vector<PartitionSpec>& out_specs, const AxisList& manual,
                 const std::function<Results(Builder&, const Results&)>& make) {
  Builder body(ManualScope(b.scope(), manual, true), "body");
  Results in;
  for (const Type& type : ManualShardTypes(b.scope(), TypesOf(args), in_specs, manual, true))
    in.push_back(body.Param(type));
  const Results results = make(body, in);
  return ManualComputation(b, body.Build(results), args, in_specs, out_specs, manual);
}

// Adds manual computations: partly manual ones, nested ones, ops that StableHLO lacks, every dtype,
// and every collective along every order of axes. The mesh has two axes, so that groups are not
// simply all devices.
void AddOnShards(Edges& edges) {
  const Type rows = Of(DType::kF32, {8, 4});
  const PartitionSpec along_x{{{"x"}}, {}, {}, {}}, along_both{{{"x", "y"}}, {}, {}, {}};
  // Only one of two axes is manual; the planner decides about the other. XLA has no partition_id
  // there, so the export computes the position along the manual axis in a computation over all
  // axes.
  edges.Add(
      "shards/place_along_one_of_two", {Of(DType::kS32, {8})},
      [&](Builder& b, const Results& in) {
        return OnShards(b, in, {along_x}, {along_x, along_x}, {"x"},
                        [](Builder& body, const Results& x) {
                          const Value place = AxisIndex(body, {"x"});
                          const Value here = BroadcastInDim(place, x[0].shape(), {});
                          return Results{Add(x[0], here), Psum(x[0], {"x"}) * here};
                        });
      },
      TwoByTwo());
  edges.Add(
      "shards/within_shards", {Of(DType::kS32, {8, 4})},
      [&](Builder& b, const Results& in) {
        return OnShards(b, in, {along_x}, {along_x}, {"x"}, [&](Builder& body, const Results& x) {
          const PartitionSpec along_y{{{}, {"y"}}, {}, {}, {}};
          const Value both = OnShards(
              body, {x[0]}, {along_y}, {along_y}, {"y"}, [](Builder& inner, const Results& y) {
                const Value place = AxisIndex(inner, {"y", "x"});
                const Value sum = Psum(y[0], {"y"});
                return Results{Add(y[0], Mul(sum, BroadcastInDim(place, y[0].shape(), {})))};
              })[0];
          return Results{ShardingConstraint(both, {{{}, {"y"}}, {}, {}, {}})};
        });
      },
      TwoByTwo());
  // These are ops that StableHLO lacks, on values that vary.
  edges.Add(
      "shards/composites", {rows},
      [&](Builder& b, const Results& in) {
        const std::vector<PartitionSpec> all(8, along_both);
        return OnShards(b, in, {along_both}, all, {"x", "y"}, [](Builder& body, const Results& x) {
          const Value at = Literal(body, Array::Of(DType::kS32, {2, 1}, {1, 7}));
          GatherScatterOptions fill, clip;
          fill.mode = GatherScatterMode::kFillOrDrop;
          clip.mode = GatherScatterMode::kClip;
          const Results ordered = Sort({x[0]}, 1);
          const auto [top, where] = TopK(x[0], 2, 1);
          const Value updates = SliceInDim(x[0], 0, 0, 2);
          return Results{Gather(x[0], at, {{1}, {0}, {0}, {}, {}}, {1, 4}, fill),
                         Scatter(x[0], at, updates, {{1}, {0}, {0}, {}, {}}, clip),
                         ordered[0],
                         top,
                         where,
                         ArgMax(x[0], 1),
                         Cumsum(x[0], 1),
                         Nextafter(x[0], Neg(x[0]))};
        });
      },
      TwoByTwo());
  // Each dtype appears in types that MLIR writes itself.
  for (const DType dtype : {DType::kBool,       DType::kS8,         DType::kU8,
                            DType::kS16,        DType::kU64,        DType::kF16,
                            DType::kBF16,       DType::kF64,        DType::kC64,
                            DType::kC128,       DType::kS4,         DType::kU4,
                            DType::kS2,         DType::kU2,         DType::kF8E4M3FN,
                            DType::kF8E5M2,     DType::kF8E4M3,     DType::kF8E3M4,
                            DType::kF8E4M3FNUZ, DType::kF8E5M2FNUZ, DType::kF8E4M3B11FNUZ,
                            DType::kF8E8M0FNU,  DType::kF4E2M1FN}) {
    EdgeProgram& edge = edges.Add(
        absl::StrCat("shards/of_dtype/", std::string(DTypeName(dtype))), {},
        [&](Builder& b, const Results&) {
          const Value x = Literal(b, Array(dtype, {8, 2}));
          return OnShards(b, {x}, {along_both}, {along_both}, {"x", "y"},
                          [](Builder&, const Results& in) { return Results{Reverse(in[0], {1})}; });
        },
        TwoByTwo());
    if (BitWidth(dtype) < 8) edge.not_xla = "XLA's CPU aborts on some elements of few bits";
  }
  edges.Add(
      "shards/calls_and_loops", {Of(DType::kS32, {8, 3})},
      [&](Builder& b, const Results& in) {
        return OnShards(
            b, in, {along_both}, {along_both}, {"x", "y"}, [](Builder& body, const Results& x) {
              const Type type = x[0].type();
              const FunctionRef around =
                  FunctionOf(body.scope(), {type}, [&](Builder&, const Results& v) -> Results {
                    const Value sum = Pvary(Psum(v[0], {"y"}), {"y"});
                    return {Add(Ppermute(v[0], {"x"}, {{0, 1}, {1, 0}}), sum)};
                  });
              const FunctionRef twice =
                  FunctionOf(body.scope(), {type}, [&](Builder& inner, const Results& v) {
                    return Call(inner, around, Call(inner, around, {v[0]}));
                  });
              return Scan(body, twice, {x[0]}, 0, 1, 3);
            });
      },
      TwoByTwo());
  // These programs use every collective along one axis and along two axes in both orders.
  for (const AxisList& axes :
       {AxisList{"x"}, AxisList{"y"}, AxisList{"x", "y"}, AxisList{"y", "x"}}) {
    const std::string name =
        absl::StrCat("shards/exchanges_along_", axes[0], axes.size() > 1 ? axes[1] : "");
    edges.Add(
        name, {Of(DType::kS32, {16, 4, 4, 3})},
        [&](Builder& b, const Results& in) {
          const int64_t n = TwoByTwo().SizeOf(axes);
          std::vector<std::pair<int64_t, int64_t>> round;
          for (int64_t i = 0; i < n; ++i) round.emplace_back(i, (i + 1) % n);
          std::vector<PartitionSpec> specs(13, along_both);
          return OnShards(
              b, in, {along_both}, specs, {"x", "y"}, [&](Builder& body, const Results& in_body) {
                const Value x = SliceInDim(in_body[0], 1, 0, n);
                const Value y = SliceInDim(Slice(in_body[0], {0, 0, 0, 0}, {n, 4, 4, 3}), 2, 0, n);
                Results out = {AllGather(x, axes, 0, true),        AllGather(x, axes, 2, false),
                               PsumScatter(x, axes, 1, true),      PsumScatter(x, axes, 1, false),
                               AllToAll(x, axes, 1, 0, true),      AllToAll(y, axes, 0, 2, false),
                               AllToAll(y, axes, 2, 0, false),     AllToAll(y, axes, 0, 0, false),
                               AllToAll(y, axes, 2, 3, false),     Ppermute(x, axes, round),
                               Ppermute(x, axes, {{n - 1, 0}}),    Psum(x, axes),
                               Reshape(AxisIndex(body, axes), {1})};
                for (Value& v : out) {
                  AxisSet missing;
                  for (const char* axis : {"x", "y"})
                    if (!v.type().varying.contains(axis)) missing.insert(axis);
                  v = Pvary(v, missing);
                }
                return out;
              });
        },
        TwoByTwo());
  }
  edges.Add(
      "shards/axes_of_size_one", {Of(DType::kS32, {4})},
      [&](Builder& b, const Results& in) {
        return OnShards(b, in, {along_both}, {along_both}, {"x", "y"},
                        [](Builder& body, const Results& x) {
                          const Value place = AxisIndex(body, {"y", "x"});
                          const Value sum = Pvary(Psum(x[0], {"y"}), {"y"});
                          return Results{Add(sum, BroadcastInDim(place, x[0].shape(), {}))};
                        });
      },
      Mesh{{{"x", 4}, {"y", 1}}});
}

}  // namespace

const std::vector<EdgeProgram>& EdgePrograms() {
  static const auto* const kEdges = [] {
    Edges edges;
    AddConstants(edges);
    AddElementwise(edges);
    AddReductions(edges);
    AddIndices(edges);
    AddProducts(edges);
    AddRegions(edges);
    AddOnShards(edges);
    return new std::vector<EdgeProgram>(edges.Take());
  }();
  return *kEdges;
}

}  // namespace tessera::ir::stablehlo
