// Writes the container of an artifact, section by section. Exports end here, and the tests and
// fuzzers of the reader write their inputs with it.
#include "ir/stablehlo/writer.h"

#include <algorithm>

namespace tessera::ir::stablehlo {
namespace {

class Writer {
 public:
  explicit Writer(const Bytecode& code) : code_(code), numbers_(code.value_types.size(), kNone) {}

  // Writes the sections in the order of their ids. The sections of resources are
  // empty but present. Values get their numbers while the ops are written, because the numbering
  // depends on the nesting of regions.
  std::string Write() {
    Emitter out;
    out.Append("ML\xefR");
    out.VarInt(6);
    out.Append(code_.producer);
    out.Byte(0);
    out.Section(0, Strings());
    out.Section(1, Dialects());
    Emitter entries;
    for (const auto* table : {&code_.attrs, &code_.types})
      for (const Entry& entry : *table) entries.Append(entry.bytes);
    out.Section(2, entries.bytes());
    out.Section(3, Offsets());
    Emitter ir;
    ir.VarInt(1, /*has arguments*/ false);
    if (!code_.ops.empty()) WriteOp(0, 0, ir);
    out.Section(4, ir.bytes());
    out.Section(5, "");
    Emitter no_resources;
    no_resources.VarInt(0);
    out.Section(6, no_resources.bytes());
    Emitter properties;
    properties.VarInt(code_.properties.size());
    for (const Bytes bytes : code_.properties) {
      properties.VarInt(bytes.size());
      properties.Append(bytes);
    }
    out.Section(8, properties.bytes());
    return out.bytes();
  }

 private:
  std::string Strings() const {
    Emitter out;
    out.VarInt(code_.strings.size());
    for (size_t i = code_.strings.size(); i > 0; --i) out.VarInt(code_.strings[i - 1].size() + 1);
    for (const std::string_view text : code_.strings) {
      out.Append(text);
      out.Byte(0);
    }
    return out.bytes();
  }
  uint64_t StringIndex(std::string_view text) const {
    return std::find(code_.strings.begin(), code_.strings.end(), text) - code_.strings.begin();
  }

  std::string Dialects() const {
    Emitter out;
    out.VarInt(code_.dialects.size());
    for (const std::string_view name : code_.dialects)
      out.VarInt(StringIndex(name), /*has version*/ false);
    out.VarInt(code_.op_names.size());
    for (size_t i = 0; i < code_.op_names.size();) {
      const size_t end = EndOfGroup(code_.op_names, i);
      out.VarInt(code_.op_names[i].dialect);
      out.VarInt(end - i);
      for (; i < end; ++i)
        out.VarInt(StringIndex(code_.op_names[i].name), code_.op_names[i].registered);
    }
    return out.bytes();
  }

  std::string Offsets() const {
    Emitter out;
    out.VarInt(code_.attrs.size());
    out.VarInt(code_.types.size());
    for (const auto* table : {&code_.attrs, &code_.types}) {
      for (size_t i = 0; i < table->size();) {
        const size_t end = EndOfGroup(*table, i);
        out.VarInt((*table)[i].dialect);
        out.VarInt(end - i);
        for (; i < end; ++i) out.VarInt((*table)[i].bytes.size(), (*table)[i].is_custom);
      }
    }
    return out.bytes();
  }

  // Returns the end of the run of entries, from `begin` on, that belong to the same dialect.
  template <typename T>
  static size_t EndOfGroup(const std::vector<T>& table, size_t begin) {
    size_t end = begin;
    while (end < table.size() && table[end].dialect == table[begin].dialect) ++end;
    return end;
  }

  // Writes an op. The values of its regions are numbered from `after`.
  void WriteOp(uint32_t index, uint32_t after, Emitter& out) {
    const RawOp& op = code_.ops[index];
    out.VarInt(op.name);
    out.Byte((op.attrs != kNone ? 1 : 0) | (op.results.size > 0 ? 2 : 0) |
             (op.operands.size > 0 ? 4 : 0) | (op.regions.size > 0 ? 16 : 0) |
             (op.properties != kNone ? 64 : 0));
    out.VarInt(op.location);
    if (op.attrs != kNone) out.VarInt(op.attrs);
    if (op.properties != kNone) out.VarInt(op.properties);
    if (op.results.size > 0) {
      out.VarInt(op.results.size);
      for (const uint32_t type : Slice(code_.value_types, op.results)) out.VarInt(type);
    }
    if (op.operands.size > 0) {
      out.VarInt(op.operands.size);
      for (const uint32_t value : Slice(code_.operands, op.operands)) out.VarInt(numbers_[value]);
    }
    if (op.regions.size == 0) return;
    out.VarInt(op.regions.size, op.isolated);
    Emitter regions;
    for (uint32_t i = 0; i < op.regions.size; ++i)
      WriteRegion(code_.regions[op.regions.begin + i], op.isolated ? 0 : after, regions);
    if (op.isolated) {
      out.Section(4, regions.bytes());
    } else {
      out.Append(regions.bytes());
    }
  }

  // Writes a region and numbers its values from `first`.
  void WriteRegion(const RawRegion& region, uint32_t first, Emitter& out) {
    out.VarInt(region.has_block ? 1 : 0);
    if (!region.has_block) return;
    uint32_t next = first, ops = 0;
    for (uint32_t i = 0; i < region.args.size; ++i) numbers_[region.args.begin + i] = next++;
    for (uint32_t op = region.begin; op < region.end; op = code_.ops[op].end, ++ops)
      for (uint32_t i = 0; i < code_.ops[op].results.size; ++i)
        numbers_[code_.ops[op].results.begin + i] = next++;
    out.VarInt(next - first);
    out.VarInt(ops, region.args.size > 0);
    if (region.args.size > 0) {
      out.VarInt(region.args.size);
      for (uint32_t i = 0; i < region.args.size; ++i) {
        const uint32_t location = code_.arg_locations[region.arg_locations + i];
        out.VarInt(code_.value_types[region.args.begin + i], /*has location*/ location != kNone);
        if (location != kNone) out.VarInt(location);
      }
      // No order of uses is given: MLIR's own order applies.
      out.Byte(0);
    }
    for (uint32_t op = region.begin; op < region.end; op = code_.ops[op].end)
      WriteOp(op, next, out);
  }

  const Bytecode& code_;
  std::vector<uint32_t> numbers_;  // the number of each value in its scope
};

}  // namespace

void Emitter::VarInt(uint64_t value) {
  int more = 0;
  while (more < 8 && value >> (7 * more + 7) != 0) ++more;
  if (more == 8) {
    Byte(0);
  } else {
    // The low bits of the value share the first byte with the count.
    const uint8_t low = static_cast<uint8_t>(value << (more + 1) | uint64_t{1} << more);
    Byte(low);
    value >>= 7 - more;
  }
  for (int i = 0; i < more; ++i) Byte(static_cast<uint8_t>(value >> (8 * i)));
}

void Emitter::SignedVarInt(int64_t value) {
  VarInt(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
}

void Emitter::Section(int id, std::string_view content) {
  Byte(static_cast<uint8_t>(id));
  VarInt(content.size());
  Append(content);
}

std::string WriteBytecode(const Bytecode& code) { return Writer(code).Write(); }

}  // namespace tessera::ir::stablehlo
