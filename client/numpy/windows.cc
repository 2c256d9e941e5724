// Convolutions and reductions of windows, with the names and the defaults of jax.lax. The functions
// turn layouts, padding names and missing lists into the explicit numbers that the ops take.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/lax.h"
#include "client/trace/trace.h"
#include "ir/ops.h"

namespace tessera::lax {
namespace {

using internal::ApplyArgs;
using internal::AsArray;
using internal::Operands;
using internal::ThrowError;
using Vs = std::vector<ir::Value>;

// Returns the positions in `layout` of the two `letters`, then those of the letters in `spatial`.
std::vector<int64_t> LetterPositions(const std::string& layout, std::string_view letters,
                                     const std::string& spatial, const Site& site) {
  std::vector<int64_t> spec;
  for (const char letter : absl::StrCat(ToAbsl(letters), spatial)) {
    const size_t at = layout.find(letter);
    if (at == std::string::npos || layout.find(letter, at + 1) != std::string::npos)
      ThrowError(ErrorKind::kTypeError, site, "convolution dimension_numbers '", layout,
                 "' must contain the character '", std::string(1, letter), "' exactly once");
    spec.push_back(static_cast<int64_t>(at));
  }
  return spec;
}

// Returns the letters of the default layouts, with the spatial dims last or, if `features_last`,
// before the features.
ConvDimensionNumbers DefaultLayouts(size_t spatial, bool features_last) {
  constexpr std::string_view kLetters = "0123456789";
  const std::string dims(kLetters.substr(0, std::min(spatial, kLetters.size())));
  if (features_last)
    return {absl::StrCat("N", dims, "C"), absl::StrCat(dims, "IO"), absl::StrCat("N", dims, "C")};
  return {absl::StrCat("NC", dims), absl::StrCat("OI", dims), absl::StrCat("NC", dims)};
}

ir::ConvDimensionNumbers ToDimensionNumbers(const ConvDimensionNumbers& given, int lhs, int rhs,
                                            bool features_last, const Site& site) {
  if (lhs != rhs)
    ThrowError(ErrorKind::kTypeError, site,
               "convolution requires lhs and rhs ndim to be equal, got ", lhs, " and ", rhs);
  const bool use_defaults = given.lhs.empty() && given.rhs.empty() && given.out.empty();
  const ConvDimensionNumbers n =
      use_defaults ? DefaultLayouts(static_cast<size_t>(std::max(lhs - 2, 0)), features_last)
                   : given;
  for (const std::string* layout : {&n.lhs, &n.rhs, &n.out})
    if (static_cast<int>(layout->size()) != lhs)
      ThrowError(ErrorKind::kTypeError, site, "convolution dimension_numbers '", *layout,
                 "' must have len equal to the ndim of lhs and rhs, which is ", lhs);
  std::string spatial;
  for (const char letter : n.rhs)
    if (letter != 'O' && letter != 'I') spatial += letter;
  return {LetterPositions(n.lhs, "NC", spatial, site), LetterPositions(n.rhs, "OI", spatial, site),
          LetterPositions(n.out, "NC", spatial, site)};
}

std::vector<int64_t> OnesIfNone(std::vector<int64_t> list, size_t n) {
  if (list.empty()) list.assign(n, 1);
  return list;
}
template <class List>
void CheckLength(const char* what, const List& list, size_t n, const Site& site) {
  if (list.size() != n)
    ThrowError(ErrorKind::kValueError, site, what, " has ", list.size(), " entries; expected ", n,
               ", one for each dim that windows move along");
}
int64_t Dilated(int64_t n, int64_t dilation) { return n == 0 ? 0 : (n - 1) * dilation + 1; }

enum class NamedPadding : uint8_t { kSame, kSameLower, kValid };
NamedPadding ParsePaddingName(const Padding& padding, const Site& site) {
  if (padding.name == "SAME") return NamedPadding::kSame;
  if (padding.name == "SAME_LOWER") return NamedPadding::kSameLower;
  if (padding.name != "VALID")
    ThrowError(ErrorKind::kValueError, site,
               "Unrecognized padding type: expected 'VALID', 'SAME', or 'SAME_LOWER', got ",
               padding.name);
  return NamedPadding::kValid;
}

// Returns the amounts of padding before and after one dim.
std::pair<int64_t, int64_t> DimPadding(NamedPadding padding, int64_t size, int64_t window,
                                       int64_t stride) {
  if (padding == NamedPadding::kValid) return {0, 0};
  const int64_t out = (size + stride - 1) / stride;
  const int64_t all = std::max<int64_t>((out - 1) * stride + window - size, 0);
  return padding == NamedPadding::kSame ? std::pair(all / 2, all - all / 2)
                                        : std::pair(all - all / 2, all / 2);
}

// Returns the amounts of padding along each dim, for the sizes of the array and of the dilated
// windows, and for the strides. Amounts that the user gave are returned unchanged.
std::vector<std::pair<int64_t, int64_t>> PaddingOfDims(const Padding& padding,
                                                       const std::vector<int64_t>& sizes,
                                                       const std::vector<int64_t>& windows,
                                                       const std::vector<int64_t>& strides,
                                                       const Site& site) {
  if (padding.name.empty()) return padding.amounts;
  const NamedPadding name = ParsePaddingName(padding, site);
  std::vector<std::pair<int64_t, int64_t>> amounts;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (strides[d] < 1)
      ThrowError(ErrorKind::kValueError, site, "window_strides has the entry ", strides[d],
                 "; expected at least 1");
    amounts.push_back(DimPadding(name, sizes[d], windows[d], strides[d]));
  }
  return amounts;
}

// Returns the padding of one dim of a transposed convolution for the named padding of the forward
// convolution.
std::pair<int64_t, int64_t> TransposedDimPadding(NamedPadding padding, int64_t window,
                                                 int64_t stride) {
  if (padding == NamedPadding::kValid)
    return {window - 1, stride - 1 + std::max<int64_t>(window - stride, 0)};
  const int64_t all = window + stride - 2;
  const int64_t before = stride > window - 1 ? window - 1 : (all + 1) / 2;
  return {before, all - before};
}

}  // namespace

// Named paddings are computed from the sizes here, since the op takes amounts. A name together with
// lhs_dilation is refused, because JAX refuses it.
Array conv_general_dilated(const Arg& lhs, const Arg& rhs, std::vector<int64_t> window_strides,
                           const Padding& padding, const ConvOptions& options) {
  return ApplyArgs("conv_general_dilated", {lhs, rhs}, Operands::kStrict, [&](ir::Builder&, Vs v) {
    const Site& site = lhs.site;
    const ir::ConvDimensionNumbers dims =
        ToDimensionNumbers(options.dimension_numbers, v[0].rank(), v[1].rank(), false, site);
    const size_t n = dims.lhs_spec.size() - 2;
    ir::ConvOptions conv_options;
    conv_options.window_strides = OnesIfNone(window_strides, n);
    conv_options.lhs_dilation = OnesIfNone(options.lhs_dilation, n);
    conv_options.rhs_dilation = OnesIfNone(options.rhs_dilation, n);
    conv_options.padding = padding.amounts;
    conv_options.feature_group_count = options.feature_group_count;
    conv_options.batch_group_count = options.batch_group_count;
    conv_options.preferred_element_type = options.preferred_element_type;
    conv_options.out_sharding = options.out_sharding;
    conv_options.precision = internal::PrecisionOr(options.precision);
    CheckLength("conv_general_dilated: window_strides", conv_options.window_strides, n, site);
    CheckLength("conv_general_dilated: lhs_dilation", conv_options.lhs_dilation, n, site);
    CheckLength("conv_general_dilated: rhs_dilation", conv_options.rhs_dilation, n, site);
    if (!padding.name.empty()) {
      if (std::any_of(conv_options.lhs_dilation.begin(), conv_options.lhs_dilation.end(),
                      [](int64_t d) { return d != 1; }))
        ThrowError(ErrorKind::kValueError, site,
                   "String padding is not implemented for transposed convolution using this "
                   "op. Please either exactly specify the required padding or use "
                   "conv_transpose");
      std::vector<int64_t> sizes, windows;
      for (size_t d = 0; d < n; ++d) {
        sizes.push_back(v[0].dim(static_cast<int>(dims.lhs_spec[2 + d])));
        windows.push_back(Dilated(v[1].dim(static_cast<int>(dims.rhs_spec[2 + d])),
                                  conv_options.rhs_dilation[d]));
      }
      conv_options.padding =
          PaddingOfDims(padding, sizes, windows, conv_options.window_strides, site);
    }
    CheckLength("conv_general_dilated: padding", conv_options.padding, n, site);
    return ir::ConvGeneralDilated(v[0], v[1], dims, conv_options);
  });
}

// A convolution with lhs_dilation: the strides of the forward convolution become the dilation of
// the operand. A named padding follows from the kernel's size and the stride alone.
Array conv_transpose(const Arg& lhs, const Arg& rhs, std::vector<int64_t> strides,
                     const Padding& padding, const ConvOptions& options) {
  const Site& site = rhs.site;
  if (lhs.kind != Arg::kArray || rhs.kind != Arg::kArray)
    ThrowError(ErrorKind::kTypeError, site, "conv_transpose: lhs and rhs are arrays, got a number");
  const int rank = lhs.array->rank();
  ConvOptions transposed_options;
  transposed_options.dimension_numbers = options.dimension_numbers;
  if (options.dimension_numbers.lhs.empty())
    transposed_options.dimension_numbers =
        DefaultLayouts(static_cast<size_t>(std::max(rank - 2, 0)), true);
  transposed_options.preferred_element_type = options.preferred_element_type;
  transposed_options.precision = options.precision;
  transposed_options.rhs_dilation = options.rhs_dilation;
  transposed_options.lhs_dilation = strides;
  if (padding.name.empty()) return conv_general_dilated(lhs, rhs, {}, padding, transposed_options);
  const ir::ConvDimensionNumbers dims =
      ToDimensionNumbers(transposed_options.dimension_numbers, rank, rhs.array->rank(), true, site);
  const size_t n = dims.rhs_spec.size() - 2;
  CheckLength("conv_transpose: strides", strides, n, site);
  const std::vector<int64_t> dilation = OnesIfNone(options.rhs_dilation, n);
  CheckLength("conv_transpose: rhs_dilation", dilation, n, site);
  const NamedPadding name = ParsePaddingName(padding, site);
  if (name == NamedPadding::kSameLower)
    ThrowError(ErrorKind::kValueError, site, "Invalid padding mode: SAME_LOWER");
  std::vector<std::pair<int64_t, int64_t>> amounts;
  for (size_t d = 0; d < n; ++d)
    amounts.push_back(TransposedDimPadding(
        name, Dilated(rhs.array->shape()[dims.rhs_spec[2 + d]], dilation[d]), strides[d]));
  return conv_general_dilated(lhs, rhs, {}, amounts, transposed_options);
}

// Fills in defaults and named paddings, and traces the computation on scalars. ir::ReduceWindow
// turns computations that it knows into ops with derivatives.
std::vector<Array> reduce_window(
    const std::vector<Array>& operands, const std::vector<Arg>& init_values,
    absl::FunctionRef<std::vector<Array>(const std::vector<Array>&, const std::vector<Array>&)>
        computation,
    std::vector<int64_t> window_dimensions, std::vector<int64_t> window_strides,
    const Padding& padding, const WindowOptions& options, Site site) {
  using Arrays = std::vector<Array>;
  const size_t n = operands.size();
  if (n == 0 || init_values.size() != n)
    ThrowError(ErrorKind::kValueError, site,
               "reduce_window: Must have same total number of operands as init_values: ", n,
               " vs. ", init_values.size());
  Arrays inputs = operands;
  std::vector<DType> params;
  for (size_t k = 0; k < n; ++k) {
    internal::ThrowIfNoValue(operands[k], site);
    params.push_back(operands[k].dtype());
    inputs.push_back(AsArray(init_values[k], params[k]));
  }
  for (size_t k = 0; k < n; ++k) params.push_back(params[k]);
  const Dims& shape = operands[0].shape();
  const size_t rank = shape.size();
  ir::WindowDimensions window;
  window.sizes = std::move(window_dimensions);
  window.strides = OnesIfNone(std::move(window_strides), rank);
  window.base_dilations = OnesIfNone(options.base_dilation, rank);
  window.dilations = OnesIfNone(options.window_dilation, rank);
  CheckLength("reduce_window: window_dimensions", window.sizes, rank, site);
  CheckLength("reduce_window: window_strides", window.strides, rank, site);
  CheckLength("reduce_window: base_dilation", window.base_dilations, rank, site);
  CheckLength("reduce_window: window_dilation", window.dilations, rank, site);
  std::vector<int64_t> dilated_sizes;
  for (size_t d = 0; d < rank; ++d)
    dilated_sizes.push_back(Dilated(window.sizes[d], window.dilations[d]));
  window.padding = PaddingOfDims(padding, shape, dilated_sizes, window.strides, site);
  CheckLength("reduce_window: padding", window.padding, rank, site);
  return internal::Apply("reduce_window", site, inputs, [&](ir::Builder&, Vs v) {
    const ir::FunctionRef f =
        internal::TraceComputation("reduce_window", params, site, [&](const Arrays& in) {
          return computation({in.begin(), in.begin() + n}, {in.begin() + n, in.end()});
        });
    return ir::ReduceWindow(Vs(v.begin(), v.begin() + n), Vs(v.begin() + n, v.end()), f, window);
  });
}
Array reduce_window(const Array& operand, const Arg& init_value,
                    absl::FunctionRef<Array(const Array&, const Array&)> computation,
                    std::vector<int64_t> window_dimensions, std::vector<int64_t> window_strides,
                    const Padding& padding, const WindowOptions& options, Site site) {
  using Arrays = std::vector<Array>;
  const auto of_one = [&](const Arrays& x, const Arrays& y) {
    return Arrays{computation(x[0], y[0])};
  };
  return reduce_window(Arrays{operand}, std::vector<Arg>{init_value}, of_one,
                       std::move(window_dimensions), std::move(window_strides), padding, options,
                       site)[0];
}

}  // namespace tessera::lax
