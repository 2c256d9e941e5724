// The functions of fft.h: converts the operand's dtype, moves the axis to the end, where the op fft
// needs it, and moves it back.
#include "client/fft.h"

#include <string>
#include <vector>

#include "client/apply/apply.h"
#include "ir/fft.h"
#include "ir/ops.h"

namespace tessera::fft {
namespace {

using Vs = std::vector<ir::Value>;

int CheckedAxis(const Array& x, int axis, std::string_view name, const Site& site) {
  internal::ThrowIfNoValue(x, site);
  const int from_start = axis < 0 ? axis + x.rank() : axis;
  if (from_start < 0 || from_start >= x.rank())
    internal::ThrowError(ErrorKind::kValueError, site, "fft.", std::string(name), ": axis ", axis,
                         " is out of bounds for an array of ", x.rank(), " dims");
  return from_start;
}

ir::Value AsComplex(ir::Value x) {
  if (ir::IsComplex(x.dtype())) return x;
  if (x.dtype() != DType::kF64) x = ir::Convert(x, DType::kF32);
  return ir::Complex(x, ir::FullLike(x, 0));
}
ir::Value AsReal(ir::Value x) { return x.dtype() == DType::kF64 ? x : ir::Convert(x, DType::kF32); }

// Applies the transform `kind` along one axis. The length of the transform is `n` or, without `n`,
// the size of the axis.
Array FftAlongAxis(std::string_view name, const Array& x, int axis, ir::FftKind kind,
                   std::optional<int64_t> n, const Site& site) {
  const int dim = CheckedAxis(x, axis, name, site);
  return internal::Apply1(name, site, {x}, [&](ir::Builder&, Vs v) {
    const int last = v[0].rank() - 1;
    const ir::Value in = kind == ir::FftKind::kRfft ? AsReal(v[0]) : AsComplex(v[0]);
    const ir::Value moved = ir::MoveDim(in, dim, last);
    return ir::MoveDim(ir::Fft(moved, kind, {n.value_or(moved.dim(last))}), last, dim);
  });
}
Array FftOfLastTwoAxes(std::string_view name, const Array& x, ir::FftKind kind, const Site& site) {
  CheckedAxis(x, -2, name, site);
  return internal::Apply1(name, site, {x}, [&](ir::Builder&, Vs v) {
    const int rank = v[0].rank();
    return ir::Fft(AsComplex(v[0]), kind, {v[0].dim(rank - 2), v[0].dim(rank - 1)});
  });
}

}  // namespace

Array fft(const Array& x, int axis, Site site) {
  return FftAlongAxis("fft", x, axis, ir::FftKind::kFft, std::nullopt, site);
}
Array ifft(const Array& x, int axis, Site site) {
  return FftAlongAxis("ifft", x, axis, ir::FftKind::kIfft, std::nullopt, site);
}
Array fft2(const Array& x, Site site) {
  return FftOfLastTwoAxes("fft2", x, ir::FftKind::kFft, site);
}
Array ifft2(const Array& x, Site site) {
  return FftOfLastTwoAxes("ifft2", x, ir::FftKind::kIfft, site);
}
Array rfft(const Array& x, int axis, Site site) {
  return FftAlongAxis("rfft", x, axis, ir::FftKind::kRfft, std::nullopt, site);
}
Array irfft(const Array& x, std::optional<int64_t> n, int axis, Site site) {
  const int64_t half = x.dim(CheckedAxis(x, axis, "irfft", site));
  const int64_t length = n.value_or(2 * (half - 1));
  if (length < 1 || length / 2 + 1 != half)
    internal::ThrowError(ErrorKind::kValueError, site, "fft.irfft: n is ", length,
                         " and the axis has ", half, " numbers; expected n / 2 + 1 numbers");
  return FftAlongAxis("irfft", x, axis, ir::FftKind::kIrfft, length, site);
}

}  // namespace tessera::fft
