// The formats of debug_print: Python's replacement fields with fmt's specifications. debug_print
// checks a format when it is called. prints.cc prints lines after each run.
#include "client/trace/print_format.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "base/words.h"

namespace tessera::internal {
namespace {

// A piece of a format: a text, or a replacement field.
struct Piece {
  std::string text;   // the text; for a field, its specification after the colon
  int argument = -1;  // index of the argument in a field; -1 for a text
};

[[noreturn]] void ThrowBadFormat(const std::string& why) {
  Throw(ErrorKind::kValueError, absl::StrCat("debug_print: ", why));
}

// Returns the number in a field, or nullopt if the field has no number.
std::optional<int> ParseArgumentNumber(const std::string& name, const std::string& format) {
  if (name.empty()) return std::nullopt;
  int number = 0;
  for (const char c : name) {
    if (c < '0' || c > '9' || number > 9999)
      ThrowBadFormat(
          absl::StrCat("the field {", name, "} of \"", format,
                       "\" has a name; expected {} or the argument's number, counted from 0"));
    number = number * 10 + (c - '0');
  }
  return number;
}

// Splits a format into texts and fields, which alternate. The syntax is that of Python's str.format
// without names. A format uses, as in Python, either {} or numbers, not both.
std::vector<Piece> ParseFormat(const std::string& format) {
  std::vector<Piece> out(1);
  bool counted = false, numbered = false;
  int next = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if ((c == '{' || c == '}') && i + 1 < format.size() && format[i + 1] == c) {
      out.back().text += c;
      ++i;
      continue;
    }
    if (c == '}')
      ThrowBadFormat(absl::StrCat("\"", format, "\" has a single '}'; write \"}}\" for a brace"));
    if (c != '{') {
      out.back().text += c;
      continue;
    }
    const size_t end = format.find('}', i);
    if (end == std::string::npos)
      ThrowBadFormat(
          absl::StrCat("\"", format, "\" has a '{' that no '}' ends; write \"{{\" for a brace"));
    const std::string field = format.substr(i + 1, end - i - 1);
    const size_t colon = field.find(':');
    const std::optional<int> number = ParseArgumentNumber(field.substr(0, colon), format);
    (number ? numbered : counted) = true;
    if (numbered && counted)
      ThrowBadFormat(absl::StrCat("\"", format, "\" mixes {} and numbered fields; use one kind"));
    out.push_back(
        {colon == std::string::npos ? "" : field.substr(colon + 1), number ? *number : next++});
    out.emplace_back();
    i = end;
  }
  return out;
}

template <class T>
std::string FormatNumber(const std::string& specification, T value) {
  return fmt::format(fmt::runtime(absl::StrCat("{:", specification, "}")), value);
}
std::string ElementText(const ir::Array& a, int64_t i, const std::string& specification) {
  // Integers print as floats if the specification is one for floats.
  const bool as_float =
      !specification.empty() &&
      absl::StrContains("aAeEfFgG", specification.substr(specification.size() - 1));
  if (as_float && (ir::IsInteger(a.dtype()) || a.dtype() == ir::DType::kBool))
    return FormatNumber(specification, a.At(i));
  if (a.dtype() == ir::DType::kBool) return FormatNumber(specification, a.At(i) != 0);
  if (a.dtype() == ir::DType::kU64) return FormatNumber(specification, a.As<uint64_t>()[i]);
  if (ir::IsInteger(a.dtype())) return FormatNumber(specification, a.IntAt(i));
  const std::string real = FormatNumber(specification, a.At(i));
  if (!ir::IsComplex(a.dtype())) return real;
  const double imaginary = a.ImaginaryAt(i);
  return absl::StrCat(real, std::signbit(imaginary) ? "-" : "+",
                      FormatNumber(specification, std::fabs(imaginary)), "j");
}

std::string FormatLine(const std::string& format, absl::Span<const ir::Array> values) {
  const std::vector<Piece> pieces = ParseFormat(format);
  std::string line;
  for (const Piece& piece : pieces) {
    if (piece.argument < 0) {
      line += piece.text;
      continue;
    }
    const ir::Array& value = values[piece.argument];
    line += piece.text.empty()
                ? value.ToString()
                : value.ToString([&](int64_t i) { return ElementText(value, i, piece.text); });
  }
  return line + "\n";
}

}  // namespace

// Formats a zero of each dtype, because fmt alone knows which specifications it takes.
void CheckPrintFormat(const std::string& format, const std::vector<ir::DType>& dtypes) {
  const std::vector<Piece> pieces = ParseFormat(format);
  std::vector<bool> used(dtypes.size(), false);
  for (const Piece& piece : pieces) {
    if (piece.argument < 0) continue;
    if (piece.argument >= static_cast<int>(dtypes.size()))
      ThrowBadFormat(absl::StrCat("\"", format, "\" has a field for argument ", piece.argument,
                                  ", counted from 0, but the call has ",
                                  Pluralize(static_cast<int64_t>(dtypes.size()), "argument")));
    used[piece.argument] = true;
    const ir::DType dtype = dtypes[piece.argument];
    try {
      ElementText(ir::Array(dtype, {}), 0, piece.text);
    } catch (const fmt::format_error& error) {
      ThrowBadFormat(absl::StrCat("the specification \"", piece.text, "\" in \"", format,
                                  "\" is not valid for ", ToAbsl(ir::DTypeName(dtype)), ": ",
                                  error.what()));
    }
  }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      ThrowBadFormat(absl::StrCat("Unused positional arguments: \"", format,
                                  "\" has no field for argument ", i, ", counted from 0"));
}

void PrintLine(const std::string& format, absl::Span<const ir::Array> values) {
  const std::string line = FormatLine(format, values);
  std::fwrite(line.data(), 1, line.size(), stdout);
}

}  // namespace tessera::internal
