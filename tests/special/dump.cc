// Prints the rows for scripts/record_special.py, one JSON object per line. A row is one special
// function with its points (rows.h). Points are written as the hexadecimal digits of their f64
// bytes.
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
