// Discrete Fourier transforms with the names of jax.numpy.fft: of any length, along the last axis
// or another one. Numbers that are not complex are taken as such; integers compute as f32.
#pragma once
#include <optional>

#include "client/array.h"

namespace tessera::fft {

// X[k] = sum over j of x[j] exp(-2 pi i j k / n); the inverse, which divides by n.
Array fft(const Array& x, int axis = -1, Site site = Site::Here());
Array ifft(const Array& x, int axis = -1, Site site = Site::Here());
// Of the last two axes.
Array fft2(const Array& x, Site site = Site::Here());
Array ifft2(const Array& x, Site site = Site::Here());
// Of real numbers: the first n / 2 + 1, of which the others are the conjugates; and the inverse, of
// `n` numbers, by default 2 (m - 1) of m.
Array rfft(const Array& x, int axis = -1, Site site = Site::Here());
Array irfft(const Array& x, std::optional<int64_t> n = std::nullopt, int axis = -1,
            Site site = Site::Here());

}  // namespace tessera::fft
