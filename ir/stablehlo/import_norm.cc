// Imports batch normalization: batch_norm_training, batch_norm_inference, batch_norm_grad.
//
// Numbers of fewer than 32 bits are computed with as f32, and rounded once at the end.
#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "ir/ops.h"
#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {
namespace {

using Results = std::vector<Value>;

class BatchNorm {
 public:
  // Checks the operands. The `num_features` operands after the first have one number for each
  // feature.
  BatchNorm(const OpReader& op, size_t num_operands, size_t num_features) : op_(op) {
    if (op.in.size() != num_operands)
      op.Malformed(absl::StrCat("has ", op.in.size(), " operands; expected ", num_operands));
    const Value x = op.in[0];
    const int64_t feature = op.Int("feature_index");
    if (feature < 0 || feature >= x.rank())
      op.Malformed(absl::StrCat("has the features along dim ", feature, " of ", x.rank()));
    feature_ = feature;
    for (size_t i = 1; i < num_operands; ++i) {
      const Type expected =
          i <= num_features ? MakeType(x.dtype(), {x.dim(static_cast<int>(feature))}) : x.type();
      if (!SameShapeAndDType(op.in[i].type(), expected))
        op.Malformed(absl::StrCat("has an operand ", i, " ", op.in[i].type().ToString(),
                                  "; expected ", expected.ToString()));
    }
    if (!IsFloat(x.dtype()) || !IsComputable(x.dtype()))
      op.NotSupported(
          absl::StrCat("is of ", x.type().ToString(), "; expected f16, bf16, f32, f64"));
    count_ = 1;
    for (int d = 0; d < x.rank(); ++d) {
      if (d == feature_) continue;
      reduced_dims_.push_back(d);
      count_ *= x.dim(d);
    }
  }

  // Returns operand `i` in the dtype that it is computed in.
  Value Operand(size_t i) const {
    const Value x = op_.in[i];
    return BitWidth(x.dtype()) < 32 ? Convert(x, DType::kF32) : x;
  }
  Value ToResult(Value x) const { return Convert(x, op_.in[0].dtype()); }
  // Returns an array in which all elements of a feature have its number.
  Value Spread(Value of_features) const {
    return BroadcastInDim(of_features, op_.in[0].shape(), {feature_});
  }
  Value Sum(Value x) const { return ReduceSum(x, reduced_dims_); }
  Value Mean(Value x) const {
    const Value sum = Sum(x);
    return Div(sum, FullLike(sum, static_cast<double>(count_)));
  }
  Value TimesCount(Value x) const { return Mul(x, FullLike(x, static_cast<double>(count_))); }
  // Returns the variance plus epsilon.
  Value PlusEpsilon(Value variance) const {
    const Artifact& a = op_.artifact();
    const Attr& attr = AttrOf(a, op_.Find("epsilon"), AttrKind::kFloat, op_.Name("epsilon"));
    const DecodedType& type = a.types[a.refs[attr.refs.begin]];
    if (type.kind != TypeKind::kScalar || type.dtype != DType::kF32)
      op_.Malformed("has an epsilon that is not of f32");
    const auto bits = static_cast<uint32_t>(a.ints[attr.ints.begin]);
    return Add(variance, FullLike(variance, std::bit_cast<float>(bits)));
  }
  // Returns (x - mean) / deviation * scale + offset.
  Value Normalized(Value centered, Value plus_epsilon, Value scale, Value offset) const {
    const Value normalized = Div(centered, Spread(Sqrt(plus_epsilon)));
    const Value scaled = Mul(normalized, Spread(scale));
    return Add(scaled, Spread(offset));
  }

 private:
  const OpReader& op_;
  int64_t feature_ = 0, count_ = 1;
  std::vector<int64_t> reduced_dims_;  // all dims except that of the features
};

Results ImportTraining(const OpReader& op) {
  const BatchNorm n(op, 3, 2);
  const Value x = n.Operand(0);
  const Value mean = n.Mean(x);
  const Value centered = Sub(x, n.Spread(mean));
  const Value variance = n.Mean(Mul(centered, centered));
  const Value plus_epsilon = n.PlusEpsilon(variance);
  const Value scale = n.Operand(1), offset = n.Operand(2);
  const Value out = n.ToResult(n.Normalized(centered, plus_epsilon, scale, offset));
  const Value out_mean = n.ToResult(mean), out_variance = n.ToResult(variance);
  return {out, out_mean, out_variance};
}

Results ImportInference(const OpReader& op) {
  const BatchNorm n(op, 5, 4);
  const Value x = n.Operand(0), scale = n.Operand(1), offset = n.Operand(2), mean = n.Operand(3),
              variance = n.Operand(4);
  const Value centered = Sub(x, n.Spread(mean));
  return {n.ToResult(n.Normalized(centered, n.PlusEpsilon(variance), scale, offset))};
}

// The operands are the operand of the forward op, scale, mean, variance, and the gradient of the
// result.
Results ImportGrad(const OpReader& op) {
  const BatchNorm n(op, 5, 3);
  const Value x = n.Operand(0), scale = n.Operand(1), mean = n.Operand(2), variance = n.Operand(3),
              grad = n.Operand(4);
  const Value centered = Sub(x, n.Spread(mean));
  const Value plus_epsilon = n.PlusEpsilon(variance);
  const Value deviation = Sqrt(plus_epsilon);
  const Value grad_offset = n.Sum(grad);
  const Value along = n.Sum(Mul(grad, centered));
  const Value grad_scale = Div(along, deviation);
  // Subtract the parts that the mean and the variance take of the gradient.
  const Value times_count = n.TimesCount(grad);
  const Value of_mean = n.Spread(grad_offset);
  const Value of_variance = Mul(centered, n.Spread(Div(along, plus_epsilon)));
  const Value left = Sub(Sub(times_count, of_mean), of_variance);
  const Value factor = Div(scale, n.TimesCount(deviation));
  const Value grad_x = n.ToResult(Mul(n.Spread(factor), left));
  const Value out_scale = n.ToResult(grad_scale), out_offset = n.ToResult(grad_offset);
  return {grad_x, out_scale, out_offset};
}

constexpr ImportRow kRows[] = {
    {"batch_norm_grad", ImportGrad},
    {"batch_norm_inference", ImportInference},
    {"batch_norm_training", ImportTraining},
};

}  // namespace

const ImportRow* FindBatchNorm(std::string_view name) {
  const auto* const row = std::find_if(std::begin(kRows), std::end(kRows),
                                       [&](const ImportRow& r) { return r.name == name; });
  return row != std::end(kRows) ? row : nullptr;
}

}  // namespace tessera::ir::stablehlo
