import EarshotWire
import Testing

@testable import EarshotCore

/// Lookup of leases by their whole attempt, also with equal hashes.
struct LeaseTableTests {
    private static func attempt(_ broker: UInt64, _ flight: UInt64, _ attempt: UInt32) -> AttemptID {
        AttemptID(broker: BrokerInstance(rawValue: broker), flight: flight, attempt: attempt)
    }

    /// A lease that `flight` identifies.
    private static func lease(_ flight: Handle<Flight>) -> WorkerLease {
        WorkerLease(
            origin: Handle(slabIndex: flight.slabIndex / 2), isHigh: flight.slabIndex % 2 == 0,
            use: .servingFlight(flight),
            startedAt: MonotonicTime(nanoseconds: 0),
            maximumBodyBytes: nil)
    }

    /// Attempts of two brokers, with equal hashes across the brokers.
    private static let attempts: [AttemptID] = (0..<200).flatMap { flight in
        [attempt(0x10, flight, 1), attempt(0x11, flight, 0), attempt(0x10, flight, 2), attempt(0x13, flight, 1)]
    }

    @Test func `the attempts of the tests below share hashes`() {
        // The same hash as in the table.
        let hashes = Self.attempts.map { NumberHash.hash($0.flight, $0.broker.rawValue ^ UInt64($0.attempt)) }
        #expect(Set(hashes).count <= Self.attempts.count / 2)
        #expect(Set(Self.attempts).count == Self.attempts.count)
    }

    @Test(arguments: [1, 2, 3])
    func `a table agrees with a dictionary over random insertions, changes and removals`(seed: UInt64) {
        var table = LeaseTable()
        var model: [AttemptID: Handle<Flight>] = [:]
        var random = SplitMix64Generator(seed: seed)
        for step in 0..<8_000 as Range<Handle<Flight>> {
            // The table repeatedly grows to some hundred leases and is emptied.
            let isGrowing = step.slabIndex / 1_000 % 2 == 0
            let attempt = Self.attempts[Int.random(in: 0..<Self.attempts.count, using: &random)]
            if model[attempt] == nil, isGrowing || Int.random(in: 0..<4, using: &random) == 0 {
                table.insert(Self.lease(step), of: attempt)
                model[attempt] = step
            } else if isGrowing {
                table[attempt]?.receivedBytes += 1
                #expect((table[attempt] == nil) == (model[attempt] == nil))
            } else {
                #expect(table.remove(attempt)?.flight == model.removeValue(forKey: attempt))
            }
            #expect(table.count == model.count)
            #expect(table.isEmpty == model.isEmpty)
            let requested = Self.attempts[Int.random(in: 0..<Self.attempts.count, using: &random)]
            #expect(table.contains(requested) == (model[requested] != nil))
            #expect(table[requested]?.flight == model[requested])
            guard step.slabIndex % 500 == 0 else { continue }
            #expect(Dictionary(uniqueKeysWithValues: table.map { ($0.key, $0.value.flight ?? -1) }) == model)
            #expect(table.allLeases.compactMap(\.flight).sorted() == model.values.sorted())
        }
    }

    @Test func `an empty table has nothing, before the first lease and after the last`() {
        var table = LeaseTable()
        let attempt = Self.attempt(1, 1, 1)
        for _ in 0..<2 {
            #expect(table.isEmpty && table.count == 0 && table.allLeases.isEmpty)
            #expect(!table.contains(attempt) && table[attempt] == nil && table.remove(attempt) == nil)
            table.insert(Self.lease(1), of: attempt)
            #expect(table.remove(attempt)?.flight == 1)
        }
    }

    @Test func `a change reaches its lease alone, and makes none`() {
        var table = LeaseTable()
        for (number, attempt) in Self.attempts.enumerated() {
            table.insert(Self.lease(Handle(slabIndex: number)), of: attempt)
        }
        table[Self.attempts[9]]?.receivedBytes = 7
        for attempt in Self.attempts { #expect(table[attempt]?.receivedBytes == (attempt == Self.attempts[9] ? 7 : 0)) }
        let unknown = Self.attempt(0x99, 0, 0x89)
        table[unknown] = Self.lease(-1)
        #expect(!table.contains(unknown) && table.count == Self.attempts.count)
        // Assigning nil does not remove the lease.
        table[Self.attempts[9]] = nil
        #expect(table[Self.attempts[9]]?.receivedBytes == 7)
    }

    @Test func `attempts at the ends of their numbers are told apart`() {
        let ends: [UInt64] = [0, 1, .max - 1, .max]
        let attempts = ends.flatMap { broker in
            ends.flatMap { flight in [0, 1, .max].map { Self.attempt(broker, flight, $0) } }
        }
        var table = LeaseTable()
        for (number, attempt) in attempts.enumerated() {
            table.insert(Self.lease(Handle(slabIndex: number)), of: attempt)
        }
        for (number, attempt) in attempts.enumerated() { #expect(table[attempt]?.flight == Handle(slabIndex: number)) }
        for (number, attempt) in attempts.enumerated() {
            #expect(table.remove(attempt)?.flight == Handle(slabIndex: number))
        }
        #expect(table.isEmpty)
    }

    @Test func `a loop over a table sees it as it was, though leases go meanwhile`() {
        var table = LeaseTable()
        for (number, attempt) in Self.attempts.enumerated() {
            table.insert(Self.lease(Handle(slabIndex: number)), of: attempt)
        }
        var seen: Set<AttemptID> = []
        for (attempt, _) in table {
            seen.insert(attempt)
            table.remove(attempt)
        }
        #expect(seen == Set(Self.attempts))
        #expect(table.isEmpty)
    }
}
