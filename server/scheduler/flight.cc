// Turns events and effects into entries of the flight recorder. The driver calls it for every step,
// so that a dump after a crash shows what the scheduler was told and what it decided last.
#include "server/scheduler/flight.h"

#include <string_view>
#include <type_traits>
#include <variant>

#include "base/flight_recorder.h"
#include "base/status.h"

namespace tessera::server::scheduler {
namespace {

// Returns the name of a type without its namespaces, as the compiler spells it, for example
// "Execute".
template <class T>
constexpr std::string_view NameOfType() {
  std::string_view text = __PRETTY_FUNCTION__;
  text.remove_prefix(text.find("T = ") + 4);
  text = text.substr(0, text.find_first_of(";]"));
  const size_t scope = text.rfind("::");
  return scope == std::string_view::npos ? text : text.substr(scope + 2);
}

template <class E>
uint64_t OperationOf(const E& e) {
  if constexpr (requires { e.operation; }) {
    return e.operation;
  } else if constexpr (requires { e.launch; }) {
    return e.launch;
  } else if constexpr (requires { e.executable; }) {
    return e.executable;
  } else {
    return 0;
  }
}

template <class E>
void Record(const E& event) {
  uint64_t request = 0, session = 0, array = 0;
  if constexpr (requires { event.request; }) request = event.request;
  if constexpr (requires { event.session; }) session = event.session;
  if constexpr (requires { event.registration_id; }) session = event.registration_id;
  if constexpr (requires { event.array; }) array = event.array;
  RecordFlight(FlightKind::kEvent, NameOfType<E>(), request, session, OperationOf(event), array);
}

void Record(const WorkerReported& event) {
  std::visit(
      [&](const auto& body) {
        using Body = std::remove_cvref_t<decltype(body)>;
        if constexpr (!std::is_same_v<Body, api::Heartbeat>) {
          uint64_t array = 0;
          if constexpr (requires { body.array; }) array = body.array;
          RecordFlight(FlightKind::kEvent, NameOfType<Body>(), 0, event.registration_id,
                       OperationOf(body), array);
        }
      },
      event.report.body);
}

void Record(const Tick&) {}

void RecordOne(const MakePlan& effect) {
  RecordFlight(FlightKind::kEffect, "MakePlan", 0, 0, effect.executable);
}
void RecordOne(const SendCommand& effect) {
  std::visit(
      [&](const auto& command) {
        using Command = std::remove_cvref_t<decltype(command)>;
        RecordFlight(FlightKind::kEffect, NameOfType<Command>(), 0, effect.registration_id,
                     OperationOf(command), static_cast<uint64_t>(effect.executor));
      },
      effect.command);
}
void RecordOne(const Reply& effect) {
  RecordFlight(FlightKind::kEffect, effect.status.ok() ? "Reply" : ReasonOf(effect.status),
               effect.request);
}
void RecordOne(const AcceptWorker& effect) {
  RecordFlight(FlightKind::kEffect, "AcceptWorker", 0, effect.registration_id);
}
void RecordOne(const DropWorker& effect) {
  RecordFlight(FlightKind::kEffect, "DropWorker", 0, effect.registration_id);
}
void RecordOne(const Debug&) {}
void RecordOne(const Commit& effect) {
  RecordFlight(FlightKind::kCommit, "", effect.number, effect.rows.size());
}
void RecordOne(const SetTimer&) {}

}  // namespace

void RecordEvent(const Event& event) {
  if (TheFlightRecorder() == nullptr) return;
  std::visit([](const auto& e) { Record(e); }, event);
}

void RecordEffect(const Effect& effect) {
  if (TheFlightRecorder() == nullptr) return;
  std::visit([](const auto& e) { RecordOne(e); }, effect);
}

}  // namespace tessera::server::scheduler
