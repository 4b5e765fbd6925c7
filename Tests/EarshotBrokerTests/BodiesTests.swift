import EarshotCore
import EarshotLoop
import Testing

@testable import EarshotBroker

/// Spilled bodies are found by name until it is released, on disk or in memory.
struct BodiesTests {
    @Test func `a spilled body is there until its name is released, once for all who name it`() throws {
        let bed = try SpoolBed()
        let bodies = Bodies(spillingTo: SpillFile(in: bed.spool))
        try bodies.spill(bodies.insert([1, 2]), as: "a")
        try bodies.spill(bodies.insert([3]), as: "b")
        // The same content under the same name is written once.
        try bodies.spill(bodies.insert([1, 2]), as: "a")
        #expect(bed.waitingBytes == 3)
        #expect(bodies.spilled("a") == [1, 2])
        #expect(bodies.spilled("b") == [3])
        bodies.release("a")
        #expect(bodies.spilled("a") == nil)
        #expect(bodies.spilled("b") == [3])
        bodies.release("b")
        #expect(bed.waitingBytes == 0)
        #expect(bodies.isEmpty)
    }

    @Test func `what was never spilled is not there, and to release it does nothing`() throws {
        let bed = try SpoolBed()
        let bodies = Bodies(spillingTo: SpillFile(in: bed.spool))
        bodies.release("a")
        #expect(bodies.spilled("a") == nil)
        try bodies.spill(bodies.insert([]), as: "a")
        #expect(bodies.spilled("a") == [])
        bodies.release("b")
        bodies.release("a")
        bodies.release("a")
        #expect(bodies.spilled("a") == nil)
    }

    @Test func `a body that no disk takes is in memory under both names until they are released`() throws {
        let bed = try SpoolBed()
        bed.removeFolder()
        let bodies = Bodies(spillingTo: SpillFile(in: bed.spool))
        let first = bodies.insert([1])
        #expect(throws: SystemError.self) { try bodies.spill(first, as: "a") }
        #expect(throws: SystemError.self) { try bodies.spill(bodies.insert([2]), as: "b") }
        #expect(bodies.spilled("a") == [1])
        bodies.release("a")
        #expect(bodies.spilled("a") == nil)
        #expect(bodies[first] == [1])
        bodies.release(first)
        #expect(bodies[first] == nil)
        #expect(bodies.spilled("b") == [2])
        #expect(bed.waitingBytes == nil)
    }
}
