// The op scan: a loop of static length over slices of its operands, with carries.
//
// The region takes (consts, carries, slices) and returns (carries, slices), in this order.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "ir/derive/factors.h"
#include "ir/eval/eval.h"
#include "ir/ops/regions/region.h"
#include "ir/ops/rules/batch_dim.h"
#include "ir/strided.h"
#include "ir/transform/transform.h"
#include "ir/walk.h"

namespace tessera::ir {
namespace ops {
namespace {

// The numbers of operands and results of each kind, which come in this order.
struct Layout {
  int num_consts, num_carry, num_xs, num_ys;
  int64_t length;
  bool reverse;

  Layout(const Attrs& attrs, size_t num_operands, size_t num_results)
      : num_consts(static_cast<int>(attrs.Int("num_consts"))),
        num_carry(static_cast<int>(attrs.Int("num_carry"))),
        num_xs(static_cast<int>(num_operands) - num_consts - num_carry),
        num_ys(static_cast<int>(num_results) - num_carry),
        length(attrs.Int("length")),
        reverse(attrs.Bool("reverse")) {}
  explicit Layout(const RuleContext& c) : Layout(c.attrs, c.in_types.size(), c.out_types.size()) {}

  int carry0() const { return num_consts; }
  int xs0() const { return num_consts + num_carry; }
  bool is_const(int operand) const { return operand < carry0(); }
  bool is_carry(int operand) const { return operand >= carry0() && operand < xs0(); }
};

template <class T>
std::vector<T> Join(std::initializer_list<std::vector<T>> parts) {
  std::vector<T> out;
  for (const std::vector<T>& p : parts) out.insert(out.end(), p.begin(), p.end());
  return out;
}

std::vector<Value> EmitScan(Builder& b, FunctionRef body, Values operands, size_t num_consts,
                            size_t num_carry, int64_t length, bool reverse) {
  return Scan(b, std::move(body), operands, static_cast<int>(num_consts),
              static_cast<int>(num_carry), length, reverse);
}

// ---- Types. ----

absl::Status CheckCounts(const InferContext& c) {
  const int64_t n = c.attrs.Int("num_consts"), m = c.attrs.Int("num_carry");
  const auto operands = static_cast<int64_t>(c.in.size());
  const auto results = static_cast<int64_t>(c.regions[0]->results.size());
  if (n < 0 || m < 0 || n > operands || m > operands - n)
    return ValueError(c, "num_consts=", n, " and num_carry=", m, " do not fit ", operands,
                      " operands");
  if (results < m)
    return ValueError(c, "the body returns ", results, " values; expected at least the ", m,
                      " carries");
  if (c.attrs.Int("length") < 0)
    return ValueError(c, "length is ", c.attrs.Int("length"), "; expected a non-negative number");
  return absl::OkStatus();
}

// Checks the layout first, because the loops over operands and carries below rely on it. The body's
// own result types become the types of the carries, and its slices get the scanned dim in front.
absl::StatusOr<std::vector<Type>> InferScan(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckRegion(c, 0, c.scope, c.in.size()));
  TESSERA_RETURN_IF_ERROR(CheckCounts(c));
  const Function& body = *c.regions[0];
  const Layout l(c.attrs, c.in.size(), body.results.size());
  const std::vector<Type> results = body.result_types();
  for (int i = 0; i < l.xs0(); ++i)
    if (!EqualButWeak(c.in[i], body.types[i]))
      return TypeError(c, l.is_const(i) ? "constant " : "initial carry ",
                       l.is_const(i) ? i : i - l.carry0(), " has type ", c.in[i].ToString(),
                       "; the body takes ", body.types[i].ToString());
  for (int k = 0; k < l.num_carry; ++k)
    if (!EqualButWeak(body.types[l.carry0() + k], results[k]))
      return CarryMismatchError("scan", k, body.types[l.carry0() + k], results[k]);
  for (int i = l.xs0(); i < static_cast<int>(c.in.size()); ++i) {
    const Type& x = c.in[i];
    if (x.rank() == 0 || x.shape[0] != l.length)
      return ValueError(c, "scanned operand ", i - l.xs0(), " has type ", x.ToString(),
                        "; expected a leading axis of the length ", l.length);
    if (!x.axes_of(0).empty())
      return ValueError(c, "0th dimension of all xs should be replicated. Got ", x.ToString(),
                        " for scanned operand ", i - l.xs0(), "; reshard it");
    if (!EqualButWeak(walk::DropDim(x, 0), body.types[i]))
      return TypeError(c, "a slice of scanned operand ", i - l.xs0(), " has type ",
                       walk::DropDim(x, 0).ToString(), "; the body takes ",
                       body.types[i].ToString());
  }
  std::vector<Type> out = Part(results, 0, l.num_carry);
  for (int k = 0; k < l.num_ys; ++k)
    out.push_back(walk::InsertDim(results[l.num_carry + k], 0, l.length));
  return out;
}

// A carry shares its factors between operand and result. The scanned dim needs replication.
Signature ScanFactors(const InferContext& c, absl::Span<const Type> out) {
  const Layout l(c.attrs, c.in.size(), out.size());
  Signature s;
  auto fresh = [&](const Type& t, bool scanned) {
    TensorFactors dims = AddFactors(&s, t, FactorKind::kPassThrough);
    if (scanned) s.factors[dims[0][0]].kind = FactorKind::kReplicated;
    return dims;
  };
  for (int i = 0; i < static_cast<int>(c.in.size()); ++i)
    s.operands.push_back(fresh(c.in[i], /*scanned=*/i >= l.xs0()));
  for (int r = 0; r < static_cast<int>(out.size()); ++r)
    s.results.push_back(r < l.num_carry ? s.operands[l.carry0() + r]
                                        : fresh(out[r], /*scanned=*/true));
  return s;
}

Cost ScanCost(const InferContext& c, absl::Span<const Type>) {
  Cost cost = TotalCost(*c.regions[0]);
  const auto n = static_cast<double>(c.attrs.Int("length"));
  return {cost.flops * n, cost.bytes * n};
}

// ---- Forward differentiation. ----

// A list of `num_primals` primals, followed by a tangent for each primal that is marked in
// `active`. In() returns the indices of the tangents that belong to the primals [begin, begin +
// count).
struct TangentPositions {
  const std::vector<bool>& active;
  int num_primals;
  std::vector<int> In(int begin, int count) const {
    std::vector<int> out;
    int next = num_primals;
    for (int i = 0; i < static_cast<int>(active.size()); ++i) {
      if (!active[i]) continue;
      if (i >= begin && i < begin + count) out.push_back(next);
      ++next;
    }
    return out;
  }
};
std::vector<int> Range(int begin, int count) {
  std::vector<int> out = walk::Iota(count);
  for (int& i : out) i += begin;
  return out;
}

// Differentiates the body and emits one loop that computes primals and tangents together. Jvp puts
// all tangents behind all primals, but a scan needs constants, carries and slices in this order, so
// params and results are reordered. A carry whose initial value has no tangent starts with zeros if
// an iteration gives it one.
std::vector<Value> ScanJvp(const RuleContext& c, Values tangents) {
  const Layout l(c);
  const Function& body = *c.regions[0];
  std::vector<bool> active = AreValid(tangents);
  const JvpResult jvp = JvpOfBody(body, l.carry0(), l.num_carry, &active);

  const TangentPositions in{active, body.num_params};
  const TangentPositions out{jvp.out_active, static_cast<int>(body.results.size())};
  const std::vector<int> params =
      Join({Range(0, l.num_consts), in.In(0, l.num_consts), Range(l.carry0(), l.num_carry),
            in.In(l.carry0(), l.num_carry), Range(l.xs0(), l.num_xs), in.In(l.xs0(), l.num_xs)});
  const std::vector<int> results =
      Join({Range(0, l.num_carry), out.In(0, l.num_carry), Range(l.num_carry, l.num_ys),
            out.In(l.num_carry, l.num_ys)});
  // `natural` has the operands in the order of Jvp: all primals, then the tangents. ElementsAt puts
  // them in the order of `params`.
  std::vector<Value> natural = c.in;
  for (int i = 0; i < body.num_params; ++i)
    if (active[i]) natural.push_back(tangents[i] ? tangents[i] : Zeros(c.b, c.in[i].type()));
  const std::vector<Value> got =
      EmitScan(c.b, walk::Reorder(*jvp.fn, params, results), ElementsAt(natural, params),
               l.num_consts + in.In(0, l.num_consts).size(),
               l.num_carry + in.In(l.carry0(), l.num_carry).size(), l.length, l.reverse);

  std::vector<Value> flat(results.size());
  for (size_t k = 0; k < results.size(); ++k) flat[results[k]] = got[k];
  return SpreadTangents(std::move(flat), jvp.out_active);
}

// ---- Partial evaluation. ----

// The residuals, which the known loop passes to the unknown loop. The unknown loop takes
// loop-invariant residuals as constants, and scans the others.
struct LoopResiduals {
  std::vector<bool> invariant;  // one entry per residual
  std::vector<Value> values;    // values outside the loop, on the known side
};

// The results of the known loop's body: its own results, then the residuals that the loop has to
// stack.
struct LoopResults {
  std::vector<int> results;  // indices into the body's results
  // The position of each residual among the results. It is -1 if the residual is a slice of an
  // operand.
  std::vector<int> position;
};
LoopResults ChooseLoopResults(const DedupedResiduals& deduped, int num_out, int num_carry,
                              int xs0) {
  LoopResults out{walk::Iota(num_out), std::vector<int>(deduped.sources.size(), -1)};
  for (size_t k = 0; k < deduped.sources.size(); ++k) {
    const DedupedResiduals::Source& s = deduped.sources[k];
    if (s.is_param && s.index >= xs0) continue;
    // The loop returns only the last value of a carry, so that the history of the carry is a
    // residual of its own.
    if (!s.is_param && s.index >= num_carry && s.index < num_out) {
      out.position[k] = s.index;
      continue;
    }
    out.position[k] = static_cast<int>(out.results.size());
    out.results.push_back(num_out + static_cast<int>(k));
  }
  return out;
}

// Emits the known loop, sets the known results, and returns the residuals of the loop. Ops of the
// body that depend on constants alone are computed before the loop, so that their results are not
// stacked once per iteration.
LoopResiduals EmitKnownLoop(PartialEvalContext& c, const Layout& l, const BodySplit& split) {
  const Function& known = *split.pe.known;
  const int num_out = static_cast<int>(known.results.size()) - split.pe.num_residuals;
  const std::vector<int> known_params = walk::Where(split.known);
  const auto count = [&](int begin, int n) {
    return static_cast<int>(
        std::count(split.known.begin() + begin, split.known.begin() + begin + n, true));
  };
  const int num_consts = count(0, l.num_consts), num_carry = count(l.carry0(), l.num_carry);

  // Hoist the ops that depend only on constants, except for those with effects. A loop inside the
  // body has already hoisted its own.
  std::vector<bool> is_const(known.num_params, false), in_loop(known.results.size(), false);
  std::fill_n(is_const.begin(), num_consts, true);
  std::fill_n(in_loop.begin(), num_out, true);
  const PartialEvalResult hoist = ValueOrThrow(
      PartialEval(known, is_const, in_loop, {.split_loops = false, .hold_effects = true}));
  const std::vector<Value> operands = ElementsAt(c.known_in, known_params);
  const std::vector<Value> hoisted = Inline(c.known_b, *hoist.known, Part(operands, 0, num_consts));
  const auto num_hoisted_out = static_cast<int>(hoisted.size()) - hoist.num_residuals;

  LoopResiduals out;
  out.invariant = Part(hoist.out_known, num_out, split.pe.num_residuals);
  const std::vector<Value> invariants = Part(hoisted, 0, num_hoisted_out);

  const DedupedResiduals deduped = DedupeResiduals(*hoist.unknown, num_out);
  const auto [results, position] =
      ChooseLoopResults(deduped, num_out, num_carry, hoist.num_residuals + num_carry);
  const FunctionRef body =
      walk::Reorder(*hoist.unknown, walk::Iota(hoist.unknown->num_params), results);
  const std::vector<Value> loop_operands =
      Join({Part(hoisted, num_hoisted_out, hoist.num_residuals),
            Part(operands, num_consts, static_cast<int>(operands.size()) - num_consts)});
  std::vector<Value> got;
  if (!results.empty() || body->has_effects)
    got = EmitScan(c.known_b, body, loop_operands, hoist.num_residuals, num_carry, l.length,
                   l.reverse);

  int next = 0;
  for (size_t r = 0; r < split.pe.out_known.size(); ++r)
    if (split.pe.out_known[r]) c.known_out[r] = got[next++];
  size_t next_invariant = 0, next_stacked = 0;
  for (bool invariant : out.invariant) {
    if (invariant) {
      out.values.push_back(invariants[next_invariant++]);
      continue;
    }
    const size_t k = next_stacked++;
    out.values.push_back(position[k] < 0 ? loop_operands[deduped.sources[k].index]
                                         : got[position[k]]);
  }
  return out;
}

// Splits the body, emits the known loop, and then the unknown loop, which reads the residuals of
// each iteration. Residuals that no iteration changes become constants of the unknown loop. All
// others are stacked over the iterations by the known loop and scanned by the unknown one.
void ScanPartialEval(PartialEvalContext& c) {
  const Layout l(c.op.attrs, c.in_types.size(), c.out_types.size());
  const BodySplit split = SplitBody(*c.op.regions[0], l.carry0(), l.num_carry, c.known, c.options);
  const LoopResiduals residuals = EmitKnownLoop(c, l, split);
  if (split.pe.unknown->results.empty() && !split.pe.unknown->has_effects) return;

  // The params of the unknown body are its residuals, then the unknown params. The loop needs
  // constants, carries and slices in this order.
  const int num_residuals = split.pe.num_residuals;
  std::vector<int> consts, carries, slices;
  std::vector<Value> const_args, carry_args, slice_args;
  for (int k = 0; k < num_residuals; ++k) {
    (residuals.invariant[k] ? consts : slices).push_back(k);
    (residuals.invariant[k] ? const_args : slice_args).push_back(c.residual(residuals.values[k]));
  }
  int next = num_residuals;
  for (int i : walk::Where(split.known, false)) {
    (l.is_const(i) ? consts : l.is_carry(i) ? carries : slices).push_back(next++);
    (l.is_const(i)   ? const_args
     : l.is_carry(i) ? carry_args
                     : slice_args)
        .push_back(c.unknown_in(i));
  }
  const FunctionRef body =
      walk::Reorder(*split.pe.unknown, Join({consts, carries, slices}),
                    walk::Iota(static_cast<int>(split.pe.unknown->results.size())));
  const std::vector<Value> got =
      EmitScan(c.unknown_b, body, Join({const_args, carry_args, slice_args}), consts.size(),
               carries.size(), l.length, l.reverse);
  const std::vector<int> unknown_out = walk::Where(split.pe.out_known, false);
  for (size_t k = 0; k < unknown_out.size(); ++k) c.unknown_out[unknown_out[k]] = got[k];
}

// ---- Transpose: the loop backwards. ----

// Returns the body of the backward loop. The constants of that body are the constants that are not
// linear. The carries are the sums, so far, of the cotangents of the linear constants, and the
// cotangents of the carries. The slices are the slices that are not linear, and the cotangents of
// the result slices.
FunctionRef BackwardBody(const Function& body, const std::vector<bool>& linear, const Layout& l) {
  const FunctionRef step = ValueOrThrow(TransposeFunction(body, linear));
  const std::vector<int> others = walk::Where(linear, false);
  const int num_other_consts =
      static_cast<int>(std::count(linear.begin(), linear.begin() + l.num_consts, false));
  const int num_linear_consts = l.num_consts - num_other_consts;
  const int num_others = static_cast<int>(others.size());

  Builder b(body.scope, body.name);
  auto add = [&](const Function& f, int begin, int count, std::vector<Value>* out) {
    for (int i = begin; i < begin + count; ++i) out->push_back(b.Param(f.types[i]));
  };
  const std::vector<Type> step_out = step->result_types();
  std::vector<Value> other_consts, sums, carry_ct, other_xs, ys_ct;
  add(*step, 0, num_other_consts, &other_consts);
  for (int k = 0; k < num_linear_consts; ++k) sums.push_back(b.Param(step_out[k]));
  add(*step, num_others, l.num_carry, &carry_ct);
  add(*step, num_other_consts, num_others - num_other_consts, &other_xs);
  add(*step, num_others + l.num_carry, static_cast<int>(body.results.size()) - l.num_carry, &ys_ct);
  std::vector<Value> out = Inline(b, *step, Join({other_consts, other_xs, carry_ct, ys_ct}));
  for (int k = 0; k < num_linear_consts; ++k) out[k] = Add(sums[k], out[k]);
  return b.Build(out);
}

// Emits a loop that runs backwards over the slices. Cotangents of the carries are carried from
// iteration to iteration. Cotangents of constants are summed up in further carries. The cotangent
// of a slice is a result of the iteration whose forward step read the slice.
std::vector<Value> ScanTranspose(const RuleContext& c, Values cts,
                                 const std::vector<bool>& linear_in) {
  const Layout l(c);
  // Every carry is treated as linear. A carry that starts from a constant, such as zero, still
  // passes cotangents to earlier iterations.
  std::vector<bool> linear = linear_in;
  std::fill_n(linear.begin() + l.carry0(), l.num_carry, true);
  // Unused result slices have no cotangent.
  std::vector<bool> wanted = AreValid(cts);
  std::fill_n(wanted.begin(), l.num_carry, true);
  const FunctionRef needed =
      walk::Reorder(*c.regions[0], walk::Iota(c.regions[0]->num_params), walk::Where(wanted));
  const FunctionRef body = BackwardBody(*needed, linear, l);

  std::vector<Value> consts, carries, slices;
  for (int i = 0; i < l.num_consts; ++i)
    if (!linear[i]) consts.push_back(c.in[i]);
  for (int i = 0; i < l.num_consts; ++i)
    if (linear[i]) carries.push_back(Zeros(c.b, CotangentType(c.in_types[i])));
  const size_t num_sums = carries.size();
  for (int k = 0; k < l.num_carry; ++k)
    carries.push_back(cts[k] ? cts[k] : Zeros(c.b, CotangentType(c.out_types[k])));
  for (int i = l.xs0(); i < static_cast<int>(linear.size()); ++i)
    if (!linear[i]) slices.push_back(c.in[i]);
  for (int k = l.num_carry; k < static_cast<int>(cts.size()); ++k)
    if (cts[k]) slices.push_back(cts[k]);
  const std::vector<Value> got = EmitScan(c.b, body, Join({consts, carries, slices}), consts.size(),
                                          carries.size(), l.length, !l.reverse);
  TESSERA_CHECK_EQ(num_sums + l.num_carry,
                   static_cast<size_t>(std::count(linear.begin(), linear.begin() + l.xs0(), true)));
  return ScatterByMask(got, linear);
}

// ---- Batching. ----

// Batches the body until the set of batched carries no longer grows, because a carry must have the
// same type before and after an iteration. Batched carries have the batch dim in front. Scanned
// operands keep the scanned dim in front of it.
Batched ScanBatch(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  const Layout l(c);
  const Function& body = *c.regions[0];
  std::vector<Value> operands = c.in;
  std::vector<int> body_dims(dims.begin(), dims.end());
  for (int i = l.xs0(); i < static_cast<int>(operands.size()); ++i) {
    if (dims[i] < 0) continue;
    if (dims[i] == 0) operands[i] = MoveDim(operands[i], 0, 1);
    body_dims[i] = dims[i] == 0 ? 0 : dims[i] - 1;
  }
  for (int k = l.carry0(); k < l.xs0(); ++k)
    if (dims[k] >= 0) body_dims[k] = 0;
  // A carry is batched if any iteration makes it batched.
  std::vector<int> force(body.results.size(), -2);
  BatchResult batched;
  for (bool grew = true; grew;) {
    for (int k = 0; k < l.num_carry; ++k) force[k] = body_dims[l.carry0() + k] >= 0 ? 0 : -2;
    batched = ValueOrThrow(Batch(body, body_dims, c.batch, force));
    grew = false;
    for (int k = 0; k < l.num_carry; ++k)
      if (batched.out_dims[k] >= 0 && body_dims[l.carry0() + k] < 0) {
        body_dims[l.carry0() + k] = 0;
        grew = true;
      }
  }
  for (int i = l.carry0(); i < l.xs0(); ++i) {
    if (body_dims[i] < 0) continue;
    if (dims[i] < 0)
      operands[i] = walk::WithBatchDim(c.batch, operands[i], 0);
    else if (dims[i] > 0)
      operands[i] = MoveDim(operands[i], dims[i], 0);
  }
  std::vector<int> out_dims = batched.out_dims;
  for (int r = l.num_carry; r < static_cast<int>(out_dims.size()); ++r)
    if (out_dims[r] >= 0) ++out_dims[r];
  return {c.b.Emit(c.def, operands, c.attrs, {batched.fn}), out_dims};
}

// ---- Reference semantics. ----

Array Row(const Array& x, int64_t i) {
  Dims starts(x.rank(), 0), shape = x.shape();
  starts[0] = i;
  shape[0] = 1;
  Array row = SliceBlock(x, starts, shape);
  return row.Reshaped(Dims(shape.begin() + 1, shape.end()));
}

void WriteRow(Array* y, int64_t i, const Array& row) {
  Dims starts(y->rank(), 0), shape = row.shape();
  starts[0] = i;
  shape.insert(shape.begin(), 1);
  WriteBlock(y, starts, row.Reshaped(shape));
}

// Runs the iterations one after the other on all shards at once, so that collectives in the body
// see every shard. Result slices are written into arrays that are allocated before the loop.
absl::StatusOr<std::vector<Shards>> EvalScan(const EvalContext& c, absl::Span<const Shards> in) {
  const Layout l(c.attrs, in.size(), c.out_types.size());
  const size_t shards = c.evaluator.shard_devices().size();
  std::vector<Shards> carry(in.begin() + l.carry0(), in.begin() + l.xs0()), ys;
  for (int k = 0; k < l.num_ys; ++k) {
    const Type& t = c.out_types[l.num_carry + k];
    // There is one array per shard, which is written in place.
    Shards shard_arrays;
    for (size_t shard = 0; shard < shards; ++shard) shard_arrays.emplace_back(t.dtype, t.shape);
    ys.push_back(std::move(shard_arrays));
  }
  for (int64_t step = 0; step < l.length; ++step) {
    const int64_t i = l.reverse ? l.length - 1 - step : step;
    std::vector<Shards> args(in.begin(), in.begin() + l.num_consts);
    for (Shards& x : carry) args.push_back(std::move(x));
    for (int k = l.xs0(); k < static_cast<int>(in.size()); ++k) {
      Shards rows;
      for (const Array& x : in[k]) rows.push_back(Row(x, i));
      args.push_back(std::move(rows));
    }
    TESSERA_ASSIGN_OR_RETURN(std::vector<Shards> out,
                             c.evaluator.RunShards(*c.regions[0], std::move(args)));
    for (int k = 0; k < l.num_carry; ++k) carry[k] = std::move(out[k]);
    for (int k = 0; k < l.num_ys; ++k)
      for (size_t shard = 0; shard < shards; ++shard)
        WriteRow(&ys[k][shard], i, out[l.num_carry + k][shard]);
  }
  return Join({carry, ys});
}

// Constants and carries have the same shape inside the body. xs and ys lose their leading dim
// there.
DataFlow ScanDataFlow(const InferContext& c) {
  const int consts = static_cast<int>(c.attrs.Int("num_consts"));
  const int carry = static_cast<int>(c.attrs.Int("num_carry"));
  RegionDataFlow body = EdgesOf(*c.regions[0], 0);
  for (DataFlowEdge& e : body.operands) e.leading_dim = e.inner >= consts + carry;
  for (DataFlowEdge& e : body.results) e.leading_dim = e.inner >= carry;
  for (int i = 0; i < carry; ++i) body.carries.push_back({consts + i, i});
  DataFlow flow;
  flow.regions = {std::move(body)};
  flow.trip_count = c.attrs.Int("length");
  flow.reverse = c.attrs.Bool("reverse");
  return flow;
}

Attrs KeepScan(const Attrs& attrs, const std::vector<bool>& operands, const std::vector<bool>&) {
  const auto consts = attrs.Int("num_consts"), carry = attrs.Int("num_carry");
  const auto kept = [&](int64_t begin, int64_t count) {
    return std::count(operands.begin() + begin, operands.begin() + begin + count, true);
  };
  Attrs out = attrs;
  out.Set("num_consts", int64_t{kept(0, consts)});
  out.Set("num_carry", int64_t{kept(consts, carry)});
  return out;
}

AddedConstant AddScanConstant(const Attrs& attrs, size_t) {
  const auto consts = static_cast<int>(attrs.Int("num_consts"));
  Attrs out = attrs;
  out.Set("num_consts", int64_t{consts + 1});
  return {std::move(out), consts, consts};
}

// New values are carries, behind the carries that the loop has.
AddedValues AddScanValues(const InferContext& c, int num_operands, int num_results) {
  TESSERA_CHECK_EQ(num_operands, num_results) << "a carry is an operand and a result";
  const Layout l(c.attrs, c.in.size(), c.regions[0]->results.size());
  Attrs attrs = c.attrs;
  attrs.Set("num_carry", int64_t{l.num_carry + num_operands});
  return {std::move(attrs), l.num_xs, l.num_ys};
}

constexpr AttrSpec kScanAttrs[] = {{"num_consts", AttrKind::kInt},
                                   {"num_carry", AttrKind::kInt},
                                   {"length", AttrKind::kInt},
                                   {"reverse", AttrKind::kBool}};

}  // namespace

const OpDef kScan = Checked({.name = "scan",
                             .lax_name = "scan",
                             .family = Family::kControlFlow,
                             .num_operands = kAnyNumber,
                             .regions = kOneBody,
                             .attrs = kScanAttrs,
                             .lowering = Lowering::kRegion,
                             .infer = InferScan,
                             .factors = ScanFactors,
                             .sharding = KeepInferredTypes,
                             .varying = KeepInferredTypes,
                             .jvp = ScanJvp,
                             .jvp_emits_primals = true,
                             .transpose = ScanTranspose,
                             .batch = ScanBatch,
                             .partition = Refused{"the planner enters regions itself"},
                             .partial_eval = ScanPartialEval,
                             .data_flow = ScanDataFlow,
                             .keep = KeepScan,
                             .add_constant = AddScanConstant,
                             .add_values = AddScanValues,
                             .cost = ScanCost,
                             .eval_shards = EvalScan});

}  // namespace ops

std::vector<Value> Scan(Builder& b, FunctionRef f, Values operands, int num_consts, int num_carry,
                        int64_t length, bool reverse) {
  return b.Emit(ops::kScan, operands,
                {{"num_consts", int64_t{num_consts}},
                 {"num_carry", int64_t{num_carry}},
                 {"length", length},
                 {"reverse", reverse}},
                {std::move(f)});
}

}  // namespace tessera::ir
