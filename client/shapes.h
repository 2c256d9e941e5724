// Functions of jax.numpy that rearrange arrays, cut and join them, and that make arrays of ranges
// and diagonals. None changes a number, but where it says so.
//
// Each records the call site. All throw tessera::Error: VALUE_ERROR for an axis that there is not,
// a shape that does not fit, or a number of parts that does not divide; SHARDING_TYPE_ERROR where
// the types leave open how a result lies.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "client/numpy.h"

namespace tessera {

Array ravel(const Arg& x, const OutSharding& out_sharding = {});
// The dims `source` at `destination`, the others in their order.
Array moveaxis(const Arg& x, const Axes& source, const Axes& destination);
Array permute_dims(const Arg& x, std::vector<int64_t> permutation);
Array matrix_transpose(const Arg& x);  // of the last two dims
// With dims of size 1 until there are so many: before the others, but atleast_3d makes a vector
// [1,n,1] and a matrix [m,n,1].
Array atleast_1d(const Arg& x);
Array atleast_2d(const Arg& x);
Array atleast_3d(const Arg& x);
std::vector<Array> broadcast_arrays(const std::vector<Array>& xs, Site site = Site::Here());

// ---- Joining. ----
Array concat(const std::vector<Array>& xs, int axis = 0, Site site = Site::Here());
// Along axis 0 of vectors, else along axis 1.
Array hstack(const std::vector<Array>& xs, Site site = Site::Here());
// Along axis 0, vectors being rows; along axis 2, as atleast_3d has them; along axis 1, vectors
// being columns.
Array vstack(const std::vector<Array>& xs, Site site = Site::Here());
Array dstack(const std::vector<Array>& xs, Site site = Site::Here());
Array column_stack(const std::vector<Array>& xs, Site site = Site::Here());
// Along an axis, or both flattened.
Array append(const Array& x, const Array& values, std::optional<int> axis = std::nullopt,
             Site site = Site::Here());

// ---- Cutting. ----
// How many parts, or where each but the first begins, in ascending order.
struct Sections {
  std::optional<int64_t> count;
  std::vector<int64_t> indices;
  // NOLINTBEGIN(google-explicit-constructor): reads as the sections
  Sections(int parts) : count(parts) {}
  Sections(int64_t parts) : count(parts) {}
  Sections(std::initializer_list<int64_t> begins) : indices(begins) {}
  Sections(std::vector<int64_t> begins) : indices(std::move(begins)) {}
  // NOLINTEND(google-explicit-constructor)
};
std::vector<Array> split(const Arg& x, const Sections& sections, int axis = 0);
// Parts may differ by one in size, the larger ones first.
std::vector<Array> array_split(const Arg& x, const Sections& sections, int axis = 0);
// Along axis 0 of vectors, else 1; along axis 0; along axis 2.
std::vector<Array> hsplit(const Arg& x, const Sections& sections);
std::vector<Array> vsplit(const Arg& x, const Sections& sections);
std::vector<Array> dsplit(const Arg& x, const Sections& sections);
std::vector<Array> unstack(const Arg& x, int axis = 0);

// ---- Repeating and moving. ----
// x, repeated reps[d] times along dim d; the shorter of the two has ones before. On an Explicit
// axis a dim that is repeated must not be sharded.
Array tile(const Arg& x, const std::vector<int64_t>& reps);
// Each element along `axis` (without: of the flattened array) so many times, or as many times as
// its place in `repeats` says. A dim that is sharded on an Explicit axis needs `out_sharding`.
Array repeat(const Arg& x, int64_t repeats, std::optional<int> axis = std::nullopt,
             const OutSharding& out_sharding = {});
Array repeat(const Arg& x, const std::vector<int64_t>& repeats,
             std::optional<int> axis = std::nullopt, const OutSharding& out_sharding = {});
// By numbers that are known when the program runs: what exceeds the length is left out, and the
// last element fills what is missing.
Array repeat(const Arg& x, const Array& repeats, int64_t total_repeat_length,
             std::optional<int> axis = std::nullopt, const OutSharding& out_sharding = {});
// Elements move `shift` places, and from the end to the beginning: along each of the axes, or of
// the flattened array. One shift stands for all axes.
Array roll(const Arg& x, const Axes& shift, const Axes& axis = {});
Array flipud(const Arg& x);                                               // along axis 0
Array fliplr(const Arg& x);                                               // along axis 1
Array rot90(const Arg& x, int k = 1, std::pair<int, int> axes = {0, 1});  // from the first axis
                                                                          // to the second
// How many elements are put before and after each dim; one pair stands for all, and one number for
// both of it.
struct PadWidth {
  std::vector<std::pair<int64_t, int64_t>> amounts;
  // NOLINTBEGIN(google-explicit-constructor): reads as the widths
  PadWidth(int n) : amounts{{n, n}} {}
  PadWidth(std::initializer_list<std::pair<int64_t, int64_t>> list) : amounts(list) {}
  PadWidth(std::vector<std::pair<int64_t, int64_t>> list) : amounts(std::move(list)) {}
  // NOLINTEND(google-explicit-constructor)
};
// `mode`: "constant", `constant_value`; "edge", the nearest element; "reflect" and "symmetric", the
// elements mirrored, without and with the edge; "wrap", from the other end. NOT_IMPLEMENTED for
// other modes of numpy's.
Array pad(const Arg& x, const PadWidth& pad_width, std::string_view mode = "constant",
          double constant_value = 0);

// ---- Diagonals and triangles. ----
// The elements [.., i, i + offset] of the dims axis1 and axis2, along a new last dim.
Array diagonal(const Arg& x, int64_t offset = 0, int axis1 = 0, int axis2 = 1);
// A vector on the k-th diagonal of a matrix of zeros; of a matrix the k-th diagonal.
Array diag(const Arg& x, int64_t k = 0);
Array diagflat(const Arg& x, int64_t k = 0);  // the flattened array on a diagonal
// Of matrices the elements up to the k-th diagonal, or from it on; zeros elsewhere.
Array tril(const Arg& x, int64_t k = 0);
Array triu(const Arg& x, int64_t k = 0);
// Ones up to the k-th diagonal of [n,m], m being n by default.
Array tri(int64_t n, std::optional<int64_t> m = std::nullopt, int64_t k = 0,
          DType dtype = DType::kF32, Site site = Site::Here());
Array eye(int64_t n, int64_t m, int64_t k = 0, DType dtype = DType::kF32, Site site = Site::Here());
Array identity(int64_t n, DType dtype = DType::kF32, Site site = Site::Here());

// ---- Ranges. ----
struct SpaceOptions {
  bool endpoint = true;                       // stop is the last number
  std::optional<DType> dtype = std::nullopt;  // else the floats of start and stop
  int axis = 0;                               // of the result along which the numbers lie
};
// `num` numbers from start to stop, numbers or arrays that broadcast: in equal steps; powers of
// `base` with exponents in equal steps; in equal ratios, of one sign. VALUE_ERROR for num < 0.
Array linspace(const Arg& start, const Arg& stop, int64_t num = 50,
               const SpaceOptions& options = {});
Array logspace(const Arg& start, const Arg& stop, int64_t num = 50, double base = 10,
               const SpaceOptions& options = {});
Array geomspace(const Arg& start, const Arg& stop, int64_t num = 50,
                const SpaceOptions& options = {});
// Vectors as the coordinates of a grid, an array for each: of the dims in the order of the vectors
// ("ij"), or with the first two swapped ("xy"). `sparse`: with dims of size 1 but for its own.
std::vector<Array> meshgrid(const std::vector<Array>& xs, std::string_view indexing = "xy",
                            bool sparse = false, Site site = Site::Here());

}  // namespace tessera
