// Requests from an Earshot bus as its README shows: `--place` is the runtime folder.
import Asking
import EarshotClient

let plan = Plan()
let bus = try await Bus.connect(to: .running(in: plan.place))
let handler = bus.handler()
try await ask(plan) { url in try await handler.fetch(url).body.bytes() }
handler.remove()
await bus.close()
