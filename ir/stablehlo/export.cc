// The walk of an export: it writes the module, its functions and their ops through Module, and
// finds the oldest version of StableHLO that is sufficient. How each op is written is in the rows
// of export_ops.cc.
#include "ir/stablehlo/export.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/spec.h"
#include "ir/stablehlo/exporter.h"

namespace tessera::ir::stablehlo {
namespace {

// Returns a symbol for a name: only letters, digits and a few marks.
std::string SymbolOf(std::string_view name) {
  std::string out(name.substr(0, kValueNameMax));
  for (char& c : out)
    if (!absl::ascii_isalnum(c) && c != '.' && c != '_') c = '_';
  return out.empty() ? "f" : out;
}

using Specs = std::vector<std::optional<PartitionSpec>>;

// Throws if a sharding of the program names an axis twice or an axis that the mesh lacks. The
// verifier does not check this.
void CheckAxes(const Program& program, const Specs& specs, const std::vector<Type>& types,
               std::string (*text_of)(const Program&, size_t)) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!specs[i]) continue;
    const std::optional<SpecFault> fault = FindSpecFault(*specs[i], program.mesh(), types[i].shape);
    if (!fault || fault->kind == SpecFault::kIndivisible) continue;
    Throw(fault->kind == SpecFault::kUnknownAxis ? ErrorKind::kUnknownAxis : ErrorKind::kValueError,
          absl::StrCat("StableHLO: ", text_of(program, i), ": the sharding ", specs[i]->ToString(),
                       " names the axis '", fault->axis,
                       fault->kind == SpecFault::kUnknownAxis ? "', which is not in the mesh "
                                                              : "' twice, of the mesh ",
                       program.mesh().ToString()));
  }
}

}  // namespace

// Writes the module: its attributes, the mesh, the entry function as "main", and every function
// that is called. Locations are registered first so that they get the smallest numbers, which make
// the artifact small. Only Auto axes can be written: Explicit and Manual axes are part of the types
// of values, and StableHLO's types have no axes.
void Exporter::WriteProgram(const Program& program) {
  const Function& entry = *program.entry;
  const Mesh& mesh = entry.scope.mesh;
  if (mesh.AxesOfType(AxisType::kAuto).size() != mesh.axes.size())
    Throw(ErrorKind::kNotImplemented,
          absl::StrCat("StableHLO: only axes of the type Auto can be written, but the mesh is ",
                       mesh.ToString()));
  CheckAxes(program, program.in_shardings, entry.param_types(), ArgumentText);
  CheckAxes(program, program.out_shardings, entry.result_types(), ResultText);
  module_.Location({});
  module_.PlainText(SymbolOf(entry.name));
  for (const std::string& name : program.in_names) module_.NamedLocation(name);
  RegisterLocations(entry);
  const uint32_t nowhere = module_.Location({});
  const uint32_t module =
      module_.BeginOp("builtin", "module", {}, {},
                      {{"sym_name", module_.PlainText(SymbolOf(entry.name))}}, nowhere, 1);
  module_.Isolate(module);
  module_.BeginRegion(module, 0, {});
  if (!mesh.empty()) {
    module_.SetCarried(module,
                       module_.PlainDictionaryOfInt("mhlo.num_partitions",
                                                    static_cast<int32_t>(mesh.num_devices())));
    module_.BeginOp("sdy", "mesh", {}, {},
                    {{"mesh", module_.MeshAttr(mesh)}, {"sym_name", module_.PlainText("mesh")}},
                    nowhere);
  }
  WriteFunction(entry, "main", &program);
  // Writing a function may add further called functions.
  for (; !called_.empty(); called_.pop_front()) {
    const auto [f, name] = called_.front();
    WriteFunction(*f, name, nullptr);
  }
  module_.EndRegion(module, 0);
  module_.EndOp(module);
}

void Exporter::RegisterLocations(const Function& f) {
  if (!located_.insert(&f).second) return;
  for (const Site& site : f.sites) module_.Location(site);
  for (const Op& op : f.ops)
    for (const FunctionRef& region : op.regions) RegisterLocations(*region);
}

// The key for a result's name is the one of jax.export.
uint32_t Exporter::CarriedAttrs(const std::vector<Type>& types,
                                const std::vector<std::string>& names,
                                const std::vector<std::optional<PartitionSpec>>& shardings) {
  ValueIds each;
  bool has_entries = false;
  for (size_t i = 0; i < types.size(); ++i) {
    std::vector<std::pair<uint32_t, uint32_t>> entries;
    if (i < names.size() && !names[i].empty()) {
      const uint32_t key = module_.Text("jax.result_info");
      entries.emplace_back(key, module_.Text(names[i]));
    }
    if (i < shardings.size() && shardings[i]) {
      const uint32_t key = module_.Text("sdy.sharding");
      entries.emplace_back(key, Sharding(*shardings[i], types[i].rank()));
    }
    has_entries |= !entries.empty();
    each.push_back(module_.Dictionary(entries));
  }
  return module_.List(has_entries ? each : ValueIds());
}

// Writes one function with its arguments, results and ops. The entry is public and carries the
// shardings and the names of the program; other functions carry nothing. Argument names are
// locations, as in artifacts of JAX.
void Exporter::WriteFunction(const Function& f, std::string_view name, const Program* program) {
  ValueIds params, results;
  for (int i = 0; i < f.num_params; ++i) params.push_back(module_.TensorType(f.type(i)));
  for (const ValueId id : f.results) results.push_back(module_.TensorType(f.type(id)));
  ValueIds locations;
  if (program != nullptr)
    for (const std::string& in_name : program->in_names)
      locations.push_back(in_name.empty() ? module_.Location({}) : module_.NamedLocation(in_name));
  location_ = module_.Location({});
  const bool is_main = program != nullptr;
  const uint32_t arg_attrs =
      CarriedAttrs(f.param_types(), {}, is_main ? program->in_shardings : Specs());
  const uint32_t res_attrs =
      CarriedAttrs(f.result_types(), is_main ? program->out_names : std::vector<std::string>(),
                   is_main ? program->out_shardings : Specs());
  const uint32_t op =
      BeginOp("vhlo", "func", {}, {},
              {{"arg_attrs", arg_attrs},
               {"function_type", module_.TypeAttr(module_.FunctionType(params, results))},
               {"res_attrs", res_attrs},
               {"sym_name", module_.Text(name)},
               {"sym_visibility", module_.Text(is_main ? "public" : "private")}},
              1);
  module_.Isolate(op);
  const ValueIds returned = Inline(f, module_.BeginRegion(op, 0, params, locations));
  BeginOp("vhlo", "return", returned, {}, {});
  module_.EndRegion(op, 0);
  module_.EndOp(op);
}

ValueIds Exporter::Inline(const Function& f, const ValueIds& args) {
  ValueIds values(f.types.size(), kNone);
  std::copy(args.begin(), args.end(), values.begin());
  const uint32_t outer = location_;
  const Site outer_site = site_;
  for (size_t i = 0; i < f.ops.size(); ++i) {
    const Op& op = f.ops[i];
    if (i < f.sites.size() && f.sites[i].valid()) {
      site_ = f.sites[i];
      location_ = module_.Location(site_);
    }
    const ValueIds results = WriteOp({f, op, ElementsAt(values, op.operands)});
    for (size_t r = 0; r < results.size(); ++r) values[op.results[r]] = results[r];
    location_ = outer;
    site_ = outer_site;
  }
  return ElementsAt(values, f.results);
}

uint32_t Exporter::BeginOp(std::string_view dialect, std::string_view name,
                           absl::Span<const uint32_t> operands,
                           absl::Span<const uint32_t> result_types, const Module::NamedAttrs& attrs,
                           size_t num_regions) {
  // Inlined functions may add up to more ops than the program has.
  if (module_.num_ops() >= limits_.ops || module_.num_regions() + num_regions > limits_.ops)
    Throw(ErrorKind::kLimitExceeded,
          absl::StrCat("StableHLO: the program takes more than ", limits_.ops, " ops or regions"));
  return module_.BeginOp(dialect, name, operands, result_types, attrs, location_,
                         static_cast<int>(num_regions));
}

ValueIds Exporter::Emit(std::string_view name, absl::Span<const uint32_t> in,
                        const std::vector<Type>& out, const Module::NamedAttrs& attrs,
                        const std::vector<Region>& regions) {
  ValueIds types;
  for (const Type& type : out) types.push_back(module_.TensorType(type));
  const uint32_t op = BeginOp("vhlo", name, in, types, attrs, regions.size());
  for (size_t r = 0; r < regions.size(); ++r) {
    ValueIds params;
    for (const Type& type : regions[r].params) params.push_back(module_.TensorType(type));
    const ValueIds returned =
        regions[r].write(module_.BeginRegion(op, static_cast<int>(r), params));
    BeginOp("vhlo", "return", returned, {}, {});
    module_.EndRegion(op, static_cast<int>(r));
  }
  module_.EndOp(op);
  return module_.ResultsOf(op);
}

// Writes a custom call in the form of JAX's FFI for CPUs: typed operands and results with
// column-major layouts, and the arguments of the routine in a dictionary. JAX finds the routine by
// the target's name.
ValueIds Exporter::CustomCall(std::string_view target, absl::Span<const uint32_t> in,
                              const std::vector<Type>& in_types, const std::vector<Type>& out,
                              const Module::NamedAttrs& config) {
  int rank = 0;
  for (const Type& t : in_types) rank = std::max(rank, t.rank());
  const auto layouts = [&](const std::vector<Type>& types) {
    ValueIds each;
    for (const Type& t : types) {
      std::vector<int64_t> order(t.rank());
      for (int d = 0; d < t.rank(); ++d) order[d] = t.rank() - 1 - d;
      if (t.rank() == rank) std::swap(order[0], order[1]);
      each.push_back(module_.Layout(order));
    }
    return module_.List(each);
  };
  std::vector<std::pair<uint32_t, uint32_t>> arguments;
  for (const auto& [name, attr] : config) arguments.emplace_back(module_.Text(name), attr);
  // The order of these is the order in which attributes are encoded.
  const uint32_t version = module_.Enum(AttrKind::kCustomCallApiVersion, 1);
  const uint32_t none = module_.Text(""), name = module_.Text(target), empty = module_.List({});
  const uint32_t no = module_.Bool(false), of_operands = layouts(in_types);
  const Module::NamedAttrs attrs = {
      {"api_version", version},          {"backend_config", none},
      {"call_target_name", name},        {"called_computations", empty},
      {"has_side_effect", no},           {"operand_layouts", of_operands},
      {"output_operand_aliases", empty}, {"result_layouts", layouts(out)}};
  ValueIds types;
  for (const Type& type : out) types.push_back(module_.TensorType(type));
  const uint32_t op = BeginOp("vhlo", "custom_call", in, types, attrs);
  // The dictionary is written even if it is empty, since it says that the call is a typed one.
  const uint32_t dictionary = module_.Dictionary(arguments);
  module_.SetCarried(op, module_.PlainDictionaryOfAttr("mhlo.backend_config", dictionary));
  module_.EndOp(op);
  return module_.ResultsOf(op);
}

uint32_t Exporter::Cast(uint32_t value, uint32_t type) {
  const uint32_t op = BeginOp("builtin", "unrealized_conversion_cast", {value}, {type}, {});
  return module_.ResultsOf(op)[0];
}

uint32_t Exporter::Sharding(const PartitionSpec& spec, int rank) {
  if (!spec.unreduced.empty() || !spec.reduced.empty())
    Throw(ErrorKind::kNotImplemented,
          absl::StrCat("StableHLO: the sharding ", spec.ToString(),
                       " has unreduced or reduced axes, which cannot be written"));
  return module_.Sharding(spec, rank);
}

// Wraps an op of Shardy into casts, because Shardy's ops take MLIR's own tensor types and the
// values around it have VHLO's. Operands are cast before the op, results after it, and the same is
// done at the border of its region.
ValueIds Exporter::EmitShardy(std::string_view name, const ValueIds& operands,
                              const std::vector<Type>& in, const std::vector<Type>& out,
                              const Module::NamedAttrs& attrs, const ShardyRegion* region) {
  const auto plain = [&](const Type& type) { return module_.PlainTensorType(type); };
  const auto to_vhlo = [&](absl::Span<const uint32_t> values, const std::vector<Type>& types) {
    ValueIds cast;
    for (size_t i = 0; i < values.size(); ++i)
      cast.push_back(Cast(values[i], module_.TensorType(types[i])));
    return cast;
  };
  const auto to_builtin = [&](absl::Span<const uint32_t> values,
                              const std::vector<uint32_t>& types) {
    ValueIds cast;
    for (size_t i = 0; i < values.size(); ++i) cast.push_back(Cast(values[i], types[i]));
    return cast;
  };
  std::vector<uint32_t> in_types, out_types, param_types, return_types;
  for (const Type& type : in) in_types.push_back(plain(type));
  for (const Type& type : out) out_types.push_back(plain(type));
  const ValueIds inputs = to_builtin(operands, in_types);
  const uint32_t op = BeginOp("sdy", name, inputs, out_types, attrs, region == nullptr ? 0 : 1);
  if (region != nullptr) {
    const std::vector<Type>& params = region->region.params;
    for (const Type& type : params) param_types.push_back(plain(type));
    const ValueIds args = module_.BeginRegion(op, 0, param_types);
    const ValueIds returned = region->region.write(to_vhlo(args, params));
    for (const Type& type : region->results) return_types.push_back(plain(type));
    BeginOp("sdy", "return", to_builtin(returned, return_types), {}, {});
    module_.EndRegion(op, 0);
    module_.Isolate(op);
  }
  module_.EndOp(op);
  return to_vhlo(module_.ResultsOf(op), out);
}

uint32_t Exporter::Groups(const Mesh& mesh, const AxisList& axes) {
  const auto [found, is_new] = groups_.try_emplace(axes, kNone);
  if (!is_new) return found->second;
  std::vector<int64_t> rows;
  for (int64_t device = 0; device < mesh.num_devices(); ++device) {
    if (mesh.IndexAlong(device, axes) != 0) continue;
    const std::vector<int64_t> group = mesh.GroupOf(device, axes);
    rows.insert(rows.end(), group.begin(), group.end());
  }
  const int64_t size = mesh.SizeOf(axes);
  return found->second = module_.Ints(rows, {mesh.num_devices() / size, size});
}

uint32_t Exporter::Constant(const Array& literal) {
  return Emit1("constant", {}, MakeType(literal.dtype(), literal.shape()),
               {{"value", module_.Dense(literal)}});
}

std::string Exporter::NameOf(const FunctionRef& f, std::string_view hint) {
  const auto [found, is_new] = names_.try_emplace(f);
  if (is_new) {
    found->second = absl::StrCat(SymbolOf(hint), "_", names_.size());
    called_.emplace_back(f, found->second);
  }
  return found->second;
}

ValueIds Exporter::Call(const FunctionRef& f, const ValueIds& args) {
  return Emit("call", args, f->result_types(), {{"callee", module_.Text(NameOf(f, f->name))}});
}

ValueIds Exporter::Composite(std::string_view name, const Attrs& attrs,
                             const FunctionRef& decomposition, const ValueIds& args) {
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  for (const auto& [key, value] : attrs.map()) {
    const uint32_t name_of = module_.Text(key);
    if (const auto* number = std::get_if<int64_t>(&value)) {
      entries.emplace_back(name_of, module_.Int(*number));
    } else if (const auto* truth = std::get_if<bool>(&value)) {
      entries.emplace_back(name_of, module_.Bool(*truth));
    } else if (const auto* dtype = std::get_if<DType>(&value)) {
      entries.emplace_back(name_of, module_.ElementType(*dtype));
    }
  }
  return Emit("composite", args, decomposition->result_types(),
              {{"composite_attributes", module_.Dictionary(entries)},
               {"decomposition", module_.Text(NameOf(decomposition, name))},
               {"name", module_.Text(name)},
               {"version", module_.Int(1, DType::kS32)}});
}

FunctionRef Exporter::Decomposition(const SourceOp& op, absl::FunctionRef<FunctionRef()> make) {
  std::vector<KnownDecomposition>& known = decompositions_[op.op.def];
  std::vector<Type> in = op.in_types();
  for (const KnownDecomposition& k : known)
    if (k.in == in && k.attrs == op.attrs()) return k.f;
  known.push_back({op.attrs(), std::move(in), make()});
  return known.back().f;
}

void Exporter::Refuse(const SourceOp& op, std::string_view why) const {
  const std::string site = site_.ToString();
  Throw(ErrorKind::kNotImplemented,
        absl::StrCat("StableHLO: '", ToAbsl(op.op.def->name), "' ", ToAbsl(why),
                     site.empty() ? "" : absl::StrCat(" (", site, ")")));
}

absl::StatusOr<std::string> ExportProgram(const Program& program, const ReadLimits& limits) {
  // Try the oldest version first. If it lacks something, the module says which version to try next.
  for (int target = 0;;) {
    Exporter exporter(target, limits);
    TESSERA_RETURN_IF_ERROR(CatchStatus([&] { exporter.WriteProgram(program); }));
    const int required = exporter.module().required();
    if (required > target) {
      target = required;
      continue;
    }
    std::string bytes = exporter.module().Write();
    if (bytes.size() <= limits.bytes) return bytes;
    return MakeError(ErrorKind::kLimitExceeded,
                     absl::StrCat("StableHLO: the artifact has ", bytes.size(), " bytes, at most ",
                                  limits.bytes, " are read; pass large constants as arguments"));
  }
}

}  // namespace tessera::ir::stablehlo
