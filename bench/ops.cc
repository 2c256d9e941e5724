// Measures ops, one by one. Each op is a jitted program on an embedded cluster of one device, and
// is compared with the same op in JAX on the same cores.
//
//   bench-ops [--only WORD] [--size N] [--rounds N] [--smoke] [--jax PYTHON]
//
// A call runs one op on arrays that the device holds and waits for its results. Tessera and JAX
// take turns, round by round. Each row's results are compared with JAX's once. The ratios divide
// Tessera's time by JAX's, for the fastest calls and for the medians. "host" marks an op that the
// host's evaluator runs (explain says so).
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdio>
#include <functional>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/locks.h"
#include "base/status.h"
#include "bench/compared.h"
#include "bench/flags.h"
#include "bench/samples.h"
#include "client/tessera.h"

namespace tessera::bench {
namespace {

// A round makes as many calls of a row as fit in this time, but at most kCallsMax.
constexpr absl::Duration kTimeOfRound = absl::Milliseconds(60);
constexpr int kCallsMax = 200;

struct Flags {
  std::vector<int64_t> sizes = {1024, 1'000'000};
  std::string only;  // only rows whose family or name contains this word
  int rounds = 5;
  bool smoke = false;
  std::string jax;
};

struct Row {
  std::string family, op;
  int64_t size;
  std::function<std::vector<Array>()> call;  // waits for its results
  std::function<bool()> on_host;
  // Returns the arrays that are compared with JAX's in place of the results. It is set for
  // decompositions, whose factors are not unique: the product of the factors is compared. If it is
  // empty, the results themselves are compared.
  std::function<std::vector<Array>(const std::vector<Array>&)> compared_arrays = {};
  Samples ours = {}, jax = {};
  // Returns the row's name in bench/ops_jax.py.
  std::string name() const { return absl::StrCat(op, ", ", size); }
};

// ---- Numbers that look random. bench/ops_jax.py makes the same numbers. -------------------------

uint32_t Bits(uint32_t salt, int64_t i) {
  uint32_t h = static_cast<uint32_t>(i) + salt * 0x01000193U;
  h = (h ^ (h >> 16)) * 0x85EBCA6BU;
  h = (h ^ (h >> 13)) * 0xC2B2AE35U;
  return h ^ (h >> 16);
}
Array Numbers(uint32_t salt, const ir::Dims& shape, DType dtype = DType::kF32) {
  ir::Array a(dtype, shape);
  for (int64_t i = 0; i < a.num_elements(); ++i) a.Set(i, (Bits(salt, i) >> 8) * 0x1p-22 - 2.0);
  return put(a);
}
Array Integers(uint32_t salt, int64_t limit, const ir::Dims& shape) {
  ir::Array a(DType::kS32, shape);
  for (int64_t i = 0; i < a.num_elements(); ++i)
    a.Set(i, static_cast<double>(Bits(salt, i) % static_cast<uint32_t>(limit)));
  return put(a);
}

// ---- Rows. --------------------------------------------------------------------------------------

class Table {
 public:
  explicit Table(const Flags& flags) : flags_(flags) {}

  void AddOps(int64_t n) {
    n_ = n;
    side_ = static_cast<int64_t>(std::sqrt(static_cast<double>(n)));
    x_ = Numbers(1, {n});
    m_ = Numbers(5, {side_, side_});
    keys_ = Integers(11, (int64_t{1} << 31) - 1, {n});
    ir::Array distinct(DType::kS32, {n / 2});
    for (int64_t i = 0; i < n / 2; ++i) distinct.Set(i, static_cast<double>(i * 7919 % n));
    distinct_ = put(distinct);
    AddIndexing();
    AddOrdering();
    AddReductions();
    AddNorms(DType::kF32, "");
    AddNorms(DType::kBF16, " bf16");
    AddElementwise(DType::kF32, "f32");
    AddElementwise(DType::kBF16, "bf16");
    AddWindows();
    AddModels();
    AddLinearAlgebra();
    AddComplex();
    AddF64();
    AddOthers();
  }
  std::vector<Row> Take() && { return std::move(rows_); }

 private:
  template <class F, class... Args>
  void Add(const std::string& op, F f, Args... args) {
    if (!absl::StrContains(op, flags_.only) && !absl::StrContains(family_, flags_.only)) return;
    const auto run = jit(std::move(f));
    rows_.push_back({family_, op, n_,
                     [run, args...] {
                       std::vector<Array> results = flatten(run(args...)).leaves;
                       for (const Array& result : results) result.wait();
                       return results;
                     },
                     [run, args...] {
                       return absl::StrContains(explain(run, args...), "evaluated by the host");
                     }});
  }

  // Sets Row::compared_arrays of the row `op`, which must be the row that was added last. Does
  // nothing if --only excludes that row.
  void SetComparedArrays(const std::string& op,
                         std::function<std::vector<Array>(const std::vector<Array>&)> results) {
    if (!rows_.empty() && rows_.back().op == op) rows_.back().compared_arrays = std::move(results);
  }

  // Adds ops that read or write elements by index. The row "at[].set" gets indices that all differ,
  // since the order of several writes to one element is not defined; the other rows may repeat an
  // index.
  void AddIndexing() {
    family_ = "indexing";
    const int64_t n = n_;
    const bool large = n >= 1'000'000;
    const int64_t vocabulary = large ? 50'000 : 500, width = large ? 256 : 16;
    const int64_t tokens = large ? 8'192 : 64;
    const Array table = Numbers(12, {vocabulary, width}), ids = Integers(13, vocabulary, {tokens});
    const Array half = Numbers(4, {n / 2}), start = scalar(static_cast<int32_t>(n / 4));
    const Array indices = Integers(8, n, {n});
    Add(
        "take of scalars", [](const Array& x, const Array& i) { return take(x, i); }, x_, indices);
    Add(
        "take of rows", [](const Array& m, const Array& i) { return take(m, i, 0); }, m_,
        Integers(9, side_, {side_}));
    Add(
        "take_along_axis", [](const Array& m, const Array& i) { return take_along_axis(m, i, 1); },
        m_, Integers(10, side_, {side_, side_}));
    Add(
        "dynamic_slice",
        [n](const Array& x, const Array& i) { return lax::dynamic_slice(x, {i}, {n / 2}); }, x_,
        start);
    Add(
        "dynamic_update_slice",
        [](const Array& x, const Array& u, const Array& i) {
          return lax::dynamic_update_slice(x, u, {i});
        },
        x_, half, start);
    Add(
        "at[].set", [](const Array& x, const Array& i, const Array& u) { return x.at(i).set(u); },
        x_, distinct_, half);
    Add(
        "at[].add", [](const Array& x, const Array& i, const Array& u) { return x.at(i).add(u); },
        x_, indices, Numbers(2, {n}));
    Add(
        "embedding", [](const Array& t, const Array& i) { return take(t, i, 0); }, table, ids);
    Add(
        "embedding gradient",
        [](const Array& t, const Array& i, const Array& w) {
          return grad([&](const Array& t) { return sum(take(t, i, 0) * w); })(t);
        },
        table, ids, Numbers(14, {tokens, width}));
  }

  // Adds sorts, ops that find the largest elements, and cumulative ops, of one long array and of
  // the rows or columns of a square matrix.
  void AddOrdering() {
    family_ = "ordering";
    Add(
        "sort f32", [](const Array& x) { return sort(x); }, x_);
    Add(
        "sort s32", [](const Array& k) { return sort(k); }, keys_);
    Add(
        "argsort", [](const Array& x) { return argsort(x); }, x_);
    Add(
        "sort of rows", [](const Array& m) { return sort(m); }, m_);
    Add(
        "argsort of rows", [](const Array& m) { return argsort(m); }, m_);
    Add(
        "sort of pairs",
        [](const Array& x, const Array& k) {
          return lax::sort(std::vector<Array>{x, k});
        },
        x_, keys_);
    Add(
        "top_k of 10", [](const Array& x) { return top_k(x, 10); }, x_);
    Add(
        "top_k of 10 of rows", [](const Array& m) { return top_k(m, 10); }, m_);
    Add(
        "cumsum", [](const Array& x) { return cumsum(x); }, x_);
    Add(
        "cumsum of columns", [](const Array& m) { return cumsum(m, 0); }, m_);
    Add(
        "cumsum of rows", [](const Array& m) { return cumsum(m, 1); }, m_);
    Add(
        "cumlogsumexp", [](const Array& x) { return lax::cumlogsumexp(x); }, x_);
    Add(
        "argmax", [](const Array& x) { return argmax(x); }, x_);
  }

  void AddReductions() {
    family_ = "reductions";
    Add(
        "sum", [](const Array& x) { return sum(x); }, x_);
    Add(
        "max", [](const Array& x) { return max(x); }, x_);
    Add(
        "row sums", [](const Array& m) { return sum(m, 1); }, m_);
    Add(
        "column sums", [](const Array& m) { return sum(m, 0); }, m_);
    Add(
        "var", [](const Array& x) { return var(x); }, x_);
    Add(
        "logsumexp", [](const Array& x) { return logsumexp(x); }, x_);
  }

  void AddNorms(DType dtype, const std::string& suffix) {
    family_ = absl::StrCat("norms", suffix);
    const Array m = Numbers(5, {side_, side_}, dtype);
    const Array w = Numbers(6, {side_}, dtype), b = Numbers(7, {side_}, dtype);
    Add(
        "softmax" + suffix, [](const Array& m) { return softmax(m); }, m);
    Add(
        "log_softmax" + suffix, [](const Array& m) { return log_softmax(m); }, m);
    Add(
        "layer norm" + suffix,
        [](const Array& m, const Array& w, const Array& b) {
          const Array centred = m - mean(m, 1, /*keepdims=*/true);
          return centred * rsqrt(var(m, 1, /*keepdims=*/true) + 1e-5) * w + b;
        },
        m, w, b);
    Add(
        "rms norm" + suffix,
        [](const Array& m, const Array& w) {
          return m * rsqrt(mean(m * m, 1, /*keepdims=*/true) + 1e-5) * w;
        },
        m, w);
  }

  void AddElementwise(DType dtype, const std::string& name) {
    family_ = absl::StrCat("elementwise ", name);
    const Array x = Numbers(1, {n_}, dtype), y = Numbers(2, {n_}, dtype);
    const Array z = Numbers(3, {n_}, dtype);
    Add(
        "add " + name, [](const Array& x, const Array& y) { return x + y; }, x, y);
    Add(
        "exp " + name, [](const Array& x) { return exp(x); }, x);
    Add(
        "tanh " + name, [](const Array& x) { return tanh(x); }, x);
    Add(
        "gelu " + name, [](const Array& x) { return gelu(x); }, x);
    Add(
        "tanh(x y + z) y " + name,
        [](const Array& x, const Array& y, const Array& z) { return tanh(x * y + z) * y; }, x, y,
        z);
  }

  // Adds convolutions and other ops on windows, of images that have about n_ numbers.
  void AddWindows() {
    family_ = "windows";
    const bool large = n_ >= 1'000'000;
    const int64_t batch = large ? 8 : 1, side = large ? 44 : 8, c = large ? 64 : 16;
    const auto conv = [](int64_t stride, const char* in, const char* kernel, int64_t groups = 1) {
      return [=](const Array& x, const Array& k) {
        lax::ConvOptions options;
        options.dimension_numbers = {in, kernel, in};
        options.feature_group_count = groups;
        return lax::conv_general_dilated(x, k, {stride, stride}, "SAME", options);
      };
    };
    const Array x = Numbers(16, {batch, side, side, c}), k = Numbers(17, {3, 3, c, c});
    Add("conv 3x3", conv(1, "NHWC", "HWIO"), x, k);
    Add("conv 3x3 of stride 2", conv(2, "NHWC", "HWIO"), x, k);
    Add("conv 1x1", conv(1, "NHWC", "HWIO"), x, Numbers(18, {1, 1, c, c}));
    Add("conv 3x3 of channels", conv(1, "NHWC", "HWIO", c), x, Numbers(19, {3, 3, 1, c}));
    Add("conv 3x3 nchw", conv(1, "NCHW", "OIHW"), Numbers(20, {batch, c, side, side}),
        Numbers(21, {c, c, 3, 3}));
    Add(
        "conv 3x3 gradients",
        [conv](const Array& x, const Array& k) {
          return grad<0, 1>([&](const Array& x, const Array& k) {
            return sum(square(conv(1, "NHWC", "HWIO")(x, k)));
          })(x, k);
        },
        x, k);
    const auto pool = [](const Array& x) {
      return lax::reduce_window(
          x, -std::numeric_limits<double>::infinity(),
          [](const Array& a, const Array& b) { return lax::max(a, b); }, {1, 2, 2, 1}, {1, 2, 2, 1},
          "VALID");
    };
    Add("max pool 2x2", pool, x);
    Add(
        "max pool 2x2 gradient",
        [pool](const Array& x) {
          return grad([&](const Array& x) { return sum(square(pool(x))); })(x);
        },
        x);
    Add(
        "window sums 3x3",
        [](const Array& x) {
          return lax::reduce_window(
              x, 0.0, [](const Array& a, const Array& b) { return lax::add(a, b); }, {1, 3, 3, 1},
              {1, 1, 1, 1}, "SAME");
        },
        x);
  }

  // The parameters of a ResNet-18 (He et al. 2016). The row "resnet-18 step" trains it with a step
  // of stochastic gradient descent on 8 images of 64 x 64 pixels.
  struct ResNet {
    std::vector<Array> params;
    uint32_t salt = 100;

    void AddParam(const ir::Dims& shape, double fan_in) {
      params.push_back(Numbers(salt++, shape) * (1 / std::sqrt(fan_in)));
    }
    void AddConv(int64_t size, int64_t in, int64_t out) {
      AddParam({size, size, in, out}, static_cast<double>(size * size * in));
      params.push_back(ones({out}));
      params.push_back(zeros({out}));
    }
    static constexpr int64_t kWidths[] = {64, 128, 256, 512};
    ResNet() {
      AddConv(7, 3, 64);
      int64_t in = 64;
      for (const int64_t out : kWidths)
        for (int block = 0; block < 2; ++block) {
          AddConv(3, in, out);
          AddConv(3, out, out);
          if (in != out) AddConv(1, in, out);
          in = out;
        }
      AddParam({512, 1000}, 512);
      params.push_back(zeros({1000}));
    }
  };
  // Returns the loss of a ResNet-18 on these images. Takes the parameters in the order in which
  // ResNet's constructor adds them. bench/ops_jax.py has the same model, with normalisation by the
  // batch's own mean and variance.
  static Array ResNetLoss(const std::vector<Array>& params, const Array& images,
                          const Array& labels) {
    auto next_param = params.begin();
    const auto conv = [&](const Array& x, int64_t stride) {
      lax::ConvOptions options;
      options.dimension_numbers = {"NHWC", "HWIO", "NHWC"};
      const Array &kernel = *next_param++, &scale = *next_param++, &bias = *next_param++;
      const Array y = lax::conv_general_dilated(x, kernel, {stride, stride}, "SAME", options);
      const Array centered = y - mean(y, {0, 1, 2});
      return centered * rsqrt(mean(square(centered), {0, 1, 2}) + 1e-5) * scale + bias;
    };
    Array x = relu(conv(images, 2));
    x = lax::reduce_window(
        x, -std::numeric_limits<double>::infinity(),
        [](const Array& a, const Array& b) { return lax::max(a, b); }, {1, 3, 3, 1}, {1, 2, 2, 1},
        "SAME");
    int64_t in = 64;
    for (const int64_t out : ResNet::kWidths)
      for (int block = 0; block < 2; ++block) {
        const int64_t stride = block == 0 && out > 64 ? 2 : 1;
        const Array first = relu(conv(x, stride)), second = conv(first, 1);
        x = relu(second + (in == out ? x : conv(x, stride)));
        in = out;
      }
    const Array &weights = *next_param++, &bias = *next_param++;
    const Array scores = log_softmax(matmul(mean(x, {1, 2}), weights) + bias);
    return -mean(take_along_axis(scores, expand_dims(labels, 1), 1));
  }
  void AddModels() {
    family_ = "models";
    if (n_ < 1'000'000) return;
    Add(
        "resnet-18 step",
        [](const std::vector<Array>& params, const Array& images, const Array& labels) {
          const auto [loss, grads] = value_and_grad(ResNetLoss)(params, images, labels);
          std::vector<Array> results = {loss};
          for (size_t i = 0; i < params.size(); ++i) results.push_back(params[i] - 0.01 * grads[i]);
          return results;
        },
        ResNet().params, Numbers(30, {8, 64, 64, 3}), Integers(31, 1000, {8}));
  }

  // Adds decompositions and solvers. `positive_definite` makes matrices as Cholesky needs
  // them. qr, eigh and svd take more time, and therefore get at most 256 columns. They are compared
  // by the eigenvalues or singular values and by the products of their factors, because the signs
  // of the vectors are not determined.
  void AddLinearAlgebra() {
    family_ = "linear algebra";
    const int64_t small = std::min<int64_t>(side_, 256);
    const auto positive_definite = [](const Array& m) {
      const int64_t n = m.shape().back();
      return matmul(m, swapaxes(m, -1, -2)) / static_cast<double>(n) + 2.0 * eye(n);
    };
    const auto cholesky = [](const Array& m) { return linalg::cholesky(m); };
    const Array p = positive_definite(m_), q = positive_definite(Numbers(22, {small, small}));
    const Array rhs = Numbers(23, {side_, 8}), tall = Numbers(24, {2 * small, small});
    Add("cholesky", cholesky, p);
    Add("cholesky of 8 x 8", cholesky, positive_definite(Numbers(25, {n_ / 64, 8, 8})));
    Add(
        "cholesky gradient",
        [](const Array& m) {
          return grad([](const Array& m) { return sum(square(linalg::cholesky(m))); })(m);
        },
        p);
    Add(
        "triangular_solve",
        [](const Array& a, const Array& b) {
          return lax::linalg::triangular_solve(a, b, {.left_side = true, .lower = true});
        },
        p, rhs);
    Add(
        "solve", [](const Array& a, const Array& b) { return linalg::solve(a, b); }, p, rhs);
    Add(
        "det", [](const Array& a) { return linalg::slogdet(a).second; }, p);
    Add(
        "qr",
        [](const Array& a) {
          const auto [q, r] = linalg::qr(a);
          return std::vector<Array>{q, r};
        },
        tall);
    SetComparedArrays(
        "qr", [](const std::vector<Array>& r) { return std::vector<Array>{matmul(r[0], r[1])}; });
    Add(
        "eigh",
        [](const Array& a) {
          const auto [w, v] = linalg::eigh(a);
          return std::vector<Array>{w, v};
        },
        q);
    SetComparedArrays("eigh", [](const std::vector<Array>& r) {
      return std::vector<Array>{r[0], matmul(r[1] * r[0], swapaxes(r[1], 0, 1))};
    });
    Add(
        "svd",
        [](const Array& a) {
          const linalg::Svd svd = linalg::svd(a, /*full_matrices=*/false);
          return std::vector<Array>{svd.u, svd.s, svd.vh};
        },
        tall);
    SetComparedArrays("svd", [](const std::vector<Array>& r) {
      return std::vector<Array>{r[1], matmul(r[0] * r[1], r[2])};
    });
  }

  // Adds one transform of all n_ numbers, and rows of transforms of a fixed length.
  void AddFourier(const Array& z) {
    family_ = "fourier";
    const auto along_rows = [&](int64_t length) {
      const int64_t rows = std::max<int64_t>(n_ / length, 1);
      return reshape(z[{Slice{0, rows * std::min(length, n_)}}], {rows, std::min(length, n_)});
    };
    const auto transform = [](const Array& x) { return fft::fft(x); };
    Add("fft", transform, z);
    Add("fft of 1024", transform, along_rows(1024));
    Add("fft of 360", transform, along_rows(360));
    Add("fft of 997", transform, along_rows(997));
    Add(
        "rfft of 1024", [](const Array& x) { return fft::rfft(real(x)); }, along_rows(1024));
  }

  void AddComplex() {
    family_ = "complex";
    const auto complex = [](const Array& re, const Array& im) { return lax::complex(re, im); };
    const Array a = complex(Numbers(26, {n_}), Numbers(27, {n_}));
    const Array b = complex(Numbers(28, {n_}), Numbers(29, {n_}));
    Add(
        "x y c64", [](const Array& x, const Array& y) { return x * y; }, a, b);
    Add(
        "abs c64", [](const Array& x) { return abs(x); }, a);
    Add(
        "exp(x) y + x c64", [](const Array& x, const Array& y) { return exp(x) * y + x; }, a, b);
    const Array m = reshape(a[{Slice{0, side_ * side_}}], {side_, side_});
    Add(
        "matmul c64", [](const Array& m) { return matmul(m, m); }, m);
    AddFourier(a);
  }

  void AddF64() {
    family_ = "f64 functions";
    const Array x = Numbers(15, {n_}, DType::kF64);
    Add(
        "sin f64", [](const Array& x) { return sin(x); }, x);
    Add(
        "exp f64", [](const Array& x) { return exp(x); }, x);
    Add(
        "log f64", [](const Array& x) { return log(x + 3); }, x);
  }

  // Adds ops that take a function of the user's.
  void AddOthers() {
    family_ = "with functions";
    Add(
        "sort_by",
        [](const Array& x) {
          return lax::sort_by(x, [](const Array& a, const Array& b) { return a > b; });
        },
        x_);
    Add(
        "reduce",
        [](const Array& x) {
          return lax::reduce(
              x, -10.0F, [](const Array& a, const Array& b) { return where(a < b, b, a); }, {0});
        },
        x_);
    Add(
        "at[].apply",
        [](const Array& x, const Array& i) {
          return x.at(i).apply([](const Array& v) { return lax::square(v); });
        },
        x_, distinct_);
  }

  const Flags& flags_;
  std::vector<Row> rows_;
  std::string family_;
  int64_t n_ = 0, side_ = 0;
  Array x_, m_, keys_, distinct_;
};

// ---- Measuring. ---------------------------------------------------------------------------------

std::vector<double> NumbersOf(const std::vector<Array>& results) {
  std::vector<double> all;
  for (const Array& result : results) {
    if (result.dtype() == DType::kC64 || result.dtype() == DType::kC128) {
      for (const std::complex<double> z : result.get<std::complex<double>>())
        all.insert(all.end(), {z.real(), z.imag()});
      continue;
    }
    const std::vector<double> numbers = result.get<double>();
    all.insert(all.end(), numbers.begin(), numbers.end());
  }
  return all;
}

// Returns how many calls of the row a round makes. Requires: the row's program is compiled already,
// so that one more call shows how long a call takes.
int CallsPerRound(const Row& row, const Flags& flags) {
  if (flags.smoke) return 1;
  const absl::Time begin = absl::Now();
  row.call();
  const double fit = absl::FDivDuration(kTimeOfRound, absl::Now() - begin);
  return static_cast<int>(std::clamp(fit, 1.0, static_cast<double>(kCallsMax)));
}

// Prints the geometric mean of the ratios of the rows whose family is `*family`, or of all rows if
// `family` is null.
void PrintMean(const std::string& name, const std::vector<Row>& rows, const std::string* family) {
  double sum = 0;
  int count = 0;
  for (const Row& row : rows) {
    if (family != nullptr && row.family != *family) continue;
    sum += std::log(row.ours.Quantile(0) / row.jax.Quantile(0));
    ++count;
  }
  std::printf("%-22s geometric mean %.2f\n", name.c_str(), std::exp(sum / count));
}

void Print(const std::vector<Row>& rows) {
  std::printf("%-22s %8s %10s %10s %10s %10s %6s %6s\n", "op", "size", "us", "median", "JAX: us",
              "median", "ratio", "median");
  std::vector<std::string> families;
  for (const Row& row : rows) {
    const double us = row.ours.Quantile(0), median = row.ours.Quantile(0.5);
    std::printf("%-22s %8d %10.1f %10.1f", row.op.c_str(), static_cast<int>(row.size), us, median);
    if (row.jax.size() > 0) {
      std::printf(" %10.1f %10.1f %6.2f %6.2f", row.jax.Quantile(0), row.jax.Quantile(0.5),
                  us / row.jax.Quantile(0), median / row.jax.Quantile(0.5));
      if (std::find(families.begin(), families.end(), row.family) == families.end())
        families.push_back(row.family);
    }
    std::printf("%s\n", row.on_host() ? "  host" : "");
  }
  for (const std::string& family : families) PrintMean(family, rows, &family);
  if (!families.empty()) PrintMean("in all", rows, nullptr);
}

// Makes the rows of all sizes, checks each row's results against JAX's if --jax is given, and
// measures the rows in turns. The check comes before the measurement, so that a wrong result is
// found without waiting for the times.
absl::Status Run(const Flags& flags) {
  Session::SetDefault(Session::Embedded({.devices = 1}));
  Table table(flags);
  for (const int64_t n : flags.sizes) table.AddOps(n);
  std::vector<Row> rows = std::move(table).Take();
  std::optional<JaxScript> jax;
  if (!flags.jax.empty()) {
    std::vector<std::string> args = {absl::StrJoin(flags.sizes, ",")};
    for (const Row& row : rows) args.push_back(row.name());
    TESSERA_ASSIGN_OR_RETURN(JaxScript started, JaxScript::Start(flags.jax, "ops_jax.py", args));
    jax.emplace(std::move(started));
  }
  std::vector<int> calls;
  for (const Row& row : rows) {
    std::vector<Array> results = row.call();
    if (row.compared_arrays) results = row.compared_arrays(results);
    if (jax) TESSERA_RETURN_IF_ERROR(jax->Check(row.name(), NumbersOf(results)));
    calls.push_back(CallsPerRound(row, flags));
  }
  for (int round = 0; round < flags.rounds; ++round)
    for (size_t i = 0; i < rows.size(); ++i)
      TESSERA_RETURN_IF_ERROR(MeasureInTurn(
          rows[i].name(), calls[i], [&] { rows[i].call(); }, jax ? &*jax : nullptr, &rows[i].ours,
          &rows[i].jax));
  Print(rows);
  return absl::OkStatus();
}

// Reads the flags and runs the benchmark. Returns 2 if a flag is wrong and 1 if the benchmark
// fails. It switches the detection of deadlocks off first, because that would slow down every lock
// in a build with assertions.
int Main(int argc, char** argv) {
  DisableDeadlockDetection();
  Flags flags;
  int64_t size = 0;  // 0 if the flag is not given
  FlagParser parser("bench-ops", "Measures ops, one by one.");
  parser.AddText("--only", "WORD", &flags.only, "measures only the rows with this word");
  parser.AddNumber("--size", &size, "measures only arrays of this many elements");
  parser.AddNumber("--rounds", &flags.rounds, "number of rounds");
  parser.AddAction(
      "--smoke",
      [&flags] {
        flags.smoke = true;
        flags.sizes = {1024};
        flags.rounds = 1;
      },
      "runs short, as a test");
  parser.AddText("--jax", "PYTHON", &flags.jax, "compares with JAX under this Python");
  if (const std::optional<int> status = parser.Parse(argc, argv)) return *status;
  if (size > 0) flags.sizes = {size};
  const absl::Status status = Run(flags);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::Main(argc, argv); }
