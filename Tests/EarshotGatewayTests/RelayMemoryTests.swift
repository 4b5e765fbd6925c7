import EarshotLoop
import Testing

@testable import EarshotGateway

/// Memory as an object, since the macros of tests take values.
private final class Rig {
    var memory = RelayMemory()
    private let start = LoopTime(nanoseconds: 0)

    func mayRead(_ client: UInt64, _ undelivered: Int, isBlocked: Bool = false) -> Bool {
        memory.mayRead(client, undelivered: undelivered, isBlocked: isBlocked, now: start)
    }
}

/// Bounds of the bytes that the gateway holds.
@Suite struct RelayMemoryTests {
    private let start = LoopTime(nanoseconds: 0)

    @Test func `a client whose messages the broker does not read is read up to its bound`() {
        let rig = Rig()
        #expect(rig.mayRead(1, RelayMemory.maximumUnreadBytes - 1, isBlocked: true))
        #expect(!rig.mayRead(1, RelayMemory.maximumUnreadBytes, isBlocked: true))
        #expect(rig.mayRead(1, RelayMemory.maximumUnreadBytes))
    }

    @Test func `while memory is short one long message is read, and short ones are`() {
        let rig = Rig()
        rig.memory.adjustUndelivered(by: RelayMemory.undeliveredBytesThreshold)
        let long = RelayMemory.guaranteedBytesPerClient + 1
        #expect(rig.mayRead(1, long))
        #expect(!rig.mayRead(2, long))
        #expect(rig.mayRead(3, RelayMemory.guaranteedBytesPerClient - 1))
        #expect(rig.mayRead(1, 0))
        #expect(rig.mayRead(2, long))
        #expect(!rig.mayRead(1, long))
        rig.memory.clientLeft(2)
        #expect(rig.mayRead(1, long))
    }

    @Test func `a long message has ten seconds while others wait`() {
        let rig = Rig()
        rig.memory.adjustUndelivered(by: RelayMemory.undeliveredBytesThreshold)
        #expect(rig.mayRead(1, RelayMemory.guaranteedBytesPerClient + 1))
        #expect(rig.memory.overdueClient(now: start.advanced(by: .milliseconds(9_999))) == nil)
        #expect(rig.memory.overdueClient(now: start.advanced(by: .seconds(10))) == 1)
    }

    @Test func `a client gets a mebibyte, and less while all have much`() {
        let rig = Rig()
        #expect(rig.memory.maySend(unsent: RelayMemory.maximumUnsentBytes - 1))
        #expect(!rig.memory.maySend(unsent: RelayMemory.maximumUnsentBytes))
        rig.memory.adjustUnsent(by: RelayMemory.unsentBytesThreshold)
        #expect(rig.memory.maySend(unsent: RelayMemory.guaranteedBytesPerClient - 1))
        #expect(!rig.memory.maySend(unsent: RelayMemory.guaranteedBytesPerClient))
        rig.memory.adjustUnsent(by: -1)
        #expect(rig.memory.maySend(unsent: RelayMemory.guaranteedBytesPerClient))
    }
}
