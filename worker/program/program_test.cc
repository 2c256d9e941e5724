// Golden transcripts of device programs: tests/golden/program/*.txt.
//
//   build [multiplies]   the device program of a function, its kernels in full; with `multiplies` a
//                        library takes products of f32
//
// Every program is verified, and run on its slots with the reference interpreter: what it gives is
// what the evaluator gives.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "base/testing/datadriven.h"
#include "base/testing/status_matchers.h"
#include "ir/eval/eval.h"
#include "ir/text.h"
#include "worker/program/device_program.h"
#include "worker/program/testing.h"

namespace tessera::worker::program {
namespace {

using ir::Array;

// Runs a program without collectives on the host, one step after the other.
class Runner {
 public:
  Runner(const DeviceProgram& program, std::vector<Array> args)
      : p_(program), args_(std::move(args)), trips_(program.num_loops, 0) {
    for (const Result& r : p_.results) results_.emplace_back(r.buffer.dtype, r.buffer.shape);
    arena_.assign(p_.arena_bytes + 1, std::byte{0xff});
    for (Array& a : args_) args_data_.push_back(a.MutableData());
    for (Array& a : results_) results_data_.push_back(a.MutableData());
  }

  std::vector<Array> Run() {
    RunSteps(p_.steps);
    std::vector<Array> out;
    for (const Result& r : p_.results) {
      Array a(r.buffer.dtype, r.buffer.shape);
      std::memcpy(a.MutableData(), At(r.slot), a.num_bytes());
      out.push_back(std::move(a));
    }
    return out;
  }

 private:
  std::byte* At(int slot) {
    const Slot& s = p_.slots[slot];
    std::byte* base = nullptr;
    switch (s.kind) {
      case Slot::Kind::kArgument:
        base = args_data_[s.index];
        break;
      case Slot::Kind::kResult:
        base = results_data_[s.index];
        break;
      case Slot::Kind::kConstant:
        base = const_cast<std::byte*>(p_.constants[s.index].data());
        break;
      case Slot::Kind::kArena:
        base = arena_.data();
    }
    base += s.offset;
    for (const Trip& trip : s.trips) base += trip.stride * trips_[trip.loop];
    return base;
  }

  void RunSteps(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      if (const auto* k = std::get_if<KernelStep>(&step.what)) {
        std::vector<void*> buffers;
        for (int s : k->slots) buffers.push_back(At(s));
        const codegen::Kernel& kernel = p_.kernels[k->kernel];
        codegen::Interpret(kernel, buffers, 0, kernel.num_iterations());
      } else if (const auto* c = std::get_if<ContractStep>(&step.what)) {
        Multiply(*c);
      } else if (const auto* c = std::get_if<CopyStep>(&step.what)) {
        std::memcpy(At(c->out), At(c->in), p_.slots[c->out].bytes());
      } else if (const auto* g = std::get_if<GeneralStep>(&step.what)) {
        RunGeneral(*g);
      } else if (const auto* loop = std::get_if<LoopStep>(&step.what)) {
        for (int64_t i = 0; i < loop->trips; ++i) {
          trips_[loop->loop] = i;
          RunSteps(loop->body);
        }
      } else {
        ADD_FAILURE() << "no step that a test on one device runs";
      }
    }
  }

  void Multiply(const ContractStep& step) {
    const MatmulShape& s = step.shape;
    ASSERT_EQ(s.in, ir::DType::kF32);
    const auto* a = reinterpret_cast<const float*>(At(step.a)) + step.a_offset;
    const auto* b = reinterpret_cast<const float*>(At(step.b)) + step.b_offset;
    auto* c = reinterpret_cast<float*>(At(step.c));
    for (int64_t i = 0; i < s.batch; ++i)
      for (int64_t m = 0; m < s.m; ++m)
        for (int64_t n = 0; n < s.n; ++n) {
          double sum = 0;
          for (int64_t k = 0; k < s.k; ++k)
            sum += static_cast<double>(
                       a[i * s.a_strides[0] + m * s.a_strides[1] + k * s.a_strides[2]]) *
                   b[i * s.b_strides[0] + k * s.b_strides[1] + n * s.b_strides[2]];
          c[(i * s.m + m) * s.n + n] = static_cast<float>(sum);
        }
  }

  void RunGeneral(const GeneralStep& g) {
    std::vector<Array> in;
    for (size_t i = 0; i < g.in.size(); ++i) {
      const ir::Type& t = g.function->types[i];
      in.emplace_back(t.dtype, t.shape);
      std::memcpy(in.back().MutableData(), At(g.in[i]), in.back().num_bytes());
    }
    const auto out = ir::Evaluate(*g.function, in);
    ASSERT_THAT(out, IsOk());
    for (size_t i = 0; i < g.out.size(); ++i)
      std::memcpy(At(g.out[i]), (*out)[i].data(), (*out)[i].num_bytes());
  }

  const DeviceProgram& p_;
  std::vector<Array> args_, results_;
  std::vector<std::byte*> args_data_, results_data_;
  std::vector<std::byte> arena_;
  std::vector<int64_t> trips_;
};

std::string BuildText(const DataCase& c) {
  const absl::StatusOr<ir::Program> program = ir::ParseProgram(c.input);
  if (!program.ok()) return absl::StrCat(program.status().message(), "\n");
  const ir::Function& f = *program->entry;
  BuildOptions options;
  if (c.Has("multiplies"))
    options.multiplies = [](ir::DType in, ir::DType out) {
      return in == ir::DType::kF32 && out == ir::DType::kF32;
    };
  const absl::StatusOr<DeviceProgram> built = Build(f, options);
  if (!built.ok()) return absl::StrCat(built.status().message(), "\n");
  EXPECT_THAT(Verify(*built), IsOk()) << built->ToString();
  EXPECT_EQ(Build(f, options)->ToString(), built->ToString());
  if (f.scope.mesh.empty()) {
    std::vector<Array> args;
    for (int i = 0; i < f.num_params; ++i) args.push_back(WholeNumbers(f.types[i], i));
    const auto want = ir::Evaluate(f, args);
    EXPECT_THAT(want, IsOk());
    const std::vector<Array> got = Runner(*built, args).Run();
    for (size_t r = 0; r < got.size(); ++r) {
      EXPECT_EQ(got[r].shape(), (*want)[r].shape());
      for (int64_t i = 0; i < got[r].num_elements(); ++i)
        EXPECT_NEAR(got[r].At(i), (*want)[r].At(i), 1e-5 * (1 + std::abs((*want)[r].At(i))))
            << "result " << r << ", element " << i << "\n"
            << built->ToString();
    }
  }
  return built->ToString();
}

// ---- Programs at random. -----------------------------------------------------------------------

TEST(RandomPrograms, GiveWhatTheEvaluatorGives) {
  constexpr uint32_t kPrograms = 3000;
  int64_t kernels = 0, ops = 0;
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ir::FunctionRef f;
    ASSERT_THAT(CatchStatus([&] { f = RandomProgram(seed); }), IsOk());
    std::vector<Array> args;
    for (int i = 0; i < f->num_params; ++i) args.push_back(WholeNumbers(f->types[i], i));
    BuildOptions options;
    if (seed % 2 == 0)
      options.multiplies = [](ir::DType in, ir::DType) { return in == ir::DType::kF32; };
    const absl::StatusOr<DeviceProgram> built = Build(*f, options);
    ASSERT_THAT(built, IsOk()) << ir::PrintFunction(*f);
    ASSERT_THAT(Verify(*built), IsOk()) << ir::PrintFunction(*f) << built->ToString();
    const auto want = ir::Evaluate(*f, args);
    ASSERT_THAT(want, IsOk());
    const std::vector<Array> got = Runner(*built, args).Run();
    for (size_t r = 0; r < got.size(); ++r)
      ASSERT_TRUE(got[r] == (*want)[r]) << "result " << r << " is " << got[r].ToString()
                                        << "\nexpected " << (*want)[r].ToString() << "\n"
                                        << ir::PrintFunction(*f) << built->ToString();
    kernels += static_cast<int64_t>(built->kernels.size());
    ops += ir::CountOps(*f);
  }
  EXPECT_LT(kernels, ops / 3) << "little is fused";
}

TEST(ProgramTranscripts, AreAsRecorded) {
  RunDataFolder("tests/golden/program", [](const DataCase& c) -> std::string {
    SCOPED_TRACE(absl::StrCat(c.file, ":", c.line));
    if (c.command == "build") return BuildText(c);
    ADD_FAILURE() << "unknown command " << c.command;
    return "";
  });
}

}  // namespace
}  // namespace tessera::worker::program
