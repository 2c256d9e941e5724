// The text form of a kernel: ToString and ParseKernel. The text is the key of the code caches and
// the form in which kernels are sent to the process that compiles them.
//
//   kernel [8,512] reduced 1
//   in f32 4096
//   out f32 8
//   %0 = load p0 [0: 512,1] : f32
//   %1 = Mul %0, %0 : f32
//   %2 = reduce sum %1 : f32
//   store %2 p1 [0: 1,0]
//
// In a kernel that scans, the first line says "scanned 1" instead of "reduced 1". An access is
// [offset: strides], followed by its shifts. A shift is "shift p3 max 4 stride 512" if it is by the
// first element of the param, and otherwise "shift p3 [0: 1,0] max 4 stride 512".
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {
namespace {

using ir::DType;
using ir::ReduceKind;
using ir::ScalarPrim;

constexpr size_t kTextBytesMax = 4 << 20;
constexpr size_t kListMax = 1 << 16;

// ---- Printing. ---------------------------------------------------------------------------------

// Prints a float so that it parses to the same bits.
std::string DoubleText(double value) {
  char text[48];
  if (std::isnan(value)) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    std::snprintf(text, sizeof text, "nan:%016llx", static_cast<unsigned long long>(bits));
  } else {
    std::snprintf(text, sizeof text, "%.17g", value);
  }
  return text;
}

std::string AccessText(const Access& access) {
  std::string out = absl::StrCat("[", access.offset, ": ", absl::StrJoin(access.strides, ","), "]");
  for (const DynamicOffset& shift : access.shifts) {
    absl::StrAppend(&out, " shift p", shift.param);
    if (shift.offset != 0 || !shift.strides.empty())
      absl::StrAppend(&out, " [", shift.offset, ": ", absl::StrJoin(shift.strides, ","), "]");
    absl::StrAppend(&out, " max ", shift.max, " stride ", shift.stride);
  }
  return out;
}

std::string ArgsText(const std::vector<int>& args) {
  return absl::StrJoin(args, ", ",
                       [](std::string* out, int arg) { absl::StrAppend(out, "%", arg); });
}

std::string NodeText(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kLoad:
      return absl::StrCat("load p", node.param, " ", AccessText(node.access));
    case Node::Kind::kIndex:
      return absl::StrCat("index ", AccessText(node.access));
    case Node::Kind::kReduce:
      return absl::StrCat("reduce ", ToAbsl(ReduceKindName(node.reduce)), " ", ArgsText(node.args));
    case Node::Kind::kScalar:
      break;
  }
  std::string out(ScalarPrimName(node.prim));
  if (node.prim == ScalarPrim::kConstant)
    absl::StrAppend(&out, " ",
                    IsFloat(node.dtype) ? DoubleText(node.value) : absl::StrCat(node.int_value));
  if (!node.args.empty()) absl::StrAppend(&out, " ", ArgsText(node.args));
  return out;
}

// ---- Parsing. ----------------------------------------------------------------------------------

// Reads one line from left to right. After a mismatch every read fails, and `expected` returns what
// was expected where the first mismatch occurred.
class Line {
 public:
  explicit Line(absl::string_view text) : rest_(text) {}

  bool ok() const { return expected_.empty(); }
  const std::string& expected() const { return expected_; }
  absl::string_view rest() const { return rest_; }
  bool AtEnd() {
    SkipSpace();
    return rest_.empty();
  }
  void ExpectEnd() {
    if (!AtEnd()) Fail("the end of the line");
  }

  bool TryEat(absl::string_view token) {
    SkipSpace();
    if (!ok() || rest_.substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void Eat(absl::string_view token) {
    if (!TryEat(token)) Fail(absl::StrCat("\"", token, "\""));
  }
  int64_t Int() {
    SkipSpace();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return Fail("a 64-bit integer"), 0;
    rest_.remove_prefix(end - rest_.data());
    return value;
  }
  int SmallInt() {
    const int64_t value = Int();
    if (value < 0 || value > static_cast<int64_t>(kListMax))
      return Fail("a small number that is not negative"), 0;
    return static_cast<int>(value);
  }
  double Double() {
    if (TryEat("nan:")) {
      uint64_t bits = 0;
      const auto [end, error] =
          std::from_chars(rest_.data(), rest_.data() + rest_.size(), bits, 16);
      double value;
      std::memcpy(&value, &bits, sizeof value);
      if (error != std::errc() || !std::isnan(value)) return Fail("the bits of a NaN"), 0;
      rest_.remove_prefix(end - rest_.data());
      return value;
    }
    SkipSpace();
    double value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || std::isnan(value)) return Fail("a number"), 0;
    rest_.remove_prefix(end - rest_.data());
    return value;
  }
  std::string Word() {
    SkipSpace();
    size_t n = 0;
    while (n < rest_.size() && absl::ascii_isalnum(rest_[n])) ++n;
    if (n == 0) return Fail("a word"), "";
    const std::string word(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return word;
  }
  // Returns the text up to the next space.
  absl::string_view Token() {
    SkipSpace();
    const absl::string_view token = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(token.size());
    return token;
  }
  void Fail(absl::string_view expected) {
    if (ok()) expected_ = std::string(expected);
  }

 private:
  void SkipSpace() {
    while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
  }

  absl::string_view rest_;
  std::string expected_;
};

std::optional<ScalarPrim> PrimNamed(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(ScalarPrim::kBitcast); ++i)
    if (ScalarPrimName(static_cast<ScalarPrim>(i)) == name) return static_cast<ScalarPrim>(i);
  return std::nullopt;
}

std::optional<ReduceKind> ReductionNamed(std::string_view name) {
  for (int i = 1; i <= static_cast<int>(ReduceKind::kArgMin); ++i)
    if (ReduceKindName(static_cast<ReduceKind>(i)) == name) return static_cast<ReduceKind>(i);
  return std::nullopt;
}

DType ParseDTypeIn(Line* line) {
  const std::optional<DType> dtype = ir::ParseDType(line->Word());
  if (!dtype) line->Fail("a dtype");
  return dtype.value_or(DType::kF32);
}

// Parses numbers with commas between them, up to `close`.
ir::Dims ParseInts(absl::string_view close, Line* line) {
  ir::Dims values;
  if (line->TryEat(close)) return values;
  do {
    values.push_back(line->Int());
  } while (line->TryEat(",") && values.size() < kListMax);
  line->Eat(close);
  return values;
}

Access ParseAccess(Line* line) {
  Access access;
  line->Eat("[");
  access.offset = line->Int();
  line->Eat(":");
  access.strides = ParseInts("]", line);
  while (line->TryEat("shift")) {
    DynamicOffset shift;
    line->Eat("p");
    shift.param = line->SmallInt();
    if (line->TryEat("[")) {
      shift.offset = line->Int();
      line->Eat(":");
      shift.strides = ParseInts("]", line);
    }
    line->Eat("max");
    shift.max = line->Int();
    line->Eat("stride");
    shift.stride = line->Int();
    access.shifts.push_back(shift);
  }
  return access;
}

std::vector<int> ParseArgs(Line* line) {
  std::vector<int> args;
  while (line->ok()) {
    line->Eat("%");
    args.push_back(line->SmallInt());
    if (!line->TryEat(",")) break;
  }
  return args;
}

// Parses a constant such as "1.5 : f32". The dtype comes after the number and decides how the
// number is read.
void ParseConstant(Line* line, Node* node) {
  Line number(line->Token());
  line->Eat(":");
  node->dtype = ParseDTypeIn(line);
  if (IsFloat(node->dtype)) {
    node->value = number.Double();
  } else {
    node->int_value = number.Int();
  }
  number.ExpectEnd();
  if (!number.ok()) line->Fail(number.expected());
}

// Parses the right side of a node's line, "load p0 [0: 1] : f32" for example. After a mismatch it
// continues with placeholders, and the caller finds the error in `line`. A constant returns early,
// because its dtype has been read with its value.
Node ParseNode(Line* line) {
  Node node;
  const std::string what = line->Word();
  if (what == "load") {
    node.kind = Node::Kind::kLoad;
    line->Eat("p");
    node.param = line->SmallInt();
    node.access = ParseAccess(line);
  } else if (what == "index") {
    node.kind = Node::Kind::kIndex;
    node.access = ParseAccess(line);
  } else if (what == "reduce") {
    node.kind = Node::Kind::kReduce;
    const std::optional<ReduceKind> kind = ReductionNamed(line->Word());
    if (!kind) line->Fail("a reduction");
    node.reduce = kind.value_or(ReduceKind::kSum);
    node.args = ParseArgs(line);
  } else {
    const std::optional<ScalarPrim> prim = PrimNamed(what);
    if (!prim) line->Fail("\"load\", \"index\", \"reduce\" or a scalar primitive");
    node.prim = prim.value_or(ScalarPrim::kConstant);
    if (node.prim == ScalarPrim::kConstant) {
      ParseConstant(line, &node);
      return node;
    }
    node.args = ParseArgs(line);
  }
  line->Eat(":");
  node.dtype = ParseDTypeIn(line);
  return node;
}

void ParseHeader(Line* line, Kernel* kernel) {
  line->Eat("kernel");
  line->Eat("[");
  kernel->shape = ParseInts("]", line);
  kernel->scans = line->TryEat("scanned");
  if (!kernel->scans && !line->TryEat("reduced")) line->Fail("\"reduced\" or \"scanned\"");
  kernel->num_reduced = line->SmallInt();
}

void ParseItem(Line* line, Kernel* kernel) {
  if (line->TryEat("%")) {
    if (line->SmallInt() != static_cast<int>(kernel->nodes.size()))
      line->Fail(absl::StrCat("node %", kernel->nodes.size(), ", the next one"));
    line->Eat("=");
    kernel->nodes.push_back(ParseNode(line));
  } else if (line->TryEat("store ")) {
    Store store;
    line->Eat("%");
    store.node = line->SmallInt();
    line->Eat("p");
    store.param = line->SmallInt();
    store.access = ParseAccess(line);
    kernel->stores.push_back(std::move(store));
  } else {
    Param param;
    param.output = line->TryEat("out ");
    param.in_place = !param.output && line->TryEat("in place ");
    if (!param.output && !param.in_place && !line->TryEat("in "))
      line->Fail("\"in\", \"in place\", \"out\", \"store\" or a node");
    param.dtype = ParseDTypeIn(line);
    param.size = line->Int();
    kernel->params.push_back(param);
  }
}

}  // namespace

std::string Kernel::ToString() const {
  std::string out = absl::StrCat("kernel [", absl::StrJoin(shape, ","),
                                 scans ? "] scanned " : "] reduced ", num_reduced, "\n");
  for (const Param& param : params)
    absl::StrAppend(&out,
                    param.output     ? "out "
                    : param.in_place ? "in place "
                                     : "in ",
                    ToAbsl(DTypeName(param.dtype)), " ", param.size, "\n");
  for (size_t i = 0; i < nodes.size(); ++i)
    absl::StrAppend(&out, "%", i, " = ", NodeText(nodes[i]), " : ",
                    ToAbsl(DTypeName(nodes[i].dtype)), "\n");
  for (const Store& store : stores)
    absl::StrAppend(&out, "store %", store.node, " p", store.param, " ", AccessText(store.access),
                    "\n");
  return out;
}

// Parses a kernel line by line and then verifies it. The text may come from another process or from
// the fuzzer, so its size is bounded before it is read, and what Verify refuses is never returned.
// An error names the first line that does not parse and quotes its rest, with unprintable bytes
// escaped.
absl::StatusOr<Kernel> ParseKernel(absl::string_view text) {
  if (text.size() > kTextBytesMax)
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat("kernel text: ", text.size(), " bytes, at most ", kTextBytesMax, " are read"));
  Kernel kernel;
  int number = 0;
  bool started = false;
  for (absl::string_view piece : absl::StrSplit(text, '\n')) {
    ++number;
    Line line(piece);
    if (line.AtEnd()) continue;
    started ? ParseItem(&line, &kernel) : ParseHeader(&line, &kernel);
    started = true;
    line.ExpectEnd();
    if (!line.ok())
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("kernel text: line ", number, ": expected ", line.expected(),
                                    " at \"", absl::CHexEscape(line.rest().substr(0, 40)), "\""));
  }
  if (!started)
    return MakeError(ErrorKind::kValueError,
                     "kernel text: it is empty; expected \"kernel [SHAPE] reduced N\"");
  TESSERA_RETURN_IF_ERROR(Verify(kernel));
  return kernel;
}

}  // namespace tessera::worker::codegen
