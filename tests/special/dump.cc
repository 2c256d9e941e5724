// The rows as scripts/record_special.py reads them, a JSON object a line; points are the bytes of
// f64.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/escaping.h"
#include "tests/special/rows.h"

int main() {
  for (const tessera::special_rows::Row& row : tessera::special_rows::Rows()) {
    nlohmann::json points = nlohmann::json::array();
    for (const std::vector<double>& column : row.points)
      points.push_back(absl::BytesToHexString(absl::string_view(
          reinterpret_cast<const char*>(column.data()), column.size() * sizeof(double))));
    std::cout << nlohmann::json{{"name", row.name},
                                {"python", row.python},
                                {"points", points},
                                {"derivatives", row.derivatives}}
                     .dump()
              << "\n";
  }
  return 0;
}
