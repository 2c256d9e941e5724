// The tables of a portable artifact that is being written: attributes, types, names and ops, each
// stored once. An op gets the newest version that the target has. The attributes of an op are put
// in the order of the encoding. Attributes that are not given get the value that their absence
// meant before they were introduced.
//
// The only check is whether the target can express what is written. If not, required() is raised
// and the item is written nevertheless; the exporter then starts again for that version.
// Thread-compatible.
#pragma once
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/site.h"
#include "ir/array.h"
#include "ir/mesh.h"
#include "ir/stablehlo/bytecode.h"
#include "ir/stablehlo/encodings.h"
#include "ir/type.h"

namespace tessera::ir::stablehlo {

class Module {
 public:
  // Writes for StableHLO 1.`target`.0.
  explicit Module(int target) : target_(target) {}
  // Returns the oldest target that has everything that was written.
  int required() const { return required_; }

  // ---- Types. ----
  uint32_t TensorType(const Type& type) { return TensorType(type.dtype, type.shape); }
  uint32_t TensorType(DType dtype, const Dims& shape);
  // Returns MLIR's own tensor type, as Shardy's ops have it.
  uint32_t PlainTensorType(const Type& type);
  uint32_t FunctionType(absl::Span<const uint32_t> params, absl::Span<const uint32_t> results);

  // ---- Attributes. ----
  uint32_t Int(int64_t value, DType dtype = DType::kS64);
  uint32_t Bool(bool value);
  uint32_t Text(std::string_view text);
  uint32_t TypeAttr(uint32_t type);
  uint32_t ElementType(DType dtype) { return TypeAttr(ScalarType(dtype)); }
  uint32_t Enum(AttrKind kind, uint64_t value);
  uint32_t List(absl::Span<const uint32_t> attrs);
  uint32_t Dictionary(absl::Span<const std::pair<uint32_t, uint32_t>> entries);
  // Returns a tensor of s64 with one or two dims.
  uint32_t Ints(absl::Span<const int64_t> values) { return Ints(values, {Size(values)}); }
  uint32_t Ints(absl::Span<const int64_t> values, const Dims& shape);
  uint32_t Dense(const Array& array);
  // Returns an order of dims in memory, the innermost first, as a tensor of indices.
  uint32_t Layout(absl::Span<const int64_t> minor_to_major);
  // PlainText returns a text attribute of MLIR's own, Location and NamedLocation return places in
  // files. Attributes that are created first get the smallest numbers, which take the least space.
  uint32_t PlainText(std::string_view text);
  uint32_t Location(const Site& site);
  uint32_t NamedLocation(std::string_view name);

  // ---- Shardings, as Shardy's attributes. ----
  uint32_t MeshAttr(const Mesh& mesh);
  // Returns the sharding of a value of this rank on the mesh "mesh".
  uint32_t Sharding(const PartitionSpec& spec, int rank);
  uint32_t Shardings(absl::Span<const uint32_t> shardings);
  uint32_t ManualAxes(const AxisList& axes);
  // Returns a dictionary of MLIR's own with one entry, a number.
  uint32_t PlainDictionaryOfInt(std::string_view name, int32_t value);
  // Returns a dictionary of MLIR's own with one entry, an attribute.
  uint32_t PlainDictionaryOfAttr(std::string_view name, uint32_t attr);

  // ---- Ops. ----
  using NamedAttrs = std::vector<std::pair<std::string_view, uint32_t>>;
  // Begins an op, whose regions come next. Returns its index.
  uint32_t BeginOp(std::string_view dialect, std::string_view name,
                   absl::Span<const uint32_t> operands, absl::Span<const uint32_t> result_types,
                   const NamedAttrs& attrs, uint32_t location, int num_regions = 0);
  // Returns the results of an op.
  std::vector<uint32_t> ResultsOf(uint32_t op) const;
  // Begins region `i` of an op with arguments of these types, and returns the arguments. Either
  // each argument has a location, or none has.
  std::vector<uint32_t> BeginRegion(uint32_t op, int i, absl::Span<const uint32_t> types,
                                    absl::Span<const uint32_t> locations = {});
  void EndRegion(uint32_t op, int i);
  // Sets the attributes that the op carries for others, a dictionary of MLIR's own.
  void SetCarried(uint32_t op, uint32_t dictionary) { code_.ops[op].attrs = dictionary; }
  // Declares that the regions of the op use no values from outside.
  void Isolate(uint32_t op) { code_.ops[op].isolated = true; }
  void EndOp(uint32_t op) { code_.ops[op].end = static_cast<uint32_t>(code_.ops.size()); }
  size_t num_ops() const { return code_.ops.size(); }
  size_t num_regions() const { return code_.regions.size(); }

  std::string Write();

 private:
  static int64_t Size(absl::Span<const int64_t> values) {
    return static_cast<int64_t>(values.size());
  }
  uint32_t ScalarType(DType dtype);
  uint32_t NoneType();
  // Returns the value that an attribute of this name gets if the caller has given none.
  uint32_t Default(std::string_view name);
  void Require(int minor) { required_ = std::max(required_, minor); }

  using Table = std::unordered_map<std::string_view, uint32_t>;  // text in bytes_ -> index
  // Returns the index of a text in a list. A new text is appended.
  uint32_t InternText(std::string_view text, Table* table, std::vector<std::string_view>* list);
  uint32_t Dialect(std::string_view name);
  uint32_t String(std::string_view text);
  uint32_t OpNameOf(std::string_view dialect, std::string_view name, int version);
  uint32_t PropertiesOf(std::string bytes);
  // Returns the index of the entry with these bytes. A new entry is appended.
  uint32_t Intern(std::string_view dialect, std::string bytes, Table* table,
                  std::vector<Entry>* entries, bool is_custom = true);
  uint32_t AttrEntry(std::string bytes) {
    return Intern("vhlo", std::move(bytes), &attrs_, &code_.attrs);
  }
  uint32_t TypeEntry(std::string bytes) {
    return Intern("vhlo", std::move(bytes), &types_, &code_.types);
  }

  uint32_t PlainType(std::string bytes) {
    return Intern("builtin", std::move(bytes), &plain_types_, &code_.types);
  }
  uint32_t PlainAttr(std::string bytes) {
    return Intern("builtin", std::move(bytes), &plain_attrs_, &code_.attrs);
  }
  uint32_t ShardyAttr(std::string bytes) {
    Require(11);
    return Intern("sdy", std::move(bytes), &shardy_attrs_, &code_.attrs);
  }

  const int target_;
  int required_ = 0;
  Bytecode code_;
  std::string producer_;
  std::deque<std::string> bytes_;  // the bytes that code_ borrows
  Table strings_, dialects_, attrs_, plain_attrs_, shardy_attrs_, types_, plain_types_, properties_,
      op_names_;
  std::vector<const OpRow*> rows_;  // the row of each of code_.op_names
};

}  // namespace tessera::ir::stablehlo
