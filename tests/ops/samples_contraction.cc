// Samples of the ops in ir/ops/contraction.cc, convolution.cc and fft.cc. A sample, or row, is one
// op with given attributes and operands: a test case (samples.h). samples.cc collects the rows, and
// the tests of this folder check them.
#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "tests/ops/samples.h"

namespace tessera::ir::samples {
namespace {

using enum DType;

struct DotShapes {
  std::string label;
  Dims lhs, rhs;
  Dims lhs_batch, rhs_batch, lhs_contract, rhs_contract;
  double terms;
};

// Returns where the dims are in a layout in JAX's letters, such as "NHWC" or "HWIO": first the
// positions of the two letters of `first_two`, then those of the spatial dims H, W, D.
std::vector<int64_t> ConvSpec(std::string_view layout, std::string_view first_two) {
  std::vector<int64_t> spec;
  for (const char letter : absl::StrCat(std::string(first_two), "HWD"))
    if (const size_t at = layout.find(letter); at != std::string_view::npos)
      spec.push_back(static_cast<int64_t>(at));
  return spec;
}

struct Convolution {
  std::string label;
  Dims lhs, rhs;
  std::string lhs_layout, rhs_layout, out_layout;
  ConvOptions options = {};
};

Attrs AttrsOf(const Convolution& conv, DType d) {
  Builder b({}, "f");
  const Value lhs = b.Param(MakeType(d, conv.lhs)), rhs = b.Param(MakeType(d, conv.rhs));
  const Value out =
      ConvGeneralDilated(lhs, rhs,
                         {ConvSpec(conv.lhs_layout, "NC"), ConvSpec(conv.rhs_layout, "OI"),
                          ConvSpec(conv.out_layout, "NC")},
                         conv.options);
  return b.DefiningOp(out)->attrs;
}

// Adds two convolutions for every dtype and many more for f32. Windows, padding, dilation, groups
// and layouts are treated alike for all dtypes, and the two convolutions cover the arithmetic of
// each dtype.
void AddConvolutions(std::vector<Sample>* rows) {
  const auto add = [&](const Convolution& conv, DType d) {
    double terms = 1;
    for (const int64_t n : conv.rhs) terms *= static_cast<double>(std::max<int64_t>(n, 1));
    rows->push_back(
        Make("convolution", absl::StrCat(N(d), "/", conv.label), {Of(d, conv.lhs), Of(d, conv.rhs)})
            .With(AttrsOf(conv, d))
            .Within(IsFloat(d) ? Reordered(terms + 1) : kExact)
            .Linear({{0}, {1}}));
  };
  const Convolution of_all[] = {
      {"nhwc", {2, 4, 3, 4}, {3, 2, 4, 2}, "NHWC", "HWIO", "NHWC", {{}, {{1, 1}, {0, 1}}}},
      {"nchw", {2, 4, 5, 3}, {2, 4, 2, 2}, "NCHW", "OIHW", "NCHW", {{2, 1}, {{1, 2}, {1, 0}}}}};
  for (const Convolution& conv : of_all)
    for (DType d : Numbers()) add(conv, d);
  const Convolution of_f32[] = {
      {"no_spatial_dims", {4, 8}, {8, 4}, "NC", "IO", "NC"},
      {"one_by_one", {2, 4, 2, 4}, {1, 1, 4, 4}, "NHWC", "HWIO", "NHWC"},
      {"one_by_one_nchw", {2, 4, 4, 2}, {2, 4, 1, 1}, "NCHW", "OIHW", "NCHW"},
      {"one_dim", {2, 8, 2}, {3, 2, 4}, "NHC", "HIO", "NHC", {{2}, {{1, 1}}}},
      {"three_dims", {2, 2, 3, 4, 3}, {2, 2, 2, 2, 3}, "NCHWD", "OIHWD", "NCHWD"},
      {"transposed",
       {2, 3, 3, 2},
       {3, 3, 2, 4},
       "NHWC",
       "HWIO",
       "NHWC",
       {{}, {{2, 1}, {1, 2}}, {2, 2}}},
      {"dilated", {2, 7, 6, 2}, {3, 2, 2, 2}, "NHWC", "HWIO", "NHWC", {{}, {}, {}, {2, 3}}},
      {"cropped", {2, 6, 5, 2}, {2, 3, 2, 2}, "NHWC", "HWIO", "NHWC", {{2, 1}, {{-1, 0}, {2, -2}}}},
      {"cropped_and_spread", {2, 4, 2}, {3, 2, 2}, "NHC", "HIO", "NHC", {{2}, {{-2, 1}}, {3}, {2}}},
      {"layouts_differ",
       {4, 2, 3, 5},
       {2, 3, 4, 2},
       "CNHW",
       "HWIO",
       "NHCW",
       {{}, {{1, 0}, {0, 0}}}},
      {"features_first", {3, 4, 2}, {2, 2, 4}, "HNC", "HIO", "CHN"},
      {"groups_nhwc",
       {2, 4, 3, 4},
       {2, 2, 2, 4},
       "NHWC",
       "HWIO",
       "NHWC",
       {{}, {{1, 0}, {0, 1}}, {}, {}, 2}},
      {"groups_nchw",
       {2, 4, 3, 4},
       {4, 2, 2, 2},
       "NCHW",
       "OIHW",
       "NCHW",
       {{1, 2}, {{1, 0}, {0, 1}}, {}, {}, 2}},
      {"depthwise",
       {2, 4, 4, 4},
       {3, 3, 1, 4},
       "NHWC",
       "HWIO",
       "NHWC",
       {{}, {{1, 1}, {1, 1}}, {}, {}, 4}},
      {"depthwise_twice", {2, 2, 4}, {4, 1, 3}, "NCH", "OIH", "NCH", {{}, {{1, 1}}, {}, {}, 2}},
      {"groups_of_batch", {4, 3, 2}, {2, 2, 4}, "NHC", "HIO", "NHC", {{}, {}, {}, {}, 1, 2}},
      // The next rows have spatial dims that a plan cuts into blocks with halos. In some, the dims
      // of the result are cut: with several strides, with a dilated input, and with halos that span
      // several blocks. In others, which have the form of the gradient of a kernel, the window is
      // cut.
      {"same", {2, 8, 4, 2}, {3, 3, 2, 4}, "NHWC", "HWIO", "NHWC", {{}, {{1, 1}, {1, 1}}}},
      {"same_strided", {2, 16, 2}, {3, 2, 4}, "NHC", "HIO", "NHC", {{2}, {{0, 1}}}},
      {"same_strided_nch", {2, 2, 16}, {4, 2, 5}, "NCH", "OIH", "NCH", {{4}, {{2, 1}}}},
      {"same_dilated", {2, 8, 2}, {3, 2, 4}, "NHC", "HIO", "NHC", {{}, {{2, 2}}, {}, {2}}},
      {"upsampled", {2, 4, 2}, {3, 2, 4}, "NHC", "HIO", "NHC", {{}, {{1, 2}}, {2}}},
      {"upsampled_far", {2, 4, 2}, {1, 2, 4}, "NHC", "HIO", "NHC", {{}, {{0, 2}}, {3}}},
      {"halo_of_blocks", {2, 4, 2}, {4, 2, 4}, "NHC", "HIO", "NHC", {{}, {{2, 1}}}},
      {"windows", {2, 8, 2}, {8, 2, 4}, "NHC", "HIO", "NHC", {{}, {{1, 1}}}},
      {"spread_windows", {2, 8, 2}, {4, 2, 4}, "NHC", "HIO", "NHC", {{}, {{1, 0}}, {}, {2}}},
      {"upsampled_windows", {2, 4, 2}, {8, 2, 4}, "NHC", "HIO", "NHC", {{}, {{1, 2}}, {2}}},
      {"window_too_large", {2, 2, 2}, {3, 2, 2}, "NHC", "HIO", "NHC"},
      {"empty_batch", {0, 3, 2}, {2, 2, 2}, "NHC", "HIO", "NHC"},
      {"no_features", {2, 3, 0}, {2, 0, 2}, "NHC", "HIO", "NHC"},
      {"only_padding", {2, 0, 2}, {2, 2, 2}, "NHC", "HIO", "NHC", {{}, {{2, 1}}}}};
  for (const Convolution& conv : of_f32) add(conv, kF32);
  for (const Precision precision : {Precision::kHigh, Precision::kHighest}) {
    Convolution conv = of_all[0];
    conv.label = absl::StrCat("nhwc_", ToAbsl(PrecisionName(precision)));
    conv.options.precision = precision;
    add(conv, kF32);
  }
  for (auto [from, to] : {std::pair{kBF16, kF32}, {kS8, kS32}}) {
    Convolution conv = of_all[0];
    conv.label = absl::StrCat("nhwc_to_", N(to));
    conv.options.preferred_element_type = to;
    add(conv, from);
  }
}

// Adds transforms whose lengths reach each algorithm of the FFT once. client_fft_test covers
// derivatives and many more lengths of transforms.
void AddTransforms(std::vector<Sample>* rows) {
  struct Shape {
    const char* label;
    Dims shape;
    std::vector<int64_t> lengths;
  };
  const Shape shapes[] = {{"row", {8}, {8}},
                          {"one", {4, 1}, {1}},
                          {"rows", {2, 4, 12}, {12}},
                          {"odd_rows", {4, 15}, {15}},
                          {"chirp", {2, 101}, {101}},
                          {"two_dims", {4, 8, 4}, {8, 4}},
                          {"three_dims", {2, 4, 3, 4}, {4, 3, 4}},
                          {"odd_dims", {3, 8, 5}, {8, 5}},
                          {"empty", {0, 4}, {4}}};
  for (const auto& [number, part] : {std::pair{DType::kC64, kF32}, {DType::kC128, kF64}})
    for (const Shape& s : shapes)
      for (const char* const type : {"FFT", "IFFT", "RFFT", "IRFFT"}) {
        const std::string_view kind = type;
        Dims shape = s.shape;
        if (kind == "IRFFT") shape.back() = s.lengths.back() / 2 + 1;
        const DType d = kind == "RFFT" ? part : number;
        rows->push_back(
            Make("fft", absl::StrCat(N(d), "/", type, "/", s.label), {Of(d, std::move(shape))})
                .With({{"fft_type", std::string(type)}, {"fft_length", s.lengths}})
                .Within(Scaled(16))
                .NotSmooth("finite differences are of real numbers"));
      }
}

}  // namespace

// Adds the shapes of dot_general for every dtype, and signed zeros for every float. Then adds rows
// for a few dtypes: results of another dtype, and the precisions.
std::vector<Sample> ContractionSamples() {
  const std::vector<DotShapes> all = {
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
  auto attrs = [](const DotShapes& s) {
    return Attrs{{"lhs_batching_dimensions", s.lhs_batch},
                 {"rhs_batching_dimensions", s.rhs_batch},
                 {"lhs_contracting_dimensions", s.lhs_contract},
                 {"rhs_contracting_dimensions", s.rhs_contract}};
  };
  for (const DotShapes& s : all)
    for (DType d : Numbers())
      rows.push_back(
          Make("dot_general", absl::StrCat(N(d), "/", s.label), {Of(d, s.lhs), Of(d, s.rhs)})
              .With(attrs(s))
              .Within(IsFloat(d) ? Reordered(s.terms + 1) : kExact)
              .Linear({{0}, {1}}));
  // A sum of one product is the product itself, with nothing added. So a result of -0 keeps its
  // sign.
  const DotShapes alone[] = {{"outer_signed_zeros", {4}, {8}, {}, {}, {}, {}, 1},
                             {"one_term_signed_zeros", {4, 1}, {1, 8}, {}, {}, {1}, {0}, 1},
                             {"four_terms_signed_zeros", {8, 4}, {4, 8}, {}, {}, {1}, {0}, 4}};
  for (const DotShapes& s : alone)
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
  for (const char* const precision : {"high", "highest"})
    for (const DotShapes& s : {all[0], all[5]}) {
      Attrs a = attrs(s);
      a.Set("precision", std::string(precision));
      rows.push_back(Make("dot_general", absl::StrCat("f32/", s.label, "_", precision),
                          {Of(kF32, s.lhs), Of(kF32, s.rhs)})
                         .With(a)
                         .Within(Reordered(s.terms + 1))
                         .Linear({{0}, {1}}));
    }
  AddConvolutions(&rows);
  AddTransforms(&rows);
  return rows;
}

}  // namespace tessera::ir::samples
