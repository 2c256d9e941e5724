// Implements the functions of cuBLASLt that the plugin calls, on the streams of the fake driver.
// The products are plain loops with sums in f32 or f64.
//
// Wrong use is a violation: shapes that do not agree, leading dimensions that are too small,
// scratch memory that was not given, and memory that is too small, not the device's, or less
// aligned than was promised.
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/fakes/extension.h"
#include "worker/cuda/cublaslt_api.h"

namespace tessera::worker::cuda {

struct cublasLtContext {
  int device = 0;
};

struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type = CUDA_R_32F;
  uint64_t rows = 0, cols = 0;
  int64_t ld = 0;
  int32_t batch_count = 1;
  int64_t batch_stride = 0;
};

struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType scale = CUDA_R_32F;
  int32_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
};

struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t scratch_bytes_max = 0;
  std::map<cublasLtMatmulPreferenceAttributes_t, uint32_t> alignment;
};

}  // namespace tessera::worker::cuda

namespace tessera::fakes {
namespace {

// NOLINTNEXTLINE(google-build-using-namespace): the fakes speak the library's names throughout.
using namespace worker::cuda;

// The contents of a cublasLtMatmulAlgo_t. cublasLtMatmul recognises an algorithm by them.
struct Algorithm {
  uint64_t magic;
  uint64_t index;
  uint64_t scratch_bytes;
  uint64_t alignment;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));
constexpr uint64_t kMagic = 0x7e55e4a;
constexpr int kAlgorithms = 3;
constexpr uint64_t kScratchBytes[kAlgorithms] = {4096, 0, 256};
constexpr std::chrono::milliseconds kSlow(20);

size_t WidthOf(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

float FromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
uint32_t ToBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

float FromF16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 31, mantissa = half & 1023;
  if (exponent == 31) return FromBits(sign | 0x7f800000 | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return FromBits(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// These conversions round to nearest, with ties to even.
uint16_t ToBF16(float value) {
  const uint32_t bits = ToBits(value);
  if (value != value) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
uint16_t ToF16(float value) {
  const uint32_t bits = ToBits(value), sign = (bits >> 16) & 0x8000;
  const float magnitude = FromBits(bits & 0x7fffffff);
  if (value != value) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x1p-14f) {
    // Adding a number of the right size rounds to the last place of a subnormal.
    return static_cast<uint16_t>(sign | (ToBits(magnitude + 0x1p-1f) - ToBits(0x1p-1f)));
  }
  const uint32_t scaled = ToBits(magnitude) - (112u << 23);
  return static_cast<uint16_t>(sign | ((scaled + 0xfff + ((scaled >> 13) & 1)) >> 13));
}

double Read(cudaDataType type, const std::byte* from) {
  uint16_t half = 0;
  float single = 0;
  double value = 0;
  switch (type) {
    case CUDA_R_64F:
      memcpy(&value, from, sizeof value);
      return value;
    case CUDA_R_32F:
      memcpy(&single, from, sizeof single);
      return single;
    case CUDA_R_16BF:
      memcpy(&half, from, sizeof half);
      return FromBits(static_cast<uint32_t>(half) << 16);
    case CUDA_R_16F:
      memcpy(&half, from, sizeof half);
      return FromF16(half);
  }
  return value;
}

void Write(cudaDataType type, double value, std::byte* to) {
  const auto single = static_cast<float>(value);
  const uint16_t half = type == CUDA_R_16F ? ToF16(single) : ToBF16(single);
  switch (type) {
    case CUDA_R_64F:
      memcpy(to, &value, sizeof value);
      return;
    case CUDA_R_32F:
      memcpy(to, &single, sizeof single);
      return;
    default:
      memcpy(to, &half, sizeof half);
      return;
  }
}

// All values that the loops need. The descriptors may be destroyed before the loops run.
struct Problem {
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t a, b, d;
  uint64_t m, n, k;
};

const std::byte* ElementAddress(const cublasLtMatrixLayoutOpaque_t& layout, int32_t op,
                                const std::byte* base, int64_t batch, uint64_t row, uint64_t col) {
  if (op == CUBLAS_OP_T) std::swap(row, col);
  const int64_t offset = batch * layout.batch_stride + static_cast<int64_t>(col) * layout.ld +
                         static_cast<int64_t>(row);
  return base + offset * static_cast<int64_t>(WidthOf(layout.type));
}

// Rounds to 10 bits of mantissa, to nearest with ties away from zero, like the conversion of tensor
// cores.
float RoundedToTf32(float value) {
  const uint32_t bits = ToBits(value);
  constexpr uint32_t kExponent = 0x7f800000, kDropped = (1 << 13) - 1;
  if ((bits & kExponent) == kExponent) return value;
  return FromBits((bits + (kDropped + 1) / 2) & ~kDropped);
}

double Dot(const Problem& p, const std::byte* a, const std::byte* b, int64_t batch, uint64_t i,
           uint64_t j) {
  double wide = 0;
  float narrow = 0;
  const bool rounds =
      p.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && Get(Knob::cublaslt_rounds) != 0;
  for (uint64_t l = 0; l < p.k; ++l) {
    const double x = Read(p.a.type, ElementAddress(p.a, p.desc.op_a, a, batch, i, l));
    const double y = Read(p.b.type, ElementAddress(p.b, p.desc.op_b, b, batch, l, j));
    wide += x * y;
    const auto single_x = static_cast<float>(x), single_y = static_cast<float>(y);
    narrow += rounds ? RoundedToTf32(single_x) * RoundedToTf32(single_y) : single_x * single_y;
  }
  return p.desc.compute == CUBLAS_COMPUTE_64F ? wide : narrow;
}

void Multiply(const Problem& p, const std::byte* a, const std::byte* b, std::byte* d) {
  for (int64_t batch = 0; batch < p.d.batch_count; ++batch) {
    for (uint64_t j = 0; j < p.n; ++j) {
      for (uint64_t i = 0; i < p.m; ++i) {
        auto* const to = const_cast<std::byte*>(ElementAddress(p.d, CUBLAS_OP_N, d, batch, i, j));
        Write(p.d.type, Dot(p, a, b, batch, i, j), to);
      }
    }
  }
}

// Returns the bytes from the first element of the layout to the last.
size_t BytesOf(const cublasLtMatrixLayoutOpaque_t& layout) {
  const int64_t last = (layout.batch_count - 1) * layout.batch_stride +
                       (static_cast<int64_t>(layout.cols) - 1) * layout.ld +
                       static_cast<int64_t>(layout.rows) - 1;
  return static_cast<size_t>(last + 1) * WidthOf(layout.type);
}

bool FindOperand(const char* what, const void* address, size_t bytes, uint64_t alignment,
                 int device, Place* place) {
  const auto number = reinterpret_cast<uint64_t>(address);
  *place = FindDevice(device, number, bytes);
  if (place->data != nullptr && number % alignment == 0) return true;
  ReportViolation("cublasLtMatmul: %s: %zu bytes at %p, to be aligned to %" PRIu64
                  ", are not inside one live allocation of the device or not aligned",
                  what, bytes, address, alignment);
  return false;
}

bool MakeProblem(const cublasLtMatmulDescOpaque_t& desc, const cublasLtMatrixLayoutOpaque_t& a,
                 const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& d,
                 Problem* problem) {
  const bool ta = desc.op_a == CUBLAS_OP_T, tb = desc.op_b == CUBLAS_OP_T;
  *problem = {desc, a, b, d, d.rows, d.cols, ta ? a.rows : a.cols};
  const bool agree = (ta ? a.cols : a.rows) == d.rows && (tb ? b.rows : b.cols) == d.cols &&
                     (tb ? b.cols : b.rows) == problem->k && a.type == b.type &&
                     a.batch_count == d.batch_count && b.batch_count == d.batch_count;
  const bool by_f64 = desc.compute == CUBLAS_COMPUTE_64F;
  const bool computes = by_f64 == (a.type == CUDA_R_64F) && by_f64 == (d.type == CUDA_R_64F) &&
                        by_f64 == (desc.scale == CUDA_R_64F);
  if (agree && computes) return true;
  ReportViolation("cuBLASLt: operands, result and computation do not agree");
  return false;
}

}  // namespace
}  // namespace tessera::fakes

using namespace tessera::fakes;         // NOLINT(google-build-using-namespace): C names are global.
using namespace tessera::worker::cuda;  // NOLINT(google-build-using-namespace): as above.

extern "C" {

// Declares every function with the type that the plugin uses.
#define TESSERA_X(result, name, params) TESSERA_FAKE_EXPORT result name params;
TESSERA_CUBLASLT_FUNCTIONS(TESSERA_X)
#undef TESSERA_X

size_t cublasLtGetVersion() { return 130100; }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    default:
      return "some other status";
  }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (CurrentDevice() < 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext{CurrentDevice()};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  if (ld < static_cast<int64_t>(rows)) {
    ReportViolation("cublasLtMatrixLayoutCreate: %" PRIu64
                    " rows with a leading dimension of %" PRId64,
                    rows, ld);
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *layout = new cublasLtMatrixLayoutOpaque_t{type, rows, cols, ld};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof layout->batch_count) {
    memcpy(&layout->batch_count, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET &&
      bytes == sizeof layout->batch_stride) {
    memcpy(&layout->batch_stride, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType scale) {
  *desc = new cublasLtMatmulDescOpaque_t{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  if (bytes != sizeof(int32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(attribute == CUBLASLT_MATMUL_DESC_TRANSA ? &desc->op_a : &desc->op_b, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    if (bytes != sizeof preference->scratch_bytes_max) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&preference->scratch_bytes_max, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (bytes != sizeof(uint32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(&preference->alignment[attribute], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// Returns the algorithms that fit into the scratch memory. There are several, with different needs,
// so that the plugin's choice among them can be tested. The knobs can take all algorithms away, or
// those for TF32.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
    int num_requested, cublasLtMatmulHeuristicResult_t* results, int* num_results) {
  *num_results = 0;
  Problem problem;
  if (c != d || !MakeProblem(*desc, *a, *b, *d, &problem)) return CUBLAS_STATUS_INVALID_VALUE;
  const bool by_tf32 = desc->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if (Get(Knob::cublaslt_none) != 0 || (by_tf32 && Get(Knob::cublaslt_no_tf32) != 0))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // The library assumes this alignment unless less is promised.
  uint64_t alignment = 256;
  for (const auto& [attribute, value] : preference->alignment) {
    alignment = std::min<uint64_t>(alignment, value);
  }
  for (int i = 0; i < kAlgorithms && *num_results < num_requested; ++i) {
    cublasLtMatmulHeuristicResult_t& result = results[*num_results];
    result = {};
    if (kScratchBytes[i] > preference->scratch_bytes_max) continue;
    const Algorithm algorithm = {kMagic, static_cast<uint64_t>(i), kScratchBytes[i], alignment};
    memcpy(&result.algo, &algorithm, sizeof algorithm);
    result.workspaceSize = kScratchBytes[i];
    result.state = CUBLAS_STATUS_SUCCESS;
    ++*num_results;
  }
  return CUBLAS_STATUS_SUCCESS;
}

// Checks the operands and enqueues the product. Only products with factors 1 and 0 and a result in
// place of c are accepted, because the plugin uses no others. The problem is copied, since the
// caller may destroy the descriptors before the work runs.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, CUstream stream) {
  Problem problem;
  Algorithm algorithm;
  memcpy(&algorithm, algo, sizeof algorithm);
  const cudaDataType scale = desc->scale;
  const double alpha_value = Read(scale, static_cast<const std::byte*>(alpha));
  const double beta_value = Read(scale, static_cast<const std::byte*>(beta));
  if (algorithm.magic != kMagic || c != d || c_layout != d_layout || alpha_value != 1 ||
      beta_value != 0) {
    ReportViolation(
        "cublasLtMatmul: an algorithm, factors or operands that the plugin does not use");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!MakeProblem(*desc, *a_layout, *b_layout, *d_layout, &problem)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  Place a_place, b_place, d_place, scratch;
  const uint64_t alignment = algorithm.alignment;
  if (!FindOperand("a", a, BytesOf(problem.a), alignment, handle->device, &a_place) ||
      !FindOperand("b", b, BytesOf(problem.b), alignment, handle->device, &b_place) ||
      !FindOperand("d", d, BytesOf(problem.d), alignment, handle->device, &d_place)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (algorithm.scratch_bytes > 0) {
    if (workspace_bytes < algorithm.scratch_bytes ||
        !FindOperand("scratch", workspace, algorithm.scratch_bytes, 256, handle->device,
                     &scratch)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  Set(Knob::cublaslt_compute, desc->compute);
  const bool slow = Get(Knob::cublaslt_slow_algorithm) == static_cast<int64_t>(algorithm.index);
  std::vector<Place> holds = {a_place, b_place, d_place, scratch};
  const CUresult result =
      EnqueueOn(stream, "cublasLtMatmul", std::move(holds),
                [problem, from_a = a_place.data, from_b = b_place.data, to = d_place.data,
                 scratch = scratch.data, bytes = algorithm.scratch_bytes, slow] {
                  // Overwrites the scratch memory, so that anything kept there is lost.
                  if (scratch != nullptr) memset(scratch, 0xcc, bytes);
                  if (slow) Await(kSlow, [] { return false; });
                  Multiply(problem, from_a, from_b, to);
                  return CUDA_SUCCESS;
                });
  return result == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
