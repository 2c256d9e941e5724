// The record of the effects that a run of a program had, such as prints and calls of the host.
// RecordEffects (record_effects.h) turns a program with effects into one that returns a record. The
// client reads the record when a run has ended, and replays the effects from it.
//
// Reference: docs/decisions/0042. EffectRecord and RecordedEffects are plain data. EffectReplay is
// thread-compatible.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/site.h"
#include "ir/array.h"
#include "ir/program.h"

namespace tessera::ir {

// How much of one op with an effect a record holds at most, for one run and one device. A record
// that provably has room for all that the op can do is not limited.
struct RecordLimits {
  // The number of calls of the host, if the op stands in a loop whose number of iterations is not
  // known before it runs.
  int64_t calls = 10'000;
  // The bytes of the op's operands. A record holds at least one run of the op.
  int64_t bytes = int64_t{64} << 20;
};

// The record of one op with an effect: the operands that it had each time it ran. In the comments
// of this struct, a "run" is a run of the op, not of the program.
//
// Each array of the record is a result of the program. If the op stands in shard_maps, the array
// has leading dims for their devices. If the op stands in a loop, a dim for the runs follows.
struct EffectRecord {
  // Where an array of the record is.
  struct Source {
    std::optional<Array> constant;  // set if the array is known before the program runs
    int result = -1;                // its number among the results that are records
    int num_device_dims = 0;        // how many of the dims in `devices` the array has
    bool has_runs = false;          // whether it has a dim for the runs of the op
  };

  FunctionRef effect;  // takes the operands of the op, and has its effect
  Site site;           // where the user's program has the op
  int64_t calls = 1;   // calls of the host in one run of the op: the members of a batch
  int64_t bytes = 0;   // bytes that one run takes in the record
  // The runs that the record has room for, on each device.
  int64_t capacity = 1;
  bool is_limited = false;  // whether the op may run more often than that
  Dims devices;  // the numbers of devices of the shard_maps around the op, outermost first
  // Ops of the same group are replayed in the order of `clock`, of the op and of the runs. Groups
  // are replayed one after the other.
  int group = 0;
  std::vector<Source> operands;
  // How often the op ran on each device, an integer. If absent, it ran `capacity` times.
  std::optional<Source> count;
  // When the op ran: a number that never decreases while the group runs. If absent, the ops of the
  // group ran one after the other.
  std::optional<Source> clock;
};

struct RecordedEffects {
  // The records of all ops with effects, in the order in which the ops stand in the program.
  std::vector<EffectRecord> records;
  int num_results = 0;  // number of the program's results that are records; they are the last ones
  RecordLimits limits;

  // Returns whether a run may have more effects than the record holds.
  bool MayDrop() const;
};

// Replays the effects of one run of a program.
class EffectReplay {
 public:
  // `read` returns the result with this number among those that are records, and is called at most
  // once for each. Results that are not needed are not read. `effects` must outlive the replay.
  using ReadFn = std::function<absl::StatusOr<Array>(int result)>;
  EffectReplay(const RecordedEffects& effects, ReadFn read);

  // Fails with CALLBACKS_DROPPED if the record does not hold all effects of the run.
  absl::Status CheckNothingDropped();
  // Has the effects, in the order of the run: calls `print` with the format and the values of each,
  // as EvalOptions::print says. Ops that run on several devices at once have their effects device
  // by device. If the record does not hold all effects, Run has none of them, and fails as
  // CheckNothingDropped does.
  absl::Status Run(
      std::function<void(const std::string& format, absl::Span<const Array> values)> print);

 private:
  absl::StatusOr<Array> Read(const EffectRecord::Source& source);
  // Returns how often the op ran on each device, in row-major order of the devices.
  absl::StatusOr<std::vector<int64_t>> CountsOf(const EffectRecord& record);

  const RecordedEffects& effects_;
  const ReadFn read_;
  std::vector<std::optional<Array>> results_;  // those that have been read
};

}  // namespace tessera::ir
