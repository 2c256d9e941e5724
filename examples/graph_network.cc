// A graph network finds the communities of a graph from a few nodes whose community is known.
// In each layer every node sends a message along its edges: `take` reads the messages of all edges,
// and `segment_sum` adds up the messages that arrive at each node. Reference: Kipf and Welling,
// "Semi-supervised classification with graph convolutional networks" (2017).
//
//   graph_network                       on four CPU devices inside this process
//   graph_network --nodes 4096
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "client/tessera.h"
#include "examples/command_line.h"

namespace tessera::examples {

struct Network {
  Array w1, w2;
};
TESSERA_TREE(Network, w1, w2)
struct Graph {
  Array from, to;   // s32[edges]; each edge is listed in both directions
  Array degree;     // f32[nodes, 1]; counts an edge of each node to itself
  Array features;   // f32[nodes, kFeatures]
  Array community;  // s32[nodes]
  Array known;      // bool[nodes]; whether the training may use the node's community
};
TESSERA_TREE(Graph, from, to, degree, features, community, known)

namespace {

constexpr int64_t kCommunities = 4, kFeatures = 16, kHidden = 16;
constexpr int64_t kEdges = 8;     // edges that begin at each node
constexpr double kInside = 0.85;  // the part of the edges that stay inside a community

// Returns for each node a weighted sum of x over the node and its neighbours. The weights depend on
// the degrees of both ends of an edge, so that the operator is symmetric.
Array SumOverNeighbours(const Graph& g, const Array& x) {
  const Array scaled = x * lax::rsqrt(g.degree);
  const Array received = segment_sum(take(scaled, g.from, 0), g.to, x.shape()[0]);
  return (received + scaled) * lax::rsqrt(g.degree);
}
Array Logits(const Network& p, const Graph& g) {
  const Array hidden = relu(SumOverNeighbours(g, matmul(g.features, p.w1)));
  return SumOverNeighbours(g, matmul(hidden, p.w2));
}
// Returns the loss over the nodes whose community is known.
Array Loss(const Network& p, const Graph& g) {
  const Array log_p = log_softmax(Logits(p, g));
  const Array own_log_p = squeeze(take_along_axis(log_p, expand_dims(g.community, 1), 1), 1);
  return -sum(where(g.known, own_log_p, 0)) / sum(g.known.astype(kF32));
}

struct State {
  Network params;
  optim::OptState<Network> opt_state;
};
TESSERA_TREE(State, params, opt_state)
optim::GradientTransformation Optimizer() { return optim::adam(1e-2); }
std::pair<State, Array> Step(const State& state, const Graph& g) {
  const auto [loss, grads] = value_and_grad(Loss)(state.params, g);
  const auto [updates, opt_state] = Optimizer().update(grads, state.opt_state);
  return {{optim::apply_updates(state.params, updates), opt_state}, loss};
}
// Returns the accuracy over the nodes whose community is not known.
Array Accuracy(const Network& p, const Graph& g) {
  const Array correct = equal(argmax(Logits(p, g), 1), g.community).astype(kF32);
  return sum(where(g.known, 0, correct)) / sum(where(g.known, 0, ones_like(correct)));
}

// Makes a graph of nodes in communities. Most edges lie inside a community. The community of one
// node in eight is known. The features are noise, so that only the edges show a node's community.
Graph MakeGraph(int64_t nodes) {
  const Array keys = random::split(random::key(3), 4);
  const auto n = static_cast<int32_t>(nodes);
  const Array node = arange(nodes);
  const Array community = lax::rem(node, static_cast<int32_t>(kCommunities));
  const Array begin = reshape(broadcast_to(expand_dims(node, 1), {nodes, kEdges}), {-1});
  // An edge ends at a node of the same community, or at any node.
  const Array offsets = random::randint(keys[0], begin.shape(), 0, n / kCommunities);
  const Array inside_end = lax::rem(begin + static_cast<int32_t>(kCommunities) * offsets, n);
  const Array any_end = random::randint(keys[1], begin.shape(), 0, n);
  const Array end = where(random::bernoulli(keys[2], kInside, begin.shape()), inside_end, any_end);
  Graph g;
  g.from = concatenate({begin, end});
  g.to = concatenate({end, begin});
  g.degree = expand_dims(segment_sum(ones(g.to.shape()), g.to, nodes) + 1, 1);
  g.features = random::normal(keys[3], {nodes, kFeatures});
  g.community = community;
  g.known = equal(lax::rem(lax::div(node, static_cast<int32_t>(kCommunities)), 8), 0);
  return g;
}

struct Flags {
  ClusterFlags cluster;
  int64_t nodes = 512, steps = 200;
  double min_accuracy = 1;
};
const std::string kUsage = std::string("usage: graph_network [options]\n") + kClusterUsage +
                           "  --nodes N               a multiple of 4 (512)\n"
                           "  --steps N               (200)\n"
                           "  --min-accuracy PERCENT  exit code 1 below it\n";

// Makes the graph, trains the network on the known nodes, and prints the accuracy on the others.
// Edges are sharded over all devices because there are many of them; the nodes' arrays and the
// parameters are replicated. Returns 1 if the accuracy is below --min-accuracy.
int Run(int argc, char** argv) {
  Flags flags;
  std::vector<Option> options = flags.cluster.Options();
  options.insert(options.end(), {{"--nodes", &flags.nodes},
                                 {"--steps", &flags.steps},
                                 {"--min-accuracy", &flags.min_accuracy}});
  ParseOptions(argc, argv, options);
  if (flags.nodes % kCommunities != 0) throw UsageError("--nodes: a multiple of 4 is expected");
  const Cluster cluster = OpenCluster(flags.cluster);
  const Mesh& mesh = cluster.mesh;

  // The edges are sharded over all devices, and every device has all nodes.
  Graph g = MakeGraph(flags.nodes);
  for (Array* edges : {&g.from, &g.to}) *edges = put(*edges, mesh, P({"data", "model"}));
  for (Array* nodes : {&g.degree, &g.features, &g.community, &g.known})
    *nodes = put(*nodes, mesh, P());

  const Array keys = random::split(random::key(4), 2);
  const auto random_weights = [&](int64_t i, Dims shape) {
    const double scale = 1 / std::sqrt(static_cast<double>(shape[0]));
    return put(random::normal(keys[i], std::move(shape)) * scale, mesh, P());
  };
  const Network first{random_weights(0, {kFeatures, kHidden}),
                      random_weights(1, {kHidden, kCommunities})};
  State state{first, Optimizer().init(first)};

  const auto step = jit(Step, {.name = "train_step", .donate_argnums = {0}});
  const auto accuracy_of = jit(Accuracy);
  double accuracy = 0;
  for (int64_t i = 1; i <= flags.steps; ++i) {
    auto [next, loss] = step(state, g);
    state = next;
    if (i % 50 != 0 && i != flags.steps) continue;
    accuracy = 100.0 * accuracy_of(state.params, g).item<float>();
    std::printf("step %lld/%lld  loss %.3f  accuracy %.1f%%\n", static_cast<long long>(i),
                static_cast<long long>(flags.steps), loss.item<float>(), accuracy);
    std::fflush(stdout);
  }
  return accuracy < flags.min_accuracy ? 1 : 0;
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;  // NOLINT(google-build-using-namespace): main is outside
  return Main("graph_network", kUsage, Run, argc, argv);
}
