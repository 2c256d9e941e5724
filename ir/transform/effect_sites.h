// The ops with effects in a program, and how much of each is recorded. RecordEffects
// (record_effects.h) finds them with EffectFinder before it copies the program. Internal to this
// folder. The structs are plain data that point into the program, which must outlive them.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "ir/op_def.h"
#include "ir/program.h"
#include "ir/transform/effect_record.h"

namespace tessera::ir {

// The largest number to which a log counts.
inline constexpr int64_t kEffectCountMax = std::numeric_limits<int32_t>::max();

struct FunctionUse;
// An op that has effects in its regions.
struct OpWithEffects {
  const OpDef* def = nullptr;
  DataFlow flow;
  std::vector<std::unique_ptr<FunctionUse>>
      uses;                          // one for each region; null for one without effects
  int first_site = 0, end_site = 0;  // the sites in its regions
};

// One use of a function that has effects: the entry, or a region of an op. A function that two ops
// call has two uses.
struct FunctionUse {
  const Function& f;
  // The op whose region the use is, the use that contains this op, and the region's index. Null and
  // 0 for the entry.
  const OpWithEffects* owner = nullptr;
  const FunctionUse* outer = nullptr;
  size_t op = 0, region = 0;
  int depth = 0;                        // number of uses around it
  int manual_depth = 0;                 // number of shard_maps around it
  std::map<size_t, OpWithEffects> ops;  // by the index of the op
  std::map<size_t, int> sites;          // the ops with an effect: the site, by the index of the op

  explicit FunctionUse(const Function& function) : f(function) {}
  bool IsManual() const { return owner != nullptr && !owner->flow.manual_axes.empty(); }
  bool IsBranch() const {
    return owner != nullptr && owner->flow.branch_index >= 0 && owner->uses.size() > 1;
  }
  // Returns whether the op is a loop, even if it is known to run only once.
  bool IsLoop() const { return owner != nullptr && owner->def->add_constant != nullptr; }
};

// From where the record takes an operand.
struct EffectSource {
  std::optional<Array> constant;
  int depth = 0;          // the use on the site's path that has the value
  ValueId value = -1;     // the value in that use
  bool is_logged = true;  // whether each run of the op has its own value
};

// An op with an effect, at one place of the program.
struct EffectSite {
  std::vector<const FunctionUse*> path;  // from the entry to the use that contains the op
  size_t op = 0;                         // index of the op in the last use
  // The use whose function writes the log: the body of the innermost loop or of the innermost
  // shard_map in it. -1 if the op stands in no loop, and runs at most once.
  int log_depth = -1;
  bool is_exact = false;    // whether the op runs exactly `capacity` times
  int64_t rows = 1;         // rows of the log
  bool is_ordered = false;  // whether the record needs a clock
  std::vector<EffectSource> sources;
  EffectRecord record;

  const FunctionUse& use() const { return *path.back(); }
  bool has_log() const { return log_depth >= 0; }
  // Returns the number of shard_maps around values of the use at `depth`.
  int ManualDepth(int depth) const { return path[depth]->manual_depth; }
  // Returns the depth of the use that contains the innermost op with branches around the site,
  // counted from uses below `depth` on. -1 if there is none.
  int DepthOfInnermostBranch(int depth) const {
    for (int d = static_cast<int>(path.size()) - 1; d > depth; --d)
      if (path[d]->IsBranch()) return d - 1;
    return -1;
  }
};

// Finds the ops with effects in a function. Throws NOT_IMPLEMENTED for an effect that cannot be
// recorded: in the predicate of a loop, or in a function of scalars.
class EffectFinder {
 public:
  EffectFinder(const Function& entry, const RecordLimits& limits);
  EffectFinder(const EffectFinder&) = delete;
  EffectFinder& operator=(const EffectFinder&) = delete;

  const FunctionUse& entry() const { return *entry_; }
  // Returns the ops, in the order in which they stand in the program. Ops that never run are left
  // out.
  std::vector<EffectSite>& sites() { return sites_; }

 private:
  int num_sites() const { return static_cast<int>(sites_.size()); }
  void Visit(FunctionUse& use, const std::vector<const FunctionUse*>& path, int group);
  void AddSite(FunctionUse& use, const std::vector<const FunctionUse*>& path, size_t i, int group);
  void SetCapacity(EffectSite& site, int64_t bound) const;
  void OrderSites(int first);

  const RecordLimits limits_;
  const std::unique_ptr<FunctionUse> entry_;
  std::vector<EffectSite> sites_;
};

}  // namespace tessera::ir
