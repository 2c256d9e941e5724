// A registered worker, as the coordinator sees it: the stream of its daemon and the streams of its
// executors. The class follows the rules of server/rpc/worker_streams.h.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ir/api/worker_link.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"

namespace tessera::sim {

class Process;

// The callbacks for messages that the coordinator sends to a daemon.
struct DaemonCallbacks {
  std::function<void(const api::Welcome& welcome)> on_welcome;
  std::function<void(uint64_t epoch, int32_t executor, uint64_t incarnation,
                     const std::string& reason, bool if_told)>
      on_kill;
};
// The callback for commands that the coordinator sends to an executor.
using OnCommandFn = std::function<void(uint64_t epoch, const api::Command& command)>;

class Registration : public std::enable_shared_from_this<Registration> {
 public:
  Registration(World* world, Process* process, std::shared_ptr<Stream> stream,
               DaemonCallbacks callbacks)
      : world_(world),
        process_(process),
        stream_(std::move(stream)),
        callbacks_(std::move(callbacks)) {}

  void Register(const api::Registration& registration);

  // ---- The scheduler's link (api::WorkerLink). ----
  void Accept(const std::vector<api::AdoptedExecutor>& adopted);
  void Send(int32_t executor, uint64_t incarnation, uint64_t attachment,
            const api::Command& command);
  void Acknowledge(int32_t executor, uint64_t incarnation, uint64_t number);
  void Close(const absl::Status& why);

  // ---- Messages. ----
  void TakeFromDaemon(uint64_t epoch, const api::Report& report);  // a report of the daemon
  void Attach(const api::Attachment& attachment, const std::shared_ptr<Stream>& stream,
              OnCommandFn on_command);
  void TakeFromExecutor(uint64_t epoch, const Stream* stream, const api::Report& report);
  void OnEnded(const std::string& why);

  uint64_t registration_id() const { return registration_id_; }
  const std::string& worker() const { return worker_; }

 private:
  struct Executor {
    uint64_t incarnation = 0;
    std::shared_ptr<Stream> stream;
    OnCommandFn on_command;
    bool gone = false, detached = false;
    uint64_t attachment = 0;
    std::deque<api::Command> waiting;
    std::deque<api::Report> held_reports;
    absl::Time deadline = absl::InfiniteFuture();
    uint64_t processed = 0, acknowledged = 0;
  };
  // Returns the executor, or null if a later incarnation of it is known. An earlier incarnation is
  // replaced.
  Executor* FindOrReplace(int32_t executor, uint64_t incarnation);
  void SendOn(const Executor& executor, const api::Command& command);
  void Detach(int32_t executor, const Stream* stream);
  void ReportOrHold(const api::Report& report);
  void ReleaseHeldReports(Executor& executor);
  void EnforceDeadlines();
  void SendAcknowledgements();
  void Kill(int32_t executor, uint64_t incarnation, const std::string& reason);
  void StopServingExecutors();

  World* const world_;
  Process* const process_;
  const std::shared_ptr<Stream> stream_;
  const DaemonCallbacks callbacks_;
  uint64_t registration_id_ = 0;
  std::string worker_;
  bool closed_ = false;
  std::map<int32_t, Executor> executors_;
};

}  // namespace tessera::sim
