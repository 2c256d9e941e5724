// Measures the throughput of transfers. Put and get of one array over loopback are compared with a
// plain gRPC stream of chunks of the same size. The receiving end of the plain stream stores the
// bytes or, in a second measurement, drops them. This program also measures an all-reduce between
// the sockets of two executors, in plain text and with TLS, and sums of scalars over many devices.
//
//   bench-transfer [--mib N] [--rounds N] [--smoke] [--bin-dir DIR]
//
// The cases are interleaved, so that other load on the machine affects all of them. The best round
// of each case counts.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/pki.h"
#include "base/status.h"
#include "bench/flags.h"
#include "bench/process.h"
#include "client/tessera.h"
#include "grpcpp/grpcpp.h"
#include "ir/api/identity.h"
#include "tessera/v1/data.grpc.pb.h"
#include "worker/collectives/host_collectives.h"
#include "worker/collectives/socket.h"
#include "worker/collectives/tls.h"

namespace tessera::bench {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(30);
constexpr int64_t kChunkBytes = 1 << 20;
constexpr int kMessageBytes = 8 << 20;

struct Flags {
  int64_t mib = 1024;
  int rounds = 5;
  int64_t reduce_mib = 64;
  std::string bin_dir = OwnFolder();
};

double GigabytesPerSecond(int64_t bytes, absl::Duration took) {
  return static_cast<double>(bytes) / 1e9 / absl::ToDoubleSeconds(took);
}
double ThroughputOf(int64_t bytes, const std::function<void()>& f) {
  const absl::Time start = absl::Now();
  f();
  return GigabytesPerSecond(bytes, absl::Now() - start);
}

// ---- The plain stream, which uses the messages of DataService. ----------------------------------

// Receives bytes. Copies them into a new array of `bytes` bytes, as an upload and a download must,
// or drops them if `bytes` is 0.
class Receiver {
 public:
  explicit Receiver(int64_t bytes) : memory_(bytes > 0 ? NewHostMemory(bytes) : nullptr) {}
  void Take(const std::string& data) {
    if (memory_ != nullptr) std::memcpy(memory_.get() + received_, data.data(), data.size());
    received_ += static_cast<int64_t>(data.size());
  }
  int64_t received() const { return received_; }

 private:
  std::shared_ptr<std::byte[]> memory_;
  int64_t received_ = 0;
};

class PlainService final : public v1::DataService::Service {
 public:
  grpc::Status Write(grpc::ServerContext*, grpc::ServerReader<v1::WriteRequest>* reader,
                     v1::WriteResponse* response) override {
    v1::WriteRequest request;
    std::unique_ptr<Receiver> receiver;
    while (reader->Read(&request)) {
      // The offset in the first message is the number of bytes to store.
      if (receiver == nullptr) receiver = std::make_unique<Receiver>(request.offset());
      receiver->Take(request.data());
    }
    response->set_committed_bytes(receiver == nullptr ? 0 : receiver->received());
    return grpc::Status::OK;
  }
  // Sends as many bytes as the request's `offset` says.
  grpc::Status Read(grpc::ServerContext*, const v1::ReadRequest* request,
                    grpc::ServerWriter<v1::ReadResponse>* writer) override {
    v1::ReadResponse response;
    for (int64_t left = request->offset(); left > 0; left -= kChunkBytes) {
      response.mutable_data()->resize(static_cast<size_t>(std::min(left, kChunkBytes)));
      writer->Write(response);
    }
    return grpc::Status::OK;
  }
};

int ServePlain() {
  PlainService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(kMessageBytes);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  std::cout << "127.0.0.1:" << port << std::endl;
  server->Wait();
  return 0;
}

class PlainClient {
 public:
  explicit PlainClient(const std::string& address) {
    grpc::ChannelArguments args;
    args.SetMaxReceiveMessageSize(kMessageBytes);
    stub_ = v1::DataService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args));
  }
  void Put(const ir::Array& value, bool keep) {
    grpc::ClientContext context;
    v1::WriteResponse response;
    const auto writer = stub_->Write(&context, &response);
    v1::WriteRequest request;
    request.set_offset(keep ? value.num_bytes() : 0);
    for (int64_t at = 0; at < value.num_bytes(); at += kChunkBytes) {
      const int64_t size = std::min(kChunkBytes, value.num_bytes() - at);
      request.set_data(value.data() + at, static_cast<size_t>(size));
      writer->Write(request);
    }
    writer->WritesDone();
    TESSERA_CHECK(writer->Finish().ok());
    TESSERA_CHECK_EQ(response.committed_bytes(), value.num_bytes());
  }
  void Get(int64_t bytes, bool keep) {
    grpc::ClientContext context;
    v1::ReadRequest request;
    request.set_offset(bytes);
    const auto reader = stub_->Read(&context, request);
    v1::ReadResponse response;
    Receiver receiver(keep ? bytes : 0);
    while (reader->Read(&response)) receiver.Take(response.data());
    TESSERA_CHECK(reader->Finish().ok());
    TESSERA_CHECK_EQ(receiver.received(), bytes);
  }

 private:
  std::unique_ptr<v1::DataService::Stub> stub_;
};

// ---- All-reduce between two executors. ----------------------------------------------------------

struct Listener {
  Listener() : fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    TESSERA_CHECK(bind(fd.get(), generic, size) == 0 && listen(fd.get(), 8) == 0 &&
                  getsockname(fd.get(), generic, &size) == 0);
    endpoint = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  UniqueFd fd;
  std::string endpoint;
};

// Executors in this process with the same number of ranks each.
class Executors {
 public:
  // Makes the collectives of each executor with the configuration that a coordinator would send.
  // The listeners are made first, because every configuration names the endpoints of all executors.
  // With TLS each executor gets a certificate like a worker's, all from one CA, because the
  // executors check the names in each other's certificates.
  Executors(int count, int ranks_each, bool tls) : listeners_(count), ranks_each_(ranks_each) {
    const pki::Credential ca = *pki::MakeCa("bench", absl::Now());
    for (int e = 0; e < count; ++e) {
      worker::CommunicatorConfig config;
      config.generation = 1;
      config.secret = "secret";
      config.timeout = absl::Seconds(30);
      for (int rank = 0; rank < count * ranks_each; ++rank) {
        const int m = rank / ranks_each;
        if (m == e) config.local_ranks.push_back(rank);
        config.ranks.push_back(
            {rank, absl::StrCat("w", m, "/0"), 1, listeners_[m].endpoint, "here"});
      }
      if (tls) {
        pki::CertificateSpec spec;
        spec.common_name = absl::StrCat("w", e);
        spec.dns = {api::kWorkerServerName};
        spec.uris = {absl::StrCat(api::kWorkerUriPrefix, spec.common_name)};
        const auto own = pki::Issue(ca, spec, absl::Now());
        TESSERA_CHECK(own.ok()) << own.status();
        config.tls = *worker::MakeTlsContext(own->cert_pem, own->key_pem, ca.cert_pem);
      }
      executors_.push_back(worker::MakeCollectives(config, listeners_[e].fd.get()));
    }
    group_.resize(count * ranks_each);
    std::iota(group_.begin(), group_.end(), 0);
  }
  ~Executors() {
    std::vector<std::thread> threads;
    for (auto& executor : executors_) threads.emplace_back([&executor] { executor.reset(); });
    for (std::thread& t : threads) t.join();
  }
  // Makes `count` consecutive all-reduces of arrays of `bytes` bytes, and returns rank 0's times.
  std::vector<absl::Duration> AllReduce(int64_t bytes, int count = 1) {
    std::vector<absl::Duration> took;
    ++launch_;
    std::vector<std::thread> threads;
    for (const int rank : group_) {
      threads.emplace_back([&, rank] {
        std::vector<float> in(static_cast<size_t>(bytes) / 4, 1.0f), out(in.size());
        for (int i = 0; i < count; ++i) {
          const worker::CallKey key{launch_, static_cast<uint32_t>(i), "psum", "bench"};
          const absl::Time began = absl::Now();
          const absl::Status status = executors_[rank / ranks_each_]->Run(
              {.kind = ir::CollectiveKind::kAllReduce,
               .rank = rank,
               .group = group_,
               .key = key,
               .in = {reinterpret_cast<const std::byte*>(in.data()), in.size() * 4},
               .out = {reinterpret_cast<std::byte*>(out.data()), out.size() * 4},
               .reduce = ir::ReduceKind::kSum,
               .dtype = ir::DType::kF32});
          TESSERA_CHECK(status.ok()) << status;
          TESSERA_CHECK_EQ(out.back(), static_cast<float>(group_.size()));
          if (rank == 0) took.push_back(absl::Now() - began);
        }
      });
    }
    for (std::thread& t : threads) t.join();
    return took;
  }

 private:
  std::vector<Listener> listeners_;
  const int ranks_each_;
  std::vector<int> group_;
  std::vector<std::unique_ptr<worker::Collectives>> executors_;
  uint64_t launch_ = 0;
};

void PrintRow(const char* what, double ours, const char* other, double theirs) {
  std::printf("%-28s %6.2f GB/s   %-26s %6.2f GB/s   ratio %.2f\n", what, ours, other, theirs,
              ours / theirs);
}

void MeasureCollectives(const Flags& flags) {
  Executors plain_text(2, 1, /*tls=*/false), tls(2, 1, /*tls=*/true);
  const int64_t bytes = flags.reduce_mib << 20;
  double plain_rate = 0, tls_rate = 0;
  for (int round = 0; round < flags.rounds + 1; ++round) {
    plain_rate = std::max(plain_rate, ThroughputOf(bytes, [&] { plain_text.AllReduce(bytes); }));
    tls_rate = std::max(tls_rate, ThroughputOf(bytes, [&] { tls.AllReduce(bytes); }));
  }
  std::printf("all-reduce of %lld MiB between two executors, bytes of the array per second\n",
              static_cast<long long>(flags.reduce_mib));
  PrintRow("with TLS", tls_rate, "plain text", plain_rate);

  for (const int devices : {16, 64, 256}) {
    Executors executors(4, devices / 4, /*tls=*/false);
    executors.AllReduce(sizeof(float));  // opens the connections
    std::vector<absl::Duration> took = executors.AllReduce(sizeof(float), 4 * flags.rounds);
    std::sort(took.begin(), took.end());
    std::printf("psum of a scalar over %3d devices on 4 executors, median: %6.2f ms\n", devices,
                absl::ToDoubleMilliseconds(took[took.size() / 2]));
  }
}

// Starts the plain stream's server, a coordinator and a worker, measures put and get beside the
// plain stream, and then the collectives. The server of the plain stream is a process of its own,
// as the worker is. After each get, the bytes are compared with those that were put; this is not
// part of the measured times.
absl::Status Run(const Flags& flags) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  TESSERA_ASSIGN_OR_RETURN(Process plain, Process::Start({self, "--plain"}));
  TESSERA_ASSIGN_OR_RETURN(const std::string plain_address, plain.ReadLine(kStartLimit));
  TESSERA_ASSIGN_OR_RETURN(
      Process coordinator,
      Process::Start({flags.bin_dir + "/tessera-coordinator", "--listen", "127.0.0.1:0"}));
  TESSERA_ASSIGN_OR_RETURN(std::string address, coordinator.ReadLine(kStartLimit));
  address = address.substr(std::strlen("listening on "));
  TESSERA_ASSIGN_OR_RETURN(
      Process worker,
      Process::Start({flags.bin_dir + "/tessera-worker", "--coordinator", address, "--name", "w0",
                      "--devices", "1", "--data-listen", "127.0.0.1:0", "--peer-listen",
                      "127.0.0.1:0", "--device-memory-bytes",
                      absl::StrCat((16 * flags.mib) << 20)}));
  ConnectOptions options;
  options.min_devices = 1;
  const auto session = Session::Connect(address, options);

  const int64_t bytes = flags.mib << 20;
  ir::Array value(ir::DType::kU32, {bytes / 4});
  for (int64_t i = 0; i < bytes / 4; i += 1024) {
    value.MutableAs<uint32_t>()[static_cast<size_t>(i)] = static_cast<uint32_t>(i);
  }
  PlainClient client(plain_address);
  double put_rate = 0, get_rate = 0, plain_put_rates[2] = {}, plain_get_rates[2] = {};
  for (int round = 0; round < flags.rounds; ++round) {
    uint64_t array = 0;
    put_rate = std::max(put_rate, ThroughputOf(bytes, [&] {
                          array = *session->service().Put(value, {ir::Mesh{{{"x", 1}}}, {}, {0}});
                        }));
    for (const bool keep : {false, true})
      plain_put_rates[keep] =
          std::max(plain_put_rates[keep], ThroughputOf(bytes, [&] { client.Put(value, keep); }));
    ir::Array back;
    get_rate = std::max(get_rate, ThroughputOf(bytes, [&] {
                          back = *session->service().Get(array, absl::Minutes(1));
                        }));
    TESSERA_CHECK(back == value) << "other bytes came back";
    back = ir::Array();
    for (const bool keep : {false, true})
      plain_get_rates[keep] =
          std::max(plain_get_rates[keep], ThroughputOf(bytes, [&] { client.Get(bytes, keep); }));
    TESSERA_RETURN_IF_ERROR(session->service().Delete({&array, 1}));
  }
  std::printf("%lld MiB in chunks of 1 MiB over loopback, best of %d\n",
              static_cast<long long>(flags.mib), flags.rounds);
  PrintRow("put", put_rate, "plain stream up, kept", plain_put_rates[true]);
  PrintRow("put", put_rate, "plain stream up, dropped", plain_put_rates[false]);
  PrintRow("get", get_rate, "plain stream down, kept", plain_get_rates[true]);
  PrintRow("get", get_rate, "plain stream down, dropped", plain_get_rates[false]);
  MeasureCollectives(flags);
  return absl::OkStatus();
}

// Reads the flags and runs the benchmark. The program also runs itself as the server of the plain
// stream, with --plain. Returns 2 if a flag is wrong and 1 if the benchmark fails.
int Main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--plain") == 0) return ServePlain();
  Flags flags;
  FlagParser parser("bench-transfer",
                    "Measures the throughput of transfers and of sums over the network.");
  parser.AddNumber("--mib", &flags.mib, "size of the array that is put and read, in MiB");
  parser.AddNumber("--rounds", &flags.rounds, "number of rounds");
  parser.AddAction(
      "--smoke",
      [&flags] {
        flags.mib = 16;
        flags.rounds = 1;
        flags.reduce_mib = 4;
      },
      "runs short, as a test");
  parser.AddText("--bin-dir", "DIR", &flags.bin_dir, "folder with the daemons");
  if (const std::optional<int> status = parser.Parse(argc, argv)) return *status;
  if (const absl::Status status = Run(flags); !status.ok()) {
    std::fprintf(stderr, "bench-transfer: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::Main(argc, argv); }
