#include "worker/files/index.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "worker/files/json.h"

namespace tessera::worker::files {
namespace {

using api::FileArray;
using api::FileFormat;
using ir::DType;

constexpr int64_t kRankMax = 32;
constexpr int64_t kElementsMax = int64_t{1} << 48;
constexpr int64_t kSafetensorsPrefix = 8;  // the length of the header
constexpr std::string_view kNumpyMagic = "\x93NUMPY";
constexpr int64_t kNumpyAlign = 64;
constexpr int64_t kSafetensorsAlign = 8;

absl::Status Corrupt(absl::string_view format, absl::string_view why) {
  return MakeError(ErrorKind::kFileCorrupt, absl::StrCat(format, ": ", why));
}

// Both formats' names of a dtype; empty where a format has none.
struct DTypeRow {
  DType dtype;
  std::string_view safetensors, numpy;
};
constexpr DTypeRow kDTypes[] = {
    {DType::kBool, "BOOL", "|b1"},     {DType::kS8, "I8", "|i1"},       {DType::kS16, "I16", "<i2"},
    {DType::kS32, "I32", "<i4"},       {DType::kS64, "I64", "<i8"},     {DType::kU8, "U8", "|u1"},
    {DType::kU16, "U16", "<u2"},       {DType::kU32, "U32", "<u4"},     {DType::kU64, "U64", "<u8"},
    {DType::kF16, "F16", "<f2"},       {DType::kBF16, "BF16", ""},      {DType::kF32, "F32", "<f4"},
    {DType::kF64, "F64", "<f8"},       {DType::kC64, "", "<c8"},        {DType::kC128, "", "<c16"},
    {DType::kF8E4M3FN, "F8_E4M3", ""}, {DType::kF8E5M2, "F8_E5M2", ""},
};
const DTypeRow& RowOf(DType dtype) {
  return *std::find_if(std::begin(kDTypes), std::end(kDTypes),
                       [&](const DTypeRow& row) { return row.dtype == dtype; });
}
std::optional<DType> DTypeNamed(std::string_view name, std::string_view DTypeRow::*format) {
  for (const DTypeRow& row : kDTypes)
    if (!(row.*format).empty() && row.*format == name) return row.dtype;
  return std::nullopt;
}

// The size of an array, unless it is absurd.
std::optional<int64_t> BytesOf(const FileArray& array) {
  int64_t elements = 1;
  bool empty = false;
  for (const int64_t dim : array.shape) empty |= dim == 0;
  for (const int64_t dim : array.shape) {
    if (dim < 0 || dim > kElementsMax || (!empty && dim > kElementsMax / elements)) {
      return std::nullopt;
    }
    if (!empty) elements *= dim;
  }
  return empty ? 0 : elements * ir::ByteWidth(array.dtype);
}

// ---- safetensors. -------------------------------------------------------------------------------

// [a, b, ...]
bool ReadNumbers(JsonReader& json, int64_t count_max, std::vector<int64_t>* out) {
  out->clear();
  if (!json.Expect('[')) return false;
  if (json.Try(']')) return true;
  do {
    if (static_cast<int64_t>(out->size()) == count_max) return json.Fail("too many numbers");
    if (!json.Number(&out->emplace_back())) return false;
  } while (json.Try(','));
  return json.Expect(']');
}

// {"format": "pt", ...}, which is for others.
bool SkipMetadata(JsonReader& json) {
  std::string text;
  if (!json.Expect('{')) return false;
  if (json.Try('}')) return true;
  do {
    if (!json.String(&text, kHeaderBytesMax) || !json.Expect(':') ||
        !json.String(&text, kHeaderBytesMax)) {
      return false;
    }
  } while (json.Try(','));
  return json.Expect('}');
}

// {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, each key once, in any order.
bool ReadTensor(JsonReader& json, Entry* entry, int64_t* end) {
  std::set<std::string> seen;
  std::string key, text;
  std::vector<int64_t> offsets;
  if (!json.Expect('{')) return false;
  do {
    if (!json.String(&key, 16) || !json.Expect(':')) return false;
    if (!seen.insert(key).second) return json.Fail("a key twice");
    if (key == "dtype") {
      if (!json.String(&text, 16)) return false;
      const auto dtype = DTypeNamed(text, &DTypeRow::safetensors);
      if (!dtype) return json.Fail("the dtype " + text + " is unknown here");
      entry->array.dtype = *dtype;
    } else if (key == "shape") {
      if (!ReadNumbers(json, kRankMax, &entry->array.shape)) return false;
    } else if (key == "data_offsets") {
      if (!ReadNumbers(json, 2, &offsets)) return false;
      if (offsets.size() != 2 || offsets[0] > offsets[1]) return json.Fail("expected two offsets");
    } else {
      return json.Fail("the key " + key + " is unknown here");
    }
  } while (json.Try(','));
  if (!json.Expect('}')) return false;
  if (seen.size() != 3) return json.Fail("expected dtype, shape and data_offsets");
  entry->offset = offsets[0];
  *end = offsets[1];
  const std::optional<int64_t> bytes = BytesOf(entry->array);
  return (bytes && *bytes == *end - entry->offset) ||
         json.Fail("the offsets do not fit dtype and shape of " + entry->array.name);
}

bool ReadTensors(JsonReader& json, std::vector<Entry>* entries) {
  std::set<std::string> names;
  std::string name;
  if (!json.Expect('{')) return false;
  if (json.Try('}')) return json.End();
  do {
    if (!json.String(&name, kHeaderBytesMax) || !json.Expect(':')) return false;
    if (!names.insert(name).second) return json.Fail("a name twice");
    if (name == "__metadata__") {
      if (!SkipMetadata(json)) return false;
      continue;
    }
    if (name.size() > api::kFileNameBytesMax) return json.Fail("the name is too long");
    if (entries->size() == api::kFileArraysMax) return json.Fail("too many tensors");
    Entry& entry = entries->emplace_back();
    entry.array.name = name;
    int64_t end = 0;
    if (!ReadTensor(json, &entry, &end)) return false;
  } while (json.Try(','));
  return json.Expect('}') && json.End();
}

absl::StatusOr<Index> ReadSafetensors(int64_t file_bytes, const ReadAt& read_at) {
  unsigned char prefix[kSafetensorsPrefix];
  if (file_bytes < kSafetensorsPrefix) return Corrupt("safetensors", "shorter than 8 bytes");
  TESSERA_RETURN_IF_ERROR(read_at(0, kSafetensorsPrefix, reinterpret_cast<char*>(prefix)));
  uint64_t size = 0;
  for (int i = 7; i >= 0; --i) size = size << 8 | prefix[i];
  if (size > static_cast<uint64_t>(std::min(kHeaderBytesMax, file_bytes - kSafetensorsPrefix))) {
    return Corrupt("safetensors", absl::StrCat("a header of ", size, " bytes in a file of ",
                                               file_bytes, "; at most ", kHeaderBytesMax));
  }
  std::string header(size, '\0');
  const int64_t data = kSafetensorsPrefix + static_cast<int64_t>(size);
  TESSERA_RETURN_IF_ERROR(read_at(kSafetensorsPrefix, static_cast<int64_t>(size), header.data()));
  Index index;
  index.file_bytes = file_bytes;
  TESSERA_ASSIGN_OR_RETURN(index.entries, ParseSafetensors(header, file_bytes - data));
  for (Entry& entry : index.entries) entry.offset += data;
  return index;
}

// ---- .npy. --------------------------------------------------------------------------------------

// A dictionary literal of Python with just the keys that NumPy writes.
class NumpyReader {
 public:
  explicit NumpyReader(std::string_view text) : text_(text) {}

  bool Read(FileArray* array, bool* fortran) {
    std::set<std::string> seen;
    if (!Expect('{')) return false;
    do {
      if (Try('}')) return Finish(seen);
      std::string key;
      if (!String(&key) || !Expect(':')) return false;
      if (!seen.insert(key).second) return Fail("a key twice");
      if (key == "descr") {
        std::string descr;
        if (!String(&descr)) return false;
        const auto dtype = DTypeNamed(descr, &DTypeRow::numpy);
        if (!dtype) return Fail("the dtype " + descr + " is unknown here");
        array->dtype = *dtype;
      } else if (key == "fortran_order") {
        if (Word("True")) {
          *fortran = true;
        } else if (!Word("False")) {
          return Fail("expected True or False");
        }
      } else if (key == "shape") {
        if (!Shape(&array->shape)) return false;
      } else {
        return Fail("the key " + key + " is unknown here");
      }
    } while (Try(','));
    return Expect('}') && Finish(seen);
  }
  const std::string& error() const { return error_; }

 private:
  bool Fail(const std::string& why) {
    if (error_.empty()) error_ = absl::StrCat("at byte ", at_, " of the header: ", why);
    return false;
  }
  void Blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool Try(char c) {
    Blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool Expect(char c) { return Try(c) || Fail(std::string("expected '") + c + "'"); }
  bool Word(std::string_view word) {
    Blanks();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  bool String(std::string* out) {
    Blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') return Fail("expected a string");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos || end - at_ > 64) return Fail("the string does not end");
    *out = std::string(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return true;
  }
  bool Shape(ir::Dims* shape) {
    if (!Expect('(')) return false;
    while (!Try(')')) {
      Blanks();
      const size_t begin = at_;
      int64_t dim = 0;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        dim = dim * 10 + (text_[at_] - '0');
        if (dim > kElementsMax) return Fail("a dimension is too large");
      }
      if (at_ == begin) return Fail("expected a dimension");
      if (static_cast<int64_t>(shape->size()) == kRankMax) return Fail("too many dimensions");
      shape->push_back(dim);
      if (Try(')')) return shape->size() > 1 || Fail("expected a ',' in the tuple of one");
      if (!Expect(',')) return false;
    }
    return true;
  }
  bool Finish(const std::set<std::string>& seen) {
    Blanks();
    if (at_ != text_.size()) return Fail("expected the end");
    return seen.size() == 3 || Fail("expected descr, fortran_order and shape");
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::string error_;
};

absl::StatusOr<Index> ReadNumpy(int64_t file_bytes, const ReadAt& read_at) {
  // Magic, version, and the length in 2 bytes (version 1) or 4.
  unsigned char prefix[12] = {};
  if (file_bytes < 10) return Corrupt("npy", "shorter than 10 bytes");
  TESSERA_RETURN_IF_ERROR(
      read_at(0, std::min<int64_t>(file_bytes, 12), reinterpret_cast<char*>(prefix)));
  if (std::memcmp(prefix, kNumpyMagic.data(), kNumpyMagic.size()) != 0) {
    return Corrupt("npy", "it does not begin with \\x93NUMPY");
  }
  const int version = prefix[6];
  if (version < 1 || version > 3 || prefix[7] != 0) {
    return Corrupt("npy", absl::StrCat("version ", version, ".", prefix[7], " is unknown here"));
  }
  int64_t size = prefix[8] | prefix[9] << 8;
  if (version > 1)
    size |= static_cast<int64_t>(prefix[10]) << 16 | static_cast<int64_t>(prefix[11]) << 24;
  const int64_t begin = version > 1 ? 12 : 10;
  if (size > std::min(kHeaderBytesMax, file_bytes - begin)) {
    return Corrupt("npy", absl::StrCat("a header of ", size, " bytes in a file of ", file_bytes));
  }
  std::string header(static_cast<size_t>(size), '\0');
  TESSERA_RETURN_IF_ERROR(read_at(begin, size, header.data()));
  Index index;
  index.file_bytes = file_bytes;
  Entry& entry = index.entries.emplace_back();
  entry.offset = begin + size;
  TESSERA_ASSIGN_OR_RETURN(entry.array, ParseNumpy(header, file_bytes - entry.offset));
  return index;
}

}  // namespace

const Entry* Index::Find(std::string_view name) const {
  for (const Entry& entry : entries)
    if (entry.array.name == name) return &entry;
  return nullptr;
}

absl::StatusOr<std::vector<Entry>> ParseSafetensors(std::string_view header, int64_t data_bytes) {
  JsonReader json(header);
  std::vector<Entry> entries;
  if (!ReadTensors(json, &entries)) return Corrupt("safetensors", json.error());
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.offset, a.offset + a.bytes()) < std::pair(b.offset, b.offset + b.bytes());
  });
  int64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.offset != end) {
      return Corrupt("safetensors",
                     absl::StrCat("tensor '", entry.array.name, "' begins at ", entry.offset,
                                  "; the ones before it end at ", end));
    }
    end += entry.bytes();
  }
  if (end != data_bytes) {
    return Corrupt("safetensors", absl::StrCat("the tensors end at ", end, ", the file at ",
                                               data_bytes, " behind the header"));
  }
  return entries;
}

absl::StatusOr<FileArray> ParseNumpy(std::string_view header, int64_t data_bytes) {
  NumpyReader reader(header);
  FileArray array;
  bool fortran = false;
  if (!reader.Read(&array, &fortran)) return Corrupt("npy", reader.error());
  const std::optional<int64_t> bytes = BytesOf(array);
  if (!bytes || *bytes != data_bytes) {
    return Corrupt("npy", absl::StrCat(ir::MakeType(array.dtype, {}).ToString(), " (",
                                       absl::StrJoin(array.shape, ", "), ") and ", data_bytes,
                                       " bytes of data"));
  }
  if (fortran && array.shape.size() > 1) {
    return MakeError(ErrorKind::kNotImplemented,
                     "npy: the file is in Fortran's order; write it from a C-contiguous array");
  }
  return array;
}

absl::StatusOr<Index> ReadIndex(FileFormat format, int64_t file_bytes, const ReadAt& read_at) {
  return format == FileFormat::kSafetensors ? ReadSafetensors(file_bytes, read_at)
                                            : ReadNumpy(file_bytes, read_at);
}

std::string MakeHeader(FileFormat format, absl::Span<const FileArray> arrays, Index* index) {
  index->entries.clear();
  int64_t at = 0;
  for (const FileArray& array : arrays) {
    index->entries.push_back({array, at});
    at += index->entries.back().bytes();
  }
  std::string header;
  if (format == FileFormat::kNumpy) {
    const FileArray& array = arrays[0];
    std::string dict = absl::StrCat(
        "{'descr': '", ToAbsl(RowOf(array.dtype).numpy), "', 'fortran_order': False, 'shape': (",
        absl::StrJoin(array.shape, ", "), array.shape.size() == 1 ? "," : "", "), }");
    // Version 1: ten bytes before it; the newline ends on a multiple.
    const int64_t total =
        (10 + static_cast<int64_t>(dict.size()) + 1 + kNumpyAlign - 1) / kNumpyAlign * kNumpyAlign;
    dict.append(static_cast<size_t>(total) - 10 - dict.size() - 1, ' ');
    dict.push_back('\n');
    header = std::string(kNumpyMagic) + std::string("\x01\x00", 2);
    header.push_back(static_cast<char>(dict.size() & 0xff));
    header.push_back(static_cast<char>(dict.size() >> 8));
    header += dict;
  } else {
    std::string json = "{";
    for (const Entry& entry : index->entries) {
      absl::StrAppend(&json, json.size() > 1 ? "," : "", JsonQuoted(entry.array.name),
                      ":{\"dtype\":\"", ToAbsl(RowOf(entry.array.dtype).safetensors),
                      "\",\"shape\":[", absl::StrJoin(entry.array.shape, ","),
                      "],\"data_offsets\":[", entry.offset, ",", entry.offset + entry.bytes(),
                      "]}");
    }
    json.push_back('}');
    while (static_cast<int64_t>(json.size()) % kSafetensorsAlign != 0) json.push_back(' ');
    for (int i = 0; i < 8; ++i) header.push_back(static_cast<char>(json.size() >> (8 * i) & 0xff));
    header += json;
  }
  for (Entry& entry : index->entries) entry.offset += static_cast<int64_t>(header.size());
  index->file_bytes = at + static_cast<int64_t>(header.size());
  return header;
}

}  // namespace tessera::worker::files
