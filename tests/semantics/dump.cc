// Prints the rows as JSON, one object per line. A row (rows.h) is a program in Python and its twin,
// the same program in C++. scripts/record_semantics.py reads the lines and runs the Python programs
// in JAX.
#include <iostream>
#include <nlohmann/json.hpp>

#include "tests/semantics/rows.h"

int main() {
  for (const tessera::semantics::Row& row : tessera::semantics::Rows()) {
    nlohmann::json phrases = nlohmann::json::array();
    for (const std::string& phrase : {row.phrase, row.phrase2}) {
      if (!phrase.empty()) phrases.push_back(phrase);
    }
    std::cout << nlohmann::json{{"name", row.name},
                                {"python", row.python},
                                {"fails", row.fails},
                                {"phrases", phrases}}
                     .dump()
              << "\n";
  }
  return 0;
}
