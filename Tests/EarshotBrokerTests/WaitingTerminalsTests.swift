import EarshotCore
import EarshotLoop
import Testing

@testable import EarshotBroker

/// Spilled terminals are read back intact with their bodies, from disk or memory.
struct WaitingTerminalsTests {
    private static func content(_ seed: Int, body: Int?) -> WaitingTerminals.Content {
        WaitingTerminals.Content(
            head: Array("RESULT h \(seed) 200\nseq: 0\n".utf8),
            body: body.map { count in (0..<count).map { UInt8(truncatingIfNeeded: seed &+ $0) } })
    }

    private static func isSame(_ one: WaitingTerminals.Content?, _ other: WaitingTerminals.Content?) -> Bool {
        one?.head == other?.head && (one?.body ?? []) == (other?.body ?? []) && (one == nil) == (other == nil)
    }

    @Test(arguments: [1, 2, 3] as [UInt64])
    func `they agree with a dictionary over random terminals, some of which no disk takes`(seed: UInt64) throws {
        var random = Chance(seed: seed)
        var model: [UInt64: WaitingTerminals.Content] = [:]
        var bed = try SpoolBed()
        var terminals = WaitingTerminals(in: WaitingFile(in: bed.spool))
        for step in 0..<3_000 {
            if step == 1_500 {
                // From here on writes fail.
                bed = try SpoolBed()
                bed.removeFolder()
                terminals = WaitingTerminals(in: WaitingFile(in: bed.spool))
                model = [:]
            }
            let number = UInt64(random.below(200))
            let id = WaitingID(rawValue: Int32(number))
            if model[number] == nil {
                let content = Self.content(step, body: [nil, 0, 5, 2_000][random.below(4)])
                if step < 1_500 {
                    try terminals.keep(content, as: id)
                } else {
                    #expect(throws: SystemError.self) { try terminals.keep(content, as: id) }
                }
                model[number] = content
            } else if random.below(2) == 0 {
                terminals.forget(id)
                model[number] = nil
            }
            let asked = UInt64(random.below(220))
            #expect(Self.isSame(terminals.content(of: WaitingID(rawValue: Int32(asked))), model[asked]))
        }
        for number in model.keys { terminals.forget(WaitingID(rawValue: Int32(number))) }
        for number in 0..<220 { #expect(terminals.content(of: WaitingID(rawValue: Int32(number))) == nil) }
        #expect(bed.waitingBytes == (bed.waitingBytes == nil ? nil : 0))
    }

    @Test func `what nobody kept is not there, and to forget it does nothing`() throws {
        let bed = try SpoolBed()
        let terminals = WaitingTerminals(in: WaitingFile(in: bed.spool))
        for number in [0, 1, .max] as [Int32] {
            terminals.forget(WaitingID(rawValue: number))
            #expect(terminals.content(of: WaitingID(rawValue: number)) == nil)
        }
        try terminals.keep(Self.content(1, body: 3), as: WaitingID(rawValue: 1))
        terminals.forget(WaitingID(rawValue: 0))
        terminals.forget(WaitingID(rawValue: 2))
        #expect(Self.isSame(terminals.content(of: WaitingID(rawValue: 1)), Self.content(1, body: 3)))
    }

    @Test(arguments: [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
    func `in whatever order they are forgotten, the others stay and the last empties the file`(order: [Int]) throws {
        let bed = try SpoolBed()
        let terminals = WaitingTerminals(in: WaitingFile(in: bed.spool))
        for number in 0..<3 {
            try terminals.keep(Self.content(number, body: number * 100), as: WaitingID(rawValue: Int32(number)))
        }
        var left = Set(0..<3)
        for number in order {
            terminals.forget(WaitingID(rawValue: Int32(number)))
            terminals.forget(WaitingID(rawValue: Int32(number)))
            left.remove(number)
            for other in 0..<3 {
                #expect(
                    Self.isSame(
                        terminals.content(of: WaitingID(rawValue: Int32(other))),
                        left.contains(other) ? Self.content(other, body: other * 100) : nil))
            }
            #expect((bed.waitingBytes == 0) == left.isEmpty)
        }
    }

    @Test func `an ID that was forgotten may be another's`() throws {
        let bed = try SpoolBed()
        let terminals = WaitingTerminals(in: WaitingFile(in: bed.spool))
        let id = WaitingID(rawValue: 7)
        try terminals.keep(Self.content(1, body: 10), as: WaitingID(rawValue: 8))
        for seed in 2...4 {
            try terminals.keep(Self.content(seed, body: nil), as: id)
            #expect(Self.isSame(terminals.content(of: id), Self.content(seed, body: nil)))
            terminals.forget(id)
        }
        #expect(Self.isSame(terminals.content(of: WaitingID(rawValue: 8)), Self.content(1, body: 10)))
    }
}
