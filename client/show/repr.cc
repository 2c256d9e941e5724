// NumPy's formatting of arrays, for operator<< and the command line. It follows numpy.array2string,
// including its choice of digits and widths, so that outputs can be compared with JAX's.
#include "client/repr.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "client/trace/trace.h"

namespace tessera::internal {
namespace {

using ir::DType;

// Values of NumPy's print options.
constexpr int kLineWidth = 75;
constexpr int64_t kThreshold = 1000, kEdgeItems = 3;
constexpr int kPrecision = 8;

std::string FormatDouble(const char* format, int precision, double x) {
  char buffer[400];
  std::snprintf(buffer, sizeof(buffer), format, precision, x);
  return buffer;
}
std::string PadLeft(std::string text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

// Returns the fewest significant digits that distinguish `x` from the other numbers of its dtype.
int NumDigits(double x, DType dtype) {
  int digits = 1;
  while (digits < 17) {
    const double read = std::strtod(FormatDouble("%.*e", digits - 1, x).c_str(), nullptr);
    if (ir::Array::Scalar(dtype, read).At(0) == x) break;
    ++digits;
  }
  return digits;
}

// The parts of a number: -12, 5 and +03 of -12.5e+03. `exponent` is empty if the number has none.
struct NumberParts {
  std::string whole, fraction, exponent;
};
NumberParts SplitNumber(const std::string& text) {
  const size_t e = std::min(text.find('e'), text.size()), dot = std::min(text.find('.'), e);
  NumberParts parts{text.substr(0, dot), dot < e ? text.substr(dot + 1, e - dot - 1) : "",
                    e < text.size() ? text.substr(e + 1) : ""};
  while (parts.fraction.ends_with('0')) parts.fraction.pop_back();
  return parts;
}

// Formats the elements of an array, all with as many digits as the longest one needs. For complex
// numbers there is one object for the real and one for the imaginary parts.
class FloatFormatter {
 public:
  // Looks at all numbers once, to choose between fixed and scientific notation and to find the
  // widths, as NumPy does. inf and nan widen a column only if they are longer than its numbers.
  FloatFormatter(const std::vector<double>& values, DType dtype, bool plus)
      : dtype_(dtype), plus_(plus) {
    double least = HUGE_VAL, most = 0;
    for (const double x : values) {
      if (!std::isfinite(x) || x == 0) continue;
      least = std::min(least, std::fabs(x));
      most = std::max(most, std::fabs(x));
    }
    // An f16 has three decimal digits that are always right.
    const double cutoff = dtype == DType::kF16 ? 1e3 : dtype == DType::kF32 ? 1e6 : 1e8;
    scientific_ = most > 0 && (most >= cutoff || least < 1e-4 || most / least > 1000);
    bool negative_infinity = false, special = false;
    for (const double x : values) {
      if (!std::isfinite(x)) {
        special = true;
        negative_infinity |= std::isinf(x) && x < 0;
        continue;
      }
      const NumberParts parts = Split(x);
      whole_ = std::max(whole_, parts.whole.size());
      fraction_ = std::max(fraction_, parts.fraction.size());
      exponent_ = std::max(exponent_, parts.exponent.size());
    }
    if (!special) return;
    const size_t right = WidthAfterPoint() + 1;
    const size_t longest = 3 + (plus || negative_infinity ? 1 : 0);
    if (longest > right) whole_ = std::max(whole_, longest - right);
  }

  std::string operator()(double x) const {
    if (!std::isfinite(x)) {
      const std::string sign = x < 0 ? "-" : plus_ ? "+" : "";
      return PadLeft(sign + (std::isnan(x) ? "nan" : "inf"), whole_ + WidthAfterPoint() + 1);
    }
    NumberParts parts = Split(x);
    const size_t missing = fraction_ - parts.fraction.size();
    std::string out = PadLeft(parts.whole, whole_) + "." + parts.fraction;
    out.append(missing, scientific_ ? '0' : ' ');
    if (!scientific_) return out;
    // Writes the sign of the exponent, then its digits with zeros before them.
    const std::string digits = parts.exponent.substr(1);
    return absl::StrCat(out, "e", parts.exponent.substr(0, 1),
                        std::string(exponent_ - 1 - digits.size(), '0'), digits);
  }

 private:
  size_t WidthAfterPoint() const { return scientific_ ? exponent_ + 1 + fraction_ : fraction_; }
  NumberParts Split(double x) const {
    const int digits = NumDigits(x, dtype_);
    NumberParts parts;
    if (scientific_) {
      parts = SplitNumber(FormatDouble("%.*e", std::min(digits - 1, kPrecision), x));
    } else {
      // The number of digits after the point that gives `digits` significant ones.
      const std::string shortest = FormatDouble("%.*e", digits - 1, x);
      const int exponent = std::atoi(shortest.c_str() + shortest.find('e') + 1);
      parts =
          SplitNumber(FormatDouble("%.*f", std::clamp(digits - 1 - exponent, 0, kPrecision), x));
    }
    if (plus_ && !std::signbit(x)) parts.whole = "+" + parts.whole;
    return parts;
  }

  DType dtype_;
  bool plus_;  // numbers that are not negative have a sign as well
  bool scientific_ = false;
  size_t whole_ = 0, fraction_ = 0, exponent_ = 0;
};

// Returns the positions along a dim that are shown; an array that is too long is shortened.
std::vector<int64_t> ShownIndices(int64_t size, bool shortened) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < size; ++i)
    if (!shortened || size <= 2 * kEdgeItems || i < kEdgeItems || i >= size - kEdgeItems)
      out.push_back(i);
  return out;
}

class ArrayFormatter {
 public:
  explicit ArrayFormatter(const ir::Array& value)
      : value_(value), shortened_(value.num_elements() > kThreshold) {
    std::vector<int64_t> shown;
    Collect(0, 0, &shown);
    ChooseFormat(shown);
  }
  std::string operator()(const std::string& prefix) const {
    return Format(0, 0, std::string(prefix.size() + 1, ' '), kLineWidth - 1);
  }

 private:
  void Collect(size_t axis, int64_t first, std::vector<int64_t>* out) const {
    if (axis == value_.shape().size()) {
      out->push_back(first);
      return;
    }
    for (const int64_t i : ShownIndices(value_.shape()[axis], shortened_))
      Collect(axis + 1, first * value_.shape()[axis] + i, out);
  }

  // Sets `format_element_`, the function that formats one element, to the format that fits the
  // elements that are shown.
  void ChooseFormat(const std::vector<int64_t>& shown) {
    const DType dtype = value_.dtype();
    const bool is_scalar = value_.shape().empty();
    if (dtype == DType::kBool) {
      format_element_ = [this, is_scalar](int64_t i) {
        return std::string(value_.IntAt(i) == 0 ? "False" : is_scalar ? "True" : " True");
      };
    } else if (ir::IsComplex(dtype)) {
      parts_ = ir::Array(dtype == DType::kC64 ? DType::kF32 : DType::kF64,
                         {2 * value_.num_elements()}, value_.bytes());
      std::vector<double> re, im;
      for (const int64_t i : shown) {
        re.push_back(parts_.At(2 * i));
        im.push_back(parts_.At(2 * i + 1));
      }
      format_element_ = [this, format_re = FloatFormatter(re, parts_.dtype(), /*plus=*/false),
                         format_im = FloatFormatter(im, parts_.dtype(), /*plus=*/true)](int64_t i) {
        std::string im_text = format_im(parts_.At(2 * i + 1));
        im_text.insert(im_text.find_last_not_of(' ') + 1, "j");
        return format_re(parts_.At(2 * i)) + im_text;
      };
    } else if (dtype == DType::kF16 || dtype == DType::kF32 || dtype == DType::kF64) {
      std::vector<double> values;
      for (const int64_t i : shown) values.push_back(value_.At(i));
      format_element_ = [this, floats = FloatFormatter(values, dtype, /*plus=*/false)](int64_t i) {
        return floats(value_.At(i));
      };
    } else if (ir::IsFloat(dtype)) {  // dtypes that NumPy itself does not know are not aligned
      format_element_ = [this](int64_t i) { return FormatDouble("%.*g", 6, value_.At(i)); };
    } else {
      const auto text = [this](int64_t i) {
        return ir::IsUnsignedInt(value_.dtype())
                   ? absl::StrCat(static_cast<uint64_t>(value_.IntAt(i)))
                   : absl::StrCat(value_.IntAt(i));
      };
      size_t width = 0;
      if (ir::BitWidth(dtype) >= 8)
        for (const int64_t i : shown) width = std::max(width, text(i).size());
      format_element_ = [text, width](int64_t i) { return PadLeft(text(i), width); };
    }
  }

  // Formats the block that starts at element `first`. Inner blocks are formatted by recursion;
  // along the last dim, elements are put into lines of at most `width` characters.
  std::string Format(size_t axis, int64_t first, const std::string& indent, int width) const {
    const size_t dims_left = value_.shape().size() - axis;
    if (dims_left == 0) return format_element_(first);
    const int64_t size = value_.shape()[axis];
    std::vector<std::string> words;
    int64_t previous = -1;
    for (const int64_t i : ShownIndices(size, shortened_)) {
      if (i != previous + 1) words.emplace_back("...");
      previous = i;
      words.push_back(Format(axis + 1, first * size + i, indent + " ", width - 1));
    }
    if (dims_left > 1) {
      const std::string between = "," + std::string(dims_left - 1, '\n') + indent;
      return absl::StrCat("[", absl::StrJoin(words, between), "]");
    }
    std::string out, line = indent;
    for (size_t k = 0; k < words.size(); ++k) {
      if (static_cast<int>(line.size() + words[k].size()) > width - 1) {
        line.erase(line.find_last_not_of(' ') + 1);
        absl::StrAppend(&out, line, "\n");
        line = indent;
      }
      absl::StrAppend(&line, words[k], k + 1 < words.size() ? ", " : "");
    }
    out += line;
    return absl::StrCat("[", out.substr(indent.size()), "]");
  }

  const ir::Array& value_;
  const bool shortened_;
  ir::Array parts_;  // real and imaginary parts of complex numbers
  std::function<std::string(int64_t)> format_element_;
};

}  // namespace

std::string DTypeNameInJax(DType dtype) {
  const std::string name(ir::DTypeName(dtype));
  if (dtype == DType::kBool) return name;
  if (dtype == DType::kBF16) return "bfloat16";
  const std::string rest = name.substr(1);
  // in floats of 8 and 4 bits, the part after the width: 8e4m3fn
  const size_t format = rest.find('e');
  switch (name[0]) {
    case 's':
      return "int" + rest;
    case 'u':
      return "uint" + rest;
    case 'c':
      return "complex" + rest;
    default:
      return format == std::string::npos
                 ? "float" + rest
                 : absl::StrCat("float", rest.substr(0, format), "_", rest.substr(format));
  }
}

std::string ReprOf(const ir::Array& value, bool weak) {
  const std::string prefix = "Array(";
  const std::string end =
      absl::StrCat("dtype=", DTypeNameInJax(value.dtype()), weak ? ", weak_type=True)" : ")");
  const std::string values = value.num_elements() > 0
                                 ? ArrayFormatter(value)(prefix)
                                 : absl::StrCat("[], shape=(", absl::StrJoin(value.shape(), ", "),
                                                value.shape().size() == 1 ? ",)" : ")");
  const size_t newline = values.rfind('\n');
  const size_t last_line = values.size() - (newline == std::string::npos ? -1 : newline) + 1;
  const bool fits = last_line + end.size() + 1 <= kLineWidth;
  return absl::StrCat(prefix, values, ",", std::string(fits ? 1 : prefix.size(), ' '), end);
}

}  // namespace tessera::internal

namespace tessera {

std::ostream& operator<<(std::ostream& out, const Array& x) {
  if (!x.is_concrete()) return out << x.to_string();
  const internal::ConcreteState& c = *internal::AsConcrete(x);
  std::string why;
  if (c.deleted.load() || c.donated.load()) {
    why = c.deleted.load() ? "it has been deleted" : "it was donated to a run";
  } else if (internal::CurrentFrame()) {
    why = "a function is being traced, which reads no contents";
  } else {
    try {
      return out << internal::ReprOf(x.value(Site{}), x.type().weak);
    } catch (const Error& e) {
      why = e.what();
    }
  }
  return out << "Array(shape=(" << absl::StrJoin(x.shape(), ", ") << (x.rank() == 1 ? ",)" : ")")
             << ", dtype=" << internal::DTypeNameInJax(x.dtype())
             << "), which cannot be read: " << why;
}

}  // namespace tessera
