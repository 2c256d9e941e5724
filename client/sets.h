// Functions of jax.numpy and jax.ops that count, search and select: which elements an array has,
// where, and how often. The number of such elements is known only when the program runs, so
// functions whose result has this size take the size as an argument. Indices are s32, or s64 for
// more than 2^31 - 1 elements.
//
// Each function records the call site. All throw tessera::Error: VALUE_ERROR for sizes and shapes
// that do not fit, TYPE_ERROR for dtypes.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "client/array.h"
#include "client/lax.h"

namespace tessera {

// Returns the position in `sorted` at which each element of `v` would be inserted. `sorted` is a
// vector in ascending order with NaNs last. With `side` "left" the position is before equal
// elements, with "right" after them.
Array searchsorted(const Array& sorted, const Arg& v, std::string_view side = "left",
                   Site site = Site::Here());

// Returns the indices of the first `size` elements that are not 0, in row-major order: one array
// [size] for each dim. Unused places are `fill_value`, or 0 if x has no elements.
std::vector<Array> nonzero(const Array& x, int64_t size, int64_t fill_value = 0,
                           Site site = Site::Here());
// Like nonzero, for the flattened array.
Array flatnonzero(const Array& x, int64_t size, int64_t fill_value = 0, Site site = Site::Here());
// Like nonzero, but returns one array [size, rank] with a row for each element.
Array argwhere(const Array& x, int64_t size, int64_t fill_value = 0, Site site = Site::Here());

// Returns the first `size` distinct elements of the flattened array, in ascending order. Unused
// places are `fill_value` or, without one, the least element. All NaNs count as one.
Array unique(const Array& x, int64_t size, std::optional<double> fill_value = std::nullopt,
             Site site = Site::Here());
// The result of unique_all.
struct UniqueAll {
  Array values;
  Array indices;          // position of the first occurrence in the flattened array
  Array inverse_indices;  // for each element of x, in x's shape, the index of its value
  Array counts;           // number of occurrences; 0 for unused places
};
// Like unique, but returns more, and every NaN is distinct. If x has no elements, only `values` has
// the given size; the other arrays are empty.
UniqueAll unique_all(const Array& x, int64_t size, std::optional<double> fill_value = std::nullopt,
                     Site site = Site::Here());

// Returns for each of the numbers 0, 1, ... length - 1 how often it occurs in a vector of integers,
// or the sum of the weights of its occurrences. Negative numbers count as 0; larger numbers are not
// counted.
Array bincount(const Array& x, int64_t length, Site site = Site::Here());
Array bincount(const Array& x, const Array& weights, int64_t length, Site site = Site::Here());

struct HistogramOptions {
  std::optional<std::pair<double, double>> range =
      std::nullopt;                             // by default from the least element to the largest
  std::optional<Array> weights = std::nullopt;  // one weight per element, in the array's shape
  bool density = false;  // scales the counts so that the integral over all bins is 1
};
// Returns the counts (floats) and the edges, one more than bins. A bin includes its left edge; the
// last bin includes both edges.
std::pair<Array, Array> histogram(const Array& x, int64_t bins = 10,
                                  const HistogramOptions& options = {}, Site site = Site::Here());
// Like histogram above, with bins between the given edges, which must ascend.
std::pair<Array, Array> histogram(const Array& x, const Array& edges,
                                  const HistogramOptions& options = {}, Site site = Site::Here());

// Combines the rows of `data` by segment. `segment_ids` has one id for each row; rows with ids out
// of bounds, including negative ones, are dropped. A segment without rows gets the neutral element:
// 0 for the sum, 1 for the product, the lowest number for the maximum and the highest for the
// minimum. The result is [num_segments, ...].
struct SegmentOptions {
  bool indices_are_sorted = false, unique_indices = false;
  lax::GatherScatterMode mode = lax::GatherScatterMode::kFillOrDrop;
};
Array segment_sum(const Array& data, const Array& segment_ids, int64_t num_segments,
                  const SegmentOptions& options = {}, Site site = Site::Here());
Array segment_prod(const Array& data, const Array& segment_ids, int64_t num_segments,
                   const SegmentOptions& options = {}, Site site = Site::Here());
Array segment_max(const Array& data, const Array& segment_ids, int64_t num_segments,
                  const SegmentOptions& options = {}, Site site = Site::Here());
Array segment_min(const Array& data, const Array& segment_ids, int64_t num_segments,
                  const SegmentOptions& options = {}, Site site = Site::Here());

}  // namespace tessera
