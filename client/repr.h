// An array's values as text, as NumPy and JAX print them.
#pragma once
#include <iosfwd>
#include <string>

#include "client/array.h"

namespace tessera {

// The array as JAX prints it: "Array([1., 2., 3.], dtype=float32)", of more than 1000 elements the
// first and last ones along each dim. Waits for the contents. If they cannot be read, the shape,
// the dtype and why; of a traced or abstract array, to_string().
std::ostream& operator<<(std::ostream& out, const Array& x);

namespace internal {

// "float32": JAX's name of a dtype.
std::string DTypeNameInJax(ir::DType dtype);
// "Array([1., 2.], dtype=float32)": of more than 1000 elements the first and last three along each
// dim. Lines have at most 75 characters. Reference: repr of a jax.Array, numpy.array2string.
std::string ReprOf(const ir::Array& value, bool weak);

}  // namespace internal
}  // namespace tessera
