// The headers of .safetensors and .npy files. Save (task.cc) makes a header from the arrays of a
// command, and Load and Inspect parse the header of a user's file. Files are untrusted, so both
// parsers are hand-written for exactly the fields that the formats have, and name the byte at which
// they fail.
#include "worker/files/index.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace tessera::worker::files {
namespace {

using api::FileArrayInfo;
using api::FileFormat;
using ir::DType;

constexpr size_t kRankMax = 32;
constexpr int64_t kElementsMax = int64_t{1} << 48;
// Size in bytes of the field that holds the header's length.
constexpr int64_t kSafetensorsPrefixBytes = 8;
constexpr std::string_view kNumpyMagic = "\x93NUMPY";
constexpr int64_t kNumpyAlign = 64;
constexpr int64_t kSafetensorsAlign = 8;

absl::Status CorruptError(absl::string_view format, absl::string_view why) {
  return MakeError(ErrorKind::kFileCorrupt, absl::StrCat(format, ": ", why));
}

// The name of a dtype in each format, empty if a format has no name for it.
struct DTypeRow {
  DType dtype;
  std::string_view safetensors, numpy;
};
constexpr DTypeRow kDTypes[] = {
    {DType::kBool, "BOOL", "|b1"},   {DType::kS8, "I8", "|i1"},
    {DType::kS16, "I16", "<i2"},     {DType::kS32, "I32", "<i4"},
    {DType::kS64, "I64", "<i8"},     {DType::kU8, "U8", "|u1"},
    {DType::kU16, "U16", "<u2"},     {DType::kU32, "U32", "<u4"},
    {DType::kU64, "U64", "<u8"},     {DType::kF16, "F16", "<f2"},
    {DType::kBF16, "BF16", ""},      {DType::kF32, "F32", "<f4"},
    {DType::kF64, "F64", "<f8"},     {DType::kC64, "", "<c8"},
    {DType::kC128, "", "<c16"},      {DType::kF8E4M3FN, "F8_E4M3", ""},
    {DType::kF8E5M2, "F8_E5M2", ""}, {DType::kF8E8M0FNU, "F8_E8M0", ""},
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

// Returns the size of an array in bytes, or nullopt if a dim is negative or the array has more than
// kElementsMax elements.
std::optional<int64_t> BytesOf(const FileArrayInfo& array) {
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

constexpr size_t kKeyBytesMax = 16;

std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/false,
                                   nlohmann::json::error_handler_t::replace);
}

// Counts the bytes that the JSON parser has read, so that an error can name its place.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, size_t* bytes_read) : at_(at), bytes_read_(bytes_read) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*bytes_read_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  size_t* bytes_read_;
};

// The SAX handler of a header. It builds no tree, so deep nesting takes no memory. A header looks
// like this:
//  {"__metadata__": {"format": "pt", ...},
//   NAME: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
// Each key occurs once, and keys may come in any order. The metadata is ignored.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  absl::StatusOr<std::vector<Entry>> Read() {
    const CountingIterator begin(text_.data(), &bytes_read_),
        end(text_.data() + text_.size(), nullptr);
    if (!nlohmann::json::sax_parse(begin, end, this)) return CorruptError("safetensors", error_);
    return std::move(entries_);
  }

  bool start_object(size_t) override {
    if (state_ == State::kBegin) return Enter(State::kTensors);
    if (state_ != State::kTensors) return WrongValue();
    if (name_ == "__metadata__") return Enter(State::kMetadata);
    if (name_.size() > api::kMaxArrayNameBytes) return Fail("the name is too long");
    if (entries_.size() == api::kMaxArraysPerFile) return Fail("too many tensors");
    entries_.emplace_back().array.name = name_;
    keys_.clear();
    return Enter(State::kTensor);
  }
  bool key(std::string& key) override {
    if (state_ == State::kTensors) {
      name_ = key;
      return names_.insert(name_).second || Fail("a name occurs twice");
    }
    if (state_ == State::kMetadata) return true;
    if (key.size() > kKeyBytesMax) return Fail("the string is too long");
    if (!keys_.insert(key).second) return Fail("a key occurs twice");
    key_ = key;
    return key == "dtype" || key == "shape" || key == "data_offsets" ||
           Fail("the key " + key + " is unknown here");
  }
  bool string(std::string& text) override {
    if (state_ == State::kMetadata) return true;
    if (state_ != State::kTensor || key_ != "dtype") return WrongValue();
    if (text.size() > kKeyBytesMax) return Fail("the string is too long");
    const auto dtype = DTypeNamed(text, &DTypeRow::safetensors);
    if (!dtype) return Fail("the dtype " + text + " is unknown here");
    entries_.back().array.dtype = *dtype;
    return true;
  }
  bool start_array(size_t) override {
    if (state_ != State::kTensor || key_ == "dtype") return WrongValue();
    numbers_.clear();
    return Enter(State::kNumbers);
  }
  bool number_unsigned(uint64_t number) override {
    if (state_ != State::kNumbers) return WrongValue();
    if (number > std::numeric_limits<int64_t>::max()) return Fail("the number is too large");
    if (numbers_.size() == (key_ == "shape" ? kRankMax : 2)) return Fail("too many numbers");
    numbers_.push_back(static_cast<int64_t>(number));
    return true;
  }
  bool number_float(double, const std::string& text) override {
    if (state_ != State::kNumbers) return WrongValue();
    const bool whole = text.find_first_not_of("0123456789") == std::string::npos;
    return Fail(whole ? "the number is too large" : "expected a whole number");
  }
  bool end_array() override {
    (key_ == "shape" ? entries_.back().array.shape : offsets_) = numbers_;
    if (key_ == "data_offsets" && (offsets_.size() != 2 || offsets_[0] > offsets_[1]))
      return Fail("expected two offsets");
    return Enter(State::kTensor);
  }
  bool end_object() override {
    if (state_ == State::kTensors) return Enter(State::kEnd);
    if (state_ == State::kTensor) {
      Entry& entry = entries_.back();
      if (keys_.size() != 3) return Fail("expected dtype, shape and data_offsets");
      entry.offset = offsets_[0];
      const std::optional<int64_t> bytes = BytesOf(entry.array);
      if (!bytes || *bytes != offsets_[1] - offsets_[0])
        return Fail("the offsets do not fit dtype and shape of " + entry.array.name);
    }
    return Enter(State::kTensors);
  }
  bool number_integer(int64_t) override { return WrongValue(); }
  bool null() override { return WrongValue(); }
  bool boolean(bool) override { return WrongValue(); }
  bool binary(nlohmann::json::binary_t&) override { return WrongValue(); }
  // Reports invalid JSON. The library's text is "[json.exception...] parse error at line 1, column
  // 2: <why>", of which only <why> is used.
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& e) override {
    if (state_ == State::kEnd) return Fail("expected the end");
    const std::string_view text = e.what();
    const size_t why = text.find(": ");
    return Fail(std::string(why == text.npos ? text : text.substr(why + 2)));
  }

 private:
  enum class State : uint8_t { kBegin, kTensors, kMetadata, kTensor, kNumbers, kEnd };

  bool Enter(State state) {
    state_ = state;
    return true;
  }
  bool Fail(const std::string& why) {
    error_ = absl::StrCat("at byte ", bytes_read_, ": ", why);
    return false;
  }
  // Fails because this state expects another kind of value.
  bool WrongValue() {
    if (state_ == State::kNumbers) return Fail("expected a number from 0");
    if (state_ == State::kMetadata || (state_ == State::kTensor && key_ == "dtype"))
      return Fail("expected '\"'");
    return Fail(state_ == State::kTensor ? "expected '['" : "expected '{'");
  }

  const std::string_view text_;
  size_t bytes_read_ = 0;
  State state_ = State::kBegin;
  std::string name_, key_;              // the name and the key that were read last
  std::set<std::string> names_, keys_;  // all names of the file so far, and all keys of the tensor
  std::vector<int64_t> numbers_, offsets_;
  std::vector<Entry> entries_;
  std::string error_;
};

absl::StatusOr<Index> ReadSafetensors(int64_t file_bytes, const ReadAt& read_at) {
  unsigned char prefix[kSafetensorsPrefixBytes];
  if (file_bytes < kSafetensorsPrefixBytes)
    return CorruptError("safetensors", "shorter than 8 bytes");
  TESSERA_RETURN_IF_ERROR(read_at(0, kSafetensorsPrefixBytes, reinterpret_cast<char*>(prefix)));
  uint64_t size = 0;
  for (int i = 7; i >= 0; --i) size = size << 8 | prefix[i];
  if (size >
      static_cast<uint64_t>(std::min(kHeaderBytesMax, file_bytes - kSafetensorsPrefixBytes))) {
    return CorruptError("safetensors", absl::StrCat("a header of ", size, " bytes in a file of ",
                                                    file_bytes, "; at most ", kHeaderBytesMax));
  }
  std::string header(size, '\0');
  const int64_t data_offset = kSafetensorsPrefixBytes + static_cast<int64_t>(size);
  TESSERA_RETURN_IF_ERROR(
      read_at(kSafetensorsPrefixBytes, static_cast<int64_t>(size), header.data()));
  Index index;
  index.file_bytes = file_bytes;
  TESSERA_ASSIGN_OR_RETURN(index.entries, ParseSafetensors(header, file_bytes - data_offset));
  for (Entry& entry : index.entries) entry.offset += data_offset;
  return index;
}

// ---- .npy. --------------------------------------------------------------------------------------

// Parses a Python dictionary literal that has exactly the keys that NumPy writes.
class NumpyReader {
 public:
  explicit NumpyReader(std::string_view text) : text_(text) {}

  // Reads the dictionary into `*array` and `*fortran`. It accepts the small part of Python's syntax
  // that NumPy writes: strings, True and False, and a tuple of whole numbers. A real Python parser
  // is not needed, and would be a risk with untrusted files.
  bool Read(FileArrayInfo* array, bool* fortran) {
    std::set<std::string> seen;
    if (!Expect('{')) return false;
    do {
      if (Consume('}')) return CheckEnd(seen);
      std::string key;
      if (!ReadString(&key) || !Expect(':')) return false;
      if (!seen.insert(key).second) return Fail("a key occurs twice");
      if (key == "descr") {
        std::string descr;
        if (!ReadString(&descr)) return false;
        const auto dtype = DTypeNamed(descr, &DTypeRow::numpy);
        if (!dtype) return Fail("the dtype " + descr + " is unknown here");
        array->dtype = *dtype;
      } else if (key == "fortran_order") {
        if (ConsumeWord("True")) {
          *fortran = true;
        } else if (!ConsumeWord("False")) {
          return Fail("expected True or False");
        }
      } else if (key == "shape") {
        if (!ReadShape(&array->shape)) return false;
      } else {
        return Fail("the key " + key + " is unknown here");
      }
    } while (Consume(','));
    return Expect('}') && CheckEnd(seen);
  }
  const std::string& error() const { return error_; }

 private:
  bool Fail(const std::string& why) {
    if (error_.empty()) error_ = absl::StrCat("at byte ", at_, " of the header: ", why);
    return false;
  }
  void SkipBlanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool Consume(char c) {
    SkipBlanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool Expect(char c) { return Consume(c) || Fail(std::string("expected '") + c + "'"); }
  bool ConsumeWord(std::string_view word) {
    SkipBlanks();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  bool ReadString(std::string* out) {
    SkipBlanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') return Fail("expected a string");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos || end - at_ > 64) return Fail("the string does not end");
    *out = std::string(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return true;
  }
  bool ReadShape(ir::Dims* shape) {
    if (!Expect('(')) return false;
    while (!Consume(')')) {
      SkipBlanks();
      const size_t begin = at_;
      int64_t dim = 0;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        dim = dim * 10 + (text_[at_] - '0');
        if (dim > kElementsMax) return Fail("a dimension is too large");
      }
      if (at_ == begin) return Fail("expected a dimension");
      if (shape->size() == kRankMax) return Fail("too many dimensions");
      shape->push_back(dim);
      if (Consume(')')) return shape->size() > 1 || Fail("expected a ',' in the tuple of one");
      if (!Expect(',')) return false;
    }
    return true;
  }
  bool CheckEnd(const std::set<std::string>& seen) {
    SkipBlanks();
    if (at_ != text_.size()) return Fail("expected the end");
    return seen.size() == 3 || Fail("expected descr, fortran_order and shape");
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::string error_;
};

// Reads the header of a .npy file. The versions 1 to 3 differ only in the width of the header's
// length. The length is checked against the file before memory is allocated for the header.
absl::StatusOr<Index> ReadNumpy(int64_t file_bytes, const ReadAt& read_at) {
  // The prefix is the magic, the version, and the length in 2 bytes (version 1) or 4 bytes.
  unsigned char prefix[12] = {};
  if (file_bytes < 10) return CorruptError("npy", "shorter than 10 bytes");
  TESSERA_RETURN_IF_ERROR(
      read_at(0, std::min<int64_t>(file_bytes, 12), reinterpret_cast<char*>(prefix)));
  if (std::memcmp(prefix, kNumpyMagic.data(), kNumpyMagic.size()) != 0) {
    return CorruptError("npy", "it does not begin with \\x93NUMPY");
  }
  const int version = prefix[6];
  if (version < 1 || version > 3 || prefix[7] != 0) {
    return CorruptError("npy",
                        absl::StrCat("version ", version, ".", prefix[7], " is unknown here"));
  }
  int64_t size = prefix[8] | prefix[9] << 8;
  if (version > 1)
    size |= static_cast<int64_t>(prefix[10]) << 16 | static_cast<int64_t>(prefix[11]) << 24;
  const int64_t begin = version > 1 ? 12 : 10;
  if (size > std::min(kHeaderBytesMax, file_bytes - begin)) {
    return CorruptError("npy",
                        absl::StrCat("a header of ", size, " bytes in a file of ", file_bytes));
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
  TESSERA_ASSIGN_OR_RETURN(std::vector<Entry> entries, HeaderReader(header).Read());
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.offset, a.offset + a.bytes()) < std::pair(b.offset, b.offset + b.bytes());
  });
  int64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.offset != end) {
      return CorruptError("safetensors",
                          absl::StrCat("tensor '", entry.array.name, "' begins at ", entry.offset,
                                       "; the tensors before it end at ", end));
    }
    end += entry.bytes();
  }
  if (end != data_bytes) {
    return CorruptError("safetensors", absl::StrCat("the tensors end at ", end, ", the file at ",
                                                    data_bytes, " behind the header"));
  }
  return entries;
}

absl::StatusOr<FileArrayInfo> ParseNumpy(std::string_view header, int64_t data_bytes) {
  NumpyReader reader(header);
  FileArrayInfo array;
  bool fortran = false;
  if (!reader.Read(&array, &fortran)) return CorruptError("npy", reader.error());
  const std::optional<int64_t> bytes = BytesOf(array);
  if (!bytes || *bytes != data_bytes) {
    return CorruptError("npy", absl::StrCat(ir::MakeType(array.dtype, {}).ToString(), " (",
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

// Lays out a new file: the arrays follow each other without gaps after the header, which is padded
// so that the data is aligned as other readers expect. The offsets in a safetensors header count
// from the end of the header, so they do not depend on its length. The header's length is added
// only to the offsets in `index`.
std::string MakeHeader(FileFormat format, absl::Span<const FileArrayInfo> arrays, Index* index) {
  index->entries.clear();
  int64_t at = 0;
  for (const FileArrayInfo& array : arrays) {
    index->entries.push_back({array, at});
    at += index->entries.back().bytes();
  }
  std::string header;
  if (format == FileFormat::kNumpy) {
    const FileArrayInfo& array = arrays[0];
    std::string dict = absl::StrCat(
        "{'descr': '", ToAbsl(RowOf(array.dtype).numpy), "', 'fortran_order': False, 'shape': (",
        absl::StrJoin(array.shape, ", "), array.shape.size() == 1 ? "," : "", "), }");
    // In version 1 ten bytes precede the dictionary. The final newline ends at a multiple of
    // kNumpyAlign.
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
      absl::StrAppend(&json, json.size() > 1 ? "," : "", Quoted(entry.array.name), ":{\"dtype\":\"",
                      ToAbsl(RowOf(entry.array.dtype).safetensors), "\",\"shape\":[",
                      absl::StrJoin(entry.array.shape, ","), "],\"data_offsets\":[", entry.offset,
                      ",", entry.offset + entry.bytes(), "]}");
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
