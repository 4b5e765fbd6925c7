import EarshotLoop
import Testing

@testable import EarshotGateway

/// Gate as an object, since the macros of tests take values.
private final class Rig {
    private var gate: AdmissionGate

    init(now: LoopTime) { gate = AdmissionGate(now: now) }

    var count: Int { gate.handshakeCount }

    func decision(now: LoopTime) -> AdmissionGate.Decision { gate.decision(now: now) }

    func began(_ number: UInt64, from address: TCPSocket.Address) -> UInt64? {
        gate.connectionAccepted(number, from: address)
    }

    func ended(_ number: UInt64) { gate.handshakeEnded(number) }
}

/// Bounds of connections in the handshake.
@Suite struct AdmissionGateTests {
    private let start = LoopTime(nanoseconds: 5_000_000_000)

    private func address(_ number: Int) throws -> TCPSocket.Address {
        try #require(TCPSocket.Address("10.0.\(number / 256).\(number % 256)"))
    }

    @Test func `a burst passes, and then one connection for each share of a second`() throws {
        let gate = Rig(now: start)
        for number in 0..<AdmissionGate.maximumAcceptBurst {
            #expect(gate.decision(now: start) == .admit)
            #expect(gate.began(UInt64(number), from: try address(number)) == nil)
            gate.ended(UInt64(number))
        }
        let share = 1_000_000_000 / Int64(AdmissionGate.maximumAcceptsPerSecond)
        let next = LoopTime(nanoseconds: start.nanoseconds + share)
        #expect(gate.decision(now: start) == .waitUntil(next))
        #expect(gate.decision(now: next) == .admit)
    }

    @Test func `at the maximum of handshakes others wait until one ends`() throws {
        let gate = Rig(now: start)
        var now = start
        for number in 0..<AdmissionGate.maximumHandshakes {
            now = now.advanced(by: .milliseconds(10))
            #expect(gate.decision(now: now) == .admit)
            #expect(gate.began(UInt64(number), from: try address(number)) == nil)
        }
        #expect(gate.decision(now: now) == .waitUntil(nil))
        gate.ended(3)
        gate.ended(3)
        #expect(gate.count == AdmissionGate.maximumHandshakes - 1)
        #expect(gate.decision(now: now) == .admit)
    }

    @Test func `the oldest handshake of a network gives way to a newer one of it, and to no other`() throws {
        let gate = Rig(now: start)
        let other = try #require(TCPSocket.Address("2001:db8:1:2::1"))
        #expect(gate.began(9_999, from: other) == nil)
        for number in 0..<AdmissionGate.maximumHandshakesPerNetwork {
            #expect(gate.began(UInt64(number), from: try address(1)) == nil)
        }
        #expect(gate.began(500, from: try address(1)) == 0)
        #expect(gate.began(501, from: try address(1)) == 1)
        #expect(gate.began(502, from: try #require(TCPSocket.Address("2001:db8:1:2:ffff::2"))) == nil)
        #expect(gate.count == AdmissionGate.maximumHandshakesPerNetwork + 2)
    }

    @Test func `addresses of IPv6 with the same 64 bits are one network`() throws {
        let gate = Rig(now: start)
        for number in 0..<AdmissionGate.maximumHandshakesPerNetwork {
            let text = "2001:db8:1:2::\(String(number, radix: 16))"
            #expect(gate.began(UInt64(number), from: try #require(TCPSocket.Address(text))) == nil)
        }
        #expect(gate.began(900, from: try #require(TCPSocket.Address("2001:db8:1:2:3:4:5:6"))) == 0)
        #expect(gate.began(901, from: try #require(TCPSocket.Address("2001:db8:1:3::1"))) == nil)
    }
}
