// The part of Jacobians that is no template. A Jacobian is a jvp or a transposed linearization,
// batched over a standard basis, so that one program computes all rows or columns.
#include "client/transform/jacobian.h"

#include <algorithm>
#include <numeric>

#include "absl/types/span.h"
#include "client/apply/apply.h"
#include "ir/ops.h"

namespace tessera::internal {
namespace {

constexpr int64_t kS32Max = 0x7FFFFFFF;

int64_t NumElements(const std::vector<Type>& types) {
  return std::accumulate(types.begin(), types.end(), int64_t{0},
                         [](int64_t n, const Type& t) { return n + t.num_elements(); });
}

// Returns for each type its part of an identity matrix. Row n of the matrix is 1 at element n and 0
// elsewhere, where the elements of all types are counted one type after another. Each part has the
// rows as its first dim, followed by the dims of its type, and has the sharding and the Manual axes
// of its type.
std::vector<Array> StandardBasis(const std::vector<Type>& types, const Site& site) {
  const int64_t rows = NumElements(types);
  const DType index_dtype = rows > kS32Max ? DType::kS64 : DType::kS32;
  std::vector<Array> out;
  int64_t first = 0;
  for (const Type& type : types) {
    out.push_back(Apply1("standard_basis", site, {}, [&](ir::Builder& b, std::vector<ir::Value>) {
      Type rows_type = type;
      rows_type.shape.insert(rows_type.shape.begin(), rows);
      if (type.is_sharded()) rows_type.sharding.insert(rows_type.sharding.begin(), ir::AxisList{});
      const ir::Value zeros = ir::Full(b, rows_type, 0);
      ir::Value element = ir::Full(b, index_dtype, rows_type.shape, static_cast<double>(first));
      int64_t stride = 1;
      for (int d = type.rank() - 1; d >= 0; --d) {
        const ir::Value coordinate = ir::Iota(b, index_dtype, rows_type.shape, d + 1);
        element = element + coordinate * ir::FullLike(coordinate, static_cast<double>(stride));
        stride *= type.shape[d];
      }
      const ir::Value row = ir::Iota(b, index_dtype, rows_type.shape, 0);
      const ir::Value is_one = ir::Compare(row, element, "EQ");
      return zeros + ir::Convert(is_one, type.dtype);
    }));
    first += type.num_elements();
  }
  return out;
}

// Dim `dim` of `x` runs over the elements of all of `types`, one type after another. Returns one
// block for each type, with that type's dims in place of `dim`.
std::vector<Array> Unravel(const Array& x, int dim, const std::vector<Type>& types,
                           const Site& site) {
  std::vector<Array> out;
  int64_t first = 0;
  for (const Type& type : types) {
    const int64_t last = first + type.num_elements();
    out.push_back(Apply1("unravel", site, {x}, [&](ir::Builder&, std::vector<ir::Value> in) {
      const ir::Value part = ir::SliceInDim(in[0], dim, first, last);
      Dims shape = x.shape();
      shape.erase(shape.begin() + dim);
      shape.insert(shape.begin() + dim, type.shape.begin(), type.shape.end());
      return ir::Reshape(part, shape);
    }));
    first = last;
  }
  return out;
}

void CheckArguments(const char* name, bool reverse, bool holomorphic, const FlatArgs& args,
                    const std::vector<bool>& active, const Site& site) {
  for (size_t i = 0; i < args.leaves.size(); ++i) {
    if (!active[i]) continue;
    const DType dtype = args.leaves[i].dtype();
    const auto refuse = [&](const char* expected, const char* hint) {
      ThrowError(ErrorKind::kTypeError, site, name, expected, ", but ", args.path(i), " is ",
                 args.leaves[i].type().ToString(), hint);
    };
    if (holomorphic) {
      if (!ir::IsComplex(dtype)) {
        refuse(" with holomorphic=True requires inputs with complex dtype",
               ". Convert it, or differentiate by another argument");
      }
    } else if (reverse ? !ir::IsInexact(dtype) : !ir::IsFloat(dtype)) {
      refuse(reverse ? " requires real- or complex-valued inputs (input dtype that is a float or "
                       "complex)"
                     : " requires real-valued inputs (input dtype that is a float)",
             ". Convert it, or differentiate by another argument; for a complex argument, "
             "holomorphic gives the complex derivative, and jvp the derivative in each direction");
    }
  }
}
void CheckResults(const char* name, bool reverse, bool holomorphic, absl::Span<const Type> results,
                  const Site& site) {
  for (size_t r = 0; r < results.size(); ++r) {
    const DType dtype = results[r].dtype;
    if (holomorphic ? ir::IsComplex(dtype) : reverse ? ir::IsFloat(dtype) : ir::IsInexact(dtype))
      continue;
    ThrowError(ErrorKind::kTypeError, site, name,
               holomorphic ? " with holomorphic=True requires outputs with complex dtype"
               : reverse   ? " requires real-valued outputs (output dtype that is a float)"
                           : " requires outputs that have tangents (a float or complex dtype)",
               ", but result ", r, " is ", results[r].ToString(),
               ". Convert it, or return it as aux with has_aux");
  }
}

struct JacobianCall {
  const char* name;
  const FlatArgs& args;
  std::vector<bool> active;      // one entry per argument
  const TracedFunction& nested;  // the traced f
  // types of the active arguments, and of the differentiated results
  std::vector<Type> in_types, out_types;
  const Site& site;

  // Returns for each param of the traced f whether it is an active argument.
  std::vector<bool> ActiveParamMask() const {
    std::vector<bool> mask = active;
    mask.insert(mask.end(), nested.captures.size(), false);
    return mask;
  }
  std::vector<Array> Inputs() const { return Concat(args.leaves, nested.captures); }
};

// Calls `f` for each row of `basis`: the last params of `f` take a row. The last results have the
// rows along the dims `out_dims`; the earlier results do not depend on the row.
std::vector<Array> CallForEachRow(const JacobianCall& call, const ir::Function& f,
                                  const std::vector<Array>& in, const std::vector<Array>& basis,
                                  std::vector<int> out_dims) {
  std::vector<int> dims(in.size(), -1);
  dims.insert(dims.end(), basis.size(), 0);
  const int num_unbatched = static_cast<int>(f.results.size() - out_dims.size());
  out_dims.insert(out_dims.begin(), num_unbatched, -2);
  const ir::BatchResult batched = OrThrow(ir::Batch(f, dims, basis[0].dim(0), out_dims), call.site);
  return CallFunction(batched.fn, Concat(in, basis), call.name, call.site);
}

std::vector<Array> JacobianByColumns(const JacobianCall& call) {
  const ir::JvpResult jvp =
      OrThrow(ir::Jvp(*call.nested.fn, call.ActiveParamMask(), /*instantiate=*/true), call.site);
  const size_t num_results = call.nested.fn->results.size();
  // Keep the results, then the tangents of the differentiated ones, all of which are floats.
  std::vector<int> kept(num_results + call.out_types.size());
  std::iota(kept.begin(), kept.end(), 0);
  const ir::FunctionRef f = KeepResults(*jvp.fn, kept);
  std::vector<int> out_dims;
  for (const Type& t : call.out_types) out_dims.push_back(t.rank());
  std::vector<Array> all =
      CallForEachRow(call, *f, call.Inputs(), StandardBasis(call.in_types, call.site), out_dims);
  std::vector<Array> out;
  for (size_t r = 0; r < call.out_types.size(); ++r)
    out = Concat(std::move(out),
                 Unravel(all[num_results + r], call.out_types[r].rank(), call.in_types, call.site));
  return Concat(std::move(out), {all.begin() + call.out_types.size(), all.begin() + num_results});
}

// Runs the forward pass once and the transposed linear part for all rows at once. A result that
// does not depend on the active arguments is not part of the linear part, so its blocks are filled
// with zeros.
std::vector<Array> JacobianByRows(const JacobianCall& call) {
  const ir::Linearized lin =
      OrThrow(ir::Linearize(*call.nested.fn, call.ActiveParamMask()), call.site);
  std::vector<Array> results = CallFunction(lin.forward, call.Inputs(), call.name, call.site);
  const std::vector<Array> residuals(results.end() - lin.num_residuals, results.end());
  results.resize(results.size() - lin.num_residuals);
  // The indices of the linear part's results that are kept, and the types of the cotangents of
  // these results.
  std::vector<int> kept;
  std::vector<Type> cotangent_types;
  for (size_t r = 0, tangent_index = 0; r < results.size(); ++r) {
    if (!lin.out_active[r]) continue;
    if (r < call.out_types.size()) {
      kept.push_back(static_cast<int>(tangent_index));
      cotangent_types.push_back(ir::CotangentType(call.out_types[r]));
    }
    ++tangent_index;
  }
  // for each argument, one block per result that depends on it
  std::vector<std::vector<Array>> blocks;
  if (!kept.empty()) {
    std::vector<bool> linear(residuals.size(), false);
    linear.insert(linear.end(), call.in_types.size(), true);
    const ir::FunctionRef transposed =
        Transposed(*KeepResults(*lin.linear, kept), linear, call.site);
    for (const Array& gradient :
         CallForEachRow(call, *transposed, residuals, StandardBasis(cotangent_types, call.site),
                        std::vector<int>(call.in_types.size(), 0)))
      blocks.push_back(Unravel(gradient, 0, cotangent_types, call.site));
  }
  std::vector<Array> out;
  for (size_t r = 0, next = 0; r < call.out_types.size(); ++r) {
    for (size_t i = 0; i < call.in_types.size(); ++i) {
      if (lin.out_active[r]) {
        out.push_back(blocks[i][next]);
        continue;
      }
      Type block = call.in_types[i];
      block.shape.insert(block.shape.begin(), call.out_types[r].shape.begin(),
                         call.out_types[r].shape.end());
      if (block.is_sharded())
        block.sharding.insert(block.sharding.begin(), call.out_types[r].rank(), {});
      out.push_back(FullArray(block, 0, call.site));
    }
    if (lin.out_active[r]) ++next;
  }
  return Concat(std::move(out), {results.begin() + call.out_types.size(), results.end()});
}

}  // namespace

std::vector<Array> JacobianFlat(const char* name, bool reverse, bool holomorphic,
                                const FlatArgs& args, const std::vector<bool>& active,
                                const Site& site, FlatBody body,
                                absl::FunctionRef<size_t()> num_results) {
  CheckArguments(name, reverse, holomorphic, args, active, site);
  return InProgram(name, site, args.leaves, [&] {
    const TracedFunction n = TraceFlat(CurrentScope(), TypesOf(args.leaves), name, site, body);
    JacobianCall call{name, args, active, n, {}, n.fn->result_types(), site};
    call.out_types.resize(num_results());
    CheckResults(name, reverse, holomorphic, call.out_types, site);
    for (size_t i = 0; i < active.size(); ++i)
      if (active[i]) call.in_types.push_back(args.leaves[i].type());
    return reverse ? JacobianByRows(call) : JacobianByColumns(call);
  });
}

}  // namespace tessera::internal
