// Prints an array's values as NumPy and JAX do.
#pragma once
#include <iosfwd>
#include <string>

#include "client/array.h"

namespace tessera {

// Prints the array as JAX does: "Array([1., 2., 3.], dtype=float32)". An array of more than 1000
// elements shows the first and last ones along each dim. Waits for the contents. If they cannot be
// read, prints the shape, the dtype and the reason. A traced or abstract array prints as
// to_string().
std::ostream& operator<<(std::ostream& out, const Array& x);

namespace internal {

// Returns JAX's name of a dtype, such as "float32".
std::string DTypeNameInJax(ir::DType dtype);
// Returns "Array([1., 2.], dtype=float32)". For more than 1000 elements it shows the first and last
// three along each dim. Lines have at most 75 characters. Reference: repr of a jax.Array,
// numpy.array2string.
std::string ReprOf(const ir::Array& value, bool weak);

}  // namespace internal
}  // namespace tessera
