// The walk of an import: it goes through the ops of a region, finds the row of each op and checks
// what the row emitted. The entry points of a reader stand at the end.
#include "ir/stablehlo/import.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/stablehlo/importer.h"
#include "ir/stablehlo/inspect.h"
#include "ir/stablehlo/on_shards.h"
#include "ir/stablehlo/quantized.h"
#include "ir/verify.h"

namespace tessera::ir::stablehlo {

std::vector<Value> Importer::EmitRegion(const RawRegion& region) {
  const std::vector<RawOp>& ops = a_.code.ops;
  uint32_t next = region.begin;
  for (uint32_t i = next; i < region.end; i = next) {
    const RawOp& op = ops[i];
    next = op.end;
    const bool is_last = op.end == region.end;
    const OpForm& form = a_.form(op);
    if ((form.name == "return") != is_last) Malformed("a region", "does not end with its return");
    if (ShardCodeImporter::BeginsAt(a_, i)) {
      next = EmitOpsOnShards(i, region.end);
      continue;
    }
    if (is_last) {
      builder_->SetSite(SiteOf(a_, op.location));
      return Emit(i);
    }
    EmitAndKeep(i);
  }
  Malformed("a region", "has no ops");
}

void Importer::EmitAndKeep(uint32_t index) {
  const RawOp& op = a_.code.ops[index];
  builder_->SetSite(SiteOf(a_, op.location));
  const std::vector<Value> values = Emit(index);
  size_t next = 0;
  for (uint32_t r = 0; r < op.results.size; ++r) KeepNext(op.results.begin + r, values, &next);
}

// Imports one op: reads its operands, finds its row, and checks that the results have the declared
// types. The artifact's declarations are not trusted, and neither are the rows: an op with regions
// must have read them. Ops with a quantized operand or result go through ImportQuantized.
std::vector<Value> Importer::Emit(uint32_t index) {
  const RawOp& op = a_.code.ops[index];
  const OpForm& form = a_.form(op);
  ChargeOps(1);
  std::vector<Value> operands = ValuesOf(Slice(a_.code.operands, op.operands), form.name);
  if (form.name == "return") return operands;
  const OpReader reader(*this, index, std::move(operands));
  const ImportRow* const row = FindImport(form.dialect, form.name);
  if (row == nullptr) {
    const std::string_view why = WhyNotImported(form.name);
    reader.NotSupported(why.empty() ? "is an op that Tessera lacks" : why);
  }
  const auto is_array = [&](uint32_t value) { return IsArray(a_, type_of(value)); };
  const absl::Span<const uint32_t> operand_ids = Slice(a_.code.operands, op.operands);
  const bool all_arrays = std::all_of(operand_ids.begin(), operand_ids.end(), is_array);
  if (!all_arrays && !TakesTuples(form.name)) reader.NotSupported("is of a tuple or a token");
  const auto is_quantized = [&](uint32_t value) { return IsQuantized(a_, type_of(value)); };
  bool quantized = std::any_of(operand_ids.begin(), operand_ids.end(), is_quantized);
  for (uint32_t r = 0; r < op.results.size; ++r) quantized |= is_quantized(op.results.begin + r);
  std::vector<Value> values = quantized ? ImportQuantized(reader, *row) : row->import(reader);
  if (op.regions.size > 0 && reader.regions_read_ == 0) reader.Malformed("has regions");
  std::vector<Type> declared;
  for (uint32_t r = 0; r < op.results.size; ++r)
    for (Type& type : ArrayTypesOf(a_, type_of(op.results.begin + r),
                                   absl::StrCat(ToAbsl(form.name), ": result ", r)))
      declared.push_back(std::move(type));
  if (values.size() != declared.size())
    reader.Malformed(absl::StrCat("has ", declared.size(), " results, and gives ", values.size()));
  for (size_t r = 0; r < values.size(); ++r) {
    if (SameShapeAndDType(values[r].type(), declared[r])) continue;
    reader.Malformed(absl::StrCat("has a result that is declared ", declared[r].ToString(),
                                  " and is ", values[r].type().ToString()));
  }
  return values;
}

namespace {

// Returns one name for each of `n` values, or none at all. Tokens are not values, and a program
// with tuples has no names.
std::vector<std::string> NamesOf(const std::vector<ValueInfo>& values, size_t n) {
  std::vector<std::string> out;
  for (const ValueInfo& value : values) {
    if (value.type == "tuple") return {};
    if (value.type != "token") out.push_back(value.name);
  }
  out.resize(n);
  const bool has_names =
      std::any_of(out.begin(), out.end(), [](const auto& name) { return !name.empty(); });
  return has_names ? out : std::vector<std::string>();
}

absl::Status AddNames(const Artifact& artifact, Program* program) {
  const Signature main = SignatureOf(artifact);
  program->in_names = NamesOf(main.params, program->entry->num_params);
  program->out_names = NamesOf(main.results, program->entry->results.size());
  return VerifySignature(*program);
}

}  // namespace

absl::StatusOr<Program> ImportProgram(const Artifact& artifact) {
  Program program;
  TESSERA_RETURN_IF_ERROR(
      CatchStatus([&] { program = Importer(artifact, /*for_host=*/nullptr).ImportMain(); }));
  TESSERA_RETURN_IF_ERROR(AddNames(artifact, &program));
  return program;
}

absl::StatusOr<HostProgram> ImportForHost(const Artifact& artifact) {
  HostProgram out;
  TESSERA_RETURN_IF_ERROR(
      CatchStatus([&] { out.program = Importer(artifact, &out).ImportMain(); }));
  TESSERA_RETURN_IF_ERROR(AddNames(artifact, &out.program));
  return out;
}

absl::StatusOr<std::vector<int64_t>> DevicesOfMesh(const Artifact& artifact) {
  return CatchStatusOr([&] { return Shardings(artifact).device_ids(); });
}

}  // namespace tessera::ir::stablehlo
