// Prints the rows for scripts/check_samplers, one JSON object per line. A row is one sampler
// (rows.h). With arguments, runs the rows on an embedded cluster of one device and writes the bytes
// of N samples of each row to a file in FOLDER.
//
//   dump_samplers
//   dump_samplers SEED N FOLDER [ROW...]
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/tessera.h"
#include "tests/samplers/rows.h"

namespace tessera {
namespace {

int Dump(uint64_t seed, int64_t n, const std::string& folder,
         const std::vector<std::string>& names) {
  Session::SetDefault(Session::Embedded({.devices = 1}));
  for (const samplers::Row& row : samplers::Rows()) {
    if (!names.empty() && std::find(names.begin(), names.end(), row.name) == names.end()) continue;
    const auto sample = jit([&](const Array& k) { return row.sample(k, n); });
    const ir::Array value = sample(random::key(seed)).value();
    std::ofstream out(folder + "/" + row.name, std::ios::binary);
    out.write(reinterpret_cast<const char*>(value.data()), value.num_bytes());
    if (!out.good()) {
      std::cerr << "dump_samplers: cannot write to " << folder << "\n";
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  if (argc >= 4)
    return tessera::Dump(std::strtoull(argv[1], nullptr, 10), std::atoll(argv[2]), argv[3],
                         {argv + 4, argv + argc});
  for (const tessera::samplers::Row& row : tessera::samplers::Rows()) {
    std::cout << nlohmann::json{{"name", row.name},
                                {"python", row.python},
                                {"ulps", row.ulps},
                                {"scale", row.scale},
                                {"other_per_million", row.other_per_million},
                                {"x64", row.x64}}
                     .dump()
              << "\n";
  }
  return 0;
}
