// Predicts times for the explanation of a plan. MakePlan calls it on the finished device program,
// so that the prediction includes the exchanges that partitioning has added. The rest of the plan
// does not depend on it.
#include "server/planner/cost.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "ir/derive/factors.h"
#include "ir/dtype.h"
#include "server/planner/bytes.h"
#include "server/planner/uses.h"

namespace tessera::server::planner {
namespace {

using ir::Function;
using ir::Op;
using ir::ValueId;

// ---- Assumed speeds of each kind of device. ----

struct AssumedSpeeds {
  std::string_view kind;
  double flops_per_s, bytes_per_s, narrow_speedup, kernel_start_s;
  core::LinkFigures in_executor, in_host, between_hosts;
};
constexpr double kGiga = 1e9, kMicro = 1e-6;
// The speeds for "cpu" are those of one core of a server with its part of the memory's bandwidth,
// of sockets between the executors of a host, and of 10 Gbit/s Ethernet between hosts. The speeds
// for "gpu" are those of an accelerator with direct links to others in its host, and of a network
// of 200 Gbit/s between hosts.
constexpr AssumedSpeeds kAssumed[] = {
    {"cpu",
     100 * kGiga,
     20 * kGiga,
     2,
     0.2 * kMicro,
     {5 * kGiga, 5 * kMicro},
     {2 * kGiga, 50 * kMicro},
     {1 * kGiga, 100 * kMicro}},
    {"gpu",
     40'000 * kGiga,
     2'500 * kGiga,
     10,
     3 * kMicro,
     {200 * kGiga, 10 * kMicro},
     {200 * kGiga, 10 * kMicro},
     {20 * kGiga, 25 * kMicro}},
};
const AssumedSpeeds& AssumedFor(std::string_view kind) {
  for (const AssumedSpeeds& row : kAssumed)
    if (row.kind == kind) return row;
  return kAssumed[0];
}

// Returns whether the devices are on several hosts of which at least one has several executors.
bool HasLinksOfTwoKinds(const std::vector<core::ClusterSnapshot::Device>& devices) {
  std::map<std::string_view, std::string_view> first_executor;  // by host
  bool shares_host = false;
  for (const core::ClusterSnapshot::Device& d : devices)
    shares_host |= first_executor.try_emplace(d.host, d.executor).first->second != d.executor;
  return shares_host && first_executor.size() > 1;
}

// Returns the slowest link between neighbours along an axis of size `size`. Neighbours are devices
// whose indices in `devices` differ by `stride`.
AxisLink LinkAlong(const AssumedSpeeds& assumed,
                   const std::vector<core::ClusterSnapshot::Device>& devices, int64_t size,
                   int64_t stride, bool has_links_of_two_kinds) {
  using Device = core::ClusterSnapshot::Device;
  bool leaves_executor = false, leaves_host = false;
  for (size_t i = 0; i + stride < devices.size(); ++i) {
    // The last device along the axis has no next neighbour.
    if (static_cast<int64_t>(i) / stride % size == size - 1) continue;
    const Device &a = devices[i], &b = devices[i + stride];
    leaves_executor |= a.executor != b.executor;
    leaves_host |= a.host != b.host;
  }
  AxisLink out{leaves_host       ? assumed.between_hosts
               : leaves_executor ? assumed.in_host
                                 : assumed.in_executor};
  if (leaves_executor && has_links_of_two_kinds) return out;
  core::LinkFigures slowest;
  for (const Device& d : devices) {
    const core::LinkFigures& link = leaves_executor ? d.between_executors : d.in_executor;
    if (link.bytes_per_s > 0 &&
        (slowest.bytes_per_s == 0 || link.bytes_per_s < slowest.bytes_per_s))
      slowest.bytes_per_s = link.bytes_per_s;
    slowest.latency_s = std::max(slowest.latency_s, link.latency_s);
  }
  out.measured = slowest.bytes_per_s > 0 || slowest.latency_s > 0;
  if (slowest.bytes_per_s > 0) out.figures.bytes_per_s = slowest.bytes_per_s;
  if (slowest.latency_s > 0) out.figures.latency_s = slowest.latency_s;
  return out;
}

// ---- Costs. ----

double BytesOf(const Function& f, ValueId v) { return static_cast<double>(f.types[v].num_bytes()); }

// Returns the cost of one run of the op: its cost by the op table, without bytes that it does not
// read.
ir::Cost CostOfRun(const Function& f, const Op& op) {
  ir::Cost cost = ir::CostOf(f, op);
  // An op with an index map only moves elements, and reads only those that it moves, for example
  // one row of a large table. So each operand counts with at most the bytes of the result.
  if (op.def->index_map != nullptr)
    for (const ValueId v : op.operands)
      cost.bytes -= std::max(BytesOf(f, v) - BytesOf(f, op.results[0]), 0.0);
  return cost;
}

// Returns for each value whether it is written to memory. A value is not written if it is computed
// element by element and its only reader is an elementwise op or a reduction, because both run in
// one kernel.
std::vector<bool> StoredValues(const Function& f) {
  std::vector<int> reads(f.types.size(), 0);
  std::vector<bool> stored(f.types.size(), true);
  for (const Op& op : f.ops)
    for (const ValueId v : op.operands) ++reads[v];
  for (const ValueId v : f.results) reads[v] += 2;
  std::vector<bool> may_be_inside(f.types.size(), false);
  for (const Op& op : f.ops) {
    if (op.def->lowering == ir::Lowering::kScalar || op.def->lowering == ir::Lowering::kReduce)
      for (const ValueId v : op.operands)
        if (may_be_inside[v]) stored[v] = false;
    if (op.def->lowering == ir::Lowering::kScalar || op.def->lowering == ir::Lowering::kIndexMap)
      for (const ValueId v : op.results) may_be_inside[v] = reads[v] == 1;
  }
  return stored;
}

class Predictor {
 public:
  explicit Predictor(const Speeds& speeds) : speeds_(speeds) {}

  struct Tally {
    double compute_s = 0, collective_s = 0;
    double flops = 0, bytes = 0;
    bool has_unknown_loops = false;
    std::vector<OpTime> lines;  // one line for each name of an op and call site
    std::map<std::tuple<std::string, const char*, int>, size_t> line_of;

    void Add(OpTime line) {
      (line.is_collective ? collective_s : compute_s) += line.seconds;
      const auto [at, is_new] =
          line_of.try_emplace({line.op, line.site.file, line.site.line}, lines.size());
      if (is_new) {
        lines.push_back(std::move(line));
      } else {
        lines[at->second].runs = Plus(lines[at->second].runs, line.runs);
        lines[at->second].seconds += line.seconds;
      }
    }
    double seconds() const { return compute_s + collective_s; }
  };

  // Adds the time of `runs` runs of the function to the tally.
  void Visit(const Function& f, int64_t runs, Tally* out) const {
    const std::vector<bool> stored = StoredValues(f);
    for (size_t i = 0; i < f.ops.size(); ++i) {
      const Op& op = f.ops[i];
      if (op.def->data_flow) {
        VisitRegions(f, op, runs, out);
        continue;
      }
      const bool is_collective =
          op.def->lowering == ir::Lowering::kCollective && !op.operands.empty();
      const OpCost cost =
          is_collective ? OpCost{CollectiveSeconds(f, op)} : CostOfOp(f, op, stored);
      out->flops += cost.flops * static_cast<double>(runs);
      out->bytes += cost.bytes * static_cast<double>(runs);
      if (cost.seconds > 0)
        out->Add({std::string(op.def->name), f.sites[i], runs,
                  cost.seconds * static_cast<double>(runs), is_collective});
    }
  }

 private:
  void VisitRegions(const Function& f, const Op& op, int64_t runs, Tally* out) const {
    const int64_t trips = ir::DataFlowOf(f, op).trip_count;
    if (trips == ir::kUnknownTripCount) out->has_unknown_loops = true;
    const int64_t region_runs = trips == ir::kUnknownTripCount ? runs : Times(runs, trips);
    if (op.def->RoleOf(0) != ir::RegionRole::kBranch) {
      for (const ir::FunctionRef& region : op.regions) Visit(*region, region_runs, out);
      return;
    }
    Tally longest;
    for (const ir::FunctionRef& branch : op.regions) {
      Tally tally;
      Visit(*branch, region_runs, &tally);
      if (tally.seconds() > longest.seconds()) longest = std::move(tally);
    }
    for (OpTime& line : longest.lines) out->Add(std::move(line));
    out->flops += longest.flops;
    out->bytes += longest.bytes;
    out->has_unknown_loops |= longest.has_unknown_loops;
  }

  // Returns whether the op takes no time: it has no operands, or its result is its operand with
  // another shape.
  static bool IsFree(const Function& f, const Op& op) {
    if (op.operands.empty()) return true;
    if (op.def->lowering != ir::Lowering::kIndexMap || op.operands.size() != 1) return false;
    const std::vector<ir::Type> in = ir::ElementsAt(f.types, op.operands),
                                out = ir::ElementsAt(f.types, op.results);
    const ir::IndexMap map = op.def->index_map({*op.def, f.scope, in, op.attrs, op.regions}, out);
    return map.pieces.size() == 1 && !map.indexes_complex_parts &&
           ir::IsWhole(map.pieces[0], out[0]);
  }

  struct OpCost {
    double seconds = 0, flops = 0, bytes = 0;
  };
  OpCost CostOfOp(const Function& f, const Op& op, const std::vector<bool>& stored) const {
    if (IsFree(f, op)) return {};
    ir::Cost cost = CostOfRun(f, op);
    if (cost.flops == 0 && cost.bytes == 0) return {};
    bool starts_kernel = op.results.empty();
    for (auto v = op.operands.begin(); v != op.operands.end(); ++v)
      if (!stored[*v] || std::find(op.operands.begin(), v, *v) != v)  // x * x reads x once
        cost.bytes -= BytesOf(f, *v);
    for (const ValueId v : op.results) {
      if (!stored[v]) cost.bytes -= BytesOf(f, v);
      starts_kernel |= stored[v];
    }
    double flops_per_s = speeds_.flops_per_s;
    if (op.def->family == ir::Family::kContraction &&
        ir::ByteWidth(f.types[op.operands[0]].dtype) <= 2)
      flops_per_s *= speeds_.narrow_speedup;
    const double bytes = std::max(cost.bytes, 0.0);
    return {std::max(cost.flops / flops_per_s, bytes / speeds_.bytes_per_s) +
                (starts_kernel ? speeds_.kernel_start_s : 0),
            cost.flops, bytes};
  }

  double CollectiveSeconds(const Function& f, const Op& op) const {
    const ir::AxisList& axes = op.attrs.Strings("axes");
    const int64_t n = f.scope.mesh.SizeOf(axes);
    if (n <= 1) return 0;
    core::LinkFigures link{speeds_.bytes_per_s, 0};
    for (const std::string& axis : axes) {
      const auto known = speeds_.links.find(axis);
      if (known == speeds_.links.end() || f.scope.mesh.SizeOf(axis) == 1) continue;
      link.bytes_per_s = std::min(link.bytes_per_s, known->second.figures.bytes_per_s);
      link.latency_s = std::max(link.latency_s, known->second.figures.latency_s);
    }
    const ir::CollectiveInfo& info = ir::InfoOf(op.def->collective);
    double rounds = info.paired ? 1 : std::ceil(std::log2(static_cast<double>(n)));
    if (info.combines && info.in == ir::BlockCount::kOne) rounds *= 2;  // all get the whole sum
    return static_cast<double>(BytesSent(f, op, n)) / link.bytes_per_s + rounds * link.latency_s;
  }

  const Speeds& speeds_;
};

}  // namespace

// All devices run the same program at the same time, so the slowest one sets the pace. Measured and
// assumed speeds of devices are not mixed, because a comparison of the two would mean nothing: if
// one device has measured nothing, the speeds of all devices are assumed. Each link is decided on
// its own.
Speeds SpeedsOf(const core::ClusterSnapshot& cluster, const ir::Mesh& mesh) {
  const std::string kind = !cluster.devices.empty() ? cluster.devices[0].kind : "gpu";
  const AssumedSpeeds& assumed = AssumedFor(kind);
  Speeds out{.kind = std::string(assumed.kind),
             .narrow_speedup = assumed.narrow_speedup,
             .kernel_start_s = assumed.kernel_start_s,
             .measured = !cluster.devices.empty(),
             .links = {}};
  for (const core::ClusterSnapshot::Device& d : cluster.devices) {
    if (d.flops_per_s <= 0 || d.bytes_per_s <= 0) {
      out.measured = false;
      break;
    }
    const auto keep_least = [](double* least, double value) {
      *least = *least > 0 ? std::min(*least, value) : value;
    };
    keep_least(&out.flops_per_s, d.flops_per_s);
    keep_least(&out.bytes_per_s, d.bytes_per_s);
  }
  if (!out.measured) {
    out.flops_per_s = assumed.flops_per_s;
    out.bytes_per_s = assumed.bytes_per_s;
  }
  const bool has_links_of_two_kinds = HasLinksOfTwoKinds(cluster.devices);
  int64_t stride = mesh.num_devices();
  for (const ir::MeshAxis& axis : mesh.axes) {
    stride /= std::max<int64_t>(axis.size, 1);
    out.links[axis.name] = LinkAlong(assumed, cluster.devices, axis.size,
                                     std::max<int64_t>(stride, 1), has_links_of_two_kinds);
  }
  return out;
}

PredictedTime PredictTime(const Function& f, const Speeds& speeds, size_t num_largest) {
  Predictor::Tally tally;
  Predictor(speeds).Visit(f, 1, &tally);
  PredictedTime out{.compute_s = tally.compute_s,
                    .collective_s = tally.collective_s,
                    .flops = tally.flops,
                    .bytes = tally.bytes,
                    .has_unknown_loops = tally.has_unknown_loops,
                    .largest = std::move(tally.lines)};
  std::stable_sort(out.largest.begin(), out.largest.end(),
                   [](const OpTime& a, const OpTime& b) { return a.seconds > b.seconds; });
  if (out.largest.size() > num_largest) out.largest.resize(num_largest);
  return out;
}

}  // namespace tessera::server::planner
