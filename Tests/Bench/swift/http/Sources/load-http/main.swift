import AsyncHTTPClient
import Foundation
// Requests from the origin by async-http-client in the client's process, as its README shows, with as many connections
// as requests at once (its default is 8 to a host). EXTRA `http1` selects HTTP/1.1 where the origin also offers HTTP/2.
// SSL_CERT_FILE names certificates to trust instead of the system's.
import Load
import NIOCore
import NIOSSL

let plan = Plan()
var configuration = HTTPClient.Configuration.singletonConfiguration
configuration.connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit = plan.outstanding
if plan.extra == "http1" { configuration.httpVersion = .http1Only }
if let file = ProcessInfo.processInfo.environment["SSL_CERT_FILE"] {
    var tls = TLSConfiguration.makeClientConfiguration()
    tls.trustRoots = .file(file)
    configuration.tlsConfiguration = tls
}
let client = HTTPClient(eventLoopGroupProvider: .singleton, configuration: configuration)
try await load(plan) { url in
    let response = try await client.execute(HTTPClientRequest(url: url), timeout: .seconds(60))
    let body = try await response.body.collect(upTo: 1 << 20)
    return Array(body.readableBytesView)
}
try await client.shutdown()
