// The scheduler's limits and timeouts.
#pragma once
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "server/core/life.h"

namespace tessera::server::scheduler {

struct Config {
  int64_t queue_bound = 1024;        // operations accepted and not ended; then QUEUE_FULL
  int64_t plans_bound = 64;          // plans being made; then QUEUE_FULL
  int64_t arrays_max = 1'000'000;    // then LIMIT_EXCEEDED
  int64_t executables_max = 4096;    // then the least recently used one is dropped
  int64_t operations_kept = 10'000;  // records of ended operations
  int64_t workers_max = 1024;
  int64_t sessions_max = 10'000;  // that have a lease; then LIMIT_EXCEEDED
  int64_t meshes_max = 1'000;     // with a name, over all tenants; then LIMIT_EXCEEDED
  int64_t programs_max = 1'000;   // uploaded ones and uploads; then LIMIT_EXCEEDED
  int64_t programs_bytes_max = int64_t{1} << 30;  // of all of these together
  int64_t program_bytes_max = 64 << 20;
  int64_t page_size = 100;  // of lists, by default
  int64_t page_size_max = 1000;
  int64_t owners_max = 100'000;      // ranges of ids whose tenant is stored; older ids are unknown
  int64_t request_ids_max = 10'000;  // answers kept of a tenant (answers.h)
  core::Life life;                   // the range of ids of this incarnation of the coordinator
  bool durable = false;              // whether to make rows for the next life
  bool debug = true;                 // whether somebody reads the Debug lines of a step
  bool notes = true;                 // whether somebody reads the notes of a step
  absl::Duration lease = absl::Milliseconds(1500);
  absl::Duration heartbeat = absl::Milliseconds(300);  // two missed ones make a worker suspect
  absl::Duration session_lease = absl::Seconds(60);    // by default
  absl::Duration session_lease_max = absl::Hours(24);
  absl::Duration session_grace = absl::Seconds(5);  // for a client whose connection broke
  absl::Duration recovery_wait = absl::Seconds(3);  // for an executor that was lost to come back
  // After a restart of the coordinator, for executors of its earlier life to come back with what
  // they hold.
  absl::Duration outage_grace = absl::Seconds(60);
  // How long to wait for the root cause of a failure once an executor has blamed a peer.
  absl::Duration verdict_wait = absl::Milliseconds(1500);
  absl::Duration load_wait = absl::Seconds(120);      // for executors to compile
  absl::Duration request_id_age = absl::Minutes(10);  // of an answer that is kept
  // For the disk to take what a reply tells of; then it counts as one that fails.
  absl::Duration store_answer = absl::Seconds(5);
  absl::Duration write_wait = absl::Minutes(5);  // for an upload to finish; a ticket's life
  absl::Duration program_upload_idle = absl::Minutes(5);  // without a chunk: it is dropped
  absl::Duration result_wait_max = absl::Seconds(60);
  absl::Duration run_deadline = absl::Hours(1);    // of a run, by default
  absl::Duration file_deadline = absl::Hours(1);   // of work on a file: disks may be slow
  absl::Duration cancel_grace = absl::Seconds(2);  // for an executor to acknowledge an end
  absl::Duration unresponsive = absl::Seconds(3);  // without a reply: the executor is not ready
  bool tenant_folders = true;  // each tenant's files are in a directory of its name
  std::string ticket_key;
  std::string communicator_secret;
};

}  // namespace tessera::server::scheduler
