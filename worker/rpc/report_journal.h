// What an executor has reported and its coordinator may not know for good: the reports, numbered
// from 1 in the order in which they were made (Envelope.report), until they are acknowledged.
//
// They leave in that order, on one stream after the other: Rewind begins again with the first that
// is not acknowledged. Answers to reads and inspections go in order with them, but once, and have
// no number: whoever asked asks again.
//
// At a bound the oldest lose their details first: the values that a LaunchDone brings along, then
// everything that an ExecutorInventory says as well (what was written, loaded, configured). The end
// of an operation stays; there are never more of these than operations that were sent and not
// acknowledged. Not thread-safe.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "tessera/v1/worker.pb.h"

namespace tessera::worker::rpc {

class ReportJournal {
 public:
  struct Bounds {
    int64_t reports = 100'000;
    int64_t bytes = 64 << 20;  // of the reports' bodies
  };

  explicit ReportJournal(Bounds bounds) : bounds_(bounds) {}
  ReportJournal() : ReportJournal(Bounds()) {}

  void Add(v1::Envelope report);
  // The next to send; nullopt: all have been sent.
  std::optional<v1::Envelope> Next();
  // The stream has ended.
  void Rewind();
  // Takes no effect on what has not been sent.
  void Acknowledge(uint64_t through);

  // The operations whose ends are in it, ascending.
  std::vector<uint64_t> Ended() const;
  uint64_t last() const { return last_; }  // number; 0: there was none
  int64_t bytes() const { return bytes_; }
  int64_t size() const { return size_; }  // numbered reports that it can send again

 private:
  struct Entry {
    v1::Envelope report;  // empty once it is not to be sent again
    bool there = true;
  };

  void Drop(Entry& entry);
  // Takes details from the oldest that has any. False: none has.
  bool Shrink();
  void PopSent();

  const Bounds bounds_;
  uint64_t last_ = 0;  // number
  std::deque<Entry> entries_;
  size_t sent_ = 0;    // the first of them
  size_t shrunk_ = 0;  // the first of them, which have no more details
  int64_t bytes_ = 0, size_ = 0;
};

}  // namespace tessera::worker::rpc
