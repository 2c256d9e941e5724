// Turns samples into whole programs and exports them. export_test.cc reads the artifacts back, and
// dump_artifacts.cc writes them for JAX to run.
#include "tests/stablehlo/exports.h"

#include <utility>

#include "base/status_exception.h"
#include "ir/ops.h"
#include "ir/stablehlo/export.h"
#include "ir/strided.h"
#include "tests/ops/programs.h"

namespace tessera::ir::stablehlo {
namespace {

using samples::Sample;

AxisList AxesOf(const Mesh& mesh) {
  AxisList axes;
  for (const MeshAxis& axis : mesh.axes) axes.push_back(axis.name);
  return axes;
}
// Returns the axes over which a value varies, in mesh order.
AxisList VaryingAxes(const Type& type, const Mesh& mesh) {
  AxisList axes;
  for (const std::string& axis : AxesOf(mesh))
    if (type.varying.contains(axis)) axes.push_back(axis);
  return axes;
}
// Returns the spec of an array whose shards are the slices along its first dim.
PartitionSpec SpecOf(const Type& type, const Mesh& mesh) {
  const AxisList axes = VaryingAxes(type, mesh);
  return axes.empty() ? PartitionSpec{} : PartitionSpec{{axes}, {}, {}, {}};
}
Dims WithFirst(int64_t size, const Dims& shape) {
  Dims out = {size};
  out.insert(out.end(), shape.begin(), shape.end());
  return out;
}

Array Joined(const Type& type, const Shards& shards, const Mesh& mesh) {
  const AxisList axes = VaryingAxes(type, mesh);
  if (axes.empty()) return shards[0];
  Array out(type.dtype, WithFirst(mesh.SizeOf(axes), type.shape));
  for (size_t device = 0; device < shards.size(); ++device) {
    Dims at(out.rank(), 0);
    at[0] = mesh.IndexAlong(static_cast<int64_t>(device), axes);
    WriteBlock(&out, at, shards[device].Reshaped(WithFirst(1, type.shape)));
  }
  return out;
}

// Returns a function on whole arrays that runs the op of a sample in Manual code on shards. Throws
// StatusException if an operand or a result is unreduced, because there is no whole array for a
// pending sum.
FunctionRef OnShards(const Sample& s) {
  const Mesh& mesh = s.scope.mesh;
  const AxisList all = AxesOf(mesh);
  Builder b(Scope{mesh.WithAxisType(all, AxisType::kAuto)}, "on_shards");
  std::vector<Value> args;
  std::vector<PartitionSpec> in_specs, out_specs;
  for (const samples::Operand& o : s.operands) {
    if (!o.type.unreduced.empty() || !o.type.reduced.empty())
      Throw(ErrorKind::kNotImplemented, "an operand that is a pending sum has no whole array");
    const AxisList axes = VaryingAxes(o.type, mesh);
    const Dims shape = axes.empty() ? o.type.shape : WithFirst(mesh.SizeOf(axes), o.type.shape);
    args.push_back(b.Param(MakeType(o.type.dtype, shape)));
    in_specs.push_back(SpecOf(o.type, mesh));
  }
  Builder body(ManualScope(b.scope(), all, s.scope.check_vma), "body");
  const std::vector<Type> shards =
      ManualShardTypes(b.scope(), TypesOf(args), in_specs, all, s.scope.check_vma);
  std::vector<Value> in;
  for (size_t i = 0; i < shards.size(); ++i)
    in.push_back(Reshape(body.Param(shards[i]), s.operands[i].type.shape));
  std::vector<Value> results = body.Emit(*s.def, in, s.attrs, s.regions);
  for (Value& r : results) {
    if (!r.type().unreduced.empty() || !r.type().reduced.empty())
      Throw(ErrorKind::kNotImplemented, "a result that is a pending sum has no whole array");
    out_specs.push_back(SpecOf(r.type(), mesh));
    if (!r.type().varying.empty()) r = Reshape(r, WithFirst(1, r.shape()));
  }
  return b.Build(
      ManualComputation(b, body.Build(results), args, in_specs, out_specs, all, s.scope.check_vma));
}

ExportedSample Exported(std::string family, const Sample& s, std::vector<double> ulps) {
  ExportedSample out{std::move(family), &s, std::move(ulps), nullptr, {}, std::string()};
  const absl::Status made =
      CatchStatus([&] { out.function = s.manual() ? OnShards(s) : samples::FunctionOf(s); });
  if (!made.ok()) {
    out.artifact = made;
    return out;
  }
  const std::vector<Shards> args = samples::ArgsOf(s);
  for (size_t i = 0; i < args.size(); ++i)
    out.args.push_back(Joined(s.operands[i].type, args[i], s.scope.mesh));
  Program program{kOpset, out.function, {}, {}};
  if (!program.mesh().empty()) {
    // Every device holds every argument and result whole.
    program.in_shardings.assign(out.function->num_params, PartitionSpec{});
    program.out_shardings.assign(out.function->results.size(), PartitionSpec{});
  }
  out.artifact = ExportProgram(program);
  return out;
}

}  // namespace

void ForEachExport(const std::function<void(const ExportedSample&)>& f) {
  for (const samples::SampleFamily& family : samples::Families())
    for (const Sample& s : family.samples) f(Exported(std::string(family.name), s, {}));
  for (const samples::RandomProgram& p : samples::RandomPrograms())
    f(Exported("programs", p.sample, p.ulps_of_xla));
}

std::vector<Array> ResultsOfEntry(const Sample& s, const std::vector<Shards>& results) {
  const std::vector<Type> types = samples::FunctionOf(s)->result_types();
  std::vector<Array> out;
  for (size_t r = 0; r < results.size(); ++r)
    out.push_back(Joined(types[r], results[r], s.scope.mesh));
  return out;
}

}  // namespace tessera::ir::stablehlo
