// Optimizers on trees of parameters, with the names and the values of Optax.
//
//   const auto optimizer = optim::adam(1e-3);
//   optim::OptState<Params> state = optimizer.init(params);
//   auto [updates, next] = optimizer.update(grads, state, params);
//   params = optim::apply_updates(params, updates);
//
// Optimizers work inside transforms, and on arrays outside them, where each call is one program.
// States are trees. The moments in a state are sharded like the parameters; specs() returns the
// shardings of a state. Transformations are values that can be copied freely; thread-safe. All
// throw tessera::Error.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/array.h"
#include "client/tree.h"

namespace tessera::optim {

// ---- Transformations. ---------------------------------------------------------------------------

// The values that one transformation keeps between updates. Values that it does not use are absent.
template <class Params>
struct TransformState {
  std::optional<Array> count;  // s32[]: the number of updates so far
  std::optional<Params> mu;    // a mean of gradients, or their sum
  std::optional<Params> nu;    // a mean of the squares of gradients, or their sum
  TESSERA_TREE_MEMBERS(TransformState, count, mu, nu)
};
// An entry for each transformation of a chain, in order.
template <class Params>
using OptState = std::vector<TransformState<Params>>;

// The input and output of a transformation: the leaves of the trees.
struct Leaves {
  const TreeNode& tree;
  std::vector<Array> updates;        // on entry the results of the transformation before it
  const std::vector<Array>& params;  // empty if they are not given
  std::optional<Array> count;
  std::vector<Array> mu, nu;
};
// A transformation. To write one, say what it keeps and how it updates.
struct Rule {
  std::string name;
  bool counts = false;                     // whether it keeps a count, which `update` increments
  std::optional<double> mu = {}, nu = {};  // initial values of the moments that it keeps
  std::optional<DType> mu_dtype = {};      // by default the dtype of the parameters
  bool needs_params = false;
  std::function<void(Leaves&)> update;
};

namespace internal {

struct FlatState {
  std::optional<Array> count;
  std::optional<Flat> mu, nu;
};
std::vector<FlatState> Init(const std::vector<Rule>& rules, const Flat& params, const Site& site);
// Replaces the leaves of `updates` and of `state`, a flattened OptState whose holes are leaves.
void Update(const std::vector<Rule>& rules, Flat* updates, Flat* state, const Flat* params,
            const Site& site);
std::vector<Array> GlobalNorm(const std::vector<Array>& leaves, const Site& site);
Array Applied(const Array& param, const Array& update);
Array Between(const Array& new_value, const Array& old_value, const Arg& step_size);

}  // namespace internal

// Transformations of gradients that are applied one after another.
class GradientTransformation {
 public:
  GradientTransformation() = default;  // does not change the gradients
  explicit GradientTransformation(std::vector<Rule> rules) : rules_(std::move(rules)) {}

  template <class Params>
  // Returns the first state for these parameters.
  OptState<Params> init(const Params& params, Site site = Site::Here()) const {
    OptState<Params> state;
    for (internal::FlatState& flat :
         internal::Init(rules_, tessera::internal::FlattenFilled(params), site))
      state.push_back({std::move(flat.count), Tree(params, flat.mu), Tree(params, flat.nu)});
    return state;
  }
  // Returns the updates, which are to be added to the parameters, and the next state. VALUE_ERROR
  // if the trees or shapes differ.
  template <class Params>
  std::pair<Params, OptState<Params>> update(const Params& grads, const OptState<Params>& state,
                                             Site site = Site::Here()) const {
    return Updated(grads, state, nullptr, site);
  }
  // Like update above, with the parameters, which weight decay and trust ratios need.
  template <class Params>
  std::pair<Params, OptState<Params>> update(const Params& grads, const OptState<Params>& state,
                                             const Params& params, Site site = Site::Here()) const {
    const Flat flat = tessera::internal::FlattenFilled(params);
    return Updated(grads, state, &flat, site);
  }

  // Returns the shardings of a state, for jit and in_specs, from the shardings of the parameters.
  Prefix<PartitionSpec> specs(const Prefix<PartitionSpec>& params) const;
  const std::vector<Rule>& rules() const { return rules_; }

 private:
  template <class Params>
  static std::optional<Params> Tree(const Params& like, const std::optional<Flat>& flat) {
    return flat ? std::optional<Params>(tessera::internal::UnflattenFilled(like, flat->leaves))
                : std::nullopt;
  }
  template <class Params>
  std::pair<Params, OptState<Params>> Updated(const Params& grads, const OptState<Params>& state,
                                              const Flat* params, const Site& site) const {
    Flat updates = tessera::internal::FlattenFilled(grads);
    Flat next = flatten(state);
    internal::Update(rules_, &updates, &next, params, site);
    return {tessera::internal::UnflattenFilled(grads, updates.leaves),
            unflatten(state, next.leaves)};
  }

  std::vector<Rule> rules_;
};

GradientTransformation chain(const std::vector<GradientTransformation>& transformations);
template <class... T>
requires(std::is_same_v<T, GradientTransformation>&&...) GradientTransformation
    chain(const GradientTransformation& first, const T&... rest) {
  return chain(std::vector<GradientTransformation>{first, rest...});
}

// ---- Schedules: numbers that depend on the number of updates so far, an s32. --------------------

// Takes counts of updates (s32), returns f32, element by element.
using Schedule = std::function<Array(const Array& count)>;

// A number, which takes the dtype of the other operand, or an array, or a schedule.
class ScalarOrSchedule {
 public:
  // NOLINTBEGIN(google-explicit-constructor): conversion is intended
  template <class T>
  requires std::is_arithmetic_v<T> ScalarOrSchedule(T value, Site site = Site::Here())
      : value_(value, site) {}
  ScalarOrSchedule(const Array& value, Site site = Site::Here()) : value_(value, site) {}
  template <class F>
  requires std::is_invocable_r_v<Array, const F&, const Array&> ScalarOrSchedule(F schedule)
      : value_(0, Site{}), schedule_(std::move(schedule)) {}
  // NOLINTEND(google-explicit-constructor)
  bool is_schedule() const { return schedule_ != nullptr; }
  Arg At(const std::optional<Array>& count) const {
    return schedule_ ? Arg(schedule_(*count), Site{}) : value_;
  }
  // Returns whether it is a number that is 0.
  bool is_zero() const;

 private:
  Arg value_;
  Schedule schedule_;
};

Schedule constant_schedule(double value);
// Goes from one value to the other in `transition_steps` steps, after `transition_begin` steps.
Schedule linear_schedule(double init_value, double end_value, int64_t transition_steps,
                         int64_t transition_begin = 0);
Schedule polynomial_schedule(double init_value, double end_value, double power,
                             int64_t transition_steps, int64_t transition_begin = 0);
// init_value * decay_rate^(steps / transition_steps), where steps count from transition_begin on.
// With `staircase` the exponent is rounded down. end_value bounds the result.
Schedule exponential_decay(double init_value, int64_t transition_steps, double decay_rate,
                           int64_t transition_begin = 0, bool staircase = false,
                           std::optional<double> end_value = std::nullopt);
// Goes from init_value down to alpha * init_value in `decay_steps` steps.
Schedule cosine_decay_schedule(double init_value, int64_t decay_steps, double alpha = 0,
                               double exponent = 1);
// `decay_steps` counts all steps, including the warm-up.
Schedule warmup_cosine_decay_schedule(double init_value, double peak_value, int64_t warmup_steps,
                                      int64_t decay_steps, double end_value = 0,
                                      double exponent = 1);
// Multiplies the value by the scale of each boundary that the count has reached.
Schedule piecewise_constant_schedule(double init_value,
                                     const std::map<int64_t, double>& boundaries_and_scales = {});
// The first schedule counts from 0. Each other one begins at its boundary, and counts from there.
Schedule join_schedules(std::vector<Schedule> schedules, std::vector<int64_t> boundaries);

// ---- Parts of optimizers. -----------------------------------------------------------------------

// Chooses parameters: a prefix of their tree, or a function that is asked about each parameter.
class Mask {
 public:
  Mask() = default;  // chooses all
  // NOLINTBEGIN(google-explicit-constructor): conversion is intended
  Mask(Prefix<bool> prefix) : prefix_(std::move(prefix)) {}
  template <class F>
  requires std::is_invocable_r_v<bool, const F&, const Array&> Mask(F f) : f_(std::move(f)) {}
  // NOLINTEND(google-explicit-constructor)
  // Returns one entry for each leaf.
  std::vector<bool> Of(const TreeNode& tree, const std::vector<Array>& params) const;

 private:
  Prefix<bool> prefix_ = true;
  std::function<bool(const Array&)> f_;
};

inline GradientTransformation identity() { return {}; }
GradientTransformation scale(const ScalarOrSchedule& step_size);
GradientTransformation scale_by_schedule(const Schedule& step_size);
// Scales by the negative learning rate, because updates are added. Without flip_sign, scales by the
// learning rate itself.
GradientTransformation scale_by_learning_rate(const ScalarOrSchedule& learning_rate,
                                              bool flip_sign = true);
GradientTransformation add_decayed_weights(const ScalarOrSchedule& weight_decay = 0.0,
                                           const Mask& mask = {});
GradientTransformation clip(double max_delta);
GradientTransformation clip_by_global_norm(double max_norm);
GradientTransformation scale_by_trust_ratio(double min_norm = 0, double trust_coefficient = 1,
                                            double eps = 0);
// Momentum: a decaying sum of the gradients.
GradientTransformation trace(double decay, bool nesterov = false,
                             std::optional<DType> accumulator_dtype = std::nullopt);
GradientTransformation ema(double decay, bool debias = true,
                           std::optional<DType> accumulator_dtype = std::nullopt);

struct ScaleByAdamOptions {
  double b1 = 0.9, b2 = 0.999, eps = 1e-8, eps_root = 0;
  std::optional<DType> mu_dtype = {};
  bool nesterov = false;
};
GradientTransformation scale_by_adam(const ScaleByAdamOptions& options = {});
struct ScaleByRmsOptions {
  double decay = 0.9, eps = 1e-8, initial_scale = 0;
  bool eps_in_sqrt = true, bias_correction = false;
};
GradientTransformation scale_by_rms(const ScaleByRmsOptions& options = {});
GradientTransformation scale_by_stddev(const ScaleByRmsOptions& options = {});
GradientTransformation scale_by_rss(double initial_accumulator_value = 0.1, double eps = 1e-7);
GradientTransformation scale_by_lion(double b1 = 0.9, double b2 = 0.99,
                                     std::optional<DType> mu_dtype = std::nullopt);

// ---- Optimizers. --------------------------------------------------------------------------------

GradientTransformation sgd(const ScalarOrSchedule& learning_rate,
                           std::optional<double> momentum = std::nullopt, bool nesterov = false,
                           std::optional<DType> accumulator_dtype = std::nullopt);
GradientTransformation adam(const ScalarOrSchedule& learning_rate,
                            const ScaleByAdamOptions& options = {});
struct AdamWOptions {
  double b1 = 0.9, b2 = 0.999, eps = 1e-8, eps_root = 0;
  std::optional<DType> mu_dtype = {};
  ScalarOrSchedule weight_decay = 1e-4;
  Mask mask = {};
  bool nesterov = false;
};
GradientTransformation adamw(const ScalarOrSchedule& learning_rate,
                             const AdamWOptions& options = {});
struct RmsPropOptions {
  double decay = 0.9, eps = 1e-8, initial_scale = 0;
  bool eps_in_sqrt = true, centered = false;
  std::optional<double> momentum = {};
  bool nesterov = false, bias_correction = false;
};
GradientTransformation rmsprop(const ScalarOrSchedule& learning_rate,
                               const RmsPropOptions& options = {});
GradientTransformation adagrad(const ScalarOrSchedule& learning_rate,
                               double initial_accumulator_value = 0.1, double eps = 1e-7);
struct LionOptions {
  double b1 = 0.9, b2 = 0.99;
  std::optional<DType> mu_dtype = {};
  ScalarOrSchedule weight_decay = 1e-3;
  Mask mask = {};
};
GradientTransformation lion(const ScalarOrSchedule& learning_rate, const LionOptions& options = {});
struct LambOptions {
  double b1 = 0.9, b2 = 0.999, eps = 1e-6, eps_root = 0;
  ScalarOrSchedule weight_decay = 0.0;
  Mask mask = {};
};
GradientTransformation lamb(const ScalarOrSchedule& learning_rate, const LambOptions& options = {});

// ---- Functions of trees. ------------------------------------------------------------------------

// Returns params + updates, with the parameters' dtypes. A parameter without an update stays
// unchanged.
template <class Params>
Params apply_updates(const Params& params, const Params& updates) {
  return tree_map(internal::Applied, params, updates);
}
// Returns step_size * new + (1 - step_size) * old.
template <class Params>
Params incremental_update(const Params& new_tensors, const Params& old_tensors,
                          const Arg& step_size) {
  return tree_map(
      [&](const Array& a, const Array& b) { return internal::Between(a, b, step_size); },
      new_tensors, old_tensors);
}
// Returns the square root of the sum of the squares of all elements.
template <class T>
Array global_norm(const T& tree, Site site = Site::Here()) {
  return internal::GlobalNorm(tessera::internal::FlattenFilled(tree).leaves, site)[0];
}

// ---- Losses: one for each element, or for each row of logits. -----------------------------------

// Returns half the squared errors of predictions. Without targets the predictions are the errors.
Array l2_loss(const Arg& predictions, const std::optional<Array>& targets = std::nullopt);
Array huber_loss(const Arg& predictions, const std::optional<Array>& targets = std::nullopt,
                 const Arg& delta = 1.0);
// Labels are probabilities, with the logits' shape.
Array softmax_cross_entropy(const Arg& logits, const Arg& labels, int axis = -1);
// Labels are indices along the axis.
Array softmax_cross_entropy_with_integer_labels(const Arg& logits, const Arg& labels,
                                                int axis = -1);
// Labels are probabilities.
Array sigmoid_binary_cross_entropy(const Arg& logits, const Arg& labels);

}  // namespace tessera::optim
