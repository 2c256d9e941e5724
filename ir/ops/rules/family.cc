// Typing rules, factor signatures and checks that the ops of many families share. Op tables name
// them as rules; the inference of an op and the planner then call them.
#include "ir/ops/rules/family.h"

namespace tessera::ir::ops {

absl::Status CheckComputable(const InferContext& c, DType dtype) {
  if (IsComputable(dtype)) return absl::OkStatus();
  return MakeError(
      ErrorKind::kNotImplemented,
      absl::StrCat(
          ToAbsl(c.def.lax_name), ": no kernels for dtype ", ToAbsl(DTypeName(dtype)),
          ", which is stored, moved and converted only; convert it to bool, an integer of 8 to "
          "64 bits, f16, bf16, f32 or f64"));
}

TensorFactors AddFactors(Signature* s, const Type& t, FactorKind kind) {
  TensorFactors dims;
  for (int64_t size : t.shape) dims.push_back({s->Add(kind, size)});
  return dims;
}

Signature PointwiseFactors(const InferContext& c, absl::Span<const Type> out) {
  Signature s;
  const int rank = out[0].rank();
  TensorFactors dims;
  for (int d = 0; d < rank; ++d) {
    s.factors.push_back({FactorKind::kPassThrough, out[0].shape[d]});
    dims.push_back({d});
  }
  for (const Type& t : c.in) s.operands.push_back(t.rank() == rank ? dims : TensorFactors{});
  s.results.assign(out.size(), dims);
  return s;
}

Signature ReplicatedFactors(const InferContext& c, absl::Span<const Type> out) {
  Signature s;
  for (const Type& t : c.in) s.operands.push_back(AddFactors(&s, t, FactorKind::kReplicated));
  for (const Type& t : out) s.results.push_back(AddFactors(&s, t, FactorKind::kReplicated));
  return s;
}

absl::Status SameVmaAsFirst(const InferContext& c, std::vector<Type>* out) {
  for (Type& t : *out) {
    t.varying = c.in[0].varying;
    t.unreduced = c.in[0].unreduced;
    t.reduced = c.in[0].reduced;
  }
  return absl::OkStatus();
}

absl::Status KeepInferredTypes(const InferContext&, std::vector<Type>*) { return absl::OkStatus(); }
Cost NoCost(const InferContext&, absl::Span<const Type>) { return {}; }

}  // namespace tessera::ir::ops
