import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// The book of durable requests alone: each event in each phase, the order of reads, and the limits.
struct DurableBookTests {
    /// Phase of the request before an event.
    enum Phase: CaseIterable {
        case absent, entering, stored, writing, complete, reading, reopening

        init(_ record: DurableRecord?) {
            self =
                switch record?.phase {
                case nil: .absent
                case .writingRequest: .entering
                case .stored: .stored
                case .writingResult: .writing
                case .complete: .complete
                case .readingResult: .reading
                case .deletingFailure: .reopening
                }
        }
    }

    /// Events that are legal in each phase.
    enum Event: CaseIterable {
        case readEnded, remove
    }

    private static let interest: Handle<Interest> = 7

    private static func entering(_ url: String = "http://a.example/") throws -> DurableRecord.UnacceptedRequest {
        let fetch = Fetch(
            handler: try #require(HandlerID("a")), request: try #require(RequestID("1")), url: url)
        let requester = Requester(session: GenerationalHandle(record: 1, generation: 2), number: 0)
        return DurableRecord.UnacceptedRequest(fetch, by: requester)
    }

    private static let success = DurableSummary(status: 200, attempts: 1)

    private static func book(reads: Int = 10, writingBytes: Int = 1_000) -> DurableBook {
        DurableBook(
            limits: DurableBook.Limits(
                maximumConcurrentReads: reads, maximumWritingBytes: writingBytes, retentionMilliseconds: 5))
    }

    /// A book with one request in a phase, and the ID of that.
    private static func book(_ phase: Phase) throws -> (DurableBook, DurableID) {
        var book = Self.book()
        guard phase != .absent else { return (book, DurableID(rawValue: 1)) }
        let id = book.insertRequest(interest, acceptedAt: MonotonicTime(nanoseconds: 1), try entering())
        let steps: [(Phase, (inout DurableBook) -> Void)] = [
            (.stored, { $0.requestStored(interest) }),
            (.writing, { _ = $0.beginWritingResult(interest, bytes: 100, success) }),
            (.complete, { $0.resultWriteEnded(interest, isStored: true) }),
            (.reading, { _ = $0.beginResultRead(interest) }),
        ]
        for step in steps where Phase(book.records[interest]) != phase {
            guard phase != .reopening || Phase(book.records[interest]) != .complete else { break }
            step.1(&book)
        }
        if phase == .reopening { _ = book.beginReopening(interest, try entering()) }
        return (book, id)
    }

    private static func expected(_ event: Event, _ phase: Phase) -> Phase {
        switch (event, phase) {
        case (.remove, _): .absent
        case (.readEnded, .reading): .complete
        case (.readEnded, _): phase
        }
    }

    @Test(arguments: Event.allCases, Phase.allCases)
    func `each event in each phase leads where the diagram says`(event: Event, phase: Phase) throws {
        var (book, id) = try Self.book(phase)
        #expect(Phase(book.records[Self.interest]) == phase && book.checkInvariants() == [])
        // The disk answers reads only.
        guard event != .readEnded || phase == .reading else { return }
        let answer: Handle<Interest>? =
            switch event {
            case .readEnded: book.resultReadEnded(id)
            case .remove: book.remove(Self.interest).map { _ in Self.interest }
            }
        let expected = Self.expected(event, phase)
        #expect(Phase(book.records[Self.interest]) == expected)
        #expect((answer == Self.interest) == (expected != phase))
        #expect(book.handle(of: id) == (expected == .absent ? nil : Self.interest))
        #expect(book.contains(Self.interest) == (expected != .absent))
        #expect(book.hasResult(Self.interest) == [.complete, .reading].contains(expected))
        #expect(book.isWriting(Self.interest) == (expected == .writing))
        #expect((book.unacceptedRequest(Self.interest) != nil) == [.entering, .reopening].contains(expected))
        #expect(book.hasUnreadResult(Self.interest) == (expected == .complete))
        #expect(book.bytesBeingWritten == (expected == .writing ? 100 : 0))
        #expect(book.outstandingReadCount == (phase == .reading && event != .readEnded ? 1 : 0))
        #expect(book.checkInvariants() == [])
    }

    @Test func `the diagram has these transitions and no others`() throws {
        let entering = DurableRecord.Phase.writingRequest(try Self.entering())
        let phases: [DurableRecord.Phase] = [
            entering, .stored, .writingResult(bytes: 1), .complete, .readingResult,
            .deletingFailure(try Self.entering()),
        ]
        let legal = phases.map { from in phases.indices.filter { DurableBook.isLegal(from: from, to: phases[$0]) } }
        #expect(legal == [[1], [2], [1, 3], [4, 5], [3], [1, 3]])
    }

    @Test(arguments: [true, false])
    func `a result that was written is complete, and one that was not can be written again`(isStored: Bool) throws {
        var (book, id) = try Self.book(.writing)
        book.resultWriteEnded(Self.interest, isStored: isStored)
        #expect(book.hasResult(Self.interest) == isStored && book.bytesBeingWritten == 0)
        if !isStored { #expect(book.beginWritingResult(Self.interest, bytes: 100, Self.success) == id) }
        #expect(book.checkInvariants() == [])
    }

    @Test func `a failure is known while it is on the disk, and a repetition ends it`() throws {
        var book = Self.book()
        book.restoreRecord(
            DurableID(rawValue: 9), 1, acceptedAt: MonotonicTime(nanoseconds: 1),
            result: DurableSummary(failure: .timeout, attempts: 3), file: "f")
        #expect(book.storedFailure(of: 1) == .timeout && book.storedFailure(of: 2) == nil)
        #expect(book.beginReopening(1, try Self.entering()) == DurableID(rawValue: 9))
        #expect(book.storedFailure(of: 1) == nil && !book.hasResult(1))
        book.reopeningFailed(1)
        #expect(book.storedFailure(of: 1) == .timeout)
        _ = book.beginReopening(1, try Self.entering())
        #expect(book.reopeningSucceeded(1, acceptedAt: MonotonicTime(nanoseconds: 7_000_000)) == "f")
        #expect(book.expiry(of: 1) == MonotonicTime(nanoseconds: 12_000_000) && book.records[1]?.file == nil)
        #expect(book.beginWritingResult(1, bytes: 0, Self.success) != nil)
        book.resultWriteEnded(1, isStored: true)
        #expect(book.storedFailure(of: 1) == nil && book.checkInvariants() == [])
    }

    @Test func `bodies in memory that are being written have a bound, files have none`() throws {
        var (book, id) = try Self.book(.stored)
        #expect(book.beginWritingResult(Self.interest, bytes: 1_001, Self.success) == nil)
        #expect(Phase(book.records[Self.interest]) == .stored)
        #expect(book.beginWritingResult(Self.interest, bytes: 1_000, Self.success) == id)
        let other = book.insertRequest(8, acceptedAt: MonotonicTime(nanoseconds: 1), try Self.entering())
        book.requestStored(8)
        #expect(book.beginWritingResult(8, bytes: 1, Self.success) == nil)
        #expect(book.beginWritingResult(8, bytes: 0, Self.success) == other)
        #expect(book.checkInvariants() == [])
    }

    @Test func `as many results are read at once as the limit says, removed ones included`() throws {
        var book = Self.book(reads: 2)
        for interest in 1...3 as ClosedRange<Handle<Interest>> {
            let id = DurableID(rawValue: UInt64(interest.slabIndex) + 100)
            book.restoreRecord(id, interest, acceptedAt: MonotonicTime(nanoseconds: 1), result: Self.success)
        }
        #expect(
            book.beginResultRead(3) == DurableID(rawValue: 103) && book.beginResultRead(1) == DurableID(rawValue: 101))
        #expect(book.beginResultRead(2) == nil && book.hasUnreadResult(2) && book.outstandingReadCount == 2)
        _ = book.remove(3)
        #expect(book.beginResultRead(2) == nil, "the disk still reads the result of the removed request")
        #expect(book.resultReadEnded(DurableID(rawValue: 103)) == nil)
        #expect(book.beginResultRead(2) == DurableID(rawValue: 102))
        #expect(book.checkInvariants() == [])
    }

    @Test func `new IDs are above those on the disk`() throws {
        var book = Self.book()
        let found = [41, DurableID.maximumStoredValue, 7, DurableID.maximumStoredValue + 1].map {
            book.reserveStoredID(DurableID(rawValue: $0))
        }
        #expect(found == [true, true, true, false])
        let id = book.insertRequest(1, acceptedAt: MonotonicTime(nanoseconds: 1), try Self.entering())
        #expect(id.rawValue == DurableID.maximumStoredValue + 1)
    }

    @Test func `a request of an earlier broker is stored, or complete with its file`() {
        var book = Self.book()
        let now = MonotonicTime(nanoseconds: 1)
        book.restoreRecord(DurableID(rawValue: 1), 1, acceptedAt: now, result: nil)
        book.restoreRecord(DurableID(rawValue: 2), 2, acceptedAt: now, result: Self.success, file: "f")
        #expect(Phase(book.records[1]) == .stored && Phase(book.records[2]) == .complete)
        let removed = [book.remove(2), book.remove(2)]
        #expect(removed.map { $0?.file } == ["f", nil] && !book.isEmpty)
        _ = book.remove(1)
        #expect(book.isEmpty)
    }

    @Test func `the retention period begins with the FETCH`() throws {
        var (book, _) = try Self.book(.stored)
        let begin = MonotonicTime(nanoseconds: 1)
        #expect(book.expiry(of: Self.interest) == begin.advanced(byMilliseconds: 5))
        book.limits.retentionMilliseconds = 9
        #expect(book.expiry(of: Self.interest) == begin.advanced(byMilliseconds: 9))
        #expect(book.expiry(of: 1) == nil)
    }
}
