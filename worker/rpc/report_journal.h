// The reports of an executor that its coordinator may still lose. They are numbered from 1 in the
// order in which they were made (Envelope.report), and are kept until they are acknowledged.
//
// The reports are sent in that order, on one stream after the other. Rewind begins again with the
// first one that is not acknowledged. Answers to reads and inspections are sent in order with them,
// but only once and without a number: a caller that gets no answer asks again.
//
// When the reports exceed a bound, the oldest ones are shrunk first. A LaunchDone loses the values
// in it, and a report that an ExecutorInventory repeats (array written, program loaded,
// communicator configured) is dropped. The end of an operation always stays. There are never more
// such ends than operations that were sent and not acknowledged. Not thread-safe.
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
    int64_t bytes = 64 << 20;  // size of the reports' bodies
  };

  explicit ReportJournal(Bounds bounds) : bounds_(bounds) {}
  ReportJournal() : ReportJournal(Bounds()) {}

  void Add(v1::Envelope report);
  // Returns the next report to send, or nullopt if all have been sent.
  std::optional<v1::Envelope> Next();
  // Call when the stream has ended.
  void Rewind();
  // Drops the reports with numbers up to `through`, except those that have not been sent.
  void Acknowledge(uint64_t through);

  // The operations whose ends are in the journal, in ascending order.
  std::vector<uint64_t> EndedOperations() const;
  // The number of the last report; 0 if there was none.
  uint64_t last_number() const { return last_number_; }
  int64_t bytes() const { return bytes_; }
  int64_t size() const { return size_; }  // number of numbered reports that can be sent again

 private:
  struct Entry {
    v1::Envelope report;  // empty once it will not be sent again
    bool kept = true;     // false once the entry has been dropped
  };

  void Drop(Entry& entry);
  // Shrinks or drops the oldest report that can be. Returns false if there is none.
  bool Shrink();
  void PopSent();

  const Bounds bounds_;
  uint64_t last_number_ = 0;  // number of the last report
  std::deque<Entry> entries_;
  size_t num_sent_ = 0;    // number of entries at the front that have been sent
  size_t num_shrunk_ = 0;  // number of entries at the front that cannot be shrunk any more
  int64_t bytes_ = 0, size_ = 0;
};

}  // namespace tessera::worker::rpc
