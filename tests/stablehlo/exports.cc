#include "tests/stablehlo/exports.h"

#include "base/status_exception.h"
#include "ir/stablehlo/export.h"
#include "tests/ops/programs.h"

namespace tessera::ir::stablehlo {

void ForEachExport(const std::function<void(const ExportedSample&)>& f) {
  const auto visit = [&](std::string_view family, const samples::Sample& s,
                         std::vector<double> ulps) {
    const FunctionRef function = samples::FunctionOf(s);
    f({std::string(family), &s, std::move(ulps), function,
       ExportProgram({kOpset, function, {}, {}})});
  };
  for (const samples::SampleFamily& family : samples::Families())
    for (const samples::Sample& s : family.samples) visit(family.name, s, {});
  for (const samples::RandomProgram& p : samples::RandomPrograms())
    visit("programs", p.sample, p.ulps_of_xla);
}

}  // namespace tessera::ir::stablehlo
