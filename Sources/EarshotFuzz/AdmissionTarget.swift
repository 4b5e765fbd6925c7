internal import EarshotLoop

@testable internal import EarshotGateway

/// Connections at the admission gate, compared with a list of them.
struct AdmissionTarget {
    private var gate = AdmissionGate(now: LoopTime(nanoseconds: 0))
    private var now = LoopTime(nanoseconds: 0)
    private var open: [(number: UInt64, network: UInt8)] = []
    private var last: UInt64 = 0
    private var admitted = 0

    static func run(_ choices: inout ByteSource) {
        var target = AdmissionTarget()
        while !choices.isEmpty { target.step(&choices) }
        for (number, _) in target.open { target.gate.ended(number) }
        precondition(target.gate.count == 0, "\(target.gate.count) handshakes are left")
    }

    private mutating func step(_ choices: inout ByteSource) {
        switch choices.number(4) {
        case 0, 1:
            let network = choices.byte()
            let pause = Int(choices.byte())
            for _ in 0..<choices.byte() where last < 2_000 { call(from: network, after: pause) }
        case 2:
            let number = choices.flag() ? open.first?.number : UInt64(choices.byte())
            gate.ended(number ?? 0)
            open.removeAll { $0.number == number }
        default: now = now.advanced(milliseconds: Int(choices.byte()) * 10)
        }
        precondition(gate.count == open.count && open.count <= AdmissionGate.mostHandshakes, "\(gate.count) handshakes")
    }

    private mutating func call(from network: UInt8, after pause: Int) {
        now = now.advanced(milliseconds: pause % 8)
        switch gate.decision(now: now) {
        case .wait(nil): precondition(open.count == AdmissionGate.mostHandshakes, "a wait without a reason")
        case .wait(let moment?):
            precondition(moment > now, "a wait without a duration")
            now = moment
            precondition(gate.decision(now: now) == .admit, "a wait that is too short")
        case .admit:
            admitted += 1
            let seconds = now.nanoseconds / 1_000_000_000 + 1
            precondition(
                admitted <= AdmissionGate.mostAtOnce + Int(seconds) * AdmissionGate.mostPerSecond, "too many at once")
            last += 1
            // Two machines of each network.
            let host = UInt8(truncatingIfNeeded: last & 1)
            let prefix: [UInt8] = network & 1 == 0 ? [10, 0, 0, network] : [32, 1, 0, 0, 0, 0, 0, network]
            let address =
                network & 1 == 0
                ? TCPSocket.Address.four(prefix) : .six(prefix + [0, 0, 0, 0, 0, 0, 0, host])
            let own = open.filter { $0.network == network }
            let expected = own.count >= AdmissionGate.mostOfNetwork ? own.first?.number : nil
            precondition(gate.connectionAccepted(last, from: address) == expected, "the wrong connection gives way")
            open.removeAll { $0.number == expected }
            open.append((last, network))
        }
    }
}
