// Proves that admission accepts requests at each limit and refuses requests beyond it, with the
// right reason. The functions are called directly.
#include "server/admission/admission.h"

#include "base/testing/status_matchers.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/registry.h"

namespace tessera::server::admission {
namespace {

api::CompileRequest DoublingRequest(int ops) {
  ir::Builder b({{{{"x", 2}}}, true}, "main");
  ir::Value v = b.Param(ir::MakeType(ir::DType::kF32, {8}));
  for (int i = 0; i < ops; ++i) v = b.Emit1(*ir::FindOp("add"), {v, v});
  api::CompileRequest r;
  r.program.entry = b.Build({v});
  r.name = "doubling";
  return r;
}

api::ArraySpec Spec(ir::Dims shape) {
  api::ArraySpec s;
  s.shape = std::move(shape);
  s.placement.mesh.axes = {{"x", 2}};
  s.placement.spec.dims = {{"x"}};
  s.placement.devices = {0, 1};
  return s;
}

TEST(AdmissionTest, OptionsSetTheLimits) {
  Options options;
  options.max_ops = 3;
  options.max_mesh_devices = 1;
  options.max_rank = 2;
  const ir::Limits limits = LimitsOf(options);
  EXPECT_THAT(ValidateCompile(DoublingRequest(1), limits), ReasonIs("LIMIT_EXCEEDED"));
  EXPECT_THAT(ValidateArray(Spec({8, 8, 8}), limits), ReasonIs("LIMIT_EXCEEDED", "dims"));
  EXPECT_THAT(ValidateArray(Spec({8}), limits), ReasonIs("LIMIT_EXCEEDED", "devices"));
}

TEST(AdmissionTest, ProgramsBeyondTheLimitAreRefused) {
  ir::Limits limits;
  limits.ops = 5;
  TESSERA_EXPECT_OK(ValidateCompile(DoublingRequest(5), limits));
  EXPECT_THAT(ValidateCompile(DoublingRequest(6), limits), ReasonIs("LIMIT_EXCEEDED"));
}

TEST(AdmissionTest, CompileRefusesMalformedRequests) {
  EXPECT_THAT(ValidateCompile({}, {}), ReasonIs("MALFORMED_PROGRAM", "no program"));
  api::CompileRequest r = DoublingRequest(1);
  r.program.opset = ir::kOpset + 1;
  EXPECT_THAT(ValidateCompile(r, {}), ReasonIs("UNKNOWN_OP", "op set"));
  r = DoublingRequest(1);
  r.name = std::string(1000, 'x');
  EXPECT_THAT(ValidateCompile(r, {}), ReasonIs("LIMIT_EXCEEDED", "name"));
  r = DoublingRequest(1);
  r.program.in_shardings = {std::nullopt, std::nullopt};
  EXPECT_FALSE(ValidateCompile(r, {}).ok()) << "two shardings for one argument";
}

TEST(AdmissionTest, AbsentDevicesNeedAPlanOnlyRequest) {
  api::CompileRequest r = DoublingRequest(1);
  r.device_memory_bytes = 1;
  EXPECT_THAT(ValidateCompile(r, {}), ReasonIs("VALUE_ERROR", "plan alone"));
  r.plan_only = true;
  TESSERA_EXPECT_OK(ValidateCompile(r, {}));
  r.devices = {0, 1};
  EXPECT_THAT(ValidateCompile(r, {}), ReasonIs("VALUE_ERROR", "absent"));
  r.devices = {};
  r.mesh = "square";
  EXPECT_THAT(ValidateCompile(r, {}), ReasonIs("VALUE_ERROR", "named mesh"));
  r.mesh = "";
  r.device_memory_bytes = -1;
  EXPECT_THAT(ValidateCompile(r, {}), ReasonIs("VALUE_ERROR", "is -1"));
  ir::Limits limits;
  limits.mesh_devices = 1;
  r.device_memory_bytes = 1;
  EXPECT_THAT(ValidateCompile(r, limits), ReasonIs("LIMIT_EXCEEDED", "mesh"));
}

TEST(AdmissionTest, ArraysMustFitTheirPlacement) {
  TESSERA_EXPECT_OK(ValidateArray(Spec({8}), {}));
  EXPECT_THAT(ValidateArray(Spec({7}), {}), ReasonIs("INDIVISIBLE", "divisible by 2"));
  EXPECT_THAT(ValidateArray(Spec({-2}), {}), ReasonIs("VALUE_ERROR", "-2"));
  EXPECT_THAT(ValidateArray(Spec({int64_t{1} << 40, int64_t{1} << 40}), {}),
              ReasonIs("LIMIT_EXCEEDED", "2^62"));
  EXPECT_THAT(ValidateArray(Spec({0, int64_t{1} << 62}), {}), ReasonIs("LIMIT_EXCEEDED", "2^62"));
}

TEST(AdmissionTest, DeletesAndExecutesAreBounded) {
  TESSERA_EXPECT_OK(ValidateDelete(100'000));
  EXPECT_THAT(ValidateDelete(100'001), ReasonIs("LIMIT_EXCEEDED"));
  api::ExecuteRequest e;
  e.args.resize(4097);
  EXPECT_THAT(ValidateExecute(e, {}), ReasonIs("LIMIT_EXCEEDED", "arguments"));
  e.args.clear();
  e.time_limit = absl::ZeroDuration();
  EXPECT_THAT(ValidateExecute(e, {}), ReasonIs("DEADLINE_EXCEEDED"));
}

}  // namespace
}  // namespace tessera::server::admission
