// The table of rows that rows_test.cc runs in the reference evaluator and on a cluster. Each row
// has a function of the SDK. scripts/record_numpy.py has a row of the same name, with the same
// function of jax.numpy, and records the inputs and the expected results. To add a row, add it in
// both places and run the script.
#include "tests/numpy/rows.h"

#include <cmath>
#include <utility>

#include "client/tessera.h"

namespace tessera::numpy_rows {
namespace {

using Args = std::vector<Array>;

Args PairOf(const std::pair<Array, Array>& both) { return {both.first, both.second}; }
Args Joined(const std::vector<Args>& parts) {
  Args out;
  for (const Args& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}
Array First(const Array& x) { return x[Index(0)]; }
Array Columns(const Array& x, int64_t n) { return x[{ellipsis, Slice{0, n}}]; }

class Table {
 public:
  explicit Table(std::vector<Row>* rows) : rows_(rows) {}
  Table& Add(std::string name, std::function<Args(const Args&)> f) {
    rows_->push_back({std::move(name), std::move(f)});
    return *this;
  }
  // Adds a row for a function of one array (Unary) or of two arrays (Binary).
  void Unary(const std::string& name, Array (*f)(const Arg&)) {
    Add(name, [=](const Args& x) { return Args{f(x[0])}; });
  }
  Table& Binary(const std::string& name, Array (*f)(const Arg&, const Arg&)) {
    return Add(name, [=](const Args& x) { return Args{f(x[0], x[1])}; });
  }
  Table& Within(double ulps64, double ulps32, double ulps_grads, double scale = 0) {
    Row& row = rows_->back();
    row.ulps64 = ulps64;
    row.ulps32 = ulps32;
    row.ulps_grads = ulps_grads;
    row.scale = scale;
    return *this;
  }

 private:
  std::vector<Row>* rows_;
};

// Adds elementwise functions. Some functions have several rows, which differ in the recorded
// inputs. The suffix of a row's name says which inputs: special values, complex numbers or
// integers.
void AddUfuncs(Table& t) {
  const auto nan_to = [](const Arg& x) { return nan_to_num(x); };
  for (const char* after : {"", "_special"}) {
    const std::string suffix = after;
    t.Unary("sinc" + suffix, sinc);
    t.Unary("fabs" + suffix, fabs);
    t.Unary("rint" + suffix, rint);
    t.Unary("trunc" + suffix, trunc);
    t.Unary("reciprocal" + suffix, reciprocal);
  }
  t.Unary("deg2rad", deg2rad);
  t.Unary("rad2deg", rad2deg);
  t.Unary("positive", positive);
  for (const char* after : {"", "_complex"}) {
    const std::string suffix = after;
    t.Unary("log2" + suffix, log2);
    t.Unary("log10" + suffix, log10);
  }
  for (const char* after : {"_special", "_s32"}) {
    const std::string suffix = after;
    t.Unary("isnan" + suffix, isnan);
    t.Unary("isinf" + suffix, isinf);
    t.Unary("signbit" + suffix, signbit);
    t.Unary("nan_to_num" + suffix, nan_to);
  }
  t.Unary("isposinf_special", isposinf);
  t.Unary("isneginf_special", isneginf);
  t.Unary("isfinite_special", isfinite);
  t.Unary("rint_s32", rint);
  t.Unary("trunc_s32", trunc);
  t.Unary("fabs_s32", fabs);
  t.Unary("log2_s32", log2);
  t.Unary("deg2rad_s32", deg2rad);
  t.Unary("invert_s32", invert);
  t.Unary("reciprocal_s32", reciprocal);
  t.Unary("isnan_complex", isnan);
  t.Unary("isinf_complex", isinf);
  t.Add("nan_to_num_by", [](const Args& x) {
    return Args{nan_to_num(x[0], {.nan = 1.5, .posinf = 7.0, .neginf = -7.0})};
  });
  t.Add("angle", [](const Args& x) { return Args{angle(x[0])}; });
  t.Add("angle_degrees", [](const Args& x) { return Args{angle(x[0], true)}; });
  for (const char* after : {"", "_s32"}) {
    const std::string suffix = after;
    t.Binary("floor_divide" + suffix, floor_divide);
    t.Binary("mod" + suffix, mod);
    t.Binary("float_power" + suffix, float_power);
  }
  for (const char* after : {"", "_special", "_s32"}) {
    const std::string suffix = after;
    t.Binary("fmod" + suffix, fmod);
    t.Binary("fmax" + suffix, fmax);
    t.Binary("logaddexp" + suffix, logaddexp).Within(4, 4, 16, 1);
    t.Binary("hypot" + suffix, hypot);
  }
  for (const char* after : {"", "_special"}) {
    const std::string suffix = after;
    t.Binary("fmin" + suffix, fmin);
    t.Binary("logaddexp2" + suffix, logaddexp2).Within(4, 4, 16, 1);
    t.Binary("heaviside" + suffix, heaviside);
    t.Binary("copysign" + suffix, copysign);
  }
  t.Add("isclose_special", [](const Args& x) { return Args{isclose(x[0], x[1])}; });
  t.Binary("bitwise_and_s32", bitwise_and);
  t.Binary("bitwise_or_s32", bitwise_or);
  t.Binary("bitwise_xor_s32", bitwise_xor);
  t.Binary("logical_xor_s32", logical_xor);
  t.Binary("true_divide_s32", true_divide);
  t.Binary("left_shift", left_shift);
  t.Binary("right_shift", right_shift);
  t.Binary("right_shift_u32", right_shift);
  for (const char* name : {"divmod", "divmod_s32"})
    t.Add(name, [](const Args& x) { return PairOf(divmod(x[0], x[1])); });
  t.Add("isclose", [](const Args& x) { return Args{isclose(x[0], x[0] + 1e-6, {.atol = 1e-7})}; });
  t.Add("isclose_equal_nan",
        [](const Args& x) { return Args{isclose(x[0], x[1], {.equal_nan = true})}; });
  t.Add("allclose", [](const Args& x) {
    return Args{allclose(x[0], x[1]), allclose(x[0], x[0]),
                allclose(x[0], x[0] + 1, {.rtol = 1, .atol = 3})};
  });
  t.Add("array_equal", [](const Args& x) {
    return Args{array_equal(x[0], x[1]), array_equal(x[1], x[1]), array_equal(x[0], x[0], true),
                array_equal(x[0], x[0][Index(Slice{0, 2})])};
  });
}

// Adds functions that move or make elements. A row returns several results, one for each form of
// the arguments: axes, negative numbers, empty results.
void AddShapes(Table& t) {
  t.Add("ravel", [](const Args& x) { return Args{ravel(x[0])}; });
  t.Add("moveaxis", [](const Args& x) {
    return Args{moveaxis(x[0], 0, -1), moveaxis(x[0], {0, 2}, {1, 0})};
  });
  t.Add("matrix_transpose", [](const Args& x) {
    return Args{matrix_transpose(x[0]), permute_dims(x[0], {2, 0, 1})};
  });
  t.Add("atleast", [](const Args& x) {
    Args out;
    for (Array (*f)(const Arg&) : {atleast_1d, atleast_2d, atleast_3d})
      for (const Array& a : x) out.push_back(f(a));
    return out;
  });
  t.Add("broadcast_arrays", [](const Args& x) { return broadcast_arrays(x); });
  t.Add("stacks", [](const Args& x) {
    return Args{hstack(x), vstack(x), dstack(x), column_stack(x)};
  });
  t.Add("stacks_2d", [](const Args& x) {
    return Args{hstack(x), vstack(x), dstack(x), column_stack(x), concat(x, 1)};
  });
  t.Add("append", [](const Args& x) { return Args{append(x[0], x[1]), append(x[0], x[1], 0)}; });
  t.Add("append_s32", [](const Args& x) { return Args{append(x[0], x[1])}; });
  t.Add("split", [](const Args& x) {
    return Joined({split(x[0], 2, 1), split(x[0], {1, 1, 3}, 1)});
  });
  t.Add("array_split", [](const Args& x) {
    return Joined({array_split(x[0], 3), array_split(x[0], std::vector<int64_t>{2})});
  });
  t.Add("hvdsplit", [](const Args& x) {
    return Joined({hsplit(x[0], 5), hsplit(x[1], 3), vsplit(x[1], 2), dsplit(x[1], 2)});
  });
  t.Add("unstack", [](const Args& x) { return unstack(x[0], 1); });
  t.Add("tile", [](const Args& x) {
    return Args{tile(x[0], {2}), tile(x[0], {2, 3}), tile(x[1], {2, 1, 3}), tile(x[0], {2, 1, 0}),
                tile(x[0], {1, 1})};
  });
  t.Add("repeat", [](const Args& x) {
    return Args{repeat(x[0], 2), repeat(x[0], 3, 0), repeat(x[0], 2, -1), repeat(x[0], 0, 1)};
  });
  t.Add("repeat_each", [](const Args& x) {
    return Args{repeat(x[0], std::vector<int64_t>{2, 0, 3}, 0),
                repeat(x[0], std::vector<int64_t>{1, 0, 2, 1}, 1)};
  });
  t.Add("repeat_total", [](const Args& x) {
    return Args{repeat(x[0], x[1], 4, 0), repeat(x[0], x[1], 5, 0), repeat(x[0], x[1], 8, 0)};
  });
  t.Add("roll", [](const Args& x) {
    return Args{roll(x[0], 2), roll(x[0], -1, 0), roll(x[0], 7, 1), roll(x[0], {1, 2}, {0, 1}),
                roll(x[0], 1, {0, 1})};
  });
  t.Add("flips", [](const Args& x) {
    Args out = {flipud(x[0]), fliplr(x[0])};
    for (const int k : {-1, 0, 1, 2, 3}) out.push_back(rot90(x[0], k));
    return out;
  });
  t.Add("rot90_axes", [](const Args& x) {
    return Args{rot90(x[0], 1, {2, 0}), rot90(x[0], 3, {2, 0})};
  });
  t.Add("pad", [](const Args& x) {
    return Args{pad(x[0], 1), pad(x[0], {{1, 2}, {0, 3}}, "constant", 2.5)};
  });
  for (const char* mode : {"edge", "reflect", "symmetric", "wrap"}) {
    t.Add(std::string("pad_") + mode, [=](const Args& x) {
      return Args{pad(x[0], {{2, 1}, {0, 3}}, mode), pad(x[0], {{5, 7}, {9, 4}}, mode)};
    });
  }
  t.Add("pad_one", [](const Args& x) {
    Args out;
    for (const char* mode : {"edge", "reflect", "symmetric", "wrap"})
      out.push_back(pad(x[0], 3, mode));
    return out;
  });
  t.Add("diagonal", [](const Args& x) {
    return Args{diagonal(x[0]),    diagonal(x[0], 1),       diagonal(x[0], -2),
                diagonal(x[0], 5), diagonal(x[1], 0, 1, 2), diagonal(x[1], 1, 2, 0)};
  });
  t.Add("diag", [](const Args& x) {
    return Args{diag(x[0], 1), diag(x[1]), diag(x[1], 2), diag(x[1], -1), diagflat(x[0], 1)};
  });
  t.Add("triangles", [](const Args& x) {
    return Args{tril(x[0]), triu(x[0]), tril(x[0], -1), triu(x[0], 2), tril(x[1], 1)};
  });
  t.Add("tri", [](const Args&) {
    return Args{tri(3), tri(3, 5, 1), tri(4, 2, -1, kS32), eye(3, 4, 1), identity(2)};
  });
  t.Add("linspace", [](const Args& x) {
    return Args{linspace(x[0], x[1], 7), linspace(x[0], x[1], 7, {.endpoint = false}),
                linspace(x[0], x[1], 1), linspace(x[0], x[1], 0)};
  });
  t.Add("linspace_arrays", [](const Args& x) {
    return Args{linspace(x[0], x[1], 4), linspace(x[0], x[1], 4, {.axis = -1}),
                linspace(x[0], x[1], 3, {.axis = 1})};
  });
  t.Add("linspace_s32", [](const Args& x) {
    return Args{linspace(x[0], x[1], 6), linspace(x[0], x[1], 6, {.dtype = kS32})};
  });
  t.Add("logspace", [](const Args& x) {
    return Args{logspace(x[0], x[1], 5), logspace(x[0], x[1], 5, 2),
                logspace(x[0], x[1], 4, 10, {.endpoint = false})};
  });
  t.Add("geomspace", [](const Args& x) {
    return Args{geomspace(x[0], x[1], 5), geomspace(-x[0], -x[1], 4, {.endpoint = false})};
  });
  t.Add("geomspace_arrays",
        [](const Args& x) { return Args{geomspace(x[0], x[1], 3, {.axis = 1})}; });
  t.Add("meshgrid", [](const Args& x) {
    return Joined({meshgrid(x), meshgrid(x, "ij"), meshgrid(x, "xy", true)});
  });
}

// Adds means, variances, quantiles and differences, and the forms of these functions that skip
// NaNs. A row returns several results, one for each choice of axes and options.
void AddStatistics(Table& t) {
  t.Add("var_ddof", [](const Args& x) {
    return Args{var(x[0], {}, false, 1), var(x[0], 0, false, 1), var(x[0], 1, false, 4)};
  });
  t.Add("std", [](const Args& x) { return Args{std(x[0]), std(x[0], 1), std(x[0], 0, true, 1)}; });
  t.Add("std_s32", [](const Args& x) { return Args{std(x[0])}; });
  t.Add("std_complex", [](const Args& x) { return Args{std(x[0]), var(x[0]), var(x[0], 0)}; });
  t.Add("ptp", [](const Args& x) { return Args{ptp(x[0]), ptp(x[0], 0), ptp(x[0], 1, true)}; });
  t.Add("count_nonzero", [](const Args& x) {
    return Args{count_nonzero(x[0]), count_nonzero(x[0] > 0), count_nonzero(x[0], 0)};
  });
  t.Add("average", [](const Args& x) {
    return Args{average(x[0]), average(x[0], x[1]), average(x[0], x[1], 1),
                average(x[0], x[2], 1, true)};
  });
  t.Add("median", [](const Args& x) {
    return Args{median(x[0]), median(x[0], 0), median(x[1], 0), median(x[0], {0, 1}, true)};
  });
  t.Add("median_nans", [](const Args& x) {
    return Args{median(x[0]), median(x[0], 0), median(x[0], 1)};
  });
  t.Add("quantile", [](const Args& x) {
    return Args{quantile(x[0], x[1]), quantile(x[0], x[1], 0), quantile(x[0], x[1][Index(3)], 1),
                quantile(x[0], x[1], 1, "linear", true)};
  });
  t.Add("quantile_methods", [](const Args& x) {
    Args out;
    for (const char* method : {"lower", "higher", "midpoint", "nearest"})
      out.push_back(quantile(x[0], x[1], 0, method));
    return out;
  });
  t.Add("quantile_axes", [](const Args& x) { return Args{quantile(x[0], x[1], {0, 2})}; });
  t.Add("percentile", [](const Args& x) {
    return Args{percentile(x[0], 30.0), percentile(x[0], 90.0, 1, "higher")};
  });
  t.Add("quantile_s32", [](const Args& x) { return Args{quantile(x[0], 0.25)}; });
  const auto reduction = [&](const char* name, Array (*f)(const Arg&, const Axes&, bool)) {
    t.Add(name, [=](const Args& x) {
      return Args{f(x[0], {}, false), f(x[0], 0, false), f(x[0], 1, true)};
    });
  };
  reduction("nansum", nansum);
  reduction("nanprod", nanprod);
  reduction("nanmax", nanmax);
  reduction("nanmin", nanmin);
  reduction("nanmean", nanmean);
  t.Add("nanvar", [](const Args& x) {
    return Args{nanvar(x[0]), nanvar(x[0], 0), nanvar(x[0], 1, true)};
  });
  t.Add("nanstd", [](const Args& x) {
    return Args{nanstd(x[0]), nanstd(x[0], 0), nanstd(x[0], 1, true)};
  });
  t.Add("nansums_s32", [](const Args& x) {
    return Args{nansum(x[0]), nanmax(x[0]), nanmean(x[0]), nanvar(x[0])};
  });
  t.Add("cov", [](const Args& x) {
    return Args{cov(x[0]), cov(x[0], false), cov(x[0], true, 0), cov(x[1])};
  });
  t.Add("cov_complex", [](const Args& x) { return Args{cov(x[0])}; }).Within(4, 4, 16, 1);
  t.Add("corrcoef", [](const Args& x) {
    return Args{corrcoef(x[0]), corrcoef(x[0], false), corrcoef(x[1])};
  });
  t.Add("diff", [](const Args& x) {
    return Args{diff(x[0]),    diff(x[0], 1, 0), diff(x[0], 2),
                diff(x[0], 4), diff(x[0], 5),    diff(x[0], 0)};
  });
  t.Add("diff_bool", [](const Args& x) { return Args{diff(x[0])}; });
  t.Add("gradient", [](const Args& x) {
    return Args{gradient(x[0], 0.5, 1), gradient(x[0], 1, 0)};
  });
  t.Add("trapezoid", [](const Args& x) {
    return Args{trapezoid(x[0]), trapezoid(x[0], 0.5, 0), trapezoid(x[0], x[1], 0),
                trapezoid(x[0], x[2])};
  });
  t.Add("interp", [](const Args& x) {
    return Args{interp(x[0], x[1], x[2]), interp(x[0], x[1], x[2], -5.0, 7.0)};
  });
}

// Adds products of vectors, matrices and tensors. The terms of products of complex numbers may
// cancel, so the tolerance of these rows is relative to 1 and not to the result.
void AddProducts(Table& t) {
  t.Add("inner", [](const Args& x) {
    return Args{inner(x[0], x[1]), inner(x[2], x[2]), inner(x[0], 2.5)};
  });
  t.Add("outer", [](const Args& x) { return Args{outer(x[0], x[1]), linalg::outer(x[1], x[1])}; });
  t.Add("outer_s32", [](const Args& x) { return Args{outer(x[0], x[1])}; });
  t.Add("vdot", [](const Args& x) { return Args{vdot(x[0], x[1]), vdot(x[2], x[2])}; });
  t.Add("vecdot", [](const Args& x) {
    return Args{vecdot(x[0], x[1]), vecdot(x[0], x[1], 0), vecdot(x[2], x[0])};
  });
  t.Add("vecdot_complex", [](const Args& x) {
     return Args{vecdot(x[0], complex(-imag(x[0]), real(x[0])))};
   }).Within(4, 4, 16, 1);
  t.Add("matvec", [](const Args& x) {
    return Args{matvec(x[0], x[1]), matvec(First(x[0]), First(x[1]))};
  });
  t.Add("vecmat", [](const Args& x) {
    return Args{vecmat(x[0], x[1]), vecmat(First(x[0]), First(x[1]))};
  });
  t.Add("tensordot", [](const Args& x) {
    const Array first = First(x[1]);
    return Args{tensordot(x[0], first.T(), 1), tensordot(x[0], first, 2),
                tensordot(x[0], x[1], {{1}, {2}}), tensordot(x[0], x[1], {{0, 1}, {1, 2}}),
                tensordot(x[0], First(first), 0)};
  });
  t.Add("kron", [](const Args& x) {
    return Args{kron(x[0], x[1]), kron(x[0], x[2]), kron(x[2], x[0])};
  });
  t.Add("cross", [](const Args& x) {
    return Args{cross(x[0], x[1]), cross(x[0].T(), x[1].T(), 0),
                cross(Columns(x[0], 2), Columns(x[1], 2)), cross(Columns(x[0], 2), x[1]),
                cross(x[0], First(x[1]))};
  });
}

// Adds functions of jax.numpy.linalg. Rows named "of_nothing" check empty matrices and vectors.
void AddLinalg(Table& t) {
  t.Add("linalg_trace", [](const Args& x) {
    return Args{linalg::trace(x[0]), linalg::trace(x[0], 1), linalg::trace(x[1]),
                linalg::diagonal(x[1], -1)};
  });
  t.Add("vector_norm", [](const Args& x) {
    return Args{linalg::vector_norm(x[0]), linalg::vector_norm(x[0], {.axis = 1}),
                linalg::vector_norm(x[0], {.axis = 0, .ord = 1}),
                linalg::vector_norm(x[0], {.axis = {0, 1}, .ord = 3}),
                linalg::vector_norm(x[0], {.keepdims = true, .ord = HUGE_VAL})};
  });
  t.Add("matrix_norm", [](const Args& x) {
    return Args{linalg::matrix_norm(x[0]), linalg::matrix_norm(x[0], {.ord = 1}),
                linalg::matrix_norm(x[0], {.keepdims = true, .ord = HUGE_VAL}),
                linalg::matrix_norm(x[0], {.ord = "nuc"}), linalg::matrix_norm(x[0], {.ord = 2})};
  });
  // The error of a factor is relative to the length of the matrix's columns, which is about 1, and
  // not to each element.
  t.Add("qr_r", [](const Args& x) {
     return Args{abs(linalg::qr(x[0], "r").second)};
   }).Within(4, 4, 16, 1);
  t.Add("qr_raw", [](const Args& x) { return PairOf(linalg::qr(x[0], "raw")); });
  // The error of an eigenvalue is relative to the norm of the matrix, which is 5.
  t.Add("eigh_uplo", [](const Args& x) {
     return Args{linalg::eigh(x[0], "U", false).first, linalg::eigvalsh(x[0], "L", false),
                 linalg::eigvalsh(x[0], "U", false)};
   }).Within(4, 4, 16, 5);
  t.Add("eigvalsh_uplo", [](const Args& x) { return Args{linalg::eigvalsh(x[0], "U")}; });
  t.Add("tensorinv", [](const Args& x) {
     return Args{linalg::tensorinv(x[0])};
   }).Within(64, 64, 256, 1);
  // The error of a solution is relative to its largest element, and is up to the condition number
  // of the matrix: 67, 19 and 71. OpenBLAS rounds differently on processors of other kinds.
  t.Add("tensorinv_1", [](const Args& x) {
     return Args{linalg::tensorinv(x[0], 1)};
   }).Within(67, 67, 268, 10);
  t.Add("tensorsolve", [](const Args& x) {
     return Args{linalg::tensorsolve(x[0], x[1])};
   }).Within(19, 19, 76, 4.7);
  t.Add("tensorsolve_axes", [](const Args& x) {
     return Args{linalg::tensorsolve(x[0], x[1], {1})};
   }).Within(71, 71, 284, 18);
  t.Add("norm_of_nothing", [](const Args& x) {
    Args out = {linalg::norm(x[0]),
                linalg::norm(x[0], {.ord = 1}),
                linalg::norm(x[0], {.ord = HUGE_VAL}),
                linalg::norm(x[0], {.ord = 3}),
                linalg::norm(x[1], {.axis = 0}),
                linalg::norm(x[1], {.ord = HUGE_VAL, .axis = 0})};
    for (const Array& m : {x[1], x[2]})
      for (const linalg::NormOrder& ord :
           {linalg::NormOrder(), linalg::NormOrder("nuc"), linalg::NormOrder(1),
            linalg::NormOrder(2), linalg::NormOrder(HUGE_VAL)})
        out.push_back(linalg::norm(m, {.ord = ord}));
    out.push_back(linalg::norm(x[1], {.ord = -1}));
    out.push_back(linalg::norm(x[2], {.ord = -HUGE_VAL}));
    return out;
  });
  t.Add("pinv_of_nothing", [](const Args& x) {
    return Args{linalg::pinv(x[0]), linalg::pinv(x[1])};
  });
  t.Add("expm_of_nothing", [](const Args& x) { return Args{linalg::expm(x[0])}; });
  t.Add("lstsq_of_nothing", [](const Args& x) {
    const auto solved = [](const Array& a, const Array& b) {
      const linalg::Lstsq out = linalg::lstsq(a, b);
      return Args{out.x, out.residuals, out.rank, out.s};
    };
    return Joined({solved(x[0], x[2][Index(Slice{0, 0})]), solved(x[1], x[2]),
                   solved(x[1], stack({x[2], x[2]}, 1))});
  });
  t.Add("of_no_matrices", [](const Args& x) {
    return Args{linalg::cond(x[0]),        linalg::cond(x[0], 1),
                linalg::pinv(x[0]),        linalg::norm(x[0], {.ord = 2, .axis = {1, 2}}),
                linalg::matrix_rank(x[0]), linalg::expm(x[0])};
  });
}

}  // namespace

const std::vector<Row>& Rows() {
  static const auto* const kRows = [] {
    auto* rows = new std::vector<Row>;
    Table t(rows);
    AddUfuncs(t);
    AddShapes(t);
    AddStatistics(t);
    AddProducts(t);
    AddLinalg(t);
    return rows;
  }();
  return *kRows;
}

}  // namespace tessera::numpy_rows
