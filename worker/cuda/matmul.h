// Matmuls by cuBLASLt, which the first plan opens.
//
// TESSERA_CUDA_CUBLASLT names another library than libcublasLt.so.13 or .12, for tests.
//
// Matmuls of f32 with allow_tf32 round their operands to TF32, if cuBLASLt has an algorithm for
// that. If TESSERA_CUDA_MATMUL_TRIALS=n is set, planning a matmul times the n algorithms that
// cuBLASLt ranks first and keeps the fastest. Otherwise the algorithm that it ranks first is taken.
//
// The dtypes are f32, f64, and bf16 and f16 with sums in f32, to their own dtype or to f32.
// Addresses are aligned to 16 bytes, and scratch memory to 256.
#pragma once
#include <memory>
#include <string>

#include "worker/cuda/cublaslt_api.h"
#include "worker/cuda/stream.h"
#include "worker/device/device_api.h"

namespace tessera::worker::cuda {

// Opens cuBLASLt. Returns "cuBLASLt 13.1.0" for example or, if there is none, why and what it
// means. Requires: the context is the thread's current one.
std::string DescribeCublasLt(tessera_context* context);

// Owns a descriptor of cuBLASLt.
template <class T, cublasStatus_t (*CublasLtApi::*kDestroy)(T)>
class CublasLtHandle {
 public:
  explicit CublasLtHandle(const CublasLtApi* api) : api_(api) {}
  CublasLtHandle(const CublasLtHandle&) = delete;
  CublasLtHandle& operator=(const CublasLtHandle&) = delete;
  ~CublasLtHandle() {
    if (value_ != nullptr) (api_->*kDestroy)(value_);
  }
  T get() const { return value_; }
  T* out() { return &value_; }

 private:
  const CublasLtApi* const api_;
  T value_ = nullptr;
};
using MatrixLayout =
    CublasLtHandle<cublasLtMatrixLayout_t, &CublasLtApi::cublasLtMatrixLayoutDestroy>;
using MatmulDesc = CublasLtHandle<cublasLtMatmulDesc_t, &CublasLtApi::cublasLtMatmulDescDestroy>;
using MatmulPreference =
    CublasLtHandle<cublasLtMatmulPreference_t, &CublasLtApi::cublasLtMatmulPreferenceDestroy>;

// The library, started for one context. All plans share the library.
struct CublasLt {
  CublasLt(const CublasLtApi& functions, cublasLtHandle_t started)
      : api(functions), handle(started) {}
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  ~CublasLt();

  const CublasLtApi api;
  const cublasLtHandle_t handle;
};

}  // namespace tessera::worker::cuda

struct tessera_matmul {
 public:
  static int Plan(tessera_context* context, const tessera_matmul_shape& shape,
                  tessera_matmul** matmul, int64_t* scratch_bytes);
  int Run(tessera_stream* stream, uint64_t a, uint64_t b, uint64_t c, uint64_t scratch);

 private:
  explicit tessera_matmul(std::shared_ptr<const tessera::worker::cuda::CublasLt> library);
  // Describes the matmul to the library. If C is row-major, left_ describes B and right_ describes
  // A; otherwise left_ describes A.
  int Describe(const tessera_matmul_shape& shape, bool by_tf32);
  int ChooseAlgorithm(tessera_context* context);
  int FillWithZeros(tessera_stream* stream, uint64_t c) const;
  int Multiply(tessera::worker::cuda::CUstream stream,
               const tessera::worker::cuda::cublasLtMatmulHeuristicResult_t& algorithm, uint64_t a,
               uint64_t b, uint64_t c, uint64_t scratch) const;
  int Check(tessera::worker::cuda::cublasStatus_t status, const char* call) const;

  const std::shared_ptr<const tessera::worker::cuda::CublasLt> library_;
  tessera_matmul_shape shape_ = {};
  int64_t element_bytes_ = 0;  // width of an element of C
  bool operands_swapped_ = false;
  bool is_f64_ = false;
  tessera::worker::cuda::MatmulDesc desc_;
  tessera::worker::cuda::MatrixLayout left_, right_, result_;
  tessera::worker::cuda::cublasLtMatmulHeuristicResult_t algorithm_ = {};
};
