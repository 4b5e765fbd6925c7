import EarshotCache
import EarshotCore
import EarshotHTTP
import Testing

@testable import EarshotBroker

/// LRU eviction within a bound in bytes. An evicted key leaves all indexes.
struct MemoryCacheTests {
    private static func key(_ number: Int) throws -> CacheDigest {
        let request = HTTPRequest(url: try FetchURL("http://h/\(number)"))
        return CacheDigest(CacheKey(request), salt: [])
    }

    private static func entry(_ number: Int) -> CacheEntryID { CacheEntryID(rawValue: UInt64(number)) }

    /// Returns a response that costs 1,024 bytes plus its body.
    private static func answer(_ number: Int, body: Int? = nil) -> MemoryCache.Answer {
        let response = StoredResponse(
            status: 200, fields: HeaderFields(), requestTime: 0, responseTime: 0, varyKey: VaryKey(canonicalFields: []))
        let variant = CacheVariant(entry: entry(number), response: response, length: body ?? 0, sha256: nil)
        return MemoryCache.Answer(
            variant: variant, varyKeyDigest: [], body: body.map { [UInt8](repeating: UInt8(number % 256), count: $0) })
    }

    private static func entries(_ answers: [MemoryCache.Answer]?) -> [UInt64]? {
        answers?.map(\.variant.entryID.rawValue)
    }

    @Test func `an answer is here with its body until its key is removed`() throws {
        var memory = MemoryCache(limitBytes: 1 << 20)
        let (one, other) = (try Self.key(1), try Self.key(2))
        memory.insert([Self.answer(1, body: 3), Self.answer(2)], forKey: one, url: "http://h/1")
        memory.insert([Self.answer(3, body: 5)], forKey: other, url: "http://h/2")
        #expect(Self.entries(memory.answers(forKey: one)) == [1, 2])
        #expect(memory.body(of: Self.entry(1)) == [1, 1, 1])
        #expect(memory.body(of: Self.entry(2)) == nil)
        memory.remove(one)
        #expect(memory.answers(forKey: one) == nil && !memory.contains(one))
        #expect(memory.body(of: Self.entry(1)) == nil)
        #expect(memory.body(of: Self.entry(3))?.count == 5)
        memory.remove(one)
        #expect(memory.contains(other))
    }

    @Test func `what is put under a key takes the place of what was there`() throws {
        var memory = MemoryCache(limitBytes: 1 << 20)
        let key = try Self.key(1)
        memory.insert([Self.answer(1, body: 3)], forKey: key, url: "http://h/1")
        memory.insert([Self.answer(2, body: 4)], forKey: key, url: "http://h/1")
        #expect(Self.entries(memory.answers(forKey: key)) == [2])
        #expect(memory.body(of: Self.entry(1)) == nil)
        #expect(memory.body(of: Self.entry(2))?.count == 4)
    }

    @Test func `a key without answers is known to have none`() throws {
        var memory = MemoryCache(limitBytes: 1 << 20)
        let key = try Self.key(1)
        #expect(memory.answers(forKey: key) == nil)
        memory.insert([], forKey: key, url: "http://h/1")
        #expect(Self.entries(memory.answers(forKey: key)) == [])
    }

    @Test func `all answers for a URL go, those of other scopes, too, and no other URL's`() throws {
        var memory = MemoryCache(limitBytes: 1 << 20)
        let keys = try (1...3).map(Self.key)
        memory.insert([Self.answer(1)], forKey: keys[0], url: "http://h/")
        memory.insert([Self.answer(2)], forKey: keys[1], url: "http://h/")
        memory.insert([Self.answer(3)], forKey: keys[2], url: "http://other/")
        memory.remove(url: "http://unknown.example/")
        memory.remove(url: "http://h/")
        #expect(keys.map(memory.contains) == [false, false, true])
        memory.insert([Self.answer(4)], forKey: keys[0], url: "http://h/")
        memory.remove(url: "http://h/")
        #expect(keys.map(memory.contains) == [false, false, true])
    }

    @Test func `a key's answers are changed where they are, and the last one that goes takes the key along`() throws {
        var memory = MemoryCache(limitBytes: 1 << 20)
        let (one, other) = (try Self.key(1), try Self.key(2))
        memory.insert([Self.answer(1, body: 3), Self.answer(2, body: 4)], forKey: one, url: "http://h/1")
        memory.updateAnswers(forKey: other) { _ in Issue.record("it is not here") }
        memory.updateAnswers(forKey: one) { $0.removeFirst() }
        #expect(Self.entries(memory.answers(forKey: one)) == [2])
        #expect(memory.body(of: Self.entry(1)) == nil)
        #expect(memory.body(of: Self.entry(2))?.count == 4)
        memory.updateAnswers(forKey: one) { $0.removeAll() }
        #expect(!memory.contains(one) && memory.body(of: Self.entry(2)) == nil)
    }

    @Test func `what was used longest ago goes first, and a look is a use`() throws {
        // Room for ten responses of 1,024 bytes each, as `cost` counts them.
        var memory = MemoryCache(limitBytes: 10 * 1_024)
        let keys = try (0..<12).map(Self.key)
        for number in 0..<10 { memory.insert([Self.answer(number)], forKey: keys[number], url: "http://h/\(number)") }
        #expect(keys.prefix(10).allSatisfy(memory.contains))
        _ = memory.answers(forKey: keys[0])
        // A check for presence, or for the body, is not a use.
        _ = memory.contains(keys[1])
        _ = memory.body(of: Self.entry(1))
        memory.insert([Self.answer(10)], forKey: keys[10], url: "http://h/10")
        #expect(!memory.contains(keys[1]) && memory.contains(keys[0]))
        memory.updateAnswers(forKey: keys[2]) { _ in }
        memory.insert([Self.answer(11)], forKey: keys[11], url: "http://h/11")
        #expect(!memory.contains(keys[3]) && memory.contains(keys[2]))
        #expect(keys.count(where: memory.contains) == 10)
    }

    @Test func `one that would drive out many is not kept, and neither is what it should replace`() throws {
        var memory = MemoryCache(limitBytes: 16_384)
        let (one, other) = (try Self.key(1), try Self.key(2))
        memory.insert([Self.answer(1, body: 10)], forKey: one, url: "http://h/1")
        memory.insert([Self.answer(2, body: 10)], forKey: other, url: "http://h/2")
        // The limit for one key is 2,048, an eighth of 16,384. It costs 1,024 without its body.
        memory.insert([Self.answer(3, body: 1_025)], forKey: one, url: "http://h/1")
        #expect(
            memory.answers(forKey: one) == nil && memory.body(of: Self.entry(1)) == nil
                && memory.body(of: Self.entry(3)) == nil
        )
        memory.insert([Self.answer(3, body: 1_024)], forKey: one, url: "http://h/1")
        #expect(memory.contains(one) && memory.contains(other))
    }

    @Test func `after all was removed there is room for as much again`() throws {
        var memory = MemoryCache(limitBytes: 10 * 1_024)
        let keys = try (0..<10).map(Self.key)
        for _ in 0..<2 {
            for number in 0..<10 {
                memory.insert([Self.answer(number)], forKey: keys[number], url: "http://h/\(number)")
            }
            #expect(keys.allSatisfy(memory.contains))
            memory.removeAll()
            #expect(!keys.contains(where: memory.contains))
            #expect(memory.body(of: Self.entry(1)) == nil)
        }
    }

    @Test(arguments: [1, 2, 3] as [UInt64])
    func `it agrees with a list ordered by use over random changes`(seed: UInt64) throws {
        /// Least recently used first.
        var model: [(key: Int, url: String, answers: [(entry: Int, body: Int?)])] = []
        let limit = 40_000
        var memory = MemoryCache(limitBytes: limit)
        var random = Chance(seed: seed)
        let keys = try (0..<60).map(Self.key)
        func cost(_ answers: [(entry: Int, body: Int?)]) -> Int {
            answers.reduce(512) { $0 + 512 + ($1.body ?? 0) }
        }
        func put(_ key: Int, _ url: String, _ answers: [(entry: Int, body: Int?)]) {
            model.removeAll { $0.key == key }
            guard cost(answers) <= limit / 8 else { return }
            model.append((key, url, answers))
            while model.reduce(0, { $0 + cost($1.answers) }) > limit { model.removeFirst() }
        }
        for step in 0..<6_000 {
            let key = random.below(keys.count)
            let place = model.firstIndex { $0.key == key }
            switch random.below(10) {
            case ..<5:
                let answers = (0..<random.below(4)).map { index in
                    (entry: step * 4 + index, body: random.below(3) == 0 ? nil : random.below(2_500))
                }
                memory.insert(
                    answers.map { Self.answer($0.entry, body: $0.body) }, forKey: keys[key], url: "u\(key % 20)")
                put(key, "u\(key % 20)", answers)
            case ..<7:
                #expect(
                    Self.entries(memory.answers(forKey: keys[key]))
                        == place.map { model[$0].answers.map { UInt64($0.entry) } })
                if let place { model.append(model.remove(at: place)) }
            case 7:
                memory.updateAnswers(forKey: keys[key]) { if !$0.isEmpty { $0.removeLast() } }
                if let place {
                    let answers = Array(model[place].answers.dropLast())
                    let url = model[place].url
                    if answers.isEmpty { model.remove(at: place) } else { put(key, url, answers) }
                }
            case 8:
                memory.remove(keys[key])
                model.removeAll { $0.key == key }
            default:
                guard random.below(4) == 0 else { continue }
                memory.remove(url: "u\(key % 20)")
                model.removeAll { $0.url == "u\(key % 20)" }
            }
            #expect(keys.indices.filter { memory.contains(keys[$0]) } == model.map(\.key).sorted())
            if let (_, _, answers) = model.last, let (entry, body) = answers.last {
                #expect(memory.body(of: Self.entry(entry))?.count == body)
            }
        }
    }
}
