// Writes the PTX of every kernel that a GPU loads for the samples of all ops, for random programs
// and for device programs in text files. scripts/assemble_kernels assembles it.
//
//   write_ptx FOLDER ARCHITECTURE [FILE...]     ARCHITECTURE is 80 or 90
//
// The programs are compiled by the device backend and loaded by the CUDA plugin, as on a GPU. The
// driver is a fake one that keeps the PTX and runs nothing. Each op has a subfolder of its own, and
// so have "random_programs" and each folder that holds files. A sample is one op with given
// attributes and operands (samples.h).
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/file.h"
#include "base/status_exception.h"
#include "ir/op_def.h"
#include "ir/registry.h"
#include "ir/text.h"
#include "tests/ops/planned.h"
#include "tests/ops/programs.h"
#include "tests/ops/samples.h"
#include "worker/cuda/testing/fakes.h"
#include "worker/device/device_backend.h"

namespace tessera::ir::samples {
namespace {

// Returns the program that a device runs for the sample. For a sample on a mesh that has axes other
// than Manual ones, this is the device program of a plan.
FunctionRef DeviceProgramOf(const Sample& s) {
  FunctionRef f = FunctionOf(s);
  if (s.scope.mesh.empty() || s.manual()) return f;
  std::vector<Array> whole;
  for (const Shards& shards : ArgsOf(s)) whole.push_back(shards[0]);
  return PlanOf({kOpset, f, {}, {}}, whole).plan.device_program;
}

class Writer {
 public:
  Writer(std::filesystem::path folder, worker::Backend* backend)
      : folder_(std::move(folder)), backend_(backend) {}

  // Compiles the program that `make` returns, and has the PTX written to the subfolder `name`.
  void Write(const std::string& name, const std::string& what,
             const std::function<Program()>& make) {
    const std::filesystem::path folder = folder_ / name;
    std::filesystem::create_directories(folder);
    setenv("TESSERA_FAKE_PTX_FOLDER", folder.c_str(), /*overwrite=*/1);
    const absl::Status status = CatchStatus([&] { ValueOrThrow(backend_->Compile(make())); });
    if (status.ok()) return;
    std::cerr << what << ": " << status << "\n";
    failed_ = true;
  }
  bool failed() const { return failed_; }

 private:
  const std::filesystem::path folder_;
  worker::Backend* const backend_;
  bool failed_ = false;
};

// Compiles all programs of all kinds. A program that does not compile is reported and does not stop
// the others, so that one run shows every failure.
int Main(const std::vector<std::string>& args) {
  int architecture = 0;
  if (args.size() < 2 || !absl::SimpleAtoi(args[1], &architecture)) {
    std::cerr << "usage: write_ptx FOLDER ARCHITECTURE [FILE...]\n";
    return 2;
  }
  const tessera_device_api& api = worker::cuda::FakeDevices();
  worker::cuda::SetFake("ptx", architecture);
  worker::cuda::SetFake("compute_capability", architecture);
  const std::shared_ptr<worker::Backend> backend =
      ValueOrThrow(worker::device::MakeDeviceBackend(&api, {.memory_bytes = 256 << 20}));
  Writer writer(args[0], backend.get());
  for (const OpDef* op : AllOps())
    for (const Sample* s : SamplesOf(*op))
      writer.Write(std::string(op->name), s->name, [s] {
        return Program{kOpset, DeviceProgramOf(*s), {}, {}};
      });
  for (const RandomProgram& p : RandomPrograms())
    writer.Write("random_programs", absl::StrCat("random program ", p.seed), [&p] {
      return Program{kOpset, DeviceProgramOf(p.sample), {}, {}};
    });
  for (size_t i = 2; i < args.size(); ++i)
    writer.Write(std::filesystem::path(args[i]).parent_path().filename().string(), args[i],
                 [&] { return ValueOrThrow(ParseProgram(ValueOrThrow(ReadWholeFile(args[i])))); });
  return writer.failed() ? 1 : 0;
}

}  // namespace
}  // namespace tessera::ir::samples

int main(int argc, char** argv) {
  return tessera::ir::samples::Main(std::vector<std::string>(argv + 1, argv + argc));
}
