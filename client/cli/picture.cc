#include "client/cli/picture.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/words.h"
#include "client/cli/mesh_args.h"

namespace tessera::cli {
namespace {

constexpr int kMaxRows = 8;            // of the mesh, and of an array's picture
constexpr int kRowsWhenTruncated = 4;  // if there are more
constexpr size_t kArraysInCell = 8;    // drawn per device
constexpr int kBarColumns = 24;
constexpr int kGap = 3;  // between pictures side by side
constexpr int kMaxPictures = 12;
constexpr size_t kMaxGroupDevices = 5;  // devices drawn per group
constexpr int kGroupsColumns = 32;      // of the text of all groups
constexpr int kMinCellColumns = 10, kMaxIdColumns = 13;
constexpr size_t kNameInCell = 24;  // of longer names the end is shown

// Box-drawing characters: horizontal, vertical, corners, and where a border meets an inner line.
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
  // `labels` are drawn to the left of the rows, or to the right if `right_labels`.
  std::vector<std::string> Draw(const Lines& l, const std::vector<std::string>& titles,
                                const std::vector<std::string>& labels, bool right_labels) const {
    const size_t columns = cells_[0].size();
    std::vector<int> widths(columns, 1);
    for (size_t c = 0; c < columns; ++c) {
      if (c < titles.size()) widths[c] = std::max(widths[c], WidthOf(titles[c]));
      for (const auto& row : cells_)
        for (const std::string& line : row[c]) widths[c] = std::max(widths[c], WidthOf(line));
    }
    int label = 0;
    for (const std::string& text : labels) label = std::max(label, WidthOf(text));
    const std::string margin = right_labels ? " " : Repeat(" ", label + 2);
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
        std::string line = right_labels ? margin : " " + PadOrTruncate(text, label) + " ";
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

// How many of `all` rows are drawn.
int RowsOf(int64_t all) { return all <= kMaxRows ? static_cast<int>(all) : kRowsWhenTruncated; }

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

// The lines of a device's cell: its name, then its shards of the arrays.
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

// Columns are the last mesh axis with a size above 1, rows the axes before it.
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
  const int label =
      axes < 2 ? 0 : WidthOf(AxisText(plan.mesh, 0, rows_all)) * std::min(axes - 1, 3);
  const int64_t fit = std::max((display.columns - label - 4) / (widest + 3), 1);
  const int columns = static_cast<int>(std::min(fit, columns_all));
  const int rows = RowsOf(rows_all);

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
  for (const std::string& line : grid.Draw(l, titles, labels, /*right_labels=*/false)) {
    absl::StrAppend(out, line, "\n");
  }
  if (rows < rows_all || columns < columns_all) {
    absl::StrAppend(out, "  ", l.dots, " ", devices - static_cast<int64_t>(rows) * columns,
                    " more of ", devices, " devices, cut in the same way\n");
  }
}

// Draws the shards of an array in at most `columns_max` columns.
std::vector<std::string> DrawBlocks(const PlanView& plan, const PlanArray& array,
                                    const Display& display, int columns_max) {
  const Lines& l = LinesOf(display);
  // Draws the first two sharded dims; if only one is sharded, another dim with it.
  std::set<size_t> dims;
  size_t sharded_dims = 0;
  for (size_t d = 0; d < array.spec.dims.size() && d < array.type.shape.size(); ++d) {
    ir::PartitionSpec one;
    one.dims = {array.spec.dims[d]};
    if (IsSharded(plan.mesh, one) && ++sharded_dims <= 2) dims.insert(d);
  }
  if (sharded_dims == 0) return {};
  if (sharded_dims == 1 && array.type.shape.size() > 1) dims.insert(dims.count(0) > 0 ? 1 : 0);
  const bool flat = dims.size() == 1;
  const size_t down = *dims.begin(), across = *dims.rbegin();

  // The devices that hold each shard, by its row and column.
  const auto parts_of = [&](size_t d) -> int64_t {
    return d < array.spec.dims.size() ? plan.mesh.SizeOf(array.spec.dims[d]) : 1;
  };
  const auto index_of = [&](size_t d, int64_t device) -> int64_t {
    return d < array.spec.dims.size() ? plan.mesh.IndexAlong(device, array.spec.dims[d]) : 0;
  };
  const int64_t rows_all = flat ? 1 : parts_of(down), columns_all = parts_of(across);
  const int rows = RowsOf(rows_all);
  const int columns = static_cast<int>(std::min<int64_t>(columns_all, columns_max));
  Grid grid(rows, columns);
  std::vector<std::string> titles(static_cast<size_t>(columns)), labels(static_cast<size_t>(rows));
  std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> holders;
  for (int64_t device = 0; device < plan.mesh.num_devices(); ++device) {
    const int64_t r = flat ? 0 : index_of(down, device), c = index_of(across, device);
    if (r >= rows || c >= columns) continue;
    holders[{r, c}].push_back(plan.devices.empty() ? device
                                                   : plan.devices[static_cast<size_t>(device)]);
    const std::vector<Range> shard = ShardRanges(plan.mesh, array.spec, array.type.shape, device);
    const auto range = [&](size_t d) { return absl::StrCat(shard[d].begin, ":", shard[d].end); };
    titles[static_cast<size_t>(c)] = range(across);
    if (!flat) labels[static_cast<size_t>(r)] = range(down);
  }
  for (auto& [cell, devices] : holders) {
    std::sort(devices.begin(), devices.end());
    grid.at(static_cast<int>(cell.first),
            static_cast<int>(cell.second)) = {Truncate(JoinInts(devices), kMaxIdColumns)};
  }
  std::vector<std::string> out = grid.Draw(l, titles, labels, /*right_labels=*/true);
  const std::string title = absl::StrCat(" ", display.Colorize(Style::kBold, NameText(array)), " ",
                                         array.type.ToString(), " ", array.spec.ToString());
  if (rows < rows_all || columns < columns_all) {
    out.push_back(absl::StrCat(" ", l.dots, " ", rows_all, " x ", columns_all, " blocks"));
  }
  if (sharded_dims > 2) out.push_back(absl::StrCat(" ", sharded_dims - 2, " more dims are cut"));
  out.insert(out.begin(), Truncate(title, display.columns));
  return out;
}

void AppendArrayLines(const PlanView& plan, const Display& display, std::string* out) {
  std::vector<std::vector<std::string>> pictures;
  std::vector<std::string> unsharded;
  size_t all = 0;
  for (const auto* list : {&plan.arguments, &plan.results}) {
    for (const PlanArray& a : *list) {
      if (!IsSharded(plan.mesh, a.spec)) {
        unsharded.push_back(absl::StrCat(NameText(a), " ", a.type.ToString()));
      } else if (++all <= kMaxPictures) {
        pictures.push_back(DrawArray(plan, a, display));
      }
    }
  }
  for (size_t i = 0; i < pictures.size();) {
    // As many pictures side by side as fit.
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

// "{0 1} {2 3}": the devices that exchange data.
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

void AppendCollectives(const PlanView& plan, const Display& display, std::string* out) {
  const Lines& l = LinesOf(display);
  if (plan.collectives.empty()) {
    absl::StrAppend(out, display.Colorize(Style::kBold, " collectives"),
                    ": none; the devices do not talk to one another\n");
    return;
  }
  int64_t most = 0, total = 0;
  size_t name = 0, groups = 0;
  for (const PlanView::Collective& c : plan.collectives) {
    most = std::max(most, c.bytes);
    total += c.bytes;
  }
  std::vector<std::vector<std::string>> rows;
  for (const PlanView::Collective& c : plan.collectives) {
    std::string what = absl::StrCat(c.op, " over ", absl::StrJoin(c.axes, ", "));
    if (c.times > 1) absl::StrAppend(&what, ", ", c.times, " times");
    rows.push_back({what, GroupsText(plan, c.axes), Bar(c.bytes, most, l),
                    BytesText(static_cast<double>(c.bytes)), c.site});
    name = std::max(name, rows.back()[0].size());
    groups = std::max(groups, rows.back()[1].size());
  }
  absl::StrAppend(out, display.Colorize(Style::kBold, " collectives"), ": one device sends ",
                  BytesText(static_cast<double>(total)), " a run\n");
  for (const auto& row : rows) {
    const std::string line = absl::StrCat(
        "   ", PadOrTruncate(row[0], static_cast<int>(name)), "  ",
        PadOrTruncate(row[1], static_cast<int>(groups)), "  ",
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

// Merges arrays with equal types and placements, in the order of the first of each.
std::vector<PlanArray> CollapseEqual(const std::vector<PlanArray>& arrays) {
  std::vector<std::string> names, keys;
  for (const PlanArray& a : arrays) {
    names.push_back(a.name);
    keys.push_back(absl::StrCat(a.type.ToString(), a.spec.ToString()));
  }
  std::vector<PlanArray> out;
  for (CollapsedName& row : CollapseByKey(names, keys)) {
    out.push_back(arrays[row.indices[0]]);
    out.back().name = std::move(row.text);
    out.back().count = row.indices.size();
  }
  return out;
}

// The arrays of `explain`'s list `key`, whose types and names the program gives; an array without a
// name is `prefix` and its index.
absl::StatusOr<std::vector<PlanArray>> ReadArrays(const Json& explain, const char* key,
                                                  const ir::Mesh& mesh,
                                                  const std::vector<ir::Type>& types,
                                                  const std::vector<std::string>& names,
                                                  const char* prefix, bool is_result) {
  const Json& specs = ChildOf(explain, key);
  if (specs.size() != types.size()) {
    return MakeError(ErrorKind::kInternal, absl::StrCat("the plan speaks of ", specs.size(), " ",
                                                        key, ", the program of ", types.size()));
  }
  std::vector<PlanArray> out;
  for (size_t i = 0; i < types.size(); ++i) {
    const Json& text = specs[i];
    TESSERA_ASSIGN_OR_RETURN(ir::PartitionSpec spec,
                             ParseSpec(text.is_string() ? text.get<std::string>() : ""));
    for (const ir::AxisList& axes : spec.dims) {
      for (const std::string& axis : axes) {
        if (!mesh.Has(axis)) {
          return MakeError(ErrorKind::kInternal,
                           absl::StrCat("the plan names axis ", axis, ", which the mesh ",
                                        mesh.ToString(), " does not have"));
        }
      }
    }
    const bool named = i < names.size() && !names[i].empty();
    out.push_back(
        {named ? names[i] : absl::StrCat(prefix, i), types[i], std::move(spec), is_result});
  }
  return CollapseEqual(out);
}

}  // namespace

absl::StatusOr<PlanView> MakePlanView(const ir::Program& program, const Json& explain) {
  PlanView plan;
  plan.program = program.entry->name;
  plan.mesh = program.mesh();
  TESSERA_ASSIGN_OR_RETURN(plan.arguments,
                           ReadArrays(explain, "arguments", plan.mesh, program.entry->param_types(),
                                      program.in_names, "%", /*is_result=*/false));
  TESSERA_ASSIGN_OR_RETURN(plan.results,
                           ReadArrays(explain, "results", plan.mesh, program.entry->result_types(),
                                      program.out_names, "result ", /*is_result=*/true));
  for (const Json& c : ChildOf(explain, "collectives")) {
    PlanView::Collective& out = plan.collectives.emplace_back();
    out.op = TextOf(c, "op");
    out.site = TextOf(c, "site");
    for (const Json& axis : ChildOf(c, "axes"))
      if (axis.is_string() && plan.mesh.Has(axis.get<std::string>()))
        out.axes.push_back(axis.get<std::string>());
    out.bytes = IntOf(c, "bytes_sent");
    out.times = IntOf(c, "times");
  }
  for (const Json& op : ChildOf(explain, "ops")) {
    for (const Json& move : ChildOf(op, "moves")) {
      if (move.is_string()) {
        plan.reshards.push_back(
            {TextOf(op, "op"), ReplaceControlChars(move.get<std::string>()), TextOf(op, "site")});
      }
    }
  }
  const Json& memory = ChildOf(explain, "memory");
  plan.peak_bytes = IntOf(memory, "peak_bytes");
  plan.argument_bytes = IntOf(memory, "argument_bytes");
  plan.result_bytes = IntOf(memory, "result_bytes");
  plan.absent_device_bytes = IntOf(memory, "absent_device_bytes");
  const Json& predicted = ChildOf(explain, "predicted");
  plan.compute_time = absl::Seconds(NumberOf(predicted, "compute_seconds"));
  plan.collective_time = absl::Seconds(NumberOf(predicted, "collective_seconds"));
  plan.measured_devices = FlagOf(predicted, "measured");
  plan.last_run = absl::Seconds(NumberOf(explain, "last_run_seconds"));
  return plan;
}

std::vector<std::string> DrawArray(const PlanView& plan, const PlanArray& array,
                                   const Display& display) {
  if (!IsSharded(plan.mesh, array.spec)) return {};
  for (int columns = kMaxRows;; --columns) {
    std::vector<std::string> lines = DrawBlocks(plan, array, display, columns);
    const bool fits = std::all_of(lines.begin(), lines.end(), [&](const std::string& line) {
      return WidthOf(line) <= display.columns;
    });
    if (fits || columns == 1) return lines;
  }
}

std::string DrawPlan(const PlanView& plan, const Display& display) {
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

}  // namespace tessera::cli
