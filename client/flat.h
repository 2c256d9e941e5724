// What the transforms share below their templates, where a tree is a flat list of arrays.
//
// Each traces the body into a function, transforms it, and applies the result in the current frame,
// or runs it as a program if there is none. Used by the SDK only.
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
#include "client/trace.h"
#include "client/tree.h"
#include "ir/transform/transform.h"

namespace tessera::internal {

std::vector<Type> TypesOf(const std::vector<Array>& arrays);
// `type` without dim `d`; with a new first dim.
Type WithoutDim(Type type, int d);
Type WithDim(Type type, int64_t size);
std::vector<Array> Concat(std::vector<Array> a, const std::vector<Array>& b);
Array FullArray(const Type& type, double value, const Site& site);
// Which values have tangents: those of inexact dtypes.
std::vector<bool> HaveTangents(const std::vector<Type>& types);
// One array for each type: the next one of `arrays` if `given`, else zeros.
std::vector<Array> FillWithZeros(const std::vector<Type>& types, const std::vector<bool>& given,
                                 absl::Span<const Array> arrays, const Site& site);
// `f`, which is linear in the params that `linear` says, transposed. Throws VALUE_ERROR for a
// while_loop, as JAX does.
ir::FunctionRef Transposed(const ir::Function& f, const std::vector<bool>& linear,
                           const Site& site);
// `f` with only the results `which`.
ir::FunctionRef KeepResults(const ir::Function& f, const std::vector<int>& which);
// "pcast(...)" if that makes the manual axes type of a value of type `have` that of `want`; else
// "".
std::string PcastHint(const Type& have, const Type& want);

// A C++ number as an argument of a traced function: a weakly typed scalar s32 or f32, or s64 if s32
// is too small, or f64 if `use_f64`. A bool is an array of bool. While tracing, a constant.
Array NumberArgument(const Arg& number, bool use_f64);
// Whether an array is f64 or c128.
bool HasFloat64(const std::vector<Array>& arrays);

// The arrays of a function's result, without its holes. An Array that is all of the result and has
// no value was forgotten: whoever takes the leaves refuses it.
std::vector<Array> ResultLeaves(Flat result);
// Removes the first `n` arrays.
void DropFront(std::vector<Array>* arrays, size_t n);

// Arguments of a transform: a tree, whose leaves have paths that begin with `root`: args[0].w.
struct FlatArgs : Flat {
  std::string_view root;
  std::vector<std::string> paths() const { return LeafPaths(tree, root); }
  // For an error: it makes all of them.
  std::string path(size_t leaf) const { return paths().at(leaf); }
};

}  // namespace tessera::internal
