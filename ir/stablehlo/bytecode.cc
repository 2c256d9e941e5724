// Reads the container of an artifact. It is the first code that sees a stranger's bytes, so it uses
// no recursion, checks every index, and bounds every table before it grows.
#include "ir/stablehlo/bytecode.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera::ir::stablehlo {
namespace {

constexpr uint64_t kNewestVersion = 6;
// The versions of the format that introduced these features.
constexpr uint64_t kDialectVersions = 1, kIsolatedSections = 2, kUseLists = 3, kElidedLocations = 4,
                   kProperties = 5;

enum SectionId {
  kStrings,
  kDialects,
  kEntries,
  kOffsets,
  kIr,
  kResources,
  kResourceOffsets,
  kDialectVersion,
  kPropertyBytes,
  kSections
};
// The sections that every artifact must have.
constexpr std::array<SectionId, 5> kRequiredSections = {kStrings, kDialects, kEntries, kOffsets,
                                                        kIr};
constexpr std::array<const char*, kSections> kSectionNames = {
    "strings",   "dialects",  "attributes and types", "offsets",
    "ops",       "resources", "offsets of resources", "version of a dialect",
    "properties"};

// The parts of an op's record.
enum OpMask : uint8_t {
  kHasAttrs = 1,
  kHasResults = 2,
  kHasOperands = 4,
  kHasSuccessors = 8,
  kHasRegions = 16,
  kHasUseLists = 32,
  kHasProperties = 64
};

absl::Status TooMany(const char* what, size_t limit) {
  return MakeError(ErrorKind::kLimitExceeded,
                   absl::StrCat("StableHLO: more than ", limit, " ", what));
}
absl::Status NotSupported(std::string_view what) {
  return MakeError(ErrorKind::kNotImplemented, absl::StrCat("StableHLO: ", ToAbsl(what)));
}

// Returns the id and the content of the section that begins at `in`.
std::pair<int, Cursor> NextSection(Cursor& in) {
  const uint8_t head = in.Byte();
  const int id = head & 0x7f;
  const uint64_t size = in.VarInt();
  if (id >= kSections) in.Fail(absl::StrCat("a section of the unknown kind ", id));
  if ((head & 0x80) != 0) {
    const uint64_t alignment = in.VarInt();
    if (alignment == 0 || (alignment & (alignment - 1)) != 0)
      in.Fail(absl::StrCat("a section is aligned to ", alignment, ", which is not a power of two"));
    while (in.ok() && in.offset() % alignment != 0)
      if (in.Byte() != 0xcb) in.Fail("the padding before a section is not 0xcb");
  }
  const size_t base = in.offset();
  const Bytes bytes = in.Take(size);
  return {id, Cursor(bytes, in.ok() ? kSectionNames[id] : "artifact", base)};
}

// The state of an op whose regions are being read.
struct Frame {
  uint32_t op = 0;
  uint32_t region = 0;  // the region that is being read, or the next one
  uint32_t regions_end = 0;
  bool open = false;  // inside a region; the next members are valid only then
  uint64_t ops_left = 0;
  // The index in Reader::visible_values_ at which the region's own values begin.
  size_t visible_before = 0;
  size_t next_number = 0;  // index in Reader::visible_values_ of the region's next value
  // The index in Reader::visible_values_ of value number 0 of the innermost isolated op.
  size_t scope = 0;
  Cursor* in = nullptr;
  std::unique_ptr<Cursor> section;  // the section of an isolated op
};

class Reader {
 public:
  explicit Reader(const ReadLimits& limits) : limits_(limits) {}

  // Reads the sections by their headers first, in any order, and then decodes them in the order in
  // which they depend on each other: strings, dialects, attributes and types, properties, ops. A
  // section with the wrong id, a repeated one and a missing one are errors before any of them is
  // decoded.
  absl::StatusOr<Bytecode> Read(Bytes bytes) {
    if (bytes.size() > limits_.bytes) return TooMany("bytes", limits_.bytes);
    Cursor in(bytes);
    const Bytes magic = in.Take(4);
    if (!in.ok() || magic != Bytes({'M', 'L', 0xef, 'R'}))
      return MakeError(ErrorKind::kMalformedProgram,
                       "StableHLO: the bytes do not begin as MLIR bytecode does; send a portable "
                       "artifact, as jax.export's serialized module");
    out_.version = in.VarInt();
    if (in.ok() && out_.version > kNewestVersion)
      return NotSupported(absl::StrCat("MLIR bytecode of version ", out_.version,
                                       "; this reader knows 0 to ", kNewestVersion));
    out_.producer = in.ZeroTerminated();
    std::array<std::unique_ptr<Cursor>, kSections> sections;
    while (!in.done()) {
      auto [id, section] = NextSection(in);
      if (!in.ok()) break;
      if (sections[id]) in.Fail(absl::StrCat("has two sections of ", kSectionNames[id]));
      sections[id] = std::make_unique<Cursor>(std::move(section));
    }
    TESSERA_RETURN_IF_ERROR(in.Finish());
    for (const SectionId id : kRequiredSections) {
      if (sections[id]) continue;
      in.Fail(absl::StrCat("has no section of ", kSectionNames[id]));
      return in.status();
    }
    TESSERA_RETURN_IF_ERROR(ReadStrings(*sections[kStrings]));
    TESSERA_RETURN_IF_ERROR(ReadDialects(*sections[kDialects]));
    TESSERA_RETURN_IF_ERROR(ReadEntries(*sections[kOffsets], *sections[kEntries]));
    if (sections[kPropertyBytes])
      TESSERA_RETURN_IF_ERROR(ReadProperties(*sections[kPropertyBytes]));
    TESSERA_RETURN_IF_ERROR(ReadOps(*sections[kIr]));
    return std::move(out_);
  }

 private:
  absl::Status ReadStrings(Cursor& in) {
    const size_t count = in.Count("strings");
    if (count > limits_.entries) return TooMany("strings", limits_.entries);
    out_.strings.resize(count);
    std::vector<uint64_t> sizes(out_.strings.size());
    // The size of the last string comes first. Each size counts the zero at the end.
    for (size_t i = sizes.size(); i > 0; --i) sizes[i - 1] = in.VarInt();
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Bytes text = in.Take(sizes[i]);
      if (in.ok() && (text.empty() || text.back() != 0)) in.Fail("a text has no end");
      if (!in.ok()) break;
      out_.strings[i] = {reinterpret_cast<const char*>(text.data()), text.size() - 1};
    }
    return in.Finish();
  }

  std::string_view String(Cursor& in, uint64_t index) {
    const uint32_t i = in.CheckedIndex(index, out_.strings.size(), "strings");
    return in.ok() ? out_.strings[i] : std::string_view();
  }

  // Reads the dialects and the names of their ops. The contents of the section depend on the
  // version of the format. The number of op names is announced from version 4 on and must be right.
  absl::Status ReadDialects(Cursor& in) {
    const size_t count = in.Count("dialects");
    if (count > limits_.names) return TooMany("dialects", limits_.names);
    out_.dialects.resize(count);
    for (std::string_view& dialect : out_.dialects) {
      bool has_version = false;
      const uint64_t name =
          out_.version >= kDialectVersions ? in.VarInt(&has_version) : in.VarInt();
      dialect = String(in, name);
      // A version tells a dialect how to upgrade. VHLO does not need it, since its ops name their
      // own versions.
      if (has_version && NextSection(in).first != kDialectVersion) in.Fail("has no version");
    }
    const size_t total = out_.version >= kElidedLocations ? in.Count("op names") : size_t{0};
    while (!in.done()) {
      const uint32_t dialect = in.Index(out_.dialects.size(), "dialects");
      const size_t names = in.Count("op names");
      if (out_.op_names.size() + names > limits_.names) return TooMany("op names", limits_.names);
      for (size_t i = 0; i < names && in.ok(); ++i) {
        OpName& op = out_.op_names.emplace_back();
        op.dialect = dialect;
        op.name = String(in, out_.version >= kProperties ? in.VarInt(&op.registered) : in.VarInt());
      }
    }
    if (out_.version >= kElidedLocations && out_.op_names.size() != total)
      in.Fail(absl::StrCat(total, " op names are announced, but there are ", out_.op_names.size()));
    return in.Finish();
  }

  absl::Status ReadEntries(Cursor& offsets, Cursor& bytes) {
    const size_t attrs = offsets.Count("attributes");
    const size_t types = offsets.Count("types");
    if (attrs + types > limits_.entries) return TooMany("attributes and types", limits_.entries);
    for (auto [table, size] : {std::pair(&out_.attrs, attrs), std::pair(&out_.types, types)}) {
      while (offsets.ok() && table->size() < size) {
        const uint32_t dialect = offsets.Index(out_.dialects.size(), "dialects");
        const size_t count = offsets.Count("attributes or types");
        if (count == 0 || count > size - table->size())
          offsets.Fail("a dialect has no attributes or types, or too many");
        for (size_t i = 0; i < count && offsets.ok() && bytes.ok(); ++i) {
          Entry& entry = table->emplace_back();
          entry.dialect = dialect;
          entry.bytes = bytes.Take(offsets.VarInt(&entry.is_custom));
        }
        TESSERA_RETURN_IF_ERROR(bytes.status());
      }
    }
    TESSERA_RETURN_IF_ERROR(offsets.Finish());
    return bytes.Finish();
  }

  absl::Status ReadProperties(Cursor& in) {
    const size_t count = in.Count("properties");
    if (count > limits_.entries) return TooMany("properties", limits_.entries);
    out_.properties.resize(count);
    for (Bytes& bytes : out_.properties) bytes = in.Take(in.VarInt());
    return in.Finish();
  }

  absl::Status ReadOps(Cursor& in) {
    // The top level has one op: the module.
    if (in.VarInt() != 2) in.Fail("does not begin with exactly one op");
    Frame outside;
    outside.in = &in;
    TESSERA_RETURN_IF_ERROR(ReadOp(outside));
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      if (!frame.in->ok()) return frame.in->status();
      if (frame.open && frame.ops_left > 0) {
        --frame.ops_left;
        TESSERA_RETURN_IF_ERROR(ReadOp(frame));
      } else if (frame.open) {
        CloseRegion(frame);
      } else if (frame.region < frame.regions_end) {
        TESSERA_RETURN_IF_ERROR(OpenRegion(frame));
      } else {
        out_.ops[frame.op].end = out_.ops.size();
        if (frame.section) TESSERA_RETURN_IF_ERROR(frame.section->Finish());
        frames_.pop_back();
      }
    }
    return in.Finish();
  }

  // Begins the next region of the frame's op: reads its header and its arguments, and reserves
  // numbers for the values that it announces. A region of several blocks is refused, since
  // StableHLO has no branches. Memory is taken only after the announced counts have been compared
  // with the limits.
  absl::Status OpenRegion(Frame& frame) {
    Cursor& in = *frame.in;
    RawRegion& region = out_.regions[frame.region];
    region.begin = region.end = out_.ops.size();
    region.first_value = region.end_value = out_.value_types.size();
    const uint64_t blocks = in.VarInt();
    if (blocks == 0) {
      ++frame.region;
      return in.status();
    }
    if (blocks > 1 && in.ok())
      return NotSupported("a region has several blocks, between which it branches");
    region.has_block = true;
    const size_t values = in.Count("values");
    if (visible_values_.size() + values > limits_.values) return TooMany("values", limits_.values);
    frame.visible_before = frame.next_number = visible_values_.size();
    visible_values_.resize(visible_values_.size() + values, kNone);
    frame.open = true;
    bool has_args = false;
    frame.ops_left = in.VarInt(&has_args);
    if (!has_args) return in.status();
    const size_t args = in.Count("arguments");
    region.args = {static_cast<uint32_t>(out_.value_types.size()), static_cast<uint32_t>(args)};
    region.arg_locations = out_.arg_locations.size();
    for (size_t i = 0; i < args && in.ok(); ++i) {
      bool has_location = true;
      const uint64_t type =
          out_.version >= kElidedLocations ? in.VarInt(&has_location) : in.VarInt();
      Define(frame, in.CheckedIndex(type, out_.types.size(), "types"));
      out_.arg_locations.push_back(has_location ? in.Index(out_.attrs.size(), "attributes")
                                                : kNone);
    }
    if (out_.version >= kUseLists && in.Byte() != 0) SkipUseLists(in, args);
    if (out_.value_types.size() > limits_.values) return TooMany("values", limits_.values);
    return in.status();
  }

  void CloseRegion(Frame& frame) {
    if (frame.next_number != visible_values_.size())
      frame.in->Fail("a region defines fewer values than it announces");
    visible_values_.resize(frame.visible_before);
    out_.regions[frame.region].end = out_.ops.size();
    out_.regions[frame.region].end_value = out_.value_types.size();
    ++frame.region;
    frame.open = false;
  }

  // Defines the next value of the open region.
  void Define(Frame& frame, uint32_t type) {
    if (!frame.open || frame.next_number >= visible_values_.size()) {
      frame.in->Fail("a region defines more values than it announces");
      return;
    }
    visible_values_[frame.next_number++] = out_.value_types.size();
    out_.value_types.push_back(type);
  }

  // Reads an op of the open region, and begins its regions.
  absl::Status ReadOp(Frame& frame) {
    Cursor& in = *frame.in;
    if (out_.ops.size() >= limits_.ops) return TooMany("ops", limits_.ops);
    RawOp op;
    op.name = in.Index(out_.op_names.size(), "op names");
    const uint8_t mask = in.Byte();
    op.location = in.Index(out_.attrs.size(), "attributes");
    if ((mask & kHasAttrs) != 0) op.attrs = in.Index(out_.attrs.size(), "attributes");
    if ((mask & kHasProperties) != 0) {
      op.properties = in.ok() && out_.op_names[op.name].registered
                          ? in.Index(out_.properties.size(), "properties")
                          : in.Index(out_.attrs.size(), "attributes");
    }
    if ((mask & kHasResults) != 0) {
      op.results = {static_cast<uint32_t>(out_.value_types.size()),
                    static_cast<uint32_t>(in.Count("results"))};
      for (size_t i = 0; i < op.results.size && in.ok(); ++i)
        Define(frame, in.Index(out_.types.size(), "types"));
    }
    if ((mask & kHasOperands) != 0) {
      op.operands = {static_cast<uint32_t>(out_.operands.size()),
                     static_cast<uint32_t>(in.Count("operands"))};
      for (size_t i = 0; i < op.operands.size && in.ok(); ++i) {
        const size_t number = in.Index(visible_values_.size() - frame.scope, "values");
        const uint32_t value = in.ok() ? visible_values_[frame.scope + number] : 0;
        if (value == kNone) in.Fail("an op uses a value before it is defined");
        out_.operands.push_back(value);
      }
    }
    if ((mask & kHasSuccessors) != 0 && in.ok())
      return NotSupported("an op branches to another block");
    if ((mask & kHasUseLists) != 0) SkipUseLists(in, op.results.size);
    bool isolated = false;
    const uint64_t regions = (mask & kHasRegions) != 0 ? in.VarInt(&isolated) : 0;
    if ((mask & 0x80) != 0) in.Fail("an op's record is of an unknown form");
    if (regions > in.left()) in.Fail("an op has more regions than bytes are left");
    if (in.ok() && out_.regions.size() + regions > limits_.ops)
      return TooMany("regions", limits_.ops);
    TESSERA_RETURN_IF_ERROR(in.status());
    if (out_.value_types.size() > limits_.values || out_.operands.size() > 2 * limits_.values)
      return TooMany("values", limits_.values);
    op.regions = {static_cast<uint32_t>(out_.regions.size()), static_cast<uint32_t>(regions)};
    op.end = out_.ops.size() + 1;
    op.isolated = isolated;
    out_.ops.push_back(op);
    return regions == 0 ? absl::OkStatus() : OpenRegions(frame, op, isolated);
  }

  // Begins the regions of `op`. `outer` is invalid after this call, because frames_ grows.
  absl::Status OpenRegions(const Frame& outer, const RawOp& op, bool isolated) {
    if (frames_.size() >= static_cast<size_t>(limits_.nesting))
      return TooMany("regions within each other", limits_.nesting);
    Frame frame;
    frame.op = out_.ops.size() - 1;
    frame.region = op.regions.begin;
    frame.regions_end = op.regions.begin + op.regions.size;
    frame.scope = isolated ? visible_values_.size() : outer.scope;
    frame.in = outer.in;
    if (isolated && out_.version >= kIsolatedSections) {
      auto [id, section] = NextSection(*outer.in);
      if (id != kIr) outer.in->Fail("the regions of an isolated op are not in a section of ops");
      TESSERA_RETURN_IF_ERROR(outer.in->status());
      frame.section = std::make_unique<Cursor>(std::move(section));
      frame.in = frame.section.get();
    }
    out_.regions.resize(frame.regions_end);
    frames_.push_back(std::move(frame));
    return absl::OkStatus();
  }

  // Skips the order in which MLIR lists the uses of a value, which has no meaning here.
  static void SkipUseLists(Cursor& in, size_t values) {
    const size_t lists = values > 1 ? in.Count("lists of uses") : 1;
    for (size_t i = 0; i < lists && in.ok(); ++i) {
      if (values > 1) in.VarInt();
      bool has_index_pairs = false;
      const uint64_t uses = in.VarInt(&has_index_pairs);
      for (uint64_t k = 0; k < uses && in.ok(); ++k) in.VarInt();
    }
  }

  const ReadLimits limits_;
  Bytecode out_;
  std::vector<Frame> frames_;
  // The values that may be used, by number. An entry is kNone until the value is defined.
  std::vector<uint32_t> visible_values_;
};

}  // namespace

absl::StatusOr<Bytecode> ReadBytecode(Bytes bytes, const ReadLimits& limits) {
  return Reader(limits).Read(bytes);
}

}  // namespace tessera::ir::stablehlo
