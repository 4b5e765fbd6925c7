import EarshotCore
import EarshotWire
import Testing

@testable import EarshotCluster

/// Entries of the engine that no node has written, and those of another flight, attempt or time.
@Suite struct EngineSealsTests {
    private static let digest = String(repeating: "ab", count: 32)
    private let keys = ClusterKeys(secret: Array(repeating: 7, count: 32))
    private let key = ClusterKey.flight(1)

    private func token(_ number: UInt64) -> FencingToken { FencingToken(1_700_000_000_000_000 + number) }

    /// The entry of a result as the engine gets it.
    private func entry(_ text: String, of key: ClusterKey, token: FencingToken, by keys: ClusterKeys) -> [UInt8] {
        var writer = EngineSeals(keys)
        let end = EngineCompletion(key: key, token: token, outcome: .result(Array(text.utf8)), isAnswered: true)
        guard case .reportCompletions(let ends) = writer.sealedCall(.reportCompletions([end])),
            case .result(let entry) = ends[0].outcome
        else {
            return []
        }
        return entry
    }

    private func entry(_ text: String, token number: UInt64 = 1) -> [UInt8] {
        entry(text, of: key, token: token(number), by: keys)
    }

    private func result(_ entry: [UInt8], _ reader: inout EngineSeals) -> String? {
        guard case .resultReceived(key, let bytes) = reader.unsealedEvent(.resultReceived(key, entry)) else {
            return nil
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    @Test func `a result and a record of a node are read by the others`() {
        var (writer, reader) = (EngineSeals(keys), EngineSeals(keys))
        #expect(result(entry("1 r 204 0 - -"), &reader) == "1 r 204 0 - -")
        let want = EngineWant.make(1)
        guard case .wantFlights(let wants) = writer.sealedCall(.wantFlights([want])) else { return }
        #expect(wants[0].record != want.record)
        let grant = EngineGrant(key: key, token: token(2), priority: .normal, record: wants[0].record)
        var opened = grant
        opened.record = want.record
        #expect(
            reader.unsealedEvent(.flightsGranted([grant], opensAfterMilliseconds: 3))
                == .flightsGranted([opened], opensAfterMilliseconds: 3)
        )
        #expect(reader.takeForgeryFlag() == false)
        let pinned = EngineCall.wantFlights([
            EngineWant(key: key, origin: .make(), lane: .pinned, priority: .normal, record: [])
        ])
        #expect(writer.sealedCall(pinned) == pinned)
    }

    @Test(arguments: [
        "1 r 302 0 - -\nlocation: http://other.example/", "1 r 200 0 - -", "1 r 404 0 - -", "1 f unknown-host - ",
        "1 f tls - ", "1 r 200 3 \(digest) 203.0.113.9:1/000000000000000a0000000000000001/7", "1 r 200 3 \(digest) -",
        "",
    ])
    func `a forged result is dropped, and noticed`(text: String) {
        var reader = EngineSeals(keys)
        let other = ClusterKeys(secret: Array(repeating: 8, count: 32))
        let forms = [
            Array(text.utf8), Array("\(token(1)) \(text)".utf8),
            Array("\(String(repeating: "0", count: 32)) \(token(1)) \(text)".utf8),
            entry(text.isEmpty ? "x" : text, of: key, token: token(1), by: other),
        ]
        for form in forms {
            #expect(reader.unsealedEvent(.resultReceived(key, form)) == .unusableResult(key))
            #expect(reader.takeForgeryFlag() == true)
            let answer = WantAnswer(key: key, state: .ended(form))
            #expect(
                reader.unsealedEvent(.wantsAnswered([answer]))
                    == .wantsAnswered([WantAnswer(key: key, state: .ended([]))]))
            #expect(reader.takeForgeryFlag() == true)
        }
        // The real one still arrives.
        #expect(result(entry("1 r 204 0 - -"), &reader) == "1 r 204 0 - -")
    }

    @Test func `each byte of an entry counts`() {
        let valid = entry("1 r 204 0 - -")
        for index in valid.indices {
            var (bytes, reader) = (valid, EngineSeals(keys))
            bytes[index] ^= 1
            #expect(reader.unsealedEvent(.resultReceived(key, bytes)) == .unusableResult(key), "\(index)")
        }
    }

    @Test func `the result of another flight is dropped`() {
        var reader = EngineSeals(keys)
        let other = entry("1 r 204 0 - -", of: .flight(2), token: token(1), by: keys)
        #expect(reader.unsealedEvent(.resultReceived(key, other)) == .unusableResult(key))
        #expect(reader.takeForgeryFlag() == true)
    }

    @Test func `a result is taken once, and none of an older attempt after it`() {
        var reader = EngineSeals(keys)
        let old = entry("old", token: 1)
        let new = entry("new", token: 2)
        #expect(result(new, &reader) == "new")
        #expect(result(new, &reader) == nil)
        #expect(result(old, &reader) == nil)
        // A repetition is no forgery: two messages of the engine may have the same result.
        #expect(reader.takeForgeryFlag() == false)
        #expect(result(entry("newer", token: 3), &reader) == "newer")
        // Attempts that began without the engine have random tokens.
        let random = entry("alone", of: key, token: FencingToken(5), by: keys)
        #expect(result(random, &reader) == "alone")
        #expect(result(random, &reader) == nil)
        #expect(result(new, &reader) == nil, "the attempts with the engine keep their order")
    }

    @Test func `a result of an attempt before this node's own is dropped`() {
        var node = EngineSeals(keys)
        let end = EngineCompletion(key: key, token: token(2), outcome: .result([1]), isAnswered: true)
        _ = node.sealedCall(.reportCompletions([end]))
        #expect(result(entry("old", token: 1), &node) == nil)
        #expect(result(entry("new", token: 3), &node) == "new")
    }

    @Test func `a forged record is empty, and so is that of another flight or that of a result`() {
        var (writer, reader) = (EngineSeals(keys), EngineSeals(keys))
        guard case .wantFlights(let wants) = writer.sealedCall(.wantFlights([.make(2)])) else { return }
        for record in [Array("1 GET 0 0 follow default http://10.0.0.1/".utf8), wants[0].record, entry("x")] {
            let grant = EngineGrant(key: key, token: token(1), priority: .normal, record: record)
            var empty = grant
            empty.record = []
            #expect(
                reader.unsealedEvent(.flightsGranted([grant], opensAfterMilliseconds: nil))
                    == .flightsGranted([empty], opensAfterMilliseconds: nil))
            #expect(reader.takeForgeryFlag() == true)
        }
        let own = EngineGrant(key: key, token: token(1), priority: .normal, record: nil)
        #expect(
            reader.unsealedEvent(.flightsGranted([own], opensAfterMilliseconds: nil))
                == .flightsGranted([own], opensAfterMilliseconds: nil))
    }
}
