// The state of an import and OpReader, through which the rows read their op. Functions and regions
// are built here, from the values that the walk (import.cc) keeps. Everything that the artifact may
// inflate is counted against the limits of a program, since the bytes come from strangers.
#include "ir/stablehlo/importer.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/debug_print.h"
#include "ir/ops.h"
#include "ir/verify.h"

namespace tessera::ir::stablehlo {
namespace {

[[noreturn]] void ThrowMalformed(std::string_view problem) {
  Throw(ErrorKind::kMalformedProgram, absl::StrCat("StableHLO: ", ToAbsl(problem)));
}

constexpr size_t kCapturesMax = 4096;
}  // namespace

Importer::Importer(const Artifact& artifact, HostProgram* for_host)
    : a_(artifact),
      for_host_(for_host),
      shardings_(artifact),
      values_(artifact.code.value_types.size()),
      defined_by_(artifact.code.value_types.size(), kNone) {
  const std::vector<RawOp>& ops = a_.code.ops;
  for (uint32_t i = 0; i < ops.size(); ++i)
    for (uint32_t r = 0; r < ops[i].results.size; ++r) defined_by_[ops[i].results.begin + r] = i;
  // Only functions directly in the module can be called. Functions in regions of other ops are
  // ignored.
  if (ops.empty() || ops[0].regions.size != 1) ThrowMalformed("is not a module with one region");
  const RawRegion& module = a_.code.regions[ops[0].regions.begin];
  for (uint32_t i = module.begin; i < module.end; i = ops[i].end) {
    if (a_.form(ops[i]).name != "func") continue;
    const std::string name(TextOf(a_, a_.Find(i, "sym_name"), "func: sym_name"));
    if (!func_ops_.emplace(name, i).second)
      ThrowMalformed(absl::StrCat("two functions ", Quoted(name)));
  }
}

void Importer::AddCallback(std::string_view name) {
  std::vector<std::string>& names = for_host_->callbacks;
  if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
}

std::vector<Value> Importer::EmitHostCall(std::string_view name, const std::vector<Value>& operands,
                                          const std::vector<Type>& results) {
  AddCallback(name);
  std::vector<Value> out;
  if (results.empty() || depth_ > 1) {
    DebugPrint(*builder_, std::string(name), operands);
    std::vector<HostCall>& nested_calls = for_host_->nested_calls;
    const auto has_name = [&](const HostCall& call) { return call.name == name; };
    if (!results.empty() &&
        std::find_if(nested_calls.begin(), nested_calls.end(), has_name) == nested_calls.end())
      nested_calls.push_back({std::string(name), static_cast<int>(operands.size()), results});
    for (const Type& type : results)
      out.push_back(Full(*builder_, type, IsInexact(type.dtype) ? std::nan("") : 0));
    return out;
  }
  for_host_->calls.push_back({std::string(name), static_cast<int>(operands.size()), results});
  host_call_operands_.insert(host_call_operands_.end(), operands.begin(), operands.end());
  ChargeOps(static_cast<int64_t>(operands.size() + results.size()));
  for (const Type& type : results) out.push_back(builder_->Param(type));
  return out;
}

bool Importer::CallsHost(uint32_t function) {
  // The entry is false while the function is searched, so a function that calls itself is searched
  // once.
  const auto [it, is_new] = calls_host_.try_emplace(function, false);
  if (!is_new) return it->second;
  const Range regions = a_.code.ops[function].regions;
  if (regions.size != 1) return false;
  const RawRegion& body = a_.code.regions[regions.begin];
  bool calls_host = false;
  for (uint32_t i = body.begin; i < body.end && !calls_host; i = a_.code.ops[i].end) {
    const std::string_view name = a_.form(a_.code.ops[i]).name;
    if (name == "custom_call" && a_.code.ops[i].results.size > 0) {
      const uint32_t target = a_.Find(i, "call_target_name");
      calls_host =
          target != kNone && TextOf(a_, target, "custom_call: call_target_name") == kHostCallback;
    } else if (name == "call") {
      const uint32_t callee = a_.Find(i, "callee");
      const auto found =
          callee == kNone ? func_ops_.end() : func_ops_.find(TextOf(a_, callee, "call: callee"));
      calls_host = found != func_ops_.end() && CallsHost(found->second);
    }
  }
  return calls_host_[function] = calls_host;
}

// Runs the body of the function as if it stood at the call, because only the calls of the host in
// the entry function can be made before the program runs. A function that calls itself, or calls
// that are nested too deeply, would never end, so both are refused. The values of the body are
// forgotten at the end, since a second call of the function emits it again.
std::optional<std::vector<Value>> Importer::InlineCallOfHost(std::string_view name,
                                                             const std::vector<Value>& args) {
  const auto found = func_ops_.find(name);
  if (!for_host() || depth_ > 1 || found == func_ops_.end() || !CallsHost(found->second))
    return std::nullopt;
  const uint32_t op = found->second;
  if (std::find(inlining_.begin(), inlining_.end(), op) != inlining_.end())
    ThrowMalformed(absl::StrCat(Quoted(name), " calls itself"));
  if (inlining_.size() >= static_cast<size_t>(Limits().region_depth))
    Throw(ErrorKind::kLimitExceeded, absl::StrCat("StableHLO: calls are more than ",
                                                  Limits().region_depth, " within each other"));
  const RawRegion& body = a_.code.regions[a_.code.ops[op].regions.begin];
  size_t size = 0;
  for (uint32_t i = 0; i < body.args.size; ++i)
    size += ArrayTypesOf(a_, type_of(body.args.begin + i), absl::StrCat("argument ", i)).size();
  if (size != args.size())
    ThrowMalformed(
        absl::StrCat(Quoted(name), " takes ", size, " arrays, and is given ", args.size()));
  size_t next = 0;
  for (uint32_t i = 0; i < body.args.size; ++i) KeepNext(body.args.begin + i, args, &next);
  inlining_.push_back(op);
  std::vector<Value> results = EmitRegion(body);
  inlining_.pop_back();
  Forget(body.first_value, body.end_value);
  return results;
}

FunctionRef Importer::Function(std::string_view name, const Scope& scope) {
  const auto found = func_ops_.find(name);
  if (found == func_ops_.end()) ThrowMalformed(absl::StrCat("has no function ", Quoted(name)));
  const uint32_t op = found->second;
  const std::tuple key(op, scope.mesh.empty(), scope.mesh.AxesOfType(AxisType::kManual));
  if (const auto done = functions_.find(key); done != functions_.end()) {
    if (done->second == nullptr) ThrowMalformed(absl::StrCat(Quoted(name), " calls itself"));
    return done->second;
  }
  functions_[key] = nullptr;
  const Range regions = a_.code.ops[op].regions;
  if (regions.size != 1)
    ThrowMalformed(absl::StrCat(Quoted(name), " does not have exactly one region"));
  // The entry of every program is called "main"; the module's name distinguishes them.
  std::string_view label = name;
  if (const uint32_t module = a_.Find(0, "sym_name"); name == "main" && module != kNone)
    label = TextOf(a_, module, "module: sym_name");
  std::string shown(label.substr(0, kValueNameMax));
  for (char& c : shown)
    if (!absl::ascii_isprint(c)) c = '_';
  return functions_[key] =
             BuildRegion(a_.code.regions[regions.begin], scope, std::move(shown), {}, {});
}

// Builds a function from a region. The captured values become its leading params, and constants
// from outside are emitted again inside, so that computations stay closed. The values of the
// artifact that are captured mean the params while the body is built, and their former values again
// afterwards.
FunctionRef Importer::BuildRegion(const RawRegion& region, Scope scope, std::string name,
                                  const std::vector<uint32_t>& captures,
                                  const std::vector<uint32_t>& constants) {
  std::vector<uint32_t> shadowed = captures;
  shadowed.insert(shadowed.end(), constants.begin(), constants.end());
  const std::vector<Value> outside = ValuesOf(captures, "a region");
  const FunctionRef f = BuildFunction(std::move(scope), std::move(name), shadowed, [&] {
    ChargeOps(static_cast<int64_t>(outside.size() + region.args.size));
    std::vector<Value> params;
    for (const Value v : outside) params.push_back(builder_->Param(v.type()));
    size_t next = 0;
    for (const uint32_t value : captures) KeepNext(value, params, &next);
    for (uint32_t i = 0; i < region.args.size; ++i) {
      const uint32_t value = region.args.begin + i;
      std::vector<Value> arrays;
      for (const Type& type : ArrayTypesOf(a_, type_of(value), absl::StrCat("argument ", i)))
        arrays.push_back(builder_->Param(type));
      ChargeOps(static_cast<int64_t>(arrays.size()) - 1);
      Keep(value, arrays);
    }
    for (const uint32_t value : constants) values_[value] = Emit(ConstantOpOf(value))[0];
    std::vector<Value> results = EmitRegion(region);
    if (depth_ == 1)
      results.insert(results.end(), host_call_operands_.begin(), host_call_operands_.end());
    return results;
  });
  // No value of the finished builder may be left, now that it is no longer shadowed.
  Forget(region.first_value, region.end_value);
  return f;
}

uint32_t Importer::ConstantOpOf(uint32_t value) const {
  while (true) {
    const uint32_t op = defined_by_[value];
    if (op == kNone) return kNone;
    const std::string_view name = a_.form(a_.code.ops[op]).name;
    if (name == "constant") return op;
    const absl::Span<const uint32_t> operands = Slice(a_.code.operands, a_.code.ops[op].operands);
    // The position of a constant and the dialect of its type do not change what it is. The operand
    // of an op always comes before the op.
    if ((name != "sharding_constraint" && name != "unrealized_conversion_cast") ||
        operands.size() != 1 || operands[0] >= value)
      return kNone;
    value = operands[0];
  }
}
FunctionRef Importer::BuildFunction(Scope scope, std::string name,
                                    const std::vector<uint32_t>& shadowed,
                                    absl::FunctionRef<std::vector<Value>()> body) {
  // One level is the function itself, and one is a computation that is not an op of ours.
  const int64_t depth_max = Limits().region_depth + 2;
  if (depth_ == depth_max)
    Throw(ErrorKind::kLimitExceeded, absl::StrCat("StableHLO: regions and calls are more than ",
                                                  depth_max, " within each other"));
  const std::vector<Value> outside = ValuesOf(shadowed, "a region");
  Builder builder(std::move(scope), std::move(name));
  Builder* const outer = std::exchange(builder_, &builder);
  ++depth_;
  const FunctionRef f = builder.Build(body());
  --depth_;
  builder_ = outer;
  size_t next = 0;
  for (const uint32_t value : shadowed) KeepNext(value, outside, &next);
  if (SizeOf(f) > Limits().ops)
    Throw(ErrorKind::kLimitExceeded,
          absl::StrCat("StableHLO: ", Quoted(f->name), " has more than ", Limits().ops,
                       " ops, including the ops of the functions that it calls"));
  return f;
}

void Importer::ChargeOps(int64_t ops) {
  charged_ops_ += ops;
  if (charged_ops_ > Limits().ops)
    Throw(ErrorKind::kLimitExceeded,
          absl::StrCat("StableHLO: more than ", Limits().ops, " ops and params"));
}

int64_t Importer::SizeOf(const FunctionRef& f) {
  if (const auto known = sizes_.find(f); known != sizes_.end()) return known->second;
  int64_t size = 1;
  for (const Op& op : f->ops) {
    ++size;
    for (const FunctionRef& region : op.regions) size += SizeOf(region);
    size = std::min(size, Limits().ops + 1);
  }
  return sizes_[f] = size;
}

std::vector<Value> Importer::ValuesOf(absl::Span<const uint32_t> values, std::string_view what) {
  std::vector<Value> out;
  for (const uint32_t value : values) {
    const absl::Span<const Value> arrays = ArraysOfValue(value);
    if (arrays.size() > 1) ChargeOps(static_cast<int64_t>(arrays.size()) - 1);
    for (const Value v : arrays) {
      // The value is not one that the function under construction can use.
      if (!v || &v.builder() != builder_)
        ThrowMalformed(absl::StrCat(ToAbsl(what), " uses a value that it cannot access"));
      out.push_back(v);
    }
  }
  return out;
}

absl::Span<const Value> Importer::ArraysOfValue(uint32_t value) const {
  if (IsArray(a_, type_of(value))) return {&values_[value], 1};
  const auto found = tuples_.find(value);
  if (found != tuples_.end()) return found->second;
  // A token has no arrays, wherever it comes from.
  if (a_.types[type_of(value)].kind == TypeKind::kToken) return {};
  ThrowMalformed("uses a tuple that it cannot access");
}
void Importer::Keep(uint32_t value, absl::Span<const Value> arrays) {
  if (IsArray(a_, type_of(value))) {
    values_[value] = arrays[0];
  } else {
    ChargeOps(static_cast<int64_t>(arrays.size()));
    tuples_[value] = {arrays.begin(), arrays.end()};
  }
}
void Importer::KeepNext(uint32_t value, const std::vector<Value>& arrays, size_t* next) {
  const size_t n =
      IsArray(a_, type_of(value)) ? 1 : ArrayTypesOf(a_, type_of(value), "a tuple").size();
  Keep(value, absl::MakeConstSpan(arrays).subspan(*next, n));
  *next += n;
}
void Importer::Forget(uint32_t begin, uint32_t end) {
  std::fill(values_.begin() + begin, values_.begin() + end, Value());
  tuples_.erase(tuples_.lower_bound(begin), tuples_.lower_bound(end));
}

std::vector<Value> OpReader::EmitHostCall() const {
  std::vector<Type> results;
  for (int r = 0; r < num_results(); ++r) results.push_back(ResultType(r));
  return importer_.EmitHostCall(Text("backend_config"), in, results);
}

// ---- One op. ------------------------------------------------------------------------------------
std::string OpReader::Name() const {
  return std::string(importer_.a_.form(importer_.a_.code.ops[op_]).name);
}
std::string OpReader::Name(std::string_view attr) const {
  return absl::StrCat(Name(), ": ", ToAbsl(attr));
}
std::string OpReader::Where() const {
  const std::string site = importer_.b().site().ToString();
  return site.empty() ? Name() : absl::StrCat(Name(), " (", site, ")");
}
std::string OpReader::Where(std::string_view attr) const {
  return absl::StrCat(Where(), ": ", ToAbsl(attr));
}
void OpReader::Malformed(std::string_view problem) const {
  const std::string site = importer_.b().site().ToString();
  ThrowMalformed(absl::StrCat(Name(), " ", ToAbsl(problem), site.empty() ? "" : " (", site,
                              site.empty() ? "" : ")"));
}
void OpReader::NotSupported(std::string_view problem) const {
  const std::string site = importer_.b().site().ToString();
  Throw(ErrorKind::kNotImplemented,
        absl::StrCat("StableHLO: ", Name(), " ", ToAbsl(problem), site.empty() ? "" : " (", site,
                     site.empty() ? "" : ")"));
}

int64_t OpReader::Int(std::string_view attr) const {
  return IntOf(importer_.a_, importer_.a_.Find(op_, attr), Name(attr));
}
bool OpReader::Bool(std::string_view attr) const {
  return Has(attr) && BoolOf(importer_.a_, importer_.a_.Find(op_, attr), Name(attr));
}
std::vector<int64_t> OpReader::Ints(std::string_view attr) const {
  return IntsOf(importer_.a_, importer_.a_.Find(op_, attr), Name(attr));
}
std::vector<int64_t> OpReader::IntsOrNone(std::string_view attr) const {
  return Has(attr) ? Ints(attr) : std::vector<int64_t>();
}
std::string_view OpReader::Text(std::string_view attr) const {
  return TextOf(importer_.a_, importer_.a_.Find(op_, attr), Name(attr));
}
int64_t OpReader::Enum(std::string_view attr, AttrKind kind) const {
  return EnumOf(importer_.a_, importer_.a_.Find(op_, attr), kind, Name(attr));
}
// Ops that share an attribute also share the bytes of its literal.
Tensor OpReader::Constant(std::string_view attr) const {
  const uint32_t index = importer_.a_.Find(op_, attr);
  const auto known = importer_.constants_.find(index);
  if (known != importer_.constants_.end()) return known->second;
  return importer_.constants_[index] = TensorOf(importer_.a_, index, Name(attr));
}
const Exchange& OpReader::CachedExchange(std::string_view attr, int kind,
                                         absl::FunctionRef<Exchange()> make) const {
  const std::pair key(Find(attr), kind);
  const auto known = importer_.exchanges_.find(key);
  return known != importer_.exchanges_.end() ? known->second : importer_.exchanges_[key] = make();
}
int OpReader::SmallInt(std::string_view attr, int limit) const {
  const int64_t value = Int(attr);
  if (value < -limit || value > limit)
    Malformed(absl::StrCat("has ", value, " as its ", ToAbsl(attr)));
  return static_cast<int>(value);
}
FunctionRef OpReader::Callee(std::string_view attr) const {
  return importer_.Function(Text(attr), b().scope());
}
FunctionRef OpReader::CalledComputation() const {
  const Artifact& a = importer_.a_;
  const Attr& list =
      AttrOf(a, Find("called_computations"), AttrKind::kArray, Name("called_computations"));
  if (list.refs.size != 1) Malformed("does not call exactly one computation");
  return importer_.Function(TextOf(a, a.refs[list.refs.begin], Name("called_computations")), {});
}
bool OpReader::IsCipher(const FunctionRef& f) const {
  constexpr int64_t kSizeMax = 256;  // the cipher has a third of that
  if (importer_.SizeOf(f) > kSizeMax) return false;
  const auto [known, is_new] = importer_.are_ciphers_.emplace(f, false);
  if (is_new) known->second = IsJaxCipher(*f);
  return known->second;
}
std::optional<OpReader> OpReader::Defining(size_t operand) const {
  const uint32_t op =
      importer_.defined_by_[Slice(importer_.a_.code.operands, raw().operands)[operand]];
  if (op == kNone) return std::nullopt;
  return OpReader(importer_, op, {});
}

Type OpReader::ResultType(int i) const {
  if (i >= num_results()) Malformed("has too few results");
  Type type = TensorType(importer_.a_, importer_.type_of(raw().results.begin + i),
                         absl::StrCat(Name(), ": result ", i));
  if (result_dtype_) type.dtype = *result_dtype_;
  return type;
}
std::optional<Quantization> OpReader::OperandQuantization(int i) const {
  const uint32_t value = Slice(importer_.a_.code.operands, raw().operands)[i];
  return QuantizationOf(importer_.a_, importer_.type_of(value),
                        absl::StrCat(Name(), ": operand ", i));
}
std::optional<Quantization> OpReader::ResultQuantization(int i) const {
  return QuantizationOf(importer_.a_, importer_.type_of(raw().results.begin + i),
                        absl::StrCat(Name(), ": result ", i));
}
std::vector<size_t> OpReader::ArraysPerElement(size_t operand) const {
  const Artifact& a = importer_.a_;
  const absl::Span<const uint32_t> operands = Slice(a.code.operands, raw().operands);
  if (operand >= operands.size()) Malformed("has too few operands");
  const DecodedType& type = a.types[importer_.type_of(operands[operand])];
  if (type.kind != TypeKind::kTuple) Malformed("has an operand that is not a tuple");
  importer_.ChargeOps(static_cast<int64_t>(in.size() + type.refs.size));
  std::vector<size_t> out;
  for (const uint32_t element : Slice(a.refs, type.refs))
    out.push_back(ArrayTypesOf(a, element, Name()).size());
  return out;
}
std::vector<Value> OpReader::FirstOperands(size_t n) const {
  if (n > in.size()) Malformed("has too few operands");
  return {in.begin(), in.begin() + n};
}
std::vector<Value> OpReader::OperandsFrom(size_t n) const {
  if (n > in.size()) Malformed("has too few operands");
  return {in.begin() + n, in.end()};
}

std::optional<Array> OpReader::KnownLiteral(size_t operand) const {
  const Op* definition = b().DefiningOp(in[operand]);
  if (definition != nullptr && definition->def == &ops::kBroadcastInDim) {
    const Value element(&b(), definition->operands[0]);
    definition = element.rank() == 0 ? b().DefiningOp(element) : nullptr;
  }
  if (definition != nullptr && definition->def == &ops::kConstant)
    return definition->attrs.Literal("value");
  // A value from outside of a region is a param here, so look for the op that defines it in the
  // artifact.
  const std::optional<OpReader> outside = Defining(operand);
  if (!outside || outside->Name() != "constant") return std::nullopt;
  return outside->Constant("value").literal;
}
std::vector<int64_t> OpReader::KnownInts(size_t operand) const {
  constexpr int64_t kIntsMax = 64;  // two for each of 32 dims
  const Value x = in[operand];
  const std::optional<Array> known = KnownLiteral(operand);
  if (!known) NotSupported(absl::StrCat("takes operand ", operand, ", which is not a constant"));
  const Array& literal = *known;
  if (!IsInteger(literal.dtype()) || x.rank() < 1 || x.rank() > 2 ||
      x.type().num_elements() > kIntsMax)
    Malformed(absl::StrCat("has an operand ", operand, " that is not a list of sizes"));
  if (literal.rank() > 0 && literal.shape() != x.shape())
    NotSupported(absl::StrCat("takes operand ", operand, ", which is not a constant"));
  std::vector<int64_t> ints(x.type().num_elements());
  for (size_t i = 0; i < ints.size(); ++i)
    ints[i] = literal.IntAt(literal.rank() == 0 ? 0 : static_cast<int64_t>(i));
  return ints;
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
        NotSupported("uses too many values from outside its regions");
    }
  }
  return captures;
}
std::vector<Value> OpReader::ValuesOf(const std::vector<uint32_t>& captures) const {
  return importer_.ValuesOf(captures, Name());
}

FunctionRef OpReader::Region(int r, const std::vector<uint32_t>& captures,
                             const std::vector<uint32_t>& constants, const Scope& scope) const {
  if (r >= num_regions()) Malformed("has too few regions");
  ++regions_read_;
  return importer_.BuildRegion(region(r), scope, absl::StrCat(Name(), "_", r), captures, constants);
}

// Writers of artifacts hoist constants out of computations, too. A computation has no mesh.
FunctionRef OpReader::Computation(int r) const {
  const std::vector<uint32_t> constants = Captures({r});
  for (const uint32_t value : constants) {
    if (importer_.ConstantOpOf(value) == kNone)
      NotSupported("has a computation that uses values from outside");
  }
  return Region(r, {}, constants, Scope{});
}
std::string_view OpReader::SoleOpName(int r) const {
  if (r >= num_regions()) Malformed("has too few regions");
  const RawRegion& within = region(r);
  const Bytecode& code = importer_.a_.code;
  if (within.args.size != 2 || within.end - within.begin != 2) return "";
  const RawOp &first = code.ops[within.begin], &last = code.ops[within.begin + 1];
  const absl::Span<const uint32_t> in = Slice(code.operands, first.operands);
  const absl::Span<const uint32_t> out = Slice(code.operands, last.operands);
  if (in.size() != 2 || in[0] != within.args.begin || in[1] != within.args.begin + 1 ||
      first.results.size != 1 || out.size() != 1 || out[0] != first.results.begin ||
      importer_.a_.form(last).name != "return")
    return "";
  ++regions_read_;
  return importer_.a_.form(first).name;
}
FunctionRef OpReader::Inlined(int r) const {
  const FunctionRef f = Computation(r);
  importer_.ChargeOps(importer_.SizeOf(f));
  return f;
}
void OpReader::ChargeRepeatedOps(const FunctionRef& f, int64_t times) const {
  importer_.ChargeOps(times * (importer_.SizeOf(f) + 2));
}
void OpReader::ChargeOps(int64_t ops) const { importer_.ChargeOps(ops); }

}  // namespace tessera::ir::stablehlo
