// Proves that every program that a client may send ends in a result or in an error that says what
// is wrong with the program, whatever arrays it runs on. No program takes the executor down.
//
// The test changes samples in the ways that the text and the wire form of programs can express:
// other dtypes, sizes of 0 and sizes larger than any machine, attributes at their bounds, and
// shardings that fit or do not fit. A sample, or row, is one op with given attributes and operands:
// a test case (samples.h). The cluster runs in this process, so a broken invariant in it kills the
// test, which then prints the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "base/status_exception.h"
#include "base/testing/seeds.h"
#include "base/testing/status_matchers.h"
#include "client/embedded.h"
#include "embed/embed.h"
#include "ir/derive/factors.h"
#include "ir/ops.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "tests/ops/op_test.h"
#include "tests/ops/wire.h"

namespace tessera::ir::samples {
namespace {

constexpr int kDevices = 4;
constexpr int64_t kMemoryBytes = int64_t{64} << 20;  // memory of one device
constexpr double kBytesMovedMax = 1e7;  // programs that move more bytes are only compiled
constexpr absl::Duration kPatience = absl::Seconds(60);

// ---- The program that is printed when the process dies. -----------------------------------------
char current_program[1 << 14] = "";
void PrintCurrentProgram(int) {
  constexpr char kIntro[] = "\nThe process died of:\n";
  if (write(STDERR_FILENO, kIntro, sizeof kIntro - 1) < 0) return;
  if (write(STDERR_FILENO, current_program, std::strlen(current_program)) < 0) return;
}
void SetCurrentProgram(const std::string& text) {
  std::strncpy(current_program, text.c_str(), sizeof current_program - 1);
}

// ---- Programs. ----------------------------------------------------------------------------------

// One op with operands and shardings as a client may send it, valid or not.
struct Candidate {
  const OpDef* def = nullptr;
  std::vector<Type> in;
  Attrs attrs;
  std::vector<FunctionRef> regions;
  Scope scope;  // scope of the function that contains the op
  // The result types of the unchanged row, which the client claims for this op.
  std::vector<Type> claimed_results;
  std::vector<std::optional<PartitionSpec>> in_shardings;

  bool manual() const {
    return !scope.mesh.empty() &&
           std::all_of(scope.mesh.axes.begin(), scope.mesh.axes.end(),
                       [](const MeshAxis& a) { return a.type == AxisType::kManual; });
  }
};

Candidate CandidateOf(const Sample& s) {
  Candidate c{s.def, {}, s.attrs, s.regions, s.scope, {}, {}};
  for (const Operand& o : s.operands) c.in.push_back(o.type);
  c.claimed_results = ValueOrThrow(InferTypes(*c.def, c.scope, c.in, c.attrs, c.regions));
  return c;
}

// Returns the program of a client that checks nothing. The result types are those of the unchanged
// row, so they may be wrong.
Program UncheckedProgram(const Candidate& c) {
  auto f = std::make_shared<Function>();
  f->name = "any";
  f->scope = c.scope;
  f->num_params = static_cast<int>(c.in.size());
  f->types = c.in;
  Op op{c.def, {}, {}, c.attrs, c.regions};
  for (int i = 0; i < f->num_params; ++i) op.operands.push_back(i);
  for (const Type& t : c.claimed_results) {
    op.results.push_back(static_cast<ValueId>(f->types.size()));
    f->results.push_back(static_cast<ValueId>(f->types.size()));
    f->types.push_back(t);
  }
  f->ops.push_back(std::move(op));
  f->sites.emplace_back();
  return {kOpset, f, c.in_shardings, {}};
}

// Returns a function that runs the op in a manual_computation over its whole mesh. The operands are
// cut into blocks along dim 0.
FunctionRef InManualCode(const Candidate& c) {
  Mesh mesh = c.scope.mesh;
  for (MeshAxis& a : mesh.axes) a.type = AxisType::kAuto;
  const AxisList all = mesh.AxesOfType(AxisType::kAuto);
  const auto spec_of = [](const Type& t, int64_t* blocks, const Mesh& m) {
    if (t.rank() == 0 && !t.varying.empty())
      Throw(ErrorKind::kValueError, "a scalar that varies has no spec at the boundary");
    PartitionSpec spec;
    spec.dims.resize(t.rank());
    for (const MeshAxis& a : m.axes)
      if (t.varying.contains(a.name)) spec.dims[0].push_back(a.name);
    *blocks = t.rank() == 0 ? 1 : m.SizeOf(spec.dims[0]);
    return spec;
  };
  Builder body(c.scope, "body");
  // A param cannot be unreduced or reduced. So the param of such an operand varies, and a cast
  // inside the region gives it the state.
  std::vector<Type> params = c.in;
  std::vector<Value> in;
  for (Type& t : params) {
    const AxisSet unreduced = std::exchange(t.unreduced, {});
    const AxisSet reduced = std::exchange(t.reduced, {});
    t.varying.insert(unreduced.begin(), unreduced.end());
    in.push_back(Preduced(VaryUnreducedCast(body.Param(t), unreduced), reduced));
  }
  std::vector<Value> out = body.Emit(*c.def, in, c.attrs, c.regions);
  for (Value& v : out) {
    const AxisSet unreduced = v.type().unreduced;
    v = ReducedVaryCast(Psum(v, {unreduced.begin(), unreduced.end()}), v.type().reduced);
    if (v.rank() == 0 && !v.type().varying.empty())  // An out spec needs a dim.
      v = Reshape(v, {1});
  }
  std::vector<PartitionSpec> in_specs, out_specs;
  int64_t blocks;
  for (const Value& v : out) out_specs.push_back(spec_of(v.type(), &blocks, mesh));
  const FunctionRef region = body.Build(out);
  Builder b({mesh, true}, "main");
  std::vector<Value> args;
  for (Type t : params) {
    in_specs.push_back(spec_of(t, &blocks, mesh));
    if (t.rank() > 0) t.shape[0] *= blocks;
    t.varying = t.unreduced = t.reduced = {};
    args.push_back(b.Param(t));
  }
  return b.Build(ManualComputation(b, region, args, in_specs, out_specs, all, c.scope.check_vma));
}

absl::StatusOr<Program> CheckedProgram(const Candidate& c) {
  Program p;
  p.in_shardings = c.in_shardings;
  TESSERA_RETURN_IF_ERROR(CatchStatus([&] {
    if (c.manual()) {
      p.entry = InManualCode(c);
    } else {
      Builder b(c.scope, "main");
      std::vector<Value> in;
      for (const Type& t : c.in) in.push_back(b.Param(t));
      p.entry = b.Build(b.Emit(*c.def, in, c.attrs, c.regions));
    }
  }));
  TESSERA_RETURN_IF_ERROR(Verify(p));
  return p;
}

// ---- Changes. -----------------------------------------------------------------------------------

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}
  uint64_t Below(uint64_t n) { return bits_() % n; }
  bool Coin() { return Below(2) != 0; }
  template <class T>
  const T& Pick(const std::vector<T>& of) {
    return of[Below(of.size())];
  }

 private:
  std::mt19937_64 bits_;
};

const std::vector<DType>& AllDTypes() {
  static const auto* const kAll = [] {
    auto* all = new std::vector<DType>;
    for (int d = 0; d < kNumDTypes; ++d) all->push_back(static_cast<DType>(d));
    return all;
  }();
  return *kAll;
}

int64_t RandomBound(Random& r) {
  return r.Pick<int64_t>({-1, 0, 1, 2, 7, int64_t{1} << 31, int64_t{1} << 40, int64_t{1} << 62,
                          std::numeric_limits<int64_t>::max(),
                          std::numeric_limits<int64_t>::min()});
}
void ChangeDims(Random& r, Dims* dims) {
  switch (r.Below(5)) {
    case 0:
      dims->push_back(RandomBound(r));
      break;
    case 1:
      if (!dims->empty()) dims->erase(dims->begin() + r.Below(dims->size()));
      break;
    case 2:
      if (dims->size() > 1) std::swap(dims->front(), dims->back());
      break;
    default:
      if (!dims->empty()) (*dims)[r.Below(dims->size())] = RandomBound(r);
  }
}
PartitionSpec RandomSpec(Random& r) {
  PartitionSpec spec;
  const std::vector<AxisList> entries = {{}, {"x"}, {"y"}, {"x", "y"}, {"nowhere"}, {"x", "x"}};
  for (uint64_t d = r.Below(4); d > 0; --d) spec.dims.push_back(r.Pick(entries));
  if (r.Below(6) == 0) spec.unreduced = {"y"};
  if (r.Below(6) == 0) spec.open.assign(spec.dims.size(), true);
  return spec;
}
struct ChangeAttr {
  Random& r;
  AttrValue operator()(bool v) const { return !v; }
  AttrValue operator()(int64_t) const { return RandomBound(r); }
  AttrValue operator()(double) const {
    return r.Pick<double>({0, -0.0, 1e308, -1, std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()});
  }
  AttrValue operator()(const std::string& v) const {
    return r.Pick<std::string>({"", "nothing", v + v, std::string(1000, 'x')});
  }
  AttrValue operator()(std::vector<int64_t> v) const {
    ChangeDims(r, &v);
    return v;
  }
  AttrValue operator()(std::vector<std::string> v) const {
    const uint64_t what = r.Below(3);
    if (what == 0) v.push_back(v.empty() ? "x" : v[0]);
    if (what == 1 && !v.empty()) v.pop_back();
    if (what == 2) v.push_back("nowhere");
    return v;
  }
  AttrValue operator()(std::vector<bool> v) const {
    v.push_back(true);
    return v;
  }
  AttrValue operator()(DType) const { return r.Pick(AllDTypes()); }
  AttrValue operator()(const Array& v) const {
    Dims shape = v.shape();
    if (r.Coin()) shape.push_back(static_cast<int64_t>(r.Below(3)));
    return Array(r.Pick(AllDTypes()), shape);
  }
  AttrValue operator()(const PartitionSpec&) const { return RandomSpec(r); }
  AttrValue operator()(std::vector<PartitionSpec> v) const {
    if (v.empty() || r.Below(4) == 0) {
      v.push_back(RandomSpec(r));
    } else {
      v[r.Below(v.size())] = RandomSpec(r);
    }
    return v;
  }
};

// Changes one property of the op: an attribute, or the type or the number of its operands.
void ChangeOneProperty(Random& r, Candidate* c) {
  const uint64_t what = r.Below(8);
  const std::vector<std::pair<std::string, AttrValue>> attrs(c->attrs.map().begin(),
                                                             c->attrs.map().end());
  if (what < 4 && !attrs.empty()) {
    const auto& [name, value] = r.Pick(attrs);
    if (r.Below(12) == 0) return c->attrs.Erase(name);
    if (r.Below(12) == 0) return c->attrs.Set(name, int64_t{3});
    return c->attrs.Set(name, std::visit(ChangeAttr{r}, value));
  }
  if (c->in.empty()) return;
  Type& t = c->in[r.Below(c->in.size())];
  switch (what) {
    case 5:
      t.dtype = r.Pick(AllDTypes());
      break;
    case 6:
      if (r.Coin()) {
        c->in.pop_back();
      } else {
        c->in.push_back(c->in[0]);
      }
      break;
    case 7:
      t.weak = !t.weak;
      break;
    default:
      ChangeDims(r, &t.shape);
      t.sharding.clear();
  }
}

// Gives dtype `d` to all operands that have the row's dtype. If the op has no operands, gives `d`
// to the attributes that determine the dtype of the results.
void SetDType(const Sample& s, DType d, Candidate* c) {
  for (Type& t : c->in)
    if (t.dtype == s.dtype()) t.dtype = d;
  if (!c->in.empty()) return;
  const Attrs unchanged = c->attrs;
  for (const auto& [name, value] : unchanged.map()) {
    if (std::holds_alternative<DType>(value)) c->attrs.Set(name, d);
    if (const Array* a = std::get_if<Array>(&value)) c->attrs.Set(name, Array(d, a->shape()));
  }
}

// Puts the op on a mesh of four devices, with operand shardings that often fit.
void PlaceOnMesh(Random& r, Candidate* c) {
  if (!c->scope.mesh.empty()) return;
  c->scope.mesh.axes = {{"x", 2}, {"y", 2}};
  for (const Type& t : c->in) {
    PartitionSpec spec;
    std::vector<AxisList> entries = {{"x"}, {"y"}, {}, {"x", "y"}};
    for (int d = 0; d < t.rank() && !entries.empty(); ++d) {
      const uint64_t k = r.Below(entries.size());
      spec.dims.push_back(entries[k]);
      const AxisList taken = entries[k];
      std::erase_if(entries, [&](const AxisList& e) {
        return std::any_of(e.begin(), e.end(), [&](const std::string& a) {
          return std::find(taken.begin(), taken.end(), a) != taken.end();
        });
      });
    }
    c->in_shardings.push_back(r.Below(4) == 0 ? std::nullopt : std::optional(spec));
  }
}

// ---- Running. -----------------------------------------------------------------------------------

Array RandomArray(Random& r, const Type& type) {
  Array a(type.dtype, type.shape);
  std::byte* const p = a.MutableData();
  const uint64_t mask = type.dtype == DType::kBool ? 1 : 0xff;
  for (int64_t i = 0; i < a.num_bytes(); ++i) p[i] = static_cast<std::byte>(r.Below(256) & mask);
  return a;
}

class AnyProgramTest : public OpTest {
 protected:
  static void SetUpTestSuite() {
    std::signal(SIGABRT, PrintCurrentProgram);
    std::signal(SIGSEGV, PrintCurrentProgram);
    service_ = new std::shared_ptr<api::Service>(
        ValueOrThrow(embed::Start({.devices = kDevices, .memory_bytes_per_device = kMemoryBytes})));
  }
  static void TearDownTestSuite() {
    delete service_;
    service_ = nullptr;
  }
  api::Service& service() { return **service_; }

  // Expects an error whose code blames the program and whose message is not empty.
  void ExpectRefusal(const absl::Status& status, const std::string& text) {
    EXPECT_THAT(status.code(), ::testing::AnyOf(absl::StatusCode::kInvalidArgument,
                                                absl::StatusCode::kUnimplemented,
                                                absl::StatusCode::kResourceExhausted,
                                                absl::StatusCode::kFailedPrecondition))
        << status << "\n"
        << text;
    EXPECT_GT(status.message().size(), 10u) << text;
    ++refused_;
  }

  void Try(Random& r, const Candidate& c) {
    const Program claimed = UncheckedProgram(c);
    SetCurrentProgram(PrintProgram(claimed));
    const std::string text(current_program);
    if (const auto read = ThroughTheWire(claimed); read && !read->ok())
      ExpectRefusal(read->status(), text);
    if (const auto read = ParseProgram(PrintProgram(claimed)); !read.ok())
      ExpectRefusal(read.status(), text);
    const absl::StatusOr<Program> program = CheckedProgram(c);
    if (!program.ok()) return ExpectRefusal(program.status(), text);
    Run(r, *program, c);
  }

  // Compiles the program and, if it is small, runs it on random bytes. The arguments are donated at
  // random, since donation takes other paths in the executor. Every result must have its type.
  void Run(Random& r, const Program& program, const Candidate& c) {
    const std::string text = PrintProgram(program);
    SetCurrentProgram(text);
    const absl::StatusOr<api::CompileReply> compiled = service().Compile({program, {}, "any"});
    if (!compiled.ok()) return ExpectRefusal(compiled.status(), text);
    std::vector<Type> in, out;
    for (const Type& t : program.entry->param_types()) in.push_back(t);
    for (const Type& t : program.entry->result_types()) out.push_back(t);
    if (BytesMoved(*program.entry) > kBytesMovedMax) return;
    std::vector<Array> args;
    api::ExecuteRequest run;
    run.executable = compiled->executable;
    for (size_t i = 0; i < in.size(); ++i) {
      args.push_back(RandomArray(r, in[i]));
      const auto put = service().Put(args.back(), compiled->in[i].placement);
      ASSERT_TRUE(put.ok()) << put.status() << "\n" << text;
      run.args.push_back(*put);
      run.donate.push_back(r.Coin());
    }
    const auto started = service().Execute(run);
    ASSERT_TRUE(started.ok()) << started.status() << "\n" << text;
    ASSERT_EQ(started->outputs.size(), out.size());
    std::vector<Array> got;
    for (size_t i = 0; i < out.size(); ++i) {
      const absl::StatusOr<Array> result = service().Get(started->outputs[i], kPatience);
      ASSERT_TRUE(result.ok()) << result.status() << "\n" << text;
      EXPECT_EQ(result->dtype(), out[i].dtype) << text;
      EXPECT_EQ(result->shape(), out[i].shape) << text;
      got.push_back(*result);
    }
    TESSERA_EXPECT_OK(service().Delete(started->outputs));
    TESSERA_EXPECT_OK(service().Delete(run.args));
    ++ran_;
    // If the op rounds nothing, its result has the same bits as in the evaluator, whatever its
    // sharding.
    if (c.manual() || c.def->has_planned_regions() || c.def->has_rules()) return;
    const absl::StatusOr<std::vector<Array>> want = Evaluate(*program.entry, args);
    ASSERT_TRUE(want.ok()) << want.status() << "\n" << text;
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(IsInexact(out[i].dtype) || got[i] == (*want)[i]) << "result " << i << " of\n"
                                                                   << text;
  }

  // Returns the bytes of the operands and results of all ops.
  static double BytesMoved(const Function& f) {
    double sum = 0;
    for (const Op& op : f.ops) {
      std::vector<Type> in, out;
      for (ValueId v : op.operands) in.push_back(f.types[v]);
      for (ValueId v : op.results) out.push_back(f.types[v]);
      for (const auto* list : {&in, &out})
        for (const Type& t : *list) sum += static_cast<double>(t.num_bytes());
      for (const FunctionRef& region : op.regions) sum += BytesMoved(*region);
    }
    return sum;
  }

  // Returns at most `most` rows of the op, evenly spread. Prefers the dtypes f32 and s32.
  std::vector<const Sample*> SomeRows(size_t most) {
    std::vector<const Sample*> rows;
    for (const Sample* s : SamplesOf(op()))
      if (s->dtype() == DType::kF32 || s->dtype() == DType::kS32) rows.push_back(s);
    if (rows.empty()) rows = SamplesOf(op());
    std::vector<const Sample*> chosen;
    for (size_t i = 0; i < std::min(most, rows.size()); ++i)
      chosen.push_back(rows[i * rows.size() / std::min(most, rows.size())]);
    return chosen;
  }

  int ran_ = 0, refused_ = 0;

 private:
  static inline std::shared_ptr<api::Service>* service_ = nullptr;
};

TEST_P(AnyProgramTest, EveryDtypeRunsOrIsRefused) {
  Random r(20240229);
  for (const Sample* s : SomeRows(tessera::testing::NumSeeds(3))) {
    for (const DType d : AllDTypes()) {
      for (const bool placed : {false, true}) {
        Candidate c = CandidateOf(*s);
        SetDType(*s, d, &c);
        if (placed) PlaceOnMesh(r, &c);
        Try(r, c);
      }
    }
  }
  const bool is_rule = op().has_rules() && !op().has_planned_regions();
  EXPECT_EQ(ran_ > 0, !is_rule) << op().name << " ran " << ran_ << " times";
  RecordProperty("ran", ran_);
  RecordProperty("refused", refused_);
}

TEST_P(AnyProgramTest, BoundaryValuesRunOrAreRefused) {
  Random r(19991231);
  const int64_t per_sample = tessera::testing::NumSeeds(80);
  for (const Sample* s : SomeRows(5)) {
    for (int64_t i = 0; i < per_sample; ++i) {
      Candidate c = CandidateOf(*s);
      for (uint64_t changes = 1 + r.Below(3); changes > 0; --changes) ChangeOneProperty(r, &c);
      if (r.Below(3) == 0) PlaceOnMesh(r, &c);
      Try(r, c);
    }
  }
  RecordProperty("ran", ran_);
  RecordProperty("refused", refused_);
}
TESSERA_FOR_EVERY_OP(AnyProgramTest);

// ---- Arrays of many dims. ----

Dims AllDims(int rank) {
  Dims all(rank);
  std::iota(all.begin(), all.end(), 0);
  return all;
}
// Returns a shape of ones in which `doubled` evenly spread dims have size 2.
Dims ManyDims(int rank, int doubled) {
  Dims shape(rank, 1);
  for (int d = 0; d < rank; ++d)
    if ((d + 1) * doubled / rank > d * doubled / rank) shape[d] = 2;
  return shape;
}

// Tries ranks from 15 to 33. The largest rank that is accepted is 32.
TEST(AnyRankTest, ManyDimsRunOrAreRefused) {
  const auto service = ValueOrThrow(embed::Start({.devices = 1}));
  Random r(3);
  for (const int rank : {15, 16, 17, 20, 31, 32, 33}) {
    Dims even, odd, backwards;
    for (int d = 0; d < rank; ++d) {
      (d % 2 ? odd : even).push_back(d);
      backwards.push_back(rank - 1 - d);
    }
    Dims low(rank, 0), high(rank, 0);
    low.front() = high.back() = 1;
    using Make = std::function<Value(Value)>;
    const std::vector<std::pair<const char*, Make>> programs = {
        {"sum", [&](Value x) { return ReduceSum(x, even); }},
        {"max of a transpose", [&](Value x) { return ReduceMax(Transpose(x, backwards), odd); }},
        {"sum of all", [&](Value x) { return ReduceSum(Transpose(x, backwards), AllDims(rank)); }},
        {"argmax", [&](Value x) { return ArgMax(Transpose(x, backwards), rank / 2, DType::kS32); }},
        {"reverse",
         [&](Value x) {
           return Add(Reverse(x, even), Transpose(Transpose(x, backwards), backwards));
         }},
        {"pad", [&](Value x) { return Pad(x, Constant(x.builder(), x.dtype(), 1), low, high); }},
        {"product",
         [&](Value x) {
           return DotGeneral(x, x, {{}, {}, even, even});
         }},
        {"batched product",
         [&](Value x) {
           return DotGeneral(x, x, {odd, odd, even, even});
         }},
    };
    for (const DType dtype : {DType::kF32, DType::kS64}) {
      for (const auto& [name, make] : programs) {
        SetCurrentProgram(absl::StrCat(name, " of rank ", rank, "\n"));
        // The arrays are too large to be evaluated op by op. Two ops whose results are larger than
        // their operands get smaller operands.
        const bool grows = std::string_view(name) == "product" || std::string_view(name) == "pad";
        const Dims of = ManyDims(rank, std::min(rank, grows ? 12 : 17));
        Program program;
        const absl::Status built = CatchStatus([&, &make = make] {
          Builder b({}, "main");
          program.entry = b.Build({make(b.Param(MakeType(dtype, of)))});
        });
        ASSERT_TRUE(built.ok()) << built;
        const auto compiled = service->Compile({program, {}, name});
        if (rank > 32) {
          EXPECT_THAT(compiled.status(), ReasonIs("LIMIT_EXCEEDED"));
          continue;
        }
        if (!compiled.ok()) {
          // The result has too many dims.
          EXPECT_THAT(compiled.status(), ReasonIs("LIMIT_EXCEEDED")) << name;
          continue;
        }
        Array arg(dtype, of);
        for (int64_t i = 0; i < arg.num_elements(); ++i)
          arg.Set(i, static_cast<double>(r.Below(9)));
        const auto put = service->Put(arg, compiled->in[0].placement);
        TESSERA_ASSERT_OK(put.status());
        api::ExecuteRequest request;
        request.executable = compiled->executable;
        request.args = {*put};
        const auto run = service->Execute(request);
        TESSERA_ASSERT_OK(run.status());
        const absl::StatusOr<Array> got = service->Get(run->outputs[0], kPatience);
        ASSERT_TRUE(got.ok()) << got.status();
        const auto want = Evaluate(*program.entry, {arg});
        ASSERT_TRUE(want.ok()) << want.status();
        EXPECT_TRUE(*got == (*want)[0]) << name << " of rank " << rank;
      }
    }
  }
}

// ---- Requests around a sound program. ----

// The mesh may have more devices than the cluster, and the device ids and the memory may be
// nonsense.
TEST(AnyRequestTest, AnyMeshAndDevicesCompileOrAreRefused) {
  const auto service = ValueOrThrow(embed::Start({.devices = kDevices}));
  Random r(7);
  for (int i = 0; i < 300; ++i) {
    Scope scope;
    for (const char* name : {"x", "y", "z"})
      if (r.Coin())
        scope.mesh.axes.push_back({name, r.Pick<int64_t>({1, 2, 4, 64, 1024, 1 << 20})});
    Builder b(scope, "main");
    api::CompileRequest request;
    const absl::Status built = CatchStatus([&] {
      const Value x = b.Param(MakeType(DType::kF32, {1 << 20, r.Pick<int64_t>({0, 1, 8})}));
      request.program.entry = b.Build({ReduceSum(x, {0})});
    });
    ASSERT_TRUE(built.ok()) << built;
    request.program.in_shardings = {RandomSpec(r)};
    request.plan_only = r.Coin();
    request.explain = r.Coin();
    for (uint64_t d = r.Below(5); d > 0; --d)
      request.devices.push_back(r.Pick<int64_t>({0, 1, 2, 3, 4, -1, int64_t{1} << 60}));
    if (r.Coin()) request.devices.clear();
    if (r.Coin()) request.device_memory_bytes = r.Pick<int64_t>({-1, 1, 1 << 20, INT64_MAX});
    const auto compiled = service->Compile(request);
    if (compiled.ok()) continue;
    EXPECT_THAT(compiled.status().code(), ::testing::AnyOf(absl::StatusCode::kInvalidArgument,
                                                           absl::StatusCode::kUnimplemented,
                                                           absl::StatusCode::kResourceExhausted,
                                                           absl::StatusCode::kFailedPrecondition))
        << compiled.status();
  }
}

// Arguments may have the wrong type, be missing, repeated, donated twice or unknown to the service.
TEST(AnyRequestTest, AnyArgumentsRunOrAreRefused) {
  const auto service = ValueOrThrow(embed::Start({.devices = kDevices}));
  Builder b({}, "main");
  const Value x = b.Param(MakeType(DType::kF32, {8})), y = b.Param(MakeType(DType::kF32, {8}));
  const FunctionRef f = b.Build({Add(x, y), x});
  const auto compiled = service->Compile({{kOpset, f, {}, {}}, {}, "add"});
  TESSERA_ASSERT_OK(compiled.status());
  const auto put = [&](DType dtype, Dims shape) {
    api::Placement placement = compiled->in[0].placement;
    placement.spec = {};
    return ValueOrThrow(service->Put(Array(dtype, std::move(shape)), placement));
  };
  Random r(11);
  int ran = 0;
  for (int i = 0; i < 300; ++i) {
    const std::vector<uint64_t> known = {put(DType::kF32, {8}),    put(DType::kF32, {8}),
                                         put(DType::kF32, {4, 2}), put(DType::kS32, {8}),
                                         put(DType::kF32, {0}),    0,
                                         uint64_t{1} << 63};
    api::ExecuteRequest request;
    request.executable = r.Below(8) == 0 ? r.Pick(known) : compiled->executable;
    const uint64_t args = r.Below(8) == 0 ? r.Below(5) : 2;
    for (uint64_t k = 0; k < args; ++k)  // Often passes the same array twice.
      request.args.push_back(r.Below(4) == 0 ? r.Pick(known) : known[r.Below(2)]);
    for (uint64_t k = r.Below(4); k > 0; --k) request.donate.push_back(r.Coin());
    if (r.Below(4) == 0) request.release = {r.Pick(known), r.Pick(known)};
    if (r.Below(4) == 0)
      request.time_limit = r.Pick<absl::Duration>({absl::ZeroDuration(), -absl::InfiniteDuration(),
                                                   absl::Seconds(30), absl::InfiniteDuration()});
    request.inline_bytes_max = r.Pick<int64_t>({0, -1, 1, std::numeric_limits<int64_t>::max()});
    request.check_only = r.Below(8) == 0;
    const auto started = service->Execute(request);
    if (started.ok()) {
      for (uint64_t output : started->outputs) {
        const absl::StatusOr<Array> result = service->Get(output, kPatience);
        EXPECT_TRUE(result.ok()) << result.status();
        ++ran;
      }
      TESSERA_EXPECT_OK(service->Delete(started->outputs));
    } else {
      EXPECT_THAT(started.status().code(),
                  ::testing::AnyOf(absl::StatusCode::kInvalidArgument,
                                   absl::StatusCode::kFailedPrecondition,
                                   absl::StatusCode::kNotFound, absl::StatusCode::kDeadlineExceeded,
                                   absl::StatusCode::kResourceExhausted))
          << started.status();
    }
    TESSERA_EXPECT_OK(service->Delete(known));
  }
  EXPECT_GT(ran, 50);
}

}  // namespace
}  // namespace tessera::ir::samples
