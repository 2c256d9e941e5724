// debug_print: checks the format, and prints at once or, in a trace, emits an op with an effect.
// When a program is compiled, these ops are replaced by a record (client/trace/prints.h), from
// which the SDK prints after each run. Reference: docs/decisions/0026.
#include "client/debug_print.h"

#include <cstdio>

#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/trace/print_format.h"
#include "client/trace/trace.h"
#include "ir/debug_print.h"

namespace tessera::internal {

// Checks the format in both cases, so that a mistake is an error at the user's line and not of a
// later run. Without a trace it prints at once; in a trace it emits an op.
void DebugPrint(const PrintFormat& format, const std::vector<Arg>& args) {
  ConvertExceptions(format.site, [&] {
    std::vector<Array> arrays;
    std::vector<DType> dtypes;
    for (const Arg& a : args) {
      if (a.array) ThrowIfNoValue(*a.array, format.site);
      dtypes.push_back(CommonDType({a}));
    }
    CheckPrintFormat(format.text, dtypes);
    if (!CurrentFrame()) {
      std::vector<ir::Array> values;
      for (size_t i = 0; i < args.size(); ++i) {
        const Arg& a = args[i];
        values.push_back(a.array                ? a.array->value(format.site)
                         : a.kind == Arg::kReal ? ir::Array::Scalar(dtypes[i], a.number)
                                                : ir::Array::ScalarInt(dtypes[i], a.integer));
      }
      PrintLine(format.text, values);
      std::fflush(stdout);
      return;
    }
    for (size_t i = 0; i < args.size(); ++i) arrays.push_back(AsArray(args[i], dtypes[i]));
    Apply("debug_print", format.site, arrays,
          [&](ir::Builder& b, const std::vector<ir::Value>& in) {
            ir::DebugPrint(b, format.text, in);
            return std::vector<ir::Value>{};
          });
  });
}

}  // namespace tessera::internal
