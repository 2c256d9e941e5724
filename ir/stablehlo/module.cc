// Encodes attributes, types and ops of an artifact for one version of StableHLO, and remembers
// which version would be needed to express them. Exporter fills it and WriteBytecode turns its
// tables into bytes.
#include "ir/stablehlo/module.h"

#include <bit>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/stablehlo/writer.h"

namespace tessera::ir::stablehlo {
namespace {

// The minor version of StableHLO 1 that introduced a version of an op. Versions that are not listed
// have existed from the start.
struct Since {
  std::string_view name;
  int version, minor;
};
constexpr Since kSince[] = {
    {"all_gather", 2, 5},   {"all_reduce", 2, 5},    {"all_to_all", 2, 5},
    {"cbrt", 2, 10},        {"composite", 2, 14},    {"cosine", 2, 10},
    {"custom_call", 2, 18}, {"dot_general", 2, 6},   {"exponential", 2, 9},
    {"gather", 2, 1},       {"log", 2, 10},          {"exponential_minus_one", 2, 10},
    {"logistic", 2, 10},    {"log_plus_one", 2, 10}, {"rsqrt", 2, 10},
    {"scatter", 2, 1},      {"sine", 2, 10},         {"sqrt", 2, 10},
    {"tan", 1, 4},          {"tan", 2, 10},          {"tanh", 2, 10},
};
// Returns the version to write for a target, and the oldest target that has this version.
std::pair<int, int> VersionFor(std::string_view name, int target) {
  int version = 1, since = 0;
  for (const Since& row : kSince) {
    if (row.name != name || (row.minor > target && row.version > 1)) continue;
    version = row.version;
    since = row.minor;
  }
  return {version, since};
}
// Returns the minor version of StableHLO 1 that introduced the dtype.
int SinceOf(DType dtype) {
  switch (dtype) {
    case DType::kS2:
    case DType::kU2:
      return 2;
    case DType::kF8E4M3:
    case DType::kF8E3M4:
      return 7;
    case DType::kF4E2M1FN:
    case DType::kF8E8M0FNU:
      return 8;
    default:
      return 0;
  }
}

template <class Row, size_t kRows, class F>
uint64_t CodeWhere(const Row (&rows)[kRows], Dialect dialect, const F& is_it) {
  const Row* const row = std::find_if(std::begin(rows), std::end(rows), [&](const Row& r) {
    return r.dialect == dialect && is_it(r);
  });
  TESSERA_CHECK(row != std::end(rows)) << "entries.def has no such encoding";
  return row->code;
}
uint64_t CodeOf(Dialect dialect, AttrKind kind) {
  return CodeWhere(kAttrRows, dialect, [&](const AttrRow& row) { return row.kind == kind; });
}
uint64_t CodeOf(TypeKind kind, Dialect dialect = Dialect::kVhlo) {
  return CodeWhere(kTypeRows, dialect, [&](const TypeRow& row) { return row.kind == kind; });
}
uint64_t CodeOf(DType dtype) {
  return CodeWhere(kTypeRows, Dialect::kVhlo, [&](const TypeRow& row) {
    return row.kind == TypeKind::kScalar && row.dtype == dtype;
  });
}

// The bytes of an entry: a code, then numbers.
class EntryBytes {
 public:
  explicit EntryBytes(uint64_t code) { out_.VarInt(code); }
  EntryBytes& Add(uint64_t value) {
    out_.VarInt(value);
    return *this;
  }
  EntryBytes& AddSigned(int64_t value) {
    out_.SignedVarInt(value);
    return *this;
  }
  EntryBytes& AddList(absl::Span<const uint32_t> values) {
    out_.VarInt(values.size());
    for (const uint32_t value : values) out_.VarInt(value);
    return *this;
  }
  // Adds an optional item that is absent.
  EntryBytes& AddAbsent() {
    out_.VarInt(0, false);
    return *this;
  }
  EntryBytes& AddByte(uint8_t byte) {
    out_.Byte(byte);
    return *this;
  }
  EntryBytes& AddBytes(std::string_view bytes) {
    out_.VarInt(bytes.size());
    out_.Append(bytes);
    return *this;
  }
  std::string Take() { return out_.Take(); }

 private:
  Emitter out_;
};

// Returns booleans packed as bits, lowest first.
std::string PackedBits(const Array& array) {
  std::string out((array.num_elements() + 7) / 8, '\0');
  for (int64_t i = 0; i < array.num_elements(); ++i)
    if (array.data()[i] != std::byte{0}) out[i / 8] |= static_cast<char>(1 << (i % 8));
  return out;
}
// Returns the elements, or a single one if all are the same.
std::string ElementsOf(const Array& array) {
  const int64_t n = array.num_elements(), width = ByteWidth(array.dtype());
  const auto* const data = reinterpret_cast<const char*>(array.data());
  const bool is_splat = n > 0 && std::memcmp(data, data + width, (n - 1) * width) == 0;
  if (array.dtype() == DType::kBool) {
    if (is_splat) return data[0] != 0 ? "\xff" : std::string(1, '\0');
    return PackedBits(array);
  }
  std::string out(data, is_splat ? width : n * width);
  if (const int bits = BitWidth(array.dtype()); bits < 8)
    for (char& byte : out) byte = static_cast<char>(byte & ((1 << bits) - 1));
  return out;
}

Bytes AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

// ---- Tables. ------------------------------------------------------------------------------------
uint32_t Module::InternText(std::string_view text, Table* table,
                            std::vector<std::string_view>* list) {
  if (const auto found = table->find(text); found != table->end()) return found->second;
  list->push_back(bytes_.emplace_back(text));
  return table->emplace(list->back(), static_cast<uint32_t>(list->size()) - 1).first->second;
}
uint32_t Module::String(std::string_view text) {
  return InternText(text, &strings_, &code_.strings);
}
uint32_t Module::Dialect(std::string_view name) {
  String(name);
  return InternText(name, &dialects_, &code_.dialects);
}

uint32_t Module::OpNameOf(std::string_view dialect, std::string_view name, int version) {
  std::string shown = version > 0 ? absl::StrCat(ToAbsl(name), "_v", version) : std::string(name);
  const std::string key = absl::StrCat(ToAbsl(dialect), ".", shown);
  if (const auto found = op_names_.find(key); found != op_names_.end()) return found->second;
  rows_.push_back(FindOpRow(dialect, name, version));
  TESSERA_CHECK(rows_.back() != nullptr) << "StableHLO has no op " << shown;
  String(shown);
  code_.op_names.push_back({Dialect(dialect), bytes_.emplace_back(std::move(shown))});
  const auto index = static_cast<uint32_t>(rows_.size()) - 1;
  op_names_.emplace(bytes_.emplace_back(key), index);
  return index;
}

uint32_t Module::PropertiesOf(std::string bytes) {
  if (const auto found = properties_.find(bytes); found != properties_.end()) return found->second;
  const auto index = static_cast<uint32_t>(code_.properties.size());
  const std::string& kept = bytes_.emplace_back(std::move(bytes));
  code_.properties.push_back(AsBytes(kept));
  properties_.emplace(kept, index);
  return index;
}

uint32_t Module::Intern(std::string_view dialect, std::string bytes, Table* table,
                        std::vector<Entry>* entries, bool is_custom) {
  if (const auto found = table->find(bytes); found != table->end()) return found->second;
  const auto index = static_cast<uint32_t>(entries->size());
  const std::string& kept = bytes_.emplace_back(std::move(bytes));
  entries->push_back({Dialect(dialect), is_custom, AsBytes(kept)});
  table->emplace(kept, index);
  return index;
}

// ---- Types. -------------------------------------------------------------------------------------
uint32_t Module::ScalarType(DType dtype) {
  if (IsComplex(dtype)) {
    const uint32_t part = ScalarType(dtype == DType::kC64 ? DType::kF32 : DType::kF64);
    return TypeEntry(EntryBytes(CodeOf(TypeKind::kComplex)).Add(part).Take());
  }
  Require(SinceOf(dtype));
  return TypeEntry(EntryBytes(CodeOf(dtype)).Take());
}
uint32_t Module::NoneType() {
  Require(6);
  return TypeEntry(EntryBytes(CodeOf(TypeKind::kNone)).Take());
}
uint32_t Module::TensorType(DType dtype, const Dims& shape) {
  const uint32_t element = ScalarType(dtype);
  EntryBytes out(CodeOf(TypeKind::kTensor));
  out.Add(shape.size());
  for (const int64_t dim : shape) out.AddSigned(dim);
  return TypeEntry(out.Add(element).Take());
}
uint32_t Module::FunctionType(absl::Span<const uint32_t> params,
                              absl::Span<const uint32_t> results) {
  return TypeEntry(EntryBytes(CodeOf(TypeKind::kFunction)).AddList(params).AddList(results).Take());
}

// Encodes a tensor type in MLIR's builtin dialect instead of VHLO's. Floats of 8 bits and fewer
// have no binary form there, so they are written as MLIR's text. Integers have their width and a
// sign bit field.
uint32_t Module::PlainTensorType(const Type& type) {
  const DType dtype = type.dtype;
  const auto scalar = [&](DType of) -> uint32_t {
    for (const TypeRow& row : kTypeRows)
      if (row.dialect == Dialect::kBuiltin && row.kind == TypeKind::kScalar && row.dtype == of)
        return PlainType(EntryBytes(row.code).Take());
    // Floats of 8 bits and fewer are written as a text with MLIR's capitals: "f8E4M3FN".
    if (IsFloat(of)) {
      std::string text = absl::AsciiStrToUpper(ToAbsl(DTypeName(of)));
      text[0] = 'f';
      text.push_back('\0');
      return Intern("builtin", std::move(text), &plain_types_, &code_.types, /*is_custom=*/false);
    }
    // The width, and whether the integer is unsigned. Signed integers are written without a sign of
    // their own.
    const uint64_t bits = of == DType::kBool ? 1 : BitWidth(of);
    const bool is_unsigned = of != DType::kBool && !IsSignedInt(of);
    return PlainType(EntryBytes(CodeOf(TypeKind::kInteger, Dialect::kBuiltin))
                         .Add(bits << 2 | (is_unsigned ? 2 : 0))
                         .Take());
  };
  uint32_t element = 0;
  if (IsComplex(dtype)) {
    const uint32_t part = scalar(dtype == DType::kC64 ? DType::kF32 : DType::kF64);
    element = PlainType(EntryBytes(CodeOf(TypeKind::kComplex, Dialect::kBuiltin)).Add(part).Take());
  } else {
    element = scalar(dtype);
  }
  EntryBytes out(CodeOf(TypeKind::kTensor, Dialect::kBuiltin));
  out.Add(type.shape.size());
  for (const int64_t dim : type.shape) out.AddSigned(dim);
  return PlainType(out.Add(element).Take());
}

// ---- Attributes. --------------------------------------------------------------------------------
uint32_t Module::Int(int64_t value, DType dtype) {
  const uint32_t type = ScalarType(dtype);
  EntryBytes out(CodeOf(Dialect::kVhlo, AttrKind::kInteger));
  out.Add(type);
  if (BitWidth(dtype) <= 8) {
    out.AddByte(static_cast<uint8_t>(value));
  } else {
    out.AddSigned(value);
  }
  return AttrEntry(out.Take());
}
uint32_t Module::Bool(bool value) {
  return AttrEntry(EntryBytes(CodeOf(Dialect::kVhlo, AttrKind::kBool)).Add(value).Take());
}
uint32_t Module::Text(std::string_view text) {
  return AttrEntry(EntryBytes(CodeOf(Dialect::kVhlo, AttrKind::kString)).Add(String(text)).Take());
}
uint32_t Module::TypeAttr(uint32_t type) {
  return AttrEntry(EntryBytes(CodeOf(Dialect::kVhlo, AttrKind::kType)).Add(type).Take());
}
uint32_t Module::Enum(AttrKind kind, uint64_t value) {
  return AttrEntry(EntryBytes(CodeOf(Dialect::kVhlo, kind)).Add(value).Take());
}
uint32_t Module::List(absl::Span<const uint32_t> attrs) {
  return AttrEntry(EntryBytes(CodeOf(Dialect::kVhlo, AttrKind::kArray)).AddList(attrs).Take());
}
uint32_t Module::Dictionary(absl::Span<const std::pair<uint32_t, uint32_t>> entries) {
  EntryBytes out(CodeOf(Dialect::kVhlo, AttrKind::kDictionary));
  out.Add(entries.size());
  for (const auto& [name, value] : entries) out.Add(name).Add(value);
  return AttrEntry(out.Take());
}
uint32_t Module::Ints(absl::Span<const int64_t> values, const Dims& shape) {
  static_assert(std::endian::native == std::endian::little);
  const uint32_t type = TensorType(DType::kS64, shape);
  return AttrEntry(
      EntryBytes(CodeOf(Dialect::kVhlo, AttrKind::kDense))
          .Add(type)
          .AddBytes({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)})
          .Take());
}
uint32_t Module::Dense(const Array& array) {
  const uint32_t type = TensorType(array.dtype(), array.shape());
  return AttrEntry(EntryBytes(CodeOf(Dialect::kVhlo, AttrKind::kDense))
                       .Add(type)
                       .AddBytes(ElementsOf(array))
                       .Take());
}
uint32_t Module::Layout(absl::Span<const int64_t> minor_to_major) {
  const uint32_t index = TypeEntry(EntryBytes(CodeOf(TypeKind::kIndex)).Take());
  EntryBytes type(CodeOf(TypeKind::kTensor));
  const uint32_t tensor = TypeEntry(type.Add(1).AddSigned(Size(minor_to_major)).Add(index).Take());
  return AttrEntry(EntryBytes(CodeOf(Dialect::kVhlo, AttrKind::kDense))
                       .Add(tensor)
                       .AddBytes({reinterpret_cast<const char*>(minor_to_major.data()),
                                  minor_to_major.size() * sizeof(int64_t)})
                       .Take());
}
uint32_t Module::PlainText(std::string_view text) {
  return PlainAttr(
      EntryBytes(CodeOf(Dialect::kBuiltin, AttrKind::kString)).Add(String(text)).Take());
}
uint32_t Module::Location(const Site& site) {
  if (!site.valid())
    return PlainAttr(EntryBytes(CodeOf(Dialect::kBuiltin, AttrKind::kUnknownLocation)).Take());
  const uint32_t file = PlainText(site.file);
  return PlainAttr(EntryBytes(CodeOf(Dialect::kBuiltin, AttrKind::kFileLine))
                       .Add(file)
                       .Add(static_cast<uint64_t>(site.line))
                       .Add(0)
                       .Take());
}

uint32_t Module::NamedLocation(std::string_view name) {
  const uint32_t text = PlainText(name), nowhere = Location({});
  return Intern(
      "builtin",
      EntryBytes(CodeOf(Dialect::kBuiltin, AttrKind::kNamed)).Add(text).Add(nowhere).Take(),
      &plain_attrs_, &code_.attrs);
}

// ---- Shardings. ---------------------------------------------------------------------------------
uint32_t Module::MeshAttr(const Mesh& mesh) {
  std::vector<uint32_t> axes;
  for (const MeshAxis& axis : mesh.axes)
    axes.push_back(ShardyAttr(EntryBytes(CodeOf(Dialect::kSdy, AttrKind::kMeshAxis))
                                  .Add(String(axis.name))
                                  .AddSigned(axis.size)
                                  .Take()));
  // An empty list means that the devices are in order.
  return ShardyAttr(
      EntryBytes(CodeOf(Dialect::kSdy, AttrKind::kMesh)).AddList(axes).AddList({}).Take());
}
uint32_t Module::Sharding(const PartitionSpec& spec, int rank) {
  std::vector<uint32_t> dims;
  for (int d = 0; d < rank; ++d) {
    std::vector<uint32_t> axes;
    if (d < static_cast<int>(spec.dims.size()))
      for (const std::string& axis : spec.dims[d])
        axes.push_back(ShardyAttr(EntryBytes(CodeOf(Dialect::kSdy, AttrKind::kAxisRef))
                                      .Add(String(axis))
                                      .AddAbsent()
                                      .Take()));
    dims.push_back(ShardyAttr(EntryBytes(CodeOf(Dialect::kSdy, AttrKind::kDimensionSharding))
                                  .AddList(axes)
                                  .AddByte(spec.IsOpen(d) ? 0 : 1)
                                  .AddAbsent()
                                  .Take()));
  }
  const uint32_t mesh = PlainText("mesh");
  const uint32_t symbol =
      PlainAttr(EntryBytes(CodeOf(Dialect::kBuiltin, AttrKind::kSymbol)).Add(mesh).Take());
  return ShardyAttr(EntryBytes(CodeOf(Dialect::kSdy, AttrKind::kTensorSharding))
                        .Add(symbol)
                        .AddList(dims)
                        .AddList({})
                        .Take());
}
uint32_t Module::Shardings(absl::Span<const uint32_t> shardings) {
  return ShardyAttr(
      EntryBytes(CodeOf(Dialect::kSdy, AttrKind::kShardingPerValue)).AddList(shardings).Take());
}
uint32_t Module::ManualAxes(const AxisList& axes) {
  std::vector<uint32_t> names;
  for (const std::string& axis : axes) names.push_back(PlainText(axis));
  return ShardyAttr(EntryBytes(CodeOf(Dialect::kSdy, AttrKind::kManualAxes)).AddList(names).Take());
}
uint32_t Module::PlainDictionaryOfInt(std::string_view name, int32_t value) {
  const uint32_t key = PlainText(name);
  const uint32_t type =
      PlainType(EntryBytes(CodeOf(TypeKind::kInteger, Dialect::kBuiltin)).Add(32 << 2).Take());
  const uint32_t number = PlainAttr(
      EntryBytes(CodeOf(Dialect::kBuiltin, AttrKind::kInteger)).Add(type).AddSigned(value).Take());
  return PlainAttr(EntryBytes(CodeOf(Dialect::kBuiltin, AttrKind::kDictionary))
                       .Add(1)
                       .Add(key)
                       .Add(number)
                       .Take());
}

uint32_t Module::PlainDictionaryOfAttr(std::string_view name, uint32_t attr) {
  const uint32_t key = PlainText(name);
  return PlainAttr(EntryBytes(CodeOf(Dialect::kBuiltin, AttrKind::kDictionary))
                       .Add(1)
                       .Add(key)
                       .Add(attr)
                       .Take());
}

// Returns the default of an attribute that newer versions of ops have and our ops do not. Each
// default means what the op meant before the attribute existed. Any other missing attribute is our
// own bug.
uint32_t Module::Default(std::string_view name) {
  if (name == "result_accuracy") {
    const uint32_t mode = Enum(AttrKind::kResultAccuracyMode, 0);
    return AttrEntry(EntryBytes(CodeOf(Dialect::kVhlo, AttrKind::kResultAccuracy))
                         .AddSigned(0)
                         .AddSigned(0)
                         .AddSigned(0)
                         .Add(mode)
                         .Take());
  }
  if (name == "precision_config") {
    const uint32_t precision = Enum(AttrKind::kPrecision, 0);
    return List({precision, precision});
  }
  // The batching dims of operands and indices.
  if (name == "operand_batching_dims" || name == "start_indices_batching_dims" ||
      name == "input_batching_dims" || name == "scatter_indices_batching_dims")
    return Ints({});
  if (name == "indices_are_sorted" || name == "unique_indices") return Bool(false);
  // The attributes for the algorithm of a dot_general, when no algorithm is chosen.
  constexpr std::string_view kAlgorithm =
      "accumulation_type allow_imprecise_accumulation lhs_component_count lhs_precision_type "
      "num_primitive_operations rhs_component_count rhs_precision_type";
  TESSERA_CHECK(kAlgorithm.find(name) != std::string_view::npos)
      << "an op of StableHLO is written without " << name;
  return TypeAttr(NoneType());
}

// ---- Ops. ---------------------------------------------------------------------------------------
uint32_t Module::BeginOp(std::string_view dialect, std::string_view name,
                         absl::Span<const uint32_t> operands,
                         absl::Span<const uint32_t> result_types, const NamedAttrs& attrs,
                         uint32_t location, int num_regions) {
  const bool versioned = dialect == "vhlo";
  const auto [version, since] = versioned ? VersionFor(name, target_) : std::pair(0, 0);
  Require(dialect == "sdy" ? 11 : since);
  const uint32_t op_name = OpNameOf(dialect, name, version);
  RawOp op;
  op.name = op_name;
  op.location = location;
  size_t used = 0;
  Emitter properties;
  for (std::string_view words = rows_[op_name]->attributes; !words.empty();) {
    std::string_view word = NextWord(words);
    const bool optional = word.back() == '?';
    if (optional) word.remove_suffix(1);
    const auto given = std::find_if(attrs.begin(), attrs.end(),
                                    [&](const auto& attr) { return attr.first == word; });
    const bool is_given = given != attrs.end();
    used += is_given ? 1 : 0;
    if (optional) {
      properties.VarInt(is_given ? given->second : 0, is_given);
    } else {
      properties.VarInt(is_given ? given->second : Default(word));
    }
  }
  // The chosen version lacks an attribute that was given; the next version has it.
  if (used < attrs.size()) {
    const auto is_next = [&, after = version + 1](const Since& row) {
      return row.name == name && row.version == after;
    };
    const auto* const next = std::find_if(std::begin(kSince), std::end(kSince), is_next);
    TESSERA_CHECK(next != std::end(kSince)) << "no version of " << name << " has what it is given";
    Require(next->minor);
  }
  if (!properties.bytes().empty()) {
    op.properties = PropertiesOf(properties.Take());
  }
  op.operands = {static_cast<uint32_t>(code_.operands.size()),
                 static_cast<uint32_t>(operands.size())};
  code_.operands.insert(code_.operands.end(), operands.begin(), operands.end());
  op.results = {static_cast<uint32_t>(code_.value_types.size()),
                static_cast<uint32_t>(result_types.size())};
  code_.value_types.insert(code_.value_types.end(), result_types.begin(), result_types.end());
  op.regions = {static_cast<uint32_t>(code_.regions.size()), static_cast<uint32_t>(num_regions)};
  code_.regions.resize(code_.regions.size() + num_regions);
  const auto index = static_cast<uint32_t>(code_.ops.size());
  op.end = index + 1;
  code_.ops.push_back(op);
  return index;
}

std::vector<uint32_t> Module::ResultsOf(uint32_t op) const {
  const Range results = code_.ops[op].results;
  std::vector<uint32_t> out(results.size);
  for (uint32_t i = 0; i < results.size; ++i) out[i] = results.begin + i;
  return out;
}

std::vector<uint32_t> Module::BeginRegion(uint32_t op, int i, absl::Span<const uint32_t> types,
                                          absl::Span<const uint32_t> locations) {
  RawRegion& region = code_.regions[code_.ops[op].regions.begin + i];
  region.has_block = true;
  region.begin = static_cast<uint32_t>(code_.ops.size());
  region.args = {static_cast<uint32_t>(code_.value_types.size()),
                 static_cast<uint32_t>(types.size())};
  code_.value_types.insert(code_.value_types.end(), types.begin(), types.end());
  region.arg_locations = static_cast<uint32_t>(code_.arg_locations.size());
  for (size_t k = 0; k < types.size(); ++k)
    code_.arg_locations.push_back(k < locations.size() ? locations[k] : kNone);
  std::vector<uint32_t> args(types.size());
  for (size_t k = 0; k < args.size(); ++k) args[k] = region.args.begin + static_cast<uint32_t>(k);
  return args;
}
void Module::EndRegion(uint32_t op, int i) {
  code_.regions[code_.ops[op].regions.begin + i].end = static_cast<uint32_t>(code_.ops.size());
}

std::string Module::Write() {
  producer_ = absl::StrCat("StableHLO_v1.", target_, ".0");
  code_.producer = producer_;
  code_.version = 6;
  return WriteBytecode(code_);
}

}  // namespace tessera::ir::stablehlo
