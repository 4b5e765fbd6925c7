// Asks the origin by async-http-client in the client's own process, as its README shows it, with as many connections as
// requests at once (its default is 8 to a host).
import Asking
import AsyncHTTPClient
import NIOCore

let plan = Plan()
var configuration = HTTPClient.Configuration.singletonConfiguration
configuration.connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit = plan.outstanding
let client = HTTPClient(eventLoopGroupProvider: .singleton, configuration: configuration)
try await ask(plan) { url in
    let response = try await client.execute(HTTPClientRequest(url: url), timeout: .seconds(60))
    let body = try await response.body.collect(upTo: 1 << 20)
    return Array(body.readableBytesView)
}
try await client.shutdown()
