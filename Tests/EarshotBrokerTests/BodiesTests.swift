import EarshotCore
import EarshotLoop
import Testing

@testable import EarshotBroker

/// Spilled bodies are found by name until it is released, on disk or in memory.
struct BodiesTests {
    @Test func `a spilled body is there until its name is released, once for all who name it`() throws {
        let bed = try SpoolBed()
        let bodies = Bodies(spillingTo: SpillFile(in: bed.spool))
        try bodies.spill(bodies.insert([1, 2]), toFileNamed: "a")
        try bodies.spill(bodies.insert([3]), toFileNamed: "b")
        // The same content under the same name is written once.
        try bodies.spill(bodies.insert([1, 2]), toFileNamed: "a")
        #expect(bed.waitingBytes == 3)
        #expect(bodies.readSpilledBody(named: "a") == [1, 2])
        #expect(bodies.readSpilledBody(named: "b") == [3])
        bodies.releaseFile(named: "a")
        #expect(bodies.readSpilledBody(named: "a") == nil)
        #expect(bodies.readSpilledBody(named: "b") == [3])
        bodies.releaseFile(named: "b")
        #expect(bed.waitingBytes == 0)
        #expect(bodies.isEmpty)
    }

    @Test func `what was never spilled is not there, and to release it does nothing`() throws {
        let bed = try SpoolBed()
        let bodies = Bodies(spillingTo: SpillFile(in: bed.spool))
        bodies.releaseFile(named: "a")
        #expect(bodies.readSpilledBody(named: "a") == nil)
        try bodies.spill(bodies.insert([]), toFileNamed: "a")
        #expect(bodies.readSpilledBody(named: "a") == [])
        bodies.releaseFile(named: "b")
        bodies.releaseFile(named: "a")
        bodies.releaseFile(named: "a")
        #expect(bodies.readSpilledBody(named: "a") == nil)
    }

    @Test func `a body that no disk takes is in memory under both names until they are released`() throws {
        let bed = try SpoolBed()
        bed.removeFolder()
        let bodies = Bodies(spillingTo: SpillFile(in: bed.spool))
        let first = bodies.insert([1])
        #expect(throws: SystemError.self) { try bodies.spill(first, toFileNamed: "a") }
        #expect(throws: SystemError.self) { try bodies.spill(bodies.insert([2]), toFileNamed: "b") }
        #expect(bodies.readSpilledBody(named: "a") == [1])
        bodies.releaseFile(named: "a")
        #expect(bodies.readSpilledBody(named: "a") == nil)
        #expect(bodies[first] == [1])
        bodies.releaseBody(first)
        #expect(bodies[first] == nil)
        #expect(bodies.readSpilledBody(named: "b") == [2])
        #expect(bed.waitingBytes == nil)
    }
}
