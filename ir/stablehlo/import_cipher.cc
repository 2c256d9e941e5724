// Recognizes the cipher from which JAX makes random numbers. For CPUs JAX writes it as a function
// with a loop over five rounds, each a pass over the arrays; our op does it elementwise in one
// pass.
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/sha256.h"
#include "ir/ops.h"
#include "ir/stablehlo/importer.h"
#include "ir/text.h"

namespace tessera::ir::stablehlo {
namespace {

constexpr std::string_view kName = "threefry2x32";

// The hash of the function's text as JAX 0.10.2 writes it, in the form of NormalText.
constexpr std::string_view kCipherTextHash =
    "e053436cee4e22d0090868b9c8bb11d69826252b4fa858c0910ce16e5c2a465e";

// Removes the numbers that distinguish functions of one name ("closed_call_7").
void DropNumbers(std::string_view name, std::string* text) {
  for (size_t at = text->find(name); at != std::string::npos; at = text->find(name, at)) {
    at += name.size();
    size_t end = at;
    if (end < text->size() && (*text)[end] == '_') ++end;
    while (end > at && end < text->size() && absl::ascii_isdigit((*text)[end])) ++end;
    if (end > at + 1) text->erase(at, end - at);
  }
}

// Returns the function's text with [S] in place of the shape of its words. Two functions with the
// same text are the same function for arrays of two shapes.
std::string NormalText(const Function& f, const Type& words) {
  const std::string type = words.ToString();
  const std::string dims = type.substr(type.find('['));
  std::string text = absl::StrReplaceAll(
      PrintFunction(f),
      {{absl::StrCat("u32", dims), "u32[S]"}, {absl::StrCat("shape=", dims), "shape=[S]"}});
  DropNumbers(kName, &text);
  DropNumbers("closed_call", &text);
  return text;
}

}  // namespace

bool IsJaxCipher(const Function& f) {
  if (f.name.substr(0, kName.size()) != kName || f.num_params != 4 || f.results.size() != 2 ||
      f.types[3].rank() == 0)
    return false;
  return Sha256Hex(NormalText(f, f.types[3])) == kCipherTextHash;
}

std::vector<Value> EmitCipher(const std::vector<Value>& in) {
  const Dims& shape = in[3].shape();
  const auto [high, low] = Threefry2x32(BroadcastInDim(in[0], shape, {}),
                                        BroadcastInDim(in[1], shape, {}), in[2], in[3]);
  return {high, low};
}

}  // namespace tessera::ir::stablehlo
