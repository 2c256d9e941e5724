// Attention over a text that no single device holds. Each device has the queries, keys and values
// of a part of the text. The keys and values go round a ring of devices until they have met all
// queries and are back. A device never has more than its own part and one part that passes, and
// never has scores of more than a part by a part.
// Reference: Liu, Zaharia and Abbeel, "Ring attention with blockwise transformers for near-infinite
// context" (2023).
//
//   ring_attention                     on four CPU devices inside this process
//   ring_attention --devices 8 --length 256
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "client/tessera.h"
#include "examples/command_line.h"
#include "examples/compare.h"

namespace tessera::examples {

// The loop's carry. The keys `k` and the values `v` go round the ring. The other arrays summarize
// the parts that a device has met. For each head and query they are the largest score, the sum of
// the weights exp(score - largest), and the sum of the values with these weights.
struct Ring {
  Array k, v;
  Array largest, total, out;
};
TESSERA_TREE(Ring, k, v, largest, total, out)

namespace {

constexpr int64_t kBatch = 2, kHeads = 4, kSize = 16;
constexpr double kMasked = -1e30;  // a masked score, so low that exp(score - largest) is 0

// The program of one device. Each argument is f32[batch, part, heads, size]. The attention is
// causal: no query looks at the keys that come after it.
Array RingAttention(const Array& q, const Array& k, const Array& v) {
  const int64_t devices = lax::axis_size("seq"), part = q.shape()[1];
  const Array own_index = lax::axis_index("seq"), offsets = arange(part);
  std::vector<std::pair<int64_t, int64_t>> to_the_next;
  for (int64_t i = 0; i < devices; ++i) to_the_next.push_back({i, (i + 1) % devices});

  const auto meet = [&](const Ring& ring, const Array& step) {
    const Array source = remainder(own_index - step, devices);  // the device whose part is here now
    const Array is_past = expand_dims(own_index * part + offsets, 1) >= source * part + offsets;
    const Array unmasked = einsum("bthk,bshk->bhts", {q, ring.k}) / std::sqrt(kSize);
    const Array scores = where(is_past, unmasked, kMasked);
    const Array largest = stop_gradient(maximum(ring.largest, max(scores, -1)));
    const Array weights = exp(scores - expand_dims(largest, -1));
    const Array rescale = exp(ring.largest - largest);  // the factor that scales older weights now
    const Array total = ring.total * rescale + sum(weights, -1);
    const Array values = einsum("bhts,bshk->bhtk", {weights, ring.v});
    const Array out = ring.out * expand_dims(rescale, -1) + values;
    const Array next_k = lax::ppermute(ring.k, "seq", to_the_next);
    const Array next_v = lax::ppermute(ring.v, "seq", to_the_next);
    return std::pair(Ring{next_k, next_v, largest, total, out}, None);
  };
  // A loop's carry has one type throughout. These arrays begin as constants, which are equal on all
  // devices, and then differ on each device. They are therefore cast to vary from the start.
  const auto varying = [&](const Array& x) { return lax::pcast(x, "seq", "varying"); };
  const Dims rows = {q.shape()[0], kHeads, part};
  const Ring begin{k, v, varying(full(rows, kMasked)), varying(zeros(rows)),
                   varying(zeros({rows[0], rows[1], rows[2], kSize}))};
  const Ring end = scan(meet, begin, arange(devices)).first;
  return transpose(end.out / expand_dims(end.total, -1), {0, 2, 1, 3});
}

const std::string kUsage =
    "usage: ring_attention [options]\n" + kSessionUsage +
    "  --devices N             (4)\n"
    "  --length N              of the text, a multiple of the devices (64)\n";

// Compares the ring attention with nn::dot_product_attention: its results, and the gradients of all
// three arguments. Prints the plan of the ring attention. Returns 1 if a difference is larger than
// the rounding of f32 explains.
int Run(int argc, char** argv) {
  SessionFlags flags;
  int64_t devices = 4, length = 64;
  std::vector<Option> options = flags.Options();
  options.insert(options.end(), {{"--devices", &devices}, {"--length", &length}});
  ParseOptions(argc, argv, options);
  if (length % devices != 0) throw UsageError("--length: a multiple of the devices is expected");
  const auto session = OpenSession(flags, devices);
  const Mesh mesh = make_mesh({devices}, {"seq"}, {AxisType::kAuto});

  const PartitionSpec part = P(None, "seq");
  const Array keys = random::split(random::key(0), 4);
  const auto normal = [&](int64_t i) {
    return put(random::normal(keys[i], {kBatch, length, kHeads, kSize}), mesh, part);
  };
  const Array q = normal(0), k = normal(1), v = normal(2), weights = normal(3);

  const auto ring = shard_map(RingAttention, mesh, {part, part, part}, part);
  const auto plain = [](const Array& q, const Array& k, const Array& v) {
    return nn::dot_product_attention(q, k, v, {.is_causal = true});
  };
  // The function uses all results, so that every result takes part in the gradient.
  const auto gradient = [&](const auto& attention) {
    return jit(grad<0, 1, 2>([&](const Array& q, const Array& k, const Array& v) {
      return sum(weights * attention(q, k, v));
    }));
  };
  const auto jitted_ring = jit(ring);
  std::printf("%s\n", explain(jitted_ring, q, k, v).c_str());

  constexpr double kBound = 1e-5;  // rounding of f32 when numbers are added in another order
  const double values = LargestRelativeDifference(jitted_ring(q, k, v), jit(plain)(q, k, v));
  const double gradients =
      LargestRelativeDifference(gradient(ring)(q, k, v), gradient(plain)(q, k, v));
  std::printf(
      "ring and plain attention differ by %.1e of the largest, their gradients by %.1e "
      "(bound %.0e)\n",
      values, gradients, kBound);
  return values <= kBound && gradients <= kBound ? 0 : 1;
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;  // NOLINT(google-build-using-namespace): main is outside
  return Main("ring_attention", kUsage, Run, argc, argv);
}
