// Keeps an executor's reports until the coordinator has acknowledged them. CoordinatorStream adds
// each report, sends what Next returns, and rewinds when a stream has ended. An entry that is
// dropped is only marked, and is removed when it is at the front, so that `num_sent_` and
// `num_shrunk_` stay valid.
#include "worker/rpc/report_journal.h"

#include <algorithm>
#include <utility>

namespace tessera::worker::rpc {
namespace {

bool IsAnswer(const v1::Envelope& report) {
  return report.kind() == v1::MESSAGE_KIND_BUFFER_READ ||
         report.kind() == v1::MESSAGE_KIND_FILE_INSPECTED;
}
bool IsEnd(const v1::Envelope& report) {
  return report.kind() == v1::MESSAGE_KIND_LAUNCH_DONE ||
         report.kind() == v1::MESSAGE_KIND_LAUNCH_FAILED;
}
int64_t BodyBytes(const v1::Envelope& report) { return static_cast<int64_t>(report.body().size()); }

}  // namespace

void ReportJournal::Add(v1::Envelope report) {
  Entry entry{std::move(report)};
  if (!IsAnswer(entry.report)) {
    entry.report.set_report(++last_number_);
    bytes_ += BodyBytes(entry.report);
    ++size_;
  }
  entries_.push_back(std::move(entry));
  while ((size_ > bounds_.reports || bytes_ > bounds_.bytes) && Shrink()) continue;
}

std::optional<v1::Envelope> ReportJournal::Next() {
  while (num_sent_ < entries_.size()) {
    Entry& next = entries_[num_sent_++];
    if (!next.kept) continue;
    if (next.report.report() != 0) return next.report;
    v1::Envelope answer = std::move(next.report);
    next = {{}, false};
    PopSent();
    return answer;
  }
  PopSent();
  return std::nullopt;
}

void ReportJournal::Rewind() {
  for (Entry& entry : entries_)
    if (entry.kept && entry.report.report() == 0) entry = {{}, false};
  num_sent_ = 0;
}

void ReportJournal::Acknowledge(uint64_t through) {
  for (size_t i = 0; i < num_sent_; ++i) {
    Entry& entry = entries_[i];
    if (!entry.kept) continue;
    if (entry.report.report() > through) break;
    Drop(entry);
  }
  PopSent();
}

std::vector<uint64_t> ReportJournal::EndedOperations() const {
  std::vector<uint64_t> ended;
  for (const Entry& entry : entries_)
    if (entry.kept && IsEnd(entry.report)) ended.push_back(entry.report.launch());
  std::sort(ended.begin(), ended.end());
  return ended;
}

void ReportJournal::Drop(Entry& entry) {
  if (entry.report.report() != 0) {
    bytes_ -= BodyBytes(entry.report);
    --size_;
  }
  entry = {{}, false};
}

bool ReportJournal::Shrink() {
  while (num_shrunk_ < entries_.size()) {
    Entry& entry = entries_[num_shrunk_++];
    if (!entry.kept || entry.report.report() == 0) continue;
    if (!IsEnd(entry.report)) {
      Drop(entry);
      return true;
    }
    v1::LaunchDone done;
    if (entry.report.kind() != v1::MESSAGE_KIND_LAUNCH_DONE ||
        !done.ParseFromString(entry.report.body()) || done.inline_results().empty())
      continue;
    bytes_ -= BodyBytes(entry.report);
    done.clear_inline_results();
    done.SerializeToString(entry.report.mutable_body());
    bytes_ += BodyBytes(entry.report);
    return true;
  }
  return false;
}

void ReportJournal::PopSent() {
  while (num_sent_ > 0 && !entries_.front().kept) {
    entries_.pop_front();
    --num_sent_;
    if (num_shrunk_ > 0) --num_shrunk_;
  }
}

}  // namespace tessera::worker::rpc
