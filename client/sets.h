// Functions of jax.numpy and jax.ops that count, search and select: which elements are in an array,
// where, and how often. How many there are is known only when the program runs, so that results of
// such a size take it as an argument. Indices are s32, or s64 for more elements than that counts.
//
// Each records the call site. All throw tessera::Error.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "client/array.h"
#include "client/lax.h"

namespace tessera {

// Where each element of `v` would go into `sorted`, a vector in ascending order with NaNs last;
// `side`: "left" of its equals, or "right".
Array searchsorted(const Array& sorted, const Arg& v, std::string_view side = "left",
                   Site site = Site::Here());

// The indices of the first `size` elements that are not 0, row-major: an array for each dim. What
// is left over is `fill_value`, or 0 of an array without elements.
std::vector<Array> nonzero(const Array& x, int64_t size, int64_t fill_value = 0,
                           Site site = Site::Here());
// The same of the flattened array.
Array flatnonzero(const Array& x, int64_t size, int64_t fill_value = 0, Site site = Site::Here());
// The same as one array: a row for each element.
Array argwhere(const Array& x, int64_t size, int64_t fill_value = 0, Site site = Site::Here());

// The first `size` distinct elements of the flattened array, ascending. What is left over is
// `fill_value`; without one, the least element. All NaNs are one.
Array unique(const Array& x, int64_t size, std::optional<double> fill_value = std::nullopt,
             Site site = Site::Here());
struct UniqueAll {
  Array values;
  Array indices;          // where each first is in the flattened array
  Array inverse_indices;  // of x's shape: which of the values an element is
  Array counts;           // how often each is there; 0 for what is left over
};
// Here every NaN is distinct from all others. Of an array without elements only the values have the
// size.
UniqueAll unique_all(const Array& x, int64_t size, std::optional<double> fill_value = std::nullopt,
                     Site site = Site::Here());

// How often 0, 1, ... length-1 are in a vector of integers, or the sums of their weights. Negative
// numbers count as 0; larger ones do not count.
Array bincount(const Array& x, int64_t length, Site site = Site::Here());
Array bincount(const Array& x, const Array& weights, int64_t length, Site site = Site::Here());

struct HistogramOptions {
  std::optional<std::pair<double, double>> range =
      std::nullopt;                             // else from the least element to the largest
  std::optional<Array> weights = std::nullopt;  // of the array's shape
  bool density = false;                         // so that the integral over all bins is 1
};
// Counts (floats) and the edges, one more than bins. A bin has its left edge, the last one both.
std::pair<Array, Array> histogram(const Array& x, int64_t bins = 10,
                                  const HistogramOptions& options = {}, Site site = Site::Here());
// Of bins between these edges, which ascend.
std::pair<Array, Array> histogram(const Array& x, const Array& edges,
                                  const HistogramOptions& options = {}, Site site = Site::Here());

// The rows of `data` combined for each segment that `segment_ids`, one for each row, names. Ids out
// of bounds are dropped, negative ones too. A segment without rows has what changes nothing: 0, 1,
// the lowest or the highest number.
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
