import EarshotClient
// Requests from an Earshot bus as its README shows: `--server` is the runtime folder.
import Load

let plan = Plan()
let bus = try await Bus.connect(to: .running(in: plan.server))
let handler = bus.handler()
try await load(plan) { url in try await handler.fetch(url).body.bytes() }
handler.remove()
await bus.close()
