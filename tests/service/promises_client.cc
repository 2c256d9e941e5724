// A program that uses the SDK and that promises.py and suspicion.py start. promises.py examines
// what the program leaves behind on the cluster, and suspicion.py what happens to a training.
//
//   promises_client hold MIB      puts an array of that size on one device and then returns from
//                                 main while the array is still held, as many programs do
//   promises_client queue COUNT   starts COUNT runs of several minutes each and waits for the last
//   promises_client train DEVICES [STEPS]
//                                 trains a small network on these devices ("0,1") and prints the
//                                 exact loss of each step, one a line. Without STEPS it makes about
//                                 ten steps a second until its input ends.
//
// It works over the default session, on the cluster that TESSERA_ADDRESS names, and prints "ready".
#include <poll.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/tessera.h"

namespace tessera {

// The parameters of the network that `train` trains.
struct SmallNet {
  Array hidden, bias, output;
};
TESSERA_TREE(SmallNet, hidden, bias, output)

namespace {

void SayReady() {
  std::puts("ready");
  std::fflush(stdout);
}

void Hold(int64_t mebibytes) {
  const Mesh mesh = make_mesh({1}, {"i"}, {AxisType::kAuto});
  static const Array* const kept = new Array(put(ir::Array(kF32, {mebibytes << 18}), mesh, P("i")));
  kept->wait(absl::Seconds(60));
  SayReady();
}

void Queue(int64_t count) {
  const auto devices = static_cast<int64_t>(Session::Default()->devices().size());
  const Mesh mesh = make_mesh({devices}, {"i"}, {AxisType::kAuto});
  const auto steps = jit([mesh](Array x) {
    return shard_map(
        [](Array b) {
          const auto step = [](Array c, NoneType) {
            return std::make_pair(sin(c) + lax::psum(c, "i") * 0.1, std::tuple<>());
          };
          return scan(step, b, None, {.length = 100'000'000}).first;
        },
        mesh, {P("i")}, P("i"))(x);
  });
  std::vector<Array> results = {put(ones({2 * devices}), mesh, P("i"))};
  for (int64_t i = 0; i < count; ++i) results.push_back(steps(results.back()));
  SayReady();
  results.back().wait(absl::Seconds(600));
}

// Returns an array of numbers between -1 and 1 that are the same in every process.
ir::Array Numbers(const ir::Dims& dims, double seed) {
  ir::Array out(kF32, dims);
  for (int64_t i = 0; i < out.num_elements(); ++i)
    out.Set(i, std::sin(seed + 1.7 * static_cast<double>(i)));
  return out;
}

Array LossOf(const SmallNet& net, Array x, Array y) {
  return mean(square(matmul(tanh(matmul(x, net.hidden) + net.bias), net.output) - y));
}

// Waits until the input ends or the time has passed. Returns whether the input has ended.
bool InputEnds(int milliseconds) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, milliseconds) > 0;
}

// Each step takes the parameters of the step before, which it donates. Like most trainings, it
// sends some steps ahead before it reads the first of their losses.
void Train(const std::vector<int64_t>& devices, int64_t steps) {
  constexpr int64_t kPoints = 64, kFeatures = 16, kHidden = 32;
  constexpr int kPause = 100;  // milliseconds between steps, if their number is not given
  constexpr size_t kUnread = 3;
  Mesh mesh = abstract_mesh({static_cast<int64_t>(devices.size())}, {"data"}, {AxisType::kAuto});
  mesh.devices = devices;
  const Array x = put(Numbers({kPoints, kFeatures}, 1), mesh, P("data"));
  const Array y = put(Numbers({kPoints, 1}, 2), mesh, P("data"));
  SmallNet net{put(Numbers({kFeatures, kHidden}, 3), mesh, P()),
               put(Numbers({kHidden}, 4), mesh, P()), put(Numbers({kHidden, 1}, 5), mesh, P())};
  const auto step = jit(
      [](const SmallNet& now, Array points, Array values) {
        const auto [loss, grads] = value_and_grad(LossOf)(now, points, values);
        return std::make_pair(
            SmallNet{now.hidden - grads.hidden * 0.05, now.bias - grads.bias * 0.05,
                     now.output - grads.output * 0.05},
            loss);
      },
      {.name = "train_step", .donate_argnums = {0}});
  std::deque<Array> unread;
  const auto print_next = [&] {
    std::printf("%a\n", static_cast<double>(unread.front().item<float>()));
    std::fflush(stdout);
    unread.pop_front();
  };
  SayReady();
  for (int64_t i = 0; steps < 0 ? !InputEnds(kPause) : i < steps; ++i) {
    auto [next, loss] = step(net, x, y);
    net = next;
    unread.push_back(loss);
    if (unread.size() > kUnread) print_next();
  }
  while (!unread.empty()) print_next();
}

// Reads device ids that commas separate.
std::vector<int64_t> DevicesOf(const std::string& text) {
  std::vector<int64_t> devices;
  for (const auto id : absl::StrSplit(text, ',')) devices.push_back(std::stoll(std::string(id)));
  return devices;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[1] : "";
  const bool trains = mode == "train" && argc <= 4;
  if (!trains && (argc != 3 || (mode != "hold" && mode != "queue"))) {
    std::fputs("usage: promises_client hold MIB | queue COUNT | train DEVICES [STEPS]\n", stderr);
    return 2;
  }
  try {
    if (trains)
      tessera::Train(tessera::DevicesOf(argv[2]), argc == 4 ? std::atoll(argv[3]) : -1);
    else
      (mode == "hold" ? tessera::Hold : tessera::Queue)(std::atoll(argv[2]));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "promises_client: %s\n", e.what());
    return 1;
  }
}
