internal import EarshotLoop

@testable internal import EarshotGateway

/// Bytes of clients in the memory of the relay. A client adds bytes only if it may.
struct RelayMemoryTarget {
    private static let clients = 4

    private var memory = RelayMemory()
    private var now = LoopTime(nanoseconds: 0)
    private var undeliveredBytes = [Int](repeating: 0, count: clients)
    private var unsentBytes = [Int](repeating: 0, count: clients)

    static func run(_ choices: inout ByteSource) {
        var target = RelayMemoryTarget()
        while !choices.isEmpty { target.step(&choices) }
        for client in 0..<clients { target.disconnect(client) }
        precondition(
            target.memory.totalUndeliveredBytes == 0 && target.memory.totalUnsentBytes == 0,
            "bytes of clients that have left")
        precondition(target.memory.overdueClient(now: LoopTime(nanoseconds: .max)) == nil, "a holder that has left")
    }

    private mutating func step(_ choices: inout ByteSource) {
        let client = choices.number(below: Self.clients)
        let isBlocked = choices.boolean()
        switch choices.number(below: 6) {
        case 0, 1: read(client, Int(choices.byte()) << 18, isBlocked: isBlocked)
        case 2: send(client, Int(choices.byte()) << 18)
        case 3:
            let bytes = undeliveredBytes[client] >> choices.number(below: 4)
            memory.adjustUndelivered(by: bytes - undeliveredBytes[client])
            undeliveredBytes[client] = bytes
        case 4:
            memory.adjustUnsent(by: -unsentBytes[client])
            unsentBytes[client] = 0
        default:
            now = now.advanced(milliseconds: Int(choices.byte()) * 100)
            if choices.boolean() { disconnect(client) }
        }
        precondition(
            memory.totalUndeliveredBytes == undeliveredBytes.reduce(0, +)
                && memory.totalUnsentBytes == unsentBytes.reduce(0, +), "the sums differ")
    }

    private mutating func read(_ client: Int, _ bytes: Int, isBlocked: Bool) {
        let own = undeliveredBytes[client]
        let isShort = memory.totalUndeliveredBytes >= RelayMemory.undeliveredBytesThreshold
        guard memory.mayRead(UInt64(client), undelivered: own, isBlocked: isBlocked, now: now) else {
            precondition(own >= RelayMemory.guaranteedBytesPerClient, "a client without its own bytes")
            return
        }
        if isBlocked { precondition(own < RelayMemory.maximumUnreadBytes, "a blocked client holds \(own) bytes") }
        if isShort, own >= RelayMemory.guaranteedBytesPerClient {
            // All others wait.
            for other in 0..<Self.clients
            where other != client && undeliveredBytes[other] >= RelayMemory.guaranteedBytesPerClient {
                precondition(
                    !memory.mayRead(UInt64(other), undelivered: undeliveredBytes[other], isBlocked: false, now: now),
                    "two clients hold the memory")
            }
            let end = now.advanced(by: RelayMemory.longMessageTimeout)
            precondition(memory.overdueClient(now: end) == UInt64(client), "the holder has no end")
        }
        memory.adjustUndelivered(by: bytes)
        undeliveredBytes[client] += bytes
    }

    private mutating func send(_ client: Int, _ bytes: Int) {
        let limit =
            memory.totalUnsentBytes < RelayMemory.unsentBytesThreshold
            ? RelayMemory.maximumUnsentBytes : RelayMemory.guaranteedBytesPerClient
        precondition(memory.maySend(unsent: unsentBytes[client]) == (unsentBytes[client] < limit), "the wrong bound")
        guard memory.maySend(unsent: unsentBytes[client]) else { return }
        memory.adjustUnsent(by: bytes)
        unsentBytes[client] += bytes
    }

    private mutating func disconnect(_ client: Int) {
        memory.adjustUndelivered(by: -undeliveredBytes[client])
        memory.adjustUnsent(by: -unsentBytes[client])
        (undeliveredBytes[client], unsentBytes[client]) = (0, 0)
        memory.clientLeft(UInt64(client))
    }
}
