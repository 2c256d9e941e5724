#include "ir/stablehlo/import.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/ops.h"
#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {
namespace {

[[noreturn]] void ThrowMalformed(std::string_view problem) {
  Throw(ErrorKind::kMalformedProgram, absl::StrCat("StableHLO: ", ToAbsl(problem)));
}

constexpr size_t kCapturesMax = 4096;
// As deep as regions may be: a call has its function as one.
constexpr int kCallDepthMax = 64;

}  // namespace

Importer::Importer(const Artifact& artifact)
    : a_(artifact),
      values_(artifact.code.value_types.size()),
      defined_by_(artifact.code.value_types.size(), kNone) {
  for (uint32_t i = 0; i < a_.code.ops.size(); ++i) {
    const Range results = a_.code.ops[i].results;
    for (uint32_t r = 0; r < results.size; ++r) defined_by_[results.begin + r] = i;
    if (a_.form(a_.code.ops[i]).name != "func") continue;
    const std::string name(TextOf(a_, a_.Find(i, "sym_name"), "func: sym_name"));
    if (!ops_.emplace(name, i).second) ThrowMalformed(absl::StrCat("two functions ", Quoted(name)));
  }
}

FunctionRef Importer::Function(std::string_view name) {
  const auto found = ops_.find(name);
  if (found == ops_.end()) ThrowMalformed(absl::StrCat("has no function ", Quoted(name)));
  const uint32_t op = found->second;
  if (const auto done = functions_.find(op); done != functions_.end()) {
    if (done->second == nullptr) ThrowMalformed(absl::StrCat(Quoted(name), " calls itself"));
    return done->second;
  }
  if (call_depth_ == kCallDepthMax)
    Throw(ErrorKind::kLimitExceeded,
          absl::StrCat("StableHLO: calls are more than ", kCallDepthMax, " deep"));
  ++call_depth_;
  functions_[op] = nullptr;
  const Range regions = a_.code.ops[op].regions;
  if (regions.size != 1) ThrowMalformed(absl::StrCat(Quoted(name), " has not one region"));
  const RawRegion& region = a_.code.regions[regions.begin];
  Builder builder(Scope{}, std::string(name.substr(0, kValueNameMax)));
  Builder* const outer = std::exchange(builder_, &builder);
  for (uint32_t i = 0; i < region.args.size; ++i) {
    const uint32_t value = region.args.begin + i;
    values_[value] =
        builder.Param(TensorType(a_, a_.code.value_types[value], absl::StrCat("argument ", i)));
  }
  const std::vector<Value> results = Run(region);
  builder_ = outer;
  --call_depth_;
  return functions_[op] = builder.Build(results);
}

std::vector<Value> Importer::Run(const RawRegion& region) {
  const std::vector<RawOp>& ops = a_.code.ops;
  for (uint32_t i = region.begin; i < region.end; i = ops[i].end) {
    const RawOp& op = ops[i];
    const bool last = op.end == region.end;
    const OpForm& form = a_.form(op);
    if ((form.name == "return") != last) ThrowMalformed("a region ends with no return, or goes on");
    builder_->SetSite(SiteOf(a_, op.location));
    std::vector<Value> values = Emit(i);
    if (last) return values;
    for (uint32_t r = 0; r < op.results.size; ++r) values_[op.results.begin + r] = values[r];
  }
  ThrowMalformed("a region has no ops");
}

std::vector<Value> Importer::Emit(uint32_t index) {
  const RawOp& op = a_.code.ops[index];
  const OpForm& form = a_.form(op);
  std::vector<Value> operands;
  for (const uint32_t value : Slice(a_.code.operands, op.operands)) {
    const Value v = values_[value];
    // One of another function, or of an op that came to nothing.
    if (!v || &v.builder() != builder_)
      ThrowMalformed(absl::StrCat(ToAbsl(form.name), " uses a value that it cannot"));
    operands.push_back(v);
  }
  if (form.name == "return") return operands;
  const OpReader reader(*this, index, std::move(operands));
  const ImportRow* const row = FindImport(form.dialect, form.name);
  if (row == nullptr) reader.NotSupported("is an op that Tessera lacks");
  std::vector<Value> values = row->import(reader);
  if (values.size() != op.results.size)
    reader.Malformed(absl::StrCat("has ", op.results.size, " results, and gives ", values.size()));
  for (size_t r = 0; r < values.size(); ++r) {
    const Type declared = reader.ResultType(static_cast<int>(r));
    if (SameShapeAndDType(values[r].type(), declared)) continue;
    reader.Malformed(absl::StrCat("has a result that is declared ", declared.ToString(), " and is ",
                                  values[r].type().ToString()));
  }
  return values;
}

// ---- One op. ------------------------------------------------------------------------------------
std::string OpReader::What() const {
  return std::string(importer_.a_.form(importer_.a_.code.ops[op_]).name);
}
std::string OpReader::What(std::string_view attr) const {
  return absl::StrCat(What(), ": ", ToAbsl(attr));
}
void OpReader::Malformed(std::string_view problem) const {
  const std::string site = importer_.b().site().ToString();
  ThrowMalformed(absl::StrCat(What(), " ", ToAbsl(problem), site.empty() ? "" : " (", site,
                              site.empty() ? "" : ")"));
}
void OpReader::NotSupported(std::string_view problem) const {
  const std::string site = importer_.b().site().ToString();
  Throw(ErrorKind::kNotImplemented,
        absl::StrCat("StableHLO: ", What(), " ", ToAbsl(problem), site.empty() ? "" : " (", site,
                     site.empty() ? "" : ")"));
}

int64_t OpReader::Int(std::string_view attr) const {
  return IntOf(importer_.a_, importer_.a_.Find(op_, attr), What(attr));
}
bool OpReader::Bool(std::string_view attr) const {
  return Has(attr) && BoolOf(importer_.a_, importer_.a_.Find(op_, attr), What(attr));
}
std::vector<int64_t> OpReader::Ints(std::string_view attr) const {
  return IntsOf(importer_.a_, importer_.a_.Find(op_, attr), What(attr));
}
std::vector<int64_t> OpReader::IntsOrNone(std::string_view attr) const {
  return Has(attr) ? Ints(attr) : std::vector<int64_t>();
}
std::string_view OpReader::Text(std::string_view attr) const {
  return TextOf(importer_.a_, importer_.a_.Find(op_, attr), What(attr));
}
int64_t OpReader::Enum(std::string_view attr, AttrKind kind) const {
  return EnumOf(importer_.a_, importer_.a_.Find(op_, attr), kind, What(attr));
}
Tensor OpReader::Constant(std::string_view attr) const {
  return TensorOf(importer_.a_, importer_.a_.Find(op_, attr), What(attr));
}
FunctionRef OpReader::Callee(std::string_view attr) const { return importer_.Function(Text(attr)); }

Type OpReader::ResultType(int i) const {
  if (i >= num_results()) Malformed("has too few results");
  return TensorType(importer_.a_, importer_.a_.code.value_types[raw().results.begin + i],
                    absl::StrCat(What(), ": result ", i));
}
std::vector<Value> OpReader::First(size_t n) const {
  if (n > in.size()) Malformed("has too few operands");
  return {in.begin(), in.begin() + n};
}
std::vector<Value> OpReader::From(size_t n) const {
  if (n > in.size()) Malformed("has too few operands");
  return {in.begin() + n, in.end()};
}

std::vector<uint32_t> OpReader::Captures(std::vector<int> regions) const {
  std::vector<uint32_t> captures;
  std::unordered_set<uint32_t> seen;
  for (const int r : regions) {
    if (r >= num_regions()) Malformed("has too few regions");
    const RawRegion& within = region(r);
    for (uint32_t i = within.begin; i < within.end; ++i) {
      for (const uint32_t value :
           Slice(importer_.a_.code.operands, importer_.a_.code.ops[i].operands)) {
        const bool inside = value >= within.first_value && value < within.end_value;
        if (!inside && seen.insert(value).second) captures.push_back(value);
      }
      if (captures.size() > kCapturesMax)
        NotSupported("uses too many values of outside its regions");
    }
  }
  return captures;
}
std::vector<Value> OpReader::ValuesOf(const std::vector<uint32_t>& captures) const {
  std::vector<Value> values;
  for (const uint32_t value : captures) {
    values.push_back(importer_.values_[value]);
    if (!values.back()) Malformed("uses a value that it cannot");
  }
  return values;
}

FunctionRef OpReader::Region(int r, const std::vector<uint32_t>& captures,
                             const std::vector<uint32_t>& constants) const {
  if (r >= num_regions()) Malformed("has too few regions");
  Importer& to = importer_;
  const RawRegion& within = region(r);
  const std::vector<Value> outside = ValuesOf(captures);
  Builder builder(b().scope(), absl::StrCat(What(), "_", r));
  Builder* const outer = std::exchange(to.builder_, &builder);
  for (size_t i = 0; i < captures.size(); ++i)
    to.values_[captures[i]] = builder.Param(outside[i].type());
  for (uint32_t i = 0; i < within.args.size; ++i) {
    const uint32_t value = within.args.begin + i;
    to.values_[value] =
        builder.Param(TensorType(to.a_, to.a_.code.value_types[value], What("an argument")));
  }
  const std::vector<Value> constants_outside = ValuesOf(constants);
  for (const uint32_t value : constants) to.values_[value] = to.Emit(to.defined_by_[value])[0];
  const std::vector<Value> results = to.Run(within);
  to.builder_ = outer;
  for (size_t i = 0; i < captures.size(); ++i) to.values_[captures[i]] = outside[i];
  for (size_t i = 0; i < constants.size(); ++i) to.values_[constants[i]] = constants_outside[i];
  return builder.Build(results);
}

// Those who write artifacts hoist constants out of computations, too.
FunctionRef OpReader::Computation(int r) const {
  const std::vector<uint32_t> constants = Captures({r});
  for (const uint32_t value : constants) {
    const uint32_t op = importer_.defined_by_[value];
    if (op == kNone || importer_.a_.form(importer_.a_.code.ops[op]).name != "constant")
      NotSupported("has a computation that uses values of outside");
  }
  return Region(r, {}, constants);
}

// -------------------------------------------------------------------------------------------------
absl::StatusOr<Program> ImportProgram(const Artifact& artifact) {
  Program program;
  TESSERA_RETURN_IF_ERROR(
      CatchStatus([&] { program.entry = Importer(artifact).Function("main"); }));
  return program;
}

}  // namespace tessera::ir::stablehlo
