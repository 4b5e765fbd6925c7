import Cares
import Glibc

@testable import TestPeers

/// Owner of a resolver for tests: poll(2) over its descriptors and those of the name server.
final class TestLoop {
    let resolver: Resolver
    let server: NameServer
    private(set) var interests: [Int32: ResolverInterest] = [:]

    init(_ answer: NameServer.Answer) throws {
        server = try NameServer(answer)
        var options = ResolverOptions(servers: ["127.0.0.1:\(server.port)"])
        options.attemptTimeout = .milliseconds(250)
        options.triesPerServer = 1
        resolver = try Resolver.make(options: options)
    }

    /// Returns the result for `name`; nil after ten seconds without one.
    func lookUp(_ name: String) -> Result<[ResolvedAddress], LookupFailure>? {
        resolver.resolve(name)
        for _ in 0..<200 {
            for interest in resolver.takeInterests() {
                interests[interest.descriptor] = interest.isUnwatched ? nil : interest
            }
            if let finished = resolver.takeFinishedLookups().first {
                return finished.name == name ? finished.result : nil
            }
            pass()
        }
        return nil
    }

    private func pass() {
        var polled = [pollfd(fd: server.descriptor, events: Int16(POLLIN), revents: 0)]
        for interest in interests.values {
            let events = (interest.wantsReadability ? POLLIN : 0) | (interest.wantsWritability ? POLLOUT : 0)
            polled.append(pollfd(fd: interest.descriptor, events: Int16(events), revents: 0))
        }
        let ready = unsafe poll(&polled, nfds_t(polled.count), Int32(min(resolver.timeoutMilliseconds ?? 50, 50)))
        if ready == 0 { resolver.timerFired() }
        if polled[0].revents != 0 { server.ready() }
        for entry in polled[1...] where entry.revents != 0 {
            let events = Int32(entry.revents)
            resolver.descriptorReady(
                entry.fd, reads: events & (POLLIN | POLLERR | POLLHUP) != 0, writes: events & POLLOUT != 0)
        }
    }
}
