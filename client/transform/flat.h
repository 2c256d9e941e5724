// Code that the transforms share. It has no templates: a tree is a flat list of arrays here.
//
// Each transform traces the body into a function and transforms it. It then applies the result in
// the current frame, or runs it as a program if there is none. Used by the SDK only.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "client/session.h"
#include "client/trace/trace.h"
#include "client/tree.h"
#include "ir/transform/transform.h"

namespace tessera::internal {

// WithoutDim returns `type` without dim `d`, WithLeadingDim with a new first dim of size `size`.
Type WithoutDim(Type type, int d);
Type WithLeadingDim(Type type, int64_t size);
std::vector<Array> Concat(std::vector<Array> a, const std::vector<Array>& b);
Array FullArray(const Type& type, double value, const Site& site);
// Applies the function `f` of a transform to `args`: inlines it into the current frame, or runs it
// as a program.
std::vector<Array> CallFunction(const ir::FunctionRef& f, const std::vector<Array>& args,
                                std::string_view name, const Site& site);
// Returns `f` with its params in another order: new param i is old param order[i].
ir::FunctionRef ReorderParams(const ir::Function& f, const std::vector<int>& order);
// Returns for each type whether its values have tangents: inexact dtypes have them.
std::vector<bool> TangentMask(const std::vector<Type>& types);
// Returns one array for each type: the next one of `arrays` where `given` is true, else zeros.
std::vector<Array> FillWithZeros(const std::vector<Type>& types, const std::vector<bool>& given,
                                 absl::Span<const Array> arrays, const Site& site);
// Returns the transpose of `f`, which is linear in the params that `linear` marks. Throws
// VALUE_ERROR for a while_loop, as JAX does.
ir::FunctionRef Transposed(const ir::Function& f, const std::vector<bool>& linear,
                           const Site& site);
// Returns `f` with only the results that have these indices.
ir::FunctionRef KeepResults(const ir::Function& f, const std::vector<int>& result_indices);
// Returns the source text of a cast, "pcast(..., to='varying')", if the cast turns the type `have`
// into `want`. Returns "" if no such cast does.
std::string PcastHint(const Type& have, const Type& want);

// Returns a C++ number as an argument of a traced function. It is a weakly typed scalar: s32 or
// f32, but s64 if s32 is too small, and f64 if `use_f64`. A bool becomes an array of bool. While
// tracing, the argument is a constant.
Array NumberArgument(const Arg& number, bool use_f64);
// Returns whether any of the arrays is f64 or c128.
bool HasFloat64(const std::vector<Array>& arrays);

// Returns the arrays of a function's result, without its holes. If the whole result is one Array
// without a value, the array stays in the list: the user forgot to set it, and the caller that uses
// the leaves throws.
std::vector<Array> ResultLeaves(Flat result);
// Removes the first `n` arrays.
void DropFront(std::vector<Array>* arrays, size_t n);

// Arguments of a transform: a tree whose leaves have paths that begin with `root`, like args[0].w.
struct FlatArgs : Flat {
  std::string_view root;
  std::vector<std::string> paths() const { return LeafPaths(tree, root); }
  // Returns one path, for an error. Slow: it makes the paths of all leaves.
  std::string path(size_t leaf) const { return paths().at(leaf); }
};

}  // namespace tessera::internal
