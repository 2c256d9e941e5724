// The table of rows that rows_test.cc runs in the reference evaluator. Each row has a function of
// nn.h or optim.h. scripts/record_nn.py has a row of the same name, with the same function of
// jax.nn or Optax, and records the inputs and the expected results. To add a row, add it in both
// places and run the script.
#include "tests/nn/rows.h"

#include <map>
#include <optional>
#include <utility>

#include "client/tessera.h"

namespace tessera::nn_rows {
namespace {

namespace init = nn::initializers;
using Args = std::vector<Array>;

struct Params {
  Array w, b;
};
TESSERA_TREE(Params, w, b)

// Returns the parameters after each of five steps of an optimizer.
Array Trained(const optim::GradientTransformation& optimizer, const Args& x) {
  Params params{x[0], x[1]};
  optim::OptState<Params> state = optimizer.init(params);
  std::vector<Array> out;
  for (int i = 0; i < 5; ++i) {
    const Params grads{x[2][i], x[3][i]};
    auto [updates, next] = optimizer.update(grads, state, params);
    state = next;
    params = optim::apply_updates(params, updates);
    out.push_back(concatenate({reshape(params.w, {-1}), params.b}));
  }
  return stack(out);
}

Array Activations(const Array& x) {
  return stack({nn::identity(x),       nn::relu(x),       nn::relu6(x),      nn::sigmoid(x),
                nn::log_sigmoid(x),    nn::silu(x),       nn::swish(x),      nn::mish(x),
                nn::softplus(x),       nn::soft_sign(x),  nn::selu(x),       nn::elu(x),
                nn::celu(x),           nn::leaky_relu(x), nn::squareplus(x), nn::hard_tanh(x),
                nn::hard_sigmoid(x),   nn::hard_silu(x),  nn::hard_swish(x), nn::sparse_plus(x),
                nn::sparse_sigmoid(x), nn::gelu(x)});
}
Array Weighted(DType dtype, const Array& x) { return x * arange(5, dtype); }
Array Attention(const Args& x, const nn::AttentionOptions& options = {}) {
  return nn::dot_product_attention(x[0], x[1], x[2], options);
}

// Lists the rows: activations, attention, initializers, optimizers, schedules and losses. Each
// group has a small lambda that sets the tolerances of the group, so that a row names a tolerance
// only if it differs.
std::vector<Row> MakeRows() {
  std::vector<Row> rows;
#define TESSERA_ROW(name) \
  rows.push_back({#name, [](DType, const Args& x) { return nn::name(x[0]); }});
  TESSERA_NN_UNARY(TESSERA_ROW)
#undef TESSERA_ROW
#define TESSERA_ROW(name, parameter, value) \
  rows.push_back({#name, [](DType, const Args& x) { return nn::name(x[0]); }});
  TESSERA_NN_WITH_PARAMETER(TESSERA_ROW)
#undef TESSERA_ROW
  const auto add = [&](Row row) { rows.push_back(std::move(row)); };
  const auto unary = [&](const char* name, Array (*f)(const Arg&)) {
    add({name, [=](DType, const Args& x) { return f(x[0]); }});
  };
  unary("identity", nn::identity);
  unary("relu", nn::relu);
  unary("relu_s32", nn::relu);
  unary("hard_tanh", nn::hard_tanh);
  unary("hard_tanh_s32", nn::hard_tanh);
  unary("swish", nn::swish);
  unary("hard_swish", nn::hard_swish);
  // For negative arguments, gelu adds 1 to a number close to -1, so its error is measured
  // against 1.
  add({.name = "gelu",
       .f = [](DType, const Args& x) { return nn::gelu(x[0]); },
       .ulps_grads = 32,
       .scale = 1});
  add({"gelu_exact", [](DType, const Args& x) { return nn::gelu(x[0], false); }});
  add({"special_points", [](DType, const Args& x) { return Activations(x[0]); }});
  add({"elu_alpha", [](DType, const Args& x) { return nn::elu(x[0], x[1]); }});
  add({"celu_alpha", [](DType, const Args& x) { return nn::celu(x[0], x[1]); }});
  add({"leaky_relu_slope", [](DType, const Args& x) { return nn::leaky_relu(x[0], x[1]); }});
  add({"squareplus_b", [](DType, const Args& x) { return nn::squareplus(x[0], x[1]); }});
  add({"glu", [](DType, const Args& x) { return nn::glu(x[0]); }});
  add({"glu_axis", [](DType, const Args& x) { return nn::glu(x[0], 0); }});
  add({"logsumexp", [](DType, const Args& x) { return nn::logsumexp(x[0], 1); }});
  add({"logmeanexp", [](DType, const Args& x) { return nn::logmeanexp(x[0], 0, true); }});
  add({"softmax", [](DType t, const Args& x) { return Weighted(t, nn::softmax(x[0])); }});
  add({"log_softmax",
       [](DType t, const Args& x) { return Weighted(t, nn::log_softmax(x[0], 0)); }});
  add({.name = "standardize",
       .f = [](DType t, const Args& x) { return Weighted(t, nn::standardize(x[0])); },
       .scale = 4});
  add({"one_hot", [](DType t, const Args& x) { return nn::one_hot(x[0], 4, t); }});
  add({"one_hot_axis", [](DType t, const Args& x) { return nn::one_hot(x[0], 4, t, 0); }});

  // Attention computes its softmax in f32 even if the inputs are f64.
  const auto attend = [&](Row row) {
    row.ulps64 = row.ulps_grads = 0x1p31;
    row.ulps32 = 8;
    row.scale = 1;
    add(std::move(row));
  };
  attend({"attention", [](DType, const Args& x) { return Attention(x); }});
  attend({"attention_no_batch", [](DType, const Args& x) { return Attention(x, {.scale = 0.5}); }});
  attend(
      {"attention_causal", [](DType, const Args& x) { return Attention(x, {.is_causal = true}); }});
  attend({"attention_grouped",
          [](DType, const Args& x) { return Attention(x, {.is_causal = true}); }});
  attend({"attention_mask", [](DType, const Args& x) { return Attention(x, {.mask = x[3]}); }});
  attend({"attention_bias",
          [](DType, const Args& x) { return Attention(x, {.bias = x[3], .mask = x[4]}); }});
  attend({"attention_lengths", [](DType, const Args& x) {
            return Attention(x, {.query_seq_lengths = x[3], .key_value_seq_lengths = x[4]});
          }});
  attend({"attention_window", [](DType, const Args& x) {
            return Attention(x, {.local_window_size = {{2, 1}}});
          }});

  const auto begin = [&](const char* name, const init::Initializer& f, const Dims& shape,
                         double scale = 0) {
    add({.name = name,
         .f = [=](DType t, const Args& x) { return f(x[0], shape, t); },
         .ulps64 = 16,
         .scale = scale});
  };
  for (const auto& [name, f] :
       {std::pair("glorot_uniform", init::glorot_uniform()),
        std::pair("glorot_normal", init::glorot_normal()),
        std::pair("lecun_uniform", init::lecun_uniform()),
        std::pair("lecun_normal", init::lecun_normal()),
        std::pair("he_uniform", init::he_uniform()), std::pair("he_normal", init::he_normal())})
    begin(name, f, {5, 8});
  begin("init_zeros", {init::zeros, kF32}, {2, 3});
  begin("init_ones", {init::ones, kF32}, {2, 3});
  begin("init_constant", init::constant(0.3), {2, 3});
  begin("init_uniform", init::uniform(0.3), {4, 3});
  begin("init_normal", init::normal(0.3), {4, 3});
  begin("init_truncated_normal", init::truncated_normal(0.3, kF32, -1, 0.5), {4, 3});
  // The error of an orthogonal matrix is relative to the length of its columns, which is given.
  begin("init_orthogonal", init::orthogonal(2), {4, 3}, 2);
  begin("init_orthogonal_axis", init::orthogonal(1, 0), {2, 3, 2}, 1);
  begin("variance_scaling_geo",
        init::variance_scaling(0.7, "fan_geo_avg", "normal",
                               {.in_axis = {0, 1}, .out_axis = 3, .batch_axis = 2}),
        {2, 3, 2, 4});
  begin("variance_scaling_out", init::variance_scaling(1.5, "fan_out", "truncated_normal"),
        {3, 2, 4});

  const auto trained = [&](const char* name, const optim::GradientTransformation& optimizer) {
    // In f32, the bias corrections of the first steps, 1 - 0.999^count, lose most of their digits.
    const std::string of = name;
    const bool corrected = of.starts_with("adam") || of.starts_with("lamb") || of == "ema" ||
                           of == "rmsprop_corrected";
    add({.name = of,
         .f = [=](DType, const Args& x) { return Trained(optimizer, x); },
         .ulps64 = 8,
         .ulps32 = corrected ? 64.0 : 8.0,
         .ulps_grads = 64,
         .scale = 1});
  };
  using namespace optim;  // NOLINT(google-build-using-namespace): reads as the recorder
  trained("sgd", sgd(0.1));
  trained("sgd_momentum", sgd(0.1, 0.9));
  trained("sgd_nesterov", sgd(0.1, 0.9, true));
  trained("sgd_schedule", sgd(cosine_decay_schedule(0.1, 4)));
  trained("adam", adam(0.1));
  trained("adam_nesterov", adam(0.1, {.b1 = 0.8, .b2 = 0.99, .eps = 1e-4, .nesterov = true}));
  trained("adam_eps_root", adam(0.1, {.eps_root = 1e-3}));
  trained("adamw", adamw(0.1));
  trained("adamw_mask", adamw(0.1, {.weight_decay = 0.5, .mask = Prefix<bool>{true, false}}));
  trained("adamw_mask_function",
          adamw(0.1, {.weight_decay = 0.5, .mask = [](const Array& p) { return p.rank() > 1; }}));
  trained("rmsprop", rmsprop(0.1));
  trained("rmsprop_centered",
          rmsprop(0.1, {.initial_scale = 2, .centered = true, .momentum = 0.9, .nesterov = true}));
  trained("rmsprop_corrected",
          rmsprop(0.1, {.eps_in_sqrt = false, .momentum = 0.5, .bias_correction = true}));
  trained("adagrad", adagrad(0.1));
  trained("lion", lion(0.1));
  trained("lamb", lamb(0.1, {.weight_decay = 0.1}));
  trained("lamb_eps", chain(scale_by_trust_ratio(1.5, 0.5, 0.1), scale(-0.1)));
  trained("clip", chain(optim::clip(0.5), sgd(0.1)));
  trained("clip_by_global_norm", chain(clip_by_global_norm(2), sgd(0.1)));
  trained("ema", chain(ema(0.9), scale(-0.1)));
  trained("ema_biased", chain(ema(0.9, false), scale(-0.1)));
  trained("decayed_by_schedule",
          chain(add_decayed_weights(linear_schedule(0.5, 0.1, 3)), sgd(0.1)));
  trained("inverse", chain(identity(), scale_by_learning_rate(0.1, false)));
  add({"global_norm", [](DType, const Args& x) { return global_norm(Params{x[0], x[1]}); }});
  add({"incremental_update",
       [](DType, const Args& x) { return incremental_update(x[0], x[1], 0.3); }});

  const auto scheduled = [&](const char* name, const Schedule& f) {
    add({name, [=](DType, const Args& x) { return f(x[0]); }});
  };
  scheduled("constant_schedule", constant_schedule(0.3));
  scheduled("linear_schedule", linear_schedule(0.3, 0.05, 7, 3));
  scheduled("polynomial_schedule", polynomial_schedule(0.3, 0.05, 2.5, 8));
  scheduled("exponential_decay", exponential_decay(0.3, 4, 0.5));
  scheduled("exponential_staircase", exponential_decay(0.3, 4, 0.5, 2, true, 0.1));
  scheduled("exponential_growth", exponential_decay(0.3, 4, 1.5, 0, false, 0.8));
  scheduled("cosine_decay_schedule", cosine_decay_schedule(0.3, 10, 0.1, 1.5));
  scheduled("warmup_cosine_decay_schedule", warmup_cosine_decay_schedule(0, 0.3, 4, 12, 0.03));
  scheduled("piecewise_constant_schedule", piecewise_constant_schedule(0.3, {{4, 0.5}, {9, 0.1}}));
  scheduled("join_schedules", join_schedules({linear_schedule(0.1, 0.3, 4), constant_schedule(0.2),
                                              exponential_decay(0.3, 2, 0.5)},
                                             {5, 8}));

  add({"l2_loss", [](DType, const Args& x) { return l2_loss(x[0], x[1]); }});
  add({"l2_loss_errors", [](DType, const Args& x) { return l2_loss(x[0]); }});
  add({"huber_loss", [](DType, const Args& x) { return huber_loss(x[0], x[1], 0.7); }});
  add({"softmax_cross_entropy",
       [](DType, const Args& x) { return softmax_cross_entropy(x[0], x[1]); }});
  add({"softmax_cross_entropy_axis",
       [](DType, const Args& x) { return softmax_cross_entropy(x[0], x[1], 0); }});
  add({"integer_labels",
       [](DType, const Args& x) { return softmax_cross_entropy_with_integer_labels(x[0], x[1]); }});
  add({"integer_labels_axis", [](DType, const Args& x) {
         return softmax_cross_entropy_with_integer_labels(x[0], x[1], 0);
       }});
  add({"sigmoid_binary_cross_entropy",
       [](DType, const Args& x) { return sigmoid_binary_cross_entropy(x[0], x[1]); }});

  for (Row& row : rows)
    if (row.name == "log1mexp") row.ulps64 = 8;
  return rows;
}

}  // namespace

const std::vector<Row>& Rows() {
  static const auto* const kRows = new std::vector<Row>(MakeRows());
  return *kRows;
}

}  // namespace tessera::nn_rows
