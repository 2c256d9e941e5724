// Writes samples as JSON for programs in other languages, and reads the values that such a program
// recorded for them. A sample, or row, is one op with given attributes and operands (samples.h).
//
// An array is written as the hexadecimal digits of its bytes, so that nothing is rounded on the
// way.
#pragma once
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "tests/ops/samples.h"

namespace tessera::ir::samples {

// Returns one line of JSON: name, digest, op, attrs, regions, scope, operands with the block of
// each shard, and the types of the results. Throws StatusException if the op rejects the types of
// the row.
std::string ToJson(const Sample& s);
// Returns a digest of everything on which a recorded value may depend.
std::string DigestOf(const Sample& s);

struct Recorded {
  std::string digest;
  std::vector<Shards> results;
  std::string failed;  // why there are no results, if the recorder was killed; else empty
};
// The contents of one file of tests/ops/recorded. `samples` maps the name of a sample to its
// results.
struct Recording {
  std::string source;  // the programs that computed the values: "jax 0.4.30, numpy 1.26.4"
  std::map<std::string, Recorded> samples;
};
absl::StatusOr<Recording> ReadRecording(const std::string& path);

}  // namespace tessera::ir::samples
