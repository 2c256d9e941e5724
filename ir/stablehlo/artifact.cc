// Decodes the attributes, types and op names of an artifact by the rows of entries.def and
// vhlo_ops.def. It is the second step of reading, after ReadBytecode; the importer and Inspect work
// on its result.
#include "ir/stablehlo/artifact.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/stablehlo/encodings.h"

namespace tessera::ir::stablehlo {
namespace {

absl::Status NotSupported(std::string what) {
  return MakeError(ErrorKind::kNotImplemented, absl::StrCat("StableHLO: ", what));
}
// ---- Attributes and types. ----------------------------------------------------------------------
constexpr size_t kFloatNameMax = 32;

class Decoder {
 public:
  explicit Decoder(Artifact& out) : out_(out), code_(out.code) {}

  absl::Status Decode() {
    // Types come first, because the width of an integer is that of its type.
    out_.types.resize(code_.types.size());
    for (size_t i = 0; i < code_.types.size(); ++i) {
      TESSERA_RETURN_IF_ERROR(DecodeEntry(code_.types[i], kTypeRows, &out_.types[i],
                                          [&](const TypeRow& row, DecodedType& type) {
                                            type.kind = row.kind;
                                            type.dtype = row.dtype;
                                            if (row.bits > 0) AddInt(type, row.bits);
                                            if (row.kind == TypeKind::kInteger) DecodeInteger(type);
                                          }));
    }
    out_.attrs.resize(code_.attrs.size());
    for (size_t i = 0; i < code_.attrs.size(); ++i)
      TESSERA_RETURN_IF_ERROR(
          DecodeEntry(code_.attrs[i], kAttrRows, &out_.attrs[i],
                      [](const AttrRow& row, Attr& attr) { attr.kind = row.kind; }));
    return absl::OkStatus();
  }

 private:
  template <typename Row, size_t kRows, typename T, typename Set>
  absl::Status DecodeEntry(const Entry& entry, const Row (&rows)[kRows], T* out, Set set) {
    out->bytes = entry.bytes;
    const Dialect dialect = DialectOf(code_.dialects[entry.dialect]);
    if (!entry.is_custom) ReadText(entry.bytes, out);
    if (!entry.is_custom || dialect == Dialect::kOther) return absl::OkStatus();
    Cursor in(entry.bytes, "an attribute or type");
    const uint64_t code = in.VarInt();
    const Row* const row = FindRow(rows, dialect, code);
    if (row == nullptr) return in.status();
    out->bytes = {};
    out->refs.begin = out_.refs.size();
    out->ints.begin = out_.ints.size();
    type_ = kNone;
    for (const char* field = row->fields; *field != 0 && in.ok(); ++field)
      ReadField(in, *field, *out);
    out->refs.size = out_.refs.size() - out->refs.begin;
    out->ints.size = out_.ints.size() - out->ints.begin;
    TESSERA_RETURN_IF_ERROR(in.Finish());
    set(*row, *out);
    return absl::OkStatus();
  }

  // MLIR's encoding lacks floats of 8 bits and fewer. They are texts such as "f8E4M3FN", with a
  // zero at the end.
  static void ReadText(Bytes bytes, DecodedType* type) {
    if (bytes.empty() || bytes.size() > kFloatNameMax) return;
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size() - 1);
    const std::optional<DType> dtype = ParseDType(absl::AsciiStrToLower(ToAbsl(text)));
    if (!dtype || !IsFloat(*dtype)) return;
    type->kind = TypeKind::kScalar;
    type->dtype = *dtype;
  }
  static void ReadText(Bytes, Attr*) {}

  // Reads one field by its letter in entries.def; a capital letter is a list of such fields.
  // References are only checked to be in range: they may point forward or in circles. A number's
  // width is that of the type that was read before it.
  void ReadField(Cursor& in, char field, Fields& out) {
    if (field >= 'A' && field <= 'Z') {
      const size_t count = in.Count("elements");
      out_.ints.push_back(count);
      for (size_t i = 0; i < count && in.ok(); ++i) ReadField(in, field - 'A' + 'a', out);
      return;
    }
    switch (field) {
      case 'a':
        return AddAttrRef(in);
      case 'n':
        AddAttrRef(in);
        return AddAttrRef(in);
      case 'o': {
        bool is_present = false;
        const uint64_t index = in.VarInt(&is_present);
        out_.refs.push_back(is_present ? in.CheckedIndex(index, code_.attrs.size(), "attributes")
                                       : kNone);
        return;
      }
      case 'c': {
        if (in.VarInt() != 0) return AddAttrRef(in);
        out_.refs.push_back(kNone);
        return;
      }
      case 't':
        type_ = in.Index(code_.types.size(), "types");
        out_.refs.push_back(type_);
        return;
      case 's': {
        const uint32_t index = in.Index(code_.strings.size(), "strings");
        if (!in.ok()) return;
        const std::string_view text = code_.strings[index];
        out.bytes = {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
        return;
      }
      case 'v':
        return AddInt(static_cast<int64_t>(in.VarInt()));
      case 'd':
      case 'z':
        return AddInt(in.SignedVarInt());
      case 'y':
        return AddInt(in.Byte());
      case 'p': {
        bool is_present = false;
        const uint64_t value = in.VarInt(&is_present);
        AddInt(is_present);
        return AddInt(is_present ? static_cast<int64_t>(value) : 0);
      }
      case 'b':
        out.bytes = in.Take(in.Count("bytes"));
        return;
      case 'f':
      case 'i': {
        const int bits = Bits(type_);
        if (bits == 0 || bits > 64) {
          in.Fail("a number has no valid type, or more than 64 bits");
          return;
        }
        return AddInt(bits <= 8 ? in.Byte() : in.SignedVarInt());
      }
      default:
        in.Fail("a field has no valid kind");
    }
  }
  void AddAttrRef(Cursor& in) { out_.refs.push_back(in.Index(code_.attrs.size(), "attributes")); }
  void AddInt(int64_t value) { out_.ints.push_back(value); }
  void AddInt(Fields& out, int64_t value) {
    out_.ints.push_back(value);
    ++out.ints.size;
  }

  // Decodes MLIR's integer type: a width, and in the two low bits 0 for signless, which StableHLO
  // takes as signed, 1 for signed, 2 for unsigned.
  void DecodeInteger(DecodedType& type) {
    const uint64_t encoded = out_.ints[type.ints.begin];
    const bool is_unsigned = (encoded & 3) == 2;
    const auto set_scalar = [&](DType dtype) {
      type.kind = TypeKind::kScalar;
      type.dtype = dtype;
    };
    switch (encoded >> 2) {
      case 1:
        return set_scalar(DType::kBool);
      case 2:
        return set_scalar(is_unsigned ? DType::kU2 : DType::kS2);
      case 4:
        return set_scalar(is_unsigned ? DType::kU4 : DType::kS4);
      case 8:
        return set_scalar(is_unsigned ? DType::kU8 : DType::kS8);
      case 16:
        return set_scalar(is_unsigned ? DType::kU16 : DType::kS16);
      case 32:
        return set_scalar(is_unsigned ? DType::kU32 : DType::kS32);
      case 64:
        return set_scalar(is_unsigned ? DType::kU64 : DType::kS64);
      default:
        break;
    }
    type.kind = TypeKind::kOtherScalar;
    out_.ints[type.ints.begin] = static_cast<int64_t>(encoded >> 2);
  }

  // Returns the number of bits in a number's encoding, or 0 if the type is not a number.
  int Bits(uint32_t index) const {
    if (index == kNone || index >= out_.types.size()) return 0;
    const DecodedType& type = out_.types[index];
    switch (type.kind) {
      case TypeKind::kScalar:
        return type.dtype == DType::kBool ? 1 : BitWidth(type.dtype);
      case TypeKind::kIndex:
        return 64;
      case TypeKind::kOtherScalar:
        return static_cast<int>(std::clamp<int64_t>(out_.ints[type.ints.begin], 0, 128));
      default:
        return 0;
    }
  }

  Artifact& out_;
  const Bytecode& code_;
  uint32_t type_ = kNone;  // the type read last in this entry
};

// ---- Ops. ---------------------------------------------------------------------------------------
class OpDecoder {
 public:
  explicit OpDecoder(Artifact& out) : out_(out), code_(out.code) {}

  absl::Status Decode() {
    for (const OpName& name : code_.op_names) AddForm(name);
    out_.op_attrs.resize(code_.ops.size());
    for (size_t i = 0; i < code_.ops.size(); ++i) {
      const RawOp& op = code_.ops[i];
      if (rows_[op.name] == nullptr) return UnknownOp(op);
      out_.op_attrs[i].begin = out_.named_attrs.size();
      TESSERA_RETURN_IF_ERROR(ReadAttrs(op, *rows_[op.name], &out_.op_attrs[i]));
    }
    return absl::OkStatus();
  }

 private:
  void AddForm(const OpName& op) {
    OpForm form{code_.dialects[op.dialect], op.name};
    const size_t at = form.name.rfind("_v");
    if (form.dialect == "vhlo" && at != std::string_view::npos &&
        absl::SimpleAtoi(ToAbsl(form.name.substr(at + 2)), &form.version))
      form.name = form.name.substr(0, at);
    const OpRow* const row = FindOpRow(form.dialect, form.name, form.version);
    form.known = row != nullptr;
    out_.forms.push_back(form);
    rows_.push_back(row);
  }

  absl::Status UnknownOp(const RawOp& op) const {
    const OpForm& form = out_.form(op);
    if (form.dialect == "vhlo")
      return NotSupported(absl::StrCat(
          "the op ", Quoted(code_.op_names[op.name].name), " of an artifact that ",
          Quoted(code_.producer),
          " wrote: this reader knows StableHLO up to 1.20; export for an older version"));
    return NotSupported(absl::StrCat(
        "the op ", Quoted(form.name), " of the dialect ", Quoted(form.dialect), ", written by ",
        Quoted(code_.producer),
        ": only ops of VHLO and Shardy are read; send a portable artifact, as jax.export writes"));
  }

  // Reads the op's own attributes into `named_attrs`, and sets `*out` to their range there.
  absl::Status ReadAttrs(const RawOp& op, const OpRow& row, Range* out) {
    std::string_view words = row.attributes;
    if (op.properties != kNone && code_.op_names[op.name].registered) {
      Cursor in(code_.properties[op.properties], "properties of an op");
      while (!words.empty()) {
        std::string_view name = NextWord(words);
        bool is_present = true;
        const bool optional = name.back() == '?';
        const uint64_t index = optional ? in.VarInt(&is_present) : in.VarInt();
        if (optional) name.remove_suffix(1);
        if (is_present)
          out_.named_attrs.push_back(
              {name, in.CheckedIndex(index, code_.attrs.size(), "attributes")});
      }
      out->size = out_.named_attrs.size() - out->begin;
      return in.Finish();
    }
    // Otherwise the op's own attributes are in a dictionary, among attributes that other tools
    // attached.
    const uint32_t dictionary = op.properties != kNone ? op.properties : op.attrs;
    if (dictionary == kNone) return absl::OkStatus();
    if (out_.attrs[dictionary].kind != AttrKind::kDictionary)
      return MakeError(ErrorKind::kMalformedProgram,
                       absl::StrCat("StableHLO: the attributes of ", Quoted(out_.form(op).name),
                                    " are not a dictionary"));
    // Ops that share a dictionary have its attributes once in `named_attrs`.
    const auto [known, is_new] = ranges_read_.try_emplace({dictionary, op.name});
    if (!is_new) {
      *out = known->second;
      return absl::OkStatus();
    }
    const absl::Span<const uint32_t> refs = Slice(out_.refs, out_.attrs[dictionary].refs);
    std::set<std::string_view> keys;
    for (size_t i = 0; i + 1 < refs.size(); i += 2) {
      const Attr& key = out_.attrs[refs[i]];
      if (key.kind != AttrKind::kString || !keys.insert(key.text()).second)
        return MakeError(ErrorKind::kMalformedProgram,
                         absl::StrCat("StableHLO: the attributes of ", Quoted(out_.form(op).name),
                                      " have a name twice, or a name that is not a text"));
    }
    while (!words.empty()) {
      std::string_view name = NextWord(words);
      if (name.back() == '?') name.remove_suffix(1);
      for (size_t i = 0; i + 1 < refs.size(); i += 2) {
        const Attr& key = out_.attrs[refs[i]];
        if (key.kind == AttrKind::kString && key.text() == name)
          out_.named_attrs.push_back({name, refs[i + 1]});
      }
    }
    out->size = out_.named_attrs.size() - out->begin;
    known->second = *out;
    return absl::OkStatus();
  }

  Artifact& out_;
  const Bytecode& code_;
  std::vector<const OpRow*> rows_;  // the row of each of code_.op_names
  // The attributes of dictionaries that were read, by dictionary and op name.
  std::map<std::pair<uint32_t, uint32_t>, Range> ranges_read_;
};

}  // namespace

std::string Quoted(std::string_view text) {
  return absl::StrCat("'", absl::CEscape(ToAbsl(text.substr(0, 64))), "'");
}

uint32_t Artifact::Find(uint32_t op, std::string_view name) const {
  for (const NamedAttr& attr : Slice(named_attrs, op_attrs[op]))
    if (attr.name == name) return attr.attr;
  return kNone;
}
uint32_t Artifact::InDictionary(uint32_t attr, std::string_view name) const {
  if (attr == kNone || attrs[attr].kind != AttrKind::kDictionary) return kNone;
  const absl::Span<const uint32_t> entries =
      Slice(refs, attrs[attr].refs).subspan(0, 2 * kDictionaryMax);
  for (size_t i = 0; i + 1 < entries.size(); i += 2)
    if (attrs[entries[i]].kind == AttrKind::kString && attrs[entries[i]].text() == name)
      return entries[i + 1];
  return kNone;
}

absl::StatusOr<Artifact> ReadArtifact(Bytes bytes, const ReadLimits& limits) {
  Artifact out;
  TESSERA_ASSIGN_OR_RETURN(out.code, ReadBytecode(bytes, limits));
  TESSERA_RETURN_IF_ERROR(Decoder(out).Decode());
  TESSERA_RETURN_IF_ERROR(OpDecoder(out).Decode());
  return out;
}

std::string NameOf(const OpForm& form) {
  return form.dialect == "vhlo" ? std::string(form.name)
                                : absl::StrCat(ToAbsl(form.dialect), ".", ToAbsl(form.name));
}

std::vector<std::pair<std::string, int64_t>> CountOps(const Artifact& artifact) {
  std::vector<int64_t> counts(artifact.forms.size());
  for (const RawOp& op : artifact.code.ops) ++counts[op.name];
  std::map<std::string, int64_t> by_name;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) by_name[NameOf(artifact.forms[i])] += counts[i];
  }
  return {by_name.begin(), by_name.end()};
}

}  // namespace tessera::ir::stablehlo
