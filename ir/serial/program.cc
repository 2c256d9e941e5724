// Programs as protobuf messages. The client writes them, the server reads them first in its jail (a
// process for untrusted bytes) and then again itself (docs/decisions/0019), and the coordinator
// sends device programs to executors in this form.
#include "ir/serial/program.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "ir/builder.h"
#include "ir/literal.h"
#include "ir/op_def.h"
#include "ir/op_usage.h"
#include "ir/registry.h"

namespace tessera::ir::serial {
namespace {

// These bounds are far above any real program. Each bounds memory that is still held after the
// request.
constexpr int kFilesMax = 1024;
constexpr size_t kFileNameMax = 256;
constexpr size_t kNameMax = 256;
constexpr int kFunctionsMax = 100'000;

absl::Status Malformed(const std::string& what) {
  return MakeError(ErrorKind::kMalformedProgram, absl::StrCat("program: ", what));
}
absl::Status TooMany(absl::string_view what, int64_t got, int64_t limit) {
  return MakeError(ErrorKind::kLimitExceeded,
                   absl::StrCat("program: ", got, " ", what, ", at most ", limit, " are accepted"));
}
// Quotes an untrusted text for a message, escaped and truncated.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::CEscape(absl::string_view(text).substr(0, 64)), "'");
}

// ---- Writing. -----------------------------------------------------------------------------------
void WriteDims(const DimAxes& dims, const std::vector<bool>& open,
               google::protobuf::RepeatedPtrField<v1::DimSharding>* out) {
  for (size_t d = 0; d < std::max(dims.size(), open.size()); ++d) {
    v1::DimSharding* dim = out->Add();
    if (d < dims.size()) dim->mutable_axes()->Assign(dims[d].begin(), dims[d].end());
    dim->set_open(d < open.size() && open[d]);
  }
}

v1::Type ToProto(const Type& type) {
  v1::Type out;
  out.set_dtype(std::string(DTypeName(type.dtype)));
  out.mutable_shape()->Assign(type.shape.begin(), type.shape.end());
  out.set_weak(type.weak);
  WriteDims(type.sharding, {}, out.mutable_sharding());
  out.mutable_varying()->Assign(type.varying.begin(), type.varying.end());
  out.mutable_unreduced()->Assign(type.unreduced.begin(), type.unreduced.end());
  out.mutable_reduced()->Assign(type.reduced.begin(), type.reduced.end());
  return out;
}

// Writes the alternative that the value holds. The chain of types must name each alternative of
// AttrValue; the static_assert at its end fails if one is added and not handled here.
void WriteAttribute(const std::string& name, const AttrValue& value, v1::Attribute* out) {
  out->set_name(name);
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool>) {
          out->set_bool_value(v);
        } else if constexpr (std::is_same_v<T, int64_t>) {
          out->set_int_value(v);
        } else if constexpr (std::is_same_v<T, double>) {
          out->set_double_value(v);
        } else if constexpr (std::is_same_v<T, std::string>) {
          out->set_string_value(v);
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          out->mutable_ints()->mutable_values()->Assign(v.begin(), v.end());
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          out->mutable_strings()->mutable_values()->Assign(v.begin(), v.end());
        } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
          out->mutable_bools();
          for (bool b : v) out->mutable_bools()->add_values(b);
        } else if constexpr (std::is_same_v<T, DType>) {
          out->set_dtype(std::string(DTypeName(v)));
        } else if constexpr (std::is_same_v<T, Array>) {
          *out->mutable_literal() = serial::ToProto(v);
        } else if constexpr (std::is_same_v<T, PartitionSpec>) {
          *out->mutable_spec() = serial::ToProto(v);
        } else {
          static_assert(std::is_same_v<T, std::vector<PartitionSpec>>);
          out->mutable_specs();
          for (const PartitionSpec& s : v) *out->mutable_specs()->add_values() = serial::ToProto(s);
        }
      },
      value);
}

class Writer {
 public:
  explicit Writer(v1::Program* out) : out_(out) {}

  // Returns the index of `f` in the program. A function shared by several ops is written once.
  int WriteFunction(const Function& f) {
    if (auto it = index_.find(&f); it != index_.end()) return it->second;
    v1::Function fn;
    fn.set_name(f.name);
    *fn.mutable_mesh() = serial::ToProto(f.scope.mesh);
    fn.set_check_vma(f.scope.check_vma);
    std::vector<int> value_index(f.types.size(), -1);
    int next = 0;
    for (; next < f.num_params; ++next) {
      value_index[next] = next;
      *fn.add_params() = ToProto(f.types[next]);
    }
    for (size_t i = 0; i < f.ops.size(); ++i) {
      const Op& op = f.ops[i];
      v1::Op* o = fn.add_ops();
      o->set_name(std::string(op.def->name));
      for (ValueId v : op.operands) o->add_operands(value_index[v]);
      for (ValueId r : op.results) value_index[r] = next++;
      o->set_num_results(static_cast<int>(op.results.size()));
      for (const auto& [name, value] : op.attrs.map())
        WriteAttribute(name, value, o->add_attributes());
      for (const FunctionRef& region : op.regions) o->add_regions(WriteFunction(*region));
      if (i < f.sites.size() && f.sites[i].valid()) {
        o->set_file(FileIndex(f.sites[i].file));
        if (o->file() != 0) o->set_line(f.sites[i].line);
      }
    }
    for (ValueId r : f.results) fn.add_results(value_index[r]);
    *out_->add_functions() = std::move(fn);
    return index_[&f] = out_->functions_size() - 1;
  }

 private:
  // Returns the index of a file name in the message's table, plus one, or 0 if the table is full.
  int FileIndex(const char* file) {
    auto [it, added] = files_.try_emplace(file, out_->files_size() + 1);
    if (!added) return it->second;
    if (out_->files_size() >= kFilesMax) return it->second = 0;
    std::string name(file);
    if (name.size() > kFileNameMax) name = name.substr(name.size() - kFileNameMax);
    out_->add_files(std::move(name));
    return it->second;
  }

  v1::Program* out_;
  std::unordered_map<const Function*, int> index_;
  std::unordered_map<const char*, int> files_;
};

void WriteShardings(const std::vector<std::optional<PartitionSpec>>& shardings,
                    google::protobuf::RepeatedPtrField<v1::OptionalSharding>* out) {
  for (const auto& s : shardings) {
    v1::OptionalSharding* o = out->Add();
    if (s) *o->mutable_spec() = serial::ToProto(*s);
  }
}

// ---- Reading. -----------------------------------------------------------------------------------
absl::StatusOr<AxisList> ReadAxes(const google::protobuf::RepeatedPtrField<std::string>& axes,
                                  const Limits& limits) {
  if (axes.size() > limits.rank * 4)
    return TooMany("axes in one sharding", axes.size(), limits.rank * 4);
  for (const std::string& a : axes)
    if (a.empty() || a.size() > kNameMax) return Malformed("an axis name is empty or too long");
  return AxisList(axes.begin(), axes.end());
}

absl::StatusOr<AxisSet> ReadAxisSet(const google::protobuf::RepeatedPtrField<std::string>& axes,
                                    const Limits& limits) {
  TESSERA_ASSIGN_OR_RETURN(AxisList list, ReadAxes(axes, limits));
  return AxisSet(list.begin(), list.end());
}

absl::StatusOr<DimAxes> ReadDims(const google::protobuf::RepeatedPtrField<v1::DimSharding>& dims,
                                 const Limits& limits) {
  if (dims.size() > limits.rank) return TooMany("dims in one sharding", dims.size(), limits.rank);
  DimAxes out;
  for (const v1::DimSharding& d : dims) {
    TESSERA_ASSIGN_OR_RETURN(AxisList axes, ReadAxes(d.axes(), limits));
    out.push_back(std::move(axes));
  }
  return out;
}

absl::StatusOr<Type> ReadType(const v1::Type& proto, const Limits& limits) {
  Type t;
  TESSERA_ASSIGN_OR_RETURN(t.dtype, DTypeFromName(proto.dtype()));
  TESSERA_RETURN_IF_ERROR(CheckDims(proto.shape(), t.dtype, limits));
  t.shape.assign(proto.shape().begin(), proto.shape().end());
  t.weak = proto.weak();
  TESSERA_ASSIGN_OR_RETURN(t.sharding, ReadDims(proto.sharding(), limits));
  if (!t.sharding.empty() && t.sharding.size() != t.shape.size())
    return Malformed(absl::StrCat("a type of rank ", t.shape.size(), " has shardings for ",
                                  t.sharding.size(), " dims"));
  TESSERA_ASSIGN_OR_RETURN(t.varying, ReadAxisSet(proto.varying(), limits));
  TESSERA_ASSIGN_OR_RETURN(t.unreduced, ReadAxisSet(proto.unreduced(), limits));
  TESSERA_ASSIGN_OR_RETURN(t.reduced, ReadAxisSet(proto.reduced(), limits));
  Normalize(&t);
  return t;
}

// Reads one attribute by the field that is set. The size of the whole message is tested first,
// which bounds all lists; literals and specs have readers with checks of their own.
absl::StatusOr<AttrValue> ReadAttribute(const v1::Attribute& proto, const Limits& limits) {
  const int64_t size = static_cast<int64_t>(proto.ByteSizeLong());
  if (size > limits.attr_bytes + 1024)
    return TooMany("bytes in one attribute", size, limits.attr_bytes);
  switch (proto.value_case()) {
    case v1::Attribute::kBoolValue:
      return AttrValue(proto.bool_value());
    case v1::Attribute::kIntValue:
      return AttrValue(proto.int_value());
    case v1::Attribute::kDoubleValue:
      return AttrValue(proto.double_value());
    case v1::Attribute::kStringValue:
      return AttrValue(proto.string_value());
    case v1::Attribute::kInts:
      return AttrValue(
          std::vector<int64_t>(proto.ints().values().begin(), proto.ints().values().end()));
    case v1::Attribute::kStrings:
      return AttrValue(std::vector<std::string>(proto.strings().values().begin(),
                                                proto.strings().values().end()));
    case v1::Attribute::kBools:
      return AttrValue(
          std::vector<bool>(proto.bools().values().begin(), proto.bools().values().end()));
    case v1::Attribute::kDtype: {
      TESSERA_ASSIGN_OR_RETURN(DType dtype, DTypeFromName(proto.dtype()));
      return AttrValue(dtype);
    }
    case v1::Attribute::kLiteral: {
      TESSERA_ASSIGN_OR_RETURN(Array array, FromProto(proto.literal(), limits.attr_bytes, limits));
      return AttrValue(std::move(array));
    }
    case v1::Attribute::kSpec: {
      TESSERA_ASSIGN_OR_RETURN(PartitionSpec spec, FromProto(proto.spec(), limits));
      return AttrValue(std::move(spec));
    }
    case v1::Attribute::kSpecs: {
      std::vector<PartitionSpec> specs;
      for (const v1::PartitionSpec& s : proto.specs().values()) {
        TESSERA_ASSIGN_OR_RETURN(PartitionSpec spec, FromProto(s, limits));
        specs.push_back(std::move(spec));
      }
      return AttrValue(std::move(specs));
    }
    case v1::Attribute::VALUE_NOT_SET:
      break;
  }
  return Malformed(absl::StrCat("attribute ", Quoted(proto.name()), " has no value"));
}

// Rebuilds the functions of a program, in order.
class Reader {
 public:
  Reader(const v1::Program& proto, const Limits& limits) : proto_(proto), limits_(limits) {}

  absl::StatusOr<FunctionRef> Read() {
    if (proto_.functions().empty()) return Malformed("it has no function");
    if (proto_.functions_size() > kFunctionsMax)
      return TooMany("functions", proto_.functions_size(), kFunctionsMax);
    if (proto_.files_size() > kFilesMax) return TooMany("files", proto_.files_size(), kFilesMax);
    for (const std::string& file : proto_.files()) {
      if (file.size() > kFileNameMax)
        return TooMany("bytes in a file name", static_cast<int64_t>(file.size()), kFileNameMax);
      files_.push_back(InternFile(file));
    }
    for (const v1::Function& f : proto_.functions()) {
      FunctionRef built;
      TESSERA_RETURN_IF_ERROR(CatchStatus([&] { return ReadFunction(f, &built); }));
      functions_.push_back(std::move(built));
    }
    return functions_.back();
  }

 private:
  // Rebuilds one function through a Builder, so that its types are inferred and not believed.
  // Regions refer to earlier functions only, which excludes cycles. The counts of ops and depth
  // include the regions at every use: shared functions could otherwise make a short message stand
  // for an exponential program.
  absl::Status ReadFunction(const v1::Function& proto, FunctionRef* built) {
    if (proto.name().size() > kNameMax)
      return TooMany("bytes in a function's name", static_cast<int64_t>(proto.name().size()),
                     kNameMax);
    Scope scope;
    TESSERA_ASSIGN_OR_RETURN(scope.mesh, FromProto(proto.mesh(), limits_));
    scope.check_vma = proto.check_vma();
    Builder b(std::move(scope), proto.name());
    if (proto.params_size() > limits_.values_per_op)
      return TooMany("params of one function", proto.params_size(), limits_.values_per_op);
    std::vector<Value> values;
    for (const v1::Type& p : proto.params()) {
      TESSERA_ASSIGN_OR_RETURN(Type type, ReadType(p, limits_));
      values.push_back(b.Param(std::move(type)));
    }
    // The number of ops, including those in regions, and the depth of regions. A region counts at
    // each use.
    int64_t ops = proto.ops_size();
    int64_t depth = 1;
    if (ops > limits_.ops) return TooMany("ops", ops, limits_.ops);
    for (const v1::Op& op : proto.ops()) {
      std::vector<FunctionRef> regions;
      if (op.regions_size() > limits_.values_per_op)
        return TooMany("regions of one op", op.regions_size(), limits_.values_per_op);
      for (int r : op.regions()) {
        if (r < 0 || r >= static_cast<int>(functions_.size()))
          return Malformed(absl::StrCat(Quoted(op.name()), " refers to function ", r,
                                        ", which does not come before it"));
        regions.push_back(functions_[r]);
        // Count a region as one op more: even a region without ops takes some work to read.
        ops += 1 + ops_[r];
        depth = std::max(depth, depth_[r] + 1);
        if (ops > limits_.ops) return TooMany("ops", ops, limits_.ops);
        if (depth > limits_.region_depth)
          return TooMany("levels of nested functions", depth, limits_.region_depth);
      }
      TESSERA_RETURN_IF_ERROR(WithSite(ReadOp(op, std::move(regions), &b, &values), op));
    }
    if (proto.results_size() > limits_.values_per_op)
      return TooMany("results of one function", proto.results_size(), limits_.values_per_op);
    std::vector<Value> results;
    for (int r : proto.results()) {
      TESSERA_ASSIGN_OR_RETURN(Value v, ValueAt(values, r, "a result"));
      results.push_back(v);
    }
    *built = b.Build(results);
    ops_.push_back(ops);
    depth_.push_back(depth);
    return absl::OkStatus();
  }

  // Appends the source location in the form that the Builder's own errors have.
  absl::Status WithSite(const absl::Status& status, const v1::Op& op) const {
    if (status.ok() || op.file() < 1 || op.file() > static_cast<int>(files_.size())) return status;
    const Site site{files_[op.file() - 1], op.line()};
    if (!site.valid()) return status;
    absl::Status out(status.code(), absl::StrCat(status.message(), " (", site.ToString(), ")"));
    status.ForEachPayload(
        [&](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
    return out;
  }

  // Reads one op and emits it. All indices and sizes come from the message and are checked here;
  // names, attributes and types are checked by the table of ops and the builder. The result count
  // in the message must agree with the inferred one, since later ops refer to values by number.
  absl::Status ReadOp(const v1::Op& proto, std::vector<FunctionRef> regions, Builder* b,
                      std::vector<Value>* values) {
    const OpDef* def = proto.name().size() <= kNameMax ? FindOp(proto.name()) : nullptr;
    if (def == nullptr)
      return MakeError(
          ErrorKind::kUnknownOp,
          absl::StrCat("program: op ", Quoted(proto.name()), " is not in this server's op set ",
                       kOpset, SuggestOps(proto.name().substr(0, kNameMax))));
    if (proto.operands_size() > limits_.values_per_op)
      return TooMany("operands of one op", proto.operands_size(), limits_.values_per_op);
    std::vector<Value> operands;
    for (int v : proto.operands()) {
      TESSERA_ASSIGN_OR_RETURN(Value value, ValueAt(*values, v, proto.name()));
      operands.push_back(value);
    }
    Attrs attrs;
    for (const v1::Attribute& a : proto.attributes()) {
      if (a.name().size() > kNameMax || attrs.Has(a.name()))
        return Malformed(absl::StrCat(Quoted(proto.name()), ": attribute ", Quoted(a.name()),
                                      " is given twice or has too long a name"));
      TESSERA_ASSIGN_OR_RETURN(AttrValue value, ReadAttribute(a, limits_));
      attrs.Set(a.name(), std::move(value));
    }
    Site site;
    if (proto.file() != 0) {
      if (proto.file() < 0 || proto.file() > static_cast<int>(files_.size()) || proto.line() < 0)
        return Malformed(absl::StrCat(Quoted(proto.name()), ": refers to file ", proto.file(),
                                      " of ", files_.size(), ", or to a negative line"));
      site = Site{files_[proto.file() - 1], proto.line()};
    }
    b->SetSite(site);
    std::vector<Value> results = b->Emit(*def, operands, std::move(attrs), std::move(regions));
    if (static_cast<int>(results.size()) != proto.num_results())
      return Malformed(absl::StrCat(Quoted(proto.name()), " has ", results.size(),
                                    " results, the program says ", proto.num_results()));
    if (static_cast<int64_t>(results.size()) > limits_.values_per_op)
      return TooMany("results of one op", static_cast<int64_t>(results.size()),
                     limits_.values_per_op);
    for (const Value& v : results)
      if (v.rank() > limits_.rank) return TooMany("dims", v.rank(), limits_.rank);
    values->insert(values->end(), results.begin(), results.end());
    return absl::OkStatus();
  }

  static absl::StatusOr<Value> ValueAt(const std::vector<Value>& values, int index,
                                       const std::string& user) {
    if (index < 0 || index >= static_cast<int>(values.size()))
      return Malformed(absl::StrCat(Quoted(user), " uses value ", index, ", ", values.size(),
                                    " come before it"));
    return values[index];
  }

  const v1::Program& proto_;
  const Limits& limits_;
  std::vector<const char*> files_;
  std::vector<FunctionRef> functions_;
  // For each function, the number of its ops and the depth of its regions, as ReadFunction counts
  // them.
  std::vector<int64_t> ops_, depth_;
};

absl::StatusOr<std::vector<std::optional<PartitionSpec>>> ReadShardings(
    const google::protobuf::RepeatedPtrField<v1::OptionalSharding>& proto, size_t values,
    const char* what, const Limits& limits) {
  std::vector<std::optional<PartitionSpec>> out;
  if (proto.empty()) return out;
  if (static_cast<size_t>(proto.size()) != values)
    return Malformed(absl::StrCat(proto.size(), " ", what, " shardings for ", values, " values"));
  for (const v1::OptionalSharding& s : proto) {
    out.emplace_back();
    if (!s.has_spec()) continue;
    TESSERA_ASSIGN_OR_RETURN(out.back(), FromProto(s.spec(), limits));
  }
  return out;
}

}  // namespace

v1::Mesh ToProto(const Mesh& mesh) {
  v1::Mesh out;
  for (const MeshAxis& a : mesh.axes) {
    v1::MeshAxis* axis = out.add_axes();
    axis->set_name(a.name);
    axis->set_size(a.size);
    axis->set_type(static_cast<v1::AxisType>(a.type));
  }
  return out;
}

v1::PartitionSpec ToProto(const PartitionSpec& spec) {
  v1::PartitionSpec out;
  WriteDims(spec.dims, spec.open, out.mutable_dims());
  out.mutable_unreduced()->Assign(spec.unreduced.begin(), spec.unreduced.end());
  out.mutable_reduced()->Assign(spec.reduced.begin(), spec.reduced.end());
  return out;
}

v1::Literal ToProto(const Array& array) {
  v1::Literal out;
  out.set_dtype(std::string(DTypeName(array.dtype())));
  out.mutable_shape()->Assign(array.shape().begin(), array.shape().end());
  out.set_data(reinterpret_cast<const char*>(array.data()), static_cast<size_t>(array.num_bytes()));
  return out;
}

v1::Program ToProto(const Program& program) {
  v1::Program out;
  out.set_opset(program.opset);
  Writer(&out).WriteFunction(*program.entry);
  WriteShardings(program.in_shardings, out.mutable_in_shardings());
  WriteShardings(program.out_shardings, out.mutable_out_shardings());
  out.mutable_in_names()->Assign(program.in_names.begin(), program.in_names.end());
  out.mutable_out_names()->Assign(program.out_names.begin(), program.out_names.end());
  return out;
}

absl::StatusOr<DType> DTypeFromName(const std::string& name) {
  const auto dtype = name.size() <= kNameMax ? ParseDType(name) : std::nullopt;
  if (!dtype)
    return MakeError(
        ErrorKind::kTypeError,
        absl::StrCat("dtype ", Quoted(name), " is unknown; expected a dtype such as f32"));
  return *dtype;
}

absl::Status CheckDims(absl::Span<const int64_t> dims, DType dtype, const Limits& limits) {
  const auto rank = static_cast<int64_t>(dims.size());
  if (rank > limits.rank) return TooMany("dims", rank, limits.rank);
  int64_t bytes = ByteWidth(dtype);
  for (int64_t d : dims) {
    if (d < 0)
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("shape: a dim has size ", d, "; sizes are 0 or more"));
    // The product of the other dims must not overflow, even if one dim is zero.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(d, 1), &bytes) ||
        bytes >= (int64_t{1} << 62))
      return MakeError(ErrorKind::kLimitExceeded, "shape: the array has 2^62 bytes or more");
  }
  return absl::OkStatus();
}

absl::StatusOr<Mesh> FromProto(const v1::Mesh& proto, const Limits& limits) {
  if (proto.axes_size() > limits.rank)
    return TooMany("axes in one mesh", proto.axes_size(), limits.rank);
  Mesh mesh;
  for (const v1::MeshAxis& a : proto.axes()) {
    if (a.name().size() > kNameMax) return Malformed("an axis name is too long");
    if (a.type() < v1::AXIS_TYPE_AUTO || a.type() > v1::AXIS_TYPE_MANUAL)
      return Malformed(absl::StrCat("mesh axis ", Quoted(a.name()), " has type ",
                                    static_cast<int>(a.type()), ", which is unknown"));
    mesh.axes.push_back({a.name(), a.size(), static_cast<AxisType>(a.type())});
  }
  TESSERA_RETURN_IF_ERROR(CheckMesh(mesh));
  if (mesh.num_devices() > limits.mesh_devices)
    return TooMany("devices in one mesh", mesh.num_devices(), limits.mesh_devices);
  return mesh;
}

absl::StatusOr<PartitionSpec> FromProto(const v1::PartitionSpec& proto, const Limits& limits) {
  PartitionSpec spec;
  TESSERA_ASSIGN_OR_RETURN(spec.dims, ReadDims(proto.dims(), limits));
  std::vector<bool> open;
  for (const v1::DimSharding& d : proto.dims()) open.push_back(d.open());
  if (std::find(open.begin(), open.end(), true) != open.end()) spec.open = std::move(open);
  TESSERA_ASSIGN_OR_RETURN(spec.unreduced, ReadAxes(proto.unreduced(), limits));
  TESSERA_ASSIGN_OR_RETURN(spec.reduced, ReadAxes(proto.reduced(), limits));
  return spec;
}

absl::StatusOr<Array> FromProto(const v1::Literal& proto, int64_t bytes_max, const Limits& limits) {
  TESSERA_ASSIGN_OR_RETURN(DType dtype, DTypeFromName(proto.dtype()));
  TESSERA_RETURN_IF_ERROR(CheckDims(proto.shape(), dtype, limits));
  const int64_t size = static_cast<int64_t>(proto.data().size());
  if (size > bytes_max) return TooMany("bytes in one literal", size, bytes_max);
  Dims shape(proto.shape().begin(), proto.shape().end());
  const int64_t expected = MakeType(dtype, shape).num_bytes();
  if (size != expected)
    return Malformed(absl::StrCat("a literal of type ", MakeType(dtype, shape).ToString(), " has ",
                                  size, " bytes, ", expected, " were expected"));
  Array literal(dtype, std::move(shape),
                {reinterpret_cast<const std::byte*>(proto.data().data()), proto.data().size()});
  if (!HasValidElements(literal))
    return Malformed(absl::StrCat("a literal of type ", ToAbsl(DTypeName(dtype)),
                                  " has a byte that is not a valid element"));
  return literal;
}

absl::StatusOr<Program> FromProto(const v1::Program& proto, const Limits& limits) {
  if (proto.opset() < 1 || proto.opset() > kOpset)
    return MakeError(ErrorKind::kUnknownOp,
                     absl::StrCat("program: written for op set ", proto.opset(),
                                  ", this server knows 1 to ", kOpset));
  Program program;
  program.opset = proto.opset();
  TESSERA_ASSIGN_OR_RETURN(program.entry, Reader(proto, limits).Read());
  TESSERA_ASSIGN_OR_RETURN(
      program.in_shardings,
      ReadShardings(proto.in_shardings(), program.entry->num_params, "argument", limits));
  TESSERA_ASSIGN_OR_RETURN(
      program.out_shardings,
      ReadShardings(proto.out_shardings(), program.entry->results.size(), "result", limits));
  program.in_names.assign(proto.in_names().begin(), proto.in_names().end());
  program.out_names.assign(proto.out_names().begin(), proto.out_names().end());
  TESSERA_RETURN_IF_ERROR(VerifySignature(program));
  return program;
}

}  // namespace tessera::ir::serial
