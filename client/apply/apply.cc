// Apply and similar functions, between the functions that users call and the tracer. Apply records
// into the innermost frame; outside a trace, InProgram makes a program of the op, compiles it and
// runs it.
#include "client/apply/apply.h"

#include <memory>
#include <string>
#include <utility>

#include "client/debug.h"
#include "client/error.h"
#include "client/session.h"
#include "client/trace/compile.h"
#include "client/trace/trace.h"

namespace tessera::internal {

std::vector<Array> InProgram(std::string_view name, const Site& site,
                             const std::vector<Array>& inputs,
                             absl::FunctionRef<std::vector<Array>()> body) {
  if (CurrentFrame()) return body();
  const TracedProgram traced = TraceProgram(
      std::string(name), site, {}, [&](const std::vector<Array>&) { return body(); }, inputs);
  if (DebugNans()) return RunCheckingNans(traced, traced.captures, std::string(name), site);
  const std::shared_ptr<Session> session = SessionOf(traced.captures, site);
  return session->Run(
      *CompileTraced(*session, traced, std::string(name), /*with_plan=*/false, site),
      traced.captures, /*donate=*/{}, site);
}

std::vector<Array> Apply(std::string_view name, const Site& site, const std::vector<Array>& inputs,
                         EmitFn emit) {
  return InProgram(name, site, inputs, [&] {
    return ConvertExceptions(site, [&] {
      Frame& frame = *CurrentFrame();
      std::vector<ir::Value> in;
      for (const Array& a : inputs) in.push_back(Lift(a, site));
      ir::SiteScope at(frame.builder, site);
      std::vector<Array> out;
      for (ir::Value v : emit(frame.builder, std::move(in))) out.push_back(Wrap(v));
      return out;
    });
  });
}

Array Apply1(std::string_view name, const Site& site, const std::vector<Array>& inputs,
             Emit1Fn emit) {
  return Apply(name, site, inputs, [&](ir::Builder& b, std::vector<ir::Value> in) {
    return std::vector<ir::Value>{emit(b, std::move(in))};
  })[0];
}

ir::Value CallOnValues(const std::vector<ir::Value>& values, const Site& site,
                       absl::FunctionRef<Array(const std::vector<Array>&)> f) {
  std::vector<Array> arrays;
  for (const ir::Value& v : values) arrays.push_back(Wrap(v));
  return Lift(f(arrays), site);
}

bool IsTracing() { return CurrentFrame() != nullptr; }

}  // namespace tessera::internal
