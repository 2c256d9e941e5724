// Discrete Fourier transforms with the names of jax.numpy.fft. They take vectors of any length,
// along the last axis or another one. fft and ifft convert real numbers to complex ones; integers
// are first converted to f32. Errors: VALUE_ERROR for an axis that is out of bounds.
#pragma once
#include <optional>

#include "client/array.h"

namespace tessera::fft {

// fft returns X[k] = sum over j of x[j] exp(-2 pi i j k / n). ifft is its inverse, which divides by
// n.
Array fft(const Array& x, int axis = -1, Site site = Site::Here());
Array ifft(const Array& x, int axis = -1, Site site = Site::Here());
// Like fft and ifft, over the last two axes.
Array fft2(const Array& x, Site site = Site::Here());
Array ifft2(const Array& x, Site site = Site::Here());
// rfft transforms n real numbers. It returns the first n / 2 + 1 elements of the transform; the
// other elements are conjugates of these. irfft is the inverse of rfft: it takes m complex numbers
// and returns `n` real ones, by default 2 (m - 1). VALUE_ERROR unless m is n / 2 + 1.
Array rfft(const Array& x, int axis = -1, Site site = Site::Here());
Array irfft(const Array& x, std::optional<int64_t> n = std::nullopt, int axis = -1,
            Site site = Site::Here());

}  // namespace tessera::fft
