// Adam (Kingma and Ba, 2015) on a tree of parameters, as functions to use inside a jitted step.
#pragma once
#include <cmath>
#include <utility>

#include "client/tessera.h"

namespace tessera::examples {

struct AdamOptions {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
};

// The parameters, their two moments, and the number of steps as a float scalar.
template <class Params>
struct AdamState {
  Params params, m, v;
  Array step;
};
template <class Params, class Sink>
void TesseraTreeWalk(AdamState<Params>& s, Sink& sink) {
  sink("params", s.params);
  sink("m", s.m);
  sink("v", s.v);
  sink("step", s.step);
}
template <class Params, class Sink>
void TesseraTreeWalk(const AdamState<Params>& s, Sink& sink) {
  sink("params", s.params);
  sink("m", s.m);
  sink("v", s.v);
  sink("step", s.step);
}
template <class Params>
const char* TesseraTreeName(const AdamState<Params>*) {
  return "AdamState";
}

template <class Params>
AdamState<Params> AdamStep(const AdamState<Params>& s, const Params& grads,
                           const AdamOptions& o = {}) {
  AdamState<Params> next = s;
  next.step = s.step + 1;
  next.m = tree_map([&](Array m, Array g) { return o.beta1 * m + (1 - o.beta1) * g; }, s.m, grads);
  next.v =
      tree_map([&](Array v, Array g) { return o.beta2 * v + (1 - o.beta2) * g * g; }, s.v, grads);
  // Corrects the bias of moments that start at zero.
  const Array c1 = 1 - power(o.beta1, next.step), c2 = 1 - power(o.beta2, next.step);
  next.params =
      tree_map([&](Array p, Array m,
                   Array v) { return p - o.learning_rate * (m / c1) / (sqrt(v / c2) + o.epsilon); },
               s.params, next.m, next.v);
  return next;
}

}  // namespace tessera::examples
