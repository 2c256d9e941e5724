// Measures fused elementwise chains and a row sum that the host code generator compiles. They are
// compared with the memory bandwidth of this machine in the same run and, with --jax, with JAX. The
// program also measures how long the compilation of such kernels takes.
//
//   bench-elementwise [--elements N] [--rounds N] [--smoke] [--jax PYTHON]
//
// Bandwidth counts each byte that a program must read or write once. The rows are compared with a
// triad: a loop that computes a = b + s c on as many threads, with stores that bypass the caches.
// The cases are interleaved, round by round, so that other load on the machine affects all of them.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "bench/flags.h"
#include "bench/process.h"
#include "bench/samples.h"
#include "worker/codegen/host_code.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera::bench {
namespace {

namespace codegen = worker::codegen;
using codegen::HostCode;
using codegen::Kernel;

constexpr int64_t kRow = 1024;
constexpr int kThreadsMax = 2;
constexpr absl::Duration kJaxLimit = absl::Seconds(300);

struct Flags {
  int64_t elements = int64_t{64} << 20;  // f32 numbers in a large array: 256 MiB
  int rounds = 15;
  std::string jax;
};

// ---- Kernels. ----------------------------------------------------------------------------------

// The arrays of all cases. x and y are matrices with rows of kRow numbers. w, b and g have the
// length of a row, and m, r and s have one number for each row. The kernels write y and s.
enum ArrayIndex { kX, kW, kB, kG, kM, kR, kY, kS, kNumArrays };

struct Case {
  std::string name;
  Kernel kernel;
  int64_t bytes;  // number of bytes that the kernel reads and writes
};

Kernel MakeKernel(int64_t rows, bool reduce, const std::string& body) {
  const int64_t all = rows * kRow;
  const std::string text = absl::StrCat(
      "kernel [", rows, ",", kRow, "] reduced ", reduce ? 1 : 0, "\nin f32 ", all, "\nin f32 ",
      kRow, "\nin f32 ", kRow, "\nin f32 ", kRow, "\nin f32 ", rows, "\nin f32 ", rows,
      "\nout f32 ", all, "\nout f32 ", rows, "\n%0 = load p0 [0: ", kRow, ",1] : f32\n", body);
  absl::StatusOr<Kernel> kernel = codegen::ParseKernel(text);
  TESSERA_CHECK_OK(kernel) << text;
  return *std::move(kernel);
}

// Returns the cases. Each kernel reads or reduces all of x, a matrix of `elements` numbers.
std::vector<Case> MakeCases(int64_t elements) {
  const int64_t rows = elements / kRow, bytes = 4 * elements;
  const std::string scale =
      "%1 = load p1 [0: 0,1] : f32\n%2 = load p2 [0: 0,1] : f32\n"
      "%3 = Mul %0, %1 : f32\n%4 = Add %3, %2 : f32\n";
  const std::string store = absl::StrCat(" p6 [0: ", kRow, ",1]\n");
  return {
      {"x * w + b", MakeKernel(rows, false, absl::StrCat(scale, "store %4", store)), 2 * bytes},
      {"tanh(x * w + b) * g",
       MakeKernel(rows, false,
                  absl::StrCat(scale,
                               "%5 = Tanh %4 : f32\n%6 = load p3 [0: 0,1] : f32\n"
                               "%7 = Mul %5, %6 : f32\nstore %7",
                               store)),
       2 * bytes},
      {"exp(x - m) * r",
       MakeKernel(rows, false,
                  absl::StrCat("%1 = load p4 [0: 1,0] : f32\n%2 = load p5 [0: 1,0] : f32\n"
                               "%3 = Sub %0, %1 : f32\n%4 = Exp %3 : f32\n%5 = Mul %4, %2 : f32\n"
                               "store %5",
                               store)),
       2 * bytes},
      {"row sum", MakeKernel(rows, true, "%1 = reduce sum %0 : f32\nstore %1 p7 [0: 1,0]\n"),
       bytes},
  };
}

// ---- Memory and threads. -----------------------------------------------------------------------

// Returns zeroed memory, on huge pages if they are available. It is never freed.
float* Allocate(int64_t elements) {
  const size_t bytes = static_cast<size_t>(elements) * sizeof(float);
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TESSERA_CHECK(memory != MAP_FAILED);
  madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<float*>(memory);
}

// A thread pool that includes the calling thread. Thread t runs part t of every job.
class ThreadPool {
 public:
  ThreadPool() {
    for (int t = 1; t < kThreadsMax; ++t) threads_.emplace_back([this, t] { Serve(t); });
  }
  ~ThreadPool() {
    Post(nullptr, kThreadsMax);
    for (std::thread& thread : threads_) thread.join();
  }

  using Job = std::function<void(int part, int parts)>;
  void Run(const Job& job, int parts) {
    Post(&job, parts);
    job(0, parts);
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(
        +[](int* num_running) { return *num_running == 0; }, &num_running_));
  }

 private:
  void Post(const Job* job, int parts) {
    absl::MutexLock lock(&mu_);
    job_ = job;
    parts_ = parts;
    num_running_ = parts - 1;
    ++job_number_;
  }
  void Serve(int part) {
    int64_t seen_job = 0;
    while (true) {
      const Job* job = nullptr;
      int parts = 0;
      {
        absl::MutexLock lock(&mu_);
        const auto posted = [this, &seen_job]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
          return job_number_ != seen_job;
        };
        mu_.Await(absl::Condition(&posted));
        seen_job = job_number_;
        job = job_;
        parts = parts_;
      }
      if (job == nullptr) return;
      if (part >= parts) continue;
      (*job)(part, parts);
      absl::MutexLock lock(&mu_);
      --num_running_;
    }
  }

  absl::Mutex mu_;
  const Job* job_ ABSL_GUARDED_BY(mu_) = nullptr;
  int parts_ ABSL_GUARDED_BY(mu_) = 0;
  int num_running_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t job_number_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::thread> threads_;
};

// Computes a = b + s c with stores that bypass the caches. The arrays are aligned to 64 bytes, and
// their size is a multiple of 64 bytes.
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void Triad(float* a, const float* b, const float* c,
                                               int64_t n) {
  const __m256 s = _mm256_set1_ps(3.0F);
  for (int64_t i = 0; i < n; i += 16) {
    const __m256 low = _mm256_fmadd_ps(s, _mm256_load_ps(c + i), _mm256_load_ps(b + i));
    const __m256 high = _mm256_fmadd_ps(s, _mm256_load_ps(c + i + 8), _mm256_load_ps(b + i + 8));
    _mm256_stream_ps(a + i, low);
    _mm256_stream_ps(a + i + 8, high);
  }
  _mm_sfence();
}
#else
void Triad(float* a, const float* b, const float* c, int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] = b[i] + 3.0F * c[i];
}
#endif

// ---- Measuring. --------------------------------------------------------------------------------

double SecondsOf(const std::function<void()>& run) {
  const absl::Time begin = absl::Now();
  run();
  return absl::ToDoubleSeconds(absl::Now() - begin);
}

struct Row {
  std::string name;
  int threads;
  int64_t bytes;
  std::function<void()> run;
  Samples seconds = {};
  // Returns the time of the fastest round, which other processes on the machine have disturbed
  // least.
  double BestSeconds() const { return seconds.Quantile(0); }
  double Bandwidth() const { return static_cast<double>(bytes) / BestSeconds() / 1e9; }
};

// Returns kernels that differ in a constant, so that the code of one is not found in the cache for
// another.
std::vector<Kernel> Variants(int64_t rows, int count) {
  std::vector<Kernel> kernels;
  for (int i = 0; i < count; ++i) {
    kernels.push_back(
        MakeKernel(rows, false,
                   absl::StrCat("%1 = load p1 [0: 0,1] : f32\n%2 = Mul %0, %1 : f32\n"
                                "%3 = Constant ",
                                i, " : f32\n%4 = Add %2, %3 : f32\n%5 = Tanh %4 : f32\n",
                                "store %5 p6 [0: ", kRow, ",1]\n")));
  }
  return kernels;
}

void PrintCompileTimes(int64_t rows, int count) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / absl::StrCat("tessera-bench-", getpid())).string();
  const std::vector<Kernel> kernels = Variants(rows, count);
  codegen::HostCompilerOptions options;
  options.cache_dir = folder;
  const auto compile_all = [&] {
    codegen::HostCompiler compiler(options);
    return 1e3 / count * SecondsOf([&] { TESSERA_CHECK_OK(compiler.Compile(kernels)); });
  };
  compile_all();
  std::filesystem::remove_all(folder);
  const double cold = compile_all(), warm = compile_all();
  std::filesystem::remove_all(folder);
  std::printf("compile, tanh chain, ms a kernel of %d: cold %.2f, from the disk cache %.3f\n",
              count, cold, warm);
}

// Runs elementwise_jax.py and prints its times beside ours. The script prints a line
// "name<TAB>threads<TAB>seconds" for each case, with the time of its fastest round.
void PrintJax(const Flags& flags, const std::vector<Row>& rows) {
  absl::StatusOr<Process> process =
      Process::Start({flags.jax, std::string(TESSERA_SOURCE_DIR) + "/bench/elementwise_jax.py",
                      absl::StrCat(flags.elements), absl::StrCat(flags.rounds)});
  if (!process.ok()) {
    std::printf("JAX: %s\n", std::string(process.status().message()).c_str());
    return;
  }
  while (true) {
    const absl::StatusOr<std::string> line = process->ReadLine(kJaxLimit);
    if (!line.ok()) return;
    const std::vector<std::string> words = absl::StrSplit(*line, '\t');
    double seconds = 0;
    int threads = 0;
    if (words.size() != 3 || !absl::SimpleAtoi(words[1], &threads) ||
        !absl::SimpleAtod(words[2], &seconds))
      continue;
    for (const Row& row : rows) {
      if (row.name != words[0] || row.threads != threads) continue;
      std::printf("%-22s %d threads: JAX %7.2f ms, ours %7.2f ms, ratio %.2f\n", row.name.c_str(),
                  threads, 1e3 * seconds, 1e3 * row.BestSeconds(), seconds / row.BestSeconds());
    }
  }
}

// Returns the arrays that the kernels take, indexed by ArrayIndex.
std::vector<void*> MakeArrays(int64_t elements) {
  const int64_t rows = elements / kRow;
  const int64_t sizes[kNumArrays] = {elements, kRow, kRow, kRow, rows, rows, elements, rows};
  std::vector<void*> arrays;
  for (const int64_t size : sizes) {
    float* const array = Allocate(size);
    for (int64_t i = 0; i < size; ++i) array[i] = static_cast<float>(i % 61) * 0.05F - 1.5F;
    arrays.push_back(array);
  }
  return arrays;
}

void PrintRows(const std::vector<Row>& table) {
  double triad = 0;
  for (const Row& row : table) {
    if (row.name.rfind("triad", 0) == 0) triad = row.Bandwidth();
    std::printf("%-22s %d threads: %7.2f ms, %6.2f GB/s, ratio to triad %.2f\n", row.name.c_str(),
                row.threads, 1e3 * row.BestSeconds(), row.Bandwidth(), row.Bandwidth() / triad);
  }
}

// Compiles the kernels once, then times the triad and every kernel on one thread and on
// kThreadsMax threads, and prints the tables. Each thread takes a contiguous part of a kernel's
// iterations. All rows run once before they are measured, to warm up.
int Run(const Flags& flags) {
  std::vector<void*> arrays = MakeArrays(flags.elements);
  float* const triad_c = Allocate(flags.elements);
  for (int64_t i = 0; i < flags.elements; ++i) triad_c[i] = 1.0F;

  const std::vector<Case> cases = MakeCases(flags.elements);
  std::vector<Kernel> kernels;
  for (const Case& c : cases) kernels.push_back(c.kernel);
  codegen::HostCompiler compiler({});
  const absl::StatusOr<std::shared_ptr<const HostCode>> code = compiler.Compile(kernels);
  TESSERA_CHECK_OK(code);

  ThreadPool pool;
  std::vector<Row> table;
  for (const int threads : {1, kThreadsMax}) {
    table.push_back({"triad, past the caches", threads, 12 * flags.elements, [&, threads] {
                       pool.Run(
                           [&](int part, int parts) {
                             const int64_t n = flags.elements / parts;
                             Triad(static_cast<float*>(arrays[kY]) + part * n,
                                   static_cast<const float*>(arrays[kX]) + part * n,
                                   triad_c + part * n, n);
                           },
                           threads);
                     }});
    for (size_t k = 0; k < cases.size(); ++k) {
      table.push_back({cases[k].name, threads, cases[k].bytes, [&, k, threads] {
                         const int64_t n = kernels[k].num_iterations();
                         pool.Run(
                             [&](int part, int parts) {
                               (*code)->function(static_cast<int>(k))(
                                   arrays.data(), n * part / parts, n * (part + 1) / parts);
                             },
                             threads);
                       }});
    }
  }
  for (Row& row : table) row.run();
  for (int round = 0; round < flags.rounds; ++round)
    for (Row& row : table) row.seconds.AddValue(SecondsOf(row.run));

  PrintRows(table);
  PrintCompileTimes(flags.elements / kRow, /*count=*/flags.rounds > 1 ? 64 : 4);
  if (!flags.jax.empty()) PrintJax(flags, table);
  return 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  FlagParser parser("bench-elementwise", "Measures fused elementwise chains and a row sum.");
  parser.AddNumber("--elements", &flags.elements, "f32 numbers in a large array",
                   {.least = 64 * kRow, .multiple_of = 64 * kRow});
  parser.AddNumber("--rounds", &flags.rounds, "number of rounds");
  parser.AddAction(
      "--smoke",
      [&flags] {
        flags.elements = 64 * kRow;
        flags.rounds = 1;
      },
      "runs short, as a test");
  parser.AddText("--jax", "PYTHON", &flags.jax, "compares with JAX under this Python");
  if (const std::optional<int> status = parser.Parse(argc, argv)) return *status;
  return Run(flags);
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::Main(argc, argv); }
