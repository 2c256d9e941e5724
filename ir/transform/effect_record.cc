// Replays the effects of a run from its record. The counts are read first: they say whether
// anything was dropped, and which of the other arrays are needed at all.
#include "ir/transform/effect_record.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/eval/eval.h"

namespace tessera::ir {
namespace {

int64_t NumDevices(const EffectRecord& record) {
  return std::accumulate(record.devices.begin(), record.devices.end(), int64_t{1},
                         std::multiplies<>());
}

// Returns the number of the block that an array with the first `num_dims` dims of `devices` has for
// the device with the row-major index `device` in all of them.
int64_t BlockOf(const Dims& devices, int num_dims, int64_t device) {
  for (size_t d = devices.size(); d-- > static_cast<size_t>(num_dims);) device /= devices[d];
  return device;
}

// Returns block `i` of the blocks of shape `shape` of which `x` consists.
Array Block(const Array& x, int64_t i, const Dims& shape) {
  int64_t bytes = ByteWidth(x.dtype());
  for (const int64_t n : shape) bytes *= n;
  return Array(x.dtype(), shape,
               absl::MakeConstSpan(x.data() + i * bytes, static_cast<size_t>(bytes)));
}

// Returns "64 MiB" or, of a number that is no whole number of these, "100 bytes".
std::string BytesText(int64_t bytes) {
  constexpr int64_t kMiB = 1 << 20;
  if (bytes >= kMiB && bytes % kMiB == 0) return absl::StrCat(bytes / kMiB, " MiB");
  return absl::StrCat(bytes, bytes == 1 ? " byte" : " bytes");
}

// The error of a run in which the op of `record` ran `runs` times on some device, of which the
// record has room for fewer. `other_sites` is the number of further ops of which this holds.
absl::Status DroppedError(const EffectRecord& record, const RecordLimits& limits, int64_t runs,
                          int other_sites) {
  const int64_t made = runs * record.calls, kept = record.capacity * record.calls;
  return MakeError(
      ErrorKind::kCallbacksDropped,
      absl::StrCat(
          "callback", record.site.valid() ? " at " : "", record.site.ToString(), ": ", made - kept,
          " of its ", made, " calls in this run", record.devices.empty() ? "" : " on one device",
          " were dropped, so the run has failed, and none of its callbacks has been called. The "
          "calls of a run are kept until it ends: of each callback at most ",
          limits.calls, " calls and ", BytesText(limits.bytes), " of arguments, here ", kept,
          " calls of ", BytesText(record.bytes / std::max<int64_t>(record.calls, 1)), " each",
          other_sites == 0 ? "" : absl::StrCat(" (", other_sites, " more callbacks dropped calls)"),
          ". Call it in fewer iterations, for example in a cond, pass it smaller arguments, or "
          "split the loop over several runs"));
}

}  // namespace

bool RecordedEffects::MayDrop() const {
  return std::any_of(records.begin(), records.end(),
                     [](const EffectRecord& record) { return record.is_limited; });
}

EffectReplay::EffectReplay(const RecordedEffects& effects, ReadFn read)
    : effects_(effects), read_(std::move(read)), results_(effects.num_results) {}

absl::StatusOr<Array> EffectReplay::Read(const EffectRecord::Source& source) {
  if (source.constant) return *source.constant;
  std::optional<Array>& result = results_.at(source.result);
  if (!result) {
    TESSERA_ASSIGN_OR_RETURN(result, read_(source.result));
  }
  return *result;
}

absl::StatusOr<std::vector<int64_t>> EffectReplay::CountsOf(const EffectRecord& record) {
  std::vector<int64_t> counts(NumDevices(record), record.capacity);
  if (!record.count) return counts;
  TESSERA_ASSIGN_OR_RETURN(const Array array, Read(*record.count));
  for (size_t d = 0; d < counts.size(); ++d)
    counts[d] = array.IntAt(
        BlockOf(record.devices, record.count->num_device_dims, static_cast<int64_t>(d)));
  return counts;
}

absl::Status EffectReplay::CheckNothingDropped() {
  const EffectRecord* first = nullptr;
  int64_t runs_of_first = 0;
  int others = 0;
  for (const EffectRecord& record : effects_.records) {
    if (!record.is_limited) continue;
    TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> counts, CountsOf(record));
    const int64_t runs = *std::max_element(counts.begin(), counts.end());
    if (runs <= record.capacity) continue;
    if (first != nullptr) {
      ++others;
      continue;
    }
    first = &record;
    runs_of_first = runs;
  }
  if (first == nullptr) return absl::OkStatus();
  return DroppedError(*first, effects_.limits, runs_of_first, others);
}

// Lists all runs of all ops, sorts them, and then evaluates the ops. The order of the sort is the
// order in which the evaluator would have had the effects.
absl::Status EffectReplay::Run(
    std::function<void(const std::string& format, absl::Span<const Array> values)> print) {
  TESSERA_RETURN_IF_ERROR(CheckNothingDropped());
  struct OpRun {
    int group;
    int64_t clock;
    int op;
    int64_t run, device;
    // With a clock, an op runs at most once at a time on each device. Without one, the first runs
    // on all devices come first.
    bool has_clock;
    std::tuple<int, int64_t, int, int64_t, int64_t> key() const {
      return {group, clock, op, has_clock ? device : run, has_clock ? run : device};
    }
  };
  std::vector<OpRun> runs;
  for (size_t k = 0; k < effects_.records.size(); ++k) {
    const EffectRecord& record = effects_.records[k];
    TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> counts, CountsOf(record));
    if (std::all_of(counts.begin(), counts.end(), [](int64_t n) { return n == 0; })) continue;
    std::optional<Array> clock;
    if (record.clock) {
      TESSERA_ASSIGN_OR_RETURN(clock, Read(*record.clock));
    }
    const int64_t clocks_per_device =
        clock ? clock->num_elements() / static_cast<int64_t>(counts.size()) : 0;
    for (size_t d = 0; d < counts.size(); ++d)
      for (int64_t run = 0; run < counts[d]; ++run) {
        const auto device = static_cast<int64_t>(d);
        runs.push_back({record.group, clock ? clock->IntAt(device * clocks_per_device + run) : 0,
                        static_cast<int>(k), run, device, clock.has_value()});
      }
  }
  std::sort(runs.begin(), runs.end(),
            [](const OpRun& a, const OpRun& b) { return a.key() < b.key(); });

  EvalOptions options;
  options.print = std::move(print);
  Evaluator evaluator(options);
  for (const OpRun& at : runs) {
    const EffectRecord& record = effects_.records[at.op];
    std::vector<Array> values;
    for (size_t i = 0; i < record.operands.size(); ++i) {
      const EffectRecord::Source& source = record.operands[i];
      TESSERA_ASSIGN_OR_RETURN(const Array array, Read(source));
      const int64_t block = BlockOf(record.devices, source.num_device_dims, at.device);
      const Dims& shape = record.effect->types[i].shape;
      if (source.num_device_dims == 0 && !source.has_runs) {
        values.push_back(array);
        continue;
      }
      const int64_t num_runs = source.has_runs ? array.shape().at(source.num_device_dims) : 1;
      values.push_back(Block(array, block * num_runs + (source.has_runs ? at.run : 0), shape));
    }
    TESSERA_RETURN_IF_ERROR(evaluator.Run(*record.effect, std::move(values)).status());
  }
  return absl::OkStatus();
}

}  // namespace tessera::ir
