internal import EarshotLoop

@testable internal import EarshotGateway

/// Bytes of clients in the memory of the relay. A client adds bytes only if it may.
struct RelayMemoryTarget {
    private static let clients = 4

    private var memory = RelayMemory()
    private var now = LoopTime(nanoseconds: 0)
    private var undelivered = [Int](repeating: 0, count: clients)
    private var unsent = [Int](repeating: 0, count: clients)

    static func run(_ choices: inout ByteSource) {
        var target = RelayMemoryTarget()
        while !choices.isEmpty { target.step(&choices) }
        for client in 0..<clients { target.leave(client) }
        precondition(target.memory.undelivered == 0 && target.memory.unsent == 0, "bytes of clients that have left")
        precondition(target.memory.overdueClient(now: LoopTime(nanoseconds: .max)) == nil, "a holder that has left")
    }

    private mutating func step(_ choices: inout ByteSource) {
        let client = choices.number(Self.clients)
        let isBlocked = choices.flag()
        switch choices.number(6) {
        case 0, 1: read(client, Int(choices.byte()) << 18, isBlocked: isBlocked)
        case 2: send(client, Int(choices.byte()) << 18)
        case 3:
            let bytes = undelivered[client] >> choices.number(4)
            memory.changed(undelivered: bytes - undelivered[client])
            undelivered[client] = bytes
        case 4:
            memory.changed(unsent: -unsent[client])
            unsent[client] = 0
        default:
            now = now.advanced(milliseconds: Int(choices.byte()) * 100)
            if choices.flag() { leave(client) }
        }
        precondition(
            memory.undelivered == undelivered.reduce(0, +) && memory.unsent == unsent.reduce(0, +), "the sums differ")
    }

    private mutating func read(_ client: Int, _ bytes: Int, isBlocked: Bool) {
        let own = undelivered[client]
        let isShort = memory.undelivered >= RelayMemory.undeliveredOfAll
        guard memory.mayRead(UInt64(client), undelivered: own, isBlocked: isBlocked, now: now) else {
            precondition(own >= RelayMemory.ownBytes, "a client without its own bytes")
            return
        }
        if isBlocked { precondition(own < RelayMemory.unreadBytes, "a blocked client holds \(own) bytes") }
        if isShort, own >= RelayMemory.ownBytes {
            // All others wait.
            for other in 0..<Self.clients where other != client && undelivered[other] >= RelayMemory.ownBytes {
                precondition(
                    !memory.mayRead(UInt64(other), undelivered: undelivered[other], isBlocked: false, now: now),
                    "two clients hold the memory")
            }
            let end = now.advanced(by: RelayMemory.messageTime)
            precondition(memory.overdueClient(now: end) == UInt64(client), "the holder has no end")
        }
        memory.changed(undelivered: bytes)
        undelivered[client] += bytes
    }

    private mutating func send(_ client: Int, _ bytes: Int) {
        let limit = memory.unsent < RelayMemory.unsentOfAll ? RelayMemory.unsentBytes : RelayMemory.ownBytes
        precondition(memory.maySend(unsent: unsent[client]) == (unsent[client] < limit), "the wrong bound")
        guard memory.maySend(unsent: unsent[client]) else { return }
        memory.changed(unsent: bytes)
        unsent[client] += bytes
    }

    private mutating func leave(_ client: Int) {
        memory.changed(undelivered: -undelivered[client])
        memory.changed(unsent: -unsent[client])
        (undelivered[client], unsent[client]) = (0, 0)
        memory.clientLeft(UInt64(client))
    }
}
