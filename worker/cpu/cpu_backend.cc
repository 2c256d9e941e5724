#include "worker/cpu/cpu_backend.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/eval/eval.h"
#include "ir/ops/region.h"
#include "worker/cpu/collective_ops.h"
#include "worker/cpu/dot.h"
#include "worker/cpu/memory_bound.h"
#include "worker/cpu/onednn_matmul.h"

namespace tessera::worker {
namespace {

using ir::Array;

class HostBuffer final : public DeviceBuffer {
 public:
  explicit HostBuffer(Array array) : array_(std::move(array)) {}
  ir::DType dtype() const override { return array_.dtype(); }
  const ir::Dims& shape() const override { return array_.shape(); }
  int64_t num_bytes() const override { return array_.num_bytes(); }
  const Array& array() const { return array_; }

 private:
  const Array array_;
};

const Array& ArrayOf(const DeviceBuffer& buffer) {
  return static_cast<const HostBuffer&>(buffer).array();
}

// Work that ended before it was handed out.
class DoneEvent final : public Event {
 public:
  bool done() const override { return true; }
  void OnDone(std::function<void(const absl::Status&)> done) override { done(absl::OkStatus()); }
};

// About 20 us op by op; a switch of threads costs as much.
constexpr size_t kQuickOps = 16;
constexpr double kQuickCost = 16'384;  // flops and bytes

class CpuExecutable final : public Executable {
 public:
  explicit CpuExecutable(ir::Program program) : program_(std::move(program)) {
    memory_bytes_ = PeakBytes(*program_.entry);
    Scan(*program_.entry);
    const ir::Cost cost = ir::ops::CostOf(*program_.entry);
    quick_ =
        !has_collectives_ && labels_.size() <= kQuickOps && cost.flops + cost.bytes <= kQuickCost;
  }
  int64_t memory_bytes() const override { return memory_bytes_; }
  bool has_collectives() const override { return has_collectives_; }
  bool quick() const override { return quick_; }

  const ir::Function& entry() const { return *program_.entry; }
  // "psum (model.cc:41)".
  const std::string& LabelOf(const ir::Op& op) const { return labels_.at(&op); }

 private:
  void Scan(const ir::Function& f) {
    for (size_t i = 0; i < f.ops.size(); ++i) {
      const ir::Op& op = f.ops[i];
      const std::string site = i < f.sites.size() ? f.sites[i].ToString() : "";
      labels_[&op] = absl::StrCat(ToAbsl(op.def->lax_name), site.empty() ? "" : " (", site,
                                  site.empty() ? "" : ")");
      has_collectives_ |= op.def->lowering == ir::Lowering::kCollective && !op.operands.empty();
      for (const ir::FunctionRef& region : op.regions) Scan(*region);
    }
  }

  const ir::Program program_;
  int64_t memory_bytes_ = 0;
  bool has_collectives_ = false;
  bool quick_ = false;
  absl::flat_hash_map<const ir::Op*, std::string> labels_;
};

// The hook of one run: what the backend does in the evaluator's place, and what it records.
class LaneRun {
 public:
  LaneRun(const CpuExecutable& executable, const RunContext& context, OneDnnMatmul& matmul)
      : executable_(executable), context_(context), matmul_(matmul) {}

  absl::StatusOr<std::vector<Array>> Run(absl::Span<const Array> args) {
    ir::EvalOptions options;
    options.device = context_.mesh_device;
    options.hook = [this](const ir::Function& f, const ir::Op& op, const Site&,
                          absl::Span<const Array> in) { return OnOp(f, op, in); };
    options.check_cancel = [this] { return context_.cancel->status(); };
    ir::Evaluator evaluator(std::move(options));
    absl::StatusOr<std::vector<Array>> results = evaluator.Run(executable_.entry(), args);
    if (results.ok()) return results;
    return Named(results.status());
  }

 private:
  std::optional<absl::StatusOr<std::vector<Array>>> OnOp(const ir::Function& f, const ir::Op& op,
                                                         absl::Span<const Array> in) {
    const std::string& label = executable_.LabelOf(op);
    const bool collective = op.def->lowering == ir::Lowering::kCollective;
    label_ = &label;
    if (context_.in_flight != nullptr) {
      context_.in_flight->SetOp(label, /*waiting=*/collective && !op.operands.empty());
    }
    if (collective) {
      if (!op.operands.empty()) ++sequence_;
      return One(RunCollective(context_, f, op, in, sequence_, label));
    }
    if (op.def->lowering == ir::Lowering::kContract) {
      std::optional<Array> product = DotGeneral(matmul_, op, f.type(op.results[0]), in);
      if (product) return One(*std::move(product));
    }
    return std::nullopt;
  }

  static absl::StatusOr<std::vector<Array>> One(absl::StatusOr<Array> result) {
    TESSERA_RETURN_IF_ERROR(result);
    std::vector<Array> results;
    results.push_back(*std::move(result));
    return results;
  }

  // The error with the op that was in flight, unless it says so itself or came from outside.
  absl::Status Named(const absl::Status& status) const {
    if (label_ == nullptr || context_.cancel->cancelled()) return status;
    if (absl::StrContains(status.message(), *label_)) return status;
    return Annotate(status, *label_);
  }

  const CpuExecutable& executable_;
  const RunContext& context_;
  OneDnnMatmul& matmul_;
  uint32_t sequence_ = 0;
  const std::string* label_ = nullptr;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuBackendOptions& options) : options_(options) {
    TESSERA_CHECK_GT(options.num_devices, 0);
    if (options_.memory_bytes > 0) return;
    const int64_t machine = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
    options_.memory_bytes = machine / options_.num_devices;
  }

  std::string_view device_kind() const override { return "cpu"; }
  int num_devices() const override { return options_.num_devices; }
  int64_t memory_bytes() const override { return options_.memory_bytes; }
  absl::Span<const ir::Lowering> lowerings() const override {
    static constexpr ir::Lowering kOwn[] = {ir::Lowering::kContract, ir::Lowering::kCollective};
    return kOwn;
  }

  absl::StatusOr<std::shared_ptr<const Executable>> Compile(const ir::Program& program) override {
    if (program.entry == nullptr) {
      return MakeError(ErrorKind::kMalformedProgram, "the program has no entry function");
    }
    return std::make_shared<const CpuExecutable>(program);
  }

  absl::StatusOr<Enqueued> Enqueue(const Executable& executable, const RunContext& context,
                                   absl::Span<const DeviceBufferRef> args) override {
    TESSERA_RETURN_IF_ERROR(context.cancel->status());
    std::vector<Array> in;
    for (const DeviceBufferRef& arg : args) in.push_back(ArrayOf(*arg));
    LaneRun run(static_cast<const CpuExecutable&>(executable), context, matmul_);
    TESSERA_ASSIGN_OR_RETURN(std::vector<Array> results, run.Run(in));
    Enqueued enqueued;
    for (Array& result : results) {
      enqueued.results.push_back(std::make_shared<const HostBuffer>(std::move(result)));
    }
    enqueued.event = std::make_unique<DoneEvent>();
    return enqueued;
  }

  absl::StatusOr<DeviceBufferRef> FromHost(int, Array value) override {
    return std::make_shared<const HostBuffer>(std::move(value));
  }
  absl::StatusOr<Array> ToHost(const DeviceBuffer& buffer) override { return ArrayOf(buffer); }

 private:
  CpuBackendOptions options_;
  OneDnnMatmul matmul_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(const CpuBackendOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace tessera::worker
