import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// The store of outcomes in isolation: each event in each phase of a body and of an owed failure, files and their
/// bytes.
struct OutcomeStoreTests {
    private typealias Freed = OutcomeStore.FreedStorage

    private static let body = BodyID(rawValue: 1)
    private static let spillName = "sum.waiting"

    private static func response(
        _ body: BodyID? = body, file: String? = nil, length: Int = 100, sha256: String? = "sum"
    ) -> Outcome.Response {
        let start = MonotonicTime(nanoseconds: 0)
        return Outcome.Response(
            status: 200, url: "http://a.example/", bodyLength: length, sha256: sha256,
            body: file.map { .file($0) } ?? body.map { .inline($0) }, headerFields: [1, 2, 3], startedAt: start,
            endedAt: start)
    }

    private static func store(waitingBytes: Int = 1_000) -> OutcomeStore {
        OutcomeStore(limits: OutcomeStore.Limits(maximumWaitingBytes: waitingBytes))
    }

    /// A store with one outcome, number 0, with a reference count of 1.
    private static func store(_ response: Outcome.Response) -> OutcomeStore {
        var store = store()
        if let file = response.bodyFile { store.retainFile(file, bytes: response.bodyLength) }
        let number = store.insert(Outcome(response: response))
        store.addReference(to: number)
        return store
    }

    // MARK: Outcomes

    @Test func `the last holder of an outcome frees its body and files`() {
        var store = Self.store(Self.response(file: "a"))
        store.retainFile("b", bytes: 0)
        store.addReference(to: 0)
        #expect(store.releaseReference(to: 0) == nil)
        #expect(store.count == 1 && store.isFileReferenced("a"))
        #expect(store.releaseReference(to: 0) == Freed(files: ["a"]))
        #expect(store.count == 0 && !store.isFileReferenced("a") && store.isFileReferenced("b") && !store.isEmpty)
        #expect(store.releaseUnownedResponse(Self.response(nil, file: "b")) == Freed(files: ["b"]))
        #expect(store.isEmpty && store.checkInvariants() == [])
    }

    @Test func `a failure frees nothing`() {
        var store = Self.store()
        let number = store.insert(Outcome(failure: .timeout))
        store.addReference(to: number)
        #expect(store.releaseReference(to: number) == nil)
        #expect(store.isEmpty)
    }

    @Test func `a file is exclusive while one session knows it and one holder has it`() {
        var store = Self.store(Self.response(nil, file: "a"))
        #expect(!store.isFileExclusive("a", to: 1), "no session knows it")
        store.extendFileAudience("a", to: .onlySession(1))
        store.extendFileAudience("a", to: .knownToNoSession)
        #expect(
            store.isFileExclusive("a", to: 1) && !store.isFileExclusive("a", to: 2)
                && !store.isFileExclusive("b", to: 1))
        store.retainFile("a", bytes: 100)
        #expect(!store.isFileExclusive("a", to: 1))
        #expect(store.releaseFile("a") == false)
        #expect(store.isFileExclusive("a", to: 1))
        store.extendFileAudience("a", to: .onlySession(2))
        #expect(!store.isFileExclusive("a", to: 1) && !store.isFileExclusive("a", to: 2))
        #expect(store.releaseFile("a") == true)
        store.retainFile("a", bytes: 100)
        store.extendFileAudience("a", to: .onlySession(2))
        #expect(store.isFileExclusive("a", to: 2), "it is another file")
        store.markFileShared("a")
        #expect(!store.isFileExclusive("a", to: 2))
    }

    @Test func `a renamed file is counted and released under its new name`() {
        var store = Self.store(Self.response(nil, file: "a"))
        store.renameFile(of: 0, to: "b")
        #expect(store[0].response?.bodyFile == "b" && store.isFileReferenced("b") && !store.isFileReferenced("a"))
        #expect(store.spooledBytes == 100 && store.checkInvariants() == [])
        #expect(store.releaseReference(to: 0) == Freed(files: ["b"]))
        #expect(store.isEmpty)
    }

    // MARK: Bodies

    enum State: CaseIterable {
        case memory, spilled, gone
    }

    enum Event: CaseIterable {
        case spill, unspill, release
    }

    private static func store(_ place: State) -> OutcomeStore {
        var store = store(response())
        switch place {
        case .memory: break
        case .spilled: _ = store.spillBody(of: 0)
        case .gone: _ = store.releaseReference(to: 0)
        }
        return store
    }

    private static func place(in store: OutcomeStore) -> State {
        guard store.contains(0) else { return .gone }
        if store[0].response?.body == .inline(body) { return .memory }
        #expect(store[0].response?.body == .file(spillName, spilledBody: body))
        return .spilled
    }

    private static func expected(_ event: Event, _ place: State) -> (State, Freed?) {
        switch (event, place) {
        case (.spill, .memory), (.spill, .spilled): (.spilled, nil)
        case (.unspill, .spilled): (.memory, Freed(files: [spillName]))
        // The write failed after the outcome was released.
        case (.unspill, .memory), (.unspill, .gone): (place, Freed(body: body))
        case (.release, .memory): (.gone, Freed(body: body))
        case (.release, .spilled): (.gone, Freed(files: [spillName]))
        case (.spill, .gone), (.release, .gone): (.gone, nil)
        }
    }

    @Test(arguments: Event.allCases, State.allCases)
    func `each event leaves a body where the diagram says`(event: Event, place: State) {
        var store = Self.store(place)
        #expect(Self.place(in: store) == place)
        // The core never names a released body again.
        if place == .gone, event != .unspill { return }
        var freed: Freed?
        switch event {
        case .spill:
            let spilled = store.spillBody(of: 0)
            #expect((spilled?.body == Self.body && spilled?.file == Self.spillName) == (place == .memory))
        case .unspill: freed = store.returnBodyToMemory(Self.body)
        case .release: freed = store.releaseReference(to: 0)
        }
        let (end, expected) = Self.expected(event, place)
        #expect(Self.place(in: store) == end && freed == expected)
        #expect(store.isFileReferenced(Self.spillName) == (end == .spilled))
        #expect(store.spooledBytes == (end == .spilled ? 100 : 0))
        #expect(store.isEmpty == (end == .gone))
        #expect(store.checkInvariants() == [])
    }

    @Test func `outcomes of the same content share one spool file`() {
        var store = Self.store(Self.response())
        let other = BodyID(rawValue: 2)
        store.addReference(to: store.insert(Outcome(response: Self.response(other))))
        #expect(store.spillBody(of: 0)?.file == Self.spillName && store.spillBody(of: 1)?.file == Self.spillName)
        #expect(store.spooledBytes == 100)
        #expect(store.returnBodyToMemory(other) == Freed())
        #expect(store[1].response?.body == .inline(other) && store.isFileReferenced(Self.spillName))
        #expect(store.releaseReference(to: 0) == Freed(files: [Self.spillName]))
        #expect(store.checkInvariants() == [])
    }

    @Test(arguments: [
        // Length, number of waiting bodies; whether it must be spilled with a limit of 1,000 bytes.
        (1_000, 1, false), (1_001, 1, true), (333, 3, false), (334, 3, true), (5_000, 0, false),
    ])
    func `a body must be spilled if those that wait with it could exceed the bound`(
        length: Int, waiting: Int, mustSpill: Bool
    ) {
        let store = Self.store(Self.response(length: length))
        #expect(store.mustSpillBody(0, waiting: waiting) == mustSpill)
        let filed = Self.store(Self.response(nil, file: "a", length: length))
        #expect(!filed.mustSpillBody(0, waiting: waiting))
        let unnamed = Self.store(Self.response(length: length, sha256: nil))
        #expect(!unnamed.mustSpillBody(0, waiting: waiting))
    }

    @Test func `a full spool is noted once, until it is tried again`() {
        var store = Self.store()
        #expect(store.spoolBecameFull() == true && store.isSpoolFull)
        #expect(store.spoolBecameFull() == false && store.isSpoolFull)
        store.allowSpoolRetry()
        #expect(!store.isSpoolFull && store.spoolBecameFull() == true)
    }

    // MARK: Owed failures

    /// Adds the owed failure of a request, which holds no outcome of its own afterwards.
    private static func addCompactFailure(
        _ failure: Outcome, of interest: Handle<Interest>, in store: inout OutcomeStore
    ) throws -> Handle<CompactFailure> {
        let outcome = store.insert(failure)
        store.addReference(to: outcome)
        let number = store.addCompactFailure(
            try #require(RequestID("1")), of: interest, 0, outcome: outcome)
        _ = store.releaseReference(to: outcome)
        return number
    }

    private static func end(_ number: Handle<CompactFailure>, in store: inout OutcomeStore) -> Bool {
        let outcome = store.compactFailures[number].outcome
        guard store.releaseCompactFailure(number) else { return false }
        _ = store.releaseReference(to: outcome)
        return true
    }

    @Test(arguments: [false, true]) func `an owed failure is there until its last holder releases it`(
        isDetached: Bool
    ) throws {
        var store = Self.store()
        let number = try Self.addCompactFailure(Outcome(failure: .handlerRemoved), of: 7, in: &store)
        for _ in 0..<2 { store.retainCompactFailure(number) }
        #expect(store.compactFailureHandle(of: 7) == number && store.compactFailures[number].interest == 7)
        #expect(store.checkInvariants() == [])
        if isDetached {
            store.detachCompactFailure(number)
            #expect(store.compactFailureHandle(of: 7) == nil && store.compactFailures[number].interest == nil)
        }
        #expect(Self.end(number, in: &store) == false && store.checkInvariants() == [])
        #expect(Self.end(number, in: &store) == true && store.compactFailureHandle(of: 7) == nil)
        #expect(store.isEmpty && store.compactFailures.capacity == 0, "the memory of very many is released")
    }

    @Test func `failures with the same text share an outcome, whatever their URLs`() throws {
        var store = Self.store()
        let texts = [
            Outcome(failure: .deadlineExceeded, url: "http://a.example/1"),
            Outcome(failure: .deadlineExceeded, url: "http://a.example/2"),
            Outcome(failure: .deadlineExceeded),
            Outcome(failure: .originCoolingDown, detail: "5 s", url: "http://a.example/3"),
            Outcome(failure: .originCoolingDown, detail: "5 s", url: "http://a.example/4"),
            Outcome(failure: .originCoolingDown, detail: "6 s", url: "http://a.example/5"),
        ]
        let numbers = try texts.indices.map {
            try Self.addCompactFailure(texts[$0], of: Handle(slabIndex: $0), in: &store)
        }
        for number in numbers { store.retainCompactFailure(number) }
        #expect(store.count == 3 && store.checkInvariants() == [])
        #expect(numbers.map { store.compactFailureURLs[$0] } == texts.map(\.url))
        for number in numbers { #expect(Self.end(number, in: &store) == true) }
        #expect(store.isEmpty)
    }

    /// With its ID in place, the byte that marks a place of the slab and the entry of a window, 500,000 of them take less
    /// than 25 MB. An ID of more than 15 bytes has memory of its own.
    @Test func `an owed failure takes 32 bytes`() throws {
        #expect(MemoryLayout<CompactFailure>.stride == 32)
        var slab = Slab<CompactFailure>()
        let request = try #require(RequestID("123456789012345"))
        for _ in 0..<500_000 { _ = slab.insert(CompactFailure(request: request, handler: 0, outcome: 0)) }
        let bytes = slab.capacity * (MemoryLayout<CompactFailure>.stride + 1)
        // A deque grows by half at most.
        #expect(bytes + 750_000 * MemoryLayout<DueTerminal>.stride <= 25_000_000)
    }

    @Test func `an owed failure that is detached twice traps`() async {
        await #expect(processExitsWith: .failure) {
            var store = OutcomeStore(limits: OutcomeStore.Limits(maximumWaitingBytes: 0))
            let request = try #require(RequestID("1"))
            let outcome = store.insert(Outcome(failure: .handlerRemoved))
            let number = store.addCompactFailure(request, of: 7, 0, outcome: outcome)
            store.detachCompactFailure(number)
            store.detachCompactFailure(number)
        }
    }

    // MARK: Files

    @Test func `a file counts once, and is deleted when its last holder releases it`() {
        var store = Self.store()
        store.retainFile("a", bytes: 100)
        store.retainFile("a", bytes: 7)
        #expect(store.spooledBytes == 100)
        #expect(store.releaseFile("a") == false)
        #expect(store.isFileReferenced("a") && store.spooledBytes == 100 && store.checkInvariants() == [])
        #expect(store.releaseFile("a") == true)
        #expect(store.isEmpty && store.spooledBytes == 0)
        #expect(store.releaseFile("a") == false, "it is gone")
    }

    @Test func `files of running attempts count while they grow`() {
        var store = Self.store()
        store.retainFile("a", bytes: 100)
        store.growingFilesGrew(by: 20)
        store.growingFilesGrew(by: 10)
        #expect(store.spooledBytes == 130 && store.growingFileBytes == 30)
        store.growingFilesGrew(by: -30)
        #expect(store.spooledBytes == 100)
    }

    @Test func `sizes reported by workers never trap`() {
        var store = Self.store()
        store.retainFile("a", bytes: .max)
        store.retainFile("b", bytes: .max)
        store.growingFilesGrew(by: .max)
        store.growingFilesGrew(by: -.max)
        #expect(store.releaseFile("a") == true && store.spooledBytes == .max)
    }

    // MARK: Invariants

    @Test(arguments: [1, 2, 3]) func `the invariants hold after each of 5,000 random events`(seed: UInt64) throws {
        var random = SplitMix64Generator(seed: seed)
        var store = Self.store()
        var (lastBody, lastInterest): (UInt64, Handle<Interest>) = (0, 0)
        let files = ["a", "b", "c"]
        var held: [Handle<Outcome>] = []
        var compact: [Handle<CompactFailure>] = []
        for _ in 0..<5_000 {
            switch Int.random(in: 0..<8, using: &random) {
            case 0:
                lastBody += 1
                let sum = files.randomElement(using: &random) ?? ""
                let number = store.insert(
                    Outcome(response: Self.response(BodyID(rawValue: lastBody), sha256: sum)))
                for _ in 0...Int.random(in: 0...1, using: &random) {
                    store.addReference(to: number)
                    held.append(number)
                }
            case 1: if let number = held.randomElement(using: &random) { _ = store.spillBody(of: number) }
            case 2: _ = store.returnBodyToMemory(BodyID(rawValue: UInt64.random(in: 0...lastBody, using: &random)))
            case 3, 4:
                guard let index = held.indices.randomElement(using: &random) else { continue }
                _ = store.releaseReference(to: held.remove(at: index))
            case 5:
                lastInterest = lastInterest.advanced(by: 1)
                let detail = files.randomElement(using: &random)
                let url = Bool.random(using: &random) ? "http://a.example/" : nil
                let number = try Self.addCompactFailure(
                    Outcome(failure: .timeout, detail: detail, url: url), of: lastInterest, in: &store)
                for _ in 0...Int.random(in: 0...1, using: &random) {
                    store.retainCompactFailure(number)
                    compact.append(number)
                }
            case 6:
                guard let number = compact.randomElement(using: &random), store.compactFailures[number].interest != nil
                else {
                    continue
                }
                store.detachCompactFailure(number)
            default:
                guard let index = compact.indices.randomElement(using: &random) else { continue }
                _ = Self.end(compact.remove(at: index), in: &store)
            }
            #expect(store.checkInvariants() == [])
        }
        for number in held { _ = store.releaseReference(to: number) }
        for number in compact { _ = Self.end(number, in: &store) }
        #expect(store.isEmpty && store.spooledBytes == 0)
    }
}
