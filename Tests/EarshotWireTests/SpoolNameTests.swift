import Testing

@testable import EarshotWire

/// Names of files in the spool.
struct SpoolNameTests {
    private let attempt = AttemptID(broker: BrokerInstance(rawValue: 1), flight: 2, attempt: 3)

    @Test func `each state of a body has a name of its own`() {
        let names = [
            SpoolName.partFile(of: attempt, pid: 7), SpoolName.partFile(of: attempt, pid: 7, startsAnew: true),
            SpoolName.keptPart(of: attempt), SpoolName.takenFile(7, by: attempt.broker),
            String(repeating: "0a", count: 32),
        ]
        #expect(names.map(SpoolName.isKeptPart) == [false, false, true, false, false])
        #expect(names.map(SpoolName.isTakenFile) == [false, false, false, true, false])
        #expect(names.map(SpoolName.isContentAddressed) == [false, false, false, false, true])
        #expect(names.map { SpoolName.isPart($0, of: attempt, pid: 7) } == [true, true, false, false, false])
        #expect(names.map { SpoolName.writer(of: $0)?.attempt == attempt } == [true, true, false, false, false])
    }

    @Test func `a part belongs to one process and one attempt`() {
        let name = SpoolName.partFile(of: attempt, pid: 7)
        var other = attempt
        other.attempt += 1
        #expect(!SpoolName.isPart(name, of: attempt, pid: 8))
        #expect(!SpoolName.isPart(name, of: other, pid: 7))
        #expect(SpoolName.writer(of: name)?.pid == 7)
    }

    @Test func `an unfinished file without an attempt has a writer, and other names have none`() {
        #expect(SpoolName.writer(of: "7-waiting.part")?.pid == 7)
        #expect(SpoolName.writer(of: "7-waiting.part")?.attempt == nil)
        for name in ["", ".part", "x-1.part", "7.part", "7-1.2.3", "99999999999-1.2.3.part"] {
            #expect(SpoolName.writer(of: name)?.pid == nil, "\(name)")
        }
    }

    @Test func `only 64 lower-case digits name a content`() {
        for name in [String(repeating: "0A", count: 32), String(repeating: "0a", count: 31), "broker.lock"] {
            #expect(!SpoolName.isContentAddressed(name), "\(name)")
        }
    }
}
