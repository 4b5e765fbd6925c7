import EarshotCore
import EarshotLoop
import Testing

@testable import EarshotBroker

/// Spilled bodies are found by name until they are removed, on disk or in memory.
struct SpilledBodiesTests {
    @Test func `a body is there until it is removed, once for all who name it`() throws {
        let bed = try SpoolBed()
        let bodies = SpilledBodies(in: SpillFile(in: bed.spool))
        try bodies.keep([1, 2], as: "a")
        try bodies.keep([3], as: "b")
        // The same content under the same name is written once.
        try bodies.keep([1, 2], as: "a")
        #expect(bed.waitingBytes == 3)
        #expect(bodies.body("a") == [1, 2])
        #expect(bodies.body("b") == [3])
        bodies.remove("a")
        #expect(bodies.body("a") == nil)
        #expect(bodies.body("b") == [3])
        bodies.remove("b")
        #expect(bed.waitingBytes == 0)
    }

    @Test func `what was never kept is not there, and to remove it does nothing`() throws {
        let bed = try SpoolBed()
        let bodies = SpilledBodies(in: SpillFile(in: bed.spool))
        bodies.remove("a")
        #expect(bodies.body("a") == nil)
        try bodies.keep([], as: "a")
        #expect(bodies.body("a") == [])
        bodies.remove("b")
        bodies.remove("a")
        bodies.remove("a")
        #expect(bodies.body("a") == nil)
    }

    @Test func `a body that no disk takes is in memory until it is removed, and nothing else is lost`() throws {
        let bed = try SpoolBed()
        bed.removeFolder()
        let bodies = SpilledBodies(in: SpillFile(in: bed.spool))
        #expect(throws: SystemError.self) { try bodies.keep([1], as: "a") }
        #expect(throws: SystemError.self) { try bodies.keep([2], as: "b") }
        #expect(bodies.body("a") == [1])
        bodies.remove("a")
        #expect(bodies.body("a") == nil)
        #expect(bodies.body("b") == [2])
        #expect(bed.waitingBytes == nil)
    }
}
