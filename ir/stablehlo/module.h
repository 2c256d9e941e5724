// The tables of a portable artifact that is being written: attributes, types, names and ops, each
// of them once.  An op's version is the newest that the target has; its attributes are put in the
// order of the encoding, and those that are not given get what their absence meant before they were
// invented.
//
// Nothing is checked but what the target can say: what it cannot raises required(), and is written
// all the same, so that whoever exports begins again for that version.  Thread-compatible.
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
  // For StableHLO 1.`target`.0.
  explicit Module(int target) : target_(target) {}
  // The oldest target that has all that was written.
  int required() const { return required_; }

  // ---- Types. ----
  uint32_t TensorType(const Type& type) { return TensorType(type.dtype, type.shape); }
  uint32_t TensorType(DType dtype, const Dims& shape);
  // MLIR's own tensor, as Shardy's ops have.
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
  // A tensor of s64, of one dim or of two.
  uint32_t Ints(absl::Span<const int64_t> values) { return Ints(values, {Size(values)}); }
  uint32_t Ints(absl::Span<const int64_t> values, const Dims& shape);
  uint32_t Dense(const Array& array);
  // The order of dims in memory, the innermost first: a tensor of indices.
  uint32_t Layout(absl::Span<const int64_t> minor_to_major);
  // A text of MLIR's own; a place in a file. Those that come before all other attributes are the
  // smallest.
  uint32_t PlainText(std::string_view text);
  uint32_t Location(const Site& site);
  uint32_t NamedLocation(std::string_view name);

  // ---- Shardings, as Shardy's attributes. ----
  uint32_t MeshAttr(const Mesh& mesh);
  // Of a value of this rank, on the mesh "mesh".
  uint32_t Sharding(const PartitionSpec& spec, int rank);
  uint32_t Shardings(absl::Span<const uint32_t> shardings);
  uint32_t ManualAxes(const AxisList& axes);
  // A dictionary of MLIR's own with one number.
  uint32_t PlainDictionary(std::string_view name, int32_t value);
  // One with one attribute.
  uint32_t PlainDictionaryOf(std::string_view name, uint32_t attr);

  // ---- Ops. ----
  using NamedAttrs = std::vector<std::pair<std::string_view, uint32_t>>;
  // Begins an op, whose regions come next; returns its index.
  uint32_t Begin(std::string_view dialect, std::string_view name,
                 absl::Span<const uint32_t> operands, absl::Span<const uint32_t> result_types,
                 const NamedAttrs& attrs, uint32_t location, int num_regions = 0);
  // The results of an op.
  std::vector<uint32_t> ResultsOf(uint32_t op) const;
  // Begins region `i` of an op with these arguments, which it returns; each has a location, or none
  // has.
  std::vector<uint32_t> BeginRegion(uint32_t op, int i, absl::Span<const uint32_t> types,
                                    absl::Span<const uint32_t> locations = {});
  void EndRegion(uint32_t op, int i);
  // What the op carries for others: a dictionary of MLIR's own.
  void SetCarried(uint32_t op, uint32_t dictionary) { code_.ops[op].attrs = dictionary; }
  // The regions of the op use no values of outside.
  void Isolate(uint32_t op) { code_.ops[op].isolated = true; }
  void End(uint32_t op) { code_.ops[op].end = static_cast<uint32_t>(code_.ops.size()); }
  size_t num_ops() const { return code_.ops.size(); }
  size_t num_regions() const { return code_.regions.size(); }

  std::string Write();

 private:
  static int64_t Size(absl::Span<const int64_t> values) {
    return static_cast<int64_t>(values.size());
  }
  uint32_t ScalarType(DType dtype);
  uint32_t NoneType();
  // What a version's attribute is that nobody gave.
  uint32_t Default(std::string_view name);
  void Require(int minor) { required_ = std::max(required_, minor); }

  using Table = std::unordered_map<std::string_view, uint32_t>;  // of texts in bytes_
  // The place of a text in a list, at whose end it stands if it is new.
  uint32_t Place(std::string_view text, Table* table, std::vector<std::string_view>* list);
  uint32_t Dialect(std::string_view name);
  uint32_t String(std::string_view text);
  uint32_t OpNameOf(std::string_view dialect, std::string_view name, int version);
  uint32_t PropertiesOf(std::string bytes);
  // The entry of these bytes, which is new or was there.
  uint32_t Intern(std::string_view dialect, std::string bytes, Table* table,
                  std::vector<Entry>* entries, bool custom = true);
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
  std::deque<std::string> bytes_;  // what code_ borrows
  Table strings_, dialects_, attrs_, plain_attrs_, shardy_attrs_, types_, plain_types_, properties_,
      op_names_;
  std::vector<const OpRow*> rows_;  // of code_.op_names
};

}  // namespace tessera::ir::stablehlo
