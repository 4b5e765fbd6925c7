internal import EarshotLoop

@testable internal import EarshotGateway

/// Connections at the admission gate, compared with a list of them.
struct AdmissionTarget {
    private var gate = AdmissionGate(now: LoopTime(nanoseconds: 0))
    private var now = LoopTime(nanoseconds: 0)
    private var openConnections: [(number: UInt64, network: UInt8)] = []
    private var lastConnectionNumber: UInt64 = 0
    private var admittedCount = 0

    static func run(_ choices: inout ByteSource) {
        var target = AdmissionTarget()
        while !choices.isEmpty { target.step(&choices) }
        for (number, _) in target.openConnections { target.gate.handshakeEnded(number) }
        precondition(target.gate.handshakeCount == 0, "\(target.gate.handshakeCount) handshakes are left")
    }

    private mutating func step(_ choices: inout ByteSource) {
        switch choices.number(below: 4) {
        case 0, 1:
            let network = choices.byte()
            let pause = Int(choices.byte())
            for _ in 0..<choices.byte() where lastConnectionNumber < 2_000 { connect(from: network, after: pause) }
        case 2:
            let number = choices.boolean() ? openConnections.first?.number : UInt64(choices.byte())
            gate.handshakeEnded(number ?? 0)
            openConnections.removeAll { $0.number == number }
        default: now = now.advanced(milliseconds: Int(choices.byte()) * 10)
        }
        precondition(
            gate.handshakeCount == openConnections.count && openConnections.count <= AdmissionGate.maximumHandshakes,
            "\(gate.handshakeCount) handshakes")
    }

    private mutating func connect(from network: UInt8, after pause: Int) {
        now = now.advanced(milliseconds: pause % 8)
        switch gate.decision(now: now) {
        case .waitUntil(nil):
            precondition(openConnections.count == AdmissionGate.maximumHandshakes, "a wait without a reason")
        case .waitUntil(let moment?):
            precondition(moment > now, "a wait without a duration")
            now = moment
            precondition(gate.decision(now: now) == .admit, "a wait that is too short")
        case .admit:
            admittedCount += 1
            let seconds = now.nanoseconds / 1_000_000_000 + 1
            precondition(
                admittedCount <= AdmissionGate.maximumAcceptBurst + Int(seconds)
                    * AdmissionGate.maximumAcceptsPerSecond, "too many at once")
            lastConnectionNumber += 1
            // Two machines of each network.
            let host = UInt8(truncatingIfNeeded: lastConnectionNumber & 1)
            let prefix: [UInt8] = network & 1 == 0 ? [10, 0, 0, network] : [32, 1, 0, 0, 0, 0, 0, network]
            let address =
                network & 1 == 0
                ? TCPSocket.Address.ipv4(prefix) : .ipv6(prefix + [0, 0, 0, 0, 0, 0, 0, host])
            let own = openConnections.filter { $0.network == network }
            let expected = own.count >= AdmissionGate.maximumHandshakesPerNetwork ? own.first?.number : nil
            precondition(
                gate.connectionAccepted(lastConnectionNumber, from: address) == expected,
                "the wrong connection gives way")
            openConnections.removeAll { $0.number == expected }
            openConnections.append((lastConnectionNumber, network))
        }
    }
}
