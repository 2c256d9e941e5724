// The scheduler's limits and timeouts.
#pragma once
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "server/core/life.h"

namespace tessera::server::scheduler {

struct Config {
  int64_t queue_bound = 1024;        // operations accepted and not ended; beyond it QUEUE_FULL
  int64_t plans_bound = 64;          // plans being made; beyond it QUEUE_FULL
  int64_t arrays_max = 1'000'000;    // beyond it LIMIT_EXCEEDED
  int64_t executables_max = 4096;    // beyond it the least recently used one is dropped
  int64_t operations_kept = 10'000;  // records of ended operations
  int64_t workers_max = 1024;
  int64_t sessions_max = 10'000;  // sessions that have a lease; beyond it LIMIT_EXCEEDED
  int64_t meshes_max = 1'000;     // named meshes of all tenants; beyond it LIMIT_EXCEEDED
  int64_t programs_max = 1'000;   // programs and unfinished uploads; beyond it LIMIT_EXCEEDED
  int64_t programs_bytes_max = int64_t{1} << 30;  // total size of all programs and uploads
  int64_t program_bytes_max = 64 << 20;
  int64_t page_size = 100;  // default page size of lists
  int64_t page_size_max = 1000;
  // The number of ranges of consecutive ids for which the tenant of the ids is remembered. Older
  // ids are unknown (Ownership).
  int64_t owners_max = 100'000;
  int64_t request_ids_max = 10'000;  // number of answers that are kept for a tenant (answers.h)
  core::Life life;                   // epoch and range of ids of this life of the coordinator
  bool durable = false;              // whether to write rows for the next life
  bool wants_debug = true;           // whether the Debug lines of a step are read
  bool wants_notes = true;           // whether the notes of a step are read
  // The lease of a worker.
  absl::Duration lease = absl::Milliseconds(1500);
  // The period of heartbeats. Two missed heartbeats make a worker suspect.
  absl::Duration heartbeat = absl::Milliseconds(300);
  absl::Duration session_lease = absl::Seconds(60);  // default lease of a session
  absl::Duration session_lease_max = absl::Hours(24);
  // The time for a client whose connection broke to reconnect.
  absl::Duration session_grace = absl::Seconds(30);
  absl::Duration recovery_wait = absl::Seconds(3);  // time for a lost executor to come back
  // Time for executors of an earlier life to come back with what they hold, after a restart of the
  // coordinator. The executors of a silent worker have the same time.
  absl::Duration outage_grace = absl::Seconds(60);
  // How long to wait for the root cause of a failure once an executor has blamed a peer.
  absl::Duration verdict_wait = absl::Milliseconds(1500);
  absl::Duration compile_timeout = absl::Seconds(120);  // time for executors to compile
  absl::Duration request_id_age = absl::Minutes(10);    // age at which an answer is dropped
  // How long a reply waits for the disk to store the commits on which the reply depends. After this
  // time the disk counts as failing.
  absl::Duration store_answer = absl::Seconds(5);
  // The time for an upload to finish, and the lifetime of a ticket.
  absl::Duration ticket_lifetime = absl::Minutes(5);
  // The time without a chunk after which an upload is dropped.
  absl::Duration program_upload_idle = absl::Minutes(5);
  // The longest time that a request waits for a result, whatever its timeout.
  absl::Duration result_wait_max = absl::Seconds(60);
  absl::Duration run_deadline = absl::Hours(1);  // default deadline of a run
  // The default deadline of work on a file. It is long because disks may be slow.
  absl::Duration file_deadline = absl::Hours(1);
  absl::Duration cancel_grace = absl::Seconds(2);  // time for executors to leave an ended operation
  // An executor that has not answered its worker for this long counts as unresponsive.
  absl::Duration unresponsive = absl::Milliseconds(1'500);
  bool tenant_folders = true;  // whether each tenant's files are in a directory of its name
  std::string ticket_key;
  std::string communicator_secret;
};

}  // namespace tessera::server::scheduler
