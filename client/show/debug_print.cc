// debug_print: checks the format, and emits an op with an effect or prints at once. When a program
// is compiled, SplitPrints splits these ops off; the SDK then prints from the results of each run.
// Reference: docs/decisions/0026.
#include "client/debug_print.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client/apply/operand.h"
#include "client/trace/prints.h"
#include "ir/debug_print.h"
#include "ir/eval/eval.h"
#include "ir/transform/transform.h"

namespace tessera::internal {
namespace {

// ---- Formats. ----

// A piece of a format: a text, or a replacement field.
struct Piece {
  std::string text;   // the text; for a field, its specification after the colon
  int argument = -1;  // index of the argument in a field; -1 for a text
};

[[noreturn]] void BadFormat(const std::string& why) {
  Throw(ErrorKind::kValueError, absl::StrCat("debug_print: ", why));
}

// Returns the number in a field, or nullopt if the field has no number.
std::optional<int> ArgumentOf(const std::string& name, const std::string& format) {
  if (name.empty()) return std::nullopt;
  int number = 0;
  for (const char c : name) {
    if (c < '0' || c > '9' || number > 9999)
      BadFormat(
          absl::StrCat("the field {", name, "} of \"", format,
                       "\" has a name; expected {} or the argument's number, counted from 0"));
    number = number * 10 + (c - '0');
  }
  return number;
}

// Splits a format into texts and fields, which alternate. The syntax is that of Python's str.format
// without names. A format uses, as in Python, either {} or numbers, not both.
std::vector<Piece> Parsed(const std::string& format) {
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
      BadFormat(absl::StrCat("\"", format, "\" has a single '}'; write \"}}\" for a brace"));
    if (c != '{') {
      out.back().text += c;
      continue;
    }
    const size_t end = format.find('}', i);
    if (end == std::string::npos)
      BadFormat(
          absl::StrCat("\"", format, "\" has a '{' that no '}' ends; write \"{{\" for a brace"));
    const std::string field = format.substr(i + 1, end - i - 1);
    const size_t colon = field.find(':');
    const std::optional<int> number = ArgumentOf(field.substr(0, colon), format);
    (number ? numbered : counted) = true;
    if (numbered && counted)
      BadFormat(absl::StrCat("\"", format, "\" mixes {} and numbered fields; use one kind"));
    out.push_back(
        {colon == std::string::npos ? "" : field.substr(colon + 1), number ? *number : next++});
    out.emplace_back();
    i = end;
  }
  return out;
}

template <class T>
std::string Formatted(const std::string& specification, T value) {
  return fmt::format(fmt::runtime(absl::StrCat("{:", specification, "}")), value);
}
std::string Element(const ir::Array& a, int64_t i, const std::string& specification) {
  // Integers print as floats if the specification is one for floats.
  const bool as_float =
      !specification.empty() &&
      absl::StrContains("aAeEfFgG", specification.substr(specification.size() - 1));
  if (as_float && (ir::IsInteger(a.dtype()) || a.dtype() == DType::kBool))
    return Formatted(specification, a.At(i));
  if (a.dtype() == DType::kBool) return Formatted(specification, a.At(i) != 0);
  if (a.dtype() == DType::kU64) return Formatted(specification, a.As<uint64_t>()[i]);
  if (ir::IsInteger(a.dtype())) return Formatted(specification, a.IntAt(i));
  const std::string real = Formatted(specification, a.At(i));
  if (!ir::IsComplex(a.dtype())) return real;
  const double imaginary = a.ImaginaryAt(i);
  return absl::StrCat(real, std::signbit(imaginary) ? "-" : "+",
                      Formatted(specification, std::fabs(imaginary)), "j");
}

std::string Line(const std::string& format, absl::Span<const ir::Array> values) {
  const std::vector<Piece> pieces = Parsed(format);
  std::string line;
  for (const Piece& piece : pieces) {
    if (piece.argument < 0) {
      line += piece.text;
      continue;
    }
    const ir::Array& value = values[piece.argument];
    line += piece.text.empty()
                ? value.ToString()
                : value.ToString([&](int64_t i) { return Element(value, i, piece.text); });
  }
  return line + "\n";
}

// Throws unless the format fits values of these dtypes.
void CheckFormat(const std::string& format, const std::vector<DType>& dtypes) {
  const std::vector<Piece> pieces = Parsed(format);
  std::vector<bool> used(dtypes.size(), false);
  for (const Piece& piece : pieces) {
    if (piece.argument < 0) continue;
    if (piece.argument >= static_cast<int>(dtypes.size()))
      BadFormat(absl::StrCat("\"", format, "\" has a field for argument ", piece.argument,
                             ", counted from 0, and there are ", dtypes.size()));
    used[piece.argument] = true;
    const DType dtype = dtypes[piece.argument];
    try {
      Element(ir::Array(dtype, {}), 0, piece.text);
    } catch (const fmt::format_error& error) {
      BadFormat(absl::StrCat("the specification \"", piece.text, "\" in \"", format,
                             "\" is not one for ", ToAbsl(ir::DTypeName(dtype)), ": ",
                             error.what()));
    }
  }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      BadFormat(absl::StrCat("Unused positional arguments: \"", format,
                             "\" has no field for argument ", i, ", counted from 0"));
}

void PrintLine(const std::string& format, absl::Span<const ir::Array> values) {
  const std::string line = Line(format, values);
  std::fwrite(line.data(), 1, line.size(), stdout);
}

}  // namespace

// Checks the format in both cases, so that a mistake is an error at the user's line and not of a
// later run. Without a trace it prints at once; in a trace it emits an op.
void DebugPrint(const PrintFormat& format, const std::vector<Arg>& args) {
  ConvertExceptions(format.site, [&] {
    std::vector<Array> arrays;
    std::vector<DType> dtypes;
    for (const Arg& a : args) {
      if (a.array) ThrowIfNoValue(*a.array, format.site);
      dtypes.push_back(CommonDType({a}));
    }
    CheckFormat(format.text, dtypes);
    if (!CurrentFrame()) {
      std::vector<ir::Array> values;
      for (size_t i = 0; i < args.size(); ++i) {
        const Arg& a = args[i];
        values.push_back(a.array                ? a.array->value(format.site)
                         : a.kind == Arg::kReal ? ir::Array::Scalar(dtypes[i], a.number)
                                                : ir::Array::ScalarInt(dtypes[i], a.integer));
      }
      PrintLine(format.text, values);
      std::fflush(stdout);
      return;
    }
    for (size_t i = 0; i < args.size(); ++i) arrays.push_back(AsArray(args[i], dtypes[i]));
    Apply("debug_print", format.site, arrays,
          [&](ir::Builder& b, const std::vector<ir::Value>& in) {
            ir::DebugPrint(b, format.text, in);
            return std::vector<ir::Value>{};
          });
  });
}

SentProgram SplitPrints(const ir::Program& program, const Site& site) {
  SentProgram out{program, nullptr, 0};
  if (!program.entry->effects) return out;
  const ir::FunctionRef runs = OrThrow(ir::DropRules(program.entry), site);
  const ir::PartialEvalResult split =
      OrThrow(ir::PartialEval(*runs, std::vector<bool>(runs->num_params, true), {},
                              {.split_loops = true, .hold_effects = true}),
              site);
  out.program.entry = split.known;
  out.prints = split.unknown;
  out.num_printed = split.num_residuals;
  for (int i = 0; i < split.num_residuals; ++i) {
    if (!program.out_shardings.empty()) out.program.out_shardings.emplace_back();
    if (!program.out_names.empty())
      out.program.out_names.push_back(absl::StrCat("printed[", i, "]"));
  }
  return out;
}

absl::Status RunPrints(
    const ir::Function& prints, std::vector<ir::Array> values,
    std::function<void(const std::string& format, absl::Span<const ir::Array> values)> print) {
  ir::EvalOptions options;
  options.print = std::move(print);
  return ir::Evaluator(options).Run(prints, std::move(values)).status();
}

void PrintResults(const ir::Function& prints, int num_printed, std::vector<Array>* results,
                  const Site& site) {
  std::vector<ir::Array> values;
  const size_t first = results->size() - num_printed;
  for (size_t i = first; i < results->size(); ++i) values.push_back((*results)[i].value(site));
  results->resize(first);
  ThrowIfError(RunPrints(prints, std::move(values), PrintLine), site);
  std::fflush(stdout);
}

}  // namespace tessera::internal
