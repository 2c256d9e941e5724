// The formats of debug_print, such as "|w| = {:.4f} after {}". client/debug_print.h documents them.
//
// Stateless; thread-safe. Used by the SDK only.
#pragma once
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "ir/array.h"
#include "ir/dtype.h"

namespace tessera::internal {

// Throws VALUE_ERROR, as a StatusException, unless the format fits values of these dtypes and uses
// all of them.
void CheckPrintFormat(const std::string& format, const std::vector<ir::DType>& dtypes);
// Writes a line to stdout: the format with the values in place of its fields. Requires that the
// format fits the values. The line may stay in the buffer of stdout.
void PrintLine(const std::string& format, absl::Span<const ir::Array> values);

}  // namespace tessera::internal
