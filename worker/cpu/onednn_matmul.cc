// Matmuls by oneDNN. program_run.cc calls Run for each part of a product that one thread computes,
// and host_speed.cc measures it. Compiled primitives are cached, because each launch of a program
// needs the same ones.
#include "worker/cpu/onednn_matmul.h"

#include <dlfcn.h>

#include <algorithm>
#include <dnnl.hpp>
#include <list>
#include <map>
#include <optional>
#include <unordered_map>

#include "absl/synchronization/mutex.h"

namespace tessera::worker {
namespace {

// Makes oneDNN run on the calling thread alone. oneDNN uses OpenMP, which keeps the number of
// threads per calling thread. The function is looked up at run time, because oneDNN may be built
// with any OpenMP runtime.
void UseOneThread() {
  thread_local const bool done = [] {
    using SetNumThreads = void (*)(int);
    if (auto set = reinterpret_cast<SetNumThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) {
      set(1);
    }
    return true;
  }();
  static_cast<void>(done);
}

std::optional<dnnl::memory::data_type> DataType(ir::DType dtype) {
  if (dtype == ir::DType::kF32) return dnnl::memory::data_type::f32;
  if (dtype == ir::DType::kBF16) return dnnl::memory::data_type::bf16;
  return std::nullopt;
}

dnnl::memory::desc MemoryDesc(int64_t batch, int64_t rows, int64_t columns, const int64_t* strides,
                              dnnl::memory::data_type type) {
  return dnnl::memory::desc({batch, rows, columns}, type, {strides[0], strides[1], strides[2]});
}

// Describes c = a b, for oneDNN 2 (Debian 12) or oneDNN 3 (Debian 13).
dnnl::matmul::primitive_desc MatmulDesc(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                        const dnnl::memory::desc& b, const dnnl::memory::desc& c,
                                        const dnnl::primitive_attr& attr) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c, attr};
#else
  return {dnnl::matmul::desc(a, b, c), attr, engine};
#endif
}

// A compiled product. Many threads may execute it at once, because each brings its own scratchpad.
struct Primitive {
  dnnl::memory::desc a, b, c, scratchpad;
  dnnl::matmul matmul;
};

}  // namespace

struct OneDnnMatmul::Cache {
  static constexpr size_t kPrimitivesMax = 256;
  using Entry = std::pair<MatmulShape, std::shared_ptr<const Primitive>>;

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  absl::Mutex mu;
  // The most recently used entry is first. A null primitive means that oneDNN does not support the
  // shape.
  std::list<Entry> entries ABSL_GUARDED_BY(mu);
  std::map<MatmulShape, std::list<Entry>::iterator> by_shape ABSL_GUARDED_BY(mu);

  std::shared_ptr<const Primitive> FindOrMake(const MatmulShape& shape);
  std::shared_ptr<const Primitive> Make(const MatmulShape& shape) const;
};

std::shared_ptr<const Primitive> OneDnnMatmul::Cache::Make(const MatmulShape& s) const {
  const auto in = DataType(s.in), out = DataType(s.out);
  if (!in || !out) return nullptr;
  try {
    const int64_t c_strides[3] = {s.m * s.n, s.n, 1};
    auto primitive = std::make_shared<Primitive>();
    primitive->a = MemoryDesc(s.batch, s.m, s.k, s.a_strides, *in);
    primitive->b = MemoryDesc(s.batch, s.k, s.n, s.b_strides, *in);
    primitive->c = MemoryDesc(s.batch, s.m, s.n, c_strides, *out);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::primitive_desc primitive_desc =
        MatmulDesc(engine, primitive->a, primitive->b, primitive->c, attr);
    primitive->scratchpad = primitive_desc.scratchpad_desc();
    primitive->matmul = dnnl::matmul(primitive_desc);
    return primitive;
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

std::shared_ptr<const Primitive> OneDnnMatmul::Cache::FindOrMake(const MatmulShape& shape) {
  {
    absl::MutexLock lock(&mu);
    if (const auto it = by_shape.find(shape); it != by_shape.end()) {
      entries.splice(entries.begin(), entries, it->second);
      return it->second->second;
    }
  }
  std::shared_ptr<const Primitive> primitive = Make(shape);
  absl::MutexLock lock(&mu);
  if (by_shape.count(shape) > 0) return primitive;
  entries.emplace_front(shape, primitive);
  by_shape.emplace(shape, entries.begin());
  if (entries.size() > kPrimitivesMax) {
    by_shape.erase(entries.back().first);
    entries.pop_back();
  }
  return primitive;
}

OneDnnMatmul::OneDnnMatmul() : cache_(std::make_unique<Cache>()) {}
OneDnnMatmul::~OneDnnMatmul() = default;

bool OneDnnMatmul::Run(const MatmulShape& shape, const void* a, const void* b, void* c) {
  UseOneThread();
  const std::shared_ptr<const Primitive> primitive = cache_->FindOrMake(shape);
  if (primitive == nullptr) return false;
  try {
    dnnl::stream stream(cache_->engine);
    const auto memory = [this](const dnnl::memory::desc& desc, const void* data) {
      return dnnl::memory(desc, cache_->engine, const_cast<void*>(data));
    };
    primitive->matmul.execute(
        stream, {{DNNL_ARG_SRC, memory(primitive->a, a)},
                 {DNNL_ARG_WEIGHTS, memory(primitive->b, b)},
                 {DNNL_ARG_DST, memory(primitive->c, c)},
                 {DNNL_ARG_SCRATCHPAD, dnnl::memory(primitive->scratchpad, cache_->engine)}});
    stream.wait();
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

bool OneDnnMatmul::Supports(ir::DType in, ir::DType out) {
  MatmulShape shape;
  shape.m = shape.n = shape.k = 1;
  for (int64_t* strides : {shape.a_strides, shape.b_strides}) std::fill_n(strides, 3, 1);
  shape.in = in;
  shape.out = out;
  return cache_->FindOrMake(shape) != nullptr;
}

int64_t OneDnnMatmul::ScratchBytes(const MatmulShape& shape) {
  UseOneThread();
  const std::shared_ptr<const Primitive> primitive = cache_->FindOrMake(shape);
  return primitive == nullptr ? 0 : static_cast<int64_t>(primitive->scratchpad.get_size());
}

}  // namespace tessera::worker
