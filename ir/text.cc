// Prints programs, and parses them by recursive descent. Texts reach the parser from users' files,
// from requests and from golden tests, so it treats every byte as hostile. It emits ops through
// ir::Builder, which infers and checks types like a trace does.
#include "ir/text.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hex.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "ir/builder.h"
#include "ir/literal.h"
#include "ir/op_def.h"
#include "ir/op_usage.h"
#include "ir/registry.h"
#include "ir/strided.h"
#include "ir/verify.h"

namespace tessera::ir {
namespace {

// ---- Printing. ---------------------------------------------------------------------------------

std::string DoubleText(double v) {
  char buf[40];
  std::snprintf(buf, sizeof buf, "%.17g", v);
  if (std::strpbrk(buf, ".einf") == nullptr) std::strcat(buf, ".0");
  return buf;
}

// Prints a single element as a number if that is exact, otherwise all bytes in hex.
std::string LiteralText(const Array& a) {
  std::string out = absl::StrCat("dense<", MakeType(a.dtype(), a.shape()).ToString(), ": ");
  const bool is_number = a.num_elements() == 1 && IsComputable(a.dtype()) && std::isfinite(a.At(0));
  if (is_number && IsFloat(a.dtype())) {
    absl::StrAppend(&out, DoubleText(a.At(0)));
  } else if (is_number && a.dtype() == DType::kU64) {
    absl::StrAppend(&out, a.As<uint64_t>()[0]);
  } else if (is_number) {
    absl::StrAppend(&out, a.IntAt(0));
  } else {
    absl::StrAppend(&out, "0x",
                    absl::BytesToHexString(
                        absl::string_view(reinterpret_cast<const char*>(a.data()), a.num_bytes())));
  }
  return out + ">";
}

struct AttrPrinter {
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(int64_t v) const { return absl::StrCat(v); }
  std::string operator()(double v) const { return DoubleText(v); }
  std::string operator()(const std::string& v) const {
    return absl::StrCat("\"", absl::CEscape(v), "\"");
  }
  std::string operator()(const std::vector<int64_t>& v) const { return List("", v); }
  std::string operator()(const std::vector<std::string>& v) const {
    return List(v.empty() ? "strings" : "", v);
  }
  std::string operator()(const std::vector<bool>& v) const {
    std::vector<std::string> parts;
    for (bool x : v) parts.push_back(x ? "1" : "0");
    return absl::StrCat("bools[", absl::StrJoin(parts, ","), "]");
  }
  std::string operator()(DType v) const { return std::string(DTypeName(v)); }
  std::string operator()(const Array& v) const { return LiteralText(v); }
  std::string operator()(const PartitionSpec& v) const { return v.ToString(); }
  std::string operator()(const std::vector<PartitionSpec>& v) const { return List("specs", v); }

  template <class T>
  std::string List(const char* prefix, const std::vector<T>& v) const {
    const auto print = [this](std::string* out, const T& x) { *out += (*this)(x); };
    return absl::StrCat(prefix, "[", absl::StrJoin(v, ",", print), "]");
  }
};

// Returns a function's name in the form that the parser reads.
std::string NameText(const std::string& name) {
  std::string out = name.empty() ? "f" : name;
  for (char& c : out)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return out;
}

std::string ValueList(const std::vector<ValueId>& ids) {
  return absl::StrJoin(ids, ", ", [](std::string* o, ValueId v) { absl::StrAppend(o, "%", v); });
}

std::string SpecSuffix(const std::vector<std::optional<PartitionSpec>>& specs, size_t i) {
  return i < specs.size() && specs[i] ? absl::StrCat(" ", specs[i]->ToString()) : "";
}

std::string NameSuffix(const std::vector<std::string>& names, size_t i) {
  if (i >= names.size() || names[i].empty()) return "";
  return absl::StrCat(" as \"", absl::CEscape(names[i]), "\"");
}

// The shardings and names of a function's params and results.
struct Interface {
  std::vector<std::optional<PartitionSpec>> in_shardings, out_shardings;
  std::vector<std::string> in_names, out_names;
};

// Returns the scope that the text of region `k` inherits: the scope of its op, or an empty scope
// for a computation.
Scope ScopeAround(const OpDef& def, size_t k, const Scope& scope) {
  const bool is_computation = !def.regions.empty() && def.RoleOf(k) == RegionRole::kComputation;
  return is_computation ? Scope{} : scope;
}

// Prints a function and, indented, the regions of its ops. The mesh and the flag `unchecked` are
// printed only where they differ from `outer`, the scope that the parser would assume anyway;
// `outer` is null for the entry function, whose mesh PrintProgram has printed. Regions have no
// interface of their own.
void Print(const Function& f, const PrintOptions& options, int indent, const Interface& interface,
           const Scope* outer, std::string* out) {
  const std::string pad(indent, ' ');
  absl::StrAppend(out, pad, "func ", NameText(f.name), "(");
  for (int i = 0; i < f.num_params; ++i)
    absl::StrAppend(out, i ? ", " : "", "%", i, ": ", f.types[i].ToString(),
                    SpecSuffix(interface.in_shardings, i), NameSuffix(interface.in_names, i));
  *out += ") -> (";
  for (size_t r = 0; r < f.results.size(); ++r)
    absl::StrAppend(out, r ? ", " : "", f.types[f.results[r]].ToString(),
                    SpecSuffix(interface.out_shardings, r), NameSuffix(interface.out_names, r));
  *out += ")";
  if (outer != nullptr && !(f.scope == *outer)) {
    absl::StrAppend(out, " mesh ", f.scope.mesh.ToString());
    if (!f.scope.check_vma) *out += " unchecked";
  } else if (outer == nullptr && !f.scope.check_vma) {
    *out += " unchecked";
  }
  // Only the body of a vmap that has not been batched yet has mapped axes. The text of a program
  // never contains them, and the parser does not read them.
  if (!f.scope.mapped.empty())
    absl::StrAppend(out, " mapped (",
                    absl::StrJoin(f.scope.mapped, ", ",
                                  [](std::string* o, const MappedAxis& a) { *o += a.ToString(); }),
                    ")");
  *out += " {\n";
  for (size_t i = 0; i < f.ops.size(); ++i) {
    const Op& op = f.ops[i];
    absl::StrAppend(out, pad, "  ");
    if (!op.results.empty()) absl::StrAppend(out, ValueList(op.results), " = ");
    absl::StrAppend(out, ToAbsl(op.def->name), "(", ValueList(op.operands), ")");
    if (!op.attrs.map().empty())
      absl::StrAppend(out, " {",
                      absl::StrJoin(op.attrs.map(), ", ",
                                    [](std::string* o, const auto& kv) {
                                      absl::StrAppend(o, kv.first, "=",
                                                      std::visit(AttrPrinter{}, kv.second));
                                    }),
                      "}");
    for (size_t r = 0; r < op.results.size(); ++r)
      absl::StrAppend(out, r ? ", " : " : ", f.types[op.results[r]].ToString());
    if (!op.regions.empty()) *out += " with";
    if (options.sites && f.sites[i].valid()) absl::StrAppend(out, "  # ", f.sites[i].ToString());
    *out += "\n";
    for (size_t k = 0; k < op.regions.size(); ++k) {
      const Scope region_scope = ScopeAround(*op.def, k, f.scope);
      Print(*op.regions[k], options, indent + 4, {}, &region_scope, out);
    }
  }
  absl::StrAppend(out, pad, "  return", f.results.empty() ? "" : " ", ValueList(f.results), "\n",
                  pad, "}\n");
}

// ---- Parsing: recursive descent over the bytes. ----

class Parser {
 public:
  Parser(std::string_view text, const Limits& limits, const char* file)
      : text_(text), limits_(limits), file_(file) {}

  Program ReadProgram() {
    Program p;
    Scope scope;
    if (Accept("opset")) p.opset = static_cast<int>(ReadInteger());
    if (p.opset < 1 || p.opset > kOpset)
      Throw(MakeError(ErrorKind::kUnknownOp, absl::StrCat("program is of opset ", p.opset,
                                                          "; this build reads up to ", kOpset)));
    if (Accept("mesh")) scope.mesh = ReadMesh();
    CheckMeshHere(scope.mesh);
    Interface s;
    p.entry = ReadFunction(scope, 0, &s);
    SkipSpace();
    if (pos_ != text_.size()) Fail("unexpected text after the program");
    // A list of shardings or names in which no entry is set stays empty in the program.
    const auto keep = [](auto& from, auto* to, const auto& is_set) {
      if (std::any_of(from.begin(), from.end(), is_set)) *to = std::move(from);
    };
    const auto has_spec = [](const std::optional<PartitionSpec>& spec) { return spec.has_value(); };
    const auto is_named = [](const std::string& name) { return !name.empty(); };
    keep(s.in_shardings, &p.in_shardings, has_spec);
    keep(s.out_shardings, &p.out_shardings, has_spec);
    keep(s.in_names, &p.in_names, is_named);
    keep(s.out_names, &p.out_names, is_named);
    return p;
  }

 private:
  // Returns "program text, line 3, column 7: <what>" for the position of the last token read.
  std::string AtToken(std::string_view what) const {
    int line = 1, column = 1;
    for (size_t i = 0; i < token_ && i < text_.size(); ++i) {
      column = text_[i] == '\n' ? 1 : column + 1;
      line += text_[i] == '\n';
    }
    return absl::StrCat("program text, line ", line, ", column ", column, ": ", ToAbsl(what));
  }
  [[noreturn]] void Fail(std::string_view what) {
    Throw(MakeError(ErrorKind::kMalformedProgram, AtToken(what)));
  }
  [[noreturn]] void OverLimit(std::string_view what) {
    Throw(MakeError(ErrorKind::kLimitExceeded, AtToken(what)));
  }
  void CheckMeshHere(const Mesh& mesh) {
    if (const absl::Status status = CheckMesh(mesh); !status.ok()) Fail(ToStd(status.message()));
  }

  // Skips whitespace and comments.
  void SkipSpace() {
    while (pos_ < text_.size()) {
      if (text_[pos_] == '\n') ++line_;
      if (std::isspace(static_cast<unsigned char>(text_[pos_]))) {
        ++pos_;
      } else if (text_[pos_] == '#') {
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
      } else {
        break;
      }
    }
    token_ = pos_;
  }
  // Returns whether a word may contain the character. A name may contain a few more.
  static bool IsWordChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  static bool IsNameChar(char c) { return IsWordChar(c) || c == '.' || c == '<' || c == '>'; }
  // Returns whether `token` comes next. If the token is a word, it must end where a word of the
  // text ends.
  bool NextIs(std::string_view token) {
    SkipSpace();
    if (text_.substr(pos_, token.size()) != token) return false;
    const bool is_word = IsWordChar(token.back());
    return !is_word || pos_ + token.size() >= text_.size() ||
           !IsWordChar(text_[pos_ + token.size()]);
  }
  bool Accept(std::string_view token) {
    if (!NextIs(token)) return false;
    pos_ += token.size();
    return true;
  }
  void Expect(std::string_view token) {
    if (!Accept(token)) Fail(std::string("expected '") + std::string(token) + "'");
  }
  std::string ReadName() {
    SkipSpace();
    const size_t begin = pos_;
    while (pos_ < text_.size() && IsNameChar(text_[pos_])) ++pos_;
    if (pos_ == begin) Fail("expected a name");
    return std::string(text_.substr(begin, pos_ - begin));
  }
  std::string ReadValueName() {
    Expect("%");
    return ReadName();
  }
  // Returns the longest run of characters that a number may have.
  std::string ReadNumberText() {
    SkipSpace();
    const size_t begin = pos_;
    while (pos_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[pos_])) ||
                                   std::strchr("+-.", text_[pos_]) != nullptr))
      ++pos_;
    return std::string(text_.substr(begin, pos_ - begin));
  }
  int64_t ReadInteger() {
    int64_t v;
    if (!absl::SimpleAtoi(ReadNumberText(), &v)) Fail("expected an integer");
    return v;
  }
  std::string ReadQuoted(char quote) {
    SkipSpace();
    if (pos_ >= text_.size() || text_[pos_] != quote) Fail("expected a quoted string");
    const size_t begin = ++pos_;
    while (pos_ < text_.size() && text_[pos_] != quote) pos_ += text_[pos_] == '\\' ? 2 : 1;
    if (pos_ >= text_.size()) Fail("a string does not end");
    std::string out;
    if (!absl::CUnescape(ToAbsl(text_.substr(begin, pos_ - begin)), &out))
      Fail("bad escape in string");
    ++pos_;
    return out;
  }
  template <class F>
  void ReadList(std::string_view open, std::string_view close, F item) {
    Expect(open);
    if (Accept(close)) return;
    do item();
    while (Accept(","));
    Expect(close);
  }

  Mesh ReadMesh() {
    Mesh m;
    ReadList("(", ")", [&] {
      MeshAxis a;
      a.name = ReadName();
      Expect("=");
      a.size = ReadInteger();
      if (Accept(":")) {
        const std::string t = ReadName();
        if (t == "explicit")
          a.type = AxisType::kExplicit;
        else if (t == "manual")
          a.type = AxisType::kManual;
        else if (t != "auto")
          Fail("axis types are auto, explicit and manual");
      }
      m.axes.push_back(std::move(a));
    });
    return m;
  }

  Type ReadType() {
    SkipSpace();
    const size_t begin = pos_;
    while (pos_ < text_.size() && text_[pos_] != ']' && text_[pos_] != '\n') ++pos_;
    ++pos_;
    if (pos_ < text_.size() && text_[pos_] == '{')
      while (pos_ < text_.size() && text_[pos_ - 1] != '}') ++pos_;
    if (pos_ < text_.size() && text_[pos_] == '~') ++pos_;
    pos_ = std::min(pos_, text_.size());
    auto t = ParseType(text_.substr(begin, pos_ - begin));
    if (!t.ok()) Fail(ToStd(t.status().message()));
    if (t->rank() > limits_.rank)
      OverLimit(absl::StrCat("type has ", t->rank(), " dims; at most ", limits_.rank, " are read"));
    return *t;
  }

  // Reads {'x','y'}.
  AxisList ReadAxesInBraces() {
    AxisList axes;
    ReadList("{", "}", [&] { axes.push_back(ReadQuoted('\'')); });
    return axes;
  }
  // Reads P(...) with the entries of the dims and the axes `unreduced` and `reduced`. An entry is
  // an axis, a tuple of axes, None, or `?`, which makes the dim open. `open` stays empty if no dim
  // is open, so that equal specs have one form.
  PartitionSpec ReadSpec() {
    PartitionSpec p;
    std::vector<bool> open;
    Expect("P");
    ReadList("(", ")", [&] {
      if (Accept("unreduced")) {
        Expect("=");
        p.unreduced = ReadAxesInBraces();
        return;
      }
      if (Accept("reduced")) {
        Expect("=");
        p.reduced = ReadAxesInBraces();
        return;
      }
      AxisList axes;
      bool is_open = false;
      if (Accept("?")) {
        is_open = true;
      } else if (NextIs("(")) {
        ReadList("(", ")", [&] {
          if (Accept("?"))
            is_open = true;
          else
            axes.push_back(ReadQuoted('\''));
        });
      } else if (!Accept("None")) {
        axes.push_back(ReadQuoted('\''));
      }
      p.dims.push_back(std::move(axes));
      open.push_back(is_open);
    });
    for (bool o : open)
      if (o) p.open = open;
    return p;
  }

  // Reads dense<TYPE: VALUE>, where VALUE is either the bytes of all elements in hex or one number
  // that fills the literal. The type is checked and its size is bounded before any memory is
  // allocated, since the text may come from a stranger. Only dtypes that have kernels can be given
  // as a number.
  Array ReadLiteral() {
    Expect("dense");
    Expect("<");
    const Type t = ReadType();
    Expect(":");
    if (!CheckType(t, {}).ok() || t.num_elements() > limits_.attr_bytes ||
        t.num_bytes() > limits_.attr_bytes)
      OverLimit(absl::StrCat("literal is larger than ", limits_.attr_bytes, " bytes"));
    const int64_t bytes = t.num_bytes();
    SkipSpace();
    if (text_.substr(pos_, 2) == "0x") {
      const size_t begin = pos_ += 2;
      while (pos_ < text_.size() && std::isxdigit(static_cast<unsigned char>(text_[pos_]))) ++pos_;
      const std::optional<std::string> raw = BytesFromHex(text_.substr(begin, pos_ - begin));
      if (!raw || static_cast<int64_t>(raw->size()) != bytes)
        Fail("literal has the wrong number of bytes");
      Expect(">");
      Array literal(t.dtype, t.shape,
                    {reinterpret_cast<const std::byte*>(raw->data()), raw->size()});
      if (!HasValidElements(literal))
        Fail("literal has a byte that is not a valid element of its dtype");
      return literal;
    }
    const std::string number = ReadNumberText();
    Expect(">");
    if (!IsComputable(t.dtype)) Fail("literals of this dtype are written in hex");
    int64_t i;
    uint64_t u;
    double d;
    Array element;
    // Try u64 first, because large values of it do not fit in an int64.
    if (t.dtype == DType::kU64 && absl::SimpleAtoi(number, &u))
      element = Array::ScalarInt(t.dtype, static_cast<int64_t>(u));
    else if (!IsFloat(t.dtype) && absl::SimpleAtoi(number, &i))
      element = Array::ScalarInt(t.dtype, i);
    else if (IsFloat(t.dtype) && absl::SimpleAtod(number, &d))
      element = Array::Scalar(t.dtype, d);
    else
      Fail("expected a number");
    // One number fills the literal, so a short text can ask for much memory. All such literals of a
    // program together have one bound.
    if ((filled_bytes_ += bytes) > limits_.attr_bytes)
      OverLimit(absl::StrCat("literals filled by one number hold more than ", limits_.attr_bytes,
                             " bytes"));
    return ReadStrided(element, 0, Dims(t.rank(), 0), t.shape);
  }

  // `kind` is the kind that the table of ops states for the attribute, if it is known. It decides
  // where the text is ambiguous: for an empty list, and for a double that is written as an integer.
  AttrValue ReadAttr(std::optional<AttrKind> kind) {
    SkipSpace();
    if (pos_ >= text_.size()) Fail("expected a value");
    const char c = text_[pos_];
    if (c == '"') return ReadQuoted('"');
    if (Accept("strings")) {
      ReadList("[", "]", [] {});
      return std::vector<std::string>{};
    }
    if (Accept("bools")) {
      std::vector<bool> v;
      ReadList("[", "]", [&] { v.push_back(ReadInteger() != 0); });
      return v;
    }
    if (Accept("specs")) {
      std::vector<PartitionSpec> v;
      ReadList("[", "]", [&] { v.push_back(ReadSpec()); });
      return v;
    }
    if (NextIs("dense")) return ReadLiteral();
    if (c == 'P' && pos_ + 1 < text_.size() && text_[pos_ + 1] == '(') return ReadSpec();
    if (c == '[') return ReadListAttr(kind);
    if (Accept("true")) return true;
    if (Accept("false")) return false;
    const std::string word = ReadNumberText();
    if (auto dtype = ParseDType(word)) return *dtype;
    int64_t i;
    double d;
    if (kind != AttrKind::kDouble && absl::SimpleAtoi(word, &i)) return i;
    if (absl::SimpleAtod(word, &d)) return d;
    Fail("cannot read the attribute's value");
  }
  AttrValue ReadListAttr(std::optional<AttrKind> kind) {
    std::vector<int64_t> ints;
    std::vector<std::string> strings;
    ReadList("[", "]", [&] {
      SkipSpace();
      if (pos_ < text_.size() && text_[pos_] == '"')
        strings.push_back(ReadQuoted('"'));
      else
        ints.push_back(ReadInteger());
    });
    if (!strings.empty() && !ints.empty()) Fail("a list mixes strings and integers");
    if (!strings.empty() || (ints.empty() && kind == AttrKind::kStrings)) return strings;
    return ints;
  }

  std::optional<PartitionSpec> ReadOptionalSpec() {
    return NextIs("P") ? std::optional(ReadSpec()) : std::nullopt;
  }
  // Only a program's own arguments and results have names.
  std::string ReadOptionalName(int depth) {
    return depth == 0 && Accept("as") ? ReadQuoted('"') : std::string();
  }

  // Reads a function: its params, declared results, scope and ops. A region (depth > 0) inherits
  // `outer` unless the text gives another mesh. The params become values of the builder only after
  // the scope is known, because their types are checked in it. Declared result types are compared
  // with the inferred ones at the position of `return`, so that the error points there.
  FunctionRef ReadFunction(const Scope& outer, int depth, Interface* interface) {
    if (depth > limits_.region_depth)
      OverLimit(absl::StrCat("regions nest deeper than ", limits_.region_depth));
    Expect("func");
    const std::string name = ReadName();
    std::vector<std::pair<std::string, Type>> params;
    std::map<std::string, Value> env;
    ReadList("(", ")", [&] {
      std::string id = ReadValueName();
      if (!env.emplace(id, Value()).second) Fail("value %" + id + " is defined twice");
      Expect(":");
      params.emplace_back(id, ReadType());
      interface->in_shardings.push_back(ReadOptionalSpec());
      std::string name = ReadOptionalName(depth);
      const bool numbered = std::all_of(
          id.begin(), id.end(), [](char c) { return std::isdigit(static_cast<unsigned char>(c)); });
      if (name.empty() && !numbered && id.size() < kValueNameMax) name = "%" + id;
      interface->in_names.push_back(std::move(name));
    });
    std::vector<Type> declared;
    bool has_declared = false;
    if (Accept("->")) {
      has_declared = true;
      ReadList("(", ")", [&] {
        declared.push_back(ReadType());
        interface->out_shardings.push_back(ReadOptionalSpec());
        interface->out_names.push_back(ReadOptionalName(depth));
      });
    }
    Scope scope = outer;
    if (depth > 0) scope.check_vma = true;
    if (Accept("mesh"))
      scope.mesh = ReadMesh();
    else if (depth > 0)
      scope.check_vma = outer.check_vma;
    if (Accept("unchecked")) scope.check_vma = false;
    CheckMeshHere(scope.mesh);

    Builder b(scope, name);
    b.SetSite(Here());
    for (auto& [id, type] : params) env[id] = b.Param(type);
    Expect("{");
    while (!NextIs("return")) ReadOp(b, &env, depth);
    Accept("return");
    const size_t last = token_;
    std::vector<Value> results;
    if (!NextIs("}")) {
      do results.push_back(Lookup(env, ReadValueName()));
      while (Accept(","));
    }
    Expect("}");
    token_ = last;
    if (has_declared) CheckDeclared(declared, TypesOf(results), "the results");
    return b.Build(results);
  }

  // Reads one op with its attributes, declared types and regions, and emits it through the builder.
  // The attribute kinds of the op table resolve ambiguous values. All limits are tested as soon as
  // something is read, before more of the text is processed. An error about the whole op is
  // reported at its first token.
  void ReadOp(Builder& b, std::map<std::string, Value>* env, int depth) {
    b.SetSite(Here());
    const size_t begin = token_;  // position for errors about the whole op
    if (++ops_ > limits_.ops)
      OverLimit(absl::StrCat("the program has more than ", limits_.ops, " ops"));
    std::vector<std::string> names;
    if (NextIs("%")) {
      do names.push_back(ReadValueName());
      while (Accept(","));
      Expect("=");
    }
    const std::string op_name = ReadName();
    const OpDef* def = FindOp(op_name);
    if (def == nullptr)
      Throw(MakeError(
          ErrorKind::kUnknownOp,
          absl::StrCat("unknown op '", op_name, "' (", Here().ToString(), ")", SuggestOps(op_name),
                       " of op set ", kOpset, ", the op set of this build")));
    std::vector<Value> operands;
    ReadList("(", ")", [&] { operands.push_back(Lookup(*env, ReadValueName())); });
    Attrs attrs;
    if (NextIs("{"))
      ReadList("{", "}", [&] {
        const std::string attr = ReadName();
        std::optional<AttrKind> kind;
        for (const AttrSpec& s : def->attrs)
          if (s.name == attr) kind = s.kind;
        Expect("=");
        attrs.Set(attr, ReadAttr(kind));
      });
    std::vector<Type> declared;
    if (Accept(":")) {
      do declared.push_back(ReadType());
      while (Accept(","));
    }
    std::vector<FunctionRef> regions;
    if (Accept("with")) {
      while (NextIs("func")) {
        Interface none;
        const Scope region_scope = ScopeAround(*def, regions.size(), b.scope());
        regions.push_back(ReadFunction(region_scope, depth + 1, &none));
        if (static_cast<int64_t>(regions.size()) > limits_.values_per_op)
          OverLimit(absl::StrCat(op_name, " has more than ", limits_.values_per_op, " regions"));
      }
    }
    const std::vector<Value> results = b.Emit(*def, operands, std::move(attrs), std::move(regions));
    token_ = begin;
    if (!declared.empty()) CheckDeclared(declared, TypesOf(results), op_name);
    if (names.size() != results.size() && !names.empty())
      Fail(absl::StrCat(op_name, " has ", results.size(), " results, but the text names ",
                        names.size()));
    for (size_t r = 0; r < names.size(); ++r)
      if (!env->emplace(names[r], results[r]).second)
        Fail("value %" + names[r] + " is defined twice");
  }

  void CheckDeclared(const std::vector<Type>& declared, const std::vector<Type>& inferred,
                     const std::string& what) {
    if (declared != inferred)
      Fail(absl::StrCat(what, ": declared ", TypesToString(declared), ", inferred ",
                        TypesToString(inferred)));
  }
  Value Lookup(const std::map<std::string, Value>& env, const std::string& name) {
    auto it = env.find(name);
    if (it == env.end()) Fail("value %" + name + " is not defined");
    return it->second;
  }
  Site Here() const { return Site{file_, line_}; }

  std::string_view text_;
  size_t pos_ = 0;
  size_t token_ = 0;  // start of the last token read
  int line_ = 1;
  int64_t ops_ = 0, filled_bytes_ = 0;
  const Limits limits_;
  const char* const file_;
};

// The text may put any bytes into a message, but messages must be printable and valid UTF-8.
absl::Status Printable(const absl::Status& status) {
  constexpr size_t kLongest = 2000;
  std::string message;
  for (char c : status.message().substr(0, kLongest)) {
    if (c >= 0x20 && c < 0x7f) {
      message += c;
    } else {
      absl::StrAppend(&message, "\\x", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    }
  }
  if (status.message().size() > kLongest) message += "...";
  if (status.ok() || message == status.message()) return status;
  absl::Status out(status.code(), message);
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& p) { out.SetPayload(url, p); });
  return out;
}

}  // namespace

std::string PrintFunction(const Function& f, const PrintOptions& options) {
  std::string out;
  Print(f, options, 0, {}, nullptr, &out);
  return out;
}

std::string PrintProgram(const Program& p, const PrintOptions& options) {
  std::string out;
  if (!p.mesh().empty()) absl::StrAppend(&out, "mesh ", p.mesh().ToString(), "\n");
  const Interface interface = {p.in_shardings, p.out_shardings, p.in_names, p.out_names};
  Print(*p.entry, options, 0, interface, nullptr, &out);
  return out;
}

absl::StatusOr<Program> ParseProgram(std::string_view text, const Limits& limits,
                                     const char* file) {
  Program p;
  TESSERA_RETURN_IF_ERROR(
      Printable(CatchStatus([&] { p = Parser(text, limits, file).ReadProgram(); })));
  TESSERA_RETURN_IF_ERROR(Verify(p, limits));
  return p;
}

}  // namespace tessera::ir
