// Plans and runs matmuls by cuBLASLt, for the plugin's table. A plan describes the matrices to the
// library and chooses an algorithm once; each launch of a program then only runs it.
#include "worker/cuda/matmul.h"

#include <algorithm>
#include <cinttypes>
#include <utility>

#include "worker/cuda/error.h"
#include "worker/cuda/library.h"
#include "worker/cuda/matmul_trials.h"

namespace tessera::worker::cuda {

CublasLt::~CublasLt() { api.cublasLtDestroy(handle); }

namespace {

// The scratch memory that an algorithm may need: NVIDIA's recommendation for Hopper. A plan asks
// for no more than its algorithm needs, which is often 0.
constexpr uint64_t kScratchBytesMax = 32 << 20;
constexpr uint32_t kAlignment = 16;
constexpr uint32_t kScratchAlignment = 256;
constexpr int kMaxAlgorithms = 8;

constexpr char kOverride[] = "TESSERA_CUDA_CUBLASLT";

// Opens the library with that name, and starts it for the thread's current context. If that is
// impossible, returns null and appends the reason to `why`.
std::shared_ptr<const CublasLt> StartCublasLt(const char* name, std::string* why) {
  if (!why->empty()) *why += "; ";
  const Library library = Library::Open(kOverride, {name});
  if (!library.ok()) {
    *why += library.error();
    return nullptr;
  }
  CublasLtApi api;
  const char* missing = nullptr;
#define TESSERA_X(result, function, params)                                \
  api.function = library.Find<decltype(CublasLtApi::function)>(#function); \
  if (api.function == nullptr && missing == nullptr) missing = #function;
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_X)
#undef TESSERA_X
  if (missing != nullptr) {
    *why += library.name() + " has no function " + missing;
    return nullptr;
  }
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = api.cublasLtCreate(&handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    *why += library.name() + " does not start: " + api.cublasLtGetStatusString(status);
    return nullptr;
  }
  return std::make_shared<const CublasLt>(api, handle);
}

// Opens the library for the context, which is the thread's current one. Takes the first version
// that starts: 13 needs a driver of CUDA 13, and 12 works with older drivers.
int OpenCublasLt(tessera_context* context, std::shared_ptr<const CublasLt>* opened) {
  std::string why;
  *opened = std::static_pointer_cast<const CublasLt>(context->MatmulLibrary([&why] {
    std::shared_ptr<const CublasLt> library = StartCublasLt("libcublasLt.so.13", &why);
    if (library != nullptr || Library::IsOverridden(kOverride)) return library;
    return StartCublasLt("libcublasLt.so.12", &why);
  }));
  if (*opened != nullptr) return TESSERA_OK;
  return Fail(TESSERA_UNSUPPORTED,
              "no cuBLASLt, so matrix products are slow kernels: %s; install libcublas of CUDA 12 "
              "or 13, or put it on the library path",
              why.c_str());
}

struct Arithmetic {
  tessera_dtype in;
  tessera_dtype out;
  cudaDataType in_type;
  cudaDataType out_type;
  cublasComputeType_t compute;
};
constexpr Arithmetic kArithmetic[] = {
    {TESSERA_F32, TESSERA_F32, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {TESSERA_F64, TESSERA_F64, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F},
    {TESSERA_BF16, TESSERA_BF16, CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F},
    {TESSERA_BF16, TESSERA_F32, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {TESSERA_F16, TESSERA_F16, CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F},
    {TESSERA_F16, TESSERA_F32, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
};

const Arithmetic* FindArithmetic(tessera_dtype in, tessera_dtype out) {
  for (const Arithmetic& row : kArithmetic) {
    if (row.in == in && row.out == out) return &row;
  }
  return nullptr;
}

int64_t WidthOf(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

// The layout of a matrix: by rows or by columns. Each row or column begins `ld` elements after the
// one before it.
struct Order {
  bool by_rows = false;
  int64_t ld = 0;
};

// Finds the order of a matrix. Rows or columns of one element fit either order, whatever their
// stride.
bool FindOrder(int64_t rows, int64_t cols, const int64_t strides[3], Order* order) {
  const int64_t row_stride = strides[1], col_stride = strides[2];
  if ((col_stride == 1 || cols == 1) && (row_stride >= cols || rows == 1)) {
    *order = {true, rows == 1 ? cols : row_stride};
    return true;
  }
  if ((row_stride == 1 || rows == 1) && (col_stride >= rows || cols == 1)) {
    *order = {false, cols == 1 ? rows : col_stride};
    return true;
  }
  return false;
}

int CheckStrides(const char* name, int64_t rows, int64_t cols, const int64_t strides[3],
                 Order* order) {
  if (strides[0] >= 0 && FindOrder(rows, cols, strides, order)) return TESSERA_OK;
  return Fail(TESSERA_INVALID,
              "matmul_plan: %s is [%" PRId64 ", %" PRId64 "] with strides %" PRId64 ", %" PRId64
              ", %" PRId64
              "; expected one of the last two to be 1, the other no less than the "
              "length it steps over, and the first not negative",
              name, rows, cols, strides[0], strides[1], strides[2]);
}

}  // namespace

std::string DescribeCublasLt(tessera_context* context) {
  std::shared_ptr<const CublasLt> library;
  return OpenCublasLt(context, &library) == TESSERA_OK
             ? "cuBLASLt " + VersionText(library->api.cublasLtGetVersion())
             : ErrorText();
}

}  // namespace tessera::worker::cuda

// NOLINTNEXTLINE(google-build-using-namespace): the types of the C API are in no namespace.
using namespace tessera::worker::cuda;

tessera_matmul::tessera_matmul(std::shared_ptr<const CublasLt> library)
    : library_(std::move(library)),
      desc_(&library_->api),
      left_(&library_->api),
      right_(&library_->api),
      result_(&library_->api) {}

int tessera_matmul::Check(cublasStatus_t status, const char* call) const {
  if (status == CUBLAS_STATUS_SUCCESS) return TESSERA_OK;
  const int code = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH
                       ? TESSERA_UNSUPPORTED
                   : status == CUBLAS_STATUS_ALLOC_FAILED ? TESSERA_OUT_OF_MEMORY
                                                          : TESSERA_INVALID;
  return Fail(code, "%s: %s (status %u)", call, library_->api.cublasLtGetStatusString(status),
              status);
}

// Describes the operands, the result and the arithmetic to the library. Operands may be stored by
// rows or by columns; transposition flags express the difference, so that no operand is copied.
int tessera_matmul::Describe(const tessera_matmul_shape& shape, bool by_tf32) {
  const CublasLtApi& lt = library_->api;
  const Arithmetic& arithmetic = *FindArithmetic(shape.in, shape.out);
  Order a, b, c;
  TESSERA_CUDA_TRY(CheckStrides("a", shape.m, shape.k, shape.a_strides, &a));
  TESSERA_CUDA_TRY(CheckStrides("b", shape.k, shape.n, shape.b_strides, &b));
  TESSERA_CUDA_TRY(CheckStrides("c", shape.m, shape.n, shape.c_strides, &c));

  // cuBLASLt's matrices are column-major, and a row-major matrix is its own transpose in
  // column-major order. So a row-major C is computed as C^T = B^T A^T, with the operands swapped.
  operands_swapped_ = c.by_rows;
  is_f64_ = arithmetic.compute == CUBLAS_COMPUTE_64F;
  element_bytes_ = WidthOf(arithmetic.out_type);
  struct Operand {
    int64_t rows, cols, ld, batch_stride;
    int32_t op;
  };
  const auto operand = [&](int64_t rows, int64_t cols, const Order& order, int64_t batch_stride) {
    const bool as_stored = order.by_rows == operands_swapped_;
    return order.by_rows
               ? Operand{cols, rows, order.ld, batch_stride, as_stored ? CUBLAS_OP_N : CUBLAS_OP_T}
               : Operand{rows, cols, order.ld, batch_stride, as_stored ? CUBLAS_OP_N : CUBLAS_OP_T};
  };
  Operand left = operand(shape.m, shape.k, a, shape.a_strides[0]);
  Operand right = operand(shape.k, shape.n, b, shape.b_strides[0]);
  if (operands_swapped_) std::swap(left, right);
  const Operand result = operand(shape.m, shape.n, c, shape.c_strides[0]);

  TESSERA_CUDA_TRY(
      Check(lt.cublasLtMatmulDescCreate(desc_.out(),
                                        by_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : arithmetic.compute,
                                        is_f64_ ? CUDA_R_64F : CUDA_R_32F),
            "cublasLtMatmulDescCreate"));
  const auto set_op = [&](cublasLtMatmulDescAttributes_t attribute, int32_t op) {
    return Check(lt.cublasLtMatmulDescSetAttribute(desc_.get(), attribute, &op, sizeof op),
                 "cublasLtMatmulDescSetAttribute");
  };
  TESSERA_CUDA_TRY(set_op(CUBLASLT_MATMUL_DESC_TRANSA, left.op));
  TESSERA_CUDA_TRY(set_op(CUBLASLT_MATMUL_DESC_TRANSB, right.op));

  const auto make = [&](MatrixLayout* layout, cudaDataType type, const Operand& matrix) {
    TESSERA_CUDA_TRY(Check(
        lt.cublasLtMatrixLayoutCreate(layout->out(), type, matrix.rows, matrix.cols, matrix.ld),
        "cublasLtMatrixLayoutCreate"));
    if (shape.batch == 1) return static_cast<int>(TESSERA_OK);
    const int32_t count = static_cast<int32_t>(shape.batch);
    TESSERA_CUDA_TRY(
        Check(lt.cublasLtMatrixLayoutSetAttribute(layout->get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                  &count, sizeof count),
              "cublasLtMatrixLayoutSetAttribute"));
    return Check(lt.cublasLtMatrixLayoutSetAttribute(
                     layout->get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                     &matrix.batch_stride, sizeof matrix.batch_stride),
                 "cublasLtMatrixLayoutSetAttribute");
  };
  TESSERA_CUDA_TRY(make(&left_, arithmetic.in_type, left));
  TESSERA_CUDA_TRY(make(&right_, arithmetic.in_type, right));
  return make(&result_, arithmetic.out_type, result);
}

// Asks the library for algorithms and chooses one. The alignments that device_api.h guarantees are
// stated, so that only algorithms which work at any allowed address are offered. With trials the
// fastest is chosen, and otherwise the library's first choice.
int tessera_matmul::ChooseAlgorithm(tessera_context* context) {
  const CublasLtApi& lt = library_->api;
  MatmulPreference preference(&lt);
  TESSERA_CUDA_TRY(
      Check(lt.cublasLtMatmulPreferenceCreate(preference.out()), "cublasLtMatmulPreferenceCreate"));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return Check(
        lt.cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
        "cublasLtMatmulPreferenceSetAttribute");
  };
  TESSERA_CUDA_TRY(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kScratchBytesMax));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    TESSERA_CUDA_TRY(set(attribute, kAlignment));
  }
  cublasLtMatmulHeuristicResult_t results[kMaxAlgorithms] = {};
  int count = 0;
  TESSERA_CUDA_TRY(
      Check(lt.cublasLtMatmulAlgoGetHeuristic(library_->handle, desc_.get(), left_.get(),
                                              right_.get(), result_.get(), result_.get(),
                                              preference.get(), kMaxAlgorithms, results, &count),
            "cublasLtMatmulAlgoGetHeuristic"));
  const auto end = std::remove_if(results, results + count, [](const auto& result) {
    return result.state != CUBLAS_STATUS_SUCCESS;
  });
  if (end == results) {
    return Fail(TESSERA_UNSUPPORTED,
                "matmul_plan: cuBLASLt has no algorithm for [%" PRId64 ", %" PRId64 ", %" PRId64
                "] x [%" PRId64 ", %" PRId64 "]",
                shape_.batch, shape_.m, shape_.k, shape_.k, shape_.n);
  }
  const int num_trials = static_cast<int>(std::min<int64_t>(NumMatmulTrials(), end - results));
  int best = 0;
  if (num_trials > 1) {
    best = FastestTrial(context, shape_, results, num_trials,
                        [this](CUstream stream, const cublasLtMatmulHeuristicResult_t& algorithm,
                               const TrialBuffers& buffers) {
                          return Multiply(stream, algorithm, buffers.a, buffers.b, buffers.c,
                                          buffers.scratch);
                        });
  }
  algorithm_ = results[best];
  return TESSERA_OK;
}

// Makes a plan: checks the shape, describes it and chooses an algorithm. A product that may be
// rounded to TF32 is planned in TF32 first, and in f32 if the library has no algorithm for it.
// Empty products need no algorithm, since Run handles them without the library.
int tessera_matmul::Plan(tessera_context* context, const tessera_matmul_shape& shape,
                         tessera_matmul** matmul, int64_t* scratch_bytes) {
  constexpr int64_t kDimMax = int64_t{1} << 31;
  for (const int64_t dim : {shape.batch, shape.m, shape.n, shape.k}) {
    if (dim >= 0 && dim < kDimMax) continue;
    return Fail(TESSERA_INVALID,
                "matmul_plan: batch, m, n, k are %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                "; expected each from 0 to 2^31 - 1",
                shape.batch, shape.m, shape.n, shape.k);
  }
  if (FindArithmetic(shape.in, shape.out) == nullptr) {
    return Fail(TESSERA_UNSUPPORTED,
                "matmul_plan: products of dtype %d to dtype %d are not supported (supported: f32, "
                "f64, and bf16 and f16 to themselves or to f32); convert the operands",
                shape.in, shape.out);
  }
  TESSERA_CUDA_TRY(context->MakeCurrent());
  std::shared_ptr<const CublasLt> library;
  TESSERA_CUDA_TRY(OpenCublasLt(context, &library));
  const bool empty = shape.batch == 0 || shape.m == 0 || shape.n == 0 || shape.k == 0;
  std::unique_ptr<tessera_matmul> plan;
  const auto plan_by = [&](bool by_tf32) {
    plan.reset(new tessera_matmul(library));
    plan->shape_ = shape;
    TESSERA_CUDA_TRY(plan->Describe(shape, by_tf32));
    return empty ? static_cast<int>(TESSERA_OK) : plan->ChooseAlgorithm(context);
  };
  // If cuBLASLt cannot compute the product in TF32, it is computed in f32.
  const bool allows_tf32 =
      shape.allow_tf32 != 0 && shape.in == TESSERA_F32 && shape.out == TESSERA_F32;
  const bool by_tf32 = allows_tf32 && plan_by(true) == TESSERA_OK;
  if (!by_tf32) TESSERA_CUDA_TRY(plan_by(false));
  *scratch_bytes = static_cast<int64_t>(plan->algorithm_.workspaceSize);
  *matmul = plan.release();
  return TESSERA_OK;
}

int tessera_matmul::FillWithZeros(tessera_stream* stream, uint64_t c) const {
  const bool by_rows = operands_swapped_;
  const int64_t lines = by_rows ? shape_.m : shape_.n;
  const int64_t line_bytes = (by_rows ? shape_.n : shape_.m) * element_bytes_;
  const int64_t stride = by_rows ? shape_.c_strides[1] : shape_.c_strides[2];
  if (lines == 0 || line_bytes == 0) return TESSERA_OK;
  const int64_t pitch = lines == 1 ? line_bytes : stride * element_bytes_;
  for (int64_t i = 0; i < shape_.batch; ++i) {
    const uint64_t to = c + i * shape_.c_strides[0] * element_bytes_;
    TESSERA_CUDA_TRY(stream->context()->Check(
        Cu().cuMemsetD2D8Async(to, pitch, 0, line_bytes, lines, stream->get()),
        "cuMemsetD2D8Async"));
  }
  return TESSERA_OK;
}

int tessera_matmul::Multiply(CUstream stream, const cublasLtMatmulHeuristicResult_t& algorithm,
                             uint64_t a, uint64_t b, uint64_t c, uint64_t scratch) const {
  const float one_f32 = 1, zero_f32 = 0;
  const double one_f64 = 1, zero_f64 = 0;
  const void* one = is_f64_ ? static_cast<const void*>(&one_f64) : &one_f32;
  const void* zero = is_f64_ ? static_cast<const void*>(&zero_f64) : &zero_f32;
  if (operands_swapped_) std::swap(a, b);
  void* const result = reinterpret_cast<void*>(c);
  return Check(library_->api.cublasLtMatmul(
                   library_->handle, desc_.get(), one, reinterpret_cast<const void*>(a),
                   left_.get(), reinterpret_cast<const void*>(b), right_.get(), zero, result,
                   result_.get(), result, result_.get(), &algorithm.algo,
                   reinterpret_cast<void*>(scratch), algorithm.workspaceSize, stream),
               "cublasLtMatmul");
}

int tessera_matmul::Run(tessera_stream* stream, uint64_t a, uint64_t b, uint64_t c,
                        uint64_t scratch) {
  tessera_context* context = stream->context();
  TESSERA_CUDA_TRY(context->MakeCurrent());
  if (shape_.batch == 0 || shape_.m == 0 || shape_.n == 0) return TESSERA_OK;
  if (shape_.k == 0) return FillWithZeros(stream, c);
  if ((a | b | c) % kAlignment != 0) {
    return Fail(TESSERA_INVALID,
                "matmul_run: a, b, c are at %#" PRIx64 ", %#" PRIx64 ", %#" PRIx64
                "; expected multiples of %u",
                a, b, c, kAlignment);
  }
  if (algorithm_.workspaceSize > 0 && scratch % kScratchAlignment != 0) {
    return Fail(TESSERA_INVALID,
                "matmul_run: scratch is at %#" PRIx64 "; expected a multiple of %u", scratch,
                kScratchAlignment);
  }
  const int code = Multiply(stream->get(), algorithm_, a, b, c, scratch);
  if (code == TESSERA_OK) return TESSERA_OK;
  // cuBLASLt hides an error of the device, but the stream still reports it.
  const CUresult state = Cu().cuStreamQuery(stream->get());
  return IsSticky(state) ? context->Check(state, "cublasLtMatmul") : code;
}
