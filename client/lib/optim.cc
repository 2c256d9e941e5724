// The part of optim.h that is no template. The formulas are those of Optax 0.2.8. init and update
// of a chain run all its rules in one program, on flat lists of leaves.
#include "client/optim.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/lax.h"
#include "client/nn.h"
#include "client/numpy.h"
#include "client/numpy/reductions.h"

namespace tessera::optim {
namespace {

using tessera::internal::InProgram;
using tessera::internal::IsTracing;
using tessera::internal::ThrowError;

// ---- States. ------------------------------------------------------------------------------------

// Calls `f` for each moment (mu, nu) that the rule has. Passes its name, its part of `state`, its
// initial value and its dtype.
template <class State, class F>
void ForEachMoment(const Rule& rule, State& state, const F& f) {
  if (rule.mu) f("mu", state.mu, *rule.mu, rule.mu_dtype);
  if (rule.nu) f("nu", state.nu, *rule.nu, std::optional<DType>());
}

// Returns the sharding of a concrete array. Returns nullopt while tracing, and for an array without
// a mesh.
std::optional<PartitionSpec> SpecOf(const Array& x) {
  if (IsTracing() || !x.is_concrete() || x.placement().mesh.empty()) return std::nullopt;
  return x.sharding();
}

void CheckTree(const TreeNode& want, const Flat& got, std::string_view what, const Site& site) {
  tessera::internal::CheckSameStructure(
      want, got.tree, what, ErrorKind::kValueError,
      "optim: " + std::string(what) + " and the gradients are trees of different structure: ",
      site);
}
void CheckShapes(const Flat& grads, const std::vector<Array>& got, std::string_view what,
                 const Site& site) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].shape() == grads.leaves[i].shape()) continue;
    ThrowError(ErrorKind::kValueError, site, "optim: ", LeafPaths(grads.tree, what)[i], " is ",
               got[i].type().ToString(), ", its gradient is ", grads.leaves[i].type().ToString(),
               "; equal shapes are expected");
  }
}
void CheckState(const std::vector<Rule>& rules, const Flat& grads,
                const std::vector<internal::FlatState>& state, const Site& site) {
  if (rules.size() != state.size()) {
    ThrowError(ErrorKind::kValueError, site, "optim: a state of ", state.size(),
               " transformations is given to a chain of ", rules.size(),
               "; give the state that init or the last update of this chain returned");
  }
  for (size_t i = 0; i < rules.size(); ++i) {
    const internal::FlatState& s = state[i];
    if (rules[i].counts != s.count.has_value() || rules[i].mu.has_value() != s.mu.has_value() ||
        rules[i].nu.has_value() != s.nu.has_value()) {
      ThrowError(ErrorKind::kValueError, site, "optim: state[", i, "] does not belong to ",
                 rules[i].name,
                 "; give the state that init or the last update of this chain "
                 "returned");
    }
    const auto check = [&](const char* name, const std::optional<Flat>& moment, double,
                           std::optional<DType>) {
      const std::string what = "state[" + std::to_string(i) + "]." + name;
      CheckTree(grads.tree, *moment, what, site);
      CheckShapes(grads, moment->leaves, what, site);
    };
    ForEachMoment(rules[i], s, check);
  }
}

std::vector<Array> AllLeaves(const Flat& updates, const std::vector<internal::FlatState>& state,
                             const Flat* params) {
  std::vector<Array> all = updates.leaves;
  const auto add = [&](const std::vector<Array>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const internal::FlatState& s : state) {
    if (s.count) all.push_back(*s.count);
    if (s.mu) add(s.mu->leaves);
    if (s.nu) add(s.nu->leaves);
  }
  if (params) add(params->leaves);
  return all;
}
// Replaces the leaves by the arrays of `all`, in the same order.
void SetLeaves(const std::vector<Array>& all, Flat* updates,
               std::vector<internal::FlatState>* state) {
  auto next = all.begin();
  const auto take = [&](std::vector<Array>& leaves) {
    for (Array& a : leaves) a = *next++;
  };
  take(updates->leaves);
  for (internal::FlatState& s : *state) {
    if (s.count) s.count = *next++;
    if (s.mu) take(s.mu->leaves);
    if (s.nu) take(s.nu->leaves);
  }
}

// Splits a flattened OptState into its parts.
std::vector<internal::FlatState> StatesOf(const Flat& flat, const std::vector<Rule>& rules,
                                          const Flat& updates) {
  const auto is_none = [](const TreeNode& n) {
    return n.kind == TreeNode::kNode && n.text == "none" && n.children.empty();
  };
  // If the tree of parameters is itself an empty optional, a moment that the rule has looks like
  // one that it does not have.
  const bool ambiguous = is_none(updates.tree);
  auto next = flat.leaves.begin();
  const auto take = [&](const TreeNode& tree, bool expected) -> std::optional<Flat> {
    if (is_none(tree) && !(ambiguous && expected)) return std::nullopt;
    Flat part;
    part.tree = tree;
    part.tree.label.clear();
    part.leaves.assign(next, next + tree.num_leaves());
    next += tree.num_leaves();
    return tessera::internal::WithoutHoles(std::move(part));
  };
  std::vector<internal::FlatState> states;
  for (size_t i = 0; i < flat.tree.children.size(); ++i) {
    const std::vector<TreeNode>& parts = flat.tree.children[i].children;  // count, mu, nu
    internal::FlatState& state = states.emplace_back();
    if (!is_none(parts[0])) state.count = *next++;
    state.mu = take(parts[1], i < rules.size() && rules[i].mu);
    state.nu = take(parts[2], i < rules.size() && rules[i].nu);
  }
  return states;
}

// Applies one transformation to the updates and to its part of the state.
void ApplyRule(const Rule& rule, const Flat& grads, const std::vector<Array>& params, Flat* updates,
               internal::FlatState* state) {
  Leaves leaves{grads.tree, updates->leaves, params, state->count, {}, {}};
  if (state->mu) leaves.mu = state->mu->leaves;
  if (state->nu) leaves.nu = state->nu->leaves;
  rule.update(leaves);
  updates->leaves = std::move(leaves.updates);
  state->count = leaves.count;
  // Moments keep their dtype.
  const auto keep = [](std::optional<Flat>& kept, const std::vector<Array>& next) {
    for (size_t i = 0; i < next.size(); ++i)
      kept->leaves[i] = next[i].astype(kept->leaves[i].dtype());
  };
  if (state->mu) keep(state->mu, leaves.mu);
  if (state->nu) keep(state->nu, leaves.nu);
}

}  // namespace

namespace internal {

// Makes all moments in one program. Outside a trace each moment is constrained to the sharding of
// its parameter, which the planner could otherwise choose freely.
std::vector<FlatState> Init(const std::vector<Rule>& rules, const Flat& params, const Site& site) {
  std::vector<FlatState> state(rules.size());
  std::vector<std::optional<PartitionSpec>> specs;
  for (const Array& p : params.leaves) specs.push_back(SpecOf(p));
  const auto fill = [&](size_t i, double value, std::optional<DType> dtype) {
    const Array& p = params.leaves[i];
    const Array made = full_like(Arg(dtype ? p.astype(*dtype) : p, site), value);
    return specs[i] ? with_sharding_constraint(made, *specs[i]) : made;
  };
  Flat none;
  const auto made = InProgram("optim_init", site, params.leaves, [&] {
    for (size_t r = 0; r < rules.size(); ++r) {
      if (rules[r].counts) state[r].count = zeros({}, kS32, site);
      ForEachMoment(
          rules[r], state[r],
          [&](const char*, std::optional<Flat>& moment, double value, std::optional<DType> dtype) {
            moment = params;
            for (size_t i = 0; i < params.leaves.size(); ++i)
              moment->leaves[i] = fill(i, value, dtype);
          });
    }
    return AllLeaves(none, state, nullptr);
  });
  SetLeaves(made, &none, &state);
  return state;
}

// Checks the state against the chain, and runs all transformations as one program. The leaves are
// replaced only afterwards, because the body may be traced twice.
void Update(const std::vector<Rule>& rules, Flat* updates, Flat* flat_state, const Flat* params,
            const Site& site) {
  std::vector<FlatState> state = StatesOf(*flat_state, rules, *updates);
  CheckState(rules, *updates, state, site);
  if (params) {
    CheckTree(updates->tree, *params, "params", site);
    CheckShapes(*updates, params->leaves, "params", site);
  }
  for (const Rule& rule : rules) {
    if (!rule.needs_params || params) continue;
    ThrowError(ErrorKind::kValueError, site, "optim: ", rule.name,
               " needs the parameters; give update(grads, state, params)");
  }
  // The body may be traced a second time, with a mesh that the first trace found to be needed. So
  // the body works on copies, and each trace starts from the same values.
  const auto made = InProgram("optim_update", site, AllLeaves(*updates, state, params), [&] {
    Flat next = *updates;
    std::vector<FlatState> next_state = state;
    for (size_t r = 0; r < rules.size(); ++r)
      ApplyRule(rules[r], *updates, params ? params->leaves : std::vector<Array>{}, &next,
                &next_state[r]);
    return AllLeaves(next, next_state, nullptr);
  });
  SetLeaves(made, updates, &state);
  // In `flat_state` the holes of the moments are leaves; `made` has no entries for them.
  auto next = made.begin() + static_cast<int64_t>(updates->leaves.size());
  for (Array& leaf : flat_state->leaves)
    if (leaf.valid()) leaf = *next++;
}

}  // namespace internal

Prefix<PartitionSpec> GradientTransformation::specs(const Prefix<PartitionSpec>& params) const {
  const auto list = [](std::vector<Prefix<PartitionSpec>> children) {
    Prefix<PartitionSpec> p;
    p.kind = Prefix<PartitionSpec>::kList;
    for (Prefix<PartitionSpec>& child : children) p.children.emplace_back("", std::move(child));
    return p;
  };
  const Prefix<PartitionSpec> absent;
  std::vector<Prefix<PartitionSpec>> of_rules;
  for (const Rule& rule : rules_)
    of_rules.push_back(list({rule.counts ? Prefix<PartitionSpec>(P()) : absent,
                             rule.mu ? params : absent, rule.nu ? params : absent}));
  return list(std::move(of_rules));
}

GradientTransformation chain(const std::vector<GradientTransformation>& transformations) {
  std::vector<Rule> rules;
  for (const GradientTransformation& t : transformations)
    rules.insert(rules.end(), t.rules().begin(), t.rules().end());
  return GradientTransformation(std::move(rules));
}

// ---- Schedules. ---------------------------------------------------------------------------------

bool ScalarOrSchedule::is_zero() const {
  if (is_schedule() || value_.kind == Arg::kArray) return false;
  return value_.kind == Arg::kReal ? value_.number == 0 : value_.integer == 0;
}

namespace {

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

Array AsFloat(const Array& count) { return count.astype(kF32); }
void CheckSteps(std::string_view name, std::string_view what, int64_t steps, int64_t least) {
  if (steps >= least && steps <= kMaxCount) return;
  ThrowError(ErrorKind::kValueError, {}, "optim::", ToAbsl(name), ": ", ToAbsl(what), " is ", steps,
             "; a number from ", least, " to ", kMaxCount, " is expected");
}
// Returns count - begin. If `begin` is 0, returns the count itself.
Array StepsSince(const Array& count, int64_t begin) {
  return begin == 0 ? count : count - static_cast<int32_t>(begin);
}

}  // namespace

Schedule constant_schedule(double value) {
  return [=](const Array& count) { return full_like(AsFloat(count), value); };
}
Schedule polynomial_schedule(double init_value, double end_value, double power,
                             int64_t transition_steps, int64_t transition_begin) {
  if (transition_steps <= 0) return constant_schedule(init_value);
  CheckSteps("polynomial_schedule", "transition_steps", transition_steps, 1);
  const int64_t begin = std::clamp<int64_t>(transition_begin, 0, kMaxCount);
  return [=](const Array& count) {
    const auto steps = static_cast<double>(transition_steps);
    const Array since =
        AsFloat(clip(StepsSince(count, begin), 0, static_cast<int32_t>(transition_steps)));
    const Array remaining = 1 - since / steps;
    const Array bent = power == 1 ? remaining : tessera::power(remaining, power);
    return (init_value - end_value) * bent + end_value;
  };
}
Schedule linear_schedule(double init_value, double end_value, int64_t transition_steps,
                         int64_t transition_begin) {
  return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin);
}
Schedule exponential_decay(double init_value, int64_t transition_steps, double decay_rate,
                           int64_t transition_begin, bool staircase,
                           std::optional<double> end_value) {
  if (transition_steps <= 0 || decay_rate == 0) return constant_schedule(init_value);
  CheckSteps("exponential_decay", "transition_steps", transition_steps, 1);
  const int64_t begin = std::clamp<int64_t>(transition_begin, 0, kMaxCount);
  return [=](const Array& count) {
    const Array since = StepsSince(count, begin);
    Array exponent = AsFloat(since) / static_cast<double>(transition_steps);
    if (staircase) exponent = floor(exponent);
    const Array decayed = init_value * power(decay_rate, exponent);
    const Array value = where(since <= 0, init_value, decayed);
    if (!end_value) return value;
    return decay_rate < 1 ? maximum(value, *end_value) : minimum(value, *end_value);
  };
}
Schedule cosine_decay_schedule(double init_value, int64_t decay_steps, double alpha,
                               double exponent) {
  CheckSteps("cosine_decay_schedule", "decay_steps", decay_steps, 1);
  return [=](const Array& count) {
    const auto steps = static_cast<double>(decay_steps);
    const Array angle = std::numbers::pi * minimum(AsFloat(count), steps) / steps;
    const Array wave = 0.5 * (1 + cos(angle));
    const Array bent = exponent == 1 ? wave : power(wave, exponent);
    return init_value * ((1 - alpha) * bent + alpha);
  };
}
Schedule warmup_cosine_decay_schedule(double init_value, double peak_value, int64_t warmup_steps,
                                      int64_t decay_steps, double end_value, double exponent) {
  const double alpha = peak_value == 0 ? 0 : end_value / peak_value;
  return join_schedules(
      {linear_schedule(init_value, peak_value, warmup_steps),
       cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent)},
      {warmup_steps});
}
Schedule piecewise_constant_schedule(double init_value,
                                     const std::map<int64_t, double>& boundaries_and_scales) {
  for (const auto& [boundary, scale] : boundaries_and_scales) {
    CheckSteps("piecewise_constant_schedule", "a boundary", boundary, 0);
    if (scale >= 0) continue;
    ThrowError(ErrorKind::kValueError, {},
               "optim::piecewise_constant_schedule: expects non-negative scale factors, got ",
               scale);
  }
  return [=](const Array& count) {
    Array value = full_like(AsFloat(count), init_value);
    for (const auto& [boundary, scale] : boundaries_and_scales) {
      const Array scaled = scale * value;
      value = where(count < static_cast<int32_t>(boundary), value, scaled);
    }
    return value;
  };
}
Schedule join_schedules(std::vector<Schedule> schedules, std::vector<int64_t> boundaries) {
  if (schedules.empty() || schedules.size() != boundaries.size() + 1) {
    ThrowError(ErrorKind::kValueError, {}, "optim::join_schedules: ", schedules.size(),
               " schedules and ", boundaries.size(),
               " boundaries; one schedule more than boundaries is expected");
  }
  for (const int64_t b : boundaries) CheckSteps("join_schedules", "a boundary", b, 0);
  return [=](const Array& count) {
    Array value = schedules[0](count);
    for (size_t i = 0; i < boundaries.size(); ++i) {
      const Array next = schedules[i + 1](StepsSince(count, boundaries[i]));
      value = where(count < static_cast<int32_t>(boundaries[i]), value, next);
    }
    return value;
  };
}

// ---- Parts of optimizers. -----------------------------------------------------------------------

std::vector<bool> Mask::Of(const TreeNode& tree, const std::vector<Array>& params) const {
  std::vector<bool> out;
  if (f_) {
    for (const Array& p : params) out.push_back(f_(p));
    return out;
  }
  for (const std::optional<bool>& chosen :
       tessera::internal::BroadcastPrefix(prefix_, tree, "optim: mask", {}))
    out.push_back(chosen.value_or(false));
  return out;
}

namespace {

Array Incremented(const Array& count) {
  const auto most = static_cast<int32_t>(kMaxCount);
  const Array more = count + 1;
  return where(count < most, more, most);
}
// Returns the square of the absolute value.
Array AbsSquare(const Array& x) {
  if (!ir::IsComplex(x.dtype())) return square(x);
  const Array of_real = square(real(x));
  return of_real + square(imag(x));
}
// Returns decay * before + (1 - decay) * now.
Array MovingAverage(double decay, const Array& before, const Array& now) {
  const Array first = (1 - decay) * now;
  return first + decay * before;
}
std::vector<Array> MovingAverage(double decay, const std::vector<Array>& before,
                                 const std::vector<Array>& now) {
  std::vector<Array> out;
  for (size_t i = 0; i < now.size(); ++i) out.push_back(MovingAverage(decay, before[i], now[i]));
  return out;
}
std::vector<Array> Squares(const std::vector<Array>& xs) {
  std::vector<Array> out;
  for (const Array& x : xs) out.push_back(AbsSquare(x));
  return out;
}

// Corrects the bias that a decaying mean has after `count` updates because it began with zero.
class BiasCorrection {
 public:
  BiasCorrection(double decay, const Array& count) : decay_(decay), count_(count) {}
  // 1 - decay^count is computed at least in f32.
  Array Correct(const Array& mean) {
    const bool is_f64 = mean.dtype() == kF64 || mean.dtype() == kC128;
    std::optional<Array>& factor = is_f64 ? f64_ : f32_;
    if (!factor) factor = 1 - power(decay_, count_.astype(is_f64 ? kF64 : kF32));
    return mean / factor->astype(mean.dtype());
  }

 private:
  double decay_;
  Array count_;
  std::optional<Array> f32_, f64_;
};

// A transformation of each leaf by itself, without a state.
GradientTransformation LeafwiseTransformation(std::string name,
                                              std::function<Array(const Array&)> f) {
  return GradientTransformation({{.name = std::move(name), .update = [f](Leaves& s) {
                                    for (Array& g : s.updates) g = f(g);
                                  }}});
}

}  // namespace

GradientTransformation scale(const ScalarOrSchedule& step_size) {
  if (!step_size.is_schedule())
    return LeafwiseTransformation("scale",
                                  [=](const Array& g) { return step_size.At(std::nullopt) * g; });
  return GradientTransformation(
      {{.name = "scale_by_schedule", .counts = true, .update = [=](Leaves& s) {
          const Array size = *step_size.At(s.count).array;
          for (Array& g : s.updates) g = size.astype(g.dtype()) * g;
          s.count = Incremented(*s.count);
        }}});
}
GradientTransformation scale_by_schedule(const Schedule& step_size) { return scale(step_size); }
GradientTransformation scale_by_learning_rate(const ScalarOrSchedule& learning_rate,
                                              bool flip_sign) {
  if (!flip_sign) return scale(learning_rate);
  if (learning_rate.is_schedule())
    return scale([=](const Array& count) { return -learning_rate.At(count); });
  const Arg rate = learning_rate.At(std::nullopt);
  if (rate.kind != Arg::kArray)
    return scale(rate.kind == Arg::kReal ? -rate.number : -static_cast<double>(rate.integer));
  return LeafwiseTransformation("scale", [=](const Array& g) { return -rate * g; });
}
GradientTransformation add_decayed_weights(const ScalarOrSchedule& weight_decay, const Mask& mask) {
  return GradientTransformation({{.name = "add_decayed_weights",
                                  .counts = weight_decay.is_schedule(),
                                  .needs_params = true,
                                  .update = [=](Leaves& s) {
                                    if (weight_decay.is_zero()) return;
                                    const Arg decay = weight_decay.At(s.count);
                                    const std::vector<bool> decays = mask.Of(s.tree, s.params);
                                    for (size_t i = 0; i < s.updates.size(); ++i)
                                      if (decays[i])
                                        s.updates[i] = s.updates[i] + decay * s.params[i];
                                    if (s.count) s.count = Incremented(*s.count);
                                  }}});
}
GradientTransformation clip(double max_delta) {
  return LeafwiseTransformation(
      "clip", [=](const Array& g) { return tessera::clip(g, -max_delta, max_delta); });
}

namespace {

Array NormOf(const std::vector<Array>& leaves) {
  std::optional<Array> squares;
  for (const Array& x : leaves) {
    const Array of_leaf = sum(AbsSquare(x));
    squares = squares ? *squares + of_leaf : of_leaf;
  }
  return squares ? sqrt(*squares) : zeros({});
}

}  // namespace

GradientTransformation clip_by_global_norm(double max_norm) {
  return GradientTransformation({{.name = "clip_by_global_norm", .update = [=](Leaves& s) {
                                    const Array norm = NormOf(s.updates);
                                    const Array is_small = norm < max_norm;
                                    for (Array& g : s.updates) {
                                      const Array unit = g / norm.astype(g.dtype());
                                      g = where(is_small, g, unit * max_norm);
                                    }
                                  }}});
}

namespace {

// Returns the norm of x, or `min_norm` if that is larger. The derivative is finite also at 0.
Array SafeNorm(const Array& x, double min_norm) {
  const Array is_small = NormOf({x}) <= min_norm;
  return where(is_small, min_norm, NormOf({where(is_small, 1, x)}));
}

}  // namespace

GradientTransformation scale_by_trust_ratio(double min_norm, double trust_coefficient, double eps) {
  return GradientTransformation(
      {{.name = "scale_by_trust_ratio", .needs_params = true, .update = [=](Leaves& s) {
          for (size_t i = 0; i < s.updates.size(); ++i) {
            const Array param_norm = SafeNorm(s.params[i], min_norm);
            const Array update_norm = SafeNorm(s.updates[i], min_norm);
            const Array scaled = trust_coefficient * param_norm;
            const Array ratio = scaled / (update_norm + eps);
            const Array param_is_zero = equal(param_norm, 0.0);
            const Array either_is_zero = logical_or(param_is_zero, equal(update_norm, 0.0));
            s.updates[i] = s.updates[i] * where(either_is_zero, 1.0, ratio);
          }
        }}});
}
GradientTransformation trace(double decay, bool nesterov, std::optional<DType> accumulator_dtype) {
  return GradientTransformation(
      {{.name = "trace", .mu = 0, .mu_dtype = accumulator_dtype, .update = [=](Leaves& s) {
          for (size_t i = 0; i < s.updates.size(); ++i) {
            s.mu[i] = s.updates[i] + decay * s.mu[i];
            s.updates[i] = nesterov ? s.updates[i] + decay * s.mu[i] : s.mu[i];
          }
        }}});
}
GradientTransformation ema(double decay, bool debias, std::optional<DType> accumulator_dtype) {
  return GradientTransformation({{.name = "ema",
                                  .counts = true,
                                  .mu = 0,
                                  .mu_dtype = accumulator_dtype,
                                  .update = [=](Leaves& s) {
                                    s.mu = MovingAverage(decay, s.mu, s.updates);
                                    s.count = Incremented(*s.count);
                                    s.updates = s.mu;
                                    if (!debias) return;
                                    BiasCorrection correction(decay, *s.count);
                                    for (Array& g : s.updates) g = correction.Correct(g);
                                  }}});
}
// The operations have Optax's order. With nesterov, the bias-corrected mean of the next step is
// mixed with the bias-corrected gradient. An eps_root of 0 adds no op.
GradientTransformation scale_by_adam(const ScaleByAdamOptions& o) {
  return GradientTransformation(
      {{.name = "scale_by_adam",
        .counts = true,
        .mu = 0,
        .nu = 0,
        .mu_dtype = o.mu_dtype,
        .update = [=](Leaves& s) {
          s.mu = MovingAverage(o.b1, s.mu, s.updates);
          s.nu = MovingAverage(o.b2, s.nu, Squares(s.updates));
          s.count = Incremented(*s.count);
          BiasCorrection mu_correction(o.b1, *s.count), nu_correction(o.b2, *s.count);
          BiasCorrection next_correction(o.b1, o.nesterov ? Incremented(*s.count) : *s.count);
          for (size_t i = 0; i < s.updates.size(); ++i) {
            Array m;
            if (o.nesterov) {
              const Array next = next_correction.Correct(s.mu[i]);
              m = MovingAverage(o.b1, next, mu_correction.Correct(s.updates[i]));
            } else {
              m = mu_correction.Correct(s.mu[i]);
            }
            const Array n = nu_correction.Correct(s.nu[i]);
            const Array root = sqrt(o.eps_root == 0 ? n : n + o.eps_root);
            s.updates[i] = m / (root + o.eps);
          }
        }}});
}

namespace {

// scale_by_rms and scale_by_stddev differ only in the subtracted square of the mean. The options
// decide the place of eps and whether means that begin with zero are corrected, as in Optax.
GradientTransformation ScaleByRmsOrStddev(const ScaleByRmsOptions& o, bool centered) {
  return GradientTransformation({{.name = centered ? "scale_by_stddev" : "scale_by_rms",
                                  .counts = o.bias_correction,
                                  .mu = centered ? std::optional<double>(0) : std::nullopt,
                                  .nu = o.initial_scale,
                                  .update = [=](Leaves& s) {
                                    if (centered) s.mu = MovingAverage(o.decay, s.mu, s.updates);
                                    s.nu = MovingAverage(o.decay, s.nu, Squares(s.updates));
                                    std::optional<BiasCorrection> correction;
                                    if (o.bias_correction) {
                                      s.count = Incremented(*s.count);
                                      correction.emplace(o.decay, *s.count);
                                    }
                                    const auto corrected = [&](const Array& x) {
                                      return correction ? correction->Correct(x) : x;
                                    };
                                    for (size_t i = 0; i < s.updates.size(); ++i) {
                                      Array n = corrected(s.nu[i]);
                                      if (centered) n = n - AbsSquare(corrected(s.mu[i]));
                                      if (o.eps_in_sqrt) {
                                        s.updates[i] = rsqrt(n + o.eps) * s.updates[i];
                                      } else {
                                        s.updates[i] = 1 / (sqrt(n) + o.eps) * s.updates[i];
                                      }
                                    }
                                  }}});
}

}  // namespace

GradientTransformation scale_by_rms(const ScaleByRmsOptions& options) {
  return ScaleByRmsOrStddev(options, /*centered=*/false);
}
GradientTransformation scale_by_stddev(const ScaleByRmsOptions& options) {
  return ScaleByRmsOrStddev(options, /*centered=*/true);
}
GradientTransformation scale_by_rss(double initial_accumulator_value, double eps) {
  return GradientTransformation(
      {{.name = "scale_by_rss", .nu = initial_accumulator_value, .update = [=](Leaves& s) {
          for (size_t i = 0; i < s.updates.size(); ++i) {
            s.nu[i] = AbsSquare(s.updates[i]) + s.nu[i];
            const Array inverse = rsqrt(s.nu[i] + eps);
            s.updates[i] = where(s.nu[i] > 0, inverse, 0.0) * s.updates[i];
          }
        }}});
}
GradientTransformation scale_by_lion(double b1, double b2, std::optional<DType> mu_dtype) {
  return GradientTransformation({{.name = "scale_by_lion",
                                  .counts = true,
                                  .mu = 0,
                                  .mu_dtype = mu_dtype,
                                  .update = [=](Leaves& s) {
                                    const std::vector<Array> mu =
                                        MovingAverage(b2, s.mu, s.updates);
                                    s.updates = MovingAverage(b1, s.mu, s.updates);
                                    for (Array& g : s.updates) g = sign(g);
                                    s.mu = mu;
                                    s.count = Incremented(*s.count);
                                  }}});
}

// ---- Optimizers. --------------------------------------------------------------------------------

GradientTransformation sgd(const ScalarOrSchedule& learning_rate, std::optional<double> momentum,
                           bool nesterov, std::optional<DType> accumulator_dtype) {
  return chain(momentum ? trace(*momentum, nesterov, accumulator_dtype) : identity(),
               scale_by_learning_rate(learning_rate));
}
GradientTransformation adam(const ScalarOrSchedule& learning_rate, const ScaleByAdamOptions& o) {
  return chain(scale_by_adam(o), scale_by_learning_rate(learning_rate));
}
GradientTransformation adamw(const ScalarOrSchedule& learning_rate, const AdamWOptions& o) {
  return chain(scale_by_adam({o.b1, o.b2, o.eps, o.eps_root, o.mu_dtype, o.nesterov}),
               add_decayed_weights(o.weight_decay, o.mask), scale_by_learning_rate(learning_rate));
}
GradientTransformation rmsprop(const ScalarOrSchedule& learning_rate, const RmsPropOptions& o) {
  return chain(ScaleByRmsOrStddev(
                   {o.decay, o.eps, o.initial_scale, o.eps_in_sqrt, o.bias_correction}, o.centered),
               scale_by_learning_rate(learning_rate),
               o.momentum ? trace(*o.momentum, o.nesterov) : identity());
}
GradientTransformation adagrad(const ScalarOrSchedule& learning_rate,
                               double initial_accumulator_value, double eps) {
  return chain(scale_by_rss(initial_accumulator_value, eps), scale_by_learning_rate(learning_rate));
}
GradientTransformation lion(const ScalarOrSchedule& learning_rate, const LionOptions& o) {
  return chain(scale_by_lion(o.b1, o.b2, o.mu_dtype), add_decayed_weights(o.weight_decay, o.mask),
               scale_by_learning_rate(learning_rate));
}
GradientTransformation lamb(const ScalarOrSchedule& learning_rate, const LambOptions& o) {
  return chain(scale_by_adam({.b1 = o.b1, .b2 = o.b2, .eps = o.eps, .eps_root = o.eps_root}),
               add_decayed_weights(o.weight_decay, o.mask), scale_by_trust_ratio(),
               scale_by_learning_rate(learning_rate));
}

// ---- Functions of trees. ------------------------------------------------------------------------

namespace internal {

std::vector<Array> GlobalNorm(const std::vector<Array>& leaves, const Site& site) {
  return InProgram("global_norm", site, leaves, [&] { return std::vector<Array>{NormOf(leaves)}; });
}
Array Applied(const Array& param, const Array& update) {
  if (!update.valid()) return param;
  return (param + update).astype(param.dtype());
}
Array Between(const Array& new_value, const Array& old_value, const Arg& step_size) {
  const Array of_new = step_size * new_value;
  const Array of_old = step_size.kind == Arg::kReal ? (1 - step_size.number) * old_value
                                                    : (1 - step_size) * old_value;
  return of_new + of_old;
}

}  // namespace internal

// ---- Losses. ------------------------------------------------------------------------------------

namespace {

void CheckFloats(std::string_view name, std::string_view what, const Arg& x) {
  if (x.kind == Arg::kReal || (x.kind == Arg::kArray && ir::IsFloat(x.array->dtype()))) return;
  ThrowError(ErrorKind::kTypeError, x.site, "optim::", ToAbsl(name), ": ", ToAbsl(what), " is ",
             x.kind == Arg::kArray ? x.array->type().ToString() : "an integer",
             "; floats are expected");
}
std::vector<Array> ArraysOf(const std::vector<Arg>& args) {
  std::vector<Array> out;
  for (const Arg& a : args)
    if (a.kind == Arg::kArray) out.push_back(*a.array);
  return out;
}
Array RunAsProgram(std::string_view name, const std::vector<Arg>& args,
                   const std::function<Array()>& f) {
  return InProgram(name, tessera::internal::SiteOf(args), ArraysOf(args),
                   [&] { return std::vector<Array>{f()}; })[0];
}
Array PredictionErrors(const Arg& predictions, const std::optional<Array>& targets) {
  return targets ? predictions - *targets : tessera::internal::AsArray(predictions, DType::kF32);
}

}  // namespace

Array l2_loss(const Arg& predictions, const std::optional<Array>& targets) {
  CheckFloats("l2_loss", "predictions", predictions);
  const Dims shape = predictions.kind == Arg::kArray ? predictions.array->shape() : Dims{};
  if (targets && targets->shape() != shape) {
    ThrowError(ErrorKind::kValueError, predictions.site,
               "optim::l2_loss: predictions are of shape (", ir::DimsToString(shape),
               "), targets are ", targets->type().ToString(), "; equal shapes are expected");
  }
  std::vector<Arg> args = {predictions};
  if (targets) args.emplace_back(*targets, predictions.site);
  return RunAsProgram("l2_loss", args,
                      [&] { return 0.5 * square(PredictionErrors(predictions, targets)); });
}
Array huber_loss(const Arg& predictions, const std::optional<Array>& targets, const Arg& delta) {
  CheckFloats("huber_loss", "predictions", predictions);
  std::vector<Arg> args = {predictions, delta};
  if (targets) args.emplace_back(*targets, predictions.site);
  return RunAsProgram("huber_loss", args, [&] {
    const Array size = abs(PredictionErrors(predictions, targets));
    const Array quadratic = minimum(size, delta);
    const Array linear = size - quadratic;
    const Array of_quadratic = 0.5 * square(quadratic);
    return of_quadratic + delta * linear;
  });
}
Array softmax_cross_entropy(const Arg& logits, const Arg& labels, int axis) {
  CheckFloats("softmax_cross_entropy", "logits", logits);
  return RunAsProgram("softmax_cross_entropy", {logits, labels},
                      [&] { return -sum(labels * nn::log_softmax(logits, axis), axis); });
}
Array softmax_cross_entropy_with_integer_labels(const Arg& logits, const Arg& labels, int axis) {
  constexpr const char* kName = "softmax_cross_entropy_with_integer_labels";
  CheckFloats(kName, "logits", logits);
  if (labels.kind != Arg::kInteger &&
      (labels.kind != Arg::kArray || !ir::IsInteger(labels.array->dtype()))) {
    ThrowError(ErrorKind::kTypeError, labels.site, "optim::", kName, ": labels are ",
               labels.kind == Arg::kArray ? labels.array->type().ToString() : "no integers",
               "; integers are expected");
  }
  const int d =
      tessera::internal::NormalizeAxis(kName, axis, tessera::internal::RankOf(logits), logits.site);
  return RunAsProgram(kName, {logits, labels}, [&] {
    const Array label_logits = squeeze(take_along_axis(logits, expand_dims(labels, d), d), d);
    return nn::logsumexp(logits, d) - label_logits;
  });
}
Array sigmoid_binary_cross_entropy(const Arg& logits, const Arg& labels) {
  CheckFloats("sigmoid_binary_cross_entropy", "logits", logits);
  return RunAsProgram("sigmoid_binary_cross_entropy", {logits, labels}, [&] {
    const Array x = tessera::internal::AsArray(logits, DType::kF32);
    const Array y = tessera::internal::AsArray(labels, x.dtype()).astype(x.dtype());
    const Array log_p = nn::log_sigmoid(x);
    const Array log_not_p = nn::log_sigmoid(-x);
    const Array of_p = -y * log_p;
    return of_p - (1.0 - y) * log_not_p;
  });
}

}  // namespace tessera::optim
