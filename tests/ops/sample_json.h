// Writes samples as JSON for programs in other languages, and reads the values that such a program
// recorded for them.
//
// An array is written as the hexadecimal digits of its bytes, so that nothing is rounded on the
// way.
#pragma once
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "tests/ops/samples.h"

namespace tessera::ir::samples {

// Returns one line of JSON: name, digest, op, attrs, regions, scope, operands with a block for each
// shard, and the types of the results. Throws StatusException if the row does not type.
std::string ToJson(const Sample& s);
// Returns a digest of everything on which a recorded value may depend.
std::string DigestOf(const Sample& s);

struct Recorded {
  std::string digest;
  std::vector<Shards> results;
  std::string failed;  // why there are no results, if the recorder was killed; else empty
};
// The contents of a file of tests/ops/recorded, by the name of the sample.
struct Recording {
  std::string source;  // the programs that computed the values: "jax 0.4.30, numpy 1.26.4"
  std::map<std::string, Recorded> samples;
};
absl::StatusOr<Recording> ReadRecording(const std::string& path);

}  // namespace tessera::ir::samples
