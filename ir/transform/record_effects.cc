// Records the effects of a program among its results. The client calls RecordEffects before it
// sends a program, so no part of the service knows of effects. Reference: docs/decisions/0042.
//
// The work has two steps. EffectFinder (effect_sites.h) finds the ops with effects. It decides how
// many runs of each are recorded, and from where each operand is taken. Recorder then copies the
// function. It threads the logs of ops in loops through the ops around them. If an op stands in no
// loop, the ops around it return its operands. Recorder knows ops with regions by their data flow
// only.
#include "ir/transform/record_effects.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/status_exception.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/ops.h"
#include "ir/transform/apply_rule.h"
#include "ir/transform/effect_sites.h"
#include "ir/walk.h"

namespace tessera::ir {
namespace {

constexpr DType kCountType = DType::kS32, kClockType = DType::kS64;

// ---- Types. -------------------------------------------------------------------------------------

std::vector<std::string> InMeshOrder(const Mesh& mesh, const AxisList& axes) {
  AxisList out;
  for (const MeshAxis& axis : mesh.axes)
    if (std::find(axes.begin(), axes.end(), axis.name) != axes.end()) out.push_back(axis.name);
  return out;
}

// A record varies along all Manual axes, because devices may do different things. Returns the type
// that a value of type `t` then has.
Type Varied(Type t, const Scope& scope) {
  t.weak = false;
  if (!scope.check_vma) return t;
  for (const std::string& axis : scope.mesh.AxesOfType(AxisType::kManual)) {
    t.reduced.erase(axis);
    t.unreduced.erase(axis);
    t.varying.insert(axis);
  }
  return t;
}
// Returns the value with that type. A pending sum is recorded as the sum.
Value Vary(Value v) {
  const Scope& scope = v.builder().scope();
  if (!scope.check_vma) return v;
  AxisList unreduced;
  AxisSet reduced, missing;
  for (const std::string& axis : scope.mesh.AxesOfType(AxisType::kManual)) {
    if (v.type().unreduced.contains(axis)) unreduced.push_back(axis);
    if (v.type().reduced.contains(axis)) reduced.insert(axis);
  }
  if (!unreduced.empty()) v = Psum(v, unreduced);
  v = ReducedVaryCast(v, reduced);
  for (const std::string& axis : scope.mesh.AxesOfType(AxisType::kManual))
    if (!v.type().varying.contains(axis)) missing.insert(axis);
  return Pvary(v, missing);
}

// Returns the type of the result of the use's op for a value of the use that has type `t`. A body
// on shards gives the value a dim for the devices.
Type TypeOutside(Type t, const FunctionUse& use) {
  const Mesh &inside = use.f.scope.mesh, &outside = use.outer->f.scope.mesh;
  if (use.IsManual()) {
    const AxisList axes = InMeshOrder(inside, use.owner->flow.manual_axes);
    t = walk::InsertDim(std::move(t), 0, inside.SizeOf(axes));
    AxisList shards;
    for (const std::string& axis : axes) {
      t.varying.erase(axis);
      if (outside.TypeOf(axis) == AxisType::kExplicit) shards.push_back(axis);
    }
    t.set_axes_of(0, std::move(shards));
  }
  for (AxisList& axes : t.sharding)
    std::erase_if(
        axes, [&](const std::string& axis) { return outside.TypeOf(axis) != AxisType::kExplicit; });
  Normalize(&t);
  return t;
}
// Returns the type, in the use at depth `to` of the site's path, of a value that has type `t` in
// the use at depth `from` and is handed outwards.
Type TypeAt(const EffectSite& site, Type t, int from, int to) {
  for (int d = from; d > to; --d) t = TypeOutside(std::move(t), *site.path[d]);
  return t;
}

// Returns the types of the log of a site in the use at `depth`: the counter, the clock of each run,
// and each logged operand in each run.
std::vector<Type> LogTypes(const EffectSite& site, int depth) {
  const Scope& scope = site.path[site.log_depth]->f.scope;
  std::vector<Type> out = {Varied(MakeType(kCountType, {}), scope)};
  if (site.is_ordered) out.push_back(Varied(MakeType(kClockType, {site.rows}), scope));
  for (const EffectSource& source : site.sources) {
    if (source.constant || !source.is_logged) continue;
    const FunctionUse& use = *site.path[source.depth];
    const Type value =
        TypeAt(site, Varied(use.f.types[source.value], use.f.scope), source.depth, site.log_depth);
    out.push_back(walk::InsertDim(value, 0, site.rows));
  }
  for (Type& t : out) t = TypeAt(site, std::move(t), site.log_depth, depth);
  return out;
}

// ---- The copy without effects. ------------------------------------------------------------------

// A run of an op with an effect, as a use around the op sees it. Operands that are taken from uses
// further outside are absent.
struct Event {
  Value is_run;  // a bool; absent if the op always runs
  Value clock;   // absent if the record needs no clock
  std::vector<Value> operands;
};

// A part of an Event that an op with regions returns.
struct EventPart {
  enum Kind { kIsRun, kClock, kOperand };
  int site;
  Kind kind;
  size_t operand;
  Type type;  // in the op's regions
};

// The function that is being copied.
struct Frame {
  const FunctionUse& use;
  Builder& b;
  std::vector<Value> env;                  // the copies of the function's values
  Value clock;                             // absent outside of groups with a clock
  std::map<int, std::vector<Value>> logs;  // by site
  std::map<int, Event> events;             // by site
};

// The values that an op with regions takes and returns beside its own operands and results. A body
// on shards takes the clock and does not return it, because the devices do not agree about it.
struct Handover {
  bool takes_clock = false, returns_clock = false, is_manual = false;
  std::vector<int> logs;         // sites
  std::vector<Type> params;      // types in the regions of the clock and the logs
  std::vector<EventPart> parts;  // returned after the logs
  AddedValues added;
};

class Recorder {
 public:
  explicit Recorder(std::vector<EffectSite>* sites) : sites_(*sites) {
    int manual_depth = 0;
    for (const EffectSite& site : sites_)
      manual_depth = std::max(manual_depth, site.use().manual_depth);
    manual_depth_ = manual_depth;
  }

  FunctionWithRecord Run(const FunctionUse& entry, const RecordLimits& limits) {
    Builder b(entry.f.scope, entry.f.name);
    std::vector<Value> params;
    for (const Type& t : entry.f.param_types()) params.push_back(b.Param(t));
    Frame frame{entry, b, std::move(params), {}, {}, {}};
    Copy(frame);
    std::vector<Value> results = ElementsAt(frame.env, entry.f.results);
    const size_t num_results = results.size();
    FunctionWithRecord out;
    out.effects.limits = limits;
    for (size_t s = 0; s < sites_.size(); ++s)
      out.effects.records.push_back(RecordOf(frame, static_cast<int>(s), num_results, &results));
    out.effects.num_results = static_cast<int>(results.size() - num_results);
    out.function = b.Build(results);
    return out;
  }

 private:
  // The clock of a group counts iterations of loops. In a shard_map each device goes on with a
  // clock of its own in finer units, and outside the clock then goes on by one unit. So times in
  // different shard_maps, nested ones too, can be compared.
  Value Tick(Value clock, int manual_depth) const {
    const int bits_per_depth = 62 / (manual_depth_ + 1);
    const int64_t unit =
        manual_depth_ == 0 ? 1 : int64_t{1} << (bits_per_depth * (manual_depth_ - manual_depth));
    return Add(clock, FullLike(clock, static_cast<double>(unit)));
  }

  // Copies the ops of the function without their effects.
  void Copy(Frame& frame) {
    const Function& f = frame.use.f;
    frame.env.resize(f.types.size());
    for (size_t i = 0; i < f.ops.size(); ++i) {
      const Op& op = f.ops[i];
      SiteScope site(frame.b, f.sites[i]);
      const auto inner = frame.use.ops.find(i);
      if (const auto at = frame.use.sites.find(i); at != frame.use.sites.end()) {
        Event& event = frame.events[at->second];
        if (frame.clock) event.clock = Vary(frame.clock);
        event.operands.resize(sites_[at->second].sources.size());
        TakeOperands(frame, at->second);
      } else if (inner != frame.use.ops.end()) {
        CopyOpWithEffects(frame, op, inner->second);
      } else if (!op.def->has_effect) {
        const std::vector<Value> out =
            walk::EmitPlain(frame.b, op, ElementsAt(frame.env, op.operands));
        for (size_t r = 0; r < out.size(); ++r) frame.env[op.results[r]] = out[r];
      }
    }
  }

  // Takes the operands of a site that are values of this function, after the op of this function in
  // which the site is. Writes the log if this function does that.
  void TakeOperands(Frame& frame, int s) {
    const EffectSite& site = sites_[s];
    Event& event = frame.events[s];
    event.operands.resize(site.sources.size());
    for (size_t k = 0; k < site.sources.size(); ++k)
      if (!site.sources[k].constant && site.sources[k].depth == frame.use.depth)
        event.operands[k] = Vary(frame.env[site.sources[k].value]);
    if (site.log_depth == frame.use.depth) WriteLog(site, event, &frame.logs.at(s));
  }

  // A row is written in each iteration. If the op has not run, or there is no room, that is the
  // last row, which nobody reads. The counter goes on, so that it tells how much was dropped. It
  // stops at its largest number.
  static void WriteLog(const EffectSite& site, const Event& event, std::vector<Value>* log) {
    const Value count = log->at(0), one = FullLike(count, 1);
    Value row = count, next;
    if (site.is_exact) {
      next = Add(count, one);
    } else {
      const Value last = FullLike(count, static_cast<double>(site.record.capacity));
      row = Min(count, last);
      next = Add(Min(count, FullLike(count, static_cast<double>(kEffectCountMax - 1))), one);
      if (event.is_run) {
        row = Select(event.is_run, row, last);
        next = Select(event.is_run, next, count);
      }
    }
    log->at(0) = next;
    size_t at = 1;
    const auto write = [&](const Value& value) {
      Value& rows = log->at(at++);
      rows = DynamicUpdateIndexInDim(rows, value, row, 0);
    };
    if (site.is_ordered) write(event.clock);
    for (size_t k = 0; k < site.sources.size(); ++k)
      if (!site.sources[k].constant && site.sources[k].is_logged) write(event.operands[k]);
  }

  // Lists the parts of events that the regions of an op return to `depth - 1`.
  std::vector<EventPart> PartsReturnedFrom(const OpWithEffects& op, int depth) const {
    std::vector<EventPart> out;
    for (int s = op.first_site; s < op.end_site; ++s) {
      const EffectSite& site = sites_[s];
      const int own = site.use().depth;
      const bool is_event = site.log_depth < depth;
      if (is_event) {
        const Scope& scope = site.use().f.scope;
        if (const int at = site.DepthOfInnermostBranch(depth); at >= 0)
          out.push_back({s, EventPart::kIsRun, 0,
                         TypeAt(site, Varied(MakeType(DType::kBool, {}), site.path[at]->f.scope),
                                at, depth)});
        if (site.is_ordered)
          out.push_back({s, EventPart::kClock, 0,
                         TypeAt(site, Varied(MakeType(kClockType, {}), scope), own, depth)});
      }
      for (size_t k = 0; k < site.sources.size(); ++k) {
        const EffectSource& source = site.sources[k];
        if (source.constant || source.depth < depth || (source.is_logged && !is_event)) continue;
        const FunctionUse& use = *site.path[source.depth];
        out.push_back(
            {s, EventPart::kOperand, k,
             TypeAt(site, Varied(use.f.types[source.value], use.f.scope), source.depth, depth)});
      }
    }
    return out;
  }

  static Value& PartOf(Event& event, const EventPart& part) {
    return part.kind == EventPart::kIsRun   ? event.is_run
           : part.kind == EventPart::kClock ? event.clock
                                            : event.operands[part.operand];
  }

  // Copies an op with effects in its regions. The operands and the results of the copy are those of
  // the op, with the clock and the logs among them, and at the end of the results the parts of
  // events. Afterwards the events of the sites in the regions are those that this function sees.
  void CopyOpWithEffects(Frame& frame, const Op& op, const OpWithEffects& inner) {
    const std::vector<Value> in = ElementsAt(frame.env, op.operands);
    const auto num_results = op.results.size();
    const int depth = frame.use.depth + 1;
    if (depth == 1) StartGroup(frame, inner);
    Handover h = HandoverOf(frame, op, inner, in);
    std::vector<Value> operands(in.begin(), in.end() - h.added.operands_after);
    if (h.takes_clock)
      operands.push_back(h.is_manual ? OnDevices(frame.clock, *AnyUse(inner)) : frame.clock);
    for (const int s : h.logs)
      operands.insert(operands.end(), frame.logs.at(s).begin(), frame.logs.at(s).end());
    operands.insert(operands.end(), in.end() - h.added.operands_after, in.end());
    std::vector<FunctionRef> regions;
    for (size_t k = 0; k < op.regions.size(); ++k)
      regions.push_back(CopyRegion(op, k, inner.uses[k].get(), h));
    const std::vector<Value> out =
        frame.b.Emit(*op.def, operands, h.added.attrs, std::move(regions));

    size_t next = num_results - h.added.results_after;
    const auto first_after = out.size() - h.parts.size() - h.added.results_after;
    for (size_t r = 0; r < num_results; ++r)
      frame.env[op.results[r]] = out[r < next ? r : first_after + (r - next)];
    if (h.returns_clock) frame.clock = out[next++];
    if (h.is_manual && frame.clock) frame.clock = Tick(frame.clock, frame.use.manual_depth);
    for (const int s : h.logs)
      for (Value& value : frame.logs.at(s)) value = out[next++];
    next = out.size() - h.parts.size();
    for (int s = inner.first_site; s < inner.end_site; ++s)
      frame.events[s].operands.resize(sites_[s].sources.size());
    for (const EventPart& part : h.parts) PartOf(frame.events[part.site], part) = out[next++];
    for (int s = inner.first_site; s < inner.end_site; ++s) {
      Event& event = frame.events[s];
      const FunctionUse& region = *sites_[s].path[depth];
      if (region.IsBranch() && sites_[s].log_depth < depth && !event.is_run)
        event.is_run = IsChosen(in[inner.flow.branch_index], region);
      TakeOperands(frame, s);
    }
    if (depth == 1) frame.clock = Value();
  }

  // Begins with the logs, and with the clock, of an op of the entry.
  void StartGroup(Frame& frame, const OpWithEffects& inner) {
    for (int s = inner.first_site; s < inner.end_site; ++s) {
      const EffectSite& site = sites_[s];
      if (site.is_ordered) frame.clock = Constant(frame.b, kClockType, 0);
      if (!site.has_log()) continue;
      for (const Type& t : LogTypes(site, 0)) frame.logs[s].push_back(Zeros(frame.b, t));
    }
  }

  static const FunctionUse* AnyUse(const OpWithEffects& inner) {
    for (const std::unique_ptr<FunctionUse>& use : inner.uses)
      if (use) return use.get();
    return nullptr;
  }

  Handover HandoverOf(const Frame& frame, const Op& op, const OpWithEffects& inner,
                      const std::vector<Value>& in) const {
    const FunctionUse& use = *AnyUse(inner);
    Handover h;
    h.is_manual = use.IsManual();
    h.takes_clock = frame.clock.valid();
    h.returns_clock = h.takes_clock && !h.is_manual;
    if (h.takes_clock) h.params.push_back(Varied(MakeType(kClockType, {}), use.f.scope));
    for (int s = inner.first_site; s < inner.end_site; ++s) {
      if (sites_[s].log_depth < use.depth) continue;
      h.logs.push_back(s);
      for (Type& t : LogTypes(sites_[s], use.depth)) h.params.push_back(std::move(t));
    }
    h.parts = PartsReturnedFrom(inner, use.depth);
    const std::vector<Type> types = TypesOf(in);
    const int num_params = static_cast<int>(h.params.size());
    const int num_returned = num_params - (h.takes_clock ? 1 : 0) + (h.returns_clock ? 1 : 0) +
                             static_cast<int>(h.parts.size());
    h.added.attrs = op.attrs;
    if (op.def->add_values != nullptr)
      h.added = op.def->add_values({*op.def, frame.b.scope(), types, op.attrs, op.regions},
                                   num_params, num_returned);
    return h;
  }

  // Returns the clock as an argument of a body on shards, which has a dim for the devices.
  static Value OnDevices(Value clock, const FunctionUse& use) {
    const Type type = TypeOutside(Varied(MakeType(kClockType, {}), use.f.scope), use);
    clock = BroadcastNewDim(clock, 0, type.shape[0]);
    return type.is_sharded() ? Reshard(clock, type.sharding) : clock;
  }

  // Returns whether the op with branches chooses the branch `region`.
  static Value IsChosen(Value index, const FunctionUse& region) {
    const auto last = static_cast<double>(region.owner->uses.size() - 1);
    index = Clamp(FullLike(index, 0), index, FullLike(index, last));
    return Vary(Compare(index, FullLike(index, static_cast<double>(region.region)), "EQ"));
  }

  // Copies region k of an op, with the params and results that `h` adds. The region returns zeros
  // for events that are not its own, such as those of other branches. `use` is null if the region
  // has no effects; the region then hands on the logs as they are.
  FunctionRef CopyRegion(const Op& op, size_t k, const FunctionUse* use, const Handover& h) {
    const Function& region = *op.regions[k];
    Builder b(region.scope, region.name);
    std::vector<Value> args, added;
    const auto add_param = [&](const Type& t) {
      const Value v = b.Param(h.is_manual ? walk::InsertDim(t, 0, 1) : t);
      added.push_back(h.is_manual ? Squeeze(v, {0}) : v);
    };
    for (int p = 0; p <= region.num_params; ++p) {
      if (p == region.num_params - h.added.operands_after)
        for (const Type& t : h.params) add_param(t);
      if (p < region.num_params) args.push_back(b.Param(region.types[p]));
    }
    if (op.def->RoleOf(k) == RegionRole::kPredicate) return b.Build(Inline(b, region, args));

    std::vector<Value> results, returned;
    std::map<int, Event> events;
    if (use == nullptr) {
      results = Inline(b, region, args);
      returned.assign(added.begin() + (h.takes_clock && !h.returns_clock ? 1 : 0), added.end());
    } else {
      Frame frame{*use, b, std::move(args), {}, {}, {}};
      size_t next = 0;
      if (h.takes_clock) frame.clock = added[next++];
      if (h.takes_clock && use->IsLoop()) frame.clock = Tick(frame.clock, use->manual_depth);
      for (const int s : h.logs) {
        const size_t size = LogTypes(sites_[s], use->depth).size();
        frame.logs[s].assign(added.begin() + static_cast<int64_t>(next),
                             added.begin() + static_cast<int64_t>(next + size));
        next += size;
      }
      Copy(frame);
      results = ElementsAt(frame.env, region.results);
      if (h.returns_clock) returned.push_back(frame.clock);
      for (const int s : h.logs)
        returned.insert(returned.end(), frame.logs[s].begin(), frame.logs[s].end());
      events = std::move(frame.events);
    }
    std::vector<Value> parts;
    for (const EventPart& part : h.parts) {
      const auto event = events.find(part.site);
      const bool is_here = event != events.end() && PartOf(event->second, part).valid();
      parts.push_back(is_here ? PartOf(event->second, part) : Zeros(b, part.type));
    }
    if (h.is_manual)
      for (std::vector<Value>* values : {&returned, &parts})
        for (Value& v : *values) v = ExpandDims(v, {0});
    results.insert(results.end() - h.added.results_after, returned.begin(), returned.end());
    results.insert(results.end(), parts.begin(), parts.end());
    return b.Build(results);
  }

  // Adds what is recorded of a site to the results of the entry.
  EffectRecord RecordOf(Frame& frame, int s, size_t num_results, std::vector<Value>* results) {
    EffectSite& site = sites_[s];
    const Event& event = frame.events[s];
    EffectRecord record = std::move(site.record);
    const auto source_of = [&](Value value, int depth, bool has_runs) {
      const auto begin = results->begin() + static_cast<int64_t>(num_results);
      const auto found = std::find(begin, results->end(), value);
      const auto result = static_cast<int>(found - begin);
      if (found == results->end()) results->push_back(value);
      return EffectRecord::Source{std::nullopt, result, site.ManualDepth(depth), has_runs};
    };
    const std::vector<Value> log = site.has_log() ? frame.logs.at(s) : std::vector<Value>();
    size_t next = 1;
    if (site.has_log()) {
      if (!site.is_exact) record.count = source_of(log[0], site.log_depth, /*has_runs=*/false);
      if (site.is_ordered) record.clock = source_of(log[next++], site.log_depth, /*has_runs=*/true);
    } else {
      if (event.is_run)
        record.count = source_of(Convert(event.is_run, kCountType), site.DepthOfInnermostBranch(0),
                                 /*has_runs=*/false);
      if (site.is_ordered)
        record.clock = source_of(event.clock, site.use().depth, /*has_runs=*/false);
    }
    for (size_t k = 0; k < site.sources.size(); ++k) {
      EffectSource& source = site.sources[k];
      if (source.constant) {
        record.operands.push_back({std::move(source.constant)});
      } else if (source.is_logged) {
        record.operands.push_back(source_of(log.at(next++), site.log_depth, /*has_runs=*/true));
      } else {
        record.operands.push_back(source_of(event.operands[k], source.depth, /*has_runs=*/false));
      }
    }
    return record;
  }

  std::vector<EffectSite>& sites_;
  int manual_depth_ = 0;  // the largest number of shard_maps around a site
};

}  // namespace

absl::StatusOr<FunctionWithRecord> RecordEffects(const Function& f, const RecordLimits& limits) {
  return CatchStatusOr([&] {
    EffectFinder finder(f, limits);
    return Recorder(&finder.sites()).Run(finder.entry(), limits);
  });
}

}  // namespace tessera::ir
