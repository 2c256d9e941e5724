// The client that two_machines_test starts on a machine of its own. It runs the 2x2 demo over both
// workers and then sends an array to the cluster and reads it back. It prints its results; any
// error ends it with a message.
//
//   two_machines_client ADDRESS CA_FILE TOKEN_FILE MEBIBYTES
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "client/tessera.h"
#include "ir/api/crc32c.h"

namespace tessera {
namespace {

std::string ReadText(const char* path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return std::string(absl::StripAsciiWhitespace(text.str()));
}

void Check(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// Computes a product whose factors are sharded over both mesh axes, so that devices of both
// machines have to exchange data.
void Demo() {
  constexpr int64_t kSize = 64;
  const Mesh mesh = make_mesh({2, 2}, {"data", "model"}, {AxisType::kAuto, AxisType::kAuto});
  std::vector<double> a(kSize * kSize), b(kSize * kSize);
  for (int64_t i = 0; i < kSize * kSize; ++i) {
    a[i] = static_cast<double>(i % 7);
    b[i] = static_cast<double>(i % 5);
  }
  const ir::Dims shape = {kSize, kSize};
  const Array x = put(ir::Array::Of(kF32, shape, a), mesh, P("data", "model"));
  const Array y = put(ir::Array::Of(kF32, shape, b), mesh, P("model", None));
  const ir::Array got = jit([](Array p, Array q) { return sum(matmul(p, q), 1); })(x, y).value();
  for (int64_t r = 0; r < kSize; ++r) {
    double want = 0;
    for (int64_t k = 0; k < kSize; ++k)
      for (int64_t c = 0; c < kSize; ++c) want += a[r * kSize + k] * b[k * kSize + c];
    Check(got.At(r) == want, "the demo's row " + std::to_string(r) + " is wrong");
  }
  std::printf("demo: 2x2 agrees\n");
}

void PutAndGet(Session& session, int64_t mebibytes) {
  ir::Array value(ir::DType::kU32, {mebibytes << 18});
  std::minstd_rand random(3);
  for (uint32_t& word : value.MutableAs<uint32_t>()) word = static_cast<uint32_t>(random());
  const auto bytes = static_cast<size_t>(value.num_bytes());
  const uint32_t crc = api::Crc32c(0, value.data(), bytes);
  api::Placement placement;
  placement.mesh.axes = {{"x", 4}};
  placement.spec.dims = {{"x"}};
  placement.devices = {0, 1, 2, 3};
  const absl::Time start = absl::Now();
  const absl::StatusOr<uint64_t> array = session.service().Put(value, placement);
  Check(array.ok(), "put: " + array.status().ToString());
  value = ir::Array();  // Frees the memory before as much data comes back.
  const absl::Time put_end = absl::Now();
  const absl::StatusOr<ir::Array> back = session.service().Get(*array, absl::Seconds(60));
  Check(back.ok(), "get: " + back.status().ToString());
  const absl::Time get_end = absl::Now();
  Check(
      static_cast<size_t>(back->num_bytes()) == bytes && api::Crc32c(0, back->data(), bytes) == crc,
      "the bytes that came back are others");
  std::printf("array: %lld MiB, put %.1f s, get %.1f s, crc32c %08x\n",
              static_cast<long long>(mebibytes), absl::ToDoubleSeconds(put_end - start),
              absl::ToDoubleSeconds(get_end - put_end), crc);
}

void Run(char** argv) {
  ConnectOptions options;
  options.ca_file = argv[2];
  options.token = ReadText(argv[3]);
  options.min_devices = 4;
  const auto session = Session::Connect(argv[1], options);
  Session::SetDefault(session);
  Demo();
  PutAndGet(*session, std::atoll(argv[4]));
  Session::SetDefault(nullptr);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: two_machines_client ADDRESS CA_FILE TOKEN_FILE MEBIBYTES\n");
    return 2;
  }
  try {
    tessera::Run(argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "two_machines_client: %s\n", e.what());
    return 1;
  }
  return 0;
}
