// Draws a PlanView as text or SVG. visualize.cc and the command line call it.
#include "client/show/picture.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/words.h"
#include "client/plan/shards.h"
#include "client/plan/text.h"

namespace tessera::internal {
namespace {

constexpr int kMaxRows = 8;            // rows of the mesh, and of an array's picture
constexpr int kRowsWhenTruncated = 4;  // rows that are drawn if there are more
constexpr size_t kArraysInCell = 8;    // arrays drawn per device
constexpr int kBarColumns = 24;
constexpr int kGap = 3;  // columns between pictures side by side
constexpr int kMaxPictures = 12;
constexpr size_t kMaxGroupDevices = 5;  // devices drawn per group
constexpr int kGroupsColumns = 32;      // width of the text of all groups
constexpr int kMinCellColumns = 10, kMaxIdColumns = 13;
constexpr size_t kNameInCell = 24;  // only the end of a longer name is shown

// Box-drawing characters: horizontal, vertical, corners, and the joints of a border with an inner
// line.
struct Lines {
  const char *h, *v, *left_top, *right_top, *left_low, *right_low, *top, *low, *left, *right,
      *cross, *full, *dots;
};
constexpr Lines kUnicode = {"─", "│", "╭", "╮", "╰", "╯", "┬", "┴", "├", "┤", "┼", "█", "…"};
constexpr Lines kAscii = {"-", "|", "+", "+", "+", "+", "+", "+", "+", "+", "+", "#", ".."};

const Lines& LinesOf(const Display& display) { return display.unicode ? kUnicode : kAscii; }

std::string Repeat(const std::string& what, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += what;
  return out;
}

// A grid of cells with borders. A column is as wide, and a row as high, as its largest cell.
class Grid {
 public:
  Grid(int rows, int columns)
      : cells_(static_cast<size_t>(rows),
               std::vector<std::vector<std::string>>(static_cast<size_t>(columns))) {}
  std::vector<std::string>& at(int row, int column) {
    return cells_[static_cast<size_t>(row)][static_cast<size_t>(column)];
  }
  // Returns the picture of the grid, with `labels` to the left of the rows, or to the right if
  // `right_labels`.
  std::vector<std::string> ToLines(const Lines& l, const std::vector<std::string>& titles,
                                   const std::vector<std::string>& labels,
                                   bool right_labels) const {
    const size_t columns = cells_[0].size();
    std::vector<int> widths(columns, 1);
    for (size_t c = 0; c < columns; ++c) {
      if (c < titles.size()) widths[c] = std::max(widths[c], WidthOf(titles[c]));
      for (const auto& row : cells_)
        for (const std::string& line : row[c]) widths[c] = std::max(widths[c], WidthOf(line));
    }
    int label_width = 0;
    for (const std::string& text : labels) label_width = std::max(label_width, WidthOf(text));
    const std::string margin = right_labels ? " " : Repeat(" ", label_width + 2);
    const auto border = [&](const char* left, const char* between, const char* right) {
      std::string out = margin + left;
      for (size_t c = 0; c < columns; ++c) {
        out += Repeat(l.h, widths[c] + 2) + (c + 1 < columns ? between : right);
      }
      return out;
    };
    std::vector<std::string> out;
    if (!titles.empty()) {
      std::string line = margin;
      for (size_t c = 0; c < columns; ++c) line += "  " + PadOrTruncate(titles[c], widths[c]) + " ";
      absl::StripTrailingAsciiWhitespace(&line);
      out.push_back(line);
    }
    out.push_back(border(l.left_top, l.top, l.right_top));
    for (size_t r = 0; r < cells_.size(); ++r) {
      size_t height = 1;
      for (const auto& cell : cells_[r]) height = std::max(height, cell.size());
      for (size_t i = 0; i < height; ++i) {
        const std::string text = r < labels.size() && i == 0 ? labels[r] : "";
        std::string line = right_labels ? margin : " " + PadOrTruncate(text, label_width) + " ";
        line += l.v;
        for (size_t c = 0; c < columns; ++c) {
          const auto& cell = cells_[r][c];
          line += " " + PadOrTruncate(i < cell.size() ? cell[i] : "", widths[c]) + " " + l.v;
        }
        if (right_labels && !text.empty()) line += " " + text;
        out.push_back(line);
      }
      if (r + 1 < cells_.size()) out.push_back(border(l.left, l.cross, l.right));
    }
    out.push_back(border(l.left_low, l.low, l.right_low));
    return out;
  }

 private:
  std::vector<std::vector<std::vector<std::string>>> cells_;
};

bool IsSharded(const ir::Mesh& mesh, const ir::PartitionSpec& spec) {
  return std::any_of(spec.dims.begin(), spec.dims.end(), [&](const ir::AxisList& axes) {
    return std::any_of(axes.begin(), axes.end(), [&](const std::string& axis) {
      return mesh.Has(axis) && mesh.SizeOf(axis) > 1;
    });
  });
}

// Returns how many of `all` rows are drawn.
int NumRowsDrawn(int64_t all) {
  return all <= kMaxRows ? static_cast<int>(all) : kRowsWhenTruncated;
}

std::string NameText(const PlanArray& a) {
  return a.count == 1 ? a.name : absl::StrCat(a.name, " (", a.count, ")");
}

// Truncates a long path at the front, and a long list at the end.
std::string ShortName(const PlanArray& a, const Lines& l) {
  const std::string name = NameText(a);
  if (name.size() <= kNameInCell) return name;
  const auto end_of = [&](const std::string& text, size_t characters) {
    return text.size() <= characters ? text
                                     : absl::StrCat(l.dots, text.substr(text.size() - characters));
  };
  const size_t comma = a.name.find(", ");
  if (comma == std::string::npos) return end_of(name, kNameInCell);
  return absl::StrCat(end_of(a.name.substr(0, comma), kNameInCell / 2), ", ", l.dots, " (", a.count,
                      ")");
}

std::string DeviceName(const PlanView& plan, int64_t ordinal) {
  if (static_cast<size_t>(ordinal) >= plan.devices.size()) return absl::StrCat(ordinal);
  return absl::StrCat(plan.devices[static_cast<size_t>(ordinal)]);
}

std::string AxisText(const ir::Mesh& mesh, int axis, int64_t at) {
  return absl::StrCat(mesh.axes[static_cast<size_t>(axis)].name, "=", at);
}

// Returns the lines of a device's cell: its name, then its shards of the arrays.
std::vector<std::string> DeviceCell(const PlanView& plan, const Display& display,
                                    const std::vector<const PlanArray*>& arrays, int64_t ordinal) {
  const Lines& l = LinesOf(display);
  std::vector<std::string> cell = {
      display.Colorize(Style::kBold, absl::StrCat("device ", DeviceName(plan, ordinal)))};
  if (static_cast<size_t>(ordinal) < plan.devices.size()) {
    const auto worker = plan.worker_of.find(plan.devices[static_cast<size_t>(ordinal)]);
    if (worker != plan.worker_of.end()) {
      absl::StrAppend(&cell[0], " ", display.Colorize(Style::kDim, worker->second));
    }
  }
  for (size_t i = 0; i < std::min(arrays.size(), kArraysInCell); ++i) {
    const PlanArray& a = *arrays[i];
    cell.push_back(
        absl::StrCat(display.Colorize(a.is_result ? Style::kGreen : Style::kCyan, ShortName(a, l)),
                     " ", ShardText(ShardRanges(plan.mesh, a.spec, a.type.shape, ordinal))));
  }
  if (arrays.size() > kArraysInCell) {
    cell.push_back(absl::StrCat(l.dots, " ", arrays.size() - kArraysInCell, " more"));
  }
  return cell;
}

// Draws the mesh as a grid of devices. The columns run along the last mesh axis with a size above
// 1, the rows along the axes before it.
void AppendMesh(const PlanView& plan, const Display& display, std::string* out) {
  const Lines& l = LinesOf(display);
  const int64_t devices = plan.mesh.num_devices();
  int axes = static_cast<int>(plan.mesh.axes.size());
  while (axes > 1 && plan.mesh.axes[static_cast<size_t>(axes) - 1].size == 1) --axes;
  const int64_t columns_all = axes == 0 ? 1 : plan.mesh.axes[static_cast<size_t>(axes) - 1].size;
  const int64_t rows_all = devices / columns_all;
  std::vector<const PlanArray*> arrays;
  for (const auto* list : {&plan.arguments, &plan.results})
    for (const PlanArray& a : *list) arrays.push_back(&a);

  const auto cell_of = [&](int64_t ordinal) { return DeviceCell(plan, display, arrays, ordinal); };
  int widest = kMinCellColumns;
  for (int64_t ordinal : {int64_t{0}, devices - 1})
    for (const std::string& line : cell_of(ordinal)) widest = std::max(widest, WidthOf(line));
  const int label_width =
      axes < 2 ? 0 : WidthOf(AxisText(plan.mesh, 0, rows_all)) * std::min(axes - 1, 3);
  const int64_t fit = std::max((display.columns - label_width - 4) / (widest + 3), 1);
  const int columns = static_cast<int>(std::min(fit, columns_all));
  const int rows = NumRowsDrawn(rows_all);

  Grid grid(rows, columns);
  std::vector<std::string> titles, labels;
  for (int c = 0; c < columns && axes > 0; ++c) titles.push_back(AxisText(plan.mesh, axes - 1, c));
  for (int r = 0; r < rows; ++r) {
    const std::vector<int64_t> at = plan.mesh.Coordinates(r * columns_all);
    std::vector<std::string> parts;
    for (int a = 0; a + 1 < axes; ++a) {
      parts.push_back(AxisText(plan.mesh, a, at[static_cast<size_t>(a)]));
    }
    labels.push_back(absl::StrJoin(parts, ","));
    for (int c = 0; c < columns; ++c) grid.at(r, c) = cell_of(r * columns_all + c);
  }
  for (const std::string& line : grid.ToLines(l, titles, labels, /*right_labels=*/false)) {
    absl::StrAppend(out, line, "\n");
  }
  if (rows < rows_all || columns < columns_all) {
    absl::StrAppend(out, "  ", l.dots, " ", devices - static_cast<int64_t>(rows) * columns,
                    " more of ", devices, " devices, cut in the same way\n");
  }
}

// The number of a block along each of some dims; it selects the part of an array that one picture
// shows.
using Slice = std::map<size_t, int64_t>;

// Returns the dims of an array that are cut.
std::vector<size_t> CutDims(const ir::Mesh& mesh, const PlanArray& array) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < array.spec.dims.size() && d < array.type.shape.size(); ++d) {
    ir::PartitionSpec one;
    one.dims = {array.spec.dims[d]};
    if (IsSharded(mesh, one)) dims.push_back(d);
  }
  return dims;
}

int64_t BlocksAlong(const ir::Mesh& mesh, const PlanArray& array, size_t dim) {
  return dim < array.spec.dims.size() ? mesh.SizeOf(array.spec.dims[dim]) : 1;
}
int64_t BlockOf(const ir::Mesh& mesh, const PlanArray& array, size_t dim, int64_t device) {
  return dim < array.spec.dims.size() ? mesh.IndexAlong(device, array.spec.dims[dim]) : 0;
}

// The blocks of an array along two dims: the first two that are cut. If only one is cut, another
// dim is drawn with it.
struct Blocks {
  int64_t rows_all = 1, columns_all = 1;
  std::vector<std::string> labels, titles;  // ranges of the rows and columns that are drawn
  std::vector<std::vector<std::vector<int64_t>>> holders;  // devices, by row and column
  int rows() const { return static_cast<int>(holders.size()); }
  int columns() const { return static_cast<int>(holders[0].size()); }
  bool truncated() const { return rows() < rows_all || columns() < columns_all; }
};
// Sorts the devices into the blocks that they hold. The loop is over the devices, because the shard
// of a device is easy to compute, and several devices may hold one block.
Blocks LayOut(const PlanView& plan, const PlanArray& array, const Slice& slice, int64_t rows_max,
              int64_t columns_max) {
  std::set<size_t> dims;
  for (size_t d : CutDims(plan.mesh, array))
    if (dims.size() < 2) dims.insert(d);
  // Dims that are not cut fill up the two dims of the picture.
  for (size_t d = 0; d < array.type.shape.size() && dims.size() < 2; ++d) dims.insert(d);
  const bool has_rows = dims.size() == 2, has_columns = !dims.empty();
  const size_t down = has_rows ? *dims.begin() : 0, across = has_columns ? *dims.rbegin() : 0;
  Blocks out;
  if (has_rows) out.rows_all = BlocksAlong(plan.mesh, array, down);
  if (has_columns) out.columns_all = BlocksAlong(plan.mesh, array, across);
  const auto rows = static_cast<size_t>(std::min(out.rows_all, rows_max)),
             columns = static_cast<size_t>(std::min(out.columns_all, columns_max));
  out.holders.assign(rows, std::vector<std::vector<int64_t>>(columns));
  out.labels.resize(has_rows ? rows : 0);
  out.titles.resize(has_columns ? columns : 0);
  for (int64_t device = 0; device < plan.mesh.num_devices(); ++device) {
    const auto block_index = [&](bool has_dim, size_t d) {
      return static_cast<size_t>(has_dim ? BlockOf(plan.mesh, array, d, device) : 0);
    };
    const size_t r = block_index(has_rows, down), c = block_index(has_columns, across);
    const bool in_slice = std::all_of(slice.begin(), slice.end(), [&](const auto& fixed) {
      return BlockOf(plan.mesh, array, fixed.first, device) == fixed.second;
    });
    if (r >= rows || c >= columns || !in_slice) continue;
    out.holders[r][c].push_back(plan.devices.empty() ? device
                                                     : plan.devices[static_cast<size_t>(device)]);
    const std::vector<Range> shard = ShardRanges(plan.mesh, array.spec, array.type.shape, device);
    const auto range = [&](size_t d) { return absl::StrCat(shard[d].begin, ":", shard[d].end); };
    if (has_columns) out.titles[c] = range(across);
    if (has_rows) out.labels[r] = range(down);
  }
  for (auto& row : out.holders)
    for (std::vector<int64_t>& devices : row) std::sort(devices.begin(), devices.end());
  return out;
}

std::string TitleOf(const PlanArray& array, const Slice& slice) {
  std::string title = absl::StrCat(array.type.ToString(), " ", array.spec.ToString());
  if (slice.empty()) return title;
  std::vector<std::string> dims;
  for (size_t d = 0; d < array.type.shape.size(); ++d) {
    const auto fixed = slice.find(d);
    dims.push_back(fixed == slice.end() ? ":" : absl::StrCat("block ", fixed->second));
  }
  return absl::StrCat(title, " [", absl::StrJoin(dims, ", "), "]");
}

// Draws the shards of an array in at most `columns_max` columns.
std::vector<std::string> BlocksPicture(const PlanView& plan, const PlanArray& array,
                                       const Slice& slice, const Display& display,
                                       int columns_max) {
  constexpr Style kStyles[] = {Style::kCyan, Style::kGreen,   Style::kYellow,
                               Style::kBlue, Style::kMagenta, Style::kRed};
  const Lines& l = LinesOf(display);
  const int64_t all_rows = LayOut(plan, array, slice, 1, 1).rows_all;
  const Blocks blocks = LayOut(plan, array, slice, NumRowsDrawn(all_rows), columns_max);
  Grid grid(blocks.rows(), blocks.columns());
  for (int r = 0; r < blocks.rows(); ++r) {
    for (int c = 0; c < blocks.columns(); ++c) {
      const std::string ids = Truncate(
          IntsText(blocks.holders[static_cast<size_t>(r)][static_cast<size_t>(c)]), kMaxIdColumns);
      const size_t style = static_cast<size_t>(r * blocks.columns() + c) % std::size(kStyles);
      grid.at(r, c) = {display.Colorize(kStyles[style], ids)};
    }
  }
  std::vector<std::string> out =
      grid.ToLines(l, blocks.titles, blocks.labels, /*right_labels=*/true);
  if (blocks.truncated()) {
    out.push_back(
        absl::StrCat(" ", l.dots, " ", blocks.rows_all, " x ", blocks.columns_all, " blocks"));
  }
  const size_t num_cut_dims = CutDims(plan.mesh, array).size();
  if (num_cut_dims > 2 && slice.empty())
    out.push_back(absl::StrCat(" ", num_cut_dims - 2, " more dims are cut"));
  const std::string name = NameText(array);
  const std::string title = absl::StrCat(" ", display.Colorize(Style::kBold, name),
                                         name.empty() ? "" : " ", TitleOf(array, slice));
  out.insert(out.begin(), Truncate(title, display.columns));
  return out;
}

// Draws a slice with as many columns as fit the terminal.
std::vector<std::string> SlicePicture(const PlanView& plan, const PlanArray& array,
                                      const Slice& slice, const Display& display) {
  for (int columns = kMaxRows;; --columns) {
    std::vector<std::string> lines = BlocksPicture(plan, array, slice, display, columns);
    const bool fits = std::all_of(lines.begin(), lines.end(), [&](const std::string& line) {
      return WidthOf(line) <= display.columns;
    });
    if (fits || columns == 1) return lines;
  }
}

// Returns the slices of an array that are drawn as one picture each: all combinations of blocks
// along the cut dims that are not dims of the picture, but at most `max_slices` of them.
std::vector<Slice> SlicesOf(const PlanView& plan, const PlanArray& array, size_t max_slices) {
  std::vector<Slice> slices = {{}};
  const std::vector<size_t> dims = CutDims(plan.mesh, array);
  for (size_t i = 2; i < dims.size(); ++i) {
    std::vector<Slice> finer;
    for (const Slice& slice : slices) {
      const int64_t blocks = BlocksAlong(plan.mesh, array, dims[i]);
      for (int64_t block = 0; block < blocks && finer.size() < max_slices; ++block) {
        finer.push_back(slice);
        finer.back()[dims[i]] = block;
      }
    }
    slices = std::move(finer);
  }
  return slices;
}
int64_t NumSlices(const PlanView& plan, const PlanArray& array) {
  const std::vector<size_t> dims = CutDims(plan.mesh, array);
  int64_t all = 1;
  for (size_t i = 2; i < dims.size(); ++i) all *= BlocksAlong(plan.mesh, array, dims[i]);
  return all;
}

// Draws the pictures of sharded arrays side by side, in rows that fit the terminal. Arrays that are
// whole on every device are only listed.
void AppendArrayLines(const PlanView& plan, const Display& display, std::string* out) {
  std::vector<std::vector<std::string>> pictures;
  std::vector<std::string> unsharded;
  size_t all = 0;
  for (const auto* list : {&plan.arguments, &plan.inspected, &plan.results}) {
    for (const PlanArray& a : *list) {
      if (!IsSharded(plan.mesh, a.spec)) {
        unsharded.push_back(absl::StrCat(NameText(a), " ", a.type.ToString()));
      } else if (++all <= kMaxPictures) {
        pictures.push_back(ArrayPicture(plan, a, display));
      }
    }
  }
  for (size_t i = 0; i < pictures.size();) {
    // Put as many pictures side by side as fit.
    std::vector<std::string> lines;
    int used = 0;
    do {
      int width = 0;
      for (const std::string& line : pictures[i]) width = std::max(width, WidthOf(line));
      if (used > 0 && used + kGap + width > display.columns) break;
      const int left = used > 0 ? used + kGap : 0;
      lines.resize(std::max(lines.size(), pictures[i].size()));
      for (size_t n = 0; n < lines.size(); ++n) {
        lines[n] = PadOrTruncate(lines[n], std::max(left, WidthOf(lines[n])));
        if (n < pictures[i].size()) lines[n] += pictures[i][n];
      }
      used = left + width;
      ++i;
    } while (i < pictures.size());
    for (std::string& line : lines) {
      absl::StripTrailingAsciiWhitespace(&line);
      absl::StrAppend(out, line, "\n");
    }
    *out += "\n";
  }
  if (all > kMaxPictures) absl::StrAppend(out, " ", all - kMaxPictures, " more arrays are cut\n\n");
  if (!unsharded.empty()) {
    absl::StrAppend(out, " whole on every device: ", absl::StrJoin(unsharded, ", "), "\n\n");
  }
}

// Returns the groups of devices that exchange data along these axes, as "{0 1} {2 3}".
std::string GroupsText(const PlanView& plan, const std::vector<std::string>& axes) {
  std::set<int64_t> seen;
  std::vector<std::string> groups;
  for (int64_t d = 0; d < plan.mesh.num_devices() && groups.size() <= 4; ++d) {
    if (seen.count(d) > 0) continue;
    const std::vector<int64_t> group = plan.mesh.GroupOf(d, axes);
    std::vector<std::string> names;
    for (int64_t member : group) {
      seen.insert(member);
      names.push_back(DeviceName(plan, member));
    }
    if (names.size() > kMaxGroupDevices) {
      names.resize(kMaxGroupDevices - 1);
      names.push_back("..");
    }
    groups.push_back(absl::StrCat("{", absl::StrJoin(names, " "), "}"));
  }
  if (groups.size() > 4) groups[4] = "..";
  return Truncate(absl::StrJoin(groups, " "), kGroupsColumns);
}

std::string Bar(int64_t part, int64_t most, const Lines& l) {
  if (most <= 0 || part <= 0) return "";
  return Repeat(l.full, static_cast<int>(std::max<int64_t>(1, part * kBarColumns / most)));
}

// Draws a table of collectives with bars for their bytes. Columns are aligned by the widest entry,
// which is known only after all rows have been made.
void AppendCollectives(const PlanView& plan, const Display& display, std::string* out) {
  const Lines& l = LinesOf(display);
  if (plan.collectives.empty()) {
    absl::StrAppend(out, display.Colorize(Style::kBold, " collectives"),
                    ": none; the devices do not communicate\n");
    return;
  }
  int64_t most = 0, total = 0;
  size_t name_width = 0, groups_width = 0;
  for (const PlanView::Collective& c : plan.collectives) {
    most = std::max(most, c.bytes_sent);
    total += c.bytes_sent;
  }
  std::vector<std::vector<std::string>> rows;
  for (const PlanView::Collective& c : plan.collectives) {
    std::string what = absl::StrCat(c.op, " over ", absl::StrJoin(c.axes, ", "));
    if (c.repeats > 1) absl::StrAppend(&what, ", ", c.repeats, " times");
    rows.push_back({what, GroupsText(plan, c.axes), Bar(c.bytes_sent, most, l),
                    BytesText(static_cast<double>(c.bytes_sent)), c.site});
    name_width = std::max(name_width, rows.back()[0].size());
    groups_width = std::max(groups_width, rows.back()[1].size());
  }
  absl::StrAppend(out, display.Colorize(Style::kBold, " collectives"), ": one device sends ",
                  BytesText(static_cast<double>(total)), " a run\n");
  for (const auto& row : rows) {
    const std::string line = absl::StrCat(
        "   ", PadOrTruncate(row[0], static_cast<int>(name_width)), "  ",
        PadOrTruncate(row[1], static_cast<int>(groups_width)), "  ",
        display.Colorize(Style::kYellow, row[2]), " ", row[3],
        row[4].empty() ? "" : absl::StrCat("  ", display.Colorize(Style::kDim, row[4])));
    absl::StrAppend(out, Truncate(line, display.columns), "\n");
  }
}

void AppendReshards(const PlanView& plan, const Display& display, std::string* out) {
  if (plan.reshards.empty()) return;
  absl::StrAppend(out, display.Colorize(Style::kBold, " laid out anew"), "\n");
  for (const PlanView::Reshard& m : plan.reshards) {
    const std::string line =
        absl::StrCat("   ", m.op, ": ", m.change, m.site.empty() ? "" : absl::StrCat("  ", m.site));
    absl::StrAppend(out, Truncate(line, display.columns), "\n");
  }
}

void AppendMemory(const PlanView& plan, const Display& display, std::string* out) {
  const Lines& l = LinesOf(display);
  const int64_t rest =
      std::max<int64_t>(0, plan.peak_bytes - plan.argument_bytes - plan.result_bytes);
  absl::StrAppend(
      out, display.Colorize(Style::kBold, " memory"), ": a device holds at most ",
      BytesText(static_cast<double>(plan.peak_bytes)),
      plan.absent_device_bytes == 0
          ? ""
          : absl::StrCat(" of ", BytesText(static_cast<double>(plan.absent_device_bytes))),
      "\n");
  for (const auto& [name, bytes, style] :
       {std::tuple("arguments", plan.argument_bytes, Style::kCyan),
        std::tuple("results", plan.result_bytes, Style::kGreen),
        std::tuple("in between", rest, Style::kBlue)}) {
    if (bytes == 0) continue;
    absl::StrAppend(out, "   ", PadOrTruncate(name, 10), "  ",
                    display.Colorize(style, Bar(bytes, plan.peak_bytes, l)), " ",
                    BytesText(static_cast<double>(bytes)), "\n");
  }
}

void AppendTime(const PlanView& plan, const Display& display, std::string* out) {
  const absl::Duration all = plan.compute_time + plan.collective_time;
  if (all == absl::ZeroDuration()) return;
  const Lines& l = LinesOf(display);
  absl::StrAppend(out, display.Colorize(Style::kBold, " time"), ": predicted ", DurationText(all),
                  plan.last_run > absl::ZeroDuration()
                      ? absl::StrCat(", last run ", DurationText(plan.last_run))
                      : "",
                  plan.measured_devices ? "" : "; the speed of devices is assumed", "\n");
  for (const auto& [name, time, style] :
       {std::tuple("compute", plan.compute_time, Style::kBlue),
        std::tuple("collectives", plan.collective_time, Style::kYellow)}) {
    if (time == absl::ZeroDuration()) continue;
    absl::StrAppend(
        out, "   ", PadOrTruncate(name, 11), "  ",
        display.Colorize(style, Bar(absl::ToInt64Nanoseconds(time),
                                    std::max<int64_t>(absl::ToInt64Nanoseconds(all), 1), l)),
        " ", DurationText(time), "\n");
  }
}

}  // namespace

std::vector<std::string> ArrayPicture(const PlanView& plan, const PlanArray& array,
                                      const Display& display) {
  if (!IsSharded(plan.mesh, array.spec)) return {};
  return SlicePicture(plan, array, {}, display);
}

std::string PlacementPicture(const PlanView& plan, const PlanArray& array, const Display& display) {
  std::string out;
  const std::vector<Slice> slices = SlicesOf(plan, array, kMaxPictures);
  for (const Slice& slice : slices) {
    for (std::string line : SlicePicture(plan, array, slice, display)) {
      absl::StripTrailingAsciiWhitespace(&line);
      absl::StrAppend(&out, line, "\n");
    }
  }
  const int64_t num_omitted = NumSlices(plan, array) - static_cast<int64_t>(slices.size());
  if (num_omitted > 0)
    absl::StrAppend(&out, " ", LinesOf(display).dots, " ", num_omitted, " more slices\n");
  return out;
}

std::string PlanPicture(const PlanView& plan, const Display& display) {
  std::string out =
      absl::StrCat(display.Colorize(Style::kBold, plan.program), " on mesh ", plan.mesh.ToString(),
                   ", ", Pluralize(plan.mesh.num_devices(), "device"),
                   plan.absent_device_bytes > 0 ? ", absent" : "", "\n\n");
  AppendMesh(plan, display, &out);
  out += "\n";
  AppendArrayLines(plan, display, &out);
  AppendCollectives(plan, display, &out);
  AppendReshards(plan, display, &out);
  AppendMemory(plan, display, &out);
  AppendTime(plan, display, &out);
  return out;
}

// ---- SVG. ---------------------------------------------------------------------------------------
namespace {

constexpr int64_t kMaxSvgBlocks = 16;   // blocks along a dim
constexpr size_t kMaxSvgPictures = 64;  // pictures of all arrays
constexpr int kCharacter = 8, kLine = 18, kCellHeight = 34, kMargin = 12, kMinCell = 56;
constexpr size_t kMaxSvgIds = 24;  // in characters
// Background colours of blocks, on which black text can be read.
constexpr const char* kFills[] = {"#a6cee3", "#b2df8a", "#fdbf6f", "#cab2d6",
                                  "#fb9a99", "#ffff99", "#9bd3cb", "#d9d9d9"};

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}
int WidthOnPage(const std::string& text) { return static_cast<int>(text.size()) * kCharacter; }

// Draws elements from the top of a page downwards.
class Page {
 public:
  void AddText(int x, int y, const std::string& text, const char* attributes = "") {
    absl::StrAppend(&body_, "<text x=\"", x, "\" y=\"", y, "\"", attributes, ">", Escaped(text),
                    "</text>\n");
  }
  void AddHeading(const std::string& text) {
    top_ += kLine;
    AddText(kMargin, top_, text, " font-weight=\"bold\"");
    width_ = std::max(width_, kMargin + WidthOnPage(text));
  }
  // Draws blocks as rectangles of equal width, which is that of the widest text, with the ranges
  // above and to the right of them.
  void AddPicture(const Blocks& blocks) {
    int cell_width = kMinCell;
    for (const auto& row : blocks.holders)
      for (const auto& devices : row)
        cell_width = std::max(cell_width, WidthOnPage(IdsOf(devices)) + kCharacter);
    for (const std::string& title : blocks.titles)
      cell_width = std::max(cell_width, WidthOnPage(title) + kCharacter);
    if (!blocks.titles.empty()) {
      top_ += kLine;
      for (int c = 0; c < blocks.columns(); ++c) {
        AddText(kMargin + c * cell_width + cell_width / 2, top_,
                blocks.titles[static_cast<size_t>(c)], " text-anchor=\"middle\" fill=\"#555\"");
      }
    }
    top_ += kLine / 3;
    for (int r = 0; r < blocks.rows(); ++r) {
      for (int c = 0; c < blocks.columns(); ++c) {
        const size_t fill = static_cast<size_t>(r * blocks.columns() + c) % std::size(kFills);
        absl::StrAppend(&body_, "<rect x=\"", kMargin + c * cell_width, "\" y=\"", top_,
                        "\" width=\"", cell_width, "\" height=\"", kCellHeight, "\" fill=\"",
                        kFills[fill], "\" stroke=\"#333\"/>\n");
        AddText(kMargin + c * cell_width + cell_width / 2, top_ + kCellHeight / 2 + kLine / 4,
                IdsOf(blocks.holders[static_cast<size_t>(r)][static_cast<size_t>(c)]),
                " text-anchor=\"middle\"");
      }
      const int right = kMargin + blocks.columns() * cell_width + kCharacter;
      if (!blocks.labels.empty()) {
        const std::string& label = blocks.labels[static_cast<size_t>(r)];
        AddText(right, top_ + kCellHeight / 2 + kLine / 4, label, " fill=\"#555\"");
        width_ = std::max(width_, right + WidthOnPage(label));
      }
      width_ = std::max(width_, right);
      top_ += kCellHeight;
    }
    if (blocks.truncated()) {
      top_ += kLine;
      AddText(kMargin, top_,
              absl::StrCat("... ", blocks.rows_all, " x ", blocks.columns_all, " blocks"));
    }
    top_ += kMargin;
  }
  std::string Document() const {
    return absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width_ + kMargin,
                        "\" height=\"", top_ + kMargin,
                        "\" font-family=\"monospace\" font-size=\"13\">\n"
                        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
                        body_, "</svg>\n");
  }

 private:
  static std::string IdsOf(const std::vector<int64_t>& devices) {
    const std::string ids = IntsText(devices);
    return ids.size() <= kMaxSvgIds ? ids : ids.substr(0, kMaxSvgIds - 2) + "..";
  }
  std::string body_;
  int top_ = kMargin / 2, width_ = 0;
};

}  // namespace

std::string SvgOf(const PlanView& plan, const std::vector<PlanArray>& arrays) {
  Page page;
  size_t num_drawn = 0, num_omitted = 0;
  for (const PlanArray& a : arrays) {
    if (num_drawn >= kMaxSvgPictures) {
      num_omitted += static_cast<size_t>(NumSlices(plan, a));
      continue;
    }
    const std::vector<Slice> slices = SlicesOf(plan, a, kMaxSvgPictures - num_drawn);
    num_omitted += static_cast<size_t>(NumSlices(plan, a)) - slices.size();
    num_drawn += slices.size();
    const std::string name = NameText(a);
    for (const Slice& slice : slices) {
      page.AddHeading(absl::StrCat(name, name.empty() ? "" : " ", TitleOf(a, slice)));
      page.AddPicture(LayOut(plan, a, slice, kMaxSvgBlocks, kMaxSvgBlocks));
    }
  }
  if (num_omitted > 0) page.AddHeading(absl::StrCat("... ", num_omitted, " more pictures"));
  return page.Document();
}

std::string SvgOf(const PlanView& plan) {
  std::vector<PlanArray> all;
  for (const auto* list : {&plan.arguments, &plan.inspected, &plan.results})
    all.insert(all.end(), list->begin(), list->end());
  return SvgOf(plan, all);
}

}  // namespace tessera::internal
