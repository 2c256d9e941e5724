// Functions of jax.numpy that rearrange, cut and join arrays, and that make arrays of ranges and
// diagonals. Unless a function says otherwise, it does not change any element.
//
// Each function records the call site. All throw tessera::Error: VALUE_ERROR for an axis that does
// not exist, a shape that does not fit, or a number of parts that does not divide a dim;
// SHARDING_TYPE_ERROR if the types leave the sharding of a result open.
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
// Moves the dims `source` to `destination`. The other dims keep their order.
Array moveaxis(const Arg& x, const Axes& source, const Axes& destination);
Array permute_dims(const Arg& x, std::vector<int64_t> permutation);
Array matrix_transpose(const Arg& x);  // swaps the last two dims
// Add dims of size 1 until there are 1, 2 or 3 dims. New dims come before the others, but
// atleast_3d makes a vector [1,n,1] and a matrix [m,n,1].
Array atleast_1d(const Arg& x);
Array atleast_2d(const Arg& x);
Array atleast_3d(const Arg& x);
std::vector<Array> broadcast_arrays(const std::vector<Array>& xs, Site site = Site::Here());

// ---- Joining. ----
Array concat(const std::vector<Array>& xs, int axis = 0, Site site = Site::Here());
// Joins along axis 0 for vectors, else along axis 1.
Array hstack(const std::vector<Array>& xs, Site site = Site::Here());
// vstack joins along axis 0 and takes vectors as rows. dstack joins along axis 2, after atleast_3d.
// column_stack joins along axis 1 and takes vectors as columns.
Array vstack(const std::vector<Array>& xs, Site site = Site::Here());
Array dstack(const std::vector<Array>& xs, Site site = Site::Here());
Array column_stack(const std::vector<Array>& xs, Site site = Site::Here());
// Joins along an axis, or both arrays flattened.
Array append(const Array& x, const Array& values, std::optional<int> axis = std::nullopt,
             Site site = Site::Here());

// ---- Cutting. ----
// The number of parts, or the indices at which all parts but the first begin, in ascending order.
struct Sections {
  std::optional<int64_t> count;
  std::vector<int64_t> indices;
  // NOLINTBEGIN(google-explicit-constructor): conversion is intended
  Sections(int parts) : count(parts) {}
  Sections(int64_t parts) : count(parts) {}
  Sections(std::initializer_list<int64_t> begins) : indices(begins) {}
  Sections(std::vector<int64_t> begins) : indices(std::move(begins)) {}
  // NOLINTEND(google-explicit-constructor)
};
std::vector<Array> split(const Arg& x, const Sections& sections, int axis = 0);
// Like split, but parts may differ by one in size; the larger ones come first.
std::vector<Array> array_split(const Arg& x, const Sections& sections, int axis = 0);
// hsplit cuts along axis 0 for vectors, else along axis 1; vsplit along axis 0; dsplit along axis
// 2.
std::vector<Array> hsplit(const Arg& x, const Sections& sections);
std::vector<Array> vsplit(const Arg& x, const Sections& sections);
std::vector<Array> dsplit(const Arg& x, const Sections& sections);
std::vector<Array> unstack(const Arg& x, int axis = 0);

// ---- Repeating and moving. ----
// Repeats x reps[d] times along dim d. If x has fewer dims than reps or the other way round, the
// shorter shape is extended with ones at the front. On an Explicit axis a dim that is repeated must
// not be sharded.
Array tile(const Arg& x, const std::vector<int64_t>& reps);
// Repeats each element along `axis` (or of the flattened array) `repeats` times; a vector has one
// number for each element. A dim that is sharded on an Explicit axis needs `out_sharding`.
Array repeat(const Arg& x, int64_t repeats, std::optional<int> axis = std::nullopt,
             const OutSharding& out_sharding = {});
Array repeat(const Arg& x, const std::vector<int64_t>& repeats,
             std::optional<int> axis = std::nullopt, const OutSharding& out_sharding = {});
// Repeats by numbers that are known only when the program runs. Elements beyond total_repeat_length
// are left out; if there are fewer, the last element fills the rest.
Array repeat(const Arg& x, const Array& repeats, int64_t total_repeat_length,
             std::optional<int> axis = std::nullopt, const OutSharding& out_sharding = {});
// Moves elements by `shift` places, and from the end to the beginning, along each of the axes, or
// in the flattened array. One shift may stand for all axes.
Array roll(const Arg& x, const Axes& shift, const Axes& axis = {});
Array flipud(const Arg& x);  // reverses axis 0
Array fliplr(const Arg& x);  // reverses axis 1
// Rotates k times by 90 degrees, from the first of the axes towards the second.
Array rot90(const Arg& x, int k = 1, std::pair<int, int> axes = {0, 1});
// The numbers of elements that are added before and after each dim. One pair stands for all dims,
// and one number for both ends.
struct PadWidth {
  std::vector<std::pair<int64_t, int64_t>> amounts;
  // NOLINTBEGIN(google-explicit-constructor): conversion is intended
  PadWidth(int n) : amounts{{n, n}} {}
  PadWidth(std::initializer_list<std::pair<int64_t, int64_t>> list) : amounts(list) {}
  PadWidth(std::vector<std::pair<int64_t, int64_t>> list) : amounts(std::move(list)) {}
  // NOLINTEND(google-explicit-constructor)
};
// `mode` says what is added: "constant" adds `constant_value`, "edge" the nearest element.
// "reflect" and "symmetric" mirror the elements, without and with the edge. "wrap" takes elements
// from the other end. NOT_IMPLEMENTED for numpy's other modes.
Array pad(const Arg& x, const PadWidth& pad_width, std::string_view mode = "constant",
          double constant_value = 0);

// ---- Diagonals and triangles. ----
// Returns the elements [.., i, i + offset] of the dims axis1 and axis2, along a new last dim.
Array diagonal(const Arg& x, int64_t offset = 0, int axis1 = 0, int axis2 = 1);
// Puts a vector on the k-th diagonal of a square matrix of zeros, or returns the k-th diagonal of a
// matrix.
Array diag(const Arg& x, int64_t k = 0);
Array diagflat(const Arg& x, int64_t k = 0);  // puts the flattened array on a diagonal
// tril keeps the elements of matrices up to the k-th diagonal, triu those from it on. The others
// become zeros.
Array tril(const Arg& x, int64_t k = 0);
Array triu(const Arg& x, int64_t k = 0);
// Returns [n,m] with ones up to the k-th diagonal and zeros above. m is n by default.
Array tri(int64_t n, std::optional<int64_t> m = std::nullopt, int64_t k = 0,
          DType dtype = DType::kF32, Site site = Site::Here());
Array eye(int64_t n, int64_t m, int64_t k = 0, DType dtype = DType::kF32, Site site = Site::Here());
Array identity(int64_t n, DType dtype = DType::kF32, Site site = Site::Here());

// ---- Ranges. ----
struct SpaceOptions {
  bool endpoint = true;                       // whether `stop` is the last number
  std::optional<DType> dtype = std::nullopt;  // by default the floats of start and stop
  int axis = 0;                               // dim of the result along which the numbers lie
};
// `num` numbers from start to stop, which are numbers or arrays that broadcast. linspace has equal
// steps. logspace has powers of `base`, whose exponents have equal steps. geomspace has equal
// ratios; start and stop must have one sign. VALUE_ERROR for num < 0.
Array linspace(const Arg& start, const Arg& stop, int64_t num = 50,
               const SpaceOptions& options = {});
Array logspace(const Arg& start, const Arg& stop, int64_t num = 50, double base = 10,
               const SpaceOptions& options = {});
Array geomspace(const Arg& start, const Arg& stop, int64_t num = 50,
                const SpaceOptions& options = {});
// Returns the coordinates of a grid, one array for each vector. The dims are in the order of the
// vectors ("ij"), or the first two are swapped ("xy"). If `sparse`, each array has size 1 in all
// dims but its own.
std::vector<Array> meshgrid(const std::vector<Array>& xs, std::string_view indexing = "xy",
                            bool sparse = false, Site site = Site::Here());

}  // namespace tessera
