// Samples as JSON, for programs in other languages; and the values such a program recorded for
// them.
//
// Arrays are hex of their bytes, so that nothing is rounded on the way.
#pragma once
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "tests/ops/samples.h"

namespace tessera::ir::samples {

// One line: name, digest, op, attrs, regions, scope, operands with a block for each shard, and the
// types of the results.  Throws StatusException when the row does not type.
std::string ToJson(const Sample& s);
// Changes whenever anything changes that a recorded value may depend on.
std::string DigestOf(const Sample& s);

struct Recorded {
  std::string digest;
  std::vector<Shards> results;
  std::string failed;  // why there are no results, if the recorder itself was killed
};
// What a file of tests/ops/recorded holds, by the sample's name.
struct Recording {
  std::string source;  // "jax 0.4.30, numpy 1.26.4": what the values come from
  std::map<std::string, Recorded> samples;
};
absl::StatusOr<Recording> ReadRecording(const std::string& path);

}  // namespace tessera::ir::samples
